//! Events and keys in one commit: all or nothing.

use ropewalk_base::Seq;
use ropewalk_engine::{CommitError, Durability, Isolation, KeyConflict, KeyspaceOptions, KvBatch, Operation};
use ropewalk_events::{AppendCondition, AppendOptions, Query};
use ropewalk_vfs::Env;

use crate::{Db, event};

#[test]
fn events_and_keys_commit_together_or_not_at_all() {
    let env = Env::memory();
    let db = Db::manual(&env);
    let keys = db.engine.keyspace("accounts", KeyspaceOptions::default()).unwrap();
    let store = db.store("s");
    let part =
        |store: &ropewalk_events::EventStore, condition: Option<AppendCondition>| -> Box<dyn Operation> {
            let options = AppendOptions { conditions: condition.into_iter().collect(), ..Default::default() };
            Box::new(store.operation(&[event("Paid", &["order:1"])], options).unwrap())
        };
    let write = |value: &[u8]| -> Box<dyn Operation> {
        let mut batch = KvBatch::new();
        batch.put(keys, b"balance", value);
        Box::new(batch)
    };
    let guard = AppendCondition::none_match(Query::from_tags(["order:1"]));
    // Both operations are prepared before either commits, as two clients would.
    let (first, second) = (part(&store, Some(guard.clone())), part(&store, Some(guard)));
    let done = db.engine.commit(vec![first, write(b"90")], Durability::Sync).unwrap();
    // Commit 1 defines the keyspace.
    assert_eq!((done.seq, done.outcomes[0]), (Seq(2), (1, 1)));
    let refused = db.engine.commit(vec![write(b"80"), second], Durability::Sync).unwrap_err();
    assert!(matches!(refused, CommitError::Rejected(_)), "{refused}");
    drop((db, store));
    let db = Db::manual(&env);
    assert_eq!(db.engine.seq(), Seq(2));
    let snapshot = db.engine.snapshot();
    assert_eq!(&*snapshot.read().get(keys, b"balance").unwrap().unwrap(), b"90");
}

#[test]
fn reads_that_changed_refuse_the_transaction() {
    let env = Env::memory();
    let db = Db::manual(&env);
    let keys = db.engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let commit = |batch: KvBatch| db.engine.commit(vec![Box::new(batch)], Durability::Sync);
    let put = |key: &[u8]| {
        let mut batch = KvBatch::new();
        batch.put(keys, key, b"v");
        commit(batch).unwrap().seq
    };
    let conflict = |result: Result<_, CommitError>| match result {
        Err(CommitError::Rejected(reason)) => reason.downcast::<KeyConflict>().unwrap().seq,
        other => panic!("{other:?}"),
    };
    let since = put(b"b");
    // A transaction holds its snapshot, so the runs retain the numbers of later commits.
    let _snapshot = db.engine.snapshot();
    for flushed in [false, true] {
        let written = put(b"m");
        if flushed {
            db.engine.checkpoint().unwrap();
        }
        let mut point = KvBatch::validated(since, Isolation::Serializable);
        point.note_read(keys, b"m");
        point.put(keys, b"x", b"1");
        assert!(conflict(commit(point)) >= written);
        let mut range = KvBatch::validated(since, Isolation::Serializable);
        range.note_range(keys, b"c", Some(b"z"));
        range.put(keys, b"x", b"1");
        assert!(conflict(commit(range)) >= written);
        let mut blind = KvBatch::validated(since, Isolation::Snapshot);
        blind.put(keys, b"m", b"1");
        assert!(conflict(commit(blind)) >= written);
        let mut other = KvBatch::validated(since, Isolation::Serializable);
        other.note_read(keys, b"b");
        other.note_range(keys, b"n", Some(b"o"));
        other.note_read(keys, b"absent");
        if !flushed {
            commit(other).unwrap();
        }
    }
}
