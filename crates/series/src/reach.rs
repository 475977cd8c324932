//! How far the stored chunks of each partition reach, so that nobody looks there for newer samples.
//!
//!   open: partitions that are there ─▶ unknown      flush ─▶ the greatest time that it writes, before anyone can read it
//!
//! Most questions are about the last minutes, which are in memory; finding out that a stored chunk ends before them costs more
//! than reading them. A bound is never below what is so, whatever a reader's snapshot; deletions leave it too high.

use std::collections::HashMap;

use parking_lot::RwLock;

#[derive(Debug, Default)]
pub(crate) struct Reach(RwLock<HashMap<i64, i64>>);

impl Reach {
    /// Of a store that has these partitions, of which nothing else is known.
    pub(crate) fn new(partitions: impl IntoIterator<Item = i64>) -> Self {
        Self(RwLock::new(partitions.into_iter().map(|partition| (partition, i64::MAX)).collect()))
    }

    /// Notes that a chunk up to `last` is about to be there.
    pub(crate) fn note(&self, partition: i64, last: i64) {
        if self.0.read().get(&partition).is_none_or(|reach| *reach < last) {
            let mut all = self.0.write();
            let reach = all.entry(partition).or_insert(last);
            *reach = last.max(*reach);
        }
    }

    /// False when no stored chunk of the partition has a sample at `from` or later.
    pub(crate) fn reaches(&self, partition: i64, from: i64) -> bool {
        self.0.read().get(&partition).is_none_or(|last| *last >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_may_be_there() {
        let reach = Reach::new([1]);
        assert!(reach.reaches(1, i64::MAX) && reach.reaches(2, 0));
        reach.note(2, 50);
        reach.note(2, 40);
        reach.note(1, 40);
        assert!(reach.reaches(1, i64::MAX) && reach.reaches(2, 50) && !reach.reaches(2, 51));
    }
}
