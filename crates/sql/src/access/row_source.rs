//! Row sources: a transaction, which sees its own writes, or a snapshot.

use std::sync::Arc;

use ropewalk::events::{EventReader, ReadOptions};
use ropewalk::promql::Metrics;
use ropewalk::series::{SeriesAt, SeriesStore};
use ropewalk::tables::{EnumType, KeyRange, OwnedRow, Row, Schema, Table, TablesError, TablesRead, Value};
use ropewalk::{Database, EventStore, Query, Snapshot, Transaction};

use crate::access::access_path::Path;
use crate::error::Result;
use crate::expr::{Context, Input};

pub(crate) enum Access<'a> {
    Transaction(&'a Database, &'a mut Transaction),
    Snapshot(&'a Database, &'a Snapshot),
}

impl Access<'_> {
    /// Reborrows the source.
    pub(crate) fn again(&mut self) -> Access<'_> {
        match self {
            Self::Transaction(database, transaction) => Access::Transaction(database, transaction),
            Self::Snapshot(database, snapshot) => Access::Snapshot(database, snapshot),
        }
    }

    pub(crate) fn database(&self) -> &Database {
        match self {
            Self::Transaction(database, _) | Self::Snapshot(database, _) => database,
        }
    }

    /// The snapshot that is read, without the transaction's own writes.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match self {
            Self::Transaction(_, transaction) => transaction.snapshot(),
            Self::Snapshot(_, snapshot) => (*snapshot).clone(),
        }
    }

    /// The events of a query, including the transaction's appends; a serializable transaction guards the
    /// query.
    pub(crate) fn events(
        &mut self,
        store: &EventStore,
        query: &Query,
        options: ReadOptions,
    ) -> Result<EventReader> {
        Ok(match self {
            Self::Transaction(_, transaction) => transaction.read_events(store, query, options)?,
            Self::Snapshot(_, snapshot) => snapshot.events(store, query, options)?,
        })
    }

    /// A series store; a serializable transaction guards the ranges that it reads.
    pub(crate) fn series(&mut self, store: &SeriesStore) -> Result<SeriesAt<'_>> {
        Ok(match self {
            Self::Transaction(_, transaction) => transaction.series(store)?,
            Self::Snapshot(_, snapshot) => snapshot.series(store),
        })
    }

    /// The same store, for PromQL.
    pub(crate) fn metrics(&mut self, store: &SeriesStore) -> Result<Metrics<'_>> {
        Ok(match self {
            Self::Transaction(_, transaction) => transaction.metrics(store)?,
            Self::Snapshot(_, snapshot) => snapshot.metrics(store),
        })
    }

    fn read<R>(&mut self, run: impl FnOnce(&mut dyn TablesRead) -> R) -> R {
        match self {
            Self::Transaction(_, transaction) => run(&mut transaction.tables()),
            Self::Snapshot(database, snapshot) => run(&mut snapshot.tables(database)),
        }
    }

    /// The enum type with this name.
    pub(crate) fn enum_named(&mut self, name: &str) -> Result<Option<EnumType>> {
        Ok(self.read(|tables| tables.enum_named(name))?)
    }

    /// The enum type with this number.
    pub(crate) fn enum_numbered(&mut self, number: u32) -> Result<Option<EnumType>> {
        Ok(self.read(|tables| tables.enum_numbered(number))?)
    }

    /// All enum types.
    pub(crate) fn enums(&mut self) -> Result<Vec<EnumType>> {
        Ok(self.read(|tables| tables.enums())?)
    }

    /// The table with this name, and its definition.
    pub(crate) fn table(&mut self, name: &str) -> Result<(Table, Arc<Schema>)> {
        let table = match self {
            Self::Transaction(_, transaction) => transaction.tables().table(name)?,
            Self::Snapshot(database, _) => database.tables().table(name)?,
        };
        let schema = self.schema(&table)?;
        Ok((table, schema))
    }

    pub(crate) fn schema(&mut self, table: &Table) -> Result<Arc<Schema>> {
        Ok(self.read(|tables| tables.schema(table))?)
    }

    pub(crate) fn get(&mut self, table: &Table, key: &[Value<'_>]) -> Result<Option<OwnedRow>> {
        Ok(self.read(|tables| tables.get(table, key))?)
    }

    fn scan(
        &mut self,
        table: &Table,
        (index, is_covering): (Option<&str>, bool),
        range: &KeyRange<'_>,
        backward: bool,
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let mut outcome: Result<bool> = Ok(true);
        let mut forward = |row: Row<'_>| {
            outcome = each(row);
            Ok::<bool, TablesError>(matches!(outcome, Ok(true)))
        };
        self.read(|tables| match index {
            None => tables.scan(table, range, backward, &mut forward),
            Some(index) if is_covering => tables.scan_entries(table, index, range, backward, &mut forward),
            Some(index) => tables.scan_index(table, index, range, backward, &mut forward),
        })?;
        outcome
    }

    /// Passes the rows of a path to `each` until it returns false. Returns whether they came in the path's
    /// order.
    pub(crate) fn walk(
        &mut self,
        table: &Table,
        path: &Path,
        cx: &Context<'_>,
        input: &dyn Input,
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        let ranges = path.ranges(cx, input)?;
        self.walk_ranges(table, path, &ranges.ranges, &mut |row| {
            cx.interrupt.check(cx.env)?;
            each(row)
        })
    }

    pub(crate) fn walk_ranges(
        &mut self,
        table: &Table,
        path: &Path,
        ranges: &[KeyRange<'static>],
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        for range in ranges {
            let index = (path.index.as_deref(), path.is_covering);
            if !self.scan(table, index, range, path.backward, each)? {
                break;
            }
        }
        Ok(())
    }

    /// All rows of a range, in memory.
    pub(crate) fn all(
        &mut self,
        table: &Table,
        range: &KeyRange<'_>,
        budget: &crate::limits::budget::Budget,
    ) -> Result<Vec<Vec<Value<'static>>>> {
        self.first(table, range, usize::MAX, budget)
    }

    /// The first rows of a range, at most `limit`, in memory.
    pub(crate) fn first(
        &mut self,
        table: &Table,
        range: &KeyRange<'_>,
        limit: usize,
        budget: &crate::limits::budget::Budget,
    ) -> Result<Vec<Vec<Value<'static>>>> {
        let mut rows = Vec::new();
        self.scan(table, (None, false), range, false, &mut |row| {
            if rows.len() >= limit {
                return Ok(false);
            }
            let row: Vec<Value<'static>> = row.values()?.into_iter().map(Value::into_owned).collect();
            budget.take_row(&row)?;
            rows.push(row);
            Ok(true)
        })?;
        Ok(rows)
    }

    /// Number of rows of a range.
    pub(crate) fn count(&mut self, table: &Table, range: &KeyRange<'_>) -> Result<u64> {
        let mut count = 0;
        self.scan(table, (None, false), range, false, &mut |_| {
            count += 1;
            Ok(true)
        })?;
        Ok(count)
    }

    /// The first key column of the first and of the last row; `None` for an empty table or one without a key.
    pub(crate) fn ends(&mut self, table: &Table) -> Result<Option<(Value<'static>, Value<'static>)>> {
        let schema = self.schema(table)?;
        let Some(place) = schema.key_columns().first() else { return Ok(None) };
        let mut ends = Vec::new();
        for backward in [false, true] {
            self.scan(table, (None, false), &KeyRange::all(), backward, &mut |row| {
                ends.push(row.get(*place)?.into_owned());
                Ok(false)
            })?;
        }
        let last = ends.pop();
        Ok(ends.pop().zip(last))
    }

    /// Runs a statement that writes, at whose end constraints that can be deferred are checked.
    pub(crate) fn writing<R>(&mut self, run: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.transaction()?.tables().begin_checks();
        let done = run(self);
        let mut tables = self.transaction()?.tables();
        match done {
            Ok(done) => {
                tables.end_checks()?;
                Ok(done)
            }
            Err(error) => {
                tables.drop_checks();
                Err(error)
            }
        }
    }

    /// True in a statement that locks the rows which it writes or selects FOR UPDATE or FOR SHARE.
    pub(crate) fn is_locking(&mut self) -> bool {
        match self {
            Self::Transaction(_, transaction) => transaction.tables().is_locking(),
            Self::Snapshot(..) => false,
        }
    }

    /// The transaction, for writing.
    pub(crate) fn transaction(&mut self) -> Result<&mut Transaction> {
        match self {
            Self::Transaction(_, transaction) => Ok(transaction),
            Self::Snapshot(..) => Err(crate::expr::bug("a write outside of a transaction")),
        }
    }
}
