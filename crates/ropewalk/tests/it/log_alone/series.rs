//! Time series.

use ropewalk::series::{
    Bucket, Downsampling, Duplicates, Exemplar, Histogram, Labels, Matcher, Metadata, MetricType,
    PARTITION_MS, Retention, RetentionRule, Rules, SampleBatch, SeriesOptions, SeriesStore,
};
use ropewalk::{AppendOptions, Database, Event};

use super::Way;

const DAY: i64 = PARTITION_MS;

fn metrics(db: &Database) -> SeriesStore {
    db.series("metrics").unwrap()
}

fn labels(name: &str) -> Labels {
    Labels::new([("__name__", name), ("job", "api")]).unwrap()
}

fn named(name: &str) -> Vec<Matcher> {
    vec![Matcher::equal("__name__", name)]
}

/// Sixty samples of one day with this value.
fn sixty(name: &str, day: i64, value: f64) -> SampleBatch {
    let mut batch = SampleBatch::new();
    let labels = labels(name);
    let mut series = batch.series(&labels);
    (0..60).for_each(|minute| {
        series.push(day * DAY + minute * 60_000, value);
    });
    batch
}

fn append(db: &Database, name: &str, day: i64, value: f64) {
    metrics(db).append(&sixty(name, day, value)).unwrap();
}

fn configure(db: &Database, duplicates: Duplicates) {
    metrics(db).configure(SeriesOptions { duplicates, ..SeriesOptions::default() }).unwrap();
}

pub(super) const WAYS: &[Way] = &[
    ("samples of a new store", |db| append(db, "a", 4, 1.0)),
    ("samples of more series and days", |db| {
        for (name, day) in [("a", 0), ("b", 0), ("b", 5), ("c", 3), ("d", 3), ("e", 3), ("e", 6)] {
            append(db, name, day, 2.0);
        }
    }),
    ("histogram, start timestamp and exemplar", |db| {
        let (rich, mut batch) = (labels("rich"), SampleBatch::new());
        let positive = vec![Bucket { index: 1, count: 2.0 }];
        let histogram = Histogram { count: 2.0, sum: 1.5, positive, ..Histogram::default() };
        let trace = Labels::new([("trace_id", "abc")]).unwrap();
        let exemplar = Exemplar { time_ms: 4 * DAY, value: 0.5, labels: Some(trace) };
        let mut series = batch.series(&rich);
        series.push_histogram(4 * DAY, &histogram, 5).push_started(4 * DAY + 1, 3.0, 7).exemplar(exemplar);
        metrics(db).append(&batch).unwrap();
    }),
    ("samples with an event in a transaction", |db| {
        let mut tx = db.begin();
        tx.append_samples(&metrics(db), &sixty("transacted", 4, 3.0)).unwrap();
        let store = db.events("shop").unwrap();
        tx.append(&store, &[Event::new("Measured")], AppendOptions::default()).unwrap();
        tx.commit().unwrap();
    }),
    ("metadata", |db| {
        let (unit, help) = ("seconds".to_owned(), "Time spent.".to_owned());
        let metadata = Metadata { metric_type: MetricType::Counter, unit, help };
        metrics(db).set_metadata(&[("a".to_owned(), metadata)]).unwrap();
    }),
    ("later samples that replace earlier ones", |db| append(db, "a", 4, 4.0)),
    ("settings", |db| configure(db, Duplicates::KeepFirst)),
    ("later samples that are ignored", |db| append(db, "a", 4, 5.0)),
    ("other settings", |db| configure(db, Duplicates::KeepLast)),
    ("later samples that replace earlier ones again", |db| append(db, "b", 5, 6.0)),
    ("samples are deleted", |db| {
        assert_eq!(metrics(db).delete(&named("a"), 4 * DAY, 4 * DAY + 600_000).unwrap(), 1);
    }),
    ("a series is deleted", |db| {
        assert_eq!(metrics(db).delete(&named("c"), i64::MIN, i64::MAX).unwrap(), 1);
    }),
    ("days are dropped", |db| assert_eq!(metrics(db).drop_before(2 * DAY).unwrap(), 2 * DAY)),
    ("rules", |db| {
        let retention = vec![Retention { matchers: named("d"), keep_ms: 1 }];
        let (matchers, keep) = (named("e"), RetentionRule::Mean);
        let thin = Downsampling { matchers, after_ms: 1, step_ms: 600_000, keep };
        let rules = Rules { retention, downsampling: vec![thin], ..Rules::default() };
        metrics(db).set_rules(&rules).unwrap();
    }),
    ("rules are enforced", |db| {
        // Only days in files are downsampled.
        db.checkpoint().unwrap();
        let done = metrics(db).enforce().unwrap();
        assert!(done.shortened > 0 && done.thinned > 0, "{done:?}");
    }),
];
