//! Work that a separate thread repeats, such as the removal of expired entries.
//!
//! Between two rounds the thread is parked and costs nothing; in particular no commit wakes it. Dropping the [`PeriodicTask`]
//! wakes it and waits for its end.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_base::threads::StoppableThread;

use crate::engine::Engine;
use crate::engine::cluster::Role;

/// A round of work repeated in the background, for as long as this lives.
pub struct PeriodicTask {
    _thread: Option<StoppableThread>,
}

impl PeriodicTask {
    /// Does `work` now and again after each `pause`, in a thread called `name`, until this is dropped or the
    /// engine stops. Long work checks the flag that it gets, and ends early once that is true. A follower leaves the work
    /// to its leader.
    #[must_use]
    pub fn start(
        name: &str,
        engine: Arc<Engine>,
        pause: Duration,
        mut work: impl FnMut(&AtomicBool) + Send + 'static,
    ) -> Self {
        let thread = StoppableThread::spawn(name, move |stops| {
            while !stops.load(Ordering::Acquire) && engine.stopped().is_none() {
                if !matches!(engine.role(), Role::Follower { .. }) {
                    work(stops);
                }
                // May end early, which costs one more round.
                std::thread::park_timeout(pause);
            }
        });
        Self { _thread: thread.ok() }
    }
}
