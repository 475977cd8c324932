//! Identifies the runs of one flush, for readers and compaction.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The runs that one edit put into level 0. A reader that still has their source in memory leaves them out,
/// see [`StoreView::without`](crate::StoreView::without).
#[derive(Debug, Default)]
pub struct Flush {
    /// Zero: not installed, or installed without runs.
    group: AtomicU64,
    runs: AtomicUsize,
}

impl Flush {
    pub(crate) fn group(&self) -> u64 {
        self.group.load(Ordering::Acquire)
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, group: u64, runs: usize) {
        self.runs.store(runs, Ordering::Relaxed);
        self.group.store(group, Ordering::Release);
    }
}
