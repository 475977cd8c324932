//! Deleting samples, series and whole days frees their space.

use ropewalk_series::{PARTITION_MS, SampleBatch, SeriesError};
use ropewalk_vfs::Env;

use crate::{Db, labels, matchers};

fn bytes(db: &Db) -> u64 {
    db.engine.stats().store.keyspaces.iter().filter(|k| k.name == "series").map(|k| k.raw_bytes).sum()
}

fn noisy(db: &Db, series: &str, days: std::ops::Range<i64>) {
    let mut x = 1_u64;
    for day in days {
        let mut batch = SampleBatch::new();
        let mut group = batch.series_bytes(labels(series).as_bytes());
        for i in 0..1000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            group.push(day * PARTITION_MS + i * 60_000, f64::from_bits(x >> 2));
        }
        db.store.append(&batch).unwrap();
    }
}

#[test]
fn deleted_range_disappears_from_memory_and_files() {
    for flush_first in [false, true] {
        let env = Env::memory();
        let db = Db::open(&env);
        db.append(&[
            ("a{x=1}", 1, 1.0),
            ("a{x=1}", 2, 2.0),
            ("a{x=1}", 3, 3.0),
            ("a{x=2}", 2, 2.0),
            ("b", 2, 2.0),
        ]);
        if flush_first {
            db.checkpoint();
        }
        assert_eq!(db.store.delete(&matchers("a"), 2, 2).unwrap(), 2);
        let expected = "a{x=\"1\"}: 1=1 3=3\nb: 2=2";
        assert_eq!(db.show(""), expected);
        // Later samples are not hidden.
        db.append(&[("a{x=2}", 2, 5.0)]);
        let expected = "a{x=\"1\"}: 1=1 3=3\na{x=\"2\"}: 2=5\nb: 2=2";
        assert_eq!(db.show(""), expected);
        db.checkpoint();
        assert_eq!(db.show(""), expected);
        db.compact();
        drop(db);
        let db = Db::open(&env);
        assert_eq!(db.show(""), expected);
        assert!(db.engine.verify().unwrap().violations.is_empty());
    }
}

#[test]
fn deleted_series_free_their_bytes_and_their_labels() {
    let env = Env::memory();
    let db = Db::open(&env);
    noisy(&db, "keep", 0..5);
    noisy(&db, "drop{job=x}", 0..5);
    db.compact();
    let before = bytes(&db);
    assert_eq!(db.store.delete(&matchers("drop"), i64::MIN, i64::MAX).unwrap(), 1);
    db.compact();
    let after = bytes(&db);
    assert!(after < before * 2 / 3, "{after} of {before}");
    assert_eq!(db.store.at(&db.engine.snapshot()).label_names(&[]), ["__name__"]);
    drop(db);
    let db = Db::open(&env);
    assert_eq!(db.store.at(&db.engine.snapshot()).count(&[]), 1);
}

#[test]
fn batch_for_a_deleted_series_is_refused_or_creates_it_again() {
    let db = Db::memory();
    db.append(&[("a", 1, 1.0)]);
    let id = db.store.resolve(&labels("a")).unwrap();
    let mut batch = SampleBatch::new();
    batch.push(&labels("a"), 2, 2.0);
    let prepared = db.store.operation(&batch).unwrap();
    db.store.delete(&matchers("a"), i64::MIN, i64::MAX).unwrap();
    let error = db.engine.commit(vec![Box::new(prepared)], Default::default()).unwrap_err();
    assert!(SeriesError::from(error).to_string().contains("resolve its labels again"));
    db.store.append(&batch).unwrap();
    assert_eq!(db.show("a"), "a: 2=2");
    batch.clear();
    batch.series_id(id).push(3, 3.0);
    assert!(matches!(db.store.append(&batch), Err(SeriesError::UnknownSeries { .. })));
}

#[test]
fn old_days_are_dropped_and_refused() {
    let env = Env::memory();
    let db = Db::open(&env);
    noisy(&db, "m", 0..4);
    db.checkpoint();
    noisy(&db, "m", 4..6);
    db.compact();
    let before = bytes(&db);
    let old = db.engine.snapshot();
    let all = db.show_at(&old, "m", i64::MIN, i64::MAX);
    assert_eq!(db.store.drop_before(3 * PARTITION_MS + 5).unwrap(), 3 * PARTITION_MS);
    let first = |db: &Db| {
        let shown = db.show("m");
        shown.split_whitespace().nth(1).unwrap().split_once('=').unwrap().0.parse::<i64>().unwrap()
    };
    assert_eq!(first(&db), 3 * PARTITION_MS);
    db.checkpoint();
    assert_eq!(db.show_at(&old, "m", i64::MIN, i64::MAX), all);
    drop(old);
    db.compact();
    db.append(&[("m", 3 * PARTITION_MS, 1.0)]);
    db.compact();
    assert_eq!(first(&db), 3 * PARTITION_MS);
    assert!(bytes(&db) < before * 2 / 3, "{} of {before}", bytes(&db));
    let mut batch = SampleBatch::new();
    batch.push(&labels("m"), 3 * PARTITION_MS - 1, 1.0);
    let error = db.store.append(&batch).unwrap_err();
    assert!(matches!(error, SeriesError::OutOfRetention { .. }), "{error}");
    drop(db);
    let db = Db::open(&env);
    assert_eq!(db.store.retention_floor_ms(), 3 * PARTITION_MS);
    assert_eq!(first(&db), 3 * PARTITION_MS);
    assert_eq!(db.store.drop_before(0).unwrap(), 3 * PARTITION_MS, "a floor never sinks");
}

#[test]
fn the_oldest_days_go_until_the_rest_fits() {
    let db = Db::memory();
    noisy(&db, "m", 0..5);
    db.compact();
    let all = bytes(&db);
    assert_eq!(db.store.drop_to_bytes(all * 2).unwrap(), i64::MIN);
    assert_eq!(db.store.drop_to_bytes(all / 2).unwrap(), 3 * PARTITION_MS);
    db.compact();
    assert!(bytes(&db) <= all / 2);
    assert_eq!(db.store.drop_to_bytes(0).unwrap(), 4 * PARTITION_MS, "the newest day stays");
    db.compact();
    assert!(bytes(&db) > 0);
}
