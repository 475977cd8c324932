//! Garbage collection of versions: the one place that decides which versions are dropped.
//!
//! A version is needed when some live snapshot sees it: a snapshot at or after it, and before the next newer
//! change of its key (a version or a range tombstone). Every version newer than the newest snapshot is
//! retained, because snapshots taken from now on start there. A version that every live snapshot sees loses
//! its number: zero means "before all of them".
//!
//! Entries arrive key ascending; the versions of a key newest first, sources newest first. The number zero is never
//! compared across sources: position alone says that an entry of a newer source is newer.
//!
//! Invariant: one list of snapshots for a whole job. An older list only retains more versions than needed;
//! mixing lists could number an entry and a range tombstone by different rules and so reverse their order.

use ropewalk_base::Seq;

use crate::run::range_tombstones::RangeSet;

/// Live snapshots, ascending; the last is the newest visible commit.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots(Vec<Seq>);

impl Snapshots {
    pub(crate) fn new(snapshots: &[Seq]) -> Self {
        let mut sorted = snapshots.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        Self(sorted)
    }

    /// True when some snapshot sees a version `seq` that was changed again at `next`.
    fn needs(&self, seq: Seq, next: Option<Seq>) -> bool {
        let Some(&newest) = self.0.last() else { return true };
        if seq > newest {
            return true;
        }
        let index = self.0.partition_point(|&s| s < seq);
        match (self.0.get(index), next) {
            (Some(&snapshot), Some(next)) => snapshot < next,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// The number that a version is written with.
    fn number(&self, seq: Seq) -> Seq {
        if self.0.first().is_some_and(|&oldest| seq <= oldest) { Seq::ZERO } else { seq }
    }

    /// The tombstones of a source after GC; `bottom`: nothing older exists that they could hide.
    pub(crate) fn keep_ranges(&self, ranges: &RangeSet, bottom: bool) -> RangeSet {
        ranges.rewrite(|seqs| {
            let mut kept: Vec<Seq> = Vec::with_capacity(seqs.len());
            let mut next = None;
            for &seq in seqs {
                if self.needs(seq, next) {
                    kept.push(self.number(seq));
                }
                next = Some(seq);
            }
            kept.dedup();
            if bottom && !self.0.is_empty() {
                kept.retain(|&seq| seq != Seq::ZERO);
            }
            kept
        })
    }
}

/// Decides entry by entry.
#[derive(Debug)]
pub(crate) struct Gc {
    snapshots: Snapshots,
    /// Nothing older than the sources exists for any of their keys, so tombstones may be dropped.
    bottom: bool,
    key: Vec<u8>,
    /// The version before this one, of the same key.
    newer: Option<Seq>,
    started: bool,
}

impl Gc {
    pub(crate) fn new(snapshots: Snapshots, bottom: bool) -> Self {
        Self { snapshots, bottom, key: Vec::new(), newer: None, started: false }
    }

    /// The number to write the entry with, or `None` to drop it. `source` indexes `ranges`, newest first.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        key: &[u8],
        seq: Seq,
        tombstone: bool,
        source: usize,
        ranges: &[RangeSet],
    ) -> Option<Seq> {
        if !self.started || self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.newer = None;
            self.started = true;
        }
        let covered = ranges.iter().take(source + 1).enumerate().filter_map(|(i, set)| {
            let seqs = &set.over(key).filter(|_| !set.is_empty())?.seqs;
            // In the entry's source only newer tombstones hide it; those of newer sources all do.
            seqs.iter().rev().copied().find(|&t| i < source || t > seq)
        });
        let next = covered.chain(self.newer).min();
        self.newer = Some(seq);
        // Every live snapshot sees a change numbered zero, so none sees the versions under it.
        if next == Some(Seq::ZERO) || !self.snapshots.needs(seq, next) {
            return None;
        }
        let number = self.snapshots.number(seq);
        let droppable = tombstone && self.bottom && number == Seq::ZERO && !self.snapshots.0.is_empty();
        (!droppable).then_some(number)
    }
}
