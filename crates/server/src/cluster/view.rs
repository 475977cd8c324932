//! The node and its cluster as the protocols see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk::Database;
use ropewalk::cluster::Role;
use ropewalk::hooks::{from_hex, hex};
use ropewalk_cluster::{BarrierError, HashReport, HashStatus, Node, Pass};
use ropewalk_wire::{
    Cluster, ClusterStatus, Code, ContentsCheck, ContentsStatus, Member, MemberReport, NodeAddresses,
    RemovedMember, SteppedDown, TakenReport, WireError,
};

use crate::cluster::checkpoints::Keeper;
use crate::cluster::members::{LIVE_TIME, Members};
use crate::cluster::node_settings;
use crate::config::settings;

/// The state of the cluster for the protocols.
pub(super) struct View {
    node: Arc<Node>,
    db: Database,
    /// Name of this node, in hexadecimal digits.
    pub(super) name: String,
    pub(super) addresses: NodeAddresses,
    pub(super) members: Members,
    /// The checkpoints of the cluster, if it has some.
    pub(super) keeper: Option<Keeper>,
    lag_max: Duration,
    /// Time within which another node leads after this one has stepped down.
    patience_max: Duration,
    /// The newest commit of the leader at its last answer.
    leader_seq: AtomicU64,
    /// The hashes of this node differed from those of the leader then.
    differs: AtomicBool,
}

impl View {
    pub(super) fn new(
        node: Arc<Node>,
        name: [u8; 16],
        addresses: NodeAddresses,
        keeper: Option<Keeper>,
        settings: &settings::Cluster,
    ) -> Result<Self, ropewalk::Error> {
        let db = node.database().clone();
        let members = Members::new(&db)?;
        let patience_max = node_settings(settings).patience_max();
        let (name, lag_max) = (hex(&name), settings.lag_max.0);
        let (leader_seq, differs) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { node, db, name, addresses, members, keeper, lag_max, patience_max, leader_seq, differs })
    }

    pub(super) fn database(&self) -> &Database {
        &self.db
    }

    /// The newest entry that is applied.
    pub(super) fn index(&self) -> u64 {
        self.db.engine().place().index.0
    }

    /// Notes the answer of the leader to a report.
    pub(super) fn leader_has(&self, answer: TakenReport) {
        self.leader_seq.fetch_max(answer.seq.0, Ordering::Relaxed);
        self.differs.store(answer.differs, Ordering::Relaxed);
    }

    /// The report of this node.
    pub(super) fn own_report(&self) -> MemberReport {
        let (node, addresses) = (self.name.clone(), self.addresses.clone());
        let hashes = self.node.hash_report().to_text();
        MemberReport { node, addresses, seq: self.db.seq(), hashes }
    }

    /// Adds this node to the members, as the leader.
    pub(super) fn join(&self) -> Result<(), WireError> {
        self.members.take(&self.db, self.own_report())
    }
}

/// The addresses in the text that a leader advertises.
fn parsed(text: &str) -> Option<NodeAddresses> {
    let parsed = NodeAddresses::parse(text);
    parsed.inspect_err(|why| tracing::debug!(why, "the leader's addresses cannot be read")).ok()
}

impl Cluster for View {
    fn status(&self) -> ClusterStatus {
        let status = self.node.status();
        let leads = matches!(status.role, Role::Leader { .. });
        let seq = self.db.seq();
        let leader_seq = if leads { seq.0 } else { self.leader_seq.load(Ordering::Relaxed) };
        let now = self.db.engine().env().clock.monotonic_nanos();
        ClusterStatus {
            node: self.name.clone(),
            addresses: self.addresses.clone(),
            leader: self.leader(),
            role: status.role,
            term: status.term,
            seq,
            index: status.index.0,
            lag_entries: status.lag_entries,
            lag_commits: leader_seq.saturating_sub(seq.0),
            lag: status.lag,
            members: self.members(),
            warnings: status.warnings,
            unavailable: status.unavailable,
            checkpoints: self.keeper.as_ref().map(|keeper| keeper.status(now)),
            contents: contents(status.hashes, now),
        }
    }

    fn members(&self) -> Vec<Member> {
        self.members.list(&self.db, self.db.leads())
    }

    fn leader(&self) -> Option<NodeAddresses> {
        match self.db.role() {
            Role::Follower { leader } => parsed(&leader?),
            Role::Leader { .. } | Role::Alone => Some(self.addresses.clone()),
        }
    }

    fn term(&self) -> u64 {
        self.db.engine().place().term
    }

    fn barrier(&self, time: Duration) -> Result<(), WireError> {
        let deadline = self.db.engine().env().clock.deadline(time);
        match self.node.barrier(deadline) {
            Ok(_) => Ok(()),
            Err(BarrierError::NotLeader { leader }) => Err(WireError::not_leader(leader.as_deref())),
            Err(BarrierError::Engine(error)) => Err(error.into()),
            Err(error) => Err(WireError::new(Code::Timeout, error.to_string())),
        }
    }

    fn readiness(&self) -> Result<(), WireError> {
        let status = self.node.status();
        if let (Role::Leader { .. }, Some(cause)) = (&status.role, status.unavailable) {
            return Err(WireError::exhausted(format!("the shared log does not answer: {cause}")));
        }
        if status.lag > self.lag_max {
            let (lag, max) = (status.lag, self.lag_max);
            let what = format!("this node lags {lag:?} after the shared log; at most {max:?} are allowed");
            return Err(WireError::exhausted(what));
        }
        if !self.db.leads() && self.differs.load(Ordering::Relaxed) {
            let what =
                "the contents of this node differ from those of the leader; the one with fewer nodes stops";
            return Err(WireError::exhausted(what));
        }
        Ok(())
    }

    fn report(&self, secret: &str, report: MemberReport) -> Result<TakenReport, WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        if !self.members.is_secret(&self.db, secret)? {
            return Err(WireError::new(Code::Unauthenticated, "the secret of the cluster is another one"));
        }
        let name: Option<[u8; 16]> = from_hex(&report.node).and_then(|bytes| bytes.try_into().ok());
        // Those of a later version may have another form.
        let hashes = report.hashes.as_deref().and_then(HashReport::parse);
        self.members.take(&self.db, report)?;
        let differs = match name.zip(hashes) {
            Some((node, hashes)) => {
                let differs = self.node.differs(&hashes);
                self.node.take_hashes(node, hashes);
                differs
            }
            None => false,
        };
        Ok(TakenReport { seq: self.db.seq(), differs })
    }

    fn step_down(&self) -> Result<SteppedDown, WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        let is_live =
            |member: &Member| member.node != self.name && member.heard.is_some_and(|heard| heard < LIVE_TIME);
        // One whose contents differ leads only if there is no other.
        let differing: Vec<String> =
            self.node.status().hashes.differing.iter().map(|name| hex(name)).collect();
        let rank = |member: &Member| (!differing.contains(&member.node), member.seq);
        let newest = self.members().into_iter().filter(is_live).max_by_key(rank);
        let Some(successor) = newest.map(|member| member.node) else {
            let what = format!("no other node has reported within {LIVE_TIME:?}, so none could lead");
            return Err(WireError::exhausted(what));
        };
        let name: Option<[u8; 16]> = from_hex(&successor).and_then(|bytes| bytes.try_into().ok());
        let term = self.node.step_down(name)?;
        tracing::warn!(term, successor, "this node steps down; another one leads next");
        Ok(SteppedDown { node: self.name.clone(), term, successor, within: self.patience_max })
    }

    fn remove(&self, node: &str) -> Result<RemovedMember, WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        let name: Option<[u8; 16]> = from_hex(node).and_then(|bytes| bytes.try_into().ok());
        let Some(name) = name else {
            let what = format!("{node:?} is no name of a node: it has 32 hexadecimal digits");
            return Err(WireError::invalid(what));
        };
        let node = hex(&name);
        if node == self.name {
            let what = format!("node {node} leads; let it step down, and stop it, before it is removed");
            return Err(WireError::invalid(what));
        }
        self.members.check_silent(&node)?;
        // First: after a failure the node is listed, and the request may be repeated.
        let reports = self.keeper.as_ref().map_or(Ok(0), |keeper| keeper.forget(&name))?;
        let addresses = self.members.remove(&self.db, &node)?;
        if addresses.is_none() && reports == 0 {
            return Err(WireError::not_found(format!("there is no node {node}")));
        }
        tracing::info!(node, reports, "removed a node from the cluster");
        Ok(RemovedMember { node, addresses, reports })
    }

    fn check_contents(&self) -> Result<(), WireError> {
        self.node.check_contents()?;
        tracing::info!("the contents of the nodes are compared");
        Ok(())
    }
}

/// The comparisons of a node, for the protocols. `now` is of the monotonic clock of the database.
fn contents(status: HashStatus, now: u64) -> ContentsStatus {
    let check = |Pass { bytes, seq, .. }| ContentsCheck { bytes, seq };
    let ended = |(pass, at)| (check(pass), Duration::from_nanos(now.saturating_sub(at)));
    ContentsStatus {
        equal: status.equal,
        hashed_commits: status.counts.commits,
        hashed_bytes: status.counts.bytes,
        differing: status.differing.iter().map(|node| hex(node)).collect(),
        check: status.pass.map(check),
        last_check: status.last_pass.map(ended),
        checks: status.passes,
        failed: status.failed,
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::cluster::{LogId, MemorySharedLog, SharedOptions};
    use ropewalk::engine::Env;
    use ropewalk::{Options, Seq};

    use super::*;

    #[test]
    fn follower_that_differs_is_not_ready() {
        let log = Arc::new(MemorySharedLog::new(LogId([9; 16])));
        let shared = SharedOptions::new(log.clone(), [1; 16], "http://a:1");
        let db = Options::new().env(Env::memory()).shared(shared).open("/db").unwrap();
        let node = Arc::new(Node::new(db, log, ropewalk_cluster::Settings::default()));
        let settings = settings::Cluster::default();
        let view = View::new(node, [1; 16], NodeAddresses::default(), None, &settings).unwrap();
        view.readiness().unwrap();
        view.leader_has(TakenReport { seq: Seq(1), differs: true });
        assert_eq!(view.readiness().unwrap_err().code, Code::ResourceExhausted);
        view.leader_has(TakenReport { seq: Seq(2), differs: false });
        view.readiness().unwrap();
        assert_eq!(view.own_report().hashes, None, "it has hashed nothing");
    }
}
