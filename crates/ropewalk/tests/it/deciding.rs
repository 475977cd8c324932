//! Decisions within a transaction: retries, rejections, own appends, validated reads.

use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk::engine::KeyspaceOptions;
use ropewalk::events::{EventsError, ReadOptions, SequencedEvent, Tracking, count, exists};
use ropewalk::{
    AppendCondition, AppendOptions, Class, Database, Error, Event, EventStore, Isolation, Position, Query,
};

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

fn open() -> (Database, EventStore) {
    let db = Database::in_memory().unwrap();
    let store = db.events("s").unwrap();
    (db, store)
}

fn tagged(tag: &str) -> Query {
    Query::from_tags([tag])
}

fn event(tag: &str) -> Event {
    Event::new("E").tag(tag)
}

fn positions(events: impl Iterator<Item = Result<SequencedEvent, EventsError>>) -> Vec<u64> {
    events.map(|event| event.unwrap().position.0).collect()
}

#[test]
fn d1_1_decisions_under_contention_are_all_committed() {
    let (db, store) = open();
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let done = db.transact(Isolation::Serializable, 10, |tx| {
                        let decision = store.decision(&count(tagged("n")))?;
                        tx.append(&store, &[event("n")], AppendOptions::condition(decision.condition))
                    });
                    refused.fetch_add(usize::from(done.is_err()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((refused.into_inner(), store.count(&tagged("n")).unwrap()), (0, 200));
}

#[test]
fn d1_1_failed_condition_names_the_commit_to_wait_for() {
    let (db, store) = open();
    let other = db.events("other").unwrap();
    other.append(&[event("x")], None).unwrap();
    let seq = store.append(&[event("n")], None).unwrap().seq;
    other.append(&[event("x")], None).unwrap();
    let condition = AppendCondition::none_match(tagged("n")).after(Position::ZERO);
    let error = Error::from(store.append(&[event("n")], Some(condition)).unwrap_err());
    assert_eq!((error.class(), error.conflict_seq()), (Class::Conflict, Some(seq)));
}

#[test]
fn d1_2_rule_that_cannot_hold_is_not_retried() {
    let (db, store) = open();
    let tracking = |position| AppendOptions {
        tracking: Some(Tracking { source: "up".into(), position }),
        ..AppendOptions::default()
    };
    store.append_with(&[event("taken")], tracking(5)).unwrap();
    let unique = AppendOptions::condition(AppendCondition::none_match(tagged("taken")));
    for options in [unique, tracking(5)] {
        let mut runs = 0;
        let result = db.transact(Isolation::Serializable, 1000, |tx| {
            runs += 1;
            tx.append(&store, &[event("taken")], options.clone())
        });
        let error = result.unwrap_err();
        assert_eq!((runs, error.class(), error.is_conflict()), (1, Class::Refused, false), "{error}");
        assert_eq!(error.conflict_seq(), None);
    }
}

#[derive(Debug)]
enum Refusal {
    Full(u64),
    Database(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

#[test]
fn d1_3_refusal_of_the_application_leaves_at_once() {
    let (db, store) = open();
    let mut runs = 0;
    let result = db.transact(Isolation::Serializable, 10, |tx| {
        runs += 1;
        tx.append(&store, &[event("n")], AppendOptions::default())?;
        let seats = tx.decision(&store, &count(tagged("n")))?;
        if seats > 0 { Err(Refusal::Full(seats)) } else { Ok(()) }
    });
    assert!(matches!(result, Err(Refusal::Full(1))), "{result:?}");
    assert_eq!((runs, store.head().unwrap()), (1, None));

    // The last conflict is returned as the application's error type.
    let result = db.transact(Isolation::Serializable, 2, |tx| {
        tx.decision(&store, &count(tagged("n")))?;
        store.append(&[event("n")], None).map_err(Error::from)?;
        tx.append(&store, &[event("m")], AppendOptions::default())?;
        Ok::<_, Refusal>(())
    });
    assert!(matches!(result, Err(Refusal::Database(error)) if error.is_conflict()));
    assert_eq!(store.count(&tagged("n")).unwrap(), 2);
}

#[test]
fn d1_4_decision_reads_the_snapshot_and_is_checked_at_commit() {
    for isolation in LEVELS {
        let (db, store) = open();
        let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        store.append(&[event("n")], None).unwrap();
        let decide = |between: &str| {
            let mut tx = db.begin_with(isolation);
            tx.begin_statement();
            let state = (count(tagged("n")), exists(tagged("m")));
            let (before, _) = tx.decision(&store, &state).unwrap();
            store.append(&[event(between)], None).unwrap();
            assert_eq!(tx.decision(&store, &state).unwrap(), (before, false), "{isolation:?}");
            // This holds for writes to any model.
            tx.put(keys, b"k", b"1");
            tx.commit().map(|_| ())
        };
        decide("unrelated").unwrap();
        for tag in ["n", "m"] {
            let error = decide(tag).unwrap_err();
            assert!(error.is_conflict() && error.conflict_seq() == Some(db.seq()), "{isolation:?}: {error}");
            let told =
                matches!(&error, Error::Events(EventsError::ReadConflict { store, .. }) if store == "s");
            assert!(told, "{error}");
            store.delete().unwrap();
        }
    }
}

#[test]
fn d1_4_decision_about_a_store_that_is_created_meanwhile_conflicts() {
    let (db, store) = open();
    let mut tx = db.begin();
    assert!(!tx.decision(&store, &exists(Query::all())).unwrap());
    store.append(&[event("n")], None).unwrap();
    tx.append(&store, &[event("n")], AppendOptions::default()).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

#[test]
fn d1_5_conditions_see_own_appends() {
    let (db, store) = open();
    store.append(&[event("old")], None).unwrap();
    let free = |tag: &str| AppendOptions::condition(AppendCondition::none_match(tagged(tag)));
    for after in [None, Some(Position(1))] {
        let mut tx = db.begin();
        tx.append(&store, &[event("name")], free("name")).unwrap();
        let condition = AppendCondition { fail_if_events_match: tagged("name"), after };
        let error = tx.append(&store, &[event("name")], AppendOptions::condition(condition)).unwrap_err();
        assert_eq!(error.class(), Class::Refused);
        let own = EventsError::OwnEventMatches { condition: 0, item: Some(0), event_type: "E".into() };
        assert_eq!(error.to_string(), own.to_string());
        // Appends to another store, and those undone by a savepoint, do not count.
        tx.append(&db.events("other").unwrap(), &[event("name")], free("name")).unwrap();
        tx.savepoint();
        tx.append(&store, &[event("second")], free("second")).unwrap();
        tx.rollback_to_savepoint();
        tx.append(&store, &[event("second")], free("second")).unwrap();
        tx.rollback();
    }
    let mut tx = db.begin();
    let tracking = |position| AppendOptions {
        tracking: Some(Tracking { source: "up".into(), position }),
        ..AppendOptions::default()
    };
    tx.append(&store, &[], tracking(7)).unwrap();
    let error = tx.append(&store, &[], tracking(7)).unwrap_err();
    assert!(matches!(error, Error::Events(EventsError::TrackingConflict { stored: 7, .. })), "{error}");
    tx.append(&store, &[], tracking(8)).unwrap();
    tx.commit().unwrap();
    assert_eq!(store.tracking("up").unwrap(), Some(8));
}

#[test]
fn d1_5_reads_see_own_appends() {
    let (db, store) = open();
    let mut tx = db.begin();
    tx.append(&store, &[event("a")], AppendOptions::default()).unwrap();
    assert_eq!(positions(tx.read_events(&store, &Query::all(), ReadOptions::default()).unwrap()), [1]);
    tx.commit().unwrap();
    store.append(&[event("b"), event("a")], None).unwrap();

    let mut tx = db.begin();
    tx.append(&store, &[event("a"), event("b")], AppendOptions::default()).unwrap();
    tx.append(&store, &[event("a")], AppendOptions::default()).unwrap();
    assert_eq!(tx.decision(&store, &(count(tagged("a")), count(Query::all()))).unwrap(), (4, 6));
    let back = ReadOptions::backwards();
    let cases = [
        (ReadOptions::default(), vec![1, 3, 4, 6]),
        (ReadOptions::default().limit(3), vec![1, 3, 4]),
        (ReadOptions::default().after(Position(3)), vec![4, 6]),
        (ReadOptions::default().after(Position(4)), vec![6]),
        (ReadOptions::default().from(Position(4)).before(Position(6)), vec![4]),
        (back, vec![6, 4, 3, 1]),
        (back.limit(1), vec![6]),
        (back.limit(3), vec![6, 4, 3]),
        (back.from(Position(5)), vec![4, 3, 1]),
        (back.before(Position(4)), vec![3, 1]),
    ];
    for (options, expected) in cases {
        let mut reader = tx.read_events(&store, &tagged("a"), options).unwrap();
        assert_eq!(positions(reader.by_ref()), expected, "{options:?}");
        assert!(reader.ended(), "{options:?}");
        // The same, one event at a time.
        let mut reader = tx.read_events(&store, &tagged("a"), options).unwrap();
        let mut found = Vec::new();
        while reader.visit(1, |event| found.push(event.position.0)).unwrap() > 0 {}
        assert_eq!(found, expected, "{options:?}");
    }
    tx.commit().unwrap();
    assert_eq!(store.count(&tagged("a")).unwrap(), 4);
}

#[test]
fn d1_5_serializable_transactions_guard_the_events_they_read() {
    for (isolation, guards) in LEVELS.into_iter().zip([true, false, false]) {
        let attempt = |options: ReadOptions, other: &str| {
            let (db, store) = open();
            store.append(&[event("a")], None).unwrap();
            let mut tx = db.begin_with(isolation);
            let query = tagged("a");
            assert_eq!(tx.read_events(&store, &query, options).unwrap().count(), 1);
            tx.append(&db.events("log").unwrap(), &[event("seen")], AppendOptions::default()).unwrap();
            store.append(&[event(other)], None).unwrap();
            tx.commit().err().map(|error| error.class())
        };
        let conflict = guards.then_some(Class::Conflict);
        assert_eq!(attempt(ReadOptions::default(), "a"), conflict, "{isolation:?}");
        assert_eq!(attempt(ReadOptions::backwards(), "a"), conflict, "{isolation:?}");
        assert_eq!(attempt(ReadOptions::default(), "b"), None, "{isolation:?}: another tag");
        // New events come after the part that was read.
        assert_eq!(attempt(ReadOptions::default().before(Position(2)), "a"), None, "{isolation:?}");
    }
    // A transaction that only reads conflicts with nothing.
    let (db, store) = open();
    let mut tx = db.begin();
    tx.read_events(&store, &Query::all(), ReadOptions::default()).unwrap();
    store.append(&[event("a")], None).unwrap();
    assert_eq!(tx.commit().unwrap(), None);
}

#[test]
fn d1_5_many_queries_of_one_transaction_stay_bounded() {
    let (db, store) = open();
    let read = |count: usize| {
        let mut tx = db.begin();
        for number in 0..count {
            tx.read_events(&store, &tagged(&format!("n:{number}")), ReadOptions::default()).unwrap();
        }
        tx.append(&db.events("log").unwrap(), &[event("seen")], AppendOptions::default()).unwrap();
        tx
    };
    let (few, many) = (read(1_000), read(1_001));
    store.append(&[event("unrelated")], None).unwrap();
    few.commit().unwrap();
    assert!(many.commit().unwrap_err().is_conflict());
}

#[test]
fn d1_6_commit_names_the_stores_and_positions() {
    let (db, first) = open();
    let second = db.events("t").unwrap();
    first.append(&[event("old")], None).unwrap();
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let mut tx = db.begin();
    tx.decision(&first, &count(tagged("x"))).unwrap();
    tx.append(&second, &[event("a"), event("b")], AppendOptions::default()).unwrap();
    tx.append(&first, &[event("c")], AppendOptions::default()).unwrap();
    tx.append(&second, &[event("d")], AppendOptions::default()).unwrap();
    tx.put(keys, b"k", b"v");
    let done = tx.commit().unwrap().unwrap();
    let found: Vec<_> = done.appended.iter().map(|a| (a.store.as_str(), a.first.0, a.last.0)).collect();
    assert_eq!(found, [("t", 1, 2), ("s", 2, 2), ("t", 3, 3)]);
    assert_eq!((done.samples.len(), done.seq), (0, db.seq()));
}

#[test]
fn d1_13_clock_and_randomness_of_tests_come_from_the_facade() {
    use std::sync::Arc;

    use ropewalk::Options;
    use ropewalk::engine::{Background, Env};
    use ropewalk::groups::GroupSettings;
    use ropewalk::testing::{FaultyVfs, ManualClock, SeededRandom};

    let clock = Arc::new(ManualClock::default());
    let disk = FaultyVfs::new(1);
    let random = Arc::new(SeededRandom::new(1));
    let env = Env { vfs: Arc::new(disk.process()), clock: clock.clone(), random };
    let db = Options::new().env(env).background(Background::Manual).open("/db").unwrap();
    db.events("s").unwrap().append(&[event("a")], None).unwrap();
    let groups = db.consumer_groups("s").unwrap();
    let settings = GroupSettings::new(Query::all());
    let lease = settings.lease;
    groups.create("g", settings, None).unwrap();
    let group = groups.group("g").unwrap();
    assert_eq!(group.take(1).unwrap().events.len(), 1);
    assert_eq!(group.take(1).unwrap().events.len(), 0);
    clock.advance(lease);
    assert_eq!(group.take(1).unwrap().events[0].tries, 2);
}

#[test]
fn d1_19_lease_that_was_never_handed_out_is_an_error() {
    use ropewalk::groups::{GroupError, GroupSettings};

    let (db, store) = open();
    store.append(&[event("a")], None).unwrap();
    let groups = db.consumer_groups("s").unwrap();
    groups.create("g", GroupSettings::new(Query::all()), None).unwrap();
    let group = groups.group("g").unwrap();
    let lease = group.take(1).unwrap().id;
    for wrong in [0, lease + 1, 999] {
        let results = [
            group.acknowledge(wrong, None).map(|_| ()),
            group.retry(wrong, None, None, "").map(|_| ()),
            group.park(wrong, Some(&[Position(1)]), "").map(|_| ()),
            group.extend(wrong, None).map(|_| ()),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.class(), Class::NotFound);
            assert!(matches!(error, Error::Group(GroupError::UnknownLease { lease, .. }) if lease == wrong));
        }
    }
    assert_eq!(group.acknowledge(lease, None).unwrap().done, 1);
    // A client that lost the response repeats the call.
    assert_eq!(group.acknowledge(lease, None).unwrap().done, 0);
}

#[test]
fn d1_19_refused_decision_has_a_source() {
    use std::error::Error as _;

    let (_, store) = open();
    let refused = store.execute_decision(&count(Query::all()), Default::default(), |_| {
        Err::<Vec<Event>, _>(std::io::Error::other("no seat left"))
    });
    let error = refused.unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "no seat left");
    assert_eq!(error.to_string(), "the decision was refused: no seat left");
}

#[test]
fn d1_19_errors_of_documents_name_the_collection() {
    use bson::doc;
    use ropewalk::Durability;
    use ropewalk::documents::lang::{Doc, Filter, Options, Update, Value};
    use ropewalk::documents::{DocumentsError, UpdateSpec};

    let (db, _) = open();
    let orders = db.collection("orders").unwrap();
    let document = bson::serialize_to_vec(&doc! { "_id": 1, "name": "ann" }).unwrap();
    orders.insert_one(&document, Durability::Sync).unwrap();
    let increment = bson::serialize_to_vec(&doc! { "$inc": { "name": 1 } }).unwrap();
    let update = Value::Document(Doc::check(&increment).unwrap());
    let update = Update::parse(update, None, &Options::default()).unwrap();
    let spec = |filter: Filter| UpdateSpec::new(filter, update.clone());
    let one = || spec(Filter::equals("_id", Value::Int32(1)));
    let many = || spec(Filter::equals("name", Value::String("ann")));
    let mut tx = db.begin();
    let refused = [
        orders.insert_one(b"no BSON", Durability::Sync).map(drop),
        orders
            .insert_many(&[b"no BSON"], true, Durability::Sync)
            .and_then(|mut done| Err(done.errors.remove(0).1)),
        orders.update_one(&one(), Durability::Sync).map(drop),
        orders.update_many(&many(), Durability::Sync).map(drop),
        tx.documents().insert_one(&orders, b"no BSON").map(drop),
        tx.documents().update_one(&orders, &one()).map(drop),
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert!(matches!(error, DocumentsError::InCollection { .. }), "{error:?}");
        assert!(error.to_string().starts_with("collection \"orders\": "), "{error}");
        assert_eq!(Error::from(error).class(), Class::Invalid);
    }
}
