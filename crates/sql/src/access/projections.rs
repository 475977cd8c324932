//! Declared projections and their parked events, stored in tables.
//!
//! ```text
//! ropewalk_projection_definitions   name ─▶ store, CREATE PROJECTION; the text before a change of version and the
//!                                   first generation of the new text; requests to the runner
//! ropewalk_projection_parked        projection, generation, position ─▶ type, statement, error, request to retry
//! ```
//! Checkpoints and generations are records of the facade's projections.

use ropewalk::hooks::is_rebuild_name;
use ropewalk::projections::{Output, ProjectionStatus};
use ropewalk::tables::{ColumnDef, KeyRange, TableDef, TablesError, Type, Value};
use ropewalk::{Database, Snapshot, Transaction};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::syntax::parse::{self, Statement};
use crate::syntax::projections::{ProjectionDef, ProjectionStatement};
use crate::syntax::statements::Utility;

/// The table that holds declarations.
pub(crate) const DEFINITIONS: &str = "ropewalk_projection_definitions";
/// The table that holds parked events.
pub(crate) const PARKED: &str = "ropewalk_projection_parked";
/// Most parked events of a generation. A projection that cannot park an event stops at it.
pub const PARKED_MAX: u64 = 10_000;
/// A projection with more pending events is catching up.
const LIVE_LAG_MAX: u64 = 1_000;

/// A declared projection as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProjection {
    /// Its name.
    pub name: String,
    /// The event store.
    pub store: String,
    /// The newest CREATE PROJECTION.
    pub text: String,
    /// The text of generations before `since`.
    pub before: Option<String>,
    /// The first generation that `text` builds; `None` until the rebuild of a changed version begins.
    pub since: Option<u64>,
    /// No events are applied.
    pub is_paused: bool,
    /// A rebuild is requested and has not begun.
    pub wants_rebuild: bool,
    /// Number of requests to retry or skip events.
    pub requests: u64,
}

/// A declared projection that cannot be read. It is not run; DROP PROJECTION removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedProjection {
    /// Its name.
    pub name: String,
    /// The event store; empty if it is not known.
    pub store: String,
    /// The reason.
    pub error: SqlError,
}

/// A projection, or why it cannot be read.
type OrDamaged<T> = std::result::Result<T, Box<DamagedProjection>>;

/// Declared projections by name, and those that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedProjections<T> {
    /// The readable ones.
    pub readable: Vec<T>,
    /// The others.
    pub damaged: Vec<DamagedProjection>,
}

/// State of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionInfo {
    /// The declaration.
    pub stored: StoredProjection,
    /// The newest declaration, parsed.
    pub def: ProjectionDef,
    /// Checkpoint, lag and failure.
    pub status: ProjectionStatus,
    /// Number of parked events.
    pub parked: u64,
}

impl ProjectionInfo {
    fn read(db: &Database, snapshot: &Snapshot, stored: StoredProjection) -> Result<Self> {
        let def = StoredProjection::parse(&stored.text)?;
        let projections = db.projections(&stored.store)?;
        let status = projections.status_at(snapshot, &stored.name, &def.query())?;
        let parked = match status.generation {
            Some(generation) => parked_count(db, snapshot, &stored.name, generation)?,
            None => 0,
        };
        Ok(Self { stored, def, status, parked })
    }

    /// As [`ProjectionInfo::read`]; every error but one of the disk is damage of this projection.
    fn read_or_damaged(
        db: &Database,
        snapshot: &Snapshot,
        stored: StoredProjection,
    ) -> Result<OrDamaged<Self>> {
        let (name, store) = (stored.name.clone(), stored.store.clone());
        match Self::read(db, snapshot, stored) {
            Ok(info) => Ok(Ok(info)),
            Err(error) if error.state == state::IO_ERROR => Err(error),
            Err(error) => Ok(Err(Box::new(DamagedProjection { name, store, error }))),
        }
    }

    /// `live`, `catching_up`, `rebuilding`, `paused` or `failed`.
    pub fn state(&self) -> &'static str {
        if self.stored.is_paused {
            "paused"
        } else if self.error().is_some() {
            "failed"
        } else if self.status.rebuild.is_some() || self.stored.wants_rebuild {
            "rebuilding"
        } else if self.status.checkpoint.is_none() || self.status.lag > LIVE_LAG_MAX {
            "catching_up"
        } else {
            "live"
        }
    }

    /// The error of the event that the projection or its rebuild stopped at.
    pub fn error(&self) -> Option<&str> {
        let rebuild = self.status.rebuild.as_ref().and_then(|rebuild| rebuild.failure.as_ref());
        self.status.failure.as_ref().or(rebuild).map(|failure| failure.error.as_str())
    }
}

/// An event that a projection set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedEvent {
    /// The projection.
    pub projection: String,
    /// The generation of its outputs.
    pub generation: u64,
    /// Position of the event.
    pub position: u64,
    /// Type of the event.
    pub event_type: String,
    /// The statement that failed.
    pub statement: String,
    /// The code of the error.
    pub sqlstate: String,
    /// The message of the error.
    pub message: String,
    /// Time of the failure, microseconds since 1970 UTC.
    pub parked_at: i64,
    /// The event is to be applied again.
    pub wants_retry: bool,
}

fn number(value: u64) -> Value<'static> {
    Value::Int8(i64::try_from(value).unwrap_or(i64::MAX))
}

fn damaged(what: &str) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, format!("the stored {what}"))
}

/// Rows of one of the tables; empty until it exists.
fn rows(access: &mut Access<'_>, name: &str, range: &KeyRange<'_>) -> Result<Vec<Vec<Value<'static>>>> {
    first_rows(access, name, range, usize::MAX)
}

fn first_rows(
    access: &mut Access<'_>,
    name: &str,
    range: &KeyRange<'_>,
    limit: usize,
) -> Result<Vec<Vec<Value<'static>>>> {
    match access.table(name) {
        Ok((table, _)) => access.first(&table, range, limit, &Budget::new(MEMORY_BYTES_MAX)),
        Err(error) if error.state == state::UNDEFINED_TABLE => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

impl StoredProjection {
    /// Parses a stored text.
    ///
    /// # Errors
    /// XX001.
    pub fn parse(text: &str) -> Result<ProjectionDef> {
        let corrupted = |error: SqlError| {
            let message = format!("the stored projection cannot be parsed: {error}");
            SqlError::new(state::DATA_CORRUPTED, message)
        };
        match parse::one(text).map_err(corrupted)? {
            Statement::Utility(Utility::Projection(statement)) => match *statement {
                ProjectionStatement::Create { def, .. } => Ok(def),
                _ => Err(damaged("projection")),
            },
            _ => Err(damaged("projection")),
        }
    }

    /// The text that a generation of the outputs is built by.
    pub fn text_of(&self, generation: u64) -> &str {
        match &self.before {
            Some(before) if self.since.is_none_or(|since| generation < since) => before,
            _ => &self.text,
        }
    }

    /// Returns the declaration of a projection; guarded by a serializable transaction.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn read_in(db: &Database, tx: &mut Transaction, name: &str) -> Result<Option<Self>> {
        find(&mut Access::Transaction(db, tx), name)
    }

    /// Writes the declaration.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn put_in(&self, tx: &mut Transaction) -> Result<()> {
        let mut tables = tx.tables();
        let table = tables.create_table_if_absent(
            TableDef::new(DEFINITIONS)
                .column(ColumnDef::new("name", Type::TEXT))
                .column(ColumnDef::new("store", Type::TEXT).not_null())
                .column(ColumnDef::new("definition", Type::TEXT).not_null())
                .column(ColumnDef::new("definition_before", Type::TEXT))
                .column(ColumnDef::new("since_generation", Type::INT8))
                .column(ColumnDef::new("paused", Type::BOOL).not_null())
                .column(ColumnDef::new("rebuild", Type::BOOL).not_null())
                .column(ColumnDef::new("requests", Type::INT8).not_null())
                .primary_key(["name"]),
        )?;
        let row: [(&str, Value<'_>); 8] = [
            ("name", self.name.as_str().into()),
            ("store", self.store.as_str().into()),
            ("definition", self.text.as_str().into()),
            ("definition_before", self.before.as_deref().into()),
            ("since_generation", self.since.map_or(Value::Null, number)),
            ("paused", self.is_paused.into()),
            ("rebuild", self.wants_rebuild.into()),
            ("requests", number(self.requests)),
        ];
        tables.upsert(&table, &row)?;
        Ok(())
    }

    /// Deletes the declaration and the parked events.
    pub(crate) fn remove_in(&self, db: &Database, tx: &mut Transaction) -> Result<()> {
        for parked in ParkedEvent::all_in(db, tx, &self.name)? {
            parked.remove_in(tx)?;
        }
        let mut tables = tx.tables();
        let table = tables.table(DEFINITIONS)?;
        tables.delete(&table, &[self.name.as_str().into()])?;
        Ok(())
    }

    fn of_row(row: &[Value<'static>]) -> Result<Self> {
        let [
            Value::Text(name),
            Value::Text(store),
            Value::Text(text),
            before,
            since,
            Value::Bool(is_paused),
            Value::Bool(wants_rebuild),
            Value::Int8(requests),
        ] = row
        else {
            return Err(damaged("projection"));
        };
        Ok(Self {
            name: name.to_string(),
            store: store.to_string(),
            text: text.to_string(),
            before: match before {
                Value::Text(before) => Some(before.to_string()),
                _ => None,
            },
            since: since.as_integer().and_then(|since| u64::try_from(since).ok()),
            is_paused: *is_paused,
            wants_rebuild: *wants_rebuild,
            requests: u64::try_from(*requests).unwrap_or_default(),
        })
    }
}

/// The declaration of this name.
pub(crate) fn find(access: &mut Access<'_>, name: &str) -> Result<Option<StoredProjection>> {
    let found = rows(access, DEFINITIONS, &KeyRange::prefix([Value::text(name)]))?;
    found.first().map(|row| StoredProjection::of_row(row)).transpose()
}

/// The declaration of a row, or why it cannot be read.
fn stored(row: &[Value<'static>]) -> OrDamaged<StoredProjection> {
    StoredProjection::of_row(row).map_err(|error| {
        let text = |place: usize| row.get(place).and_then(Value::as_str).unwrap_or_default();
        Box::new(DamagedProjection { name: text(0).into(), store: text(1).into(), error })
    })
}

/// All declarations, by name.
pub(crate) fn all(access: &mut Access<'_>) -> Result<ListedProjections<StoredProjection>> {
    let mut listed = ListedProjections { readable: Vec::new(), damaged: Vec::new() };
    for row in rows(access, DEFINITIONS, &KeyRange::all())? {
        match stored(&row) {
            Ok(stored) => listed.readable.push(stored),
            Err(damaged) => listed.damaged.push(*damaged),
        }
    }
    Ok(listed)
}

/// Returns all declared projections, by name.
///
/// # Errors
/// The table of declarations cannot be read.
pub fn stored_projections(db: &Database, snapshot: &Snapshot) -> Result<ListedProjections<StoredProjection>> {
    all(&mut Access::Snapshot(db, snapshot))
}

/// Removes the outputs that rebuilds of declared projections fill, until they replace the live ones, from the
/// `names` of tables, or of collections of `database`. `before`: a snapshot from before the names were read.
///
/// # Errors
/// Stored data is corrupt.
pub fn hide_rebuilds(
    db: &Database,
    before: &Snapshot,
    names: &mut Vec<String>,
    database: Option<&str>,
) -> Result<()> {
    if !names.iter().any(|name| is_rebuild_name(name)) {
        return Ok(());
    }
    // A rebuild may have begun or ended since.
    let mut rebuilt = rebuild_outputs(db, before)?;
    rebuilt.extend(rebuild_outputs(db, &db.snapshot())?);
    let output = |name: &str| match database {
        None => Output::table(name),
        Some(database) => Output::collection_in(database, name),
    };
    names.retain(|name| !is_rebuild_name(name) || !rebuilt.contains(&output(name)));
    Ok(())
}

fn rebuild_outputs(db: &Database, snapshot: &Snapshot) -> Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for StoredProjection { name, store, text, .. } in stored_projections(db, snapshot)?.readable {
        // A damaged declaration has no rebuild.
        let parse = || {
            Ok::<_, SqlError>(StoredProjection::parse(&text).map_or_else(|_| Vec::new(), |def| def.outputs))
        };
        outputs.extend(db.projections(&store)?.rebuild_outputs_at(snapshot, &name, parse)?);
    }
    Ok(outputs)
}

/// Returns the state of all declared projections, by name. Cost: that of each projection's lag.
///
/// # Errors
/// The table of declarations cannot be read; errors of the disk.
pub fn projections_at(db: &Database, snapshot: &Snapshot) -> Result<ListedProjections<ProjectionInfo>> {
    let ListedProjections { readable: stored, mut damaged } = stored_projections(db, snapshot)?;
    let mut readable = Vec::with_capacity(stored.len());
    for stored in stored {
        match ProjectionInfo::read_or_damaged(db, snapshot, stored)? {
            Ok(info) => readable.push(info),
            Err(one) => damaged.push(*one),
        }
    }
    Ok(ListedProjections { readable, damaged })
}

/// The state of the projections of `store` whose names come after `after`, by name. A damaged declaration whose
/// store is not known is among those of every store. Cost of each entry: that of its projection's lag.
///
/// The iterator ends after an error: the table of declarations cannot be read; the disk.
pub fn projections_after<'a>(
    db: &'a Database,
    snapshot: &'a Snapshot,
    store: &'a str,
    after: Option<&str>,
) -> impl Iterator<Item = Result<OrDamaged<ProjectionInfo>>> + use<'a> {
    let is_listed = move |place: &str| place == store || place.is_empty();
    let mut access = Access::Snapshot(db, snapshot);
    let mut after = after.map(str::to_owned);
    let mut has_ended = false;
    let mut next = move || -> Result<Option<OrDamaged<StoredProjection>>> {
        loop {
            let range = match &after {
                Some(after) => KeyRange::all().after([Value::text(after.as_str())]),
                None => KeyRange::all(),
            };
            let rows = first_rows(&mut access, DEFINITIONS, &range, 1)?;
            let Some(row) = rows.first() else { return Ok(None) };
            let found = stored(row);
            let (name, place) = match &found {
                Ok(stored) => (&stored.name, &stored.store),
                Err(damaged) => (&damaged.name, &damaged.store),
            };
            after = Some(name.clone());
            if is_listed(place) {
                return Ok(Some(found));
            }
        }
    };
    std::iter::from_fn(move || {
        if has_ended {
            return None;
        }
        let entry = next().and_then(|found| match found {
            None => Ok(None),
            Some(Ok(stored)) => ProjectionInfo::read_or_damaged(db, snapshot, stored).map(Some),
            Some(Err(damaged)) => Ok(Some(Err(damaged))),
        });
        has_ended = !matches!(entry, Ok(Some(_)));
        entry.transpose()
    })
}

/// Returns the state of one declared projection.
///
/// # Errors
/// Stored data is corrupt.
pub fn projection_at(db: &Database, snapshot: &Snapshot, name: &str) -> Result<Option<ProjectionInfo>> {
    let stored = find(&mut Access::Snapshot(db, snapshot), name)?;
    stored.map(|stored| ProjectionInfo::read(db, snapshot, stored)).transpose()
}

/// Returns the first parked events of a projection's live generation after the position `after`, by position, at
/// most `limit`.
///
/// # Errors
/// Stored data is corrupt.
pub fn parked_at(
    db: &Database,
    snapshot: &Snapshot,
    name: &str,
    generation: Option<u64>,
    (after, limit): (Option<u64>, usize),
) -> Result<Vec<ParkedEvent>> {
    let Some(generation) = generation else { return Ok(Vec::new()) };
    let mut range = KeyRange::prefix([Value::text(name), number(generation)]);
    if let Some(after) = after {
        range = range.after([Value::text(name), number(generation), number(after)]);
    }
    let rows = first_rows(&mut Access::Snapshot(db, snapshot), PARKED, &range, limit)?;
    rows.iter().map(|row| ParkedEvent::of_row(row)).collect()
}

/// Returns the number of parked events of a generation. Cost: that of reading them.
///
/// # Errors
/// Stored data is corrupt.
pub fn parked_count(db: &Database, snapshot: &Snapshot, name: &str, generation: u64) -> Result<u64> {
    let mut access = Access::Snapshot(db, snapshot);
    match access.table(PARKED) {
        Ok((table, _)) => access.count(&table, &KeyRange::prefix([Value::text(name), number(generation)])),
        Err(error) if error.state == state::UNDEFINED_TABLE => Ok(0),
        Err(error) => Err(error),
    }
}

impl ParkedEvent {
    /// Returns whether the event is parked as it is here, with its error and request.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn is_stored_in(&self, db: &Database, tx: &mut Transaction) -> Result<bool> {
        let key = [Value::text(self.projection.as_str()), number(self.generation), number(self.position)];
        let stored = rows(&mut Access::Transaction(db, tx), PARKED, &KeyRange::prefix(key))?;
        Ok(stored.first().map(|row| Self::of_row(row)).transpose()?.as_ref() == Some(self))
    }

    /// Returns the parked events of all generations.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn all_in(db: &Database, tx: &mut Transaction, name: &str) -> Result<Vec<Self>> {
        let range = KeyRange::prefix([Value::text(name)]);
        let rows = rows(&mut Access::Transaction(db, tx), PARKED, &range)?;
        rows.iter().map(|row| Self::of_row(row)).collect()
    }

    /// Writes the parked event.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn put_in(&self, tx: &mut Transaction) -> Result<()> {
        let mut tables = tx.tables();
        let table = tables.create_table_if_absent(
            TableDef::new(PARKED)
                .column(ColumnDef::new("projection", Type::TEXT))
                .column(ColumnDef::new("generation", Type::INT8))
                .column(ColumnDef::new("position", Type::INT8))
                .column(ColumnDef::new("type", Type::TEXT).not_null())
                .column(ColumnDef::new("statement", Type::TEXT).not_null())
                .column(ColumnDef::new("sqlstate", Type::TEXT).not_null())
                .column(ColumnDef::new("message", Type::TEXT).not_null())
                .column(ColumnDef::new("parked_at", Type::TIMESTAMPTZ).not_null())
                .column(ColumnDef::new("retry", Type::BOOL).not_null())
                .primary_key(["projection", "generation", "position"]),
        )?;
        let row: [(&str, Value<'_>); 9] = [
            ("projection", self.projection.as_str().into()),
            ("generation", number(self.generation)),
            ("position", number(self.position)),
            ("type", self.event_type.as_str().into()),
            ("statement", self.statement.as_str().into()),
            ("sqlstate", self.sqlstate.as_str().into()),
            ("message", self.message.as_str().into()),
            ("parked_at", Value::Timestamptz(self.parked_at)),
            ("retry", self.wants_retry.into()),
        ];
        tables.upsert(&table, &row)?;
        Ok(())
    }

    /// Deletes the parked event; false if it is not stored.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn remove_in(&self, tx: &mut Transaction) -> Result<bool> {
        let mut tables = tx.tables();
        let table = match tables.table(PARKED) {
            Ok(table) => table,
            Err(TablesError::UnknownTable { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let key: [Value<'_>; 3] =
            [self.projection.as_str().into(), number(self.generation), number(self.position)];
        Ok(tables.delete(&table, &key)?)
    }

    fn of_row(row: &[Value<'static>]) -> Result<Self> {
        let [
            Value::Text(projection),
            Value::Int8(generation),
            Value::Int8(position),
            Value::Text(event_type),
            Value::Text(statement),
            Value::Text(sqlstate),
            Value::Text(message),
            Value::Timestamptz(parked_at),
            Value::Bool(wants_retry),
        ] = row
        else {
            return Err(damaged("parked event"));
        };
        Ok(Self {
            projection: projection.to_string(),
            generation: u64::try_from(*generation).unwrap_or_default(),
            position: u64::try_from(*position).unwrap_or_default(),
            event_type: event_type.to_string(),
            statement: statement.to_string(),
            sqlstate: sqlstate.to_string(),
            message: message.to_string(),
            parked_at: *parked_at,
            wants_retry: *wants_retry,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parked_events_are_read_up_to_limit() {
        let db = Database::in_memory().unwrap();
        let mut tx = db.begin();
        for position in 1..=5 {
            let parked = ParkedEvent {
                projection: "p".to_owned(),
                generation: 1,
                position,
                event_type: "A".to_owned(),
                statement: "DELETE FROM t".to_owned(),
                sqlstate: "42P01".to_owned(),
                message: "there is no t".to_owned(),
                parked_at: 0,
                wants_retry: false,
            };
            parked.put_in(&mut tx).unwrap();
        }
        tx.commit().unwrap();
        let positions = |after, limit| -> Vec<u64> {
            let parked = parked_at(&db, &db.snapshot(), "p", Some(1), (after, limit)).unwrap();
            parked.iter().map(|parked| parked.position).collect()
        };
        assert_eq!((positions(None, 0), positions(None, 3)), (vec![], vec![1, 2, 3]));
        assert_eq!(positions(None, 9), [1, 2, 3, 4, 5]);
        assert_eq!((positions(Some(3), 1), positions(Some(0), 2)), (vec![4], vec![1, 2]));
        assert_eq!((positions(Some(5), 9), positions(Some(u64::MAX), 9)), (vec![], vec![]));
    }
}
