//! Foreign keys: cascading changes, and references that must hold when the statement ends.

use std::sync::Arc;

use ropewalk_base::keys::prefix_end;
use ropewalk_engine::{KeySpan, LockMode};

use crate::error::{Result, TablesError};
use crate::read::{TablesRead, index_prefix};
use crate::row::display;
use crate::row::keys::{entry_row, put_row_key};
use crate::schema::define::Action;
use crate::schema::{ForeignKey, Schema};
use crate::value::Value;
use crate::write::values::assigned;
use crate::write::{Change, Pending, Statement, Values, Work};

/// Most rows that one statement may change through foreign keys.
const CASCADE_ROWS_MAX: usize = 1_000_000;

pub(super) fn columns_of(schema: &Schema, ids: &[u16], values: &[Value<'_>]) -> Values {
    // Only a damaged definition lacks a column of its keys.
    let value = |id: &u16| values.get(schema.place_of(*id)?).cloned().map(Value::into_owned);
    ids.iter().map(|id| value(id).unwrap_or(Value::Null)).collect()
}

pub(super) fn any_null(values: &[Value<'_>]) -> bool {
    values.iter().any(Value::is_null)
}

pub(super) fn same(a: &[Value<'_>], b: &[Value<'_>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.compare(b).is_some_and(|order| order.is_eq()))
}

/// The foreign key number `key` of a table whose reference is to be followed or checked.
fn foreign_key(child: &Schema, key: usize) -> &ForeignKey {
    child.foreign_keys().get(key).expect("references are numbered as the foreign keys of their table")
}

impl Statement<'_, '_> {
    /// Requires that the row has its parent at the end of the statement.
    pub(crate) fn expect_parent(&mut self, child: &Arc<Schema>, key: usize, values: &[Value<'_>]) {
        let foreign = foreign_key(child, key);
        let values = columns_of(child, &foreign.columns, values);
        if !any_null(&values) {
            self.pending.push(Pending::NeedsParent { child: child.clone(), key, values });
        }
    }

    /// Handles the rows that referred to `old`, which now has the values `new` or is deleted.
    pub(super) fn parent_changed(
        &mut self,
        parent: &Arc<Schema>,
        old: &[Value<'_>],
        new: Option<&[Value<'_>]>,
    ) -> Result<()> {
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
    pub(super) fn children(
        &mut self,
        child: &Schema,
        foreign: &ForeignKey,
        values: &[Value<'_>],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let damaged = || format!("table {:?}, foreign key {:?}", child.name(), foreign.name);
        let index = child.indexes().iter().find(|index| index.object == foreign.index);
        let index =
            index.ok_or_else(|| TablesError::Damaged { place: damaged(), what: "its index".into() })?;
        let prefix = index_prefix(child, index, values)?;
        let end = prefix_end(&prefix);
        if self.tx.kv.is_locking() {
            // New children wait for the held lock on their parent; an earlier one may be newer than the
            // snapshot.
            let rows = self.tx.spaces().rows;
            self.tx.kv.recheck_range(rows, &prefix, end.as_deref())?;
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
        self.tx.walk_rows(KeySpan::forward(&prefix, end.as_deref()), each)?;
        if let Some(error) = failed {
            return Err(TablesError::damaged(damaged())(error));
        }
        if self.tx.guards_ranges() {
            let rows = self.tx.spaces().rows;
            self.tx.kv.guard_range(rows, &prefix, end.as_deref());
        }
        Ok(found)
    }

    /// Applies the cascading changes of the statement, then checks its references.
    pub(super) fn finish(&mut self) -> Result<()> {
        while let Some(work) = self.work.pop() {
            self.touched += 1;
            if self.touched > CASCADE_ROWS_MAX {
                return Err(TablesError::ForeignKey {
                    table: work.child.name().to_owned(),
                    constraint: foreign_key(&work.child, work.key).name.clone(),
                    what: format!("more than {CASCADE_ROWS_MAX} rows would change with one statement"),
                });
            }
            self.follow(work)?;
        }
        for pending in std::mem::take(&mut self.pending) {
            self.judge(pending)?;
        }
        assert!(
            self.work.is_empty() && self.pending.is_empty(),
            "a statement ends when its references are followed and checked"
        );
        Ok(())
    }

    pub(super) fn follow(&mut self, work: Work) -> Result<()> {
        let Work { child, key, row, old, change } = work;
        let foreign = foreign_key(&child, key);
        self.hold(&row, LockMode::Update)?;
        // An earlier change of the statement may have deleted the row, or moved it.
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
            // Only a damaged definition lacks a column of its keys.
            let Some(place) = child.place_of(*id) else { continue };
            let column = child.column_at(place)?;
            let value = match &change {
                Change::Set(new) => {
                    assigned(&child, column, new.get(ordinal).cloned().unwrap_or(Value::Null))?
                }
                Change::SetDefault => self.default(&child, column)?,
                Change::SetNull | Change::Delete => assigned(&child, column, Value::Null)?,
            };
            *values.get_mut(place).expect("a row has a value for each column") = value;
        }
        // The default may be the value that has just lost its parent: no change, but it must be checked.
        self.expect_parent(&child, key, &values);
        self.replace(&child, &stored, values)?;
        Ok(())
    }

    pub(super) fn judge(&mut self, pending: Pending) -> Result<()> {
        let rows = self.tx.spaces().rows;
        match pending {
            Pending::NeedsParent { child, key, values } => {
                let foreign = foreign_key(&child, key);
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
                let foreign = foreign_key(&child, key);
                let parent = self.tx.schema_by_id(foreign.parent)?;
                if let Some(parent_key) = parent_key(&parent, foreign, &values)?
                    && self.peek(&parent_key)?.is_some()
                {
                    // Another row of the same statement has replaced it.
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

/// The key of a parent with these values: its row, or its entry in a unique index. `None` when the values do
/// not fit the parent's columns.
fn parent_key(parent: &Schema, foreign: &ForeignKey, values: &[Value<'_>]) -> Result<Option<Vec<u8>>> {
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

/// The key of the parent that a row refers to; `None` for no reference.
pub(crate) fn parent_of(
    child: &Schema,
    foreign: &ForeignKey,
    values: &[Value<'_>],
    parent: Option<&Arc<Schema>>,
) -> Result<Option<Vec<u8>>> {
    let values = columns_of(child, &foreign.columns, values);
    let parent =
        parent.ok_or_else(|| TablesError::UnknownTable { name: format!("number {}", foreign.parent) })?;
    if any_null(&values) { Ok(None) } else { parent_key(parent, foreign, &values) }
}
