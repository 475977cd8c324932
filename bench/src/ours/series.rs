//! Time series through the embedded API: every append is durable and visible when it returns.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk::series::{Labels, Matcher, SampleBatch, Samples, SeriesStore};
use ropewalk::{Database, Durability, Options};
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};

/// A scrape every fifteen seconds.
const STEP_MS: i64 = 15_000;
const START_MS: i64 = 1_700_000_000_000;
/// Scrapes of the mixed set: 8.3 hours, over midnight.
const MIXED_STEPS: i64 = 2_000;
/// Rounds over the series of `many`, in addition to the one that creates them.
const MANY_ROUNDS: i64 = 3;

fn open(dir: &Path) -> Result<(Database, SeriesStore)> {
    let db = Options::new().open(dir.join("db"))?;
    let store = db.series("metrics")?;
    Ok((db, store))
}

/// The label sets of the mytsdb report: 102 metrics, 100 pods, 10 namespaces.
fn report_labels(i: u64) -> Result<Labels> {
    let (metric, pod, namespace) = (i % 102, i / 102 % 100, i / 10_200);
    Ok(Labels::new([
        ("__name__", format!("metric_{metric}_total")),
        ("pod", format!("pod-{pod}")),
        ("namespace", format!("ns-{namespace}")),
        ("service", "k8s-benchmark".to_owned()),
    ])?)
}

fn make_all(store: &SeriesStore, all: &[Labels]) -> Result<()> {
    let mut batch = SampleBatch::new();
    for some in all.chunks(10_000) {
        batch.clear();
        some.iter().for_each(|labels| batch.push(labels, 0, 0.0));
        store.append(&batch)?;
    }
    Ok(())
}

/// Appends the batches of `fill`, by all writers, until the time is over. Preparing the batch counts for the
/// rate, as in the report, and not for the latencies.
fn write(
    task: &Task,
    store: &SeriesStore,
    fill: impl Fn(u64, i64, &mut SplitMix, &mut SampleBatch) + Sync,
) -> Result<Figure> {
    let samples = AtomicU64::new(0);
    let begin = Instant::now();
    let one = |writer: u64| -> Result<Latencies> {
        let (mut random, mut batch) = (SplitMix::new(writer + 1), SampleBatch::new());
        let mut latencies = Latencies::default();
        for round in 0.. {
            if begin.elapsed().as_secs_f64() > task.seconds {
                break;
            }
            batch.clear();
            fill(writer, round, &mut random, &mut batch);
            let started = Instant::now();
            let done = store.append_with(&batch, Durability::Sync)?;
            latencies.record(started.elapsed());
            samples.fetch_add(done.samples, Ordering::Relaxed);
        }
        Ok(latencies)
    };
    let mut all = Latencies::default();
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..task.threads as u64).map(|w| scope.spawn(move || one(w))).collect();
        for thread in threads {
            all.merge(&thread.join().ok().context("a writer panicked")??);
        }
        anyhow::Ok(())
    })?;
    let rate = samples.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
    Ok(Figure::one(rate).with(&all))
}

/// Batches of one series each, random values, times that overlap almost fully with those of the batch before.
pub(crate) fn report(task: &Task) -> Result<Outcome> {
    let (db, store) = open(&task.dir)?;
    let all = (0..task.rows).map(report_labels).collect::<Result<Vec<_>>>()?;
    make_all(&store, &all)?;
    let count = task.batch as i64;
    let figure = write(task, &store, |_, round, random, batch| {
        let mut group = batch.series(random.pick(&all));
        for i in 0..count {
            let value = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * 100.0;
            group.push(START_MS + round + i * STEP_MS, value);
        }
    })?;
    let mut outcome = Outcome::default();
    outcome.figure("write", figure);
    db.close()?;
    Ok(outcome)
}

/// Every writer scrapes separate series, one sample each.
pub(crate) fn scrapes(task: &Task) -> Result<Outcome> {
    let (db, store) = open(&task.dir)?;
    let all = (0..task.rows).map(report_labels).collect::<Result<Vec<_>>>()?;
    make_all(&store, &all)?;
    let figure = write(task, &store, |writer, round, random, batch| {
        let first = writer as usize * task.batch;
        for labels in all.get(first..first + task.batch).unwrap_or_default() {
            let value = (random.below(1000) + round as u64 * 1000) as f64;
            batch.push(labels, START_MS + round * STEP_MS, value);
        }
    })?;
    let mut outcome = Outcome::default();
    outcome.figure("write", figure);
    db.close()?;
    Ok(outcome)
}

/// The mix of a cluster's metrics: name, and its share of a hundred series.
const KINDS: [(&str, u64); 13] = [
    ("container_cpu_usage_seconds_total", 10),
    ("container_memory_working_set_bytes", 10),
    ("container_network_receive_bytes_total", 10),
    ("container_fs_reads_bytes_total", 10),
    ("http_requests_total", 10),
    ("kube_pod_status_ready", 10),
    ("error_count_total", 10),
    ("kube_pod_status_phase", 5),
    ("kube_pod_container_status_restarts_total", 5),
    ("node_load5", 5),
    ("container_network_transmit_bytes_total", 5),
    ("http_request_duration_seconds_bucket", 9),
    ("up", 1),
];

fn kind(i: u64) -> usize {
    let mut left = i % 100;
    let of = |(_, share): &(&str, u64)| {
        let here = left < *share;
        left = left.saturating_sub(*share);
        here
    };
    KINDS.iter().position(of).unwrap_or(0)
}

fn mixed_labels(i: u64) -> Result<Labels> {
    let name = KINDS.get(kind(i)).map_or("up", |(name, _)| *name);
    Ok(Labels::new([
        ("__name__", name.to_owned()),
        ("cluster", format!("cluster-{}", i % 2)),
        ("region", format!("region-{}", i % 3)),
        ("namespace", format!("namespace-{}", i % 10)),
        ("pod", format!("pod-{}", i / 100)),
        ("node", format!("node-{}", i % 20)),
        ("service", format!("service-{}", i % 20)),
        ("instance", format!("10.0.{}.{}:9100", i / 200, i % 200)),
        ("job", "kubernetes".to_owned()),
    ])?)
}

/// The next value of a series: milliseconds of CPU, pages of memory, bytes, constants, rare events, loads.
fn advance(kind: usize, value: &mut f64, random: &mut SplitMix) -> f64 {
    match kind {
        0 => {
            *value += random.below(15_000) as f64;
            return *value / 1000.0;
        }
        1 if random.below(3) > 0 => *value = (4096 + random.below(128)) as f64 * 4096.0,
        2..=4 | 10 => *value += random.below(100_000) as f64,
        5 | 7 | 12 => *value = 1.0,
        6 | 8 => *value += f64::from(u8::from(random.below(20) == 0)),
        9 => *value = random.below(400) as f64 / 100.0,
        11 => *value += random.below(2) as f64,
        _ => {}
    }
    *value
}

/// Eight hours of scrapes, compacted: bytes per sample, and the speed of reading all of them.
pub(crate) fn mixed(task: &Task) -> Result<Outcome> {
    let (db, store) = open(&task.dir)?;
    let all = (0..task.rows).map(mixed_labels).collect::<Result<Vec<_>>>()?;
    let mut values = vec![0.0; all.len()];
    let (mut random, mut batch) = (SplitMix::new(5), SampleBatch::new());
    for step in 0..MIXED_STEPS {
        batch.clear();
        for ((i, labels), value) in (0..).zip(&all).zip(&mut values) {
            batch.push(labels, START_MS + step * STEP_MS, advance(kind(i), value, &mut random));
        }
        store.append_with(&batch, Durability::Buffered)?;
    }
    db.compact()?;
    let stats = db.stats().store;
    let bytes = |name: &str| {
        let files = stats.keyspaces.iter().filter(|k| k.name.starts_with(name)).map(|k| k.file_bytes);
        files.sum::<u64>() as f64
    };
    let samples = task.rows as f64 * MIXED_STEPS as f64;
    let chunks = stats.keyspaces.iter().find(|k| k.name == "series").map_or(0, |k| k.file_bytes);
    let mut outcome = Outcome::default();
    outcome.figure("bytes", Figure::one(bytes("series") / samples));
    outcome.figure("chunks", Figure::one(chunks as f64 / samples));
    let mut read = Figure::default();
    for _ in 0..task.passes {
        let started = Instant::now();
        let snapshot = db.snapshot();
        let at = snapshot.series(&store);
        let mut selection = at.select(&[Matcher::equal("job", "kubernetes")], i64::MIN, i64::MAX)?;
        let (mut found, mut count) = (Samples::default(), 0);
        while selection.next().is_some() {
            found.clear();
            count += selection.samples(&mut found)?;
        }
        ensure!(count as f64 == samples, "{count} samples were read of {samples}");
        read.samples.push(samples / started.elapsed().as_secs_f64());
    }
    outcome.figure("read", read);
    db.close()?;
    Ok(outcome)
}

/// Many series and a small concurrent writer: the effect of creating and writing them on others.
pub(crate) fn many(task: &Task) -> Result<Outcome> {
    let (db, store) = open(&task.dir)?;
    let labels = |i: u64| {
        Labels::new([
            ("__name__", format!("container_metric_{}", i % 50)),
            ("pod", format!("pod-{}", i / 50)),
            ("namespace", format!("ns-{}", i % 10)),
            ("node", format!("node-{}", i / 50 % 100)),
            ("job", "kubelet".to_owned()),
        ])
    };
    let beside_labels =
        (0..10).map(|i| Ok(Labels::new([("beside", format!("{i}"))])?)).collect::<Result<Vec<_>>>()?;
    let mut outcome = Outcome::default();
    let mut batch = SampleBatch::new();
    let mut rounds = Figure::default();
    for round in 0..=MANY_ROUNDS {
        let over = AtomicBool::new(false);
        let mut seconds = 0.0;
        let beside = std::thread::scope(|scope| {
            let beside = scope.spawn(|| beside(&store, &beside_labels, round, &over));
            // Preparing the batch, which formats labels, is not timed.
            for start in (0..task.rows).step_by(task.batch) {
                batch.clear();
                for i in start..(start + task.batch as u64).min(task.rows) {
                    batch.push(&labels(i)?, START_MS + round * STEP_MS, (i + round as u64) as f64);
                }
                let begin = Instant::now();
                store.append(&batch)?;
                seconds += begin.elapsed().as_secs_f64();
            }
            over.store(true, Ordering::Release);
            beside.join().ok().context("the concurrent writer panicked")?
        })?;
        let p99_ms = beside.quantile_us(0.99).unwrap_or_default() / 1e3;
        let rate = task.rows as f64 / seconds;
        if round == 0 {
            outcome.figure("create", Figure::one(rate));
            outcome.figure("beside_create", Figure::one(p99_ms).with(&beside));
        } else {
            rounds.samples.push(rate);
            outcome.figure("beside", Figure::one(p99_ms).with(&beside));
        }
    }
    outcome.figure("write", rounds);
    outcome.figure("resident", Figure::one(resident_mb()?));
    db.close()?;
    drop(store);
    let started = Instant::now();
    let (db, store) = open(&task.dir)?;
    outcome.figure("reopen", Figure::one(started.elapsed().as_secs_f64()));
    let snapshot = db.snapshot();
    let found = snapshot.series(&store).count(&[Matcher::equal("job", "kubelet")]);
    ensure!(found == task.rows, "{found} series of {}", task.rows);
    drop(snapshot);
    db.close()?;
    Ok(outcome)
}

/// Appends ten samples repeatedly, with pauses.
fn beside(store: &SeriesStore, labels: &[Labels], round: i64, over: &AtomicBool) -> Result<Latencies> {
    let (mut latencies, mut batch) = (Latencies::default(), SampleBatch::new());
    let mut time = START_MS + round * 1_000_000;
    while !over.load(Ordering::Acquire) {
        batch.clear();
        labels.iter().for_each(|labels| batch.push(labels, time, 1.0));
        time += 1;
        let started = Instant::now();
        store.append(&batch)?;
        latencies.record(started.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(latencies)
}

/// Resident memory of the process, including mapped files.
fn resident_mb() -> Result<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("reading /proc/self/statm")?;
    let pages: f64 = statm.split_whitespace().nth(1).context("statm has two numbers")?.parse()?;
    Ok(pages * 4096.0 / 1e6)
}
