//! A record that is intact but cannot be applied: opening names it, and the log can be cut before it.

use ropewalk_base::Lsn;
use ropewalk_engine::{inspect_log, salvage_log};
use ropewalk_log::{CommitLog, LocalLog, LogError, LogOptions, Record};

use super::*;

/// Commits 1 to 4, the first of which defines the keyspace, then a record 5 that no model can apply, and a record 6
/// after it.
fn with_undecodable_record(env: &Env) -> Keyspace {
    let engine = open(env, manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    for key in [b"1", b"2", b"3"] {
        put(&engine, keys, key, key, Durability::Sync).unwrap();
    }
    drop(engine);
    let options = LogOptions::default();
    let dir = Path::new("/db/log");
    let (log, _) = LocalLog::open(env, dir, options, Lsn::ZERO, Seq::ZERO, &mut |_| Ok(())).unwrap();
    for seq in [5, 6] {
        log.append(&[Record { seq: Seq(seq), payload: b"?" }], log.tail()).unwrap();
    }
    log.barrier().unwrap();
    keys
}

#[test]
fn cut_before_a_record_that_cannot_be_applied_opens_with_every_commit_before_it() {
    let (disk, _, env) = machine(1);
    let keys = with_undecodable_record(&env);
    for _ in 0..2 {
        let error = open(&env, manual()).err().unwrap();
        assert!(matches!(error, EngineError::Record { seq: Seq(5), .. }), "{error}");
    }
    let dir = Path::new("/db");
    assert_eq!(inspect_log(&env, dir, None).unwrap(), None, "every record is whole");
    assert_eq!(inspect_log(&env, dir, Some(Seq(7))).unwrap(), None, "the log ends before");
    let before = disk.files();
    let told = inspect_log(&env, dir, Some(Seq(5))).unwrap().unwrap();
    assert_eq!(disk.files(), before, "inspecting changes nothing");
    assert_eq!((told.seq, told.cut_off, told.unreadable.len()), (Seq(4), 2, 0));
    assert!(told.refusal.contains("before commit 5"), "{}", told.refusal);
    let done = salvage_log(&env, dir, Some(Seq(5))).unwrap().unwrap();
    assert_eq!((done.seq, done.set_aside.len()), (Seq(4), 1), "{done:?}");
    disk.crash();
    let engine = open(&env, manual()).unwrap();
    assert_eq!(engine.seq(), Seq(4));
    assert_eq!(get(&engine, keys, b"3").as_deref(), Some(b"3".as_slice()));
    assert_eq!(put(&engine, keys, b"4", b"4", Durability::Sync).unwrap(), Seq(5));
    drop(engine);
    assert_eq!(open(&env, manual()).unwrap().seq(), Seq(5));
}

#[test]
fn cut_before_a_flushed_commit_is_refused() {
    let (_, _, env) = machine(1);
    let keys = with_undecodable_record(&env);
    let dir = Path::new("/db");
    salvage_log(&env, dir, Some(Seq(5))).unwrap().unwrap();
    let engine = open(&env, manual()).unwrap();
    engine.checkpoint().unwrap();
    drop(engine);
    let refused = salvage_log(&env, dir, Some(Seq(4))).unwrap_err();
    let EngineError::Log(error) = &refused else { panic!("{refused}") };
    assert!(matches!(**error, LogError::Checkpointed { before: Seq(4), checkpoint: Seq(4) }), "{refused}");
    assert_eq!(get(&open(&env, manual()).unwrap(), keys, b"3").as_deref(), Some(b"3".as_slice()));
}
