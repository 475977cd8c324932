//! Writing rows: one statement writes the row, its index entries and whatever follows from its keys, or nothing.
//!
//!   insert, update, delete ─▶ row + index entries ─▶ rows that refer to it (work) ─▶ references that must hold (pending)
//!
//! Invariants
//! 1. A statement that fails leaves nothing: its writes are cut back to where it began.
//! 2. What a rule was decided on still holds at commit, at every isolation: a row or entry written is unchanged since it was
//!    looked at, a parent is there, the children of a deleted parent are those that were seen.
//! 3. References are judged when the statement ends, so rows of one statement may refer to each other.

pub(crate) mod commit;
pub(crate) mod definition;
pub(crate) mod loaded;
pub(crate) mod reads;
pub(crate) mod tx;

use std::sync::Arc;

use ropewalk_base::keys::prefix_end;
use ropewalk_engine::{Isolation, LockMode};

use crate::catalog::tables::Tables;
use crate::error::TablesError;
use crate::read::table::Table;
use crate::read::{TablesRead, index_prefix};
use crate::row::display;
use crate::row::keys::{Entry, check_length, entry_row, index_entry, numbered_key, put_row_key};
use crate::row::{OwnedRow, Row};
use crate::schema::define::{Action, DefaultValue, Identity};
use crate::schema::{Column, ForeignKey, Index, ROW_BYTES_MAX, Schema};
use crate::value::Value;
use crate::value::types::Type;
use crate::write::tx::TablesTx;

/// Rows that one statement may touch by way of foreign keys.
const CASCADE_ROWS_MAX: usize = 1_000_000;

type Values = Vec<Value<'static>>;

/// A reference that has to hold when the statement ends.
enum Pending {
    /// The row of `child` needs a parent with these values.
    NeedsParent { child: Arc<Schema>, key: usize, values: Values },
    /// The parent with these values is gone; no row of `child` may refer to it.
    ParentGone { child: Arc<Schema>, key: usize, values: Values },
}

/// A row that changes because its parent did.
struct Work {
    child: Arc<Schema>,
    key: usize,
    row: Vec<u8>,
    /// What it referred to; if that is no longer so, there is nothing to do.
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

/// One statement in the making.
pub(crate) struct Statement<'t, 'a> {
    tx: &'t mut TablesTx<'a>,
    pending: Vec<Pending>,
    work: Vec<Work>,
    touched: usize,
    now_micros: i64,
    /// Keys that were looked at without noting it, since what is written guards them: a failure notes them.
    peeked: Vec<Vec<u8>>,
    /// Values are taken for columns that are always generated, too.
    takes_generated: bool,
}

impl TablesTx<'_> {
    /// Inserts a row with a value for each column, in order.
    ///
    /// # Errors
    /// A value that does not fit; a broken rule, which names itself. The statement leaves nothing then.
    pub fn insert_row(&mut self, table: &Table, values: &[Value<'_>]) -> Result<OwnedRow, TablesError> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let (expected, found) = (schema.columns().len(), values.len());
            if expected != found {
                return Err(TablesError::Arity { table: schema.name().to_owned(), expected, found });
            }
            statement.insert(&schema, values.iter().map(Value::borrowed).map(Some).collect(), false)
        })
    }

    /// Inserts a row; columns that are not named get their defaults. Answers the row as it is stored.
    ///
    /// # Errors
    /// As [`TablesTx::insert_row`]; [`TablesError::UnknownColumn`].
    pub fn insert(&mut self, table: &Table, values: &[(&str, Value<'_>)]) -> Result<OwnedRow, TablesError> {
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
    pub fn insert_many(
        &mut self,
        table: &Table,
        rows: &[&[(&str, Value<'_>)]],
    ) -> Result<Option<OwnedRow>, TablesError> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let mut last = None;
            for row in rows {
                last = Some(statement.insert(&schema, named(&schema, row)?, false)?);
            }
            Ok(last)
        })
    }

    /// As [`TablesTx::insert_many`], with values for columns that are always generated, too: rows that were such rows before.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn restore_many(
        &mut self,
        table: &Table,
        rows: &[&[(&str, Value<'_>)]],
    ) -> Result<Option<OwnedRow>, TablesError> {
        self.statement(|statement| {
            statement.takes_generated = true;
            let (schema, mut last) = (statement.schema(table)?, None);
            for row in rows {
                last = Some(statement.insert(&schema, named(&schema, row)?, false)?);
            }
            Ok(last)
        })
    }

    /// Inserts a row whose generated values were generated before.
    pub(crate) fn take_row(&mut self, table: &Table, values: &[Value<'_>]) -> Result<(), TablesError> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let (expected, found) = (schema.columns().len(), values.len());
            if expected != found {
                return Err(TablesError::Arity { table: schema.name().to_owned(), expected, found });
            }
            let columns = schema.columns().iter().zip(values);
            let values = columns.map(|(column, value)| assigned(&schema, column, value.borrowed()));
            let values = values.collect::<Result<_, _>>()?;
            statement.insert_values(&schema, values, false).map(|_| ())
        })
    }

    /// Inserts a row, or puts it in the place of the row with the same primary key.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn upsert(&mut self, table: &Table, values: &[(&str, Value<'_>)]) -> Result<OwnedRow, TablesError> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let values = named(&schema, values)?;
            statement.insert(&schema, values, true)
        })
    }

    /// Changes columns of the row with this primary key, or inserts it, by what `change` returns for the stored row.
    ///
    /// Columns that `change` does not name stay, or get their defaults in a new row, whose key is `key`. A commit in
    /// between of another transaction that writes the row is a conflict, so that counters lose no update.
    ///
    /// # Errors
    /// As [`TablesTx::upsert`]; the errors of `change`.
    pub fn upsert_with<'v, C: AsRef<[(&'v str, Value<'v>)]>>(
        &mut self,
        table: &Table,
        key: &[Value<'_>],
        change: impl FnOnce(Option<Row<'_>>) -> Result<C, TablesError>,
    ) -> Result<OwnedRow, TablesError> {
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

    /// Changes columns of the row with this primary key; false when there is none.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn update(
        &mut self,
        table: &Table,
        key: &[Value<'_>],
        changes: &[(&str, Value<'_>)],
    ) -> Result<bool, TablesError> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let mut row_key = Vec::new();
            put_row_key(&schema, key, &mut row_key)?;
            statement.change(&schema, row_key, &named(&schema, changes)?)
        })
    }

    /// Changes columns of a row that was read in this transaction, and in this statement where that locks rows; false when it
    /// is gone.
    ///
    /// # Errors
    /// As [`TablesTx::insert`].
    pub fn update_row(&mut self, row: &OwnedRow, changes: &[(&str, Value<'_>)]) -> Result<bool, TablesError> {
        self.statement(|statement| {
            let schema = statement.tx.schema_by_id(row.schema().id())?;
            statement.change_row(&schema, row, &named(&schema, changes)?)
        })
    }

    /// Deletes the row with this primary key; false when there is none.
    ///
    /// # Errors
    /// A foreign key that forbids it.
    pub fn delete(&mut self, table: &Table, key: &[Value<'_>]) -> Result<bool, TablesError> {
        self.statement(|statement| {
            let schema = statement.schema(table)?;
            let mut row_key = Vec::new();
            put_row_key(&schema, key, &mut row_key)?;
            statement.delete(&schema, row_key)
        })
    }

    /// Deletes rows that were read in this transaction in one statement; answers how many there were.
    ///
    /// # Errors
    /// As [`TablesTx::delete`].
    pub fn delete_rows(&mut self, rows: &[OwnedRow]) -> Result<u64, TablesError> {
        self.statement(|statement| {
            let mut deleted = 0;
            for row in rows {
                let schema = statement.tx.schema_by_id(row.schema().id())?;
                deleted += u64::from(statement.delete(&schema, row.key().to_vec())?);
            }
            Ok(deleted)
        })
    }

    /// Runs one statement: its references are judged at its end, and if it fails it leaves nothing.
    pub(crate) fn statement<R>(
        &mut self,
        run: impl FnOnce(&mut Statement<'_, '_>) -> Result<R, TablesError>,
    ) -> Result<R, TablesError> {
        self.begin();
        let mark = self.kv.mark();
        let now_micros = self.tables.engine.env().clock.wall_micros();
        let mut statement = Statement {
            tx: self,
            pending: Vec::new(),
            work: Vec::new(),
            touched: 0,
            now_micros,
            peeked: Vec::new(),
            takes_generated: false,
        };
        let result = run(&mut statement).and_then(|result| statement.finish().map(|()| result));
        if result.is_err() {
            let peeked = statement.peeked;
            let rows = self.spaces().rows;
            peeked.iter().for_each(|key| self.kv.note_read(rows, key));
            self.kv.rollback_to(mark);
            self.state.rolled_back();
        }
        result
    }
}

/// What a row gets in a column that is given no value.
fn default(
    tables: &Tables,
    schema: &Schema,
    column: &Column,
    now_micros: i64,
) -> Result<Value<'static>, TablesError> {
    if let Some((_, sequence)) = column.identity {
        return assigned(schema, column, Value::Int8(tables.next_number(sequence)?));
    }
    let env = tables.engine.env();
    let value = match &column.default {
        DefaultValue::None => Value::Null,
        DefaultValue::Value(value) => value.clone(),
        DefaultValue::Now => now(column.ty, now_micros),
        DefaultValue::Next(sequence) => Value::Int8(tables.next_number(*sequence)?),
        DefaultValue::NewUuid => {
            let (high, low) = (env.random.next_u64(), env.random.next_u64());
            let random =
                uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
            Value::Uuid(random.into_uuid().into_bytes())
        }
    };
    assigned(schema, column, value)
}

/// The values of a row as its columns keep them, defaults in place of those not given. With `takes_generated` values may be given
/// for columns that are always generated.
pub(crate) fn completed<'v>(
    tables: &Tables,
    schema: &Schema,
    now_micros: i64,
    given: Vec<Option<Value<'v>>>,
    takes_generated: bool,
) -> Result<Vec<Value<'v>>, TablesError> {
    let mut values = Vec::with_capacity(given.len());
    for (column, value) in schema.columns().iter().zip(given) {
        values.push(match value {
            Some(_) if !takes_generated && matches!(column.identity, Some((Identity::Always, _))) => {
                let (table, column) = (schema.name().to_owned(), column.name.clone());
                return Err(TablesError::Generated { table, column });
            }
            Some(value) => assigned(schema, column, value)?,
            None => default(tables, schema, column, now_micros)?,
        });
    }
    Ok(values)
}

/// Places named values among the columns.
pub(crate) fn named<'v>(
    schema: &Schema,
    values: &'v [(&str, Value<'_>)],
) -> Result<Vec<Option<Value<'v>>>, TablesError> {
    let mut row = vec![None; schema.columns().len()];
    for (name, value) in values {
        let place = schema.index_of(name)?;
        if let Some(slot) = row.get_mut(place)
            && slot.replace(value.borrowed()).is_some()
        {
            return Err(TablesError::Duplicate { kind: "column", name: (*name).to_owned() });
        }
    }
    Ok(row)
}

fn assigned<'v>(schema: &Schema, column: &Column, value: Value<'v>) -> Result<Value<'v>, TablesError> {
    let names = || (schema.name().to_owned(), column.name.clone());
    if value.is_null() && !column.nullable {
        let (table, column) = names();
        return Err(TablesError::NotNull { table, column });
    }
    column.keep(value).map_err(|source| {
        let (table, column) = names();
        TablesError::Value { table, column, source }
    })
}

fn row_key_of(schema: &Schema, values: &[Value<'_>]) -> Result<Vec<u8>, TablesError> {
    let key: Vec<Value<'_>> =
        schema.key_columns().iter().filter_map(|place| values.get(*place)).map(Value::borrowed).collect();
    let mut row_key = Vec::new();
    put_row_key(schema, &key, &mut row_key)?;
    check_length(schema, "key", row_key.len() - 4)?;
    Ok(row_key)
}

fn columns_of(schema: &Schema, ids: &[u16], values: &[Value<'_>]) -> Values {
    let value = |id: &u16| values.get(schema.place_of(*id)?).cloned().map(Value::into_owned);
    ids.iter().map(|id| value(id).unwrap_or(Value::Null)).collect()
}

fn any_null(values: &[Value<'_>]) -> bool {
    values.iter().any(Value::is_null)
}

fn same(a: &[Value<'_>], b: &[Value<'_>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.compare(b).is_some_and(|order| order.is_eq()))
}

impl<'a> Statement<'_, 'a> {
    pub(crate) fn tx(&mut self) -> &mut TablesTx<'a> {
        self.tx
    }

    /// At the end of the statement the row must have its parent.
    pub(crate) fn expect_parent(&mut self, child: &Arc<Schema>, key: usize, values: &[Value<'_>]) {
        let Some(foreign) = child.foreign_keys().get(key) else { return };
        let values = columns_of(child, &foreign.columns, values);
        if !any_null(&values) {
            self.pending.push(Pending::NeedsParent { child: child.clone(), key, values });
        }
    }

    /// The value of a key that this statement is about to write or guard.
    fn peek(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, TablesError> {
        self.peeked.push(key.to_vec());
        Ok(self.tx.kv.peek(self.tx.spaces().rows, key)?)
    }

    fn schema(&mut self, table: &Table) -> Result<Arc<Schema>, TablesError> {
        let schema = self.tx.schema_of(table)?;
        self.tx.guard_schema(&schema);
        Ok(schema)
    }

    fn default(&self, schema: &Schema, column: &Column) -> Result<Value<'static>, TablesError> {
        default(self.tx.tables, schema, column, self.now_micros)
    }

    pub(crate) fn insert(
        &mut self,
        schema: &Arc<Schema>,
        given: Vec<Option<Value<'_>>>,
        replace: bool,
    ) -> Result<OwnedRow, TablesError> {
        let values = completed(self.tx.tables, schema, self.now_micros, given, self.takes_generated)?;
        self.insert_values(schema, values, replace)
    }

    /// Inserts a row whose values fit their columns.
    fn insert_values(
        &mut self,
        schema: &Arc<Schema>,
        values: Vec<Value<'_>>,
        replace: bool,
    ) -> Result<OwnedRow, TablesError> {
        let row_key = match schema.parts.rowid {
            Some(sequence) => {
                let number = self.tx.tables.next_number(sequence)?;
                numbered_key(schema, number)
            }
            None => row_key_of(schema, &values)?,
        };
        let rows = self.tx.spaces().rows;
        // A number that was just given out is nobody else's.
        if schema.parts.rowid.is_none() {
            self.hold(&row_key, LockMode::Update)?;
        }
        if let Some(stored) = self.peek(&row_key)? {
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

    fn load(&mut self, schema: &Arc<Schema>, row_key: Vec<u8>) -> Result<Option<OwnedRow>, TablesError> {
        let stored = self.tx.fetch(&row_key)?;
        Ok(stored.map(|value| OwnedRow::new(schema.clone(), row_key, value)))
    }

    fn change(
        &mut self,
        schema: &Arc<Schema>,
        row_key: Vec<u8>,
        changes: &[Option<Value<'_>>],
    ) -> Result<bool, TablesError> {
        self.hold_to_change(schema, &row_key, changes)?;
        let Some(old) = self.load(schema, row_key)? else { return Ok(false) };
        self.change_from(schema, &old, changes)
    }

    /// As [`Statement::change`], of a row that was read before.
    fn change_row(
        &mut self,
        schema: &Arc<Schema>,
        row: &OwnedRow,
        changes: &[Option<Value<'_>>],
    ) -> Result<bool, TablesError> {
        let rows = self.tx.spaces().rows;
        if !self.tx.is_locking() || self.tx.kv.wrote(rows, row.key()) {
            return self.change(schema, row.key().to_vec(), changes);
        }
        // Had it changed since it was read, the lock would not have been given.
        self.hold_to_change(schema, row.key(), changes)?;
        self.change_from(schema, row, changes)
    }

    fn hold_to_change(
        &mut self,
        schema: &Schema,
        row_key: &[u8],
        changes: &[Option<Value<'_>>],
    ) -> Result<(), TablesError> {
        let is_set = |place: &usize| changes.get(*place).is_some_and(Option::is_some);
        self.hold(row_key, schema.lock_of_change(&is_set))
    }

    fn change_from(
        &mut self,
        schema: &Arc<Schema>,
        old: &OwnedRow,
        changes: &[Option<Value<'_>>],
    ) -> Result<bool, TablesError> {
        self.changed_from(schema, old, changes).map(|_| true)
    }

    /// The row that replaces `old`.
    fn changed_from(
        &mut self,
        schema: &Arc<Schema>,
        old: &OwnedRow,
        changes: &[Option<Value<'_>>],
    ) -> Result<OwnedRow, TablesError> {
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
        self.replace(schema, old, values)
    }

    /// Puts `values` in the place of `old`; the key may change.
    fn replace(
        &mut self,
        schema: &Arc<Schema>,
        old: &OwnedRow,
        values: Vec<Value<'_>>,
    ) -> Result<OwnedRow, TablesError> {
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

    /// Where the statement waits for others, whoever else wants to write this key, or to rest on it, waits from here on.
    fn hold(&mut self, key: &[u8], mode: LockMode) -> Result<(), TablesError> {
        self.tx.hold(key, mode, true)
    }

    /// Writes under RC carry their own guard; the stricter levels check every key they write.
    fn guard(&mut self, key: &[u8]) {
        if self.tx.kv.isolation() == Isolation::ReadCommitted {
            let rows = self.tx.spaces().rows;
            self.tx.kv.guard_key(rows, key);
        }
    }

    fn put_key(&mut self, key: &[u8], value: &[u8]) {
        self.guard(key);
        let rows = self.tx.spaces().rows;
        self.tx.kv.put(rows, key, value);
    }

    fn delete_key(&mut self, key: &[u8]) {
        self.guard(key);
        let rows = self.tx.spaces().rows;
        self.tx.kv.delete(rows, key);
    }

    fn write(
        &mut self,
        schema: &Arc<Schema>,
        row_key: Vec<u8>,
        old: Option<&OwnedRow>,
        values: Vec<Value<'_>>,
    ) -> Result<OwnedRow, TablesError> {
        check(schema, &values)?;
        // What the row was matters to what follows from it alone.
        let has_followers = !(schema.indexes().is_empty()
            && schema.foreign_keys().is_empty()
            && schema.parts.referenced_by.is_empty());
        let old_values = old.filter(|_| has_followers).map(OwnedRow::values).transpose()?;
        let old = old.map(OwnedRow::key).zip(old_values.as_deref());
        self.write_entries(schema, old, Some((&row_key, &values)))?;
        let mut row = Vec::new();
        schema.put_row(&values, &mut row);
        if row.len() > ROW_BYTES_MAX {
            let (table, bytes) = (schema.name().to_owned(), row.len());
            return Err(TablesError::TooLarge { table, what: "row", bytes, max: ROW_BYTES_MAX });
        }
        check_length(schema, "key", row_key.len() - 4)?;
        self.put_key(&row_key, &row);
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

    pub(crate) fn delete(&mut self, schema: &Arc<Schema>, row_key: Vec<u8>) -> Result<bool, TablesError> {
        self.hold(&row_key, LockMode::Update)?;
        let Some(old) = self.load(schema, row_key)? else { return Ok(false) };
        let values = old.values()?;
        self.write_entries(schema, Some((old.key(), &values)), None)?;
        self.delete_key(old.key());
        self.tx.kv.check_size()?;
        self.parent_changed(schema, &values, None)?;
        Ok(true)
    }

    /// Brings the indexes from the old row to the new one: only entries that differ are touched.
    fn write_entries(
        &mut self,
        schema: &Schema,
        old: Option<(&[u8], &[Value<'_>])>,
        new: Option<(&[u8], &[Value<'_>])>,
    ) -> Result<(), TablesError> {
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

    pub(crate) fn put_entry(
        &mut self,
        schema: &Schema,
        index: &Index,
        entry: &Entry,
    ) -> Result<(), TablesError> {
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

    /// Looks after the rows that referred to `old`, which now has the values `new` or is gone.
    fn parent_changed(
        &mut self,
        parent: &Arc<Schema>,
        old: &[Value<'_>],
        new: Option<&[Value<'_>]>,
    ) -> Result<(), TablesError> {
        for child_id in &parent.parts.referenced_by {
            let child = self.tx.schema_by_id(*child_id)?;
            for (key, foreign) in child.foreign_keys().iter().enumerate() {
                if foreign.parent != parent.id() {
                    continue;
                }
                let was = columns_of(parent, &foreign.parent_columns, old);
                let is = new.map(|new| columns_of(parent, &foreign.parent_columns, new));
                if any_null(&was) || is.as_ref().is_some_and(|is| same(&was, is)) {
                    continue;
                }
                self.tx.guard_schema(&child);
                let change = match (if is.is_some() { foreign.on_update } else { foreign.on_delete }, is) {
                    (Action::NoAction, _) => {
                        self.pending.push(Pending::ParentGone { child: child.clone(), key, values: was });
                        continue;
                    }
                    (Action::Restrict, _) => {
                        if let Some(row) = self.children(&child, foreign, &was, 1)?.first() {
                            return Err(still_referred(&child, foreign, row));
                        }
                        continue;
                    }
                    (Action::Cascade, None) => Change::Delete,
                    (Action::Cascade, Some(new)) => Change::Set(new),
                    (Action::SetNull, _) => Change::SetNull,
                    (Action::SetDefault, _) => Change::SetDefault,
                };
                for row in self.children(&child, foreign, &was, usize::MAX)? {
                    let (child, old, change) = (child.clone(), was.clone(), change.clone());
                    self.work.push(Work { child, key, row, old, change });
                }
            }
        }
        Ok(())
    }

    /// Keys of the rows that refer to a parent with these values.
    fn children(
        &mut self,
        child: &Schema,
        foreign: &ForeignKey,
        values: &[Value<'_>],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, TablesError> {
        let damaged = || format!("table {:?}, foreign key {:?}", child.name(), foreign.name);
        let index = child.indexes().iter().find(|index| index.object == foreign.index);
        let index =
            index.ok_or_else(|| TablesError::Damaged { place: damaged(), what: "its index".into() })?;
        let prefix = index_prefix(child, index, values)?;
        let end = prefix_end(&prefix);
        if self.tx.kv.is_locking() {
            // New ones wait for the lock on their parent, which is held; one may have come before that, behind the snapshot.
            let rows = self.tx.spaces().rows;
            self.tx.kv.look_in(rows, &prefix, end.as_deref())?;
        }
        let mut found = Vec::new();
        let mut failed = None;
        let each = &mut |key: &[u8], value: &[u8]| match entry_row(child.parts.rows, key, value) {
            Ok(row) => {
                found.push(row);
                found.len() < limit
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        self.tx.walk(&prefix, end.as_deref(), false, each)?;
        if let Some(error) = failed {
            return Err(TablesError::damaged(damaged())(error));
        }
        if self.tx.guards_ranges() {
            let rows = self.tx.spaces().rows;
            self.tx.kv.guard_range(rows, &prefix, end.as_deref());
        }
        Ok(found)
    }

    /// Does what follows from the statement's changes, then judges its references.
    fn finish(&mut self) -> Result<(), TablesError> {
        while let Some(work) = self.work.pop() {
            self.touched += 1;
            if self.touched > CASCADE_ROWS_MAX {
                return Err(TablesError::ForeignKey {
                    table: work.child.name().to_owned(),
                    constraint: work
                        .child
                        .foreign_keys()
                        .get(work.key)
                        .map(|f| f.name.clone())
                        .unwrap_or_default(),
                    what: format!("more than {CASCADE_ROWS_MAX} rows would change with one statement"),
                });
            }
            self.follow(work)?;
        }
        for pending in std::mem::take(&mut self.pending) {
            self.judge(pending)?;
        }
        Ok(())
    }

    fn follow(&mut self, work: Work) -> Result<(), TablesError> {
        let Work { child, key, row, old, change } = work;
        let Some(foreign) = child.foreign_keys().get(key) else { return Ok(()) };
        self.hold(&row, LockMode::Update)?;
        let Some(stored) = self.load(&child, row)? else { return Ok(()) };
        let mut values: Vec<Value<'_>> = stored.values()?;
        if !same(&columns_of(&child, &foreign.columns, &values), &old) {
            return Ok(());
        }
        if matches!(change, Change::Delete) {
            drop(values);
            self.delete(&child, stored.key().to_vec())?;
            return Ok(());
        }
        for (ordinal, id) in foreign.columns.iter().enumerate() {
            let Some(place) = child.place_of(*id) else { continue };
            let column = child.column_at(place)?;
            let value = match &change {
                Change::Set(new) => {
                    assigned(&child, column, new.get(ordinal).cloned().unwrap_or(Value::Null))?
                }
                Change::SetDefault => self.default(&child, column)?,
                Change::SetNull | Change::Delete => assigned(&child, column, Value::Null)?,
            };
            if let Some(slot) = values.get_mut(place) {
                *slot = value;
            }
        }
        // A default may be the value that has just lost its parent: no change, and to be judged all the same.
        self.expect_parent(&child, key, &values);
        self.replace(&child, &stored, values)?;
        Ok(())
    }

    fn judge(&mut self, pending: Pending) -> Result<(), TablesError> {
        let rows = self.tx.spaces().rows;
        match pending {
            Pending::NeedsParent { child, key, values } => {
                let Some(foreign) = child.foreign_keys().get(key) else { return Ok(()) };
                let parent = self.tx.schema_by_id(foreign.parent)?;
                self.tx.guard_schema(&parent);
                let missing = || TablesError::ForeignKey {
                    table: child.name().to_owned(),
                    constraint: foreign.name.clone(),
                    what: format!(
                        "{} is not in table {:?}",
                        display::columns(&child, &foreign.columns, &values),
                        parent.name()
                    ),
                };
                let Some(parent_key) = parent_key(&parent, foreign, &values)? else { return Err(missing()) };
                self.hold(&parent_key, LockMode::KeyShare)?;
                if self.peek(&parent_key)?.is_none() {
                    self.tx.kv.note_read(rows, &parent_key);
                    return Err(missing());
                }
                self.tx.kv.guard_exists(rows, &parent_key);
                Ok(())
            }
            Pending::ParentGone { child, key, values } => {
                let Some(foreign) = child.foreign_keys().get(key) else { return Ok(()) };
                let parent = self.tx.schema_by_id(foreign.parent)?;
                if let Some(parent_key) = parent_key(&parent, foreign, &values)?
                    && self.peek(&parent_key)?.is_some()
                {
                    // Another row of the same statement has taken its place.
                    self.tx.kv.guard_exists(rows, &parent_key);
                    return Ok(());
                }
                match self.children(&child, foreign, &values, 1)?.first() {
                    Some(row) => Err(still_referred(&child, foreign, row)),
                    None => Ok(()),
                }
            }
        }
    }
}

fn still_referred(child: &Schema, foreign: &ForeignKey, row: &[u8]) -> TablesError {
    TablesError::ForeignKey {
        table: child.name().to_owned(),
        constraint: foreign.name.clone(),
        what: format!("row {} still refers to it", display::row_key(child, row)),
    }
}

/// The key under which a parent with these values is found: its row, or its entry in a unique index. `None` when the values
/// do not even fit the parent's columns.
fn parent_key(
    parent: &Schema,
    foreign: &ForeignKey,
    values: &[Value<'_>],
) -> Result<Option<Vec<u8>>, TablesError> {
    if parent.parts.key == foreign.parent_columns {
        let mut key = Vec::new();
        put_row_key(parent, values, &mut key)?;
        return Ok(Some(key));
    }
    let columns = Some(&foreign.parent_columns);
    let index = parent
        .indexes()
        .iter()
        .find(|index| index.unique && index.ready && index.plain_columns().as_ref() == columns);
    index.map(|index| index_prefix(parent, index, values)).transpose()
}

/// The key of the parent that a row refers to; `None` when it refers to nothing.
pub(crate) fn parent_of(
    child: &Schema,
    foreign: &ForeignKey,
    values: &[Value<'_>],
    parent: Option<&Arc<Schema>>,
) -> Result<Option<Vec<u8>>, TablesError> {
    let values = columns_of(child, &foreign.columns, values);
    let parent =
        parent.ok_or_else(|| TablesError::UnknownTable { name: format!("number {}", foreign.parent) })?;
    if any_null(&values) { Ok(None) } else { parent_key(parent, foreign, &values) }
}

pub(crate) fn check(schema: &Schema, values: &[Value<'_>]) -> Result<(), TablesError> {
    let column = |id| {
        let place = schema.place_of(id).ok_or("a check reads a column that is gone")?;
        values.get(place).map(Value::borrowed).ok_or_else(|| "a row is short of a column".to_owned())
    };
    for check in schema.checks() {
        let table = || schema.name().to_owned();
        let outcome = check.expr.eval(&column).map_err(|what| {
            let what = format!("check {:?}: {what}", check.name);
            TablesError::Evaluation { table: table(), what }
        })?;
        if outcome == Value::Bool(false) {
            return Err(TablesError::Check { table: table(), constraint: check.name.clone() });
        }
    }
    Ok(())
}

/// The time as a value of a column's type.
pub(crate) fn now(ty: Type, micros: i64) -> Value<'static> {
    const DAY: i64 = 86_400_000_000;
    match ty {
        Type::TIMESTAMPTZ => Value::Timestamptz(micros),
        Type::DATE => Value::Date(i32::try_from(micros.div_euclid(DAY)).unwrap_or(i32::MAX)),
        Type::TIME => Value::Time(micros.rem_euclid(DAY)),
        _ => Value::Timestamp(micros),
    }
}
