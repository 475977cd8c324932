//! Documents, collections and their indexes.

use std::sync::Arc;

use bson::{DateTime, Document, doc};
use ropewalk::documents::lang::{Doc, DocBuf, Filter, Options, Update, Value};
use ropewalk::documents::{
    BulkWrite, CappedLimits, Collection, CollectionOptions, DocumentsError, DocumentsTx, FindAndModify,
    IndexDef, RetryKey, TypedCollection, UpdateSpec,
};
use ropewalk::{Database, Durability};

use super::Way;

fn bytes(document: &Document) -> Vec<u8> {
    bson::serialize_to_vec(document).unwrap()
}

fn people(db: &Database) -> Collection {
    db.collection("people").unwrap()
}

fn typed(db: &Database) -> TypedCollection<Document> {
    people(db).typed()
}

fn update(operators: &Document) -> Update {
    let operators = bytes(operators);
    let operators = Value::Document(Doc::check(&operators).unwrap());
    Update::parse(operators, None, &Options::default()).unwrap()
}

fn transact(db: &Database, work: impl FnMut(&mut DocumentsTx<'_>) -> Result<(), DocumentsError>) {
    db.documents().transact(Durability::Sync, work).unwrap();
}

pub(super) const WAYS: &[Way] = &[
    ("an insert that creates the collection", |db| {
        people(db).insert_one(&bytes(&doc! { "_id": 1, "age": 41 }), Durability::Sync).unwrap();
    }),
    ("one insert", |db| {
        people(db).insert_one(&bytes(&doc! { "_id": 2, "age": 17 }), Durability::Buffered).unwrap();
    }),
    ("many inserts", |db| {
        let documents: Vec<_> = (3..30).map(|id| bytes(&doc! { "_id": id, "age": id })).collect();
        assert!(people(db).insert_many(&documents, true, Durability::Sync).unwrap().errors.is_empty());
    }),
    ("an update by `_id`", |db| {
        let done = typed(db).update(doc! { "_id": 1 }, doc! { "$inc": { "age": 1 } }).unwrap();
        assert_eq!(done.modified, 1);
    }),
    ("an update of many", |db| {
        typed(db).update(doc! { "age": { "$gt": 20 } }, doc! { "$set": { "adult": true } }).unwrap();
    }),
    ("a replacement", |db| assert!(typed(db).replace(2, &doc! { "age": 18 }).unwrap())),
    ("a deletion by `_id`", |db| assert_eq!(typed(db).delete(doc! { "_id": 3 }).unwrap(), 1)),
    ("a deletion of many", |db| {
        assert!(typed(db).delete(doc! { "age": { "$lt": 10 } }).unwrap() > 1);
    }),
    ("find and modify", |db| {
        let filter = Filter::equals("_id", Value::Int32(20));
        let change = FindAndModify::update(filter, update(&doc! { "$inc": { "age": 1 } }));
        assert!(people(db).find_and_modify(&change, Durability::Sync).unwrap().0.is_some());
    }),
    ("a bulk of writes", |db| {
        let filter = |id| Filter::equals("_id", Value::Int32(id));
        let upsert = UpdateSpec::new(filter(50), update(&doc! { "$set": { "age": 50 } })).upsert();
        let writes = [
            BulkWrite::Insert(DocBuf::check(bytes(&doc! { "_id": 40 })).unwrap()),
            BulkWrite::UpdateOne(upsert),
            BulkWrite::DeleteOne(Arc::new(filter(21))),
        ];
        assert!(people(db).bulk_write(&writes, true, Durability::Sync).unwrap().errors.is_empty());
    }),
    ("an insert and a deletion in a transaction", |db| {
        let mut tx = db.begin();
        tx.documents().insert_one(&people(db), &bytes(&doc! { "_id": 60 })).unwrap();
        let deleted = tx.documents().delete_one(&people(db), &Filter::equals("_id", Value::Int32(40)));
        assert!(deleted.unwrap());
        tx.commit().unwrap();
    }),
    ("an index of a collection with documents", |db| {
        assert!(people(db).create_index(&IndexDef::on(["age"])).unwrap());
    }),
    ("an index in a transaction", |db| {
        transact(db, |tx| tx.create_index(&people(db), &IndexDef::on(["name"]).sparse()).map(|_| ()));
    }),
    ("an index is hidden", |db| transact(db, |tx| tx.hide_index(&people(db), "age_1", true))),
    ("an index is dropped", |db| people(db).drop_index("age_1").unwrap()),
    ("a TTL index", |db| {
        assert!(people(db).create_index(&IndexDef::on(["at"]).expire_after(1 << 30)).unwrap());
        let old = doc! { "_id": 70, "at": DateTime::from_millis(0) };
        people(db).insert_one(&bytes(&old), Durability::Sync).unwrap();
    }),
    ("another time to live", |db| transact(db, |tx| tx.expire_index_after(&people(db), "at_1", 0))),
    ("documents expire", |db| assert_eq!(db.documents().sweep_expired().unwrap(), 1)),
    ("a capped collection", |db| {
        let capped = Some(CappedLimits::new(4096, Some(3)).unwrap());
        let ring = db.collection("ring").unwrap();
        assert!(ring.create(CollectionOptions { capped, ..CollectionOptions::default() }).unwrap());
    }),
    ("documents of a capped collection", |db| {
        for id in 0..5 {
            let document = bytes(&doc! { "_id": id });
            db.collection("ring").unwrap().insert_one(&document, Durability::Sync).unwrap();
        }
    }),
    ("options of a collection", |db| {
        let validator = DocBuf::check(bytes(&doc! { "age": { "$gte": 0 } })).unwrap();
        let options =
            CollectionOptions { validator: Some(validator), moderate: true, ..CollectionOptions::default() };
        people(db).set_options(options).unwrap();
    }),
    ("a collection becomes capped", |db| {
        people(db).set_capped(CappedLimits::new(1 << 20, Some(10)).unwrap()).unwrap();
    }),
    ("a collection is renamed", |db| {
        let folk = db.collection("folk").unwrap();
        transact(db, |tx| tx.rename_collection(&people(db), &folk, false));
    }),
    ("a quota", |db| transact(db, |tx| tx.set_quota("default", Some(1 << 30)))),
    ("the answer to a retryable write", |db| {
        let retry = RetryKey { session: vec![7; 16], number: 1, statement: 0 };
        let answer = bytes(&doc! { "n": 1 });
        transact(db, |tx| {
            assert!(tx.answered(&retry)?.is_none());
            tx.answer(&retry, Doc::check(&answer).unwrap())
        });
    }),
    ("a session is forgotten", |db| {
        assert_eq!(db.documents().forget_sessions(i64::MAX, 10).unwrap(), 1);
    }),
    ("a collection is dropped", |db| assert!(db.collection("folk").unwrap().drop_collection().unwrap())),
    ("a database is dropped", |db| {
        transact(db, |tx| tx.drop_database("default").map(|names| assert_eq!(names, ["ring"])));
    }),
];
