//! Long-lived snapshots and transactions: which memory and files they hold, and that they keep reading their own commit.

use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_base::DecodeError;
use ropewalk_engine::{
    Apply, FollowsCommit, Isolation, KeySpan, KvTransaction, Memory, Model, ModelId, NewRun, NotNewest,
    Operation, ReadView, Snapshot,
};

use super::*;

/// Counts the generations that are in memory.
struct Counter(Arc<AtomicUsize>);

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Memory for Counted {
    fn bytes(&self) -> u64 {
        0
    }
}

impl Model for Counter {
    fn id(&self) -> ModelId {
        ModelId(200)
    }

    fn name(&self) -> &'static str {
        "counter"
    }

    fn open(&self, _: &ropewalk_store::Store) -> Result<(), EngineError> {
        Ok(())
    }

    fn memory(&self) -> Box<dyn Memory> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::new(Counted(self.0.clone()))
    }

    fn apply(&self, _: &Apply<'_>, _: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn flush(
        &self,
        _: &dyn Memory,
        _: &ropewalk_store::Store,
        _: &[Seq],
    ) -> Result<Vec<NewRun>, EngineError> {
        Ok(Vec::new())
    }

    fn verify(&self, _: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        Ok(Vec::new())
    }
}

struct Db {
    env: Env,
    engine: Arc<Engine>,
    keys: Keyspace,
    generations: Arc<AtomicUsize>,
}

const KEYS: u8 = 20;

impl Db {
    fn new() -> Self {
        let (env, generations) = (Env::memory(), Arc::<AtomicUsize>::default());
        let options = EngineOptions { resident_bytes: 0, ..manual() };
        let model: Arc<dyn Model> = Arc::new(Counter(generations.clone()));
        let engine = Arc::new(Engine::open(&env, Path::new("/db"), options, vec![model]).unwrap());
        let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
        Self { env, engine, keys, generations }
    }

    fn generations(&self) -> usize {
        self.generations.load(Ordering::SeqCst)
    }

    /// Writes all keys, with `round` as their value, deletes one of them, and flushes.
    fn round(&self, round: u8) {
        self.write(round);
        self.engine.checkpoint().unwrap();
    }

    fn write(&self, round: u8) {
        let mut batch = KvBatch::new();
        for key in 0..KEYS {
            batch.put(self.keys, &[key], &[round; 4000]);
        }
        batch.delete(self.keys, &[round % KEYS]);
        self.engine.commit(vec![Box::new(batch)], Durability::Buffered).unwrap();
    }

    fn run_files(&self) -> usize {
        let names = self.env.vfs.list(Path::new("/db/store")).unwrap();
        names.iter().filter(|name| name.ends_with(".run")).count()
    }

    fn runs_in_force(&self) -> usize {
        let stats = self.engine.stats().store;
        stats.keyspaces.iter().flat_map(|k| &k.levels).map(|level| level.runs as usize).sum()
    }
}

/// The first byte of the value of each key that is there.
fn expected(round: u8) -> Vec<(u8, u8)> {
    (0..KEYS).filter(|key| *key != round % KEYS).map(|key| (key, round)).collect()
}

fn first(bytes: &[u8]) -> u8 {
    *bytes.first().unwrap()
}

fn of_snapshot(snapshot: &Snapshot, keys: Keyspace) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    let reading = snapshot.read();
    reading
        .visit(keys, KeySpan::ALL, |key, value| {
            found.push((first(key), first(value)));
            true
        })
        .unwrap();
    for key in 0..KEYS {
        let value = snapshot.read().get(keys, &[key]).unwrap().map(|value| first(&value));
        assert_eq!(value, found.iter().find(|(k, _)| *k == key).map(|(_, v)| *v), "get and visit agree");
    }
    found
}

fn of_transaction(transaction: &mut KvTransaction, keys: Keyspace) -> Vec<(u8, u8)> {
    transaction.begin_statement();
    let mut found = Vec::new();
    transaction
        .visit(keys, KeySpan::ALL, |key, value| {
            found.push((first(key), first(value)));
            true
        })
        .unwrap();
    for key in 0..KEYS {
        let value = transaction.get(keys, &[key]).unwrap().map(|value| first(&value));
        assert_eq!(value, found.iter().find(|(k, _)| *k == key).map(|(_, v)| *v), "get and visit agree");
    }
    found
}

#[test]
fn idle_snapshots_and_transactions_over_many_flushes_hold_no_generation_and_no_replaced_run() {
    const ROUNDS: u8 = 40;
    let db = Db::new();
    let mut idle = Vec::new();
    for round in 1..=ROUNDS {
        db.round(round);
        db.write(round);
        let snapshot = db.engine.snapshot();
        let mut transactions = Vec::new();
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let mut transaction = KvTransaction::new(db.engine.clone(), isolation);
            assert_eq!(of_transaction(&mut transaction, db.keys), expected(round));
            transactions.push(transaction);
        }
        // Its first statement leaves a guard, which keeps a snapshot of that statement.
        let mut guarded = KvTransaction::new(db.engine.clone(), Isolation::ReadCommitted);
        guarded.guard_key(db.keys, &[0]);
        guarded.begin_statement();
        idle.push((round, snapshot, transactions, guarded));
        assert!(db.generations() <= 2, "round {round}: {} generations in memory", db.generations());
    }
    db.engine.compact().unwrap();
    assert_eq!(db.run_files(), db.runs_in_force());
    assert_eq!(db.engine.stats().pinned_bytes, 0);
    for (round, snapshot, transactions, guarded) in &mut idle {
        assert_eq!(of_snapshot(snapshot, db.keys), expected(*round), "round {round}");
        for transaction in transactions {
            assert_eq!(of_transaction(transaction, db.keys), expected(*round), "round {round}");
        }
        assert_eq!(of_transaction(guarded, db.keys), expected(ROUNDS));
    }
}

#[test]
fn snapshot_read_in_place_is_counted_and_slows_writers_until_it_repins() {
    let db = Db::new();
    let mut held = Vec::new();
    for round in 1..=8 {
        db.write(round);
        let snapshot = db.engine.snapshot();
        assert_eq!(of_snapshot(&snapshot, db.keys), expected(round));
        held.push((round, snapshot));
        db.engine.checkpoint().unwrap();
    }
    let stats = db.engine.stats();
    assert_eq!((stats.pinned_generations, db.generations()), (8, 9));
    assert!(stats.pinned_bytes >= 8 * 19 * 4000, "{}", stats.pinned_bytes);
    assert!(
        matches!(db.engine.write_capacity(), WriteCapacity::Tight(pause) if pause <= Duration::from_millis(1))
    );
    for (_, snapshot) in &mut held {
        snapshot.refresh_sources();
    }
    assert_eq!(db.engine.write_capacity(), WriteCapacity::Free);
    let stats = db.engine.stats();
    assert_eq!((stats.pinned_generations, stats.pinned_bytes, db.generations()), (0, 0, 1));
    for (round, snapshot) in &held {
        assert_eq!(of_snapshot(snapshot, db.keys), expected(*round), "round {round}");
    }
}

/// Readers of several threads keep their views while the flusher retires what they read.
#[test]
fn values_read_in_place_stay_valid_while_generations_are_flushed() {
    let db = Db::new();
    db.write(1);
    let snapshot = db.engine.snapshot();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reads = 0;
                while !stop.load(Ordering::SeqCst) || reads == 0 {
                    let reading = snapshot.reading();
                    let value = reading.view().get(db.keys, &[5]).unwrap().unwrap();
                    std::thread::yield_now();
                    assert!(value.iter().all(|byte| *byte == 1));
                    reads += 1;
                }
            });
        }
        let in_place = snapshot.read().get(db.keys, &[7]).unwrap().unwrap();
        (2..20).for_each(|round| db.round(round));
        db.engine.compact().unwrap();
        assert!(in_place.iter().all(|byte| *byte == 1));
        stop.store(true, Ordering::SeqCst);
    });
}

fn value_at(engine: &Engine, keys: Keyspace, seq: Seq) -> Result<u64, EngineError> {
    let snapshot = engine.snapshot_at(seq)?;
    assert_eq!(snapshot.seq(), seq);
    let value = snapshot.read().get(keys, b"k")?.expect("the key exists since the first commit");
    Ok(u64::from_le_bytes(<[u8; 8]>::try_from(&*value).unwrap()))
}

/// Writes the number of its commit; returns that commit.
fn write_number(engine: &Engine, keys: Keyspace) -> Seq {
    let next = engine.seq().next();
    assert_eq!(put(engine, keys, b"k", &next.0.to_le_bytes(), Durability::Buffered).unwrap(), next);
    next
}

#[test]
fn earlier_commit_is_readable_until_a_flush_unless_a_snapshot_holds_it() {
    let env = Env::memory();
    let (engine, keys) = open_with_keys(&env);
    let commits: Vec<Seq> = (0..4).map(|_| write_number(&engine, keys)).collect();
    let [first, second, third, fourth] = commits[..] else { panic!("{commits:?}") };
    for seq in &commits {
        assert_eq!(value_at(&engine, keys, *seq).unwrap(), seq.0);
    }
    let held = engine.snapshot_at(second).unwrap();
    engine.checkpoint().unwrap();
    for seq in [first, third] {
        let refused = value_at(&engine, keys, seq).unwrap_err();
        let EngineError::Unreadable { asked, oldest, newest } = refused else { panic!("{refused}") };
        assert_eq!((asked, oldest, newest), (seq, fourth, fourth));
    }
    let fifth = write_number(&engine, keys);
    engine.compact().unwrap();
    for seq in [second, fifth] {
        assert_eq!(value_at(&engine, keys, seq).unwrap(), seq.0);
    }
    drop(held);
    for seq in [second, fifth.next()] {
        assert!(matches!(value_at(&engine, keys, seq), Err(EngineError::Unreadable { .. })), "{seq}");
    }
    engine.close().unwrap();
    drop(engine);
    let (engine, keys) = open_with_keys(&env);
    assert!(value_at(&engine, keys, fourth).is_err());
    assert_eq!(value_at(&engine, keys, fifth).unwrap(), fifth.0);
}

#[test]
fn snapshot_of_an_earlier_commit_is_exact_or_refused_during_flushes_and_merges() {
    let options = EngineOptions { background: Background::Threads, ..manual() };
    let engine = open(&Env::memory(), options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    write_number(&engine, keys);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let found = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for back in [0, 1, 3, 20] {
            let (engine, stop, found) = (&engine, &stop, &found);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    // Commit 1 defines the keyspace, commit 2 is the first with the key.
                    let seq = Seq(engine.seq().0.saturating_sub(back).max(2));
                    match engine.snapshot_at(seq) {
                        Ok(snapshot) => {
                            std::thread::yield_now();
                            // Reads the runs that were written since then, too.
                            let value = snapshot.read().get(keys, b"k").unwrap().unwrap().to_vec();
                            assert_eq!(value, seq.0.to_le_bytes());
                            found.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(error) => assert!(matches!(error, EngineError::Unreadable { .. }), "{error}"),
                    }
                }
            });
        }
        for round in 0..400 {
            write_number(&engine, keys);
            match round % 20 {
                7 => engine.checkpoint().unwrap(),
                19 => engine.compact().unwrap(),
                _ => {}
            }
        }
        while found.load(Ordering::SeqCst) < 10 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn commit_that_has_to_follow_another_is_refused_after_a_third() {
    let engine = open(&Env::memory(), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let seen = write_number(&engine, keys);
    let follow = |seq: Seq| {
        let mut batch = KvBatch::new();
        batch.put(keys, b"next", b"1");
        let operations: Vec<Box<dyn Operation>> = vec![Box::new(batch), Box::new(FollowsCommit(seq))];
        engine.commit(operations, Durability::Buffered)
    };
    let next = follow(seen).unwrap().seq;
    assert_eq!(next, seen.next());
    for seq in [seen, next.next()] {
        let Err(CommitError::Rejected(reason)) = follow(seq) else { panic!("commit {seq} was followed") };
        assert_eq!(*reason.downcast::<NotNewest>().unwrap(), NotNewest { expected: seq, newest: next });
    }
    assert_eq!(engine.seq(), next);
}

/// A flushed memtable is read from memory until its runs are compacted or writes need the space.
#[test]
fn flushed_memtables_stay_readable_in_memory() {
    let engine = open(&Env::memory(), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let scan = |from: &Snapshot| {
        let mut found = Vec::new();
        let each = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            true
        };
        from.read().visit(keys, KeySpan::ALL, each).unwrap();
        found
    };
    let before = engine.snapshot();
    let mut model = std::collections::BTreeMap::new();
    for round in 0..3u8 {
        for key in (round..20).map(|key| vec![key]) {
            put(&engine, keys, &key, &[round], Durability::Buffered).unwrap();
            model.insert(key, vec![round]);
        }
        let mut batch = KvBatch::new();
        batch.delete(keys, &[10 + round]);
        model.remove(&vec![10 + round]);
        engine.commit(vec![Box::new(batch)], Durability::Buffered).unwrap();
        let resident = engine.stats().resident_bytes;
        engine.checkpoint().unwrap();
        let stats = engine.stats();
        assert!(stats.frozen == 0 && stats.resident_bytes > resident, "{stats:?}");
        assert_eq!(scan(&engine.snapshot()), model.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(scan(&before), []);
    }
    let expected: Vec<_> = model.into_iter().collect();
    for (key, value) in &expected {
        assert_eq!(get(&engine, keys, key).as_ref(), Some(value));
    }
    assert_eq!(engine.verify().unwrap().violations, Vec::<String>::new());
    let pinned = engine.snapshot();
    assert_eq!(scan(&pinned), expected);
    engine.compact().unwrap();
    assert_eq!(engine.stats().resident_bytes, 0);
    assert_eq!((scan(&pinned), scan(&engine.snapshot())), (expected.clone(), expected));
    assert_eq!(scan(&before), []);
}

/// Memtables that stay in memory never exceed their bound, and none stays while writes need the budget.
#[test]
fn flushed_memtables_in_memory_are_bounded() {
    let bound = 20_000;
    let engine = open(&Env::memory(), EngineOptions { resident_bytes: bound, ..manual() }).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut most = 0;
    for round in 0..20u32 {
        for key in 0..30u32 {
            put(&engine, keys, &(round * 30 + key).to_be_bytes(), &[7; 100], Durability::Buffered).unwrap();
        }
        engine.checkpoint().unwrap();
        while engine.background_step().unwrap() {}
        most = most.max(engine.stats().resident_bytes);
        assert!(engine.stats().resident_bytes <= bound, "{:?}", engine.stats());
        let mut count = 0;
        let each = |_: &[u8], _: &[u8]| {
            count += 1;
            true
        };
        engine
            .snapshot()
            .read()
            .visit(keys, KeySpan { backward: round % 2 == 0, ..KeySpan::ALL }, each)
            .unwrap();
        assert_eq!(count, (round + 1) * 30);
    }
    assert!(most > bound / 2, "{most}");
}
