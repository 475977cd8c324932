//! Logins and users.

pub(crate) mod login;
pub(crate) mod users;
