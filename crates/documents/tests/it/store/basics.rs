//! Single statements, each in one transaction.

use bson::{Bson, doc};
use ropewalk_documents::lang::Value;
use ropewalk_documents::{BulkWrite, DocumentsError, Find, FindAndModify, IndexDef, id_filter};

use super::*;

#[test]
fn a_document_comes_back_byte_for_byte() {
    let db = Db::new();
    let users = db.coll("users");
    let document = b(doc! { "_id": "ann", "age": 30_i64, "tags": ["a", { "b": 1.5 }] });
    assert_eq!(shown(&users.insert_one(&document, SYNC).unwrap()), "\"ann\"");
    assert_eq!(users.get(Value::String("ann")).unwrap().unwrap().bytes(), document);
    assert_eq!(users.get(Value::String("bob")).unwrap(), None);
    let snapshot = db.documents.engine().snapshot();
    let mut getter = users.getter();
    assert_eq!(&*getter.get(&snapshot, Value::String("ann")).unwrap().unwrap(), document);
    db.verify();
}

#[test]
fn insert_generates_missing_id_and_moves_id_to_front() {
    let db = Db::new();
    let users = db.coll("users");
    users.insert_one(&b(doc! { "name": "ann" }), SYNC).unwrap();
    users.insert_one(&b(doc! { "name": "bob", "_id": 7 }), SYNC).unwrap();
    let all = db.all(&users);
    assert_eq!(all[0].iter().map(|(k, _)| k.as_str()).collect::<Vec<_>>(), ["_id", "name"]);
    assert_eq!(all[0].get_i32("_id").unwrap(), 7);
    let made = all[1].get_object_id("_id").unwrap();
    assert!(made.timestamp().timestamp_millis() > 1_600_000_000_000);
}

#[test]
fn ids_of_every_type_and_equal_numbers_are_one_id() {
    let db = Db::new();
    let c = db.coll("c");
    let ids = [
        Bson::Null,
        Bson::Int32(5),
        Bson::Double(5.5),
        Bson::String(String::new()),
        Bson::Document(doc! { "a": 1 }),
        Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] }),
        Bson::ObjectId(bson::oid::ObjectId::new()),
        Bson::Boolean(false),
        Bson::DateTime(bson::DateTime::from_millis(-1)),
        Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }),
        Bson::MinKey,
        Bson::MaxKey,
    ];
    for id in &ids {
        c.insert_one(&b(doc! { "_id": id.clone() }), SYNC).unwrap();
    }
    assert_eq!(db.all(&c).len(), ids.len());
    for same in [Bson::Int64(5), Bson::Double(5.0)] {
        let error = c.insert_one(&b(doc! { "_id": same }), SYNC).unwrap_err();
        assert_eq!((error.code(), error.code_name().as_str()), (11000, "DuplicateKey"));
    }
    let array = c.insert_one(&b(doc! { "_id": [1] }), SYNC).unwrap_err();
    assert_eq!(array.code(), 53);
}

#[test]
fn duplicate_error_names_collection_index_and_key() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 1, "v": "first" }]);
    let error = c.insert_one(&b(doc! { "_id": 1, "v": "second" }), SYNC).unwrap_err();
    assert_eq!(error.to_string(), "duplicate key in collection \"c\", index \"_id_\": { _id: 1 }");
    let DocumentsError::Duplicate { pattern, key, .. } = error else { panic!("{error}") };
    assert_eq!((plain(&pattern), plain(&key)), (doc! { "_id": 1 }, doc! { "_id": 1 }));
    assert_eq!(db.all(&c), [doc! { "_id": 1, "v": "first" }]);
}

#[test]
fn ordered_insert_stops_at_first_error_unordered_continues() {
    for indexed in [false, true] {
        let db = Db::new();
        let documents: Vec<Vec<u8>> = [1, 2, 2, 3, 1, 4].map(|id| b(doc! { "_id": id, "v": id })).to_vec();
        for (ordered, left, failed) in [(true, vec![1, 2], vec![2]), (false, vec![1, 2, 3, 4], vec![2, 4])] {
            let c = db.coll(&format!("c{ordered}"));
            if indexed {
                c.create_index(&IndexDef::on(["v"])).unwrap();
            }
            let done = c.insert_many(&documents, ordered, SYNC).unwrap();
            assert_eq!(ids(&db.all(&c)), left, "indexed {indexed}");
            assert_eq!(done.errors.iter().map(|(place, _)| *place).collect::<Vec<_>>(), failed);
            assert!(done.errors.iter().all(|(_, error)| error.code() == 11000));
            assert_eq!(done.inserted.len(), left.len());
        }
        db.verify();
    }
}

#[test]
fn sort_skip_limit_and_counts() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(100));
    let find = find(doc! { "even": true }).sort(sort(doc! { "tenth": -1, "n": 1 })).skip(3).limit(4);
    assert_eq!(ids(&db.find(&c, &find)), [96, 98, 80, 82]);
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    assert_eq!(at.count(&c, &super::find(doc! { "even": true })).unwrap(), 50);
    assert_eq!(at.count(&c, &super::find(doc! { "even": true }).skip(45).limit(10)).unwrap(), 5);
    assert_eq!(at.count(&c, &Find::all()).unwrap(), 100);
    assert_eq!(at.count(&c, &Find::all().skip(98)).unwrap(), 2);
    assert_eq!(at.count(&db.coll("nothing"), &Find::all()).unwrap(), 0);
    let tenths = at.distinct(&c, "tenth", &f(doc! { "n": { "$gte": 75 } })).unwrap();
    assert_eq!(tenths.iter().map(shown).collect::<Vec<_>>(), ["7", "8", "9"]);
    let last = at.find_one(&c, &Find::all().sort(sort(doc! { "_id": -1 }))).unwrap().unwrap();
    assert_eq!(plain(&last).get_i32("_id").unwrap(), 99);
}

#[test]
fn every_write_updates_the_counts() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(10));
    let held = |db: &Db| {
        let all = db.all(&c);
        (all.len() as u64, all.into_iter().map(|document| b(document).len() as u64).sum::<u64>())
    };
    let counted = || c.estimated_count().map(|count| (count.documents, count.bytes)).unwrap();
    assert_eq!(counted(), held(&db));
    c.insert_one(&b(doc! { "_id": 100, "x": "y" }), SYNC).unwrap();
    c.update_one(&spec(doc! { "_id": 1 }, doc! { "$set": { "longer": "text" } }), SYNC).unwrap();
    c.update_many(&spec(doc! { "even": true }, doc! { "$unset": { "n": 1 } }), SYNC).unwrap();
    c.update_one(&spec(doc! { "_id": 3 }, doc! { "whole": "new" }), SYNC).unwrap();
    c.delete_one(&f(doc! { "_id": 5 }), SYNC).unwrap();
    c.delete_many(&f(doc! { "tenth": 0, "even": false }), SYNC).unwrap();
    assert_eq!(counted(), held(&db));
    assert_eq!(db.documents.database_bytes("app").unwrap(), held(&db).1);
}

#[test]
fn update_replace_upsert_and_delete() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 1, "n": 1 }, doc! { "_id": 2, "n": 1 }]);
    for indexed in [false, true] {
        if indexed {
            c.create_index(&IndexDef::on(["n"])).unwrap();
        }
        let done = c.update_one(&spec(doc! { "_id": 1 }, doc! { "$inc": { "n": 4 } }), SYNC).unwrap();
        assert_eq!((done.matched, done.modified), (1, 1));
        let done = c.update_one(&spec(doc! { "_id": 1 }, doc! { "$max": { "n": 0 } }), SYNC).unwrap();
        assert_eq!((done.matched, done.modified), (1, 0));
        let done = c.update_one(&spec(doc! { "_id": 9 }, doc! { "$inc": { "n": 4 } }), SYNC).unwrap();
        assert_eq!((done.matched, done.modified), (0, 0));
        let done =
            c.update_one(&spec(doc! { "_id": 9 }, doc! { "$inc": { "n": 4 } }).upsert(), SYNC).unwrap();
        assert_eq!(done.upserted.as_ref().map(shown).as_deref(), Some("9"));
        let done =
            c.update_many(&spec(doc! { "n": { "$gt": 1 } }, doc! { "$set": { "big": true } }), SYNC).unwrap();
        assert_eq!((done.matched, done.modified), (2, 2));
        c.update_one(&spec(doc! { "_id": 2 }, doc! { "fresh": 1 }), SYNC).unwrap();
        assert_eq!(
            db.all(&c),
            [
                doc! { "_id": 1, "n": 5, "big": true },
                doc! { "_id": 2, "fresh": 1 },
                doc! { "_id": 9, "n": 4, "big": true }
            ]
        );
        let moved = c.update_one(&spec(doc! { "_id": 2 }, doc! { "$set": { "_id": 3 } }), SYNC).unwrap_err();
        assert_eq!(moved.code(), 66);
        assert!(c.delete_one(&f(doc! { "_id": 9 }), SYNC).unwrap());
        assert!(!c.delete_one(&f(doc! { "_id": 9 }), SYNC).unwrap());
        c.update_one(&spec(doc! { "_id": 1 }, doc! { "n": 1 }), SYNC).unwrap();
        c.update_one(&spec(doc! { "_id": 2 }, doc! { "n": 1 }), SYNC).unwrap();
        db.verify();
    }
}

#[test]
fn find_and_modify_returns_document_before_or_after() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(10));
    let mut change = FindAndModify::update(f(doc! { "_id": 4 }), update(doc! { "$inc": { "n": 1 } }));
    let (before, _) = c.find_and_modify(&change, SYNC).unwrap();
    assert_eq!(plain(&before.unwrap()).get_i32("n").unwrap(), 4);
    change.return_new = true;
    let (after, _) = c.find_and_modify(&change, SYNC).unwrap();
    assert_eq!(plain(&after.unwrap()).get_i32("n").unwrap(), 6);
    let mut queue = FindAndModify::delete(f(doc! { "even": true }));
    queue.sort = Some(Arc::new(sort(doc! { "_id": -1 })));
    let (taken, _) = c.find_and_modify(&queue, SYNC).unwrap();
    assert_eq!(plain(&taken.unwrap()).get_i32("_id").unwrap(), 8);
    assert_eq!(c.get(Value::Int32(8)).unwrap(), None);
    let none = FindAndModify::update(f(doc! { "_id": 77 }), update(doc! { "$inc": { "n": 1 } }));
    assert!(c.find_and_modify(&none, SYNC).unwrap().0.is_none());
}

#[test]
fn bulk_writes_are_one_commit() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(4));
    let before = db.documents.engine().seq();
    let done = c
        .bulk_write(
            &[
                BulkWrite::Insert(d(doc! { "_id": 10, "n": 10 })),
                BulkWrite::UpdateOne(spec(doc! { "_id": 0 }, doc! { "$set": { "n": 5 } })),
                BulkWrite::Insert(d(doc! { "_id": 10 })),
                BulkWrite::UpdateMany(spec(doc! { "n": { "$gte": 5 } }, doc! { "$set": { "big": true } })),
                BulkWrite::DeleteMany(Arc::new(f(doc! { "even": false }))),
                BulkWrite::UpdateOne(spec(doc! { "_id": 11 }, doc! { "$set": { "n": 1 } }).upsert()),
            ],
            false,
            SYNC,
        )
        .unwrap();
    assert_eq!(db.documents.engine().seq(), before.next());
    assert_eq!((done.inserted, done.matched, done.modified, done.deleted), (1, 3, 3, 2));
    assert_eq!(
        done.errors.iter().map(|(place, error)| (*place, error.code())).collect::<Vec<_>>(),
        [(2, 11000)]
    );
    assert_eq!(
        done.upserted.iter().map(|(place, id)| (*place, shown(id))).collect::<Vec<_>>(),
        [(5, "11".into())]
    );
    assert_eq!(ids(&db.all(&c)), [0, 2, 10, 11]);
}

#[test]
fn documents_of_nine_kilobytes_and_of_sixteen_megabytes() {
    let db = Db::new();
    let c = db.coll("c");
    let text = |bytes: usize| "x".repeat(bytes);
    c.insert_one(&b(doc! { "_id": 1, "text": text(9 << 10) }), SYNC).unwrap();
    let overhead = b(doc! { "_id": 2, "text": "" }).len();
    let full = b(doc! { "_id": 2, "text": text((16 << 20) - overhead) });
    assert_eq!(full.len(), 16 << 20);
    c.insert_one(&full, SYNC).unwrap();
    assert_eq!(c.get(Value::Int32(2)).unwrap().unwrap().bytes(), full);
    let over = bson::serialize_to_vec(&doc! { "_id": 3, "text": text((16 << 20) - overhead + 1) }).unwrap();
    assert_eq!(c.insert_one(&over, SYNC).unwrap_err().code(), 10334);
    let grown = c.update_one(&spec(doc! { "_id": 2 }, doc! { "$set": { "more": 1 } }), SYNC).unwrap_err();
    assert_eq!(grown.code(), 10334);
}

#[test]
fn a_cursor_keeps_its_snapshot_and_bounded_memory() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(1000));
    let mut cursor = c.find(&find(doc! { "n": { "$gte": 10 } })).unwrap();
    let first = cursor.next_batch(101, 16 << 20).unwrap();
    assert_eq!(first.len(), 101);
    c.delete_many(&f(doc! {}), SYNC).unwrap();
    db.documents.engine().checkpoint().unwrap();
    db.documents.engine().compact().unwrap();
    let mut rest = Vec::new();
    while !cursor.is_done() {
        let batch = cursor.next_batch(usize::MAX, 1000).unwrap();
        assert!(batch.iter().map(|document| document.bytes().len()).sum::<usize>() <= 1000);
        rest.extend(batch);
    }
    assert_eq!(first.len() + rest.len(), 990);
    assert_eq!(plain(rest.last().unwrap()).get_i32("n").unwrap(), 999);
    assert_eq!(db.all(&c).len(), 0);
}

#[test]
fn no_read_costs_a_sync() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(10));
    let engine = db.documents.engine();
    let before = (engine.seq(), engine.stats().log.appended_bytes);
    for n in 0..10 {
        c.get(Value::Int32(n)).unwrap().unwrap();
        db.all(&c);
        let mut tx = db.begin(Isolation::Serializable);
        tx.d().get(&c, Value::Int32(n)).unwrap();
        tx.commit().unwrap();
        c.update_one(&spec(doc! { "_id": 77 }, doc! { "$set": { "a": 1 } }), SYNC).unwrap();
    }
    // The earlier commits may still get their durability mark, once.
    assert!(engine.stats().log.appended_bytes - before.1 <= 32);
    assert_eq!(engine.seq(), before.0);
}

#[test]
fn insert_rejects_invalid_bson() {
    let db = Db::new();
    let c = db.coll("c");
    let good = b(doc! { "_id": 1, "a": { "b": ["x", 5_i64, true] } });
    for cut in 0..good.len() {
        assert_eq!(c.insert_one(&good[..cut], SYNC).unwrap_err().code(), 22, "cut at {cut}");
    }
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0xff;
        // Some are still valid documents; none may cause a panic.
        let _ = c.insert_one(&bad, SYNC);
    }
    db.verify();
    assert!(
        c.update_one(&UpdateSpec::new(id_filter(Value::Int32(1)), update(doc! { "$inc": { "a": 1 } })), SYNC)
            .is_err()
    );
}
