//! The node and its cluster as the protocols see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropewalk::cluster::Role;
use ropewalk::hooks::{from_hex, hex};
use ropewalk::{Database, Seq};
use ropewalk_cluster::{BarrierError, Node};
use ropewalk_wire::{
    Cluster, ClusterStatus, Code, Member, MemberReport, NodeAddresses, RemovedMember, SteppedDown, WireError,
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
        let (name, lag_max, leader_seq) = (hex(&name), settings.lag_max.0, AtomicU64::new(0));
        Ok(Self { node, db, name, addresses, members, keeper, lag_max, patience_max, leader_seq })
    }

    pub(super) fn database(&self) -> &Database {
        &self.db
    }

    /// The newest entry that is applied.
    pub(super) fn index(&self) -> u64 {
        self.db.engine().place().index.0
    }

    /// Notes the newest commit of the leader.
    pub(super) fn leader_has(&self, seq: Seq) {
        self.leader_seq.fetch_max(seq.0, Ordering::Relaxed);
    }

    /// The report of this node.
    pub(super) fn own_report(&self) -> MemberReport {
        MemberReport { node: self.name.clone(), addresses: self.addresses.clone(), seq: self.db.seq() }
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
        Ok(())
    }

    fn report(&self, secret: &str, report: MemberReport) -> Result<Seq, WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        if !self.members.is_secret(&self.db, secret)? {
            return Err(WireError::new(Code::Unauthenticated, "the secret of the cluster is another one"));
        }
        self.members.take(&self.db, report)?;
        Ok(self.db.seq())
    }

    fn step_down(&self) -> Result<SteppedDown, WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        let is_live =
            |member: &Member| member.node != self.name && member.heard.is_some_and(|heard| heard < LIVE_TIME);
        if !self.members().iter().any(is_live) {
            let what = format!("no other node has reported within {LIVE_TIME:?}, so none could lead");
            return Err(WireError::exhausted(what));
        }
        let term = self.node.step_down()?;
        tracing::warn!(term, "this node steps down; another one leads next");
        Ok(SteppedDown { node: self.name.clone(), term, within: self.patience_max })
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
}
