//! Logins and users.

pub(crate) mod login;
pub(crate) mod roles;
pub(crate) mod users;
