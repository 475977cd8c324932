//! Threads pinned to one processor, except for long work.
//!
//! A thread that serves many short requests is best where their packets arrive, and where its data is cached.
//! Long work is best on any free processor: it must not wait for its own while another is idle.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;

use system::Set;

/// A set of the machine's first 1,024 processors.
#[derive(Clone, Copy)]
pub struct Processors(Set);

impl Processors {
    /// The processors on which this thread may run.
    ///
    /// # Errors
    /// The system's; it may not support the call.
    pub fn allowed() -> io::Result<Self> {
        system::allowed().map(Self)
    }

    /// Their numbers, ascending.
    pub fn numbers(&self) -> Vec<usize> {
        system::numbers(&self.0)
    }
}

#[derive(Clone, Copy)]
struct PinnedCpu {
    here: Set,
    elsewhere: Set,
}

thread_local! {
    static HOME: Cell<Option<PinnedCpu>> = const { Cell::new(None) };
}

/// Pins this thread to a processor. Work in [`crate::run_unpinned`] may run on all of `others`, as may threads
/// that are started there.
///
/// # Errors
/// The system's; the thread is then not pinned.
pub fn pin_to_cpu(processor: usize, others: Processors) -> io::Result<()> {
    let here = system::only(processor)?;
    system::allow(&here)?;
    HOME.set(Some(PinnedCpu { here, elsewhere: others.0 }));
    Ok(())
}

/// Runs `work` on any processor, and returns to the pinned one.
pub(crate) fn roaming<R>(work: impl FnOnce() -> R) -> R {
    let home = HOME.get().filter(|home| system::allow(&home.elsewhere).is_ok());
    let _back = home.map(|home| RestoreAffinity(home.here));
    work()
}

struct RestoreAffinity(Set);

impl Drop for RestoreAffinity {
    fn drop(&mut self) {
        // The processor was allowed before. If it no longer is, the thread stays unpinned.
        let _ = system::allow(&self.0);
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;

    pub(super) type Set = libc::cpu_set_t;

    const COUNT: usize = libc::CPU_SETSIZE as usize;

    fn none() -> Set {
        // SAFETY: the set consists of numbers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    pub(super) fn allowed() -> io::Result<Set> {
        let mut set = none();
        // SAFETY: the size passed is that of the set that the system writes; 0 is this thread.
        let answer = unsafe { libc::sched_getaffinity(0, size_of::<Set>(), &raw mut set) };
        if answer == 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
    }

    /// Moves this thread to these processors; the set is not empty.
    pub(super) fn allow(set: &Set) -> io::Result<()> {
        // SAFETY: the system reads the set, which lives until the call returns; 0 is this thread.
        let answer = unsafe { libc::sched_setaffinity(0, size_of::<Set>(), set) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn only(processor: usize) -> io::Result<Set> {
        if processor >= COUNT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut set = none();
        // SAFETY: the number is one of those that a set has room for.
        unsafe { libc::CPU_SET(processor, &mut set) };
        Ok(set)
    }

    pub(super) fn numbers(set: &Set) -> Vec<usize> {
        // SAFETY: these are the numbers that a set has room for.
        (0..COUNT).filter(|&processor| unsafe { libc::CPU_ISSET(processor, set) }).collect()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    pub(super) type Set = ();

    pub(super) fn allowed() -> io::Result<Set> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn allow(_: &Set) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn only(_: usize) -> io::Result<Set> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn numbers(_: &Set) -> Vec<usize> {
        Vec::new()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn here() -> Vec<usize> {
        Processors::allowed().unwrap().numbers()
    }

    #[test]
    fn pinned_thread_may_leave_its_processor_for_long_work() {
        let all = Processors::allowed().unwrap();
        let last = *all.numbers().last().unwrap();
        let stays = std::thread::spawn(move || {
            pin_to_cpu(last, all).unwrap();
            assert_eq!(here(), [last]);
            assert_eq!(roaming(|| std::thread::spawn(here).join().unwrap()), all.numbers());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            assert_eq!(runtime.block_on(async { crate::run_unpinned(here) }), all.numbers());
            assert!(std::panic::catch_unwind(|| roaming(|| panic!("in the middle"))).is_err());
            here()
        });
        assert_eq!(stays.join().unwrap(), [last]);
        assert_eq!(roaming(here), all.numbers(), "a thread that stays nowhere");
    }

    #[test]
    fn missing_processor_is_an_error() {
        for processor in [1_000_000, libc::CPU_SETSIZE as usize - 1] {
            let all = Processors::allowed().unwrap();
            if !all.numbers().contains(&processor) {
                pin_to_cpu(processor, all).unwrap_err();
                assert_eq!(here(), all.numbers());
            }
        }
    }
}
