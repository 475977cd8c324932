//! Checkpoints: made, used by new nodes, damaged, deleted, and what they let the leader trim.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropewalk::cluster::Role;
use ropewalk::engine::{Env, KeyspaceOptions};
use ropewalk::{Durability, Seq};
use ropewalk_cluster::checkpoint::{
    CheckpointError, CheckpointMade, CheckpointStore, Checkpoints, DirectoryStore, JoinNotice, Joined, Maker,
    ObjectError, Upkeep, UpkeepDone, UpkeepSettings, discard_copy,
};
use ropewalk_cluster::{Done, End};
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, MemorySharedLog, SharedLog as _};
use ropewalk_vfs::{Clock as _, FaultyVfs, ManualClock, OpenMode};

use crate::{LEASE, Stepped, leading_on, new_log, put};

/// Small blocks, so that a file has several.
const BLOCK_BYTES: u32 = 1000;
pub(crate) const DB: &str = "/db";
const STORE: &str = "/store";

/// A store in memory whose calls a test can change.
#[derive(Clone)]
pub(crate) struct Store {
    env: Env,
    inner: Arc<DirectoryStore>,
    hook: Arc<Mutex<Hook>>,
}

type Hook = Box<dyn FnMut(&Call<'_>) -> Result<(), ObjectError> + Send>;

/// A call, before it has any effect.
#[derive(Debug, PartialEq, Eq)]
enum Call<'a> {
    Create(&'a str),
    Read(&'a str),
    List,
    Delete,
}

impl core::fmt::Debug for Store {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        let env = Env::memory();
        let inner = Arc::new(DirectoryStore::open(&env, Path::new(STORE)).unwrap());
        Self { env, inner, hook: Arc::new(Mutex::new(Box::new(|_| Ok(())))) }
    }

    pub(crate) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(Arc::new(self.clone())).block_bytes(BLOCK_BYTES)
    }

    /// Calls `hook` before each call. It may make calls itself.
    fn set_hook(&self, hook: impl FnMut(&Call<'_>) -> Result<(), ObjectError> + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    fn begin(&self, call: &Call<'_>) -> Result<(), ObjectError> {
        // Out of its place, so that it can make calls.
        let mut hook = std::mem::replace(&mut *self.hook.lock().unwrap(), Box::new(|_| Ok(())));
        let result = hook(call);
        *self.hook.lock().unwrap() = hook;
        result
    }

    /// Deletes an object.
    pub(crate) fn delete(&self, name: &str) {
        self.inner.delete(name).unwrap();
    }

    /// Checks that these checkpoints are complete.
    pub(crate) fn verify<const N: usize>(&self, numbers: [u64; N]) {
        for number in numbers {
            self.checkpoints().verify(number).unwrap();
        }
    }

    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        self.inner.list(kind).unwrap()
    }

    /// Changes one byte of an object.
    fn damage(&self, name: &str) {
        let file = self.env.vfs.open(&Path::new(STORE).join(name), OpenMode::ReadWrite).unwrap();
        let at = file.len().unwrap() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

impl CheckpointStore for Store {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.begin(&Call::Create(name))?;
        self.inner.create(name, bytes)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError> {
        self.begin(&Call::Read(name))?;
        self.inner.read(name)
    }

    fn list(&self, kind: &str) -> Result<Vec<String>, ObjectError> {
        self.begin(&Call::List)?;
        self.inner.list(kind)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.begin(&Call::Delete)?;
        self.inner.delete(name)
    }
}

fn unavailable() -> ObjectError {
    ObjectError { call: "call", name: "any".to_owned(), cause: "injected".to_owned() }
}

fn maker(store: &Store, node: &Stepped) -> Maker {
    let db = node.node.database().clone();
    Maker::new(store.checkpoints(), db, Path::new(DB), [node.number; 16], format!("node-{}", node.number))
}

pub(crate) fn make(store: &Store, node: &Stepped) -> CheckpointMade {
    maker(store, node).make().unwrap()
}

/// A leader and a follower that has applied everything.
pub(crate) fn two_nodes(log: &MemorySharedLog) -> (Stepped, Stepped) {
    let (leader, follower) = leading_on(log);
    leader.put(b"first");
    follower.follow_all();
    (leader, follower)
}

/// Two nodes with a store.
pub(crate) fn cluster() -> (MemorySharedLog, Store, Stepped, Stepped) {
    let log = new_log();
    let (leader, follower) = two_nodes(&log);
    (log, Store::new(), leader, follower)
}

/// The leader puts a value, and the follower applies it.
pub(crate) fn replicate(leader: &Stepped, follower: &Stepped, number: u64) {
    leader.put(&value(number));
    follower.follow_all();
}

/// A value that has a kilobyte, and that no compression shortens.
fn value(number: u64) -> Vec<u8> {
    let hashes =
        (0..125_u64).map(|part| ropewalk_base::hash64(&[number.to_le_bytes(), part.to_le_bytes()].concat()));
    hashes.flat_map(u64::to_le_bytes).collect()
}

pub(crate) fn join_with(
    store: &Store,
    env: &Env,
    log: &MemorySharedLog,
) -> (Result<Joined, CheckpointError>, Vec<u64>) {
    let mut rejected = Vec::new();
    let mut notice = |notice: JoinNotice| {
        if let JoinNotice::Rejected { number, .. } = notice {
            rejected.push(number);
        }
    };
    let joined = store.checkpoints().join(env, Path::new(DB), log, &mut notice);
    (joined, rejected)
}

/// A new node with the database of a checkpoint.
fn joined(store: &Store, log: &MemorySharedLog, number: u8) -> Stepped {
    let env = Env::memory();
    let (joined, rejected) = join_with(store, &env, log);
    assert!(matches!(joined, Ok(Joined::FromCheckpoint { .. })) && rejected.is_empty(), "{joined:?}");
    reopened(log, number, env)
}

/// A node with the files of `env`.
pub(crate) fn reopened(log: &MemorySharedLog, number: u8, env: Env) -> Stepped {
    let clock = Arc::new(ManualClock::default());
    let env = Env { clock: clock.clone(), ..env };
    Stepped::open(log.handle(), number, clock, env)
}

fn verify(node: &Stepped) {
    let report = node.node.database().verify().unwrap();
    assert!(report.violations.is_empty() && report.store.damage.is_empty(), "{report:?}");
}

#[test]
fn new_node_begins_with_the_newest_checkpoint_and_follows() {
    let (log, store, leader, follower) = cluster();
    make(&store, &follower);
    let seq = leader.put(b"second");
    follower.follow_all();
    let made = make(&store, &follower);
    assert_eq!((made.number, made.seq, made.place), (2, seq, follower.node.database().engine().place()));
    let newest = leader.put(b"third");
    // The new node cannot read what is in the checkpoint.
    log.trim(made.place.index.next()).unwrap();

    let node = joined(&store, &log, 3);
    assert_eq!((node.node.status().seq, node.node.status().index), (seq, made.place.index));
    assert_eq!(node.get().as_deref(), Some(b"second".as_slice()));
    node.follow_all();
    assert_eq!((node.node.status().seq, node.get()), (newest, leader.get()));
    verify(&node);
    // It can lead, too, and make checkpoints.
    node.lead();
    let seq = node.put(b"fourth");
    assert_eq!((make(&store, &node).number, seq), (3, newest.next()));
    let found = store.checkpoints().list().unwrap();
    let manifest = found[0].manifest.as_ref().unwrap();
    assert_eq!((manifest.node, manifest.address.as_str(), manifest.seq), ([3; 16], "node-3", seq));
}

#[test]
fn checkpoint_of_the_leader_has_every_commit_that_it_acknowledged() {
    let (log, store, leader, _) = cluster();
    for number in 0..20 {
        leader.put(&value(number));
    }
    let made = make(&store, &leader);
    assert_eq!(made.seq, leader.node.status().seq);
    let node = joined(&store, &log, 3);
    assert_eq!(node.get(), leader.get());
}

#[test]
fn next_checkpoint_stores_only_what_is_new_and_reads_no_run_again() {
    let (log, store, leader, follower) = cluster();
    let keys = leader.node.database().keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..100_u64 {
        let db = leader.node.database();
        db.put(keys, &number.to_be_bytes(), &value(number), Durability::Sync).unwrap();
        follower.follow_all();
        if number % 10 == 9 {
            follower.node.database().checkpoint().unwrap();
        }
    }
    let mut maker = maker(&store, &follower);
    let first = maker.make().unwrap();
    assert!(first.stored_bytes > 0 && first.bytes >= first.stored_bytes, "{first:?}");
    replicate(&leader, &follower, 1000);
    let second = maker.make().unwrap();
    let keyspaces = follower.node.database().stats().store.keyspaces;
    let runs: u64 = keyspaces.iter().map(|keyspace| keyspace.file_bytes).sum();
    assert!(second.stored_bytes < 20_000 && second.bytes > runs && runs > 100_000, "{second:?}");
    // Another maker reads the runs, and finds all of them in the store.
    let third = make(&store, &follower);
    assert!(third.stored_bytes < 20_000, "{third:?}");
    store.checkpoints().verify(3).unwrap();
    assert_eq!(joined(&store, &log, 3).get(), leader.get());
}

#[test]
fn directory_with_a_database_is_left_alone_and_without_checkpoints_a_node_begins_at_the_first_entry() {
    let (log, store, _leader, follower) = cluster();
    let empty = Env::memory();
    assert!(matches!(join_with(&store, &empty, &log).0, Ok(Joined::FromFirstEntry)));
    make(&store, &follower);
    let Stepped { node, env, .. } = follower;
    node.database().clone().close().unwrap();
    drop(node);
    assert!(matches!(join_with(&store, &env, &log).0, Ok(Joined::Present)));
}

#[test]
fn open_database_cannot_be_joined_or_discarded() {
    let (log, store, _leader, follower) = cluster();
    let error = join_with(&store, &follower.env, &log).0.unwrap_err();
    assert!(error.to_string().contains("LOCK"), "{error}");
    discard_copy(&follower.env, Path::new(DB)).unwrap_err();
    assert!(follower.get().is_some());
}

#[test]
fn damaged_checkpoint_is_rejected_and_the_one_before_is_used() {
    let (log, store, leader, follower) = cluster();
    let first = make(&store, &follower);
    replicate(&leader, &follower, 1);
    make(&store, &follower);
    let new = store.names("blocks").into_iter().find(|name| name.starts_with("blocks/0000000000000002-"));
    store.damage(&new.unwrap());
    assert!(matches!(store.checkpoints().verify(2), Err(CheckpointError::Damaged { .. })));

    let env = Env::memory();
    let (joined, rejected) = join_with(&store, &env, &log);
    let Ok(Joined::FromCheckpoint { number, place, .. }) = joined else { panic!("{joined:?}") };
    assert_eq!((number, place, rejected), (1, first.place, vec![2]));

    // A damaged manifest, too; and without any other checkpoint the node does not begin at all.
    store.damage("checkpoints/0000000000000001");
    log.trim(first.place.index.next()).unwrap();
    let (joined, rejected) = join_with(&store, &Env::memory(), &log);
    let Err(error @ CheckpointError::NoneFits { .. }) = joined else { panic!("{joined:?}") };
    assert_eq!(rejected, [2, 1]);
    assert!(
        error.to_string().contains("checkpoint 2") && error.to_string().contains("checkpoint 1"),
        "{error}"
    );
    // The next checkpoint replaces what is damaged: it does not use those blocks.
    let made = make(&store, &follower);
    assert_eq!(made.number, 3);
}

#[test]
fn checkpoint_of_another_log_or_before_the_oldest_entry_does_not_fit() {
    let (log, store, leader, follower) = cluster();
    let made = make(&store, &follower);
    leader.put(b"second");
    leader.put(b"third");
    let other = MemorySharedLog::new(LogId([8; 16]));
    assert!(matches!(join_with(&store, &Env::memory(), &other).0, Ok(Joined::FromFirstEntry)));
    log.trim(EntryIndex(made.place.index.0 + 2)).unwrap();
    let (joined, rejected) = join_with(&store, &Env::memory(), &log);
    assert!(matches!(&joined, Err(CheckpointError::NoneFits { .. })) && rejected.is_empty(), "{joined:?}");
}

#[test]
fn interrupted_download_continues_with_what_is_right() {
    let (log, store, leader, follower) = cluster();
    for number in 0..20 {
        replicate(&leader, &follower, number);
        follower.node.database().checkpoint().unwrap();
    }
    let made = make(&store, &follower);
    let (env, mut found) = (Env::memory(), 0);
    for attempt in 1.. {
        let reads = AtomicUsize::new(0);
        store.set_hook(move |call| match call {
            Call::Read(name) if name.starts_with("blocks/") && reads.fetch_add(1, Ordering::SeqCst) >= 5 => {
                Err(unavailable())
            }
            _ => Ok(()),
        });
        match join_with(&store, &env, &log) {
            (Ok(Joined::FromCheckpoint { found_bytes, bytes, .. }), _) => {
                assert!(attempt > 2 && bytes == made.bytes, "attempt {attempt}");
                found += found_bytes;
                break;
            }
            (joined, _) => assert!(matches!(joined, Err(CheckpointError::Store(_))), "{joined:?}"),
        }
    }
    assert!(found > 0, "downloaded files were found");
    let node = reopened(&log, 3, env);
    assert_eq!(node.get(), leader.get());
    verify(&node);
}

#[test]
fn power_cut_at_every_step_of_joining_leaves_nothing_or_the_checkpoint() {
    let (log, store, leader, follower) = cluster();
    replicate(&leader, &follower, 1);
    follower.node.database().checkpoint().unwrap();
    replicate(&leader, &follower, 2);
    make(&store, &follower);
    let join = |disk: &FaultyVfs| {
        let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
        (join_with(&store, &env, &log).0, env)
    };
    let mut is_whole = false;
    for cut in 0.. {
        let disk = FaultyVfs::new(cut);
        disk.crash_at(cut);
        let done = join(&disk).0.is_ok();
        disk.crash();
        // Again cut off, and then not.
        disk.crash_at(disk.operations() + cut / 2);
        let _ = join(&disk);
        disk.crash();
        let (joined, env) = join(&disk);
        assert!(matches!(joined, Ok(Joined::FromCheckpoint { .. } | Joined::Present)), "{cut}: {joined:?}");
        let node = reopened(&log, 3, env);
        assert_eq!(node.get(), leader.get(), "{cut}");
        verify(&node);
        drop(node);
        assert!(!disk.files().iter().any(|(path, _)| path.starts_with("/db/joining")), "{cut}");
        is_whole |= done;
        if is_whole && cut > 20 {
            break;
        }
    }
}

#[test]
fn trimmed_node_discards_its_copy_and_joins_again_also_after_power_cuts() {
    let (log, store, leader, follower) = cluster();
    let slow = FaultyVfs::new(1);
    let env = |disk: &FaultyVfs| Env { vfs: Arc::new(disk.process()), ..Env::memory() };
    let node = reopened(&log, 3, env(&slow));
    node.follow_all();
    node.node.database().clone().close().unwrap();
    drop(node);
    leader.put(b"second");
    follower.follow_all();
    let made = make(&store, &follower);
    leader.put(b"third");
    log.trim(made.place.index.next()).unwrap();
    for cut in 0..40 {
        let disk = slow.copy(cut);
        let node = reopened(&log, 3, env(&disk));
        let end = node.ended_within(LEASE);
        assert!(matches!(end, Some(End::Trimmed { .. })), "{end:?}");
        drop(node);
        disk.crash_at(disk.operations() + cut);
        if discard_copy(&env(&disk), Path::new(DB)).is_err() {
            disk.crash();
            discard_copy(&env(&disk), Path::new(DB)).unwrap();
        }
        disk.calm();
        let env = env(&disk);
        let (joined, _) = join_with(&store, &env, &log);
        assert!(matches!(joined, Ok(Joined::FromCheckpoint { .. })), "{cut}: {joined:?}");
        let node = reopened(&log, 3, env);
        node.follow_all();
        assert_eq!(node.get(), leader.get());
    }
}

#[test]
fn of_two_makers_one_makes_the_checkpoint_and_nothing_of_it_is_deleted() {
    let (_, store, leader, follower) = cluster();
    make(&store, &follower);
    replicate(&leader, &follower, 1);
    // The follower makes one, and while it publishes it, the leader makes one and deletes what that does not need.
    let (mut other, checkpoints) = (Some(maker(&store, &leader)), store.checkpoints());
    store.set_hook(move |call| {
        if matches!(call, Call::Create(name) if name.starts_with("checkpoints/"))
            && let Some(mut other) = other.take()
        {
            assert_eq!(other.make().unwrap().number, 2);
            assert!(checkpoints.collect(2).unwrap() > 0, "the blocks of the slower node");
        }
        Ok(())
    });
    let outrun = maker(&store, &follower).make().unwrap_err();
    assert!(matches!(outrun, CheckpointError::Outrun { number: 2 }), "{outrun}");
    let manifest = store.checkpoints().verify(2).unwrap();
    assert_eq!(manifest.node, [1; 16]);
    store.checkpoints().verify(1).unwrap();
    assert!(!follower.env.vfs.exists(Path::new("/db/checkpoint")).unwrap(), "the copy is removed");
}

/// The follower begins checkpoint 2 and waits at the first call that `waits` names, until the leader has made the checkpoints 2
/// to 4 and deleted what those do not need.
fn make_slowly(
    log: &MemorySharedLog,
    store: &Store,
    waits: impl Fn(&Call<'_>) -> bool + Send + 'static,
) -> (Stepped, Stepped, CheckpointError) {
    let (leader, follower) = two_nodes(log);
    make(store, &follower);
    replicate(&leader, &follower, 1);
    let db = leader.node.database().clone();
    let (checkpoints, mut other) = (store.checkpoints(), Some(maker(store, &leader)));
    store.set_hook(move |call| {
        if waits(call)
            && let Some(mut other) = other.take()
        {
            for number in 2..=4 {
                put(&db, &value(number));
                assert_eq!(other.make().unwrap().number, number);
                checkpoints.collect(number).unwrap();
            }
        }
        Ok(())
    });
    let error = maker(store, &follower).make().unwrap_err();
    store.set_hook(|_| Ok(()));
    (leader, follower, error)
}

#[test]
fn manifest_of_a_node_that_was_slow_for_two_checkpoints_is_no_checkpoint() {
    let (log, store) = (new_log(), Store::new());
    let is_manifest =
        |call: &Call<'_>| matches!(call, Call::Create(name) if name.starts_with("checkpoints/"));
    let (leader, _follower, error) = make_slowly(&log, &store, is_manifest);
    assert!(matches!(error, CheckpointError::Outrun { number: 2 }), "{error}");
    let all = store.checkpoints();
    assert!(store.names("checkpoints").contains(&"checkpoints/0000000000000002".to_owned()));
    assert!(all.verify(2).is_err(), "what it needs is gone");
    let numbers: Vec<u64> = all.list().unwrap().iter().map(|found| found.number).collect();
    assert_eq!(numbers, [4, 3]);
    let done = upkeep(&store, &leader).step(leader.clock.monotonic_nanos()).done;
    assert!(!done.iter().any(|done| matches!(done, UpkeepDone::Unusable { .. })), "{done:?}");
    // No node begins with it, either.
    assert_eq!(joined(&store, &log, 3).get(), leader.get());
    for number in ["3", "4"] {
        store.damage(&format!("checkpoints/000000000000000{number}"));
    }
    let (joined, rejected) = join_with(&store, &Env::memory(), &log);
    assert!(matches!(joined, Ok(Joined::FromFirstEntry)) && rejected == [4, 3], "{joined:?}, {rejected:?}");
    // It is deleted with the next ones.
    for number in 5..=6 {
        leader.put(&value(number));
        make(&store, &leader);
    }
    all.collect(6).unwrap();
    assert_eq!(store.names("checkpoints").len(), 2);
}

#[test]
fn node_whose_blocks_were_deleted_because_it_was_slow_learns_that_it_was_outrun() {
    let (log, store) = (new_log(), Store::new());
    let is_block =
        |call: &Call<'_>| matches!(call, Call::Read(name) if name.starts_with("blocks/0000000000000002-"));
    let (_leader, _follower, error) = make_slowly(&log, &store, is_block);
    assert!(matches!(error, CheckpointError::Outrun { number: 2 }), "{error}");
    store.verify([3, 4]);
}

#[test]
fn block_that_the_store_has_lost_is_stored_again() {
    let (_, store, leader, follower) = cluster();
    for number in 0..20 {
        replicate(&leader, &follower, number);
    }
    follower.node.database().checkpoint().unwrap();
    let mut maker = maker(&store, &follower);
    maker.make().unwrap();
    for name in store.names("blocks") {
        store.inner.delete(&name).unwrap();
    }
    assert_eq!(maker.make().unwrap().number, 2);
    store.checkpoints().verify(2).unwrap();
}

#[test]
fn nothing_is_deleted_when_the_list_of_checkpoints_has_a_gap() {
    let (_, store, leader, follower) = cluster();
    for number in 1..=4 {
        replicate(&leader, &follower, number);
        make(&store, &follower);
    }
    // As a list that is read while others create and delete.
    store.inner.delete("checkpoints/0000000000000003").unwrap();
    assert_eq!(store.checkpoints().collect(4).unwrap(), 0);
    let made = make(&store, &follower);
    assert_eq!(made.number, 5);
    assert!(store.checkpoints().collect(5).unwrap() > 0);
    store.verify([4, 5]);
}

#[test]
fn blocks_of_a_checkpoint_in_the_making_are_not_deleted() {
    let (_, store, leader, follower) = cluster();
    make(&store, &follower);
    replicate(&leader, &follower, 1);
    make(&store, &follower);
    replicate(&leader, &follower, 2);
    // The node that made checkpoint 2 is slow, and deletes while 3 is published.
    let checkpoints = store.checkpoints();
    let mut collects = true;
    store.set_hook(move |call| {
        if matches!(call, Call::Create(name) if name.starts_with("checkpoints/"))
            && std::mem::take(&mut collects)
        {
            checkpoints.collect(2).unwrap();
        }
        Ok(())
    });
    assert_eq!(make(&store, &follower).number, 3);
    store.verify([2, 3]);
}

#[test]
fn objects_that_the_two_newest_checkpoints_do_not_need_are_deleted() {
    let (_, store, leader, follower) = cluster();
    for number in 1..=5 {
        replicate(&leader, &follower, number);
        assert_eq!(make(&store, &follower).number, number);
    }
    let (before, all) = (store.names("blocks").len(), store.checkpoints());
    // Leftovers of creations, one of them of the next checkpoint.
    let files = ["blocks/0000000000000005-00.1.new", "blocks/0000000000000006-00.1.new"];
    for name in files {
        store.env.vfs.open(&Path::new(STORE).join(name), OpenMode::CreateNew).unwrap();
    }
    assert_eq!(all.collect(4).unwrap(), 0, "a newer one is there");
    let deleted = all.collect(5).unwrap();
    assert!(deleted > 3, "{deleted}");
    let numbers: Vec<u64> = all.list().unwrap().iter().map(|found| found.number).collect();
    assert_eq!(numbers, [5, 4]);
    let left = store.names("blocks");
    assert!(
        left.len() < before && left.contains(&files[1].to_owned()) && !left.contains(&files[0].to_owned())
    );
    for number in numbers {
        all.verify(number).unwrap();
    }
    assert_eq!(all.collect(5).unwrap(), 0);
    // A damaged one may need any block: nothing is deleted until it is no longer one of two.
    replicate(&leader, &follower, 6);
    make(&store, &follower);
    store.damage("checkpoints/0000000000000005");
    assert_eq!(all.collect(6).unwrap(), 0);
    make(&store, &follower);
    assert!(all.collect(7).unwrap() > 0);
}

#[test]
fn block_that_is_not_read_back_as_stored_makes_no_checkpoint() {
    let (_, store, _leader, follower) = cluster();
    let disk = store.clone();
    store.set_hook(move |call| {
        if let Call::Read(name) = call
            && name.starts_with("blocks/")
        {
            disk.damage(name);
        }
        Ok(())
    });
    let error = maker(&store, &follower).make().unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    assert!(store.checkpoints().list().unwrap().is_empty());
    // The next attempt stores it under another name. It deletes none, because another node may be replacing it, too.
    store.set_hook(|call| if *call == Call::Delete { Err(unavailable()) } else { Ok(()) });
    make(&store, &follower);
    store.checkpoints().verify(1).unwrap();
}

#[test]
fn store_that_fails_makes_no_checkpoint_and_the_next_attempt_succeeds() {
    let (_, store, leader, follower) = cluster();
    replicate(&leader, &follower, 1);
    let mut failures = 0;
    for call in 0.. {
        let calls = AtomicUsize::new(0);
        store.set_hook(move |_| match calls.fetch_add(1, Ordering::SeqCst) == call {
            true => Err(unavailable()),
            false => Ok(()),
        });
        match maker(&store, &follower).make() {
            Ok(made) => {
                store.set_hook(|_| Ok(()));
                store.checkpoints().verify(made.number).unwrap();
                if failures > 5 && made.number == 1 || made.number > 3 {
                    break;
                }
            }
            Err(CheckpointError::Store(_)) => failures += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(!follower.env.vfs.exists(Path::new("/db/checkpoint")).unwrap());
    }
    assert!(failures > 5);
}

#[test]
fn node_older_than_newest_checkpoint_makes_no_checkpoint() {
    let (_, store, leader, follower) = cluster();
    leader.put(b"second");
    let made = make(&store, &leader);
    let behind = maker(&store, &follower).make().unwrap_err();
    assert!(
        matches!(behind, CheckpointError::Behind { number: 1, newest, .. } if newest == made.place.index)
    );
    follower.follow_all();
    assert_eq!(make(&store, &follower).number, 2);
}

#[test]
fn node_that_has_read_nothing_makes_no_checkpoint() {
    let (log, store) = (new_log(), Store::new());
    let node = Stepped::new(&log, 1);
    let error = maker(&store, &node).make().unwrap_err();
    assert!(matches!(error, CheckpointError::NoPlace), "{error}");
}

const INTERVAL: Duration = Duration::from_secs(600);
const GRACE: Duration = Duration::from_secs(3600);

pub(crate) fn upkeep(store: &Store, node: &Stepped) -> Upkeep {
    let settings = UpkeepSettings { interval: INTERVAL, pause: Duration::from_secs(10), grace: GRACE };
    Upkeep::new(maker(store, node), Arc::new(node.log.clone()), settings)
}

/// Lets time pass for all nodes: the first one is the leader and renews. Returns what the upkeep of each did.
fn pass(time: Duration, nodes: &mut [(&Stepped, &mut Upkeep)]) -> Vec<Vec<UpkeepDone>> {
    let mut done = vec![Vec::new(); nodes.len()];
    for _ in 0..time.as_secs() {
        for (node, _) in nodes.iter_mut() {
            node.clock.advance(Duration::from_secs(1));
            node.step();
            node.follow_all();
            node.node.database().engine().background_step().unwrap();
        }
        for ((node, upkeep), done) in nodes.iter_mut().zip(&mut done) {
            let now = node.clock.monotonic_nanos();
            done.extend(upkeep.step(now).done);
        }
    }
    for done in done.iter().flatten() {
        assert!(!matches!(done, UpkeepDone::Failed { .. } | UpkeepDone::Unusable { .. }), "{done:?}");
    }
    done
}

fn made(done: &[UpkeepDone]) -> usize {
    done.iter().filter(|done| matches!(done, UpkeepDone::Made(_))).count()
}

fn trimmed(done: &[UpkeepDone]) -> usize {
    done.iter().filter(|done| matches!(done, UpkeepDone::Trimmed { .. })).count()
}

#[test]
fn follower_makes_checkpoints_and_the_leader_trims_before_the_second_newest() {
    let (log, store, leader, follower) = cluster();
    let (mut of_leader, mut of_follower) = (upkeep(&store, &leader), upkeep(&store, &follower));
    let mut nodes = [(&leader, &mut of_leader), (&follower, &mut of_follower)];
    let done = pass(INTERVAL * 5 / 4 + Duration::from_secs(20), &mut nodes);
    assert_eq!((made(&done[0]), made(&done[1])), (0, 1));
    assert_eq!(log.bounds().unwrap().oldest, EntryIndex(1), "one checkpoint lets nothing be trimmed");
    // Its maker makes the next ones, without the random share.
    let done = pass(INTERVAL + Duration::from_secs(20), &mut nodes);
    assert_eq!((made(&done[0]), made(&done[1])), (0, 1));
    assert_eq!((trimmed(&done[1]), trimmed(&done[0]) > 0), (0, true));
    let first = store.checkpoints().list().unwrap().pop().unwrap().manifest.unwrap();
    assert_eq!(log.bounds().unwrap().oldest, first.place.place.index.next());
    let reports = store.checkpoints().node_reports().unwrap();
    let known: Vec<_> = reports.iter().map(|report| (report.node, &*report.address, report.leads)).collect();
    assert_eq!(known, [([1; 16], "node-1", true), ([2; 16], "node-2", false)]);
    assert_eq!(joined(&store, &log, 3).get(), leader.get());
}

#[test]
fn leader_that_is_alone_makes_its_checkpoints() {
    let (log, store) = (new_log(), Store::new());
    let leader = Stepped::new(&log, 1);
    leader.lead();
    let mut of_leader = upkeep(&store, &leader);
    let done = pass(3 * INTERVAL + Duration::from_secs(60), &mut [(&leader, &mut of_leader)]);
    assert_eq!(made(&done[0]), 3);
    assert!(trimmed(&done[0]) > 0);
}

#[test]
fn leader_makes_a_checkpoint_when_its_followers_do_not() {
    let (_, store, leader, follower) = cluster();
    let (mut of_leader, mut of_follower) = (upkeep(&store, &leader), upkeep(&store, &follower));
    // The follower reports itself, and its process pauses.
    pass(Duration::from_secs(60), &mut [(&leader, &mut of_leader), (&follower, &mut of_follower)]);
    let mut alone = [(&leader, &mut of_leader)];
    assert_eq!(made(&pass(INTERVAL, &mut alone)[0]), 0);
    assert_eq!(made(&pass(INTERVAL, &mut alone)[0]), 1);
}

#[test]
fn log_is_retained_for_a_node_within_its_grace_time_only() {
    let (log, store, leader, follower) = cluster();
    let slow = Stepped::new(&log, 3);
    let mut upkeeps = [upkeep(&store, &leader), upkeep(&store, &follower), upkeep(&store, &slow)];
    let [of_leader, of_follower, of_slow] = &mut upkeeps;
    pass(
        Duration::from_secs(30),
        &mut [(&leader, &mut *of_leader), (&follower, &mut *of_follower), (&slow, of_slow)],
    );
    let reports = store.checkpoints().node_reports().unwrap();
    let needs = reports.iter().find(|report| report.node == [3; 16]).unwrap().place.place.index.next();
    let mut nodes = [(&leader, of_leader), (&follower, of_follower)];
    pass(GRACE - Duration::from_secs(120), &mut nodes);
    assert_eq!(log.bounds().unwrap().oldest, needs);
    // It is back, and can continue.
    assert!(!matches!(slow.step(), Done::Ended(_)));
    pass(Duration::from_secs(240), &mut nodes);
    assert!(log.bounds().unwrap().oldest > needs);
    // A node that is removed holds nothing back.
    assert_eq!(store.checkpoints().forget(&[3; 16]).unwrap(), 1);
    assert_eq!(store.checkpoints().forget(&[3; 16]).unwrap(), 0);
    assert_eq!(store.checkpoints().node_reports().unwrap().len(), 2);
}

#[test]
fn reported_place_is_the_one_that_a_node_continues_from_after_a_power_cut() {
    let (log, store) = (new_log(), Store::new());
    let leader = Stepped::new(&log, 1);
    leader.lead();
    let disk = FaultyVfs::new(1);
    let open = || {
        let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
        reopened(&log, 2, env)
    };
    let node = open();
    for number in 0..50_u64 {
        leader.put(&value(number));
        node.follow_all();
        if number % 7 == 0 {
            node.clock.advance(Duration::from_secs(40));
            while node.node.database().engine().background_step().unwrap() {}
        }
        upkeep(&store, &node).step(node.clock.monotonic_nanos());
    }
    let report = store.checkpoints().node_reports().unwrap().pop().unwrap();
    drop(node);
    disk.crash();
    log.trim(report.place.place.index.next()).unwrap();
    let node = open();
    node.follow_all();
    assert_eq!((node.node.end().is_none(), node.get()), (true, leader.get()));
}

#[test]
fn damaged_checkpoint_is_reported_and_lets_nothing_be_trimmed() {
    let (log, store, leader, follower) = cluster();
    make(&store, &follower);
    put(leader.node.database(), b"second");
    follower.follow_all();
    make(&store, &follower);
    let name = store.checkpoints().list().unwrap()[0].manifest.as_ref().unwrap().files[0].blocks[0];
    let name = format!("blocks/{:016x}-{}", name.number, ropewalk_base::hex(&name.hash));
    store.inner.delete(&name).unwrap();
    while leader.node.database().engine().background_step().unwrap() {}
    let mut of_leader = upkeep(&store, &leader);
    let done = of_leader.step(u64::MAX).done;
    let unusable = done.iter().any(|done| matches!(done, UpkeepDone::Unusable { number: 2, .. }));
    assert!(unusable && trimmed(&done) == 0, "{done:?}");
    assert_eq!(log.bounds().unwrap().oldest, EntryIndex(1));
}

#[test]
fn running_upkeep_makes_checkpoints_until_it_is_stopped() {
    let (log, store, _leader, follower) = cluster();
    let settings = UpkeepSettings {
        interval: Duration::ZERO,
        pause: Duration::from_millis(1),
        grace: Duration::from_secs(60),
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let db = follower.node.database().clone();
    let maker = Maker::new(store.checkpoints(), db, Path::new(DB), [2; 16], "node-2");
    let upkeep = Upkeep::new(maker, Arc::new(log.handle()), settings);
    let clock = follower.clock.clone();
    let running = upkeep.run(move |done| {
        clock.advance(Duration::from_secs(1));
        let _ = sender.send(done);
    });
    let running = running.unwrap();
    let wait = || receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    while !matches!(wait(), UpkeepDone::Made(_)) {}
    running.stop();
    let made = store.checkpoints().list().unwrap();
    assert!(!made.is_empty() && made.iter().all(|found| found.manifest.is_ok()));
    assert!(matches!(follower.node.database().role(), Role::Follower { .. }));
    assert_eq!(made[0].manifest.as_ref().unwrap().seq, Seq(follower.node.status().seq.0));
}
