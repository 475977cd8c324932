//! How often queries have used each index since the process started.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::catalog::definition::{Definition, Index};
use crate::model::Documents;

/// The counts, by the number of the index; that of the collection is the index on `_id`.
#[derive(Default)]
pub(crate) struct IndexUses(RwLock<HashMap<u32, AtomicU64>>);

impl IndexUses {
    pub(crate) fn add(&self, object: u32) {
        if let Some(count) = self.0.read().get(&object) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.0.write().entry(object).or_default().fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, object: u32) -> u64 {
        self.0.read().get(&object).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Documents {
    /// How many queries, updates and deletions have used an index since the process started; `None`: the
    /// index on `_id`.
    pub fn index_uses(&self, definition: &Definition, index: Option<&Index>) -> u64 {
        self.model.uses.get(index.map_or(definition.id, |index| index.object))
    }
}
