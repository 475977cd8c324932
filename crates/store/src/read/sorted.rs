use std::cmp::Ordering;
use std::sync::Arc;

use ropewalk_base::Seq;

use crate::read::flush::Flush;
use crate::run::Run;
use crate::run::block::{head, shared};
use crate::run::prefix::Prefix;

/// Runs whose key ranges are disjoint, in key order: one flush in level 0, or one whole level below.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// Number of the flush in level 0; larger is newer. Zero below.
    pub(crate) group: u64,
    pub(crate) runs: Vec<Arc<Run>>,
    /// First keys of the runs, cut like the fences of a run.
    shared: Prefix,
    heads: Vec<u64>,
    pub(crate) max_seq: Seq,
    pub(crate) has_ranges: bool,
}

impl Sorted {
    /// Sorts `runs` by their first key.
    pub(crate) fn new(group: u64, mut runs: Vec<Arc<Run>>) -> Self {
        runs.sort_by(|a, b| a.start().cmp(b.start()));
        let (first, last) =
            (runs.first().map_or(&[][..], |r| r.start()), runs.last().map_or(&[][..], |r| r.start()));
        let shared = Prefix::new(first.get(..shared(first, last)).unwrap_or_default());
        let heads = runs.iter().map(|r| head(r.start().get(shared.len()..).unwrap_or_default())).collect();
        let max_seq = runs.iter().map(|r| r.footer.max_seq).max().unwrap_or_default();
        let has_ranges = runs.iter().any(|r| !r.footer.ranges.is_empty());
        Self { group, runs, shared, heads, max_seq, has_ranges }
    }

    /// True for a flush in level 0 that is one of `flushes`.
    pub(crate) fn is_of(&self, flushes: &[Arc<Flush>]) -> bool {
        self.group > 0 && flushes.iter().any(|flush| flush.group() == self.group)
    }

    /// Two runs with overlapping key ranges, if any.
    pub(crate) fn overlapping(&self) -> Option<(&Run, &Run)> {
        let pairs = self.runs.iter().zip(self.runs.iter().skip(1));
        pairs.map(|(a, b)| (&**a, &**b)).find(|(a, b)| a.overlaps(b))
    }

    /// Index of the only run whose range can contain `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        if self.runs.len() <= 1 {
            // The run itself knows best.
            return self.runs.first().map(|_| 0);
        }
        let rest = match self.shared.cut(key) {
            Ok(rest) => rest,
            Err(Ordering::Less) => return None,
            Err(_) => return self.runs.len().checked_sub(1),
        };
        let target = head(rest);
        let mut after = self.heads.iter().map(|&h| usize::from(h <= target)).sum::<usize>();
        // Equal heads: the whole keys decide.
        while let Some(run) = after.checked_sub(1).and_then(|i| self.runs.get(i))
            && self.heads.get(after - 1) == Some(&target)
            && run.start() > key
        {
            after -= 1;
        }
        after.checked_sub(1)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.runs.iter().map(|r| r.bytes).sum()
    }
}
