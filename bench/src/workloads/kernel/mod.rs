//! Key-value rows and commits.

pub mod commit;
pub mod ordered;
pub mod plan;
pub mod rows;
