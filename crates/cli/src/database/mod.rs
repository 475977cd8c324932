//! The database that a command works on: a directory that this process opens, or a server.

pub(crate) mod context;
pub(crate) mod listed;
pub(crate) mod metadata;
pub(crate) mod place;
pub(crate) mod remote;
pub(crate) mod role;
