//! go-crablet's report.

pub mod plan;
