//! Reads as streams: one snapshot, one batch in memory, short work inline, long work off the async threads.
//!
//! A batch begins on the caller's thread. When it has taken [`INLINE`] the rest of it, and the batches after
//! it, run where blocking is allowed, at most [`crate::Limits::long_reads`] at once. Dropping the reading
//! ends it.

use core::ops::ControlFlow;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ropewalk::Position;
use ropewalk::events::{EventReader, SequencedEventRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::calls::blocking::run_unpinned;
use crate::error::Result;
use crate::metrics::Metrics;

/// Work up to this long may occupy an async thread: about the time of a small query, far below what another
/// request would notice.
pub(crate) const INLINE: Duration = Duration::from_millis(1);

/// Events between two checks of the clock: a check costs as much as visiting an event in place.
const EVENTS_PER_LOOK: usize = 16;

/// Runs `work` as blocking work, with one of the permits `turns`.
pub(crate) async fn off_thread<R>(turns: &Semaphore, work: impl FnOnce() -> R) -> R {
    // The semaphore is never closed; if it were, running without a permit would still be correct.
    let _turn = turns.acquire().await.ok();
    run_unpinned(work)
}

/// An open read. See [`crate::Service::read`].
pub struct Reading {
    pub(crate) reader: EventReader,
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) metrics: Arc<Metrics>,
    /// The last batch was long.
    pub(crate) long: bool,
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.metrics.reads.fetch_sub(1, Relaxed);
    }
}

impl Reading {
    /// Last position of the store at the read's snapshot, matching or not; `None` when it was empty.
    pub fn head(&self) -> Option<Position> {
        self.reader.head()
    }

    /// Visits further events until there were `max_events`, or `max_bytes` of them as stored, or no more: at
    /// least one if there is one. False once everything was visited.
    ///
    /// # Errors
    /// Corruption.
    pub async fn next(
        &mut self,
        max_events: usize,
        max_bytes: usize,
        mut visit: impl FnMut(&SequencedEventRef<'_>) + Send,
    ) -> Result<bool> {
        let (mut events, mut bytes) = (0, 0);
        let mut until = Some(Instant::now() + INLINE).filter(|_| !self.long);
        loop {
            let reader = &mut self.reader;
            let started = Instant::now();
            let mut slice = || {
                reader.visit_while(max_events.max(1) - events, |event| {
                    visit(event);
                    events += 1;
                    bytes += event.stored_bytes();
                    let look = events % EVENTS_PER_LOOK == 0;
                    let late = look && until.is_some_and(|until| Instant::now() > until);
                    if bytes >= max_bytes || late {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            };
            let visited = match until {
                Some(_) => slice(),
                None => off_thread(&self.turns, slice).await,
            };
            self.metrics.events_read.fetch_add(visited? as u64, Relaxed);
            self.long = started.elapsed() > INLINE;
            if self.reader.ended() {
                return Ok(false);
            }
            if events >= max_events || bytes >= max_bytes {
                return Ok(true);
            }
            until = None;
        }
    }
}
