//! Loading rows into new objects of one table: the common part of loads and rewrites.
//!
//! ```text
//! rows ─▶ checks ─▶ sorter per object ─┬─ small ─▶ writes of the transaction
//!                                      └─ runs under new object numbers ─▶ 1 declare ─▶ 2 ingest ─▶ 3 the transaction's commit
//! ```
//! With `EngineOptions::log_everything` step 2 is commits instead of runs, see `load::entry_writer`.
//!
//! Step 1: a durable catalog entry (`l`) marks these objects as being loaded. Step 2: the manifest names
//! their runs; only the transaction itself reads them, since no definition names the objects. Step 3: the
//! transaction's commit gives the objects to the table, as TRUNCATE does.
//!
//! Invariants
//! 1. An object with an `l` entry and no `o` entry belongs to no table: it is deleted when its transaction
//!    rolls back, by [`Tables::remove_orphaned_loads`] after a commit, before the next load, or by [`Tables::recover`]
//!    after a crash.
//! 2. A commit that names loaded objects is valid only while their `l` entries exist
//!    ([`crate::write::tx::TablesState::operation`] checks it in commit order), so a clean-up and a commit
//!    cannot both win.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ropewalk_engine::{KvBatch, NewRun};

use crate::catalog::tables::Tables;
use crate::catalog::{loading_key, object_range};
use crate::error::{Result, TablesError};
use crate::load::LoadOptions;
use crate::load::sorter::{SortError, Sorter, Target};
use crate::read::TablesRead;
use crate::row::display;
use crate::row::keys::{check_length, index_entry, put_key_column};
use crate::schema::{Parts, ROW_BYTES_MAX, Schema};
use crate::value::Value;
use crate::write::loaded::Loaded;
use crate::write::references::parent_of;
use crate::write::tx::TablesTx;
use crate::write::values::check;

/// Most parents that are guarded one by one; more are guarded as a range.
const GUARDS_MAX: usize = 4096;
/// Most distinct parents collected before they are looked up.
const PARENTS_MAX: usize = 100_000;

struct Parents {
    schema: Arc<Schema>,
    keys: HashSet<Vec<u8>>,
    /// Too many to be guarded one by one.
    many: bool,
}

pub(crate) struct Loader {
    /// The schema of the rows. Its objects are the table's present ones.
    schema: Arc<Schema>,
    log_bytes_max: usize,
    /// Memory limit of one sorter.
    share_bytes: usize,
    /// One for the rows, then one per index.
    sorters: Vec<Sorter>,
    /// Their objects, once they are declared.
    loaded: Loaded,
    /// By foreign key: the parent's definition, and the parents to look up.
    parents: Vec<Parents>,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Loader {
    /// Begins to fill new objects with rows of `schema`. With `refers` the rows must have their parents.
    pub(crate) fn new(
        tx: &mut TablesTx<'_>,
        schema: Arc<Schema>,
        options: LoadOptions,
        refers: bool,
    ) -> Result<Self> {
        let mut parents = Vec::new();
        for foreign in schema.foreign_keys().iter().filter(|_| refers) {
            let parent = tx.schema_by_id(foreign.parent)?;
            tx.guard_schema(&parent);
            parents.push(Parents { schema: parent, keys: HashSet::new(), many: false });
        }
        let budget = tx.tables.engine.stats().write_bytes_max as usize / 2;
        let memory_bytes = options.memory_bytes.unwrap_or(budget).clamp(64 << 10, 2 << 30);
        Ok(Self {
            log_bytes_max: options.log_bytes_max.min(32 << 20),
            share_bytes: memory_bytes / (schema.indexes().len() + 1),
            sorters: (0..=schema.indexes().len()).map(|_| Sorter::default()).collect(),
            loaded: Loaded { tables: tx.tables.clone(), objects: Vec::new() },
            parents,
            key: Vec::new(),
            row: Vec::new(),
            schema,
        })
    }

    fn tables(&self) -> &Tables {
        &self.loaded.tables
    }

    /// The schema that is being loaded.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Adds a row whose values fit their columns. `schema` is [`Loader::schema`], passed by reference: a
    /// reference count per row would take a tenth of the load's time.
    pub(crate) fn take(
        &mut self,
        tx: &mut TablesTx<'_>,
        schema: &Arc<Schema>,
        values: &[Value<'_>],
    ) -> Result<()> {
        debug_assert_eq!(values.len(), schema.columns().len(), "a row has a value for each column");
        check(schema, values)?;
        self.key.clear();
        // Space for the object's number, which is set when the runs are written.
        self.key.extend_from_slice(&[0; 4]);
        match schema.parts.rowid {
            Some(sequence) => {
                let number = self.tables().next_number(sequence)?;
                ropewalk_base::keys::put_i64(&mut self.key, number);
            }
            None => {
                for place in schema.key_columns() {
                    let value = values.get(*place).unwrap_or(&Value::Null);
                    put_key_column(schema, *place, value, &mut self.key)?;
                }
            }
        }
        check_length(schema, "key", self.key.len() - 4)?;
        self.row.clear();
        schema.put_row(values, &mut self.row);
        if self.row.len() > ROW_BYTES_MAX {
            let (table, bytes) = (schema.name().to_owned(), self.row.len());
            return Err(TablesError::TooLarge { table, what: "row", bytes, max: ROW_BYTES_MAX });
        }
        let (key, row) = (std::mem::take(&mut self.key), std::mem::take(&mut self.row));
        let added = self.add(0, without_object(&key), &row);
        for (ordinal, index) in schema.indexes().iter().enumerate().filter(|_| added.is_ok()) {
            if let Some(entry) = index_entry(schema, index, values, &key)? {
                self.add(ordinal + 1, without_object(&entry.key), &entry.value)?;
            }
        }
        (self.key, self.row) = (key, row);
        added?;
        for ordinal in 0..self.parents.len() {
            self.refer(tx, ordinal, values)?;
        }
        Ok(())
    }

    /// Adds an entry of one object; spills or starts to stream when it is time.
    #[inline]
    fn add(&mut self, ordinal: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let sorter = self.sorters.get_mut(ordinal).expect("the rows and every index have a sorter");
        let object = self.loaded.objects.get(ordinal).copied();
        assert!(object.is_some() || !sorter.is_streaming(), "entries are written under declared objects");
        // Entries in the buffer have no object yet.
        let object = object.unwrap_or_default();
        let added = sorter.add(key, value, object);
        if sorter.is_streaming() && matches!(&added, Ok(complete) if complete.is_empty()) {
            return Ok(());
        }
        let bytes = sorter.bytes();
        let streams = sorter.may_stream() && bytes > self.log_bytes_max;
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
    ) -> Result<R> {
        let object = *self.loaded.objects.get(ordinal).expect("objects are declared before their runs");
        let sorter = self.sorters.get_mut(ordinal).expect("the rows and every index have a sorter");
        let tables = &self.loaded.tables;
        let target = Target { engine: &tables.engine, keyspace: tables.model.spaces().rows, object };
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
            Some(index) => (index.name.clone(), display::entry_key(schema, index, &key)),
            None => (schema.parts.key_name.clone(), display::row_key(schema, &key)),
        };
        TablesError::Unique { table: schema.name().to_owned(), constraint, key }
    }

    fn new_objects(&self) -> Result<Vec<u32>> {
        let tables = self.tables();
        self.sorters.iter().map(|_| tables.model.new_object(&tables.engine)).collect()
    }

    /// Step 1: assigns numbers to the objects and marks them in the catalog as loading.
    fn declare(&mut self) -> Result<()> {
        if !self.loaded.objects.is_empty() {
            return Ok(());
        }
        self.tables().remove_orphaned_loads()?;
        let objects = self.new_objects()?;
        let tables = self.tables();
        let mut batch = KvBatch::new();
        for object in &objects {
            let key = loading_key(*object);
            batch.put(tables.model.spaces().catalog, &key, &self.schema.id().to_le_bytes());
        }
        tables.commit(vec![Box::new(batch)])?;
        self.loaded.objects = objects;
        Ok(())
    }

    /// Step 2.
    fn ingest(&self, runs: Vec<NewRun>) -> Result<()> {
        if runs.is_empty() { Ok(()) } else { Ok(self.tables().engine.ingest(runs)?) }
    }

    /// Records the parent that a row needs.
    fn refer(&mut self, tx: &mut TablesTx<'_>, ordinal: usize, values: &[Value<'_>]) -> Result<()> {
        let schema = self.schema.clone();
        let foreign = schema.foreign_keys().get(ordinal).expect("there are parents by foreign key");
        let parents = self.parents.get_mut(ordinal).expect("the caller counts the foreign keys");
        if let Some(key) = parent_of(&schema, foreign, values, Some(&parents.schema))? {
            parents.keys.insert(key);
            if parents.keys.len() >= PARENTS_MAX {
                parents.many = true;
                self.look_for_parents(tx, ordinal)?;
            }
        }
        Ok(())
    }

    fn look_for_parents(&mut self, tx: &mut TablesTx<'_>, ordinal: usize) -> Result<()> {
        let rows = tx.spaces().rows;
        let parents = self.parents.get_mut(ordinal).expect("the caller counts the foreign keys");
        for key in parents.keys.drain() {
            if tx.kv.peek(rows, &key)?.is_none() {
                let foreign =
                    self.schema.foreign_keys().get(ordinal).expect("there are parents by foreign key");
                return Err(TablesError::ForeignKey {
                    table: self.schema.name().to_owned(),
                    constraint: foreign.name.clone(),
                    what: format!("{} is not there", display::any_key(&parents.schema, &key)),
                });
            }
            if !parents.many {
                tx.kv.guard_exists(rows, &key);
            }
        }
        Ok(())
    }

    /// Checks that every row has its parents, and guards them until the load commits.
    fn judge(&mut self, tx: &mut TablesTx<'_>) -> Result<()> {
        let rows = tx.spaces().rows;
        for ordinal in 0..self.parents.len() {
            let parents = self.parents.get_mut(ordinal).expect("the loop counts the foreign keys");
            parents.many |= parents.keys.len() > GUARDS_MAX;
            if parents.many {
                for object in parents.schema.parts.objects() {
                    let (start, end) = object_range(object);
                    tx.kv.guard_range(rows, &start, end.as_ref().map(<[u8; 4]>::as_slice));
                }
            }
            self.look_for_parents(tx, ordinal)?;
        }
        Ok(())
    }

    /// Finishes: the loaded rows become part of the transaction. `changed` is a definition for which all
    /// rows must be in new objects; without one a small load goes into the table's present objects.
    pub(crate) fn finish(mut self, tx: &mut TablesTx<'_>, changed: Option<Parts>) -> Result<()> {
        let bytes: usize = self.sorters.iter().map(Sorter::bytes).sum();
        let small = bytes <= self.log_bytes_max && self.sorters.iter().all(Sorter::is_whole);
        let present: Vec<u32> = self.schema.parts.objects().collect();
        if !small {
            let parts = changed.unwrap_or_else(|| self.schema.parts.clone());
            return self.finish_in_runs(tx, parts, present);
        }
        self.judge(tx)?;
        let objects = if changed.is_some() { self.new_objects()? } else { present.clone() };
        tx.ddl(|tx| {
            if let Some(parts) = changed {
                tx.put_parts(renewed(parts, &present, &objects), false)?;
                tx.drop_objects(present);
            }
            let rows = tx.spaces().rows;
            tx.state.frontiers.turn_off();
            assert_eq!(objects.len(), self.sorters.len(), "the rows and every index have an object");
            for (ordinal, object) in objects.iter().enumerate() {
                let sorter = self.sorters.get_mut(ordinal).expect("there are as many sorters as objects");
                sorter.sort();
                let written = sorter.each(*object, |key, value| {
                    tx.kv.put(rows, key, value);
                    Ok(())
                });
                written.map_err(|error| self.sort_error(ordinal, error))?;
            }
            Ok(())
        })
    }

    /// Step 3, up to the commit.
    fn finish_in_runs(mut self, tx: &mut TablesTx<'_>, parts: Parts, present: Vec<u32>) -> Result<()> {
        self.declare()?;
        let mut runs = Vec::new();
        for ordinal in 0..self.sorters.len() {
            runs.extend(self.with_sorter(ordinal, Sorter::finish)?);
        }
        self.ingest(runs)?;
        self.judge(tx)?;
        let objects = &self.loaded.objects;
        tx.ddl(|tx| {
            tx.put_parts(renewed(parts, &present, objects), false)?;
            tx.drop_objects(present);
            Ok(())
        })?;
        let snapshot = tx.tables.engine.snapshot();
        for object in objects {
            let (start, end) = object_range(*object);
            let end = end.as_ref().map(<[u8; 4]>::as_slice);
            tx.kv.read_range_from(tx.tables.model.spaces().rows, &start, end, snapshot.clone());
        }
        tx.state.loaded.push(self.loaded);
        Ok(())
    }
}

/// A key without its object.
fn without_object(key: &[u8]) -> &[u8] {
    key.get(4..).expect("a key begins with its object, or room for it")
}

/// The definition with the new objects in place of the old ones, which are dropped with it.
fn renewed(mut parts: Parts, old: &[u32], objects: &[u32]) -> Parts {
    assert_eq!(old.len(), objects.len(), "every object is renewed");
    let renewed: HashMap<u32, u32> = old.iter().copied().zip(objects.iter().copied()).collect();
    let new = |object: &mut u32| *object = renewed.get(object).copied().unwrap_or(*object);
    new(&mut parts.rows);
    parts.indexes.iter_mut().for_each(|index| new(&mut index.object));
    parts.foreign_keys.iter_mut().for_each(|foreign| new(&mut foreign.index));
    assert!(parts.objects().all(|object| !old.contains(&object)), "a definition names no dropped object");
    parts
}
