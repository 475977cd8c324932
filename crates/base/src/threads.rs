//! Threads that others wake and stop.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{Builder, JoinHandle, Thread, current};

/// A thread that watches a flag. Dropping it sets the flag, wakes the thread, and waits for its end.
pub struct StoppableThread {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StoppableThread {
    /// Calls `run` in a thread called `name`. It returns soon after the flag is set.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn(name: &str, run: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<Self> {
        let stops = Arc::new(AtomicBool::new(false));
        let stopping = stops.clone();
        let thread = Builder::new().name(name.to_owned()).spawn(move || run(&stopping))?;
        Ok(Self { stops, thread: Some(thread) })
    }
}

impl Drop for StoppableThread {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was reported by its hook.
            let _ = thread.join();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks the calling thread, for a thread that polls a future and parks in between.
pub fn unparking_waker() -> Waker {
    Waker::from(Arc::new(Unpark(current())))
}

/// The message of a panic that was caught.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied())
}
