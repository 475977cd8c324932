//! INSERT, UPDATE, DELETE and MERGE: plans and runs.

pub(crate) mod append_event;
pub(crate) mod current_of;
pub(crate) mod keyed;
pub(crate) mod merge;
pub(crate) mod model;
pub(crate) mod write;
