//! The engine: opening, commits, reading, closing, and its maintenance: flush, compaction, backup, salvage.

pub(crate) mod background;
pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod copy;
pub(crate) mod feed;
pub(crate) mod hashes;
pub(crate) mod repeat;
pub(crate) mod salvage;

use core::time::Duration;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ropewalk_base::sync::Mutex;
use ropewalk_base::sync::thread::{Builder, JoinHandle};
use ropewalk_base::{DecodeError, Lsn, Seq};
use ropewalk_log::{Extent, LocalLog, LogError, LogStats, Recovery};
use ropewalk_store::{Edit, Keyspace, KeyspaceOptions, NewRun, RunWriter, Store, StoreStats, VerifyReport};
use ropewalk_vfs::{Env, LockGuard};

use crate::commit::locks::{Held, LockHolder};
use crate::commit::pipeline::{Handle, Pace, Pipeline};
use crate::commit::record;
use crate::commit::{Commits, Committed, Core, Replayed, Request};
use crate::engine::background::REPLAY_BYTES_KEPT;
use crate::engine::feed::ChangeFeed;
use crate::error::{CommitError, EngineError, Result};
use crate::keyspaces::{Definition, KeyspaceWatch, KeyspacesModel};
use crate::kv::KvModel;
use crate::model::effects::{Effects, decode_meta};
use crate::model::version::{ReadView, Snapshot, Version};
use crate::model::watched::WatchedKeyspaces;
use crate::model::{Model, Operation};
use crate::options::{Background, Durability, EngineOptions, WriteCapacity};

/// Groups of one commit in a row after which the next counts as a lone one. Eight clients that commit now and
/// then have many groups of one, and server threads that wait for the disk for them only cost context
/// switches.
const LONE_AFTER: u32 = 16;

/// Largest transaction. A group of them must fit memory comfortably, and so must one record at recovery.
pub const TRANSACTION_BYTES_MAX: u64 = 64 << 20;

/// One open database directory: one log, one sequence of commits, any number of models.
pub struct Engine {
    core: Arc<Core>,
    pipeline: Arc<Pipeline<Commits>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    recovery: Recovery,
    watched: Arc<WatchedKeyspaces>,
    /// Last field: the directory is free only after everything above is gone.
    _lock: Box<dyn LockGuard>,
}

/// Activity and memory use of an engine. Counts are since open.
#[derive(Debug, Clone)]
pub struct EngineStats {
    /// Newest visible commit.
    pub seq: Seq,
    /// Commit that recovery would start after.
    pub checkpoint: Seq,
    /// Log address that recovery would start from.
    pub checkpoint_lsn: Lsn,
    /// The commit log.
    pub log: LogStats,
    /// Runs, levels, compaction, caches.
    pub store: StoreStats,
    /// Bytes in memtables, frozen ones included.
    pub write_bytes: u64,
    /// Bytes of memtables at which commits wait.
    pub write_bytes_max: u64,
    /// Frozen generations that wait for their flush.
    pub frozen: usize,
    /// Bytes of flushed generations that stay in memory for scans.
    pub resident_bytes: u64,
    /// Live snapshots of different commits.
    pub snapshots: usize,
    /// Flushed generations that readers still hold in memory.
    pub pinned_generations: usize,
    /// Bytes of those. Writers slow down when they exceed a quarter of the memory budget.
    pub pinned_bytes: u64,
    /// Why the last flush failed, if it did.
    pub flush_error: Option<String>,
    /// How often a flush waited, some milliseconds each, for readers of what it was to write.
    pub reader_waits: u64,
}

/// Findings of [`Engine::verify`].
#[derive(Debug)]
pub struct EngineReport {
    /// The files.
    pub store: VerifyReport,
    /// One line per violated invariant of a model.
    pub violations: Vec<String>,
}

impl Engine {
    /// Opens or creates the engine in `dir`. `models` gives each model its slot: its index plus one (slot 0 is the
    /// engine's own keyspaces). Cost: manifest and run footers, then replay of the log after the checkpoint.
    ///
    /// # Errors
    /// [`EngineError::Locked`] when another process or handle has it open; I/O; damage, with file and offset;
    /// a newer format.
    pub fn open(
        env: &Env,
        dir: &Path,
        mut options: EngineOptions,
        models: Vec<Arc<dyn Model>>,
    ) -> Result<Self> {
        let lock = lock(env, dir)?;
        hashes::check_trusted(env, dir)?;
        let keys = KvModel::default();
        let watched = keys.watched.clone();
        let mut all: Vec<Arc<dyn Model>> = vec![Arc::new(keys)];
        all.extend(models);
        // The last, so that the slots of the models are as documented.
        all.push(Arc::new(KeyspacesModel));
        options.store.cache_bytes = options.memory_budget / 4;
        options.log_everything |= options.shared.is_some();
        let (store_dir, log_dir) = (dir.join("store"), dir.join("log"));
        for made in [&store_dir, &log_dir] {
            create_dir(env, dir, made).map_err(io("create directory", made))?;
        }
        let store = Store::open(env, &store_dir, options.store.clone())?;
        check_halves(env, &store, &log_dir)?;
        if store.is_new() {
            // The log is there before the first manifest, and that before the first commit. So either without the other is lost.
            if LocalLog::extent(env, &log_dir)? == Extent::Nothing {
                LocalLog::create(env, &log_dir, options.log)?;
            }
            store.publish_first_manifest()?;
        }
        for model in &all {
            model.open(&store)?;
        }
        let checkpoint = store.checkpoint();
        let version = Version::new(Core::new_generation(&all), store.view(), checkpoint.seq);
        for model in &all {
            model.load(ReadView::new(&version, Seq::MAX))?;
        }
        let meta = decode_meta(&checkpoint.meta);
        let (last_time_micros, saved) = meta.map_err(|error| damaged_meta(&error))?;
        let effects = options.shared.as_ref().map(|shared| Effects::new(saved, shared.hash_interval));
        let active = checkpoint.lsn..checkpoint.lsn;
        let mut replayed = Replayed { version, last: checkpoint.seq, active, last_time_micros, effects };
        let mut failure = None;
        let opened =
            LocalLog::open(env, &log_dir, options.log, checkpoint.lsn, checkpoint.seq, &mut |found| {
                let at = (found.lsn, found.next);
                replayed.apply(&all, (&store, &options), at, found.seq, found.payload).map_err(|error| {
                    failure = Some(error.clone());
                    error.into()
                })
            });
        let (log, recovery) = match (opened, failure) {
            (_, Some(error)) => return Err(error),
            (Err(error), None) => return Err(error.into()),
            (Ok(opened), None) => opened,
        };
        let threads = options.background == Background::Threads;
        let log = cluster::node_log(env, dir, log, options.shared.as_ref())?;
        let core = Arc::new(Core::new(env.clone(), dir.to_owned(), options, all, log, store, replayed));
        let pipeline = Arc::new(Pipeline::new(Commits(core.clone()), LONE_AFTER));
        let engine = Self { core, pipeline, threads: Mutex::default(), recovery, watched, _lock: lock };
        if threads {
            // Replayed commits are flushed at once, so that the next opening does not replay them again.
            if engine.core.replay_bytes() > REPLAY_BYTES_KEPT {
                engine.core.freeze_now()?;
            }
            engine.start_threads();
        }
        Ok(engine)
    }

    fn start_threads(&self) {
        let (committer, flusher, syncer) = (self.pipeline.clone(), self.core.clone(), self.core.clone());
        let mut threads = self.threads.lock();
        let mut spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let builder = Builder::new().name(name.to_owned());
            let core = self.core.clone();
            let guarded = move || {
                let guard = core.stop_on_panic("the work of a thread");
                body();
                guard.disarm();
            };
            threads.push(builder.spawn(guarded).expect("the operating system gives three threads"));
        };
        spawn("rope-commit", Box::new(move || committer.serve()));
        spawn("rope-flush", Box::new(move || flusher.run_background()));
        spawn("rope-sync", Box::new(move || syncer.run_async_sync()));
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Upper bound of the operations' bytes in a record, if they fit.
    fn measure(&self, operations: &[Box<dyn Operation>]) -> Result<usize> {
        if let Some(error) = self.core.refusal() {
            return Err(error);
        }
        let bytes = record::RECORD_OVERHEAD
            + operations.iter().map(|o| o.bytes_max() + record::SECTION_OVERHEAD).sum::<usize>();
        let max = self.core.log.limits().record_bytes_max.min(TRANSACTION_BYTES_MAX);
        if bytes as u64 > max {
            return Err(EngineError::TooLarge { bytes: bytes as u64, max });
        }
        Ok(bytes)
    }

    fn admit(&self) -> Result<()> {
        self.core.admit(self.core.options.background == Background::Threads)
    }

    /// Commits `operations` as one transaction and returns when it is as durable as requested.
    ///
    /// Cost: one log write, shared with every commit that is on its way at the same time; no thread hop for a lone caller.
    ///
    /// # Errors
    /// [`CommitError::Rejected`] with the model's reason: nothing was written. Otherwise the engine's failure.
    pub fn commit(
        &self,
        operations: Vec<Box<dyn Operation>>,
        durability: Durability,
    ) -> Result<Committed, CommitError> {
        let bytes = self.measure(&operations)?;
        self.admit()?;
        let pace = pace(&operations);
        self.pipeline.commit(Request { operations, durability }, bytes, pace)
    }

    /// Queues a transaction and returns a handle to wait on or await. Blocks while the memory budget is tight or spent, or
    /// the queue is full.
    ///
    /// # Errors
    /// As [`Engine::commit`], for failures known before the transaction is queued.
    pub fn submit(
        &self,
        operations: Vec<Box<dyn Operation>>,
        durability: Durability,
    ) -> Result<CommitHandle, CommitError> {
        let bytes = self.measure(&operations)?;
        self.admit()?;
        Ok(CommitHandle(self.pipeline.submit(Request { operations, durability }, bytes)))
    }

    /// As [`Engine::submit`], but never blocks: callers check [`Engine::write_capacity`] first and pause in their own
    /// way. A transaction submitted with a spent budget is accepted.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while the queue is full; as [`Engine::commit`].
    pub fn try_submit(
        &self,
        operations: Vec<Box<dyn Operation>>,
        durability: Durability,
    ) -> Result<CommitHandle, CommitError> {
        let bytes = self.measure(&operations)?;
        let pace = pace(&operations);
        let handle = self.pipeline.try_submit(Request { operations, durability }, bytes, pace);
        Ok(CommitHandle(handle.ok_or_else(|| self.core.busy("too many commits are queued"))?))
    }

    /// How much room the memory budget leaves for writes. One atomic load.
    pub fn write_capacity(&self) -> WriteCapacity {
        self.core.write_capacity()
    }

    /// With [`Background::Manual`]: sequences and settles everything submitted.
    pub fn drive(&self) {
        self.pipeline.drive();
    }

    /// With [`Background::Manual`]: does one unit of background work. False when nothing is left to do.
    ///
    /// # Errors
    /// The work failed; it is tried again at the next call.
    pub fn background_step(&self) -> Result<bool> {
        self.core.background_step()
    }

    /// The database as of the newest visible commit.
    pub fn snapshot(&self) -> Snapshot {
        self.core.versions.snapshot()
    }

    /// The database as of commit `seq`: while a live snapshot holds it, and otherwise as long as no later
    /// commit was frozen for a flush.
    ///
    /// # Errors
    /// [`EngineError::Unreadable`]: it is not visible yet, or its state is gone.
    pub fn snapshot_at(&self, seq: Seq) -> Result<Snapshot> {
        let found = self.core.versions.snapshot_at(seq);
        found.map_err(|(oldest, newest)| EngineError::Unreadable { asked: seq, oldest, newest })
    }

    /// The database as of the newest commit in the log, visible or not. Do not return results read from it
    /// before that commit is visible: a crash may undo it and every later one.
    pub(crate) fn snapshot_ahead(&self) -> Snapshot {
        self.core.versions.snapshot_ahead()
    }

    /// The newest commit that has its place in the log.
    pub(crate) fn ordered(&self) -> Seq {
        self.core.versions.ordered()
    }

    /// The newest commit after `since` that wrote `key`, durable or not.
    pub(crate) fn changed(&self, keyspace: Keyspace, key: &[u8], since: Seq) -> Result<Option<Seq>> {
        ReadView::new(&self.core.versions.current(), Seq::MAX).changed(keyspace, key, since)
    }

    /// A commit after `since` that wrote between `start` and `end`, durable or not.
    pub(crate) fn changed_in(
        &self,
        keyspace: Keyspace,
        (start, end): (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Result<Option<Seq>> {
        ReadView::new(&self.core.versions.current(), Seq::MAX).changed_in(keyspace, start, end, since)
    }

    pub(crate) fn held(&self, label: u32) -> Held {
        Held::new(&self.core.locks, label)
    }

    /// Holders of locks and waiters for them.
    pub fn locks(&self) -> Vec<LockHolder> {
        self.core.locks.list()
    }

    /// Passes the newest visible value of one key to `look`. For a single read that need not agree with any
    /// other: it takes no snapshot, which saves two locks.
    ///
    /// # Errors
    /// A block is damaged or unreadable.
    pub fn with_value<R>(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let version = self.core.versions.current();
        // The newest value counts if it is visible by now: then it was the newest visible value when it was
        // found. Versions that no snapshot holds may be gone, so older values can only be read with a
        // snapshot.
        let newest = ReadView::new(&version, Seq::MAX).entry(keyspace, key)?;
        if newest.as_ref().is_none_or(|entry| entry.seq <= self.core.versions.visible()) {
            return Ok(look(newest.as_ref().and_then(|entry| entry.value.as_deref())));
        }
        let snapshot = self.snapshot();
        Ok(look(snapshot.read().get(keyspace, key)?.as_deref()))
    }

    /// The newest visible commit.
    pub fn seq(&self) -> Seq {
        self.core.versions.visible()
    }

    /// Waits until commit `seq` is visible, at most `timeout`; true when it is. May return early.
    pub fn wait_visible(&self, seq: Seq, timeout: Duration) -> bool {
        self.core.wait_published(seq, timeout);
        self.core.versions.visible() >= seq
    }

    /// Waits until commit `seq` is visible.
    ///
    /// # Errors
    /// The failure that stopped the engine, after which nothing becomes visible any more.
    pub fn wait_until_visible(&self, seq: Seq) -> Result<()> {
        while !self.wait_visible(seq, Duration::from_millis(100)) {
            if let Some(error) = self.stopped() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// A future for the newest visible commit once that is after `seq`. Costs nothing while it waits; a
    /// commit without waiters costs one atomic load.
    pub fn wait_visible_after(&self, seq: Seq) -> WaitVisible {
        WaitVisible { core: self.core.clone(), seq, ticket: None }
    }

    /// A future for the failure that stops the engine, or for its being closed. No commit wakes it.
    pub fn until_stopped(&self) -> EngineStopped {
        EngineStopped { core: self.core.clone(), ticket: None }
    }

    /// Every commit from `from` on, in order.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn changes(&self, from: Seq) -> Result<ChangeFeed> {
        Ok(ChangeFeed::new(self.core.clone(), from))
    }

    /// Finds or creates a keyspace. A new one, and other options than before, are a durable commit; the number is
    /// given out after it, in the order of these commits.
    ///
    /// # Errors
    /// Options out of range; more than 65 535 keyspaces; as [`Engine::commit`].
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        options.check()?;
        let found = self.core.store.find_keyspace(name);
        let keyspace = match found {
            Some(found) if found.options == options && found.defined <= self.seq() => found.keyspace,
            _ => {
                let definition = Definition::new(&self.core, name, options);
                let committed = self.commit(vec![Box::new(definition)], Durability::Sync)?;
                let number = committed.outcomes.first().and_then(|(number, _)| u16::try_from(*number).ok());
                Keyspace(number.expect("the outcome of a definition is the number of the keyspace"))
            }
        };
        // Before its number is used: reads and checks of commits look for it in the current view.
        self.core.refresh_view();
        Ok(keyspace)
    }

    /// Finds a keyspace whose definition is visible, and defines none.
    pub fn find_keyspace(&self, name: &str) -> Option<Keyspace> {
        let found = self.core.store.find_keyspace(name).filter(|found| found.defined <= self.seq())?;
        // As in [`Engine::keyspace`].
        self.core.refresh_view();
        Some(found.keyspace)
    }

    /// The time by the clock, but not before that of the newest commit, whose clock may be ahead: that of another leader.
    pub fn now_micros(&self) -> i64 {
        self.core.now_micros()
    }

    /// Watches the keys that transactions write to a keyspace, for a cache of its contents. Costs each write of a key
    /// a comparison.
    pub fn watch_keyspace(&self, keyspace: Keyspace) -> KeyspaceWatch {
        let last = self.core.with_last_sequenced(|last| self.watched.watch(keyspace, last));
        KeyspaceWatch::new(&self.core, last)
    }

    /// A writer of sorted entries straight into runs, without log and memtables. `alone`: the keys lie in no other source.
    /// The runs take effect with [`Engine::ingest`].
    ///
    /// # Errors
    /// Unknown keyspace.
    pub fn run_writer(&self, keyspace: Keyspace, alone: bool) -> Result<RunWriter> {
        let store = &self.core.store;
        Ok(if alone { store.bottom_writer(keyspace)? } else { store.writer(keyspace)? })
    }

    /// True when nothing may bypass the log: [`EngineOptions::log_everything`].
    pub fn logs_everything(&self) -> bool {
        self.core.options.log_everything
    }

    /// Installs runs that no commit wrote, atomically and durably. Their keys must not be read or written by
    /// others yet, and their versions must be zero: open snapshots may see them from now on. A later commit
    /// makes them reachable; an earlier one says what they are, in case a crash comes between.
    ///
    /// # Errors
    /// The manifest cannot be written; the engine has stopped. Nothing is in force then.
    ///
    /// # Panics
    /// Under [`EngineOptions::log_everything`]: readers of the log would lack the data.
    pub fn ingest(&self, runs: Vec<NewRun>) -> Result<()> {
        if let Some(error) = self.core.refusal() {
            return Err(error);
        }
        assert!(!self.logs_everything(), "every change of contents has to be in the log");
        self.core.store.install(Edit { new_l0: runs, checkpoint: None, flush: None })?;
        self.core.refresh_view();
        self.core.wake_background();
        Ok(())
    }

    /// Writes everything committed so far out as runs and moves the checkpoint there.
    ///
    /// # Errors
    /// The flush failed; nothing is lost and it is tried again.
    pub fn checkpoint(&self) -> Result<()> {
        // Before anything is frozen, so that the flusher sees it at its check.
        self.core.background.lock().asked += 1;
        let done = self.flush_all();
        self.core.background.lock().asked -= 1;
        done
    }

    fn flush_all(&self) -> Result<()> {
        self.core.freeze_now()?;
        if self.core.options.background == Background::Manual {
            while self.core.flush_oldest()? {}
            return Ok(());
        }
        let mut background = self.core.background.lock();
        while !self.core.versions.current().frozen.is_empty() {
            if let Some(error) = self.core.stopped().or_else(|| background.flush_error.clone()) {
                return Err(error);
            }
            self.core.background_work.notify_all();
            self.core.room.wait_for(&mut background, Duration::from_millis(100));
        }
        Ok(())
    }

    /// Checkpoints, then merges every keyspace down to one sorted level.
    ///
    /// # Errors
    /// The merge failed; the old runs stay in force.
    pub fn compact(&self) -> Result<()> {
        self.checkpoint()?;
        self.core.store.compact_all(&self.core.versions.live())?;
        self.core.refresh_view();
        // The caller of a compaction wants space back.
        Ok(self.core.log.release_spares()?)
    }

    /// Reads every byte and checks every checksum and invariant.
    ///
    /// # Errors
    /// The check itself could not run.
    pub fn verify(&self) -> Result<EngineReport> {
        let store = self.core.store.verify()?;
        let snapshot = self.snapshot();
        let flushed = self.core.versions.current().without_resident();
        let mut violations = self.check_models(ReadView::new(&flushed, snapshot.seq()), &store)?;
        if violations.is_empty() && !snapshot.read().is_flushed() {
            // Readers find these in memory instead of in runs.
            violations = self.check_models(snapshot.read(), &store)?;
        }
        Ok(EngineReport { store, violations })
    }

    fn check_models(&self, read: ReadView<'_>, store: &VerifyReport) -> Result<Vec<String>> {
        let mut violations = Vec::new();
        for model in &self.core.models {
            let found = match model.verify(read) {
                // A model that cannot read damaged files is a finding, too, in addition to the list of those
                // files.
                Err(error) if !store.damage.is_empty() => vec![error.to_string()],
                found => found?,
            };
            violations.extend(found.into_iter().map(|line| format!("{}: {line}", model.name())));
        }
        Ok(violations)
    }

    /// Activity and memory use of the engine.
    pub fn stats(&self) -> EngineStats {
        self.stats_with(self.core.store.stats())
    }

    /// As [`Engine::stats`], with the first `limit` keyspaces whose names come after `after`, by name.
    pub fn stats_after(&self, after: Option<&str>, limit: usize) -> EngineStats {
        self.stats_with(self.core.store.stats_after(after, limit))
    }

    fn stats_with(&self, store: StoreStats) -> EngineStats {
        let checkpoint = self.core.store.checkpoint();
        let (flush_error, reader_waits) = {
            let background = self.core.background.lock();
            (background.flush_error.as_ref().map(ToString::to_string), background.reader_waits)
        };
        let (pinned_generations, pinned_bytes) = self.core.versions.pinned();
        EngineStats {
            seq: self.seq(),
            checkpoint: checkpoint.seq,
            checkpoint_lsn: checkpoint.lsn,
            log: self.core.log.stats(),
            store,
            write_bytes: self.core.versions.write_bytes(),
            write_bytes_max: self.core.options.write_bytes_max(),
            frozen: self.core.versions.current().frozen.len(),
            resident_bytes: self.core.versions.current().resident_bytes(),
            snapshots: self.core.versions.live().len(),
            pinned_generations,
            pinned_bytes,
            flush_error,
            reader_waits,
        }
    }

    /// The failure that stopped the engine, or that it was closed.
    pub fn stopped(&self) -> Option<EngineError> {
        self.core.stopped()
    }

    /// The newest commit that the opening found.
    pub fn opened_at(&self) -> Seq {
        self.core.versions.opened()
    }

    /// State of the log found at open.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.core.dir
    }

    /// The clock, for models that wait.
    pub fn env(&self) -> &Env {
        &self.core.env
    }

    /// Stops the background work and syncs what `Async` and `Buffered` commits left unsynced. Later commits
    /// are refused. Flushes if the next opening would otherwise be slow.
    ///
    /// # Errors
    /// The last sync failed.
    pub fn close(&self) -> Result<()> {
        self.pipeline.close();
        {
            self.core.background.lock().closing = true;
            self.core.background_work.notify_all();
        }
        for thread in self.threads.lock().drain(..) {
            // A panic of a background thread has been reported by the panic hook already.
            let _ = thread.join();
        }
        self.pipeline.finish();
        let synced = match self.core.stopped() {
            Some(_) => Ok(()),
            None => self.core.settle_down(),
        };
        self.core.fail(&"it was closed");
        synced
    }
}

/// A transaction for which others may wait gets its place in the order at once.
fn pace(operations: &[Box<dyn Operation>]) -> Pace {
    if operations.iter().any(|operation| operation.is_awaited()) { Pace::AtOnce } else { Pace::Shared }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A drop cannot report an error; callers that need it call `close` themselves.
        let _ = self.close();
    }
}

fn damaged_meta(error: &DecodeError) -> EngineError {
    EngineError::Damaged { model: "checkpoint", what: error.to_string().into() }
}

/// Refuses a log whose store is gone, and a store whose log is: each would pass for an empty one. Nothing is changed.
fn check_halves(env: &Env, store: &Store, log_dir: &Path) -> Result<()> {
    match (store.is_new(), LocalLog::extent(env, log_dir)) {
        // The manifest is written before the first commit, and lists the runs that were ingested without the
        // log.
        (true, Ok(Extent::Records)) => Err(store.missing_files_error().into()),
        (false, Ok(Extent::Nothing)) => {
            Err(LogError::Missing { dir: log_dir.to_owned(), lsn: store.checkpoint().lsn }.into())
        }
        // Damage in the log is reported when it is opened.
        (_, Ok(_) | Err(_)) => Ok(()),
    }
}

fn io(op: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> EngineError {
    let path = path.to_owned();
    move |source| EngineError::Io { op, path, source: Arc::new(source) }
}

/// Creates a directory of the engine in `dir` if need be. Without a manifest, it and those above it are made
/// durable even when they exist: the process that made them may have died before that. The manifest comes
/// after.
fn create_dir(env: &Env, dir: &Path, made: &Path) -> std::io::Result<()> {
    if Store::is_begun(env, &dir.join("store"))? {
        return env.vfs.create_dir_all(made);
    }
    ropewalk_vfs::create_dir_durably(&*env.vfs, made)
}

/// Creates `dir` if need be and takes it for this process. Its parts have to be directories themselves: a symbolic link would make
/// the engine write and delete files elsewhere.
pub(crate) fn lock(env: &Env, dir: &Path) -> Result<Box<dyn LockGuard>> {
    create_dir(env, dir, dir).map_err(io("create directory", dir))?;
    let path = dir.join("LOCK");
    let lock = env.vfs.lock(&path, &format!("pid {}", std::process::id())).map_err(|error| {
        if error.kind() != std::io::ErrorKind::WouldBlock {
            return io("lock", &path)(error);
        }
        let holder = error.to_string();
        let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
        EngineError::Locked { path: dir.to_owned(), holder }
    })?;
    for part in ["store", "log"].map(|name| dir.join(name)) {
        if env.vfs.is_link(&part).map_err(io("read", &part))? {
            let what = "is a symbolic link; a directory is needed";
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, what);
            return Err(io("open", &part)(error));
        }
    }
    Ok(lock)
}

impl Core {
    pub(crate) fn wait_published(&self, seq: Seq, timeout: Duration) {
        let deadline = self.env.clock.deadline(timeout);
        let done = || self.versions.visible() >= seq || self.stopped().is_some();
        while !done() {
            let left = deadline.saturating_sub(self.env.clock.monotonic_nanos());
            if left == 0 {
                return;
            }
            self.watch.sleep(Duration::from_nanos(left), done);
        }
    }
}

/// Resolves when there are commits beyond a number, or to the failure that stopped the engine. See [`Engine::wait_visible_after`].
pub struct WaitVisible {
    core: Arc<Core>,
    seq: Seq,
    /// Place of the waker in the engine's list.
    ticket: Option<u64>,
}

impl WaitVisible {
    fn look(&self) -> Poll<Result<Seq>> {
        let visible = self.core.versions.visible();
        match self.core.stopped() {
            _ if visible > self.seq => Poll::Ready(Ok(visible)),
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }
}

impl Future for WaitVisible {
    type Output = Result<Seq>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(result) = this.look() {
            return Poll::Ready(result);
        }
        this.core.watch.leave(&mut this.ticket, context.waker());
        // A commit may have become visible between the check and the registration of the waker.
        this.look()
    }
}

impl Drop for WaitVisible {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.watch.forget(ticket);
        }
    }
}

/// Resolves to the failure that stopped the engine. See [`Engine::until_stopped`].
pub struct EngineStopped {
    core: Arc<Core>,
    /// Place of the waker in the engine's list.
    ticket: Option<u64>,
}

impl Future for EngineStopped {
    type Output = EngineError;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(error) = this.core.stopped() {
            return Poll::Ready(error);
        }
        this.core.end_watch.leave(&mut this.ticket, context.waker());
        // It may have stopped between the check and the registration of the waker.
        this.core.stopped().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for EngineStopped {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.end_watch.forget(ticket);
        }
    }
}

/// A submitted transaction: wait for it, or await it. Dropping the handle does not cancel the transaction.
pub struct CommitHandle(Handle<Commits>);

impl CommitHandle {
    /// Blocks until the transaction is decided and durable.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn wait(self) -> Result<Committed, CommitError> {
        self.0.wait()
    }

    /// The result, once it is available; returned only once.
    pub fn try_take(&mut self) -> Option<Result<Committed, CommitError>> {
        self.0.take()
    }
}

/// A submitted commit, to be awaited.
///
/// When no other commits are queued, awaiting costs two context switches, together as long as a fast sync. A
/// caller that can block may avoid both: if [`InFlightCommit::can_lead`], call [`InFlightCommit::lead`], then await
/// the result.
pub trait InFlightCommit: Future {
    /// True while no thread works on the commit and its owner may lead it.
    fn can_lead(&self) -> bool;

    /// Completes a lone commit in this thread, which blocks for one sync; does nothing for any other.
    fn lead(&mut self);
}

impl InFlightCommit for CommitHandle {
    fn can_lead(&self) -> bool {
        self.0.is_left()
    }

    fn lead(&mut self) {
        self.0.lead();
    }
}

impl Future for CommitHandle {
    type Output = Result<Committed, CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}
