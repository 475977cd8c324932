//! Behaviour of the facade.

mod changes;
mod opening;
mod transactions;
