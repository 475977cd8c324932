//! Views: names for pipelines over another collection or view. Each has an entry in the catalog:
//!
//! ```text
//! v database 0 name     { on, pipeline: [ stages ] }
//! ```

use crate::error::DocumentsError;
use crate::lang::error::lang_error;
use crate::lang::{Doc, DocBuf, Value, Writer};

/// Most views that are read through one another, as in MongoDB.
pub(crate) const VIEW_DEPTH_MAX: usize = 20;

/// A view: the documents of another collection or view of its database, passed through a pipeline.
#[derive(Debug, Clone)]
pub struct View {
    /// The collection or view that is read.
    pub on: String,
    /// The stages, an array.
    pub stages: DocBuf,
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.on == other.on && self.stages.bytes() == other.stages.bytes()
    }
}

impl Eq for View {}

impl View {
    pub(crate) fn encode(&self) -> DocBuf {
        let mut out = Writer::new();
        out.put("on", Value::String(&self.on));
        out.put("pipeline", Value::Array(self.stages.doc()));
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DocumentsError> {
        let doc = Doc::check(bytes).map_err(|error| DocumentsError::damaged("view", error))?;
        match (doc.get("on"), doc.get("pipeline")) {
            (Some(Value::String(on)), Some(Value::Array(stages))) => {
                Ok(Self { on: on.to_owned(), stages: stages.to_buf() })
            }
            _ => Err(DocumentsError::damaged("view", "its collection and its pipeline")),
        }
    }
}

/// The error of an operation that a view does not have.
pub fn not_on_view(database: &str, name: &str) -> DocumentsError {
    lang_error!(CommandNotSupportedOnView, "Namespace {database}.{name} is a view, not a collection").into()
}

/// The key of a view.
pub(crate) fn view_key(database: &str, name: &str) -> Vec<u8> {
    [b"v", database.as_bytes(), b"\0", name.as_bytes()].concat()
}
