//! How a running statement is asked to stop: by somebody else, or because its time is up.
//!
//! The session's owner holds a [`Canceller`], from any thread; whoever walks rows looks at the [`Interrupt`] for each of them.
//! A look is one load; the clock is asked every [`ROWS_PER_LOOK`] rows.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropewalk::documents::lang::{Code, LangError};
use ropewalk::promql::Stop;
use ropewalk::{Env, Nudge};

use crate::types::error::{Result, SqlError, state};

/// About what is walked in a tenth of a millisecond.
const ROWS_PER_LOOK: u32 = 256;

/// Cancels what a session is running. Cheap to clone; see [`crate::session::Session::canceller`].
#[derive(Debug, Clone, Default)]
pub struct Canceller(Arc<Wish>);

#[derive(Debug, Default)]
struct Wish {
    is_wanted: AtomicBool,
    /// Whoever waits and is to be woken.
    sleeper: Mutex<Option<Nudge>>,
}

impl Canceller {
    /// Makes the statement that runs now, or begins to before this is noticed, fail with 57014.
    pub fn cancel(&self) {
        let sleeper = self.0.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_wanted.store(true, Ordering::Relaxed);
        if let Some(sleeper) = &*sleeper {
            sleeper.nudge();
        }
    }

    /// Forgets an earlier wish, which came too late for what it was meant for.
    pub fn reset(&self) {
        // Usually there is none. What is not written cannot undo a wish that comes at this moment.
        if self.is_cancelled() {
            self.0.is_wanted.store(false, Ordering::SeqCst);
        }
    }

    /// True when a wish stands.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    /// Wakes this one, too, when a wish comes, or stands already.
    pub(crate) fn wakes(&self, sleeper: Option<Nudge>) {
        let mut slot = self.0.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sleeper) = sleeper.as_ref().filter(|_| self.is_cancelled()) {
            sleeper.nudge();
        }
        *slot = sleeper;
    }
}

/// What a running statement looks at.
#[derive(Debug)]
pub(crate) struct Interrupt {
    asked: Canceller,
    /// By the monotonic clock, nanoseconds.
    deadline: Option<u64>,
    rows: Cell<u32>,
    /// Bytes of values that wait for others of their expression; see [`crate::expr::bounds::Operands`].
    pub(crate) operands: Cell<usize>,
}

impl Interrupt {
    /// For a statement that begins now and may take `millis`; 0 is for ever.
    pub(crate) fn begin(asked: &Canceller, millis: u64, env: &Env) -> Self {
        let time = |millis: u64| env.clock.monotonic_nanos().saturating_add(millis.saturating_mul(1_000_000));
        Self {
            asked: asked.clone(),
            deadline: (millis > 0).then(|| time(millis)),
            rows: Cell::new(0),
            operands: Cell::new(0),
        }
    }

    /// For what is over at once, or is stopped by whoever waits for it.
    pub(crate) fn never() -> Self {
        Self { asked: Canceller::default(), deadline: None, rows: Cell::new(0), operands: Cell::new(0) }
    }

    /// Who may cancel it.
    pub(crate) fn canceller(&self) -> &Canceller {
        &self.asked
    }

    /// The same question for what other crates run, and for other threads.
    pub(crate) fn watch(&self, env: &Env) -> Watch {
        Watch { asked: self.asked.clone(), deadline: self.deadline, env: env.clone() }
    }

    /// How much of its time is left; `None` when it has all there is.
    pub(crate) fn left(&self, env: &Env) -> Option<Duration> {
        let left = self.deadline?.saturating_sub(env.clock.monotonic_nanos());
        Some(Duration::from_nanos(left))
    }

    /// As [`Interrupt::check`], asking the clock every time.
    ///
    /// # Errors
    /// 57014.
    pub(crate) fn check_now(&self, env: &Env) -> Result<()> {
        self.rows.set(ROWS_PER_LOOK - 1);
        self.check(env)
    }

    /// Refuses to go on when that is wanted.
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

/// An [`Interrupt`] that threads may share. It reads the clock at each check, so callers check seldom.
#[derive(Clone)]
pub(crate) struct Watch {
    asked: Canceller,
    deadline: Option<u64>,
    env: Env,
}

impl Watch {
    /// Why the statement ends, if it does.
    fn stop(&self) -> Option<Stop> {
        if self.asked.is_cancelled() {
            return Some(Stop::Cancelled);
        }
        let is_over = self.deadline.is_some_and(|deadline| self.env.clock.monotonic_nanos() > deadline);
        is_over.then_some(Stop::TimedOut)
    }

    /// For PromQL.
    pub(crate) fn query(&self) -> Option<Stop> {
        self.stop()
    }

    /// For documents.
    pub(crate) fn documents(&self) -> std::result::Result<(), LangError> {
        match self.stop() {
            None => Ok(()),
            Some(Stop::Cancelled) => Err(LangError::new(Code::Interrupted, "the statement was cancelled")),
            Some(Stop::TimedOut) => Err(LangError::new(Code::MaxTimeMSExpired, "the statement timed out")),
        }
    }

    /// For SQL.
    ///
    /// # Errors
    /// 57014.
    pub(crate) fn check(&self) -> Result<()> {
        match self.stop() {
            None => Ok(()),
            Some(Stop::Cancelled) => Err(cancelled()),
            Some(Stop::TimedOut) => Err(timed_out()),
        }
    }
}
