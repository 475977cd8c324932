//! The log on real servers, on one and on three, and on a scripted one for what real servers do not do at will.
//!
//! Real servers are the program in `ROPEWALK_NATS_SERVER`, or `nats-server` on the search path; without it their tests
//! are skipped with a message.
// The exemption for tests covers functions marked as such; the helpers of this test binary are tests, too.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout
)]

mod cluster;
mod measure;
mod script;
mod scripted;
mod servers;
mod single;
