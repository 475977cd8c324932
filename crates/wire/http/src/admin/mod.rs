//! Routes for administrators: users, backups; who calls, from where, and by which session.

pub(crate) mod auth;
pub(crate) mod backups;
pub(crate) mod hosts;
pub(crate) mod session;
pub(crate) mod users;
