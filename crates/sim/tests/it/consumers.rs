//! Consumer groups and projections on a disk that fails, in short; `sim --consumers --seeds N` does any number.

use ropewalk_sim::run_consumers;

use crate::find_nothing;

#[test]
fn forty_seeds_of_consumers_find_nothing() {
    find_nothing(1..=40, |seed| run_consumers(seed, 6));
}
