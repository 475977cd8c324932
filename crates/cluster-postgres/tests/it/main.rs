//! The shared log on real servers of PostgreSQL 15, which each test starts for itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions
#![allow(clippy::print_stderr, reason = "a skipped test is reported")]

mod chain;
mod failover;
mod far;
mod faults;
mod secure;
mod server;
mod settings;
mod writer;
