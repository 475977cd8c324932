//! Three nodes that share a log, in short; `sim --cluster --seeds N` does any number.

use ropewalk_sim::run_cluster;

#[test]
fn twenty_seeds_of_a_cluster_lose_nothing_and_agree() {
    let (mut leaders, mut unknown, mut statements, mut distortions) = (0, 0, 0, 0);
    for seed in 1..=20 {
        let run = run_cluster(seed, 2);
        assert!(run.bug.is_none(), "seed {seed}: {:?}\n{}", run.bug, run.tail.join("\n"));
        assert!(run.counts.commits > 0 && run.counts.reads > 0, "seed {seed}: {:?}", run.counts);
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
    for seed in 100..103 {
        let [one, two] = [(), ()].map(|()| run_cluster(seed, 2));
        assert_eq!((one.hash, one.counts), (two.hash, two.counts), "seed {seed}");
    }
}
