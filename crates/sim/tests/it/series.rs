//! Series on a disk that fails, in short; `sim --series --seeds N` does any number.

use ropewalk_sim::run_series;

#[test]
fn twenty_seeds_of_series_find_nothing() {
    for seed in 1..=20 {
        let run = run_series(seed, 6);
        assert!(run.bug.is_none(), "seed {seed}: {:?}\n{}", run.bug, run.tail.join("\n"));
    }
}

#[test]
fn the_same_seed_is_the_same_run_of_series() {
    for seed in 100..103 {
        let (one, two) = (run_series(seed, 4), run_series(seed, 4));
        assert_eq!((one.hash, one.counts), (two.hash, two.counts), "seed {seed}");
        assert!(one.counts.commits > 0);
    }
}
