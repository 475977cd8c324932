//! Tests of the project itself: the counts of `./run test`, and the claims of docs/features and docs/security.md.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

mod features;
mod run_script;
mod threats;
