//! Consumer groups and projections on a disk that fails, in short; `sim --consumers --seeds N` does any number.

use ropewalk_sim::run_consumers;

#[test]
fn forty_seeds_of_consumers_find_nothing() {
    for seed in 1..=40 {
        let run = run_consumers(seed, 6);
        assert!(run.bug.is_none(), "seed {seed}: {:?}\n{}", run.bug, run.tail.join("\n"));
    }
}
