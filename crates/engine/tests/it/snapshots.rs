//! Long-lived snapshots and transactions: which memory and files they hold, and that they keep reading their own commit.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_base::DecodeError;
use ropewalk_engine::{Apply, Isolation, KvTransaction, Memory, Model, ModelId, NewRun, ReadView, Snapshot};

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

    fn as_any(&self) -> &dyn Any {
        self
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
        let options = manual();
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
        .visit(keys, &[], None, false, |key, value| {
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
        .visit(keys, &[], None, false, |key, value| {
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
    assert!(matches!(db.engine.room(), Room::Tight(pause) if pause <= Duration::from_millis(1)));
    for (_, snapshot) in &mut held {
        snapshot.repin();
    }
    assert_eq!(db.engine.room(), Room::Free);
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
