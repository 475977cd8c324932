//! The routes without sockets: requests, responses, and the contents of the store after them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod flight;
mod importing;
mod jobs;
mod kit;
#[path = "../../../core/tests/matrix/mod.rs"]
mod matrix;
mod otlp;
mod querying;
mod reading;
mod rights;
mod status;
mod writing;
