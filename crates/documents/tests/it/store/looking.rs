//! Periodic checks of long scans: a query or statement can be ended even if it finds nothing.

use std::sync::atomic::{AtomicU32, Ordering};

use ropewalk_documents::lang::{Code, LangError};
use ropewalk_documents::{FindAndModify, IndexDef};

use super::*;

const DOCUMENTS: i32 = 10_000;
/// A scan of all documents calls the check more often than this.
const LOOKS: u32 = 3;

fn ended() -> DocumentsError {
    DocumentsError::Interrupted(LangError::new(Code::Interrupted, "it was ended"))
}

/// Allows a few checks; returns whether the next one ended `work`.
fn is_ended<R>(
    work: impl FnOnce(&(dyn Fn() -> Result<(), DocumentsError> + Sync)) -> Result<R, DocumentsError>,
) -> bool {
    let looks = AtomicU32::new(0);
    let done = work(&|| match looks.fetch_add(1, Ordering::Relaxed) {
        LOOKS.. => Err(ended()),
        _ => Ok(()),
    });
    done.is_err_and(|error| error.code() == 11_601 && error.code_name() == "Interrupted")
}

/// Queries that find nothing, each with another kind of scan.
fn fruitless() -> Vec<Find> {
    let nothing = find(doc! { "x": 1 });
    vec![
        nothing.clone(),
        nothing.clone().sort(sort(doc! { "n": 1 })),
        nothing.clone().sort(sort(doc! { "$natural": -1 })),
        nothing.limit(1),
        find(doc! { "n": { "$gte": 0 }, "x": 1 }),
        find(doc! { "$or": [{ "n": { "$gte": 0 }, "x": 1 }, { "_id": { "$gte": 0 }, "x": 1 }] }),
        Find::all().skip(DOCUMENTS as usize),
    ]
}

fn indexed(db: &Db) -> Collection {
    let c = seeded(db, "c", numbered(DOCUMENTS));
    c.create_index(&IndexDef::on(["n"])).unwrap();
    c
}

#[test]
fn scan_without_matches_can_be_ended() {
    let db = Db::new();
    let c = indexed(&db);
    let snapshot = db.documents.engine().snapshot();
    for find in fruitless() {
        assert!(is_ended(|look| db.documents.at(&snapshot).with_cancellation(look).find(&c, &find)));
        assert!(is_ended(|look| db.documents.at(&snapshot).with_cancellation(look).count(&c, &find)));
        assert!(is_ended(|look| db.documents.at(&snapshot).with_cancellation(look).explain(&c, &find, true)));
        assert!(is_ended(|look| c.find(&find).unwrap().next_batch_while(10, 1 << 20, look)));
        assert!(is_ended(|look| c.find(&find).unwrap().has_more_while(look)));
        assert!(is_ended(|look| c.find(&find).unwrap().documents_while(look).next().transpose()));
    }
    let filter = f(doc! { "x": 1 });
    assert!(is_ended(|look| db.documents.at(&snapshot).with_cancellation(look).distinct(&c, "n", &filter)));
}

#[test]
fn results_with_check_equal_results_without() {
    let db = Db::new();
    let c = indexed(&db);
    let snapshot = db.documents.engine().snapshot();
    let mut at = db.documents.at(&snapshot).with_cancellation(&|| Ok(()));
    for (skip, limit, counted) in [
        (0, None, 10_000),
        (9_999, None, 1),
        (10_001, None, 0),
        (0, Some(8_192), 8_192),
        (1, Some(8_192), 8_192),
        (5_000, Some(9_000), 5_000),
        (0, Some(0), 0),
    ] {
        let mut find = Find::all().skip(skip);
        if let Some(limit) = limit {
            find = find.limit(limit);
        }
        assert_eq!(at.count(&c, &find).unwrap(), counted, "{skip} {limit:?}");
    }
    assert_eq!(at.find(&c, &find(doc! { "n": { "$gte": 9_000 } })).unwrap().len(), 1_000);
}

#[test]
fn ended_statement_has_no_effect() {
    let db = Db::new();
    let c = indexed(&db);
    let mut tx = db.begin(Isolation::Snapshot);
    let update = || update(doc! { "$set": { "y": 1 } });
    let all = || f(doc! { "z": { "$exists": false } });
    assert!(is_ended(|look| tx
        .d()
        .with_cancellation(look)
        .update_many(&c, &UpdateSpec::new(all(), update()))));
    assert!(is_ended(|look| tx
        .d()
        .with_cancellation(look)
        .update_one(&c, &UpdateSpec::new(f(doc! { "x": 1 }), update()))));
    assert!(is_ended(|look| tx.d().with_cancellation(look).delete_many(&c, &all())));
    assert!(is_ended(|look| tx.d().with_cancellation(look).delete_one(&c, &f(doc! { "x": 1 }))));
    let one = FindAndModify::delete(f(doc! { "x": 1 }));
    assert!(is_ended(|look| tx.d().with_cancellation(look).find_and_modify(&c, &one)));
    let out =
        pipelines::pipeline(vec![doc! { "$match": { "z": { "$exists": false } } }, doc! { "$out": "made" }]);
    assert!(is_ended(|look| tx.d().with_cancellation(look).aggregate(&c, &out)));
    let joined = vec![
        doc! { "$limit": 1 },
        doc! { "$lookup": { "from": "c", "localField": "n", "foreignField": "x", "as": "l" } },
    ];
    assert!(is_ended(|look| tx.d().with_cancellation(look).aggregate(&c, &pipelines::pipeline(joined))));
    tx.commit().unwrap();
    assert_eq!(db.find(&c, &find(doc! { "y": { "$exists": false } })).len(), DOCUMENTS as usize);
    assert_eq!(db.all(&db.coll("made")).len(), 0);
}
