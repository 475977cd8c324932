//! Collations: text is compared by the rules of a language, by filters, pipelines and updates, with an index and
//! without.

use bson::{Bson, bson, doc};
use ropewalk_documents::lang::{Budget, Code, Doc, LangError, Pipeline};
use ropewalk_documents::{Find, IndexDef, View};

use super::*;

/// English, upper and lower case equal.
fn caseless() -> Collation {
    collation("en_US", 2)
}

fn options() -> Options {
    Options { collation: Some(caseless()), ..Options::default() }
}

fn filter(filter: Document) -> Filter {
    Filter::parse(d(filter).doc(), &options()).unwrap()
}

fn run(collection: &Collection, stages: Vec<Document>) -> Vec<Document> {
    let array = d(doc! { "stages": stages });
    let stages = array.doc().get("stages").unwrap().as_array().unwrap();
    let pipeline = Pipeline::parse(Doc::check(stages.bytes()).unwrap(), &options()).unwrap();
    collection.aggregate(&pipeline, SYNC).unwrap().iter().map(plain).collect()
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
        // Different elements of an array may satisfy the two.
        (doc! { "name": { "$gte": "BOB", "$lt": "c" } }, vec![2, 6, 9]),
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
    let first = by_language.clone().limit(3);
    assert_eq!(
        (used(&db, &c, &first).as_str(), ids(&db.find(&c, &first))),
        ("caseless", expected[..3].to_vec())
    );
    assert_ne!(used(&db, &c, &by_bytes.clone().limit(3)), "caseless");
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

#[test]
fn pipeline_under_a_collation_compares_text_alike_in_every_stage() {
    let db = Db::new();
    let c = seeded(
        &db,
        "c",
        [("ann", 1), ("Bob", 2), ("ANN", 3), ("bob", 4), ("Cid", 5)]
            .map(|(name, n)| doc! { "_id": n, "name": name, "tags": [name, "x"] }),
    );
    seeded(&db, "other", [doc! { "_id": "ANN", "boss": "BOB" }, doc! { "_id": "boB", "boss": "none" }]);
    let groups = vec![
        doc! { "$group": { "_id": "$name", "n": { "$sum": 1 }, "least": { "$min": "$name" }, "all": { "$addToSet": "$name" } } },
        doc! { "$sort": { "_id": -1 } },
    ];
    assert_eq!(
        run(&c, groups),
        [
            doc! { "_id": "Cid", "n": 1, "least": "Cid", "all": ["Cid"] },
            doc! { "_id": "Bob", "n": 2, "least": "Bob", "all": ["Bob"] },
            doc! { "_id": "ann", "n": 2, "least": "ann", "all": ["ann"] },
        ]
    );
    let one = |stage: Document| run(&c, vec![doc! { "$match": { "_id": 2 } }, stage]).remove(0);
    for (expression, expected) in [
        (doc! { "$eq": ["$name", "BOB"] }, Bson::Boolean(true)),
        (doc! { "$cmp": ["$name", "a"] }, Bson::Int32(1)),
        (doc! { "$in": ["bOb", "$tags"] }, Bson::Boolean(true)),
        (doc! { "$indexOfArray": ["$tags", "X"] }, Bson::Int32(1)),
        (doc! { "$setUnion": ["$tags", ["BOB", "y"]] }, bson!(["Bob", "x", "y"])),
        (doc! { "$setIsSubset": [["bob"], "$tags"] }, Bson::Boolean(true)),
        (doc! { "$max": ["a", "B", "b"] }, bson!("B")),
        (doc! { "$minN": { "input": ["b", "A", "C"], "n": 2 } }, bson!(["A", "b"])),
        (doc! { "$sortArray": { "input": ["b", "A", "C"], "sortBy": -1 } }, bson!(["C", "b", "A"])),
        (
            doc! { "$sortArray": { "input": [{ "a": "b" }, { "a": "A" }], "sortBy": { "a": 1 } } },
            bson!([{ "a": "A" }, { "a": "b" }]),
        ),
        (
            doc! { "$switch": { "branches": [{ "case": { "$lt": ["$name", "C"] }, "then": 1 }], "default": 2 } },
            Bson::Int32(1),
        ),
    ] {
        let found = one(doc! { "$replaceWith": { "r": expression.clone() } });
        assert_eq!(found.get("r"), Some(&expected), "{expression}");
    }
    let join =
        doc! { "$lookup": { "from": "other", "localField": "name", "foreignField": "_id", "as": "r" } };
    assert_eq!(one(join).get_array("r").unwrap().len(), 1);
    let walk = doc! { "$graphLookup": {
        "from": "other", "startWith": "ann", "connectFromField": "boss", "connectToField": "_id", "as": "r",
        "restrictSearchWithMatch": { "boss": { "$ne": "NOBODY" } },
    } };
    assert_eq!(one(walk).get_array("r").unwrap().len(), 2);
    let buckets = run(
        &c,
        vec![doc! { "$bucket": { "groupBy": "$name", "boundaries": ["A", "b", "C"], "default": "z" } }],
    );
    let counted = |found: &[Document]| -> Vec<i32> {
        found.iter().map(|found| found.get_i32("count").unwrap()).collect()
    };
    assert_eq!(counted(&buckets), [2, 2, 1]);
    let buckets = run(&c, vec![doc! { "$bucketAuto": { "groupBy": "$name", "buckets": 5 } }]);
    assert_eq!(counted(&buckets), [2, 2, 1]);
    let windows = run(
        &c,
        vec![
            doc! { "$setWindowFields": { "partitionBy": "$name", "sortBy": { "_id": 1 }, "output": { "r": { "$documentNumber": {} } } } },
            doc! { "$sort": { "_id": 1 } },
        ],
    );
    let ranks: Vec<i32> = windows.iter().map(|found| found.get_i32("r").unwrap()).collect();
    assert_eq!(ranks, [1, 1, 2, 2, 1]);
    let dense = doc! { "$densify": { "field": "_id", "partitionByFields": ["name"], "range": { "step": 1, "bounds": "partition" } } };
    // From 1 to 3 and from 2 to 4, and 5.
    assert_eq!(run(&c, vec![dense]).len(), 7);
    let union = doc! { "$unionWith": { "coll": "other", "pipeline": [{ "$match": { "_id": "ann" } }] } };
    assert_eq!(run(&c, vec![union]).len(), 6);
    let facet = doc! { "$facet": { "r": [{ "$match": { "name": "CID" } }] } };
    assert_eq!(run(&c, vec![facet])[0].get_array("r").unwrap().len(), 1);
}

#[test]
fn merge_under_a_collation_is_rejected_and_no_index_with_one_identifies_documents() {
    let db = Db::new();
    let c = people(&db);
    let merge = d(doc! { "s": [{ "$merge": { "into": "t", "on": "name" } }] });
    let stages = merge.doc().get("s").unwrap().as_array().unwrap();
    let stages = Doc::check(stages.bytes()).unwrap();
    assert_eq!(Pipeline::parse(stages, &options()).unwrap_err().code, Code::CommandNotSupported);
    let pipeline = Pipeline::parse(stages, &Options::default()).unwrap();
    let target = db.coll("t");
    target.create_index(&IndexDef::on(["name"]).unique().collated(caseless())).unwrap();
    assert_eq!(c.aggregate(&pipeline, SYNC).unwrap_err().code(), 51183);
}

#[test]
fn collation_of_a_command_applies_to_what_it_reads_from_a_view() {
    let db = Db::new();
    let c = people(&db);
    let stages = d(doc! { "s": [{ "$match": { "name": { "$ne": "ANN" } } }] });
    let stages = stages.doc().get("s").and_then(Value::as_array).unwrap().to_buf();
    let view = View { on: c.name().to_owned(), stages };
    db.documents.transact(SYNC, |tx| tx.create_view(&db.coll("view"), &view)).unwrap();
    let found = run(&db.coll("view"), vec![doc! { "$match": { "name": "aNN" } }]);
    assert_eq!(ids(&found), [1, 9]);
}

#[test]
fn distinct_under_a_collation_counts_equal_text_once() {
    let db = Db::new();
    let c = people(&db);
    let snapshot = db.documents.engine().snapshot();
    let found =
        db.documents.at(&snapshot).distinct(&c, "name", &filter(doc! { "_id": { "$lt": 8 } })).unwrap();
    let found: Vec<&str> = found.iter().filter_map(|value| value.value().as_str()).collect();
    assert_eq!(found, ["ann", "Bob", "bobby", "Emile", "émile", "Zoe", "zoë"]);
}

#[test]
fn update_operators_compare_by_the_collation() {
    for (change, expected) in [
        (doc! { "$min": { "s": "a" } }, doc! { "s": "a" }),
        (doc! { "$min": { "s": "C" } }, doc! { "s": "B" }),
        (doc! { "$max": { "s": "a" } }, doc! { "s": "B" }),
        (doc! { "$addToSet": { "l": { "$each": ["X", "z"] } } }, doc! { "l": ["x", "Y", "z"] }),
        (doc! { "$pull": { "l": "X" } }, doc! { "l": ["Y"] }),
        (doc! { "$pull": { "l": { "$in": ["X", "y"] } } }, doc! { "l": [] }),
        (doc! { "$pullAll": { "l": ["X", "y"] } }, doc! { "l": [] }),
        (doc! { "$push": { "l": { "$each": ["a"], "$sort": -1 } } }, doc! { "l": ["Y", "x", "a"] }),
        (
            doc! { "$push": { "o": { "$each": [{ "k": "B" }], "$sort": { "k": 1 } } } },
            doc! { "o": [{ "k": "a" }, { "k": "B" }, { "k": "c" }] },
        ),
    ] {
        let db = Db::new();
        let document = doc! { "_id": 1, "s": "B", "l": ["x", "Y"], "o": [{ "k": "c" }, { "k": "a" }] };
        let c = seeded(&db, "c", [document]);
        let update = Update::parse(Value::Document(d(change.clone()).doc()), None, &options()).unwrap();
        c.update_one(&UpdateSpec::new(f(doc! {}), update), SYNC).unwrap();
        let found = db.all(&c).remove(0);
        for (field, value) in &expected {
            assert_eq!(found.get(field), Some(value), "{change}");
        }
    }
}

#[test]
fn text_under_a_collation_counts_in_the_memory_of_the_command() {
    let db = Db::new();
    // One character of three bytes that has eighteen collation elements.
    let long = "\u{fdfa}".repeat(1 << 20);
    let c = seeded(&db, "c", [doc! { "_id": 1, "s": long }]);
    let budget = || Budget::new(32 << 20, None, || Ok(()));
    let failed = |find: &Find| {
        let snapshot = db.documents.engine().snapshot();
        let found = budget().run(|| db.documents.at(&snapshot).find(&c, find));
        found.unwrap_err().code()
    };
    let memory = Code::QueryExceededMemoryLimitNoDiskUseAllowed.number();
    assert_eq!(failed(&Find::matching(filter(doc! { "s": "x" }))), memory);
    assert_eq!(failed(&Find::all().sort(sort(doc! { "s": 1 }).collated(Some(&caseless())))), memory);
    let compare = doc! { "$expr": { "$lt": ["$s", "x"] } };
    assert_eq!(failed(&Find::matching(filter(compare))), memory);
    // Ended commands compare no text.
    let ended = Budget::new(1 << 30, None, || Err(LangError::new(Code::Interrupted, "ended")));
    let snapshot = db.documents.engine().snapshot();
    let find = Find::matching(filter(doc! { "s": "x" }));
    let found = ended.run(|| db.documents.at(&snapshot).find(&c, &find));
    assert_eq!(found.unwrap_err().code(), Code::Interrupted.number());
}
