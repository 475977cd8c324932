//! Bundoc's report.

pub mod plan;
pub mod run;
