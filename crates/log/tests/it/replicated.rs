//! The log of a node, over a shared log in memory: what it stores, repeats, proves and refuses.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_base::{ContentHash, Lsn, Seq};
use ropewalk_log::shared::{
    ChainHash, CommitFate, ENTRY_OVERHEAD, Entry, EntryFollowed, EntryIndex, EntryKind, HashBody,
    MemorySharedLog, NodeSettings, Place, ReplicatedLog, SavedPlace, SharedCall, SharedEntry, SharedFault,
    SharedLog, SlicePart, commits,
};
use ropewalk_log::{CommitLog, LogError, LogId, Record};
use ropewalk_vfs::Env;

use crate::help::*;

fn shared() -> MemorySharedLog {
    MemorySharedLog::with_entry_bytes_max(LogId([9; 16]), ENTRY_OVERHEAD + 64)
}

/// The log of node 1 over this handle.
fn over(env: &Env, shared: Arc<MemorySharedLog>) -> ReplicatedLog {
    let settings = NodeSettings { node: [1; 16], address: "node-1".into(), patience: Duration::from_secs(5) };
    ReplicatedLog::new(open(env).log, shared, env.clock.clone(), settings, None)
}

/// The log of node `name`, whose files are in `env`.
fn node(env: &Env, shared: &MemorySharedLog, name: u8, saved: Option<&SavedPlace>) -> ReplicatedLog {
    let settings =
        NodeSettings { node: [name; 16], address: format!("node-{name}"), patience: Duration::from_secs(5) };
    ReplicatedLog::new(open(env).log, Arc::new(shared.handle()), env.clock.clone(), settings, saved)
}

fn leader(env: &Env, shared: &MemorySharedLog, name: u8) -> ReplicatedLog {
    let log = node(env, shared, name, None);
    follow_all(&log, shared);
    assert!(log.campaign().unwrap());
    log
}

fn put(log: &ReplicatedLog, seq: u64, payload: &[u8]) -> Result<Lsn, LogError> {
    log.append(&[Record { seq: Seq(seq), payload }], log.tail())
}

fn follow(log: &ReplicatedLog, entry: &SharedEntry) -> Result<u64, LogError> {
    follow_entry(log, entry).map(|followed| followed.commits)
}

fn follow_entry(log: &ReplicatedLog, entry: &SharedEntry) -> Result<EntryFollowed, LogError> {
    log.follow(entry, |new| {
        let records: Vec<_> = new.iter().map(|(seq, payload)| Record { seq: *seq, payload }).collect();
        log.append_followed(&records, log.tail()).map(|_| ())
    })
}

/// Follows all entries after the log's place; returns how many commits were new.
fn follow_all(log: &ReplicatedLog, shared: &MemorySharedLog) -> u64 {
    let entries = shared.read(log.place().index, usize::MAX, Duration::ZERO).unwrap();
    entries.iter().map(|entry| follow(log, entry).unwrap()).sum()
}

fn copied(env: &Env) -> Vec<Commit> {
    open(&copy(env)).replayed
}

/// The kind of each entry, and its commits.
fn kinds(shared: &MemorySharedLog) -> Vec<(EntryKind, u64, u32)> {
    let bytes = shared.entries();
    let entries = bytes.iter().map(|bytes| Entry::decode(bytes).unwrap());
    entries.map(|entry| (entry.kind, entry.first.0, entry.count)).collect()
}

#[test]
fn group_is_one_entry_and_reaches_the_local_copy_after_it() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"a").unwrap();
    put(&log, 2, b"b").unwrap();
    assert_eq!(kinds(&shared), [(EntryKind::Lead, 1, 0)]);
    log.sync_copy().unwrap();
    log.write_durable_mark(log.tail()).unwrap();
    assert_eq!((log.fate(Seq(2)), copied(&env).len()), (CommitFate::Unknown, 0));
    log.acknowledge().unwrap();
    assert_eq!(kinds(&shared)[1..], [(EntryKind::Commits, 1, 2)]);
    assert_eq!((log.fate(Seq(2)), log.flushed()), (CommitFate::Confirmed, log.tail()));
    assert_eq!(copied(&env), [(1, b"a".to_vec()), (2, b"b".to_vec())]);
    log.acknowledge().unwrap();
    assert_eq!(shared.newest(), EntryIndex(2), "nothing to send");
    let entry = shared.entries().pop().unwrap();
    let entry = Entry::decode(&entry).unwrap();
    assert_eq!(commits(entry.body, entry.count).unwrap(), [b"a", b"b"]);
    assert_eq!(entry.previous, ChainHash::of_entry(&shared.entries()[0]));
    assert_eq!(log.place().seq, Seq(2));
}

#[test]
fn large_group_travels_in_parts_that_a_follower_puts_together() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    let large = payload(1, 150);
    put(&log, 1, &large).unwrap();
    put(&log, 2, b"small").unwrap();
    log.acknowledge().unwrap();
    let part = |first, last| (EntryKind::Part { first, last }, 1, 2);
    assert_eq!(kinds(&shared)[1..], [part(true, false), part(false, false), part(false, true)]);
    let other = memory();
    let follower = node(&other, &shared, 2, None);
    let entries = shared.read(EntryIndex::ZERO, usize::MAX, Duration::ZERO).unwrap();
    let new: Vec<u64> = entries.iter().map(|entry| follow(&follower, entry).unwrap()).collect();
    assert_eq!(new, [0, 0, 0, 2], "the last part makes the group whole");
    assert_eq!(copied(&other), copied(&env));
    assert_eq!(follower.place(), log.place());
}

#[test]
fn half_sent_group_is_discarded_by_the_next_leader() {
    let (env, shared) = (memory(), Arc::new(shared()));
    let log = over(&env, shared.clone());
    assert!(log.campaign().unwrap());
    put(&log, 1, &payload(1, 150)).unwrap();
    let mut appends = 0;
    shared.choose_faults(move |call| {
        appends += u32::from(matches!(call, SharedCall::Append { .. }));
        (appends > 1).then_some(SharedFault::DropRequest)
    });
    let refused = log.acknowledge().unwrap_err();
    assert!(matches!(refused, LogError::Deposed { .. }), "its last part was never sent: {refused}");
    assert_eq!(log.fate(Seq(1)), CommitFate::Absent);
    assert!(copied(&env).is_empty());
    shared.choose_faults(|_| None);
    // The next leader continues where the group began.
    let third = leader(&memory(), &shared, 4);
    put(&third, 1, b"instead").unwrap();
    third.acknowledge().unwrap();
    let reader = memory();
    let follower = node(&reader, &shared, 5, None);
    follow_all(&follower, &shared);
    assert_eq!(copied(&reader), [(1, b"instead".to_vec())]);
}

#[test]
fn lost_answer_is_found_out_by_the_same_append() {
    for fault in [SharedFault::LoseAnswer, SharedFault::DropRequest, SharedFault::Delay { calls: 0 }] {
        let (env, shared) = (memory(), Arc::new(shared()));
        let log = over(&env, shared.clone());
        shared.queue_fault(fault);
        assert!(log.campaign().unwrap(), "{fault:?}");
        put(&log, 1, b"a").unwrap();
        shared.queue_fault(fault);
        shared.queue_fault(fault);
        log.acknowledge().unwrap();
        assert_eq!(kinds(&shared), [(EntryKind::Lead, 1, 0), (EntryKind::Commits, 1, 1)], "{fault:?}");
        assert_eq!(copied(&env), [(1, b"a".to_vec())]);
    }
}

#[test]
fn append_without_any_answer_is_unknown_and_may_be_stored_late() {
    for is_late in [false, true] {
        let (env, shared) = (memory(), Arc::new(shared()));
        let log = over(&env, shared.clone());
        assert!(log.campaign().unwrap());
        put(&log, 1, b"a").unwrap();
        shared.choose_faults(|_| Some(SharedFault::Delay { calls: u64::MAX }));
        let before = env.clock.monotonic_nanos();
        let unknown = log.acknowledge().unwrap_err();
        assert!(matches!(unknown, LogError::Unknown { .. }), "{unknown}");
        assert!(env.clock.monotonic_nanos() - before >= 5_000_000_000, "it is patient");
        assert_eq!((log.fate(Seq(1)), log.is_deposed()), (CommitFate::Unknown, true));
        let refused = put(&log, 2, b"b").unwrap_err();
        assert!(matches!(refused, LogError::Unknown { .. }), "{refused}");
        assert!(log.barrier().is_err() && log.renew().is_err() && log.campaign().is_err());
        assert!(copied(&env).is_empty(), "nothing of it is in the local copy");
        drop(log);
        shared.choose_faults(|_| None);
        let rival = memory();
        if is_late {
            assert_eq!(shared.deliver_delayed(), 1, "the first of the same appends is stored");
        } else {
            put(&leader(&rival, &shared, 2), 1, b"rival").unwrap();
            assert_eq!(shared.deliver_delayed(), 0);
        }
        let again = node(&env, &shared, 1, None);
        follow_all(&again, &shared);
        let expected = if is_late { vec![(1, b"a".to_vec())] } else { vec![] };
        assert_eq!(copied(&env), expected);
    }
}

#[test]
fn deposed_leader_learns_who_leads_and_keeps_nothing() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"a").unwrap();
    log.acknowledge().unwrap();
    let other = memory();
    let rival = leader(&other, &shared, 2);
    assert_eq!(rival.term(), Some(2));
    put(&log, 2, b"lost").unwrap();
    let deposed = log.acknowledge().unwrap_err();
    assert_eq!(deposed.to_string(), "another node leads, at node-2");
    assert_eq!((log.term(), log.leader().as_deref()), (None, Some("node-2")));
    assert_eq!((log.fate(Seq(1)), log.fate(Seq(2))), (CommitFate::Confirmed, CommitFate::Absent));
    assert!(log.flush().is_err() && log.barrier().is_err() && log.write_durable_mark(log.tail()).is_err());
    log.sync_copy().unwrap();
    assert_eq!(copied(&env), [(1, b"a".to_vec())]);
    drop(log);
    put(&rival, 2, b"b").unwrap();
    rival.acknowledge().unwrap();
    let again = node(&env, &shared, 1, None);
    assert_eq!(follow_all(&again, &shared), 1);
    assert_eq!((again.place(), copied(&env)), (rival.place(), copied(&other)));
}

#[test]
fn leader_that_steps_down_sends_what_it_has_and_nothing_after_it() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"before").unwrap();
    log.step_down(None).unwrap();
    assert_eq!(kinds(&shared), [(EntryKind::Lead, 1, 0), (EntryKind::Commits, 1, 1)]);
    assert_eq!((log.fate(Seq(1)), log.fate(Seq(2))), (CommitFate::Confirmed, CommitFate::Absent));
    assert!(log.is_deposed() && log.term().is_none() && log.leader().is_none());
    for refused in [put(&log, 2, b"after").map(|_| ()), log.acknowledge(), log.renew(), log.step_down(None)] {
        assert!(matches!(refused, Err(LogError::Deposed { .. })), "{refused:?}");
    }
    assert_eq!(copied(&env), [(1, b"before".to_vec())]);
    let (other, files) = (memory(), memory());
    let follower = node(&files, &shared, 3, None);
    assert!(matches!(follower.step_down(None), Err(LogError::NotLeader)));
    assert_eq!(follow_all(&follower, &shared), 1);
    let next = leader(&other, &shared, 2);
    assert_eq!((next.term(), next.place().seq), (Some(2), Seq(1)));
}

#[test]
fn leader_that_steps_down_names_its_successor() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"before").unwrap();
    log.step_down(Some([2; 16])).unwrap();
    let expected = [(EntryKind::Lead, 1, 0), (EntryKind::Commits, 1, 1), (EntryKind::Renew, 2, 0)];
    assert_eq!(kinds(&shared), expected);
    assert_eq!(log.fate(Seq(1)), CommitFate::Confirmed);
    for (number, is_successor) in [(2, vec![false, false, true]), (3, vec![false; 3])] {
        let files = memory();
        let follower = node(&files, &shared, number, None);
        let entries = shared.read(EntryIndex::ZERO, usize::MAX, Duration::ZERO).unwrap();
        let found = entries.iter().map(|entry| follow_entry(&follower, entry).unwrap().is_successor);
        assert_eq!(found.collect::<Vec<_>>(), is_successor, "node {number}");
    }
}

#[test]
fn renewals_prove_the_lead_and_are_shared() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    log.renew().unwrap();
    assert_eq!(kinds(&shared)[1..], [(EntryKind::Renew, 1, 0)]);
    put(&log, 1, b"a").unwrap();
    log.renew().unwrap();
    assert_eq!(kinds(&shared)[2..], [(EntryKind::Commits, 1, 1)], "commits prove as much");
    let follower = node(&memory(), &shared, 2, None);
    assert!(matches!(follower.renew(), Err(LogError::NotLeader)));
    assert!(matches!(put(&follower, 1, b"x"), Err(LogError::NotLeader)));
    shared.set_hanging(true);
    let log = Arc::new(log);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| log.renew().unwrap())).collect();
        std::thread::sleep(Duration::from_millis(100));
        shared.set_hanging(false);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let renewals = kinds(&shared).len() - 3;
    assert!((1..=2).contains(&renewals), "{renewals} entries for eight callers");
    let _rival = leader(&memory(), &shared, 3);
    assert!(matches!(log.renew(), Err(LogError::Deposed { .. })));
}

#[test]
fn campaign_fails_without_a_trace_when_an_entry_is_newer() {
    let (env, shared) = (memory(), shared());
    let late = node(&env, &shared, 1, None);
    let first = leader(&memory(), &shared, 2);
    assert!(!late.campaign().unwrap(), "it has not followed");
    follow_all(&late, &shared);
    put(&first, 1, b"a").unwrap();
    first.acknowledge().unwrap();
    assert!(!late.campaign().unwrap(), "an entry is newer");
    follow_all(&late, &shared);
    assert!(late.campaign().unwrap() && late.campaign().unwrap());
    assert_eq!((late.term(), late.leader()), (Some(2), None));
    assert_eq!(kinds(&shared).len(), 3);
}

#[test]
fn closed_log_takes_no_leader() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"a").unwrap();
    log.seal().unwrap();
    assert_eq!(kinds(&shared)[2..], [(EntryKind::Close, 2, 0)]);
    let follower = node(&memory(), &shared, 2, None);
    assert_eq!(follow_all(&follower, &shared), 1);
    assert!(matches!(follower.campaign(), Err(LogError::Sealed)));
}

#[test]
fn lost_end_and_another_log_are_noticed() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"a").unwrap();
    log.acknowledge().unwrap();
    let saved = log.saved_place().unwrap();
    assert_eq!((saved.place, saved.log), (log.place(), LogId([9; 16])));
    shared.lose_newest(1);
    put(&log, 2, b"b").unwrap();
    let lost = log.acknowledge().unwrap_err();
    assert!(lost.to_string().contains("ends at entry 1"), "{lost}");
    drop(log);
    // Without its place it finds fewer commits than it has; that no rival has more is certain.
    let again = node(&env, &shared, 1, None);
    follow_all(&again, &shared);
    let lost = again.campaign().unwrap_err();
    assert!(matches!(lost, LogError::Diverged { index: EntryIndex(2), .. }), "{lost}");
    drop(again);
    shared.create_again(LogId([8; 16]));
    let again = node(&env, &shared, 1, Some(&saved));
    let other = again.campaign().unwrap_err();
    assert!(other.to_string().contains("created again"), "{other}");
}

/// Entries of a log with one commit in each, and a node that has followed the first two.
fn world() -> (MemorySharedLog, Env, ReplicatedLog, Vec<SharedEntry>) {
    let shared = shared();
    let log = leader(&memory(), &shared, 1);
    for seq in 1..=3 {
        put(&log, seq, b"x").unwrap();
        log.acknowledge().unwrap();
    }
    let env = memory();
    let follower = node(&env, &shared, 2, None);
    let entries = shared.read(EntryIndex::ZERO, usize::MAX, Duration::ZERO).unwrap();
    let new: u64 = entries[..2].iter().map(|entry| follow(&follower, entry).unwrap()).sum();
    assert_eq!(new, 1);
    (shared, env, follower, entries)
}

#[test]
fn entries_that_do_not_continue_the_log_stop_the_follower() {
    let changed = |change: &dyn Fn(&mut Entry<'_>)| {
        let (_, _, _, entries) = world();
        let mut entry = Entry::decode(&entries[2].bytes).unwrap();
        change(&mut entry);
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        SharedEntry { index: EntryIndex(3), bytes }
    };
    let (_, _, _, entries) = world();
    let cases: [(SharedEntry, &str); 11] = [
        (entries[3].clone(), "entry 3 is next"),
        (entries[1].clone(), "entry 3 is next"),
        (
            SharedEntry { index: EntryIndex(3), bytes: entries[3].bytes.clone() },
            "it follows an entry with hash",
        ),
        (SharedEntry { index: EntryIndex(3), bytes: b"no entry".to_vec() }, "of an entry"),
        (changed(&|entry| entry.previous = ChainHash::NONE), "it follows an entry with hash"),
        (changed(&|entry| entry.term = 2), "a node that does not lead"),
        (changed(&|entry| entry.node = [7; 16]), "a node that does not lead"),
        (changed(&|entry| entry.first = Seq(3)), "commit 2 is next"),
        (changed(&|entry| entry.level = 99), "feature level 99"),
        (changed(&|entry| entry.kind = EntryKind::Part { first: false, last: true }), "the part before it"),
        (changed(&|entry| entry.count = 2), "length of a commit"),
    ];
    for (entry, expected) in cases {
        let (_, env, follower, entries) = world();
        let before = (follower.place(), copied(&env));
        let refused = follow(&follower, &entry).unwrap_err();
        assert!(matches!(refused, LogError::Diverged { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}, not {expected}");
        assert!(follow(&follower, &entries[2]).is_err(), "it never skips");
        assert_eq!((follower.place(), copied(&env)), before);
    }
    let lead =
        changed(&|entry| (entry.kind, entry.count, entry.body, entry.term) = (EntryKind::Lead, 0, b"x", 1));
    let (_, _, follower, _) = world();
    assert!(follow(&follower, &lead).unwrap_err().to_string().contains("begins term 1 after term 1"));
}

#[test]
fn reopened_follower_compares_what_it_has_and_applies_the_rest() {
    let (shared, env, follower, entries) = world();
    let second = follower.saved_place().unwrap();
    follow_all(&follower, &shared);
    let last = follower.saved_place().unwrap();
    drop(follower);
    let lead =
        SavedPlace { place: Place { index: EntryIndex(1), ..place_after(&entries[0]) }, ..second.clone() };
    for (saved, skipped) in [(None, 4), (Some(&lead), 3), (Some(&second), 2), (Some(&last), 0)] {
        let again = node(&env, &shared, 2, saved);
        let left = shared.read(again.place().index, usize::MAX, Duration::ZERO).unwrap().len();
        assert_eq!((left, follow_all(&again, &shared)), (skipped, 0));
        assert_eq!(again.place(), last.place);
        assert!(again.campaign().is_ok_and(|leads| leads == (again.term() == Some(2))));
        shared.lose_newest(1);
    }
    // A place that is ahead of the local copy is not believed: the copy has lost its end.
    let cut = memory();
    let again = node(&cut, &shared, 3, Some(&last));
    assert_eq!((again.place(), follow_all(&again, &shared)), (Place::default(), 3));
    // Another commit under a number that the local copy has.
    let forged = memory();
    commit(&open(&forged).log, 1, b"y");
    let again = node(&forged, &shared, 4, None);
    follow(&again, &entries[0]).unwrap();
    let refused = follow(&again, &entries[1]).unwrap_err();
    assert!(refused.to_string().contains("differs from that of the local copy"), "{refused}");
}

fn place_after(entry: &SharedEntry) -> Place {
    let decoded = Entry::decode(&entry.bytes).unwrap();
    let seq = Seq(decoded.first.0 + u64::from(decoded.count) - 1);
    Place { index: entry.index, chain: ChainHash::of_entry(&entry.bytes), term: decoded.term, seq }
}

#[test]
fn trimmed_log_is_followed_from_its_oldest_entry_by_a_copy_that_reaches_it() {
    let (shared, env, follower, entries) = world();
    drop(follower);
    shared.trim(EntryIndex(3)).unwrap();
    let again = node(&env, &shared, 2, None);
    assert!(!again.campaign().unwrap(), "there are entries to follow");
    assert_eq!(follow(&again, &entries[2]).unwrap() + follow(&again, &entries[3]).unwrap(), 2);
    assert!(again.campaign().unwrap());
    let empty = node(&memory(), &shared, 3, None);
    let refused = follow(&empty, &entries[2]).unwrap_err();
    assert!(refused.to_string().contains("a backup of a node that has more is needed"), "{refused}");
}

#[test]
fn group_whose_first_parts_were_trimmed_is_skipped_by_a_copy_that_has_it() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    put(&log, 1, &payload(1, 150)).unwrap();
    log.acknowledge().unwrap();
    drop(log);
    shared.trim(EntryIndex(3)).unwrap();
    let parts = shared.read(EntryIndex(2), usize::MAX, Duration::ZERO).unwrap();
    assert_eq!(parts.len(), 2);
    let again = node(&env, &shared, 1, None);
    assert_eq!(parts.iter().map(|part| follow(&again, part).unwrap()).sum::<u64>(), 0);
    assert!(again.campaign().unwrap());
    let empty = node(&memory(), &shared, 2, None);
    follow(&empty, &parts[0]).unwrap();
    let refused = follow(&empty, &parts[1]).unwrap_err();
    assert!(refused.to_string().contains("its group begins before the oldest entry"), "{refused}");
}

#[test]
fn log_that_does_not_begin_with_a_leader_is_refused() {
    let mut bytes = Vec::new();
    let (kind, previous, body): (_, _, &[u8]) = (EntryKind::Commits, ChainHash::NONE, &[0; 4]);
    let (level, term, node_name, first) = (1, 0, [1; 16], Seq(1));
    let entry = Entry { level, kind, term, node: node_name, first, count: 1, time_micros: 0, previous, body };
    entry.encode(&mut bytes);
    let follower = node(&memory(), &shared(), 2, None);
    let refused = follow(&follower, &SharedEntry { index: EntryIndex(1), bytes }).unwrap_err();
    assert!(refused.to_string().contains("does not begin with a leader"), "{refused}");
}

#[test]
fn group_cut_by_the_local_copy_is_completed() {
    let (env, shared) = (memory(), shared());
    let log = leader(&env, &shared, 1);
    for seq in 1..=3 {
        put(&log, seq, b"x").unwrap();
    }
    log.acknowledge().unwrap();
    let other = memory();
    commit(&open(&other).log, 1, b"x");
    let follower = node(&other, &shared, 2, None);
    assert_eq!(follow_all(&follower, &shared), 2);
    assert_eq!(copied(&other), copied(&env));
}

#[test]
fn database_with_commits_begins_a_shared_log() {
    let (env, shared) = (memory(), shared());
    commit(&open(&env).log, 1, b"before");
    let log = node(&env, &shared, 1, None);
    assert!(log.campaign().unwrap());
    put(&log, 2, b"b").unwrap();
    log.acknowledge().unwrap();
    assert_eq!(kinds(&shared), [(EntryKind::Lead, 2, 0), (EntryKind::Commits, 2, 1)]);
    let empty = node(&memory(), &shared, 2, None);
    let entries = shared.read(EntryIndex::ZERO, usize::MAX, Duration::ZERO).unwrap();
    assert!(matches!(follow(&empty, &entries[0]), Err(LogError::Diverged { .. })), "it lacks commit 1");
}

#[test]
fn shared_log_that_does_not_answer_is_asked_again() {
    let (env, shared) = (memory(), Arc::new(shared()));
    let log = over(&env, shared.clone());
    shared.set_connected(false);
    assert!(matches!(log.campaign(), Err(LogError::Shared(_))));
    shared.set_connected(true);
    shared.choose_faults(|call| {
        let is_append = matches!(call, SharedCall::Append { .. });
        is_append.then_some(SharedFault::DropRequest)
    });
    assert!(matches!(log.campaign(), Err(LogError::Unknown { .. })));
    shared.choose_faults(|_| None);
    assert!(log.campaign().unwrap(), "nothing in memory depended on the first campaign");
}

#[test]
fn statement_about_contents_follows_the_commits_in_memory_and_reaches_the_followers() {
    let (shared, env) = (shared(), memory());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"one").unwrap();
    let effects = HashBody::Effects { origin: 1, seq: Seq(1), hash: ContentHash(2) };
    let place = log.write_hash(&effects, |place| place).unwrap();
    assert_eq!((place.index, place.seq, log.place()), (EntryIndex(3), Seq(1), place));
    assert_eq!(log.confirmed(), Seq(1), "the commit before it was sent first");
    // Parts that do not fit an entry are left out; a start that does not fit is refused.
    let (seq, hash) = (Seq(1), ContentHash(3));
    let parts = vec![SlicePart { number: 1, hash }; 9];
    let slice = HashBody::SliceHash { request: EntryIndex(3), seq, hash, parts };
    log.write_hash(&slice, |_| ()).unwrap();
    let long = HashBody::Slice { start: vec![0; 100], bytes: 1 };
    assert!(matches!(log.write_hash(&long, |_| ()), Err(LogError::TooLarge { max: 64, .. })));
    put(&log, 2, b"two").unwrap();
    log.acknowledge().unwrap();

    let other = memory();
    let follower = node(&other, &shared, 2, None);
    let mut found = Vec::new();
    for entry in shared.read(EntryIndex::ZERO, usize::MAX, Duration::ZERO).unwrap() {
        let followed = follower.follow(&entry, |new| {
            let records: Vec<_> = new.iter().map(|(seq, payload)| Record { seq: *seq, payload }).collect();
            follower.append_followed(&records, follower.tail()).map(|_| ())
        });
        found.extend(followed.unwrap().hash);
    }
    let without = HashBody::SliceHash { request: EntryIndex(3), seq, hash, parts: Vec::new() };
    assert_eq!(found, [effects.clone(), without]);
    assert!(matches!(follower.write_hash(&effects, |_| ()), Err(LogError::NotLeader)));
}

#[test]
fn statement_of_a_later_version_is_ignored_and_a_damaged_one_is_not() {
    let statement = |body: &[u8]| {
        let (_, _, follower, entries) = world();
        let mut entry = Entry::decode(&entries[2].bytes).unwrap();
        (entry.kind, entry.count, entry.body) = (EntryKind::Hash, 0, body);
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        let followed =
            follower.follow(&SharedEntry { index: EntryIndex(3), bytes }, |_| Ok::<_, LogError>(()));
        followed.map(|followed| (followed.hash, followed.commits, follower.place().index))
    };
    assert_eq!(statement(&[9, 1, 2]).unwrap(), (None, 0, EntryIndex(3)));
    let refused = statement(&[1, 2]).unwrap_err();
    assert!(matches!(refused, LogError::Diverged { index: EntryIndex(3), .. }), "{refused}");
}

#[test]
fn leader_that_abandons_its_log_sends_nothing_more() {
    let (shared, env) = (shared(), memory());
    let log = leader(&env, &shared, 1);
    put(&log, 1, b"one").unwrap();
    log.abandon();
    assert!(log.is_deposed() && log.term().is_none());
    assert!(matches!(log.acknowledge(), Err(LogError::Deposed { leader: None })));
    assert_eq!((log.fate(Seq(1)), kinds(&shared).len()), (CommitFate::Absent, 1));
}
