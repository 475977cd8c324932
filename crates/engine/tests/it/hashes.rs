//! Nodes that compare their contents: equal ones agree, and one that differs stops for good.

use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_base::{ContentHash, DecodeError};
use ropewalk_engine::shared::{EntryIndex, HashBody, MemorySharedLog, SharedLog};
use ropewalk_engine::{
    Apply, ContentsSlice, Model, ModelId, Operation, Outcome, ReadView, Rejection, Role, SharedOptions,
    Verdict,
};
use ropewalk_log::LogId;
use ropewalk_store::Store;

use super::*;

const PLAIN: ModelId = ModelId(9);
const DIR: &str = "/db";

/// A model whose section is a value. It puts it under the number of the commit.
#[derive(Default)]
struct Plain {
    /// It applies the section of this commit wrongly.
    wrong_at: AtomicU64,
}

impl Model for Plain {
    fn id(&self) -> ModelId {
        PLAIN
    }

    fn name(&self) -> &'static str {
        "plain"
    }

    fn open(&self, store: &Store) -> Result<(), EngineError> {
        store.keyspace("plain", KeyspaceOptions::default()).map(drop).map_err(EngineError::from)
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let mut value = section.to_vec();
        if apply.seq.0 == self.wrong_at.load(Ordering::Relaxed) {
            value.iter_mut().take(1).for_each(|byte| *byte ^= 1);
        }
        apply.put(Keyspace(0), &apply.seq.0.to_be_bytes(), Some(&value));
        Ok(())
    }

    fn verify(&self, _: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        Ok(Vec::new())
    }
}

struct Value(Vec<u8>);

impl Operation for Value {
    fn model(&self) -> ModelId {
        PLAIN
    }

    fn bytes_max(&self) -> usize {
        self.0.len()
    }

    fn validate(&mut self, _: ReadView<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _: Seq, _: i64, out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(&self.0);
        (0, 0)
    }
}

struct Node {
    disk: FaultyVfs,
    clock: Arc<ManualClock>,
    shared: MemorySharedLog,
    options: EngineOptions,
    model: Arc<Plain>,
    engine: Engine,
}

impl Node {
    fn new(name: u8, shared: &MemorySharedLog, replay_bytes: u64) -> Self {
        let (disk, clock) = (FaultyVfs::new(u64::from(name)), Arc::<ManualClock>::default());
        let shared = shared.handle();
        let of_node = SharedOptions {
            hash_interval: 4,
            ..SharedOptions::new(Arc::new(shared.clone()), [name; 16], format!("node-{name}"))
        };
        let options = EngineOptions { shared: Some(of_node), replay_bytes, ..manual() };
        let model = Arc::<Plain>::default();
        let engine = Self::open(&disk, &clock, &options, &model).unwrap();
        Self { disk, clock, shared, options, model, engine }
    }

    fn open(
        disk: &FaultyVfs,
        clock: &Arc<ManualClock>,
        options: &EngineOptions,
        model: &Arc<Plain>,
    ) -> Result<Engine, EngineError> {
        let env = env(&disk.process(), clock);
        Engine::open(&env, Path::new(DIR), options.clone(), vec![model.clone()])
    }

    fn leader(name: u8, shared: &MemorySharedLog) -> Self {
        let node = Self::new(name, shared, 8 << 20);
        assert!(node.engine.campaign().unwrap());
        node
    }

    /// Ends it, without losing what was written, and opens it again.
    fn reopen(self) -> Result<Self, EngineError> {
        let Self { disk, clock, shared, options, model, engine } = self;
        disk.kill();
        drop(engine);
        let engine = Self::open(&disk, &clock, &options, &model)?;
        Ok(Self { disk, clock, shared, options, model, engine })
    }

    /// Ends it, changes its files by an engine without the shared log, and opens it again.
    fn changed(self, change: impl FnOnce(&Engine)) -> Self {
        let Self { disk, clock, shared, options, model, engine } = self;
        engine.close().unwrap();
        drop(engine);
        let alone = EngineOptions { shared: None, ..options.clone() };
        let engine = Self::open(&disk, &clock, &alone, &model).unwrap();
        change(&engine);
        engine.close().unwrap();
        drop(engine);
        let engine = Self::open(&disk, &clock, &options, &model).unwrap();
        Self { disk, clock, shared, options, model, engine }
    }

    fn commit(&self, value: &[u8]) -> Seq {
        let operation: Box<dyn Operation> = Box::new(Value(value.to_vec()));
        self.engine.commit(vec![operation], Durability::Sync).unwrap().seq
    }

    /// Commits up to and with commit `last`.
    fn commit_to(&self, last: u64) {
        while self.engine.seq() < Seq(last) {
            let next = self.engine.seq().0 + 1;
            self.commit(&[next as u8; 100]);
        }
    }

    fn catch_up(&self) -> Result<(), EngineError> {
        let entries = self.shared.read(self.engine.place().index, usize::MAX, Duration::ZERO).unwrap();
        entries.iter().try_for_each(|entry| self.engine.follow(entry).map(drop))
    }

    fn hash_at(&self, seq: Seq) -> ContentHash {
        let marks = self.engine.hash_marks().marks;
        marks.iter().find(|(at, _)| *at == seq).map(|(_, hash)| *hash).unwrap()
    }

    /// States its newest hash of effects.
    fn state(&self, origin: u64) -> Seq {
        let (seq, hash) = *self.engine.hash_marks().marks.last().unwrap();
        self.engine.write_hash(&HashBody::Effects { origin, seq, hash }).unwrap();
        seq
    }

    /// The hash of all contents, in slices of so many bytes, and the number of slices.
    fn contents(&self, bytes: u64) -> (ContentHash, u64) {
        let snapshot = self.engine.snapshot();
        let (mut hash, mut start, mut slices) = (ContentHash::default(), Vec::new(), 0);
        loop {
            let slice = self.engine.hash_slice(&snapshot, &start, bytes).unwrap();
            hash = hash.plus(slice.hash);
            slices += 1;
            match slice.next {
                Some(next) => start = next,
                None => return (hash, slices),
            }
        }
    }

    fn requested_slice(&self) -> (EntryIndex, ContentsSlice) {
        self.engine.comparisons().slice.unwrap()
    }
}

fn shared() -> MemorySharedLog {
    MemorySharedLog::new(LogId([9; 16]))
}

/// The commit and both hashes of an error about different contents.
fn differing(error: &EngineError) -> Option<(Seq, ContentHash, ContentHash)> {
    match error {
        EngineError::Differs(found) => Some((found.seq, found.own, found.other)),
        _ => None,
    }
}

fn catch_up(nodes: [&Node; 2]) {
    nodes.iter().for_each(|node| node.catch_up().unwrap());
}

#[test]
fn nodes_have_equal_hashes_however_they_flush_merge_and_restart() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    let mut followers: Vec<Node> = [8 << 20, 2 << 10, 500].map(|bytes| Node::new(2, &shared, bytes)).into();
    leader.commit_to(8);
    leader.state(5);
    for round in 2..20_u64 {
        leader.commit_to(round * 8);
        let keys = leader.engine.keyspace("k", KeyspaceOptions::default()).unwrap();
        let mut batch = KvBatch::new();
        batch.put(keys, &round.to_be_bytes(), &[3; 50]);
        batch.delete(keys, &(round - 2).to_be_bytes());
        batch.delete_range(keys, b"x", b"y");
        leader.engine.commit(vec![Box::new(batch)], Durability::Sync).unwrap();
        followers = followers
            .into_iter()
            .zip(0..)
            .map(|(follower, number)| {
                follower.catch_up().unwrap();
                while number > 0 && follower.engine.background_step().unwrap() {}
                if round % 5 == number {
                    follower.engine.compact().unwrap();
                }
                if round % 4 == number { follower.reopen().unwrap() } else { follower }
            })
            .collect();
    }
    // A mark that all have in common, however many they had in between.
    leader.commit_to(192);
    let wanted = leader.hash_at(Seq(192));
    let (contents, _) = leader.contents(u64::MAX);
    for follower in &followers {
        follower.catch_up().unwrap();
        assert_eq!(follower.hash_at(Seq(192)), wanted);
        for bytes in [1, 300, u64::MAX] {
            assert_eq!(follower.contents(bytes).0, contents);
        }
    }
    assert!(followers[2].engine.stats().checkpoint > followers[0].engine.stats().checkpoint);
    leader.state(5);
    leader.commit_to(196);
    leader.state(5);
    for follower in &followers {
        follower.catch_up().unwrap();
        let found = (follower.engine.hash_marks().origin, follower.engine.comparisons().equal);
        assert_eq!(found, (5, Seq(196)));
    }
}

#[test]
fn follower_that_applied_something_else_stops_and_is_not_opened_any_more() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    let (right, wrong) = (Node::new(2, &shared, 8 << 20), Node::new(3, &shared, 8 << 20));
    leader.commit_to(4);
    leader.state(1);
    wrong.model.wrong_at.store(6, Ordering::Relaxed);
    leader.commit_to(8);
    catch_up([&right, &wrong]);
    let (own, other) = (wrong.hash_at(Seq(8)), leader.hash_at(Seq(8)));
    assert!(own != other && right.hash_at(Seq(8)) == other);
    leader.state(1);
    right.catch_up().unwrap();
    let error = wrong.catch_up().unwrap_err();
    assert_eq!(differing(&error), Some((Seq(8), own, other)), "{error}");
    assert!(error.to_string().contains("differs from the others at commit 8"), "{error}");
    assert_eq!(wrong.engine.stopped().and_then(|error| differing(&error)), Some((Seq(8), own, other)));
    assert!(!wrong.engine.is_deposed(), "it is not opened again by itself");
    // The others continue.
    leader.commit_to(12);
    right.catch_up().unwrap();
    assert_eq!((right.engine.seq(), right.engine.comparisons().equal), (Seq(12), Seq(8)));
    let refused = wrong.reopen().map(drop).unwrap_err();
    assert!(matches!(refused, EngineError::Distrusted { .. }), "{refused}");
    assert!(refused.to_string().contains("commit 8"), "{refused}");
}

#[test]
fn difference_that_was_flushed_is_found_after_a_restart() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    let wrong = Node::new(2, &shared, 8 << 20);
    leader.commit_to(4);
    leader.state(1);
    leader.commit_to(6);
    wrong.model.wrong_at.store(6, Ordering::Relaxed);
    wrong.catch_up().unwrap();
    wrong.engine.checkpoint().unwrap();
    let wrong = wrong.reopen().unwrap();
    wrong.model.wrong_at.store(0, Ordering::Relaxed);
    leader.commit_to(8);
    wrong.catch_up().unwrap();
    leader.state(1);
    assert_eq!(differing(&wrong.catch_up().unwrap_err()).map(|found| found.0), Some(Seq(8)));
}

#[test]
fn leader_that_differs_states_the_hash_of_the_others_and_another_node_leads() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    let follower = Node::new(2, &shared, 8 << 20);
    leader.commit_to(4);
    leader.state(1);
    leader.model.wrong_at.store(5, Ordering::Relaxed);
    leader.commit_to(8);
    follower.catch_up().unwrap();
    let (own, other) = (leader.hash_at(Seq(8)), follower.hash_at(Seq(8)));
    assert_ne!(own, other);
    let body = HashBody::Effects { origin: 1, seq: Seq(8), hash: other };
    assert_eq!(differing(&leader.engine.write_hash(&body).unwrap_err()), Some((Seq(8), own, other)));
    assert!(matches!(leader.engine.role(), Role::Follower { .. }));
    let refused = put(&leader.engine, Keyspace(0), b"k", b"v", Durability::Sync).unwrap_err();
    assert!(matches!(refused, CommitError::Engine(EngineError::NotLeader { .. })), "{refused}");
    follower.catch_up().unwrap();
    assert!(follower.engine.campaign().unwrap());
    follower.commit_to(9);
    assert!(matches!(leader.reopen().map(drop), Err(EngineError::Distrusted { .. })));
}

#[test]
fn value_that_no_commit_wrote_is_found_by_the_hash_of_a_slice() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    let (right, wrong) = (Node::new(2, &shared, 8 << 20), Node::new(3, &shared, 8 << 20));
    leader.commit_to(8);
    catch_up([&right, &wrong]);
    wrong.engine.checkpoint().unwrap();
    // A run that is not what was written.
    let wrong = wrong.changed(|engine| {
        let mut run = engine.run_writer(Keyspace(0), false).unwrap();
        run.add(b"\0foreign", Seq::ZERO, Some(b"value".as_slice())).unwrap();
        engine.ingest(run.finish().unwrap()).unwrap();
    });
    leader.commit_to(12);
    catch_up([&right, &wrong]);
    assert_eq!(wrong.hash_at(Seq(12)), leader.hash_at(Seq(12)), "the effects are equal");
    leader.engine.write_hash(&HashBody::Slice { start: Vec::new(), bytes: u64::MAX }).unwrap();
    // The leader is ahead of the slice when it states its hash.
    leader.commit_to(13);
    let (request, slice) = leader.requested_slice();
    assert_eq!((slice.seq, slice.next), (Seq(12), None));
    catch_up([&right, &wrong]);
    let (own, other) = (wrong.requested_slice().1.hash, slice.hash);
    assert_ne!(own, other);
    let (seq, hash, parts) = (slice.seq, slice.hash, slice.parts);
    leader.engine.write_hash(&HashBody::SliceHash { request, seq, hash, parts }).unwrap();
    right.catch_up().unwrap();
    assert_eq!((right.engine.comparisons().slices, leader.engine.comparisons().slices), (1, 1));
    let error = wrong.catch_up().unwrap_err();
    assert_eq!(differing(&error), Some((Seq(12), own, other)), "{error}");
    assert!(error.to_string().contains("in plain is"), "{error}");
}

#[test]
fn node_that_was_restarted_has_no_hash_of_an_older_slice_and_continues() {
    let shared = shared();
    let leader = Node::leader(1, &shared);
    leader.commit_to(4);
    leader.engine.write_hash(&HashBody::Slice { start: Vec::new(), bytes: 1 }).unwrap();
    let (request, slice) = leader.requested_slice();
    assert!(slice.next.is_some());
    leader.commit_to(8);
    let follower = Node::new(2, &shared, 8 << 20);
    follower.catch_up().unwrap();
    // Its place is older than its local copy: it reads the request again, with newer commits.
    let follower = follower.reopen().unwrap();
    follower.catch_up().unwrap();
    assert_eq!(follower.engine.comparisons().slice, None);
    let body = HashBody::SliceHash { request, seq: slice.seq, hash: ContentHash(1), parts: Vec::new() };
    assert_eq!(differing(&leader.engine.write_hash(&body).unwrap_err()).map(|found| found.0), Some(Seq(4)));
    follower.catch_up().unwrap();
}

#[test]
fn bytes_that_are_no_position_of_a_slice_are_an_error() {
    let leader = Node::leader(1, &shared());
    leader.commit_to(4);
    let snapshot = leader.engine.snapshot();
    assert!(leader.engine.hash_slice(&snapshot, b"x", 10).is_err());
    let end = leader.engine.hash_slice(&snapshot, &[0xff; 8], 10).unwrap();
    assert_eq!((end.bytes, end.next), (0, None));
    leader.engine.write_hash(&HashBody::Slice { start: b"x".to_vec(), bytes: 10 }).unwrap();
    let found = leader.engine.comparisons();
    assert!(found.slice.is_none() && found.failed.is_some(), "{found:?}");
}

#[test]
fn only_the_leader_states_hashes() {
    let shared = shared();
    let (leader, follower) = (Node::leader(1, &shared), Node::new(2, &shared, 8 << 20));
    leader.commit_to(4);
    follower.catch_up().unwrap();
    let body = HashBody::Slice { start: Vec::new(), bytes: 1 };
    let refused = follower.engine.write_hash(&body).unwrap_err();
    assert!(matches!(refused, EngineError::NotLeader { .. }), "{refused}");
}

#[test]
fn effects_cost_about_their_bytes_and_a_database_alone_pays_nothing() {
    let leader = Node::leader(1, &shared());
    leader.commit_to(100);
    let counts = leader.engine.hash_counts();
    let per_commit = counts.bytes / counts.commits;
    // The record of such a commit has 114 bytes: 9, a section's 5, and the value.
    assert!((100..160).contains(&per_commit), "{counts:?}");
    let alone = open(&Env::memory(), manual()).unwrap();
    let keys = alone.keyspace("k", KeyspaceOptions::default()).unwrap();
    put(&alone, keys, b"k", b"v", Durability::Sync).unwrap();
    assert_eq!((alone.hash_counts().bytes, alone.hash_marks().marks.len()), (0, 0));
}
