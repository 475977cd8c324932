//! Views: created, changed, dropped, read by pipelines, and rejected as collections.

use std::sync::atomic::{AtomicU32, Ordering};

use bson::{Bson, doc};
use ropewalk_documents::lang::{Code, DocBuf, LangError};
use ropewalk_documents::{CollectionOptions, Find, IndexDef, View};

use super::pipelines::pipeline;
use super::*;

fn view(on: &str, stages: Vec<Document>) -> View {
    let array = d(doc! { "stages": stages });
    let stages = array.doc().get("stages").and_then(Value::as_array).unwrap();
    View { on: on.to_owned(), stages: stages.to_buf() }
}

fn create(db: &Db, name: &str, view: &View) -> Result<bool, DocumentsError> {
    db.documents.transact(SYNC, |tx| tx.create_view(&db.coll(name), view))
}

fn run(collection: &Collection, stages: Vec<Document>) -> Result<Vec<Document>, DocumentsError> {
    let found: Vec<DocBuf> = collection.aggregate(&pipeline(stages), SYNC)?;
    Ok(found.iter().map(plain).collect())
}

fn even() -> View {
    view("c", vec![doc! { "$match": { "n": { "$mod": [2, 0] } } }, doc! { "$project": { "n": 1 } }])
}

#[test]
fn view_is_read_by_pipelines_joins_and_other_views() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..6).map(|n| doc! { "_id": n, "n": n, "x": 1 }));
    assert!(create(&db, "even", &even()).unwrap());
    assert!(!create(&db, "even", &even()).unwrap());
    assert!(create(&db, "large", &view("even", vec![doc! { "$match": { "n": { "$gt": 1 } } }])).unwrap());
    assert_eq!(db.documents.views("app").unwrap(), ["even", "large"]);
    assert_eq!(db.coll("even").view().unwrap(), Some(even()));
    let large = [doc! { "_id": 2, "n": 2 }, doc! { "_id": 4, "n": 4 }];
    assert_eq!(run(&db.coll("large"), vec![]).unwrap(), large);
    assert_eq!(run(&db.coll("large"), vec![doc! { "$match": { "_id": 4 } }]).unwrap(), large[1..]);
    let joined = run(
        &c,
        vec![
            doc! { "$match": { "_id": { "$in": [3, 4] } } },
            doc! { "$lookup": { "from": "large", "localField": "n", "foreignField": "n", "as": "l" } },
            doc! { "$unionWith": "even" },
            doc! { "$project": { "l": "$l.n" } },
        ],
    );
    let none = Vec::<Bson>::new();
    assert_eq!(
        joined.unwrap(),
        [
            doc! { "_id": 3, "l": none },
            doc! { "_id": 4, "l": [4] },
            doc! { "_id": 0 },
            doc! { "_id": 2 },
            doc! { "_id": 4 },
        ]
    );
    c.insert_one(&b(doc! { "_id": 8, "n": 8 }), SYNC).unwrap();
    assert_eq!(run(&db.coll("large"), vec![]).unwrap().len(), 3);
    // A transaction sees its own writes through a view.
    let mut tx = db.begin(Isolation::Snapshot);
    tx.d().insert_one(&c, &b(doc! { "_id": 10, "n": 10 })).unwrap();
    assert_eq!(tx.d().aggregate(&db.coll("large"), &pipeline(vec![])).unwrap().len(), 4);
    assert_eq!(run(&db.coll("large"), vec![]).unwrap().len(), 3);
    db.verify();
}

#[test]
fn view_is_no_collection() {
    let db = Db::new();
    seeded(&db, "c", (0..3).map(|n| doc! { "_id": n, "n": n }));
    create(&db, "even", &even()).unwrap();
    let even = db.coll("even");
    let code = |result: Result<(), DocumentsError>| result.unwrap_err().code();
    assert_eq!(code(even.insert_one(&b(doc! { "_id": 1 }), SYNC).map(drop)), 166);
    assert_eq!(code(even.find(&Find::all()).map(drop)), 166);
    assert_eq!(code(even.create_index(&IndexDef::on(["n"])).map(drop)), 166);
    assert_eq!(code(even.set_options(CollectionOptions::default())), 166);
    assert_eq!(code(even.create(CollectionOptions::default()).map(drop)), 48);
    assert_eq!(code(create(&db, "c", &view("d", vec![])).map(drop)), 48);
    assert_eq!(code(create(&db, "even", &view("d", vec![])).map(drop)), 48);
    assert!(db.documents.collections("app").unwrap().iter().all(|name| name != "even"));
    assert!(even.definition().unwrap().is_none());
}

#[test]
fn invalid_view_is_rejected() {
    let db = Db::new();
    let code = |name: &str, view: View| create(&db, name, &view).unwrap_err().code();
    assert_eq!(code("v", view("c", vec![doc! { "$out": "d" }])), 167);
    assert_eq!(code("v", view("c", vec![doc! { "$nothing": 1 }])), 40324);
    assert_eq!(code("v", view("", vec![])), 73);
    assert_eq!(code("v", view("v", vec![])), 5);
    create(&db, "a", &view("c", vec![])).unwrap();
    create(&db, "b", &view("c", vec![doc! { "$unionWith": "a" }])).unwrap();
    let change =
        |name: &str, view: View| db.documents.transact(SYNC, |tx| tx.set_view(&db.coll(name), &view));
    assert_eq!(change("a", view("b", vec![])).unwrap_err().code(), 5);
    assert_eq!(change("c", view("b", vec![])).unwrap_err().code(), 26);
    change("a", view("d", vec![])).unwrap();
    assert_eq!(db.coll("a").view().unwrap(), Some(view("d", vec![])));
    for n in 0..19 {
        create(&db, &format!("v{}", n + 1), &view(&format!("v{n}"), vec![])).unwrap();
    }
    assert!(run(&db.coll("v19"), vec![]).unwrap().is_empty());
    create(&db, "v20", &view("v19", vec![])).unwrap();
    assert_eq!(code("v21", view("v20", vec![])), 165);
}

#[test]
fn dropped_view_leaves_its_name_and_its_collection() {
    let env = Env::memory();
    let db = Db::open(&env, EngineOptions::default());
    seeded(&db, "c", (0..3).map(|n| doc! { "_id": n, "n": n }));
    create(&db, "even", &even()).unwrap();
    create(&db, "other", &even()).unwrap();
    drop(db);
    let db = Db::open(&env, EngineOptions::default());
    assert_eq!(run(&db.coll("even"), vec![]).unwrap().len(), 2);
    assert!(db.coll("even").drop_collection().unwrap());
    assert!(!db.coll("even").drop_collection().unwrap());
    db.coll("even").insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    assert_eq!(db.all(&db.coll("c")).len(), 3);
    let dropped = db.documents.transact(SYNC, |tx| tx.drop_database("app")).unwrap();
    assert_eq!(dropped, ["c", "even", "other"]);
    assert!(db.documents.views("app").unwrap().is_empty());
}

#[test]
fn concurrent_view_and_collection_of_one_name_conflict() {
    let db = Db::new();
    let mut making = db.begin(Isolation::Snapshot);
    making.d().create_view(&db.coll("x"), &even()).unwrap();
    db.coll("x").insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    assert_eq!(making.commit().unwrap_err().code(), 112);
    let mut filling = db.begin(Isolation::Snapshot);
    filling.d().insert_one(&db.coll("y"), &b(doc! { "_id": 1 })).unwrap();
    create(&db, "y", &even()).unwrap();
    assert_eq!(filling.commit().unwrap_err().code(), 112);
}

#[test]
fn uses_of_indexes_are_counted() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..50).map(|n| doc! { "_id": n, "n": n }));
    c.create_index(&IndexDef::on(["n"])).unwrap();
    let uses = || {
        let definition = c.definition().unwrap().unwrap();
        let index = definition.indexes().first().unwrap().clone();
        (db.documents.index_uses(&definition, None), db.documents.index_uses(&definition, Some(&index)))
    };
    let before = uses();
    db.find(&c, &Find::filter(d(doc! { "n": 3 }).doc()).unwrap());
    db.find(&c, &Find::filter(d(doc! { "n": { "$gt": 40 } }).doc()).unwrap());
    db.find(&c, &Find::filter(d(doc! { "_id": 3 }).doc()).unwrap());
    db.find(&c, &Find::all());
    assert_eq!(uses(), (before.0 + 1, before.1 + 2));
}

#[test]
fn concurrent_views_that_read_each_other_conflict() {
    let db = Db::new();
    let mut one = db.begin(Isolation::Snapshot);
    let mut other = db.begin(Isolation::Snapshot);
    one.d().create_view(&db.coll("a"), &view("b", vec![])).unwrap();
    other.d().create_view(&db.coll("b"), &view("c", vec![doc! { "$unionWith": "a" }])).unwrap();
    one.commit().unwrap();
    assert_eq!(other.commit().unwrap_err().code(), 112);
    // Collections that are read may change meanwhile.
    let mut one = db.begin(Isolation::Snapshot);
    one.d().create_view(&db.coll("d"), &view("e", vec![])).unwrap();
    db.coll("e").insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    one.commit().unwrap();
}

#[test]
fn views_that_read_views_too_often_fail() {
    let db = Db::new();
    create(&db, "v0", &view("none", vec![])).unwrap();
    for level in 1..8 {
        let below = format!("v{}", level - 1);
        create(&db, &format!("v{level}"), &view(&below, vec![doc! { "$unionWith": &below }; 40])).unwrap();
    }
    assert!(run(&db.coll("v2"), vec![]).unwrap().is_empty());
    assert_eq!(run(&db.coll("v7"), vec![]).unwrap_err().code(), 15);
    // The next read counts from zero.
    assert!(run(&db.coll("v2"), vec![]).unwrap().is_empty());
}

#[test]
fn views_without_documents_can_be_ended() {
    let db = Db::new();
    create(&db, "v0", &view("none", vec![])).unwrap();
    create(&db, "v1", &view("v0", vec![doc! { "$unionWith": "v0" }; 10])).unwrap();
    let looks = AtomicU32::new(0);
    let look = || match looks.fetch_add(1, Ordering::Relaxed) {
        3.. => Err(DocumentsError::Interrupted(LangError::new(Code::Interrupted, "it was ended"))),
        _ => Ok(()),
    };
    let mut tx = db.begin(Isolation::Snapshot);
    let error = tx.d().with_cancellation(&look).aggregate(&db.coll("v1"), &pipeline(vec![])).unwrap_err();
    assert_eq!(error.code_name(), "Interrupted");
}

#[test]
fn database_with_only_a_view_exists() {
    let db = Db::new();
    seeded(&db, "c", [doc! { "_id": 1 }]);
    let made = |database: &str| {
        let name = db.documents.collection(database, "v").unwrap();
        db.documents.transact(SYNC, |tx| tx.create_view(&name, &view("c", vec![]))).unwrap();
    };
    made("able");
    made("app");
    made("zoo");
    assert_eq!(db.documents.databases().unwrap(), ["able", "app", "zoo"]);
    assert_eq!(db.documents.databases_after(Some("able"), 1, |_| true).unwrap(), ["app"]);
}

#[test]
fn random_conditions_are_evaluated_once() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..2000).map(|n| doc! { "_id": n, "n": n, "m": n % 7 }));
    c.create_index(&IndexDef::on(["n"])).unwrap();
    c.create_index(&IndexDef::on(["m"])).unwrap();
    let half = doc! { "$sampleRate": 0.5 };
    let rand = doc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } };
    let is_half = |found: usize| assert!((900..1100).contains(&found), "{found}");
    for condition in [half.clone(), rand] {
        let matched = vec![doc! { "$match": condition }];
        is_half(run(&c, matched.clone()).unwrap().len());
        let union = doc! { "$unionWith": { "coll": "c", "pipeline": matched.clone() } };
        is_half(run(&db.coll("none"), vec![union]).unwrap().len());
        let name = format!("v{}", db.documents.views("app").unwrap().len());
        create(&db, &name, &view("c", matched)).unwrap();
        is_half(run(&db.coll(&name), vec![]).unwrap().len());
    }
    // Each branch of an $or is a separate scan.
    let either = doc! { "$or": [{ "n": { "$gte": 0 } }, { "m": { "$gte": 0 } }], "$sampleRate": 0.5 };
    is_half(c.find(&find(either)).unwrap().count());
    // The other conditions still select the documents.
    let some = doc! { "$match": { "n": { "$lt": 10 }, "$sampleRate": 1.0 } };
    assert_eq!(run(&c, vec![some]).unwrap().len(), 10);
}
