//! Whether this node may write, and waiting until it may.
//!
//! ```text
//! alone ────▶ leads from the opening on
//! follower ─▶ campaign won ─▶ Database::begin_leading ─▶ leads ─▶ another node leads: the engine stops
//! ```
//! A database does not return from leading to following: the engine of a deposed leader stops, and its owner opens the
//! database again. So work of the leader waits once, and ends with the errors of the engine.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ropewalk_engine::{EngineError, EngineStopped, Role};

use crate::database::Database;
use crate::error::{Error, Result};

/// The beginning of leading, and those who wait for it.
#[derive(Default)]
pub(crate) struct Leading {
    has_begun: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Leading {
    /// That of a database which is alone: it leads already.
    pub(crate) fn of(role: &Role) -> Self {
        Self { has_begun: AtomicBool::new(matches!(role, Role::Alone)), waiting: Mutex::default() }
    }

    fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Lets the waiters continue.
    pub(crate) fn begin(&self) {
        // Under the lock, so that no waiter checks before this and registers after it.
        let mut waiting = self.waiting.lock();
        self.has_begun.store(true, Ordering::Release);
        let woken = std::mem::take(&mut *waiting);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Registers a waiter; false if leading has begun.
    fn register(&self, waker: &Waker) -> bool {
        let mut waiting = self.waiting.lock();
        if self.has_begun() {
            return false;
        }
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        true
    }
}

impl Database {
    /// True when this node may write: it is alone, or leads and has called [`Database::begin_leading`].
    ///
    /// One atomic load. Also true after the engine has stopped.
    pub fn leads(&self) -> bool {
        self.leading.has_begun()
    }

    /// A future that resolves once this node may write; at once if it may.
    ///
    /// It resolves to an error if the engine stops. It needs no thread and no polling.
    pub fn until_leading(&self) -> UntilLeading {
        UntilLeading { db: self.clone(), stopped: self.engine.until_stopped() }
    }

    /// Completes builds of indexes that were interrupted, such as by the end of the leader before; returns their number.
    ///
    /// It may take long: run it next to other work of a new leader.
    ///
    /// # Errors
    /// The first index that cannot be completed, because rows or documents violate its rules; it is dropped.
    pub fn resume_index_builds(&self) -> Result<usize> {
        Ok(self.tables.resume_builds()? + self.documents.resume_builds()?)
    }

    /// The error of a write on a node that may not write.
    pub fn not_leader(&self) -> Error {
        let leader = match self.engine.role() {
            Role::Follower { leader } => leader,
            Role::Alone | Role::Leader { .. } => None,
        };
        EngineError::NotLeader { leader }.into()
    }
}

/// Resolves once this node may write. See [`Database::until_leading`].
pub struct UntilLeading {
    db: Database,
    stopped: EngineStopped,
}

impl Future for UntilLeading {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.db.leading.register(context.waker()) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stopped).poll(context).map(|error| Err(error.into()))
    }
}
