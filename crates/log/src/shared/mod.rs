//! A log that several nodes share: they append under a condition, and read in one order.
//!
//! ```text
//! entry:  1   2   3   4   5            numbered without gaps, never changed, trimmed from the front
//!                         ▲
//!         append(after 4) ┘            stored only if 4 is the newest entry: of two writers one succeeds
//! ```
//!
//! A service stores it (adapters implement [`SharedLog`]); this crate knows no sockets. Every call blocks.

mod entry;
mod follower;
mod hash_body;
mod memory;
mod place;
mod replicated;

use core::fmt;
use core::time::Duration;

use crate::LogId;

pub use entry::{ChainHash, ENTRY_OVERHEAD, Entry, EntryKind, FEATURE_LEVEL, commits, put_commit};
pub use hash_body::{HashBody, SLICE_PARTS_MAX, SlicePart};
pub use memory::{ChooseFault, MemorySharedLog, SharedCall, SharedFault};
pub use place::{Place, SavedPlace};
pub use replicated::{CommitFate, EntryFollowed, NodeSettings, ReplicatedLog};

/// Number of an entry of a shared log: from 1, without gaps. Zero is the place before the first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryIndex(pub u64);

impl EntryIndex {
    /// The place before the first entry.
    pub const ZERO: Self = Self(0);

    /// The next number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for EntryIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its number.
    pub index: EntryIndex,
    /// Contents, as they were appended.
    pub bytes: Vec<u8>,
}

/// Extent of a shared log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBounds {
    /// The oldest entry that can be read; one more than `newest` without entries.
    pub oldest: EntryIndex,
    /// The newest entry; zero when there was never one. May be older than the newest one that was confirmed to a
    /// writer: only an append proves what is newest.
    pub newest: EntryIndex,
}

/// Why an append was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Another entry is the newest. Nothing was stored.
    #[error("entry {newest} of the shared log is newer than the expected one")]
    Fenced {
        /// The newest entry.
        newest: EntryIndex,
    },
    /// The service refuses such an entry. Nothing was stored, and the same append will never succeed.
    #[error("the shared log refuses the entry: {cause}")]
    Refused {
        /// Why.
        cause: String,
    },
    /// No answer, or one that proves nothing: the entry may be stored now or later. The same append may be repeated.
    #[error("it is unknown whether the shared log has the entry: {cause}")]
    Unknown {
        /// The cause.
        cause: String,
    },
}

/// The result of a call that reads or trims.
pub type SharedResult<T> = Result<T, SharedError>;

/// Errors of reading and trimming.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// The service does not answer at the moment. The call may be repeated.
    #[error("the shared log does not answer: {cause}")]
    Unavailable {
        /// The cause.
        cause: String,
    },
    /// The entries up to here were trimmed.
    #[error("the shared log begins at entry {oldest}")]
    Trimmed {
        /// The oldest entry that can be read.
        oldest: EntryIndex,
    },
    /// The log was created again, lost its end, or has a gap. No node may continue.
    #[error("the shared log is damaged: {what}")]
    Lost {
        /// The damage, and its place.
        what: String,
    },
}

/// A log that a service stores for several nodes.
///
/// Guarantees that an adapter owes: an entry that was confirmed is read by every later `read` of its place, on every
/// node, with the same bytes; of two appends with the same `expected` at most one is confirmed.
pub trait SharedLog: Send + Sync + fmt::Debug {
    /// Name and incarnation: another value after the log was created again.
    ///
    /// # Errors
    /// [`SharedError`].
    fn identity(&self) -> SharedResult<LogId>;

    /// Largest entry, in bytes.
    fn entry_bytes_max(&self) -> usize;

    /// Appends `entry` if `expected` is the newest entry; returns its number, `expected + 1`. Durable on a majority when
    /// it returns. Gives up with [`AppendError::Unknown`] after a time that the adapter bounds (a few seconds).
    ///
    /// # Errors
    /// [`AppendError`].
    fn append(&self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError>;

    /// The entries after `after`, in order and without gaps, about `bytes_max` bytes of them but at least one; none if
    /// there is no such entry within `wait`.
    ///
    /// # Errors
    /// [`SharedError`].
    fn read(&self, after: EntryIndex, bytes_max: usize, wait: Duration) -> SharedResult<Vec<SharedEntry>>;

    /// The oldest and the newest entry.
    ///
    /// # Errors
    /// [`SharedError`].
    fn bounds(&self) -> SharedResult<SharedBounds>;

    /// Removes the entries before `oldest`.
    ///
    /// # Errors
    /// [`SharedError`].
    fn trim(&self, oldest: EntryIndex) -> SharedResult<()>;

    /// Warnings for an operator: one line for each risk in the settings of the service.
    ///
    /// # Errors
    /// [`SharedError`].
    fn warnings(&self) -> SharedResult<Vec<String>> {
        Ok(Vec::new())
    }
}
