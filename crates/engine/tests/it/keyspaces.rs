//! Keyspaces are defined by commits: the log alone gives each its number.

use std::collections::BTreeMap;

use ropewalk_base::Lsn;
use ropewalk_engine::{
    Compression, Isolation, KEYSPACES, KvTransaction, LockMode, StoreError, decode_definition,
};
use ropewalk_log::{CommitLog, LocalLog, LogOptions, Record};
use ropewalk_vfs::OpenMode;

use super::*;

fn packed() -> KeyspaceOptions {
    KeyspaceOptions { compression: Compression::Lz4, ..KeyspaceOptions::default() }
}

/// Creates a database in `to` whose log is a copy of the one in `from`, and which has nothing else of it.
fn copy_log_alone(env: &Env, from: &Path, to: &Path) {
    drop(Engine::open(env, to, manual(), Vec::new()).unwrap());
    let (from, to) = (from.join("log"), to.join("log"));
    for name in env.vfs.list(&to).unwrap() {
        env.vfs.remove(&to.join(name)).unwrap();
    }
    for name in env.vfs.list(&from).unwrap().iter().filter(|name| name.ends_with(".seg")) {
        let source = env.vfs.open(&from.join(name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(source.len().unwrap()).unwrap()];
        source.read_exact_at(&mut bytes, 0).unwrap();
        let copy = env.vfs.open(&to.join(name), OpenMode::CreateNew).unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
    }
}

#[test]
fn log_alone_gives_every_keyspace_its_number_and_contents() {
    let env = Env::memory();
    let engine = open(&env, manual()).unwrap();
    let mut numbers = BTreeMap::new();
    for (round, name) in ["groups", "projections", "last"].into_iter().enumerate() {
        let keys = engine.keyspace(name, KeyspaceOptions::default()).unwrap();
        numbers.insert(name, keys);
        put(&engine, keys, b"k", name.as_bytes(), Durability::Buffered).unwrap();
        match round {
            0 => engine.checkpoint().unwrap(),
            1 => engine.compact().unwrap(),
            _ => assert_eq!(engine.keyspace("groups", packed()).unwrap(), numbers["groups"]),
        }
    }
    let last = engine.seq();
    engine.close().unwrap();
    drop(engine);
    let copy = Path::new("/copy");
    copy_log_alone(&env, Path::new("/db"), copy);
    for _ in 0..2 {
        let engine = Engine::open(&env, copy, manual(), Vec::new()).unwrap();
        assert_eq!(engine.seq(), last);
        for (name, keys) in &numbers {
            let options = if *name == "groups" { packed() } else { KeyspaceOptions::default() };
            assert_eq!(engine.keyspace(name, options).unwrap(), *keys, "{name}");
            assert_eq!(get(&engine, *keys, b"k").as_deref(), Some(name.as_bytes()));
        }
        assert_eq!(engine.seq(), last, "the definitions were found");
        // The second opening reads them from the manifest.
        engine.checkpoint().unwrap();
    }
}

#[test]
fn definition_survives_a_power_cut_before_the_first_checkpoint() {
    for seed in 0..20 {
        let (disk, _, env) = machine(seed);
        let engine = open(&env, manual()).unwrap();
        let (a, b) = (engine.keyspace("a", packed()).unwrap(), engine.keyspace("b", packed()).unwrap());
        put(&engine, b, b"k", b"1", Durability::Sync).unwrap();
        std::mem::forget(engine);
        disk.crash();
        let engine = open(&env, manual()).unwrap();
        assert_eq!(engine.keyspace("b", packed()).unwrap(), b);
        assert_eq!(engine.keyspace("a", packed()).unwrap(), a);
        assert_eq!(get(&engine, b, b"k").as_deref(), Some(b"1".as_slice()));
        assert_eq!(engine.seq(), Seq(3));
    }
}

/// A definition whose sync failed may be lost: the manifest must not have it, and its number goes to another.
#[test]
fn number_of_a_lost_definition_is_given_to_the_next_name() {
    for seed in 0..20 {
        let (disk, _, env) = machine(seed);
        let engine = open(&env, manual()).unwrap();
        let first = engine.keyspace("first", KeyspaceOptions::default()).unwrap();
        disk.fail(DiskOp::Sync, 0);
        let refused = engine.keyspace("lost", KeyspaceOptions::default()).unwrap_err();
        assert!(matches!(refused, EngineError::Stopped { .. }), "{refused}");
        // Found without a commit.
        assert_eq!(engine.keyspace("first", KeyspaceOptions::default()).unwrap(), first);
        std::mem::forget(engine);
        disk.crash();
        let engine = open(&env, manual()).unwrap();
        let survived = engine.seq() == Seq(2);
        let next = engine.keyspace("next", KeyspaceOptions::default()).unwrap();
        assert_eq!(next.0, first.0 + 1 + u16::from(survived), "seed {seed}");
        put(&engine, next, b"k", b"1", Durability::Sync).unwrap();
        engine.checkpoint().unwrap();
        drop(engine);
        assert_eq!(get(&open(&env, manual()).unwrap(), next, b"k").as_deref(), Some(b"1".as_slice()));
    }
}

#[test]
fn threads_that_create_the_same_names_get_the_same_numbers() {
    let engine = open(&Env::memory(), EngineOptions::default()).unwrap();
    let numbers: Vec<Vec<Keyspace>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let engine = &engine;
                scope.spawn(move || {
                    // Each in another order.
                    let mut found = vec![Keyspace(0); 8];
                    for n in 0..8 {
                        let name = (n + thread) % 8;
                        let keys = engine.keyspace(&format!("k{name}"), KeyspaceOptions::default()).unwrap();
                        put(engine, keys, b"k", &[thread as u8], Durability::Buffered).unwrap();
                        found[name] = keys;
                    }
                    found
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(numbers.iter().all(|found| *found == numbers[0]), "{numbers:?}");
    let mut sorted = numbers[0].clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..8).map(Keyspace).collect::<Vec<_>>());
    let mut defined = Vec::new();
    let mut feed = engine.changes(Seq(1)).unwrap();
    while let Some(change) = feed.next().unwrap() {
        for section in change.body.sections() {
            let (model, section) = section.unwrap();
            if model == KEYSPACES {
                defined.push(decode_definition(section).unwrap().0);
            }
        }
    }
    assert_eq!(defined, sorted, "one commit defines each, in the order of the numbers");
}

#[test]
fn writes_to_a_number_that_was_not_given_out_are_rejected_and_the_engine_continues() {
    let engine = Arc::new(open(&Env::memory(), manual()).unwrap());
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let unknown = Keyspace(keys.0 + 1);
    let refused = put(&engine, unknown, b"k", b"1", Durability::Sync).unwrap_err();
    assert!(matches!(refused, CommitError::Rejected(_)), "{refused}");
    let EngineError::Store(error) = EngineError::from(refused) else { panic!("a store error") };
    assert!(matches!(*error, StoreError::UnknownKeyspace(1)), "{error}");
    let mut transaction = KvTransaction::new(engine.clone(), Isolation::Serializable);
    transaction.put(unknown, b"k", b"1");
    engine.commit(vec![Box::new(transaction.into_batch())], Durability::Sync).unwrap_err();
    put(&engine, keys, b"k", b"2", Durability::Sync).unwrap();
    engine.checkpoint().unwrap();
}

#[test]
fn record_with_a_write_to_an_undefined_keyspace_is_refused_at_opening() {
    let (_, _, env) = machine(1);
    let (engine, keys) = open_with_keys(&env);
    drop(engine);
    // Version, time, then one section: put "k" = "1" in the next keyspace.
    let write = [&(keys.0 + 1).to_le_bytes()[..], &[0, 1, b'k', 1, b'1']].concat();
    let head = [&[1_u8][..], &0_i64.to_le_bytes(), &[0], &(write.len() as u32).to_le_bytes()].concat();
    let payload = [head, write].concat();
    let dir = Path::new("/db/log");
    let (log, _) =
        LocalLog::open(&env, dir, LogOptions::default(), Lsn::ZERO, Seq::ZERO, &mut |_| Ok(())).unwrap();
    log.append(&[Record { seq: Seq(2), payload: &payload }], log.tail()).unwrap();
    log.barrier().unwrap();
    drop(log);
    let refused = open(&env, manual()).err().unwrap();
    assert!(matches!(refused, EngineError::Record { seq: Seq(2), .. }), "{refused}");
    assert!(refused.to_string().contains("keyspaces that an earlier commit defines"), "{refused}");
}

#[test]
fn watch_notices_every_commit_that_writes_to_its_keyspace() {
    let engine = open(&Env::memory(), manual()).unwrap();
    let [watched, other] = ["a", "b"].map(|name| engine.keyspace(name, KeyspaceOptions::default()).unwrap());
    put(&engine, watched, b"k", b"0", Durability::Sync).unwrap();
    let (watch, twin) = (engine.watch_keyspace(watched), engine.watch_keyspace(watched));
    let mark = watch.mark();
    put(&engine, other, b"k", b"1", Durability::Sync).unwrap();
    engine.compact().unwrap();
    assert!(watch.is_current(mark) && twin.is_current(mark));
    let insertion = |keys: Keyspace| {
        put(&engine, keys, b"k", b"2", Durability::Sync).unwrap();
    };
    let deletion = |keys: Keyspace| {
        let mut batch = KvBatch::new();
        batch.delete_range(keys, b"a", b"z");
        engine.commit(vec![Box::new(batch)], Durability::Buffered).unwrap();
    };
    let writes: [&dyn Fn(Keyspace); 2] = [&insertion, &deletion];
    for write in writes {
        let mark = watch.mark();
        write(other);
        assert!(watch.is_current(mark));
        write(watched);
        assert!(!watch.is_current(mark) && !twin.is_current(mark));
        assert!(twin.is_current(watch.mark()));
    }
}

#[test]
fn mark_taken_while_a_write_is_pending_expires_when_it_becomes_visible() {
    let engine = Arc::new(open(&Env::memory(), manual()).unwrap());
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    put(&engine, keys, b"k", b"1", Durability::Sync).unwrap();
    let watch = engine.watch_keyspace(keys);
    let before = watch.mark();
    let mut transaction = KvTransaction::new(engine.clone(), Isolation::ReadCommitted);
    transaction.mark_locking_statement();
    transaction.lock(keys, b"k", LockMode::Update, true).unwrap();
    transaction.put(keys, b"k", b"2");
    // With a lock it is sequenced at once, and settled by the driver.
    let operations: Vec<Box<dyn ropewalk_engine::Operation>> = vec![Box::new(transaction.into_batch())];
    let mut handle = engine.try_submit(operations, Durability::Sync).unwrap();
    assert_eq!(get(&engine, keys, b"k").as_deref(), Some(b"1".as_slice()));
    assert!(!watch.is_current(before));
    let pending = watch.mark();
    assert!(watch.is_current(pending));
    engine.drive();
    handle.try_take().unwrap().unwrap();
    assert_eq!(get(&engine, keys, b"k").as_deref(), Some(b"2".as_slice()));
    assert!(!watch.is_current(pending));
    assert!(watch.is_current(watch.mark()));
}

#[test]
fn options_out_of_range_are_refused_without_a_commit() {
    let engine = open(&Env::memory(), manual()).unwrap();
    let options = KeyspaceOptions { block_bytes: 100, ..KeyspaceOptions::default() };
    let refused = engine.keyspace("k", options).unwrap_err();
    assert!(matches!(refused, EngineError::Store(_)), "{refused}");
    assert_eq!(engine.seq(), Seq::ZERO);
}
