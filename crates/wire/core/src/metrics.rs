//! Counters, gauges and histograms, by atomics; rendered in the text format of Prometheus.
//!
//!   ropewalk_requests_total{protocol,operation,code}   ropewalk_request_seconds{protocol,operation} (histogram)
//!   gauges of work in progress, counters of events, and statistics of the engine
//!
//! A request costs one read lock, a lookup by two static names, and three atomic additions.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ropewalk::Database;
use ropewalk_auth::Logins;

use crate::error::Code;

/// Upper bounds of the latency buckets, microseconds. From a cached read to a request that hits its time
/// limit.
const BUCKETS_MICROS: [u64; 15] = [
    50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 409_600, 1_638_400,
    30_000_000,
];

/// Counters of one operation of one protocol.
#[derive(Default)]
struct Operation {
    ok: AtomicU64,
    failed: [AtomicU64; Code::ALL.len()],
    /// Not cumulative; the last is over all bounds.
    buckets: [AtomicU64; BUCKETS_MICROS.len() + 1],
    micros: AtomicU64,
    running: AtomicI64,
}

/// All metrics.
#[derive(Default)]
pub struct Metrics {
    operations: RwLock<BTreeMap<(&'static str, &'static str), Arc<Operation>>>,
    /// Appends between submission and completion, and their bytes.
    pub(crate) appends_in_flight: AtomicU64,
    pub(crate) append_bytes_in_flight: AtomicU64,
    pub(crate) events_appended: AtomicU64,
    pub(crate) events_read: AtomicU64,
    pub(crate) events_delivered: AtomicU64,
    pub(crate) logins: Arc<Logins>,
    pub(crate) subscriptions: AtomicI64,
    pub(crate) reads: AtomicI64,
    connections: RwLock<BTreeMap<&'static str, Connections>>,
    configuration: Configuration,
    sources: RwLock<Vec<Source>>,
}

/// Computes gauges when the metrics are rendered.
type Source = Box<dyn Fn(&Database) -> Vec<Gauge> + Send + Sync>;

/// A gauge of another part of the server.
pub struct Gauge {
    /// Name of the metric.
    pub name: &'static str,
    /// Description for people.
    pub help: &'static str,
    /// Labels and value of each row.
    pub rows: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// Requests of one operation of one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationStats {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Name of the operation.
    pub operation: &'static str,
    /// Requests that ended.
    pub requests: u64,
    /// Their time in all, microseconds.
    pub micros: u64,
    /// Requests that are being answered.
    pub running: u64,
}

/// State of a configuration that can be reloaded.
#[derive(Default)]
struct Configuration {
    /// 0 without one, 1 when the newest load failed, 2 when it succeeded.
    state: AtomicU8,
    read_ms: AtomicU64,
}

/// Handle to count many requests of one kind. Each clone counts separately, so that connections on several
/// processors do not share a cache line.
#[derive(Clone)]
#[allow(clippy::redundant_allocation)] // the second is what counts the clones
pub struct Requests(Arc<Arc<Operation>>);

impl Requests {
    /// Begins a request.
    pub fn begin(&self) -> RequestTimer {
        self.0.running.fetch_add(1, Relaxed);
        RequestTimer { operation: Some(self.clone()), started: Instant::now() }
    }
}

/// Handle to count the connections of one protocol.
#[derive(Clone, Default)]
pub struct Connections(Arc<AtomicI64>);

impl Connections {
    /// Counts a connection until the result is dropped.
    pub fn open(&self) -> OpenConnection {
        self.0.fetch_add(1, Relaxed);
        OpenConnection(self.0.clone())
    }
}

/// An open connection that is counted.
pub struct OpenConnection(Arc<AtomicI64>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A request in progress. Dropped without [`RequestTimer::done`] it counts as a timeout: the client
/// disconnected or the deadline passed.
pub struct RequestTimer {
    operation: Option<Requests>,
    started: Instant,
}

impl RequestTimer {
    /// When the request began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Ends the request, with success or a code.
    pub fn done(mut self, outcome: Result<(), Code>) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Result<(), Code>) {
        let Some(Requests(operation)) = self.operation.take() else { return };
        let micros = self.started.elapsed().as_micros() as u64;
        let bucket = BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = operation.buckets.get(bucket) {
            bucket.fetch_add(1, Relaxed);
        }
        operation.micros.fetch_add(micros, Relaxed);
        operation.running.fetch_sub(1, Relaxed);
        let counter = match outcome {
            Ok(()) => Some(&operation.ok),
            Err(code) => Code::ALL.iter().position(|c| *c == code).and_then(|at| operation.failed.get(at)),
        };
        counter.into_iter().for_each(|counter| {
            counter.fetch_add(1, Relaxed);
        });
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        self.end(Err(Code::Timeout));
    }
}

impl Metrics {
    /// Metrics that report these counts of rejected logins.
    pub(crate) fn new(logins: Arc<Logins>) -> Self {
        Self { logins, ..Self::default() }
    }

    /// Begins a request of `protocol` (`http`, `grpc`, …). Names are literals, so that their number is
    /// bounded.
    pub fn request(&self, protocol: &'static str, operation: &'static str) -> RequestTimer {
        self.requests_of(protocol, operation).begin()
    }

    /// Handle for requests as in [`Metrics::request`].
    pub fn requests_of(&self, protocol: &'static str, operation: &'static str) -> Requests {
        let found = {
            let operations = self.operations.read().unwrap_or_else(|held| held.into_inner());
            operations.get(&(protocol, operation)).cloned()
        };
        let operation = found.unwrap_or_else(|| {
            let mut operations = self.operations.write().unwrap_or_else(|held| held.into_inner());
            operations.entry((protocol, operation)).or_default().clone()
        });
        Requests(Arc::new(operation))
    }

    /// Handle to count the connections of `protocol`, a literal as in [`Metrics::request`].
    pub fn connections_of(&self, protocol: &'static str) -> Connections {
        let mut connections = self.connections.write().unwrap_or_else(|held| held.into_inner());
        connections.entry(protocol).or_default().clone()
    }

    /// Open connections of each protocol that has a port.
    pub fn connections(&self) -> Vec<(&'static str, u64)> {
        let connections = self.connections.read().unwrap_or_else(|held| held.into_inner());
        let count = |open: &Connections| u64::try_from(open.0.load(Relaxed)).unwrap_or_default();
        connections.iter().map(|(protocol, open)| (*protocol, count(open))).collect()
    }

    /// Requests so far of each protocol and operation.
    pub fn operations(&self) -> Vec<OperationStats> {
        let operations = self.operations.read().unwrap_or_else(|held| held.into_inner());
        let stats = |(&(protocol, operation), counted): (&(&'static str, &'static str), &Arc<Operation>)| {
            OperationStats {
                protocol,
                operation,
                requests: counted.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum(),
                micros: counted.micros.load(Relaxed),
                running: u64::try_from(counted.running.load(Relaxed)).unwrap_or_default(),
            }
        };
        operations.iter().map(stats).collect()
    }

    /// Adds gauges that `source` computes whenever the metrics are rendered.
    pub fn add_source(&self, source: impl Fn(&Database) -> Vec<Gauge> + Send + Sync + 'static) {
        self.sources.write().unwrap_or_else(|held| held.into_inner()).push(Box::new(source));
    }

    /// Records the result of reloading a configuration.
    pub fn config_read(&self, ok: bool) {
        if ok {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.configuration.read_ms.store(since.as_millis() as u64, Relaxed);
        }
        self.configuration.state.store(1 + u8::from(ok), Relaxed);
    }

    /// Whether the newest load of the configuration succeeded, and the milliseconds since 1970 of the last
    /// successful one.
    pub fn config_state(&self) -> Option<(bool, u64)> {
        let state = self.configuration.state.load(Relaxed);
        (state > 0).then(|| (state == 2, self.configuration.read_ms.load(Relaxed)))
    }

    /// All metrics, and the engine's, in the text format 0.0.4 of Prometheus.
    pub fn render(&self, db: &Database) -> String {
        let mut text = Text::default();
        self.requests(&mut text);
        let load = |counter: &AtomicU64| counter.load(Relaxed) as f64;
        let gauge = |gauge: &AtomicI64| gauge.load(Relaxed) as f64;
        text.one(
            "ropewalk_appends_in_flight",
            "gauge",
            "Appends on their way.",
            load(&self.appends_in_flight),
        );
        let bytes = load(&self.append_bytes_in_flight);
        text.one("ropewalk_append_bytes_in_flight", "gauge", "Bytes of the appends on their way.", bytes);
        text.one("ropewalk_subscriptions", "gauge", "Live subscriptions.", gauge(&self.subscriptions));
        text.one("ropewalk_reads", "gauge", "Open reads.", gauge(&self.reads));
        let connections = self.connections();
        if !connections.is_empty() {
            text.head("ropewalk_connections", "gauge", "Open connections.");
        }
        for (protocol, open) in connections {
            text.row("ropewalk_connections", &format!("protocol=\"{protocol}\""), open as f64);
        }
        let counted = [
            ("ropewalk_logins_failed_total", "Wrong passwords and unknown tokens.", &self.logins.failed),
            ("ropewalk_logins_throttled_total", "Logins that have to wait.", &self.logins.throttled),
            ("ropewalk_events_appended_total", "Events appended.", &self.events_appended),
            ("ropewalk_events_read_total", "Events read by queries.", &self.events_read),
            ("ropewalk_events_delivered_total", "Events handed to subscriptions.", &self.events_delivered),
        ];
        for (name, help, counter) in counted {
            text.one(name, "counter", help, load(counter));
        }
        if let Some((ok, read_ms)) = self.config_state() {
            text.one(
                "ropewalk_config_last_reload_successful",
                "gauge",
                "1 when the newest reading of prometheus.config went well.",
                f64::from(u8::from(ok)),
            );
            text.one(
                "ropewalk_config_last_reload_success_timestamp_seconds",
                "gauge",
                "When prometheus.config was last read well.",
                read_ms as f64 / 1000.0,
            );
        }
        for source in self.sources.read().unwrap_or_else(|held| held.into_inner()).iter() {
            source(db).iter().for_each(|gauge| text.gauge(gauge));
        }
        engine(&mut text, db);
        text.0
    }

    fn requests(&self, text: &mut Text) {
        let operations: Vec<_> = {
            let operations = self.operations.read().unwrap_or_else(|held| held.into_inner());
            operations.iter().map(|(names, operation)| (*names, operation.clone())).collect()
        };
        text.head("ropewalk_requests_total", "counter", "Requests answered, by outcome.");
        for ((protocol, name), operation) in &operations {
            let failed = Code::ALL.iter().map(|c| c.as_str()).zip(&operation.failed);
            for (code, counter) in std::iter::once(("ok", &operation.ok)).chain(failed) {
                let count = counter.load(Relaxed);
                if count > 0 {
                    let labels = format!("protocol=\"{protocol}\",operation=\"{name}\",code=\"{code}\"");
                    text.row("ropewalk_requests_total", &labels, count as f64);
                }
            }
        }
        text.head("ropewalk_requests_running", "gauge", "Requests that are being answered.");
        for ((protocol, name), operation) in &operations {
            let labels = format!("protocol=\"{protocol}\",operation=\"{name}\"");
            text.row("ropewalk_requests_running", &labels, operation.running.load(Relaxed) as f64);
        }
        text.head("ropewalk_request_seconds", "histogram", "Time from request to answer.");
        for ((protocol, name), operation) in &operations {
            let labels = format!("protocol=\"{protocol}\",operation=\"{name}\"");
            let mut count = 0;
            let bounds = BUCKETS_MICROS.iter().map(|micros| format!("{}", *micros as f64 / 1e6));
            for (bound, bucket) in bounds.chain(["+Inf".to_owned()]).zip(&operation.buckets) {
                count += bucket.load(Relaxed);
                let labels = format!("{labels},le=\"{bound}\"");
                text.row("ropewalk_request_seconds_bucket", &labels, count as f64);
            }
            text.row("ropewalk_request_seconds_sum", &labels, operation.micros.load(Relaxed) as f64 / 1e6);
            text.row("ropewalk_request_seconds_count", &labels, count as f64);
        }
    }
}

fn engine(text: &mut Text, db: &Database) {
    let stats = db.stats();
    let flushed: u64 = stats.store.keyspaces.iter().map(|k| k.flushed_bytes).sum();
    let compacted: u64 = stats.store.keyspaces.iter().map(|k| k.compacted_bytes).sum();
    let runs: u64 = stats.store.keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.runs).sum();
    let amplification = if flushed == 0 { 1.0 } else { (flushed + compacted) as f64 / flushed as f64 };
    let rows: [(&str, &str, &str, f64); 18] = [
        ("ropewalk_commits_total", "counter", "Newest visible commit.", stats.seq.0 as f64),
        ("ropewalk_checkpoint_commit", "gauge", "Commit recovery starts after.", stats.checkpoint.0 as f64),
        ("ropewalk_log_syncs_total", "counter", "Syncs of the commit log.", stats.log.syncs as f64),
        (
            "ropewalk_log_sync_seconds_total",
            "counter",
            "Time of these syncs.",
            stats.log.sync_nanos as f64 / 1e9,
        ),
        (
            "ropewalk_log_appended_bytes_total",
            "counter",
            "Bytes of records.",
            stats.log.appended_bytes as f64,
        ),
        ("ropewalk_log_written_bytes_total", "counter", "Bytes written.", stats.log.written_bytes as f64),
        ("ropewalk_log_segments", "gauge", "Files of the log.", stats.log.segments as f64),
        ("ropewalk_memtable_bytes", "gauge", "Bytes in memtables.", stats.write_bytes as f64),
        ("ropewalk_memtable_bytes_max", "gauge", "Where commits wait.", stats.write_bytes_max as f64),
        ("ropewalk_memtables_frozen", "gauge", "Memtables that wait for their flush.", stats.frozen as f64),
        (
            "ropewalk_memtables_resident_bytes",
            "gauge",
            "Bytes of flushed memtables that scans read from memory.",
            stats.resident_bytes as f64,
        ),
        ("ropewalk_runs", "gauge", "Sorted files.", runs as f64),
        ("ropewalk_flushed_bytes_total", "counter", "Bytes written by flushes.", flushed as f64),
        ("ropewalk_compacted_bytes_total", "counter", "Bytes written by merges.", compacted as f64),
        ("ropewalk_write_amplification", "gauge", "Bytes written to runs per byte flushed.", amplification),
        ("ropewalk_cache_bytes", "gauge", "Bytes of cached blocks.", stats.store.cache_bytes as f64),
        ("ropewalk_snapshots", "gauge", "Commits that open snapshots look at.", stats.snapshots as f64),
        (
            "ropewalk_flush_failing",
            "gauge",
            "1 while flushing fails.",
            f64::from(u8::from(stats.flush_error.is_some())),
        ),
    ];
    for (name, kind, help, value) in rows {
        text.one(name, kind, help, value);
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn row(&mut self, name: &str, labels: &str, value: f64) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    fn gauge(&mut self, gauge: &Gauge) {
        self.head(gauge.name, "gauge", gauge.help);
        for (labels, value) in &gauge.rows {
            let label = |(name, value): &(&str, String)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{name}=\"{value}\"")
            };
            let labels: Vec<String> = labels.iter().map(label).collect();
            self.row(gauge.name, &labels.join(","), *value);
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.row(name, "", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_outcome() {
        let db = Database::in_memory().unwrap();
        let metrics = Metrics::default();
        metrics.request("http", "append").done(Ok(()));
        metrics.request("http", "append").done(Err(Code::ConditionFailed));
        drop(metrics.request("grpc", "read"));
        let text = metrics.render(&db);
        for line in [
            "ropewalk_requests_total{protocol=\"http\",operation=\"append\",code=\"ok\"} 1",
            "ropewalk_requests_total{protocol=\"http\",operation=\"append\",code=\"condition_failed\"} 1",
            "ropewalk_requests_total{protocol=\"grpc\",operation=\"read\",code=\"timeout\"} 1",
            "ropewalk_request_seconds_count{protocol=\"http\",operation=\"append\"} 2",
            "ropewalk_requests_running{protocol=\"grpc\",operation=\"read\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn connections_count_until_they_are_dropped() {
        let db = Database::in_memory().unwrap();
        let metrics = Metrics::default();
        let postgres = metrics.connections_of("postgres");
        let (one, other) = (postgres.open(), metrics.connections_of("postgres").open());
        drop(one);
        assert_eq!(metrics.connections(), [("postgres", 1)]);
        assert!(metrics.render(&db).contains("ropewalk_connections{protocol=\"postgres\"} 1\n"));
        drop(other);
        assert_eq!(metrics.connections(), [("postgres", 0)]);
    }

    #[test]
    fn operations_have_their_requests_and_times() {
        let metrics = Metrics::default();
        metrics.request("http", "append").done(Ok(()));
        let _running = metrics.request("http", "append");
        let stats = metrics.operations();
        let [OperationStats { protocol: "http", operation: "append", requests: 1, running: 1, .. }] =
            stats[..]
        else {
            panic!("{stats:?}")
        };
    }

    #[test]
    fn gauges_of_other_parts_are_rendered_with_escaped_labels() {
        let db = Database::in_memory().unwrap();
        let metrics = Metrics::default();
        let rows = vec![(vec![("name", "a\"\\".to_owned())], 2.0)];
        metrics.add_source(move |_| vec![Gauge { name: "x", help: "An x.", rows: rows.clone() }]);
        let text = metrics.render(&db);
        assert!(text.contains("# TYPE x gauge\nx{name=\"a\\\"\\\\\"} 2\n"), "{text}");
    }

    #[test]
    fn every_row_has_its_head_and_a_number() {
        let db = Database::in_memory().unwrap();
        let metrics = Metrics::default();
        metrics.request("http", "append").done(Ok(()));
        assert!(!metrics.render(&db).contains("config"));
        metrics.config_read(false);
        let text = metrics.render(&db);
        assert!(text.contains("ropewalk_config_last_reload_successful 0\n"), "{text}");
        let mut known = String::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# TYPE ") {
                known = name.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&known), "{line}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}
