use core::time::Duration;

/// Handling of delta metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deltas {
    /// Rejected, and counted in the response.
    #[default]
    Refuse,
    /// Stored unchanged, as gauges.
    Keep,
    /// Added up to cumulative counters and histograms.
    Cumulate,
}

/// Settings of [`crate::Prometheus`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// The series store that is written and read. Default `default`.
    pub store: String,
    /// Time limit of a query; a request may set a shorter one. Default 2 minutes.
    pub query_time: Duration,
    /// Limit of samples that a query reads. Default 50 million.
    pub query_samples: u64,
    /// Memory limit of a query. Default 1 GiB.
    pub query_bytes: u64,
    /// Memory limit of all queries and their results together. Default 2 GiB.
    pub queries_bytes: u64,
    /// Bytes of the cache of query results; 0 disables it. Default 64 MiB.
    pub answer_bytes: u64,
    /// Maximum age of a sample for instant selectors. Default 5 minutes.
    pub lookback: Duration,
    /// Handling of delta OTLP metrics. Default: rejected.
    pub otlp_deltas: Deltas,
    /// Scheduler slots for queries and decoding requests; further requests wait for a slot. Default: one more
    /// than processors, so that none is idle while a slot is handed over.
    pub queries: usize,
}

impl Default for PrometheusSettings {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            store: "default".to_owned(),
            query_time: Duration::from_secs(120),
            query_samples: 50_000_000,
            query_bytes: 1 << 30,
            queries_bytes: 2 << 30,
            answer_bytes: 64 << 20,
            lookback: Duration::from_secs(300),
            otlp_deltas: Deltas::default(),
            queries: processors + 1,
        }
    }
}
