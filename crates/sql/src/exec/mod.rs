//! Executors: rows by key and scan, nested loops, the analytic engine.

pub(crate) mod access_path;
pub(crate) mod analytic;
pub(crate) mod executor;
pub(crate) mod locking;
pub(crate) mod nested_loop;
pub(crate) mod point;
pub(crate) mod row_source;
pub(crate) mod spool;
