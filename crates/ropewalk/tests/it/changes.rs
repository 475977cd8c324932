//! The change feed: every commit, every model, in order, resumable.

use core::time::Duration;

use ropewalk::changes::ChangedPart;
use ropewalk::engine::KeyspaceOptions;
use ropewalk::events::Tracking;
use ropewalk::hooks::KvWrite;
use ropewalk::{AppendOptions, Database, Event, Seq};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_commit_over_two_models_arrives_whole() {
    let db = Database::in_memory().unwrap();
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let store = db.events("s").unwrap();
    store.append(&[Event::new("First")], None).unwrap();
    let mut tx = db.begin();
    tx.put(keys, b"balance", b"90");
    let tracking = Some(Tracking { source: "up".into(), position: 7 });
    tx.append(&store, &[Event::new("Paid").tag("order:1")], AppendOptions { tracking, ..Default::default() })
        .unwrap();
    tx.commit().unwrap();
    let mut feed = db.changes(Seq(1)).unwrap();
    let definition = feed.next(LONG).unwrap().unwrap();
    let models: Vec<_> = definition.parts.iter().map(ChangedPart::model).collect();
    assert_eq!((definition.seq, models), (Seq(1), vec![Some("keyspaces")]));
    assert_eq!(feed.next(LONG).unwrap().unwrap().seq, Seq(2), "the first event");
    let change = feed.next(LONG).unwrap().unwrap();
    assert_eq!((change.seq, change.parts.len()), (Seq(3), 2));
    for part in &change.parts {
        match part {
            ChangedPart::Events { store, append } => {
                assert_eq!((store.as_str(), append.tracking), ("s", Some(("up", 7))));
                let (position, body) = append.events().next().unwrap().unwrap();
                assert_eq!((position.0, body.event_type()), (2, "Paid"));
            }
            ChangedPart::Keys(writes) => assert_eq!(writes, &[(keys, KvWrite::Put(b"balance", b"90"))]),
            ChangedPart::Other(..) => panic!("no such model"),
        }
    }
    assert_eq!(feed.next_seq(), Seq(4));
    assert!(feed.next(Duration::ZERO).unwrap().is_none());
}

#[test]
fn a_follower_sees_live_commits() {
    let db = Database::in_memory().unwrap();
    let mut feed = db.changes(Seq(1)).unwrap();
    std::thread::scope(|scope| {
        let writer = db.clone();
        scope.spawn(move || {
            let store = writer.events("s").unwrap();
            for _ in 0..200 {
                store.append(&[Event::new("E")], None).unwrap();
            }
        });
        for seq in 1..=200 {
            let change = loop {
                if let Some(change) = feed.next(LONG).unwrap() {
                    break change.seq;
                }
            };
            assert_eq!(change, Seq(seq));
        }
    });
}
