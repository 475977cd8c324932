//! Tables as a model of the engine: keyspaces, sequences, and the latest change of a definition.
//!
//! Rows and definitions are entries of keyspaces, so that the engine's transactions, snapshots and files
//! handle them unchanged. The model's own section of a commit record lists only the tables whose definitions
//! the commit changes: with it a prepared handle knows, without reading the catalog, that its schema is
//! still the newest.
//!
//! For its sequences see [`crate::catalog::sequence`].

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, RwLock};
use ropewalk_base::Seq;
use ropewalk_engine::{Engine, LastDefinition, ModelId};

use crate::catalog::Spaces;
use crate::catalog::sequence::Sequences;
use crate::error::{Result, TablesError};
use crate::schema::Schema;

/// Number of the tables model in commit records.
pub const TABLES: ModelId = ModelId(4);

/// The sequence that numbers tables, objects and sequences.
const OBJECTS: u32 = 0;

/// Loaded definitions that stay cached without a handle on their tables.
const SLOTS_MAX: usize = 1024;

/// A loaded definition, shared by handles and transactions.
pub(crate) struct LoadedSchema {
    pub(crate) schema: Arc<Schema>,
    /// The snapshot it was loaded at.
    pub(crate) at: Seq,
}

/// Cache slot of a table's definition, empty until first loaded.
pub(crate) type Slot = Arc<ArcSwapOption<LoadedSchema>>;

/// State shared by the tables of one engine.
#[derive(Default)]
pub struct TablesModel {
    pub(crate) spaces: OnceLock<Spaces>,
    pub(crate) last_ddl: LastDefinition,
    pub(crate) sequences: Sequences,
    /// Cached definitions, shared by all handles on a table.
    pub(crate) handed_over: Mutex<Vec<u32>>,
    /// Definitions that were loaded, for all handles on a table.
    slots: RwLock<HashMap<u32, Slot>>,
}

impl TablesModel {
    pub(crate) fn spaces(&self) -> Spaces {
        *self.spaces.get().expect("the engine opens a model before anything else")
    }

    /// The cache slot for the definition of table `id`.
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
    pub(crate) fn new_object(&self, engine: &Engine) -> Result<u32> {
        let number = self.sequences.next(engine, self.spaces().catalog, OBJECTS, 64)?;
        u32::try_from(number).map_err(|_| TablesError::Exhausted { sequence: OBJECTS })
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

    /// The newest commit that changed a definition, which may not be visible yet. One atomic load.
    pub fn newest_definition(&self) -> Seq {
        self.model.last_ddl.seq()
    }
}
