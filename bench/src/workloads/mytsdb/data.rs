//! Data and queries of `bench mytsdb`: a small Kubernetes cluster's metrics, and the 49 queries of the mytsdb
//! report.
//!
//!   10,000 series, shuffled ─▶ 16 writers ─▶ requests of 625 series × 4 steps of 15 s, remote write 1.0, packed before the clock starts
//!
//! The entropy of the mix is about 8 bits for each sample, so that a store cannot need much less than one
//! byte. Counters begin far from zero: close to zero, `rate` differs between versions of Prometheus. Times
//! begin at a fixed instant in the past, so every run of every system gets the same bytes and must return the
//! same results.

use anyhow::{Context, Result, ensure};

use crate::harness::random::SplitMix;

/// When the first samples were taken, in milliseconds: 1 January 2026.
pub const BEGIN_MS: i64 = 1_767_225_600_000;
/// Interval between two samples of a series.
pub const STEP_MS: i64 = 15_000;
/// Steps in one request.
pub const STEPS_PER_REQUEST: u64 = 4;
/// Series in one request; all belong to one writer.
pub const SERIES_PER_REQUEST: u64 = 625;
/// Samples in one request.
pub const SAMPLES_PER_REQUEST: u64 = SERIES_PER_REQUEST * STEPS_PER_REQUEST;

const SEED: u64 = 0x6d79_7473_6462;

/// Pattern of the values of a series.
#[derive(Debug, Clone, Copy)]
enum Values {
    /// Rises by up to so many thousandths.
    Thousandths(u64),
    /// Rises by up to so many.
    Counter(u64),
    /// Memory in pages, which changes in two of three steps.
    Pages,
    /// Rises by one, once in twenty steps.
    Rarely,
    /// Two decimals.
    Load,
    /// A cumulative bucket: bounds up to this one.
    Bucket {
        histogram: u64,
        ordinal: u64,
    },
    Constant,
}

/// Name, number of series among 10,000, and the pattern of the values.
const METRICS: &[(&str, u64, Values)] = &[
    ("container_cpu_usage_seconds_total", 1000, Values::Thousandths(15_000)),
    ("container_memory_working_set_bytes", 1000, Values::Pages),
    ("container_network_receive_bytes_total", 1000, Values::Counter(100_000)),
    ("container_fs_reads_bytes_total", 1000, Values::Counter(100_000)),
    ("http_requests_total", 1000, Values::Counter(100_000)),
    ("kube_pod_status_ready", 1000, Values::Constant),
    ("error_count_total", 1000, Values::Rarely),
    ("kube_pod_status_phase", 500, Values::Constant),
    ("kube_pod_container_status_restarts_total", 500, Values::Rarely),
    ("node_load5", 500, Values::Load),
    ("container_network_transmit_bytes_total", 500, Values::Counter(100_000)),
    ("http_request_duration_seconds_bucket", 900, Values::Bucket { histogram: 0, ordinal: 0 }),
    ("up", 100, Values::Constant),
];

const BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];

/// One series and its current value.
#[derive(Debug)]
struct Series {
    /// The labels in remote write format.
    labels: Vec<u8>,
    values: Values,
    state: u64,
    random: SplitMix,
}

impl Series {
    fn next(&mut self, step: u64) -> f64 {
        let random = &mut self.random;
        match self.values {
            Values::Thousandths(most) => {
                self.state += random.below(most);
                self.state as f64 / 1000.0
            }
            Values::Counter(most) => {
                self.state += random.below(most);
                self.state as f64
            }
            Values::Pages => {
                if random.below(3) > 0 {
                    self.state = (self.state + random.below(240)).saturating_sub(120).clamp(1000, 1 << 22);
                }
                (self.state * 4096) as f64
            }
            Values::Rarely => {
                self.state += u64::from(random.below(20) == 0);
                self.state as f64
            }
            Values::Load => {
                self.state = (self.state + random.below(42)).saturating_sub(21).min(2000);
                self.state as f64 / 100.0
            }
            Values::Bucket { histogram, ordinal } => {
                // All buckets of a histogram draw the same number.
                let drawn = 1 + SplitMix::new(SEED ^ histogram << 32 ^ step).below(2);
                self.state += drawn * (ordinal + 1);
                self.state as f64
            }
            Values::Constant => 1.0,
        }
    }
}

/// `count` series of the cluster, 10,000 for each complete repetition of the pattern.
fn all(count: u64) -> Vec<Series> {
    let mut series = Vec::new();
    let clusters = count.div_ceil(10_000);
    for replica in 0..clusters {
        for (name, number, values) in METRICS {
            series.extend((0..*number).map(|n| one(name, replica, n, *values)));
        }
    }
    // Fisher and Yates, so that no request contains only one metric.
    let mut random = SplitMix::new(SEED);
    for last in (1..series.len()).rev() {
        series.swap(last, random.below(last as u64 + 1) as usize);
    }
    series.truncate(count as usize);
    series
}

fn one(name: &str, replica: u64, n: u64, values: Values) -> Series {
    let seed = SEED ^ replica << 40 ^ n << 8 ^ name.len() as u64;
    let mut random = SplitMix::new(seed);
    let (pod, le, values) = match values {
        Values::Bucket { .. } => {
            let (histogram, ordinal) = (n / BOUNDS.len() as u64, n % BOUNDS.len() as u64);
            (histogram, Some(ordinal), Values::Bucket { histogram: replica << 16 | histogram, ordinal })
        }
        other => (n, None, other),
    };
    let mut labels: Vec<(&str, String)> = vec![
        ("__name__", name.to_owned()),
        ("cluster", format!("cluster-{}", pod % 2)),
        ("instance", format!("10.{replica}.{}.{}:8080", pod / 250, pod % 250)),
        ("job", "kubernetes-pods".to_owned()),
        ("namespace", format!("namespace-{}", pod % 10)),
        ("node", format!("node-{:02}", pod % 20)),
        ("pod", format!("service-{:02}-{replica}-{pod:04}", pod / 3 % 20)),
        ("region", format!("region-{}", pod % 3)),
        ("service", format!("service-{:02}", pod / 3 % 20)),
    ];
    match name {
        "http_requests_total" => {
            let status = ["200", "404", "500", "503"];
            labels.push(("method", ["GET", "POST"].get(n as usize % 2).copied().unwrap_or("GET").to_owned()));
            labels.push(("status", status.get(n as usize / 2 % 4).copied().unwrap_or("200").to_owned()));
        }
        "kube_pod_status_phase" => {
            labels.push(("phase", if n.is_multiple_of(2) { "Running" } else { "Pending" }.to_owned()));
        }
        _ => {}
    }
    if let Some(bound) = le.and_then(|ordinal| BOUNDS.get(ordinal as usize)) {
        labels.push(("le", (*bound).to_owned()));
    }
    labels.sort();
    let state = match values {
        Values::Thousandths(_) => 1_000_000_000 + random.below(1 << 30),
        Values::Counter(_) => 1_000_000_000 + random.below(1 << 33),
        Values::Pages => 10_000 + random.below(1 << 18),
        Values::Rarely => 1000 + random.below(1000),
        Values::Load => 100 + random.below(1000),
        // The buckets of a histogram must not decrease from one bound to the next.
        Values::Bucket { ordinal, .. } => 1_000_000 * (ordinal + 1),
        Values::Constant => 1,
    };
    Series { labels: encode_labels(&labels), values, state, random }
}

/// `repeated Label labels = 1`, each with `name = 1` and `value = 2`.
fn encode_labels(labels: &[(&str, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut out, 1, &label);
    }
    out
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Time of a step.
pub fn time_ms(step: u64) -> i64 {
    BEGIN_MS + step as i64 * STEP_MS
}

/// The requests of one writer, compressed in advance.
#[derive(Debug)]
pub struct Writer {
    /// One body for every four steps.
    pub bodies: Vec<Vec<u8>>,
    /// Bytes before compression.
    pub raw_bytes: u64,
}

/// All requests of `count` series and `requests` requests for each writer.
///
/// # Errors
/// Compression failed.
pub fn writers(count: u64, requests: u64) -> Result<Vec<Writer>> {
    let mut series = all(count);
    let mut parts: Vec<&mut [Series]> = series.chunks_mut(SERIES_PER_REQUEST as usize).collect();
    let half = parts.len() / 2;
    let rest = parts.split_off(half);
    // Two threads halve the time.
    let make = |parts: Vec<&mut [Series]>| -> Result<Vec<Writer>> {
        parts.into_iter().map(|series| writer(series, requests)).collect()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || make(rest));
        let mut first = make(parts)?;
        first.extend(other.join().map_err(|_| anyhow::anyhow!("a generating thread panicked"))??);
        Ok(first)
    })
}

fn writer(series: &mut [Series], requests: u64) -> Result<Writer> {
    let mut writer = Writer { bodies: Vec::with_capacity(requests as usize), raw_bytes: 0 };
    let (mut raw, mut one, mut sample) = (Vec::new(), Vec::new(), Vec::new());
    for request in 0..requests {
        raw.clear();
        for series in series.iter_mut() {
            one.clear();
            one.extend_from_slice(&series.labels);
            for step in request * STEPS_PER_REQUEST..(request + 1) * STEPS_PER_REQUEST {
                sample.clear();
                sample.push(1 << 3 | 1);
                sample.extend_from_slice(&series.next(step).to_le_bytes());
                sample.push(2 << 3);
                put_varint(&mut sample, time_ms(step) as u64);
                put_bytes(&mut one, 2, &sample);
            }
            put_bytes(&mut raw, 1, &one);
        }
        writer.raw_bytes += raw.len() as u64;
        writer.bodies.push(snap::raw::Encoder::new().compress_vec(&raw).context("packing a request")?);
    }
    Ok(writer)
}

/// A request with one sample of a separate series.
///
/// # Errors
/// Compression failed.
pub fn probe(name: &str, time_ms: i64, value: f64) -> Result<Vec<u8>> {
    let (mut one, mut sample, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    one.extend_from_slice(&encode_labels(&[("__name__", name.to_owned()), ("job", "probe".to_owned())]));
    sample.push(1 << 3 | 1);
    sample.extend_from_slice(&value.to_le_bytes());
    sample.push(2 << 3);
    put_varint(&mut sample, time_ms as u64);
    put_bytes(&mut one, 2, &sample);
    put_bytes(&mut raw, 1, &one);
    snap::raw::Encoder::new().compress_vec(&raw).context("packing a request")
}

/// One of the 49 queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MytsdbQuery {
    /// Its number in the report.
    pub number: usize,
    /// Part of four of five queries.
    pub hot: bool,
    /// Range and step in seconds, for a range query.
    pub range: Option<(i64, i64)>,
    /// Its description.
    pub name: String,
    /// PromQL.
    pub text: String,
}

/// The 49 queries in their valid form.
///
/// # Errors
/// The list in the repository is invalid.
pub fn queries() -> Result<Vec<MytsdbQuery>> {
    let lines =
        include_str!("../../../data/mytsdb-queries.tsv").lines().filter(|line| !line.starts_with('#'));
    let queries: Vec<MytsdbQuery> = lines.map(query).collect::<Result<_>>()?;
    ensure!(queries.len() == 49, "{} queries instead of 49", queries.len());
    Ok(queries)
}

fn query(line: &str) -> Result<MytsdbQuery> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().with_context(|| format!("{line:?} is cut off"));
    let (number, heat, kind, name, text) = (field()?, field()?, field()?, field()?, field()?);
    let range = match kind.split_once('/') {
        None => None,
        Some((range, step)) => Some((seconds(range)?, seconds(step)?)),
    };
    Ok(MytsdbQuery {
        number: number.parse()?,
        hot: heat == "H",
        range,
        name: name.to_owned(),
        text: text.to_owned(),
    })
}

fn seconds(text: &str) -> Result<i64> {
    let hours = text.strip_suffix('h').map(|hours| hours.parse::<i64>().map(|hours| hours * 3600));
    let seconds = text.strip_suffix('s').map(str::parse);
    Ok(hours.or(seconds).with_context(|| format!("{text:?} is no time"))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queries_of_the_report() {
        let queries = queries().unwrap();
        assert_eq!(queries.iter().filter(|query| query.hot).count(), 37);
        assert_eq!(queries.iter().filter(|query| query.range.is_none()).count(), 34);
        assert_eq!(queries[5].range, Some((3600, 60)));
        assert!(queries.iter().enumerate().all(|(at, query)| query.number == at + 1));
    }

    #[test]
    fn every_run_gets_the_same_requests() {
        let (first, second) = (writers(10_000, 2).unwrap(), writers(10_000, 2).unwrap());
        assert_eq!(first.len(), 16);
        assert!(first.iter().zip(&second).all(|(a, b)| a.bodies == b.bodies));
        let raw: u64 = first.iter().map(|writer| writer.raw_bytes).sum();
        let per_sample = raw as f64 / (32 * SAMPLES_PER_REQUEST) as f64;
        assert!((55.0..85.0).contains(&per_sample), "{per_sample} bytes of protobuf for each sample");
    }
}
