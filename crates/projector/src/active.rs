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
        let is_wanted = |parked: &&ParkedEvent| parked.wants_retry && Some(parked.generation) == live;
        for parked in parked.iter().filter(is_wanted) {
            if clock.monotonic_nanos() > end {
                return Ok(false);
            }
            db.transact_with(Isolation::Serializable, options.durability, ATTEMPTS, |tx| {
                self.declared.retry(tx, parked).map_err(|error| match error.downcast::<Error>() {
                    Ok(error) => *error,
                    Err(error) => Error::Invalid(error.to_string()),
                })
            })?;
        }
        Ok(true)
    }
}

/// An error of SQL as one of the database.
fn opaque(error: SqlError) -> Error {
    Error::Invalid(error.to_string())
}
