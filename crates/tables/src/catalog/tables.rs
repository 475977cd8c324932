//! Tables as a model of the engine: its keyspaces, its sequences, and when a definition last changed.
//!
//! Rows and definitions are entries of keyspaces, so that the engine's transactions, snapshots and files serve them as they
//! are. The model's own section of a commit record says only which tables' definitions the commit changes: it is how a
//! prepared handle knows, without a look at the catalog, that its schema is still the newest.
//!
//! Its sequences: see [`crate::catalog::sequence`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use ropewalk_base::{DecodeError, Decoder, Seq, put_varint};
use ropewalk_engine::{
    Apply, Engine, EngineError, KeyConflict, Keyspace, Memory, Model, ModelId, Operation, Outcome, ReadView,
    Rejection, Verdict,
};
use ropewalk_store::{KeyspaceOptions, NewRun, Store};

use crate::catalog::Spaces;
use crate::catalog::sequence::Sequences;
use crate::error::TablesError;
use crate::read::table::Slot;

/// Number of the tables model in commit records.
pub const TABLES: ModelId = ModelId(4);

/// The sequence that numbers tables, objects and sequences.
const OBJECTS: u32 = 0;

/// Loaded definitions that are kept although nobody has a handle on their tables.
const SLOTS_MAX: usize = 1024;

/// What the tables of one engine share.
#[derive(Default)]
pub struct TablesModel {
    spaces: OnceLock<Spaces>,
    /// The newest commit that changed a definition, pending commits included. Written by the sequencer.
    last_ddl: AtomicU64,
    pub(crate) sequences: Sequences,
    /// Objects that transactions loaded and tried to commit.
    pub(crate) handed_over: Mutex<Vec<u32>>,
    /// Definitions that were loaded, for all handles on a table.
    slots: RwLock<HashMap<u32, Slot>>,
}

impl TablesModel {
    pub(crate) fn spaces(&self) -> Spaces {
        *self.spaces.get().expect("the engine opens a model before anything else")
    }

    #[inline]
    pub(crate) fn last_ddl(&self) -> Seq {
        Seq(self.last_ddl.load(Ordering::Acquire))
    }

    /// The place for the definition of table `id`.
    pub(crate) fn slot(&self, id: u32) -> Slot {
        if let Some(slot) = self.slots.read().get(&id) {
            return slot.clone();
        }
        let mut slots = self.slots.write();
        if slots.len() >= SLOTS_MAX {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        slots.entry(id).or_default().clone()
    }

    /// A number for a new table, object or sequence.
    pub(crate) fn new_object(&self, engine: &Engine) -> Result<u32, TablesError> {
        let number = self.sequences.next(engine, self.spaces().catalog, OBJECTS, 64)?;
        u32::try_from(number).map_err(|_| TablesError::Exhausted { sequence: OBJECTS })
    }
}

/// The part of a commit that says whose definitions it changes.
pub(crate) struct DdlOperation {
    pub(crate) tables: Vec<u32>,
    /// Entries of objects that were loaded for it: they must stand, or somebody took the objects for left over.
    pub(crate) loading: Vec<(Keyspace, [u8; 5])>,
}

impl Operation for DdlOperation {
    fn model(&self) -> ModelId {
        TABLES
    }

    fn bytes_max(&self) -> usize {
        self.tables.len() * 5
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        for (keyspace, key) in &self.loading {
            if latest.get(*keyspace, key)?.is_none() {
                let (keyspace, key, seq) = (*keyspace, key.to_vec(), latest.at());
                return Err(Box::new(KeyConflict { keyspace, key, seq }));
            }
        }
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        self.tables.iter().for_each(|table| put_varint(out, u64::from(*table)));
        (0, 0)
    }
}

impl Model for TablesModel {
    fn id(&self) -> ModelId {
        TABLES
    }

    fn name(&self) -> &'static str {
        "tables"
    }

    fn open(&self, store: &Store) -> Result<(), EngineError> {
        let rows = store.keyspace("tables", KeyspaceOptions::default())?;
        let catalog = store.keyspace("tables.catalog", KeyspaceOptions::default())?;
        self.spaces.get_or_init(|| Spaces { rows, catalog });
        Ok(())
    }

    fn load(&self, _read: ReadView<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let mut decoder = Decoder::new(section);
        while !decoder.is_empty() {
            decoder.varint("table")?;
        }
        self.last_ddl.store(apply.seq.0, Ordering::Release);
        Ok(())
    }

    fn flush(&self, _: &dyn Memory, _: &Store, _: &[Seq]) -> Result<Vec<NewRun>, EngineError> {
        Ok(Vec::new())
    }

    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        crate::model::verify::verify(self.spaces(), read)
    }
}

/// The tables of an engine. Cheap to clone.
#[derive(Clone)]
pub struct Tables {
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Arc<TablesModel>,
}

impl Tables {
    /// The tables of an engine that has `model` registered.
    pub fn new(engine: Arc<Engine>, model: Arc<TablesModel>) -> Self {
        Self { engine, model }
    }
}
