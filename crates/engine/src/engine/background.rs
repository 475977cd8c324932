//! Background work: flushing frozen generations, compaction, and the syncs that `Async` commits are owed.
//!
//!   frozen (oldest) ─▶ log durable up to its end? ─▶ runs of every keyspace and model ─▶ manifest + checkpoint ─▶ new version ─▶ trim log
//!
//! Flushing goes first; compaction runs in quanta between flushes. A failure is retried, and reported to
//! writers that run out of budget.
//!
//! Versions of a key and chunks of a series that live snapshots distinguish stay separate on disk. The flush
//! of a generation that live snapshots split waits shortly for them; otherwise eight readers in a row cut
//! every chunk of a busy store into a dozen.

use core::time::Duration;
use std::sync::Arc;

use ropewalk_base::Lsn;
use ropewalk_base::sync::thread;
use ropewalk_store::{Checkpoint, CompactStep, Edit};

use crate::commit::Core;
use crate::error::{EngineError, Result};
use crate::model::effects::encode_meta;
use crate::model::version::Generation;
use crate::options::WriteCapacity;

/// Bytes that one compaction quantum may merge: about two milliseconds of work.
const COMPACT_STEP_BYTES: u64 = 1 << 20;
/// Bytes of log that opening and closing leave to replay, some tenths of a millisecond: less is not worth a flush.
pub(crate) const REPLAY_BYTES_KEPT: u64 = 64 << 10;
const RETRY_AFTER_NANOS: u64 = 500_000_000;
/// Time between two writes of the place in the shared log.
const NOTE_AFTER: Duration = Duration::from_secs(1);
/// The longest pause of a writer while the budget is tight.
const PAUSE_MAX_NANOS: u64 = 1_000_000;
/// How often, and how many times, the flusher checks whether readers are done: a quarter of a second, longer
/// than most queries.
const READERS_LOOK: Duration = Duration::from_millis(5);
const READERS_LOOKS: usize = 50;

impl Core {
    /// Writes out the oldest frozen generation. False without one. One flush at a time: two would write the same
    /// generation, and the checkpoint of the second would pass the next one unwritten.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let _one_at_a_time = self.flushing.lock();
        let Some(oldest) = self.versions.current().frozen.last().cloned() else {
            return Ok(false);
        };
        // A panic between the manifest and the new version would leave the generation in both.
        let guard = self.stop_on_panic("a flush");
        let flushed = self.flush(&oldest);
        guard.disarm();
        // Without this reference the count equals the references that readers hold.
        drop(oldest);
        self.versions.pinned();
        flushed.map(|()| true)
    }

    fn flush(&self, oldest: &Arc<Generation>) -> Result<()> {
        let end = oldest.end.get().expect("a generation is frozen with its end");
        let (seq, lsn) = (end.seq, end.lsn);
        if self.log.durable() < lsn {
            // The checkpoint must not be ahead of the log.
            self.log.barrier().inspect_err(|error| self.fail_by_log(error))?;
        }
        let snapshots = self.versions.live();
        let mut new_l0 = Vec::new();
        for (keyspace, table) in oldest.memtables() {
            new_l0.extend(self.store.write_memtable(keyspace, table, &snapshots)?);
        }
        for (model, memory) in self.models.iter().zip(oldest.memories()) {
            new_l0.extend(model.flush(memory.as_ref(), &self.store, &snapshots)?);
        }
        assert!(
            self.log.durable() >= lsn,
            "a checkpoint at {lsn}, the log is durable to {}",
            self.log.durable()
        );
        let before = self.store.checkpoint();
        assert!(
            before.lsn <= lsn && before.seq <= seq,
            "checkpoint {seq} at {lsn} replaces {} at {}",
            before.seq,
            before.lsn
        );
        let meta = encode_meta(end.time_micros, end.effects);
        let checkpoint = Some(Checkpoint { lsn, seq, meta });
        self.store.install(Edit { new_l0, checkpoint, flush: Some(oldest.flush.clone()) })?;
        let resident_bytes = self.options.resident_bytes_max(self.versions.write_bytes());
        self.versions.replace(|version| {
            assert!(
                version.frozen.last().is_some_and(|flushed| Arc::ptr_eq(flushed, oldest)),
                "under the flush lock the oldest generation stays the oldest",
            );
            version.with_flushed(self.store.view(), seq, resident_bytes)
        });
        // The log may be shorter than the part to retain.
        let keep_from = Lsn(lsn.0.saturating_sub(self.options.log_retention_bytes));
        self.log.trim(keep_from).inspect_err(|error| self.fail(error))?;
        Ok(())
    }

    /// The last work of a closing engine: flushes enough to keep the next opening fast, and writes the log's
    /// mark that its last commit is durable.
    pub(crate) fn settle_down(&self) -> Result<()> {
        if self.replay_bytes() > REPLAY_BYTES_KEPT {
            // A failure costs time at the next opening: the log has it all.
            let _ = self.freeze_now().and_then(|()| {
                while self.flush_oldest()? {}
                Ok(())
            });
        }
        self.write_durable_mark()?;
        self.note_place(Duration::ZERO)
    }

    /// One compaction quantum. False when nothing is left to do.
    pub(crate) fn compact_once(&self) -> Result<bool> {
        // Without holding a version, whose files could not be removed meanwhile.
        let hidden = self.versions.current().resident_flushes();
        let step = self.store.compact_step(&self.versions.live(), &hidden, COMPACT_STEP_BYTES)?;
        match step {
            CompactStep::Idle => Ok(false),
            CompactStep::Worked { .. } => {
                self.refresh_view();
                Ok(true)
            }
        }
    }

    /// Makes the result of a compaction visible to readers.
    pub(crate) fn refresh_view(&self) {
        if !Arc::ptr_eq(&self.store.view(), self.versions.current().all_runs()) {
            self.versions.replace(|version| version.with_runs(self.store.view()));
        }
    }

    /// Syncs the log if an `Async` commit is due. Otherwise returns false.
    pub(crate) fn sync_due(&self) -> Result<bool> {
        let now = self.env.clock.monotonic_nanos();
        {
            let mut background = self.background.lock();
            if background.sync_by.is_none_or(|by| by > now) {
                return Ok(false);
            }
            background.sync_by = None;
        }
        self.log.barrier().inspect_err(|error| self.fail_by_log(error))?;
        Ok(true)
    }

    /// Does one unit of background work, the most urgent first. False when nothing is left to do.
    pub(crate) fn background_step(&self) -> Result<bool> {
        // Memory of a stopped engine may hold commits that its log does not have: none of it reaches the disk.
        if self.stopped().is_some() {
            return Ok(false);
        }
        if self.sync_due()? {
            return Ok(true);
        }
        let flushed = self.flush_oldest();
        let mut background = self.background.lock();
        match flushed {
            Ok(true) => {
                background.flushes += 1;
                background.flush_error = None;
                self.room.notify_all();
                return Ok(true);
            }
            Ok(false) => drop(background),
            Err(error) => {
                background.flush_error = Some(error.clone());
                self.room.notify_all();
                return Err(error);
            }
        }
        // A failure of the log has stopped the engine. Any other costs time: the next opening reads more entries.
        let _ = self.note_place(NOTE_AFTER);
        self.compact_once()
    }

    /// Waits for snapshots in the middle of the one generation that is to be flushed. Does not wait when
    /// there are more generations, or when a caller waits for this flush.
    fn await_readers(&self) {
        for _ in 0..READERS_LOOKS {
            let version = self.versions.current();
            let [generation] = version.frozen.as_slice() else { return };
            let end = generation.end.get().map(|end| end.seq);
            if self.versions.live().first() >= end.as_ref() {
                return;
            }
            let mut background = self.background.lock();
            if background.closing || background.asked > 0 || self.stopped().is_some() {
                return;
            }
            background.reader_waits += 1;
            self.background_work.wait_for(&mut background, READERS_LOOK);
        }
    }

    /// The body of the flusher thread.
    pub(crate) fn run_background(&self) {
        let mut idle_at = self.versions.visible();
        // A stopped engine flushes nothing any more, so its frozen generations must not keep this thread busy.
        let has_no_work = || self.versions.current().frozen.is_empty() || self.stopped().is_some();
        loop {
            self.await_readers();
            let outcome = self.background_step();
            let mut background = self.background.lock();
            if background.closing {
                return;
            }
            match outcome {
                Ok(true) => {
                    drop(background);
                    thread::yield_now();
                }
                Ok(false) => {
                    // A freeze between the step and here has taken the lock and is seen by this check.
                    if has_no_work() {
                        drop(background);
                        // Segments made ahead keep the roll cheap; a failure here shows when the roll needs one.
                        let _ = self.log.prepare_spare();
                        let visible = self.versions.visible();
                        if idle_at == visible && self.stopped().is_none() {
                            // No commit for half a second: mark the last one as durable. A failure stops the
                            // log.
                            let _ = self.write_durable_mark();
                        }
                        idle_at = visible;
                        let mut background = self.background.lock();
                        if !background.closing && has_no_work() {
                            self.background_work.wait_for(&mut background, Duration::from_millis(500));
                        }
                    }
                }
                Err(_) => {
                    background.retry_at = self.env.clock.monotonic_nanos() + RETRY_AFTER_NANOS;
                    self.background_work.wait_for(&mut background, Duration::from_nanos(RETRY_AFTER_NANOS));
                }
            }
        }
    }

    /// The body of the thread that syncs for `Async` commits, so that a long flush does not delay them.
    pub(crate) fn run_async_sync(&self) {
        loop {
            {
                let mut background = self.background.lock();
                if background.closing {
                    return;
                }
                match background.sync_by {
                    None => self.background_work.wait(&mut background),
                    Some(by) => {
                        let left = by.saturating_sub(self.env.clock.monotonic_nanos());
                        if left > 0 {
                            self.background_work.wait_for(&mut background, Duration::from_nanos(left));
                        }
                    }
                }
            }
            // A failure has stopped the engine; the next commit says so.
            let _ = self.sync_due();
        }
    }

    /// The decision that [`Core::admit`] would make now.
    pub(crate) fn write_capacity(&self) -> WriteCapacity {
        let max = self.options.write_bytes_max();
        let bytes = self.versions.write_bytes();
        let soft = max / 4 * 3;
        let pause = |over: u64, of: u64| Duration::from_nanos(over.min(of) * PAUSE_MAX_NANOS / of);
        if bytes >= max {
            WriteCapacity::Spent
        } else if bytes >= soft {
            WriteCapacity::Tight(pause(bytes - soft, max - soft))
        } else {
            match self.pinned_over() {
                0 => WriteCapacity::Free,
                over => WriteCapacity::Tight(pause(over, max)),
            }
        }
    }

    /// Bytes that readers hold of flushed memtables, over the part of the budget that neither writes nor caches may use.
    /// Writers are slowed down for these, but do not wait for them: no flush would free them.
    fn pinned_over(&self) -> u64 {
        let spare = self.options.memory_budget / 4;
        if self.versions.pinned_bytes_at_most() <= spare {
            return 0;
        }
        // The first figure may be old: readers have ended since.
        self.versions.pinned().1.saturating_sub(spare)
    }

    /// The error for a spent budget: because of `cause`, unless flushing fails.
    pub(crate) fn busy(&self, cause: &str) -> EngineError {
        let (bytes, max) = (self.versions.write_bytes(), self.options.write_bytes_max());
        let failed = self.background.lock().flush_error.as_ref().map(ToString::to_string);
        EngineError::Busy { bytes, max, cause: failed.as_deref().unwrap_or(cause).into() }
    }

    /// Back-pressure: free below three quarters of the write budget, then increasing pauses, and finally a
    /// wait for the next flush, which is an error when flushing fails.
    pub(crate) fn admit(&self, threads: bool) -> Result<()> {
        match self.write_capacity() {
            WriteCapacity::Free => return Ok(()),
            _ if !threads => return self.background_step().map(|_| ()),
            WriteCapacity::Tight(pause) => {
                self.env.clock.sleep(pause);
                return Ok(());
            }
            WriteCapacity::Spent => {}
        }
        let mut background = self.background.lock();
        while self.write_capacity() == WriteCapacity::Spent {
            if let Some(error) = self.stopped() {
                return Err(error);
            }
            if background.flush_error.is_some() {
                drop(background);
                return Err(self.busy("flushing does not keep up"));
            }
            self.background_work.notify_all();
            self.room.wait_for(&mut background, Duration::from_millis(100));
        }
        Ok(())
    }
}
