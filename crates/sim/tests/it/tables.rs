//! Tables on a disk that fails, in short; `sim --tables --seeds N` does any number.

use ropewalk_sim::run_tables;

use crate::{find_nothing, run_twice};

#[test]
fn eighty_seeds_find_nothing() {
    find_nothing(1..=80, |seed| run_tables(seed, 6));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let runs = run_twice(100..104, |seed| run_tables(seed, 4));
    assert!(runs.iter().all(|run| run.counts.commits > 0));
}
