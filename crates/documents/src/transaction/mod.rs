//! Documents inside a transaction, and transactions that run until no other commit conflicts.

pub(crate) mod create;
pub(crate) mod isolation;
pub(crate) mod source;
pub(crate) mod submit;
pub(crate) mod transact;
pub(crate) mod tx;
pub(crate) mod write_budget;
