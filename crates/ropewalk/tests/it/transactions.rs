//! Transactions: read your own writes, savepoints, rollback, conflicts.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

use ropewalk::engine::{Keyspace, KeyspaceOptions};
use ropewalk::events::{ReadOptions, Tracking};
use ropewalk::{
    AppendCondition, AppendOptions, Class, Database, Durability, Error, Event, Isolation, Position, Query,
};

fn open() -> (Database, Keyspace) {
    let db = Database::in_memory().unwrap();
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for key in [b"a", b"c", b"e"] {
        db.put(keys, key, b"0", Durability::Sync).unwrap();
    }
    (db, keys)
}

fn pairs(rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<(&str, &str)> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    rows.iter().map(|(key, value)| (text(key), text(value))).collect()
}

#[test]
fn uncommitted_writes_are_visible_only_to_their_transaction() {
    let (db, keys) = open();
    let mut tx = db.begin();
    tx.put(keys, b"b", b"1");
    tx.put(keys, b"c", b"2");
    tx.delete(keys, b"e");
    assert_eq!(tx.get(keys, b"b").unwrap().unwrap(), b"1");
    assert_eq!(tx.get(keys, b"e").unwrap(), None);
    let rows = tx.range(keys, b"a", None, 10).unwrap();
    assert_eq!(pairs(&rows), [("a", "0"), ("b", "1"), ("c", "2")]);
    let rows = tx.range(keys, b"b", Some(b"c"), 10).unwrap();
    assert_eq!(pairs(&rows), [("b", "1")]);
    assert!(db.snapshot().get(keys, b"b").unwrap().is_none());
    tx.rollback();
    assert!(db.snapshot().get(keys, b"b").unwrap().is_none());
    assert_eq!(db.seq().0, 4, "the keyspace, and three keys");
}

#[test]
fn savepoints_cut_writes_and_appends() {
    let (db, keys) = open();
    let store = db.events("s").unwrap();
    let mut tx = db.begin();
    tx.put(keys, b"a", b"1");
    tx.savepoint();
    tx.put(keys, b"a", b"2");
    tx.append(&store, &[Event::new("Dropped")], AppendOptions::default()).unwrap();
    assert!(tx.rollback_to_savepoint());
    assert!(!tx.rollback_to_savepoint());
    tx.append(&store, &[Event::new("Kept")], AppendOptions::default()).unwrap();
    let done = tx.commit().unwrap().unwrap();
    assert_eq!((done.appended[0].first, done.appended[0].last), (Position(1), Position(1)));
    assert_eq!(store.read_last(&Query::all()).unwrap().unwrap().event.event_type, "Kept");
    assert_eq!(&*db.snapshot().get(keys, b"a").unwrap().unwrap(), b"1");
}

#[test]
fn each_isolation_level_detects_its_conflicts() {
    for (isolation, read, write) in [
        (Isolation::Serializable, true, true),
        (Isolation::Snapshot, false, true),
        (Isolation::ReadCommitted, false, false),
    ] {
        let (db, keys) = open();
        let attempt = |disturb: &[u8]| {
            let mut tx = db.begin_with(isolation);
            tx.get(keys, b"a").unwrap();
            tx.range(keys, b"c", Some(b"d"), 9).unwrap();
            tx.put(keys, b"e", b"1");
            db.put(keys, disturb, b"other", Durability::Sync).unwrap();
            tx.commit().err().map(|error| error.class())
        };
        let conflict = |expected: bool| expected.then_some(Class::Conflict);
        assert_eq!(attempt(b"a"), conflict(read), "{isolation:?}: key read");
        assert_eq!(attempt(b"cc"), conflict(read), "{isolation:?}: phantom in the range read");
        assert_eq!(attempt(b"e"), conflict(write), "{isolation:?}: key written");
        assert_eq!(attempt(b"x"), None, "{isolation:?}: unrelated");
    }
}

#[test]
fn write_skew_is_refused() {
    let (db, keys) = open();
    let go_off_call = |mine: &[u8]| {
        let mut tx = db.begin();
        let on_call = tx.range(keys, b"a", Some(b"d"), 9).unwrap().iter().filter(|(_, v)| v == b"0").count();
        assert_eq!(on_call, 2);
        tx.put(keys, mine, b"off");
        tx
    };
    let (first, second) = (go_off_call(b"a"), go_off_call(b"c"));
    first.commit().unwrap();
    assert!(second.commit().unwrap_err().is_conflict());
}

#[test]
fn a_condition_and_a_read_guard_one_commit() {
    let (db, keys) = open();
    let store = db.events("s").unwrap();
    let mut tx = db.begin();
    tx.get(keys, b"a").unwrap();
    let guard = AppendCondition::none_match(Query::from_tags(["order:1"]));
    tx.append(&store, &[Event::new("Paid").tag("order:1")], AppendOptions::condition(guard)).unwrap();
    db.put(keys, b"a", b"changed", Durability::Sync).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    assert_eq!(store.head().unwrap(), None);
}

#[test]
fn a_transaction_that_only_read_touches_no_log() {
    let (db, keys) = open();
    let before = db.stats().log.appended_bytes;
    for _ in 0..100 {
        let mut tx = db.begin();
        tx.get(keys, b"a").unwrap();
        assert_eq!(tx.commit().unwrap(), None);
    }
    // The durability mark for the commits of `open` may still be written: 32 bytes, once.
    let grown = db.stats().log.appended_bytes - before;
    assert!(grown <= 32, "100 transactions that only read took {grown} bytes of log");
}

#[test]
fn transaction_that_requires_the_newest_commit_is_refused_after_another() {
    let (db, keys) = open();
    let seen = db.seq();
    let begin = |seen| {
        let mut tx = db.begin();
        tx.require_newest(seen).map(|()| {
            tx.put(keys, b"a", b"1");
            tx
        })
    };
    let done = begin(seen).unwrap().commit().unwrap().unwrap();
    assert_eq!(done.seq, seen.next());
    for wrong in [seen, done.seq.next()] {
        let refused = begin(wrong).err().expect("another commit is the newest");
        assert_eq!(refused.class(), Class::Refused, "{refused}");
    }
    let late = begin(done.seq).unwrap();
    db.put(keys, b"x", b"other", Durability::Sync).unwrap();
    let refused = late.commit().unwrap_err();
    assert!(matches!(refused, Error::NotNewest(_)), "{refused}");
    assert_eq!(refused.to_string(), format!("the newest commit is {}, {} is expected", db.seq(), done.seq));
}

#[test]
fn a_key_over_the_limit_is_refused() {
    let (db, keys) = open();
    let error = db.put(keys, &vec![1; 70_000], b"", Durability::Sync).unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    assert!(error.to_string().contains("70000"), "{error}");
}

#[test]
fn own_append_is_read_back_as_it_was_given() {
    let (db, _) = open();
    let store = db.events("s").unwrap();
    let event = Event::new("Placed").tag("order:1").tag("ann").data("x").metadata("by", "ann");
    let tracking = Some(Tracking { source: "up".to_owned(), position: 7 });
    let mut tx = db.begin();
    let options = AppendOptions { tracking: tracking.clone(), ..AppendOptions::default() };
    tx.append(&store, std::slice::from_ref(&event), options).unwrap();
    let read = tx.read_events(&store, &Query::from_tags(["ann"]), ReadOptions::default()).unwrap();
    let read: Vec<_> = read.map(Result::unwrap).collect();
    assert_eq!((read.len(), &read[0].event, &read[0].tracking), (1, &event, &tracking));
    tx.commit().unwrap();
    assert_eq!(store.read_last(&Query::all()).unwrap().unwrap().event, event);
}

#[test]
fn append_goes_to_the_store_that_exists_at_the_commit() {
    let (db, _) = open();
    let store = db.events("s").unwrap();
    store.append(&[Event::new("A"), Event::new("B")], None).unwrap();
    let mut tx = db.begin();
    tx.append(&store, &[Event::new("C")], AppendOptions::default()).unwrap();
    assert!(store.delete().unwrap());
    let done = tx.commit().unwrap().unwrap();
    assert_eq!(done.appended[0].first, Position(1));
    assert_eq!(store.count(&Query::all()).unwrap(), 1);
}
