//! Numbers of documents and bytes of each collection, without counting for every query.
//!
//!   first query:  note the newest applied commit ─▶ scan a snapshot that has it ─▶ add later changes
//!   afterwards:   every commit reports its change, which counts once the commit is visible
//!
//! Nothing is stored: after a restart the first query counts again, by a scan of the collection's keys.

use std::collections::HashMap;

use parking_lot::Mutex;
use ropewalk_base::Seq;

/// Size of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Documents.
    pub documents: u64,
    /// Bytes of documents, without keys and indexes.
    pub bytes: u64,
}

/// A change of a collection's size by one commit: documents and bytes.
type Growth = (Seq, i64, i64);

enum State {
    /// A scan is in progress; the changes applied since it began.
    Counting(Vec<Growth>),
    /// The size as of a visible commit, and the changes after it, in order: few, since visible ones are added.
    Known(i64, i64, Vec<Growth>),
}

/// Adds the changes of commits up to `visible`.
fn settle(documents: &mut i64, bytes: &mut i64, later: &mut Vec<Growth>, visible: Seq) {
    let settled = later.partition_point(|(seq, ..)| *seq <= visible);
    for (_, more, size) in later.drain(..settled) {
        *documents += more;
        *bytes += size;
    }
}

#[derive(Default)]
struct Inner {
    /// The newest applied commit that changed a collection.
    applied: Seq,
    collections: HashMap<u32, State>,
}

/// The counts of all collections.
#[derive(Default)]
pub(crate) struct Counts(Mutex<Inner>);

/// Result of [`Counts::ask`].
pub(crate) enum Asked {
    Known(Count),
    /// Scan a snapshot that has this commit, then report the result to [`Counts::found`].
    Walk(Seq),
    /// Another thread is scanning.
    Wait,
}

fn count(documents: i64, bytes: i64) -> Count {
    debug_assert!(documents >= 0 && bytes >= 0, "{documents} documents of {bytes} bytes");
    Count { documents: documents.max(0) as u64, bytes: bytes.max(0) as u64 }
}

impl Counts {
    /// Adds the changes of commit `seq`, while readers see commits up to `visible`. Called by the sequencer.
    pub(crate) fn add(&self, seq: Seq, visible: Seq, grown: &[(u32, i64, i64)]) {
        let mut inner = self.0.lock();
        debug_assert!(inner.applied <= seq, "commits are applied in their order");
        inner.applied = seq;
        for (collection, documents, bytes) in grown {
            match inner.collections.get_mut(collection) {
                Some(State::Counting(since)) => since.push((seq, *documents, *bytes)),
                Some(State::Known(known, size, later)) => {
                    settle(known, size, later, visible);
                    later.push((seq, *documents, *bytes));
                }
                None => {}
            }
        }
    }

    /// Removes the counts of a collection.
    pub(crate) fn forget(&self, collection: u32) {
        self.0.lock().collections.remove(&collection);
    }

    /// The counts as of commit `visible` or a later one that is visible, or whether this caller has to scan for them.
    pub(crate) fn ask(&self, collection: u32, visible: Seq) -> Asked {
        let mut inner = self.0.lock();
        let applied = inner.applied;
        match inner.collections.get_mut(&collection) {
            Some(State::Known(documents, bytes, later)) => {
                settle(documents, bytes, later, visible);
                Asked::Known(count(*documents, *bytes))
            }
            Some(State::Counting(_)) => Asked::Wait,
            None => {
                inner.collections.insert(collection, State::Counting(Vec::new()));
                Asked::Walk(applied)
            }
        }
    }

    /// Ends a scan of the snapshot `at`; `None` when the scan failed.
    pub(crate) fn found(&self, collection: u32, at: Seq, walked: Option<(i64, i64)>) -> Option<Count> {
        let mut inner = self.0.lock();
        let state = inner.collections.remove(&collection);
        let (documents, bytes) = walked?;
        if let Some(State::Counting(mut later)) = state {
            later.retain(|(seq, ..)| *seq > at);
            inner.collections.insert(collection, State::Known(documents, bytes, later));
        }
        Some(count(documents, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(counts: &Counts, visible: u64) -> (u64, u64) {
        let Asked::Known(count) = counts.ask(1, Seq(visible)) else { panic!("the collection was counted") };
        (count.documents, count.bytes)
    }

    #[test]
    fn changes_count_once_their_commit_is_visible() {
        let counts = Counts::default();
        assert!(matches!(counts.ask(1, Seq(4)), Asked::Walk(Seq(0))));
        assert!(matches!(counts.ask(1, Seq(4)), Asked::Wait));
        // Commits 5 and 6 are applied during the scan of a snapshot of 5.
        counts.add(Seq(5), Seq(4), &[(1, 1, 10)]);
        counts.add(Seq(6), Seq(5), &[(1, 1, 10), (2, 9, 9)]);
        assert_eq!(counts.found(1, Seq(5), Some((3, 30))).map(|found| found.documents), Some(3));
        assert_eq!(known(&counts, 5), (3, 30));
        counts.add(Seq(7), Seq(5), &[(1, -2, -15)]);
        assert_eq!(known(&counts, 5), (3, 30));
        assert_eq!(known(&counts, 6), (4, 40));
        assert_eq!(known(&counts, 7), (2, 25));
        // A reader that has read the visible commit earlier does not take anything back.
        assert_eq!(known(&counts, 6), (2, 25));
    }

    #[test]
    fn visible_changes_are_not_collected() {
        let counts = Counts::default();
        counts.ask(1, Seq(0));
        counts.found(1, Seq(0), Some((0, 0)));
        for seq in 1..=1000 {
            counts.add(Seq(seq), Seq(seq - 1), &[(1, 1, 1)]);
        }
        let inner = counts.0.lock();
        let Some(State::Known(documents, _, later)) = inner.collections.get(&1) else { panic!("known") };
        assert_eq!((*documents, later.len()), (999, 1));
    }
}
