//! The language: pure functions of documents.

mod bad_bytes;
mod decimals;
mod naive;
pub(crate) mod notation;
mod order;
mod planned;
mod properties;
mod scripts;
mod values;

use bson::{Bson, Document};
use ropewalk_documents::lang::DocBuf;

/// Parses a document from extended JSON: `{"a": {"$numberDecimal": "1.5"}}`.
pub(super) fn json(text: &str) -> DocBuf {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let Bson::Document(doc) = Bson::try_from(value).unwrap() else { panic!("{text} is no document") };
    buf(&doc)
}

/// Converts a document of the crate `bson`, which drivers use.
pub(super) fn buf(doc: &Document) -> DocBuf {
    DocBuf::check(doc.to_vec().unwrap()).unwrap()
}
