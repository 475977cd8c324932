//! Waiting for commits in a thread that another thread may stop.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::future::Future as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;

use ropewalk_base::Seq;

use crate::database::Database;
use crate::error::Error;

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Database {
    /// Blocks until a commit after `seq` is visible, or `stop` is set.
    ///
    /// A thread that sets `stop` must then unpark this one. The thread does not wake without a commit.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn wait_beyond(&self, seq: Seq, stop: &AtomicBool) -> Result<(), Error> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut visible = pin!(self.wait_visible_after(seq));
        while !stop.load(Ordering::Acquire) {
            match visible.as_mut().poll(&mut context) {
                Poll::Ready(seen) => return Ok(seen.map(|_| ())?),
                Poll::Pending => std::thread::park(),
            }
        }
        Ok(())
    }

    /// Blocks until this node may write, or `stop` is set.
    ///
    /// A thread that sets `stop` must then unpark this one.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn wait_leading(&self, stop: &AtomicBool) -> Result<(), Error> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut leading = pin!(self.until_leading());
        while !stop.load(Ordering::Acquire) {
            match leading.as_mut().poll(&mut context) {
                Poll::Ready(begun) => return begun,
                Poll::Pending => std::thread::park(),
            }
        }
        Ok(())
    }

    /// Same as [`Database::wait_beyond`], for about `timeout` at most. It may return early.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn wait_beyond_for(&self, seq: Seq, stop: &AtomicBool, timeout: Duration) -> Result<(), Error> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut visible = pin!(self.wait_visible_after(seq));
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        match visible.as_mut().poll(&mut context) {
            Poll::Ready(seen) => Ok(seen.map(|_| ())?),
            Poll::Pending => {
                std::thread::park_timeout(timeout);
                Ok(())
            }
        }
    }
}
