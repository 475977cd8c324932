//! What a command writes, and passwords that are typed.

pub(crate) mod failure;
pub(crate) mod password;
pub(crate) mod report;
