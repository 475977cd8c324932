//! The state of a node, for operators.

use core::time::Duration;

use ropewalk::Seq;
use ropewalk_engine::Role;
use ropewalk_log::shared::EntryIndex;

use crate::end::End;
use crate::hashes::HashStatus;

/// State of a node after its last step.
#[derive(Debug, Clone)]
pub struct Status {
    /// Leader or follower.
    pub role: Role,
    /// The newest term that this node knows.
    pub term: u64,
    /// Address of the leader, if this node follows one.
    pub leader: Option<String>,
    /// Newest visible commit.
    pub seq: Seq,
    /// Newest entry that was applied.
    pub index: EntryIndex,
    /// Entries of the shared log that are not applied yet, as of the last answer of the log.
    pub lag_entries: u64,
    /// Time since this node had everything that the log had. Zero while it leads.
    pub lag: Duration,
    /// Why the shared log did not answer the last call, if it did not.
    pub unavailable: Option<String>,
    /// Risks in the settings of the log service, one line each.
    pub warnings: Vec<String>,
    /// Comparisons of contents with other nodes, at most two seconds old.
    pub hashes: HashStatus,
    /// Why the node ended, if it did.
    pub end: Option<End>,
}
