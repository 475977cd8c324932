//! The interface between data models and the engine.
//!
//!   transaction ─▶ [`Operation`]: validate ─▶ encode ─▶ log record ─▶ [`Model::apply`] ─▶ [`Memory`] ─▶ [`Model::flush`] ─▶ runs
//!
//! A model holds its newest state in a model-specific [`Memory`], one per generation; a checkpoint freezes
//! the generation and the model writes it out as sorted runs. Replay calls the same `apply` as a live commit,
//! so `apply` is deterministic: time and ids come from the record.

pub(crate) mod definitions;
pub(crate) mod effects;
pub(crate) mod slice;
pub(crate) mod version;
pub(crate) mod watched;

use core::cell::RefCell;
use std::any::Any;

use ropewalk_base::{DecodeError, Seq};
use ropewalk_store::{Keyspace, NewRun, Store};

use crate::error::{Rejection, Result};
use crate::model::effects::{Effect, Effects};
use crate::model::slice::SliceHasher;
use crate::model::version::{Generation, ReadView};

/// Number of a model in commit records. Part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u8);

/// Ordered keyspaces, built into the engine: the base of tables, documents and every model's side data.
pub const KV: ModelId = ModelId(0);

/// Definitions of keyspaces, built into the engine.
pub const KEYSPACES: ModelId = ModelId(5);

/// A model's newest state, between two checkpoints. One writer (the sequencer), any number of readers.
pub trait Memory: Any + Send + Sync {
    /// Bytes held, for the memory budget; may be an estimate but must grow with every write.
    fn bytes(&self) -> u64;
}

/// The memory of models that only use keyspaces.
struct NoMemory;

impl Memory for NoMemory {
    fn bytes(&self) -> u64 {
        0
    }
}

/// A data model.
pub trait Model: Send + Sync {
    /// Its number in records.
    fn id(&self) -> ModelId;
    /// Its name in messages and statistics.
    fn name(&self) -> &'static str;
    /// Called once at open, before replay: find or create keyspaces, always in the same order, because their
    /// numbers in a new database follow from it and no record has them.
    ///
    /// # Errors
    /// The store refuses.
    fn open(&self, store: &Store) -> Result<()>;
    /// Called once at open, after the runs are readable and before replay: load what lives outside memories.
    ///
    /// # Errors
    /// The stored data is damaged.
    fn load(&self, _read: ReadView<'_>) -> Result<()> {
        Ok(())
    }
    /// A new, empty memory. By default a model writes only to keyspaces, whose memtables belong to the
    /// engine.
    fn memory(&self) -> Box<dyn Memory> {
        Box::new(NoMemory)
    }
    /// Applies one section of a commit record. Called in commit order, by one thread at a time.
    ///
    /// # Errors
    /// The bytes do not decode. Live, that is a bug and stops the engine.
    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError>;
    /// Writes a frozen memory out as runs; a model that only uses keyspaces has none.
    ///
    /// # Errors
    /// The store cannot write.
    fn flush(&self, memory: &dyn Memory, _store: &Store, _snapshots: &[Seq]) -> Result<Vec<NewRun>> {
        assert!((memory as &dyn Any).is::<NoMemory>(), "model {} flushes its memory", self.name());
        Ok(Vec::new())
    }
    /// Checks every invariant of the model's own data; returns one line per violation.
    ///
    /// # Errors
    /// The data cannot be read at all.
    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>>;
    /// Keyspaces whose entries depend on when memories were flushed and runs merged, so that they differ between nodes with
    /// equal contents. [`Model::hash_contents`] hashes what they store.
    fn unordered_keyspaces(&self) -> Vec<Keyspace> {
        Vec::new()
    }
    /// Hashes contents that are in those keyspaces and in memories, from position `start` on (empty: from the first one),
    /// until `into` is full. Returns the position of the next slice; `None` at the end.
    ///
    /// # Errors
    /// The data cannot be read; `start` is no position.
    fn hash_contents(
        &self,
        _read: ReadView<'_>,
        _start: &[u8],
        _into: &mut SliceHasher,
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// Where [`Model::apply`] writes.
pub struct Apply<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) store: &'a Store,
    /// Of a node: hashes what is written.
    pub(crate) effects: Option<&'a RefCell<Effects>>,
    pub(crate) slot: usize,
    pub(crate) model: ModelId,
    /// The commit's number.
    pub seq: Seq,
    /// The commit's time, microseconds since 1970.
    pub time_micros: i64,
    /// Readers see commits up to this one, at least.
    pub visible: Seq,
    /// The engine is replaying: nothing is read before the last record, so structures for reads can be built
    /// later.
    pub is_replay: bool,
}

impl<'a> Apply<'a> {
    /// The model's own memory of the active generation.
    ///
    /// # Panics
    /// When `T` is not the type that [`Model::memory`] makes: a bug in the model.
    pub fn memory<T: Memory>(&self) -> &'a T {
        self.generation.memory::<T>(self.slot).expect("a model asks for the memory type it makes")
    }

    /// Writes one entry of an ordered keyspace; `None` deletes.
    pub fn put(&self, keyspace: Keyspace, key: &[u8], value: Option<&[u8]>) {
        self.note(Effect::Put(keyspace.0, key, value));
        self.generation.keyspace(keyspace).put(key, value, self.seq);
    }

    /// Deletes the keys from `start` up to, not including, `end`.
    pub fn delete_range(&self, keyspace: Keyspace, start: &[u8], end: &[u8]) {
        self.note(Effect::DeleteRange(keyspace.0, start, end));
        self.generation.keyspace(keyspace).delete_range(start, end, self.seq);
    }

    /// True when effects are hashed: a model that writes to its memory passes each write to [`Apply::note_effect`].
    pub fn has_effects(&self) -> bool {
        self.effects.is_some()
    }

    /// Hashes something that the model has written to its memory.
    pub fn note_effect(&self, written: &[&[u8]]) {
        self.note(Effect::Model(self.model, written));
    }

    fn note(&self, effect: Effect<'_>) {
        if let Some(effects) = self.effects {
            effects.borrow_mut().note(self.seq, effect);
        }
    }
}

/// Two numbers that an operation reports, such as first and last position.
pub type Outcome = (u64, u64);

/// Result of validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Continue and write.
    Write,
    /// This transaction was committed before (idempotent retry): write nothing of it and return this outcome.
    Done(Outcome),
}

/// One model's part of a transaction.
pub trait Operation: Send {
    /// Whose section it writes.
    fn model(&self) -> ModelId;
    /// Upper bound of the bytes that [`Operation::encode`] appends.
    fn bytes_max(&self) -> usize;
    /// True when it validates and writes nothing: the record gets no section for it, and
    /// [`Operation::encode`] is not called.
    fn is_guard(&self) -> bool {
        false
    }
    /// True when other transactions may wait for this one to have its place in the order.
    fn is_awaited(&self) -> bool {
        false
    }
    /// The commit that this one has to follow directly; `None`: any.
    fn follows(&self) -> Option<Seq> {
        None
    }
    /// Decides, in commit order, against the newest state, which includes commits that are not durable yet. Must not
    /// change anything: a later part of the transaction may still be refused.
    ///
    /// # Errors
    /// The reason for which the transaction is refused.
    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection>;
    /// Appends the section. Numbers such as positions are given out here; earlier parts are applied already.
    fn encode(&mut self, seq: Seq, time_micros: i64, out: &mut Vec<u8>) -> Outcome;
}
