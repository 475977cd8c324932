//! From a query to documents: planner, scan, rows, pipelines.

pub(crate) mod aggregate;
pub(crate) mod inherent_reads;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod snapshot_reads;
