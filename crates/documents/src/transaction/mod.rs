//! Documents inside a transaction, and transactions that run until no other commit conflicts.

pub(crate) mod isolation;
pub(crate) mod submit;
pub(crate) mod tx;
pub(crate) mod write_budget;
