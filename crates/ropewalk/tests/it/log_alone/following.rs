//! A follower that applies the entries of a shared log, and a change of the leader.

use std::sync::Arc;
use std::time::Duration;

use ropewalk::cluster::{LogId, MemorySharedLog, Role, SharedLog, SharedOptions};
use ropewalk::engine::{EngineError, Env, KeyspaceOptions};
use ropewalk::tables::{ColumnDef, LoadOptions, SequenceParams, TableDef, Type};
use ropewalk::{Class, Database, Durability, Error, Event, Isolation};

use super::{DATABASE, assert_intact, assert_same, documents, events, keys, options, series, tables};

fn open(env: &Env, shared: &MemorySharedLog, name: u8) -> Database {
    let shared = SharedOptions::new(Arc::new(shared.handle()), [name; 16], format!("node-{name}"));
    options(env).shared(shared).open(DATABASE).unwrap()
}

fn follow(db: &Database, shared: &MemorySharedLog) {
    for entry in shared.read(db.engine().place().index, usize::MAX, Duration::ZERO).unwrap() {
        db.engine().follow(&entry).unwrap();
    }
}

fn lead(db: &Database, shared: &MemorySharedLog) {
    follow(db, shared);
    assert!(db.engine().campaign().unwrap());
    db.begin_leading().unwrap();
}

#[test]
fn follower_is_the_same_after_every_way_to_change_the_contents() {
    let shared = MemorySharedLog::new(LogId([1; 16]));
    let (env, other) = (Env::memory(), Env::memory());
    let (leader, mut follower) = (open(&env, &shared, 1), open(&other, &shared, 2));
    lead(&leader, &shared);
    let ways = [keys::WAYS, events::WAYS, series::WAYS, documents::WAYS, tables::WAYS].concat();
    for (number, (way, change)) in ways.iter().enumerate() {
        change(&leader);
        follow(&follower, &shared);
        assert_same(&follower, &leader, way);
        assert_intact(&follower, way);
        // The two flush at different times.
        match number % 8 {
            1 => follower.checkpoint().unwrap(),
            2 | 5 => leader.checkpoint().unwrap(),
            3 => follower.compact().unwrap(),
            6 => {
                follower.close().unwrap();
                follower = open(&other, &shared, 2);
                assert_same(&follower, &leader, "opening again");
            }
            7 => leader.compact().unwrap(),
            _ => {}
        }
    }
    // The follower takes the lead, and continues where the leader was.
    lead(&follower, &shared);
    let refused = leader.events("shop").unwrap().append(&[Event::new("Late")], None).unwrap_err();
    let refused = Error::from(refused);
    assert_eq!(refused.class(), Class::NotLeader, "{refused}");
    leader.close().unwrap();
    let leader = open(&env, &shared, 1);
    follower.events("shop").unwrap().append(&[Event::new("Later")], None).unwrap();
    keys::WAYS.iter().for_each(|(_, change)| change(&follower));
    follow(&leader, &shared);
    assert_same(&leader, &follower, "a change of the leader");
    assert_intact(&leader, "a change of the leader");
}

#[test]
fn database_begins_to_lead_without_repeating_numbers() {
    let shared = MemorySharedLog::new(LogId([1; 16]));
    let (first, second) = (open(&Env::memory(), &shared, 1), open(&Env::memory(), &shared, 2));
    lead(&first, &shared);
    let sequence = first.tables().new_sequence(SequenceParams::default()).unwrap();
    let mut numbers: Vec<i64> = (0..3).map(|_| first.tables().next_number(sequence).unwrap()).collect();
    follow(&second, &shared);
    lead(&second, &shared);
    numbers.extend((0..3).map(|_| second.tables().next_number(sequence).unwrap()));
    let mut unique = numbers.clone();
    unique.dedup();
    assert!(unique == numbers && numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn opening_a_follower_commits_nothing_and_leading_completes_what_was_left() {
    let shared = MemorySharedLog::new(LogId([1; 16]));
    let (first, other) = (open(&Env::memory(), &shared, 1), Env::memory());
    lead(&first, &shared);
    let rows = TableDef::new("rows").column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
    let create = |tx: &mut ropewalk::Transaction| Ok::<_, Error>(tx.tables().create_table(rows.clone())?);
    let table = first.transact(Isolation::Serializable, 1, create).unwrap();
    let in_parts = LoadOptions { log_bytes_max: 0, memory_bytes: Some(64 << 10) };
    let mut load = first.tables().load_with(&table, in_parts).unwrap();
    (0..20_000_i64).for_each(|id| load.row(&[id.into()]).unwrap());
    let second = open(&other, &shared, 2);
    follow(&second, &shared);
    second.close().unwrap();
    let second = open(&other, &shared, 2);
    let seq = second.seq();
    assert!(matches!(second.role(), Role::Follower { .. }));
    assert_eq!(seq, first.seq(), "what a load has left is not removed by the opening");
    assert_eq!(second.begin_leading().unwrap_err().class(), Class::NotLeader);
    lead(&second, &shared);
    assert!(second.seq() > seq, "but by the leader");
    assert_eq!(second.tables().recover().unwrap(), 0);
    drop(load);
}

#[test]
fn write_to_a_follower_names_the_leader() {
    let shared = MemorySharedLog::new(LogId([1; 16]));
    let (first, second) = (open(&Env::memory(), &shared, 1), open(&Env::memory(), &shared, 2));
    lead(&first, &shared);
    let keys = first.keyspace("k", KeyspaceOptions::default()).unwrap();
    follow(&second, &shared);
    let refused = second.put(keys, b"k", b"1", Durability::Sync).unwrap_err();
    let Error::Engine(EngineError::NotLeader { leader }) = &refused else { panic!("{refused}") };
    assert_eq!(leader.as_deref(), Some("node-1"));
    assert_eq!(refused.to_string(), "this node does not lead, the node at node-1 does; nothing was written");
    let collection = second.collection("c").unwrap();
    let document = bson::serialize_to_vec(&bson::doc! { "_id": 1 }).unwrap();
    let refused = Error::from(collection.insert_one(&document, Durability::Sync).unwrap_err());
    assert_eq!(refused.class(), Class::NotLeader, "{refused}");
    let mut tx = second.begin();
    tx.put(keys, b"k", b"1");
    assert_eq!(tx.commit().map(|_| ()).unwrap_err().class(), Class::NotLeader);
}
