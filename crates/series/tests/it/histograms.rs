//! Native histograms and start timestamps, mixed with floats.

use std::sync::Arc;

use ropewalk_labels::{Bucket, CUSTOM_SCHEMA, Histogram, ResetHint, Samples};
use ropewalk_series::SampleBatch;
use ropewalk_vfs::Env;

use crate::{Db, labels, matchers};

fn histogram(count: f64) -> Histogram {
    Histogram {
        hint: ResetHint::NotReset,
        schema: 3,
        zero_threshold: 1e-9,
        zero_count: 1.0,
        count,
        sum: -2.5,
        positive: vec![Bucket { index: -3, count: 2.0 }, Bucket { index: 7, count: count - 3.0 }],
        negative: vec![Bucket { index: 0, count: 0.5 }],
        custom: Arc::default(),
    }
}

/// The samples of the series `h`.
fn samples(db: &Db) -> Samples {
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    let mut selection = at.select(&matchers("h"), 0, 10).unwrap();
    selection.next().unwrap();
    let mut samples = Samples::default();
    selection.samples(&mut samples).unwrap();
    samples
}

#[test]
fn histograms_and_starts_survive_everything() {
    let env = Env::memory();
    let mut db = Db::open(&env);
    let custom = Histogram {
        schema: CUSTOM_SCHEMA,
        count: 3.0,
        sum: 1.0,
        positive: vec![Bucket { index: 1, count: 3.0 }],
        custom: [0.5, 1.0].into(),
        ..Histogram::default()
    };
    let mut batch = SampleBatch::new();
    let mut group = batch.series_bytes(labels("h").as_bytes());
    group.push(1, 1.0).push_histogram(2, &histogram(10.0), 0).push_started(3, 3.0, -5).push(4, 4.0);
    group.push_histogram(5, &custom, 2);
    db.store.append(&batch).unwrap();
    // A correction turns a histogram into a float, and a float into a histogram.
    batch.clear();
    batch.series(&labels("h")).push(2, 2.5).push_histogram(4, &histogram(20.0), 0);
    db.store.append(&batch).unwrap();
    for round in 0..4 {
        let samples = samples(&db);
        assert_eq!(samples.times_ms, [1, 2, 3, 4, 5], "round {round}");
        assert_eq!(samples.values, [1.0, 2.5, 3.0, 0.0, 0.0]);
        assert_eq!(samples.starts_ms, [0, 0, -5, 0, 2]);
        let found: Vec<_> = samples.histograms.iter().map(|h| h.as_deref().cloned()).collect();
        assert_eq!(found, [None, None, None, Some(histogram(20.0)), Some(custom.clone())]);
        assert!(db.engine.verify().unwrap().violations.is_empty());
        match round {
            0 => db.checkpoint(),
            1 => db.compact(),
            _ => {
                drop(db);
                db = Db::open(&env);
            }
        }
    }
    db.store.delete(&matchers("h"), 3, 4).unwrap();
    db.checkpoint();
    assert_eq!(samples(&db).times_ms, [1, 2, 5]);
}

#[test]
fn a_bad_histogram_is_refused() {
    let db = Db::memory();
    let mut batch = SampleBatch::new();
    let bad = Histogram { schema: 20, ..Histogram::default() };
    batch.series(&labels("h")).push_histogram(1, &bad, 0);
    let error = db.store.append(&batch).unwrap_err();
    assert!(error.to_string().contains("schema"), "{error}");
}
