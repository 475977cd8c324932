//! Time series in the process.

pub mod plan;
