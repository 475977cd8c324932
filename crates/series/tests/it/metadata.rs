//! Types, units, help texts and exemplars.

use ropewalk_labels::Labels;
use ropewalk_series::{Exemplar, Metadata, MetricType, SampleBatch, SeriesError};
use ropewalk_vfs::Env;

use crate::{Db, labels, matchers};

fn about(metric_type: MetricType, help: &str) -> Metadata {
    Metadata { metric_type, unit: "seconds".into(), help: help.into() }
}

#[test]
fn metadata_is_stored_per_metric() {
    let env = Env::memory();
    let db = Db::open(&env);
    let all = [
        ("http_requests_total".to_owned(), about(MetricType::Counter, "Requests.")),
        ("http_requests".to_owned(), about(MetricType::Gauge, "Open requests.")),
    ];
    db.store.set_metadata(&all).unwrap();
    let seq = db.engine.seq();
    db.store.set_metadata(&all).unwrap();
    assert_eq!(db.engine.seq(), seq, "what is stored already is not written again");
    let old = db.engine.snapshot();
    let changed = [("http_requests".to_owned(), about(MetricType::Info, "x"))];
    db.store.set_metadata(&changed).unwrap();
    assert_eq!(db.store.at(&old).metadata(Some("http_requests"), 9).unwrap(), all[1..]);
    drop(old);
    db.checkpoint();
    drop(db);
    let db = Db::open(&env);
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    assert_eq!(at.metadata(Some("http_requests"), 9).unwrap(), changed);
    assert_eq!(at.metadata(None, 9).unwrap(), [changed[0].clone(), all[0].clone()]);
    assert_eq!(at.metadata(None, 1).unwrap().len(), 1);
    assert_eq!(at.metadata(Some("http"), 9).unwrap(), []);
    assert_eq!(MetricType::from_name("gaugehistogram").map(MetricType::name), Some("gaugehistogram"));
    let long = [("m".to_owned(), about(MetricType::Gauge, &"x".repeat(70_000)))];
    assert!(matches!(db.store.set_metadata(&long), Err(SeriesError::Invalid { .. })));
    assert!(db.store.set_metadata(&[(String::new(), Metadata::default())]).is_err());
}

#[test]
fn exemplars_come_with_the_samples_and_go_with_the_series() {
    let env = Env::memory();
    let db = Db::open(&env);
    let exemplar = |time_ms, id: &str| Exemplar {
        time_ms,
        value: time_ms as f64 / 4.0,
        labels: (!id.is_empty()).then(|| Labels::new([("trace_id", id)]).unwrap()),
    };
    let mut batch = SampleBatch::new();
    batch.series(&labels("m{le=1}")).push(10, 1.0).exemplar(exemplar(9, "abc")).exemplar(exemplar(-3, ""));
    batch.series(&labels("m{le=2}")).push(10, 2.0).exemplar(exemplar(10, "def"));
    batch.series(&labels("n")).exemplar(exemplar(5, "only"));
    db.store.append(&batch).unwrap();
    let show = |db: &Db, selector: &str, from: i64, to: i64| {
        let snapshot = db.engine.snapshot();
        let found = db.store.at(&snapshot).exemplars(&matchers(selector), from, to, 10).unwrap();
        let one = |(labels, e): (Labels, Exemplar)| {
            format!(
                "{labels} {}={} {}",
                e.time_ms,
                e.value,
                e.labels.map_or_else(String::new, |l| l.to_string())
            )
        };
        found.into_iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let all =
        "m{le=\"1\"} -3=-0.75 ; m{le=\"1\"} 9=2.25 {trace_id=\"abc\"}; m{le=\"2\"} 10=2.5 {trace_id=\"def\"}";
    assert_eq!(show(&db, "m", i64::MIN, i64::MAX), all);
    db.checkpoint();
    drop(db);
    let db = Db::open(&env);
    assert_eq!(show(&db, "m", i64::MIN, i64::MAX), all);
    assert_eq!(show(&db, "m", 10, 10), "m{le=\"2\"} 10=2.5 {trace_id=\"def\"}");
    assert_eq!(show(&db, "n", 5, 5), "n 5=1.25 {trace_id=\"only\"}");
    db.store.delete(&matchers("m le=1"), 0, 9).unwrap();
    db.store.delete(&matchers("m le=2"), i64::MIN, i64::MAX).unwrap();
    assert_eq!(show(&db, "m", i64::MIN, i64::MAX), "m{le=\"1\"} -3=-0.75 "); // Days that are dropped take their exemplars along.
    db.store.drop_before(0).unwrap();
    assert_eq!(show(&db, "m", i64::MIN, i64::MAX), "");
    assert_eq!(show(&db, "n", 5, 5), "n 5=1.25 {trace_id=\"only\"}");
}
