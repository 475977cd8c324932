//! Cost of opening: bounded after a kill, next to nothing after a close.

use super::*;

/// A keyspace, and commits of 10 KB each in so many megabytes of log, under the default memory budget.
fn megabytes(env: &Env, count: u64) -> (Engine, Keyspace) {
    let options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
    let engine = open(env, options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..100 * count {
        put(&engine, keys, &number.to_be_bytes(), &[7; 10_000], Durability::Buffered).unwrap();
        while engine.background_step().unwrap() {}
    }
    (engine, keys)
}

fn reopened(env: &Env, keys: Keyspace, count: u64) -> Engine {
    let engine = open(env, EngineOptions::default()).unwrap();
    for number in 0..100 * count {
        assert!(get(&engine, keys, &number.to_be_bytes()).is_some(), "commit {number} is there");
    }
    engine
}

#[test]
fn opening_after_a_kill_replays_a_bounded_part_of_the_log() {
    for count in [3, 10, 20] {
        let (disk, _, env) = machine(count);
        let (engine, keys) = megabytes(&env, count);
        disk.kill();
        drop(engine);
        let engine = reopened(&env, keys, count);
        let replayed = engine.recovery().bytes;
        assert!(
            replayed <= EngineOptions::default().replay_bytes + 20_000,
            "{replayed} bytes of {count} MB replayed"
        );
    }
}

#[test]
fn opening_after_a_close_replays_next_to_nothing() {
    let (disk, _, env) = machine(1);
    let (engine, keys) = megabytes(&env, 2);
    engine.close().unwrap();
    drop(engine);
    let engine = reopened(&env, keys, 2);
    assert_eq!(engine.recovery().bytes, 32, "the mark after the last commit");
    drop(engine);
    disk.crash();
    assert_eq!(reopened(&env, keys, 2).seq(), Seq(201));
}

#[test]
fn failed_flush_of_a_close_loses_nothing() {
    let (disk, _, env) = machine(1);
    let (engine, keys) = megabytes(&env, 2);
    disk.fail(DiskOp::Rename, 0);
    engine.close().unwrap();
    drop(engine);
    disk.crash();
    assert_eq!(reopened(&env, keys, 2).seq(), Seq(201));
}

#[test]
fn second_opening_after_a_kill_replays_next_to_nothing() {
    let (disk, _, env) = machine(1);
    let (engine, keys) = megabytes(&env, 2);
    disk.kill();
    drop(engine);
    let engine = open(&env, EngineOptions::default()).unwrap();
    assert!(engine.recovery().bytes > 1 << 20);
    // The flusher writes out what was replayed; this waits for it.
    engine.checkpoint().unwrap();
    disk.kill();
    drop(engine);
    // An idle engine marks its last commit as durable: a record without contents.
    let replayed = reopened(&env, keys, 2).recovery().bytes;
    assert!(replayed <= 32, "{replayed} bytes");
}

#[test]
fn opening_an_existing_database_syncs_only_its_own_directories() {
    let (disk, _, env) = machine(1);
    let deep = Path::new("/a/b/c/db");
    let reopen = || Engine::open(&env, deep, manual(), Vec::new()).unwrap();
    drop(reopen());
    let before = disk.count(DiskOp::SyncDir);
    drop(reopen());
    assert_eq!(disk.count(DiskOp::SyncDir) - before, 2, "the store's and the log's");
}
