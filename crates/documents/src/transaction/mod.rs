//! Documents inside a transaction: definitions, guards, memory limits, commit, and retry after a conflict.
//!
//! A statement that fails leaves nothing.

pub(crate) mod create;
pub(crate) mod isolation;
pub(crate) mod source;
pub(crate) mod submit;
pub(crate) mod transact;
pub(crate) mod tx;
pub(crate) mod write_budget;
