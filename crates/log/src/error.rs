use std::io;
use std::path::{Path, PathBuf};

use ropewalk_base::{Lsn, Seq};

use crate::shared::{EntryIndex, SharedError};

/// Errors of the caller's code to which the log is replayed.
pub type ReplayError = Box<dyn std::error::Error + Send + Sync>;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = LogError> = core::result::Result<T, E>;

/// Errors of the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system returned an error. While opening or preparing a spare the call may be retried;
    /// after a write or a sync the log has stopped.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// Operation that failed.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Bytes that were once durable differ from those written. Nothing was changed; see
    /// [`salvage`](crate::salvage).
    #[error("{} at byte {offset}: {what}", path.display())]
    Corrupt {
        /// The damaged segment.
        path: PathBuf,
        /// Offset in that file.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The file is not a segment of this log.
    #[error("{} at byte {offset}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Offset in that file.
        offset: u64,
        /// Reason.
        what: &'static str,
    },
    /// The file was written by a newer Ropewalk.
    #[error("{} at byte {offset}: format version {found} is from the future, this build reads up to {supported}", path.display())]
    Future {
        /// The file.
        path: PathBuf,
        /// Offset of the version in that file.
        offset: u64,
        /// Version in the file.
        found: u32,
        /// Newest version this build reads.
        supported: u32,
    },
    /// No segment file holds the address that is needed.
    #[error("{}: no segment holds log address {lsn}", dir.display())]
    Missing {
        /// The log's directory.
        dir: PathBuf,
        /// The address.
        lsn: Lsn,
    },
    /// The tail is not where the caller expects it. Nothing was appended.
    #[error("another writer appended to the log: its tail is {tail}, this writer expects {expected}")]
    Fenced {
        /// Tail of the log.
        tail: Lsn,
        /// Tail that the caller expected.
        expected: Lsn,
    },
    /// The records do not continue the log's numbering. Nothing was appended.
    #[error("record {found} where {expected} is next")]
    OutOfOrder {
        /// The next number.
        expected: Seq,
        /// The number given.
        found: Seq,
    },
    /// The record is over the limit. Nothing was appended.
    #[error("record of {bytes} bytes exceeds the limit of {max}")]
    TooLarge {
        /// Its payload.
        bytes: u64,
        /// The largest payload.
        max: u64,
    },
    /// The log was sealed; nothing can be appended any more.
    #[error("the log is sealed")]
    Sealed,
    /// The address was trimmed away.
    #[error("the log was trimmed; it starts at {oldest}")]
    Trimmed {
        /// First address that can be read.
        oldest: Lsn,
    },
    /// The address is greater than the tail.
    #[error("log address {lsn} is beyond the tail {tail}")]
    Beyond {
        /// The requested address.
        lsn: Lsn,
        /// The tail.
        tail: Lsn,
    },
    /// An earlier write or sync failed. The state on disk is unknown, so the log accepts nothing until
    /// reopened.
    #[error("the log has stopped, reopen to recover: {cause}")]
    Stopped {
        /// The first failure.
        cause: String,
    },
    /// The log cannot end so early: the store holds the commit already. Nothing was changed.
    #[error(
        "the log cannot be cut before commit {before}: commits up to {checkpoint} are in the store already"
    )]
    Checkpointed {
        /// The commit before which the log was to end.
        before: Seq,
        /// The last commit in the store.
        checkpoint: Seq,
    },
    /// This node does not lead: it appends nothing to the shared log. Nothing was appended.
    #[error("this node does not lead")]
    NotLeader,
    /// This node leads: it applies no entries of others.
    #[error("this node leads")]
    Leads,
    /// Another node leads. The records that were not acknowledged are not in the shared log, and will never be.
    #[error("another node leads{}", leader.as_ref().map(|at| format!(", at {at}")).unwrap_or_default())]
    Deposed {
        /// Address that it advertises, if it is known.
        leader: Option<String>,
    },
    /// The shared log refuses an entry. The records that were not acknowledged are not in the shared log.
    #[error("the shared log refuses an entry: {cause}")]
    Refused {
        /// Its reason.
        cause: String,
    },
    /// The shared log has not answered for too long. The records that were not acknowledged may be in it, now or later.
    #[error("it is unknown whether the shared log has the newest commits: {cause}")]
    Unknown {
        /// The newest cause.
        cause: String,
    },
    /// The shared log does not continue the local copy. This node must stop.
    #[error("entry {index} of the shared log does not continue this database: {what}")]
    Diverged {
        /// The entry.
        index: EntryIndex,
        /// The difference.
        what: String,
    },
    /// The shared log could not be read.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// The options contradict themselves.
    #[error("log options: {what}")]
    Options {
        /// How.
        what: &'static str,
    },
    /// The caller failed to apply a record during recovery.
    #[error("replay of record {seq} at log address {lsn}: {source}")]
    Replay {
        /// Address of the record.
        lsn: Lsn,
        /// Number of the record.
        seq: Seq,
        /// The caller's reason.
        source: ReplayError,
    },
}

/// Names the operation and the path of an I/O error, for `map_err`.
pub(crate) fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    move |source| LogError::Io { op, path: path.to_owned(), source }
}
