//! Ordered versioned keys: memory that is being written, immutable sorted runs on disk, and what moves data from one to
//! the other.
//!
//! ```text
//!   put ─▶ Memtable ─▶ flush ─▶ runs of level 0 ─▶ compaction ─▶ level 1 ─▶ … ─▶ last level
//!             └──────────────────────┴── get, Cursor: newest source first ──┘
//! ```
//!
//! A keyspace is an ordered map from (key, version) to a value or a tombstone. The caller (the engine) owns the log, gives
//! versions ([`ropewalk_base::Seq`]) and decides which memtables exist; this crate never invents a version.
//!
//! Words: a *run* is one sorted immutable file, a *flush* is what one memtable became, a *level* is a set of disjoint
//! runs, a *view* is the set of all runs at one moment.
//!
//! Not here: durability of single commits (the log), isolation (the engine), what keys mean (the models).

mod block;
mod block_builder;
mod compact;
mod cursor;
mod error;
mod fences;
mod files;
mod filter;
mod footer;
mod gc;
mod manifest;
mod many;
mod mem_cursor;
mod memtable;
mod options;
mod pin;
mod prefetch;
mod prefix;
mod ranges;
mod run;
mod scan;
mod search;
mod sorted;
mod sorted_cursor;
mod stats;
mod store;
mod tree;
mod value;
mod verify;
mod view;
mod writer;

pub use block::ENTRY_BYTES_MAX;
pub use cursor::Cursor;
pub use error::StoreError;
pub use manifest::Checkpoint;
pub use many::MANY;
pub use memtable::Memtable;
pub use options::{Compression, FilterPolicy, Keyspace, KeyspaceOptions, ReadMode, StoreOptions};
pub use pin::{StoreCopy, StorePin};
pub use stats::{KeyspaceStats, LevelStats, StoreStats};
pub use store::{CompactStep, Edit, Store};
pub use value::{Entry, Value};
pub use verify::{Damage, VerifyReport};
pub use view::{StoreView, changed_in_range, get, newest_seq};
pub use writer::{NewRun, RunWriter};
