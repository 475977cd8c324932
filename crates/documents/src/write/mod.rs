//! Writing documents: statements, rules, index entries, the document itself.

pub(crate) mod aggregate;
pub(crate) mod autocommit;
pub(crate) mod capped;
pub(crate) mod document;
pub(crate) mod fast_path;
pub(crate) mod references;
pub(crate) mod retryable_writes;
pub(crate) mod statements;
