//! The bank and its auditors on a disk that fails, in short; `sim --audit --seeds N` does any number.

use ropewalk_sim::{Plant, exhaust_audit, run_audit};

#[test]
fn thirty_seeds_of_audits_find_no_disagreement() {
    for seed in 1..=30 {
        let run = run_audit(seed, 6, Plant::Nothing);
        assert!(run.bug.is_none(), "seed {seed}: {:?}\n{}", run.bug, run.tail.join("\n"));
        assert!(run.counts.commits > 0 && run.counts.reads > 0, "seed {seed}: {:?}", run.counts);
    }
}

#[test]
fn same_seed_is_the_same_run_of_audits() {
    for seed in 100..103 {
        let [one, two] = [(), ()].map(|()| run_audit(seed, 4, Plant::Nothing));
        assert_eq!((one.hash, one.counts), (two.hash, two.counts), "seed {seed}");
    }
}

#[test]
fn power_cut_or_kill_at_every_operation_leaves_books_that_agree() {
    let done = exhaust_audit(3, 24, 2);
    assert!(done.points > 30, "the workload does something: {}", done.points);
    if let Some((point, disk_seed, run)) = done.failure {
        let (bug, tail) = (run.bug, run.tail.join("\n"));
        panic!("end at operation {point}, disk seed {disk_seed}: {bug:?}\n{tail}");
    }
}

#[test]
fn transfer_without_its_documents_is_found_by_auditors() {
    for seed in 1..=5 {
        let bug = run_audit(seed, 6, Plant::ForgottenDocument).bug.expect("the models disagree");
        assert!(bug.contains("the models disagree"), "seed {seed}: {bug}");
    }
}

#[test]
fn sync_that_does_nothing_is_found_by_auditors() {
    let found = (1..=300).find_map(|seed| run_audit(seed, 6, Plant::LostSync).bug.map(|bug| (seed, bug)));
    let (seed, bug) = found.expect("a lost sync is found within 300 seeds");
    println!("seed {seed}: {bug}");
}
