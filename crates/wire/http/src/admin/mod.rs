//! Routes for administrators: users, backups; who calls, and from where.

pub(crate) mod auth;
pub(crate) mod backups;
pub(crate) mod hosts;
pub(crate) mod users;
