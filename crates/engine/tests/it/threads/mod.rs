//! The whole engine with several threads under a seeded scheduler, on a disk that fails: `--cfg shuttle`.
//!
//!   writers, readers, feed, flushers ─▶ engine ─▶ disk; every lock, atomic and disk call is a place to switch threads
//!
//! The seed of a run decides the operations, the faults and the schedule, so a failure is repeated by its
//! number: `ROPEWALK_SEED=n`. `ROPEWALK_SEEDS=n` runs so many of each test. A run that hangs is a deadlock,
//! or ends at [`STEPS_MAX`] switches of threads: every writer must finish before that.

#![allow(clippy::panic)] // clippy.toml allows it in test functions, not in their helpers

mod disk;
mod history;
mod panics;
mod story;

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Switches of threads after which a run counts as hanging; the longest that ends takes a tenth.
const STEPS_MAX: usize = 1_000_000;

fn config() -> Config {
    let mut config = Config::new();
    // Tasks call the whole engine; a page of stack that is not touched costs nothing.
    config.stack_size = 2 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
}

/// Runs one seed. Every third has the scheduler that switches seldom and holds threads back for long (probabilistic concurrency
/// testing, Burckhardt et al., ASPLOS 2010); its first run of each only counts the steps.
fn run_seed(seed: u64, body: fn(u64)) {
    if seed.is_multiple_of(3) {
        Runner::new(PctScheduler::new_from_seed(seed, 4, 3), config()).run(move || body(seed));
    } else {
        Runner::new(RandomScheduler::new_from_seed(seed, 1), config()).run(move || body(seed));
    }
}

/// The first of `seeds` seeds that fails.
fn first_failure(seeds: u64, body: fn(u64)) -> Option<u64> {
    (1..=seeds).find(|seed| catch_unwind(AssertUnwindSafe(|| run_seed(*seed, body))).is_err())
}

/// Runs the seeds of a test; `seeds` of them unless the environment sets their number, or one seed.
fn run_seeds(test: &str, seeds: u64, body: fn(u64)) {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    if let Some(seed) = number("ROPEWALK_SEED") {
        return run_seed(seed, body);
    }
    let seeds = number("ROPEWALK_SEEDS").unwrap_or(seeds);
    let failed = first_failure(seeds, body);
    let command = "RUSTFLAGS='--cfg shuttle' cargo test -p ropewalk-engine --test engine";
    assert!(failed.is_none(), "repeat: ROPEWALK_SEED={} {command} {test}", failed.unwrap_or_default());
}

#[test]
fn threads_and_faults_keep_every_promise() {
    run_seeds("threads_and_faults_keep_every_promise", 2_000, |seed| story::run(&story::Plan::new(seed)));
}

#[test]
fn a_panicking_model_stops_the_engine_and_shows_no_half_transaction() {
    run_seeds("a_panicking_model_stops_the_engine", 1_000, panics::run);
}

/// The flusher of a stopped engine looped without a pause while a generation was frozen.
#[test]
fn flusher_of_a_stopped_engine_leaves_the_processor() {
    run_seeds("flusher_of_a_stopped_engine_leaves_the_processor", 90, story::stop_with_a_frozen_generation);
}
