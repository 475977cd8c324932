//! mytsdb's report.

pub mod data;
pub mod plan;
