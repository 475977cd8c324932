//! Behaviour of the facade.

mod changes;
mod fixtures;
mod opening;
mod transactions;
