//! How a running statement is asked to stop: by somebody else, or because its time is up.
//!
//! The session's owner holds a [`Canceller`], from any thread; whoever walks rows looks at the [`Interrupt`] for each of them.
//! A look is one load; the clock is asked every [`ROWS_PER_LOOK`] rows.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk::Env;

use crate::error::{Result, SqlError, state};

/// About what is walked in a tenth of a millisecond.
const ROWS_PER_LOOK: u32 = 256;

/// Cancels what a session is running. Cheap to clone; see [`crate::Session::canceller`].
#[derive(Debug, Clone, Default)]
pub struct Canceller(Arc<AtomicBool>);

impl Canceller {
    /// Makes the statement that runs now, or begins to before this is noticed, fail with 57014.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Forgets an earlier wish, which came too late for what it was meant for.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// True when a wish stands.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a running statement looks at.
#[derive(Debug)]
pub(crate) struct Interrupt {
    asked: Canceller,
    /// By the monotonic clock, nanoseconds.
    deadline: Option<u64>,
    rows: Cell<u32>,
}

impl Interrupt {
    /// For a statement that begins now and may take `millis`; 0 is for ever.
    pub(crate) fn begin(asked: &Canceller, millis: u64, env: &Env) -> Self {
        let time = |millis: u64| env.clock.monotonic_nanos().saturating_add(millis.saturating_mul(1_000_000));
        Self { asked: asked.clone(), deadline: (millis > 0).then(|| time(millis)), rows: Cell::new(0) }
    }

    /// For what is over at once, or is stopped by whoever waits for it.
    pub(crate) fn never() -> Self {
        Self { asked: Canceller::default(), deadline: None, rows: Cell::new(0) }
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
            return Err(SqlError::new(state::QUERY_CANCELED, "canceling statement due to user request"));
        }
        let Some(deadline) = self.deadline else { return Ok(()) };
        let rows = self.rows.get().wrapping_add(1);
        self.rows.set(rows);
        if rows.is_multiple_of(ROWS_PER_LOOK) && env.clock.monotonic_nanos() > deadline {
            return Err(SqlError::new(state::QUERY_CANCELED, "canceling statement due to statement timeout"));
        }
        Ok(())
    }
}
