//! A panic in any step of a commit: nothing of its group becomes visible or durable, every waiter gets a
//! result, the engine is stopped, and reopening restores the acknowledged commits.

use ropewalk_engine::{ModelId, Operation, Outcome, ReadView, Rejection, Verdict};

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Validate,
    Encode,
    /// When the request is dropped, after it was sequenced.
    Drop,
}

/// A batch that panics at one step.
struct Panicking {
    batch: KvBatch,
    at: Step,
}

impl Panicking {
    fn step(&self, step: Step) {
        assert!(self.at != step, "planned panic at {step:?}");
    }
}

impl Operation for Panicking {
    fn model(&self) -> ModelId {
        self.batch.model()
    }

    fn bytes_max(&self) -> usize {
        self.batch.bytes_max()
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.step(Step::Validate);
        self.batch.validate(latest)
    }

    fn encode(&mut self, seq: Seq, time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        self.step(Step::Encode);
        self.batch.encode(seq, time_micros, out)
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.step(Step::Drop);
        }
    }
}

fn batch(keys: Keyspace, key: &[u8]) -> KvBatch {
    let mut batch = KvBatch::new();
    batch.put(keys, key, b"1");
    batch
}

fn assert_stopped_by_panic<T: std::fmt::Debug>(outcome: Result<T, CommitError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, CommitError::Engine(EngineError::Stopped { .. })), "{error}");
    assert!(error.to_string().contains("panic during sequencing"), "{error}");
}

#[test]
fn panic_while_sequencing_refuses_the_group_and_shows_none_of_it() {
    for at in [Step::Validate, Step::Encode, Step::Drop] {
        let (disk, _, env) = machine(1);
        let (engine, keys) = open_with_keys(&env);
        put(&engine, keys, b"before", b"1", Durability::Sync).unwrap();
        // The first part of the transaction is applied when the second one panics; other commits share the group.
        let halves: Vec<Box<dyn Operation>> = vec![
            Box::new(batch(keys, b"half")),
            Box::new(Panicking { batch: batch(keys, b"other half"), at }),
        ];
        let submit = |operations| engine.submit(operations, Durability::Sync).unwrap();
        let handles = [
            submit(vec![Box::new(batch(keys, b"same group"))]),
            submit(halves),
            submit(vec![Box::new(batch(keys, b"after"))]),
        ];
        engine.drive();
        for mut handle in handles {
            assert_stopped_by_panic(handle.try_take().expect("every request of the group has an answer"));
        }
        assert!(put(&engine, keys, b"later", b"1", Durability::Sync).is_err());
        assert!(engine.checkpoint().is_err(), "what memory holds does not reach a run");
        for key in [&b"half"[..], b"other half", b"same group", b"after", b"later"] {
            assert_eq!(engine.snapshot().read().get(keys, key).unwrap(), None, "{at:?}");
        }
        drop(engine);
        disk.kill();
        let engine = open(&env, manual()).unwrap();
        assert_eq!(get(&engine, keys, b"before").as_deref(), Some(&b"1"[..]));
        // A group whose log append succeeded may be there as a whole: its commits are unacknowledged, not torn.
        let half = get(&engine, keys, b"half").is_some();
        assert_eq!(get(&engine, keys, b"other half").is_some(), half, "{at:?}");
        assert!(!half || at == Step::Drop, "{at:?}");
        put(&engine, keys, b"again", b"1", Durability::Sync).unwrap();
    }
}

#[test]
fn writers_in_threads_are_answered_when_one_of_their_group_panics() {
    let engine = open(&Env::memory(), EngineOptions::default()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8_u64 {
            let engine = &engine;
            scope.spawn(move || {
                for number in 0_u64.. {
                    if writer == 0 && number == 50 {
                        let panicking = Panicking { batch: batch(keys, b"x"), at: Step::Encode };
                        let outcome = engine.commit(vec![Box::new(panicking)], Durability::Sync);
                        assert_stopped_by_panic(outcome);
                        break;
                    }
                    let key = (writer << 32 | number).to_be_bytes();
                    if put(engine, keys, &key, b"1", Durability::Sync).is_err() {
                        break;
                    }
                }
            });
        }
    });
}
