//! Databases that earlier versions wrote still open and say the same; changed bytes are noticed.
//!
//! `tests/fixtures/vN` was written by format N, part of it in runs, part in the log, with every kind of section and chunk. Make
//! a new one with `UPDATE_FIXTURES=vN cargo test -p ropewalk-series fixtures`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_engine::{Background, Engine, EngineError, EngineOptions};
use ropewalk_labels::{Bucket, CUSTOM_SCHEMA, Histogram, Labels, STALE_BITS, Samples};
use ropewalk_series::{
    Downsampling, Duplicates, Exemplar, Metadata, MetricType, PARTITION_MS, Retention, RetentionRule, Rules,
    SampleBatch, SeriesError, SeriesModel, SeriesOptions, SeriesStore,
};
use ropewalk_vfs::Env;

use crate::directories::{copy, files};
use crate::{Db, labels, matchers};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn open(dir: &Path) -> Result<Db, EngineError> {
    let mut options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
    options.log.segment_bytes_first = 16 << 10;
    options.log.segment_bytes_max = 16 << 10;
    let model = Arc::new(SeriesModel::new(1));
    let engine = Arc::new(Engine::open(&Env::real(), dir, options, vec![model.clone()])?);
    let store = SeriesStore::new(engine.clone(), model.clone(), "main").unwrap();
    Ok(Db { engine, model, store })
}

fn histogram(n: u32) -> Histogram {
    let custom = n.is_multiple_of(2);
    let count = f64::from(n);
    Histogram {
        schema: if custom { CUSTOM_SCHEMA } else { 2 },
        count: count * 2.0,
        sum: count / 3.0,
        positive: vec![Bucket { index: 0, count }, Bucket { index: 1, count }],
        custom: if custom { [0.5, 2.5].into() } else { [].into() },
        ..Histogram::default()
    }
}

/// Each round is then in a run, the last one in the log.
fn round(db: &Db, round: i64) {
    let day = round * PARTITION_MS;
    let mut batch = SampleBatch::new();
    let mut to = batch.series_bytes(labels("counter{job=a}").as_bytes());
    for i in 0..700 {
        to.push(day + i * 15_000, (i * i % 5003) as f64);
    }
    let mut to = batch.series_bytes(labels("noise{job=a}").as_bytes());
    for i in 0..100 {
        to.push(day + i * 14_999 + i % 7, (i as f64).sqrt());
    }
    let mut to = batch.series_bytes(labels("odd{job=b}").as_bytes());
    for (i, value) in
        [f64::NAN, f64::INFINITY, -0.0, f64::from_bits(STALE_BITS), 5e-324].into_iter().enumerate()
    {
        to.push(day + i as i64, value);
    }
    let mut to = batch.series_bytes(labels("latency").as_bytes());
    for i in 0..12 {
        to.push_histogram(day + i * 60_000, &histogram(i as u32 / 6 + 1), 0);
    }
    let mut to = batch.series_bytes(labels("started").as_bytes());
    for i in 0..5 {
        to.push_started(day + i * 60_000, i as f64, day + 1);
    }
    let trace = Some(Labels::new([("trace_id", format!("{round}"))]).unwrap());
    to.exemplar(Exemplar { time_ms: day, value: 0.25, labels: trace });
    db.store.append(&batch).unwrap();
    db.append(&[("counter{job=a}", day + 3, -1.0), ("gone", day, 1.0), ("Küche", day, 21.5)]);
    db.store.delete(&matchers("noise"), day + 100_000, day + 200_000).unwrap();
    db.store.delete(&matchers("gone"), i64::MIN, i64::MAX).unwrap();
    let about =
        Metadata { metric_type: MetricType::Counter, unit: "s".into(), help: format!("round {round}") };
    db.store.set_metadata(&[("counter".into(), about)]).unwrap();
}

fn write(dir: &Path) {
    let db = open(dir).unwrap();
    let options = SeriesOptions { series_max: 50, metric_series_max: 9, ..SeriesOptions::default() };
    db.store.configure(SeriesOptions { duplicates: Duplicates::KeepLast, ..options }).unwrap();
    let downsampling =
        Downsampling { matchers: matchers("odd"), after_ms: 9, step_ms: 2, keep: RetentionRule::Least };
    let retention = Retention { matchers: matchers("job=~b.*"), keep_ms: 1 << 50 };
    let rules = Rules {
        keep_ms: Some(1 << 60),
        bytes_max: None,
        retention: vec![retention],
        downsampling: vec![downsampling],
    };
    db.store.set_rules(&rules).unwrap();
    for number in 1..4 {
        round(&db, number);
        if number < 3 {
            db.checkpoint();
        }
    }
    db.store.drop_before(2 * PARTITION_MS).unwrap();
    db.engine.close().unwrap();
}

/// Everything there is to see, as text.
fn listed(db: &Db) -> Result<String, SeriesError> {
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    let options = db.store.options();
    let mut out = format!("{:?} {} {}", options.duplicates, options.series_max, options.metric_series_max);
    out += &format!(" floor {} keep {:?}\n", db.store.retention_floor_ms(), db.store.rules()?.keep_ms);
    out += &format!("{:?}\n{:?}\n", at.metadata(None, 9)?, at.exemplars(&[], i64::MIN, i64::MAX, 9)?);
    let mut selection = at.select(&[], i64::MIN, i64::MAX)?;
    while selection.next().is_some() {
        let mut samples = Samples::default();
        selection.samples(&mut samples)?;
        out += &format!("{} {:?}\n", selection.labels().unwrap(), samples.starts_ms);
        for (row, (time, bits)) in samples.bits().enumerate() {
            match samples.histograms.get(row).and_then(Option::as_ref) {
                Some(histogram) => out += &format!("{time} {histogram:?}\n"),
                None => out += &format!("{time} {bits:016x}\n"),
            }
        }
    }
    Ok(out)
}

#[test]
fn every_format_opens_and_accepts_appends() {
    if let Ok(version) = std::env::var("UPDATE_FIXTURES") {
        let dir = fixtures().join(version);
        assert!(!dir.exists(), "a fixture of a released format does not change");
        write(&dir.join("db"));
        let temp = tempfile::tempdir().unwrap();
        copy(&dir.join("db"), temp.path());
        fs::write(dir.join("expected.txt"), listed(&open(temp.path()).unwrap()).unwrap()).unwrap();
    }
    let mut versions = 0;
    for fixture in fs::read_dir(fixtures()).unwrap() {
        let (fixture, temp) = (fixture.unwrap().path(), tempfile::tempdir().unwrap());
        copy(&fixture.join("db"), temp.path());
        let expected = fs::read_to_string(fixture.join("expected.txt")).unwrap();
        let db = open(temp.path()).unwrap();
        assert_eq!(listed(&db).unwrap(), expected);
        assert!(db.engine.verify().unwrap().violations.is_empty());
        db.compact();
        assert_eq!(listed(&db).unwrap(), expected, "merged and written anew by this version");
        db.append(&[("counter{job=a}", 9 * PARTITION_MS, 5.0), ("new", 9 * PARTITION_MS, 6.0)]);
        assert_eq!(db.show("new"), format!("new: {}=6", 9 * PARTITION_MS));
        drop(db);
        assert!(open(temp.path()).unwrap().show("counter").ends_with("=5"));
        versions += 1;
    }
    assert!(versions > 0);
}

#[test]
fn changed_bytes_are_refused_or_harmless() {
    let temp = tempfile::tempdir().unwrap();
    let (good, dir) = (temp.path().join("good"), temp.path().join("db"));
    write(&good);
    let expected = listed(&open(&good).unwrap()).unwrap();
    let mut all = Vec::new();
    files(&good, &mut all);
    let runs: Vec<&PathBuf> =
        all.iter().filter(|path| path.extension().is_some_and(|e| e == "run")).collect();
    assert!(runs.len() > 3, "{runs:?}");
    for path in runs {
        let original = fs::read(path).unwrap();
        let used = original.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (0..used).step_by(used / 16 + 1) {
            let _ = fs::remove_dir_all(&dir);
            copy(&good, &dir);
            let mut bytes = original.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(dir.join(path.strip_prefix(&good).unwrap()), bytes).unwrap();
            let Ok(db) = open(&dir) else { continue };
            match listed(&db) {
                Ok(found) => {
                    assert_eq!(found, expected, "{} byte {at} changed unnoticed", path.display());
                    let report = db.engine.verify().unwrap();
                    assert!(
                        !report.store.damage.is_empty(),
                        "{} byte {at} changed unnoticed",
                        path.display()
                    );
                }
                Err(error) => {
                    assert!(error.to_string().contains(".run"), "{} byte {at}: {error}", path.display())
                }
            }
        }
    }
}
