//! Threads that let others finish.
//!
//! A thread that is woken usually takes the processor from the one that runs. When a client's thread speaks for several connections, it
//! loses the processor with its first message, and each message is served by itself. Threads scheduled as batches wait until whoever
//! runs sleeps or has had its time: then several messages are there, and are served with one wake. See docs/decisions/0022.
#![allow(unsafe_code)]

use std::io;

/// Schedules this thread, and those that it starts, as batches.
///
/// # Errors
/// The system's.
pub(crate) fn let_others_finish() -> io::Result<()> {
    // SAFETY: the structure is of numbers alone, for which zero is a value.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the system reads the parameters, which live until it has answered; 0 is this thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of this thread, as the system tells it.
    fn policy() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The second field is a name in brackets, which may hold spaces; the policy is the 41st.
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn the_system_knows() {
        let asked = std::thread::spawn(|| {
            assert_eq!(policy(), libc::SCHED_OTHER);
            let_others_finish().unwrap();
            (policy(), std::thread::spawn(policy).join().unwrap())
        });
        assert_eq!(asked.join().unwrap(), (libc::SCHED_BATCH, libc::SCHED_BATCH));
    }
}
