//! Errors of checkpoints.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_engine::EngineError;
use ropewalk_log::shared::{EntryIndex, SharedError};

use crate::checkpoint::store::ObjectError;

/// Errors of making, reading and using checkpoints. Calls may be repeated unless a variant says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The checkpoint store.
    #[error(transparent)]
    Store(#[from] ObjectError),
    /// The database.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The shared log.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// A file of this node.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// Operation that failed.
        op: &'static str,
        /// On which path.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// An object is missing, or is not what was stored.
    #[error("object {name} of the checkpoint store: {what}")]
    Damaged {
        /// Name of the object.
        name: String,
        /// The contents found and the contents expected.
        what: String,
    },
    /// Its node was found to have other contents than most nodes.
    #[error("checkpoint {number} was withdrawn: the contents of its node differ from those of most nodes")]
    Withdrawn {
        /// Its number.
        number: u64,
    },
    /// Another node was faster. Its checkpoint is as good.
    #[error("another node has made checkpoint {number}")]
    Outrun {
        /// Number that this checkpoint would have had.
        number: u64,
    },
    /// A checkpoint has entries that this node has not applied yet: another one would be older.
    #[error("checkpoint {number} continues after entry {newest}, and this node has applied entry {place}")]
    Behind {
        /// Number of that checkpoint.
        number: u64,
        /// The entry after which it continues.
        newest: EntryIndex,
        /// The newest entry that this node has applied.
        place: EntryIndex,
    },
    /// This node has not applied any entry since it was opened, so that its place in the shared log is not known.
    #[error("this node has not read the shared log yet")]
    NoPlace,
    /// The shared log was trimmed, and no checkpoint continues before its oldest entry.
    #[error("the shared log begins at entry {oldest}, and no checkpoint can be used: {rejected}")]
    NoneFits {
        /// The oldest entry that can be read.
        oldest: EntryIndex,
        /// Each checkpoint with the reason, separated by semicolons.
        rejected: String,
    },
    /// The store has no checkpoint of which everything is there.
    #[error("the checkpoint store has no complete checkpoint: {rejected}")]
    NoneComplete {
        /// Each checkpoint with the reason, separated by semicolons.
        rejected: String,
    },
    /// A database that was not deleted, because a checkpoint may not have all of it.
    #[error("the database in {} is not replaced by a checkpoint: {what}", dir.display())]
    NotReplaced {
        /// Its directory.
        dir: PathBuf,
        /// Why.
        what: String,
    },
}

impl CheckpointError {
    /// True when a checkpoint cannot be used, whereas an older one may be.
    pub fn is_unusable(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Withdrawn { .. })
    }
}

/// Makes an error of a file.
pub(crate) fn io<'a>(op: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CheckpointError + 'a {
    move |source| CheckpointError::Io { op, path: path.to_owned(), source: Arc::new(source) }
}
