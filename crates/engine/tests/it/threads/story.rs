//! One run: threads that write, read, follow the feed and flush; a clean or unclean end; the state
//! afterwards.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_base::Seq;
use ropewalk_base::sync::hint_switch;
use ropewalk_engine::{
    Background, Blocked, CommitError, Durability, Engine, EngineError, EngineOptions, Isolation, KvBatch,
    KvTransaction, LockError, LockMode, LogError, Snapshot, WriteCapacity,
};
use ropewalk_vfs::{DiskOp, Faults, FaultyVfs, Random, SeededRandom};
use shuttle::thread;

use super::disk;
use super::history::{COUNTER, Fate, History, Name, Places, counter, key, listing, places, value};

const DIR: &str = "/db";
/// A transaction of this size is larger than the memory that writes may take.
const HUGE: usize = 300 << 10;
/// Flushes, or attempts, that an engine may need for what a run has written.
const FLUSHES_MAX: usize = 200;

/// The injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// The power fails at this operation of the disk.
    PowerCut(u64),
    /// The process ends after so many switches of the thread that kills it.
    Kill(u64),
    /// One call fails.
    Fault(DiskOp, u64),
}

/// A run's parameters, derived from a seed.
pub(super) struct Plan {
    seed: u64,
    options: EngineOptions,
    writers: u8,
    commits: u16,
    /// A thread that does background work next to the engine's own, as `Engine::background_step` allows.
    extra_flusher: bool,
    habits: Habits,
    trouble: Trouble,
}

/// How the writers of a run write.
#[derive(Debug, Clone, Copy)]
struct Habits {
    sync_only: bool,
    huge: bool,
    /// Counting commits lock the counter first; otherwise the commit is refused when another one counted
    /// meanwhile.
    locks: bool,
}

struct Dice(SeededRandom);

impl Dice {
    fn below(&self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let dice = Dice(SeededRandom::new(seed));
        let background = if dice.one_in(2) { Background::Threads } else { Background::Manual };
        let mut options = EngineOptions { background, ..EngineOptions::default() };
        options.memory_budget = (64 + dice.below(4) * 64) << 10;
        options.log_retention_bytes = dice.below(3) * (256 << 10);
        options.log.segment_bytes_first = 16 << 10;
        options.log.segment_bytes_max = 64 << 10;
        options.store.run_bytes = 32 << 10;
        options.store.l0_runs_max = 1 + dice.below(3) as usize;
        options.store.fanout = 2;
        let trouble = match dice.below(8) {
            0 | 1 => Trouble::PowerCut(10 + dice.below(200)),
            2 => Trouble::Kill(dice.below(300)),
            3 => Trouble::Fault(DiskOp::Sync, dice.below(30)),
            4 => Trouble::Fault(DiskOp::Write, dice.below(60)),
            _ => Trouble::None,
        };
        Self {
            seed,
            options,
            writers: 2 + dice.below(2) as u8,
            commits: 6 + dice.below(10) as u16,
            extra_flusher: dice.one_in(2),
            habits: Habits { sync_only: dice.one_in(2), huge: dice.one_in(2), locks: dice.one_in(2) },
            trouble,
        }
    }
}

/// State shared by the threads.
struct Stage {
    engine: Arc<Engine>,
    places: Places,
    history: History,
    is_over: AtomicBool,
    /// Something is to go wrong, so that calls may fail.
    is_troubled: bool,
}

/// Runs the plan, in a thread of the scheduler.
pub(super) fn run(plan: &Plan) {
    let disk = FaultyVfs::new(plan.seed);
    let (Stage { engine, places, history, .. }, delivered) = live(plan, &disk);
    let Ok(engine) = Arc::try_unwrap(engine) else { panic!("no transaction is left") };
    let floor = end(plan, &disk, engine, &history);
    let reopened = open(plan, &disk).expect("a disk without faults opens");
    let found = reopened.seq();
    assert!(found >= floor, "commit {floor:?} was acknowledged, the database reopened at {found:?}");
    if plan.habits.sync_only {
        assert!(delivered <= found, "the feed delivered {delivered:?}, durable is {found:?}");
    }
    history.check(reopened.snapshot().read(), places, found, "after reopening").unwrap();
    check_upkeep(&reopened, places);
    history.check(reopened.snapshot().read(), places, found, "after compaction").unwrap();
    reopened.close().unwrap();
}

fn open(plan: &Plan, disk: &FaultyVfs) -> Result<Engine, EngineError> {
    let env = disk::process(disk, plan.seed);
    Engine::open(&env, Path::new(DIR), plan.options.clone(), Vec::new())
}

/// The threads' part. Answers the newest commit that the feed delivered.
fn live(plan: &Plan, disk: &FaultyVfs) -> (Stage, Seq) {
    let engine = open(plan, disk).expect("a new disk opens");
    let places = places(&engine).expect("keyspaces can be made");
    match plan.trouble {
        Trouble::PowerCut(after) => disk.crash_at(disk.operations() + after),
        Trouble::Fault(op, after) => disk.fail(op, after),
        Trouble::None | Trouble::Kill(_) => {}
    }
    let (history, is_over) = (History::default(), AtomicBool::new(false));
    let engine = Arc::new(engine);
    let is_troubled = plan.trouble != Trouble::None;
    let stage = Arc::new(Stage { engine, places, history, is_over, is_troubled });
    let spawn = |body: Box<dyn FnOnce(&Stage) -> Seq + Send>| {
        let stage = stage.clone();
        thread::spawn(move || body(&stage))
    };
    let mut followers = vec![spawn(Box::new(read)), spawn(Box::new(follow))];
    if plan.extra_flusher {
        followers.push(spawn(Box::new(flush)));
    }
    if let Trouble::Kill(after) = plan.trouble {
        let disk = disk.clone();
        followers.push(spawn(Box::new(move |_| {
            (0..after).for_each(|_| hint_switch());
            disk.kill();
            Seq::ZERO
        })));
    }
    let writers: Vec<_> = (0..plan.writers)
        .map(|writer| {
            let (seed, commits, habits) = (plan.seed, plan.commits, plan.habits);
            spawn(Box::new(move |stage| {
                let dice = Dice(SeededRandom::new(seed * 100 + u64::from(writer)));
                for number in 0..commits {
                    if !write(stage, &dice, (writer, number), habits) {
                        break;
                    }
                }
                Seq::ZERO
            }))
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    stage.is_over.store(true, Ordering::SeqCst);
    let delivered = followers.into_iter().map(|thread| thread.join().unwrap()).max();
    let Ok(stage) = Arc::try_unwrap(stage) else { panic!("every thread has ended") };
    (stage, delivered.unwrap_or(Seq::ZERO))
}

/// One commit: a large value and a small one, sometimes with one more on the counter. False when the engine has stopped.
fn write(stage: &Stage, dice: &Dice, name: Name, habits: Habits) -> bool {
    let bytes = match dice.below(12) {
        0 if habits.huge => HUGE,
        0..3 => 20 << 10,
        3..6 => 4 << 10,
        _ => 100,
    };
    let durability = match dice.below(3) {
        1 if !habits.sync_only => Durability::Buffered,
        2 if !habits.sync_only => Durability::Async { interval: Duration::from_millis(dice.below(50)) },
        _ => Durability::Sync,
    };
    let counts = dice.one_in(3);
    let Places { large, small } = stage.places;
    stage.history.begin(name, bytes, counts);
    // Held until the batch is judged: a flush may forget which commit wrote what no snapshot distinguishes.
    let snapshot = stage.engine.snapshot();
    let counting = match (counts, habits.locks) {
        (false, _) => Ok(KvBatch::new()),
        (true, true) => count_locked(stage),
        (true, false) => count_validated(stage, &snapshot),
    };
    let mut batch = match counting {
        Ok(batch) => batch,
        Err(error) => {
            assert!(stage.is_troubled, "counting fails: {error}");
            return false;
        }
    };
    batch.put(large, &key(name), &value(name, bytes));
    batch.put(small, &key(name), &key(name));
    let result = match dice.below(4) {
        0 => stage.engine.submit(vec![Box::new(batch)], durability).and_then(|handle| handle.wait()),
        _ => stage.engine.commit(vec![Box::new(batch)], durability),
    };
    match result {
        Ok(done) => stage.history.end(name, Fate::Acknowledged(done.seq, durability)),
        Err(CommitError::Rejected(reason)) => {
            assert!(counts && !habits.locks, "refused without a reason: {reason}");
            stage.history.end(name, Fate::Refused);
        }
        Err(other) => {
            let error = EngineError::from(other);
            assert!(stage.is_troubled, "a commit fails: {error}");
            return stage.engine.stopped().is_none() && matches!(error, EngineError::Busy { .. });
        }
    }
    true
}

/// One more than the snapshot has, if nothing has changed that by the time of the commit.
fn count_validated(stage: &Stage, snapshot: &Snapshot) -> Result<KvBatch, EngineError> {
    let next = counter(snapshot.read(), stage.places)? + 1;
    let mut batch = KvBatch::validated(snapshot.seq(), Isolation::Serializable);
    batch.note_read(stage.places.small, COUNTER);
    batch.put(stage.places.small, COUNTER, &next.to_le_bytes());
    Ok(batch)
}

/// One more than what has its place in the log's order, durable or not; the lock keeps others from counting meanwhile.
fn count_locked(stage: &Stage) -> Result<KvBatch, EngineError> {
    let small = stage.places.small;
    let mut transaction = KvTransaction::new(stage.engine.clone(), Isolation::ReadCommitted);
    loop {
        transaction.mark_locking_statement();
        match transaction.lock(small, COUNTER, LockMode::Update, true) {
            Ok(()) => break,
            Err(LockError::Again) => {
                if let Some(Blocked::Wait(wait)) = transaction.take_lock_wait() {
                    assert!(wait.block(None), "nothing but the lock ends the wait");
                }
            }
            Err(LockError::Engine(error)) => return Err(error),
            Err(error) => panic!("one key is locked in one mode: {error}"),
        }
    }
    let found = transaction.get(small, COUNTER)?;
    let counted = found.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")));
    transaction.put(small, COUNTER, &(counted + 1).to_le_bytes());
    Ok(transaction.into_batch())
}

/// Snapshots hold the commits acknowledged before, and do not change.
fn read(stage: &Stage) -> Seq {
    while !stage.is_over.load(Ordering::SeqCst) {
        if let Err(error) = read_once(stage) {
            assert!(stage.is_troubled, "a read fails: {error}");
            break;
        }
        thread::yield_now();
    }
    Seq::ZERO
}

fn read_once(stage: &Stage) -> Result<(), EngineError> {
    let answered = stage.history.newest();
    let mut snapshot = stage.engine.snapshot();
    let at = snapshot.seq();
    assert!(at >= answered, "commit {answered:?} was answered, a snapshot is of {at:?}");
    let before = listing(snapshot.read(), stage.places.large)?;
    stage.history.check(snapshot.read(), stage.places, at, "while writers write")?;
    if at.0.is_multiple_of(2) {
        snapshot.refresh_sources();
    }
    assert_eq!(listing(snapshot.read(), stage.places.large)?, before, "a snapshot of {at:?} changed");
    Ok(())
}

/// The feed delivers each commit once, in order, when it is visible.
fn follow(stage: &Stage) -> Seq {
    let Ok(mut feed) = stage.engine.changes(Seq(1)) else { return Seq::ZERO };
    let mut next = Seq(1);
    let mut delivered = Seq::ZERO;
    loop {
        let is_over = stage.is_over.load(Ordering::SeqCst);
        let seen = match feed.next() {
            Ok(change) => change.map(|change| change.seq),
            Err(EngineError::FeedTrimmed { oldest, .. }) => {
                let Ok(later) = stage.engine.changes(oldest) else { return delivered };
                (feed, next) = (later, oldest);
                continue;
            }
            Err(error @ EngineError::Record { .. }) => panic!("{error}"),
            Err(_) if stage.is_troubled => return delivered,
            // Segments are trimmed while the feed searches its place.
            Err(EngineError::Log(error)) if matches!(*error, LogError::Trimmed { .. }) => {
                let Ok(again) = stage.engine.changes(next) else { return delivered };
                feed = again;
                thread::yield_now();
                continue;
            }
            Err(error) => panic!("the feed fails: {error}"),
        };
        match seen {
            Some(seq) => {
                assert_eq!(seq, next, "the feed skips or repeats");
                assert!(seq <= stage.engine.seq(), "the feed delivers {seq:?}, which nobody sees");
                (delivered, next) = (seq, seq.next());
            }
            None if is_over => return delivered,
            None => {
                feed.wait(Duration::from_millis(2));
                thread::yield_now();
            }
        }
    }
}

/// Background work in a thread of the caller's.
fn flush(stage: &Stage) -> Seq {
    while !stage.is_over.load(Ordering::SeqCst) && stage.engine.stopped().is_none() {
        let worked = stage.engine.background_step();
        assert!(stage.is_troubled || worked.is_ok(), "background work fails: {}", worked.unwrap_err());
        thread::yield_now();
    }
    Seq::ZERO
}

/// Ends the first life; returns the commit up to which the next must have everything.
fn end(plan: &Plan, disk: &FaultyVfs, engine: Engine, history: &History) -> Seq {
    let stopped = engine.stopped().is_some();
    let floor = match plan.trouble {
        Trouble::PowerCut(_) | Trouble::Fault(..) => history.durable(),
        Trouble::Kill(_) => history.written(),
        Trouble::None => history.newest(),
    };
    if plan.trouble == Trouble::None {
        assert!(!stopped, "the engine stopped without a reason: {:?}", engine.stopped());
        engine.close().unwrap();
    } else {
        match plan.trouble {
            Trouble::Kill(_) => disk.kill(),
            _ => disk.crash(),
        }
        // The process is gone; this ends the threads that the scheduler still has of it.
        let _ = engine.close();
    }
    disk.calm();
    floor
}

/// Whatever was written can be flushed and merged in bounded time, and then takes bounded room.
fn check_upkeep(engine: &Engine, places: Places) {
    let mut steps = 0;
    while engine.background_step().unwrap() {
        steps += 1;
        assert!(steps < FLUSHES_MAX, "background work does not come to an end");
    }
    engine.compact().unwrap();
    assert_eq!(engine.write_capacity(), WriteCapacity::Free, "memory is empty: {:?}", engine.stats());
    let rows = listing(engine.snapshot().read(), places.large).unwrap();
    let bytes: usize = rows.iter().map(|(key, value)| key.len() + value).sum();
    let files: u64 = engine
        .stats()
        .store
        .keyspaces
        .iter()
        .flat_map(|keyspace| &keyspace.levels)
        .map(|level| level.runs)
        .sum();
    let most = (bytes / (16 << 10) + 4) as u64;
    assert!(files <= most, "{files} runs hold {bytes} bytes in {} rows", rows.len());
}

/// The log fails while a generation waits for its flush. An endless loop of the engine's threads is detected
/// at [`super::STEPS_MAX`].
pub(super) fn stop_with_a_frozen_generation(seed: u64) {
    let mut plan = Plan::new(seed);
    plan.options.background = Background::Threads;
    let disk = FaultyVfs::new(seed);
    let engine = open(&plan, &disk).expect("a new disk opens");
    let places = places(&engine).expect("keyspaces can be made");
    let put = |number: u16, bytes: usize| {
        let mut batch = KvBatch::new();
        batch.put(places.large, &key((0, number)), &value((0, number), bytes));
        engine.commit(vec![Box::new(batch)], Durability::Sync)
    };
    // Neither the flush nor the next commit gets its sync.
    disk.fail(DiskOp::Sync, 1);
    let _ = put(0, 70 << 10);
    disk.set_faults(Faults { sync: 1, ..Faults::default() });
    put(1, 100).unwrap_err();
    thread::yield_now();
    let _ = engine.close();
}
