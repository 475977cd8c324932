//! Several writers at once: nothing acknowledged is lost, and each of them makes progress.

use std::sync::mpsc;

use ropewalk_base::DecodeError;
use ropewalk_engine::{
    Apply, Memory, Model, ModelId, NewRun, Operation, Outcome, ReadView, Rejection, Verdict,
};
use ropewalk_store::Store;

use super::*;

const WRITERS: u64 = 4;
const KEYS_PER_WRITER: u64 = 4_000;

fn key(writer: u64, number: u64) -> Vec<u8> {
    [writer.to_be_bytes(), number.to_be_bytes()].concat()
}

fn write_from_many_threads(engine: &Engine, keys: Keyspace) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for number in 0..KEYS_PER_WRITER {
                    put(engine, keys, &key(writer, number), &[7; 200], Durability::Buffered).unwrap();
                }
            });
        }
    });
}

fn missing(engine: &Engine, keys: Keyspace) -> usize {
    let snapshot = engine.snapshot();
    let all = (0..WRITERS).flat_map(|writer| (0..KEYS_PER_WRITER).map(move |number| key(writer, number)));
    all.filter(|key| snapshot.read().get(keys, key).unwrap().is_none()).count()
}

/// A model without data whose flush takes long, so that two flushes of one generation overlap if they can.
struct SlowFlush;

impl Model for SlowFlush {
    fn id(&self) -> ModelId {
        ModelId(200)
    }

    fn name(&self) -> &'static str {
        "slow flush"
    }

    fn open(&self, _: &Store) -> Result<(), EngineError> {
        Ok(())
    }

    fn apply(&self, _: &Apply<'_>, _: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn flush(&self, _: &dyn Memory, _: &Store, _: &[Seq]) -> Result<Vec<NewRun>, EngineError> {
        std::thread::sleep(Duration::from_millis(2));
        Ok(Vec::new())
    }

    fn verify(&self, _: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        Ok(Vec::new())
    }
}

#[test]
fn manual_mode_with_four_writers_keeps_every_acknowledged_commit() {
    let env = Env::memory();
    let engine = Engine::open(&env, Path::new("/db"), manual(), vec![Arc::new(SlowFlush)]).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    write_from_many_threads(&engine, keys);
    assert_eq!(missing(&engine, keys), 0, "live");
    engine.close().unwrap();
    drop(engine);
    let engine = open(&env, manual()).unwrap();
    assert_eq!(missing(&engine, keys), 0, "after a clean close");
}

#[test]
fn background_steps_of_callers_next_to_the_flusher_keep_every_acknowledged_commit() {
    let env = Env::memory();
    let options = EngineOptions { background: Background::Threads, ..manual() };
    let engine = open(&env, options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while engine.seq().0 < WRITERS * KEYS_PER_WRITER {
                    engine.background_step().unwrap();
                }
            });
        }
        write_from_many_threads(&engine, keys);
        drop(done);
    });
    assert!(is_done.recv().is_err());
    assert_eq!(missing(&engine, keys), 0, "live");
    engine.close().unwrap();
    drop(engine);
    let engine = open(&env, manual()).unwrap();
    assert_eq!(missing(&engine, keys), 0, "after a clean close");
}

/// A batch that blocks in its validation, inside the sequencer, until it is released.
struct Gated {
    batch: KvBatch,
    entered: mpsc::Sender<()>,
    pass: mpsc::Receiver<()>,
}

impl Operation for Gated {
    fn model(&self) -> ModelId {
        self.batch.model()
    }

    fn bytes_max(&self) -> usize {
        self.batch.bytes_max()
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.entered.send(()).unwrap();
        self.pass.recv().unwrap();
        self.batch.validate(latest)
    }

    fn encode(&mut self, seq: Seq, time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        self.batch.encode(seq, time_micros, out)
    }
}

#[test]
fn write_capacity_is_exact_when_a_flush_ends_while_a_group_is_sequenced() {
    let engine = open(&Env::memory(), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut batch = KvBatch::new();
    for number in 0..700_u32 {
        batch.put(keys, &number.to_be_bytes(), &[7; 1000]);
    }
    // One transaction larger than the whole write budget: it is frozen at once, and writers wait for its flush.
    engine.commit(vec![Box::new(batch)], Durability::Buffered).unwrap();
    assert_eq!((engine.stats().frozen, engine.write_capacity()), (1, WriteCapacity::Spent));

    let (entered, is_entered) = mpsc::channel();
    let (pass, may_pass) = mpsc::channel();
    let mut batch = KvBatch::new();
    batch.put(keys, b"small", b"1");
    let gated = Gated { batch, entered, pass: may_pass };
    let engine = &engine;
    std::thread::scope(|scope| {
        // `submit` would wait for the memory budget; `try_submit` does not check it.
        let handle = engine.try_submit(vec![Box::new(gated)], Durability::Buffered).unwrap();
        let driver = scope.spawn(move || {
            engine.drive();
            handle.wait().unwrap();
        });
        is_entered.recv().unwrap();
        assert!(engine.background_step().unwrap(), "the flush ends while the group is sequenced");
        pass.send(()).unwrap();
        driver.join().unwrap();
    });
    let stats = engine.stats();
    assert_eq!((stats.frozen, engine.write_capacity()), (0, WriteCapacity::Free));
    assert!(stats.write_bytes < 1000, "{} bytes", stats.write_bytes);
}
