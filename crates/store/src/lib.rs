//! Ordered versioned keys: memory that is being written, immutable sorted runs on disk, and the jobs that
//! move data from one to the other.
//!
//! ```text
//!   put ─▶ Memtable ─▶ flush ─▶ runs of level 0 ─▶ compaction ─▶ level 1 ─▶ … ─▶ last level
//!             └──────────────────────┴── get, Cursor: newest source first ──┘
//! ```
//!
//! A keyspace is an ordered map from (key, version) to a value or a tombstone. The caller (the engine) owns
//! the log, assigns versions ([`ropewalk_base::Seq`]) and decides which memtables exist; this crate never
//! creates a version.
//!
//! Terms: a *run* is one sorted immutable file, a *flush* is the result of writing one memtable, a *level* is
//! a set of disjoint runs, a *view* is the set of all runs at one instant.
//!
//! Not here: durability of single commits (the log), isolation (the engine), what keys mean (the models).

mod compaction;
mod error;
mod manifest;
mod memtable;
mod options;
mod prefetch;
mod read;
mod run;
mod stats;
mod store;
mod verify;

pub use error::StoreError;
pub use manifest::Checkpoint;
pub use manifest::pin::{StoreCopy, StorePin};
pub use memtable::Memtable;
pub use options::{Compression, FilterPolicy, Keyspace, KeyspaceOptions, ReadMode, StoreOptions};
pub use read::cursor::Cursor;
pub use read::flush::Flush;
pub use read::multi_get::MANY;
pub use read::view::{StoreView, changed_in_range, get, newest_seq};
pub use run::block::ENTRY_BYTES_MAX;
pub use run::value::{Entry, Value};
pub use run::writer::{NewRun, RunWriter};
pub use stats::{KeyspaceStats, LevelStats, StoreStats};
pub use store::{CompactStep, Edit, FoundKeyspace, Store};
pub use verify::{Damage, VerifyReport};
