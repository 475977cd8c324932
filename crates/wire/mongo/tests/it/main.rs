//! The protocol at the level of bytes, over a database in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod access;
mod bytes;
mod capped;
mod client;
#[path = "../../../core/tests/cluster/mod.rs"]
mod cluster;
mod collections;
mod commands;
mod failpoints;
mod handshake;
mod hostile;
#[path = "../../../core/tests/matrix/mod.rs"]
mod matrix;
mod members;
mod models;
mod operations;
mod rights;
mod rules;
mod sizes;
mod tools;
mod transactions;
mod views;
mod watching;
