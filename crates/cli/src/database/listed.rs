//! Rows listed from a directory or a server: stores, consumer groups, parked events, commits, nodes.

use ropewalk::Seq;
use ropewalk::events::SequencedEvent;
use serde::Deserialize;

use crate::database::remote::Contents;

/// An event store in a list.
#[derive(Deserialize)]
pub(crate) struct ListedStore {
    pub(crate) name: String,
    pub(crate) events: u64,
    /// Time of its newest event.
    #[serde(skip)]
    pub(crate) newest: Option<i64>,
}

/// A consumer group in a list.
#[derive(Deserialize)]
pub(crate) struct ListedGroup {
    pub(crate) name: String,
    pub(crate) cursor: u64,
    pub(crate) waiting: u64,
    pub(crate) pending: u64,
    pub(crate) parked: u64,
}

/// A parked event in a list.
pub(crate) struct ListedParked {
    pub(crate) position: u64,
    pub(crate) event_type: String,
    pub(crate) tries: u64,
    pub(crate) reason: String,
}

/// A node of a cluster, as it reports itself.
#[derive(Default)]
pub(crate) struct ListedNode {
    pub(crate) node: String,
    /// `alone`, `leader` or `follower`; empty when the node did not answer.
    pub(crate) role: String,
    pub(crate) term: u64,
    /// The URL of the leader's HTTP API, if the node knows it.
    pub(crate) leader: Option<String>,
    pub(crate) seq: u64,
    pub(crate) lag_ms: u64,
    pub(crate) lag_commits: u64,
    /// The URL of its HTTP API.
    pub(crate) address: Option<String>,
    pub(crate) log_error: Option<String>,
    /// The newest checkpoint of the cluster that it knows.
    pub(crate) checkpoint: Option<u64>,
    pub(crate) checkpoint_age_ms: Option<u64>,
    pub(crate) checkpoint_error: Option<String>,
    pub(crate) contents: Contents,
    pub(crate) warnings: Vec<String>,
    pub(crate) members: Vec<ListedMember>,
}

/// A node that another one knows.
pub(crate) struct ListedMember {
    pub(crate) node: String,
    /// The URL of its HTTP API.
    pub(crate) address: Option<String>,
}

/// A commit of the change feed.
pub(crate) struct ListedCommit {
    pub(crate) seq: Seq,
    pub(crate) time_micros: i64,
    pub(crate) parts: Vec<CommitPart>,
}

/// One change of a commit.
pub(crate) enum CommitPart {
    Event {
        store: String,
        event: SequencedEvent,
    },
    Deleted {
        store: String,
    },
    /// A write to a keyspace, without the value: a server stores its secrets in a keyspace.
    Key {
        keyspace: u64,
        change: String,
        key: Vec<u8>,
        end: Option<Vec<u8>>,
    },
    /// A record of another model, without its content.
    Other {
        model: String,
        bytes: u64,
    },
}
