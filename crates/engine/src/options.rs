use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use ropewalk_base::Lsn;
use ropewalk_log::LogOptions;
use ropewalk_log::shared::SharedLog;
use ropewalk_store::StoreOptions;

/// When a commit is acknowledged. On the leader of a shared log always after the confirmation by the shared log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After `fdatasync`: survives a power cut.
    #[default]
    Sync,
    /// After the write: survives a kill of the process, not a power cut.
    Buffered,
    /// At once, from memory; synced within `interval`. A crash may undo the commits of that interval.
    Async {
        /// Longest time until the sync begins.
        interval: Duration,
    },
}

/// State of the memory budget for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCapacity {
    /// Enough.
    Free,
    /// Flushing is slower than the writers: each should pause so long before its next commit.
    Tight(Duration),
    /// None: commits wait for the next flush.
    Spent,
}

/// Which thread flushes, compacts and syncs in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// Three threads of the engine.
    #[default]
    Threads,
    /// No threads: the caller runs [`crate::engine::Engine::background_step`]. Deterministic; for simulation.
    Manual,
}

/// The log that this node shares with others, and the node's part in it.
#[derive(Debug, Clone)]
pub struct SharedOptions {
    /// The shared log.
    pub log: Arc<dyn SharedLog>,
    /// Name of this node, which no other node has.
    pub node: [u8; 16],
    /// Address at which clients reach this node while it leads.
    pub address: String,
    /// How long an append is repeated whose result is unknown; after it the engine stops, and its commits end as
    /// [`CommitError::Unknown`](crate::CommitError::Unknown). Default 30 seconds.
    pub patience: Duration,
    /// Nodes compare hashes of their effects at multiples of so many commits. Nodes that have one in common compare there.
    /// Default 1024.
    pub hash_interval: u64,
}

impl SharedOptions {
    /// The default patience and interval.
    pub fn new(log: Arc<dyn SharedLog>, node: [u8; 16], address: impl Into<String>) -> Self {
        let (patience, hash_interval) = (Duration::from_secs(30), 1024);
        Self { log, node, address: address.into(), patience, hash_interval }
    }
}

/// Settings of an engine. The defaults suit a server with a few gigabytes of memory.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Bytes for memtables and caches together. Half may hold writes that wait for their flush, a quarter caches
    /// decoded blocks. Default 512 MiB.
    pub memory_budget: u64,
    /// Bytes of log in a memtable at which it is flushed, however small it is: after a kill, opening replays
    /// little more. Default 8 MiB, about 15 milliseconds.
    pub replay_bytes: u64,
    /// Bytes of flushed memtables that stay in memory, where scans read them faster than many small runs. Less when
    /// the memory budget is small or writes need it. Default 64 MiB.
    pub resident_bytes: u64,
    /// Bytes of log retained before the checkpoint for change feeds. Default 64 MiB.
    pub log_retention_bytes: u64,
    /// Everything that changes the contents is in the log: bulk loads are written as small commits instead of straight
    /// into runs. For readers that have only the log, such as a replica. A large load takes longer then, and its bytes
    /// are written twice. Default false.
    pub log_everything: bool,
    /// The log that nodes share. With it the engine begins as a follower, and everything that changes the contents is in
    /// the log. Default none: the engine is alone.
    pub shared: Option<SharedOptions>,
    /// Threads for background work.
    pub background: Background,
    /// The log's settings.
    pub log: LogOptions,
    /// The store's settings; `cache_bytes` is set from the budget.
    pub store: StoreOptions,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            memory_budget: 512 << 20,
            replay_bytes: 8 << 20,
            resident_bytes: 64 << 20,
            log_retention_bytes: 64 << 20,
            log_everything: false,
            shared: None,
            background: Background::Threads,
            log: LogOptions::default(),
            store: StoreOptions::default(),
        }
    }
}

impl EngineOptions {
    /// Memtables are frozen at this size: an eighth of the budget, at most 256 MiB.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        (self.memory_budget / 8).clamp(64 << 10, 256 << 20)
    }

    /// True when a part of the log is as long as one generation may hold.
    pub(crate) fn is_long(&self, log: &Range<Lsn>) -> bool {
        log.end.0 - log.start.0 >= self.replay_bytes
    }

    /// Bytes of flushed memtables that may stay next to `write_bytes` of others: a quarter of the budget for
    /// writes remains free for the next ones.
    pub(crate) fn resident_bytes_max(&self, write_bytes: u64) -> u64 {
        (self.write_bytes_max() / 4 * 3).saturating_sub(write_bytes).min(self.resident_bytes)
    }

    /// Commits wait at this many bytes of memtables.
    pub(crate) fn write_bytes_max(&self) -> u64 {
        (self.memory_budget / 2).max(4 * self.memtable_bytes())
    }
}
