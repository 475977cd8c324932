//! Blocks that a real Prometheus wrote are imported completely, and damaged ones are refused.
//!
//! `tests/prometheus-block` was written by the library of Prometheus 3.15, with every kind of chunk and a deletion, and
//! `expected.txt` is what it reads back from it.

use std::fs;
use std::path::{Path, PathBuf};

use ropewalk_labels::{Bucket, LabelError, Samples};
use ropewalk_series::{BlockError, PrometheusBlock, SeriesError};
use ropewalk_vfs::{Env, OpenMode, Vfs};

use crate::Db;

/// Base of the times of the list.
const BASE: i64 = 1_699_999_200_000;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prometheus-block")
}

fn row(samples: &Samples, at: usize) -> String {
    let time = samples.times_ms[at] - BASE;
    let Some(h) = samples.histograms.get(at).and_then(Option::as_ref) else {
        return format!("{time} {:016x}", samples.values[at].to_bits());
    };
    let side = |buckets: &[Bucket]| {
        let each = buckets.iter().map(|b| format!(" {}:{}", b.index, b.count));
        each.collect::<String>()
    };
    let custom: Vec<String> =
        h.custom.iter().map(|b| if *b == 1e9 { "1e+09".into() } else { b.to_string() }).collect();
    format!(
        "{time} histogram {} {} {} {} {} {} |{} |{} | [{}]",
        h.hint as u8,
        h.schema,
        h.zero_threshold,
        h.zero_count,
        h.count,
        h.sum,
        side(&h.positive),
        side(&h.negative),
        custom.join(" ")
    )
}

/// Everything of a database, as the list has it.
fn listed(db: &Db) -> String {
    let snapshot = db.engine.snapshot();
    let at = db.store.at(&snapshot);
    let mut selection = at.select(&[], i64::MIN, i64::MAX).unwrap();
    let mut all = Vec::new();
    while selection.next().is_some() {
        let labels = selection.labels().unwrap();
        let each: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let mut samples = Samples::default();
        selection.samples(&mut samples).unwrap();
        let rows = (0..samples.len()).map(|at| row(&samples, at) + "\n").collect::<String>();
        all.push(format!("{{{}}}\n{rows}", each.join(", ")));
    }
    all.sort();
    all.concat()
}

#[test]
fn block_is_imported_completely() {
    let db = Db::memory();
    let block = PrometheusBlock::open(&*Env::real().vfs, &fixture()).unwrap();
    let done = db.store.import_block(&block).unwrap();
    let expected = fs::read_to_string(fixture().join("expected.txt")).unwrap();
    let count = |text: &str| text.lines().filter(|line| !line.starts_with('{')).count() as u64;
    assert_eq!((done.series, done.samples), (8, count(&expected)));
    let found = listed(&db);
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
    // Once more is the same, and it is the same in files.
    db.store.import_block(&block).unwrap();
    db.compact();
    assert_eq!(listed(&db), expected);
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

/// The fixture on a disk in memory, with one file changed.
fn changed(name: &str, bytes: &[u8]) -> Env {
    let env = Env::memory();
    env.vfs.create_dir_all(Path::new("/block/chunks")).unwrap();
    for file in ["index", "tombstones", "chunks/000001"] {
        let original = fs::read(fixture().join(file)).unwrap();
        let bytes = if file == name { bytes } else { &original };
        let to = env.vfs.open(&Path::new("/block").join(file), OpenMode::CreateNew).unwrap();
        to.write_all_at(bytes, 0).unwrap();
    }
    env
}

fn read(vfs: &dyn Vfs) -> Result<u64, BlockError> {
    let block = PrometheusBlock::open(vfs, Path::new("/block"))?;
    let mut samples = 0;
    block.each_series(|_, found| {
        samples += found.len() as u64;
        Ok(())
    })?;
    Ok(samples)
}

#[test]
fn damage_is_named_by_file() {
    let whole = read(&*changed("", &[]).vfs).unwrap();
    for name in ["index", "tombstones", "chunks/000001"] {
        let original = fs::read(fixture().join(name)).unwrap();
        let mut harmless = 0;
        for at in (0..original.len()).step_by(original.len() / 97 + 1) {
            let mut bytes = original.clone();
            bytes[at] ^= 1 << (at % 8);
            match read(&*changed(name, &bytes).vfs) {
                // Padding, postings, and tables for queries: nothing that is read here.
                Ok(samples) => {
                    assert_eq!(samples, whole, "{name} byte {at}");
                    harmless += 1;
                }
                Err(BlockError::Store(SeriesError::Label(LabelError::InvalidLabels { .. }))) => {
                    panic!("{name} byte {at}: the checksum should have told")
                }
                Err(error) => assert!(error.to_string().contains(name), "{name} byte {at}: {error}"),
            }
            let cut = read(&*changed(name, &original[..at]).vfs);
            assert!(cut.is_err(), "{name} cut at {at}");
        }
        assert!(name == "index" || harmless < 5, "{name}: {harmless}");
    }
}

#[test]
fn other_formats_are_named() {
    let mut index = fs::read(fixture().join("index")).unwrap();
    index[4] = 1;
    let error = read(&*changed("index", &index).vfs).unwrap_err();
    assert_eq!(error.to_string(), "/block/index: version 1 of the index is not supported");
    let mut chunks = fs::read(fixture().join("chunks/000001")).unwrap();
    chunks[4] = 9;
    let error = read(&*changed("chunks/000001", &chunks).vfs).unwrap_err();
    assert_eq!(error.to_string(), "/block/chunks/000001: version 9 of chunk files is not supported");
    let error = PrometheusBlock::open(&*Env::memory().vfs, Path::new("/nothing")).map(|_| ()).unwrap_err();
    assert!(matches!(error, BlockError::Io { .. }), "{error}");
}
