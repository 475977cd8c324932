//! Contents of the log: only records that replay can apply, and only from the engine that owns the log.

use ropewalk_engine::{ModelId, Operation, Outcome, ReadView, Rejection, Verdict};

use super::*;

/// Writes a section of the key-value model that does not decode.
struct Undecodable;

impl Operation for Undecodable {
    fn model(&self) -> ModelId {
        KvBatch::new().model()
    }

    fn bytes_max(&self) -> usize {
        4
    }

    fn validate(&mut self, _: ReadView<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _: Seq, _: i64, out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(&[0, 0, 7, 0]);
        (0, 0)
    }
}

#[test]
fn record_that_does_not_decode_never_reaches_the_log() {
    let (disk, clock, env) = machine(1);
    let (engine, keys) = open_with_keys(&env);
    // A sync is owed to this commit: it must not take the bad record along.
    let interval = Duration::from_millis(5);
    put(&engine, keys, b"good", b"1", Durability::Async { interval }).unwrap();
    let refused = engine.commit(vec![Box::new(Undecodable)], Durability::Buffered).unwrap_err();
    assert!(refused.to_string().contains("does not decode"), "{refused}");
    clock.advance(interval);
    let worked = engine.background_step();
    assert!(put(&engine, keys, b"later", b"2", Durability::Sync).is_err());
    drop(engine);
    disk.kill();
    let engine = open(&env, manual()).unwrap();
    assert_eq!(get(&engine, keys, b"later"), None);
    assert!(engine.seq() <= Seq(2), "the good commit was promised within its interval only");
    put(&engine, keys, b"again", b"3", Durability::Sync).unwrap();
    assert!(!worked.unwrap(), "a stopped engine writes nothing");
}
