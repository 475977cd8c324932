//! Rules: retention of samples, downsampling of old ones, and limits on accepted ones.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_labels::{Bucket, Histogram, STALE_BITS, Samples};
use ropewalk_series::{
    Downsampling, Enforced, PARTITION_MS, Retention, RetentionRule, Rules, SampleBatch, SeriesError,
    SeriesOptions,
};
use ropewalk_vfs::{Env, ManualClock};

use crate::{Db, labels, matchers};

const HOUR: i64 = 3_600_000;

/// A database with a clock set by the test.
fn at(days: u64) -> (Db, Env, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(days * 86_400));
    let env = Env { clock: clock.clone(), ..Env::memory() };
    (Db::open(&env), env, clock)
}

fn keep_days(days: u64) -> u64 {
    days * PARTITION_MS as u64
}

#[test]
fn days_go_when_they_are_old_enough() {
    let (db, env, clock) = at(10);
    for day in 0..10 {
        db.append(&[("m", day * PARTITION_MS, day as f64)]);
    }
    assert_eq!(db.store.enforce().unwrap(), Enforced::default(), "without rules nothing goes");
    db.store.set_rules(&Rules { keep_ms: Some(keep_days(4)), ..Rules::default() }).unwrap();
    let done = db.store.enforce().unwrap();
    assert_eq!((done.dropped_before_ms, done.steps), (Some(6 * PARTITION_MS), 1));
    assert!(db.show("m").starts_with(&format!("m: {}=6", 6 * PARTITION_MS)));
    assert_eq!(db.store.enforce().unwrap(), Enforced::default());
    drop(db);
    let db = Db::open(&env);
    assert_eq!(db.store.rules().unwrap().keep_ms, Some(keep_days(4)));
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(db.store.enforce().unwrap().dropped_before_ms, Some(7 * PARTITION_MS));
    assert!(db.show("m").starts_with(&format!("m: {}=7", 7 * PARTITION_MS)));
}

#[test]
fn the_oldest_days_go_for_their_bytes() {
    let (db, _, _) = at(10);
    for day in 0..4 {
        let times: Vec<(&str, i64, f64)> =
            (0..500).map(|i| ("m", day * PARTITION_MS + i * 1000, (i as f64).sin())).collect();
        db.append(&times);
    }
    db.compact();
    let stats = db.engine.stats();
    let bytes = stats.store.keyspaces.iter().find(|k| k.name == "series").unwrap().raw_bytes;
    db.store.set_rules(&Rules { bytes_max: Some(bytes / 2), ..Rules::default() }).unwrap();
    assert_eq!(db.store.enforce().unwrap().dropped_before_ms, Some(2 * PARTITION_MS));
    assert_eq!(db.store.retention_floor_ms(), 2 * PARTITION_MS);
}

#[test]
fn some_series_live_shorter() {
    let (db, env, clock) = at(10);
    for day in 0..10 {
        db.append(&[("m{env=test}", day * PARTITION_MS, 1.0), ("m{env=live}", day * PARTITION_MS, 1.0)]);
    }
    db.checkpoint();
    let rule = Retention { matchers: matchers("m env=test"), keep_ms: keep_days(2) };
    db.store.set_rules(&Rules { retention: vec![rule], ..Rules::default() }).unwrap();
    let done = db.store.enforce().unwrap();
    assert_eq!((done.shortened, done.steps), (1, 1));
    let samples = |db: &Db, env: &str| db.show(&format!("m env={env}")).split_whitespace().count() - 1;
    assert_eq!((samples(&db, "test"), samples(&db, "live")), (2, 10));
    // The progress is stored: nothing is due until the next day, also after a restart.
    drop(db);
    let db = Db::open(&env);
    assert_eq!(db.store.enforce().unwrap(), Enforced::default());
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(db.store.enforce().unwrap().steps, 1);
    db.compact();
    assert_eq!((samples(&db, "test"), samples(&db, "live")), (1, 10));
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

fn thin(selector: &str, after_days: u64, step_ms: i64, keep: RetentionRule) -> Downsampling {
    let step_ms = step_ms as u64;
    Downsampling { matchers: matchers(selector), after_ms: keep_days(after_days), step_ms, keep }
}

#[test]
fn old_samples_are_downsampled() {
    let (db, env, _) = at(10);
    let series = ["last", "mean", "least", "greatest"];
    for day in [0, 1, 8] {
        for name in series {
            let times: Vec<(&str, i64, f64)> =
                (0..24 * 60).map(|i| (name, day * PARTITION_MS + i * 60_000, (i % 60) as f64)).collect();
            db.append(&times);
        }
    }
    db.checkpoint();
    let rules = [RetentionRule::Last, RetentionRule::Mean, RetentionRule::Least, RetentionRule::Greatest];
    let downsampling =
        series.into_iter().zip(rules).map(|(name, keep)| thin(name, 3, HOUR, keep)).collect::<Vec<_>>();
    db.store.set_rules(&Rules { downsampling, ..Rules::default() }).unwrap();
    let before = db.engine.snapshot();
    let done = db.store.enforce().unwrap();
    assert_eq!(done.thinned, 4 * 2 * 24 * 59);
    for (name, value) in [("last", 59.0), ("mean", 29.5), ("least", 0.0), ("greatest", 59.0)] {
        let day = db.show_at(&db.engine.snapshot(), name, 0, PARTITION_MS - 1);
        let expected: Vec<String> = (1..=24).map(|h| format!("{}={value}", h * HOUR - 60_000)).collect();
        assert_eq!(day, format!("{name}: {}", expected.join(" ")));
        let young = db.show_at(&db.engine.snapshot(), name, 8 * PARTITION_MS, 9 * PARTITION_MS);
        assert_eq!(young.split_whitespace().count(), 1 + 24 * 60, "young days stay as they are");
        assert!(db.show_at(&before, name, 0, PARTITION_MS - 1).split_whitespace().count() > 1000);
    }
    drop(before);
    assert_eq!(db.store.enforce().unwrap(), Enforced::default());
    db.compact();
    let shown = db.show("");
    drop(db);
    let db = Db::open(&env);
    assert_eq!(db.show(""), shown);
    assert_eq!(db.store.enforce().unwrap(), Enforced::default());
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn downsampling_leaves_the_last_sample_without_a_mean() {
    let (db, _, _) = at(10);
    let mut batch = SampleBatch::new();
    let histogram = |n: f64| Histogram {
        count: n,
        sum: n,
        positive: vec![Bucket { index: 1, count: n }],
        ..Histogram::default()
    };
    let mut to = batch.series_bytes(labels("h").as_bytes());
    for i in 0..6 {
        to.push_histogram(i * 10, &histogram(i as f64), 5);
    }
    let mut to = batch.series_bytes(labels("stale").as_bytes());
    for (time, value) in
        [(0, 1.0), (10, 3.0), (20, f64::from_bits(STALE_BITS)), (30, f64::from_bits(STALE_BITS))]
    {
        to.push(time, value);
    }
    db.store.append(&batch).unwrap();
    db.checkpoint();
    db.store
        .set_rules(&Rules { downsampling: vec![thin("", 1, 30, RetentionRule::Mean)], ..Rules::default() })
        .unwrap();
    assert_eq!(db.store.enforce().unwrap().thinned, 6);
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    let read = |name: &str| {
        let mut selection = at.select(&matchers(name), i64::MIN, i64::MAX).unwrap();
        let mut samples = Samples::default();
        selection.next();
        selection.samples(&mut samples).unwrap();
        samples
    };
    let found = read("h");
    assert_eq!((found.times_ms, found.starts_ms), (vec![20, 50], vec![5, 5]));
    assert_eq!(found.histograms[1].as_deref(), Some(&histogram(5.0)));
    let found: Vec<(i64, u64)> = read("stale").bits().collect();
    assert_eq!(found, [(20, 2.0_f64.to_bits()), (30, STALE_BITS)]);
}

#[test]
fn many_series_are_downsampled_in_steps() {
    let (db, _, _) = at(10);
    let names: Vec<String> = (0..30).map(|i| format!("m{{i={i:02}}}")).collect();
    for name in &names {
        let times: Vec<(&str, i64, f64)> = (0..4000).map(|i| (&**name, i * 20_000, i as f64)).collect();
        db.append(&times);
    }
    db.checkpoint();
    let rules = Rules { downsampling: vec![thin("m", 2, HOUR, RetentionRule::Last)], ..Rules::default() };
    db.store.set_rules(&rules).unwrap();
    let done = db.store.enforce().unwrap();
    assert!(done.steps >= 3, "{done:?}");
    assert_eq!(done.thinned, 30 * (4000 - 23));
    assert_eq!(db.show("m i=29").split_whitespace().count(), 1 + 23);
}

#[test]
fn invalid_rules_are_refused() {
    let (db, _, _) = at(1);
    for rules in [
        Rules { keep_ms: Some(0), ..Rules::default() },
        Rules { bytes_max: Some(0), ..Rules::default() },
        Rules { keep_ms: Some(u64::MAX), ..Rules::default() },
        Rules { retention: vec![Retention { matchers: Vec::new(), keep_ms: 0 }], ..Rules::default() },
        Rules { downsampling: vec![thin("", 1, 0, RetentionRule::Last)], ..Rules::default() },
    ] {
        let error = db.store.set_rules(&rules).unwrap_err();
        assert!(matches!(error, SeriesError::Invalid { .. }), "{error}");
    }
}

#[test]
fn store_accepts_only_samples_near_the_clock() {
    let (db, _, clock) = at(10);
    let options = SeriesOptions { past_ms_max: HOUR, future_ms_max: 60_000, ..Default::default() };
    db.store.configure(options).unwrap();
    let now = 10 * PARTITION_MS;
    db.append(&[("m", now - HOUR, 1.0), ("m", now + 60_000, 2.0)]);
    for time in [now - HOUR - 1, now + 60_001] {
        let mut batch = SampleBatch::new();
        batch.push(&labels("m"), time, 1.0);
        let error = db.store.append(&batch).unwrap_err();
        assert!(matches!(error, SeriesError::OutOfWindow { time_ms, .. } if time_ms == time), "{error}");
    }
    clock.advance(Duration::from_millis(1));
    db.append(&[("m", now + 60_001, 3.0)]);
    assert_eq!(db.store.options(), options);
}

#[test]
fn a_metric_has_its_own_limit() {
    let (db, env, _) = at(1);
    db.store.configure(SeriesOptions { metric_series_max: 2, ..Default::default() }).unwrap();
    db.append(&[("m{i=1}", 1, 1.0), ("m{i=2}", 1, 1.0), ("n{i=1}", 1, 1.0)]);
    let mut batch = SampleBatch::new();
    batch.push(&labels("n{i=2}"), 1, 1.0);
    batch.push(&labels("m{i=3}"), 1, 1.0);
    let error = db.store.append(&batch).unwrap_err();
    let expected = "metric \"m\" would have 3 series, 2 are allowed; first new one: m{i=\"3\"}";
    assert_eq!(error.to_string(), expected);
    assert_eq!(db.store.at(&db.engine.snapshot()).count(&[]), 3, "nothing was written");
    drop(db);
    let db = Db::open(&env);
    assert!(db.store.append(&batch).is_err());
    db.store.delete(&matchers("m i=1"), i64::MIN, i64::MAX).unwrap();
    db.store.append(&batch).unwrap();
}

#[test]
fn background_thread_enforces_rules() {
    let env = Env::memory();
    let db = Db::open(&env);
    db.append(&[("m", 0, 1.0), ("m", 4_000_000_000_000, 2.0)]);
    db.store.set_rules(&Rules { keep_ms: Some(keep_days(1)), ..Rules::default() }).unwrap();
    let enforcer = db.model.enforce_in_background(&db.engine, Duration::from_millis(1));
    while db.store.retention_floor_ms() == i64::MIN {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(enforcer);
    assert_eq!(db.show("m"), "m: 4000000000000=2");
}
