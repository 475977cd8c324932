//! One named series store: the API of applications.

pub(crate) mod admin;
pub(crate) mod append;
pub(crate) mod metadata;

use std::sync::Arc;

use ropewalk_base::{Seq, hash64};
use ropewalk_engine::{CommitHandle, Committed, Durability, Engine, Snapshot};
use ropewalk_labels::Labels;

use crate::error::{Result, SeriesError};
use crate::id::SeriesId;
use crate::model::SeriesModel;
use crate::query::reads::{ReadGuard, SeriesReads};
use crate::query::select::SeriesAt;
use crate::sample::batch::SampleBatch;
use crate::sample::types::{Appended, SeriesOptions};
use crate::store::append::AppendSamples;

/// Longest name of a store, bytes.
const NAME_BYTES_MAX: usize = 255;

/// A named series store. Cheap to clone; any number of threads may use it at once. It is created by its first
/// append; until then it reads as empty.
#[derive(Clone)]
pub struct SeriesStore {
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Arc<SeriesModel>,
    name: Arc<str>,
}

/// A submitted append; [`PendingSamples::wait`] for it, or `.await` it.
pub struct PendingSamples {
    handle: CommitHandle,
    store: SeriesStore,
}

impl PendingSamples {
    /// Blocks until the append is decided and durable.
    ///
    /// # Errors
    /// As [`SeriesStore::append_with`].
    pub fn wait(self) -> Result<Appended> {
        Ok(self.store.appended(&self.handle.wait()?))
    }
}

impl std::future::Future for PendingSamples {
    type Output = Result<Appended>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let done = std::pin::Pin::new(&mut self.handle).poll(context);
        done.map(|result| Ok(self.store.appended(&result?)))
    }
}

impl SeriesStore {
    /// A handle on the store `name` of an engine that has `model` registered.
    ///
    /// # Errors
    /// [`SeriesError::InvalidName`].
    pub fn new(engine: Arc<Engine>, model: Arc<SeriesModel>, name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(SeriesError::InvalidName { name: name.chars().take(64).collect() });
        }
        Ok(Self { engine, model, name: name.into() })
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the samples of a batch as one commit, whatever their times. Durable and visible when it returns.
    ///
    /// Cost: one log write, shared with commits on their way at the same time; about a tenth of a microsecond per sample.
    ///
    /// # Errors
    /// As [`SeriesStore::append_with`].
    pub fn append(&self, batch: &SampleBatch) -> Result<Appended> {
        self.append_with(batch, Durability::Sync)
    }

    /// Appends with another durability. A batch without samples commits nothing that is seen.
    ///
    /// # Errors
    /// [`SeriesError::Label`], [`SeriesError::UnknownSeries`], [`SeriesError::CardinalityLimit`],
    /// [`SeriesError::MetricLimit`], [`SeriesError::DuplicateSample`], [`SeriesError::OutOfRetention`] and
    /// [`SeriesError::OutOfWindow`]: nothing was written. The engine's own.
    pub fn append_with(&self, batch: &SampleBatch, durability: Durability) -> Result<Appended> {
        let operation = self.operation(batch)?;
        Ok(self.appended(&self.engine.commit(vec![Box::new(operation)], durability)?))
    }

    /// The result of an append. The creator of many series adds their postings, which the commit skipped.
    fn appended(&self, committed: &Committed) -> Appended {
        let (samples, created) = *committed.outcomes.first().expect("every operation has an outcome");
        if created > 0
            && let Some(state) = self.model.find(&self.name)
        {
            drop(state.posted(state.head_at(committed.seq)));
        }
        Appended { seq: committed.seq, samples, created }
    }

    /// Queues an append and returns a handle at once, so that one thread can keep many appends in flight.
    ///
    /// # Errors
    /// As [`SeriesStore::append_with`], for errors known before it is queued.
    pub fn submit(&self, batch: &SampleBatch, durability: Durability) -> Result<PendingSamples> {
        let operation = self.operation(batch)?;
        let handle = self.engine.submit(vec![Box::new(operation)], durability)?;
        Ok(PendingSamples { handle, store: self.clone() })
    }

    /// The append as a part of a larger transaction, which may hold one for each store.
    ///
    /// # Errors
    /// As [`SeriesStore::append_with`], for errors known before the transaction is queued.
    pub fn operation(&self, batch: &SampleBatch) -> Result<AppendSamples> {
        AppendSamples::new(self.model.clone(), &self.name, batch, || self.now_ms())
    }

    /// Milliseconds since 1970, by the engine's clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.engine.env().clock.wall_micros().div_euclid(1000)
    }

    /// The number of the series with these labels, for [`SampleBatch::series_id`]. `None` when it does not
    /// exist yet.
    pub fn resolve(&self, labels: &Labels) -> Option<SeriesId> {
        let state = self.model.find(&self.name)?;
        let id = state.index.read().find(labels.as_bytes(), hash64(labels.as_bytes()))?;
        (id <= state.head_at(self.engine.seq())).then_some(SeriesId(id))
    }

    /// The oldest time, in milliseconds, at which commits after `since` have written or deleted a sample;
    /// `None` without such commits. Samples before that time are the same at `since` and now. The time may be
    /// older than necessary.
    pub fn oldest_change(&self, since: Seq) -> Option<i64> {
        self.model.find(&self.name)?.changes.oldest(since)
    }

    /// The settings in force.
    pub fn options(&self) -> SeriesOptions {
        self.model.find(&self.name).map_or_else(SeriesOptions::default, |state| state.options())
    }

    /// The store as of `snapshot`.
    pub fn at<'s>(&self, snapshot: &'s Snapshot) -> SeriesAt<'s> {
        SeriesAt::new(self.model.clone(), &self.name, snapshot)
    }

    /// The store as of `snapshot`, for a transaction: reads are noted for [`SeriesStore::read_guard`].
    pub fn at_noting<'s>(&self, snapshot: &'s Snapshot, reads: &'s SeriesReads) -> SeriesAt<'s> {
        self.at(snapshot).noting(reads)
    }

    /// A guard that fails the commit with [`SeriesError::ReadConflict`] when another one changed what was
    /// read.
    ///
    /// Cost: nothing while no commit changed the store. Otherwise the newest samples of each series that was
    /// read are checked before the commit is queued; the sequencer checks only later commits.
    pub fn read_guard(&self, reads: &SeriesReads) -> ReadGuard {
        ReadGuard::new(&self.engine, self.model.clone(), &self.name, reads)
    }
}
