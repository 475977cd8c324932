//! Follows all declared projections of a database.
//!
//! ```text
//! declarations ─▶ registered handlers ─▶ one batch of each in turn ─▶ all at the head ─▶ wait for a commit
//!                                        └ requested rebuilds, one thread each
//! ```
//! A batch, the retries of one turn and a statement have limits of time, so that one projection does not delay the
//! others for long. A rebuild that fails is tried again after a pause, during which the live projection continues. A
//! stop also ends running statements.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use ropewalk::Database;
use ropewalk::projections::{ProjectionOptions, Projections};
use ropewalk_sql::{DamagedProjection, ListedProjections, SqlError, StoredProjection, stored_projections};

use crate::active::{Active, Pause};
use crate::declared::{Declared, Limits};
use crate::options::{IDLE_PAUSE, RETRY_PAUSE, RunnerOptions, Wake};

/// Runs the declared projections of a database.
///
/// A database has at most one runner at a time.
pub struct Runner {
    db: Database,
    options: RunnerOptions,
    stores: BTreeMap<String, Projections>,
    active: BTreeMap<String, Active>,
    /// Declarations that cannot be run, until they change.
    rejected: BTreeMap<String, StoredProjection>,
    /// Declarations that cannot be read, which were reported.
    damaged: Vec<DamagedProjection>,
    wake: Arc<Wake>,
}

/// A runner in its thread. Dropping it stops the thread after the current batches, and ends running statements.
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
        self.wake.stop();
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
        self.wake.stop();
        self.end_rebuilds();
    }
}

impl Runner {
    /// A runner that applies events when [`Runner::catch_up`] or [`Runner::start`] is called.
    pub fn new(db: Database, options: RunnerOptions) -> Self {
        let (stores, active, rejected) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { db, options, stores, active, rejected, damaged: Vec::new(), wake: Arc::default() }
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

    /// Follows the projections in a thread, until the returned value is dropped. On a node that follows the thread waits
    /// until the node leads.
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
        // A node that follows leaves the projections to its leader. An error: the database stopped.
        if self.db.wait_leading(&wake.stops).is_err() {
            return;
        }
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
                    let pauses = |active: &Active| active.rebuild_pause.lasts() && !active.stored.is_paused;
                    let waited = match self.active.values().any(pauses) {
                        true => self.db.wait_beyond_for(seen, &wake.is_woken, RETRY_PAUSE),
                        false => self.db.wait_beyond(seen, &wake.is_woken),
                    };
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
            if self.wake.stops.load(Ordering::Acquire) {
                break;
            }
            is_busy |= active.finished(&self.db, &self.options);
            if active.rests(&self.db) || active.stored.is_paused {
                continue;
            }
            if active.may_retry {
                match active.retry_parked(&self.db, &self.options) {
                    Ok(is_done) => {
                        active.may_retry = !is_done;
                        is_busy |= !is_done;
                    }
                    Err(error) => active.failed(&self.db, &self.options, &error),
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
        let ListedProjections { readable: stored, damaged } =
            stored_projections(&self.db, &self.db.snapshot())?;
        for one in damaged.iter().filter(|one| !self.damaged.contains(one)) {
            // The other projections continue.
            (self.options.report)(&one.name, &one.error);
        }
        self.damaged = damaged;
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
        self.rejected.retain(|_, rejected| stored.contains(rejected));
        for stored in stored {
            if let Some(active) = self.active.get_mut(&stored.name) {
                if active.stored.requests != stored.requests {
                    (active.has_failed, active.may_retry, active.may_resume) = (false, true, true);
                    active.rebuild_pause.end();
                }
                if stored.wants_rebuild && !active.stored.wants_rebuild {
                    active.rebuild_pause.end();
                }
                active.may_resume |= active.stored.is_paused && !stored.is_paused;
                active.stored = stored;
            } else if !self.rejected.contains_key(&stored.name) {
                let name = stored.name.clone();
                match self.activated(stored.clone()) {
                    Ok(active) => drop(self.active.insert(name, active)),
                    // The other projections continue.
                    Err(error) => {
                        (self.options.report)(&name, &error);
                        self.rejected.insert(name, stored);
                    }
                }
            }
        }
        Ok(())
    }

    /// Registers a declaration.
    fn activated(&mut self, stored: StoredProjection) -> Result<Active, SqlError> {
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
        let limits =
            Limits { stop: self.wake.statements.clone(), statement_time: self.options.statement_time };
        let declared = Arc::new(Declared::new(self.db.clone(), &stored, limits)?);
        projections.register(&stored.name, declared.clone())?;
        Ok(Active {
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
            rebuild_pause: Pause::default(),
        })
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
