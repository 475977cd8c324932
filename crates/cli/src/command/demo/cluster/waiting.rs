//! Waiting that ends with a signal, so that the demo removes its processes and files.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::command::demo::server::failed;
use crate::output::failure::{Exit, Failure, Result};

/// Longest wait for anything; only to end a hang.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

static IS_SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Notes SIGINT, SIGTERM and SIGHUP from now on, which no longer end the process by themselves.
pub(super) fn note_signals() -> Result {
    let wrong = |error| failed("wait for signals", &error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wrong)?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals = {
        let _context = runtime.enter();
        kinds.into_iter().map(signal).collect::<Result<Vec<_>, _>>().map_err(wrong)?
    };
    std::thread::spawn(move || {
        runtime.block_on(poll_fn(|context| {
            let has_arrived = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if has_arrived { Poll::Ready(()) } else { Poll::Pending }
        }));
        IS_SIGNALLED.store(true, Relaxed);
    });
    Ok(())
}

/// Waits for a signal.
pub(super) fn until_signalled() {
    while !IS_SIGNALLED.load(Relaxed) {
        std::thread::sleep(PAUSE * 10);
    }
}

/// Repeats an attempt until it returns a value.
pub(super) fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if IS_SIGNALLED.load(Relaxed) {
            return Err(Failure::new(Exit::Internal, "the demo was ended by a signal", ""));
        }
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(
                Exit::Internal,
                format!("not within {} s: {what}", PATIENCE.as_secs()),
                "",
            ));
        }
        std::thread::sleep(PAUSE);
    }
}
