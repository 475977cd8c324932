//! Comparing contents: reports, statements of the leader, and nodes that differ.

use std::time::Duration;

use ropewalk::cluster::SharedOptions;
use ropewalk::engine::{Background, EngineError};
use ropewalk::{Options, Seq};
use ropewalk_base::ContentHash;
use ropewalk_cluster::{Done, End, HashReport, Node, Settings};
use ropewalk_engine::HashMarks;
use ropewalk_log::shared::{Entry, EntryKind, HashBody, MemorySharedLog};

use crate::{LEASE, Stepped, new_log};

/// Commits between two marks.
const INTERVAL: u64 = 4;
const HASH_TIME: Duration = Duration::from_secs(12);

fn node(log: &MemorySharedLog, number: u8) -> Stepped {
    let Stepped { node, clock, log, env, number } = Stepped::new(log, number);
    drop(node);
    let shared = SharedOptions {
        hash_interval: INTERVAL,
        ..SharedOptions::new(std::sync::Arc::new(log.clone()), [number; 16], format!("node-{number}"))
    };
    let options = Options::new().background(Background::Manual).env(env.clone()).shared(shared);
    let settings = Settings {
        lease: LEASE,
        seed: number.into(),
        read_wait: Duration::ZERO,
        hash_time: HASH_TIME,
        // Each slice has one item.
        slice_bytes: 1,
        ..Settings::default()
    };
    let node = Node::new(options.open("/db").unwrap(), std::sync::Arc::new(log.clone()), settings);
    Stepped { node, clock, log, env, number }
}

/// A leader and a follower at commit 4, which have compared nothing yet.
fn pair(log: &MemorySharedLog) -> (Stepped, Stepped) {
    let (leader, follower) = (node(log, 1), node(log, 2));
    leader.lead();
    put_to(&leader, 4);
    follower.follow_all();
    (leader, follower)
}

/// Commits up to commit `last`.
fn put_to(leader: &Stepped, last: u64) {
    while leader.node.database().seq() < Seq(last) {
        leader.put(b"value");
    }
}

fn statements(log: &MemorySharedLog) -> Vec<HashBody> {
    let entries = log.entries();
    let entries = entries.iter().map(|bytes| Entry::decode(bytes).unwrap());
    entries
        .filter(|entry| entry.kind == EntryKind::Hash)
        .map(|entry| HashBody::decode(entry.body).unwrap().unwrap())
        .collect()
}

/// A report of a node with another hash at each commit of `report`.
fn other(report: &HashReport) -> HashReport {
    let marks = report.marks.marks.iter().map(|(seq, hash)| (*seq, hash.plus(ContentHash(1)))).collect();
    HashReport { marks: HashMarks { marks, ..report.marks }, slice: None }
}

/// Steps the leader until it has made a statement or has ended.
fn stated(leader: &Stepped) -> Option<Done> {
    leader.run_for(LEASE, |done| matches!(done, Done::Stated | Done::Ended(_)))
}

#[test]
fn equal_nodes_compare_at_common_commits_and_continue() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    assert!(matches!(stated(&leader), Some(Done::Stated)), "where the sums begin to agree");
    follower.follow_all();
    put_to(&leader, 8);
    follower.follow_all();
    put_to(&leader, 12);
    assert!(stated(&leader).is_none(), "no node has reported");
    leader.node.take_hashes([2; 16], follower.node.hash_report());
    assert!(matches!(stated(&leader), Some(Done::Stated)));
    let [HashBody::Effects { seq: Seq(4), .. }, HashBody::Effects { seq: Seq(8), .. }] = *statements(&log)
    else {
        panic!("{:?}", statements(&log));
    };
    follower.follow_all();
    for node in [&leader, &follower] {
        node.run_for(LEASE / 2, |_| false);
        let hashes = node.node.status().hashes;
        assert_eq!((hashes.equal, hashes.differing.len()), (Seq(8), 0));
        assert!(hashes.counts.commits >= 12 && hashes.counts.bytes > 0);
    }
}

#[test]
fn leader_that_differs_from_most_nodes_ends() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    stated(&leader).unwrap();
    follower.follow_all();
    put_to(&leader, 8);
    follower.follow_all();
    let report = other(&leader.node.hash_report());
    assert!(leader.node.differs(&report) && !leader.node.differs(&follower.node.hash_report()));
    for node in [8, 9] {
        leader.node.take_hashes([node; 16], report.clone());
    }
    let Some(Done::Ended(end)) = stated(&leader) else { panic!("the leader continues") };
    let End::Differs { error: EngineError::Differs(found) } = &end else { panic!("{end}") };
    assert_eq!((found.seq, found.other.minus(found.own)), (Seq(8), ContentHash(1)));
    assert!(!end.is_reopened());
    // The others have the hash that it has stated; this follower does not.
    let ended = follower.ended_within(LEASE);
    assert!(matches!(ended, Some(End::Differs { .. })), "{ended:?}");
}

#[test]
fn of_two_nodes_that_differ_both_continue_until_a_third_one_decides() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    stated(&leader).unwrap();
    follower.follow_all();
    put_to(&leader, 8);
    follower.follow_all();
    let report = other(&leader.node.hash_report());
    let mut waited = Duration::ZERO;
    while waited < HASH_TIME * 2 {
        leader.node.take_hashes([9; 16], report.clone());
        assert!(stated(&leader).is_none(), "two nodes decide nothing");
        waited += LEASE;
        assert_eq!(leader.node.status().hashes.differing, [[9; 16]]);
    }
    for (node, report) in [(9, report), (2, follower.node.hash_report())] {
        leader.node.take_hashes([node; 16], report);
    }
    assert!(matches!(stated(&leader), Some(Done::Stated)), "two of three");
    follower.follow_all();
    for node in [&leader, &follower] {
        node.run_for(LEASE / 2, |_| false);
        assert_eq!(node.node.status().hashes.equal, Seq(8));
    }
}

#[test]
fn check_of_two_nodes_that_differ_ends_with_that() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    leader.node.check_contents().unwrap();
    for _ in 0..40 {
        leader.clock.advance(LEASE / 4);
        leader.step();
        follower.follow_all();
        let mut report = follower.node.hash_report();
        report.slice = report.slice.map(|(request, hash)| (request, hash.plus(ContentHash(1))));
        leader.node.take_hashes([2; 16], report);
    }
    let hashes = leader.node.status().hashes;
    assert_eq!((hashes.pass, hashes.passes, hashes.differing), (None, 1, vec![[2; 16]]));
    assert!(hashes.failed.as_ref().unwrap().contains("2 nodes"), "{:?}", hashes.failed);
    assert!(leader.node.end().is_none() && follower.node.end().is_none());
}

#[test]
fn nodes_whose_sums_began_elsewhere_compare_from_a_new_origin_on() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    stated(&leader).unwrap();
    follower.follow_all();
    put_to(&leader, 8);
    follower.follow_all();
    let mut report = other(&follower.node.hash_report());
    report.marks.origin = 0;
    let origin = || leader.node.hash_report().marks.origin;
    let before = origin();
    for _ in 0..8 {
        leader.node.take_hashes([9; 16], report.clone());
        if stated(&leader).is_some() {
            break;
        }
    }
    assert!(origin() != before && origin() != 0);
    follower.follow_all();
    put_to(&leader, 12);
    follower.follow_all();
    leader.node.take_hashes([2; 16], follower.node.hash_report());
    assert!(matches!(stated(&leader), Some(Done::Stated)));
    follower.follow_all();
    follower.run_for(LEASE / 2, |_| false);
    assert_eq!(follower.node.status().hashes.equal, Seq(12));
}

#[test]
fn check_of_all_contents_ends_with_what_was_equal() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    let refused = follower.node.check_contents().unwrap_err();
    assert!(matches!(refused, EngineError::NotLeader { leader: Some(_) }), "{refused}");
    leader.node.check_contents().unwrap();
    for _ in 0..200 {
        leader.clock.advance(Duration::from_millis(500));
        leader.step();
        follower.follow_all();
        leader.node.take_hashes([2; 16], follower.node.hash_report());
        if leader.node.status().hashes.last_pass.is_some() {
            break;
        }
    }
    let hashes = leader.node.status().hashes;
    let (pass, _) = hashes.last_pass.unwrap();
    assert!(pass.slices > 1 && pass.bytes > 0, "{hashes:?}");
    assert_eq!((hashes.pass, hashes.passes, hashes.failed), (None, 1, None));
}

#[test]
fn check_without_an_answer_ends_and_the_next_one_begins_again() {
    let log = new_log();
    let (leader, _follower) = pair(&log);
    for passes in 1..3 {
        leader.node.check_contents().unwrap();
        leader.run_for(HASH_TIME + LEASE, |_| false);
        let hashes = leader.node.status().hashes;
        assert_eq!((hashes.pass, hashes.passes), (None, passes));
        assert!(hashes.failed.unwrap().contains("no other node"));
    }
}

#[test]
fn new_leader_continues_the_check_of_the_one_before() {
    let log = new_log();
    let (leader, follower) = pair(&log);
    leader.node.check_contents().unwrap();
    let slices = || statements(&log).iter().filter(|body| matches!(body, HashBody::Slice { .. })).count();
    while slices() == 0 {
        leader.run_for(LEASE / 3, |_| false);
    }
    follower.follow_all();
    follower.lead();
    follower.run_for(LEASE, |_| false);
    let starts: Vec<_> = statements(&log)
        .into_iter()
        .filter_map(|body| match body {
            HashBody::Slice { start, .. } => Some(start),
            _ => None,
        })
        .collect();
    assert!(starts.len() == 2 && starts[0].is_empty() && !starts[1].is_empty(), "{starts:?}");
}
