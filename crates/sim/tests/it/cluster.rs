//! Three nodes that share a log, in short; `sim --cluster --seeds N` does any number.

use ropewalk_sim::run_cluster;

use crate::{find_nothing, run_twice};

#[test]
fn twenty_seeds_of_a_cluster_lose_nothing_and_agree() {
    let (mut leaders, mut unknown, mut statements, mut distortions) = (0, 0, 0, 0);
    for run in find_nothing(81..=100, |seed| run_cluster(seed, 2, false)) {
        assert!(run.counts.commits > 0 && run.counts.reads > 0, "{:?}", run.counts);
        leaders += run.counts.leaders;
        unknown += run.counts.unknown;
        statements += run.counts.statements;
        distortions += run.counts.distortions;
    }
    assert!(leaders > 40 && unknown > 0, "leaders change and answers are lost: {leaders}, {unknown}");
    assert!(statements > 100 && distortions > 1, "contents are compared: {statements}, {distortions}");
}

#[test]
fn same_seed_is_the_same_run_of_a_cluster() {
    run_twice(100..103, |seed| run_cluster(seed, 2, false));
}
