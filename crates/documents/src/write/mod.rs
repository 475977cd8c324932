//! Writes of documents: statements, their rules and references, index entries, the document itself.
//!
//! A document, its index entries and its section are in one commit.

pub(crate) mod aggregate;
pub(crate) mod autocommit;
pub(crate) mod capped;
pub(crate) mod document;
pub(crate) mod fast_path;
pub(crate) mod references;
pub(crate) mod retryable_writes;
pub(crate) mod statements;
