use core::time::Duration;
use std::path::PathBuf;

/// Limits of one server. At a limit a client gets an error at once ([`crate::Code::TooLarge`] for one request
/// that is too big, [`crate::Code::ResourceExhausted`] with a pause for too many of them), never a hang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request, after decompression. Default 16 MiB.
    pub request_bytes: usize,
    /// Bytes of requests that are being received, over all protocols. Default 256 MiB.
    pub request_memory: usize,
    /// Bytes of responses that are built completely, until the client has read them. Default 256 MiB.
    pub answer_memory: usize,
    /// Events of one append. Default 100,000.
    pub append_events: usize,
    /// Unfinished appends. Default 8,192.
    pub appends_in_flight: usize,
    /// Bytes of those appends. Default 48 MiB: below what the engine queues before a submitter has to wait.
    pub append_bytes_in_flight: usize,
    /// Live subscriptions. Default 50,000.
    pub subscriptions: usize,
    /// Open reads. Default 1,024.
    pub reads: usize,
    /// Concurrent reads that have proved to be long. Default: four for each processor.
    pub long_reads: usize,
    /// Time of one request, streams and subscriptions excepted. Default 30 s.
    pub request_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            request_bytes: 16 << 20,
            request_memory: 256 << 20,
            answer_memory: 256 << 20,
            append_events: 100_000,
            appends_in_flight: 8_192,
            append_bytes_in_flight: 48 << 20,
            subscriptions: 50_000,
            reads: 1_024,
            long_reads: 4 * processors,
            request_time: Duration::from_secs(30),
        }
    }
}

/// Settings of a [`crate::Service`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Its limits.
    pub limits: Limits,
    /// Lets callers without credentials do everything although users or tokens exist. Wrong credentials are
    /// still rejected. Default false.
    pub insecure: bool,
    /// The event store that protocols without store names use; created at the start. Default `default`.
    pub default_store: String,
    /// Directory of backups that clients request. Default none: such requests are rejected.
    pub backups: Option<PathBuf>,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            insecure: false,
            default_store: "default".to_owned(),
            backups: None,
        }
    }
}
