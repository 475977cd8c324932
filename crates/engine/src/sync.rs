//! The locks and atomics of the commit pipeline, so that the model checker can take their place (`--cfg shuttle`).

#[cfg(not(shuttle))]
pub(crate) use real::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, WakeWord};
#[cfg(shuttle)]
pub(crate) use tested::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, WakeWord};

#[cfg(not(shuttle))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    use std::sync::atomic::AtomicU32;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// One word that any number of threads sleep on and one system call wakes, which is left out while nobody sleeps.
    #[derive(Default)]
    pub(crate) struct WakeWord {
        word: AtomicU32,
        sleepers: AtomicU32,
    }

    impl WakeWord {
        /// The word's value now; pass it to [`WakeWord::wait`].
        pub(crate) fn epoch(&self) -> u32 {
            self.word.load(Ordering::Acquire)
        }

        /// Sleeps while the word still has the value `seen`. May wake early.
        pub(crate) fn wait(&self, seen: u32) {
            // SeqCst here and below: who is not counted yet when the word changes finds it changed, and does not sleep.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            atomic_wait::wait(&self.word, seen);
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }

        /// Changes the word and wakes every sleeper.
        pub(crate) fn wake_all(&self) {
            self.word.fetch_add(1, Ordering::SeqCst);
            if self.sleepers.load(Ordering::SeqCst) > 0 {
                atomic_wait::wake_all(&self.word);
            }
        }
    }
}

#[cfg(shuttle)]
mod tested {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::ops::{Deref, DerefMut};

    /// Held until dropped; empty only inside [`Condvar::wait`], because shuttle's takes the guard by value.
    pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("held")
        }
    }

    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("no panics in tests")))
        }
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("held");
            guard.0 = Some(self.0.wait(held).expect("no panics in tests"));
        }
        /// Time does not pass under the model checker: only a notification ends this wait.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: core::time::Duration) {
            self.wait(guard);
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    #[derive(Default)]
    pub(crate) struct WakeWord {
        epoch: Mutex<u32>,
        changed: Condvar,
    }

    impl WakeWord {
        pub(crate) fn epoch(&self) -> u32 {
            *self.epoch.lock()
        }
        pub(crate) fn wait(&self, seen: u32) {
            let mut epoch = self.epoch.lock();
            while *epoch == seen {
                self.changed.wait(&mut epoch);
            }
        }
        pub(crate) fn wake_all(&self) {
            *self.epoch.lock() += 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::{AtomicU64, Ordering, WakeWord};

    #[test]
    fn nobody_sleeps_through_a_change() {
        const TURNS: u64 = 20_000;
        let (word, turn) = (WakeWord::default(), AtomicU64::new(0));
        // Each waits for its turns, which the one before it brings about.
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
