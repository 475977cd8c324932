//! The contents of the database in outline: stores, collections, tables and series stores, with their sizes.

use axum::response::Response;
use ropewalk::tables::{Column, TablesError, shown};
use ropewalk::{Database, Error};
use ropewalk_auth::{Caller, Needs, Right};
use ropewalk_sql::{SqlError, hide_rebuilds, type_name};
use ropewalk_transactions::code_of;
use ropewalk_wire::{Bounds, Code, Service, WireError};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::kit::counted::counted;
use crate::kit::path::PathRequest;
use crate::kit::problem::Result;
use crate::route::Route;

/// Most stores, collections, tables, and series stores.
const LISTED_MAX: usize = 10_000;
/// Most columns of all tables together: a table may have more than a thousand.
const COLUMNS_MAX: usize = 100_000;
/// Prefix of the tables in which SQL stores its definitions.
const DEFINITIONS: &str = "ropewalk_";

pub(crate) fn routes() -> Vec<Route> {
    let needs = Needs::LOGIN
        .later("contents that the caller may not read are left out; tables need `read` on all stores");
    vec![Route::new(needs, routes!(schema))]
}

/// Stores, collections, tables and series stores.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = Schema)]
struct SchemaOut {
    stores: Vec<StoreSize>,
    collections: Vec<CollectionSize>,
    tables: Vec<TableShape>,
    series: Vec<SeriesSize>,
    /// More than 10,000 stores, collections, tables or series stores, or 100,000 columns: the others were left
    /// out.
    truncated: bool,
}

/// An event store.
#[derive(Serialize, ToSchema)]
#[schema(as = StoreSize)]
struct StoreSize {
    #[schema(example = "courses")]
    name: String,
    /// Number of events, which is also the last position.
    events: u64,
}

/// A collection of documents.
#[derive(Serialize, ToSchema)]
#[schema(as = CollectionSize)]
struct CollectionSize {
    #[schema(example = "shop")]
    database: String,
    #[schema(example = "orders")]
    name: String,
    /// Null where access rules may hide documents from the caller.
    documents: Option<u64>,
    /// Bytes of the documents.
    bytes: Option<u64>,
}

/// A table.
#[derive(Serialize, ToSchema)]
#[schema(as = TableShape)]
struct TableShape {
    /// With its schema, unless that is `public`.
    #[schema(example = "stock")]
    name: String,
    columns: Vec<ColumnShape>,
}

/// A column.
#[derive(Serialize, ToSchema)]
#[schema(as = ColumnShape)]
struct ColumnShape {
    #[schema(example = "sku")]
    name: String,
    /// Its type in SQL.
    #[schema(example = "text")]
    r#type: String,
    nullable: bool,
}

impl ColumnShape {
    fn new(column: &Column) -> Self {
        let name = match column.enum_type() {
            Some(labels) => shown(labels.name()),
            None => type_name(column.column_type()),
        };
        Self { name: column.name().to_owned(), r#type: name, nullable: column.is_nullable() }
    }
}

/// A series store.
#[derive(Serialize, ToSchema)]
#[schema(as = SeriesSize)]
struct SeriesSize {
    #[schema(example = "default")]
    name: String,
    /// Number of series.
    series: u64,
}

/// Stores, collections, tables and series stores that the caller may read, with their sizes.
#[utoipa::path(
    get, path = "/v1/schema", operation_id = "get_schema", tag = "stores",
    responses((status = 200, description = "All of them, by name.", body = SchemaOut)),
)]
async fn schema(PathRequest { app, caller, .. }: PathRequest) -> Result<Response> {
    let service = &app.service;
    let bounds = Bounds::new(service);
    let encoded = || {
        let found = bounds.run(|| SchemaOut::read(service, &caller, &bounds))?;
        serde_json::to_vec(&found).map_err(|error| WireError::new(Code::Internal, format!("schema: {error}")))
    };
    let out = service.run_blocking_limited(encoded).await?;
    counted(service, out)
}

/// The error of reading the declared projections.
fn unreadable(error: SqlError) -> WireError {
    WireError::new(code_of(&error), error.message)
}

impl SchemaOut {
    fn read(service: &Service, caller: &Caller, bounds: &Bounds) -> Result<Self, WireError> {
        let db = service.database();
        let may_read = |name: &str| caller.may(Right::Read, Some(name));
        let stores = db.event_stores_after(None, LISTED_MAX + 1, may_read);
        let mut found = Self { truncated: stores.len() > LISTED_MAX, ..Self::default() };
        for name in stores.into_iter().take(LISTED_MAX) {
            let head = db.events(&name)?.head()?;
            found.stores.push(StoreSize { name, events: head.map_or(0, |head| head.0) });
        }
        found.collections(db, caller, bounds)?;
        if caller.may(Right::Read, None) {
            found.tables(db, bounds, COLUMNS_MAX)?;
        }
        let snapshot = db.snapshot();
        for name in db.series_stores().into_iter().filter(|name| caller.may(Right::Read, Some(name))) {
            bounds.look()?;
            if found.series.len() >= LISTED_MAX {
                found.truncated = true;
                break;
            }
            let series = snapshot.series(&db.series(&name)?).count(&[]);
            found.series.push(SeriesSize { name, series });
        }
        Ok(found)
    }

    fn collections(&mut self, db: &Database, caller: &Caller, bounds: &Bounds) -> Result<(), WireError> {
        let databases = db.documents().databases().map_err(Error::from)?;
        for database in databases.into_iter().filter(|name| caller.may(Right::Read, Some(name))) {
            let counts_all = caller.may(Right::Admin, Some(&database));
            let before = db.snapshot();
            let mut names = db.documents().collections(&database).map_err(Error::from)?;
            hide_rebuilds(db, &before, &mut names, Some(&database)).map_err(unreadable)?;
            for name in names {
                if self.collections.len() >= LISTED_MAX {
                    self.truncated = true;
                    return Ok(());
                }
                // The first count of a collection after a start reads all of it.
                bounds.look()?;
                let collection = db.documents().collection(&database, &name).map_err(Error::from)?;
                let count = match counts_all {
                    true => collection.estimated_count().map(Some),
                    false => collection.unruled_count(),
                };
                let count = count.map_err(Error::from)?;
                let (documents, bytes) = (count.map(|count| count.documents), count.map(|count| count.bytes));
                self.collections.push(CollectionSize { database: database.clone(), name, documents, bytes });
            }
        }
        Ok(())
    }

    fn tables(&mut self, db: &Database, bounds: &Bounds, mut columns_left: usize) -> Result<(), WireError> {
        let before = db.snapshot();
        let mut names = db.tables().names().map_err(Error::from)?;
        hide_rebuilds(db, &before, &mut names, None).map_err(unreadable)?;
        for name in names.into_iter().filter(|name| !name.starts_with(DEFINITIONS)) {
            bounds.look()?;
            if self.tables.len() >= LISTED_MAX {
                self.truncated = true;
                return Ok(());
            }
            let snapshot = db.snapshot();
            let schema =
                db.tables().table(&name).and_then(|table| db.tables().schema(snapshot.engine(), &table));
            let schema = match schema {
                Ok(schema) => schema,
                // It was dropped meanwhile.
                Err(TablesError::UnknownTable { .. }) => continue,
                Err(error) => return Err(Error::from(error).into()),
            };
            let Some(left) = columns_left.checked_sub(schema.columns().len()) else {
                self.truncated = true;
                return Ok(());
            };
            columns_left = left;
            let columns = schema.columns().iter().map(ColumnShape::new).collect();
            self.tables.push(TableShape { name: shown(&name), columns });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::tables::{ColumnDef, TableDef, Type};
    use ropewalk_wire::ServiceSettings;

    use super::*;

    #[test]
    fn columns_of_all_tables_are_bounded() {
        let db = Database::in_memory().unwrap();
        let mut tx = db.begin();
        for name in ["a", "b"] {
            let columns = [ColumnDef::new("id", Type::INT8), ColumnDef::new("n", Type::INT8)];
            let table = columns.into_iter().fold(TableDef::new(name), TableDef::column);
            tx.tables().create_table(table).unwrap();
        }
        tx.commit().unwrap();
        let service = Service::new(db.clone(), ServiceSettings::default()).unwrap();
        let listed = |columns_max: usize| {
            let mut found = SchemaOut::default();
            found.tables(&db, &Bounds::new(&service), columns_max).unwrap();
            (found.tables.len(), found.truncated)
        };
        assert_eq!((listed(4), listed(3), listed(1)), ((2, false), (1, true), (0, true)));
    }
}
