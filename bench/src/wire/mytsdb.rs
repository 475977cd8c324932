//! `mytsdb`: 16 writers and 8 readers, a thread and a connection each, closed loop. Every request is
//! compressed before the clock starts; a write is timed from its first byte to the last of its response.
//!
//!   write ─▶ mixed ─▶ answers compared ─▶ read ─▶ paced ─▶ freshness ─▶ size on disk ─▶ restart
//!
//! Writers stay close together, because Prometheus rejects samples that are an hour older than its newest.
//! Readers query the newest step that all writers have had acknowledged, one second later, so that every
//! system must have it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::machine::disk_bytes;
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::report::OURS;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::mytsdb::data;
use ropewalk_bench::workloads::mytsdb::data::{MytsdbQuery, SAMPLES_PER_REQUEST, STEPS_PER_REQUEST, Writer};

use super::http::{Http, escaped};
use super::mytsdb_answers::Answers;
use super::servers::{PROMETHEUS, Server, VICTORIAMETRICS, cpu_of};

const READERS: u64 = 8;
/// Maximum lead of a writer over the slowest one, in requests.
const AHEAD: u64 = 30;
/// The paced phase: 80 requests a second in all, and the pause of readers between two queries.
const PACED_REQUESTS_PER_S: u64 = 80;
const PACED_PAUSE: Duration = Duration::from_millis(200);
/// VictoriaMetrics returns samples after two seconds at the earliest, and a series that was queried too early
/// after ten.
const SETTLES: Duration = Duration::from_secs(12);
const PROBES: usize = 5;

/// State shared by the threads of a phase.
struct Shared<'a> {
    http: &'a str,
    queries: &'a [MytsdbQuery],
    /// Acknowledged requests of each writer, over all phases.
    done: &'a [AtomicU64],
    stop: AtomicBool,
    /// True in the paced phase: threads pause.
    paced: bool,
    /// Disables caches: every query is evaluated again.
    anew: bool,
}

impl Shared<'_> {
    fn least(&self) -> u64 {
        self.done.iter().map(|done| done.load(Ordering::Relaxed)).min().unwrap_or_default()
    }
}

/// Results of the readers of a phase.
#[derive(Default)]
struct Reads {
    hot: Latencies,
    cold: Latencies,
    answers: u64,
    series: u64,
}

struct Phase {
    wall: Duration,
    writes: Latencies,
    write_max: Duration,
    reads: Reads,
    server: Duration,
    generator: Duration,
}

/// All phases on one server.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    let queries = data::queries()?;
    let paced_seconds = if task.seconds < 10.0 { 5 } else { 10 };
    let paced = PACED_REQUESTS_PER_S * paced_seconds / task.threads as u64;
    let requests = task.lookups as u64;
    let writers = data::writers(task.rows, requests + paced)?;
    ensure!(writers.len() == task.threads, "{} series need {} writers", task.rows, writers.len());
    let server = Server::start(system, &task.dir)?;
    let done: Vec<AtomicU64> = writers.iter().map(|_| AtomicU64::new(0)).collect();
    let mut outcome = Outcome::default();
    let phase = |upto: Option<u64>, readers: bool, paced: bool, anew: bool| -> Result<Phase> {
        let shared = Shared {
            http: &server.http,
            queries: &queries,
            done: &done,
            stop: AtomicBool::new(false),
            paced,
            anew,
        };
        run_phase(&server, &shared, &writers, (upto, readers), Duration::from_secs_f64(task.seconds))
    };
    let samples = |requests: u64| (requests * SAMPLES_PER_REQUEST * writers.len() as u64) as f64;

    let half = requests / 2;
    let wrote = phase(Some(half), false, false, false)?;
    let ms = |latencies: &Latencies, quantile: f64| latencies.quantile_us(quantile).unwrap_or_default() / 1e3;
    let mut figure = |name: &str, value: f64| outcome.figure(name, Figure::one(value));
    figure("write/samples_per_s", samples(half) / wrote.wall.as_secs_f64());
    figure("write/p50_ms", ms(&wrote.writes, 0.5));
    figure("write/p99_ms", ms(&wrote.writes, 0.99));
    figure("write/max_ms", wrote.write_max.as_secs_f64() * 1e3);
    figure("cpu_us_per_sample", wrote.server.as_secs_f64() * 1e6 / samples(half));
    figure("write/generator_us_per_sample", wrote.generator.as_secs_f64() * 1e6 / samples(half));

    let mixed = phase(Some(requests), true, false, false)?;
    figure("mixed/samples_per_s", samples(requests - half) / mixed.wall.as_secs_f64());
    figure("mixed/queries_per_s", mixed.reads.answers as f64 / mixed.wall.as_secs_f64());
    figure("mixed/write_p99_ms", ms(&mixed.writes, 0.99));
    figure("mixed/read_p99_ms", ms(&mixed.reads.all(), 0.99));
    figure("mixed/series_per_answer", mixed.reads.series as f64 / mixed.reads.answers.max(1) as f64);

    std::thread::sleep(SETTLES);
    let mut client = Http::connect(&server.http)?;
    let last = data::time_ms(requests * STEPS_PER_REQUEST - 1) / 1000 + 1;
    let answers = Answers::ask(&mut client, &queries, last)?;
    let kept = task.dir.parent().context("no directory above the data")?;
    if let Some(equal) = answers.equal_to_prometheus(kept, system == PROMETHEUS, &writers)? {
        figure("answers_equal", equal as f64);
    }

    let read = phase(None, true, false, false)?;
    figure("read/queries_per_s", read.reads.answers as f64 / read.wall.as_secs_f64());
    figure("read/p50_ms", ms(&read.reads.all(), 0.5));
    figure("read/p99_ms", ms(&read.reads.all(), 0.99));
    figure("read/hot_p99_ms", ms(&read.reads.hot, 0.99));
    figure("read/cold_p99_ms", ms(&read.reads.cold, 0.99));
    let anew = phase(None, true, false, true)?;
    figure("read/new/queries_per_s", anew.reads.answers as f64 / anew.wall.as_secs_f64());
    figure("read/new/p99_ms", ms(&anew.reads.all(), 0.99));
    figure("read/new/hot_p99_ms", ms(&anew.reads.hot, 0.99));
    figure("read/new/cold_p99_ms", ms(&anew.reads.cold, 0.99));
    figure("resident_mib", server.resident_mib()?);

    let slow = phase(Some(requests + paced), true, true, false)?;
    figure("paced/write_p99_ms", ms(&slow.writes, 0.99));
    figure("paced/read_p99_ms", ms(&slow.reads.all(), 0.99));

    let end = (requests + paced) * STEPS_PER_REQUEST;
    // The earlier connection was idle for a minute, which a server need not tolerate.
    figure("freshness_ms", freshness(&mut Http::connect(&server.http)?, end)?);
    let bytes = settle(system, server, &task.dir)?;
    figure("bytes_per_sample", bytes as f64 / samples(requests + paced));
    figure("restart_s", restart(system, &task.dir, end)?);
    // Systems with the same query language must find the same series.
    if system != VICTORIAMETRICS {
        outcome.digest("series of all answers", answers.digest());
    }
    Ok(outcome)
}

impl Reads {
    fn all(&self) -> Latencies {
        let mut all = Latencies::default();
        all.merge(&self.hot);
        all.merge(&self.cold);
        all
    }
}

/// Writers until each has `upto` requests, with concurrent readers; readers alone for `time`.
fn run_phase(
    server: &Server,
    shared: &Shared<'_>,
    writers: &[Writer],
    (upto, readers): (Option<u64>, bool),
    time: Duration,
) -> Result<Phase> {
    let (server_before, generator_before) = (server.cpu()?, cpu_of("self")?);
    let begin = Instant::now();
    let mut phase = Phase {
        wall: Duration::ZERO,
        writes: Latencies::default(),
        write_max: Duration::ZERO,
        reads: Reads::default(),
        server: Duration::ZERO,
        generator: Duration::ZERO,
    };
    std::thread::scope(|scope| -> Result<()> {
        let reading: Vec<_> = (0..READERS)
            .filter(|_| readers)
            .map(|number| scope.spawn(move || reader(shared, number)))
            .collect();
        let writing: Vec<_> = (0..)
            .zip(writers)
            .map_while(|(number, writer)| Some((number, writer, upto?)))
            .map(|(number, writer, upto)| scope.spawn(move || write(shared, number, writer, upto)))
            .collect();
        let mut failed = None;
        for writer in writing {
            match writer.join().map_err(|_| anyhow::anyhow!("a writer panicked")).flatten() {
                Ok((latencies, max)) => {
                    phase.writes.merge(&latencies);
                    phase.write_max = phase.write_max.max(max);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if upto.is_none() {
            std::thread::sleep(time);
        }
        phase.wall = begin.elapsed();
        shared.stop.store(true, Ordering::Relaxed);
        for reader in reading {
            match reader.join().map_err(|_| anyhow::anyhow!("a reader panicked")).flatten() {
                Ok(reads) => {
                    phase.reads.hot.merge(&reads.hot);
                    phase.reads.cold.merge(&reads.cold);
                    phase.reads.answers += reads.answers;
                    phase.reads.series += reads.series;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    })?;
    phase.server = server.cpu()? - server_before;
    phase.generator = cpu_of("self")? - generator_before;
    Ok(phase)
}

fn write(shared: &Shared<'_>, number: usize, writer: &Writer, upto: u64) -> Result<(Latencies, Duration)> {
    let mut client = Http::connect(shared.http)?;
    let (mut latencies, mut max) = (Latencies::default(), Duration::ZERO);
    let done = shared.done.get(number).context("no such writer")?;
    let pause = Duration::from_secs_f64(writer_pause(shared));
    let mut due = Instant::now() + pause.mul_f64(number as f64 / shared.done.len() as f64);
    for request in done.load(Ordering::Relaxed)..upto {
        while request > shared.least() + AHEAD {
            ensure!(!shared.stop.load(Ordering::Relaxed), "another writer failed");
            std::thread::sleep(Duration::from_micros(200));
        }
        if shared.paced {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += pause;
        }
        let body = writer.bodies.get(request as usize).context("no such request")?;
        let begin = Instant::now();
        let status = client.write(body);
        let took = begin.elapsed();
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                shared.stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
        };
        if !(200..300).contains(&status) {
            shared.stop.store(true, Ordering::Relaxed);
            anyhow::bail!("a write was answered with {status}: {}", String::from_utf8_lossy(&client.body));
        }
        latencies.record(took);
        max = max.max(took);
        done.store(request + 1, Ordering::Relaxed);
    }
    Ok((latencies, max))
}

fn writer_pause(shared: &Shared<'_>) -> f64 {
    if shared.paced { shared.done.len() as f64 / PACED_REQUESTS_PER_S as f64 } else { 0.0 }
}

fn reader(shared: &Shared<'_>, number: u64) -> Result<Reads> {
    let mut client = Http::connect(shared.http)?;
    let (hot, cold): (Vec<_>, Vec<_>) = shared.queries.iter().partition(|query| query.hot);
    let mut random = SplitMix::new(number);
    let mut reads = Reads::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let is_hot = random.below(5) < 4;
        let query = random.pick(if is_hot { &hot } else { &cold });
        let step = (shared.least() * STEPS_PER_REQUEST).saturating_sub(1);
        let mut path = path(query, data::time_ms(step) / 1000 + 1);
        if shared.anew {
            path.push_str("&nocache=1");
        }
        let begin = Instant::now();
        client.ask(&path)?;
        if is_hot { &mut reads.hot } else { &mut reads.cold }.record(begin.elapsed());
        reads.answers += 1;
        reads.series += series_in(&client.body);
        if shared.paced {
            std::thread::sleep(PACED_PAUSE);
        }
    }
    Ok(reads)
}

/// The request of a query, evaluated at `at` seconds.
pub(crate) fn path(query: &MytsdbQuery, at: i64) -> String {
    let text = escaped(&query.text);
    match query.range {
        None => format!("/api/v1/query?query={text}&time={at}"),
        Some((range, step)) => {
            format!("/api/v1/query_range?query={text}&start={}&end={at}&step={step}", at - range)
        }
    }
}

fn series_in(body: &[u8]) -> u64 {
    std::str::from_utf8(body).map_or(0, |text| text.matches("\"metric\":").count() as u64)
}

/// Milliseconds from the response to a write until a query returns it; the median of a few.
fn freshness(client: &mut Http, after: u64) -> Result<f64> {
    let mut found = Latencies::default();
    for probe in 0..PROBES {
        let name = format!("freshness_probe_{probe}");
        let body = data::probe(&name, data::time_ms(after), 1.0)?;
        let status = client.write(&body)?;
        ensure!((200..300).contains(&status), "a write was answered with {status}");
        let answered = Instant::now();
        let path = format!("/api/v1/query?query={name}&time={}&nocache=1", data::time_ms(after) / 1000 + 1);
        loop {
            let asked = answered.elapsed();
            client.ask(&path)?;
            if series_in(&client.body) > 0 {
                // Found by the first query: no wait was necessary.
                found.record(if asked < Duration::from_millis(1) { Duration::ZERO } else { asked });
                break;
            }
            ensure!(asked < Duration::from_secs(60), "an acknowledged sample is not visible");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(found.quantile_us(0.5).unwrap_or_default() / 1e3)
}

/// Makes the server merge its files, stops it, and measures its files without its log.
fn settle(system: &str, server: Server, dir: &Path) -> Result<u64> {
    let mut client = Http::connect(&server.http)?;
    let mut post = |path: &str| -> Result<()> {
        let status = client.post(path)?;
        ensure!((200..300).contains(&status), "{path}: {status}: {}", String::from_utf8_lossy(&client.body));
        Ok(())
    };
    match system {
        OURS => {
            post("/api/v1/admin/tsdb/clean_tombstones")?;
            server.stop()?;
            without(&dir.join("data"), &["log"])
        }
        PROMETHEUS => {
            // A snapshot includes the newest hours as a block.
            post("/api/v1/admin/tsdb/snapshot")?;
            server.stop()?;
            disk_bytes(&dir.join("data/snapshots"))
        }
        _ => {
            post("/internal/force_flush")?;
            post("/internal/force_merge")?;
            server.stop()?;
            disk_bytes(&dir.join("data"))
        }
    }
}

fn without(dir: &Path, left_out: &[&str]) -> Result<u64> {
    let mut bytes = disk_bytes(dir)?;
    for name in left_out {
        bytes -= disk_bytes(&dir.join(name))?;
    }
    Ok(bytes)
}

/// Seconds from the start until queries return the newest samples.
fn restart(system: &str, dir: &Path, steps: u64) -> Result<f64> {
    let begin = Instant::now();
    let server = Server::start(system, dir)?;
    let mut client = Http::connect(&server.http)?;
    let path =
        format!("/api/v1/query?query=count(up)&time={}&nocache=1", data::time_ms(steps - 1) / 1000 + 1);
    client.ask(&path)?;
    while series_in(&client.body) == 0 {
        ensure!(
            begin.elapsed() < Duration::from_secs(60),
            "the newest samples are not there after a restart"
        );
        std::thread::sleep(Duration::from_millis(5));
        client.ask(&path)?;
    }
    Ok(begin.elapsed().as_secs_f64())
}
