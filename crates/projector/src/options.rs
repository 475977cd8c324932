//! Options of a runner, and the signals to its thread.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;
use ropewalk::Durability;
use ropewalk_sql::Canceller;

/// Pause after an error that is not about an event.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a commit while there are no projections, so that not every commit wakes the thread.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(20);
/// Default of [`RunnerOptions::statement_time`].
const STATEMENT_TIME: Duration = Duration::from_secs(30);

/// Receives the name of a projection and its error.
pub type Report = Arc<dyn Fn(&str, &dyn std::error::Error) + Send + Sync>;

/// Batch size, durability, limits and error reports of a runner.
#[derive(Clone)]
pub struct RunnerOptions {
    /// Most events of one commit.
    pub batch_events: usize,
    /// Durability of a commit that reaches the head of the store. With [`Durability::Sync`], earlier batches of a
    /// catch-up or a rebuild are buffered: a power cut only repeats their work.
    pub durability: Durability,
    /// Most time of one statement for one event. The event of a longer one cannot be applied.
    pub statement_time: Duration,
    /// Receives errors; the failing event of a projection is also stored.
    pub report: Report,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            batch_events: 5_000,
            durability: Durability::Sync,
            statement_time: STATEMENT_TIME,
            report: Arc::new(|_, _| {}),
        }
    }
}

/// Wakes the thread of a runner, and stops it.
#[derive(Default)]
pub(crate) struct Wake {
    pub(crate) stops: AtomicBool,
    /// Of all statements.
    pub(crate) statements: Canceller,
    pub(crate) is_woken: AtomicBool,
    pub(crate) thread: Mutex<Option<Thread>>,
}

impl Wake {
    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.statements.cancel();
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}
