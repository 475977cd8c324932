//! Executors: rows by key and scan, nested loops, the analytic engine.

#[cfg(feature = "analytic")]
pub(crate) mod analytic;
#[cfg(not(feature = "analytic"))]
#[path = "without_analytic.rs"]
pub(crate) mod analytic;
pub(crate) mod catalog_relations;
pub(crate) mod executor;
pub(crate) mod finder;
mod locking;
pub(crate) mod nested_loop;
pub(crate) mod point;
pub(crate) mod relations;
pub(crate) mod spool;
