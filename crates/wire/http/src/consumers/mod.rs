//! Routes of consumer groups, checkpoints and the change feed.

pub(crate) mod changes;
pub(crate) mod checkpoints;
pub(crate) mod groups;
