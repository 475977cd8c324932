//! Capped collections: insertion order, limits, tails.

use std::collections::VecDeque;

use bson::doc;
use proptest::prelude::*;
use ropewalk_documents::{CappedLimits, CollectionOptions, Hint, IndexDef, Tail};

use super::*;

fn capped(db: &Db, name: &str, bytes: i64, documents: Option<i64>) -> Collection {
    let collection = db.coll(name);
    let capped = Some(CappedLimits::new(bytes, documents).unwrap());
    collection.create(CollectionOptions { capped, ..CollectionOptions::default() }).unwrap();
    collection
}

fn insert(collection: &Collection, ids: impl IntoIterator<Item = i32>) {
    for id in ids {
        collection.insert_one(&b(doc! { "_id": id, "even": id % 2 == 0 }), SYNC).unwrap();
    }
}

fn following(tail: &mut Tail) -> Vec<i32> {
    ids(&tail.next_batch(100, 1 << 20).unwrap().iter().map(plain).collect::<Vec<_>>())
}

#[test]
fn capped_collection_returns_insertion_order_and_evicts_oldest() {
    let db = Db::new();
    let c = capped(&db, "c", 4096, Some(4));
    insert(&c, [5, 3, 9, 1]);
    assert_eq!(ids(&db.all(&c)), [5, 3, 9, 1]);
    insert(&c, [7]);
    assert_eq!(ids(&db.all(&c)), [3, 9, 1, 7]);
    // A changed document retains its position; a deleted one is removed from the order.
    c.update_one(&spec(doc! { "_id": 9 }, doc! { "$set": { "more": "x".repeat(100) } }), SYNC).unwrap();
    assert!(c.delete_one(&f(doc! { "_id": 3 }), SYNC).unwrap());
    insert(&c, [3, 2]);
    assert_eq!(ids(&db.all(&c)), [1, 7, 3, 2]);
    let backward = Find::all().sort(sort(doc! { "$natural": -1 }));
    assert_eq!(ids(&db.find(&c, &backward)), [2, 3, 7, 1]);
    assert_eq!(ids(&db.find(&c, &Find::all().hint(Hint::Natural(true)).limit(2))), [2, 3]);
    // Other orders require a sort.
    assert_eq!(ids(&db.find(&c, &Find::all().sort(sort(doc! { "_id": 1 })))), [1, 2, 3, 7]);
    assert_eq!(
        ids(&db.find(&c, &find(doc! { "_id": { "$gt": 1 } }).sort(sort(doc! { "$natural": 1 })))),
        [7, 3, 2]
    );
    let both = Find::all().hint(Hint::Name("_id_".into())).sort(sort(doc! { "$natural": 1 }));
    let snapshot = db.documents.engine().snapshot();
    assert_eq!(db.documents.at(&snapshot).find(&c, &both).unwrap_err().code(), 72);
    db.verify();
}

#[test]
fn capped_bytes_limit_evicts_and_rejects_oversized_document() {
    let db = Db::new();
    let c = capped(&db, "c", 1, None);
    let big = |id: i32, bytes: usize| b(doc! { "_id": id, "text": "x".repeat(bytes) });
    for id in 0..10 {
        c.insert_one(&big(id, 1000), SYNC).unwrap();
    }
    // A limit below 4096 bytes is raised to 4096.
    assert_eq!(ids(&db.all(&c)), [7, 8, 9]);
    assert_eq!(c.insert_one(&big(10, 5000), SYNC).unwrap_err().code(), 10334);
    c.insert_one(&big(11, 3000), SYNC).unwrap();
    assert_eq!(ids(&db.all(&c)), [9, 11]);
    let options = |capped| CollectionOptions { capped, ..CollectionOptions::default() };
    // If not given, limits are unchanged; smaller ones apply at once.
    c.set_options(options(None)).unwrap();
    c.set_options(options(Some(CappedLimits { bytes: 4096, documents: Some(1) }))).unwrap();
    assert_eq!(ids(&db.all(&c)), [11]);
    let plain = db.coll("plain");
    plain.create(CollectionOptions::default()).unwrap();
    assert_eq!(plain.set_options(options(Some(CappedLimits::new(1, None).unwrap()))).unwrap_err().code(), 72);
    assert!(
        CappedLimits::new(0, None).is_err()
            && CappedLimits::new(-1, None).is_err()
            && CappedLimits::new(i64::MAX, None).is_err()
    );
    db.verify();
}

#[test]
fn a_collection_is_made_capped_and_keeps_its_indexes() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(20));
    c.create_index(&IndexDef::on(["tenth"])).unwrap();
    c.set_capped(CappedLimits { bytes: 4096, documents: Some(8) }).unwrap();
    assert_eq!(ids(&db.all(&c)), (12..20).collect::<Vec<_>>());
    insert(&c, [1]);
    assert_eq!(ids(&db.all(&c)), (13..20).chain([1]).collect::<Vec<_>>());
    assert_eq!(db.find(&c, &find(doc! { "tenth": 1 })).len(), 7);
    assert_eq!(db.coll("none").set_capped(CappedLimits::new(1, None).unwrap()).unwrap_err().code(), 26);
    db.verify();
    c.drop_collection().unwrap();
    db.verify();
}

#[test]
fn tail_resumes_after_last_document_read() {
    let db = Db::new();
    let c = capped(&db, "c", 4096, Some(4));
    let mut early = c.tail(None, &Find::all()).unwrap().unwrap();
    assert!(following(&mut early).is_empty());
    assert!(!early.position_exists());
    insert(&c, [1, 2, 3]);
    let mut all = c.tail(None, &Find::all()).unwrap().unwrap();
    let mut even = c.tail(None, &find(doc! { "even": true }).skip(1)).unwrap().unwrap();
    let mut two = c.tail(None, &Find::all().limit(2)).unwrap().unwrap();
    assert_eq!(following(&mut all), [1, 2, 3]);
    assert!(following(&mut even).is_empty());
    assert_eq!((following(&mut two), two.is_done()), (vec![1, 2], true));
    insert(&c, [4, 6]);
    assert_eq!(following(&mut all), [4, 6]);
    assert_eq!(following(&mut even), [4, 6]);
    assert!(following(&mut all).is_empty());
    insert(&c, [7, 8, 9]);
    assert_eq!(following(&mut all), [7, 8, 9]);
    // The last document read is gone, and perhaps later ones.
    insert(&c, 10..15);
    assert_eq!(all.next_batch(1, 1).unwrap_err().code(), 136);
    let mut last = c.tail(None, &Find::all()).unwrap().unwrap();
    assert_eq!(following(&mut last).len(), 4);
    c.drop_collection().unwrap();
    assert_eq!(last.next_batch(1, 1).unwrap_err().code(), 136);
    assert!(c.tail(None, &Find::all()).unwrap().is_none());
    assert_eq!(seeded(&db, "plain", numbered(1)).tail(None, &Find::all()).err().unwrap().code(), 72);
}

#[test]
fn concurrent_inserts_get_distinct_positions() {
    let db = Db::new();
    let c = capped(&db, "c", 1 << 20, Some(50));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let c = &c;
            scope.spawn(move || insert(c, (0..25).map(|n| writer * 100 + n)));
        }
    });
    let all = ids(&db.all(&c));
    assert_eq!(all.len(), 50);
    for writer in 0..4 {
        let own: Vec<_> = all.iter().filter(|id| **id / 100 == writer).collect();
        assert!(own.is_sorted(), "{own:?}");
    }
    db.verify();
}

#[derive(Debug, Clone)]
enum Step {
    Insert(i32),
    Grow(i32, usize),
    Delete(i32),
    Reopen,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_capped_collection_behaves_like_a_queue(steps in prop::collection::vec(prop_oneof![
        6 => (0..30_i32).prop_map(Step::Insert),
        1 => (0..30_i32, 0..900_usize).prop_map(|(id, bytes)| Step::Grow(id, bytes)),
        1 => (0..30_i32).prop_map(Step::Delete),
        1 => Just(Step::Reopen),
    ], 1..80)) {
        let env = Env::memory();
        let mut db = Db::open(&env, EngineOptions::default());
        let mut model: VecDeque<(i32, usize)> = VecDeque::new();
        let mut c = capped(&db, "c", 4096, Some(7));
        let document = |id: i32, bytes: usize| doc! { "_id": id, "even": id % 2 == 0, "text": "x".repeat(bytes) };
        for step in steps {
            match step {
                Step::Insert(id) => {
                    let done = c.insert_one(&b(document(id, 0)), SYNC);
                    if model.iter().any(|(there, _)| *there == id) {
                        prop_assert_eq!(done.unwrap_err().code(), 11000);
                    } else {
                        done.unwrap();
                        model.push_back((id, 0));
                        let bytes = |model: &VecDeque<(i32, usize)>| -> usize {
                            model.iter().map(|(id, bytes)| b(document(*id, *bytes)).len()).sum()
                        };
                        while model.len() > 7 || bytes(&model) > 4096 {
                            model.pop_front();
                        }
                    }
                }
                Step::Grow(id, bytes) => {
                    c.update_one(&spec(doc! { "_id": id }, document(id, bytes)), SYNC).unwrap();
                    model.iter_mut().filter(|(there, _)| *there == id).for_each(|(_, size)| *size = bytes);
                }
                Step::Delete(id) => {
                    let there = c.delete_one(&f(doc! { "_id": id }), SYNC).unwrap();
                    prop_assert_eq!(there, model.iter().any(|(there, _)| *there == id));
                    model.retain(|(there, _)| *there != id);
                }
                Step::Reopen => {
                    drop(c);
                    drop(db);
                    db = Db::open(&env, EngineOptions::default());
                    c = db.coll("c");
                }
            }
            let expected: Vec<i32> = model.iter().map(|(id, _)| *id).collect();
            prop_assert_eq!(ids(&db.all(&c)), expected);
        }
        db.verify();
    }
}
