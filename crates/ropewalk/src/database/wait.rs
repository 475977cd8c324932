//! Waiting for commits in a thread that another thread may stop.

use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_base::Seq;
use ropewalk_base::threads::unparking_waker;

use crate::database::Database;
use crate::error::Result;

impl Database {
    /// Blocks until a commit after `seq` is visible, or `stop` is set.
    ///
    /// A thread that sets `stop` must then unpark this one. The thread does not wake without a commit.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn wait_beyond(&self, seq: Seq, stop: &AtomicBool) -> Result<()> {
        let seen = wait_until_stopped(self.wait_visible_after(seq), stop);
        Ok(seen.transpose().map(|_| ())?)
    }

    /// Blocks until this node may write, or `stop` is set.
    ///
    /// A thread that sets `stop` must then unpark this one.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn wait_leading(&self, stop: &AtomicBool) -> Result<()> {
        wait_until_stopped(self.until_leading(), stop).unwrap_or(Ok(()))
    }

    /// Same as [`Database::wait_beyond`], for about `timeout` at most. It may return early.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn wait_beyond_for(&self, seq: Seq, stop: &AtomicBool, timeout: Duration) -> Result<()> {
        let waker = unparking_waker();
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

/// The output of `future`; `None` when `stop` is set before.
fn wait_until_stopped<F: Future>(future: F, stop: &AtomicBool) -> Option<F::Output> {
    let waker = unparking_waker();
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    while !stop.load(Ordering::Acquire) {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return Some(output),
            Poll::Pending => std::thread::park(),
        }
    }
    None
}
