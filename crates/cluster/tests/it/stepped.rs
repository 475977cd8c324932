//! The loop, one step at a time.

use std::time::Duration;

use ropewalk::cluster::Role;
use ropewalk::{Class, Database};
use ropewalk_cluster::{BarrierError, Done, End};
use ropewalk_log::LogId;
use ropewalk_log::shared::{Entry, EntryIndex, EntryKind, MemorySharedLog, SharedLog as _};

use crate::{LEASE, Stepped, leading, new_log};

fn kinds(node: &Stepped) -> Vec<EntryKind> {
    node.log.entries().iter().map(|bytes| Entry::decode(bytes).unwrap().kind).collect()
}

fn role(db: &Database) -> Role {
    db.role()
}

#[test]
fn follower_leads_after_a_lease_without_entries_and_an_interval_with_answers() {
    let node = Stepped::new(&new_log(), 1);
    assert!(matches!(node.step(), Done::Nothing));
    let early = node.run_for(LEASE, |done| !matches!(done, Done::Nothing));
    assert!(early.is_none(), "within the lease nothing happens: {early:?}");
    assert_eq!(role(node.node.database()), Role::Follower { leader: None });
    // The random share is at most one lease, the interval a third of one.
    let led = node.run_for(LEASE + LEASE / 3 + Duration::from_millis(300), |done| {
        matches!(done, Done::Led { term: 1 })
    });
    assert!(led.is_some(), "{:?}", node.node.status());
    assert_eq!(role(node.node.database()), Role::Leader { term: 1 });
}

#[test]
fn followers_apply_what_the_leader_commits_and_refuse_to_write() {
    let (_, leader, follower) = leading();
    let seq = leader.put(b"one");
    assert!(matches!(follower.step(), Done::Followed { .. }));
    follower.follow_all();
    assert_eq!((follower.node.status().seq, follower.get()), (seq, leader.get()));
    assert_eq!(role(follower.node.database()), Role::Follower { leader: Some("node-1".into()) });
    let refused = follower.node.database().begin();
    let db = follower.node.database();
    drop(refused);
    let error = db.keyspace("other", ropewalk::engine::KeyspaceOptions::default()).unwrap_err();
    assert_eq!(error.class(), Class::NotLeader, "{error}");
    assert!(error.to_string().contains("node-1"), "{error}");
}

#[test]
fn leader_renews_when_idle_and_is_not_replaced() {
    let (_, leader, follower) = leading();
    for _ in 0..10 * LEASE.as_millis() / 100 {
        for node in [&leader, &follower] {
            node.clock.advance(Duration::from_millis(100));
            let done = node.step();
            assert!(!matches!(done, Done::Led { .. } | Done::Ended(_)), "{done:?}");
        }
    }
    let renewals = kinds(&leader).iter().filter(|kind| **kind == EntryKind::Renew).count();
    assert!((28..=32).contains(&renewals), "ten leases have thirty intervals: {renewals}");
}

#[test]
fn commits_take_the_place_of_renewals() {
    let leader = Stepped::new(&new_log(), 1);
    leader.lead();
    leader.put(b"defines the keyspace");
    let renewals = || kinds(&leader).iter().filter(|kind| **kind == EntryKind::Renew).count();
    let before = renewals();
    for round in 0..60_u8 {
        leader.put(&[round]);
        leader.clock.advance(Duration::from_millis(100));
        leader.step();
    }
    assert_eq!(renewals(), before);
}

#[test]
fn follower_takes_over_and_the_deposed_leader_ends_and_follows_after_opening_again() {
    let (_, first, second) = leading();
    first.put(b"one");
    // The first node pauses.
    second.lead();
    assert_eq!(role(second.node.database()), Role::Leader { term: 2 });
    second.put(b"two");
    let db = first.node.database();
    let keys = db.keyspace("k", ropewalk::engine::KeyspaceOptions::default()).unwrap();
    let error = db.put(keys, b"k", b"lost", ropewalk::Durability::Async { interval: LEASE }).unwrap_err();
    assert_eq!(error.class(), Class::NotLeader, "{error}");
    let Done::Ended(end) = first.step() else { panic!("the leader was deposed") };
    assert!(matches!(end, End::Deposed) && end.is_reopened(), "{end}");
    assert!(matches!(first.step(), Done::Ended(End::Deposed)), "for good");
    assert_eq!(first.get().as_deref(), Some(b"one".as_slice()), "its snapshots remain");

    let first = first.open_again();
    first.follow_all();
    assert_eq!(first.get().as_deref(), Some(b"two".as_slice()));
    assert_eq!(first.node.status().leader.as_deref(), Some("node-2"));
}

#[test]
fn idle_leader_that_was_replaced_learns_it_at_its_next_renewal() {
    let (_, first, second) = leading();
    second.lead();
    let end = first.ended_within(LEASE);
    assert!(matches!(end, Some(End::Deposed)), "{end:?}");
}

#[test]
fn follower_leaves_the_leader_an_interval_after_the_log_was_away() {
    let node = Stepped::new(&new_log(), 1);
    node.log.set_connected(false);
    let away = node.run_for(5 * LEASE, |done| !matches!(done, Done::Unavailable { .. }));
    assert!(away.is_none(), "{away:?}");
    assert!(node.node.status().unavailable.is_some());
    node.log.set_connected(true);
    let too_early = node.run_for(LEASE / 3, |done| matches!(done, Done::Led { .. }));
    assert!(too_early.is_none());
    assert!(node.run_for(LEASE / 3, |done| matches!(done, Done::Led { .. })).is_some());
    assert!(node.node.status().unavailable.is_none());
}

#[test]
fn entry_of_the_leader_during_the_interval_ends_the_attempt() {
    let (_, leader, follower) = leading();
    follower.follow_all();
    follower.log.set_connected(false);
    follower.run_for(4 * LEASE, |_| false);
    follower.log.set_connected(true);
    follower.run_for(LEASE / 6, |_| false);
    leader.run_for(LEASE / 2, |done| matches!(done, Done::Renewed)).unwrap();
    let led = follower.run_for(LEASE / 2, |done| matches!(done, Done::Led { .. }));
    assert!(led.is_none());
    assert_eq!(role(leader.node.database()), Role::Leader { term: 1 });
}

#[test]
fn barrier_covers_acknowledged_commits_and_fails_on_a_deposed_leader() {
    let (_, first, second) = leading();
    let seq = first.put(b"one");
    assert_eq!(first.node.barrier(u64::MAX).unwrap(), seq);
    second.follow_all();
    let refused = second.node.barrier(u64::MAX).unwrap_err();
    assert!(matches!(&refused, BarrierError::NotLeader { leader } if leader.as_deref() == Some("node-1")));
    second.lead();
    let refused = first.node.barrier(u64::MAX).unwrap_err();
    assert!(matches!(refused, BarrierError::NotLeader { .. }), "{refused}");
    assert!(matches!(first.step(), Done::Ended(End::Deposed)));
    assert!(matches!(first.node.barrier(u64::MAX), Err(BarrierError::NotLeader { .. })));
}

#[test]
fn barrier_is_late_while_the_log_does_not_answer() {
    let leader = Stepped::new(&new_log(), 1);
    leader.lead();
    leader.log.set_connected(false);
    let refused = leader.node.barrier(u64::MAX).unwrap_err();
    assert!(matches!(refused, BarrierError::Late), "{refused}");
    // The leader stops leading: it cannot know whether the log has its entry.
    let refused = leader.node.barrier(u64::MAX).unwrap_err();
    assert!(matches!(refused, BarrierError::Late | BarrierError::NotLeader { .. }), "{refused}");
}

/// Checks that a log which is not the one that the nodes have read ends them for good.
fn assert_ends_every_node(change: impl FnOnce(&MemorySharedLog)) {
    let (log, leader, follower) = leading();
    leader.put(b"one");
    follower.follow_all();
    change(&log);
    for node in [&leader, &follower] {
        let Some(end) = node.ended_within(LEASE) else { panic!("node {} continues", node.number) };
        assert!(matches!(end, End::Lost { .. } | End::Diverged { .. }) && !end.is_reopened(), "{end}");
    }
}

#[test]
fn log_that_was_created_again_ends_every_node() {
    assert_ends_every_node(|log| log.create_again(LogId([8; 16])));
}

#[test]
fn log_that_lost_its_end_ends_every_node() {
    assert_ends_every_node(|log| log.lose_newest(1));
}

#[test]
fn node_whose_entries_were_trimmed_asks_for_a_newer_copy() {
    let (log, leader, follower) = leading();
    leader.put(b"one");
    log.trim(EntryIndex(3)).unwrap();
    let end = follower.ended_within(LEASE);
    let Some(end @ End::Trimmed { oldest: EntryIndex(3) }) = end else { panic!("{end:?}") };
    assert!(!end.is_reopened() && end.to_string().contains("entry 3"), "{end}");
}

#[test]
fn status_reports_lag_in_entries_and_in_time() {
    let (_, leader, follower) = leading();
    follower.follow_all();
    let status = follower.node.status();
    assert_eq!((status.lag_entries, status.lag, status.term), (0, Duration::ZERO, 1));
    for value in 0..5 {
        leader.put(&[value]);
    }
    follower.log.set_connected(false);
    follower.run_for(2 * LEASE, |_| false);
    let status = follower.node.status();
    assert_eq!(status.lag, 2 * LEASE);
    assert_eq!(status.unavailable.as_deref(), Some("this handle is disconnected"));
    follower.log.set_connected(true);
    follower.follow_all();
    let status = follower.node.status();
    assert_eq!((status.lag_entries, status.lag), (0, Duration::ZERO));
    assert_eq!(status.index, leader.node.database().engine().place().index);
    assert_eq!(leader.node.status().lag, Duration::ZERO);
}
