//! Finding series by their labels, and the labels with the most series.

use ropewalk_labels::Labels;
use ropewalk_series::SampleBatch;
use ropewalk_vfs::Env;

use crate::{Db, matchers};

fn filled() -> Db {
    let env = Env::memory();
    let db = Db::open(&env);
    let mut batch = SampleBatch::new();
    for pod in 0..20 {
        for status in ["200", "404", "503"] {
            let name = format!("pod-{pod}");
            let labels = Labels::new([("__name__", "http"), ("pod", &name), ("status", status)]).unwrap();
            batch.push(&labels, pod, f64::from(pod as u32));
        }
    }
    batch.push(&Labels::new([("__name__", "up"), ("wörk", "ja")]).unwrap(), 1, 1.0);
    db.store.append(&batch).unwrap();
    db.checkpoint();
    drop(db);
    Db::open(&env)
}

#[test]
fn matchers_find_series() {
    let db = filled();
    let count = |selector: &str| db.store.at(&db.engine.snapshot()).count(&matchers(selector));
    assert_eq!(count(""), 61);
    assert_eq!(count("http"), 60);
    assert_eq!(count("http status=~5.."), 20);
    assert_eq!(count("http status=~404|503 pod=~pod-1.*"), 22);
    assert_eq!(count("http status!~5.. pod!=pod-3"), 38);
    assert_eq!(count("status="), 1);
    assert_eq!(count("status!="), 60);
    assert_eq!(count("pod=~.+ status=200"), 20);
    assert_eq!(count("wörk=ja"), 1);
    assert_eq!(count("nosuch=x"), 0);
    assert_eq!(count("pod=pod-3 status=503 __name__=http"), 1);
}

#[test]
fn names_and_values() {
    let db = filled();
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    assert_eq!(at.label_names(&[]), ["__name__", "pod", "status", "wörk"]);
    assert_eq!(at.label_names(&matchers("up")), ["__name__", "wörk"]);
    assert_eq!(at.label_values("__name__", &[], 10), ["http", "up"]);
    assert_eq!(
        at.label_values("pod", &matchers("status=200 pod=~pod-1.+"), 3),
        ["pod-10", "pod-11", "pod-12"]
    );
    assert_eq!(at.label_values("nosuch", &[], 10), [""; 0]);
    let mut seen = Vec::new();
    let ended = at.each_label_value("pod", &[], |value| {
        seen.push(value.to_owned());
        if seen.len() == 2 { Err("enough") } else { Ok(()) }
    });
    assert_eq!((ended, &seen[..]), (Err("enough"), &at.label_values("pod", &[], 2)[..]));
    let series = at.series(&matchers("pod=pod-7"), 2);
    let shown: Vec<String> = series.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["http{pod=\"pod-7\",status=\"200\"}", "http{pod=\"pod-7\",status=\"404\"}"]);
}

#[test]
fn a_selection_shows_series_without_samples_in_range() {
    let db = filled();
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    let mut selection = at.select(&matchers("http status=200"), 5, 6).unwrap();
    assert_eq!(selection.remaining(), 20);
    let mut filled = 0;
    let mut samples = Default::default();
    while selection.next().is_some() {
        filled += selection.samples(&mut samples).unwrap();
    }
    assert_eq!((filled, samples.times_ms.as_slice()), (2, [5, 6].as_slice()));
}

#[test]
fn cardinality_lists_the_largest_labels() {
    let db = filled();
    let snapshot = db.engine.snapshot();
    let report = db.store.at(&snapshot).cardinality(2);
    assert_eq!(report.series, 61);
    let labels: Vec<_> = report.labels.iter().map(|l| (l.name.as_str(), l.values, l.series)).collect();
    assert_eq!(labels, [("pod", 20, 60), ("status", 3, 60)]);
    let metrics: Vec<_> = report.metrics.iter().map(|m| (m.value.as_str(), m.series)).collect();
    assert_eq!(metrics, [("http", 60), ("up", 1)]);
    assert_eq!((report.values[1].name.as_str(), report.values[1].series), ("status", 20));
    assert!(report.index_bytes > 1000);
}

#[test]
fn aggregates_equal_the_samples() {
    let db = Db::memory();
    let times: Vec<i64> = (0..3000).map(|i| i * 1000).collect();
    let values: Vec<f64> = (0..3000).map(|i| f64::from(i % 700)).collect();
    let mut batch = SampleBatch::new();
    batch.series(&crate::labels("c")).extend(&times, &values);
    db.store.append(&batch).unwrap();
    let check = || {
        let snapshot = db.engine.snapshot();
        let at = db.store.at(&snapshot);
        for (from, to) in [(0, i64::MAX), (500, 2_500_000), (1_024_000, 1_025_000), (5_000_000, 6_000_000)] {
            let mut selection = at.select(&matchers("c"), from, to).unwrap();
            selection.next().unwrap();
            let mut samples = ropewalk_labels::Samples::default();
            selection.samples(&mut samples).unwrap();
            let found = selection.aggregate().unwrap();
            assert_eq!(found.map_or(0, |a| a.count as usize), samples.len());
            if let Some(found) = found {
                assert_eq!(found.sum, samples.values.iter().sum::<f64>());
                assert_eq!(Some(&found.first), samples.values.first());
                assert_eq!(Some(&found.last), samples.values.last());
                assert_eq!(found.max, samples.values.iter().copied().fold(f64::MIN, f64::max));
                let resets = samples.values.windows(2).filter(|w| w[1] < w[0]).count();
                assert_eq!(found.resets as usize, resets);
            }
        }
    };
    check();
    db.checkpoint();
    check();
    // An overlap: now the samples themselves decide.
    batch.clear();
    batch.series(&crate::labels("c")).push(1_024_500, -1.0);
    db.store.append(&batch).unwrap();
    check();
}
