//! The HTTP interface over real sockets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod access;
mod append;
mod backups;
mod bodies;
mod budgets;
mod bundoc;
mod changes;
mod client;
#[path = "../../../core/tests/cluster/mod.rs"]
mod cluster;
mod commits;
mod compatible;
mod console;
mod document;
mod documents;
mod groups;
mod in_cluster;
mod manual;
#[path = "../../../core/tests/matrix/mod.rs"]
mod matrix;
mod pages;
mod projections;
mod reads;
mod rights;
mod sessions;
mod stores;
mod subscriptions;
mod surroundings;
mod transactions;
mod transactions_at;
mod transactions_limits;
mod transactions_sessions;
mod users;
