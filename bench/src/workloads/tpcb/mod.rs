//! TPC-B over typed tables.

pub mod accounts;
pub mod plan;
pub mod run;
