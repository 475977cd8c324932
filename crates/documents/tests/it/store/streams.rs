//! Change streams: all changes, in order, exactly once, resumable at any position.

use core::time::Duration;

use bson::doc;
use ropewalk_documents::{ChangeStream, IndexDef, ResumeToken, Target, Watch};

use super::*;

const NOW: Duration = Duration::ZERO;

fn watch(db: &Db, target: Target) -> ChangeStream {
    db.documents.watch(target, Watch { full_document: true, ..Watch::default() }, None).unwrap()
}

fn only(name: &str) -> Target {
    Target::Collection { database: "app".into(), name: name.into() }
}

/// The events without fields that differ from run to run.
fn drain(stream: &mut ChangeStream) -> Vec<Document> {
    let mut events = Vec::new();
    while let Some(event) = stream.next(NOW).unwrap() {
        let mut document = plain(&event.document);
        assert_eq!(
            document.get_document("_id").unwrap().get_str("_data").unwrap().parse::<ResumeToken>().unwrap(),
            event.token
        );
        for field in ["_id", "clusterTime", "wallTime"] {
            document.remove(field).unwrap();
        }
        events.push(document);
    }
    events
}

#[test]
fn change_stream_reports_every_kind_of_write() {
    let db = Db::new();
    let c = db.coll("c");
    let mut stream = watch(&db, only("c"));
    let ns = doc! { "db": "app", "coll": "c" };
    c.insert_one(&b(doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "list": [1, 2, 3] }), SYNC).unwrap();
    db.coll("other").insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    for indexed in [false, true] {
        if indexed {
            c.create_index(&IndexDef::on(["n"])).unwrap();
        }
        let whole = doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "list": [1, 2, 3] };
        let told = drain(&mut stream);
        let (operation, field) =
            if indexed { ("replace", "fullDocument") } else { ("insert", "fullDocument") };
        let first = told.last().unwrap();
        assert_eq!(first.get_str("operationType").unwrap(), operation);
        assert_eq!(first.get_document(field).unwrap(), &whole);
        c.update_one(
            &spec(
                doc! { "_id": 1 },
                doc! { "$set": { "a.b": 5 }, "$unset": { "a.c": 1 }, "$push": { "list": 4 } },
            ),
            SYNC,
        )
        .unwrap();
        assert_eq!(
            drain(&mut stream),
            [doc! {
                "operationType": "update",
                "fullDocument": { "_id": 1, "a": { "b": 5 }, "list": [1, 2, 3, 4] },
                "ns": ns.clone(),
                "documentKey": { "_id": 1 },
                "updateDescription": {
                    "updatedFields": { "a.b": 5, "list.3": 4 },
                    "removedFields": ["a.c"],
                    "truncatedArrays": [],
                },
            }]
        );
        c.update_one(&spec(doc! { "_id": 1 }, doc! { "a": { "b": 1, "c": 2 }, "list": [1, 2, 3] }), SYNC)
            .unwrap();
    }
    c.delete_one(&f(doc! { "_id": 1 }), SYNC).unwrap();
    let told = drain(&mut stream);
    assert_eq!(
        told.last().unwrap(),
        &doc! { "operationType": "delete", "ns": ns.clone(), "documentKey": { "_id": 1 } }
    );
    c.drop_collection().unwrap();
    assert_eq!(
        drain(&mut stream),
        [doc! { "operationType": "drop", "ns": ns }, doc! { "operationType": "invalidate" }]
    );
    assert!(stream.has_ended());
}

#[test]
fn change_stream_resumes_after_any_token() {
    let db = Db::new();
    let c = db.coll("c");
    let mut stream = watch(&db, Target::All);
    let documents: Vec<Vec<u8>> = numbered(5).map(b).collect();
    c.insert_many(&documents, true, SYNC).unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    tx.d().insert_one(&c, &b(doc! { "_id": 20 })).unwrap();
    tx.d().insert_one(&c, &b(doc! { "_id": 10 })).unwrap();
    tx.d().update_one(&c, &spec(doc! { "_id": 3 }, doc! { "$inc": { "n": 1 } })).unwrap();
    let mark = tx.mark();
    tx.d().insert_one(&c, &b(doc! { "_id": 99 })).unwrap();
    tx.rollback_to(mark);
    tx.commit().unwrap();
    c.delete_many(&f(doc! { "n": { "$lt": 2 } }), SYNC).unwrap();
    let mut all = Vec::new();
    while let Some(event) = stream.next(NOW).unwrap() {
        all.push((event.token, plain(&event.document)));
    }
    let keys: Vec<i32> =
        all.iter().map(|(_, e)| e.get_document("documentKey").unwrap().get_i32("_id").unwrap()).collect();
    assert_eq!(keys, [0, 1, 2, 3, 4, 20, 10, 3, 0, 1]);
    assert!(all.is_sorted_by(|(a, _), (b, _)| a < b));
    for (place, (token, _)) in all.iter().enumerate() {
        let token: ResumeToken = token.to_string().parse().unwrap();
        let again = Watch { after: Some(token), full_document: true, ..Watch::default() };
        let mut stream = db.documents.watch(Target::Database("app".into()), again, None).unwrap();
        let mut rest = Vec::new();
        while let Some(event) = stream.next(NOW).unwrap() {
            rest.push((event.token, plain(&event.document)));
        }
        assert_eq!(rest, all[place + 1..]);
    }
    let from = Watch { from: Some(all[5].0.seq), full_document: true, ..Watch::default() };
    let mut stream = db.documents.watch(Target::All, from, None).unwrap();
    assert_eq!(drain(&mut stream).len(), 5);
    assert!("xyz".parse::<ResumeToken>().is_err());
}

#[test]
fn events_of_one_commit_are_built_up_to_a_limit() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(1));
    let stream = watch(&db, Target::All);
    let from = Some(stream.token().seq.next());
    let documents: Vec<Vec<u8>> = (100..150).map(|n| b(doc! { "_id": n, "n": n })).collect();
    c.insert_many(&documents, true, SYNC).unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    for n in 100..150 {
        tx.d().update_one(&c, &spec(doc! { "_id": n }, doc! { "$inc": { "n": 1 } })).unwrap();
    }
    tx.commit().unwrap();
    for (events_max, bytes_max, built) in [(50, usize::MAX, 50), (7, usize::MAX, 7), (50, 1, 1), (0, 9, 0)] {
        let watch = Watch { from, full_document: true, ..Watch::default() };
        let mut stream = db.documents.watch(Target::All, watch, None).unwrap();
        for operation in ["insert", "update"] {
            let found = stream.next_commit(events_max, bytes_max).unwrap().unwrap();
            assert_eq!(
                (found.events.len(), found.is_truncated),
                (built, built < 50),
                "{events_max} {bytes_max}"
            );
            for (n, event) in (100..).zip(&found.events) {
                let event = plain(&event.document);
                assert_eq!(event.get_str("operationType").unwrap(), operation);
                assert_eq!(event.get_document("fullDocument").unwrap().get_i32("_id").unwrap(), n);
            }
        }
        assert!(stream.next_commit(events_max, bytes_max).unwrap().is_none());
    }
}

#[test]
fn change_stream_waits_for_new_events() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(1));
    let mut stream = watch(&db, only("c"));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < 20 {
                if let Some(event) = stream.next(Duration::from_secs(10)).unwrap() {
                    seen.push(
                        plain(&event.document).get_document("documentKey").unwrap().get_i32("_id").unwrap(),
                    );
                }
            }
            seen
        });
        for n in 0..20 {
            c.insert_one(&b(doc! { "_id": 100 + n }), SYNC).unwrap();
        }
        assert_eq!(reader.join().unwrap(), (100..120).collect::<Vec<_>>());
    });
}

#[test]
fn rename_is_reported_to_streams_of_both_names() {
    let db = Db::new();
    let old = seeded(&db, "old", numbered(1));
    let mut streams = [watch(&db, only("old")), watch(&db, only("new")), watch(&db, Target::All)];
    db.documents.transact(SYNC, |tx| tx.rename_collection(&old, &db.coll("new"), false)).unwrap();
    let renamed = doc! {
        "operationType": "rename",
        "ns": { "db": "app", "coll": "old" },
        "to": { "db": "app", "coll": "new" },
    };
    let invalid = doc! { "operationType": "invalidate" };
    assert_eq!(drain(&mut streams[0]), [renamed.clone(), invalid.clone()]);
    assert_eq!(drain(&mut streams[1]), [renamed.clone(), invalid]);
    assert_eq!(drain(&mut streams[2]), [renamed]);
}

#[test]
fn resume_at_removed_log_position_is_rejected() {
    let db = Db::open(&Env::memory(), EngineOptions { log_retention_bytes: 0, ..EngineOptions::default() });
    let c = seeded(&db, "c", numbered(1));
    let text = "x".repeat(1 << 20);
    for n in 0..200 {
        c.insert_one(&b(doc! { "_id": 10 + n, "text": &text }), Durability::Buffered).unwrap();
        if n % 50 == 0 {
            db.documents.engine().checkpoint().unwrap();
        }
    }
    db.documents.engine().checkpoint().unwrap();
    let from = Watch { from: Some(ropewalk_base::Seq(1)), ..Watch::default() };
    let error = db.documents.watch(Target::All, from, None).unwrap().next(NOW).unwrap_err();
    assert_eq!((error.code(), error.code_name().as_str()), (286, "ChangeStreamHistoryLost"));
}
