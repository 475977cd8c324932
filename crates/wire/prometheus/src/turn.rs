//! Turns: how many questions are worked on at one time, and for how long without a break.
//!
//!   question ─▶ waits for a turn ─▶ works for a slice ─▶ others wait? to the end of the queue ─▶ works on … ─▶ done
//!
//! There are as many turns as processors. A question that takes long passes its turn on every few milliseconds, so that a short
//! one waits for a slice and not for the whole of it, and what writes finds a processor.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a question works before others have their turn.
const SLICE: Duration = Duration::from_millis(2);

/// A turn that is passed on. Lives on a thread that may block.
pub(crate) struct Turn {
    turns: Arc<Semaphore>,
    held: RefCell<Option<OwnedSemaphorePermit>>,
    since: Cell<Instant>,
}

impl Turn {
    pub(crate) fn new(turns: Arc<Semaphore>, held: Option<OwnedSemaphorePermit>) -> Self {
        Self { turns, held: RefCell::new(held), since: Cell::new(Instant::now()) }
    }

    /// Lets others work when the slice is over; returns when it is our turn again. Those who wait are served in their order.
    pub(crate) fn pass(&self) {
        if self.since.get().elapsed() < SLICE {
            return;
        }
        drop(self.held.take());
        // The semaphore is never closed.
        *self.held.borrow_mut() = Handle::current().block_on(self.turns.clone().acquire_owned()).ok();
        self.since.set(Instant::now());
    }
}
