use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ropewalk_base::{DecodeError, Lsn, Seq};
use ropewalk_log::LogError;
use ropewalk_store::StoreError;

/// What the engine refuses or fails with. Cheap to clone: one failure may answer a whole group.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The commit log.
    #[error("{0}")]
    Log(Arc<LogError>),
    /// Runs, manifest, compaction.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// A directory or lock file.
    #[error("{op} {path}: {source}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<std::io::Error>,
    },
    /// Another process or handle has the directory open.
    #[error("{path} is in use by {holder}; close it there, or open another directory")]
    Locked {
        /// The database directory.
        path: PathBuf,
        /// What the holder wrote into the lock file, such as `pid 4711`.
        holder: String,
    },
    /// A backup cannot be made there.
    #[error("no backup to {path}: {what}")]
    BackupTarget {
        /// The path that stands against it.
        path: PathBuf,
        /// Why.
        what: &'static str,
    },
    /// A commit record passed its checksum and still makes no sense: written by a newer version, or our own bug.
    #[error("commit record {seq} at log address {lsn}: {source}")]
    Record {
        /// Which commit.
        seq: Seq,
        /// Where in the log.
        lsn: Lsn,
        /// What was expected.
        source: DecodeError,
    },
    /// A record names a model that this build does not have.
    #[error(
        "commit record {seq} at log address {lsn} holds data of unknown model {model}; it was written by a newer version"
    )]
    UnknownModel {
        /// Which commit.
        seq: Seq,
        /// Where in the log.
        lsn: Lsn,
        /// The model's number.
        model: u8,
    },
    /// One transaction is larger than a log record may be.
    #[error("transaction of {bytes} bytes exceeds the limit of {max}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The engine gave up after a failed write or sync. What was acknowledged is safe; reopen to go on.
    #[error("the engine stopped: {cause}; reopen the database to go on")]
    Stopped {
        /// The first failure.
        cause: Arc<str>,
    },
    /// The memory budget is spent and flushing does not keep up or fails.
    #[error("{bytes} bytes wait to be flushed, the budget allows {max}: {cause}")]
    Busy {
        /// Bytes in memtables.
        bytes: u64,
        /// The limit.
        max: u64,
        /// Why flushing does not help.
        cause: Arc<str>,
    },
    /// The log no longer holds the commits asked for.
    #[error("the change feed starts at commit {oldest}; commit {asked} is no longer in the log")]
    FeedTrimmed {
        /// First commit asked for.
        asked: Seq,
        /// First commit that is left.
        oldest: Seq,
    },
    /// A model found its own data damaged.
    #[error("{model}: {what}")]
    Damaged {
        /// Name of the model.
        model: &'static str,
        /// What is wrong, and where.
        what: Arc<str>,
    },
}

impl From<LogError> for EngineError {
    fn from(error: LogError) -> Self {
        Self::Log(Arc::new(error))
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Why a transaction was refused in its place in the commit order; the model that refused it knows the type.
pub type Rejection = Box<dyn Error + Send + Sync>;

/// A commit that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Refused by validation: nothing was written.
    #[error("{0}")]
    Rejected(Rejection),
    /// The engine could not.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
