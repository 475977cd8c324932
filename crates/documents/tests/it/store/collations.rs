//! Collations: text is compared by the rules of a language, with an index and without.

use bson::doc;
use ropewalk_documents::lang::Collation;
use ropewalk_documents::{Find, IndexDef};

use super::*;

/// English, upper and lower case equal.
fn caseless() -> Collation {
    let spec = d(doc! { "locale": "en_US", "strength": 2 });
    Collation::parse(Some(Value::Document(spec.doc()))).unwrap().unwrap()
}

fn filter(filter: Document) -> Filter {
    let options = Options { collation: Some(caseless()), ..Options::default() };
    Filter::parse(d(filter).doc(), &options).unwrap()
}

fn people(db: &Db) -> Collection {
    let names = ["Zoe", "ann", "Bob", "ANN", "émile", "Emile", "bobby", "zoë"];
    let text = names.iter().enumerate().map(|(n, name)| doc! { "_id": n as i32, "name": *name });
    seeded(db, "people", text.chain([doc! { "_id": 8, "name": 5 }, doc! { "_id": 9, "name": ["x", "Ann"] }]))
}

fn found(db: &Db, c: &Collection, query: Document, index: &str) -> Vec<i32> {
    let find = Find::matching(filter(query));
    assert_eq!(used(db, c, &find), index, "{:?}", explain(db, c, &find));
    let mut found = ids(&db.find(c, &find));
    found.sort_unstable();
    found
}

#[test]
fn filter_under_a_collation_matches_alike_with_and_without_an_index() {
    let db = Db::new();
    let c = people(&db);
    let queries = [
        (doc! { "name": "Ann" }, vec![1, 3, 9]),
        (doc! { "name": { "$in": ["ANN", "bob", 5] } }, vec![1, 2, 3, 8, 9]),
        (doc! { "name": { "$ne": "ann" } }, vec![0, 2, 4, 5, 6, 7, 8]),
        (doc! { "name": { "$gte": "BOB", "$lt": "c" } }, vec![2, 6]),
        (doc! { "name": "emile" }, vec![5]),
        (doc! { "name": { "$gt": "zoe" } }, vec![7]),
        (doc! { "name": { "$regex": "^ann" } }, vec![1]),
        (doc! { "name": ["X", "ann"] }, vec![9]),
        (doc! { "name": { "$elemMatch": { "$eq": "ANN" } } }, vec![9]),
        (doc! { "name": 5 }, vec![8]),
    ];
    for (query, expected) in &queries {
        assert_eq!(found(&db, &c, query.clone(), "COLLSCAN"), *expected, "{query}");
    }
    c.create_index(&IndexDef::on(["name"]).named("caseless").collated(caseless())).unwrap();
    for (query, expected) in &queries {
        let mut ids = ids(&db.find(&c, &Find::matching(filter(query.clone()))));
        ids.sort_unstable();
        assert_eq!(ids, *expected, "{query}");
    }
    assert_eq!(found(&db, &c, doc! { "name": "Ann" }, "caseless"), [1, 3, 9]);
    db.verify();
}

#[test]
fn index_with_a_collation_serves_only_queries_with_the_same_one() {
    let db = Db::new();
    let c = people(&db);
    c.create_index(&IndexDef::on(["name"]).named("caseless").collated(caseless())).unwrap();
    let plain = find(doc! { "name": "ANN" });
    assert_eq!((used(&db, &c, &plain).as_str(), ids(&db.find(&c, &plain))), ("COLLSCAN", vec![3]));
    // A number is the same under every collation.
    let number = find(doc! { "name": 5 });
    assert_eq!((used(&db, &c, &number).as_str(), ids(&db.find(&c, &number))), ("caseless", vec![8]));
    // The index of bytes does not serve text under the collation.
    c.drop_index("caseless").unwrap();
    c.create_index(&IndexDef::on(["name"]).named("bytes")).unwrap();
    assert_eq!(found(&db, &c, doc! { "name": "Ann" }, "COLLSCAN"), [1, 3, 9]);
    // Nor does the key of `_id`.
    c.insert_one(&b(doc! { "_id": "Key" }), SYNC).unwrap();
    let by_id = db.find(&c, &Find::matching(filter(doc! { "_id": "KEY" })));
    assert_eq!(by_id, [doc! { "_id": "Key" }]);
}

#[test]
fn sort_under_a_collation_follows_the_language() {
    let db = Db::new();
    let c = people(&db);
    c.delete_one(&f(doc! { "_id": 9 }), SYNC).unwrap();
    let by_bytes = Find::all().sort(sort(doc! { "name": 1, "_id": 1 }));
    assert_eq!(ids(&db.find(&c, &by_bytes)), [8, 3, 2, 5, 0, 1, 6, 7, 4]);
    let by_language = Find::all().sort(sort(doc! { "name": 1, "_id": 1 }).collated(Some(&caseless())));
    let expected = [8, 1, 3, 2, 6, 5, 4, 0, 7];
    assert_eq!(ids(&db.find(&c, &by_language)), expected);
    c.create_index(&IndexDef::on(["name", "_id"]).named("caseless").collated(caseless())).unwrap();
    assert_eq!(used(&db, &c, &by_language), "caseless");
    assert_eq!(ids(&db.find(&c, &by_language)), expected);
    assert_eq!(ids(&db.find(&c, &by_bytes)), [8, 3, 2, 5, 0, 1, 6, 7, 4]);
}

#[test]
fn unique_index_with_a_collation_rejects_text_that_is_equal_under_it() {
    let env = Env::memory();
    let db = Db::open(&env, EngineOptions::default());
    let c = db.coll("c");
    c.create_index(&IndexDef::on(["name"]).unique().sparse().collated(caseless())).unwrap();
    c.insert_one(&b(doc! { "_id": 1, "name": "Ann" }), SYNC).unwrap();
    let error = c.insert_one(&b(doc! { "_id": 2, "name": "ANN" }), SYNC).unwrap_err();
    assert_eq!(error.code(), 11000);
    drop((c, db));
    let db = Db::open(&env, EngineOptions::default());
    let c = db.coll("c");
    let error = c.insert_one(&b(doc! { "_id": 2, "name": "aNN" }), SYNC).unwrap_err();
    assert_eq!(error.code(), 11000);
    c.insert_one(&b(doc! { "_id": 2, "name": "Änn" }), SYNC).unwrap();
    // An upsert stores the text of the query as it is.
    c.delete_one(&f(doc! { "_id": 1 }), SYNC).unwrap();
    let upsert = UpdateSpec {
        filter: Arc::new(filter(doc! { "name": "aNn" })),
        upsert: true,
        ..spec(doc! {}, doc! { "$set": { "_id": 3 } })
    };
    c.update_one(&upsert, SYNC).unwrap();
    assert_eq!(db.find(&c, &find(doc! { "name": "aNn" })), [doc! { "_id": 3, "name": "aNn" }]);
    db.verify();
}
