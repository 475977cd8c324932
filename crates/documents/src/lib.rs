//! Ropewalk's documents: BSON documents in collections, with secondary indexes, inside the engine's transactions.
//!
//! ```text
//! lang     filters, updates, projections, sorts, pipelines: pure functions over BSON bytes
//! write    limits ─▶ rules ─▶ index entries ─▶ document ─▶ section ─▶ KvTransaction ─▶ one commit
//! read     Find ─▶ plan ─▶ scan ─▶ sort, skip, limit, projection      from a transaction or a snapshot
//! watch    log ─▶ change feed ─▶ events
//! ```
//!
//! Read `catalog`, `definition` and `entry` for what is stored, `section` for what a commit says of itself, then `write`,
//! `plan` and `scan`.
//!
//! Not here: the MongoDB wire protocol, JSON, users.
#![deny(missing_docs)]

mod aggregate;
mod at;
mod auto;
mod capped;
mod catalog;
mod collection;
mod counts;
mod ddl;
mod definition;
mod difference;
mod entry;
mod error;
mod expiry;
mod held;
mod isolation;
pub mod lang;
mod model;
mod plan;
mod point;
mod read;
mod reads;
mod references;
mod rules;
mod scan;
mod section;
mod session;
mod show;
mod statements;
mod submit;
mod tx;
#[cfg(feature = "serde")]
mod typed;
mod verify;
mod watch;
mod wildcard;
mod write;

/// The crate whose `doc!` writes filters, updates and documents.
#[cfg(feature = "serde")]
pub use bson::{self, doc};

pub use aggregate::PIPELINE_BYTES_MAX;
pub use at::{DocumentCursor, DocumentsAt, Getter};
pub use capped::{Capped, Tail};
pub use catalog::{COLLECTION_NAME_BYTES_MAX, DATABASE_NAME_BYTES_MAX, glob_matches};
pub use collection::Collection;
pub use counts::Count;
pub use definition::{
    CollectionOptions, Definition, ID_INDEX, INDEX_FIELDS_MAX, INDEXES_MAX, Index, IndexDef, OnDelete,
    Reference,
};
pub use entry::KEY_BYTES_MAX;
pub use error::DocumentsError;
pub use held::WriteBudget;
pub use isolation::isolation_named;
pub use model::{DOCUMENTS, Documents, DocumentsModel};
pub use plan::Hint;
pub use read::{DocumentsRead, Find, Look, SORT_BYTES_MAX};
pub use rules::{Access, Caller};
pub use session::{Retry, SESSION_BYTES_MAX};
pub use statements::{BulkResult, BulkWrite, FindAndModify, InsertedMany, UpdateSpec, Updated, id_filter};
pub use submit::Submitted;
pub use tx::{DocumentsMark, DocumentsState, DocumentsTx};
#[cfg(feature = "serde")]
pub use typed::{TypedCollection, TypedTx};
pub use verify::Validated;
pub use watch::{ChangeEvent, ChangeStream, ResumeToken, Target, Watch};
