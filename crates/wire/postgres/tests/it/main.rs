#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod activity;
mod client;
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
mod waiting;
