#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod client;
mod extended;
mod hostile;
mod opening;
mod simple;
