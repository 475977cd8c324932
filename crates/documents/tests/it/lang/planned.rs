//! The planner on random filters: with any index, chosen or hinted, it finds what a full scan finds.

use bson::{Document, doc};
use proptest::prelude::*;
use ropewalk_documents::lang::key::{self, IndexField};
use ropewalk_documents::lang::{Filter, Options};
use ropewalk_documents::{Collection, Find, Hint, IndexDef};

use super::notation;
use super::properties::{fields, filter, value};
use crate::store::{Db, collation, find, ids, seeded, sort};

const INDEXES: [&[&str]; 6] = [&["a"], &["a.b"], &["b", "a"], &["-a", "b"], &["a.b", "-b"], &["-b", "a.0"]];

fn bson(text: &str) -> Document {
    Document::from_reader(notation::doc(text).bytes()).unwrap()
}

/// Whether all indexes accept it: they reject two parallel arrays.
fn indexable(text: &str) -> bool {
    let document = notation::doc(text);
    INDEXES.iter().all(|names| {
        let field =
            |name: &&str| IndexField { path: name.trim_start_matches('-').to_owned(), descending: false };
        let fields: Vec<_> = names.iter().map(field).collect();
        key::entries(document.doc(), &fields).is_ok()
    })
}

fn numbered(texts: &[String]) -> impl Iterator<Item = Document> {
    texts.iter().filter(|text| indexable(text)).enumerate().map(|(id, text)| {
        let mut document = bson(text);
        document.insert("_id", id as i32);
        document
    })
}

/// Names of the indexes that every document is in.
fn complete(c: &Collection) -> Vec<String> {
    let definition = c.definition().unwrap();
    let indexes = definition.iter().flat_map(|definition| definition.indexes());
    indexes
        .filter(|index| !index.def().sparse && index.def().partial.is_none())
        .map(|index| index.name().to_owned())
        .collect()
}

/// Checks that the planner's choice and each index give what a scan gives.
fn check(db: &Db, c: &Collection, names: &[String], wish: &Find, shown: &str) -> Result<(), TestCaseError> {
    let scan = ids(&db.find(c, &wish.clone().hint(Hint::Natural(false))));
    prop_assert_eq!(ids(&db.find(c, wish)), scan.clone(), "{}", shown);
    for name in names {
        let hinted = ids(&db.find(c, &wish.clone().hint(Hint::Name(name.clone()))));
        prop_assert_eq!(hinted, scan.clone(), "{} over {}", shown, name);
    }
    Ok(())
}

fn orders() -> [Document; 3] {
    [doc! { "_id": 1 }, doc! { "b": 1, "_id": 1 }, doc! { "a": -1, "b": 1, "_id": 1 }]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn every_plan_finds_what_a_scan_finds(
        docs in proptest::collection::vec(fields(value()), 1..40),
        partial in filter(),
        filters in proptest::collection::vec(filter(), 12),
    ) {
        let db = Db::new();
        let c = seeded(&db, "c", numbered(&docs));
        for names in INDEXES {
            c.create_index(&IndexDef::on(names.iter().copied())).unwrap();
        }
        let sparse = IndexDef { sparse: true, ..IndexDef::on(["b"]).named("sparse") };
        c.create_index(&sparse).unwrap();
        let part = IndexDef { partial: Some(notation::doc(&partial)), ..IndexDef::on(["a", "b"]).named("part") };
        let part = c.create_index(&part).is_ok();
        let names = complete(&c);
        for text in &filters {
            // The partial index serves queries that imply its filter.
            let both = format!("{{$and: [{text}, {partial}]}}");
            for text in [text, &both] {
                for order in orders() {
                    let wish = find(bson(text)).sort(sort(order.clone()));
                    check(&db, &c, &names, &wish, &format!("{text} by {order}, partial {partial} {part}"))?;
                }
            }
        }
    }

    /// Indexes with the collation of a query, with another one and without one, queries with one and without.
    #[test]
    fn every_plan_under_a_collation_finds_what_a_scan_finds(
        docs in proptest::collection::vec(fields(value()), 1..40),
        partial in filter(),
        filters in proptest::collection::vec(filter(), 12),
    ) {
        let db = Db::new();
        let upper = |(at, text): (usize, &String)| if at % 2 == 0 { text.replace("\"x", "\"X") } else { text.clone() };
        let docs: Vec<String> = docs.iter().enumerate().map(upper).collect();
        let c = seeded(&db, "c", numbered(&docs));
        let collations = [collation("en", 2), collation("sv", 3)];
        for (at, names) in INDEXES.iter().enumerate() {
            let index = IndexDef::on(names.iter().copied());
            c.create_index(&match collations.get(at % 3) {
                Some(collation) => index.collated(collation.clone()),
                None => index,
            }).unwrap();
        }
        let sparse = IndexDef { sparse: true, ..IndexDef::on(["b"]).named("sparse") };
        c.create_index(&sparse.collated(collation("en", 2))).unwrap();
        let part = IndexDef { partial: Some(notation::doc(&partial)), ..IndexDef::on(["a", "b"]).named("part") };
        let part = c.create_index(&part.collated(collation("en", 2))).is_ok();
        let names = complete(&c);
        for text in &filters {
            let both = format!("{{$and: [{text}, {partial}]}}");
            for text in [text, &both] {
                for (order, collation) in orders().into_iter().zip([Some(&collations[0]), None, Some(&collations[0])]) {
                    let options = Options { collation: collation.cloned(), ..Options::default() };
                    let filter = Filter::parse(notation::doc(text).doc(), &options).unwrap();
                    let wish = Find::matching(filter).sort(sort(order.clone()).collated(collation));
                    let shown = format!("{text} by {order} under {collation:?}, partial {partial} {part}");
                    check(&db, &c, &names, &wish, &shown)?;
                }
            }
        }
    }
}
