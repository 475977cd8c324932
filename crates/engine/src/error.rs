use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ropewalk_base::{ContentHash, DecodeError, Lsn, Seq};
use ropewalk_log::LogError;
use ropewalk_log::shared::EntryIndex;
use ropewalk_store::StoreError;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = EngineError> = core::result::Result<T, E>;

/// Contents of a node that are not those of most nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node differs from the others at commit {seq}: the hash of {what} is {own} here, and {other} on most nodes"
)]
pub struct Difference {
    /// The commit as of which the nodes were compared.
    pub seq: Seq,
    /// The contents that were compared, with the names of keyspaces if they are known.
    pub what: String,
    /// Hash of this node.
    pub own: ContentHash,
    /// Hash of most nodes.
    pub other: ContentHash,
}

/// Errors of the engine. Cheap to clone: one failure may be returned to a whole group.
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
        /// Operation that failed.
        op: &'static str,
        /// On which path.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// Another process or handle has the directory open.
    #[error("{path} is in use by {holder}; close it there, or open another directory")]
    Locked {
        /// The database directory.
        path: PathBuf,
        /// Contents of the lock file, written by the holder, such as `pid 4711`.
        holder: String,
    },
    /// A backup cannot be made there.
    #[error("no backup to {path}: {what}")]
    BackupTarget {
        /// The path that prevents it.
        path: PathBuf,
        /// Why.
        what: &'static str,
    },
    /// A commit record passed its checksum but cannot be decoded: written by a newer version, or our own bug.
    #[error("commit record {seq} at log address {lsn}: {source}")]
    Record {
        /// Which commit.
        seq: Seq,
        /// Where in the log.
        lsn: Lsn,
        /// Decoding error.
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
    /// The engine stopped after a failed write or sync. Acknowledged commits are safe; reopen to continue.
    #[error("the engine stopped: {cause}; reopen the database to continue")]
    Stopped {
        /// The first failure.
        cause: Arc<str>,
    },
    /// This node does not lead. Nothing was written; the leader accepts it.
    #[error("this node does not lead{}; nothing was written", leader.as_ref().map(|at| format!(", the node at {at} does")).unwrap_or_default())]
    NotLeader {
        /// Address that the leader advertises, if it is known.
        leader: Option<String>,
    },
    /// No answer from the shared log: the transaction may have been committed, or may be committed yet.
    #[error("it is unknown whether commit {seq} took place: {cause}")]
    Unknown {
        /// The number that the commit has if it took place.
        seq: Seq,
        /// The cause.
        cause: Arc<str>,
    },
    /// The shared log does not continue what this node has applied. The node has stopped, and follows nothing any more.
    #[error("entry {index} of the shared log does not continue this database: {what}")]
    Diverged {
        /// The entry.
        index: EntryIndex,
        /// The difference.
        what: Arc<str>,
    },
    /// The contents of this node are not those of most nodes. The node has stopped, and its directory is not opened any more.
    #[error("{0}")]
    Differs(Arc<Difference>),
    /// The directory is that of a node whose contents were found to differ.
    #[error("{path}: {what}; this copy is not opened any more: start the node with an empty directory")]
    Distrusted {
        /// The file that says so.
        path: PathBuf,
        /// Contents of the file.
        what: Arc<str>,
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
    /// The log no longer holds the requested commits.
    #[error("the change feed starts at commit {oldest}; commit {asked} is no longer in the log")]
    FeedTrimmed {
        /// First requested commit.
        asked: Seq,
        /// First commit that the log still holds.
        oldest: Seq,
    },
    /// The state of the database at a commit is not available.
    #[error(
        "commit {asked} cannot be read: commits {oldest} to {newest} can, and an older one while a snapshot of it is open"
    )]
    Unreadable {
        /// The requested commit.
        asked: Seq,
        /// The oldest commit from which on every commit can be read.
        oldest: Seq,
        /// The newest visible commit.
        newest: Seq,
    },
    /// A model found its own data damaged.
    #[error("{model}: {what}")]
    Damaged {
        /// Name of the model.
        model: &'static str,
        /// Description and place of the damage.
        what: Arc<str>,
    },
}

impl From<LogError> for EngineError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::NotLeader => Self::NotLeader { leader: None },
            LogError::Deposed { leader } => Self::NotLeader { leader },
            LogError::Diverged { index, what } => Self::Diverged { index, what: what.into() },
            error => Self::Log(Arc::new(error)),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Why a transaction was refused in its place in the commit order; the model that refused it knows the type.
pub type Rejection = Box<dyn Error + Send + Sync>;

/// A transaction that was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Refused by validation: nothing was written.
    #[error("{0}")]
    Rejected(Rejection),
    /// The shared log gave no answer: the commit may have taken place, or may take place yet.
    #[error("it is unknown whether commit {seq} took place: {cause}")]
    Unknown {
        /// The number that the commit has if it took place.
        seq: Seq,
        /// The cause.
        cause: Arc<str>,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl CommitError {
    /// The reason for the refusal.
    ///
    /// # Errors
    /// The engine's failure; a reason of another type counts as one.
    pub fn reason<T: Error + 'static>(self) -> Result<T> {
        match self {
            Self::Engine(error) => Err(error),
            Self::Unknown { seq, cause } => Err(EngineError::Unknown { seq, cause }),
            Self::Rejected(reason) => match reason.downcast() {
                Ok(reason) => Ok(*reason),
                Err(other) => Err(Self::Rejected(other).into()),
            },
        }
    }
}

impl From<CommitError> for EngineError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Engine(error) => error,
            CommitError::Unknown { seq, cause } => Self::Unknown { seq, cause },
            CommitError::Rejected(reason) => match reason.downcast() {
                Ok(error) => *error,
                Err(other) => Self::Stopped { cause: other.to_string().into() },
            },
        }
    }
}
