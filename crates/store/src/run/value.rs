use std::ops::{Deref, Range};
use std::sync::Arc;

use ropewalk_base::Seq;

/// Bytes of a value, not copied: they stay where they are for as long as the memtable or view they came from.
#[derive(Clone)]
pub enum Value<'a> {
    /// Inside a mapped run or a memtable.
    Slice(&'a [u8]),
    /// Inside a decoded block, which the value keeps alive.
    Shared {
        /// The block.
        block: Arc<Vec<u8>>,
        /// Where in the block.
        range: Range<usize>,
    },
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Shared { block, range } => block.get(range.clone()).unwrap_or_default(),
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value<'_> {}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// One version of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The commit that wrote it; zero when every live snapshot saw it already as the run was written.
    pub seq: Seq,
    /// The value, or `None` for a tombstone.
    pub value: Option<Value<'a>>,
}
