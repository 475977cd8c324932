//! Waiting for commits to become visible: threads sleep, tasks leave a waker.
//!
//!   publish(seq) ─▶ anybody waiting? (one atomic load) ─no─▶ done
//!                                                      └yes─▶ lock ─▶ notify threads, take the wakers ─▶ wake them
//!
//! No wake-up is lost: a waiter announces itself first (`waiting`, sequentially consistent) and then reads
//! the visible number; a publisher writes the number first and then checks for waiters. So one of the two
//! sees the other.
//!
//! Not here: the awaited condition; the caller reads the visible number.

use core::time::Duration;
use std::collections::BTreeMap;
use std::task::Waker;

use ropewalk_base::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// All waiters for the next publish.
#[derive(Default)]
pub(crate) struct Watch {
    /// Sleeping threads plus registered wakers; a publish checks nothing else while it is zero.
    waiting: AtomicU64,
    tasks: Mutex<Tasks>,
    changed: Condvar,
}

#[derive(Default)]
struct Tasks {
    wakers: BTreeMap<u64, Waker>,
    last_ticket: u64,
}

impl Watch {
    /// Wakes all waiters. Call it after writing the awaited state, sequentially consistent.
    pub(crate) fn wake_all(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let woken = {
            let mut tasks = self.tasks.lock();
            self.changed.notify_all();
            let woken = std::mem::take(&mut tasks.wakers);
            let counted = self.waiting.fetch_sub(woken.len() as u64, Ordering::SeqCst);
            debug_assert!(counted >= woken.len() as u64, "{counted} waiters, but {} wakers", woken.len());
            woken
        };
        // Outside the lock: a waker may run the task at once, and the task may come back here.
        woken.into_values().for_each(Waker::wake);
    }

    /// Sleeps until the next [`Watch::wake_all`], at most `timeout`, unless `done` returns true. May return
    /// early.
    pub(crate) fn sleep(&self, timeout: Duration, done: impl Fn() -> bool) {
        let mut tasks = self.tasks.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if !done() {
            self.changed.wait_for(&mut tasks, timeout);
        }
        let counted = self.waiting.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(
            counted > tasks.wakers.len() as u64,
            "a sleeping thread counts in addition to the wakers"
        );
    }

    /// Registers `waker` for the next [`Watch::wake_all`]. Check the awaited condition again after this.
    /// `ticket` is the place in the list: pass the same one to each call; [`Watch::forget`] removes it.
    pub(crate) fn leave(&self, ticket: &mut Option<u64>, waker: &Waker) {
        let mut tasks = self.tasks.lock();
        let tasks = &mut *tasks;
        let ticket = *ticket.get_or_insert_with(|| {
            tasks.last_ticket += 1;
            tasks.last_ticket
        });
        if tasks.wakers.insert(ticket, waker.clone()).is_none() {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes a waker, if it is still registered.
    pub(crate) fn forget(&self, ticket: u64) {
        if self.tasks.lock().wakers.remove(&ticket).is_some() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, shuttle))]
mod shuttle {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use ::shuttle::{check_random, future, thread};

    use super::*;

    #[derive(Default)]
    struct Published {
        number: AtomicU64,
        watch: Watch,
    }

    struct Beyond {
        published: Arc<Published>,
        number: u64,
        ticket: Option<u64>,
    }

    impl Future for Beyond {
        type Output = u64;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
            let this = &mut *self;
            this.published.watch.leave(&mut this.ticket, context.waker());
            let now = this.published.number.load(Ordering::SeqCst);
            if now > this.number { Poll::Ready(now) } else { Poll::Pending }
        }
    }

    impl Drop for Beyond {
        fn drop(&mut self) {
            self.ticket.into_iter().for_each(|ticket| self.published.watch.forget(ticket));
        }
    }

    /// A lost wake-up would leave a waiter asleep for ever: shuttle reports that as a deadlock.
    #[test]
    fn no_wake_up_is_lost() {
        check_random(
            || {
                let published = Arc::new(Published::default());
                let waiters: Vec<_> = (0..2)
                    .map(|_| {
                        let published = published.clone();
                        thread::spawn(move || {
                            let mut seen = 0;
                            while seen < 2 {
                                let next =
                                    Beyond { published: published.clone(), number: seen, ticket: None };
                                seen = future::block_on(next);
                            }
                        })
                    })
                    .collect();
                let sleeper = {
                    let published = published.clone();
                    thread::spawn(move || {
                        let done = || published.number.load(Ordering::SeqCst) == 2;
                        while !done() {
                            published.watch.sleep(Duration::MAX, done);
                        }
                    })
                };
                for number in 1..=2 {
                    published.number.store(number, Ordering::SeqCst);
                    published.watch.wake_all();
                }
                waiters.into_iter().chain([sleeper]).for_each(|thread| thread.join().unwrap());
                assert_eq!(published.watch.waiting.load(Ordering::SeqCst), 0);
            },
            5_000,
        );
    }
}
