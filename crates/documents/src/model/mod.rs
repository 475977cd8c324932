//! Documents as a model of the engine: keyspaces, object numbers, the latest change of a definition, and
//! counts.
//!
//! Documents, index entries and definitions are entries of keyspaces, so that the engine's transactions,
//! snapshots and files handle them unchanged. The model's own section of a commit record (see
//! `commit_section`) describes the commit.
//!
//! Collections and indexes have numbers that a rollback does not release. A separate commit reserves a block
//! of them before any commit that uses its numbers, so no number is used twice, even after a crash.

pub(crate) mod commit_section;
pub(crate) mod counts;
pub(crate) mod difference;
pub(crate) mod handle;
pub(crate) mod uses;

use core::time::Duration;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ropewalk_base::{DecodeError, Seq};
use ropewalk_engine::{
    Apply, Durability, Engine, EngineError, KvBatch, LastDefinition, Model, ModelId, Operation, Outcome,
    ReadView, Rejection, Verdict,
};
use ropewalk_store::{KeyspaceOptions, Store};

use crate::catalog::{SEQUENCE_KEY, Spaces, number, object_range};
use crate::error::{DocumentsError, Result};
use crate::model::commit_section::What;
use crate::model::counts::{Asked, Count, Counts};

/// Number of the documents model in commit records.
pub const DOCUMENTS: ModelId = ModelId(2);

/// Numbers that one commit reserves.
const NUMBERS: u32 = 64;

/// State shared by the collections of one engine.
#[derive(Default)]
pub struct DocumentsModel {
    spaces: OnceLock<Spaces>,
    pub(crate) last_ddl: LastDefinition,
    /// Definitions that were loaded, for all handles on a collection.
    pub(crate) slots: handle::Slots,
    /// Next number, and the first that is not reserved.
    numbers: Mutex<Option<(u32, u32)>>,
    /// The part of new ObjectIds that identifies this process.
    process: OnceLock<u64>,
    pub(crate) counts: Counts,
    pub(crate) uses: uses::IndexUses,
}

impl DocumentsModel {
    #[inline]
    pub(crate) fn spaces(&self) -> Spaces {
        *self.spaces.get().expect("the engine opens a model before anything else")
    }

    pub(crate) fn process_number(&self, random: impl FnOnce() -> u64) -> u64 {
        *self.process.get_or_init(random)
    }

    /// A number for a new collection or index.
    pub(crate) fn new_number(&self, engine: &Engine) -> Result<u32> {
        let mut numbers = self.numbers.lock();
        let catalog = self.spaces().catalog;
        let (next, reserved) = match *numbers {
            Some(state) => state,
            None => {
                let snapshot = engine.snapshot();
                let stored = snapshot.read().get(catalog, SEQUENCE_KEY)?;
                let next = stored.map_or(Some(1), |bytes| number(&bytes));
                let next =
                    next.ok_or_else(|| DocumentsError::damaged("sequence of numbers", "four bytes"))?;
                (next, next)
            }
        };
        let mut end = reserved;
        if next == reserved {
            end = reserved.checked_add(NUMBERS).filter(|end| *end < u32::MAX).ok_or_else(|| {
                DocumentsError::InvalidOptions { what: "collection numbers are exhausted".into() }
            })?;
            let mut batch = KvBatch::new();
            batch.put(catalog, SEQUENCE_KEY, &end.to_le_bytes());
            engine.commit(vec![Box::new(batch)], Durability::Buffered).map_err(EngineError::from)?;
        }
        assert!(next < end, "number {next} is reserved, up to {end}");
        *numbers = Some((next + 1, end));
        Ok(next)
    }

    /// Forgets the numbers that are reserved and not used.
    fn forget_numbers(&self) {
        *self.numbers.lock() = None;
    }

    /// Documents and bytes of a collection as of the newest visible commit. The first call scans the
    /// collection's keys.
    pub(crate) fn count(&self, engine: &Engine, collection: u32) -> Result<Count> {
        loop {
            match self.counts.ask(collection, engine.seq()) {
                Asked::Known(count) => return Ok(count),
                Asked::Wait => {
                    // Another thread is scanning: check again after the next commit or one millisecond.
                    engine.wait_visible(engine.seq().next(), Duration::from_millis(1));
                }
                Asked::Walk(applied) => {
                    let walked = self.walk(engine, collection, applied);
                    let (at, walked) = match walked {
                        Ok((at, documents, bytes)) => (at, Ok((documents, bytes))),
                        Err(error) => (Seq::ZERO, Err(error)),
                    };
                    let found = self.counts.found(collection, at, walked.as_ref().ok().copied());
                    walked?;
                    if let Some(count) = found {
                        return Ok(count);
                    }
                }
            }
        }
    }

    fn walk(&self, engine: &Engine, collection: u32, applied: Seq) -> Result<(Seq, i64, i64)> {
        engine.wait_until_visible(applied)?;
        let snapshot = engine.snapshot();
        let (start, end) = object_range(collection);
        let mut cursor = snapshot.read().cursor(self.spaces().documents);
        cursor.seek(&start)?;
        let (mut documents, mut bytes) = (0, 0);
        while cursor.valid() && cursor.key() < end.as_slice() {
            documents += 1;
            bytes += cursor.value().len() as i64;
            cursor.next()?;
        }
        Ok((snapshot.seq(), documents, bytes))
    }
}

/// The model's section of a commit.
pub(crate) struct SectionOperation {
    pub(crate) section: Vec<u8>,
}

impl Operation for SectionOperation {
    fn model(&self) -> ModelId {
        DOCUMENTS
    }

    fn bytes_max(&self) -> usize {
        self.section.len()
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(&self.section);
        (0, 0)
    }
}

impl Model for DocumentsModel {
    fn id(&self) -> ModelId {
        DOCUMENTS
    }

    fn name(&self) -> &'static str {
        "documents"
    }

    fn open(&self, store: &Store) -> Result<(), EngineError> {
        let documents = store.keyspace("documents", KeyspaceOptions::default())?;
        let catalog = store.keyspace("documents.catalog", KeyspaceOptions::default())?;
        let sessions = store.keyspace("documents.sessions", KeyspaceOptions::default())?;
        self.spaces.get_or_init(|| Spaces { documents, catalog, sessions });
        Ok(())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let mut grown: Vec<(u32, i64, i64)> = Vec::new();
        let mut dropped = Vec::new();
        commit_section::decode(section, |collection, what| {
            if let What::Definition { event, .. } = what {
                self.last_ddl.changed(apply);
                if event == commit_section::Event::Dropped {
                    dropped.push(collection);
                }
            }
            let (documents, bytes) = what.growth();
            match grown.iter_mut().rev().take(8).find(|(known, ..)| *known == collection) {
                Some((_, sum, size)) => {
                    *sum += documents;
                    *size += bytes;
                }
                None => grown.push((collection, documents, bytes)),
            }
        })?;
        self.counts.add(apply.seq, apply.visible, &grown);
        dropped.into_iter().for_each(|collection| self.counts.forget(collection));
        Ok(())
    }

    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        crate::index::verify::verify(self.spaces(), read)
    }
}

/// Shared by the process, so that two databases in it generate different ids.
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// The collections of an engine. Cheap to clone.
#[derive(Clone)]
pub struct Documents {
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Arc<DocumentsModel>,
}

impl Documents {
    /// The collections of an engine that has `model` registered.
    pub fn new(engine: Arc<Engine>, model: Arc<DocumentsModel>) -> Self {
        Self { engine, model }
    }

    /// Forgets which numbers of collections and indexes are reserved and not used; the next one is read from the
    /// database. To be called before writing to a database that another process has written to: it may have
    /// reserved more.
    pub fn forget_reserved_numbers(&self) {
        self.model.forget_numbers();
    }

    /// The engine underneath.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.engine.env().clock.wall_micros().div_euclid(1000)
    }

    /// A new ObjectId: seconds, a random number of this process, a counter.
    pub(crate) fn new_id(&self) -> [u8; 12] {
        let seconds = self.engine.env().clock.wall_micros().div_euclid(1_000_000) as u32;
        let random = self.model.process_number(|| self.engine.env().random.next_u64());
        let [_, c0, c1, c2] = COUNTER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [s0, s1, s2, s3] = seconds.to_be_bytes();
        let [r0, r1, r2, r3, r4, ..] = random.to_be_bytes();
        [s0, s1, s2, s3, r0, r1, r2, r3, r4, c0, c1, c2]
    }
}
