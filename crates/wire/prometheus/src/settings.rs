use core::time::Duration;

use crate::otlp::Deltas;

/// Settings of [`crate::Prometheus`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// The series store that is written and read. Default `default`.
    pub store: String,
    /// How long a query may take; a request may ask for less. Default 2 minutes.
    pub query_time: Duration,
    /// Samples that a query may read. Default 50 million.
    pub query_samples: u64,
    /// Bytes that a query may hold at one time. Default 1 GiB.
    pub query_bytes: u64,
    /// Bytes that all queries and their answers may hold at one time. Default 2 GiB.
    pub queries_bytes: u64,
    /// Bytes of answers that are kept for as long as they stay right; 0 keeps none. Default 64 MiB.
    pub answer_bytes: u64,
    /// How old a sample may be that an instant selector sees. Default 5 minutes.
    pub lookback: Duration,
    /// What becomes of OTLP metrics that are deltas. Default: they are refused.
    pub otlp_deltas: Deltas,
    /// Queries that are worked on, and requests that are decoded, at the same time; more take turns with them. Default: one
    /// more than processors, so that none is idle while a turn is handed on.
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
