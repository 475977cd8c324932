//! Documents inside a transaction: definitions, guards, memory limits, commit, and retry after a conflict.
//!
//! A failed statement has no effect.

pub(crate) mod create;
pub(crate) mod isolation;
pub(crate) mod source;
pub(crate) mod submit;
pub(crate) mod transact;
pub(crate) mod tx;
pub(crate) mod write_budget;
