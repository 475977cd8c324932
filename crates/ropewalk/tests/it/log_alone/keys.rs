//! Keyspaces and their keys.

use ropewalk::engine::{Compression, Keyspace, KeyspaceOptions};
use ropewalk::{Database, Durability};

use super::Way;

fn keys(db: &Database) -> Keyspace {
    let options = KeyspaceOptions { compression: Compression::Lz4, ..KeyspaceOptions::default() };
    db.keyspace("k", options).unwrap()
}

pub(super) const WAYS: &[Way] = &[
    ("a new keyspace", |db| {
        db.keyspace("k", KeyspaceOptions::default()).unwrap();
    }),
    ("other options of a keyspace", |db| {
        keys(db);
    }),
    ("put", |db| {
        db.put(keys(db), b"a", b"1", Durability::Sync).unwrap();
    }),
    ("submitted puts", |db| {
        let rows = [(b"b".as_slice(), b"2".as_slice()), (b"c", b"3"), (b"d", b"4")];
        db.submit_puts(keys(db), rows, Durability::Buffered).unwrap().wait().unwrap();
    }),
    ("put, stamped put and delete in a transaction", |db| {
        let keyspace = keys(db);
        let mut tx = db.begin();
        tx.put(keyspace, b"a", b"5");
        tx.put_stamped(keyspace, b"stamped", b"6");
        tx.delete(keyspace, b"c");
        tx.commit().unwrap();
    }),
];
