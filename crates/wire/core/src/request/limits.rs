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
    /// Limits of transactions over all models.
    pub transactions: TransactionLimits,
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
            transactions: TransactionLimits::default(),
        }
    }
}

/// Limits of transactions over all models: those in one request, and those over several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionLimits {
    /// Open transactions. Default 1,024.
    pub open: usize,
    /// Open transactions of one caller. Default 256.
    pub open_per_caller: usize,
    /// Bytes of the unwritten changes of open transactions. Default 256 MiB.
    pub open_bytes: usize,
    /// Bytes of the unwritten changes of one caller's open transactions. Default 96 MiB: the largest
    /// transaction fits.
    pub open_bytes_per_caller: usize,
    /// Time between two requests of an open transaction. Default 30 s.
    pub idle_time: Duration,
    /// Time between the begin of an open transaction and that of its last request. Default 10 minutes.
    pub lifetime: Duration,
    /// Wait for a commit that the transaction has to include or to read. Default 5 s.
    pub visible_time: Duration,
    /// Bytes of the results of one request. Default 64 MiB.
    pub result_bytes: usize,
    /// Stored idempotency keys of one caller. Default 10,000,000.
    pub keys_per_caller: u64,
    /// Bytes of the stored results of one caller's idempotency keys. Default 4 GiB.
    pub key_bytes_per_caller: u64,
    /// Advisory locks that the SQL statements of one caller's transactions hold. Default 10,000.
    pub advisory_locks_per_caller: usize,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        Self {
            open: 1_024,
            open_per_caller: 256,
            open_bytes: 256 << 20,
            open_bytes_per_caller: 96 << 20,
            idle_time: Duration::from_secs(30),
            lifetime: Duration::from_secs(600),
            visible_time: Duration::from_secs(5),
            result_bytes: 64 << 20,
            keys_per_caller: 10_000_000,
            key_bytes_per_caller: 4 << 30,
            advisory_locks_per_caller: 10_000,
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
