//! Ropewalk's documents: BSON documents in collections, with secondary indexes, inside the engine's
//! transactions.
//!
//! ```text
//! lang     filters, updates, projections, sorts, pipelines: pure functions over BSON bytes
//! write    limits ─▶ rules ─▶ index entries ─▶ document ─▶ section ─▶ KvTransaction ─▶ one commit
//! query    Find ─▶ plan ─▶ scan ─▶ sort, skip, limit, projection      from a transaction or a snapshot
//! stream   log ─▶ change feed ─▶ events
//! ```
//!
//! Read `catalog` and `index::entry` for what is stored, `model::commit_section` for the documents' part of
//! a commit, then `write::document`, `query::plan` and `query::scan`.
//!
//! Not here: the MongoDB wire protocol, the parser of JSON, users.
#![deny(missing_docs)]

mod catalog;
mod collection;
mod error;
mod index;
pub mod lang;
mod model;
mod query;
mod rules;
mod stream;
mod transaction;
#[cfg(feature = "serde")]
mod typed;
mod write;

/// The crate whose `doc!` writes filters, updates and documents.
#[cfg(feature = "serde")]
pub use bson::{self, doc};

pub use catalog::capped::CappedLimits;
pub use catalog::definition::{
    CollectionOptions, Definition, ID_INDEX, INDEX_FIELDS_MAX, INDEXES_MAX, Index, IndexDef, OnDelete,
    Reference,
};
pub use catalog::view::{View, not_on_view};
pub use catalog::{COLLECTION_NAME_BYTES_MAX, DATABASE_NAME_BYTES_MAX, glob_matches};
pub use error::DocumentsError;
pub use index::entry::KEY_BYTES_MAX;
pub use index::verify::Validated;
pub use model::counts::Count;
pub use model::handle::Collection;
pub use model::{DOCUMENTS, Documents, DocumentsModel};
pub use query::aggregate::PIPELINE_BYTES_MAX;
pub use query::plan::Hint;
pub use query::read::{DocumentsRead, Find, SORT_BYTES_MAX};
pub use query::snapshot_reads::{DocumentCursor, DocumentsAt, Getter};
pub use query::view::view_documents;
pub use rules::{Access, Caller};
pub use stream::tail::Tail;
pub use stream::watch::{ChangeEvent, ChangeStream, CommitEvents, ResumeToken, Target, Watch};
pub use transaction::isolation::isolation_named;
pub use transaction::source::CancelCheck;
pub use transaction::submit::Submitted;
pub use transaction::tx::{DocumentsMark, DocumentsState, DocumentsTx};
pub use transaction::write_budget::WriteBudget;
#[cfg(feature = "serde")]
pub use typed::{TypedCollection, TypedTx};
pub use write::retryable_writes::{RetryKey, SESSION_BYTES_MAX};
pub use write::statements::{
    BulkResult, BulkWrite, FindAndModify, InsertedMany, UpdateSpec, Updated, id_filter,
};
