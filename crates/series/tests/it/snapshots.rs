//! A snapshot sees exactly the commits up to its own, whatever is flushed, merged or deleted meanwhile.

use crate::{Db, matchers};

#[test]
fn a_snapshot_stays_as_it_was() {
    let db = Db::memory();
    let mut kept = Vec::new();
    let mut look = |db: &Db| {
        let snapshot = db.engine.snapshot();
        let seen = db.show_at(&snapshot, "", i64::MIN, i64::MAX);
        kept.push((snapshot, seen));
        for (snapshot, seen) in &mut kept {
            assert_eq!(&db.show_at(snapshot, "", i64::MIN, i64::MAX), seen);
            snapshot.refresh_sources();
            assert_eq!(&db.show_at(snapshot, "", i64::MIN, i64::MAX), seen);
        }
    };
    look(&db);
    for round in 0..12_i64 {
        db.append(&[("a", round, 1.0), ("a", 5, round as f64), ("b", 100 - round, 2.0)]);
        look(&db);
        match round {
            3 | 8 => db.checkpoint(),
            4 => {
                db.append(&[("fresh", 1, 1.0)]);
                db.store.delete(&matchers("a"), 0, 2).unwrap();
            }
            6 => {
                db.store.delete(&matchers("b"), i64::MIN, i64::MAX).unwrap();
                look(&db);
                db.checkpoint();
            }
            10 => db.compact(),
            _ => {}
        }
        look(&db);
    }
    drop(kept);
    db.compact();
    db.append(&[("a", 50, 1.0)]);
    db.compact();
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn labels_are_those_of_the_snapshot() {
    let db = Db::memory();
    db.append(&[("a{job=x}", 1, 1.0)]);
    let old = db.engine.snapshot();
    db.append(&[("b{job=y}", 1, 1.0)]);
    db.store.delete(&matchers("a"), i64::MIN, i64::MAX).unwrap();
    let new = db.engine.snapshot();
    assert_eq!(db.store.at(&old).label_values("job", &[], 9), ["x"]);
    assert_eq!(db.store.at(&new).label_values("job", &[], 9), ["y"]);
    assert_eq!((db.store.at(&old).count(&[]), db.store.at(&new).count(&[])), (1, 1));
}

#[test]
fn pending_append_is_invisible() {
    let db = Db::memory();
    db.append(&[("a", 1, 1.0)]);
    let mut batch = ropewalk_series::SampleBatch::new();
    batch.push(&crate::labels("a"), 2, 2.0);
    batch.push(&crate::labels("b"), 2, 2.0);
    let pending = db.store.submit(&batch, Default::default()).unwrap();
    let before = db.engine.snapshot();
    assert_eq!(db.store.resolve(&crate::labels("b")), None);
    db.engine.drive();
    pending.wait().unwrap();
    assert_eq!(db.show_at(&before, "", 0, 9), "a: 1=1");
    assert_eq!(db.show(""), "a: 1=1 2=2\nb: 2=2");
}
