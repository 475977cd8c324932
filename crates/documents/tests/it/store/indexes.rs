//! Indexes of every kind: contents, rejected values, builds with concurrent writers.

use bson::doc;
use ropewalk_documents::{Find, IndexDef};

use super::*;

fn numbers(db: &Db, c: &Collection, filter: Document, index: &str) -> Vec<i32> {
    let find = find(filter);
    assert_eq!(used(db, c, &find), index, "{:?}", explain(db, c, &find));
    let mut found = ids(&db.find(c, &find));
    found.sort_unstable();
    found
}

#[test]
fn unique_counts_a_missing_field_as_null_once() {
    let db = Db::new();
    let c = db.coll("c");
    c.create_index(&IndexDef::on(["a", "b"]).unique()).unwrap();
    c.insert_one(&b(doc! { "_id": 1 }), SYNC).unwrap();
    let error = c.insert_one(&b(doc! { "_id": 2, "a": null }), SYNC).unwrap_err();
    assert_eq!(
        error.to_string(),
        "duplicate key in collection \"c\", index \"a_1_b_1\": { a: null, b: null }"
    );
    c.insert_one(&b(doc! { "_id": 2, "a": 1 }), SYNC).unwrap();
    let moved = c.update_one(&spec(doc! { "_id": 2 }, doc! { "$unset": { "a": 1 } }), SYNC).unwrap_err();
    assert_eq!(moved.code(), 11000);
    c.delete_one(&f(doc! { "_id": 1 }), SYNC).unwrap();
    c.update_one(&spec(doc! { "_id": 2 }, doc! { "$unset": { "a": 1 } }), SYNC).unwrap();
    db.verify();
}

#[test]
fn sparse_and_partial_indexes_serve_only_queries_they_cover() {
    let db = Db::new();
    let c = seeded(
        &db,
        "c",
        (0..300).map(|n| {
            if n % 3 == 0 {
                doc! { "_id": n, "a": n, "b": n }
            } else {
                doc! { "_id": n, "b": n }
            }
        }),
    );
    c.create_index(&IndexDef::on(["a"]).sparse().unique()).unwrap();
    assert_eq!(numbers(&db, &c, doc! { "a": 30 }, "a_1"), [30]);
    assert_eq!(numbers(&db, &c, doc! { "a": { "$gt": 290 } }, "a_1"), [291, 294, 297]);
    assert_eq!(numbers(&db, &c, doc! { "a": null }, "COLLSCAN").len(), 200);
    let partial = IndexDef::on(["b"]).partial(d(doc! { "b": { "$gte": 290 } }));
    c.create_index(&partial).unwrap();
    assert_eq!(numbers(&db, &c, doc! { "b": { "$gt": 295 } }, "b_1"), [296, 297, 298, 299]);
    assert_eq!(numbers(&db, &c, doc! { "b": 295 }, "b_1"), [295]);
    assert_eq!(numbers(&db, &c, doc! { "b": 5 }, "COLLSCAN"), [5]);
    c.update_one(&spec(doc! { "_id": 299 }, doc! { "$set": { "b": 1 } }), SYNC).unwrap();
    assert_eq!(numbers(&db, &c, doc! { "b": { "$gt": 295 } }, "b_1"), [296, 297, 298]);
    db.verify();
}

#[test]
fn arrays_have_an_entry_for_each_element_and_a_document_is_found_once() {
    let db = Db::new();
    let c = seeded(
        &db,
        "c",
        (0..200).map(|n| doc! { "_id": n, "tags": [n, n + 1, n, { "deep": n }], "x": { "y": [n, -n] } }),
    );
    c.create_index(&IndexDef::on(["tags"])).unwrap();
    c.create_index(&IndexDef::on(["x.y", "tags.deep"])).unwrap_err();
    c.create_index(&IndexDef::on(["-x.y"])).unwrap();
    assert_eq!(numbers(&db, &c, doc! { "tags": 50 }, "tags_1"), [49, 50]);
    assert_eq!(numbers(&db, &c, doc! { "tags": { "$gte": 50, "$lte": 52 } }, "tags_1"), [49, 50, 51, 52]);
    // Different elements may satisfy each condition.
    assert_eq!(numbers(&db, &c, doc! { "x.y": { "$gt": 195, "$lt": -195 } }, "x.y_-1"), [196, 197, 198, 199]);
    for backward in [1, -1] {
        let found =
            db.find(&c, &find(doc! { "tags": { "$in": [3, 4] } }).sort(sort(doc! { "_id": backward })));
        assert_eq!(ids(&found).len(), 3);
    }
    db.verify();
    let refused = c.create_index(&IndexDef::on(["tags", "x.y"])).unwrap_err();
    assert_eq!((refused.code(), refused.code_name().as_str()), (171, "CannotIndexParallelArrays"));
    assert_eq!(c.definition().unwrap().unwrap().indexes().len(), 2);
    db.verify();
}

#[test]
fn a_compound_index_serves_prefixes_ranges_and_orders() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..1000).map(|n| doc! { "_id": n, "a": n % 10, "b": n / 10, "c": n % 7 }));
    c.create_index(&IndexDef::on(["a", "-b", "c"])).unwrap();
    let by = "a_1_b_-1_c_1";
    assert_eq!(numbers(&db, &c, doc! { "a": 3, "b": 50 }, by), [503]);
    assert_eq!(
        numbers(&db, &c, doc! { "a": { "$in": [3, 4] }, "b": { "$gte": 98 } }, by),
        [983, 984, 993, 994]
    );
    assert_eq!(numbers(&db, &c, doc! { "a": 3, "b": { "$in": [1, 2] }, "c": 6 }, by), [13]);
    for (spec, wanted, sorts) in [
        (doc! { "b": -1 }, vec![993, 983], false),
        (doc! { "b": 1 }, vec![3, 13], false),
        (doc! { "a": -1, "b": 1 }, vec![3, 13], false),
        (doc! { "a": 1, "b": 1 }, vec![3, 13], false),
        (doc! { "c": 1, "b": 1 }, vec![63, 133], true),
    ] {
        let find = find(doc! { "a": 3 }).sort(sort(spec.clone())).limit(2);
        assert_eq!(used(&db, &c, &find), if sorts { format!("SORT {by}") } else { by.to_owned() }, "{spec}");
        assert_eq!(ids(&db.find(&c, &find)), wanted, "{spec}");
    }
    db.verify();
}

#[test]
fn names_and_options_that_clash_are_refused() {
    let db = Db::new();
    let c = db.coll("c");
    assert!(c.create_index(&IndexDef::on(["a"])).unwrap());
    assert!(!c.create_index(&IndexDef::on(["a"])).unwrap());
    let code = |def: IndexDef| c.create_index(&def).unwrap_err().code();
    assert_eq!(code(IndexDef::on(["a"]).unique()), 86);
    assert_eq!(code(IndexDef::on(["a"]).named("other")), 85);
    assert_eq!(code(IndexDef::on(["b"]).named("a_1")), 86);
    for bad in [
        IndexDef::on([]),
        IndexDef::on([""]),
        IndexDef::on(["a..b"]),
        IndexDef::on(["$a"]),
        IndexDef::on(["a.$**.b"]),
        IndexDef::on(["a", "a"]),
        IndexDef::on(["x", "y"]).expire_after(5),
        IndexDef::on(["x"]).expire_after(-5),
        IndexDef::on(["x"]).sparse().partial(d(doc! { "x": 1 })),
        IndexDef::on(["x"]).named("_id_"),
        IndexDef::on(["x"]).partial(d(doc! { "$sampleRate": 0.5 })),
        IndexDef::on(["x"]).partial(d(doc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } })),
        IndexDef::on(["x"]).partial(d(doc! { "$nor": [{ "$expr": { "$lt": ["$x", "$$NOW"] } }] })),
        IndexDef::on(["x"])
            .partial(d(doc! { "x": { "$elemMatch": { "$expr": { "$lt": ["$x", "$$NOW"] } } } })),
    ] {
        assert_eq!(code(bad), 67);
    }
    assert_eq!(c.drop_index("nobody").unwrap_err().code(), 27);
    assert_eq!(c.drop_index("_id_").unwrap_err().code(), 72);
    c.drop_index("a_1").unwrap();
    db.verify();
}

#[test]
fn index_build_with_duplicates_leaves_no_index() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(2000));
    let error = c.create_index(&IndexDef::on(["tenth"]).unique()).unwrap_err();
    assert_eq!(error.code(), 11000);
    assert!(c.definition().unwrap().unwrap().indexes().is_empty());
    db.verify();
}

#[test]
fn index_build_with_concurrent_writers_is_complete() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(3000));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let c = &c;
            scope.spawn(move || {
                for round in 0..150 {
                    let n = thread * 1000 + round * 6;
                    c.update_one(&spec(doc! { "_id": n }, doc! { "$inc": { "n": 10_000 } }), SYNC).unwrap();
                    c.delete_one(&f(doc! { "_id": n + 1 }), SYNC).unwrap();
                    c.insert_one(&b(doc! { "_id": 10_000 + n, "n": [n, "array"] }), SYNC).unwrap();
                }
            });
        }
        scope.spawn(|| c.create_index(&IndexDef::on(["n"])).unwrap());
    });
    db.verify();
    let index = c.definition().unwrap().unwrap().indexes()[0].clone();
    assert!(index.is_ready() && index.is_multikey());
    assert_eq!(numbers(&db, &c, doc! { "n": "array" }, "n_1").len(), 450);
}

#[test]
fn sweep_deletes_only_expired_documents() {
    let db = Db::new();
    let date = |offset_s: i64| {
        let now = db.documents.engine().env().clock.wall_micros() / 1000;
        bson::DateTime::from_millis(now + offset_s * 1000)
    };
    let c = seeded(
        &db,
        "c",
        (0..600).map(|n| doc! { "_id": n, "at": date(if n % 2 == 0 { -100 } else { 100 }) }).chain([
            doc! { "_id": 1000, "at": "no date" },
            doc! { "_id": 1001 },
            doc! { "_id": 1002, "at": [date(100), date(-100)] },
        ]),
    );
    c.create_index(&IndexDef::on(["at"]).expire_after(50)).unwrap();
    assert_eq!(db.documents.sweep_expired().unwrap(), 301);
    assert_eq!(db.all(&c).len(), 302);
    assert_eq!(db.documents.sweep_expired().unwrap(), 0);
    db.documents.transact(SYNC, |tx| tx.expire_index_after(&c, "at_1", 200)).unwrap();
    c.insert_one(&b(doc! { "_id": 2000, "at": date(-100) }), SYNC).unwrap();
    assert_eq!(db.documents.sweep_expired().unwrap(), 0);
    db.verify();
    let sweeper = db.documents.sweep_in_background(std::time::Duration::from_millis(1));
    c.insert_one(&b(doc! { "_id": 2001, "at": date(-300) }), SYNC).unwrap();
    while db.all(&c).len() > 303 {
        std::thread::yield_now();
    }
    drop(sweeper);
}

#[test]
fn hidden_index_is_maintained_but_unused() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(200));
    c.create_index(&IndexDef::on(["n"]).unique().hidden()).unwrap();
    assert_eq!(numbers(&db, &c, doc! { "n": 7 }, "COLLSCAN"), [7]);
    assert_eq!(c.insert_one(&b(doc! { "_id": 900, "n": 7 }), SYNC).unwrap_err().code(), 11000);
    db.documents.transact(SYNC, |tx| tx.hide_index(&c, "n_1", false)).unwrap();
    assert_eq!(numbers(&db, &c, doc! { "n": 7 }, "n_1"), [7]);
    assert_eq!(db.find(&c, &Find::all()).len(), 200);
}

#[test]
fn a_wildcard_index_serves_any_field() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..500).map(|n| {
        doc! { "_id": n, format!("f{}", n % 5): n, "in": { "deep": [ { "x": n % 50 }, { "x": "t" } ] }, "text": format!("t{n}") }
    }));
    c.create_index(&IndexDef::on(["$**"])).unwrap();
    db.verify();
    for (filter, count) in [
        (doc! { "f3": 8 }, 1),
        (doc! { "f3": { "$gte": 490, "$lt": 498 } }, 1),
        (doc! { "in.deep.x": 7 }, 10),
        (doc! { "in.deep.x": { "$in": [7, "t"] } }, 500),
        (doc! { "text": { "$regex": "^t49" } }, 11),
        (doc! { "f1": 1, "text": "t1" }, 1),
    ] {
        assert_eq!(used(&db, &c, &find(filter.clone())), "$**_1", "{filter}");
        assert_eq!(db.find(&c, &find(filter.clone())).len(), count, "{filter}");
    }
    // A scan serves queries for values that the index does not contain.
    for filter in [
        doc! { "f1": null },
        doc! { "in": { "deep": 1 } },
        doc! { "in.deep.0.x": 7 },
        doc! { "f1": { "$exists": true } },
    ] {
        assert_eq!(used(&db, &c, &find(filter.clone())), "COLLSCAN", "{filter}");
    }
    c.drop_index("$**_1").unwrap();
    c.create_index(&IndexDef::on(["in.$**"])).unwrap();
    assert_eq!(used(&db, &c, &find(doc! { "in.deep.x": 7 })), "in.$**_1");
    assert_eq!(used(&db, &c, &find(doc! { "f3": 8 })), "COLLSCAN");
    db.verify();
    for bad in [
        IndexDef::on(["$**", "a"]),
        IndexDef::on(["-$**"]),
        IndexDef::on(["$**"]).unique(),
        IndexDef::on(["a*b"]),
    ] {
        assert_eq!(c.create_index(&bad).unwrap_err().code(), 67);
    }
}
