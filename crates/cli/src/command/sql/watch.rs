//! A thread that watches statements and the terminal: it displays the run time after a second, cancels a
//! statement on Ctrl-C, and ends the process when the terminal is closed. At the prompt, Ctrl-C is a key of
//! the line editor.
//!
//! SIGHUP usually ends the process, but a process can ignore it (`nohup`). The line editor then reads from the closed
//! terminal in a busy loop and cannot be stopped, so this thread ends the process, after the running statement.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::Database;
use ropewalk_sql::Canceller;

use super::say;
#[cfg(unix)]
use crate::output::failure::Exit;

const TICK: Duration = Duration::from_secs(1);

struct Run {
    canceller: Canceller,
    began: Instant,
    is_shown: bool,
}

#[derive(Default)]
struct Seen {
    run: Option<Run>,
    /// The prompt waits for input.
    is_asking: bool,
    is_gone: bool,
}

#[derive(Clone, Default)]
struct Now(Arc<Mutex<Seen>>);

/// Handle on the watch thread.
pub(crate) struct Watch(Now);

/// Guard of a running statement.
pub(crate) struct Running(Now);

/// Guard of a waiting prompt.
pub(crate) struct Asking(Now);

impl Now {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }
}

impl Watch {
    /// Watches the terminal of standard input. If it closes while the prompt waits, `db` is closed and the
    /// process ends.
    pub(crate) fn new(db: Database) -> Self {
        let now = Now::default();
        let seen = now.clone();
        std::thread::spawn(move || watch(&seen, db));
        Self(now)
    }

    pub(crate) fn begin(&self, canceller: Canceller) -> Running {
        canceller.reset();
        self.0.seen().run = Some(Run { canceller, began: Instant::now(), is_shown: false });
        Running(self.0.clone())
    }

    /// Marks the prompt as waiting; `None` if the terminal is closed.
    pub(crate) fn ask(&self) -> Option<Asking> {
        let mut seen = self.0.seen();
        seen.is_asking = !seen.is_gone;
        seen.is_asking.then(|| Asking(self.0.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.seen().run.take().is_some_and(|run| run.is_shown) {
            say("\r\x1b[K", "");
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.seen().is_asking = false;
    }
}

fn watch(now: &Now, db: Database) {
    // If this fails, no run time is displayed, and Ctrl-C ends the program.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        #[cfg(unix)]
        drop(tokio::spawn(end_with_terminal(now.clone(), db)));
        #[cfg(not(unix))]
        drop(db);
        let mut pressed = Box::pin(tokio::signal::ctrl_c());
        loop {
            match tokio::time::timeout(TICK, &mut pressed).await {
                Ok(Err(_)) => return,
                Ok(Ok(())) => {
                    if let Some(run) = &now.seen().run {
                        run.canceller.cancel();
                    }
                    pressed = Box::pin(tokio::signal::ctrl_c());
                }
                Err(_) => {
                    if let Some(run) = now.seen().run.as_mut().filter(|run| run.began.elapsed() >= TICK) {
                        say(&format!("\r{} s; Ctrl-C cancels\x1b[K", run.began.elapsed().as_secs()), "");
                        run.is_shown = true;
                    }
                }
            }
        }
    });
}

/// Waits until the terminal closes, and ends the process if the prompt waits.
#[cfg(unix)]
async fn end_with_terminal(now: Now, db: Database) {
    if hung_up().await.is_err() {
        return;
    }
    let mut seen = now.seen();
    seen.is_gone = true;
    if seen.is_asking {
        // The lock prevents new statements. An open transaction is rolled back, as with Ctrl-D.
        let code = if db.close().is_ok() { 0 } else { Exit::Io as i32 };
        std::process::exit(code);
    }
}

/// Resolves when the terminal closes. Keys wake it and remain unread.
#[cfg(unix)]
#[expect(deprecated, reason = "the other ways are unsafe; this one is sound for a descriptor that is owned")]
async fn hung_up() -> std::io::Result<()> {
    use std::os::fd::AsFd as _;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    let terminal = std::io::stdin().as_fd().try_clone_to_owned()?;
    let terminal = AsyncFd::with_interest(terminal, Interest::READABLE)?;
    loop {
        let mut ready = terminal.readable().await?;
        if ready.ready().is_read_closed() {
            return Ok(());
        }
        ready.clear_ready();
    }
}
