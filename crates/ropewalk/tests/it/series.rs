//! Samples in transactions, together with the other models.

use ropewalk::engine::Env;
use ropewalk::series::{
    Duplicates, Labels, Matcher, SampleBatch, Samples, SeriesError, SeriesOptions, SeriesStore,
};
use ropewalk::{Class, Database, Error, Event, Options};

fn batch(name: &str, samples: &[(i64, f64)]) -> SampleBatch {
    let mut batch = SampleBatch::new();
    let labels = Labels::new([("__name__", name)]).unwrap();
    let mut series = batch.series(&labels);
    for (time, value) in samples {
        series.push(*time, *value);
    }
    batch
}

fn values(db: &Database, store: &SeriesStore) -> Vec<f64> {
    let snapshot = db.snapshot();
    let at = snapshot.series(store);
    let mut selection = at.select(&[], i64::MIN, i64::MAX).unwrap();
    let mut samples = Samples::default();
    while selection.next().is_some() {
        selection.samples(&mut samples).unwrap();
    }
    samples.values
}

#[test]
fn samples_and_events_commit_together() {
    let env = Env::memory();
    let db = Options::new().env(env.clone()).open("/db").unwrap();
    let (metrics, orders) = (db.series("metrics").unwrap(), db.events("orders").unwrap());
    let mut tx = db.begin();
    tx.append(&orders, &[Event::new("Placed")], Default::default()).unwrap();
    tx.append_samples(&metrics, &batch("orders_total", &[(1, 1.0)])).unwrap();
    tx.savepoint();
    tx.append_samples(&metrics, &batch("orders_total", &[(2, 99.0)])).unwrap();
    assert!(tx.rollback_to_savepoint());
    tx.append_samples(&metrics, &batch("orders_total", &[(3, 2.0), (1, 1.5)])).unwrap();
    assert_eq!(values(&db, &metrics), [0.0; 0]);
    let committed = tx.commit().unwrap().unwrap();
    assert_eq!((committed.appended.len(), committed.appended[0].last.0), (1, 1));
    let [samples] = &committed.samples[..] else { panic!("{committed:?}") };
    assert_eq!((samples.store.as_str(), samples.samples, samples.created), ("metrics", 3, 1));
    assert_eq!(values(&db, &metrics), [1.5, 2.0]);
    drop((metrics, orders, db));
    let db = Options::new().env(env).open("/db").unwrap();
    assert_eq!(db.series_stores(), ["metrics"]);
    assert_eq!(values(&db, &db.series("metrics").unwrap()), [1.5, 2.0]);
    assert!(db.verify().unwrap().violations.is_empty());
}

#[test]
fn rejected_append_fails_the_transaction() {
    let db = Database::in_memory().unwrap();
    let (metrics, orders) = (db.series("metrics").unwrap(), db.events("orders").unwrap());
    metrics.configure(SeriesOptions { series_max: 1, ..Default::default() }).unwrap();
    metrics.append(&batch("a", &[(1, 1.0)])).unwrap();
    let mut tx = db.begin();
    tx.append(&orders, &[Event::new("Placed")], Default::default()).unwrap();
    tx.append_samples(&metrics, &batch("b", &[(1, 1.0)])).unwrap();
    let error = tx.commit().unwrap_err();
    assert!(matches!(error, Error::Series(SeriesError::CardinalityLimit { .. })), "{error}");
    assert_eq!(error.class(), Class::Invalid);
    assert_eq!(orders.head().unwrap(), None);
    assert!(db.keyspace("series.x", Default::default()).is_err());
}

#[test]
fn samples_are_decided_by_the_store_at_the_commit() {
    let db = Database::in_memory().unwrap();
    let metrics = db.series("metrics").unwrap();
    metrics.append(&batch("a", &[(1, 1.0)])).unwrap();
    let mut tx = db.begin();
    tx.append_samples(&metrics, &batch("a", &[(2, 2.0)])).unwrap();
    assert_eq!(metrics.delete(&[Matcher::equal("__name__", "a")], i64::MIN, i64::MAX).unwrap(), 1);
    let committed = tx.commit().unwrap().unwrap();
    assert_eq!((committed.samples[0].samples, committed.samples[0].created), (1, 1));
    assert_eq!(values(&db, &metrics), [2.0]);
    let mut tx = db.begin();
    tx.append_samples(&metrics, &batch("a", &[(2, 3.0)])).unwrap();
    metrics.configure(SeriesOptions { duplicates: Duplicates::Refuse, ..Default::default() }).unwrap();
    let error = tx.commit().unwrap_err();
    assert!(matches!(error, Error::Series(SeriesError::DuplicateSample { .. })), "{error}");
    assert_eq!(values(&db, &metrics), [2.0]);
}
