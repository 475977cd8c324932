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

mod decimal;
mod error;
pub mod key;
mod number;
mod options;
pub mod order;
pub mod path;
mod value;

pub use decimal::Decimal;
pub use error::{Code, LangError};
pub use options::Options;
pub use value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, DocBuf, Fields, Owned, Value, Writer};
