//! Guarantees of a document database, tested as for the predecessor: the four isolation names, rollback,
//! lost updates, duplicates, operators, crashes, sizes.

use std::sync::atomic::{AtomicUsize, Ordering};

use bson::doc;
use ropewalk_documents::lang::Value;
use ropewalk_documents::{Find, IndexDef, RetryKey};
use ropewalk_engine::Background;
use ropewalk_vfs::{DiskOp, FaultyVfs};

use super::*;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

#[test]
fn uncommitted_insert_is_invisible_and_gone_after_rollback() {
    for level in LEVELS {
        let db = Db::new();
        let c = seeded(&db, "c", [doc! { "_id": 0 }]);
        let mut ann = db.begin(level);
        ann.d().insert_one(&c, &b(doc! { "_id": 1 })).unwrap();
        let mut bob = db.begin(Isolation::Serializable);
        assert_eq!(bob.d().get(&c, Value::Int32(1)).unwrap(), None);
        assert_eq!(bob.d().find(&c, &Find::all()).unwrap().len(), 1);
        assert_eq!(ann.d().find(&c, &Find::all()).unwrap().len(), 2);
        drop(ann);
        assert_eq!(ids(&db.all(&c)), [0]);
    }
}

#[test]
fn a_second_read_is_repeatable_except_under_read_committed() {
    for (level, again) in
        [(Isolation::ReadCommitted, 2), (Isolation::Snapshot, 1), (Isolation::Serializable, 1)]
    {
        let db = Db::new();
        let c = seeded(&db, "c", [doc! { "_id": 0, "v": 1 }]);
        let mut ann = db.begin(level);
        let read = |tx: &mut Tx| {
            let document = tx.d().get(&c, Value::Int32(0)).unwrap().unwrap();
            (plain(&document).get_i32("v").unwrap(), tx.d().count(&c, &Find::all()).unwrap())
        };
        assert_eq!(read(&mut ann), (1, 1));
        c.update_one(&spec(doc! { "_id": 0 }, doc! { "$set": { "v": 2 } }), SYNC).unwrap();
        c.insert_one(&b(doc! { "_id": 5 }), SYNC).unwrap();
        assert_eq!(read(&mut ann), (again, again as u64), "{level:?}");
    }
}

#[test]
fn lookup_of_a_missing_id_conflicts_with_its_insert_when_serializable() {
    for level in LEVELS {
        let db = Db::new();
        let c = seeded(&db, "c", [doc! { "_id": 0 }]);
        let mut tx = db.begin(level);
        let set = spec(doc! { "_id": 5 }, doc! { "$set": { "v": 1 } });
        assert_eq!(tx.d().update_one(&c, &set).unwrap().matched, 0);
        tx.d().insert_one(&c, &b(doc! { "_id": 1 })).unwrap();
        c.insert_one(&b(doc! { "_id": 5 }), SYNC).unwrap();
        assert_eq!(tx.commit().is_err(), level == Isolation::Serializable, "{level:?}");
    }
}

#[test]
fn lookup_by_id_in_a_transaction_sees_own_writes() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 0, "v": 0 }]);
    let mut tx = db.begin(Isolation::Serializable);
    let found = |tx: &mut Tx, id: i32| tx.d().find(&c, &find(doc! { "_id": id })).unwrap().len();
    tx.d().insert_one(&c, &b(doc! { "_id": 1 })).unwrap();
    tx.d().delete_many(&c, &f(doc! { "_id": 0 })).unwrap();
    assert_eq!([found(&mut tx, 0), found(&mut tx, 1), found(&mut tx, 2)], [0, 1, 0]);
    let other = find(doc! { "_id": 1, "v": 7 });
    assert_eq!(tx.d().find(&c, &other).unwrap().len(), 0);
    tx.commit().unwrap();
    assert_eq!(ids(&db.all(&c)), [1]);
}

#[test]
fn concurrent_read_modify_writes_lose_no_update() {
    for level in LEVELS {
        let db = Db::new();
        let c = seeded(&db, "c", [doc! { "_id": 0, "v": 0 }]);
        let mut both = [db.begin(level), db.begin(level)];
        for tx in &mut both {
            assert!(tx.d().get(&c, Value::Int32(0)).unwrap().is_some());
        }
        for tx in &mut both {
            tx.d().update_one(&c, &spec(doc! { "_id": 0 }, doc! { "$inc": { "v": 1 } })).unwrap();
        }
        let [ann, bob] = both;
        ann.commit().unwrap();
        let error = bob.commit().unwrap_err();
        assert_eq!((error.code(), error.code_name().as_str()), (112, "WriteConflict"));
        let said = error.to_string();
        assert!(said.starts_with("collection \"c\", document 0 was changed by commit "), "{said}");
        assert_eq!(db.all(&c), [doc! { "_id": 0, "v": 1 }]);
    }
}

#[test]
fn write_skew_passes_under_snapshot_and_is_refused_under_serializable() {
    for (level, refused) in [(Isolation::Snapshot, false), (Isolation::Serializable, true)] {
        let db = Db::new();
        let c = seeded(&db, "c", [doc! { "_id": 1, "on": true }, doc! { "_id": 2, "on": true }]);
        c.create_index(&IndexDef::on(["on"])).unwrap();
        let leave = |id: i32| {
            let mut tx = db.begin(level);
            assert_eq!(tx.d().count(&c, &find(doc! { "on": true })).unwrap(), 2);
            tx.d().update_one(&c, &spec(doc! { "_id": id }, doc! { "$set": { "on": false } })).unwrap();
            tx
        };
        let (ann, bob) = (leave(1), leave(2));
        ann.commit().unwrap();
        assert_eq!(bob.commit().is_err(), refused, "{level:?}");
        db.verify();
    }
}

#[test]
fn phantom_is_rejected_under_serializable() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(5));
    c.create_index(&IndexDef::on(["n"])).unwrap();
    let mut ann = db.begin(Isolation::Serializable);
    assert_eq!(ann.d().count(&c, &find(doc! { "n": { "$gte": 10, "$lt": 20 } })).unwrap(), 0);
    ann.d().insert_one(&db.coll("other"), &b(doc! { "_id": 1 })).unwrap();
    c.insert_one(&b(doc! { "_id": 15, "n": 15 }), SYNC).unwrap();
    assert_eq!(ann.commit().unwrap_err().code(), 112);
    let mut bob = db.begin(Isolation::Serializable);
    assert_eq!(bob.d().count(&c, &find(doc! { "n": { "$gte": 10, "$lt": 20 } })).unwrap(), 1);
    bob.d().insert_one(&db.coll("other"), &b(doc! { "_id": 1 })).unwrap();
    c.insert_one(&b(doc! { "_id": 25, "n": 25 }), SYNC).unwrap();
    bob.commit().unwrap();
}

#[test]
fn gte_lte_and_in_match() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 1, "v": 0 }, doc! { "_id": 2, "v": -1 }, doc! { "_id": 3 }]);
    assert_eq!(ids(&db.find(&c, &find(doc! { "v": { "$gte": 0 } }))), [1]);
    assert_eq!(ids(&db.find(&c, &find(doc! { "v": { "$lte": 0 } }))), [1, 2]);
    assert_eq!(ids(&db.find(&c, &find(doc! { "v": { "$in": [-1, 7] } }))), [2]);
    assert_eq!(ids(&db.find(&c, &find(doc! { "v": "0" }))), Vec::<i32>::new());
}

#[test]
fn inserts_survive_exit_without_close() {
    let disk = FaultyVfs::new(7);
    let env = |disk: &FaultyVfs| Env { vfs: Arc::new(disk.process()), ..Env::memory() };
    let db = Db::open(&env(&disk), EngineOptions::default());
    let c = db.coll("c");
    c.create_index(&IndexDef::on(["n"])).unwrap();
    for n in 0..500 {
        c.insert_one(&b(doc! { "_id": format!("doc-{n}"), "n": n }), SYNC).unwrap();
    }
    disk.crash();
    drop(db);
    let again = Db::open(&env(&disk), EngineOptions::default());
    let c = again.coll("c");
    assert_eq!(again.all(&c).len(), 500);
    assert_eq!(used(&again, &c, &find(doc! { "n": 77 })), "n_1");
    again.verify();
    assert_eq!(c.estimated_count().unwrap().documents, 500);
    c.insert_one(&b(doc! { "_id": "doc-500" }), SYNC).unwrap();
}

#[test]
fn counts_include_no_commit_that_was_not_acknowledged() {
    let disk = FaultyVfs::new(7);
    let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
    // Without background threads, whose mark of an idle log could meet the fault.
    let options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
    let db = Db::open(&env, options);
    let c = db.coll("c");
    c.insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    let before = c.estimated_count().unwrap();
    assert_eq!(before.documents, 1);
    disk.fail(DiskOp::Sync, 0);
    c.insert_one(&b(doc! { "_id": 2 }), SYNC).unwrap_err();
    assert_eq!(ids(&db.all(&c)), [1]);
    assert_eq!(c.estimated_count().unwrap(), before);
}

#[test]
fn rollback_to_savepoint_reverts_documents_definitions_and_events() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 0, "v": 0 }]);
    let mut tx = db.begin(Isolation::Serializable);
    tx.d().update_one(&c, &spec(doc! { "_id": 0 }, doc! { "$inc": { "v": 1 } })).unwrap();
    let mark = tx.mark();
    tx.d().update_one(&c, &spec(doc! { "_id": 0 }, doc! { "$inc": { "v": 10 } })).unwrap();
    tx.d().insert_one(&db.coll("new"), &b(doc! { "_id": 1 })).unwrap();
    tx.d().create_index(&c, &IndexDef::on(["v"])).unwrap();
    assert_eq!(tx.d().count(&db.coll("new"), &Find::all()).unwrap(), 1);
    tx.rollback_to(mark);
    assert_eq!(tx.d().count(&db.coll("new"), &Find::all()).unwrap(), 0);
    tx.commit().unwrap();
    assert_eq!(db.all(&c), [doc! { "_id": 0, "v": 1 }]);
    assert_eq!(db.documents.collections("app").unwrap(), ["c"]);
    assert!(c.definition().unwrap().unwrap().indexes().is_empty());
    db.verify();
}

#[test]
fn concurrent_updates_all_count() {
    let db = Db::new();
    let plain_way = seeded(&db, "plain", [doc! { "_id": 0, "v": 0 }]);
    let indexed = seeded(&db, "indexed", [doc! { "_id": 0, "v": 0 }]);
    indexed.create_index(&IndexDef::on(["v"])).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    for c in [&plain_way, &indexed] {
                        let done = c
                            .update_one(&spec(doc! { "_id": 0 }, doc! { "$inc": { "v": 1 } }), SYNC)
                            .unwrap();
                        assert_eq!(done.modified, 1);
                    }
                }
            });
        }
    });
    for c in [&plain_way, &indexed] {
        assert_eq!(db.all(c), [doc! { "_id": 0, "v": 100 }]);
    }
    db.verify();
}

#[test]
fn concurrent_inserts_of_same_key_have_one_winner() {
    let db = Db::new();
    let unique = db.coll("unique");
    unique.create_index(&IndexDef::on(["email"]).unique()).unwrap();
    let plain_way = db.coll("plain");
    let won = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (won, unique, plain_way) = (&won, &unique, &plain_way);
            scope.spawn(move || {
                for n in 0..20 {
                    let mine = b(doc! { "_id": format!("{thread}-{n}"), "email": n });
                    match unique.insert_one(&mine, SYNC) {
                        Ok(_) => won[0].fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.code(), 11000);
                            assert!(error.to_string().contains("email_1"), "{error}");
                            0
                        }
                    };
                    if plain_way.insert_one(&b(doc! { "_id": n }), SYNC).is_ok() {
                        won[1].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(won.map(AtomicUsize::into_inner), [20, 20]);
    db.verify();
}

#[test]
fn retried_statement_is_applied_once() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 0, "v": 0 }]);
    let run_around = |number: i64, statement: i32, between: &dyn Fn()| {
        let retry = RetryKey { session: vec![7; 16], number, statement };
        db.documents.transact(SYNC, |tx| {
            if let Some(answer) = tx.answered(&retry)? {
                return Ok((plain(&answer), true));
            }
            between();
            let done = tx.update_one(&c, &spec(doc! { "_id": 0 }, doc! { "$inc": { "v": 1 } }))?;
            let answer = doc! { "n": done.modified as i64 };
            tx.answer(&retry, d(answer.clone()).doc())?;
            Ok((answer, false))
        })
    };
    let run = |number, statement| run_around(number, statement, &|| {});
    assert_eq!(run(1, 0).unwrap(), (doc! { "n": 1_i64 }, false));
    assert_eq!(run(1, 0).unwrap(), (doc! { "n": 1_i64 }, true));
    assert_eq!(run(1, 1).unwrap(), (doc! { "n": 1_i64 }, false));
    assert_eq!(run(2, 0).unwrap(), (doc! { "n": 1_i64 }, false));
    let old = run(1, 0).unwrap_err();
    assert_eq!((old.code(), old.code_name().as_str()), (225, "TransactionTooOld"));
    // Concurrent copies: one runs, the others get its result.
    let fresh = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| run(3, 0).unwrap().1)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|told| !told).count()
    });
    assert_eq!(fresh, 1);
    assert_eq!(db.all(&c), [doc! { "_id": 0, "v": 4 }]);
    // A copy commits after this one has not found a result, and before it writes.
    let copy = || drop(run(4, 0).unwrap());
    assert!(run_around(4, 0, &copy).unwrap().1);
    assert_eq!(db.all(&c), [doc! { "_id": 0, "v": 5 }]);
    assert_eq!(db.documents.forget_sessions(i64::MAX, 10).unwrap(), 1);
    assert!(!run(1, 0).unwrap().1);
}
