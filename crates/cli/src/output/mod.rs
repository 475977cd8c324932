//! The terminal: rows on standard output, failures on standard error, passwords that are typed.

pub(crate) mod cell;
pub(crate) mod failure;
pub(crate) mod password;
pub(crate) mod report;
