//! A new shared log from the local copies of nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ropewalk::engine::{Env, KeyspaceOptions};
use ropewalk::{Class, Durability, Seq};
use ropewalk_cluster::checkpoint::{Maker, NodeReport};
use ropewalk_cluster::{Done, Reseed, ReseedError, Reseeded, adopt, leave};
use ropewalk_log::LogId;
use ropewalk_log::shared::{Entry, EntryIndex, EntryKind, MemorySharedLog, SharedFault};

use crate::checkpoints::{Store, reopened, two_nodes};
use crate::{LEASE, Stepped, new_log};

const DB: &str = "/db";

fn second_log() -> MemorySharedLog {
    MemorySharedLog::new(LogId([8; 16]))
}

/// Ends a node; its files remain.
fn stop(node: Stepped) -> Env {
    let Stepped { node, env, .. } = node;
    // Fails if the node has ended.
    let _ = node.database().clone().close();
    env
}

fn reseed(copies: &[PathBuf]) -> Reseed<'_> {
    Reseed { copies, checkpoints: None, accepts_loss: false, node: [1; 16], address: "node-1" }
}

fn run(env: &Env, log: &MemorySharedLog) -> Result<Reseeded, ReseedError> {
    reseed(&[PathBuf::from(DB)]).run(env, log)
}

/// Lets a node note its place in the shared log.
fn note_place(node: &Stepped) {
    node.clock.advance(Duration::from_secs(2));
    while node.node.database().engine().background_step().unwrap() {}
}

/// Copies the database of one environment into a directory of another.
fn copy(from: &Env, to: &Env, dir: &str) {
    let dir = Path::new(dir);
    for part in ["log", "store", ""] {
        let (source, target) = (Path::new(DB).join(part), dir.join(part));
        to.vfs.create_dir_all(&target).unwrap();
        for name in from.vfs.list(&source).unwrap() {
            let path = source.join(&name);
            if from.vfs.list(&path).is_ok() || name == "LOCK" {
                continue;
            }
            let file = from.vfs.open(&path, ropewalk_vfs::OpenMode::Read).unwrap();
            let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let file = to.vfs.open(&target.join(&name), ropewalk_vfs::OpenMode::CreateNew).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        }
    }
}

/// Two nodes and the log that they shared, of which the follower lacks the newest two commits.
fn cluster() -> (MemorySharedLog, Stepped, Stepped, Seq) {
    let log = new_log();
    let (leader, follower) = two_nodes(&log);
    for number in 0..10_u8 {
        leader.put(&[number; 300]);
        follower.follow_all();
    }
    for node in [&leader, &follower] {
        note_place(node);
    }
    leader.put(b"next to last");
    let last = leader.put(b"last");
    (log, leader, follower, last)
}

#[test]
fn nodes_continue_on_the_new_log_with_the_same_commits() {
    let (log, leader, follower, last) = cluster();
    log.lose_newest(5);
    for node in [&leader, &follower] {
        let ended = node.run_for(LEASE, |done| matches!(done, Done::Ended(_)));
        assert!(ended.is_some(), "the loss is noticed");
    }
    let (first, second) = (stop(leader), stop(follower));
    let new = second_log();
    let reseeded = run(&first, &new).unwrap();
    assert_eq!((reseeded.seq, reseeded.from.as_path(), &reseeded.lost), (last, Path::new(DB), &None));
    assert_eq!(new.newest(), EntryIndex(reseeded.entries));
    let entries = new.entries();
    let lead = Entry::decode(&entries[0]).unwrap();
    assert_eq!((lead.kind, lead.first, lead.term), (EntryKind::Lead, reseeded.base.next(), 2));
    // The other node has fewer commits, and gets them from the new log.
    assert!(adopt(&second, Path::new(DB), &new).unwrap() < last);

    let (leader, follower) = (reopened(&new, 1, first), reopened(&new, 2, second));
    leader.follow_all();
    follower.follow_all();
    assert_eq!(leader.node.status().seq, last, "no commit has another number, and none is new");
    assert_eq!((follower.node.status().seq, follower.get()), (last, leader.get()));
    assert_eq!(follower.get().as_deref(), Some(b"last".as_slice()));
    follower.lead();
    let seq = follower.put(b"after it");
    assert_eq!(seq, last.next());
    leader.follow_all();
    assert_eq!(leader.get().as_deref(), Some(b"after it".as_slice()));
    assert_eq!(leader.node.database().engine().place().term, 3);
}

#[test]
fn copy_that_does_not_forget_the_old_log_refuses_the_new_one() {
    let (_log, leader, follower, _) = cluster();
    let (first, second) = (stop(leader), stop(follower));
    let new = second_log();
    run(&first, &new).unwrap();
    let follower = reopened(&new, 2, second);
    let ended = follower.run_for(LEASE, |done| matches!(done, Done::Ended(_)));
    let Some(Done::Ended(end)) = ended else { panic!("it continues") };
    assert!(end.to_string().contains("the shared log is damaged"), "{end}");
}

#[test]
fn longest_of_several_copies_is_used_and_all_are_compared() {
    let (_log, leader, follower, last) = cluster();
    let (first, second) = (stop(leader), stop(follower));
    let env = Env::memory();
    copy(&second, &env, "/short");
    copy(&first, &env, "/long");
    let copies = ["/short", "/long"].map(PathBuf::from);
    let new = second_log();
    let reseeded = reseed(&copies).run(&env, &new).unwrap();
    assert_eq!((reseeded.seq, reseeded.from.as_path()), (last, Path::new("/long")));

    // Another history: the same log, on which the follower led without the last commits.
    let (log, leader, follower, last) = cluster();
    log.lose_newest(1);
    follower.lead();
    follower.put(b"another");
    let (first, second) = (stop(leader), stop(follower));
    let env = Env::memory();
    copy(&second, &env, "/short");
    copy(&first, &env, "/long");
    let error = reseed(&copies).run(&env, &second_log()).unwrap_err();
    assert!(matches!(error, ReseedError::Differ { seq, .. } if seq == last), "{error}");
}

#[test]
fn log_with_entries_and_directories_without_database_are_refused() {
    let (log, leader, ..) = cluster();
    let env = stop(leader);
    assert!(matches!(run(&env, &log), Err(ReseedError::NotEmpty { .. })));
    let none = [PathBuf::from("/none")];
    assert!(matches!(reseed(&none).run(&env, &second_log()), Err(ReseedError::NoDatabase { .. })));
    assert!(matches!(reseed(&[]).run(&env, &second_log()), Err(ReseedError::NoCopy)));
}

#[test]
fn longer_copy_that_is_known_is_not_lost_silently() {
    let (_log, leader, follower, last) = cluster();
    let store = Store::new();
    let checkpoints = store.checkpoints();
    let place = leader.node.database().engine().saved_place().unwrap();
    let report =
        NodeReport { node: [1; 16], address: "node-1".to_owned(), leads: true, time_micros: 0, place };
    checkpoints.report(&report).unwrap();
    let env = stop(follower);
    let (copies, new) = ([PathBuf::from(DB)], second_log());
    let with = Reseed { checkpoints: Some(&checkpoints), ..reseed(&copies) };
    let error = with.run(&env, &new).unwrap_err();
    assert!(matches!(error, ReseedError::Longer { .. }) && error.to_string().contains("node-1"), "{error}");
    assert_eq!(new.newest(), EntryIndex::ZERO, "nothing was written");

    checkpoints.forget(&[1; 16]).unwrap();
    let db = leader.node.database().clone();
    Maker::new(checkpoints.clone(), db, Path::new(DB), [1; 16], "node-1").make().unwrap();
    let error = with.run(&env, &new).unwrap_err();
    assert!(error.to_string().contains("checkpoint 1"), "{error}");

    let reseeded = Reseed { accepts_loss: true, ..with }.run(&env, &new).unwrap();
    assert!(reseeded.seq < last && reseeded.lost.is_some(), "{reseeded:?}");
    // The node that has more does not follow.
    let first = stop(leader);
    let error = adopt(&first, Path::new(DB), &new).unwrap_err();
    assert!(matches!(error, ReseedError::Foreign { .. }), "{error}");
}

#[test]
fn database_of_another_cluster_is_not_adopted() {
    let (_log, leader, follower, _) = cluster();
    let new = second_log();
    run(&stop(leader), &new).unwrap();
    drop(follower);
    let other = new_log();
    let (node, _) = two_nodes(&other);
    for number in 0..5_u8 {
        node.put(&[number]);
    }
    let env = stop(node);
    let error = adopt(&env, Path::new(DB), &new).unwrap_err();
    assert!(matches!(error, ReseedError::Foreign { .. }) && error.to_string().contains("differs"), "{error}");
    // Its place is not forgotten: it continues on its own log.
    let node = reopened(&other, 1, env);
    assert!(!matches!(node.step(), Done::Ended(_)));
}

#[test]
fn records_larger_than_an_entry_go_in_parts_and_lost_answers_are_repeated() {
    let (_log, leader, follower, last) = cluster();
    let (first, second) = (stop(leader), stop(follower));
    let new = MemorySharedLog::with_entry_bytes_max(LogId([8; 16]), 200);
    for fault in [SharedFault::DropRequest, SharedFault::LoseAnswer, SharedFault::DropRequest] {
        new.queue_fault(fault);
    }
    run(&first, &new).unwrap();
    let is_part = |bytes: &Vec<u8>| matches!(Entry::decode(bytes).unwrap().kind, EntryKind::Part { .. });
    assert!(new.entries().iter().any(is_part));
    adopt(&second, Path::new(DB), &new).unwrap();
    for (number, env) in [(1, first), (2, second)] {
        let node = reopened(&new, number, env);
        node.follow_all();
        assert_eq!((node.node.status().seq, node.get().as_deref()), (last, Some(b"last".as_slice())));
    }
}

#[test]
fn database_that_was_alone_becomes_the_first_node() {
    let env = Env::memory();
    let db = ropewalk::Options::new().env(env.clone()).open(DB).unwrap();
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let last = db.put(keys, b"k", b"alone", Durability::Sync).unwrap();
    db.close().unwrap();
    let new = second_log();
    assert_eq!(run(&env, &new).unwrap().seq, last);
    let node = reopened(&new, 1, env);
    node.follow_all();
    let error = node.node.database().put(keys, b"k", b"no", Durability::Sync).unwrap_err();
    assert_eq!(error.class(), Class::NotLeader);
    node.lead();
    assert_eq!(node.get().as_deref(), Some(b"alone".as_slice()));
    assert!(node.put(b"led") > last);
    // A node with an empty directory gets all of it from the log.
    let other = reopened(&new, 2, Env::memory());
    other.follow_all();
    assert_eq!(other.get().as_deref(), Some(b"led".as_slice()));
}

#[test]
fn node_that_leaves_is_a_database_alone_with_all_of_its_commits() {
    let (shared, leader, follower, last) = cluster();
    let (value, log) = (leader.get(), leader.node.database().engine().saved_place().unwrap().log);
    let busy = leave(&leader.env, Path::new(DB)).unwrap_err();
    assert!(matches!(busy, ReseedError::Engine(_)), "{busy}");
    drop(follower);
    let env = stop(leader);
    let alone = || ropewalk::Options::new().env(env.clone()).open(DB);
    let refused = alone().err().unwrap();
    assert!(refused.to_string().contains("a node of a cluster"), "{refused}");
    let left = leave(&env, Path::new(DB)).unwrap();
    assert_eq!((left.seq, left.place.map(|place| place.log)), (last, Some(log)));
    let db = alone().unwrap();
    assert_eq!((db.seq(), crate::get(&db)), (last, value));
    assert_eq!(crate::put(&db, b"alone"), last.next());
    db.close().unwrap();
    assert_eq!(leave(&env, Path::new(DB)).unwrap().place, None, "it may be repeated");
    let none = leave(&env, Path::new("/none")).unwrap_err();
    assert!(matches!(none, ReseedError::NoDatabase { .. }), "{none}");
    // It has a commit that the shared log does not have, and does not lead with it.
    let node = reopened(&shared, 1, env);
    let ended = node.run_for(4 * LEASE, |done| matches!(done, Done::Ended(_) | Done::Led { .. }));
    assert!(matches!(ended, Some(Done::Ended(_))), "it follows another history: {ended:?}");
}
