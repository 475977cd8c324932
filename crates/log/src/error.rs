use std::io;
use std::path::{Path, PathBuf};

use ropewalk_base::{Lsn, Seq};

/// What a caller's own code may fail with while the log is replayed to it.
pub type ReplayError = Box<dyn std::error::Error + Send + Sync>;

/// Why the log could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused. While opening or preparing a spare this may be retried; from a write or a sync
    /// it has stopped the log.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Bytes that were once durable are not what was written. Nothing was changed; see [`salvage`](crate::salvage).
    #[error("{} at byte {offset}: {what}", path.display())]
    Corrupt {
        /// The damaged segment.
        path: PathBuf,
        /// Offset in that file.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The file is no segment of this log.
    #[error("{} at byte {offset}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Offset in that file.
        offset: u64,
        /// What shows it.
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
        /// Where it is.
        tail: Lsn,
        /// Where the caller left it.
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
    /// The address lies behind the tail.
    #[error("log address {lsn} lies behind the tail {tail}")]
    Beyond {
        /// The address asked for.
        lsn: Lsn,
        /// The tail.
        tail: Lsn,
    },
    /// An earlier write or sync failed. What reached the disk is unknown, so the log takes nothing until reopened.
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
        /// The commit that the log was to end in front of.
        before: Seq,
        /// The last commit in the store.
        checkpoint: Seq,
    },
    /// The options contradict themselves.
    #[error("log options: {what}")]
    Options {
        /// How.
        what: &'static str,
    },
    /// The caller could not take a record during recovery.
    #[error("replay of record {seq} at log address {lsn}: {source}")]
    Replay {
        /// Where the record is.
        lsn: Lsn,
        /// Which it is.
        seq: Seq,
        /// The caller's reason.
        source: ReplayError,
    },
}

/// Names the operation and the path of an I/O error, for `map_err`.
pub(crate) fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    move |source| LogError::Io { op, path: path.to_owned(), source }
}
