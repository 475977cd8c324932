//! Behaviour of the engine on good and bad disks.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

mod cluster;
mod creation;
mod durations;
mod feeds;
mod guards;
mod hashes;
mod keyspaces;
mod opening;
mod panics;
mod range_deletes;
mod records;
mod salvage;
mod sizes;
mod snapshots;
#[cfg(shuttle)]
mod threads;
mod writers;

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_engine::{
    Background, CommitError, Durability, Engine, EngineError, EngineOptions, Keyspace, KeyspaceOptions,
    KvBatch, WriteCapacity,
};
use ropewalk_vfs::{DiskOp, FaultyVfs};
use ropewalk_vfs::{Env, ManualClock};

fn env(disk: &FaultyVfs, clock: &Arc<ManualClock>) -> Env {
    Env { vfs: Arc::new(disk.clone()), clock: clock.clone(), ..Env::real() }
}

/// A disk, a clock, and the environment of both.
fn machine(seed: u64) -> (FaultyVfs, Arc<ManualClock>, Env) {
    let (disk, clock) = (FaultyVfs::new(seed), Arc::default());
    let env = env(&disk, &clock);
    (disk, clock, env)
}

fn manual() -> EngineOptions {
    EngineOptions { memory_budget: 1 << 20, background: Background::Manual, ..EngineOptions::default() }
}

fn open(env: &Env, options: EngineOptions) -> Result<Engine, EngineError> {
    Engine::open(env, Path::new("/db"), options, Vec::new())
}

/// An engine with one keyspace.
fn open_with_keys(env: &Env) -> (Engine, Keyspace) {
    let engine = open(env, manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    (engine, keys)
}

fn put(
    engine: &Engine,
    keys: Keyspace,
    key: &[u8],
    value: &[u8],
    durability: Durability,
) -> Result<Seq, CommitError> {
    let mut batch = KvBatch::new();
    batch.put(keys, key, value);
    engine.commit(vec![Box::new(batch)], durability).map(|done| done.seq)
}

/// Reads by a snapshot and by a single read, which must agree.
fn get(engine: &Engine, keys: Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    let found = engine.snapshot().read().get(keys, key).unwrap().map(|value| value.to_vec());
    let looked = engine.with_value(keys, key, |value| value.map(<[u8]>::to_vec)).unwrap();
    assert_eq!(looked, found);
    found
}

#[test]
fn failed_sync_stops_the_engine_and_reopening_has_acknowledged_commits() {
    for op in [DiskOp::Sync, DiskOp::Write] {
        let (disk, _, env) = machine(1);
        let (engine, keys) = open_with_keys(&env);
        put(&engine, keys, b"good", b"1", Durability::Sync).unwrap();
        disk.fail(op, 0);
        let refused = put(&engine, keys, b"lost", b"2", Durability::Sync).unwrap_err();
        assert!(matches!(refused, CommitError::Engine(EngineError::Stopped { .. })), "{op:?}: {refused}");
        assert!(refused.to_string().contains("simulated"), "the cause is told: {refused}");
        assert_eq!(get(&engine, keys, b"lost"), None, "what is not durable is not seen");
        assert!(put(&engine, keys, b"later", b"3", Durability::Sync).is_err());
        assert_eq!(engine.seq(), Seq(2), "the keyspace, and the good commit");
        drop(engine);
        disk.crash();
        let engine = open(&env, manual()).unwrap();
        assert_eq!(get(&engine, keys, b"good").as_deref(), Some(b"1".as_slice()));
        assert_eq!(get(&engine, keys, b"later"), None);
        put(&engine, keys, b"again", b"4", Durability::Sync).unwrap();
    }
}

#[test]
fn a_full_disk_is_a_typed_error_and_space_heals_it() {
    let (disk, _, env) = machine(2);
    let (engine, keys) = open_with_keys(&env);
    // The log has its segment; flushing finds no room.
    for i in 0..60_u32 {
        put(&engine, keys, &i.to_be_bytes(), &[7; 2000], Durability::Sync).unwrap();
    }
    disk.set_space(Some(disk.used() + 1000));
    let failed = engine.checkpoint().unwrap_err();
    assert!(failed.to_string().contains("no space left"), "{failed}");
    assert_eq!(get(&engine, keys, &7_u32.to_be_bytes()).unwrap(), [7; 2000]);
    disk.set_space(None);
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().checkpoint, Seq(61), "the keyspace, and 60 puts");
    drop(engine);
    disk.crash();
    let engine = open(&env, manual()).unwrap();
    assert_eq!(get(&engine, keys, &59_u32.to_be_bytes()).unwrap(), [7; 2000]);
}

#[test]
fn writers_get_an_error_when_flushing_fails_and_the_budget_is_spent() {
    let disk = FaultyVfs::new(3);
    let env = Env { vfs: Arc::new(disk.clone()), ..Env::real() };
    let options = EngineOptions { background: Background::Threads, ..manual() };
    let engine = open(&env, options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    // Room for the log's segments, none for runs.
    disk.set_space(Some(disk.used() + 200_000));
    let refused = (0..5000_u32)
        .find_map(|i| put(&engine, keys, &i.to_be_bytes(), &[1; 500], Durability::Buffered).err())
        .expect("a budget that nothing empties must fill");
    let CommitError::Engine(error) = refused else { panic!("{refused}") };
    assert!(matches!(error, EngineError::Busy { .. } | EngineError::Stopped { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(engine.stats().write_bytes <= engine.stats().write_bytes_max + (1 << 20));
}

#[test]
fn flush_waits_for_splitting_snapshots_unless_a_caller_waits_for_it() {
    let options = EngineOptions { background: Background::Threads, ..manual() };
    let engine = open(&Env::memory(), options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let put = |key: &[u8], bytes: usize| put(&engine, keys, key, &vec![7; bytes], Durability::Sync).unwrap();
    put(b"a", 10);
    let in_the_midst = engine.snapshot();
    let last = put(b"b", 1 << 18); // enough for a generation
    while engine.stats().checkpoint < last {
        std::thread::sleep(Duration::from_millis(1));
    }
    let waits = engine.stats().reader_waits;
    assert!(waits > 0);
    drop(in_the_midst);
    put(b"c", 10);
    let in_the_midst = engine.snapshot();
    let last = put(b"d", 10);
    engine.checkpoint().unwrap();
    assert_eq!((engine.stats().checkpoint, engine.stats().reader_waits), (last, waits));
    drop(in_the_midst);
}

#[test]
fn async_commits_are_visible_at_once_and_synced_within_their_interval() {
    let (disk, clock, env) = machine(4);
    let (engine, keys) = open_with_keys(&env);
    let interval = Duration::from_millis(50);
    let syncs = engine.stats().log.syncs;
    put(&engine, keys, b"a", b"1", Durability::Async { interval }).unwrap();
    assert_eq!(get(&engine, keys, b"a").unwrap(), b"1");
    clock.advance(Duration::from_millis(49));
    engine.background_step().unwrap();
    assert_eq!(engine.stats().log.syncs, syncs);
    clock.advance(Duration::from_millis(1));
    assert!(engine.background_step().unwrap());
    assert_eq!(engine.stats().log.syncs, syncs + 1);
    std::mem::forget(engine);
    disk.crash();
    let engine = open(&env, manual()).unwrap();
    assert_eq!(get(&engine, keys, b"a").unwrap(), b"1");
}

#[test]
fn unsynced_commits_are_lost_only_from_the_end() {
    for seed in 0..40 {
        let (disk, _, env) = machine(seed);
        let (engine, keys) = open_with_keys(&env);
        for i in 0..20_u32 {
            let durability = if i == 9 { Durability::Sync } else { Durability::Buffered };
            put(&engine, keys, &i.to_be_bytes(), &[5; 700], durability).unwrap();
        }
        std::mem::forget(engine);
        disk.crash();
        let engine = open(&env, manual()).unwrap();
        let kept = (0..20_u32).take_while(|i| get(&engine, keys, &i.to_be_bytes()).is_some()).count() as u32;
        assert!(kept >= 10, "seed {seed}: a synced commit is lost");
        assert!((kept..20).all(|i| get(&engine, keys, &i.to_be_bytes()).is_none()), "seed {seed}: a hole");
        assert_eq!(engine.seq(), Seq(1 + u64::from(kept)));
    }
}

#[test]
fn snapshots_are_stable_through_checkpoint_compaction_and_repin() {
    let (disk, clock) = (FaultyVfs::new(5), Arc::default());
    let engine = open(&env(&disk, &clock), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..8_u8 {
        for key in 0..50_u8 {
            put(&engine, keys, &[key], &[round; 100], Durability::Buffered).unwrap();
        }
        let mut drop_some = KvBatch::new();
        drop_some.delete_range(keys, &[10 + round], &[12 + round]);
        engine.commit(vec![Box::new(drop_some)], Durability::Buffered).unwrap();
        snapshots.push((round, engine.snapshot()));
        match round % 3 {
            0 => engine.checkpoint().unwrap(),
            1 => engine.compact().unwrap(),
            _ => {}
        }
        for (round, snapshot) in &mut snapshots {
            snapshot.refresh_sources();
            for key in 0..50_u8 {
                let dropped = (10 + *round..12 + *round).contains(&key);
                let value = snapshot.read().get(keys, &[key]).unwrap().map(|value| value.to_vec());
                assert_eq!(value, (!dropped).then(|| vec![*round; 100]), "round {round}, key {key}");
            }
        }
    }
    drop(snapshots);
    engine.compact().unwrap();
    let entries: u64 = engine.stats().store.keyspaces.iter().map(|k| k.entries).sum();
    assert_eq!(entries, 48, "versions that nobody can see are gone");
}

#[test]
fn feed_from_a_trimmed_commit_reports_the_oldest_one() {
    let (disk, clock) = (FaultyVfs::new(6), Arc::default());
    let mut options = EngineOptions { log_retention_bytes: 0, ..manual() };
    options.log.segment_bytes_first = 64 << 10;
    options.log.segment_bytes_max = 64 << 10;
    let engine = open(&env(&disk, &clock), options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    for i in 0..400_u32 {
        put(&engine, keys, &i.to_be_bytes(), &[3; 1000], Durability::Buffered).unwrap();
    }
    engine.checkpoint().unwrap();
    let late = engine.changes(Seq(1)).unwrap().next().map(|_| ()).unwrap_err();
    let EngineError::FeedTrimmed { asked, oldest } = late else { panic!("{late}") };
    assert_eq!(asked, Seq(1));
    let mut feed = engine.changes(oldest).unwrap();
    let mut next = oldest;
    while let Some(change) = feed.next().unwrap() {
        assert_eq!(change.seq, next);
        next = next.next();
    }
    assert_eq!(next, Seq(402), "after the keyspace and 400 puts");
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_with_its_path() {
    for op in [DiskOp::Create, DiskOp::Sync, DiskOp::SyncDir, DiskOp::Rename] {
        let (disk, clock) = (FaultyVfs::new(7), Arc::default());
        disk.fail(op, 0);
        let refused = open(&env(&disk, &clock), manual()).err().expect("must be refused").to_string();
        assert!(refused.contains("/db"), "{op:?}: {refused}");
        open(&env(&disk, &clock), manual())
            .unwrap_or_else(|error| panic!("{op:?}: a second try works: {error}"));
    }
}

#[test]
fn a_transaction_over_the_limit_is_refused_before_anything_happens() {
    let (disk, clock) = (FaultyVfs::new(8), Arc::default());
    let engine = open(&env(&disk, &clock), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let value = vec![0; 65 << 20];
    let refused = put(&engine, keys, b"k", &value, Durability::Sync).unwrap_err();
    assert!(matches!(refused, CommitError::Engine(EngineError::TooLarge { .. })), "{refused}");
    assert_eq!(engine.seq(), Seq(1), "the keyspace only");
}

#[test]
fn write_capacity_predicts_waits_of_submit_and_try_submit_never_waits() {
    let (disk, clock) = (FaultyVfs::new(1), Arc::default());
    let engine = open(&env(&disk, &clock), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let submit = |n: u64| {
        let mut batch = KvBatch::new();
        batch.put(keys, &n.to_be_bytes(), &[7; 4096]);
        let mut handle = engine.try_submit(vec![Box::new(batch)], Durability::Sync).unwrap();
        engine.drive();
        handle.try_take().unwrap().unwrap();
    };
    assert_eq!(engine.write_capacity(), WriteCapacity::Free);
    let (mut written, mut tight) = (0, false);
    while engine.write_capacity() != WriteCapacity::Spent {
        tight |= matches!(engine.write_capacity(), WriteCapacity::Tight(_));
        submit(written);
        written += 1;
    }
    assert!(tight && written > 50);
    submit(written);
    while engine.background_step().unwrap() {}
    assert_eq!(engine.write_capacity(), WriteCapacity::Free);
}

/// The mark that the background leaves in an idle log moves the log's tail, which the next append expects where it was.
#[test]
fn commit_succeeds_after_the_mark_of_an_idle_log() {
    std::thread::scope(|scope| {
        // More threads than processors, so that the background is now early and now late.
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..100 {
                    let engine = open(&Env::memory(), EngineOptions::default()).unwrap();
                    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
                    for n in 0..8 {
                        let done = put(&engine, keys, b"k", &[n], Durability::Sync);
                        assert!(done.is_ok(), "round {round}: {}", done.unwrap_err());
                    }
                }
            });
        }
    });
}

#[test]
fn unchanged_range_is_certain_until_memory_is_flushed() {
    let (disk, clock) = (FaultyVfs::new(9), Arc::default());
    let engine = open(&env(&disk, &clock), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let unchanged = |start: &[u8], end: &[u8], since: Seq| {
        engine.snapshot().read().is_known_unchanged_since(keys, start, Some(end), since)
    };
    put(&engine, keys, b"b", b"1", Durability::Sync).unwrap();
    let seen = engine.seq();
    assert!(unchanged(b"a", b"z", seen));
    put(&engine, keys, b"m", b"2", Durability::Sync).unwrap();
    assert!(unchanged(b"a", b"m", seen) && unchanged(b"n", b"z", seen));
    assert!(!unchanged(b"a", b"n", seen));
    let later = engine.seq();
    assert!(unchanged(b"a", b"z", later));
    // Without a snapshot of `seen` the runs do not tell which commits came after it.
    engine.checkpoint().unwrap();
    assert!(!unchanged(b"a", b"m", seen));
    assert!(unchanged(b"a", b"z", later));
    put(&engine, keys, b"b", b"3", Durability::Sync).unwrap();
    assert!(!unchanged(b"a", b"z", later) && unchanged(b"c", b"z", later));
}
