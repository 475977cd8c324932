//! The hash of all contents, by which nodes of a cluster compare: equal for equal events, whatever their runs.

use std::sync::Arc;

use ropewalk_base::ContentHash;
use ropewalk_engine::{ContentsSlice, Snapshot};
use ropewalk_vfs::{Env, ManualClock};

use crate::{Db, event};

/// All that a snapshot shows, in slices of so many bytes.
fn slices(db: &Db, snapshot: &Snapshot, bytes: u64) -> Vec<ContentsSlice> {
    let mut slices = vec![db.engine.hash_slice(snapshot, &[], bytes).unwrap()];
    while let Some(start) = slices.last().and_then(|slice| slice.next.clone()) {
        slices.push(db.engine.hash_slice(snapshot, &start, bytes).unwrap());
    }
    slices
}

/// The hash of what a snapshot shows, in slices of so many bytes.
fn contents(db: &Db, snapshot: &Snapshot, bytes: u64) -> ContentHash {
    slices(db, snapshot, bytes).iter().fold(ContentHash::default(), |sum, slice| sum.plus(slice.hash))
}

/// A database whose commits have the times of a clock that does not move.
fn timeless() -> Db {
    Db::manual(&Env { clock: Arc::new(ManualClock::default()), ..Env::memory() })
}

#[test]
fn hash_of_events_does_not_depend_on_flushes_and_finds_one_that_differs() {
    let (never, often) = (timeless(), timeless());
    for round in 0..60_u32 {
        let (name, tag) = (format!("store{}", round % 3), format!("tag:{}", round % 5));
        for db in [&never, &often] {
            db.store(&name).append(&[event("A", &[&tag]), event("B", &[])], None).unwrap();
            if round % 25 == 24 {
                db.store("store1").delete().unwrap();
            }
        }
        if round % 4 == 0 {
            often.engine.checkpoint().unwrap();
        }
        if round % 20 == 10 {
            often.engine.compact().unwrap();
        }
    }
    let (a, b) = (never.engine.snapshot(), often.engine.snapshot());
    let wanted = contents(&never, &a, u64::MAX);
    for bytes in [1, 100, u64::MAX] {
        assert_eq!(contents(&often, &b, bytes), wanted, "slices of {bytes} bytes");
        assert_eq!(slices(&often, &b, bytes), slices(&never, &a, bytes), "they end equally");
    }
    // Later events are in runs, and not in the snapshot.
    never.store("store0").append(&[event("A", &[])], None).unwrap();
    often.store("store0").append(&[event("C", &[])], None).unwrap();
    often.engine.checkpoint().unwrap();
    assert_eq!(contents(&often, &b, 100), wanted);
    let now = |db: &Db| contents(db, &db.engine.snapshot(), u64::MAX);
    assert_ne!(now(&never), now(&often));
}
