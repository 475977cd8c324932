//! Executors: rows by key and scan, nested loops, the analytic engine.

pub(crate) mod analytic;
pub(crate) mod catalog_relations;
pub(crate) mod executor;
mod locking;
pub(crate) mod nested_loop;
pub(crate) mod point;
pub(crate) mod spool;
