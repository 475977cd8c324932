//! The protocol between the harness and a worker process: a [`Task`] as arguments, an [`Outcome`] as one JSON
//! line, the last of the output (a peer may print other lines before).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::workloads::kernel::rows::Order;

/// Measurement of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Load, disk, point reads and scans of `--rows` rows.
    Ordered,
    /// Durable commits by `--threads` threads.
    Commit,
    /// Durable commits through the submit call.
    Submit,
    /// Event appends of `--batch` events by `--threads` threads.
    Append,
    /// Conditional appends of one event.
    Conditional,
    /// Queries over `--rows` preloaded events.
    Queries,
    /// Preloads `--rows` events, prints `ready`, and appends until killed.
    Fill,
    /// Opens a store that was killed.
    Reopen,
    /// The rows of the Opossum report.
    Opossum,
    /// The rows of the Opossum report over `--rows` preloaded events.
    OpossumAt,
    /// The rows of the OmenDB report.
    Omendb,
    /// Reads and durable commits of `--rows` rows during a load at full speed.
    Busy,
    /// YCSB's workloads on `--rows` rows by `--threads` threads.
    Ycsb,
    /// Inserts of documents by `--threads` threads, `--lookups` in all.
    BundocInsert,
    /// Reads of documents by id.
    BundocFind,
    /// Replacements of documents.
    BundocUpdate,
    /// All three; `--batch` percent are reads.
    BundocMix,
    /// `--batch` documents in one transaction.
    BundocBatch,
    /// Preloads `--rows` documents, prints `ready`, and inserts until killed.
    BundocFill,
    /// Opens a store of documents that was killed.
    BundocReopen,
    /// Transactions of three updates and an insert over `--rows` accounts by `--threads` threads.
    Tpcb,
    /// Samples in the shape of the mytsdb report: `--batch` of one of `--rows` series, by `--threads` writers.
    SeriesReport,
    /// Scrapes of `--batch` series each by `--threads` writers.
    SeriesScrapes,
    /// Eight hours of a cluster's `--rows` series: bytes and reads.
    SeriesMixed,
    /// `--rows` series, `--batch` in a commit.
    SeriesMany,
    /// Appends of `--batch` events to a server by `--threads` clients.
    WireAppend,
    /// The same under conditions that hold.
    WireConditional,
    /// Read, decide, and append under the condition that there are no newer events.
    WireDecide,
    /// Ingest of `--rows` events into a server, `--batch` at a time, and reads over them.
    WireQueries,
    /// Latency from an append to the client that follows.
    WireSubscribe,
    /// `--rows` idle subscriptions, `--batch` different ones.
    WireIdle,
    /// SELECTs of a row by its key, `--rows` in the table.
    SqlSelect,
    /// Durable UPDATEs of a row by its key by `--threads` threads.
    SqlUpdate,
    /// TPC-H's queries over `--rows` orders.
    Analytic,
    /// COPY of `--rows` rows through the library.
    CopyEmbedded,
    /// COPY of `--rows` rows over the wire.
    CopyWire,
    /// pgbench's scripts over `--rows` accounts of a server, one after the other, `--seconds` each.
    Pgbench,
    /// Section 1 of the go-crablet report, by k6 for `--seconds`, as the others.
    CrabletQuick,
    /// Section 2.
    CrabletAppend,
    /// Section 2 without its pauses.
    CrabletAppendBusy,
    /// Section 3.
    CrabletIsolation,
    /// Section 4.
    CrabletConcurrency,
    /// Section 4 without its pauses.
    CrabletConcurrencyBusy,
    /// Remote write of `--rows` series by `--threads` writers, `--lookups` requests each, and the report's queries.
    MytsdbHonest,
    /// Transactions over four models, and over one model with the same bytes, by `--threads` threads.
    OneTx,
    /// The same over HTTP by `--threads` clients.
    OneTxHttp,
    /// Orders over HTTP by `--threads` clients, each until the read model has it.
    Orders,
    /// Catch-up and rebuild of a projection in Rust over `--rows` events, during commits.
    ProjectionRust,
    /// The same for a declared projection: the statement with the number `--batch`.
    ProjectionSql,
    /// Commits of one row each to a cluster, by each number of clients for `--seconds`.
    ClusterCommits,
    /// Reads of `--rows` documents at the nodes of a cluster, by `--threads` clients where a figure has many.
    ClusterReads,
    /// A new node over a log with `--rows` commits and `--batch` megabytes of events.
    ClusterNew,
    /// Time without writes after the leader was killed, `--passes` times; the lease is `--batch` seconds.
    ClusterGap,
    /// Appends by `--threads` clients without and with an open web console, `--passes` times.
    ConsoleIdle,
}

impl Group {
    /// True when the system under measurement is a separate program, which `ropewalk-bench` starts.
    pub fn is_of_servers(self) -> bool {
        use Group::{WireAppend, WireConditional, WireDecide, WireIdle, WireQueries, WireSubscribe};
        matches!(self, WireAppend | WireConditional | WireDecide | WireQueries | WireSubscribe | WireIdle)
            || self == Group::MytsdbHonest
            || self.is_of_k6()
            || self.is_of_cluster()
            || self == Group::ConsoleIdle
            || matches!(self, Group::Pgbench | Group::CopyWire | Group::OneTxHttp | Group::Orders)
    }

    /// True when `ropewalk-bench` measures the peers, too.
    pub fn has_peers_here(self) -> bool {
        self.is_of_servers() || self == Group::Analytic
    }

    /// True when several nodes share a log.
    pub fn is_of_cluster(self) -> bool {
        use Group::{ClusterCommits, ClusterGap, ClusterNew, ClusterReads};
        matches!(self, ClusterCommits | ClusterReads | ClusterNew | ClusterGap)
    }

    /// True when k6 drives the system.
    pub fn is_of_k6(self) -> bool {
        use Group::{CrabletAppend, CrabletAppendBusy, CrabletConcurrency, CrabletConcurrencyBusy};
        use Group::{CrabletIsolation, CrabletQuick};
        matches!(
            self,
            CrabletQuick
                | CrabletAppend
                | CrabletAppendBusy
                | CrabletIsolation
                | CrabletConcurrency
                | CrabletConcurrencyBusy
        )
    }
}

/// One measurement.
#[derive(Debug, Clone, Args)]
pub struct Task {
    /// The measurement.
    #[arg(value_enum)]
    pub group: Group,
    /// Directory for the data.
    #[arg(long)]
    pub dir: PathBuf,
    /// Rows or events preloaded.
    #[arg(long, default_value_t = 0)]
    pub rows: u64,
    /// Order of keys.
    #[arg(long, value_enum, default_value_t = Order::Rand)]
    pub order: Order,
    /// Writer threads.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Events per append.
    #[arg(long, default_value_t = 1)]
    pub batch: usize,
    /// Seconds per timed loop.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Lookups per pass; a 25th as many scans.
    #[arg(long, default_value_t = 500_000)]
    pub lookups: usize,
    /// Timed passes.
    #[arg(long, default_value_t = 3)]
    pub passes: usize,
    /// Keys are drawn with a zipfian distribution, not uniformly.
    #[arg(long)]
    pub zipfian: bool,
    /// Every commit is synced, where a group leaves the choice.
    #[arg(long)]
    pub durable: bool,
}

impl Task {
    /// A task with the defaults of the command line; the harness fills in the directory.
    pub fn new(group: Group) -> Self {
        Self {
            group,
            dir: PathBuf::new(),
            rows: 0,
            order: Order::Rand,
            threads: 1,
            batch: 1,
            seconds: 3.0,
            lookups: 500_000,
            passes: 3,
            zipfian: false,
            durable: false,
        }
    }

    /// The task as arguments of a worker.
    pub fn arguments(&self) -> Vec<String> {
        let group = self.group.to_possible_value().expect("no group is hidden").get_name().to_owned();
        let mut arguments = vec![group];
        let mut option = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        option("dir", self.dir.to_string_lossy().into_owned());
        option("rows", self.rows.to_string());
        option("order", self.order.name().to_owned());
        option("threads", self.threads.to_string());
        option("batch", self.batch.to_string());
        option("seconds", self.seconds.to_string());
        option("lookups", self.lookups.to_string());
        option("passes", self.passes.to_string());
        let flags = [("--zipfian", self.zipfian), ("--durable", self.durable)];
        arguments.extend(flags.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()));
        arguments
    }
}

/// Result of a worker.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Figures by name.
    pub figures: BTreeMap<String, Figure>,
    /// Digests of the answers by name; if they differ between systems, the step's figures are invalid.
    pub digests: BTreeMap<String, String>,
}

impl Outcome {
    /// Adds a figure.
    pub fn figure(&mut self, name: impl Into<String>, figure: Figure) {
        self.figures.insert(name.into(), figure);
    }

    /// Adds a digest.
    pub fn digest(&mut self, name: impl Into<String>, digest: impl std::fmt::Display) {
        self.digests.insert(name.into(), digest.to_string());
    }
}

/// One figure: all its repetitions, and its latencies if any.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Figure {
    /// One value per repetition, in the row's unit.
    pub samples: Vec<f64>,
    /// Median latency in microseconds.
    pub p50_us: Option<f64>,
    /// 95th percentile in microseconds.
    pub p95_us: Option<f64>,
    /// 99th percentile in microseconds.
    pub p99_us: Option<f64>,
}

impl Figure {
    /// A figure of one repetition.
    pub fn one(value: f64) -> Self {
        Self { samples: vec![value], ..Self::default() }
    }

    /// Adds a repetition: time since `started` for each of `n` things; `scale` is units per second (1e9 for ns).
    pub fn per(&mut self, started: Instant, n: usize, scale: f64) {
        self.samples.push(started.elapsed().as_secs_f64() * scale / n as f64);
    }

    /// The same figure with its latencies.
    pub fn with(mut self, latencies: &Latencies) -> Self {
        self.p50_us = latencies.quantile_us(0.50);
        self.p95_us = latencies.quantile_us(0.95);
        self.p99_us = latencies.quantile_us(0.99);
        self
    }
}

/// A latency histogram, three significant digits, nanoseconds up to ten minutes.
#[derive(Debug)]
pub struct Latencies(hdrhistogram::Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        const MAX_NANOS: u64 = 600_000_000_000;
        Self(hdrhistogram::Histogram::new_with_max(MAX_NANOS, 3).expect("the bounds are in order"))
    }
}

impl Latencies {
    /// Adds one latency.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Mean in microseconds, or `None` when nothing was recorded.
    pub fn mean_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean() / 1e3)
    }

    /// A quantile in microseconds, or `None` when nothing was recorded.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        task: Task,
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_us(0.5), None);
        (1..=100).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let mut more = Latencies::default();
        more.merge(&latencies);
        let p99 = more.quantile_us(0.99).unwrap();
        assert!((98_900.0..99_200.0).contains(&p99), "{p99}");
        assert_eq!(more.count(), 100);
    }

    #[test]
    fn a_task_survives_the_command_line() {
        let mut task = Task::new(Group::OpossumAt);
        task.dir = "some dir".into();
        (task.rows, task.order, task.seconds, task.passes) = (10_000_000, Order::Seq, 0.5, 7);
        let line = Line::parse_from(std::iter::once("worker".to_owned()).chain(task.arguments()));
        assert_eq!(line.task.arguments(), task.arguments());
    }
}
