//! The engine as a node: it leads, or follows the entries of the shared log.

use ropewalk_base::Seq;
use ropewalk_log::shared::{EntryKind, Place, SharedEntry};

use crate::engine::Engine;
use crate::error::EngineError;

/// Part of an engine among the nodes that share its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// No other node: the log is local.
    Alone,
    /// This node commits.
    Leader {
        /// Its term.
        term: u64,
    },
    /// This node applies what the leader commits.
    Follower {
        /// Address that the leader advertises, if it is known.
        leader: Option<String>,
    },
}

/// An entry that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// The leader that wrote it.
    pub node: [u8; 16],
    /// That leader's clock when it was written, microseconds since 1970.
    pub time_micros: i64,
    /// Commits that it made visible.
    pub commits: u64,
    /// The place of this node after it.
    pub place: Place,
}

impl Engine {
    /// Part of this engine among the nodes. Cheap.
    pub fn role(&self) -> Role {
        Role::Alone
    }

    /// True when the engine has stopped because it no longer leads, or cannot know whether its last commits took place.
    /// The owner closes it, opens it again, and follows.
    pub fn is_deposed(&self) -> bool {
        false
    }

    /// The newest entry of the shared log that this node has applied; zero when it is alone.
    pub fn place(&self) -> Place {
        Place::default()
    }

    /// Applies the entry after [`Engine::place`]; its commits are visible when it returns. One caller at a time.
    ///
    /// # Errors
    /// [`EngineError::Diverged`] when it does not continue this database: the engine has stopped. [`EngineError::Busy`], and
    /// any error of [`Engine::campaign`] that does not stop: nothing was applied, and the call may be repeated.
    pub fn follow(&self, entry: &SharedEntry) -> Result<Followed, EngineError> {
        let _ = (entry, Seq::ZERO);
        Err(EngineError::NotLeader { leader: None })
    }

    /// Tries to lead, with the next term: true when this node leads now. False when an entry is newer than those that
    /// it has applied: it has to follow them first.
    ///
    /// # Errors
    /// [`EngineError::Log`] when the shared log does not answer: this node does not lead, and may try again.
    /// [`EngineError::Diverged`] when the shared log has lost entries that this node has.
    pub fn campaign(&self) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Proves that this node leads, and tells the others so. Readers that call it at the same time share one entry; what
    /// they read afterwards contains each commit that any node has acknowledged before the call.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`] when it does not lead, or no longer: then the engine has stopped. As a failed commit.
    pub fn renew(&self) -> Result<(), EngineError> {
        Err(EngineError::NotLeader { leader: None })
    }
}
