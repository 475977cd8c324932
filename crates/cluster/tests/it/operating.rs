//! Calls for operators: the state of an upkeep, stopping it, and directories that get a checkpoint again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ropewalk::cluster::Role;
use ropewalk::engine::{EngineError, Env, KeyspaceOptions};
use ropewalk::{Class, Durability};
use ropewalk_cluster::checkpoint::{
    CheckpointError, Checkpoints, JoinNotice, Joined, Maker, StoppableStore, Upkeep, UpkeepDone,
    UpkeepSettings,
};
use ropewalk_cluster::{Done, End, Reseed, Settings};
use ropewalk_log::LogId;
use ropewalk_log::shared::{MemorySharedLog, SharedLog as _};
use ropewalk_vfs::Clock as _;

use crate::checkpoints::{Store, reopened, two_nodes};
use crate::{LEASE, Stepped, new_log};

const DB: &str = "/db";
const INTERVAL: Duration = Duration::from_secs(600);

fn maker(checkpoints: Checkpoints, node: &Stepped) -> Maker {
    let db = node.node.database().clone();
    Maker::new(checkpoints, db, Path::new(DB), [node.number; 16], format!("node-{}", node.number))
}

/// Ends a node; its files remain.
fn stop(node: Stepped) -> Env {
    let Stepped { node, env, .. } = node;
    // Fails if the node has ended.
    let _ = node.database().clone().close();
    env
}

#[test]
fn leader_that_steps_down_ends_and_another_node_leads() {
    let log = new_log();
    let (first, second) = two_nodes(&log);
    let seq = first.put(b"acknowledged");
    assert_eq!(first.node.step_down(None).unwrap(), 1);
    let error = first.node.step_down(None).unwrap_err();
    assert!(matches!(&error, EngineError::NotLeader { leader: None }), "{error}");
    let keys = first.node.database().keyspace("k", KeyspaceOptions::default()).unwrap();
    let refused = first.node.database().put(keys, b"k", b"later", Durability::Sync).unwrap_err();
    assert_eq!(refused.class(), Class::NotLeader, "{refused}");
    let newest = log.newest();
    let Done::Ended(end) = first.step() else { panic!("it continues") };
    assert!(matches!(end, End::SteppedDown) && end.is_reopened(), "{end}");
    assert!(first.node.barrier(u64::MAX).is_err(), "no reader waits for a node that has ended");

    // It is opened again at once, and the other node leads all the same.
    let Stepped { node, clock, log: handle, env, number } = first;
    node.database().clone().close().unwrap();
    drop(node);
    let hold_off = Settings { lease: LEASE, ..Settings::default() }.patience_max();
    let first = Stepped::open_with(handle, number, clock, env, hold_off);
    first.follow_all();
    for _ in 0..hold_off.as_millis() / 100 {
        assert!(!matches!(first.run_for(Duration::from_millis(100), |_| true), Some(Done::Led { .. })));
        if let Some(Done::Led { term }) = second.run_for(Duration::from_millis(100), |_| true) {
            assert_eq!(term, 2);
            break;
        }
    }
    assert!(matches!(second.node.status().role, Role::Leader { term: 2 }));
    assert_eq!(log.entries().len() as u64, newest.0 + 1, "nothing was written between the two");
    assert_eq!(second.node.status().seq, seq);
    assert_eq!(second.put(b"next"), seq.next());
    first.follow_all();
    assert_eq!(first.get().as_deref(), Some(b"next".as_slice()));
}

#[test]
fn successor_of_a_leader_that_steps_down_leads_at_once() {
    let log = new_log();
    let (first, second) = two_nodes(&log);
    let third = Stepped::new(&log, 3);
    first.put(b"second");
    first.node.step_down(Some([2; 16])).unwrap();
    third.follow_all();
    assert!(matches!(third.node.status().role, Role::Follower { .. }), "it is not named");
    assert!(matches!(second.step(), Done::Led { term: 2 }));
    assert_eq!(second.put(b"third"), second.node.status().seq);
    // A node that reads the name later finds that the log continues.
    let named = Stepped::new(&log, 2);
    assert!(!matches!(named.step(), Done::Led { .. }));
    third.follow_all();
    assert_eq!(third.get().as_deref(), Some(b"third".as_slice()));
}

#[test]
fn node_that_does_not_lead_does_not_step_down() {
    let log = new_log();
    let (leader, follower) = two_nodes(&log);
    let error = follower.node.step_down(None).unwrap_err();
    assert!(
        matches!(&error, EngineError::NotLeader { leader } if leader.as_deref() == Some("node-1")),
        "{error}"
    );
    leader.put(b"second");
    follower.follow_all();
    assert_eq!(follower.get(), leader.get(), "it continues to follow");
}

#[test]
fn only_node_leads_again_after_its_time() {
    let log = new_log();
    let node = Stepped::new(&log, 1);
    node.lead();
    node.node.step_down(None).unwrap();
    let Stepped { node, clock, log: handle, env, number } = node;
    node.database().clone().close().unwrap();
    drop(node);
    let node = Stepped::open_with(handle, number, clock, env, 3 * LEASE);
    node.follow_all();
    assert!(node.run_for(3 * LEASE, |done| matches!(done, Done::Led { .. })).is_none());
    assert!(node.run_for(LEASE, |done| matches!(done, Done::Led { .. })).is_some());
}

/// A store of checkpoints that can be stopped.
fn stoppable(store: &Store) -> (Arc<StoppableStore>, Checkpoints) {
    let store = Arc::new(StoppableStore::new(Arc::new(store.clone())));
    (store.clone(), Checkpoints::new(store))
}

#[test]
fn stopped_store_ends_a_checkpoint_with_its_next_call() {
    let (log, store) = (new_log(), Store::new());
    let (leader, follower) = two_nodes(&log);
    let (stopped, checkpoints) = stoppable(&store);
    let mut maker = maker(checkpoints.clone(), &follower);
    assert_eq!(maker.make().unwrap().number, 1);
    leader.put(b"second");
    follower.follow_all();
    stopped.stop();
    assert!(stopped.is_stopped());
    let error = maker.make().unwrap_err();
    assert!(matches!(&error, CheckpointError::Store(error) if error.cause.contains("stops")), "{error}");
    assert!(matches!(checkpoints.list(), Err(CheckpointError::Store(_))));
    assert!(!follower.env.vfs.exists(&Path::new(DB).join("checkpoint")).unwrap(), "the copy is removed");
    assert_eq!(store.checkpoints().list().unwrap().len(), 1);
}

#[test]
fn status_of_an_upkeep_has_the_newest_checkpoint_and_the_last_failure() {
    let (log, store) = (new_log(), Store::new());
    let leader = Stepped::new(&log, 1);
    leader.lead();
    let (stopped, checkpoints) = stoppable(&store);
    let settings = UpkeepSettings { interval: INTERVAL, ..UpkeepSettings::default() };
    let mut upkeep = Upkeep::new(maker(checkpoints.clone(), &leader), Arc::new(leader.log.clone()), settings);
    let now = || leader.clock.monotonic_nanos();
    upkeep.step(now());
    assert!(checkpoints.is_empty().unwrap() && upkeep.status().newest.is_none());
    leader.clock.advance(INTERVAL);
    upkeep.step(now());
    let newest = upkeep.status().newest.unwrap();
    assert_eq!((newest.number, newest.node, newest.since), (1, [1; 16], now()));
    assert_eq!((upkeep.status().made, upkeep.status().failures), (1, 0));
    assert!(!checkpoints.is_empty().unwrap());

    stopped.stop();
    leader.clock.advance(Duration::from_secs(10));
    let done = upkeep.step(now()).done;
    assert!(done.iter().any(|done| matches!(done, UpkeepDone::Failed { .. })), "{done:?}");
    let status = upkeep.status();
    assert_eq!((status.newest, status.made), (Some(newest), 1), "what is known stays");
    assert!(status.failures > 0 && status.failed.is_some(), "{status:?}");
    let failures = status.failures;
    // Nothing is due: the failure stays the last one.
    upkeep.step(now());
    assert_eq!(upkeep.status().failures, failures);
    assert!(upkeep.status().failed.is_some());

    // Another upkeep of the same database finds the checkpoint with its age.
    leader.clock.advance(Duration::from_secs(50));
    let mut upkeep = Upkeep::new(maker(store.checkpoints(), &leader), Arc::new(leader.log.clone()), settings);
    upkeep.step(now());
    assert_eq!(upkeep.status().newest, Some(newest));
    assert!(upkeep.status().failed.is_none());
}

/// A leader and the directory of a node whose next entries are trimmed.
fn trimmed(store: &Store) -> (MemorySharedLog, Stepped, Env) {
    let log = new_log();
    let (leader, follower) = two_nodes(&log);
    let env = stop(follower);
    for number in 0..5_u8 {
        leader.put(&[number]);
    }
    maker(store.checkpoints(), &leader).make().unwrap();
    log.trim(leader.node.database().engine().place().index).unwrap();
    (log, leader, env)
}

#[test]
fn trimmed_node_gives_its_copy_up_for_a_complete_checkpoint_of_its_log() {
    let store = Store::new();
    let (log, leader, env) = trimmed(&store);
    let node = reopened(&log, 2, env.clone());
    let end = node.ended_within(LEASE);
    assert!(matches!(end, Some(End::Trimmed { .. })), "{end:?}");
    let checkpoints = store.checkpoints();
    let busy = checkpoints.discard_trimmed(&env, Path::new(DB), &log).unwrap_err();
    assert!(matches!(busy, CheckpointError::Engine(_)), "{busy}");
    stop(node);
    assert_eq!(checkpoints.discard_trimmed(&env, Path::new(DB), &log).unwrap(), 1);
    let joined = checkpoints.join(&env, Path::new(DB), &log, &mut |_| ()).unwrap();
    assert!(matches!(joined, Joined::FromCheckpoint { number: 1, .. }), "{joined:?}");
    let node = reopened(&log, 2, env);
    node.follow_all();
    assert_eq!(node.get(), leader.get());
}

#[test]
fn copy_is_not_given_up_without_a_checkpoint_that_has_all_of_it() {
    let (store, none) = (Store::new(), Store::new());
    let (log, leader, env) = trimmed(&store);
    let dir = Path::new(DB);
    let refused = |checkpoints: &Checkpoints, log: &MemorySharedLog| {
        checkpoints.discard_trimmed(&env, dir, log).unwrap_err()
    };
    let error = refused(&none.checkpoints(), &log);
    assert!(matches!(&error, CheckpointError::NoneFits { .. }), "{error}");
    let error = refused(&store.checkpoints(), &MemorySharedLog::new(LogId([8; 16])));
    assert!(matches!(&error, CheckpointError::NotReplaced { .. }), "{error}");
    // A checkpoint of which a block is missing.
    let found = store.checkpoints().list().unwrap().pop().unwrap().manifest.unwrap();
    let block = found.files[0].blocks[0];
    let name = format!("blocks/{:016x}-{}", block.number, ropewalk_base::hex(&block.hash));
    store.delete(&name);
    let error = refused(&store.checkpoints(), &log);
    assert!(error.to_string().contains("is missing"), "{error}");
    // The node that is not trimmed.
    let env = stop(leader);
    let error = store.checkpoints().discard_trimmed(&env, dir, &log).unwrap_err();
    assert!(matches!(&error, CheckpointError::NotReplaced { .. }), "{error}");
    assert!(env.vfs.exists(&dir.join("store")).unwrap());
}

/// A store with two checkpoints, and the leader that made them.
fn two_checkpoints() -> (Store, Stepped) {
    let (store, (leader, _)) = (Store::new(), two_nodes(&new_log()));
    maker(store.checkpoints(), &leader).make().unwrap();
    leader.put(b"second");
    maker(store.checkpoints(), &leader).make().unwrap();
    (store, leader)
}

#[test]
fn cluster_of_which_only_checkpoints_are_left_continues_on_a_new_log() {
    let (store, leader) = two_checkpoints();
    let (seq, value) = (leader.node.status().seq, leader.get());
    // The newest is damaged: the one before has fewer commits.
    let checkpoints = store.checkpoints();
    let env = Env::memory();
    let joined = checkpoints.restore(&env, Path::new(DB), &mut |_| ()).unwrap();
    assert!(matches!(joined, Joined::FromCheckpoint { number: 2, seq: found, .. } if found == seq));
    let again = checkpoints.restore(&env, Path::new(DB), &mut |_| ()).unwrap();
    assert_eq!(again, Joined::Present, "a database is not replaced");

    let new = MemorySharedLog::new(LogId([8; 16]));
    let copies = [PathBuf::from(DB)];
    let reseed = Reseed {
        copies: &copies,
        checkpoints: Some(&checkpoints),
        accepts_loss: false,
        node: [9; 16],
        address: "",
    };
    assert_eq!(reseed.run(&env, &new).unwrap().seq, seq);
    let node = reopened(&new, 1, env);
    node.follow_all();
    assert_eq!(node.node.status().leader, None, "no node leads on the new log yet");
    node.lead();
    assert_eq!(node.get(), value);
    assert_eq!(node.put(b"third"), seq.next());
}

#[test]
fn restore_uses_the_checkpoint_before_a_damaged_one_and_reports_that_none_is_complete() {
    let (store, _) = two_checkpoints();
    store.delete("checkpoints/0000000000000002");
    let newest = store.checkpoints().list().unwrap().remove(0).manifest.unwrap();
    let env = Env::memory();
    let mut notices = Vec::new();
    let joined = store.checkpoints().restore(&env, Path::new(DB), &mut |notice| notices.push(notice));
    assert!(matches!(joined, Ok(Joined::FromCheckpoint { number: 1, .. })), "{joined:?}");
    assert!(matches!(notices[..], [JoinNotice::Begins { number: 1, .. }]), "{notices:?}");
    let block = newest.files[0].blocks[0];
    store.delete(&format!("blocks/{:016x}-{}", block.number, ropewalk_base::hex(&block.hash)));
    let (env, mut rejected) = (Env::memory(), 0);
    let error = store.checkpoints().restore(&env, Path::new(DB), &mut |notice| {
        rejected += usize::from(matches!(notice, JoinNotice::Rejected { number: 1, .. }));
    });
    let error = error.unwrap_err();
    assert!(matches!(error, CheckpointError::NoneComplete { .. }) && rejected == 1, "{error}");
    let empty = Store::new().checkpoints().restore(&env, Path::new("/other"), &mut |_| ()).unwrap_err();
    assert!(empty.to_string().contains("none was found"), "{empty}");
}
