//! Opossum's report.

pub mod data;
pub mod plan;
pub mod run;
