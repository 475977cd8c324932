//! Many new series in one commit: the first reader adds their postings, which the commit skips.

use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_engine::{Durability, Operation};
use ropewalk_labels::Labels;
use ropewalk_series::{SampleBatch, SeriesError, SeriesOptions};
use ropewalk_vfs::Env;

use crate::{Db, matchers};

/// More than the index takes up at a time.
const MANY: u64 = 3_000;

fn batch(numbers: std::ops::Range<u64>) -> SampleBatch {
    let mut batch = SampleBatch::new();
    for i in numbers {
        let (pod, status) = (format!("pod-{}", i / 3), ["200", "404", "503"][i as usize % 3]);
        let labels = Labels::new([("__name__", "http"), ("pod", &pod), ("status", status)]).unwrap();
        batch.push(&labels, 1_000, i as f64);
    }
    batch
}

/// Commits without [`SeriesStore::append`](ropewalk_series::SeriesStore::append), as a transaction over several models does.
fn commit(db: &Db, batches: &[SampleBatch]) {
    let operations =
        batches.iter().map(|batch| Box::new(db.store.operation(batch).unwrap()) as Box<dyn Operation>);
    db.engine.commit(operations.collect(), Durability::Sync).unwrap();
}

/// Checks the first `count` series with every kind of query.
fn check(db: &Db, count: u64) {
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    assert_eq!(at.label_values("pod", &[], usize::MAX).len() as u64, count.div_ceil(3));
    assert_eq!(at.count(&matchers("http")), count);
    assert_eq!(at.count(&matchers("http status=404")), (count + 1) / 3);
    assert_eq!(at.count(&matchers("pod=pod-7")), 3);
    assert_eq!(at.count(&matchers("status=")), 0);
    assert_eq!(at.label_names(&[]), ["__name__", "pod", "status"]);
    let cardinality = at.cardinality(1);
    assert_eq!((cardinality.series, cardinality.pairs), (count, 4 + count.div_ceil(3)));
    assert_eq!(db.show("http status=200 pod=pod-9"), "http{pod=\"pod-9\",status=\"200\"}: 1000=27");
}

#[test]
fn many_new_series_are_found_at_once_and_after_a_restart() {
    let env = Env::memory();
    let db = Db::open(&env);
    let before = db.engine.snapshot();
    commit(&db, &[batch(0..MANY)]);
    check(&db, MANY);
    db.store.append(&batch(0..2 * MANY)).unwrap();
    check(&db, 2 * MANY);
    db.store.submit(&batch(MANY..3 * MANY), Durability::Sync).unwrap().wait().unwrap();
    check(&db, 3 * MANY);
    assert_eq!(db.store.at(&before).count(&[]), 0);
    drop(before);
    drop(db);
    // From the log.
    let db = Db::open(&env);
    check(&db, 3 * MANY);
    db.checkpoint();
    commit(&db, &[batch(3 * MANY..4 * MANY)]);
    drop(db);
    // From a run, and more from the log.
    let db = Db::open(&env);
    check(&db, 4 * MANY);
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn deletion_before_the_first_read_hides_series_only_from_later_snapshots() {
    let db = Db::memory();
    commit(&db, &[batch(0..MANY)]);
    let before = db.engine.snapshot();
    db.store.delete(&matchers("status=404"), i64::MIN, i64::MAX).unwrap();
    commit(&db, &[batch(MANY..2 * MANY)]);
    let now = db.engine.snapshot();
    assert_eq!(db.store.at(&before).count(&matchers("status=404")), MANY / 3);
    assert_eq!(db.store.at(&now).count(&matchers("status=404")), MANY / 3);
    assert_eq!(db.store.at(&now).count(&[]), 2 * MANY - MANY / 3);
    // They come again, with other numbers.
    commit(&db, &[batch(0..MANY)]);
    check(&db, 2 * MANY);
}

#[test]
fn two_parts_of_one_transaction_make_the_same_series() {
    let db = Db::memory();
    commit(&db, &[batch(0..MANY), batch(MANY / 2..2 * MANY), batch(0..2 * MANY)]);
    check(&db, 2 * MANY);
}

#[test]
fn the_limit_of_a_metric_counts_all_of_them() {
    let db = Db::memory();
    let max = MANY + 10;
    db.store.configure(SeriesOptions { metric_series_max: max, ..Default::default() }).unwrap();
    commit(&db, &[batch(0..MANY)]);
    let error = db.store.append(&batch(MANY..MANY + 11)).unwrap_err();
    assert!(matches!(error, SeriesError::MetricLimit { held, .. } if held == max + 1), "{error}");
    db.store.append(&batch(MANY..MANY + 10)).unwrap();
    check(&db, max);
}

#[test]
fn readers_see_all_of_a_commit_or_nothing() {
    let db = Db::memory();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Acquire) {
                        let snapshot = db.engine.snapshot();
                        let found = db.store.at(&snapshot).count(&matchers("http status=~4.*|5.*|2.*"));
                        assert!(found.is_multiple_of(MANY) && found >= last, "{found} after {last}");
                        assert_eq!(found, db.store.at(&snapshot).count(&matchers("http")));
                        last = found;
                    }
                })
            })
            .collect();
        for round in 0..10 {
            commit(&db, &[batch(round * MANY..(round + 1) * MANY)]);
        }
        over.store(true, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    check(&db, 10 * MANY);
}
