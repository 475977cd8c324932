//! The reads of a transaction in a store, and the guard that checks them at the commit.
//!
//! ```text
//! SeriesAt ─▶ noted: matchers, times      commit ─▶ checked on a new snapshot ─▶ only later commits
//! ```
//! Writers pay nothing: samples in memory and stored chunks have the numbers of their commits anyway.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use roaring::RoaringBitmap;
use ropewalk_base::Seq;
use ropewalk_engine::{Engine, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};
use ropewalk_labels::Matcher;

use crate::error::{Result, SeriesError};
use crate::model::{SERIES, SeriesModel, StoreState};
use crate::storage::read::SeriesReader;

/// Most selectors that a guard lists for one store; beyond that any sample counts.
const SELECTORS_MAX: usize = 1_000;

/// Most reads of a guard in the sequencer, which delays all writers: each of a series in memory, or in one
/// stored day. Beyond that any sample counts.
const SEQUENCED_READS_MAX: u64 = 10_000;

/// Read of the series that some matchers select.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    /// The set of series was read.
    series: bool,
    /// Samples from this time, in milliseconds.
    from: i64,
    /// Inclusive; less than `from` when no samples were read.
    to: i64,
}

impl Read {
    pub(crate) const SERIES: Self = Self { series: true, from: i64::MAX, to: i64::MIN };
    const ALL: Self = Self { series: true, from: i64::MIN, to: i64::MAX };

    pub(crate) fn samples(from: i64, to: i64) -> Self {
        Self { series: false, from, to }
    }

    /// Both, and what lies between them.
    fn and(self, other: Self) -> Self {
        match (self.from <= self.to, other.from <= other.to) {
            (_, false) => Self { series: self.series || other.series, ..self },
            (false, true) => Self { series: self.series || other.series, ..other },
            (true, true) => Self {
                series: self.series || other.series,
                from: self.from.min(other.from),
                to: self.to.max(other.to),
            },
        }
    }
}

/// The reads of one store by a transaction, as conditions of its commit. Shared by the [`crate::query::select::SeriesAt`]s that note them.
pub struct SeriesReads {
    /// The snapshot of the first read.
    since: Seq,
    selectors: Mutex<HashMap<Vec<Matcher>, Read>>,
}

impl SeriesReads {
    /// No reads yet, of a transaction with a snapshot at `since`.
    pub fn new(since: Seq) -> Self {
        Self { since, selectors: Mutex::default() }
    }

    pub(crate) fn note(&self, matchers: &[Matcher], read: Read) {
        let mut selectors = self.selectors.lock();
        let is_listed = selectors.contains_key(matchers) || selectors.len() < SELECTORS_MAX;
        // Conservative beyond the bound: samples that no selector matches refuse the commit, too.
        let (matchers, read) = if is_listed { (matchers, read) } else { (&[][..], Read::ALL) };
        let all = selectors.entry(matchers.to_vec()).or_insert(read);
        *all = all.and(read);
    }
}

/// Refuses a commit when another one wrote or deleted what its transaction has read.
pub struct ReadGuard {
    model: Arc<SeriesModel>,
    store: String,
    reads: Vec<(Vec<Matcher>, Read)>,
    /// Commits up to here were checked.
    checked: Seq,
}

impl ReadGuard {
    /// Checks on the newest snapshot, so that little is left for the sequencer. Conflicts found later are
    /// reported there.
    pub(crate) fn new(engine: &Engine, model: Arc<SeriesModel>, store: &str, reads: &SeriesReads) -> Self {
        let selectors = reads.selectors.lock();
        let listed = selectors.iter().map(|(matchers, read)| (matchers.clone(), *read)).collect();
        let mut guard = Self { model, store: store.to_owned(), reads: listed, checked: reads.since };
        let newest = engine.snapshot();
        if guard.check(newest.read(), u64::MAX).is_ok() {
            guard.checked = guard.checked.max(newest.seq());
        }
        guard
    }

    fn conflict(&self, series: String, seq: Seq) -> SeriesError {
        SeriesError::ReadConflict { store: self.store.clone(), series, seq }
    }

    /// # Errors
    /// [`SeriesError::ReadConflict`]; damage.
    fn check(&self, latest: ReadView<'_>, reads_max: u64) -> Result<()> {
        let Some(state) = self.model.find(&self.store) else { return Ok(()) };
        let Some((oldest, newest)) = state.changes.since(self.checked) else { return Ok(()) };
        let mut reads = 0;
        for (matchers, read) in &self.reads {
            if !read.series && oldest > read.to {
                continue;
            }
            let ids = state.posted(u32::MAX).select(matchers, self.checked, u32::MAX);
            if ids.is_empty() {
                continue;
            }
            // Deletions whose memory is flushed are known by their last commit only.
            let deleted = Seq(state.deletions_flushed.load(Ordering::Acquire));
            if deleted > self.checked {
                return Err(self.conflict(selector(matchers), deleted));
            }
            // Nothing before `oldest` was touched.
            let range = (read.from.max(oldest), read.to);
            let (place, duplicates) = (self.model.place(state.id), state.duplicate_rules());
            let mut reader = SeriesReader::new(latest, place, duplicates, range)?;
            reader.narrow(&state.reach);
            reads += ids.len() * (1 + reader.partition_count() as u64);
            if reads > reads_max {
                return Err(self.conflict(selector(matchers), newest));
            }
            self.check_series(&state, &mut reader, &ids, read.series)?;
        }
        Ok(())
    }

    fn check_series(
        &self,
        state: &StoreState,
        reader: &mut SeriesReader<'_>,
        ids: &RoaringBitmap,
        counts_series: bool,
    ) -> Result<()> {
        let head = state.head_at(self.checked);
        for id in ids {
            let created = if counts_series && id > head { state.creation_of(id) } else { None };
            let changed = match created.or_else(|| reader.deleted_since(self.checked, id, counts_series)) {
                None => reader.written_since(self.checked, id)?,
                changed => changed,
            };
            if let Some(seq) = changed {
                let index = state.index.read();
                let labels = index.labels(id).map(|labels| labels.to_string());
                return Err(self.conflict(labels.unwrap_or_default(), seq));
            }
        }
        Ok(())
    }
}

/// Matchers in PromQL syntax.
fn selector(matchers: &[Matcher]) -> String {
    let all: Vec<String> = matchers.iter().map(Matcher::to_string).collect();
    format!("{{{}}}", all.join(","))
}

impl Operation for ReadGuard {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn bytes_max(&self) -> usize {
        0
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        let checked = self.check(latest, SEQUENCED_READS_MAX);
        checked.map(|()| Verdict::Write).map_err(|error| Box::new(error) as Rejection)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, _out: &mut Vec<u8>) -> Outcome {
        (0, 0)
    }
}
