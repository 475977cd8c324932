//! Routes for administrators: users, backups, settings, the schema; who calls, from where, by which session.

pub(crate) mod auth;
pub(crate) mod backups;
pub(crate) mod cluster;
pub(crate) mod hosts;
pub(crate) mod in_force;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod users;
