//! YCSB over typed tables.

pub mod plan;
pub mod run;
