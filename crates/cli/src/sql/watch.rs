//! While a statement runs: after a second how long it has been, and Ctrl-C cancels it. At the prompt Ctrl-C is a key like others.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk_sql::Canceller;

const TICK: Duration = Duration::from_secs(1);

struct Run {
    canceller: Canceller,
    began: Instant,
    is_shown: bool,
}

#[derive(Clone, Default)]
struct Now(Arc<Mutex<Option<Run>>>);

/// A thread that watches what runs.
pub(crate) struct Watch(Now);

/// A statement that runs, until the value is gone.
pub(crate) struct Running(Now);

impl Now {
    fn run(&self) -> MutexGuard<'_, Option<Run>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }
}

impl Watch {
    pub(crate) fn new() -> Self {
        let now = Now::default();
        let seen = now.clone();
        std::thread::spawn(move || watch(&seen));
        Self(now)
    }

    pub(crate) fn begin(&self, canceller: Canceller) -> Running {
        canceller.reset();
        *self.0.run() = Some(Run { canceller, began: Instant::now(), is_shown: false });
        Running(self.0.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.run().take().is_some_and(|run| run.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

fn watch(now: &Now) {
    // Without it there is no progress, and Ctrl-C ends the program, as it does elsewhere.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let mut pressed = Box::pin(tokio::signal::ctrl_c());
        loop {
            match tokio::time::timeout(TICK, &mut pressed).await {
                Ok(Err(_)) => return,
                Ok(Ok(())) => {
                    if let Some(run) = &*now.run() {
                        run.canceller.cancel();
                    }
                    pressed = Box::pin(tokio::signal::ctrl_c());
                }
                Err(_) => {
                    if let Some(run) = now.run().as_mut().filter(|run| run.began.elapsed() >= TICK) {
                        eprint!("\r{} s; Ctrl-C cancels\x1b[K", run.began.elapsed().as_secs());
                        run.is_shown = true;
                    }
                }
            }
        }
    });
}
