//! Applying new events: in batches up to the head, then after each visible commit.
//!
//! A commit that another one follows at once is not synced: a power cut undoes its effects together with its
//! checkpoint, so the events are applied again. The commit that reaches the head makes all of them durable.

use core::time::Duration;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ropewalk_base::Position;
use ropewalk_engine::{Durability, EngineError, Isolation};
use ropewalk_events::{EventBatch, ReadOptions, SequencedEventRef};

use super::rebuild::RebuildMode;
use super::record::{Kind, ProjectionFailure, Record, Records};
use super::run::{Effect, ProjectionRun, Timer, drop_outputs};
use super::{ATTEMPTS, Inner, Projections, Registered};
use crate::database::Snapshot;
use crate::database::transaction::Transaction;
use crate::error::{Class, Error, ProjectionError, Result};
use ropewalk_events::ApplyError;

/// Most bytes of events read for one batch.
const BATCH_BYTES: usize = 4 << 20;
/// A batch ends with the event that it applies after this time, or a few later: others wait for it.
const BATCH_TIME: Duration = Duration::from_secs(5);
/// After this many events that do not match, the checkpoint is stored although nothing was applied.
const IDLE_POSITIONS: u64 = 10_000;
/// Pause after a transient failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Result of catching up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of events applied.
    pub applied: u64,
    /// Every event up to here is applied or does not match.
    pub checkpoint: Position,
    /// No event was pending at the snapshot of the last batch.
    pub is_at_head: bool,
}

/// Result of one batch.
pub(super) struct Batch {
    pub(super) applied: u64,
    pub(super) checkpoint: u64,
    /// No more events to apply.
    pub(super) ended: bool,
    effects: Vec<Effect>,
    failure: Option<Error>,
}

impl Batch {
    pub(super) fn ended(checkpoint: u64) -> Self {
        Self { applied: 0, checkpoint, ended: true, effects: Vec::new(), failure: None }
    }

    fn progress(&self) -> Progress {
        Progress { applied: self.applied, checkpoint: Position(self.checkpoint), is_at_head: self.ended }
    }

    /// Runs the effects. Call it after the transaction is committed.
    pub(super) fn settle(self) -> Result<Self> {
        let Self { applied, checkpoint, ended, effects, failure } = self;
        effects.into_iter().for_each(|effect| effect());
        match failure {
            Some(error) => Err(error),
            None => Ok(Self { applied, checkpoint, ended, effects: Vec::new(), failure: None }),
        }
    }
}

impl Projections {
    /// Applies all pending events, in batches of one commit each.
    ///
    /// A rebuild that was interrupted before the projection had a live generation is completed first.
    ///
    /// # Errors
    /// [`ProjectionError::Failed`] with the event that could not be applied: earlier events are applied, and
    /// the next call starts with this one. [`ProjectionError::StoreReplaced`]; errors of the database.
    pub fn catch_up(&self, name: &str) -> Result<Progress> {
        let one = self.0.one(name)?;
        self.0.catch_up(&one, &AtomicBool::new(false))
    }

    /// Applies one batch of pending events, in one commit.
    ///
    /// The commit has the durability of the options if it reaches the head; see
    /// [`ProjectionOptions::durability`](super::ProjectionOptions::durability).
    ///
    /// # Errors
    /// As [`Projections::catch_up`].
    pub fn apply_batch(&self, name: &str) -> Result<Progress> {
        let one = self.0.one(name)?;
        let mut most = self.0.options.batch_events.max(1);
        let _turn = one.turn.lock();
        Ok(self.0.next_batch(&one, &mut most)?.progress())
    }

    /// Applies new events as soon as they are durable, in one thread per registered projection.
    ///
    /// It covers the projections registered now and runs until the returned value is dropped. No thread wakes
    /// while there are no commits. On a follower they wait until it leads.
    pub fn start(&self) -> Running {
        let registered: Vec<_> = self.0.registered.read().values().cloned().collect();
        let stop = Arc::new(AtomicBool::new(false));
        let threads = registered.into_iter().filter_map(|one| {
            let (inner, stop, name) = (self.0.clone(), stop.clone(), one.name.clone());
            let body = move || inner.follow(&one, &stop);
            let thread = std::thread::Builder::new().name("projection".into()).spawn(body).ok()?;
            Some((name, thread))
        });
        Running { threads: threads.collect(), stop }
    }
}

/// Running projection threads. Dropping it stops them after their current batch.
pub struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<(String, JoinHandle<Result<()>>)>,
}

impl Running {
    /// True while the projection `name` is running.
    ///
    /// It ends by itself if an event cannot be applied.
    pub fn follows(&self, name: &str) -> bool {
        self.threads.iter().any(|(other, thread)| other == name && !thread.is_finished())
    }

    /// Stops all projections; returns the error of each one that had failed before.
    pub fn stop(mut self) -> Vec<(String, Error)> {
        self.end()
    }

    fn end(&mut self) -> Vec<(String, Error)> {
        self.stop.store(true, Ordering::Release);
        let mut ended = Vec::new();
        for (name, thread) in self.threads.drain(..) {
            thread.thread().unpark();
            if let Ok(Err(error)) = thread.join() {
                ended.push((name, error));
            }
        }
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Inner {
    pub(super) fn records<'a>(&'a self, name: &'a str) -> Records<'a> {
        Records { keyspace: self.keyspace.to_read(&self.db), store: self.store.name(), name }
    }

    fn follow(&self, one: &Registered, stop: &AtomicBool) -> Result<()> {
        self.db.wait_leading(stop)?;
        while !stop.load(Ordering::Acquire) {
            let seen = self.db.seq();
            match self.catch_up(one, stop) {
                Ok(_) => self.db.wait_beyond(seen, stop)?,
                Err(error) if matches!(error.class(), Class::Conflict | Class::Busy) => {
                    std::thread::park_timeout(RETRY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn catch_up(&self, one: &Registered, stop: &AtomicBool) -> Result<Progress> {
        let records = self.records(&one.name);
        let snapshot = self.db.snapshot();
        if records.look(&snapshot, Kind::Live)?.is_none() && records.look(&snapshot, Kind::Rebuild)?.is_some()
        {
            self.rebuild(one, RebuildMode::ResumeOnly)?;
        }
        let mut progress = Progress { applied: 0, checkpoint: Position::ZERO, is_at_head: false };
        let mut most = self.options.batch_events.max(1);
        while !stop.load(Ordering::Acquire) {
            let turn = one.turn.lock();
            let batch = self.next_batch(one, &mut most)?;
            drop(turn);
            progress = Progress { applied: progress.applied + batch.applied, ..batch.progress() };
            if progress.is_at_head {
                break;
            }
        }
        Ok(progress)
    }

    /// Commits the next live batch. The caller holds the turn.
    fn next_batch(&self, one: &Registered, most: &mut usize) -> Result<Batch> {
        let batch = self.settled(most, |tx, most| self.live_batch(tx, one, most))?;
        one.is_unsynced.store(!batch.ended, Ordering::Relaxed);
        Ok(batch)
    }

    /// Commits one batch and runs its effects; halves a batch that exceeds a record.
    pub(super) fn settled(
        &self,
        most: &mut usize,
        batch: impl Fn(&mut Transaction, usize) -> Result<Batch>,
    ) -> Result<Batch> {
        self.keyspace.to_write(&self.db)?;
        loop {
            let work = |tx: &mut Transaction| {
                let batch = batch(tx, *most)?;
                let durability = self.durability(&batch);
                Ok::<_, Error>((batch, durability))
            };
            match self.db.transact_chosen(Isolation::Serializable, ATTEMPTS, work) {
                Err(Error::Engine(EngineError::TooLarge { .. })) if *most > 1 => *most /= 2,
                done => return done?.0.settle(),
            }
        }
    }

    /// Durability of the commit of a batch: that of the options if effects or the caller rely on it.
    fn durability(&self, batch: &Batch) -> Durability {
        let is_last = batch.ended || batch.failure.is_some() || !batch.effects.is_empty();
        match self.options.durability {
            Durability::Sync if !is_last => Durability::Buffered,
            durability => durability,
        }
    }

    fn live_batch(&self, tx: &mut Transaction, one: &Registered, most: usize) -> Result<Batch> {
        let records = self.records(&one.name);
        let stored = records.get(tx, Kind::Live)?;
        let store = self.store.id_at(tx.snapshot().engine());
        if stored.as_ref().is_some_and(|record| !record.is_of(store)) {
            return Err(self.replaced(one));
        }
        let Some(store) = store else { return Ok(Batch::ended(0)) };
        let is_new = stored.is_none();
        let mut record = stored.unwrap_or(Record { generation: 1, ..Record::default() });
        record.store = store;
        let before = record.checkpoint;
        let mut run = ProjectionRun::new(tx, one, record.generation, false);
        if is_new {
            run.prepare(one)?;
        }
        let batch = self.apply(run, one, &mut record, u64::MAX, most)?;
        let moved = batch.applied > 0 || record.checkpoint - before >= IDLE_POSITIONS;
        // Without a write, the commit would not sync those before it.
        let syncs = batch.ended && one.is_unsynced.load(Ordering::Relaxed);
        if is_new || moved || syncs || batch.failure.is_some() {
            records.put(tx, Kind::Live, &record);
        }
        Ok(batch)
    }

    /// Applies up to `most` events after the checkpoint of `record`, at most to `until`, and moves the
    /// checkpoint.
    pub(super) fn apply(
        &self,
        mut run: ProjectionRun<'_>,
        one: &Registered,
        record: &mut Record,
        until: u64,
        most: usize,
    ) -> Result<Batch> {
        let snapshot = run.tx().snapshot();
        let (events, read_to) = self.events(&snapshot, one, record.checkpoint, until, most)?;
        if !events.is_empty() {
            run.begin(one)?;
        }
        let timer = Timer::start(&*self.db.engine().env().clock, BATCH_TIME);
        let (applied, failed) = run.apply(one, &events, timer)?;
        let ended = read_to.is_some() && failed.is_none() && applied == events.len();
        let last = applied.checked_sub(1).and_then(|last| events.get(last)).map(|event| event.position.0);
        let reached = read_to.filter(|_| ended).or(last).unwrap_or(record.checkpoint);
        record.checkpoint = reached.max(record.checkpoint);
        let failed = failed.zip(events.get(applied));
        let failure = failed.map(|(source, event)| self.failed(one, record, &event, source));
        if applied > 0 && failure.is_none() {
            record.failure = None;
        }
        Ok(Batch {
            applied: applied as u64,
            checkpoint: record.checkpoint,
            ended,
            effects: run.into_effects(),
            failure,
        })
    }

    /// The events of a batch, and the position read to if there are no more.
    fn events(
        &self,
        snapshot: &Snapshot,
        one: &Registered,
        after: u64,
        until: u64,
        most: usize,
    ) -> Result<(EventBatch, Option<u64>)> {
        let behind = Position(until.saturating_add(1));
        let options = ReadOptions::default().after(Position(after)).before(behind);
        let mut reader = snapshot.events(&self.store, &one.handler.query(), options)?;
        let head = reader.head().map_or(0, |head| head.0);
        let mut events = EventBatch::new();
        reader.visit_while(most, |event| {
            events.push(event);
            if events.bytes() < BATCH_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let ended = reader.ended();
        Ok((events, ended.then_some(head.min(until))))
    }

    /// Stores the failure of an event in `record`.
    fn failed(
        &self,
        one: &Registered,
        record: &mut Record,
        event: &SequencedEventRef<'_>,
        source: ApplyError,
    ) -> Error {
        let (position, event_type) = (event.position, event.event_type().to_owned());
        let time_micros = self.db.engine().env().clock.wall_micros();
        let error = source.to_string();
        record.failure =
            Some(ProjectionFailure { position, event_type: event_type.clone(), error, time_micros });
        ProjectionError::Failed { name: one.name.clone(), position, event_type, source }.into()
    }

    pub(super) fn forget(&self, tx: &mut Transaction, one: &Registered) -> Result<()> {
        let records = self.records(&one.name);
        let outputs = one.handler.outputs();
        if records.get(tx, Kind::Live)?.is_some() {
            drop_outputs(tx, &outputs, None)?;
            records.delete(tx, Kind::Live);
        }
        if let Some(rebuild) = records.get(tx, Kind::Rebuild)? {
            drop_outputs(tx, &outputs, Some(rebuild.generation))?;
            records.delete(tx, Kind::Rebuild);
        }
        Ok(())
    }

    pub(super) fn skip(&self, tx: &mut Transaction, name: &str) -> Result<Option<Position>> {
        let records = self.records(name);
        let Some(mut record) = records.get(tx, Kind::Live)? else { return Ok(None) };
        let Some(failure) = record.failure.take() else { return Ok(None) };
        record.checkpoint = record.checkpoint.max(failure.position.0);
        records.put(tx, Kind::Live, &record);
        Ok(Some(failure.position))
    }
}
