//! Where a node is in the shared log.

use ropewalk_base::Seq;

use crate::shared::{ChainHash, EntryIndex};

/// The newest entry that a node has applied, and what it proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The entry; zero before the first one.
    pub index: EntryIndex,
    /// Its chain hash.
    pub chain: ChainHash,
    /// The newest term.
    pub term: u64,
    /// The newest commit that the entries up to here hold.
    pub seq: Seq,
}
