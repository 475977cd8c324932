//! MongoDB's document language, as pure functions of documents: nothing here stores, locks or waits.
//!
//! ```text
//! bytes ─▶ Doc ─▶ Filter   does it match, and which index keys can match at all
//!             ├─▶ Update   the changed document
//!             ├─▶ Projection, Sort   the returned fields, and the order
//!             └─▶ Pipeline ─▶ stages over a stream, with a limit of memory
//! order ◀─ number ─▶ key      one order of values, as a comparison and as bytes
//! extjson  values as text
//! ```
//!
//! Sub-modules from top to bottom, each using only those below: `update`, `pipeline`, `filter`, `expression`,
//! `value`. Read `value` first, then `value::order` and `value::key`, `value::path` and `filter`.
//!
//! Refused rather than ignored: collations, JavaScript, geometry, and every unknown operator or option.

pub(crate) mod budget;
pub(crate) mod display;
pub(crate) mod error;
mod expression;
pub mod extjson;
mod filter;
mod memory;
mod options;
mod pipeline;
mod random;
pub(crate) mod regex;
mod schema;
mod update;
mod value;

pub use budget::{Budget, COMMAND_BYTES_MAX, SharedMemory};
pub use error::{Code, LangError};
pub use filter::bounds::Bounds;
pub use filter::{Filter, Match};
pub use options::Options;
pub use pipeline::output::{Output, OutputMode, WhenMatched, WhenNotMatched};
pub use pipeline::projection::Projection;
pub use pipeline::{Pipeline, Source, Stream};
pub use random::Random;
pub use regex::Patterns;
pub use schema::Schema;
pub use update::{Applied, Update, UpdateContext, prepare_insert};
pub use value::decimal::Decimal;
pub use value::sort::Sort;
pub use value::writer::Writer;
pub use value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, DocBuf, Fields, Owned, Value};
pub use value::{key, order, path};

pub(crate) use value::{restore, tree, val};
