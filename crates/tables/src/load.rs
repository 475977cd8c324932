//! Bulk load: rows straight into sorted runs, which one commit then makes the table's.
//!
//! ```text
//! rows ─▶ checks ─▶ sorter per object ─▶ runs under new object numbers ─▶ 1 declare ─▶ 2 ingest ─▶ 3 commit
//! ```
//! 1 A durable catalog entry says that these objects are being loaded. 2 The manifest names their runs; nobody reads them,
//! since no definition names the objects. 3 A commit gives the objects to the table, as TRUNCATE does, and takes the entries
//! of 1 away. It conflicts with whoever wrote to the table since the load began.
//!
//! A crash before 1 leaves files that nobody names, which opening removes; one between 1 and 3 leaves declared objects,
//! which [`Tables::recover`] deletes as ranges; after 3 all rows are there. So a load is there as a whole or not at all.
//!
//! That way is open to a table without rows. What is small goes through the log in one commit, which costs one sync. A table
//! that has rows, or refers to itself, takes the rows through the log in commits of [`BATCH_ROWS`] each.
//!
//! The rows of a load through runs are not in the log: a change feed shows the definition that changed, not each row.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ropewalk_engine::{Isolation, KvBatch, KvTransaction, NewRun, Operation};

use crate::catalog::{loading_key, object_range};
use crate::error::TablesError;
use crate::model::Tables;
use crate::read::TablesRead;
use crate::rowkey::{check_length, index_entry, put_key_column};
use crate::schema::{Column, ROW_BYTES_MAX, Schema};
use crate::show;
use crate::sorter::{SortError, Sorter, Target};
use crate::table::Table;
use crate::tx::{TablesState, TablesTx};
use crate::types::{Scalar, Type};
use crate::value::Value;
use crate::write::{check, completed, named, parent_of};

/// Rows of one commit where rows go through the log.
const BATCH_ROWS: usize = 1024;
/// Parents that are held on to one by one; more of them are held on to as a range.
const GUARDS_MAX: usize = 4096;
/// Different parents that wait to be looked for.
const PARENTS_MAX: usize = 100_000;

/// How a load works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Up to so many bytes go through the log in one commit; at most 32 MiB.
    pub log_bytes_max: usize,
    /// Memory for sorting, bytes, 64 KiB to 2 GiB. `None`: a quarter of the memory budget.
    pub memory_bytes: Option<usize>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { log_bytes_max: 1 << 20, memory_bytes: None }
    }
}

/// A load under way. Dropped before [`Load::finish`] it leaves nothing.
pub struct Load {
    tables: Tables,
    kv: KvTransaction,
    state: TablesState,
    table: Table,
    schema: Arc<Schema>,
    options: LoadOptions,
    /// Memory of one sorter.
    share_bytes: usize,
    way: Way,
    /// Foreign keys: the parent's definition, and the parents to be looked for.
    parents: Vec<Parents>,
    now_micros: i64,
    rows: u64,
    failed: bool,
    key: Vec<u8>,
    row: Vec<u8>,
}

struct Parents {
    schema: Arc<Schema>,
    keys: HashSet<Vec<u8>>,
    /// Too many to be held on to one by one.
    many: bool,
}

enum Way {
    /// The table is empty: rows, then one sorter per index. Numbers of the objects once they are declared.
    Fresh { sorters: Vec<Sorter>, objects: Vec<u32> },
    /// Rows that wait for their commit.
    Through(Vec<Vec<Value<'static>>>),
}

impl Tables {
    /// Begins to load `table`. Where the table is empty the load is one commit: all of it or nothing. Otherwise it is many.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn load(&self, table: &Table) -> Result<Load, TablesError> {
        self.load_with(table, LoadOptions::default())
    }

    /// As [`Tables::load`].
    ///
    /// # Errors
    /// As [`Tables::load`].
    pub fn load_with(&self, table: &Table, options: LoadOptions) -> Result<Load, TablesError> {
        // Guards alone decide: what is loaded is written without being read.
        let mut kv = KvTransaction::new(self.engine.clone(), Isolation::ReadCommitted);
        kv.stay();
        let mut state = TablesState::default();
        let mut tx = TablesTx::new(self, &mut kv, &mut state);
        let schema = tx.schema_of(table)?;
        tx.guard_schema(&schema);
        let mut parents = Vec::new();
        let to_itself = schema.foreign_keys().iter().any(|key| key.parent == schema.id());
        let fresh = tx.is_empty(&schema)? && !to_itself;
        for foreign in schema.foreign_keys().iter().filter(|_| fresh) {
            let parent = tx.schema_by_id(foreign.parent)?;
            tx.guard_schema(&parent);
            parents.push(Parents { schema: parent, keys: HashSet::new(), many: false });
        }
        let way = if fresh {
            let sorters = (0..=schema.indexes().len()).map(|_| Sorter::default()).collect();
            Way::Fresh { sorters, objects: Vec::new() }
        } else {
            Way::Through(Vec::new())
        };
        let budget = self.engine.stats().write_bytes_max as usize / 2;
        let memory_bytes = options.memory_bytes.unwrap_or(budget).clamp(64 << 10, 2 << 30);
        let share_bytes = memory_bytes / (schema.indexes().len() + 1);
        let options = LoadOptions { log_bytes_max: options.log_bytes_max.min(32 << 20), ..options };
        let now_micros = self.engine.env().clock.wall_micros();
        Ok(Load {
            tables: self.clone(),
            kv,
            state,
            table: table.clone(),
            schema,
            options,
            share_bytes,
            way,
            parents,
            now_micros,
            rows: 0,
            failed: false,
            key: Vec::new(),
            row: Vec::new(),
        })
    }

    /// Deletes what loads left that a crash cut off; answers how many objects there were. To be called before any load
    /// begins, once after the engine was opened.
    ///
    /// # Errors
    /// The engine's.
    pub fn recover(&self) -> Result<usize, TablesError> {
        let spaces = self.model.spaces();
        let snapshot = self.engine.snapshot();
        let mut cursor = snapshot.read().cursor(spaces.catalog);
        cursor.seek(b"l")?;
        let mut objects = Vec::new();
        while cursor.valid()
            && let Some((b'l', object)) = cursor.key().split_first()
        {
            objects.extend(object.first_chunk().copied().map(u32::from_be_bytes));
            cursor.next()?;
        }
        if !objects.is_empty() {
            self.forget_objects(&objects)?;
        }
        Ok(objects.len())
    }

    fn forget_objects(&self, objects: &[u32]) -> Result<(), TablesError> {
        let spaces = self.model.spaces();
        let mut batch = KvBatch::new();
        for &object in objects {
            let (start, end) = object_range(object);
            batch.delete_range(spaces.rows, &start, &end.unwrap_or([0xff; 4]));
            batch.delete(spaces.catalog, &loading_key(object));
        }
        self.commit(vec![Box::new(batch)])
    }
}

/// True when the value goes into the column as it is.
#[inline]
fn fits(column: &Column, value: &Value<'_>) -> bool {
    let plain = !matches!(column.ty, Type::Scalar(Scalar::Json | Scalar::Time | Scalar::Numeric(_)));
    plain && column.identity.is_none() && value.value_type() == Some(column.ty)
}

impl Load {
    /// Adds a row with a value for each column, in order. After an error the load is over, and leaves nothing.
    ///
    /// # Errors
    /// A value that does not fit; a broken rule. Rules on other rows may show at [`Load::finish`] only.
    pub fn row(&mut self, values: &[Value<'_>]) -> Result<(), TablesError> {
        let schema = &self.schema;
        let (expected, found) = (schema.columns().len(), values.len());
        if expected != found {
            self.failed = true;
            return Err(TablesError::Arity { table: schema.name().to_owned(), expected, found });
        }
        let fresh = matches!(self.way, Way::Fresh { .. });
        if fresh && schema.columns().iter().zip(values).all(|(column, value)| fits(column, value)) {
            return self.take(values);
        }
        let given = values.iter().map(Value::borrowed).map(Some).collect();
        self.complete(given)
    }

    /// Adds a row; columns that are not named get their defaults.
    ///
    /// # Errors
    /// As [`Load::row`]; [`TablesError::UnknownColumn`].
    pub fn insert(&mut self, values: &[(&str, Value<'_>)]) -> Result<(), TablesError> {
        let schema = self.schema.clone();
        let given = named(&schema, values).inspect_err(|_| self.failed = true)?;
        self.complete(given)
    }

    fn complete(&mut self, given: Vec<Option<Value<'_>>>) -> Result<(), TablesError> {
        let schema = self.schema.clone();
        let values =
            completed(&self.tables, &schema, self.now_micros, given).inspect_err(|_| self.failed = true)?;
        self.take(&values)
    }

    /// Takes a row whose values fit their columns.
    fn take(&mut self, values: &[Value<'_>]) -> Result<(), TablesError> {
        let result = match &mut self.way {
            Way::Fresh { .. } => self.sort_in(values),
            Way::Through(waiting) => {
                waiting.push(values.iter().map(|value| value.clone().into_owned()).collect());
                if waiting.len() == BATCH_ROWS { self.write_through() } else { Ok(()) }
            }
        };
        self.failed |= result.is_err();
        self.rows += u64::from(result.is_ok());
        result
    }

    fn sort_in(&mut self, values: &[Value<'_>]) -> Result<(), TablesError> {
        let schema = self.schema.clone();
        check(&schema, values)?;
        self.key.clear();
        // The object's place; its number comes when the runs are written.
        self.key.extend_from_slice(&[0; 4]);
        match schema.parts.rowid {
            Some(sequence) => {
                let number = self.tables.model.next_number(&self.tables.engine, sequence)?;
                ropewalk_base::keys::put_i64(&mut self.key, number);
            }
            None => {
                for place in schema.key_columns() {
                    let value = values.get(*place).unwrap_or(&Value::Null);
                    put_key_column(&schema, *place, value, &mut self.key)?;
                }
            }
        }
        check_length(&schema, "key", self.key.len() - 4)?;
        self.row.clear();
        schema.put_row(values, &mut self.row);
        if self.row.len() > ROW_BYTES_MAX {
            let (table, bytes) = (schema.name().to_owned(), self.row.len());
            return Err(TablesError::TooLarge { table, what: "row", bytes, max: ROW_BYTES_MAX });
        }
        let (key, row) = (std::mem::take(&mut self.key), std::mem::take(&mut self.row));
        let added = self.add(0, key.get(4..).unwrap_or_default(), &row);
        for (ordinal, index) in schema.indexes().iter().enumerate().filter(|_| added.is_ok()) {
            if let Some(entry) = index_entry(&schema, index, values, &key)? {
                self.add(ordinal + 1, entry.key.get(4..).unwrap_or_default(), &entry.value)?;
            }
        }
        (self.key, self.row) = (key, row);
        added?;
        for ordinal in 0..self.parents.len() {
            self.refer(ordinal, values)?;
        }
        Ok(())
    }

    /// Adds an entry of one object, and makes room or begins to stream where it is time to.
    #[inline]
    fn add(&mut self, ordinal: usize, key: &[u8], value: &[u8]) -> Result<(), TablesError> {
        let Way::Fresh { sorters, objects } = &mut self.way else { return Ok(()) };
        let Some(sorter) = sorters.get_mut(ordinal) else { return Ok(()) };
        let object = objects.get(ordinal).copied().unwrap_or_default();
        let added = sorter.add(key, value, object);
        if sorter.is_streaming() && matches!(&added, Ok(complete) if complete.is_empty()) {
            return Ok(());
        }
        let bytes = sorter.bytes();
        let streams = sorter.may_stream() && bytes > self.options.log_bytes_max;
        let complete = added.map_err(|error| self.sort_error(ordinal, error))?;
        if !complete.is_empty() {
            self.ingest(complete)?;
        }
        if streams {
            self.declare()?;
            self.with_sorter(ordinal, Sorter::stream)
        } else if bytes > self.share_bytes {
            self.declare()?;
            let runs = self.with_sorter(ordinal, |sorter, target| sorter.spill(target, false))?;
            self.ingest(runs)
        } else {
            Ok(())
        }
    }

    /// Runs `work` on one sorter; its objects must be declared.
    fn with_sorter<R>(
        &mut self,
        ordinal: usize,
        work: impl FnOnce(&mut Sorter, Target<'_>) -> Result<R, SortError>,
    ) -> Result<R, TablesError> {
        let missing = || TablesError::Definition { table: String::new(), what: "an index is gone".into() };
        let Way::Fresh { sorters, objects } = &mut self.way else { return Err(missing()) };
        let sorter = sorters.get_mut(ordinal).ok_or_else(missing)?;
        let object = objects.get(ordinal).copied().ok_or_else(missing)?;
        let keyspace = self.tables.model.spaces().rows;
        let target = Target { engine: &self.tables.engine, keyspace, object };
        work(sorter, target).map_err(|error| self.sort_error(ordinal, error))
    }

    fn sort_error(&self, ordinal: usize, error: SortError) -> TablesError {
        let key = match error {
            SortError::Tables(error) => return error,
            SortError::Duplicate(key) => key,
        };
        let schema = &self.schema;
        let index = ordinal.checked_sub(1).and_then(|place| schema.indexes().get(place));
        let (constraint, key) = match index {
            Some(index) => (index.name.clone(), show::entry_key(schema, index, &key)),
            None => (schema.parts.key_name.clone(), show::row_key(schema, &key)),
        };
        TablesError::Unique { table: schema.name().to_owned(), constraint, key }
    }

    /// Step 1: the objects get numbers, and the catalog knows them as loading.
    fn declare(&mut self) -> Result<(), TablesError> {
        let Way::Fresh { sorters, objects } = &mut self.way else { return Ok(()) };
        if !objects.is_empty() {
            return Ok(());
        }
        let mut batch = KvBatch::new();
        let mut numbers = Vec::new();
        for _ in sorters {
            let object = self.tables.model.new_object(&self.tables.engine)?;
            batch.put(
                self.tables.model.spaces().catalog,
                &loading_key(object),
                &self.schema.id().to_le_bytes(),
            );
            numbers.push(object);
        }
        *objects = numbers;
        self.tables.commit(vec![Box::new(batch)])
    }

    /// Step 2.
    fn ingest(&self, runs: Vec<NewRun>) -> Result<(), TablesError> {
        if runs.is_empty() { Ok(()) } else { Ok(self.tables.engine.ingest(runs)?) }
    }

    /// Notes the parent that a row needs.
    fn refer(&mut self, ordinal: usize, values: &[Value<'_>]) -> Result<(), TablesError> {
        let schema = self.schema.clone();
        let (Some(foreign), Some(parents)) =
            (schema.foreign_keys().get(ordinal), self.parents.get_mut(ordinal))
        else {
            return Ok(());
        };
        if let Some(key) = parent_of(&schema, foreign, values, Some(&parents.schema))? {
            parents.keys.insert(key);
            if parents.keys.len() >= PARENTS_MAX {
                parents.many = true;
                self.look_for_parents(ordinal)?;
            }
        }
        Ok(())
    }

    fn look_for_parents(&mut self, ordinal: usize) -> Result<(), TablesError> {
        let rows = self.tables.model.spaces().rows;
        let Some(parents) = self.parents.get_mut(ordinal) else { return Ok(()) };
        for key in parents.keys.drain() {
            if self.kv.peek(rows, &key)?.is_none() {
                let foreign = self.schema.foreign_keys().get(ordinal);
                return Err(TablesError::ForeignKey {
                    table: self.schema.name().to_owned(),
                    constraint: foreign.map(|foreign| foreign.name.clone()).unwrap_or_default(),
                    what: format!("{} is not there", show::any_key(&parents.schema, &key)),
                });
            }
            if !parents.many {
                self.kv.guard_exists(rows, &key);
            }
        }
        Ok(())
    }

    /// Every row has its parents, and will have them when the load commits.
    fn judge(&mut self) -> Result<(), TablesError> {
        let rows = self.tables.model.spaces().rows;
        for ordinal in 0..self.parents.len() {
            let Some(parents) = self.parents.get_mut(ordinal) else { continue };
            parents.many |= parents.keys.len() > GUARDS_MAX;
            if parents.many {
                for object in parents.schema.parts.objects() {
                    let (start, end) = object_range(object);
                    self.kv.guard_range(rows, &start, end.as_ref().map(<[u8; 4]>::as_slice));
                }
            }
            self.look_for_parents(ordinal)?;
        }
        Ok(())
    }

    /// The rows are in the table, durably, and there are so many of them.
    ///
    /// # Errors
    /// Keys that occur twice; parents that are missing; [`TablesError::Conflict`] when others wrote to the table meanwhile.
    /// The load leaves nothing then, except in a table that had rows: there the commits before stay.
    pub fn finish(mut self) -> Result<u64, TablesError> {
        if self.failed {
            let table = self.schema.name().to_owned();
            return Err(TablesError::Definition { table, what: "the load has failed before".into() });
        }
        match &mut self.way {
            Way::Through(_) => self.write_through()?,
            Way::Fresh { sorters, .. } => {
                let bytes: usize = sorters.iter().map(Sorter::bytes).sum();
                let small = bytes <= self.options.log_bytes_max && sorters.iter().all(Sorter::is_whole);
                if small { self.finish_in_log()? } else { self.finish_in_runs()? }
            }
        }
        Ok(self.rows)
    }

    fn finish_in_log(&mut self) -> Result<(), TablesError> {
        self.judge()?;
        let rows = self.tables.model.spaces().rows;
        let kv = std::mem::replace(
            &mut self.kv,
            KvTransaction::new(self.tables.engine.clone(), Isolation::Snapshot),
        );
        let mut batch = kv.into_batch();
        let schema = self.schema.clone();
        for (ordinal, object) in schema.parts.objects().enumerate() {
            let Way::Fresh { sorters, .. } = &mut self.way else { continue };
            let Some(sorter) = sorters.get_mut(ordinal) else { continue };
            sorter.sort();
            let written = sorter.each(object, |key, value| {
                batch.put(rows, key, value);
                Ok(())
            });
            written.map_err(|error| self.sort_error(ordinal, error))?;
        }
        if batch.is_empty() { Ok(()) } else { self.tables.commit(vec![Box::new(batch)]) }
    }

    fn finish_in_runs(&mut self) -> Result<(), TablesError> {
        self.declare()?;
        let mut runs = Vec::new();
        for ordinal in 0..=self.schema.indexes().len() {
            runs.extend(self.with_sorter(ordinal, Sorter::finish)?);
        }
        self.ingest(runs)?;
        self.judge()?;
        let Way::Fresh { objects, .. } = &mut self.way else { return Ok(()) };
        let schema = self.schema.clone();
        let catalog = self.tables.model.spaces().catalog;
        let mut tx = TablesTx::new(&self.tables, &mut self.kv, &mut self.state);
        tx.ddl(|tx| {
            let mut parts = schema.parts.clone();
            let old: Vec<u32> = parts.objects().collect();
            let renewed: HashMap<u32, u32> = old.iter().copied().zip(objects.iter().copied()).collect();
            let new = |object: &mut u32| *object = renewed.get(object).copied().unwrap_or(*object);
            new(&mut parts.rows);
            parts.indexes.iter_mut().for_each(|index| new(&mut index.object));
            parts.foreign_keys.iter_mut().for_each(|foreign| new(&mut foreign.index));
            tx.put_parts(parts, false)?;
            tx.drop_objects(old);
            objects.iter().for_each(|object| tx.kv.delete(catalog, &loading_key(*object)));
            Ok(())
        })?;
        let mut operations: Vec<Box<dyn Operation>> = self.state.operation().into_iter().collect();
        let kv = std::mem::replace(
            &mut self.kv,
            KvTransaction::new(self.tables.engine.clone(), Isolation::Snapshot),
        );
        operations.push(Box::new(kv.into_batch()));
        self.tables.commit(operations)?;
        // They are the table's now; nothing is to be taken back.
        if let Way::Fresh { objects, .. } = &mut self.way {
            objects.clear();
        }
        Ok(())
    }

    fn write_through(&mut self) -> Result<(), TablesError> {
        let Way::Through(waiting) = &mut self.way else { return Ok(()) };
        let rows = std::mem::take(waiting);
        if rows.is_empty() {
            return Ok(());
        }
        self.tables.insist(|tx| rows.iter().try_for_each(|row| tx.take_row(&self.table, row)))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Way::Fresh { objects, .. } = &self.way
            && !objects.is_empty()
        {
            // What cannot be deleted now goes when the database is opened again.
            let _ = self.tables.forget_objects(objects);
        }
    }
}
