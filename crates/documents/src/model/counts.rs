//! Numbers of documents and bytes of each collection, without counting for every query.
//!
//!   first query:  note the newest applied commit ─▶ scan a snapshot that has it ─▶ add later changes
//!   afterwards:   every commit reports its change
//!
//! Nothing is stored: after a restart the first query counts again, by a scan of the collection's keys.
//! Nothing is stored: after a start the first question counts again, a walk over the collection's keys.

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

enum State {
    /// A scan is in progress; the changes applied since it began.
    Counting(Vec<(Seq, i64, i64)>),
    Known(i64, i64),
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
    /// Adds the changes of commit `seq`. Called by the sequencer.
    pub(crate) fn add(&self, seq: Seq, grown: &[(u32, i64, i64)]) {
        let mut inner = self.0.lock();
        debug_assert!(inner.applied <= seq, "commits are applied in their order");
        inner.applied = seq;
        for (collection, documents, bytes) in grown {
            match inner.collections.get_mut(collection) {
                Some(State::Counting(since)) => since.push((seq, *documents, *bytes)),
                Some(State::Known(known, size)) => {
                    *known += documents;
                    *size += bytes;
                }
                None => {}
            }
        }
    }

    /// Removes the counts of a collection.
    pub(crate) fn forget(&self, collection: u32) {
        self.0.lock().collections.remove(&collection);
    }

    /// The counts, or whether this caller has to scan for them.
    pub(crate) fn ask(&self, collection: u32) -> Asked {
        let mut inner = self.0.lock();
        let applied = inner.applied;
        match inner.collections.get(&collection) {
            Some(State::Known(documents, bytes)) => Asked::Known(count(*documents, *bytes)),
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
        let (mut documents, mut bytes) = walked?;
        if let Some(State::Counting(since)) = state {
            for (_, more, size) in since.iter().filter(|(seq, ..)| *seq > at) {
                documents += more;
                bytes += size;
            }
            inner.collections.insert(collection, State::Known(documents, bytes));
        }
        Some(count(documents, bytes))
    }
}
