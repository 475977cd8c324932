//! Locks, atomics and threads of the log, the store and the engine. A seeded scheduler replaces them under `--cfg shuttle`.
//!
//! Under the scheduler all threads share one thread of the operating system and switch only inside these types. So a lock
//! that is held across a switch must be one of these types: a lock of another library would block every thread.

#[cfg(not(shuttle))]
pub use real::{
    AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, RwLock, WakeWord, hint_switch, thread,
};
#[cfg(shuttle)]
pub use tested::{
    AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, RwLock, WakeWord, hint_switch, thread,
};

#[cfg(not(shuttle))]
mod real {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    use std::sync::atomic::AtomicU32;
    pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use std::thread;

    /// A place where the scheduler may switch threads, for code between two steps that lock nothing. Nothing in a real build.
    #[inline]
    pub fn hint_switch() {}

    /// A word that any number of threads sleep on; waking them is one system call, skipped without sleepers.
    #[derive(Default)]
    pub struct WakeWord {
        word: AtomicU32,
        sleepers: AtomicU32,
    }

    impl WakeWord {
        /// The word's value now; pass it to [`WakeWord::wait`].
        pub fn epoch(&self) -> u32 {
            self.word.load(Ordering::Acquire)
        }

        /// Sleeps while the word still has the value `seen`. May wake early.
        pub fn wait(&self, seen: u32) {
            // SeqCst here and below: a thread that is not counted yet when the word changes sees the change
            // and does not sleep.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            atomic_wait::wait(&self.word, seen);
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }

        /// Changes the word and wakes every sleeper.
        pub fn wake_all(&self) {
            self.word.fetch_add(1, Ordering::SeqCst);
            if self.sleepers.load(Ordering::SeqCst) > 0 {
                atomic_wait::wake_all(&self.word);
            }
        }
    }
}

#[cfg(shuttle)]
mod tested {
    use core::time::Duration;
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use shuttle::thread;
    use std::ops::{Deref, DerefMut};
    use std::sync::{PoisonError, TryLockError};

    /// A place where the scheduler may switch threads, for code between two steps that lock nothing.
    pub fn hint_switch() {
        // Unlike `yield_now`, this does not say that the thread waits for others.
        thread::sleep(Duration::ZERO);
    }

    /// Held until dropped; empty only inside [`Condvar::wait`], because shuttle takes the guard by value.
    pub struct MutexGuard<'a, T>(&'a Mutex<T>, Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.1.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.1.as_mut().expect("held")
        }
    }

    /// As in `parking_lot`, a panic does not poison it.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Unlocked.
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }
        /// Blocks until it is locked.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self, Some(self.locked()))
        }
        /// Locks it unless another thread holds it.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard(self, Some(guard))),
                Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(self, Some(poisoned.into_inner()))),
                Err(TryLockError::WouldBlock) => None,
            }
        }
        fn locked(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// As in `parking_lot`, a panic does not poison it.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Unlocked.
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }
        /// Blocks until it is locked for reading.
        pub fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }
        /// Blocks until it is locked for writing.
        pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// True when a wait ended because of its timeout.
    #[derive(Debug, Clone, Copy)]
    pub struct TimedOut(bool);

    impl TimedOut {
        /// As of `parking_lot`.
        pub fn timed_out(self) -> bool {
            self.0
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// Without waiters.
        pub fn new() -> Self {
            Self::default()
        }
        /// Blocks until it is notified.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.1.take().expect("held");
            guard.1 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
        /// Ends whenever the scheduler lets the thread run again: each timeout may pass before another thread makes a step. Only
        /// a wait of `Duration::MAX` needs its notification.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> TimedOut {
            if timeout == Duration::MAX {
                self.wait(guard);
                return TimedOut(false);
            }
            drop(guard.1.take());
            thread::yield_now();
            guard.1 = Some(guard.0.locked());
            TimedOut(true)
        }
        /// Wakes every waiter.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    #[derive(Default)]
    pub struct WakeWord {
        epoch: Mutex<u32>,
        changed: Condvar,
    }

    impl WakeWord {
        /// The word's value now; pass it to [`WakeWord::wait`].
        pub fn epoch(&self) -> u32 {
            *self.epoch.lock()
        }
        /// Sleeps while the word still has the value `seen`.
        pub fn wait(&self, seen: u32) {
            let mut epoch = self.epoch.lock();
            while *epoch == seen {
                self.changed.wait(&mut epoch);
            }
        }
        /// Changes the word and wakes every sleeper.
        pub fn wake_all(&self) {
            *self.epoch.lock() += 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::{AtomicU64, Ordering, WakeWord};

    #[test]
    fn wait_never_misses_a_change() {
        const TURNS: u64 = 20_000;
        let (word, turn) = (WakeWord::default(), AtomicU64::new(0));
        // Each thread waits for its turns, which the previous thread brings about.
        let wait_for = |wanted: u64| loop {
            let epoch = word.epoch();
            if turn.load(Ordering::Acquire) >= wanted {
                return;
            }
            word.wait(epoch);
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (wait_for, word, turn) = (&wait_for, &word, &turn);
                scope.spawn(move || {
                    for number in (thread..TURNS).step_by(3) {
                        wait_for(number);
                        turn.fetch_add(1, Ordering::AcqRel);
                        word.wake_all();
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), TURNS);
    }
}
