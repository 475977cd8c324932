//! Bugs that the simulation found, each reduced to the shortest test that shows it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::engine::{Background, Env, KeyspaceOptions};
use ropewalk::{AppendOptions, Database, Durability, Event, Options, Query};
use ropewalk_engine::{KvBatch, Operation};
use ropewalk_vfs::{DiskOp, FaultyVfs, ManualClock, SeededRandom};

const DIR: &str = "/data/db";

struct Machine {
    disk: FaultyVfs,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { disk: FaultyVfs::new(seed), clock: Arc::default() }
    }

    fn options(&self) -> Options {
        let env = Env {
            vfs: Arc::new(self.disk.process()),
            clock: self.clock.clone(),
            random: Arc::new(SeededRandom::new(1)),
        };
        Options::new().background(Background::Manual).env(env)
    }

    fn open(&self) -> Database {
        self.options().open(Path::new(DIR)).unwrap()
    }
}

/// The directories of a new database were never synced: a power cut took the whole database with its acknowledged commits.
#[test]
fn a_new_database_survives_a_power_cut() {
    for seed in 0..40 {
        let machine = Machine::new(seed);
        machine.open().events("s").unwrap().append(&[Event::new("A")], None).unwrap();
        machine.disk.crash();
        assert_eq!(machine.open().events("s").unwrap().count(&Query::all()).unwrap(), 1, "disk seed {seed}");
    }
}

/// Directories created by a first opening that failed were not made durable by the second: a power cut lost
/// the database.
#[test]
fn a_database_whose_first_opening_failed_survives_a_power_cut() {
    for seed in 0..40 {
        let machine = Machine::new(seed);
        machine.disk.fail(DiskOp::Create, 1);
        assert!(machine.options().open(Path::new(DIR)).is_err(), "the second directory cannot be made");
        machine.open().events("s").unwrap().append(&[Event::new("A")], None).unwrap();
        machine.disk.crash();
        assert_eq!(machine.open().events("s").unwrap().count(&Query::all()).unwrap(), 1, "disk seed {seed}");
    }
}

/// The checkpoint forgot the time of its last commit, so that after a reopen with an empty log times ran backwards.
#[test]
fn commit_times_do_not_fall_when_the_clock_is_set_back_over_a_checkpoint() {
    let machine = Machine::new(1);
    machine.clock.jump_wall_micros(1_000_000);
    let db = machine.open();
    db.events("s").unwrap().append(&[Event::new("A")], None).unwrap();
    db.checkpoint().unwrap();
    drop(db);
    machine.clock.jump_wall_micros(-500_000);
    let db = machine.open();
    let store = db.events("s").unwrap();
    store.append(&[Event::new("B")], None).unwrap();
    assert!(store.read_last(&Query::all()).unwrap().unwrap().time_micros >= 1_000_000);
    assert_eq!(db.verify().unwrap().violations, [""; 0]);
}

/// A range delete did not delete what the same commit had put before it.
#[test]
fn the_writes_of_one_commit_apply_in_order() {
    let machine = Machine::new(1);
    let db = machine.open();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let inner = ropewalk_engine::Keyspace(keyspace.id());
    let mut batch = KvBatch::new();
    batch.put(inner, b"b", b"before");
    batch.delete_range(inner, b"a", b"c");
    batch.put(inner, b"bb", b"after");
    let operations: Vec<Box<dyn Operation>> = vec![Box::new(batch)];
    db.engine().commit(operations, Durability::Sync).unwrap();
    for reopened in [false, true] {
        let db = if reopened {
            machine.disk.kill();
            machine.open()
        } else {
            db.clone()
        };
        let snapshot = db.snapshot();
        assert!(snapshot.get(keyspace, b"b").unwrap().is_none(), "reopened {reopened}");
        assert_eq!(&*snapshot.get(keyspace, b"bb").unwrap().unwrap(), b"after");
    }
}

/// A stopped engine still made a checkpoint, of commits that the log had refused; then the database did not open.
#[test]
fn checkpoint_after_a_failure_excludes_commits_that_the_log_refused() {
    for failed in [DiskOp::Write, DiskOp::Sync] {
        let machine = Machine::new(1);
        let db = machine.open();
        let store = db.events("s").unwrap();
        store.append(&[Event::new("A")], None).unwrap();
        machine.disk.fail(failed, 0);
        store.append(&[Event::new("B")], None).unwrap_err();
        store.append(&[Event::new("C")], None).unwrap_err();
        db.checkpoint().unwrap_err();
        db.compact().unwrap_err();
        machine.disk.crash();
        let count = machine.open().events("s").unwrap().count(&Query::all()).unwrap();
        assert!((1..=2).contains(&count), "{failed:?}: {count} events");
    }
}

/// An idempotent retry was acknowledged as durable while the commit that it found was not synced yet.
#[test]
fn an_idempotent_retry_is_as_durable_as_it_asks() {
    let interval = Duration::from_secs(3600);
    for seed in 0..20 {
        let machine = Machine::new(seed);
        let db = machine.open();
        let store = db.events("s").unwrap();
        let append = |durability| {
            let idempotency_key = Some("request".to_owned());
            store.append_with(
                &[Event::new("A")],
                AppendOptions { idempotency_key, durability, ..Default::default() },
            )
        };
        append(Durability::Async { interval }).unwrap();
        append(Durability::Sync).unwrap();
        machine.disk.crash();
        assert_eq!(machine.open().events("s").unwrap().count(&Query::all()).unwrap(), 1, "disk seed {seed}");
    }
}
