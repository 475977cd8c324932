//! Follows all declared projections of a database.
//!
//! ```text
//! declarations ─▶ registered handlers ─▶ one batch of each in turn ─▶ all at the head ─▶ wait for a commit
//!                                        └ requested rebuilds, one thread each
//! ```

use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

use parking_lot::Mutex;
use ropewalk::projections::{ProjectionError, ProjectionOptions, Projections, RebuildMode, Rebuilt};
use ropewalk::{Database, Durability, Error, EventStore, Isolation, Position};
use ropewalk_sql::{ParkedEvent, SqlError, StoredProjection, stored_projections};

use crate::declared::Declared;

/// Pause after an error that is not about an event.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a commit while there are no projections, so that not every commit wakes the thread.
const IDLE_PAUSE: Duration = Duration::from_millis(20);
/// Most attempts of a transaction that conflicts with other commits.
const ATTEMPTS: usize = 1_000;

/// Receives the name of a projection and its error.
pub type Report = Arc<dyn Fn(&str, &dyn std::error::Error) + Send + Sync>;

/// Batch size, durability and error reports of a runner.
#[derive(Clone)]
pub struct RunnerOptions {
    /// Most events of one commit.
    pub batch_events: usize,
    /// Durability of each commit.
    pub durability: Durability,
    /// Receives errors; the failing event of a projection is also stored.
    pub report: Report,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self { batch_events: 5_000, durability: Durability::Sync, report: Arc::new(|_, _| {}) }
    }
}

/// Runs the declared projections of a database.
///
/// A database has at most one runner at a time.
pub struct Runner {
    db: Database,
    options: RunnerOptions,
    stores: BTreeMap<String, Projections>,
    active: BTreeMap<String, Active>,
    wake: Arc<Wake>,
}

/// Wakes the thread of a runner.
#[derive(Default)]
struct Wake {
    stops: AtomicBool,
    is_woken: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Wake {
    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}

/// A projection that is registered.
struct Active {
    stored: StoredProjection,
    declared: Arc<Declared>,
    projections: Projections,
    events: EventStore,
    /// The last event when all were applied: until there is another one, there is nothing to do.
    applied_to: Option<Position>,
    rebuild: Option<JoinHandle<Result<Option<Rebuilt>, Error>>>,
    /// A rebuild may be interrupted.
    may_resume: bool,
    /// Stopped at an event.
    has_failed: bool,
    /// Monotonic nanoseconds before which it is not run again after an error.
    rests_until: u64,
    /// Parked events may be waiting for a retry.
    may_retry: bool,
}

/// A runner in its thread. Dropping it stops the thread after the current batches.
pub struct RunningProjections {
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl RunningProjections {
    /// Stops the runner; rebuilds resume when the next one starts.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.wake.stops.store(true, Ordering::Release);
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by its hook.
            let _ = thread.join();
        }
    }
}

impl Drop for RunningProjections {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.end_rebuilds();
    }
}

impl Runner {
    /// A runner that applies events when [`Runner::catch_up`] or [`Runner::start`] is called.
    pub fn new(db: Database, options: RunnerOptions) -> Self {
        Self { db, options, stores: BTreeMap::new(), active: BTreeMap::new(), wake: Arc::default() }
    }

    /// Applies all pending events and completes requested rebuilds.
    ///
    /// # Errors
    /// The declarations cannot be read. Errors of single projections are reported and stored.
    pub fn catch_up(mut self) -> Result<(), SqlError> {
        loop {
            let is_busy = self.turn()?;
            let mut has_rebuilt = false;
            for active in self.active.values_mut() {
                let Some(thread) = active.rebuild.take() else { continue };
                let done = thread.join();
                active.rebuilt(&self.db, &self.options, done);
                has_rebuilt = true;
            }
            if !is_busy && !has_rebuilt {
                return Ok(());
            }
        }
    }

    /// Follows the projections in a thread, until the returned value is dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(mut self) -> io::Result<RunningProjections> {
        let wake = self.wake.clone();
        let thread = std::thread::Builder::new().name("projections".into()).spawn(move || self.follow())?;
        Ok(RunningProjections { wake, thread: Some(thread) })
    }

    fn follow(&mut self) {
        *self.wake.thread.lock() = Some(std::thread::current());
        let wake = self.wake.clone();
        while !wake.stops.load(Ordering::Acquire) {
            wake.is_woken.store(false, Ordering::Release);
            let seen = self.db.seq();
            // `stop` sets both flags, this one last.
            if wake.stops.load(Ordering::Acquire) {
                break;
            }
            let done = match self.turn() {
                Ok(true) => continue,
                Ok(false) if self.active.values().any(|active| active.rests_until > 0) => {
                    std::thread::park_timeout(RETRY_PAUSE);
                    Ok(())
                }
                Ok(false) => {
                    let waited = self.db.wait_beyond(seen, &wake.is_woken);
                    if self.active.is_empty() && waited.is_ok() {
                        std::thread::park_timeout(IDLE_PAUSE);
                    }
                    waited.map_err(SqlError::from)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                if self.db.stopped().is_some() {
                    break;
                }
                (self.options.report)("", &error);
                std::thread::park_timeout(RETRY_PAUSE);
            }
        }
        self.end_rebuilds();
    }

    /// Applies one batch of each projection; true if there are more events or rebuilds have ended.
    fn turn(&mut self) -> Result<bool, SqlError> {
        self.renew()?;
        let mut is_busy = false;
        for active in self.active.values_mut() {
            is_busy |= active.finished(&self.db, &self.options);
            if active.rests(&self.db) || active.stored.is_paused {
                continue;
            }
            if active.may_retry {
                active.may_retry = false;
                if let Err(error) = active.retry_parked(&self.db, &self.options) {
                    active.rest(&self.db, &self.options, &error);
                    active.may_retry = true;
                }
            }
            if !active.has_failed && active.has_new_events() {
                match active.projections.apply_batch(&active.stored.name) {
                    Ok(progress) => {
                        is_busy |= !progress.is_at_head;
                        active.applied_to = progress.is_at_head.then_some(progress.checkpoint);
                    }
                    Err(error) => active.failed(&self.db, &self.options, &error),
                }
            }
            active.begin_rebuild(&self.db, &self.options, &self.wake);
        }
        Ok(is_busy)
    }

    /// Registers new and changed declarations, and removes dropped ones.
    fn renew(&mut self) -> Result<(), SqlError> {
        let stored = stored_projections(&self.db, &self.db.snapshot())?;
        self.active.retain(|name, active| {
            let is_same = stored.iter().any(|stored| {
                stored.name == *name
                    && (&stored.store, &stored.text) == (&active.stored.store, &active.stored.text)
            });
            if !is_same {
                active.end();
            }
            is_same
        });
        for stored in stored {
            if let Some(active) = self.active.get_mut(&stored.name) {
                if active.stored.requests != stored.requests {
                    (active.has_failed, active.may_retry, active.may_resume) = (false, true, true);
                }
                active.may_resume |= active.stored.is_paused && !stored.is_paused;
                active.stored = stored;
                continue;
            }
            let projections = match self.stores.get(&stored.store) {
                Some(projections) => projections.clone(),
                None => {
                    let options = ProjectionOptions {
                        batch_events: self.options.batch_events,
                        rebuild_batch_events: self.options.batch_events,
                        durability: self.options.durability,
                        ..ProjectionOptions::default()
                    };
                    let projections = self.db.projections_with(&stored.store, options)?;
                    self.stores.insert(stored.store.clone(), projections.clone());
                    projections
                }
            };
            let events = self.db.events(&stored.store)?;
            let declared = Arc::new(Declared::new(self.db.clone(), &stored)?);
            projections.register(&stored.name, declared.clone())?;
            let name = stored.name.clone();
            let active = Active {
                stored,
                declared,
                projections,
                events,
                applied_to: None,
                rebuild: None,
                may_resume: true,
                has_failed: false,
                rests_until: 0,
                may_retry: true,
            };
            self.active.insert(name, active);
        }
        Ok(())
    }

    fn end_rebuilds(&mut self) {
        for projections in self.stores.values() {
            projections.interrupt_rebuilds();
        }
        for active in self.active.values_mut() {
            active.end();
        }
        self.active.clear();
    }
}

impl Active {
    /// Ends a running rebuild and removes the registration.
    fn end(&mut self) {
        if let Some(thread) = self.rebuild.take() {
            self.projections.interrupt_rebuilds();
            // Its state is stored.
            let _ = thread.join();
        }
        self.projections.unregister(&self.stored.name);
    }

    /// False if the last event was applied: commits of other models wake the runner, too.
    fn has_new_events(&self) -> bool {
        match self.events.head() {
            Ok(Some(head)) => self.applied_to != Some(head),
            // The batch reports the error.
            Ok(None) | Err(_) => true,
        }
    }

    /// True while it waits after an error.
    fn rests(&mut self, db: &Database) -> bool {
        let rests = self.rests_until > db.engine().env().clock.monotonic_nanos();
        if !rests {
            self.rests_until = 0;
        }
        rests
    }

    fn rest(&mut self, db: &Database, options: &RunnerOptions, error: &Error) {
        self.rests_until = db.engine().env().clock.deadline(RETRY_PAUSE);
        (options.report)(&self.stored.name, error);
    }

    fn failed(&mut self, db: &Database, options: &RunnerOptions, error: &Error) {
        self.applied_to = None;
        match error {
            Error::Projection(ProjectionError::Failed { .. }) => {
                self.has_failed = true;
                (options.report)(&self.stored.name, error);
            }
            error => self.rest(db, options, error),
        }
    }

    /// Starts a requested or interrupted rebuild, unless one is running.
    fn begin_rebuild(&mut self, db: &Database, options: &RunnerOptions, wake: &Arc<Wake>) {
        let mode = match self.stored.wants_rebuild {
            _ if self.rebuild.is_some() => return,
            true => RebuildMode::ForceFullRebuild,
            false if self.may_resume => RebuildMode::ResumeOnly,
            false => return,
        };
        self.may_resume = false;
        let (projections, name, wake) = (self.projections.clone(), self.stored.name.clone(), wake.clone());
        let body = move || {
            let rebuilt = projections.rebuild(&name, mode);
            wake.wake();
            rebuilt
        };
        match std::thread::Builder::new().name("rebuild".into()).spawn(body) {
            Ok(thread) => self.rebuild = Some(thread),
            Err(error) => {
                self.may_resume = true;
                self.rests_until = db.engine().env().clock.deadline(RETRY_PAUSE);
                (options.report)(&self.stored.name, &error);
            }
        }
    }

    /// Takes the result of a rebuild that has ended; true if there was one.
    fn finished(&mut self, db: &Database, options: &RunnerOptions) -> bool {
        let Some(thread) = self.rebuild.take_if(|thread| thread.is_finished()) else { return false };
        let done = thread.join();
        self.rebuilt(db, options, done);
        true
    }

    fn rebuilt(
        &mut self,
        db: &Database,
        options: &RunnerOptions,
        done: std::thread::Result<Result<Option<Rebuilt>, Error>>,
    ) {
        match done {
            Ok(Ok(Some(Rebuilt { finished: true, generation, .. }))) => {
                // The new generation has applied the event at which the old one stopped.
                self.has_failed = false;
                if let Err(error) = self.forget_parked(db, options, generation) {
                    self.rest(db, options, &error);
                }
            }
            Ok(Ok(Some(_))) => self.may_resume = true,
            Ok(Ok(None)) => {}
            Ok(Err(Error::Projection(error @ ProjectionError::Failed { .. }))) => {
                (options.report)(&self.stored.name, &error);
            }
            Ok(Err(error)) => {
                self.may_resume = true;
                self.rest(db, options, &error);
            }
            Err(_) => (options.report)(&self.stored.name, &io::Error::other("a rebuild panicked")),
        }
    }

    /// Deletes the parked events of earlier generations.
    fn forget_parked(&self, db: &Database, options: &RunnerOptions, generation: u64) -> Result<(), Error> {
        db.transact_with(Isolation::Serializable, options.durability, ATTEMPTS, |tx| {
            let parked = ParkedEvent::all_in(db, tx, &self.stored.name).map_err(opaque)?;
            for parked in parked.iter().filter(|parked| parked.generation < generation) {
                parked.remove_in(tx).map_err(opaque)?;
            }
            Ok(())
        })
    }

    /// Applies the parked events again that an operator requested.
    fn retry_parked(&self, db: &Database, options: &RunnerOptions) -> Result<(), Error> {
        let waiting = ParkedEvent::all_in(db, &mut db.begin(), &self.stored.name).map_err(opaque)?;
        for parked in waiting.iter().filter(|parked| parked.wants_retry) {
            db.transact_with(Isolation::Serializable, options.durability, ATTEMPTS, |tx| {
                self.declared.retry(tx, parked).map_err(|error| match error.downcast::<Error>() {
                    Ok(error) => *error,
                    Err(error) => Error::Invalid(error.to_string()),
                })
            })?;
        }
        Ok(())
    }
}

/// An error of SQL as one of the database.
fn opaque(error: SqlError) -> Error {
    Error::Invalid(error.to_string())
}
