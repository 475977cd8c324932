//! The thread that repeats the upkeep.

use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::park_timeout;

use ropewalk_base::sync::Mutex;
use ropewalk_base::threads::StoppableThread;

use crate::checkpoint::upkeep::{Upkeep, UpkeepDone, UpkeepStatus};

/// Longest wait, so that the end of the database is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// An upkeep in its thread. Dropping it stops the thread after the current step; the database stays open.
pub struct RunningUpkeep {
    /// A copy, so that its readers do not wait for a step.
    status: Arc<Mutex<UpkeepStatus>>,
    thread: StoppableThread,
}

impl Upkeep {
    /// Repeats [`Upkeep::step`] in a thread until the returned value is dropped or the database stops; passes what the steps
    /// did to `notice`, in that thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn run(mut self, mut notice: impl FnMut(UpkeepDone) + Send + 'static) -> io::Result<RunningUpkeep> {
        let status = Arc::new(Mutex::new(self.status().clone()));
        let shown = status.clone();
        let thread = StoppableThread::spawn("rope-checkpoint", move |stops| {
            let clock = self.maker().database().engine().env().clock.clone();
            while !stops.load(Ordering::Acquire) {
                let step = self.step(clock.monotonic_nanos());
                shown.lock().clone_from(self.status());
                step.done.into_iter().for_each(&mut notice);
                if step.again == u64::MAX {
                    return;
                }
                let pause = Duration::from_nanos(step.again.saturating_sub(clock.monotonic_nanos()));
                if !stops.load(Ordering::Acquire) {
                    park_timeout(pause.min(PAUSE_MAX));
                }
            }
        })?;
        Ok(RunningUpkeep { status, thread })
    }
}

impl RunningUpkeep {
    /// State of the upkeep after its last step. Does not wait.
    pub fn status(&self) -> UpkeepStatus {
        self.status.lock().clone()
    }

    /// Stops the thread and waits for its end: for a checkpoint that it is making.
    pub fn stop(self) {
        drop(self.thread);
    }
}
