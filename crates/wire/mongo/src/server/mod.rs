//! Commands that describe the server, and those on its running operations and fail points.

pub(crate) mod current_ops;
pub(crate) mod fail_points;
pub(crate) mod hello;
pub(crate) mod profile;
pub(crate) mod status;
