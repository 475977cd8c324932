//! Guards of transactions under read committed: they hold from the statement that set them, whatever is flushed meanwhile.

use ropewalk_engine::{Isolation, KeyConflict, KvTransaction};

use super::*;

fn refused_by(engine: &Engine, batch: KvBatch) -> Option<KeyConflict> {
    let operations: Vec<Box<dyn ropewalk_engine::Operation>> = vec![Box::new(batch)];
    let error = engine.commit(operations, Durability::Buffered).err()?;
    assert!(matches!(error, CommitError::Rejected(_)), "{error}");
    let CommitError::Rejected(reason) = error else { return None };
    Some(*reason.downcast::<KeyConflict>().unwrap())
}

#[test]
fn guard_of_an_earlier_statement_holds_when_the_change_was_flushed_and_merged() {
    for (range, merge) in [(false, false), (false, true), (true, false), (true, true)] {
        let engine = Arc::new(open(&Env::memory(), manual()).unwrap());
        let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
        put(&engine, keys, b"guarded", b"1", Durability::Buffered).unwrap();
        let mut transaction = KvTransaction::new(engine.clone(), Isolation::ReadCommitted);
        if range {
            transaction.guard_range(keys, b"g", Some(b"h"));
        } else {
            transaction.guard_key(keys, b"guarded");
        }
        let change = put(&engine, keys, b"guarded", b"2", Durability::Buffered).unwrap();
        // From here on the transaction reads a snapshot that has seen the change; only its guard has not.
        transaction.begin_statement();
        assert_eq!(transaction.get(keys, b"guarded").unwrap().as_deref(), Some(b"2".as_slice()));
        transaction.put(keys, b"own", b"3");
        // A flush may come between the end of the transaction and its validation.
        let batch = transaction.into_batch();
        if merge {
            engine.compact().unwrap();
        } else {
            engine.checkpoint().unwrap();
        }
        let conflict = refused_by(&engine, batch).expect("the guarded key has changed");
        assert_eq!(conflict.seq, change, "range {range}, merge {merge}");
        assert_eq!(get(&engine, keys, b"own"), None);
    }
}
