//! Behaviour of the store as its users see it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod against_model;
mod basics;
mod damage;
mod failures;
mod golden;
mod opening;
mod power_cuts;
