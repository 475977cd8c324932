//! Histories across models, in short; `sim --mixed --seeds N` does any number, `--threads N` with threads.

use ropewalk::Isolation;
use ropewalk_sim::checker::{Level, Outcome, check};
use ropewalk_sim::{race, run_mixed};

use crate::{find_nothing, run_twice};

#[test]
fn histories_across_models_and_crashes_are_strictly_serializable() {
    let run = |seed| run_mixed(seed, 6, Isolation::Serializable, Level::StrictSerializable);
    assert!(find_nothing(1..=30, run).iter().all(|run| run.counts.commits > 0));
}

#[test]
fn snapshot_isolation_has_write_skew_across_models_and_nothing_worse() {
    let mut found = 0;
    for seed in 1..=15 {
        let run = run_mixed(seed, 6, Isolation::Snapshot, Level::Snapshot);
        assert!(run.bug.is_none(), "seed {seed}: {}", run.bug.unwrap_or_default());
        let Some(bug) = run_mixed(seed, 6, Isolation::Snapshot, Level::Serializable).bug else { continue };
        assert!(bug.starts_with("write skew (G2)"), "seed {seed}: {bug}");
        found += 1;
    }
    assert!(found > 5, "{found} of 15 histories have write skew");
}

#[test]
fn same_seed_is_the_same_history() {
    run_twice(100..103, |seed| run_mixed(seed, 4, Isolation::Serializable, Level::StrictSerializable));
}

#[test]
fn histories_of_threads_are_strictly_serializable() {
    for seed in 1..=3 {
        let history = race(seed, 4, 150, Isolation::Serializable).unwrap();
        let committed = history.iter().filter(|executed| executed.outcome == Outcome::Committed).count();
        assert!(committed > 100, "seed {seed}: {committed} of {} were committed", history.len());
        let anomalies = check(&history, Level::StrictSerializable);
        assert!(anomalies.is_empty(), "seed {seed}: {}", anomalies[0]);
    }
}

#[test]
fn histories_of_threads_at_snapshot_isolation_have_nothing_worse_than_write_skew() {
    let history = race(1, 4, 150, Isolation::Snapshot).unwrap();
    let anomalies = check(&history, Level::Snapshot);
    assert!(anomalies.is_empty(), "{}", anomalies[0]);
}
