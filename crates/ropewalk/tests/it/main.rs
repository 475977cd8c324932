//! Behaviour of the facade.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // clippy.toml allows it in test functions, not in their helpers

mod backup;
mod changes;
mod deciding;
mod derived_events;
#[path = "../../../series/tests/it/directories.rs"]
mod directories;
mod documents;
mod fixtures;
mod four_models;
mod groups;
mod idempotency;
mod log_alone;
mod opening;
mod projections;
mod projections_refused;
#[path = "../../../promql/tests/it/prometheus_scripts.rs"]
mod prometheus_scripts;
mod promql;
mod roles;
mod running;
mod series;
mod series_guards;
mod tables;
mod test_kit;
mod transactions;
mod typed_documents;
mod typed_events;
mod typed_rows;

use std::sync::Arc;

use ropewalk::engine::Env;
use ropewalk_vfs::{FaultyVfs, ManualClock, SeededRandom};

/// The environment of a new process on this disk.
fn env(disk: &FaultyVfs) -> Env {
    Env {
        vfs: Arc::new(disk.process()),
        clock: Arc::new(ManualClock::default()),
        random: Arc::new(SeededRandom::new(7)),
    }
}
