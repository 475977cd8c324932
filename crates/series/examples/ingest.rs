//! Ingest and read throughput with durable commits: `cargo run -p ropewalk-series --example ingest
//! [DIRECTORY]`.
//!
//! With `SERIES=1000000` in the environment: one sample for each of so many series, repeatedly, `BATCH` of
//! them per commit, and how long small concurrent commits wait for their place in the order. Otherwise three
//! workloads: batches of 2,000 samples of one series with random values and overlapping times, over 102,000
//! series (from the mytsdb report); scrapes of 10,000 series, one integer sample each; and a cluster's mix of
//! metrics, for its size.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing)] // an example that measures

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_engine::{Durability, Engine, EngineOptions};
use ropewalk_labels::{Labels, Matcher, Samples};
use ropewalk_series::{SampleBatch, SeriesModel, SeriesStore};
use ropewalk_vfs::Env;

const SECONDS: f64 = 5.0;
const WRITERS: u64 = 4;

fn series(i: u64) -> Labels {
    let (metric, pod, namespace) = (i % 102, i / 102 % 100, i / 10_200);
    Labels::new([
        ("__name__", format!("metric_{metric}_total")),
        ("pod", format!("pod-{pod}")),
        ("namespace", format!("ns-{namespace}")),
        ("service", "k8s-benchmark".to_owned()),
    ])
    .unwrap()
}

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Runs `fill` in every writer until the time is over; prints samples per second and waits.
fn run(name: &str, store: &SeriesStore, fill: impl Fn(u64, u64, &mut Noise, &mut SampleBatch) + Sync) {
    let samples = AtomicU64::new(0);
    let begin = Instant::now();
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (fill, samples) = (&fill, &samples);
                scope.spawn(move || {
                    let mut noise = Noise(writer * 7919 + 1);
                    let mut batch = SampleBatch::new();
                    let mut waits = Vec::new();
                    for round in 0.. {
                        if begin.elapsed().as_secs_f64() > SECONDS {
                            break;
                        }
                        batch.clear();
                        fill(writer, round, &mut noise, &mut batch);
                        let start = Instant::now();
                        let done = store.append_with(&batch, Durability::Sync).unwrap();
                        waits.push(start.elapsed());
                        samples.fetch_add(done.samples, Ordering::Relaxed);
                    }
                    waits
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let rate = samples.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
    waits.sort_unstable();
    let at = |share: f64| waits[(waits.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{name}: {:.2}M samples/s durable; append p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        rate / 1e6,
        at(0.5),
        at(0.99),
        waits[waits.len() - 1].as_secs_f64() * 1e3
    );
}

/// Bytes of memory that the process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Appends ten samples repeatedly, with pauses, until `over`; returns how long each append waited to be
/// ordered.
fn beside(store: &SeriesStore, over: &AtomicBool) -> Vec<Duration> {
    let labels: Vec<Labels> = (0..10).map(|i| Labels::new([("beside", i.to_string())]).unwrap()).collect();
    let (mut batch, mut waits) = (SampleBatch::new(), Vec::new());
    while !over.load(Ordering::Acquire) {
        batch.clear();
        labels.iter().for_each(|labels| batch.push(labels, 1_700_000_000_000 + waits.len() as i64, 1.0));
        let begin = Instant::now();
        store.append_with(&batch, Durability::Async { interval: Duration::from_secs(1) }).unwrap();
        waits.push(begin.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    waits.sort_unstable();
    waits
}

/// Many series with one sample each, over and over.
fn many(dir: &std::path::Path, count: u64, size: u64) {
    let open = || {
        let model = Arc::new(SeriesModel::new(1));
        let engine =
            Arc::new(Engine::open(&Env::real(), dir, EngineOptions::default(), vec![model.clone()]).unwrap());
        (SeriesStore::new(engine.clone(), model, "many").unwrap(), engine)
    };
    let (store, engine) = open();
    let labels = |i: u64| {
        Labels::new([
            ("__name__", format!("container_metric_{}", i % 50)),
            ("pod", format!("pod-{}", i / 50)),
            ("namespace", format!("ns-{}", i % 10)),
            ("node", format!("node-{}", i / 50 % 100)),
            ("job", "kubelet".to_owned()),
        ])
        .unwrap()
    };
    let mut batch = SampleBatch::new();
    for round in 0..4_i64 {
        let (mut seconds, over) = (0.0, AtomicBool::new(false));
        let waits = std::thread::scope(|scope| {
            let beside = scope.spawn(|| beside(&store, &over));
            for start in (0..count).step_by(size as usize) {
                batch.clear();
                for i in start..(start + size).min(count) {
                    batch.push(&labels(i), 1_700_000_000_000 + round * 15_000, (i + round as u64) as f64);
                }
                let begin = Instant::now();
                store.append(&batch).unwrap();
                seconds += begin.elapsed().as_secs_f64();
            }
            over.store(true, Ordering::Release);
            beside.join().unwrap()
        });
        let longest: Vec<String> =
            waits.iter().rev().take(5).map(|wait| format!("{:.1}", wait.as_secs_f64() * 1e3)).collect();
        println!(
            "round {round}: {count} series in {seconds:.2} s, {:.2}M/s; resident {} MB; longest concurrent waits {} ms",
            count as f64 / seconds / 1e6,
            resident() >> 20,
            longest.join(", ")
        );
    }
    drop((store, engine));
    let begin = Instant::now();
    let (store, engine) = open();
    println!("reopened in {:.2} s; resident {} MB", begin.elapsed().as_secs_f64(), resident() >> 20);
    let snapshot = engine.snapshot();
    let begin = Instant::now();
    let found =
        store.at(&snapshot).count(&[Matcher::equal("pod", "pod-77"), Matcher::equal("job", "kubelet")]);
    println!("one pod's {found} series found in {:.3} ms", begin.elapsed().as_secs_f64() * 1e3);
}

/// 1,000 series of a cluster, 2,000 scrapes: bytes per sample after compaction.
fn mixed(engine: &Arc<Engine>, store: &SeriesStore) {
    let mut noise = Noise(99);
    let kinds = [
        ("cpu_ms", 10),
        ("memory", 10),
        ("net", 10),
        ("fs", 10),
        ("requests", 10),
        ("ready", 10),
        ("errors", 10),
        ("phase", 5),
        ("restarts", 5),
        ("load5", 5),
        ("transmit", 5),
        ("bucket", 9),
        ("up", 1),
    ];
    let mut values = vec![0.0_f64; 1000];
    let names: Vec<(&str, Labels)> = (0..1000)
        .map(|i| {
            let mut at: usize = i % 100;
            let kind = kinds
                .iter()
                .find(|(_, n)| {
                    let here = at < *n;
                    at = at.saturating_sub(*n);
                    here
                })
                .map_or("up", |k| k.0);
            let labels = [
                ("__name__", kind.to_owned()),
                ("pod", format!("pod-{i}")),
                ("namespace", format!("ns-{}", i % 10)),
                ("node", format!("node-{}", i % 20)),
                ("job", "k8s".to_owned()),
            ];
            (kind, Labels::new(labels).unwrap())
        })
        .collect();
    let mut batch = SampleBatch::new();
    for step in 0..2000_i64 {
        batch.clear();
        for ((kind, labels), value) in names.iter().zip(&mut values) {
            let x = noise.next() >> 8;
            match *kind {
                "cpu_ms" => *value += (x % 15_000) as f64 / 1000.0,
                "memory" if !x.is_multiple_of(3) => *value = ((x >> 8) % 128 + 4096) as f64 * 4096.0,
                "net" | "fs" | "requests" | "transmit" => *value += (x % 100_000) as f64,
                "errors" | "restarts" => *value += f64::from(x.is_multiple_of(20)),
                "load5" => *value = (x % 400) as f64 / 100.0,
                "bucket" => *value += (x % 2) as f64,
                "ready" | "phase" | "up" => *value = 1.0,
                _ => {}
            }
            let shown = if *kind == "cpu_ms" { (*value * 1000.0).round() / 1000.0 } else { *value };
            batch.push(labels, 1_700_000_000_000 + step * 15_000, shown);
        }
        store.append_with(&batch, Durability::Buffered).unwrap();
    }
    engine.compact().unwrap();
    let stats = engine.stats();
    let of = |name: &str| stats.store.keyspaces.iter().find(|k| k.name == name).map_or(0, |k| k.file_bytes);
    let raw = stats.store.keyspaces.iter().find(|k| k.name == "series").map_or(0, |k| k.raw_bytes);
    println!(
        "mixed: 2,000,000 samples, {:.3} bytes each in files of chunks ({:.3} of keys and values), {:.3} with labels",
        of("series") as f64 / 2e6,
        raw as f64 / 2e6,
        (of("series") + of("series.labels")) as f64 / 2e6
    );
}

fn main() {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let dir = dir.join(format!("ropewalk-ingest-{}", std::process::id()));
    if let Some(count) = std::env::var("SERIES").ok().and_then(|count| count.parse().ok()) {
        let size = std::env::var("BATCH").ok().and_then(|size| size.parse().ok()).unwrap_or(20_000);
        many(&dir, count, size);
        std::fs::remove_dir_all(&dir).unwrap();
        return;
    }
    let model = Arc::new(SeriesModel::new(1));
    let options = EngineOptions::default();
    {
        let dir = dir.join("mixed");
        let model = Arc::new(SeriesModel::new(1));
        let engine =
            Arc::new(Engine::open(&Env::real(), &dir, options.clone(), vec![model.clone()]).unwrap());
        mixed(&engine, &SeriesStore::new(engine.clone(), model, "mixed").unwrap());
    }
    let engine = Arc::new(Engine::open(&Env::real(), &dir, options, vec![model.clone()]).unwrap());
    let report = SeriesStore::new(engine.clone(), model.clone(), "report").unwrap();
    let all: Vec<Labels> = (0..102_000).map(series).collect();
    let begin = Instant::now();
    let mut batch = SampleBatch::new();
    for labels in &all {
        batch.push(labels, 0, 0.0);
    }
    report.append(&batch).unwrap();
    println!("{} new series in {:.2} s", all.len(), begin.elapsed().as_secs_f64());

    run("report shape, one series per batch of 2,000", &report, |_, round, noise, batch| {
        let mut group = batch.series(&all[(noise.next() % all.len() as u64) as usize]);
        for i in 0..2000 {
            let value = (noise.next() >> 11) as f64 / (1_u64 << 53) as f64 * 100.0;
            group.push(1_700_000_000_000 + round as i64 + i * 15_000, value);
        }
    });
    let store = SeriesStore::new(engine.clone(), model.clone(), "scrapes").unwrap();
    run("scrapes of 10,000 series", &store, |writer, round, noise, batch| {
        for i in 0..10_000 {
            let labels = &all[(writer * 10_000 + i) as usize];
            batch.push(
                labels,
                1_700_000_000_000 + round as i64 * 15_000,
                (noise.next() % 1000 + round * 1000) as f64,
            );
        }
    });
    let begin = Instant::now();
    engine.checkpoint().unwrap();
    println!("checkpoint {:.2} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    engine.compact().unwrap();
    println!("compaction {:.2} s", begin.elapsed().as_secs_f64());
    let stats = engine.stats();
    let chunks = stats.store.keyspaces.iter().find(|k| k.name == "series").unwrap();
    println!(
        "{} chunks, {} MB of files, log {} MB",
        chunks.entries,
        chunks.file_bytes >> 20,
        stats.log.appended_bytes >> 20
    );

    let snapshot = engine.snapshot();
    let at = store.at(&snapshot);
    for (name, from) in [("all samples", i64::MIN), ("five minutes", 1_700_000_300_000)] {
        let begin = Instant::now();
        let to = if from == i64::MIN { i64::MAX } else { from + 300_000 };
        let some = Matcher::equal("service", "k8s-benchmark");
        let mut selection = at.select(&[some], from, to).unwrap();
        let (mut samples, mut count, mut series) = (Samples::default(), 0, 0);
        while selection.next().is_some() {
            samples.clear();
            count += selection.samples(&mut samples).unwrap();
            series += 1;
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "read {name}: {series} series, {count} samples in {:.1} ms, {:.1}M/s",
            seconds * 1e3,
            count as f64 / seconds / 1e6
        );
    }
    drop(snapshot);
    drop((report, store, engine));
    let begin = Instant::now();
    let model = Arc::new(SeriesModel::new(1));
    let engine = Engine::open(&Env::real(), &dir, EngineOptions::default(), vec![model]).unwrap();
    println!("reopened in {:.2} s", begin.elapsed().as_secs_f64());
    drop(engine);
    std::fs::remove_dir_all(&dir).unwrap();
}
