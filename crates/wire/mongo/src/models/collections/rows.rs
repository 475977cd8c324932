//! Rows as documents.

use ropewalk::documents::lang::{Doc, DocBuf, Sort, Value as Bson, Writer};
use ropewalk::tables::{KeyRange, Row, Scalar, Schema, Table, TablesError, TablesRead, Type, Value};
use ropewalk::tables::{qualify, schema_and_name};
use ropewalk::{Database, Error, Snapshot, Transaction};
use ropewalk_sql::{Prepared, SqlError, is_system_table, state};

use super::AT_ONCE;
use crate::call::Call;
use crate::crud::write::int;
use crate::models::change::Change;
use crate::models::sql::{Watch, failed, session};
use crate::models::sql_values::{parameter, parameters, put};
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::made::{Each, Feed};

/// The field with the primary key, unless a column has its name.
const ID: &str = "_id";
/// The field of a sort in the order of the store.
const NATURAL: &str = "$natural";
/// MongoDB's code of a duplicate key.
const DUPLICATE_KEY: i32 = 11_000;

/// The rows that may match a filter.
pub(super) struct Scan<'a> {
    table: Table,
    /// Fields that have to equal a value.
    equal: Vec<(&'a str, Bson<'a>)>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(call: &Call<'_>, name: &str, filter: Doc<'a>) -> Outcome<Self> {
        let table = table(call.shared.service.database(), name)?;
        let equal = filter.iter().filter_map(|(path, condition)| Some((path, equality(condition)?)));
        // Paths with points lead into values; those with a dollar sign are operators.
        let equal = equal.filter(|(path, _)| !path.starts_with('$') && !path.contains('.'));
        Ok(Self { table, equal: equal.collect() })
    }

    /// True when the rows come in the requested order: they are read in the order of the primary key.
    pub(super) fn is_sorted(&self, call: &Call<'_>, sort: Option<&Sort>) -> Outcome<bool> {
        let Some(sort) = sort else { return Ok(true) };
        let Some(field) = sort.only().filter(|field| !field.descending) else { return Ok(false) };
        let database = call.shared.service.database();
        let schema = database.tables().schema(database.snapshot().engine(), &self.table);
        let schema = schema.map_err(Error::from)?;
        let mut columns = key(&schema);
        let (Some(column), None) = (columns.next(), columns.next()) else { return Ok(field.path == NATURAL) };
        let is_key = field.path == column.name() || (field.path == ID && !has_id(&schema));
        Ok(field.path == NATURAL || (is_key && is_exact(column.column_type())))
    }

    /// In a transaction, with its writes.
    pub(super) fn within(&self, tx: &mut Transaction, each: Each<'_>) -> Outcome<()> {
        let mut tables = tx.tables();
        let schema = TablesRead::schema(&mut tables, &self.table).map_err(Error::from)?;
        let range = KeyRange::prefix(self.leading(&schema));
        let mut outcome = Ok(());
        let scanned = tables.scan(&self.table, &range, false, &mut |row| {
            let passed = document(&row).map_err(Failure::from).and_then(&mut *each);
            passed.or_else(|failure| {
                outcome = Err(failure);
                Ok(false)
            })
        });
        scanned.map_err(Error::from)?;
        outcome
    }

    /// At a snapshot.
    pub(super) fn at(&self, database: &Database, snapshot: Snapshot) -> Outcome<Rows> {
        let mut tables = snapshot.tables(database);
        let schema = TablesRead::schema(&mut tables, &self.table).map_err(Error::from)?;
        let prefix = tables.stored_prefix(&self.table, &self.leading(&schema)).map_err(Error::from)?;
        let (database, table, next) = (database.clone(), self.table.clone(), Some(prefix.clone()));
        Ok(Rows { database, snapshot, table, prefix, next })
    }

    /// Values of the first key columns that the filter requires.
    fn leading(&self, schema: &Schema) -> Vec<Value<'static>> {
        let mut values = Vec::new();
        for column in key(schema) {
            let ty = column.column_type();
            let Some(given) = self.given(schema, column.name()).filter(|_| is_exact(ty)) else { break };
            match parameter(given, ty) {
                Ok(value) if !value.is_null() => values.push(value),
                // No value of the column equals it, or every row has to be tested.
                _ => break,
            }
        }
        values
    }

    /// The value that a key column has to equal.
    fn given(&self, schema: &Schema, column: &str) -> Option<Bson<'a>> {
        let equal = |name: &str| self.equal.iter().find(|(path, _)| *path == name).map(|(_, value)| *value);
        let id = || match equal(ID).filter(|_| !has_id(schema))? {
            Bson::Document(id) if schema.key_columns().len() > 1 => id.get(column),
            id => Some(id).filter(|_| schema.key_columns().len() == 1),
        };
        equal(column).or_else(id)
    }
}

/// The value of an equality; `None` for other conditions.
fn equality(condition: Bson<'_>) -> Option<Bson<'_>> {
    match condition {
        Bson::Document(operators) if operators.first().is_some_and(|(name, _)| name.starts_with('$')) => {
            operators.get("$eq")
        }
        value => Some(value),
    }
}

/// True for types of which equal documents have equal keys.
fn is_exact(ty: Type) -> bool {
    let Type::Scalar(scalar) = ty else { return false };
    matches!(scalar, Scalar::Bool | Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Text | Scalar::Uuid)
}

/// Rows read as documents, at a snapshot.
pub(super) struct Rows {
    database: Database,
    snapshot: Snapshot,
    table: Table,
    /// Start of their stored keys.
    prefix: Vec<u8>,
    /// The stored key from which to read; `None` at the end.
    next: Option<Vec<u8>>,
}

impl Feed for Rows {
    fn next(&mut self, each: Each<'_>) -> Outcome<bool> {
        let Self { database, snapshot, table, prefix, next } = self;
        let Some(start) = next.take() else { return Ok(false) };
        let (mut count, mut outcome) = (0, Ok(()));
        let scanned = snapshot.tables(database).scan_stored(table, Some(&start), None, &mut |row| {
            if !row.stored_key().starts_with(prefix.as_slice()) {
                return Ok(false);
            }
            count += 1;
            match document(&row).map_err(Failure::from).and_then(&mut *each) {
                Ok(true) if count < AT_ONCE => return Ok(true),
                Ok(_) => *next = Some([row.stored_key(), &[0]].concat()),
                Err(failure) => outcome = Err(failure),
            }
            Ok(false)
        });
        scanned.map_err(Error::from)?;
        outcome?;
        Ok(next.is_some())
    }
}

fn document(row: &Row<'_>) -> Result<DocBuf, Error> {
    let (schema, values) = (row.schema(), row.values()?);
    let mut out = Writer::new();
    if !has_id(schema) {
        let value = |place: &usize| values.get(*place).unwrap_or(&Value::Null);
        match schema.key_columns() {
            [] => {}
            [only] => put(&mut out, ID, value(only)),
            several => {
                out.open_document(ID);
                several.iter().zip(key(schema)).for_each(|(place, column)| {
                    put(&mut out, column.name(), value(place));
                });
                out.close();
            }
        }
    }
    for (column, value) in schema.columns().iter().zip(&values) {
        put(&mut out, column.name(), value);
    }
    Ok(out.finish())
}

/// Whether a column has the name of the primary key's field.
fn has_id(schema: &Schema) -> bool {
    schema.columns().iter().any(|column| column.name() == ID)
}

/// The columns of the primary key.
fn key(schema: &Schema) -> impl Iterator<Item = &ropewalk::tables::Column> {
    schema.key_columns().iter().filter_map(|place| schema.columns().get(*place))
}

/// The table of a collection: of the schema `public`, else of the schema before the first point.
///
/// # Errors
/// `NamespaceNotFound`; `Unauthorized` for a table of definitions, whatever rights the caller has.
fn table(database: &Database, name: &str) -> Outcome<Table> {
    let in_schema = name.split_once('.').map(|(schema, name)| qualify(schema, name));
    for stored in [Some(name.to_owned()), in_schema].into_iter().flatten() {
        if is_system_table(&stored) {
            let message = format!("permission denied: table {stored:?} stores definitions");
            return Err(Failure::new(Code::Unauthorized, message));
        }
        match database.tables().table(&stored) {
            Ok(table) => return Ok(table),
            Err(TablesError::UnknownTable { .. }) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
    }
    let message = format!("there is no table {name:?}; tables are made by SQL");
    Err(Failure::new(Code::NamespaceNotFound, message))
}

/// Inserts documents as rows.
pub(super) fn insert<'a>(name: &'a str, documents: Vec<Doc<'a>>) -> Change<'a> {
    let bytes = documents.iter().map(|document| document.bytes().len()).sum();
    Change::new(bytes, move |call, tx| {
        let database = call.shared.service.database();
        let table = table(database, name)?;
        let schema = database.tables().schema(database.snapshot().engine(), &table).map_err(Error::from)?;
        let mut session = session(call);
        let _watch = Watch::new(call, session.canceller());
        let mut ready: Option<(Vec<&str>, Prepared)> = None;
        for document in &documents {
            call.may_go_on()?;
            let (names, values): (Vec<_>, Vec<_>) = row_of(&schema, *document)?.into_iter().unzip();
            let (_, prepared) = match ready.take() {
                Some(same) if same.0 == names => ready.insert(same),
                _ => {
                    let prepared = session.prepare(&statement(&schema, &names));
                    let prepared = prepared.map_err(|error| refused(call, &error))?;
                    ready.insert((names, prepared))
                }
            };
            let values = parameters(prepared, &values).map_err(|error| refused(call, &error))?;
            session.execute_in(tx, prepared, &values).map_err(|error| refused(call, &error))?;
        }
        let mut out = Writer::new();
        out.put("n", int(documents.len() as i64));
        Ok(out.finish())
    })
}

/// Names and values of the columns that a document gives.
fn row_of<'a>(schema: &'a Schema, document: Doc<'a>) -> Outcome<Vec<(&'a str, Bson<'a>)>> {
    let refuse = |why: String| {
        let name = ropewalk::tables::shown(schema.name());
        Err(Failure::new(Code::BadValue, format!("the _id of a row of the table {name:?} {why}")))
    };
    let mut row = Vec::new();
    for (name, value) in document {
        match value {
            value if name != ID || has_id(schema) => row.push((name, value)),
            // Drivers give one to every document; rows have the keys that their table defines.
            Bson::ObjectId(_) => {}
            value => match (key(schema).collect::<Vec<_>>().as_slice(), value) {
                ([], _) => return refuse("has no column: the table has no primary key".to_owned()),
                ([only], value) => row.push((only.name(), value)),
                (several, Bson::Document(id)) => {
                    for (name, value) in id {
                        if !several.iter().any(|column| column.name() == name) {
                            return refuse(format!(
                                "has the field {name:?}, which is no column of its primary key"
                            ));
                        }
                        row.push((name, value));
                    }
                }
                _ => return refuse("is a document with the columns of its primary key".to_owned()),
            },
        }
    }
    Ok(row)
}

fn statement(schema: &Schema, columns: &[&str]) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let (in_schema, table) = schema_and_name(schema.name());
    let into = format!("INSERT INTO {}.{}", quoted(in_schema), quoted(table));
    if columns.is_empty() {
        return format!("{into} DEFAULT VALUES");
    }
    let names: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let values: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    format!("{into} ({}) VALUES ({})", names.join(", "), values.join(", "))
}

/// The failure of a statement; a duplicate key has MongoDB's code.
fn refused(call: &Call<'_>, error: &SqlError) -> Failure {
    let failure = failed(call, error);
    if error.state == state::UNIQUE_VIOLATION {
        return Failure { code: DUPLICATE_KEY, name: "DuplicateKey".into(), ..failure };
    }
    failure
}
