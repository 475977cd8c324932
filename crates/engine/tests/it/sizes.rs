//! The size of a transaction's own writes.

use std::sync::Arc;

use ropewalk_engine::{EngineError, Isolation, KeyspaceOptions, KvTransaction, TRANSACTION_BYTES_MAX};
use ropewalk_vfs::Env;

use crate::{manual, open};

/// A transaction that could not be committed fails while it grows; what is rolled back, overwritten or swept counts no more.
#[test]
fn c_transaction_fails_as_it_passes_its_size() {
    let engine = Arc::new(open(&Env::memory(), manual()).unwrap());
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut transaction = KvTransaction::new(engine, Isolation::Snapshot);
    let large = vec![7; 1 << 20];
    let most = usize::try_from(TRANSACTION_BYTES_MAX).unwrap() >> 20;
    let fill = |transaction: &mut KvTransaction| {
        for n in 0..most {
            assert!(transaction.check_size().is_ok(), "{n}");
            transaction.put(keys, &[u8::try_from(n).unwrap()], &large);
        }
    };
    let start = transaction.mark();
    fill(&mut transaction);
    assert!(matches!(
        transaction.check_size(),
        Err(EngineError::TooLarge { max: TRANSACTION_BYTES_MAX, .. })
    ));
    transaction.rollback_to(start);
    fill(&mut transaction);
    transaction.put(keys, &[0], b"short");
    assert!(transaction.check_size().is_ok());
    transaction.delete(keys, &[1]);
    transaction.sweep_range(keys, &[2], &[9]);
    for n in 2..9 {
        transaction.put(keys, &[n], &large);
    }
    assert!(transaction.check_size().is_ok());
    transaction.rollback_to(start);
    // Repeatedly overwritten values are stored for savepoints, and have a separate limit.
    let overwrites = (0..5 * most).take_while(|_| {
        transaction.put(keys, &[0], &large);
        transaction.check_size().is_ok()
    });
    assert_eq!(overwrites.count(), 4 * most);
}
