//! The project's own promises: what `./run test` counts, and what docs/features.md claims.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

mod features;
mod run_script;
