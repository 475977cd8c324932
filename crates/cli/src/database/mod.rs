//! The database that a command works on: a directory, or a server.

pub(crate) mod context;
pub(crate) mod place;
pub(crate) mod remote;
