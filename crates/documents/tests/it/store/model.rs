//! Random statements against a simple model: a map of documents. Every index returns the results of a scan,
//! and the files verify; with flushes, reopening and power cuts.

use std::collections::BTreeMap;

use bson::{Bson, doc};
use proptest::prelude::*;
use ropewalk_documents::lang::Projection;
use ropewalk_documents::{Find, Hint, IndexDef};
use ropewalk_vfs::FaultyVfs;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Insert(i32, Document),
    Update(Document, Document),
    UpdateMany(Document, Document),
    Replace(i32, Document),
    Delete(Document),
    Query(Document, Option<Document>),
    Index(usize),
    DropIndex(usize),
    Checkpoint,
    Reopen,
    Crash,
}

fn number() -> impl Strategy<Value = Bson> {
    prop_oneof![
        3 => (0..6_i32).prop_map(Bson::Int32),
        1 => (0..6_i64).prop_map(Bson::Int64),
        1 => (0..12_i32).prop_map(|n| Bson::Double(f64::from(n) / 2.0)),
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        5 => number(),
        1 => Just(Bson::Null),
        1 => prop::sample::select(vec!["", "a", "b"]).prop_map(Bson::from),
        2 => prop::collection::vec(number(), 0..4).prop_map(Bson::Array),
        1 => number().prop_map(|n| Bson::Document(doc! { "x": n })),
    ]
}

fn fields() -> impl Strategy<Value = Document> {
    (prop::option::of(value()), prop::option::of(number()), prop::option::of(value())).prop_map(
        |(a, b, c)| {
            let mut document = Document::new();
            a.into_iter().for_each(|a| drop(document.insert("a", a)));
            b.into_iter().for_each(|b| drop(document.insert("b", b)));
            c.into_iter().for_each(|c| drop(document.insert("c", c)));
            document
        },
    )
}

fn filter() -> impl Strategy<Value = Document> {
    let path = || prop::sample::select(vec!["a", "b", "c", "a.x"]);
    let one = || {
        prop_oneof![
            3 => (path(), value()).prop_map(|(path, value)| doc! { path: value }),
            3 => (path(), prop::sample::select(vec!["$gt", "$gte", "$lt", "$lte", "$ne"]), number())
                .prop_map(|(path, op, n)| doc! { path: { op: n } }),
            2 => (path(), number(), number()).prop_map(|(path, a, b)| doc! { path: { "$gte": a, "$lt": b } }),
            1 => (path(), number(), number()).prop_map(|(path, a, b)| doc! { path: { "$in": [a, b] } }),
            1 => (path(), any::<bool>()).prop_map(|(path, there)| doc! { path: { "$exists": there } }),
            1 => (0..20_i32).prop_map(|id| doc! { "_id": id }),
            1 => (0..20_i32).prop_map(|id| doc! { "_id": { "$gt": id } }),
        ]
    };
    prop_oneof![
        4 => one(),
        3 => (one(), one()).prop_map(|(a, b)| doc! { "$and": [a, b] }),
        2 => (one(), one()).prop_map(|(a, b)| doc! { "$or": [a, b] }),
        1 => Just(doc! {}),
    ]
}

fn change() -> impl Strategy<Value = Document> {
    prop_oneof![
        3 => fields().prop_filter("empty", |f| !f.is_empty()).prop_map(|f| doc! { "$set": f }),
        1 => Just(doc! { "$unset": { "a": 1 } }),
        1 => Just(doc! { "$inc": { "b": 1 } }),
        1 => number().prop_map(|n| doc! { "$addToSet": { "c": n } }),
    ]
}

fn order() -> impl Strategy<Value = Option<Document>> {
    prop::option::of(prop_oneof![
        (prop::sample::select(vec!["a", "b", "c"]), prop::sample::select(vec![1, -1]))
            .prop_map(|(path, way)| doc! { path: way, "_id": 1 }),
        prop::sample::select(vec![1, -1]).prop_map(|way| doc! { "b": way, "a": way, "_id": 1 }),
    ])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..20_i32, fields()).prop_map(|(id, fields)| Step::Insert(id, fields)),
        4 => (filter(), change()).prop_map(|(filter, change)| Step::Update(filter, change)),
        2 => (filter(), change()).prop_map(|(filter, change)| Step::UpdateMany(filter, change)),
        2 => (0..20_i32, fields()).prop_map(|(id, fields)| Step::Replace(id, fields)),
        3 => filter().prop_map(Step::Delete),
        8 => (filter(), order()).prop_map(|(filter, order)| Step::Query(filter, order)),
        3 => (0..9_usize).prop_map(Step::Index),
        1 => (0..9_usize).prop_map(Step::DropIndex),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

fn index(number: usize) -> IndexDef {
    match number {
        0 => IndexDef::on(["a"]),
        1 => IndexDef::on(["-b"]),
        2 => IndexDef::on(["a", "-b"]),
        3 => IndexDef::on(["b", "c"]).sparse(),
        4 => IndexDef::on(["a.x"]),
        5 => IndexDef::on(["c"]).partial(d(doc! { "b": { "$gte": 2 } })),
        6 => IndexDef::on(["$**"]),
        7 => IndexDef::on(["b", "a"]).collated(collation("en", 1)),
        _ => IndexDef::on(["-a", "-_id"]),
    }
}

/// The matching documents, found by scanning all of them.
fn matching(model: &BTreeMap<i32, Document>, filter: &Document) -> Vec<i32> {
    let filter = f(filter.clone());
    let matches = |document: &Document| filter.matches(d(document.clone()).doc()).unwrap();
    model.iter().filter(|(_, document)| matches(document)).map(|(id, _)| *id).collect()
}

fn changed(document: &Document, filter: &Document, change: &Document) -> Option<Document> {
    use ropewalk_documents::lang::{Applied, UpdateContext};
    let stored = d(document.clone());
    let position = f(filter.clone()).matches_at(stored.doc()).unwrap().and_then(|found| found.position);
    let context = UpdateContext { position, now_ms: 0, inserting: false };
    match update(change.clone()).apply(stored.doc(), &context) {
        Ok(Applied::Changed(new)) => Some(plain(&new)),
        Ok(Applied::Unchanged) => Some(document.clone()),
        Err(_) => None,
    }
}

fn run(steps: &[Step]) {
    let disk = FaultyVfs::new(1);
    let env = |disk: &FaultyVfs| Env { vfs: Arc::new(disk.process()), ..Env::memory() };
    let mut db = Db::open(&env(&disk), EngineOptions::default());
    let mut model: BTreeMap<i32, Document> = BTreeMap::new();
    for step in steps {
        let c = db.coll("c");
        match step {
            Step::Insert(id, fields) => {
                let mut document = doc! { "_id": *id };
                document.extend(fields.clone());
                let there = model.contains_key(id);
                match c.insert_one(&b(document.clone()), SYNC) {
                    Ok(_) => assert!(!there && model.insert(*id, document).is_none()),
                    Err(error) => assert!(error.code() == 11000 && there || error.code() == 171, "{error}"),
                }
            }
            Step::Update(filter, change) => {
                let matches = matching(&model, filter);
                let before = model.clone();
                match c.update_one(&spec(filter.clone(), change.clone()), SYNC) {
                    Ok(done) => {
                        assert_eq!(done.matched, u64::from(!matches.is_empty()));
                        let after = db.all(&c);
                        let mut differ = Vec::new();
                        for document in after {
                            let id = document.get_i32("_id").unwrap();
                            if before[&id] != document {
                                assert_eq!(changed(&before[&id], filter, change).unwrap(), document);
                                differ.push(id);
                                model.insert(id, document);
                            }
                        }
                        assert_eq!(differ.len() as u64, done.modified);
                        assert!(differ.iter().all(|id| matches.contains(id)));
                    }
                    Err(_) => assert!(!matches.is_empty()),
                }
            }
            Step::UpdateMany(filter, change) => {
                let matches = matching(&model, filter);
                let after: Option<Vec<_>> = matches
                    .iter()
                    .map(|id| changed(&model[id], filter, change).map(|new| (*id, new)))
                    .collect();
                match (c.update_many(&spec(filter.clone(), change.clone()), SYNC), after) {
                    (Ok(done), Some(after)) => {
                        assert_eq!(done.matched as usize, matches.len());
                        model.extend(after);
                    }
                    (Ok(done), None) => panic!("{done:?}"),
                    // A failed statement has no effect, also when an index met two arrays.
                    (Err(error), after) => assert!(after.is_none() || error.code() == 171, "{error}"),
                }
            }
            Step::Replace(id, fields) => {
                let replacement = if fields.is_empty() {
                    doc! { "z": 1 }
                } else {
                    fields.clone()
                };
                let done = c.update_one(&spec(doc! { "_id": *id }, replacement.clone()), SYNC);
                match done {
                    Ok(done) => {
                        assert_eq!(done.matched, u64::from(model.contains_key(id)));
                        if let Some(document) = model.get_mut(id) {
                            *document = doc! { "_id": *id };
                            document.extend(replacement);
                        }
                    }
                    Err(error) => assert_eq!(error.code(), 171),
                }
            }
            Step::Delete(filter) => {
                let matches = matching(&model, filter);
                assert_eq!(c.delete_many(&f(filter.clone()), SYNC).unwrap(), matches.len() as u64);
                matches.iter().for_each(|id| drop(model.remove(id)));
            }
            Step::Query(filter, order) => query(&db, &c, &model, filter, order.as_ref()),
            Step::Index(number) => {
                let _ =
                    c.create_index(&index(*number)).map_err(|error| assert_eq!(error.code(), 171, "{error}"));
            }
            Step::DropIndex(number) => {
                if let Some(definition) = c.definition().unwrap()
                    && let Some(index) = definition.indexes().get(*number)
                {
                    c.drop_index(index.name()).unwrap();
                }
            }
            Step::Checkpoint => db.documents.engine().checkpoint().unwrap(),
            Step::Reopen => {
                drop(c);
                db.documents.engine().close().unwrap();
                drop(db);
                db = Db::open(&env(&disk), EngineOptions::default());
            }
            Step::Crash => {
                drop(c);
                disk.crash();
                drop(db);
                db = Db::open(&env(&disk), EngineOptions::default());
            }
        }
    }
    let c = db.coll("c");
    assert_eq!(db.all(&c), model.values().cloned().collect::<Vec<_>>());
    let count = c.estimated_count().unwrap();
    let bytes: usize = model.values().map(|document| b(document.clone()).len()).sum();
    assert_eq!((count.documents as usize, count.bytes as usize), (model.len(), bytes));
    db.verify();
}

/// Checks that the planner's choice, every hinted index, and the scan agree.
fn query(
    db: &Db,
    c: &Collection,
    model: &BTreeMap<i32, Document>,
    filter: &Document,
    order: Option<&Document>,
) {
    let wanted = matching(model, filter);
    let sorted = |query: &Find| match order {
        Some(order) => ids(&db.find(c, &query.clone().sort(sort(order.clone())))),
        None => {
            let mut found = ids(&db.find(c, query));
            found.sort_unstable();
            found
        }
    };
    let scan = sorted(&find(filter.clone()).hint(Hint::Natural(false)));
    let mut set = scan.clone();
    set.sort_unstable();
    assert_eq!(set, wanted);
    assert_eq!(sorted(&find(filter.clone())), scan, "{}", explain(db, c, &find(filter.clone())));
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot);
    assert_eq!(at.count(c, &find(filter.clone())).unwrap() as usize, wanted.len());
    let shown = |path: &str, find: Find| {
        let only = Projection::parse(d(doc! { path: 1 }).doc(), &Options::default()).unwrap();
        let mut found: Vec<String> =
            db.find(c, &find.project(only)).iter().map(|document| format!("{document:?}")).collect();
        found.sort();
        found
    };
    for path in ["a", "b"] {
        let scanned = shown(path, find(filter.clone()).hint(Hint::Natural(false)));
        assert_eq!(shown(path, find(filter.clone())), scanned, "{path} of {filter}");
    }
    for index in c.definition().unwrap().iter().flat_map(|definition| definition.indexes()) {
        if !index.def().sparse && index.def().partial.is_none() {
            let hinted = find(filter.clone()).hint(Hint::Name(index.name().to_owned()));
            // A wildcard index serves only filters on single values.
            let snapshot = db.documents.engine().snapshot();
            let refused = db.documents.at(&snapshot).find(c, &hinted).is_err_and(|error| error.code() == 2);
            if refused && index.name().starts_with('$') {
                continue;
            }
            assert_eq!(sorted(&hinted), scan, "index {}", index.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn collections_behave_like_a_map_of_documents(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}

/// Writes of every kind with a concurrent index build, with a power cut at each disk operation in turn:
/// acknowledged statements survive, others are complete or absent, and every index equals a scan.
#[test]
fn crash_at_any_step_preserves_statement_atomicity() {
    let steps = |disk: &FaultyVfs, acknowledged: &mut Vec<Vec<i32>>| -> Option<()> {
        let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
        let options =
            EngineOptions { background: ropewalk_engine::Background::Manual, ..EngineOptions::default() };
        let db = Db::try_open(&env, Path::new("/db"), options).ok()?;
        let c = db.coll("c");
        let mut state: Vec<i32> = Vec::new();
        for round in 0..4 {
            let documents: Vec<Vec<u8>> =
                (0..30).map(|n| b(doc! { "_id": round * 100 + n, "n": n, "list": [n, round] })).collect();
            c.insert_many(&documents, true, SYNC).ok()?;
            state.extend((0..30).map(|n| round * 100 + n));
            acknowledged.push(state.clone());
            if round == 1 {
                c.create_index(&IndexDef::on(["n", "-_id"]).unique()).ok()?;
                c.create_index(&IndexDef::on(["list"])).ok()?;
            }
            c.update_many(&spec(doc! { "n": { "$lt": 5 } }, doc! { "$push": { "list": round } }), SYNC)
                .ok()?;
            let done = c.delete_many(&f(doc! { "n": { "$gte": 25 } }), SYNC).ok()?;
            assert!(done > 0);
            state.retain(|id| id % 100 < 25);
            acknowledged.push(state.clone());
            if round == 2 {
                db.documents.engine().checkpoint().ok()?;
            }
        }
        Some(())
    };
    let whole = FaultyVfs::new(1);
    steps(&whole, &mut Vec::new()).unwrap();
    let operations = whole.operations();
    for operation in (1..=operations).step_by(1 + operations as usize / 150) {
        let disk = FaultyVfs::new(operation);
        disk.crash_at(operation);
        let mut acknowledged = vec![Vec::new()];
        let done = steps(&disk, &mut acknowledged);
        disk.crash();
        let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
        let db = Db::open(&env, EngineOptions::default());
        db.verify();
        let c = db.coll("c");
        let found = ids(&db.all(&c));
        let last = acknowledged.last().unwrap();
        // The statement in progress may have been applied or not.
        let next_inserted = || (0..30).map(|n| (acknowledged.len() as i32 / 2) * 100 + n);
        let mut more = last.clone();
        more.extend(next_inserted());
        let mut fewer = last.clone();
        fewer.retain(|id| id % 100 < 25);
        assert!(
            found == *last || done.is_none() && (found == more || found == fewer),
            "cut at {operation} of {operations}: {found:?} after {last:?}"
        );
        // An interrupted build continues.
        c.create_index(&IndexDef::on(["list"])).unwrap();
        db.verify();
    }
}
