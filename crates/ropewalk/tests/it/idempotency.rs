//! Stored results of transactions by idempotency key.

use ropewalk::hooks::idempotency::{AppendPositions, RESULTS_BYTES_MAX, RequestKey, StoredResult};
use ropewalk::transaction::IdempotencyError;
use ropewalk::{Class, Database, Error, Event, Position, Transaction};

fn key(name: &str, request: u8) -> RequestKey {
    RequestKey::new("ann", name, [request; 32]).unwrap()
}

/// Appends events to a store, and returns the result to be stored.
fn append(db: &Database, tx: &mut Transaction, store: &str, events: usize) -> StoredResult {
    let store = db.events(store).unwrap();
    let pending = AppendPositions::pending(tx, &store, events);
    tx.append(&store, &vec![Event::new("A"); events], Default::default()).unwrap();
    StoredResult::Appended(pending)
}

#[test]
fn key_finds_results_and_positions_of_its_commit() {
    let db = Database::in_memory().unwrap();
    db.events("a").unwrap().append(&[Event::new("A"), Event::new("A")], None).unwrap();
    let records = db.idempotency_records().unwrap();
    let mut tx = db.begin();
    assert_eq!(records.find(&mut tx, &key("k", 1)).unwrap(), None);
    let mut results = vec![append(&db, &mut tx, "a", 1), append(&db, &mut tx, "b", 2)];
    results.push(StoredResult::Encoded(b"rows".to_vec()));
    results.push(append(&db, &mut tx, "a", 3));
    let size = records.put(&mut tx, &key("k", 1), &results).unwrap();
    assert_eq!((size.replaced, size.bytes > 0), (None, true));
    let seq = tx.commit().unwrap().unwrap().seq;
    db.events("a").unwrap().append(&[Event::new("A")], None).unwrap();

    let mut tx = db.begin();
    let found = records.find(&mut tx, &key("k", 1)).unwrap().unwrap();
    let positions = |result: &StoredResult| match result {
        StoredResult::Appended(one) => Some((one.first.0, one.last.0)),
        StoredResult::Encoded(_) => None,
    };
    let positions: Vec<_> = found.results.iter().map(positions).collect();
    assert_eq!((found.seq, positions), (seq, vec![Some((3, 3)), Some((1, 2)), None, Some((4, 6))]));
    assert_eq!(found.results[2], results[2]);
    let other = records.find(&mut tx, &key("k", 2)).unwrap_err();
    assert!(matches!(other, Error::Idempotency(IdempotencyError::Mismatch)), "{other}");
    assert_eq!(other.class(), Class::Refused);
    // The key of another caller is another key.
    let bob = RequestKey::new("bob", "k", [1; 32]).unwrap();
    assert_eq!(records.find(&mut tx, &bob).unwrap(), None);
}

#[test]
fn key_of_a_transaction_that_is_rolled_back_is_unknown() {
    let db = Database::in_memory().unwrap();
    let records = db.idempotency_records().unwrap();
    let mut tx = db.begin();
    let results = [append(&db, &mut tx, "a", 1)];
    records.put(&mut tx, &key("k", 1), &results).unwrap();
    drop(tx);
    assert_eq!(records.find(&mut db.begin(), &key("k", 1)).unwrap(), None);
    assert_eq!(db.events("a").unwrap().head().unwrap(), None::<Position>);
}

#[test]
fn invalid_keys_and_large_results_are_rejected() {
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert_eq!(RequestKey::new("ann", name, [0; 32]).unwrap_err().class(), Class::Invalid);
    }
    let db = Database::in_memory().unwrap();
    let records = db.idempotency_records().unwrap();
    let results = [StoredResult::Encoded(vec![0; RESULTS_BYTES_MAX])];
    let refused = records.put(&mut db.begin(), &key("k", 1), &results).unwrap_err();
    assert!(matches!(refused, Error::Idempotency(IdempotencyError::TooLarge { .. })), "{refused}");
}
