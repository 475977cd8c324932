//! Plans a SELECT for the engine, clause by clause.

pub(super) mod aggregates;
pub(super) mod from;
pub(super) mod functions;
pub(super) mod guards;
pub(super) mod records;
pub(super) mod select;
pub(super) mod sets;
pub(super) mod translate;
pub(super) mod unnest;
pub(super) mod windows;
