//! Hash of a slice of the contents: the entries that a reader sees, from a position on.
//!
//! ```text
//! order of contents:  keyspace 0, by key │ keyspace 1 │ … │ model 1, in its order │ model 3 │ …
//! slice:                     start ├────────── about so many bytes ─────────┤ next
//! ```
//! Nodes with equal contents hash equal slices, whatever their runs look like: keyspaces whose entries depend on flushes are
//! left out ([`Model::unordered_keyspaces`](crate::Model::unordered_keyspaces)), and their models hash what they store.

use ropewalk_base::{ContentHash, SetHasher};

/// Hashes the items of one part of a slice until the slice is long enough.
pub struct SliceHasher {
    hasher: SetHasher,
    part: u32,
    /// Bytes that the slice may still have.
    left: u64,
}

impl SliceHasher {
    pub(crate) fn new(part: u32, left: u64) -> Self {
        Self { hasher: SetHasher::default(), part, left }
    }

    /// Adds an item. The order of items within a part does not matter.
    pub fn add(&mut self, item: &[&[u8]]) {
        let before = self.hasher.bytes();
        let part = self.part.to_le_bytes();
        self.hasher.add(core::iter::once(&part[..]).chain(item.iter().copied()));
        self.left = self.left.saturating_sub(self.hasher.bytes() - before);
    }

    /// The slice is long enough: it ends after the last item.
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Hash and bytes of the part.
    pub(crate) fn end(self) -> (ContentHash, u64) {
        (self.hasher.hash(), self.hasher.bytes())
    }
}
