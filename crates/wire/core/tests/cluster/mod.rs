//! Two nodes over a shared log in memory, for the tests of the protocols: a leader, and a follower that applies entries when
//! the test says so.
#![allow(dead_code, clippy::unwrap_used)] // each protocol uses a part

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropewalk::cluster::{LogId, MemorySharedLog, Role, SharedLog as _, SharedOptions};
use ropewalk::engine::Env;
use ropewalk::{Database, Options, Seq};
use ropewalk_wire::{
    CheckpointStatus, Cluster, ClusterStatus, ContentsCheck, ContentsStatus, Member, MemberReport,
    NodeAddresses, RemovedMember, Service, ServiceSettings, SteppedDown, TakenReport, WireError,
};

/// A node of the cluster of a test.
pub(crate) struct Node {
    pub(crate) service: Service,
    log: MemorySharedLog,
    pub(crate) state: Arc<State>,
}

/// Parts of a node that a test may read and change.
pub(crate) struct State {
    db: Database,
    number: u8,
    /// Barriers so far.
    pub(crate) barriers: AtomicU64,
    /// Checks of contents so far.
    pub(crate) checks: AtomicU64,
    /// The node lags more than it may.
    pub(crate) lags: AtomicBool,
}

/// The addresses of a node.
pub(crate) fn addresses(number: u8) -> NodeAddresses {
    let text = format!("http://n{number}:4780,grpc://n{number}:50051,mongodb://n{number}:27017");
    NodeAddresses::parse(&text).unwrap()
}

fn member(number: u8) -> Member {
    let node = format!("{number:032x}");
    Member { node, addresses: addresses(number), seq: None, heard: None }
}

impl Node {
    /// Opens an empty node.
    fn open(log: &MemorySharedLog, number: u8) -> Self {
        let shared = SharedOptions::new(Arc::new(log.handle()), [number; 16], addresses(number).to_string());
        let db = Options::new().env(Env::memory()).shared(shared).open("/db").unwrap();
        let service = Service::new(db.clone(), ServiceSettings::default()).unwrap();
        let (barriers, checks) = (AtomicU64::new(0), AtomicU64::new(0));
        let state = Arc::new(State { db, number, barriers, checks, lags: AtomicBool::new(false) });
        service.join(state.clone());
        Self { service, log: log.clone(), state }
    }

    /// A leader, and a follower that has nothing yet.
    pub(crate) fn pair() -> (Self, Self) {
        let log = MemorySharedLog::new(LogId([9; 16]));
        let (leader, follower) = (Self::open(&log, 1), Self::open(&log, 2));
        leader.lead();
        (leader, follower)
    }

    pub(crate) fn db(&self) -> &Database {
        &self.state.db
    }

    /// Leads. It must have applied all entries.
    pub(crate) fn lead(&self) {
        assert!(self.db().engine().campaign().unwrap());
        self.db().begin_leading().unwrap();
        self.service.begin_leading().unwrap();
    }

    /// Applies every entry that the log has.
    pub(crate) fn follow(&self) {
        loop {
            let entries = self.log.read(self.db().engine().place().index, 1 << 20, Duration::ZERO).unwrap();
            if entries.is_empty() {
                return;
            }
            for entry in &entries {
                self.db().engine().follow(entry).unwrap();
            }
        }
    }

    /// Applies every entry after a while, from another thread.
    pub(crate) fn follow_later(self: &Arc<Self>) -> std::thread::JoinHandle<()> {
        let node = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            node.follow();
        })
    }
}

impl Cluster for State {
    fn status(&self) -> ClusterStatus {
        ClusterStatus {
            node: member(self.number).node,
            addresses: addresses(self.number),
            role: self.db.role(),
            term: self.term(),
            leader: self.leader(),
            seq: self.db.seq(),
            index: self.db.engine().place().index.0,
            lag_entries: 0,
            lag_commits: 0,
            lag: Duration::ZERO,
            members: self.members(),
            warnings: vec!["one server".to_owned()],
            unavailable: None,
            checkpoints: Some(CheckpointStatus {
                newest: Some(5),
                age: Some(Duration::from_millis(1500)),
                made: 2,
                failures: 1,
                failed: None,
            }),
            contents: ContentsStatus {
                equal: Seq(1024),
                hashed_commits: 4,
                hashed_bytes: 400,
                differing: vec![member(2).node],
                check: Some(ContentsCheck { bytes: 7, seq: Seq(3) }),
                last_check: Some((ContentsCheck { bytes: 9, seq: Seq(2) }, Duration::from_millis(2500))),
                checks: self.checks.load(Ordering::Relaxed),
                failed: None,
            },
        }
    }

    fn members(&self) -> Vec<Member> {
        vec![member(1), member(2)]
    }

    fn leader(&self) -> Option<NodeAddresses> {
        match self.db.role() {
            Role::Follower { leader } => NodeAddresses::parse(&leader?).ok(),
            Role::Leader { .. } | Role::Alone => Some(addresses(self.number)),
        }
    }

    fn term(&self) -> u64 {
        self.db.engine().place().term
    }

    fn barrier(&self, _time: Duration) -> Result<(), WireError> {
        self.barriers.fetch_add(1, Ordering::Relaxed);
        Ok(self.db.engine().renew()?)
    }

    fn readiness(&self) -> Result<(), WireError> {
        match self.lags.load(Ordering::Relaxed) {
            true => Err(WireError::exhausted("this node lags")),
            false => Ok(()),
        }
    }

    fn report(&self, secret: &str, report: MemberReport) -> Result<TakenReport, WireError> {
        match secret {
            "known" if self.db.leads() => {
                Ok(TakenReport { seq: self.db.seq(), differs: report.hashes.as_deref() == Some("other") })
            }
            _ => Err(self.db.not_leader().into()),
        }
    }

    fn step_down(&self) -> Result<SteppedDown, WireError> {
        let term = self.term();
        self.db.engine().step_down(None)?;
        let (node, successor) = (member(self.number).node, member(3 - self.number).node);
        Ok(SteppedDown { node, term, successor, within: Duration::from_secs(7) })
    }

    fn remove(&self, node: &str) -> Result<RemovedMember, WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        let found = self.members().into_iter().find(|member| member.node == node);
        let found = found.ok_or_else(|| WireError::not_found(format!("there is no node {node}")))?;
        Ok(RemovedMember { node: found.node, addresses: Some(found.addresses), reports: 1 })
    }

    fn check_contents(&self) -> Result<(), WireError> {
        if !self.db.leads() {
            return Err(self.db.not_leader().into());
        }
        self.checks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
