//! Ropewalk's engine: one commit log, one sequence of commits, any number of models.
//!
//!   Operation ─▶ pipeline (group commit) ─▶ commit: validate, sequence, apply ─▶ log ─▶ publish ─▶ Snapshot, ChangeFeed
//!                                                        └─▶ Generation (memtables) ─▶ background: flush ─▶ store runs
//!
//! Transactions that prefer waiting over being refused take locks on keys first: `commit::locks`.
//!
//! Read `engine` for the API, `commit` for the path of a transaction, `model::version` for read views,
//! `model` for the interface of a data model.

mod commit;
mod engine;
mod error;
mod keyspaces;
mod kv;
mod kv_transaction;
mod model;
mod options;
mod span;

pub use commit::Committed;
pub use commit::comparisons::{Comparisons, ContentsSlice};
pub use commit::follows::{FollowsCommit, NotNewest};
pub use commit::locks::{LOCKS_MAX, LockHolder, LockMode, LockWait, LockWaitWaker};
pub use commit::record::RecordBody;
pub use engine::backup::Backup;
pub use engine::cluster::{Followed, Role};
pub use engine::copy::LocalCopy;
pub use engine::feed::{Change, ChangeFeed};
pub use engine::hashes::{HashCounts, HashMarks};
pub use engine::repeat::PeriodicTask;
pub use engine::salvage::{inspect_log, salvage_log};
pub use engine::{
    CommitHandle, Engine, EngineReport, EngineStats, EngineStopped, InFlightCommit, TRANSACTION_BYTES_MAX,
    WaitVisible,
};
pub use error::{CommitError, Difference, EngineError, Rejection};
pub use keyspaces::{KeyspaceWatch, WatchMark, decode_definition};
pub use kv::{Isolation, KEY_BYTES_MAX, KeyConflict, KeyTooLong, KvBatch, KvWrite, decode_section};
pub use kv_transaction::{Blocked, KvMark, KvTransaction, LockError};
pub use model::definitions::LastDefinition;
pub use model::slice::SliceHasher;
pub use model::version::{Generation, ReadView, Reading, Snapshot};
pub use model::{Apply, KEYSPACES, KV, Memory, Model, ModelId, Operation, Outcome, Verdict};
pub use options::{Background, Durability, EngineOptions, SharedOptions, WriteCapacity};
pub use ropewalk_log::shared;
pub use ropewalk_log::{Damage, LogError, LogOptions, LogStats, Recovery, TornTail};
pub use ropewalk_store::{
    Compression, Cursor, FilterPolicy, Keyspace, KeyspaceOptions, MANY, NewRun, ReadMode, RunWriter,
    StoreError, StoreOptions, StoreStats, Value, VerifyReport,
};
pub use span::{EachEntry, KeySpan};
