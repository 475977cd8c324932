//! The simulation in short, and the bugs it has found.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

mod audit;
mod cluster;
mod consumers;
mod documents;
mod found;
mod mixed;
mod series;
mod short;
mod tables;
