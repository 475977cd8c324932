//! Bulk load: rows are written to sorted runs, which one commit gives to the table. See `load::loader` for
//! the steps.
//!
//! A crash leaves files that no manifest names, which opening removes, or declared objects, which
//! [`Tables::recover`] deletes as ranges. After the commit all rows exist. So a load is atomic.
//!
//! This requires a table without rows. A small load goes through the log in one commit, which costs one
//! sync. If the table has rows, or refers to itself, rows go through the log in commits of [`BATCH_ROWS`]
//! each.
//!
//! A separate load ([`Load`]) conflicts with concurrent writes to the table. One within a transaction
//! ([`TxLoad`]) is one of its statements: the transaction reads the loaded rows, and may still roll back.
//!
//! Rows loaded through runs are not in the log: a change feed reports the changed definition, not each row. With
//! `EngineOptions::log_everything` the same steps write the rows into the log instead, see `load::entry_writer`.

pub(crate) mod entry_writer;
pub(crate) mod loader;
pub(crate) mod sorter;
pub(crate) mod stream;

use std::sync::Arc;

use ropewalk_engine::{Isolation, KvTransaction, Operation};

use crate::catalog::tables::Tables;
use crate::catalog::{loading_key, loading_objects};
use crate::error::{Result, TablesError};
use crate::load::loader::Loader;
use crate::read::TablesRead;
use crate::read::table::Table;
use crate::schema::{Column, Schema};
use crate::value::Value;
use crate::value::types::{Scalar, Type};
use crate::write::tx::{TablesState, TablesTx};
use crate::write::values::{completed, named};

/// Rows of one commit when rows go through the log.
const BATCH_ROWS: usize = 1024;

/// Limits of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Most bytes that go through the log in one commit; at most 32 MiB.
    pub log_bytes_max: usize,
    /// Memory for sorting, bytes, 64 KiB to 2 GiB. `None`: a quarter of the memory budget.
    pub memory_bytes: Option<usize>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { log_bytes_max: 1 << 20, memory_bytes: None }
    }
}

/// A load in progress. Dropping it before [`Load::finish`] rolls it back.
pub struct Load {
    tables: Tables,
    kv: KvTransaction,
    state: TablesState,
    table: Table,
    schema: Arc<Schema>,
    way: Way,
    now_micros: i64,
    rows: u64,
    failed: bool,
}

enum Way {
    /// The table is empty.
    Fresh(Box<Loader>),
    /// Rows that are not committed yet.
    Through(Vec<Vec<Value<'static>>>),
}

impl Tables {
    /// Begins to load `table`. For an empty table the load is one commit: all of it or nothing. Otherwise it
    /// is many.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn load(&self, table: &Table) -> Result<Load> {
        self.load_with(table, LoadOptions::default())
    }

    /// As [`Tables::load`].
    ///
    /// # Errors
    /// As [`Tables::load`].
    pub fn load_with(&self, table: &Table, options: LoadOptions) -> Result<Load> {
        // Guards suffice: the load writes without reading.
        let mut kv = KvTransaction::new(self.engine.clone(), Isolation::ReadCommitted);
        kv.pin_statement_snapshot();
        let mut state = TablesState::default();
        let mut tx = TablesTx::new(self, &mut kv, &mut state);
        let schema = tx.schema_of(table)?;
        tx.guard_schema(&schema);
        let way = match tx.loader(&schema, options)? {
            Some(loader) => Way::Fresh(Box::new(loader)),
            None => Way::Through(Vec::new()),
        };
        let now_micros = self.engine.env().clock.wall_micros();
        let (tables, table) = (self.clone(), table.clone());
        Ok(Load { tables, kv, state, table, schema, way, now_micros, rows: 0, failed: false })
    }

    /// Deletes or completes the objects of loads that a crash interrupted; returns their number. To be
    /// called once after opening the engine, before any load begins.
    ///
    /// # Errors
    /// The engine's.
    pub fn recover(&self) -> Result<usize> {
        let objects = loading_objects(self.model.spaces(), self.engine.snapshot().read())?;
        if !objects.is_empty() {
            self.settle(&objects)?;
        }
        Ok(objects.len())
    }
}

/// True when the value needs no conversion for the column.
#[inline]
fn fits(column: &Column, value: &Value<'_>) -> bool {
    let plain =
        !matches!(column.ty, Type::Scalar(Scalar::Json | Scalar::Jsonb | Scalar::Time | Scalar::Numeric(_)));
    plain && column.identity.is_none() && value.value_type() == Some(column.ty)
}

fn all_fit(schema: &Schema, values: &[Value<'_>]) -> bool {
    schema.columns().iter().zip(values).all(|(column, value)| fits(column, value))
}

impl Load {
    /// Adds a row with a value for each column, in order. An error ends the load and rolls it back.
    ///
    /// # Errors
    /// A value that does not fit; a violated rule. Rules on other rows may be checked only in
    /// [`Load::finish`].
    pub fn row(&mut self, values: &[Value<'_>]) -> Result<()> {
        self.schema.check_arity(values).inspect_err(|_| self.failed = true)?;
        if matches!(self.way, Way::Fresh(_)) && all_fit(&self.schema, values) {
            return self.take(values);
        }
        let given = values.iter().map(Value::borrowed).map(Some).collect();
        self.complete(given)
    }

    /// Adds a row; columns that are not named get their defaults.
    ///
    /// # Errors
    /// As [`Load::row`]; [`TablesError::UnknownColumn`].
    pub fn insert(&mut self, values: &[(&str, Value<'_>)]) -> Result<()> {
        let schema = self.schema.clone();
        let given = named(&schema, values).inspect_err(|_| self.failed = true)?;
        self.complete(given)
    }

    fn complete(&mut self, given: Vec<Option<Value<'_>>>) -> Result<()> {
        let schema = self.schema.clone();
        let values = completed(&self.tables, &schema, &|| self.now_micros, given, false)
            .inspect_err(|_| self.failed = true)?;
        self.take(&values)
    }

    /// Takes a row whose values fit their columns.
    fn take(&mut self, values: &[Value<'_>]) -> Result<()> {
        let result = match &mut self.way {
            Way::Fresh(loader) => {
                let mut tx = TablesTx::new(&self.tables, &mut self.kv, &mut self.state);
                loader.take(&mut tx, &self.schema, values)
            }
            Way::Through(waiting) => {
                waiting.push(values.iter().map(|value| value.clone().into_owned()).collect());
                if waiting.len() == BATCH_ROWS { self.write_through() } else { Ok(()) }
            }
        };
        self.failed |= result.is_err();
        self.rows += u64::from(result.is_ok());
        result
    }

    /// Finishes: the rows are in the table, durably. Returns their number.
    ///
    /// # Errors
    /// Duplicate keys; missing parents; [`TablesError::Conflict`] when others wrote to the table meanwhile.
    /// The load is rolled back then, except in a table that had rows: there earlier commits remain.
    pub fn finish(mut self) -> Result<u64> {
        if self.failed {
            let table = self.schema.name().to_owned();
            return Err(TablesError::Definition { table, what: "the load has failed before".into() });
        }
        let loader = match std::mem::replace(&mut self.way, Way::Through(Vec::new())) {
            Way::Fresh(loader) => loader,
            through @ Way::Through(_) => {
                self.way = through;
                self.write_through()?;
                return Ok(self.rows);
            }
        };
        loader.finish(&mut TablesTx::new(&self.tables, &mut self.kv, &mut self.state), None)?;
        let catalog = self.tables.model.spaces().catalog;
        for object in self.state.loaded.iter().flat_map(|loaded| &loaded.objects) {
            self.kv.delete(catalog, &loading_key(*object));
        }
        let mut operations: Vec<Box<dyn Operation>> = self.state.operation().into_iter().collect();
        assert!(operations.is_empty() || self.kv.has_writes(), "a changed definition is a write");
        if self.kv.has_writes() {
            operations.push(Box::new(self.kv.into_batch()));
            let committed = self.tables.commit(operations);
            self.tables.remove_orphaned_loads()?;
            committed?;
        }
        Ok(self.rows)
    }

    fn write_through(&mut self) -> Result<()> {
        let Way::Through(waiting) = &mut self.way else {
            unreachable!("a load into new objects has no waiting rows");
        };
        let rows = std::mem::take(waiting);
        if rows.is_empty() {
            return Ok(());
        }
        self.tables.insist(|tx| rows.iter().try_for_each(|row| tx.take_row(&self.table, row)))
    }
}

/// A load within a transaction: one of its statements. See [`TablesTx::load`].
pub struct TxLoad {
    schema: Arc<Schema>,
    loader: Box<Loader>,
    now_micros: i64,
    rows: u64,
    takes_generated: bool,
}

impl TablesTx<'_> {
    /// A loader into new objects of the table; `None` when the table has rows or refers to itself.
    fn loader(&mut self, schema: &Arc<Schema>, options: LoadOptions) -> Result<Option<Loader>> {
        let to_itself = schema.foreign_keys().iter().any(|key| key.parent == schema.id());
        if to_itself || !self.is_empty(schema)? {
            return Ok(None);
        }
        Loader::new(self, schema.clone(), options, true).map(Some)
    }

    /// Begins to load `table` within this transaction; `None` when it has rows or refers to itself. Rows
    /// beyond `options.log_bytes_max` bypass the log, so that a transaction may load more than it may write.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn load(&mut self, table: &Table, options: LoadOptions) -> Result<Option<TxLoad>> {
        self.begin();
        let schema = self.schema_of(table)?;
        self.guard_schema(&schema);
        let Some(loader) = self.loader(&schema, options)? else { return Ok(None) };
        let now_micros = self.tables.engine.env().clock.wall_micros();
        Ok(Some(TxLoad { schema, loader: Box::new(loader), now_micros, rows: 0, takes_generated: false }))
    }
}

impl TxLoad {
    /// Also accepts values for columns that are always generated, to restore rows.
    #[must_use]
    pub fn allow_generated_values(mut self) -> Self {
        self.takes_generated = true;
        self
    }

    /// Adds a row; columns that are not named get their defaults. `tx` is the transaction of the load. After
    /// an error the load must be dropped, which rolls it back.
    ///
    /// # Errors
    /// As [`Load::insert`].
    pub fn insert(&mut self, tx: &mut TablesTx<'_>, values: &[(&str, Value<'_>)]) -> Result<()> {
        let given = named(&self.schema, values)?;
        let values = completed(tx.tables, &self.schema, &|| self.now_micros, given, self.takes_generated)?;
        self.take(tx, &values)
    }

    /// Adds a row with a value for each column, in order.
    ///
    /// # Errors
    /// As [`Load::row`].
    pub fn row(&mut self, tx: &mut TablesTx<'_>, values: &[Value<'_>]) -> Result<()> {
        self.schema.check_arity(values)?;
        if all_fit(&self.schema, values) {
            return self.take(tx, values);
        }
        let given = values.iter().map(Value::borrowed).map(Some);
        let values = completed(tx.tables, &self.schema, &|| self.now_micros, given, self.takes_generated)?;
        self.take(tx, &values)
    }

    fn take(&mut self, tx: &mut TablesTx<'_>, values: &[Value<'_>]) -> Result<()> {
        self.loader.take(tx, &self.schema, values)?;
        self.rows += 1;
        Ok(())
    }

    /// Finishes: the transaction contains the rows. Returns their number.
    ///
    /// # Errors
    /// Duplicate keys; missing parents. Nothing was written then.
    pub fn finish(self, tx: &mut TablesTx<'_>) -> Result<u64> {
        self.loader.finish(tx, None)?;
        Ok(self.rows)
    }
}
