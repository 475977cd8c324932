//! The simulation in short, and the bugs it has found.
#![allow(clippy::unwrap_used, clippy::panic)] // clippy.toml allows it in test functions, not in their helpers

mod audit;
mod cluster;
mod consumers;
mod documents;
mod found;
mod mixed;
mod series;
mod short;
mod tables;

use ropewalk_sim::{Exhausted, Run};

/// Checks that no seed finds a bug; returns the runs.
fn find_nothing(seeds: impl IntoIterator<Item = u64>, run: impl Fn(u64) -> Run) -> Vec<Run> {
    let checked = |seed| {
        let run = run(seed);
        assert!(run.bug.is_none(), "seed {seed}: {:?}\n{}", run.bug, run.tail.join("\n"));
        run
    };
    seeds.into_iter().map(checked).collect()
}

/// Checks that each seed gives the same run again; returns the runs.
fn run_twice(seeds: std::ops::Range<u64>, run: impl Fn(u64) -> Run) -> Vec<Run> {
    let checked = |seed| {
        let [one, two] = [(), ()].map(|()| run(seed));
        assert_eq!((one.hash, one.counts), (two.hash, two.counts), "seed {seed}");
        one
    };
    seeds.map(checked).collect()
}

/// Checks that no end of a process was found to lose anything.
fn lose_nothing(seed: u64, done: Exhausted) {
    assert!(done.points > 30, "the workload does something: {}", done.points);
    if let Some((point, disk_seed, run)) = done.failure {
        let (bug, tail) = (run.bug, run.tail.join("\n"));
        panic!("seed {seed}, end at operation {point}, disk seed {disk_seed}: {bug:?}\n{tail}");
    }
}
