//! Waits for a future on the calling thread, until a deadline.
//!
//! A runtime's `block_on` panics inside of a task; this wait does not, and it needs no timer for its deadline.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use ropewalk_base::threads::unparking_waker;

/// Waits until `future` is ready; `None` when `deadline` passed before. Polls it at least once.
pub(crate) fn wait_until<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = unparking_waker();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::time::Duration;

    use super::*;

    #[test]
    fn ready_future_is_returned_after_the_deadline_too() {
        assert_eq!(wait_until(future::ready(7), Instant::now()), Some(7));
    }

    #[test]
    fn pending_future_ends_at_the_deadline() {
        let deadline = Instant::now() + Duration::from_millis(20);
        assert_eq!(wait_until(future::pending::<()>(), deadline), None);
        assert!(Instant::now() >= deadline);
    }

    #[test]
    fn wake_from_another_thread_ends_the_wait() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            sender.send(7)
        });
        assert_eq!(wait_until(receiver, Instant::now() + Duration::from_secs(60)), Some(Ok(7)));
        assert_eq!(sending.join().unwrap(), Ok(()));
    }
}
