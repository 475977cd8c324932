//! Tables on a disk that fails, in short; `sim --tables --seeds N` does any number.

use ropewalk_sim::run_tables;

#[test]
fn eighty_seeds_find_nothing() {
    for seed in 1..=80 {
        let run = run_tables(seed, 6);
        assert!(run.bug.is_none(), "seed {seed}: {:?}\n{}", run.bug, run.tail.join("\n"));
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 100..104 {
        let (one, two) = (run_tables(seed, 4), run_tables(seed, 4));
        assert_eq!((one.hash, one.counts), (two.hash, two.counts), "seed {seed}");
        assert!(one.counts.commits > 0);
    }
}
