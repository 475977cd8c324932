//! Interruption of a running statement, by a cancel request or a timeout.
//!
//! The session's owner holds a [`Canceller`], which any thread may use. Scans check the [`Interrupt`] for
//! each row. A check is one atomic load; the clock is read every [`ROWS_PER_LOOK`] rows.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropewalk::documents::lang::{Code, LangError};
use ropewalk::engine::Env;
use ropewalk::hooks::LockWaitWaker;
use ropewalk::promql::StopReason;

use crate::error::{Result, SqlError, state};

/// Approximate number of rows scanned in 0.1 ms.
const ROWS_PER_LOOK: u32 = 256;

/// Cancels what a session is running. Cheap to clone; see [`crate::session::Session::canceller`].
#[derive(Debug, Clone, Default)]
pub struct Canceller(Arc<Wish>);

#[derive(Debug, Default)]
struct Wish {
    is_wanted: AtomicBool,
    /// The waiting statement to wake on a cancel request.
    sleeper: Mutex<Option<LockWaitWaker>>,
}

impl Canceller {
    /// Makes the running statement fail with 57014, or the next one if it starts before this request is
    /// checked.
    pub fn cancel(&self) {
        let sleeper = self.0.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_wanted.store(true, Ordering::Relaxed);
        if let Some(sleeper) = &*sleeper {
            sleeper.wake();
        }
    }

    /// Clears a cancel request that arrived after the statement it was meant for.
    pub fn reset(&self) {
        // Skip the store when no request is pending, so that it cannot erase a concurrent one.
        if self.is_cancelled() {
            self.0.is_wanted.store(false, Ordering::SeqCst);
        }
    }

    /// True if a cancel request is pending.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    /// Sets the waiting statement to wake on a cancel request. Wakes it at once if one is pending.
    pub(crate) fn wakes(&self, sleeper: Option<LockWaitWaker>) {
        let mut slot = self.0.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sleeper) = sleeper.as_ref().filter(|_| self.is_cancelled()) {
            sleeper.wake();
        }
        *slot = sleeper;
    }
}

/// The cancel request and the deadline of a running statement.
#[derive(Debug)]
pub(crate) struct Interrupt {
    asked: Canceller,
    /// Monotonic clock, nanoseconds.
    deadline: Option<u64>,
    rows: Cell<u32>,
    /// Bytes of operands that wait for others of their expression; see [`crate::expr::bounds::Operands`].
    pub(crate) operands: Cell<usize>,
}

impl Interrupt {
    /// Starts the time limit of a statement; 0 milliseconds is unlimited.
    pub(crate) fn begin(asked: &Canceller, millis: u64, env: &Env) -> Self {
        let time = |millis: u64| env.clock.monotonic_nanos().saturating_add(millis.saturating_mul(1_000_000));
        Self {
            asked: asked.clone(),
            deadline: (millis > 0).then(|| time(millis)),
            rows: Cell::new(0),
            operands: Cell::new(0),
        }
    }

    /// For work that ends at once, or that its caller stops.
    pub(crate) fn never() -> Self {
        Self { asked: Canceller::default(), deadline: None, rows: Cell::new(0), operands: Cell::new(0) }
    }

    /// The canceller of the statement.
    pub(crate) fn canceller(&self) -> &Canceller {
        &self.asked
    }

    /// A [`Watch`] with the same limits, for other crates and threads.
    pub(crate) fn watch(&self, env: &Env) -> Watch {
        Watch { asked: self.asked.clone(), deadline: self.deadline, env: env.clone() }
    }

    /// The remaining time; `None` without a time limit.
    pub(crate) fn left(&self, env: &Env) -> Option<Duration> {
        let left = self.deadline?.saturating_sub(env.clock.monotonic_nanos());
        Some(Duration::from_nanos(left))
    }

    /// As [`Interrupt::check`], but always reads the clock.
    ///
    /// # Errors
    /// 57014.
    pub(crate) fn check_now(&self, env: &Env) -> Result<()> {
        self.rows.set(ROWS_PER_LOOK - 1);
        self.check(env)
    }

    /// Fails if the statement was cancelled or its time is over.
    ///
    /// # Errors
    /// 57014.
    pub(crate) fn check(&self, env: &Env) -> Result<()> {
        if self.asked.is_cancelled() {
            return Err(cancelled());
        }
        let Some(deadline) = self.deadline else { return Ok(()) };
        let rows = self.rows.get().wrapping_add(1);
        self.rows.set(rows);
        if rows.is_multiple_of(ROWS_PER_LOOK) && env.clock.monotonic_nanos() > deadline {
            return Err(timed_out());
        }
        Ok(())
    }
}

fn cancelled() -> SqlError {
    SqlError::new(state::QUERY_CANCELED, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(state::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// An [`Interrupt`] that threads may share. Each check reads the clock, so call it rarely.
#[derive(Clone)]
pub(crate) struct Watch {
    asked: Canceller,
    deadline: Option<u64>,
    env: Env,
}

impl Watch {
    /// The reason to stop the statement, if any.
    fn stop(&self) -> Option<StopReason> {
        if self.asked.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        let is_over = self.deadline.is_some_and(|deadline| self.env.clock.monotonic_nanos() > deadline);
        is_over.then_some(StopReason::TimedOut)
    }

    /// For PromQL.
    pub(crate) fn query(&self) -> Option<StopReason> {
        self.stop()
    }

    /// For documents.
    pub(crate) fn documents(&self) -> std::result::Result<(), LangError> {
        match self.stop() {
            None => Ok(()),
            Some(StopReason::Cancelled) => {
                Err(LangError::new(Code::Interrupted, "the statement was cancelled"))
            }
            Some(StopReason::TimedOut) => {
                Err(LangError::new(Code::MaxTimeMSExpired, "the statement timed out"))
            }
        }
    }

    /// For SQL.
    ///
    /// # Errors
    /// 57014.
    pub(crate) fn check(&self) -> Result<()> {
        match self.stop() {
            None => Ok(()),
            Some(StopReason::Cancelled) => Err(cancelled()),
            Some(StopReason::TimedOut) => Err(timed_out()),
        }
    }
}
