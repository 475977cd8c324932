//! Disables transparent huge pages.
//!
//! With transparent huge pages the kernel clears two megabytes at the first touch of one of their bytes. A
//! server that grows ten thousand small columns touches little of each: clearing took a fifth of its
//! processor time under writes, and resident memory doubled.
#![allow(unsafe_code)]

use std::io;

/// Disables huge pages for this process and its children.
///
/// # Errors
/// The kernel does not support the option.
pub(crate) fn stay_small() -> io::Result<()> {
    let (yes, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: this request takes numbers alone; no memory of ours is read or written.
    let answer = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, yes, none, none, none) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_reports_disabled_huge_pages() {
        stay_small().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("THP_enabled:"));
        assert!(line.is_none_or(|line| line.ends_with('0')), "{line:?}");
    }
}
