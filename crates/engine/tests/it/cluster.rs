//! Nodes over a shared log in memory: what the leader commits, followers have; nothing else is ever seen.

use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_engine::shared::{
    Entry, EntryIndex, EntryKind, MemorySharedLog, SharedCall, SharedEntry, SharedFault, SharedLog,
};
use ropewalk_engine::{Role, SharedOptions};
use ropewalk_log::{LogError, LogId};

use super::*;

/// The contents of all keyspaces: for each its name and its entries.
type Contents = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

struct Node {
    disk: FaultyVfs,
    clock: Arc<ManualClock>,
    shared: MemorySharedLog,
    options: EngineOptions,
    engine: Engine,
}

/// How a node ends before it is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
    PowerCut,
}

impl Node {
    fn new(name: u8, shared: &MemorySharedLog) -> Self {
        Self::with(name, shared, manual())
    }

    fn with(name: u8, shared: &MemorySharedLog, options: EngineOptions) -> Self {
        let (disk, clock) = (FaultyVfs::new(u64::from(name)), Arc::<ManualClock>::default());
        clock.advance(Duration::from_secs(1000 * u64::from(name)));
        let shared = shared.handle();
        let mut node = SharedOptions::new(Arc::new(shared.clone()), [name; 16], format!("node-{name}"));
        node.patience = Duration::from_secs(5);
        let options = EngineOptions { shared: Some(node), ..options };
        let engine = open(&env(&disk.process(), &clock), options.clone()).unwrap();
        Self { disk, clock, shared, options, engine }
    }

    /// Ends it and opens it again. `between` may change its files.
    fn reopened(self, end: End, between: impl FnOnce(&Env)) -> Self {
        let Self { disk, clock, shared, options, engine } = self;
        match end {
            End::Closed => engine.close().unwrap(),
            End::Killed => disk.kill(),
            End::PowerCut => disk.crash(),
        }
        drop(engine);
        let env = env(&disk.process(), &clock);
        between(&env);
        let engine = open(&env, options.clone()).unwrap();
        Self { disk, clock, shared, options, engine }
    }

    fn reopen(self, end: End) -> Self {
        self.reopened(end, |_| {})
    }

    /// A node that leads.
    fn leader(name: u8, shared: &MemorySharedLog) -> Self {
        let node = Self::new(name, shared);
        node.catch_up();
        assert!(node.engine.campaign().unwrap());
        node
    }

    fn entries(&self) -> Vec<SharedEntry> {
        self.shared.read(self.engine.place().index, usize::MAX, Duration::ZERO).unwrap()
    }

    /// Follows all entries; returns how many commits became visible.
    fn catch_up(&self) -> u64 {
        self.entries().iter().map(|entry| self.engine.follow(entry).unwrap().commits).sum()
    }

    fn keyspace(&self) -> Keyspace {
        self.engine.keyspace("k", KeyspaceOptions::default()).unwrap()
    }

    fn put(&self, key: &str, value: &str) -> Result<Seq, CommitError> {
        put(&self.engine, self.keyspace(), key.as_bytes(), value.as_bytes(), Durability::Sync)
    }

    fn get(&self, key: &str) -> Option<String> {
        get(&self.engine, self.keyspace(), key.as_bytes()).map(|value| String::from_utf8(value).unwrap())
    }

    fn contents(&self) -> Contents {
        let snapshot = self.engine.snapshot();
        let keyspaces = self.engine.stats().store.keyspaces;
        let read = |number: usize| {
            let mut cursor = snapshot.read().cursor(Keyspace(number as u16));
            let mut entries = Vec::new();
            cursor.seek(b"").unwrap();
            while cursor.valid() {
                entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
                cursor.next().unwrap();
            }
            entries
        };
        keyspaces.iter().enumerate().map(|(number, found)| (found.name.clone(), read(number))).collect()
    }

    fn verify(&self) {
        let report = self.engine.verify().unwrap();
        assert!(report.violations.is_empty() && report.store.damage.is_empty(), "{report:?}");
    }
}

fn shared() -> MemorySharedLog {
    MemorySharedLog::new(LogId([9; 16]))
}

/// A commit with puts, deletes and a range delete that follow from its number.
fn change(node: &Node, round: u64) -> Seq {
    let name = if round.is_multiple_of(2) { "k" } else { "other" };
    let keys = node.engine.keyspace(name, KeyspaceOptions::default()).unwrap();
    let mut batch = KvBatch::new();
    for step in 0..5 {
        let key = (round * 7 + step * 13) % 40;
        match (round + step) % 5 {
            0 => batch.delete(keys, &key.to_be_bytes()),
            1 if round.is_multiple_of(3) => {
                batch.delete_range(keys, &key.to_be_bytes(), &(key + 4).to_be_bytes());
            }
            _ => batch.put(keys, &key.to_be_bytes(), &[round as u8; 300]),
        }
    }
    let durability = match round % 3 {
        0 => Durability::Sync,
        1 => Durability::Buffered,
        _ => Durability::Async { interval: Duration::from_secs(1) },
    };
    node.engine.commit(vec![Box::new(batch)], durability).unwrap().seq
}

#[test]
fn follower_has_the_contents_of_the_leader_at_each_commit() {
    let shared = shared();
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
    for round in 0..60 {
        let seq = change(&leader, round);
        assert_eq!(leader.engine.seq(), seq);
        follower.catch_up();
        assert_eq!((follower.engine.seq(), follower.engine.place()), (seq, leader.engine.place()));
        assert_eq!(follower.contents(), leader.contents(), "at commit {seq}");
    }
    let leads = Role::Leader { term: 1 };
    assert_eq!((leader.engine.role(), leader.engine.place().term), (leads, 1));
    let role = Role::Follower { leader: Some("node-1".into()) };
    assert_eq!(follower.engine.role(), role);
    // The change feed of a follower has the same bytes.
    let feed = |node: &Node| {
        let (mut feed, mut found) = (node.engine.changes(Seq(1)).unwrap(), Vec::new());
        while let Some(change) = feed.next().unwrap() {
            let sections =
                change.body.sections().map(|section| section.map(|(model, bytes)| (model, bytes.to_vec())));
            found.push((
                change.seq,
                change.body.time_micros,
                sections.collect::<Result<Vec<_>, _>>().unwrap(),
            ));
        }
        found
    };
    assert_eq!(feed(&follower), feed(&leader));
    assert_eq!(feed(&follower).len() as u64, follower.engine.seq().0);
}

#[test]
fn databases_that_flush_at_different_times_agree() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    let small = EngineOptions { replay_bytes: 4 << 10, ..manual() };
    let [never, often, threads] =
        [manual(), small, EngineOptions { background: Background::Threads, ..manual() }];
    let followers =
        [Node::with(2, &shared, never), Node::with(3, &shared, often), Node::with(4, &shared, threads)];
    for round in 0..300 {
        change(&leader, round);
        if round % 40 == 0 {
            leader.engine.compact().unwrap();
        }
        for (turn, follower) in followers.iter().enumerate() {
            follower.catch_up();
            if turn == 1 && round % 7 == 0 {
                while follower.engine.background_step().unwrap() {}
            }
            if turn == 2 && round % 50 == 25 {
                follower.engine.checkpoint().unwrap();
            }
        }
    }
    assert!(followers[1].engine.stats().checkpoint > followers[0].engine.stats().checkpoint);
    for node in followers.iter().chain([&leader]) {
        node.verify();
        assert_eq!((node.engine.seq(), node.contents()), (leader.engine.seq(), leader.contents()));
    }
    for node in followers {
        let node = node.reopen(End::Closed);
        node.catch_up();
        node.verify();
        assert_eq!(node.contents(), leader.contents());
    }
}

struct Resume<'a>(&'a MemorySharedLog);

impl Drop for Resume<'_> {
    fn drop(&mut self) {
        self.0.set_hanging(false);
    }
}

#[test]
fn commits_are_invisible_while_their_acknowledgement_hangs() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    leader.put("k", "old").unwrap();
    let (keys, seq) = (leader.keyspace(), leader.engine.seq());
    let interval = Duration::ZERO;
    for durability in [Durability::Sync, Durability::Buffered, Durability::Async { interval }] {
        let before = leader.get("k");
        let seq = leader.engine.seq();
        shared.set_hanging(true);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                put(&leader.engine, keys, b"k", format!("{durability:?}").as_bytes(), durability).unwrap();
                done.store(true, Ordering::SeqCst);
            });
            // Also when an assertion fails, so that the test ends.
            let hanging = Resume(&shared);
            let mut feed = leader.engine.changes(seq.next()).unwrap();
            for _ in 0..100 {
                assert_eq!((leader.get("k"), leader.engine.seq()), (before.clone(), seq), "{durability:?}");
                assert!(feed.next().unwrap().is_none() && leader.engine.snapshot_at(seq.next()).is_err());
                assert!(!leader.engine.wait_visible(seq.next(), Duration::ZERO));
                assert!(!done.load(Ordering::SeqCst), "nothing is acknowledged");
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(hanging);
        });
        assert_eq!(leader.get("k"), Some(format!("{durability:?}")));
    }
    assert_eq!(leader.engine.seq().0, seq.0 + 3);
}

#[test]
fn deposed_leader_has_nothing_of_its_last_group_after_reopening() {
    let shared = shared();
    let (old, new) = (Node::leader(1, &shared), Node::new(2, &shared));
    old.put("k", "1").unwrap();
    new.catch_up();
    assert!(new.engine.campaign().unwrap());
    new.keyspace();
    let keys = old.keyspace();
    // Several requests in its group.
    let handles: Vec<_> = (0..3)
        .map(|i| {
            let mut batch = KvBatch::new();
            batch.put(keys, b"k", &[i]);
            old.engine.submit(vec![Box::new(batch)], Durability::Async { interval: Duration::ZERO }).unwrap()
        })
        .collect();
    old.engine.drive();
    for handle in handles {
        let refused = handle.wait().unwrap_err();
        let CommitError::Engine(EngineError::NotLeader { leader }) = &refused else { panic!("{refused}") };
        assert_eq!(leader.as_deref(), Some("node-2"), "certainly not written, and there it can be");
    }
    assert!(old.engine.is_deposed());
    assert_eq!((old.get("k").as_deref(), old.engine.seq()), (Some("1"), Seq(2)), "readers go on");
    let refused = old.put("k", "x").unwrap_err();
    assert!(matches!(refused, CommitError::Engine(EngineError::NotLeader { .. })), "{refused}");
    let stopped = old.engine.stopped().unwrap().to_string();
    assert!(stopped.contains("another node leads, at node-2"), "{stopped}");
    assert!(old.engine.checkpoint().is_err(), "its memory reaches no run");
    new.put("k", "2").unwrap();
    let old = old.reopen(End::Closed);
    assert_eq!((old.engine.role(), old.engine.seq()), (Role::Follower { leader: None }, Seq(2)));
    old.catch_up();
    assert_eq!(old.contents(), new.contents());
}

#[test]
fn unknown_append_is_unknown_to_the_caller_whatever_became_of_it() {
    for (is_late, has_rival) in [(false, false), (true, false), (false, true), (true, true)] {
        let shared = shared();
        let leader = Node::leader(1, &shared);
        leader.put("k", "1").unwrap();
        leader.shared.choose_faults(move |call| match call {
            SharedCall::Append { .. } if is_late => Some(SharedFault::Delay { calls: u64::MAX }),
            _ => Some(SharedFault::DropRequest),
        });
        let refused = leader.put("k", "2").unwrap_err();
        assert!(matches!(refused, CommitError::Unknown { seq: Seq(3), .. }), "{refused}");
        assert_eq!(
            EngineError::from(refused).to_string().split(':').next(),
            Some("it is unknown whether commit 3 took place")
        );
        assert_eq!((leader.get("k").as_deref(), leader.engine.is_deposed()), (Some("1"), true));
        let later = leader.put("k", "3").unwrap_err();
        assert!(matches!(later, CommitError::Engine(EngineError::NotLeader { leader: None })), "{later}");
        leader.shared.choose_faults(|_| None);
        if has_rival {
            let rival = Node::leader(2, &shared);
            rival.put("k", "rival").unwrap();
        }
        let stored = shared.deliver_delayed();
        assert_eq!(stored, usize::from(is_late && !has_rival));
        let leader = leader.reopen(End::Closed);
        leader.catch_up();
        let expected = match (has_rival, is_late) {
            (true, _) => "rival",
            (false, true) => "2",
            (false, false) => "1",
        };
        assert_eq!(leader.get("k").as_deref(), Some(expected), "late {is_late}, rival {has_rival}");
        assert!(leader.engine.campaign().unwrap(), "it may lead again");
        leader.put("k", "4").unwrap();
        let reader = Node::new(4, &shared);
        reader.catch_up();
        assert_eq!(reader.contents(), leader.contents());
    }
}

#[test]
fn commit_of_a_confirmed_group_is_acknowledged_when_the_local_disk_fails() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    leader.put("k", "1").unwrap();
    leader.disk.fail(DiskOp::Write, 0);
    assert_eq!(leader.put("k", "2").unwrap(), Seq(3), "the shared log has it");
    assert_eq!(leader.get("k").as_deref(), Some("2"));
    let refused = leader.put("k", "3").unwrap_err();
    assert!(matches!(refused, CommitError::Engine(EngineError::Stopped { .. })), "{refused}");
    assert!(!leader.engine.is_deposed());
    let follower = Node::new(2, &shared);
    follower.catch_up();
    assert_eq!(follower.contents(), leader.contents());
}

#[test]
fn follower_refuses_to_write() {
    let shared = shared();
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
    leader.put("k", "1").unwrap();
    follower.catch_up();
    let is_refused = |error: EngineError| {
        assert!(
            matches!(&error, EngineError::NotLeader { leader } if leader.as_deref() == Some("node-1")),
            "{error}"
        );
    };
    let batch = || -> Vec<Box<dyn ropewalk_engine::Operation>> {
        let mut batch = KvBatch::new();
        batch.put(follower.keyspace(), b"k", b"2");
        vec![Box::new(batch)]
    };
    let engine = &follower.engine;
    is_refused(engine.commit(batch(), Durability::Sync).unwrap_err().into());
    is_refused(engine.submit(batch(), Durability::Sync).err().unwrap().into());
    is_refused(engine.try_submit(batch(), Durability::Sync).err().unwrap().into());
    is_refused(engine.keyspace("new", KeyspaceOptions::default()).unwrap_err());
    is_refused(engine.ingest(Vec::new()).unwrap_err());
    is_refused(engine.renew().unwrap_err());
    assert_eq!((engine.seq(), shared.newest()), (leader.engine.seq(), leader.engine.place().index));
    assert!(engine.stopped().is_none(), "it follows on");
    leader.put("k", "2").unwrap();
    assert_eq!(follower.catch_up(), 1);
    // The leader follows nothing.
    let entry = SharedEntry { index: EntryIndex(1), bytes: Vec::new() };
    let refused = leader.engine.follow(&entry).unwrap_err();
    assert!(matches!(&refused, EngineError::Log(log) if matches!(**log, LogError::Leads)), "{refused}");
    leader.put("k", "3").unwrap();
}

#[test]
fn node_alone_has_no_shared_log() {
    let engine = open(&Env::memory(), manual()).unwrap();
    assert_eq!(
        (engine.role(), engine.place(), engine.is_deposed()),
        (Role::Alone, Default::default(), false)
    );
    engine.renew().unwrap();
    assert!(engine.campaign().is_err());
    engine.keyspace("k", KeyspaceOptions::default()).unwrap();
}

/// Opens a follower again at each of its entries, in all states that its directory may have.
#[test]
fn reopened_follower_continues_at_any_entry() {
    let shared = MemorySharedLog::with_entry_bytes_max(LogId([9; 16]), 2000);
    let leader = Node::leader(1, &shared);
    for round in 0..12 {
        change(&leader, round);
        if round == 6 {
            leader.engine.renew().unwrap();
        }
    }
    let keys = leader.keyspace();
    put(&leader.engine, keys, b"large", &[1; 5000], Durability::Sync).unwrap();
    change(&leader, 13);
    let newest = shared.newest().0;
    assert!(newest > 16, "the large commit has parts");
    let entries = leader.shared.read(EntryIndex::ZERO, usize::MAX, Duration::ZERO).unwrap();
    for at in 0..=entries.len() {
        for state in ["closed", "killed", "power cut", "old place", "no place", "damaged place", "flushed"] {
            let node = Node::new(2, &shared);
            for entry in &entries[..at] {
                node.engine.follow(entry).unwrap();
                if state == "old place" && entry.index.0 == 4 {
                    node.clock.advance(Duration::from_secs(60));
                    while node.engine.background_step().unwrap() {}
                }
                if state == "flushed" && entry.index.0 % 5 == 0 {
                    node.engine.checkpoint().unwrap();
                }
            }
            let seq = node.engine.seq();
            let end = match state {
                "power cut" | "old place" => End::PowerCut,
                "killed" => End::Killed,
                _ => End::Closed,
            };
            let place = Path::new("/db/place");
            let node = node.reopened(end, |env| match state {
                "no place" if env.vfs.exists(place).unwrap() => env.vfs.remove(place).unwrap(),
                "damaged place" if env.vfs.exists(place).unwrap() => {
                    let file = env.vfs.open(place, ropewalk_vfs::OpenMode::ReadWrite).unwrap();
                    file.write_all_at(b"damage", 20).unwrap();
                }
                _ => {}
            });
            assert!(node.engine.seq() == seq || (end == End::PowerCut && node.engine.seq() < seq));
            let left = node.entries().len();
            if state == "closed" {
                let parts = newest as usize - 16;
                assert!(
                    left <= entries.len() - at + parts,
                    "{left} entries after {at}: it has noted its place"
                );
            }
            node.catch_up();
            assert_eq!(node.engine.place(), leader.engine.place(), "at {at}, {state}");
            assert_eq!(node.contents(), leader.contents(), "at {at}, {state}");
            node.verify();
        }
    }
}

/// A node that was killed before it noted any entry, and whose shared log then changes.
fn killed_early(leads: bool, change: impl FnOnce(&MemorySharedLog)) -> (Node, MemorySharedLog) {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    leader.put("k", "1").unwrap();
    let follower = Node::new(2, &shared);
    follower.catch_up();
    let node = if leads { leader } else { follower };
    change(&shared);
    let node = node.reopen(End::Killed);
    assert!(node.engine.seq() > Seq(0) && node.engine.place().index == EntryIndex::ZERO);
    (node, shared)
}

#[test]
fn node_that_has_noted_no_entry_does_not_lead_in_another_log() {
    for leads in [true, false] {
        let (node, shared) = killed_early(leads, |shared| shared.create_again(LogId([8; 16])));
        for _ in 0..2 {
            let refused = node.engine.campaign().unwrap_err();
            assert!(matches!(refused, EngineError::Diverged { .. }), "{refused}");
            assert!(refused.to_string().contains("created again"), "{refused}");
        }
        assert!(shared.entries().is_empty());

        let (node, shared) = killed_early(leads, |shared| shared.lose_newest(100));
        let refused = node.engine.campaign().unwrap_err();
        assert!(matches!(refused, EngineError::Diverged { .. }), "{refused}");
        assert!(shared.entries().is_empty());

        let (node, _) = killed_early(leads, |_| {});
        node.catch_up();
        assert!(node.engine.campaign().unwrap(), "on its log it may lead");
    }
}

#[test]
fn database_that_was_alone_begins_an_empty_log_also_after_attempts_without_an_answer() {
    let shared = shared();
    let node = Node::new(1, &shared);
    let env = env(&node.disk.process(), &node.clock);
    let options = node.options.clone();
    drop(node.engine);
    let alone = open(&env, EngineOptions { shared: None, ..options.clone() }).unwrap();
    let keys = alone.keyspace("k", KeyspaceOptions::default()).unwrap();
    put(&alone, keys, b"k", b"alone", Durability::Sync).unwrap();
    alone.close().unwrap();
    drop(alone);
    node.shared.choose_faults(|call| {
        let is_append = matches!(call, SharedCall::Append { .. });
        is_append.then_some(SharedFault::DropRequest)
    });
    let engine = open(&env, options.clone()).unwrap();
    assert!(engine.campaign().is_err());
    drop(engine);
    node.shared.choose_faults(|_| None);
    let engine = open(&env, options).unwrap();
    assert!(engine.campaign().unwrap());
    let seq = engine.seq();
    let follower = Node::new(2, &shared);
    let entry = follower.entries().remove(0);
    assert_eq!(Entry::decode(&entry.bytes).unwrap().first, seq.next());
    let refused = follower.engine.follow(&entry).unwrap_err();
    assert!(matches!(refused, EngineError::Diverged { .. }), "it lacks the commits before: {refused}");
}

#[test]
fn leader_whose_log_has_lost_its_end_reports_that_and_not_only_that_it_stopped() {
    for renews in [true, false] {
        let shared = shared();
        let leader = Node::leader(1, &shared);
        leader.put("k", "1").unwrap();
        shared.lose_newest(1);
        let refused = match renews {
            true => leader.engine.renew().unwrap_err(),
            false => leader.put("k", "2").unwrap_err().into(),
        };
        assert!(matches!(refused, EngineError::Diverged { .. }), "{refused}");
        for error in [leader.engine.stopped().unwrap(), leader.put("k", "3").unwrap_err().into()] {
            assert!(matches!(error, EngineError::Diverged { .. }), "{error}");
        }
        assert!(!leader.engine.is_deposed());
    }
}

#[test]
fn transaction_larger_than_an_entry_is_committed() {
    let shared = MemorySharedLog::with_entry_bytes_max(LogId([9; 16]), 500);
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
    let keys = leader.keyspace();
    follower.catch_up();
    let value = vec![3; 100_000];
    put(&leader.engine, keys, b"large", &value, Durability::Sync).unwrap();
    let entries = follower.entries();
    assert!(entries.len() > 200);
    for entry in &entries {
        assert_eq!(get(&follower.engine, keys, b"large"), None, "the group is not whole");
        follower.engine.follow(entry).unwrap();
    }
    assert_eq!(get(&follower.engine, keys, b"large"), Some(value));
    // A part is lost for good: the leader stops, and the next one discards the others.
    let mut appends = 0;
    leader.shared.choose_faults(move |call| {
        appends += u32::from(matches!(call, SharedCall::Append { .. }));
        (appends > 7).then_some(SharedFault::DropRequest)
    });
    let refused = put(&leader.engine, keys, b"half", &[4; 5000], Durability::Sync).unwrap_err();
    assert!(matches!(refused, CommitError::Engine(EngineError::NotLeader { .. })), "certain: {refused}");
    follower.catch_up();
    assert!(follower.engine.campaign().unwrap());
    put(&follower.engine, keys, b"next", b"5", Durability::Sync).unwrap();
    let leader = leader.reopen(End::Closed);
    leader.shared.choose_faults(|_| None);
    leader.catch_up();
    assert_eq!(leader.contents(), follower.contents());
    assert_eq!(get(&leader.engine, keys, b"half"), None);
}

#[test]
fn entry_that_cannot_be_applied_stops_the_follower_for_good() {
    let cases =
        [(0, 99, "record version 1"), (9, 77, "unknown model 77"), (14, 5, "an earlier commit defines")];
    for (offset, byte, expected) in cases {
        let shared = shared();
        let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
        leader.keyspace();
        follower.catch_up();
        leader.put("k", "1").unwrap();
        let mut stored = follower.entries().pop().unwrap();
        let entry = Entry::decode(&stored.bytes).unwrap();
        let mut payload = entry.body[4..].to_vec();
        payload[offset] = byte;
        let body = [&entry.body[..4], &payload].concat();
        let mut bytes = Vec::new();
        Entry { body: &body, ..entry }.encode(&mut bytes);
        stored.bytes = bytes;
        let diverged = follower.engine.follow(&stored).unwrap_err();
        assert!(matches!(&diverged, EngineError::Diverged { index: EntryIndex(3), .. }), "{diverged}");
        assert!(diverged.to_string().contains(expected), "{diverged}");
        assert!(
            follower
                .engine
                .follow(&leader.shared.read(EntryIndex(2), 1, Duration::ZERO).unwrap()[0])
                .is_err()
        );
        assert_eq!(follower.engine.seq(), Seq(1));
        let stopped = follower.engine.stopped().unwrap();
        assert!(matches!(stopped, EngineError::Diverged { .. }) && !follower.engine.is_deposed());
        // Nothing of it is in its directory: an upgrade may read it.
        let follower = follower.reopen(End::Killed);
        follower.catch_up();
        assert_eq!(follower.contents(), leader.contents());
    }
}

#[test]
fn follower_stays_within_its_memory_budget() {
    let shared = MemorySharedLog::with_entry_bytes_max(LogId([9; 16]), 8 << 20);
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
    let keys = leader.keyspace();
    for round in 0..60_u32 {
        put(&leader.engine, keys, &round.to_be_bytes(), &[7; 50_000], Durability::Sync).unwrap();
    }
    for entry in follower.entries() {
        follower.engine.follow(&entry).unwrap();
        let stats = follower.engine.stats();
        assert!(stats.write_bytes <= stats.write_bytes_max + (128 << 10), "{stats:?}");
    }
    assert!(follower.engine.stats().checkpoint > Seq(40));
    assert_eq!(follower.contents(), leader.contents());
}

#[test]
fn wait_for_a_commit_ends_when_the_follower_applies_it() {
    let shared = shared();
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
    leader.put("k", "1").unwrap();
    let seq = leader.engine.seq();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| follower.engine.wait_until_visible(seq));
        std::thread::sleep(Duration::from_millis(20));
        follower.catch_up();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(follower.get("k").as_deref(), Some("1"));
}

#[test]
fn leader_of_many_threads_loses_the_lead_without_a_false_answer() {
    let shared = shared();
    let threads = EngineOptions { background: Background::Threads, memory_budget: 8 << 20, ..manual() };
    let leader = Node::with(1, &shared, threads);
    assert!(leader.engine.campaign().unwrap());
    let keys = leader.keyspace();
    let acknowledged = std::sync::Mutex::new(Vec::new());
    let rival = Node::new(2, &shared);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (leader, acknowledged) = (&leader, &acknowledged);
            scope.spawn(move || {
                for round in 0_u32.. {
                    let key = [thread.to_be_bytes(), round.to_be_bytes()].concat();
                    match put(&leader.engine, keys, &key, &[1; 100], Durability::Sync) {
                        Ok(_) => acknowledged.lock().unwrap().push(key),
                        Err(CommitError::Engine(EngineError::NotLeader { .. })) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        while !rival.engine.campaign().unwrap() {
            rival.catch_up();
        }
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    for key in &acknowledged {
        assert!(get(&rival.engine, keys, key).is_some());
    }
    // The rival has followed all commits: an unacknowledged one would be one too many.
    let written: usize = rival.contents().iter().map(|(_, entries)| entries.len()).sum();
    assert_eq!(written, acknowledged.len());
}

#[test]
fn kinds_of_entries_are_reported() {
    let shared = shared();
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared));
    leader.keyspace();
    leader.engine.renew().unwrap();
    let followed: Vec<_> =
        follower.entries().iter().map(|entry| follower.engine.follow(entry).unwrap()).collect();
    let kinds: Vec<_> = followed.iter().map(|done| (done.kind, done.commits, done.node)).collect();
    let expected =
        [(EntryKind::Lead, 0, [1; 16]), (EntryKind::Commits, 1, [1; 16]), (EntryKind::Renew, 0, [1; 16])];
    assert_eq!(kinds, expected);
    assert_eq!(followed[2].place, follower.engine.place());
    assert_eq!(followed[0].time_micros, ropewalk_vfs::Clock::wall_micros(&*leader.clock));
}
