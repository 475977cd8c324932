//! Comparisons of this node with other nodes, and the slice that it has to compare yet.

use ropewalk_base::{ContentHash, Seq};
use ropewalk_log::shared::{EntryIndex, SlicePart};

/// A slice of the contents that this node has hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentsSlice {
    /// The commit as of which it was hashed.
    pub seq: Seq,
    /// Hash of all parts.
    pub hash: ContentHash,
    /// Hash of each part that has items.
    pub parts: Vec<SlicePart>,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// Where the next slice begins; `None` when this was the last one.
    pub next: Option<Vec<u8>>,
}

/// Comparisons of a node since it was opened.
#[derive(Debug, Clone, Default)]
pub struct Comparisons {
    /// The newest commit up to which the effects were equal to those of most nodes.
    pub equal: Seq,
    /// The newest slice that this node has hashed, and the entry with the request.
    pub slice: Option<(EntryIndex, ContentsSlice)>,
    /// Slices that were equal to those of most nodes.
    pub slices: u64,
    /// Their bytes.
    pub slice_bytes: u64,
    /// Why the newest requested slice could not be hashed.
    pub failed: Option<String>,
}
