//! The cluster as the protocols see it: the role of this node, the leader's addresses, members, barriers of reads.
//!
//! ```text
//! protocol ─▶ Service::cluster ─▶ trait Cluster ◀─ ropewalk-server, which runs the node
//! ```
//! A node that is alone has no cluster. Not here: whether a write is accepted, which the engine decides.

use core::fmt;
use core::time::Duration;

use ropewalk::Seq;
use ropewalk::cluster::Role;

use crate::error::Result;
use crate::metrics::Gauge;

/// Longest text of addresses, bytes.
const ADDRESSES_BYTES_MAX: usize = 1_000;

/// The addresses of a node: one URL for each protocol that it serves.
///
/// As text they are separated by commas: `http://db1:4780,grpc://db1:50051,postgres://db1:5432,mongodb://db1:27017`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddresses(Vec<String>);

impl NodeAddresses {
    /// Reads the text that a node advertises.
    ///
    /// # Errors
    /// The part that is no URL with a host and a port.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > ADDRESSES_BYTES_MAX {
            return Err(format!("more than {ADDRESSES_BYTES_MAX} bytes of addresses"));
        }
        let mut urls = Vec::new();
        for url in text.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            let port = url.split_once("://").and_then(|(_, authority)| authority.rsplit_once(':'));
            let is_whole = port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            if !is_whole || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("{url:?} is no PROTOCOL://HOST:PORT"));
            }
            urls.push(url.to_owned());
        }
        Ok(Self(urls))
    }

    /// Adds the address of a protocol.
    pub fn push(&mut self, protocol: &str, host: &str, port: u16) {
        self.0.push(format!("{protocol}://{host}:{port}"));
    }

    fn find(&self, protocols: &[&str]) -> Option<&str> {
        let is_one = |url: &&String| url.split_once("://").is_some_and(|(of, _)| protocols.contains(&of));
        self.0.iter().find(is_one).map(String::as_str)
    }

    /// The URL of the HTTP API, without a slash at its end.
    pub fn http(&self) -> Option<&str> {
        self.find(&["http", "https"])
    }

    /// The URL of gRPC.
    pub fn grpc(&self) -> Option<&str> {
        self.find(&["grpc", "grpcs"])
    }

    /// Host and port of MongoDB's protocol.
    pub fn mongo(&self) -> Option<&str> {
        self.find(&["mongodb"])?.split_once("://").map(|(_, authority)| authority)
    }

    /// All URLs.
    pub fn urls(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for NodeAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// A node that has joined the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name: 32 hexadecimal digits.
    pub node: String,
    /// Its addresses.
    pub addresses: NodeAddresses,
    /// Newest commit that it had at its last report; known on the leader.
    pub seq: Option<Seq>,
    /// Time since its last report; known on the leader.
    pub heard: Option<Duration>,
}

/// State of the cluster as this node sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterStatus {
    /// Name of this node: 32 hexadecimal digits.
    pub node: String,
    /// Its addresses.
    pub addresses: NodeAddresses,
    /// Its role.
    pub role: Role,
    /// The newest term that it knows.
    pub term: u64,
    /// Addresses of the leader, if one is known.
    pub leader: Option<NodeAddresses>,
    /// Newest visible commit.
    pub seq: Seq,
    /// Newest entry of the shared log that is applied.
    pub index: u64,
    /// Entries of the shared log that are not applied yet.
    pub lag_entries: u64,
    /// Commits that the leader had at its last report to this node and that are not visible here.
    pub lag_commits: u64,
    /// Time since this node had everything that the shared log had.
    pub lag: Duration,
    /// All nodes that have joined, by name.
    pub members: Vec<Member>,
    /// Risks in the settings of the log service, one line each.
    pub warnings: Vec<String>,
    /// Why the shared log did not answer the last call, if it did not.
    pub unavailable: Option<String>,
    /// The checkpoints of the cluster; `None` when this node has no store for them.
    pub checkpoints: Option<CheckpointStatus>,
    /// Comparisons of the contents of the nodes.
    pub contents: ContentsStatus,
}

/// Comparisons of the contents of this node with those of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentsStatus {
    /// The newest commit up to which the effects of all commits were equal to those of most nodes.
    pub equal: Seq,
    /// Commits whose effects were hashed since the database was opened.
    pub hashed_commits: u64,
    /// Bytes that were hashed for these.
    pub hashed_bytes: u64,
    /// On the leader: nodes whose last report differs from its own hashes.
    pub differing: Vec<String>,
    /// On the leader: the check of all contents that is under way.
    pub check: Option<ContentsCheck>,
    /// The last check that ended while this node led, and the time since then.
    pub last_check: Option<(ContentsCheck, Duration)>,
    /// Checks that ended while this node led, early or at the end of the contents.
    pub checks: u64,
    /// Why the last check ended early, or this node did not take part in it.
    pub failed: Option<String>,
}

/// A check of all contents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContentsCheck {
    /// Bytes that were equal.
    pub bytes: u64,
    /// The commit as of which the last part was compared.
    pub seq: Seq,
}

/// The checkpoints of a cluster, as this node knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Number of the newest checkpoint of this shared log; `None` while none is known.
    pub newest: Option<u64>,
    /// Its age.
    pub age: Option<Duration>,
    /// Checkpoints that this node has made since its database was opened.
    pub made: u64,
    /// Attempts to report, to make a checkpoint or to trim that have failed since then.
    pub failures: u64,
    /// The last failed attempt of the last step, and why it failed; `None` after a step without a failure.
    pub failed: Option<String>,
}

/// Report of a follower to its leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReport {
    /// Name of the follower.
    pub node: String,
    /// Its addresses.
    pub addresses: NodeAddresses,
    /// Its newest visible commit.
    pub seq: Seq,
    /// Its hashes of contents as text, if it has some.
    pub hashes: Option<String>,
}

/// Answer of the leader to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenReport {
    /// Newest commit of the leader.
    pub seq: Seq,
    /// The follower's hashes differ from those of the leader.
    pub differs: bool,
}

/// A leader that has given up leading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteppedDown {
    /// Its name.
    pub node: String,
    /// The term that has ended.
    pub term: u64,
    /// The node that it has asked to lead: of those that have reported lately, one with the newest commit.
    pub successor: String,
    /// Time within which another node leads, if the successor does not and the shared log answers.
    pub within: Duration,
}

/// A node that was removed from the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedMember {
    /// Its name.
    pub node: String,
    /// Its addresses, if it was a member.
    pub addresses: Option<NodeAddresses>,
    /// Reports of it that were deleted from the checkpoint store.
    pub reports: u64,
}

/// The node that this server runs.
pub trait Cluster: Send + Sync {
    /// The state of the node and of what it knows about the others. Does not wait.
    fn status(&self) -> ClusterStatus;

    /// Addresses of the members, by name. Does not wait, and costs little.
    fn members(&self) -> Vec<Member>;

    /// Addresses of the leader, if one is known. Costs little.
    fn leader(&self) -> Option<NodeAddresses>;

    /// The newest term that this node knows. Costs little.
    fn term(&self) -> u64;

    /// Proves that this node leads, so that what is read afterwards contains every commit that was acknowledged before the
    /// call. Blocks for an append to the shared log, at most `time`.
    ///
    /// # Errors
    /// [`crate::Code::NotLeader`]; [`crate::Code::Timeout`].
    fn barrier(&self, time: Duration) -> Result<()>;

    /// Whether a load balancer may send requests here.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`]: the lag of this node exceeds its setting, or its contents differ from those of the
    /// leader.
    fn readiness(&self) -> Result<()>;

    /// Takes the report of a follower that shows the cluster's secret.
    ///
    /// # Errors
    /// [`crate::Code::Unauthenticated`]; [`crate::Code::NotLeader`]; errors of the database.
    fn report(&self, secret: &str, report: MemberReport) -> Result<TakenReport>;

    /// Gives up leading, so that another node leads. Blocks for appends to the shared log. This node opens its database again
    /// and follows; until another one leads, no node accepts writes.
    ///
    /// # Errors
    /// [`crate::Code::NotLeader`]; [`crate::Code::ResourceExhausted`]: no other node has reported, so none could lead;
    /// [`crate::Code::OutcomeUnknown`] of the last commits: this node no longer leads.
    fn step_down(&self) -> Result<SteppedDown>;

    /// Removes a node that will not return from the members, and its reports from the checkpoint store. If it starts again, it
    /// joins again. May be repeated after a failure.
    ///
    /// # Errors
    /// [`crate::Code::NotLeader`]; [`crate::Code::InvalidArgument`]: no name of a node, or that of the leader;
    /// [`crate::Code::ResourceExhausted`]: the node runs; [`crate::Code::NotFound`]; [`crate::Code::Io`] of the checkpoint store;
    /// errors of the database.
    fn remove(&self, node: &str) -> Result<RemovedMember>;

    /// Begins to compare all contents of the nodes, unless that is under way. Does not wait: [`ClusterStatus::contents`] of the
    /// leader shows how far it is.
    ///
    /// # Errors
    /// [`crate::Code::NotLeader`].
    fn check_contents(&self) -> Result<()>;
}

/// The state of a node as metrics.
pub(crate) fn gauges(status: &ClusterStatus) -> Vec<Gauge> {
    let one = |name, help, value: f64| Gauge { name, help, rows: vec![(Vec::new(), value)] };
    let role = match status.role {
        Role::Alone => "alone",
        Role::Leader { .. } => "leader",
        Role::Follower { .. } => "follower",
    };
    let has_answered = if status.unavailable.is_some() { 0.0 } else { 1.0 };
    let mut gauges = vec![
        Gauge {
            name: "ropewalk_cluster_role",
            help: "1 for the role of this node.",
            rows: vec![(vec![("role", role.to_owned())], 1.0)],
        },
        one("ropewalk_cluster_term", "The newest term that this node knows.", status.term as f64),
        one("ropewalk_cluster_lag_entries", "Entries that are not applied.", status.lag_entries as f64),
        one(
            "ropewalk_cluster_lag_seconds",
            "Time since this node had everything that the shared log had.",
            status.lag.as_secs_f64(),
        ),
        one("ropewalk_cluster_log_up", "1 when the shared log answered the last call.", has_answered),
        one(
            "ropewalk_cluster_log_warnings",
            "Risks in the settings of the log service.",
            status.warnings.len() as f64,
        ),
        one("ropewalk_cluster_members", "Nodes that have joined.", status.members.len() as f64),
    ];
    gauges.extend(contents_gauges(&status.contents));
    gauges.extend(status.checkpoints.as_ref().map(checkpoint_gauges).into_iter().flatten());
    gauges
}

/// The comparisons of contents as metrics. The age has no row before a check.
fn contents_gauges(status: &ContentsStatus) -> [Gauge; 6] {
    let gauge = |name, help, value: Option<f64>| Gauge {
        name,
        help,
        rows: value.map(|value| (Vec::new(), value)).into_iter().collect(),
    };
    let age = status.last_check.map(|(_, age)| age.as_secs_f64());
    [
        gauge(
            "ropewalk_cluster_hash_equal_seq",
            "Commit up to which the effects were compared with other nodes, and equal.",
            Some(status.equal.0 as f64),
        ),
        gauge(
            "ropewalk_cluster_hash_differing",
            "On the leader: nodes that have reported other hashes.",
            Some(status.differing.len() as f64),
        ),
        gauge(
            "ropewalk_cluster_hashed_commits",
            "Commits whose effects were hashed since the database was opened.",
            Some(status.hashed_commits as f64),
        ),
        gauge(
            "ropewalk_cluster_hashed_bytes",
            "Bytes that were hashed for these.",
            Some(status.hashed_bytes as f64),
        ),
        gauge(
            "ropewalk_cluster_checks",
            "Checks of all contents that ended while this node led.",
            Some(status.checks as f64),
        ),
        gauge("ropewalk_cluster_check_age_seconds", "Time since the last of these.", age),
    ]
}

/// The checkpoints as metrics. Number and age have no row while no checkpoint is known.
fn checkpoint_gauges(status: &CheckpointStatus) -> [Gauge; 5] {
    let gauge = |name, help, value: Option<f64>| Gauge {
        name,
        help,
        rows: value.map(|value| (Vec::new(), value)).into_iter().collect(),
    };
    let is_up = if status.failed.is_some() { 0.0 } else { 1.0 };
    [
        gauge(
            "ropewalk_cluster_checkpoint_number",
            "Number of the newest checkpoint.",
            status.newest.map(|number| number as f64),
        ),
        gauge(
            "ropewalk_cluster_checkpoint_age_seconds",
            "Age of the newest checkpoint.",
            status.age.map(|age| age.as_secs_f64()),
        ),
        gauge(
            "ropewalk_cluster_checkpoints_made",
            "Checkpoints that this node has made since its database was opened.",
            Some(status.made as f64),
        ),
        gauge(
            "ropewalk_cluster_checkpoint_failures",
            "Failed attempts to report, to make a checkpoint or to trim since then.",
            Some(status.failures as f64),
        ),
        gauge("ropewalk_cluster_checkpoint_up", "1 when nothing failed in the last step.", Some(is_up)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let mut addresses = NodeAddresses::default();
        addresses.push("https", "db1", 4780);
        addresses.push("mongodb", "[::1]", 27017);
        let text = addresses.to_string();
        assert_eq!(text, "https://db1:4780,mongodb://[::1]:27017");
        assert_eq!(NodeAddresses::parse(&text), Ok(addresses.clone()));
        assert_eq!((addresses.http(), addresses.mongo()), (Some("https://db1:4780"), Some("[::1]:27017")));
        assert_eq!(NodeAddresses::parse("").unwrap().http(), None);
    }

    #[test]
    fn addresses_without_host_or_port_are_rejected() {
        for bad in ["db1:4780", "http://db1", "http://:1", "http://a:b", "http://a b:1", "http://ä:1"] {
            assert!(NodeAddresses::parse(bad).is_err(), "{bad}");
        }
        assert!(NodeAddresses::parse(&"http://a:1,".repeat(200)).is_err());
    }
}
