//! The event store: appends, reads, conditions.

pub mod append;
pub mod dataset;
pub mod event_store;
#[cfg(test)]
pub(crate) mod naive;
pub mod plan;
pub mod queries;
pub mod wire_plan;
