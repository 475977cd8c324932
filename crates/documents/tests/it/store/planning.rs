//! The planner's choices, and that hints are obeyed.

use bson::doc;
use ropewalk_documents::lang::Projection;
use ropewalk_documents::{DocumentsRead, Find, Hint, IndexDef};

use super::*;

#[test]
fn the_index_with_fewer_entries_wins() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..3000).map(|n| doc! { "_id": n, "few": n % 1000, "many": n % 2 }));
    c.create_index(&IndexDef::on(["many"])).unwrap();
    c.create_index(&IndexDef::on(["few"])).unwrap();
    assert_eq!(used(&db, &c, &find(doc! { "many": 1, "few": 501 })), "few_1");
    assert_eq!(used(&db, &c, &find(doc! { "few": 501, "many": 1 })), "few_1");
    assert_eq!(used(&db, &c, &find(doc! { "many": 5, "few": { "$gt": 1 } })), "many_1");
    assert_eq!(used(&db, &c, &find(doc! { "many": 1 })), "many_1");
    assert_eq!(used(&db, &c, &find(doc! { "_id": 5, "many": 1 })), "IDHACK");
    assert_eq!(used(&db, &c, &find(doc! { "_id": { "$gt": 2990 }, "many": 1 })), "CLUSTERED_IXSCAN");
    assert_eq!(used(&db, &c, &find(doc! { "nothing": 1 })), "COLLSCAN");
    assert_eq!(used(&db, &c, &Find::all()), "COLLSCAN");
    let stats = explain(&db, &c, &find(doc! { "few": 501, "many": 1 }));
    let stats = stats.get_document("executionStats").unwrap();
    assert_eq!((stats.get_i64("nReturned").unwrap(), stats.get_i64("totalDocsExamined").unwrap()), (3, 3));
}

/// The range of a type class, numbers or texts, looks like that of one value: it ends at the next byte.
#[test]
fn a_class_of_values_is_not_one_value() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..40).map(|n| doc! { "_id": n, "a": n % 4, "b": -n }));
    c.create_index(&IndexDef::on(["a", "b"])).unwrap();
    for filter in [doc! { "a": { "$mod": [1, 0] } }, doc! { "a": { "$type": "int" } }] {
        for spec in [doc! { "b": 1 }, doc! { "b": -1 }] {
            let find = find(filter.clone()).sort(sort(spec.clone())).hint(Hint::Name("a_1_b_1".into()));
            let mut wanted: Vec<i32> = (0..40).collect();
            if spec.get_i32("b").unwrap() == 1 {
                wanted.reverse();
            }
            assert_eq!(ids(&db.find(&c, &find)), wanted, "{filter} by {spec}");
        }
    }
    assert_eq!(ids(&db.find(&c, &find(doc! { "_id": { "$type": "int" } }))).len(), 40);
    assert_eq!(ids(&db.find(&c, &find(doc! { "_id": { "$mod": [2, 0] } }))).len(), 20);
}

#[test]
fn an_or_takes_an_index_for_each_branch() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..2000).map(|n| doc! { "_id": n, "a": n, "b": 2000 - n, "x": n % 2 }));
    c.create_index(&IndexDef::on(["a"])).unwrap();
    let query = find(doc! { "$or": [ { "a": { "$lt": 5 } }, { "b": { "$lte": 3 } } ], "x": 1 });
    assert_eq!(used(&db, &c, &query), "COLLSCAN");
    c.create_index(&IndexDef::on(["b"])).unwrap();
    assert_eq!(used(&db, &c, &query), "OR");
    let mut found = ids(&db.find(&c, &query));
    found.sort_unstable();
    assert_eq!(found, [1, 3, 1997, 1999]);
    // A document that matches both branches is returned once.
    let both = find(doc! { "$or": [ { "a": { "$lt": 5 } }, { "b": { "$gt": 1996 } } ] })
        .sort(sort(doc! { "a": -1 }));
    assert_eq!(ids(&db.find(&c, &both)), [4, 3, 2, 1, 0]);
}

#[test]
fn hints_are_obeyed_or_refused() {
    let db = Db::new();
    let c = seeded(&db, "c", numbered(500));
    c.create_index(&IndexDef::on(["n"])).unwrap();
    c.create_index(&IndexDef::on(["-tenth"]).named("t")).unwrap();
    let with = |hint: Hint| find(doc! { "n": 5 }).hint(hint);
    for (hint, name) in [
        (Hint::Name("t".into()), "t"),
        (Hint::Fields(vec![("tenth".into(), true)]), "t"),
        (Hint::Name("n_1".into()), "n_1"),
        (Hint::Natural(false), "COLLSCAN"),
        (Hint::Name("_id_".into()), "COLLSCAN"),
        (Hint::Fields(vec![("_id".into(), false)]), "COLLSCAN"),
    ] {
        assert_eq!(used(&db, &c, &with(hint.clone())), name, "{hint:?}");
        assert_eq!(ids(&db.find(&c, &with(hint))), [5]);
    }
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    for unknown in [Hint::Name("x".into()), Hint::Fields(vec![("tenth".into(), false)])] {
        assert_eq!(at.find(&c, &with(unknown)).unwrap_err().code(), 2);
    }
    let backward = Find::all().hint(Hint::Natural(true)).limit(2);
    assert_eq!(ids(&db.find(&c, &backward)), [499, 498]);
    assert_eq!(ids(&db.find(&c, &Find::all().sort(sort(doc! { "$natural": -1 })).limit(2))), [499, 498]);
}

#[test]
fn a_sort_with_an_index_reads_no_more_than_the_limit() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..5000).map(|n| doc! { "_id": n, "v": (n * 7919) % 5000 }));
    let top = Find::all().sort(sort(doc! { "v": -1 })).limit(3);
    let wanted: Vec<i32> = db.find(&c, &top).iter().map(|document| document.get_i32("v").unwrap()).collect();
    assert_eq!(wanted, [4999, 4998, 4997]);
    c.create_index(&IndexDef::on(["v"])).unwrap();
    assert_eq!(used(&db, &c, &top), "v_1");
    let stats = explain(&db, &c, &top);
    assert!(stats.get_document("executionStats").unwrap().get_i64("totalKeysExamined").unwrap() < 100);
    assert_eq!(db.find(&c, &top).len(), 3);
    let range = find(doc! { "v": { "$gte": 100, "$lt": 110 } }).sort(sort(doc! { "v": 1 }));
    assert_eq!(used(&db, &c, &range), "v_1");
    let values: Vec<i32> =
        db.find(&c, &range).iter().map(|document| document.get_i32("v").unwrap()).collect();
    assert_eq!(values, (100..110).collect::<Vec<_>>());
}

#[test]
fn a_sort_that_takes_too_much_memory_is_refused_and_with_a_limit_it_is_not() {
    let db = Db::new();
    let text = "x".repeat(1 << 20);
    let c = seeded(&db, "c", (0..20).map(|n| doc! { "_id": n, "v": -n }));
    for n in 0..110 {
        c.insert_one(&b(doc! { "_id": 100 + n, "v": -n, "text": &text }), Durability::Buffered).unwrap();
    }
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    let all = Find::all().sort(sort(doc! { "v": 1 }));
    let error = at.find(&c, &all).unwrap_err();
    assert_eq!(error.code(), 292);
    assert_eq!(at.find(&c, &all.limit(2)).unwrap().len(), 2);
}

/// The top stage of the plan, and the numbers of keys and documents examined.
fn examined(explained: &Document) -> (String, i64, i64) {
    let plan = explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    let stats = explained.get_document("executionStats").unwrap();
    let stage = plan.get_str("stage").unwrap().to_owned();
    (stage, stats.get_i64("totalKeysExamined").unwrap(), stats.get_i64("totalDocsExamined").unwrap())
}

#[test]
fn count_by_index_reads_no_document() {
    let db = Db::new();
    let c = seeded(&db, "c", (0..1000).map(|n| doc! { "_id": n, "a": n % 10, "b": n % 7, "s": "x" }));
    c.create_index(&IndexDef::on(["a", "-b"])).unwrap();
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    let mut count = |filter: Document| {
        let find = find(filter);
        let explained = plain(&at.explain_count(&c, &find, true).unwrap());
        (at.count(&c, &find).unwrap(), examined(&explained))
    };
    let counted = |keys: i64| ("COUNT".to_owned(), keys, 0);
    assert_eq!(count(doc! { "a": 3 }), (100, counted(100)));
    assert_eq!(count(doc! { "a": { "$gte": 3, "$lt": 5 } }), (200, counted(200)));
    assert_eq!(count(doc! { "a": { "$in": [1, 2] }, "b": { "$lte": 2 } }).1, counted(86));
    // The filter has more conditions than the ranges, all on fields in the entries.
    let (found, (stage, _, documents)) = count(doc! { "a": 3, "$or": [ { "b": 1 }, { "b": 2 } ] });
    assert_eq!((found, stage.as_str(), documents), (28, "PROJECTION_COVERED", 0));
    // A field that the index does not have.
    let (found, (stage, ..)) = count(doc! { "a": 3, "s": "x" });
    assert_eq!((found, stage.as_str()), (100, "FETCH"));
    assert_eq!(count(doc! { "a": 3, "missing": null }).0, 100);
    assert_eq!(count(doc! { "_id": { "$gte": 990 } }).0, 10);
    let paged = find(doc! { "a": 3 }).skip(10).limit(20);
    assert_eq!(at.count(&c, &paged).unwrap(), 20);
    assert_eq!(at.distinct(&c, "b", &f(doc! { "a": 3 })).unwrap().len(), 7);
    // With arrays a document has several entries.
    c.insert_one(&b(doc! { "_id": 5000, "a": [3, 4] }), SYNC).unwrap();
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    assert_eq!(at.count(&c, &find(doc! { "a": { "$gte": 3, "$lt": 5 } })).unwrap(), 201);
}

#[test]
fn covered_query_reads_only_the_index() {
    let db = Db::new();
    let values = [
        doc! { "v": 7, "w": "text" },
        doc! { "v": 7_i64, "w": bson::oid::ObjectId::from_bytes([7; 12]) },
        doc! { "v": 7.5, "w": true },
        doc! { "v": -3, "w": bson::DateTime::from_millis(5) },
        doc! { "v": null, "w": 1 },
        doc! { "w": 2 },
        // The entry does not hold these values.
        doc! { "v": -0.0, "w": 3 },
        doc! { "v": i64::MAX, "w": 4 },
        doc! { "v": { "x": 1 }, "w": 5 },
    ];
    let documents = values.into_iter().enumerate().map(|(id, fields)| {
        let mut document = doc! { "_id": id as i32 };
        document.extend(fields);
        document
    });
    let c = seeded(&db, "c", documents);
    c.create_index(&IndexDef::on(["-v", "w"])).unwrap();
    c.create_index(&IndexDef::on(["w", "v"]).unique()).unwrap();
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    let shown = |spec: Document| Projection::parse(d(spec).doc(), &Options::default()).unwrap();
    for index in ["v_-1_w_1", "w_1_v_1"] {
        for filter in [doc! {}, doc! { "v": { "$gte": 7 } }, doc! { "v": null }, doc! { "w": { "$gt": 1 } }] {
            let plain_find = find(filter.clone()).project(shown(doc! { "v": 1, "w": 1, "_id": 1 }));
            let covered = plain_find.clone().hint(Hint::Name(index.into()));
            let mut found = db.find(&c, &covered);
            found.sort_by_key(|document| document.get_i32("_id").unwrap());
            let mut wanted = db.find(&c, &plain_find.hint(Hint::Natural(false)));
            // The fields are in the order of the index.
            wanted.iter_mut().chain(&mut found).for_each(|document| {
                let mut sorted: Vec<_> = std::mem::take(document).into_iter().collect();
                sorted.sort_by(|a, b| a.0.cmp(&b.0));
                document.extend(sorted);
            });
            assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{filter} by {index}");
        }
    }
    let texts =
        find(doc! { "w": { "$gte": "a" } }).project(shown(doc! { "w": 1 })).sort(sort(doc! { "w": 1 }));
    let explained = plain(&at.explain(&c, &texts, true).unwrap());
    assert_eq!(examined(&explained), ("PROJECTION_COVERED".into(), 1, 0));
    let more = find(doc! { "w": { "$gte": "a" } }).project(shown(doc! { "w": 1, "x": 1 }));
    assert_eq!(examined(&plain(&at.explain(&c, &more, true).unwrap())), ("FETCH".into(), 1, 1));
    // A number that changes its type at the same value changes in the index, too.
    c.update_one(&spec(doc! { "_id": 0 }, doc! { "$set": { "v": 7.0 } }), SYNC).unwrap();
    db.verify();
    let seven = find(doc! { "v": 7, "w": "text" })
        .project(shown(doc! { "v": 1, "_id": 0 }))
        .hint(Hint::Name("v_-1_w_1".into()));
    assert_eq!(db.find(&c, &seven), [doc! { "v": 7.0 }]);
}
