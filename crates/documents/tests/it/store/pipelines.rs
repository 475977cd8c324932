//! Pipelines over collections: joins, output, inside transactions and as stages of change streams.

use bson::{Bson, doc};
use ropewalk_documents::lang::{Doc, Pipeline};
use ropewalk_documents::{Find, IndexDef, Target, Watch};

use super::*;

pub(crate) fn pipeline(stages: Vec<Document>) -> Pipeline {
    let array = d(doc! { "stages": stages });
    let stages = array.doc().get("stages").unwrap().as_array().unwrap();
    Pipeline::parse(Doc::check(stages.bytes()).unwrap(), &Options::default()).unwrap()
}

fn run(db: &Db, collection: &Collection, stages: Vec<Document>) -> Result<Vec<Document>, DocumentsError> {
    let _ = db;
    let found = collection.aggregate(&pipeline(stages), SYNC)?;
    Ok(found.iter().map(plain).collect())
}

fn shop(db: &Db) -> (Collection, Collection) {
    let users = seeded(db, "users", (0..3).map(|n| doc! { "_id": n, "name": format!("user {n}") }));
    let orders =
        seeded(db, "orders", (0..9).map(|n| doc! { "_id": n, "user": n % 3, "sum": n * 10, "day": n / 3 }));
    orders.create_index(&IndexDef::on(["user"])).unwrap();
    (users, orders)
}

#[test]
fn a_pipeline_matches_groups_and_joins_at_one_snapshot() {
    let db = Db::new();
    let (users, orders) = shop(&db);
    let totals = run(
        &db,
        &orders,
        vec![
            doc! { "$match": { "user": { "$lt": 2 } } },
            doc! { "$group": { "_id": "$user", "total": { "$sum": "$sum" }, "n": { "$sum": 1 } } },
            doc! { "$sort": { "_id": 1 } },
        ],
    );
    assert_eq!(
        totals.unwrap(),
        [doc! { "_id": 0, "total": 90, "n": 3 }, doc! { "_id": 1, "total": 120, "n": 3 }]
    );
    let joined = run(
        &db,
        &users,
        vec![
            doc! { "$match": { "_id": 2 } },
            doc! { "$lookup": { "from": "orders", "localField": "_id", "foreignField": "user", "as": "orders" } },
            doc! { "$project": { "name": 1, "sums": "$orders.sum" } },
        ],
    );
    assert_eq!(joined.unwrap(), [doc! { "_id": 2, "name": "user 2", "sums": [20, 50, 80] }]);
    let counted = run(
        &db,
        &users,
        vec![doc! { "$unionWith": "orders" }, doc! { "$match": {} }, doc! { "$count": "n" }],
    );
    assert_eq!(counted.unwrap(), [doc! { "n": 12 }]);
}

#[test]
fn out_replaces_a_collection_and_keeps_its_indexes() {
    let db = Db::new();
    let (_, orders) = shop(&db);
    let days = seeded(&db, "days", [doc! { "_id": "old" }]);
    days.create_index(&IndexDef::on(["total"])).unwrap();
    let stages =
        || vec![doc! { "$group": { "_id": "$day", "total": { "$sum": "$sum" } } }, doc! { "$out": "days" }];
    assert_eq!(run(&db, &orders, stages()).unwrap(), Vec::<Document>::new());
    let all =
        [doc! { "_id": 0, "total": 30 }, doc! { "_id": 1, "total": 120 }, doc! { "_id": 2, "total": 210 }];
    assert_eq!(db.all(&days), all);
    assert_eq!(ids(&db.find(&days, &find(doc! { "total": { "$gt": 100 } }))), [1, 2]);
    run(&db, &orders, vec![doc! { "$match": { "_id": 77 } }, doc! { "$out": "fresh" }]).unwrap();
    assert!(db.coll("fresh").definition().unwrap().is_some());
    db.verify();
}

#[test]
fn merge_applies_when_matched_options() {
    let db = Db::new();
    let (_, orders) = shop(&db);
    let target = seeded(&db, "t", [doc! { "_id": 0, "own": true, "sum": -1 }]);
    let merge = |options: Document| {
        let mut merge = doc! { "into": "t" };
        merge.extend(options);
        run(&db, &orders, vec![doc! { "$match": { "_id": { "$lt": 2 } } }, doc! { "$merge": merge }])
            .map(|_| ())
    };
    merge(doc! { "whenNotMatched": "discard" }).unwrap();
    assert_eq!(db.all(&target), [doc! { "_id": 0, "own": true, "sum": 0, "user": 0, "day": 0 }]);
    merge(doc! { "whenMatched": "keepExisting" }).unwrap();
    assert_eq!(ids(&db.all(&target)), [0, 1]);
    let add =
        Bson::Array(vec![Bson::Document(doc! { "$set": { "sum": { "$add": ["$sum", "$$new.sum", 1] } } })]);
    merge(doc! { "whenMatched": add }).unwrap();
    let sums: Vec<i32> = db.all(&target).iter().map(|document| document.get_i32("sum").unwrap()).collect();
    assert_eq!(sums, [1, 21]);
    merge(doc! { "whenMatched": "replace" }).unwrap();
    assert_eq!(db.all(&target)[0], doc! { "_id": 0, "user": 0, "sum": 0, "day": 0 });
    assert_eq!(merge(doc! { "whenMatched": "fail" }).unwrap_err().code(), 11000);
    assert_eq!(merge(doc! { "on": "user" }).unwrap_err().code(), 51183);
    db.verify();
}

#[test]
fn a_pipeline_inside_a_transaction_sees_its_writes_and_rolls_back_with_it() {
    let db = Db::new();
    let (_, orders) = shop(&db);
    let mut tx = db.begin(Isolation::Serializable);
    tx.d().insert_one(&orders, &b(doc! { "_id": 100, "user": 0, "sum": 1000 })).unwrap();
    let sum = pipeline(vec![
        doc! { "$match": { "user": 0 } },
        doc! { "$group": { "_id": null, "sum": { "$sum": "$sum" } } },
    ]);
    assert_eq!(plain(&tx.d().aggregate(&orders, &sum).unwrap()[0]), doc! { "_id": null, "sum": 1090 });
    tx.d().aggregate(&orders, &pipeline(vec![doc! { "$out": "copy" }])).unwrap();
    assert_eq!(tx.d().count(&db.coll("copy"), &Find::all()).unwrap(), 10);
    drop(tx);
    assert_eq!(db.documents.collections("app").unwrap(), ["orders", "users"]);
}

#[test]
fn a_change_stream_has_a_pipeline() {
    let db = Db::new();
    let (_, orders) = shop(&db);
    let stages = pipeline(vec![
        doc! { "$match": { "operationType": "insert", "fullDocument.sum": { "$gt": 5 } } },
        doc! { "$project": { "sum": "$fullDocument.sum" } },
    ]);
    let mut stream =
        db.documents.watch(Target::Database("app".into()), Watch::default(), Some(stages)).unwrap();
    for sum in [1, 10, 2, 20] {
        orders.insert_one(&b(doc! { "_id": 100 + sum, "sum": sum }), SYNC).unwrap();
    }
    let mut sums = Vec::new();
    while let Some(event) = stream.next(core::time::Duration::ZERO).unwrap() {
        sums.push(plain(&event.document).get_i32("sum").unwrap());
    }
    assert_eq!(sums, [10, 20]);
    assert_eq!(stream.token().seq, db.documents.engine().seq());
}

#[test]
fn m8_sorted_documents_do_not_retain_their_source() {
    let db = Db::new();
    let c = seeded(&db, "c", [doc! { "_id": 1, "a": (0..10_000).collect::<Vec<i32>>() }]);
    for stage in [
        doc! { "$sort": { "a": -1 } },
        doc! { "$sample": { "size": 100 } },
        doc! { "$setWindowFields": { "sortBy": { "a": 1 }, "output": {} } },
    ] {
        let stages = pipeline(vec![doc! { "$unwind": "$a" }, doc! { "$limit": 100 }, stage.clone()]);
        for document in c.aggregate(&stages, SYNC).unwrap() {
            let bytes = document.into_bytes();
            assert!(bytes.capacity() < 1000, "{stage}: {} bytes for {}", bytes.capacity(), bytes.len());
        }
    }
}
