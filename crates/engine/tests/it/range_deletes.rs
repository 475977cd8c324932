//! Range deletes among the other writes of one commit.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Write {
    Put(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        (0..20_u8, any::<u8>()).prop_map(|(key, value)| Write::Put(key, value)),
        (0..20_u8).prop_map(Write::Delete),
        (0..20_u8, 0..20_u8).prop_map(|(start, end)| Write::DeleteRange(start, end)),
    ]
}

proptest! {
    #[test]
    fn commit_applies_its_writes_in_order(commits in proptest::collection::vec(proptest::collection::vec(write(), 0..30), 1..4)) {
        let env = Env::memory();
        let mut model = BTreeMap::new();
        let (engine, keys) = open_with_keys(&env);
        for writes in commits {
            let mut batch = KvBatch::new();
            for write in writes {
                match write {
                    Write::Put(key, value) => {
                        batch.put(keys, &[key], &[value]);
                        model.insert(key, value);
                    }
                    Write::Delete(key) => {
                        batch.delete(keys, &[key]);
                        model.remove(&key);
                    }
                    Write::DeleteRange(start, end) => {
                        batch.delete_range(keys, &[start], &[end]);
                        model.retain(|key, _| !(start..end).contains(key));
                    }
                }
            }
            engine.commit(vec![Box::new(batch)], Durability::Buffered).unwrap();
        }
        for key in 0..20 {
            prop_assert_eq!(get(&engine, keys, &[key]), model.get(&key).map(|value| vec![*value]));
        }
    }
}

/// Ten thousand million steps if each range delete visits the whole commit; a hundred thousand otherwise.
#[test]
fn many_range_deletes_after_many_puts_visit_each_put_once() {
    let options = EngineOptions { memory_budget: 1 << 30, ..manual() };
    let engine = open(&Env::memory(), options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut batch = KvBatch::new();
    for number in 0..100_000_u32 {
        batch.put(keys, &number.to_be_bytes(), b"1");
    }
    for number in 0..100_000_u32 {
        batch.delete_range(keys, &number.to_be_bytes(), &(number + 1).to_be_bytes());
    }
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            engine.commit(vec![Box::new(batch)], Durability::Buffered).unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("a guard against a quadratic apply");
    });
    assert_eq!(get(&engine, keys, &7_u32.to_be_bytes()), None);
}

#[test]
fn range_delete_after_a_foreign_write_inside_the_range_is_refused_unless_it_is_blind() {
    use ropewalk_engine::{Isolation, KeyConflict};
    let engine = open(&Env::memory(), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let write = |key: u8| put(&engine, keys, &[key], b"1", Durability::Buffered).unwrap();
    for key in 0..10 {
        write(key);
    }
    // The key that others write, and the range that is deleted.
    let cases = [(5, 2, 8, true), (2, 2, 8, true), (7, 2, 8, true), (8, 2, 8, false), (1, 2, 8, false)];
    for (key, start, end, conflicts) in cases.into_iter().chain([(5, 8, 2, false), (5, 5, 5, false)]) {
        for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
            for flushed in [false, true] {
                let snapshot = engine.snapshot();
                let mut batch = KvBatch::validated(snapshot.seq(), isolation);
                batch.delete_range(keys, &[start], &[end]);
                let seq = write(key);
                if flushed {
                    engine.compact().unwrap();
                }
                let done = engine.commit(vec![Box::new(batch)], Durability::Buffered);
                let what = format!("{key} in {start}..{end}, {isolation:?}, flushed {flushed}");
                let refusal = done.err().map(|error| match error {
                    CommitError::Rejected(reason) => reason.downcast::<KeyConflict>().unwrap().seq,
                    other => panic!("{what}: {other}"),
                });
                let expected = conflicts && isolation != Isolation::ReadCommitted;
                assert_eq!(refusal, expected.then_some(seq), "{what}");
                let there = get(&engine, keys, &[key]).is_some();
                assert_eq!(there, expected || !(start..end).contains(&key), "{what}");
                write(key);
            }
        }
    }
}
