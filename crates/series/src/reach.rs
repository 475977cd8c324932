//! How far the stored chunks of each partition reach and how long the longest is, so that nobody looks there for newer samples,
//! and few chunks are looked at for the last hour of a day.
//!
//!   open: partitions that are there ─▶ unknown      flush ─▶ the greatest time and the longest chunk that it writes, before
//!                                                            anyone can read them
//!
//! Most questions are about the last minutes, which are in memory; finding out that a stored chunk ends before them costs more
//! than reading them. A bound is never below what is so, whatever a reader's snapshot; deletions leave it too high.

use std::collections::HashMap;

use parking_lot::RwLock;

/// Of the chunks of a partition: the last time, and the most milliseconds from the first sample of one to its last.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    last: i64,
    span: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Reach(RwLock<HashMap<i64, Bounds>>);

impl Reach {
    /// Of a store that has these partitions, of which nothing else is known.
    pub(crate) fn new(partitions: impl IntoIterator<Item = i64>) -> Self {
        let unknown = Bounds { last: i64::MAX, span: i64::MAX };
        Self(RwLock::new(partitions.into_iter().map(|partition| (partition, unknown)).collect()))
    }

    /// Notes that chunks up to `last`, the longest of them `span` long, are about to be there.
    pub(crate) fn note(&self, partition: i64, last: i64, span: i64) {
        let known = self.0.read().get(&partition).is_some_and(|of| last <= of.last && span <= of.span);
        if !known {
            let mut all = self.0.write();
            let of = all.entry(partition).or_insert(Bounds { last, span });
            *of = Bounds { last: last.max(of.last), span: span.max(of.span) };
        }
    }

    /// `None` when no stored chunk of the partition has a sample at `from` or later; else the time before which none begins
    /// that has.
    pub(crate) fn since(&self, partition: i64, from: i64) -> Option<i64> {
        match self.0.read().get(&partition) {
            Some(of) if of.last < from => None,
            Some(of) => Some(from.saturating_sub(of.span)),
            None => Some(i64::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_may_be_there() {
        let reach = Reach::new([1]);
        assert_eq!((reach.since(1, 5), reach.since(2, 0)), (Some(5 - i64::MAX), Some(i64::MIN)));
        reach.note(2, 50, 10);
        reach.note(2, 40, 20);
        reach.note(1, 40, 7);
        assert_eq!((reach.since(1, 90), reach.since(2, 51)), (Some(90 - i64::MAX), None));
        assert_eq!((reach.since(2, 50), reach.since(2, i64::MIN)), (Some(30), Some(i64::MIN)));
    }
}
