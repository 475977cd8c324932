//! Keyspaces whose newest commit is recorded, so that caches of their contents know when to read again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use ropewalk_base::Seq;
use ropewalk_store::Keyspace;

/// The newest commit that wrote to a keyspace, pending commits included.
#[derive(Debug)]
pub(crate) struct LastWrite(AtomicU64);

impl LastWrite {
    pub(crate) fn seq(&self) -> Seq {
        Seq(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn note(&self, seq: Seq) {
        self.0.store(seq.0, Ordering::Release);
    }
}

/// The watched keyspaces, few. The sequencer notes writes, and adds to the list only under its lock.
#[derive(Default)]
pub(crate) struct WatchedKeyspaces(ArcSwap<Vec<(Keyspace, Arc<LastWrite>)>>);

impl WatchedKeyspaces {
    /// Begins to note writes to a keyspace. To be called under the sequencer's lock; `last` is its newest commit, and
    /// counts as a write, because earlier ones are unknown.
    pub(crate) fn watch(&self, keyspace: Keyspace, last: Seq) -> Arc<LastWrite> {
        let watched = self.0.load();
        if let Some((_, known)) = watched.iter().find(|(known, _)| *known == keyspace) {
            return known.clone();
        }
        let added = Arc::new(LastWrite(AtomicU64::new(last.0)));
        let mut list = Vec::clone(&watched);
        list.push((keyspace, added.clone()));
        self.0.store(Arc::new(list));
        added
    }

    /// The list, for noting the writes of one commit.
    pub(crate) fn list(&self) -> arc_swap::Guard<Arc<Vec<(Keyspace, Arc<LastWrite>)>>> {
        self.0.load()
    }
}
