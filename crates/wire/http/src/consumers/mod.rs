//! Routes of consumer groups, checkpoints, projections, the change feed and single commits.

pub(crate) mod changes;
pub(crate) mod checkpoints;
pub(crate) mod commit;
pub(crate) mod groups;
pub(crate) mod projections;
