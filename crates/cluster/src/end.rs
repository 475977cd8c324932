//! How a node ends, and what its owner does then.

use ropewalk_engine::EngineError;
use ropewalk_log::shared::EntryIndex;

/// Why a node has ended. Its database accepts no commit any more; its snapshots can still be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// Another node leads, and this node's memory may hold commits that the shared log does not have.
    #[error("another node leads; this one opens its database again and follows")]
    Deposed,
    /// The node led, and gave it up on request.
    #[error("this node has stepped down; it opens its database again and follows")]
    SteppedDown,
    /// The database stopped: a failed write, or a commit of which it is unknown whether the shared log has it.
    #[error("{error}; this node opens its database again and follows")]
    Stopped {
        /// The first failure.
        error: EngineError,
    },
    /// The entries that follow this node's place were removed. It needs a newer copy of the database.
    #[error(
        "the shared log begins at entry {oldest}, after the place of this node, which needs a newer copy"
    )]
    Trimmed {
        /// The oldest entry that can be read.
        oldest: EntryIndex,
    },
    /// The shared log lost its end, has a gap, or was created again.
    #[error("the shared log is damaged: {what}")]
    Lost {
        /// The damage and its position.
        what: String,
    },
    /// The contents of this node are not those of most nodes.
    #[error("{error}")]
    Differs {
        /// Commit, what was compared, and both hashes.
        error: EngineError,
    },
    /// An entry does not continue what this node has.
    #[error("{error}")]
    Diverged {
        /// The entry, and what is wrong with it.
        error: EngineError,
    },
}

impl End {
    /// True if the owner may open the database again and continue. Otherwise an operator decides.
    pub fn is_reopened(&self) -> bool {
        matches!(self, Self::Deposed | Self::SteppedDown | Self::Stopped { .. })
    }
}
