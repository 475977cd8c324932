//! Routes of consumer groups, checkpoints, projections and the change feed.

pub(crate) mod changes;
pub(crate) mod checkpoints;
pub(crate) mod groups;
pub(crate) mod projections;
