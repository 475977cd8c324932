//! INSERT, UPDATE, DELETE and MERGE: plans and runs.

pub(crate) mod current_of;
pub(crate) mod write;
