#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod activity;
mod client;
#[path = "../../../core/tests/cluster/mod.rs"]
mod cluster;
mod copying;
mod errors;
mod extended;
mod hostile;
mod http;
mod listening;
#[path = "../../../core/tests/matrix/mod.rs"]
mod matrix;
mod opening;
mod rights;
mod simple;
mod standby;
mod waiting;
