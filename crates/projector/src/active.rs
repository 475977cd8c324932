//! A registered projection: its rebuild, its pauses after errors, its parked events.

use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use ropewalk::projections::{ProjectionError, Projections, RebuildMode, Rebuilt};
use ropewalk::{Database, Error, EventStore, Isolation, Position};
use ropewalk_sql::{ParkedEvent, SqlError, StoredProjection};

use crate::declared::Declared;
use crate::options::{RETRY_PAUSE, RunnerOptions, Wake};

/// A turn retries no further parked events after this time.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// Most parked events that are retried in one commit.
const RETRIES: usize = 256;
/// Longest pause before a rebuild that could not begin or continue is tried again.
const REBUILD_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Most attempts of a transaction that conflicts with other commits.
const ATTEMPTS: usize = 1_000;

/// A projection that is registered.
pub(crate) struct Active {
    pub(crate) stored: StoredProjection,
    pub(crate) declared: Arc<Declared>,
    pub(crate) projections: Projections,
    pub(crate) events: EventStore,
    /// The last event when all were applied: until there is another one, there is nothing to do.
    pub(crate) applied_to: Option<Position>,
    pub(crate) rebuild: Option<JoinHandle<Result<Option<Rebuilt>, Error>>>,
    /// A rebuild may be interrupted.
    pub(crate) may_resume: bool,
    /// Stopped at an event.
    pub(crate) has_failed: bool,
    /// Monotonic nanoseconds before which it is not run again after an error.
    pub(crate) rests_until: u64,
    /// Parked events may be waiting for a retry.
    pub(crate) may_retry: bool,
    pub(crate) rebuild_pause: Pause,
}

/// A pause before a rebuild is tried again, which doubles with each failure. The live projection continues.
#[derive(Default)]
pub(crate) struct Pause {
    /// Monotonic nanoseconds; 0 without a pause.
    until: u64,
    /// The last pause.
    last: Duration,
}

impl Pause {
    /// Begins a pause after a failure.
    fn begin(&mut self, db: &Database) {
        self.last = (self.last * 2).clamp(RETRY_PAUSE, REBUILD_PAUSE_MAX);
        self.until = db.engine().env().clock.deadline(self.last);
    }

    /// Ends the pause, and forgets the failures.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// True until the pause has ended.
    pub(crate) fn lasts(&self) -> bool {
        self.until > 0
    }

    /// Ends the pause if its time is over; true if it continues.
    fn check(&mut self, db: &Database) -> bool {
        if self.until <= db.engine().env().clock.monotonic_nanos() {
            self.until = 0;
        }
        self.lasts()
    }
}

impl Active {
    /// Ends a running rebuild and removes the registration.
    pub(crate) fn end(&mut self) {
        if let Some(thread) = self.rebuild.take() {
            self.projections.interrupt_rebuilds();
            // Its state is stored.
            let _ = thread.join();
        }
        self.projections.unregister(&self.stored.name);
    }

    /// False if the last event was applied: commits of other models wake the runner, too.
    pub(crate) fn has_new_events(&self) -> bool {
        match self.events.head() {
            Ok(Some(head)) => self.applied_to != Some(head),
            // The batch reports the error.
            Ok(None) | Err(_) => true,
        }
    }

    /// True while it waits after an error.
    pub(crate) fn rests(&mut self, db: &Database) -> bool {
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

    pub(crate) fn failed(&mut self, db: &Database, options: &RunnerOptions, error: &Error) {
        self.applied_to = None;
        match error {
            Error::Projection(ProjectionError::Failed { .. }) => {
                self.has_failed = true;
                (options.report)(&self.stored.name, error);
            }
            // The runner stops.
            Error::Projection(ProjectionError::Interrupted { .. }) => {}
            error => self.rest(db, options, error),
        }
    }

    /// Starts a requested or interrupted rebuild, unless one is running.
    pub(crate) fn begin_rebuild(&mut self, db: &Database, options: &RunnerOptions, wake: &Arc<Wake>) {
        if self.rebuild.is_some() || self.rebuild_pause.check(db) {
            return;
        }
        let mode = match self.stored.wants_rebuild {
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
                self.rebuild_pause.begin(db);
                (options.report)(&self.stored.name, &error);
            }
        }
    }

    /// Takes the result of a rebuild that has ended; true if there was one.
    pub(crate) fn finished(&mut self, db: &Database, options: &RunnerOptions) -> bool {
        let Some(thread) = self.rebuild.take_if(|thread| thread.is_finished()) else { return false };
        let done = thread.join();
        self.rebuilt(db, options, done);
        true
    }

    pub(crate) fn rebuilt(
        &mut self,
        db: &Database,
        options: &RunnerOptions,
        done: std::thread::Result<Result<Option<Rebuilt>, Error>>,
    ) {
        // The checkpoint of a new generation may be lower.
        self.applied_to = None;
        match done {
            Ok(Ok(Some(Rebuilt { finished: true, generation, .. }))) => {
                // The new generation has applied the event at which the old one stopped.
                self.has_failed = false;
                self.rebuild_pause.end();
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
                self.rebuild_pause.begin(db);
                (options.report)(&self.stored.name, &error);
            }
            Err(_) => {
                self.rebuild_pause.begin(db);
                (options.report)(&self.stored.name, &io::Error::other("a rebuild panicked"));
            }
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

    /// Applies the parked events again that an operator requested; false if some are left.
    pub(crate) fn retry_parked(&self, db: &Database, options: &RunnerOptions) -> Result<bool, Error> {
        let clock = &db.engine().env().clock;
        let end = clock.deadline(RETRY_TIME);
        let mut tx = db.begin();
        let parked = ParkedEvent::all_in(db, &mut tx, &self.stored.name).map_err(opaque)?;
        let live = self.projections.generation_in(&mut tx, &self.stored.name)?;
        drop(tx);
        if let Some(live) = live.filter(|live| parked.iter().any(|parked| parked.generation < *live)) {
            // The process ended before it forgot them.
            self.forget_parked(db, options, live)?;
        }
        let is_wanted = |parked: &ParkedEvent| parked.wants_retry && Some(parked.generation) == live;
        let wanted: Vec<ParkedEvent> = parked.into_iter().filter(is_wanted).collect();
        let (mut left, is_over) = (wanted.as_slice(), || clock.monotonic_nanos() > end);
        while !left.is_empty() {
            if is_over() {
                return Ok(false);
            }
            let (next, _) = left.split_at(left.len().min(RETRIES));
            let done = db.transact_with(Isolation::Serializable, options.durability, ATTEMPTS, |tx| {
                self.declared.retry(tx, next, &is_over).map_err(|error| match error.downcast::<Error>() {
                    Ok(error) => *error,
                    Err(error) => Error::Invalid(error.to_string()),
                })
            })?;
            left = left.get(done..).unwrap_or_default();
        }
        Ok(true)
    }
}

/// An error of SQL as one of the database.
fn opaque(error: SqlError) -> Error {
    Error::Invalid(error.to_string())
}
