//! The commit path: the two stages of the pipeline.
//!
//!   sequence: validate against pending + committed ─▶ Seq, time ─▶ encode ─▶ apply to the active generation ─▶ log (memory)
//!   settle:   log barrier (or flush; of a shared log, its acknowledgement) ─▶ publish visible Seq ─▶ wake
//!
//! State is applied before the sync and becomes visible after it: the sequencer validates against pending
//! commits without a second structure, and a commit whose sync fails never becomes visible, because the
//! engine stops.
//!
//! Invariants
//! 1. The log holds exactly the accepted commits, in `Seq` order; replay decides nothing.
//! 2. `visible` moves only after the sync (or write) that the commit requires, and only forward.
//! 3. After a failed append or sync, or a panic in either stage, nothing is accepted or published any more. The one
//!    exception are commits that a shared log has confirmed before.
//! 4. Only the sequencer appends: an append is refused when the log's tail is not where the sequencer left
//!    it.

pub(crate) mod comparisons;
pub(crate) mod follows;
pub(crate) mod locks;
pub(crate) mod pipeline;
pub(crate) mod record;
pub(crate) mod watch;

use core::cell::RefCell;
use core::ops::Range;
use core::time::Duration;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ropewalk_base::sync::{Condvar, Mutex, Ordering};
use ropewalk_base::{Lsn, Seq};
use ropewalk_log::shared::{CommitFate, Place, ReplicatedLog};
use ropewalk_log::{CommitLog, LogError, Record};
use ropewalk_store::Store;
use ropewalk_vfs::Env;

use crate::commit::comparisons::Comparisons;
use crate::commit::follows::NotNewest;
use crate::commit::locks::Locks;
use crate::commit::pipeline::Stage;
use crate::commit::watch::Watch;
use crate::error::{CommitError, EngineError, Result};
use crate::model::effects::Effects;
use crate::model::version::{End, Generation, ReadView, Version, Versions};
use crate::model::{Apply, Model, Operation, Outcome, Verdict};
use crate::options::{Durability, EngineOptions};

/// State shared by all parts of the engine.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: EngineOptions,
    pub(crate) models: Vec<Arc<dyn Model>>,
    pub(crate) log: Arc<dyn CommitLog>,
    /// The same log, if nodes share it.
    pub(crate) replicated: Option<Arc<ReplicatedLog>>,
    pub(crate) store: Store,
    pub(crate) versions: Arc<Versions>,
    sequencer: Mutex<Sequencer>,
    /// Locks of transactions that wait for each other.
    pub(crate) locks: Arc<Locks>,
    /// First failure; set once, never cleared.
    failed: OnceLock<EngineError>,
    /// Change feeds and subscriptions wait here; a publish wakes them only when there are any.
    pub(crate) watch: Watch,
    /// Waiters for the end of the engine only; a publish does not wake them.
    pub(crate) end_watch: Watch,
    /// Held while a generation is written out.
    pub(crate) flushing: Mutex<()>,
    pub(crate) background: Mutex<BackgroundState>,
    pub(crate) background_work: Condvar,
    pub(crate) room: Condvar,
    /// The place in the shared log that the directory has.
    pub(crate) noted: Mutex<NotedPlace>,
    /// Comparisons with other nodes.
    pub(crate) comparisons: Mutex<Comparisons>,
}

/// Contents of the file with the place in the shared log.
#[derive(Default)]
pub(crate) struct NotedPlace {
    /// The file says which shared log it is.
    pub(crate) has_log: bool,
    /// The newest place that this engine has written.
    pub(crate) place: Place,
    /// When it was written, in monotonic nanoseconds.
    pub(crate) at: u64,
}

#[derive(Default)]
pub(crate) struct BackgroundState {
    /// Monotonic nanoseconds by which an `Async` commit must be synced.
    pub(crate) sync_by: Option<u64>,
    /// Why the last flush failed, until one succeeds.
    pub(crate) flush_error: Option<EngineError>,
    /// No new work before this time, after a failure.
    pub(crate) retry_at: u64,
    pub(crate) closing: bool,
    /// Counts flushes, for waiters.
    pub(crate) flushes: u64,
    /// Number of callers waiting for a flush that they requested.
    pub(crate) asked: usize,
    /// Counts how often a flush waited for readers.
    pub(crate) reader_waits: u64,
}

struct Sequencer {
    last: Seq,
    /// End of the log as this engine wrote it: the address that the next append expects.
    tail: Lsn,
    /// Log range of the active generation, up to the end of its last commit: recovery would replay it. A mark
    /// after the last commit is left to recovery, so that it finds a record there and need not prove the
    /// checkpoint.
    active: Range<Lsn>,
    last_time_micros: i64,
    /// Of a node.
    effects: Option<RefCell<Effects>>,
    /// Payloads of the group, back to back; reused for its capacity.
    payloads: Vec<u8>,
    ends: Vec<usize>,
}

impl Core {
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        options: EngineOptions,
        models: Vec<Arc<dyn Model>>,
        (log, replicated): (Arc<dyn CommitLog>, Option<Arc<ReplicatedLog>>),
        store: Store,
        replayed: Replayed,
    ) -> Self {
        let Replayed { version, last, active, last_time_micros, effects } = replayed;
        // With the keyspaces that replay has defined.
        let version = version.with_runs(store.view());
        let tail = log.tail();
        let has_log = replicated.as_ref().is_some_and(|log| log.knows_log());
        // Marks may follow the last commit.
        assert!(
            active.start <= active.end && active.end <= tail,
            "replay ends at {}, before {tail}",
            active.end
        );
        Self {
            env,
            dir,
            options,
            models,
            log,
            replicated,
            store,
            versions: Arc::new(Versions::new(version, last)),
            sequencer: Mutex::new(Sequencer {
                last,
                tail,
                active,
                last_time_micros,
                effects,
                payloads: Vec::new(),
                ends: Vec::new(),
            }),
            locks: Arc::default(),
            failed: OnceLock::new(),
            watch: Watch::default(),
            end_watch: Watch::default(),
            flushing: Mutex::default(),
            background: Mutex::default(),
            background_work: Condvar::new(),
            room: Condvar::new(),
            noted: Mutex::new(NotedPlace { has_log, ..NotedPlace::default() }),
            comparisons: Mutex::default(),
        }
    }

    pub(crate) fn new_generation(models: &[Arc<dyn Model>]) -> Arc<Generation> {
        Arc::new(Generation::new(models.iter().map(|m| m.memory()).collect()))
    }

    /// Stops the engine for good (invariant 3).
    pub(crate) fn fail(&self, cause: &dyn std::fmt::Display) {
        self.fail_with(EngineError::Stopped { cause: cause.to_string().into() });
    }

    /// As [`Core::fail`], with the error that later callers get.
    pub(crate) fn fail_with(&self, error: EngineError) {
        let _ = self.failed.set(error);
        // Setting the cause is not a sequentially consistent write, which `wake_all` requires.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.watch.wake_all();
        self.end_watch.wake_all();
        self.room.notify_all();
    }

    /// As [`Core::fail`], after a failure of the log. That the shared log differs is reported as such.
    pub(crate) fn fail_by_log(&self, error: &LogError) {
        match error {
            LogError::Diverged { index, what } => {
                self.fail_with(EngineError::Diverged { index: *index, what: what.as_str().into() });
            }
            other => self.fail(other),
        }
    }

    /// Stops the engine if the holder unwinds instead of calling [`StopOnPanic::disarm`].
    pub(crate) fn stop_on_panic(&self, during: &'static str) -> StopOnPanic<'_> {
        StopOnPanic { core: self, during }
    }

    pub(crate) fn stopped(&self) -> Option<EngineError> {
        self.failed.get().cloned()
    }

    /// Why nothing can be committed: the engine has stopped, or does not lead.
    pub(crate) fn refusal(&self) -> Option<EngineError> {
        let leads = self.replicated.as_ref().is_none_or(|log| log.term().is_some());
        let stopped = self.failed.get();
        match &self.replicated {
            Some(log) if log.is_deposed() || (!leads && stopped.is_none()) => {
                Some(EngineError::NotLeader { leader: log.leader() })
            }
            _ => stopped.cloned(),
        }
    }

    /// Freezes the active generation if it holds anything. Called by the sequencer between commits.
    fn freeze(&self, sequencer: &mut Sequencer) {
        let lsn = sequencer.active.end;
        sequencer.active.start = lsn;
        let effects = sequencer.effects.as_ref().map(|effects| effects.borrow().saved());
        let end = End { seq: sequencer.last, lsn, time_micros: sequencer.last_time_micros, effects };
        self.versions.replace(|version| {
            assert!(version.active.end.set(end).is_ok(), "a generation ends once");
            version.with_active(Self::new_generation(&self.models))
        });
        self.versions.set_active_bytes(0);
        self.wake_background();
    }

    /// Freezes the active generation if it is full: that of `version`, to which commits were just added.
    fn freeze_full(&self, sequencer: &mut Sequencer, version: arc_swap::Guard<Arc<Version>>) {
        let active = version.active.bytes();
        self.versions.set_active_bytes(active);
        if active >= self.options.memtable_bytes() || self.options.is_long(&sequencer.active) {
            drop(version);
            self.freeze(sequencer);
        }
    }

    /// Runs `look` with the newest sequenced commit, while no other is sequenced.
    pub(crate) fn with_last_sequenced<R>(&self, look: impl FnOnce(Seq) -> R) -> R {
        let sequencer = self.sequencer.lock();
        look(sequencer.last)
    }

    /// The time by the clock, but not before that of the newest commit.
    pub(crate) fn now_micros(&self) -> i64 {
        let now = self.env.clock.wall_micros();
        self.sequencer.lock().last_time_micros.max(now)
    }

    /// Freezes what is in memory now, so that a flush writes out everything committed before the call.
    ///
    /// # Errors
    /// The engine has stopped: memory may hold commits that the log refused, and they must never reach a run.
    pub(crate) fn freeze_now(&self) -> Result<()> {
        let mut sequencer = self.sequencer.lock();
        if let Some(error) = self.stopped() {
            return Err(error);
        }
        if self.versions.current().active.bytes() > 0 {
            self.freeze(&mut sequencer);
        }
        Ok(())
    }

    /// Writes the log's mark that its last commit is durable. Under the sequencer, which has to learn the new
    /// tail.
    pub(crate) fn write_durable_mark(&self) -> Result<()> {
        // Syncs outstanding writes before taking the lock, so that it is held for one small sync at most.
        self.log.barrier()?;
        let mut sequencer = self.sequencer.lock();
        sequencer.tail = self.log.write_durable_mark(sequencer.tail)?;
        Ok(())
    }

    /// Bytes of the log that recovery would replay.
    pub(crate) fn replay_bytes(&self) -> u64 {
        let sequencer = self.sequencer.lock();
        let (from, to) = (self.store.checkpoint().lsn, sequencer.active.end);
        assert!(from <= to, "recovery would start at {from}, after the last commit, which ends at {to}");
        to.0 - from.0
    }

    pub(crate) fn wake_background(&self) {
        // Taking the lock orders this after a thread that checked the condition and is about to sleep.
        drop(self.background.lock());
        self.background_work.notify_all();
    }

    /// Makes those of the commits up to `last` visible that a shared log has confirmed, when the others failed.
    fn publish_confirmed(&self, last: Option<Seq>) {
        let Some((log, last)) = self.replicated.as_ref().zip(last) else { return };
        let confirmed = log.confirmed().min(last);
        if confirmed > self.versions.visible() {
            self.versions.publish(confirmed);
            self.watch.wake_all();
        }
    }

    /// Applies commits that another node has made, appends them to the local copy, and makes them visible.
    pub(crate) fn apply_followed(&self, log: &ReplicatedLog, commits: &[(Seq, &[u8])]) -> Result<()> {
        let mut sequencer = self.sequencer.lock();
        let sequencer = &mut *sequencer;
        let version = self.versions.current();
        for &(seq, payload) in commits {
            assert_eq!(seq, sequencer.last.next(), "the entries have each commit after the one before");
            let lsn = sequencer.tail;
            let undecodable = |source| EngineError::Record { seq, lsn, source };
            let body = record::RecordBody::decode(payload).map_err(undecodable)?;
            let target = self.target(sequencer, &version);
            let at = (seq, body.time_micros, self.versions.visible(), false);
            for section in body.sections() {
                let (model, bytes) = section.map_err(undecodable)?;
                target
                    .apply_section(at, model, bytes)
                    .ok_or(EngineError::UnknownModel { seq, lsn, model: model.0 })?
                    .map_err(undecodable)?;
            }
            target.end_commit(seq);
            sequencer.last = seq;
            sequencer.last_time_micros = sequencer.last_time_micros.max(body.time_micros);
        }
        let records: Vec<Record<'_>> =
            commits.iter().map(|&(seq, payload)| Record { seq, payload }).collect();
        let tail = log.append_followed(&records, sequencer.tail)?;
        (sequencer.tail, sequencer.active.end) = (tail, tail);
        self.versions.order(sequencer.last);
        self.freeze_full(sequencer, version);
        // With the keyspaces that were defined.
        self.refresh_view();
        self.versions.publish(sequencer.last);
        self.watch.wake_all();
        Ok(())
    }

    /// Where the sequencer applies commits.
    fn target<'a>(&'a self, sequencer: &'a Sequencer, version: &'a Version) -> Target<'a> {
        let effects = sequencer.effects.as_ref();
        Target { models: &self.models, store: &self.store, generation: &version.active, effects }
    }

    /// Runs `look` with the hash of effects; `None` when this node is alone.
    pub(crate) fn with_effects<R>(&self, look: impl FnOnce(&mut Effects) -> R) -> Option<R> {
        self.sequencer.lock().effects.as_mut().map(|effects| look(effects.get_mut()))
    }
}

/// Where commits are applied, live and in replay.
struct Target<'a> {
    models: &'a [Arc<dyn Model>],
    store: &'a Store,
    generation: &'a Generation,
    effects: Option<&'a RefCell<Effects>>,
}

impl Target<'_> {
    /// Applies a section of a decoded record.
    fn apply_section(
        &self,
        (seq, time_micros, visible, is_replay): (Seq, i64, Seq, bool),
        model: crate::model::ModelId,
        section: &[u8],
    ) -> Option<Result<(), ropewalk_base::DecodeError>> {
        let slot = self.models.iter().position(|m| m.id() == model)?;
        let Self { store, generation, effects, .. } = *self;
        let apply = Apply { generation, store, effects, slot, model, seq, time_micros, visible, is_replay };
        Some(self.models.get(slot)?.apply(&apply, section))
    }

    /// All sections of commit `seq` were applied.
    fn end_commit(&self, seq: Seq) {
        if let Some(effects) = self.effects {
            effects.borrow_mut().end_commit(seq);
        }
    }
}

/// Stops the engine when it is dropped by a panic: memory may then hold half a transaction that the log does not have.
pub(crate) struct StopOnPanic<'a> {
    core: &'a Core,
    during: &'static str,
}

impl StopOnPanic<'_> {
    /// The guarded work has ended without a panic.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.core.fail(&format_args!("panic during {}", self.during));
    }
}

/// A transaction on its way through the pipeline.
pub(crate) struct Request {
    pub(crate) operations: Vec<Box<dyn Operation>>,
    pub(crate) durability: Durability,
}

/// A completed commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its number; of an idempotent retry, the newest commit at that time.
    pub seq: Seq,
    /// Its time, microseconds since 1970.
    pub time_micros: i64,
    /// The result of each operation, in order.
    pub outcomes: Vec<Outcome>,
}

/// Durability that a group requires from settling.
#[derive(Default)]
pub(crate) struct Ticket {
    last: Option<Seq>,
    sync: bool,
    buffered: bool,
    interval: Option<Duration>,
}

impl Ticket {
    fn need(&mut self, durability: Durability) {
        match durability {
            Durability::Sync => self.sync = true,
            Durability::Buffered => self.buffered = true,
            Durability::Async { interval } => {
                self.interval = Some(self.interval.map_or(interval, |i| i.min(interval)));
            }
        }
    }
}

/// The pipeline's stage: the core, shared.
pub(crate) struct Commits(pub(crate) Arc<Core>);

impl Commits {
    fn sequence_one(
        core: &Core,
        sequencer: &mut Sequencer,
        version: &Version,
        request: &mut Request,
    ) -> Result<Committed, CommitError> {
        let latest = ReadView::new(version, Seq::MAX);
        let newest = sequencer.last;
        for (index, operation) in request.operations.iter_mut().enumerate() {
            if let Some(expected) = operation.follows().filter(|expected| *expected != newest) {
                return Err(CommitError::Rejected(Box::new(NotNewest { expected, newest })));
            }
            match operation.validate(latest).map_err(CommitError::Rejected)? {
                Verdict::Write => {}
                Verdict::Done(outcome) => {
                    let mut outcomes = vec![(0, 0); request.operations.len()];
                    *outcomes.get_mut(index).expect("each operation has an outcome") = outcome;
                    return Ok(Committed {
                        seq: sequencer.last,
                        time_micros: sequencer.last_time_micros,
                        outcomes,
                    });
                }
            }
        }
        let seq = sequencer.last.next();
        // A clock that was set back must not make commit times run backwards.
        let time_micros = core.env.clock.wall_micros().max(sequencer.last_time_micros);
        let mut outcomes = Vec::with_capacity(request.operations.len());
        record::start(&mut sequencer.payloads, time_micros);
        for operation in &mut request.operations {
            if operation.is_guard() {
                outcomes.push((0, 0));
                continue;
            }
            let model = operation.model();
            let start = sequencer.payloads.len() + record::SECTION_OVERHEAD;
            let bytes_max = if cfg!(debug_assertions) { operation.bytes_max() } else { usize::MAX };
            let out = &mut sequencer.payloads;
            outcomes.push(record::section(out, model, |out| operation.encode(seq, time_micros, out)));
            let section = sequencer.payloads.get(start..).expect("the section was just written");
            debug_assert!(
                section.len() <= bytes_max,
                "a section of model {} has {} bytes, announced were {bytes_max} at most",
                model.0,
                section.len()
            );
            let at = (seq, time_micros, core.versions.visible(), false);
            match core.target(sequencer, version).apply_section(at, model, section) {
                Some(Ok(())) => {}
                Some(Err(error)) => core.fail(&format_args!("own record does not decode: {error}")),
                None => core.fail(&format_args!("model {} is not registered", model.0)),
            }
        }
        core.target(sequencer, version).end_commit(seq);
        let end = sequencer.payloads.len();
        assert!(sequencer.ends.last().is_none_or(|last| *last < end), "each record has a payload");
        sequencer.ends.push(end);
        sequencer.last = seq;
        assert!(time_micros >= sequencer.last_time_micros, "the times of commits never fall");
        sequencer.last_time_micros = time_micros;
        Ok(Committed { seq, time_micros, outcomes })
    }

    /// Decides and numbers requests, and appends what is accepted to the log's memory.
    fn order(&self, requests: &mut [Request], ticket: &mut Ticket) -> Vec<Result<Committed, CommitError>> {
        let core = &*self.0;
        let mut sequencer = core.sequencer.lock();
        // Dropped before the lock: no thread that waits for the sequencer finds a half-applied group in a running engine.
        let guard = core.stop_on_panic("sequencing");
        let outcomes = Self::order_group(core, &mut sequencer, requests, ticket);
        guard.disarm();
        outcomes
    }

    fn order_group(
        core: &Core,
        sequencer: &mut Sequencer,
        requests: &mut [Request],
        ticket: &mut Ticket,
    ) -> Vec<Result<Committed, CommitError>> {
        sequencer.payloads.clear();
        sequencer.ends.clear();
        let first = sequencer.last.next();
        let version = core.versions.current();
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            let outcome = match core.refusal() {
                Some(error) => Err(error.into()),
                None => Self::sequence_one(core, sequencer, &version, request),
            };
            if outcome.is_ok() {
                // Also for an idempotent retry: the original commit may not be as durable yet as the retry
                // requires.
                ticket.need(request.durability);
            }
            outcomes.push(outcome);
        }
        // A stopped engine writes nothing: its memory may hold a record that replay would refuse. The group
        // does not settle, so each of its commits is refused.
        if sequencer.ends.is_empty() || core.stopped().is_some() {
            return outcomes;
        }
        assert_eq!(
            sequencer.last.0 - first.0 + 1,
            sequencer.ends.len() as u64,
            "the records of a group are numbered without gaps"
        );
        ticket.last = Some(sequencer.last);
        let mut start = 0;
        let records: Vec<Record<'_>> = sequencer
            .ends
            .iter()
            .zip(first.0..)
            .map(|(&end, seq)| {
                let payload = sequencer.payloads.get(start..end).expect("ends lie inside the payloads");
                start = end;
                Record { seq: Seq(seq), payload }
            })
            .collect();
        match core.log.append(&records, sequencer.tail) {
            Ok(tail) => {
                assert!(
                    tail > sequencer.tail,
                    "an append moves the tail from {}, not to {tail}",
                    sequencer.tail
                );
                (sequencer.tail, sequencer.active.end) = (tail, tail);
            }
            Err(error) => {
                core.fail_by_log(&error);
                return outcomes;
            }
        }
        core.versions.order(sequencer.last);
        // A group of large transactions should not pin its buffer forever.
        if sequencer.payloads.capacity() > 16 << 20 {
            sequencer.payloads = Vec::new();
        }
        core.freeze_full(sequencer, version);
        outcomes
    }
}

impl Stage for Commits {
    type Request = Request;
    type Outcome = Result<Committed, CommitError>;
    type Ticket = Ticket;

    fn sequence(&self, mut requests: Vec<Request>, ticket: &mut Ticket) -> Vec<Self::Outcome> {
        let outcomes = self.order(&mut requests, ticket);
        // Releases the requests' locks: a transaction that waited for one reads what was ordered and commits
        // after it.
        drop(requests);
        outcomes
    }

    fn settle(&self, ticket: Ticket) -> bool {
        let core = &*self.0;
        if core.failed.get().is_some() {
            core.publish_confirmed(ticket.last);
            return false;
        }
        let shared = core.log.is_shared();
        // In a shared log also those with less durability: they would be visible before the log has them.
        let written = if ticket.sync || shared {
            core.log.acknowledge()
        } else if ticket.buffered {
            core.log.flush().map(|_| ())
        } else {
            Ok(())
        };
        if let Err(error) = written {
            core.fail_by_log(&error);
            core.publish_confirmed(ticket.last);
            return false;
        }
        if let Some(interval) = ticket.interval.filter(|_| !ticket.sync && !shared) {
            let by = core.env.clock.deadline(interval);
            let mut background = core.background.lock();
            if background.sync_by.is_none_or(|earlier| by < earlier) {
                background.sync_by = Some(by);
                core.background_work.notify_all();
            }
        }
        if let Some(last) = ticket.last {
            core.versions.publish(last);
            core.watch.wake_all();
        }
        true
    }

    fn stop(&self, cause: &str) {
        self.0.fail(&cause);
    }

    fn failure(&self, outcome: Option<Self::Outcome>) -> Self::Outcome {
        let core = &*self.0;
        if let (Some(log), Some(Ok(committed))) = (&core.replicated, outcome) {
            match log.fate(committed.seq) {
                CommitFate::Confirmed => return Ok(committed),
                CommitFate::Unknown => {
                    let cause = core.stopped().map_or_else(String::new, |error| error.to_string());
                    return Err(CommitError::Unknown { seq: committed.seq, cause: cause.into() });
                }
                CommitFate::Absent => {}
            }
        }
        let unsettled = || EngineError::Stopped { cause: "the group did not settle".into() };
        Err(core.refusal().unwrap_or_else(unsettled).into())
    }
}

/// State of the engine at the end of replay.
pub(crate) struct Replayed {
    pub(crate) version: Version,
    pub(crate) last: Seq,
    /// The part of the log in the active generation.
    pub(crate) active: Range<Lsn>,
    pub(crate) last_time_micros: i64,
    /// Of a node.
    pub(crate) effects: Option<RefCell<Effects>>,
}

impl Replayed {
    /// Applies one record found in the log.
    pub(crate) fn apply(
        &mut self,
        models: &[Arc<dyn Model>],
        (store, options): (&Store, &EngineOptions),
        (lsn, next): (Lsn, Lsn),
        seq: Seq,
        payload: &[u8],
    ) -> Result<()> {
        // The log checks its records for both, and reports damage.
        debug_assert_eq!(seq, self.last.next(), "the log gives each commit after the one before");
        debug_assert!(self.active.end <= lsn && lsn < next, "commits follow each other in the log");
        let damaged = |source| EngineError::Record { seq, lsn, source };
        let body = record::RecordBody::decode(payload).map_err(damaged)?;
        let effects = self.effects.as_ref();
        let target = Target { models, store, generation: &self.version.active, effects };
        for section in body.sections() {
            let (model, bytes) = section.map_err(damaged)?;
            // Replay finds durable commits only: each is visible when the next is applied.
            let at = (seq, body.time_micros, self.last, true);
            target
                .apply_section(at, model, bytes)
                .ok_or(EngineError::UnknownModel { seq, lsn, model: model.0 })?
                .map_err(damaged)?;
        }
        target.end_commit(seq);
        self.last = seq;
        self.last_time_micros = self.last_time_micros.max(body.time_micros);
        self.active.end = next;
        if self.version.active.bytes() >= options.memtable_bytes() || options.is_long(&self.active) {
            let time_micros = self.last_time_micros;
            let effects = self.effects.as_ref().map(|effects| effects.borrow().saved());
            let end = End { seq, lsn: next, time_micros, effects };
            assert!(self.version.active.end.set(end).is_ok(), "a generation ends once");
            let full = std::mem::replace(&mut self.version.active, Core::new_generation(models));
            self.version.frozen.insert(0, full);
            self.active.start = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyspaceOptions;
    use crate::engine::Engine;
    use crate::kv::KvBatch;
    use crate::options::Background;

    #[test]
    fn append_after_a_foreign_writer_is_refused() {
        // Without background threads, which mark an idle log as durable themselves.
        let options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
        let engine = Engine::open(&Env::memory(), "/db".as_ref(), options, Vec::new()).unwrap();
        let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
        let put = || {
            let mut batch = KvBatch::new();
            batch.put(keys, b"k", b"1");
            engine.commit(vec![Box::new(batch)], Durability::Sync)
        };
        put().unwrap();
        // Another writer moves the tail without a commit, so that no gap in the numbers reveals it.
        let log = &engine.core().log;
        log.write_durable_mark(log.tail()).unwrap();
        let refused = put().unwrap_err();
        assert!(matches!(refused, CommitError::Engine(EngineError::Stopped { .. })), "{refused}");
        assert!(refused.to_string().contains("another writer"), "{refused}");
    }
}
