//! The cluster of a server.

use hyper::Method;
use serde::Deserialize;

use super::{NOTHING, Remote, encode};
use crate::database::listed::{ListedMember, ListedNode};
use crate::output::failure::Result;

#[derive(Deserialize)]
struct Status {
    node: String,
    role: String,
    addresses: Vec<String>,
    term: u64,
    leader: Option<Vec<String>>,
    seq: u64,
    lag_ms: u64,
    lag_commits: u64,
    log_error: Option<String>,
    warnings: Vec<String>,
    members: Vec<Member>,
    checkpoints: Option<Checkpoints>,
    #[serde(default)]
    contents: Contents,
}

/// A leader that has given up leading.
#[derive(Deserialize)]
pub(crate) struct SteppedDown {
    pub(crate) node: String,
    pub(crate) term: u64,
    pub(crate) leads_within_ms: u64,
}

/// A node that was removed.
#[derive(Deserialize)]
pub(crate) struct RemovedNode {
    pub(crate) node: String,
    /// Its addresses, if it was a member.
    pub(crate) addresses: Option<Vec<String>>,
    /// Its reports that were deleted from the checkpoint store.
    pub(crate) reports: u64,
}

#[derive(Default, Deserialize)]
struct Checkpoints {
    number: Option<u64>,
    age_ms: Option<u64>,
    error: Option<String>,
}

/// Comparisons of contents. A server that is alone, or of an earlier version, has none.
#[derive(Default, Deserialize)]
pub(crate) struct Contents {
    pub(crate) equal_seq: u64,
    /// Nodes that have reported other hashes than those of the leader.
    pub(crate) differing: Vec<String>,
    pub(crate) last_check: Option<Check>,
    /// Checks that ended while this node led, early or at the end of the contents.
    pub(crate) checks: u64,
    pub(crate) error: Option<String>,
}

/// A check of all contents.
#[derive(Deserialize)]
pub(crate) struct Check {
    pub(crate) bytes: u64,
    pub(crate) seq: u64,
}

#[derive(Deserialize)]
struct Member {
    node: String,
    addresses: Vec<String>,
}

/// The URL of the HTTP API among the addresses of a node.
fn http(addresses: Vec<String>) -> Option<String> {
    addresses.into_iter().find(|url| url.starts_with("http://") || url.starts_with("https://"))
}

impl Remote {
    /// The state of the node.
    pub(crate) fn cluster(&self) -> Result<ListedNode> {
        let status: Status = self.client.ask(Method::GET, "/v1/cluster", NOTHING)?;
        let member = |member: Member| ListedMember { node: member.node, address: http(member.addresses) };
        let checkpoints = status.checkpoints.unwrap_or_default();
        Ok(ListedNode {
            node: status.node,
            role: status.role,
            term: status.term,
            leader: status.leader.and_then(http),
            seq: status.seq,
            lag_ms: status.lag_ms,
            lag_commits: status.lag_commits,
            address: http(status.addresses),
            log_error: status.log_error,
            checkpoint: checkpoints.number,
            checkpoint_age_ms: checkpoints.age_ms,
            checkpoint_error: checkpoints.error,
            contents: status.contents,
            warnings: status.warnings,
            members: status.members.into_iter().map(member).collect(),
        })
    }

    /// Begins to compare all contents of the nodes; returns the state before.
    pub(crate) fn check_contents(&self) -> Result<Contents> {
        self.client.ask(Method::POST, "/v1/cluster/check", NOTHING)
    }

    /// Lets the node give up leading.
    pub(crate) fn step_down(&self) -> Result<SteppedDown> {
        self.client.ask(Method::POST, "/v1/cluster/step-down", NOTHING)
    }

    /// Removes a node that will not return.
    pub(crate) fn remove_node(&self, node: &str) -> Result<RemovedNode> {
        self.client.ask(Method::DELETE, &format!("/v1/cluster/members/{}", encode(node)), NOTHING)
    }
}
