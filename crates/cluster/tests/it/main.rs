//! Nodes over a shared log in memory: stepped with a clock that the test moves, and run in threads.
#![allow(clippy::unwrap_used, clippy::panic)] // clippy.toml allows it in test functions, not in their helpers

mod checkpoints;
mod hashes;
mod operating;
mod reseed;
mod stepped;
mod threads;
mod withdrawn;

use std::sync::Arc;
use std::time::Duration;

use ropewalk::cluster::SharedOptions;
use ropewalk::engine::{Background, Env, KeyspaceOptions};
use ropewalk::{Database, Durability, Options, Seq};
use ropewalk_cluster::{Done, End, Node, Settings};
use ropewalk_log::LogId;
use ropewalk_log::shared::MemorySharedLog;
use ropewalk_vfs::{Clock as _, ManualClock};

const LEASE: Duration = Duration::from_secs(3);

fn new_log() -> MemorySharedLog {
    MemorySharedLog::new(LogId([7; 16]))
}

/// A log, a node that leads, and one that has read nothing yet.
fn leading() -> (MemorySharedLog, Stepped, Stepped) {
    let log = new_log();
    let (leader, follower) = leading_on(&log);
    (log, leader, follower)
}

fn leading_on(log: &MemorySharedLog) -> (Stepped, Stepped) {
    let (leader, follower) = (Stepped::new(log, 1), Stepped::new(log, 2));
    leader.lead();
    (leader, follower)
}

/// A node that the test steps, with its clock and its connection to the log.
struct Stepped {
    node: Node,
    clock: Arc<ManualClock>,
    log: MemorySharedLog,
    env: Env,
    number: u8,
}

impl Stepped {
    fn new(log: &MemorySharedLog, number: u8) -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.jump_wall_micros(1_700_000_000_000_000);
        let env = Env { clock: clock.clone(), ..Env::memory() };
        Self::open(log.handle(), number, clock, env)
    }

    fn open(log: MemorySharedLog, number: u8, clock: Arc<ManualClock>, env: Env) -> Self {
        Self::open_with(log, number, clock, env, Duration::ZERO)
    }

    fn open_with(
        log: MemorySharedLog,
        number: u8,
        clock: Arc<ManualClock>,
        env: Env,
        hold_off: Duration,
    ) -> Self {
        let shared = SharedOptions {
            patience: Duration::from_secs(1),
            ..SharedOptions::new(Arc::new(log.clone()), [number; 16], format!("node-{number}"))
        };
        let options = Options::new().background(Background::Manual).env(env.clone()).shared(shared);
        let db = options.open("/db").unwrap();
        let settings =
            Settings { lease: LEASE, seed: number.into(), read_wait: Duration::ZERO, ..Settings::default() };
        let node = Node::new(db, Arc::new(log.clone()), settings).hold_off(hold_off);
        Self { node, clock, log, env, number }
    }

    /// Closes the database and opens it again, as the owner of a node does.
    fn open_again(self) -> Self {
        let Self { node, clock, log, env, number } = self;
        node.database().clone().close().unwrap();
        drop(node);
        Self::open(log, number, clock, env)
    }

    fn step(&self) -> Done {
        self.node.step(self.clock.monotonic_nanos()).done
    }

    /// The end of the node, within this time.
    fn ended_within(&self, time: Duration) -> Option<End> {
        match self.run_for(time, |done| matches!(done, Done::Ended(_))) {
            Some(Done::Ended(end)) => Some(end),
            _ => None,
        }
    }

    /// Steps after each of so many pauses of 100 ms; returns the first step of interest.
    fn run_for(&self, time: Duration, is_wanted: impl Fn(&Done) -> bool) -> Option<Done> {
        for _ in 0..time.as_millis() / 100 {
            self.clock.advance(Duration::from_millis(100));
            let done = self.step();
            if is_wanted(&done) {
                return Some(done);
            }
        }
        None
    }

    fn lead(&self) {
        let led = self.run_for(4 * LEASE, |done| matches!(done, Done::Led { .. }));
        assert!(led.is_some(), "{:?}", self.node.status());
    }

    /// Applies everything that the log has.
    fn follow_all(&self) {
        while let Done::Followed { .. } = self.step() {}
    }

    fn put(&self, value: &[u8]) -> Seq {
        put(self.node.database(), value)
    }

    fn get(&self) -> Option<Vec<u8>> {
        get(self.node.database())
    }
}

fn put(db: &Database, value: &[u8]) -> Seq {
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    db.put(keys, b"k", value, Durability::Sync).unwrap()
}

fn get(db: &Database) -> Option<Vec<u8>> {
    let keys = db.keyspace("k", KeyspaceOptions::default()).ok()?;
    db.snapshot().get(keys, b"k").unwrap().map(|value| value.to_vec())
}
