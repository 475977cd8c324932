//! Writing rows: one statement writes the row, its index entries and all cascading changes, or nothing.
//!
//!   insert, update, delete ─▶ row + index entries ─▶ rows that refer to it (work) ─▶ references that must hold (pending)
//!
//! Invariants
//! 1. A failed statement has no effect: its writes are rolled back to its beginning.
//! 2. The facts that a check was based on still hold at commit, at every isolation: a row or entry that was
//!    written is unchanged since it was read, a parent exists, the children of a deleted parent are those
//!    that were found.
//! 3. References are checked when the statement ends, so rows of one statement may refer to each other.

pub(crate) mod commit;
pub(crate) mod definition;
pub(crate) mod frontier;
pub(crate) mod loaded;
pub(crate) mod reads;
pub(crate) mod references;
mod rows;
pub(crate) mod tx;
pub(crate) mod values;

use std::cell::Cell;
use std::sync::Arc;

use ropewalk_engine::LockMode;

use crate::error::Result;
use crate::read::TablesRead;
use crate::read::table::Table;
use crate::row::keys::put_row_key;
use crate::row::{OwnedRow, Row};
use crate::schema::Schema;
use crate::value::Value;
use crate::write::tx::TablesTx;
use crate::write::values::{assigned, named};

type Values = Vec<Value<'static>>;

/// A reference that must hold when the statement ends.
enum Pending {
    /// The row of `child` needs a parent with these values.
    NeedsParent { child: Arc<Schema>, key: usize, values: Values },
    /// The parent with these values is deleted; no row of `child` may refer to it.
    ParentGone { child: Arc<Schema>, key: usize, values: Values },
}

/// A row that must change because its parent did.
struct Work {
    child: Arc<Schema>,
    key: usize,
    row: Vec<u8>,
    /// The values that it referred to; if they have changed since, there is nothing to do.
    old: Values,
    change: Change,
}

#[derive(Clone)]
enum Change {
    Delete,
    Set(Values),
    SetNull,
    SetDefault,
}

/// Longest buffer of [`Keys`] that the next statement uses again.
const KEYS_BYTES_MAX: usize = 64 << 10;

/// Keys, back to back in one buffer.
#[derive(Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().filter_map(move |end| self.bytes.get(std::mem::replace(&mut start, *end)..*end))
    }

    /// The empty buffer, for the next statement.
    fn emptied(mut self) -> Self {
        if self.bytes.capacity() > KEYS_BYTES_MAX {
            return Self::default();
        }
        self.bytes.clear();
        self.ends.clear();
        self
    }
}

/// One statement in progress.
pub(crate) struct Statement<'t, 'a> {
    tx: &'t mut TablesTx<'a>,
    pending: Vec<Pending>,
    work: Vec<Work>,
    touched: usize,
    /// The time of the statement, once it was read.
    now_micros: Cell<Option<i64>>,
    /// Keys that were read without recording the read, since the writes guard them; recorded if the
    /// statement fails.
    peeked: Keys,
    /// Accepts values for columns that are always generated.
    takes_generated: bool,
}

impl TablesTx<'_> {
    /// Inserts a row with a value for each column, in order.
    ///
    /// # Errors
    /// A value that does not fit; a violated rule, named in the error. The statement has no effect then.
    pub fn insert_row(&mut self, table: &Table, values: &[Value<'_>]) -> Result<OwnedRow> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            schema.check_arity(values)?;
            statement.insert(&schema, values.iter().map(|value| Some(value.borrowed())), false)
        })
    }

    /// Inserts a row; columns that are not named get their defaults. Returns the stored row.
    ///
    /// # Errors
    /// As [`TablesTx::insert_row`]; [`crate::TablesError::UnknownColumn`].
    pub fn insert(&mut self, table: &Table, values: &[(&str, Value<'_>)]) -> Result<OwnedRow> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let values = named(&schema, values)?;
            statement.insert(&schema, values, false)
        })
    }

    /// Inserts rows in one statement, so that they may refer to each other.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn insert_many(&mut self, table: &Table, rows: &[&[(&str, Value<'_>)]]) -> Result<Option<OwnedRow>> {
        self.insert_all(table, rows, false)
    }

    /// As [`TablesTx::insert_many`], also with values for columns that are always generated, to restore
    /// rows.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn restore_many(&mut self, table: &Table, rows: &[&[(&str, Value<'_>)]]) -> Result<Option<OwnedRow>> {
        self.insert_all(table, rows, true)
    }

    fn insert_all(
        &mut self,
        table: &Table,
        rows: &[&[(&str, Value<'_>)]],
        takes_generated: bool,
    ) -> Result<Option<OwnedRow>> {
        self.statement(|statement| {
            statement.takes_generated = takes_generated;
            let (schema, mut last) = (statement.schema(table)?, None);
            for row in rows {
                last = Some(statement.insert(&schema, named(&schema, row)?, false)?);
            }
            Ok(last)
        })
    }

    /// Inserts a row with generated values from before.
    pub(crate) fn take_row(&mut self, table: &Table, values: &[Value<'_>]) -> Result<()> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            schema.check_arity(values)?;
            let columns = schema.columns().iter().zip(values);
            let values = columns.map(|(column, value)| assigned(&schema, column, value.borrowed()));
            let values = values.collect::<Result<_, _>>()?;
            statement.insert_values(&schema, values, false).map(|_| ())
        })
    }

    /// Inserts a row, or replaces the row with the same primary key.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn upsert(&mut self, table: &Table, values: &[(&str, Value<'_>)]) -> Result<OwnedRow> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let values = named(&schema, values)?;
            statement.insert(&schema, values, true)
        })
    }

    /// Updates the row with this primary key, or inserts it, with the values that `change` returns for the
    /// stored row.
    ///
    /// Columns that `change` does not name are unchanged, or get their defaults in a new row with the key
    /// `key`. A concurrent commit that writes the row is a conflict, so that counters lose no update.
    ///
    /// # Errors
    /// As [`TablesTx::upsert`]; the errors of `change`.
    pub fn upsert_with<'v, C: AsRef<[(&'v str, Value<'v>)]>>(
        &mut self,
        table: &Table,
        key: &[Value<'_>],
        change: impl FnOnce(Option<Row<'_>>) -> Result<C>,
    ) -> Result<OwnedRow> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let mut row_key = Vec::new();
            put_row_key(&schema, key, &mut row_key)?;
            statement.hold(&row_key, LockMode::Update)?;
            let old = statement.load(&schema, row_key)?;
            let changes = change(old.as_ref().map(OwnedRow::row))?;
            let mut columns = named(&schema, changes.as_ref())?;
            if let Some(old) = &old {
                return statement.changed_from(&schema, old, &columns);
            }
            for (place, value) in schema.key_columns().iter().zip(key) {
                if let Some(slot @ None) = columns.get_mut(*place) {
                    *slot = Some(value.borrowed());
                }
            }
            statement.insert(&schema, columns, false)
        })
    }

    /// Changes columns of the row with this primary key. Returns false if the row does not exist.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn update(
        &mut self,
        table: &Table,
        key: &[Value<'_>],
        changes: &[(&str, Value<'_>)],
    ) -> Result<bool> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let mut row_key = Vec::new();
            put_row_key(&schema, key, &mut row_key)?;
            statement.change(&schema, row_key, &named(&schema, changes)?)
        })
    }

    /// Changes columns of a row that was read in this transaction (in this statement, if it locks rows);
    /// false when it is deleted.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn update_row(&mut self, row: &OwnedRow, changes: &[(&str, Value<'_>)]) -> Result<bool> {
        self.statement(|statement| {
            let schema = statement.tx.schema_by_id(row.schema().id())?;
            statement.change_row(&schema, row, &named(&schema, changes)?)
        })
    }

    /// As [`TablesTx::update_row`], for a row that was read in this statement and not written since: it is not
    /// read again.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn update_row_as_read(&mut self, row: &OwnedRow, changes: &[(&str, Value<'_>)]) -> Result<bool> {
        self.statement(|statement| {
            let schema = statement.tx.schema_by_id(row.schema().id())?;
            let changes = named(&schema, changes)?;
            if row.schema().version() != schema.version() {
                return statement.change_row(&schema, row, &changes);
            }
            statement.hold_to_change(&schema, row.key(), &changes)?;
            statement.change_from(&schema, row, &changes)
        })
    }

    /// Deletes the row with this primary key. Returns false if the row does not exist.
    ///
    /// # Errors
    /// A foreign key that forbids it.
    pub fn delete(&mut self, table: &Table, key: &[Value<'_>]) -> Result<bool> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let mut row_key = Vec::new();
            put_row_key(&schema, key, &mut row_key)?;
            statement.delete(&schema, row_key)
        })
    }

    /// Deletes rows that were read in this transaction, in one statement; returns their number.
    ///
    /// # Errors
    /// As [`TablesTx::delete`].
    pub fn delete_rows(&mut self, rows: &[OwnedRow]) -> Result<u64> {
        self.statement(|statement| {
            let mut deleted = 0;
            for row in rows {
                let schema = statement.tx.schema_by_id(row.schema().id())?;
                deleted += u64::from(statement.delete(&schema, schema.present_key(row.key()))?);
            }
            Ok(deleted)
        })
    }

    /// Runs one statement: references are checked at its end; a failed statement has no effect.
    pub(crate) fn statement<R>(
        &mut self,
        run: impl FnOnce(&mut Statement<'_, '_>) -> Result<R>,
    ) -> Result<R> {
        self.begin();
        let mark = self.kv.mark();
        let peeked = std::mem::take(&mut self.state.peeked);
        let mut statement = Statement {
            tx: self,
            pending: Vec::new(),
            work: Vec::new(),
            touched: 0,
            now_micros: Cell::new(None),
            peeked,
            takes_generated: false,
        };
        let result = run(&mut statement).and_then(|result| statement.finish().map(|()| result));
        let peeked = statement.peeked;
        if result.is_err() {
            let rows = self.spaces().rows;
            peeked.iter().for_each(|key| self.kv.note_read(rows, key));
            self.kv.rollback_to(mark);
            self.state.rolled_back();
        }
        self.state.peeked = peeked.emptied();
        result
    }
}
