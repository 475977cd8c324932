//! The bank and its auditors on a disk that fails, in short; `sim --audit --seeds N` does any number.

use ropewalk_sim::{Plant, exhaust_audit, run_audit};

use crate::{find_nothing, lose_nothing, run_twice};

#[test]
fn thirty_seeds_of_audits_find_no_disagreement() {
    for run in find_nothing(1..=30, |seed| run_audit(seed, 6, Plant::Nothing)) {
        assert!(run.counts.commits > 0 && run.counts.reads > 0, "{:?}", run.counts);
    }
}

#[test]
fn same_seed_is_the_same_run_of_audits() {
    run_twice(100..103, |seed| run_audit(seed, 4, Plant::Nothing));
}

#[test]
fn power_cut_or_kill_at_every_operation_leaves_books_that_agree() {
    lose_nothing(3, exhaust_audit(3, 24, 2));
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
