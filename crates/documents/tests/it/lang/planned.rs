//! The planner on random filters: with any index, chosen or hinted, it finds what a full scan finds.

use bson::{Document, doc};
use proptest::prelude::*;
use ropewalk_documents::lang::key::{self, IndexField};
use ropewalk_documents::{Hint, IndexDef};

use super::notation;
use super::properties::{fields, filter, value};
use crate::store::{Db, find, ids, seeded, sort};

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn every_plan_finds_what_a_scan_finds(
        docs in proptest::collection::vec(fields(value()), 1..40),
        partial in filter(),
        filters in proptest::collection::vec(filter(), 12),
    ) {
        let db = Db::new();
        let docs = docs.iter().filter(|text| indexable(text)).enumerate().map(|(id, text)| {
            let mut document = bson(text);
            document.insert("_id", id as i32);
            document
        });
        let c = seeded(&db, "c", docs);
        for names in INDEXES {
            c.create_index(&IndexDef::on(names.iter().copied())).unwrap();
        }
        let sparse = IndexDef { sparse: true, ..IndexDef::on(["b"]).named("sparse") };
        c.create_index(&sparse).unwrap();
        let part = IndexDef { partial: Some(notation::doc(&partial)), ..IndexDef::on(["a", "b"]).named("part") };
        let part = c.create_index(&part).is_ok();
        let names: Vec<String> = c
            .definition()
            .unwrap()
            .iter()
            .flat_map(|definition| definition.indexes())
            .filter(|index| !index.def().sparse && index.def().partial.is_none())
            .map(|index| index.name().to_owned())
            .collect();
        for text in &filters {
            // The partial index serves queries that imply its filter.
            let both = format!("{{$and: [{text}, {partial}]}}");
            for text in [text, &both] {
                for order in [doc! { "_id": 1 }, doc! { "b": 1, "_id": 1 }, doc! { "a": -1, "b": 1, "_id": 1 }] {
                    let wish = find(bson(text)).sort(sort(order.clone()));
                    let scan = ids(&db.find(&c, &wish.clone().hint(Hint::Natural(false))));
                    prop_assert_eq!(ids(&db.find(&c, &wish)), scan.clone(), "{} by {}, partial {} {}", text, order, partial, part);
                    for name in &names {
                        let hinted = ids(&db.find(&c, &wish.clone().hint(Hint::Name(name.clone()))));
                        prop_assert_eq!(hinted, scan.clone(), "{} by {} over {}", text, order, name);
                    }
                }
            }
        }
    }
}
