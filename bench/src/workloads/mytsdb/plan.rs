//! `bench mytsdb`: the workload of the mytsdb report over remote write and the query API, compared with
//! Prometheus and VictoriaMetrics, under one load generator.
//!
//! Phases of one measurement, on one server: writers alone; writers and readers; readers alone; paced; freshness; size; restart.
//! Ours acknowledges a write after its sync. Prometheus acknowledges when its log is written to the system
//! and syncs it with each segment; VictoriaMetrics acknowledges from memory and writes seconds later. Neither
//! offers more over this protocol.

use crate::harness::plan::Better;
use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};

/// As far as the report states it.
pub const MACHINE: &str =
    "the author's laptop (macOS), cores not named, December 2025; writes not acknowledged";

const PEERS: &[&str] = &["prometheus", "victoriametrics"];
/// Series of the honest lane.
const SERIES: u64 = 10_000;

/// The plan; `quick` writes a fifth.
pub fn plan(quick: bool) -> Plan {
    let (requests, seconds) = if quick { (100, 4.0) } else { (500, 20.0) };
    let task =
        Task { rows: SERIES, lookups: requests, seconds, threads: 16, ..Task::new(Group::MytsdbHonest) };
    let rounds = 1;
    Plan { name: "mytsdb", steps: vec![Step { task, victim: None, peers: PEERS, rounds, rows: rows() }] }
}

fn rows() -> Vec<Row> {
    let row = |id: &str, what: &str, unit: &'static str, better: Better| {
        Row::new(format!("honest/{id}"), what, unit, better, id)
    };
    vec![
        row("write/samples_per_s", "16 writers alone, 2,500 samples a request", "samples/s", Higher)
            .durable("sync"),
        row("write/p50_ms", "the same, median", "ms", Lower).durable("sync"),
        row("write/p99_ms", "the same, 99th percentile", "ms", Lower).durable("sync"),
        row("write/max_ms", "the same, longest", "ms", Lower).durable("sync"),
        row("cpu_us_per_sample", "the same, the server's processor time for each sample", "µs", Lower),
        row("write/generator_us_per_sample", "the same, the load generator's", "µs", Lower),
        row("mixed/samples_per_s", "16 writers with 8 readers", "samples/s", Higher)
            .durable("sync")
            .reported(1_577_572.0),
        row("mixed/queries_per_s", "8 readers with 16 writers, correct results", "queries/s", Higher)
            .reported(137.4),
        row("mixed/write_p99_ms", "writes during reads, 99th percentile", "ms", Lower)
            .durable("sync")
            .reported(507.32),
        row("mixed/read_p99_ms", "reads during writes, 99th percentile", "ms", Lower).reported(715.13),
        row("mixed/series_per_answer", "series in a mean result during writes", "series", Higher),
        row("read/queries_per_s", "8 readers alone", "queries/s", Higher),
        row("read/p50_ms", "the same, median", "ms", Lower),
        row("read/p99_ms", "the same, 99th percentile", "ms", Lower),
        row("read/hot_p99_ms", "the same, the 37 hot queries", "ms", Lower),
        row("read/cold_p99_ms", "the same, the 12 cold queries", "ms", Lower),
        row("read/new/queries_per_s", "8 readers alone, without caches", "queries/s", Higher),
        row("read/new/p99_ms", "the same, 99th percentile", "ms", Lower),
        row("read/new/hot_p99_ms", "the same, the 37 hot queries", "ms", Lower).reported(617.6),
        row("read/new/cold_p99_ms", "the same, the 12 cold queries", "ms", Lower).reported(830.0),
        row("paced/write_p99_ms", "200,000 samples/s with 8 readers that pause 0.2 s: writes", "ms", Lower)
            .durable("sync"),
        row("paced/read_p99_ms", "the same, reads", "ms", Lower),
        row("freshness_ms", "from the answer of a write to the first query that sees it", "ms", Lower),
        row("answers_equal", "of the 49 queries, answers equal to Prometheus within 1e-6", "queries", Higher),
        row("bytes_per_sample", "files without the log, merged, index included", "bytes", Lower),
        row("resident_mib", "memory that the server holds after the reads", "MiB", Lower),
        row("restart_s", "from start to the first answer", "s", Lower),
    ]
}
