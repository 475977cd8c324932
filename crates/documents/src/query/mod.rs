//! Queries: planner, scan, rows, pipelines, over a transaction or a snapshot.
//!
//! A plan only narrows: the filter is evaluated on every document found, unless the key ranges imply it.

pub(crate) mod aggregate;
pub(crate) mod inherent_reads;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod snapshot_reads;
pub(crate) mod view;
