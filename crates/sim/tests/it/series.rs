//! Series on a disk that fails, in short; `sim --series --seeds N` does any number.

use ropewalk_sim::run_series;

use crate::{find_nothing, run_twice};

#[test]
fn twenty_seeds_of_series_find_nothing() {
    find_nothing(1..=20, |seed| run_series(seed, 6));
}

#[test]
fn the_same_seed_is_the_same_run_of_series() {
    let runs = run_twice(100..103, |seed| run_series(seed, 4));
    assert!(runs.iter().all(|run| run.counts.commits > 0));
}
