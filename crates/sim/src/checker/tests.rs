//! Hand-written histories: each anomaly is found and named, and histories without it pass.

use std::collections::BTreeMap;

use super::history::{Executed, Operation, Outcome, Seen, Version};
use super::{Anomaly, Kind, Level, check};
use crate::events::rng::Dice;

/// Operations of a register, written `r` and `w`, a list, read by `l`, and a set, read by `s`.
fn r(key: &str, seen: Option<Version>) -> Operation {
    Operation::Read(key.to_owned(), Seen::Newest(seen))
}

fn l(key: &str, seen: &[Version]) -> Operation {
    Operation::Read(key.to_owned(), Seen::List(seen.to_vec()))
}

fn s(key: &str, seen: &[Version]) -> Operation {
    Operation::Read(key.to_owned(), Seen::Set(seen.iter().copied().collect()))
}

fn w(key: &str, version: Version) -> Operation {
    Operation::Write(key.to_owned(), version)
}

fn executed(times: (u64, u64), outcome: Outcome, operations: Vec<Operation>) -> Executed {
    Executed { begin: times.0, end: times.1, outcome, operations }
}

/// Committed transactions that all ran at the same time.
fn concurrent<const N: usize>(all: [Vec<Operation>; N]) -> Vec<Executed> {
    all.into_iter().map(|operations| executed((1, 2), Outcome::Committed, operations)).collect()
}

/// Committed transactions that ran one after another.
fn one_by_one<const N: usize>(all: [Vec<Operation>; N]) -> Vec<Executed> {
    let each = |(number, operations): (usize, Vec<Operation>)| {
        let begin = 2 * number as u64;
        executed((begin, begin + 1), Outcome::Committed, operations)
    };
    all.into_iter().enumerate().map(each).collect()
}

fn kinds(history: &[Executed], level: Level) -> Vec<Kind> {
    check(history, level).iter().map(|anomaly| anomaly.kind).collect()
}

/// The history has this anomaly at all levels from `weakest`, and no other.
#[track_caller]
fn assert_found(history: &[Executed], kind: Kind, weakest: Level) {
    for level in [Level::Snapshot, Level::Serializable, Level::StrictSerializable] {
        let expected = if level >= weakest { vec![kind] } else { Vec::new() };
        assert_eq!(kinds(history, level), expected, "{level:?}: {:?}", check(history, level));
    }
}

#[track_caller]
fn assert_passes(history: &[Executed], level: Level) {
    assert_eq!(check(history, level), [], "{level:?}");
}

#[test]
fn dirty_write_is_found_in_the_orders_of_two_lists() {
    let history = concurrent([
        vec![w("x", 1), w("y", 1)],
        vec![w("x", 2), w("y", 2)],
        vec![l("x", &[1, 2]), l("y", &[2, 1])],
    ]);
    assert_found(&history, Kind::DirtyWrite, Level::Snapshot);
}

#[test]
fn aborted_read_is_found() {
    let mut history = concurrent([vec![w("x", 1)], vec![r("x", Some(1))]]);
    history[0].outcome = Outcome::Aborted;
    assert_found(&history, Kind::AbortedRead, Level::Snapshot);
    history[1].operations = vec![r("x", None)];
    assert_passes(&history, Level::StrictSerializable);
}

#[test]
fn intermediate_read_is_found_in_registers_lists_and_sets() {
    for seen in [r("x", Some(1)), l("x", &[1]), s("x", &[1])] {
        let history = concurrent([vec![w("x", 1), w("x", 2)], vec![seen]]);
        assert!(kinds(&history, Level::Snapshot).contains(&Kind::IntermediateRead), "{history:?}");
    }
    for seen in [r("x", Some(2)), l("x", &[1, 2]), s("x", &[1, 2])] {
        assert_passes(&concurrent([vec![w("x", 1), w("x", 2)], vec![seen]]), Level::StrictSerializable);
    }
}

#[test]
fn circular_information_flow_is_found() {
    let history = concurrent([vec![w("x", 1), r("y", Some(2))], vec![w("y", 2), r("x", Some(1))]]);
    assert_found(&history, Kind::CircularInformation, Level::Snapshot);
}

#[test]
fn lost_update_of_a_register_is_found() {
    let history =
        concurrent([vec![w("x", 1)], vec![r("x", Some(1)), w("x", 2)], vec![r("x", Some(1)), w("x", 3)]]);
    assert_found(&history, Kind::LostUpdate, Level::Snapshot);
    let from_nothing = concurrent([vec![r("x", None), w("x", 2)], vec![r("x", None), w("x", 3)]]);
    assert_found(&from_nothing, Kind::LostUpdate, Level::Snapshot);
}

#[test]
fn lost_update_of_a_list_is_found() {
    let history =
        concurrent([vec![l("x", &[]), w("x", 1)], vec![l("x", &[]), w("x", 2)], vec![l("x", &[1, 2])]]);
    assert_found(&history, Kind::LostUpdate, Level::Snapshot);
}

#[test]
fn read_skew_is_found() {
    let history = concurrent([vec![w("x", 1), w("y", 1)], vec![r("x", None), r("y", Some(1))]]);
    assert_found(&history, Kind::ReadSkew, Level::Snapshot);
}

#[test]
fn read_that_changes_within_its_transaction_is_found() {
    let history = concurrent([vec![w("x", 1)], vec![r("x", None), r("x", Some(1))]]);
    assert_found(&history, Kind::ReadSkew, Level::Snapshot);
}

#[test]
fn write_skew_across_models_is_found_only_above_snapshot() {
    let history = concurrent([
        vec![l("events:1", &[]), r("row:1", None), w("row:1", 5)],
        vec![r("row:1", None), w("events:1", 6)],
    ]);
    assert_found(&history, Kind::WriteSkew, Level::Serializable);
}

#[test]
fn write_skew_over_a_set_that_grows_is_found() {
    // Each transaction counts the members and adds one if it finds no member: a phantom for the other.
    let history = concurrent([
        vec![s("members", &[]), w("members", 1)],
        vec![s("members", &[]), w("members", 2)],
        vec![s("members", &[1, 2])],
    ]);
    assert_found(&history, Kind::WriteSkew, Level::Serializable);
}

#[test]
fn write_skew_of_three_transactions_is_found() {
    let history = concurrent([
        vec![r("x", None), w("y", 1)],
        vec![r("y", None), w("z", 2)],
        vec![r("z", None), w("x", 3)],
    ]);
    assert_found(&history, Kind::WriteSkew, Level::Serializable);
}

#[test]
fn stale_read_is_found_only_in_real_time() {
    let history = one_by_one([vec![w("x", 1)], vec![r("x", None)]]);
    assert_found(&history, Kind::StaleRead, Level::StrictSerializable);
    let overlapping = concurrent([vec![w("x", 1)], vec![r("x", None)]]);
    assert_passes(&overlapping, Level::StrictSerializable);
}

#[test]
fn stale_read_is_found_across_transactions_in_between() {
    let mut history =
        one_by_one([vec![w("x", 1)], vec![w("y", 1)], vec![r("y", Some(1))], vec![r("x", None)]]);
    assert_eq!(kinds(&history, Level::StrictSerializable), [Kind::StaleRead]);
    // The writer of x is still running when the reader ends.
    history[0].end = 100;
    assert_passes(&history, Level::StrictSerializable);
}

#[test]
fn acknowledged_append_that_is_lost_is_a_stale_read() {
    let history = one_by_one([vec![w("x", 1)], vec![w("x", 2)], vec![l("x", &[1])]]);
    assert_found(&history, Kind::StaleRead, Level::StrictSerializable);
}

#[test]
fn unknown_outcome_counts_when_its_write_was_read() {
    let mut history =
        one_by_one([vec![w("x", 1), w("y", 1)], vec![r("x", None)], vec![r("x", Some(1)), r("y", Some(1))]]);
    history[0].outcome = Outcome::Unknown;
    // It may have been committed after the first reader.
    assert_passes(&history, Level::StrictSerializable);
    history[2].operations = vec![r("x", None), r("y", None)];
    assert_passes(&history, Level::StrictSerializable);
    // Half of it was applied.
    history[2].operations = vec![r("x", Some(1)), r("y", None)];
    assert_eq!(kinds(&history, Level::Snapshot), [Kind::ReadSkew]);
}

#[test]
fn unknown_outcomes_that_read_each_other_count_together() {
    let mut history = one_by_one([
        vec![w("x", 1)],
        vec![r("x", Some(1)), w("y", 2)],
        vec![r("y", Some(2))],
        vec![r("x", None)],
    ]);
    history[0].outcome = Outcome::Unknown;
    history[1].outcome = Outcome::Unknown;
    assert_passes(&history, Level::Serializable);
    assert_eq!(kinds(&history, Level::StrictSerializable), [Kind::StaleRead]);
}

#[test]
fn reads_of_own_writes_are_checked() {
    let good = concurrent([vec![
        r("x", None),
        w("x", 1),
        r("x", Some(1)),
        w("list", 2),
        l("list", &[2]),
        w("set", 3),
        s("set", &[3]),
    ]]);
    assert_passes(&good, Level::StrictSerializable);
    for contradiction in [r("x", None), l("x", &[]), s("x", &[])] {
        let history = concurrent([vec![w("x", 1), contradiction]]);
        assert_found(&history, Kind::Internal, Level::Snapshot);
    }
    let early = concurrent([vec![r("x", Some(1)), w("x", 1)]]);
    assert!(kinds(&early, Level::Snapshot).contains(&Kind::Internal));
}

#[test]
fn version_without_a_writer_is_found() {
    assert_found(&concurrent([vec![r("x", Some(7))]]), Kind::UnwrittenVersion, Level::Snapshot);
}

#[test]
fn version_written_twice_is_found() {
    let history = concurrent([vec![w("x", 7)], vec![w("x", 7)]]);
    assert!(kinds(&history, Level::Snapshot).contains(&Kind::DuplicateVersion));
}

#[test]
fn lists_in_different_orders_are_found() {
    let history = concurrent([vec![w("x", 1)], vec![w("x", 2)], vec![l("x", &[1, 2])], vec![l("x", &[2])]]);
    assert!(kinds(&history, Level::Snapshot).contains(&Kind::IncompatibleOrder));
    let twice = concurrent([vec![w("x", 1)], vec![l("x", &[1, 1])]]);
    assert!(kinds(&twice, Level::Snapshot).contains(&Kind::IncompatibleOrder));
}

#[test]
fn report_names_keys_versions_and_operations() {
    let history =
        concurrent([vec![l("events:1", &[]), w("row:1", 5)], vec![r("row:1", None), w("events:1", 6)]]);
    let found = check(&history, Level::Serializable);
    let [Anomaly { text, .. }] = found.as_slice() else { panic!("{found:?}") };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "2 transactions must each precede the next, and the last the first",
            "T0 before T1: T0 read events:1 without version 6, which T1 wrote",
            "T1 before T0: T1 read row:1 without version 5, which T0 wrote",
            "T0 [1, 2] Committed: read events:1 = []; write row:1 = 5",
            "T1 [1, 2] Committed: read row:1 = nothing; write events:1 = 6",
        ]
    );
}

/// Contents of all keys during a serial run; a register has one version at most.
type Contents = BTreeMap<String, Vec<Version>>;

/// One transaction on the contents: reads and writes of registers, lists and sets.
fn run_on(contents: &mut Contents, dice: &Dice, next: &mut Version) -> Vec<Operation> {
    let mut operations = Vec::new();
    for _ in 0..dice.between(1, 5) {
        let kind = *dice.pick(&["row", "list", "set"]).unwrap();
        let key = format!("{kind}:{}", dice.below(3));
        let known = contents.entry(key.clone()).or_default();
        let read = match kind {
            "row" => r(&key, known.last().copied()),
            "list" => l(&key, known),
            _ => s(&key, known),
        };
        let writes = dice.one_in(2);
        if !writes || kind == "row" {
            operations.push(read);
        }
        if writes {
            *next += 1;
            known.push(*next);
            operations.push(w(&key, *next));
        }
    }
    operations
}

#[test]
fn serial_histories_pass_and_reads_from_the_past_are_found() {
    for seed in 0..20 {
        let dice = Dice::new(seed);
        let (mut contents, mut next) = (Contents::new(), 0);
        let mut history = Vec::new();
        for number in 0..200 {
            let operations = run_on(&mut contents, &dice, &mut next);
            history.push(executed((2 * number, 2 * number + 1), Outcome::Committed, operations));
        }
        assert_passes(&history, Level::StrictSerializable);
        // A transaction that ran last claims to have seen nothing.
        let seen = vec![l("list:0", &[]), r("row:0", None), s("set:0", &[])];
        history.push(executed((1000, 1001), Outcome::Committed, seen));
        assert_eq!(kinds(&history, Level::StrictSerializable), [Kind::StaleRead], "seed {seed}");
    }
}

#[test]
fn transactions_on_old_snapshots_have_write_skew_and_nothing_worse() {
    let mut found = 0;
    for seed in 0..20 {
        let dice = Dice::new(seed);
        let (mut contents, mut next) = (Contents::new(), 0);
        let mut history = Vec::new();
        for number in 0..100 {
            // Two transactions on one snapshot; the second is aborted if both write the same list or row.
            let before = contents.clone();
            let first = run_on(&mut contents, &dice, &mut next);
            let mut old = before;
            let second = run_on(&mut old, &dice, &mut next);
            let written = |operations: &[Operation]| -> Vec<String> {
                let keys = operations.iter().filter_map(|operation| match operation {
                    Operation::Write(key, _) if !key.starts_with("set") => Some(key.clone()),
                    _ => None,
                });
                keys.collect()
            };
            let taken = written(&first);
            let is_rejected = written(&second).iter().any(|key| taken.contains(key));
            for operation in &second {
                if let (Operation::Write(key, version), false) = (operation, is_rejected) {
                    contents.entry(key.clone()).or_default().push(*version);
                }
            }
            let times = (10 * number, 10 * number + 5);
            let outcome = if is_rejected { Outcome::Aborted } else { Outcome::Committed };
            history.push(executed(times, Outcome::Committed, first));
            history.push(executed(times, outcome, second));
        }
        assert_passes(&history, Level::Snapshot);
        let kinds = kinds(&history, Level::Serializable);
        assert!(kinds.iter().all(|kind| *kind == Kind::WriteSkew), "{kinds:?}");
        found += kinds.len();
    }
    assert!(found > 10, "{found}");
}
