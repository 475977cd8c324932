//! Changes of one row with its index entries, and the locks and guards that they need.

use std::sync::Arc;

use ropewalk_engine::{Isolation, LockMode};

use crate::error::{Result, TablesError};
use crate::read::TablesRead;
use crate::read::table::Table;
use crate::row::OwnedRow;
use crate::row::display;
use crate::row::keys::{Entry, check_length, index_entry, numbered_key, put_key_column};
use crate::schema::define::Identity;
use crate::schema::{Column, Index, ROW_BYTES_MAX, Schema};
use crate::value::Value;
use crate::write::references::{any_null, columns_of, same};
use crate::write::tx::TablesTx;
use crate::write::values::{assigned, check, completed, default};
use crate::write::{Pending, Statement};

/// Bytes of an integer in a key, with the mark of a column.
const KEY_COLUMN_BYTES: usize = 9;

fn row_key_of(schema: &Schema, values: &[Value<'_>]) -> Result<Vec<u8>> {
    debug_assert!(!schema.key_columns().is_empty(), "rows without a key are numbered");
    let mut row_key = Vec::with_capacity(4 + KEY_COLUMN_BYTES * schema.key_columns().len());
    row_key.extend_from_slice(&schema.parts.rows.to_be_bytes());
    for place in schema.key_columns() {
        let value = values.get(*place).expect("a row has a value for each column");
        put_key_column(schema, *place, value, &mut row_key)?;
    }
    check_length(schema, "key", row_key.len() - 4)?;
    Ok(row_key)
}

impl<'a> Statement<'_, 'a> {
    pub(crate) fn tx(&mut self) -> &mut TablesTx<'a> {
        self.tx
    }

    /// The value of a key that this statement is about to write or guard.
    pub(super) fn peek(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.peeked.push(key);
        Ok(self.tx.kv.peek(self.tx.spaces().rows, key)?)
    }

    /// As [`Statement::peek`], for the key of a row to insert, which often is after all others.
    fn peek_row(&mut self, schema: &Schema, row_key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.tx.is_after_all_rows(schema.parts.rows, row_key)? {
            self.peeked.push(row_key);
            return Ok(None);
        }
        self.peek(row_key)
    }

    /// The time of the statement: that of the first default that needs it.
    fn now(&self) -> i64 {
        let now = self.now_micros.get().unwrap_or_else(|| self.tx.tables.engine.env().clock.wall_micros());
        self.now_micros.set(Some(now));
        now
    }

    pub(super) fn schema(&mut self, table: &Table) -> Result<Arc<Schema>> {
        let schema = self.tx.schema_of(table)?;
        self.tx.guard_schema(&schema);
        Ok(schema)
    }

    pub(super) fn default(&self, schema: &Schema, column: &Column) -> Result<Value<'static>> {
        default(self.tx.tables, schema, column, &|| self.now())
    }

    pub(crate) fn insert<'v>(
        &mut self,
        schema: &Arc<Schema>,
        given: impl IntoIterator<Item = Option<Value<'v>>>,
        replace: bool,
    ) -> Result<OwnedRow> {
        let values = completed(self.tx.tables, schema, &|| self.now(), given, self.takes_generated)?;
        self.insert_values(schema, values, replace)
    }

    /// Inserts a row whose values fit their columns.
    pub(super) fn insert_values(
        &mut self,
        schema: &Arc<Schema>,
        values: Vec<Value<'_>>,
        replace: bool,
    ) -> Result<OwnedRow> {
        let row_key = match schema.parts.rowid {
            Some(sequence) => {
                let number = self.tx.tables.next_number(sequence)?;
                numbered_key(schema, number)
            }
            None => row_key_of(schema, &values)?,
        };
        let rows = self.tx.spaces().rows;
        // A number that was just drawn is unique.
        if schema.parts.rowid.is_none() {
            self.hold(&row_key, LockMode::Update)?;
        }
        if let Some(stored) = self.peek_row(schema, &row_key)? {
            self.tx.kv.note_read(rows, &row_key);
            if !replace {
                return Err(TablesError::Unique {
                    table: schema.name().to_owned(),
                    constraint: schema.parts.key_name.clone(),
                    key: display::row_key(schema, &row_key),
                });
            }
            let old = OwnedRow::new(schema.clone(), row_key, stored);
            return self.replace(schema, &old, values);
        }
        self.write(schema, row_key, None, values)
    }

    pub(super) fn load(&mut self, schema: &Arc<Schema>, row_key: Vec<u8>) -> Result<Option<OwnedRow>> {
        let stored = self.tx.fetch(&row_key)?;
        Ok(stored.map(|value| OwnedRow::new(schema.clone(), row_key, value)))
    }

    pub(super) fn change(
        &mut self,
        schema: &Arc<Schema>,
        row_key: Vec<u8>,
        changes: &[Option<Value<'_>>],
    ) -> Result<bool> {
        self.hold_to_change(schema, &row_key, changes)?;
        let Some(old) = self.load(schema, row_key)? else { return Ok(false) };
        self.change_from(schema, &old, changes)
    }

    /// As [`Statement::change`], for a row that was read before.
    pub(super) fn change_row(
        &mut self,
        schema: &Arc<Schema>,
        row: &OwnedRow,
        changes: &[Option<Value<'_>>],
    ) -> Result<bool> {
        let (rows, key) = (self.tx.spaces().rows, schema.present_key(row.key()));
        let is_present = row.schema().version() == schema.version();
        if !self.tx.is_locking() || self.tx.kv.wrote(rows, &key) || !is_present {
            return self.change(schema, key, changes);
        }
        // If it had changed since it was read, locking would have failed.
        self.hold_to_change(schema, row.key(), changes)?;
        self.change_from(schema, row, changes)
    }

    pub(super) fn hold_to_change(
        &mut self,
        schema: &Schema,
        row_key: &[u8],
        changes: &[Option<Value<'_>>],
    ) -> Result<()> {
        let is_set = |place: &usize| changes.get(*place).is_some_and(Option::is_some);
        self.hold(row_key, schema.lock_of_change(&is_set))
    }

    pub(super) fn change_from(
        &mut self,
        schema: &Arc<Schema>,
        old: &OwnedRow,
        changes: &[Option<Value<'_>>],
    ) -> Result<bool> {
        self.changed_from(schema, old, changes).map(|_| true)
    }

    /// The row that replaces `old`.
    pub(super) fn changed_from(
        &mut self,
        schema: &Arc<Schema>,
        old: &OwnedRow,
        changes: &[Option<Value<'_>>],
    ) -> Result<OwnedRow> {
        let mut values = Vec::with_capacity(changes.len());
        for ((column, change), value) in schema.columns().iter().zip(changes).zip(old.values()?) {
            values.push(match change {
                Some(_) if matches!(column.identity, Some((Identity::Always, _))) => {
                    let (table, column) = (schema.name().to_owned(), column.name.clone());
                    return Err(TablesError::Generated { table, column });
                }
                Some(change) => assigned(schema, column, change.borrowed())?,
                None => value,
            });
        }
        let is_set = |place: &usize| changes.get(*place).is_some_and(Option::is_some);
        if schema.key_columns().iter().any(is_set) {
            return self.replace(schema, old, values);
        }
        self.write(schema, old.key().to_vec(), Some(old), values)
    }

    /// Replaces `old` by `values`; the key may change.
    pub(super) fn replace(
        &mut self,
        schema: &Arc<Schema>,
        old: &OwnedRow,
        values: Vec<Value<'_>>,
    ) -> Result<OwnedRow> {
        let row_key =
            if schema.parts.rowid.is_some() { old.key().to_vec() } else { row_key_of(schema, &values)? };
        if row_key != old.key() {
            let rows = self.tx.spaces().rows;
            self.hold(&row_key, LockMode::Update)?;
            if self.peek(&row_key)?.is_some() {
                self.tx.kv.note_read(rows, &row_key);
                return Err(TablesError::Unique {
                    table: schema.name().to_owned(),
                    constraint: schema.parts.key_name.clone(),
                    key: display::row_key(schema, &row_key),
                });
            }
            self.delete_key(old.key());
        }
        self.write(schema, row_key, Some(old), values)
    }

    /// In a locking statement, locks a key: other transactions that want to write it, or depend on it, wait
    /// from now on.
    pub(super) fn hold(&mut self, key: &[u8], mode: LockMode) -> Result<()> {
        self.tx.hold(key, mode, true)
    }

    /// Writes under read committed guard their keys here; the stricter levels check every key they write.
    pub(super) fn guard(&mut self, key: &[u8]) {
        if self.tx.kv.isolation() == Isolation::ReadCommitted {
            let rows = self.tx.spaces().rows;
            self.tx.kv.guard_key(rows, key);
        }
    }

    pub(super) fn put_key(&mut self, key: &[u8], value: &[u8]) {
        self.guard(key);
        let rows = self.tx.spaces().rows;
        self.tx.kv.put(rows, key, value);
    }

    pub(super) fn delete_key(&mut self, key: &[u8]) {
        self.guard(key);
        let rows = self.tx.spaces().rows;
        self.tx.kv.delete(rows, key);
    }

    pub(super) fn write(
        &mut self,
        schema: &Arc<Schema>,
        row_key: Vec<u8>,
        old: Option<&OwnedRow>,
        values: Vec<Value<'_>>,
    ) -> Result<OwnedRow> {
        debug_assert_eq!(values.len(), schema.columns().len(), "a row has a value for each column");
        debug_assert!(
            row_key.starts_with(&schema.parts.rows.to_be_bytes()),
            "a row is written to the present object of its table"
        );
        check(schema, &values)?;
        // The old values matter only for indexes and references.
        let has_followers = !(schema.indexes().is_empty()
            && schema.foreign_keys().is_empty()
            && schema.parts.referenced_by.is_empty());
        let old_values = old.filter(|_| has_followers).map(OwnedRow::values).transpose()?;
        let old = old.map(OwnedRow::key).zip(old_values.as_deref());
        self.write_entries(schema, old, Some((&row_key, &values)))?;
        let mut row = Vec::with_capacity(schema.row_bytes_min());
        schema.put_row(&values, &mut row);
        if row.len() > ROW_BYTES_MAX {
            let (table, bytes) = (schema.name().to_owned(), row.len());
            return Err(TablesError::TooLarge { table, what: "row", bytes, max: ROW_BYTES_MAX });
        }
        check_length(schema, "key", row_key.len() - 4)?;
        self.put_key(&row_key, &row);
        self.tx.state.frontiers.note(schema.parts.rows, &row_key);
        self.tx.kv.check_size()?;
        for (key, foreign) in schema.foreign_keys().iter().enumerate() {
            let new = columns_of(schema, &foreign.columns, &values);
            let unchanged =
                old.is_some_and(|(_, old)| same(&columns_of(schema, &foreign.columns, old), &new));
            if !unchanged && !any_null(&new) {
                self.pending.push(Pending::NeedsParent { child: schema.clone(), key, values: new });
            }
        }
        if let Some((_, old)) = old {
            self.parent_changed(schema, old, Some(&values))?;
        }
        Ok(OwnedRow::new(schema.clone(), row_key, row))
    }

    pub(crate) fn delete(&mut self, schema: &Arc<Schema>, row_key: Vec<u8>) -> Result<bool> {
        self.hold(&row_key, LockMode::Update)?;
        let Some(old) = self.load(schema, row_key)? else { return Ok(false) };
        let values = old.values()?;
        self.write_entries(schema, Some((old.key(), &values)), None)?;
        self.delete_key(old.key());
        self.tx.kv.check_size()?;
        self.parent_changed(schema, &values, None)?;
        Ok(true)
    }

    /// Updates the indexes from the old row to the new one: only entries that differ are written.
    pub(super) fn write_entries(
        &mut self,
        schema: &Schema,
        old: Option<(&[u8], &[Value<'_>])>,
        new: Option<(&[u8], &[Value<'_>])>,
    ) -> Result<()> {
        for index in schema.indexes() {
            let entry = |row: Option<(&[u8], &[Value<'_>])>| match row {
                Some((key, values)) => index_entry(schema, index, values, key),
                None => Ok(None),
            };
            let (old, new) = (entry(old)?, entry(new)?);
            if old == new {
                continue;
            }
            if let Some(old) = old {
                if old.exclusive {
                    self.hold(&old.key, LockMode::Update)?;
                }
                self.delete_key(&old.key);
            }
            if let Some(new) = new {
                self.put_entry(schema, index, &new)?;
            }
        }
        Ok(())
    }

    pub(crate) fn put_entry(&mut self, schema: &Schema, index: &Index, entry: &Entry) -> Result<()> {
        let rows = self.tx.spaces().rows;
        if entry.exclusive {
            self.hold(&entry.key, LockMode::Update)?;
        }
        if entry.exclusive && self.peek(&entry.key)?.is_some_and(|there| there != entry.value) {
            self.tx.kv.note_read(rows, &entry.key);
            return Err(TablesError::Unique {
                table: schema.name().to_owned(),
                constraint: index.name.clone(),
                key: display::entry_key(schema, index, &entry.key),
            });
        }
        self.put_key(&entry.key, &entry.value);
        Ok(())
    }
}
