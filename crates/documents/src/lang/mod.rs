//! MongoDB's document language, as pure functions of documents: nothing here stores, locks or waits.
//!
//! ```text
//! bytes ─▶ Doc ─▶ Filter   does it match, and which index keys can match at all
//!             ├─▶ Update   what it becomes
//!             ├─▶ Projection, Sort   what is shown of it, in which order
//!             └─▶ Pipeline ─▶ stages over a stream, with a limit of memory
//! order ◀─ number ─▶ key      one order of values, as a comparison and as bytes
//! ```
//!
//! Read `value` first, then `order` and `key`, `path` and `filter`.
//!
//! Refused rather than ignored: collations, JavaScript, geometry, and every operator or option that is not known.

mod accumulate;
mod bounds;
mod bucket;
pub(crate) mod budget;
mod decimal;
pub(crate) mod display;
pub(crate) mod error;
mod expression;
mod filter;
mod filter_parser;
mod functions;
mod group;
pub mod key;
mod lookup;
mod memory;
mod modify;
mod number;
mod options;
pub mod order;
mod output;
pub mod path;
mod pipeline;
mod projection;
pub(crate) mod regex;
pub(crate) mod restore;
mod schema;
mod sort;
pub(crate) mod tree;
mod unwind;
mod update;
pub(crate) mod val;
mod value;
mod window;
mod window_functions;
mod writer;

pub use bounds::Bounds;
pub use budget::{Budget, COMMAND_BYTES_MAX, SharedMemory};
pub use decimal::Decimal;
pub use error::{Code, LangError};
pub use filter::{Filter, Match};
pub use options::Options;
pub use output::{Output, OutputMode, WhenMatched, WhenNotMatched};
pub use pipeline::{Pipeline, Source, Stream};
pub use projection::Projection;
pub use regex::Patterns;
pub use schema::Schema;
pub use sort::Sort;
pub use update::{Applied, Update, UpdateContext, prepare_insert};
pub use value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, DocBuf, Fields, Owned, Value};
pub use writer::Writer;
