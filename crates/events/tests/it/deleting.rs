//! Creating and deleting stores.

use ropewalk_base::Position;
use ropewalk_events::{AppendOptions, Event, EventsError, Query, ReadOptions, Tracking};
use ropewalk_vfs::Env;

use crate::{Db, event, positions};

fn tagged(tag: &str) -> Query {
    Query::from_tags([tag])
}

#[test]
fn a_created_store_is_empty_and_known() {
    let env = Env::memory();
    let db = Db::manual(&env);
    assert!(db.store("s").create().unwrap() && !db.store("s").create().unwrap());
    let id = db.store("s").id().unwrap();
    assert_eq!(db.store("s").head().unwrap(), None);
    drop(db);
    let db = Db::manual(&env);
    assert_eq!(db.store("s").id(), Some(id));
    assert_eq!(db.store("s").append(&[event("A", &[])], None).unwrap().first, Position(1));
}

#[test]
fn delete_removes_everything_and_recreated_store_begins_at_one() {
    let env = Env::memory();
    let mut db = Db::manual(&env);
    for (round, then) in ["", "checkpoint", "compact", "reopen"].into_iter().enumerate() {
        let store = db.store("s");
        assert_eq!(store.head().unwrap(), None, "round {round}");
        let options = AppendOptions {
            tracking: Some(Tracking { source: "up".into(), position: 7 }),
            idempotency_key: Some("k".into()),
            ..AppendOptions::default()
        };
        let appended = store.append_with(&[event("A", &["t:1"]), event("B", &["t:2"])], options).unwrap();
        assert_eq!((appended.first, appended.last), (Position(1), Position(2)));
        db.store("other").append(&[event("A", &["t:1"])], None).unwrap();
        if round % 2 == 0 {
            db.engine.checkpoint().unwrap();
        }
        let before = store.id().unwrap();
        assert!(store.delete().unwrap() && !store.delete().unwrap());
        drop(store);
        match then {
            "checkpoint" => db.engine.checkpoint().unwrap(),
            "compact" => db.engine.compact().unwrap(),
            "reopen" => {
                db.engine.checkpoint().unwrap();
                drop(db);
                db = Db::manual(&env);
            }
            _ => {}
        }
        let store = db.store("s");
        assert_eq!((store.id(), store.head().unwrap(), store.tracking("up").unwrap()), (None, None, None));
        assert_eq!(store.count(&tagged("t:1")).unwrap(), 0);
        assert!(positions(&store, &Query::all(), ReadOptions::default()).is_empty());
        assert_eq!(db.model.stores_at(db.engine.seq()).len(), 1);
        assert_eq!(db.model.store_name(before), Some("s".to_owned()), "the change feed still names it");
        store.create().unwrap();
        assert!(store.id().unwrap() > before, "numbers are never given twice");
        store.delete().unwrap();
    }
    let all = (1..=4).collect::<Vec<_>>();
    assert_eq!(positions(&db.store("other"), &tagged("t:1"), ReadOptions::default()), all);
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn older_snapshots_see_deleted_store_through_flush_and_merge() {
    let env = Env::memory();
    let db = Db::manual(&env);
    let store = db.store("s");
    let events: Vec<Event> = (0..600).map(|i| event("A", &[&format!("t:{}", i % 3)])).collect();
    store.append(&events[..300], None).unwrap();
    db.engine.compact().unwrap();
    store.append(&events[300..], None).unwrap();
    let mut snapshot = db.engine.snapshot();
    let mut open = store.read(&Query::all(), ReadOptions::default()).unwrap();
    assert_eq!(open.next_batch(10).unwrap().len(), 10);
    store.delete().unwrap();
    store.append(&[event("New", &["t:0"])], None).unwrap();
    let look = |snapshot: &ropewalk_engine::Snapshot| {
        let read = |query: &Query| store.read_at(snapshot.clone(), query, ReadOptions::default()).unwrap();
        assert_eq!(read(&Query::all()).head(), Some(Position(600)));
        assert_eq!(read(&Query::all()).count(), 600);
        assert_eq!(read(&tagged("t:1")).count(), 200);
    };
    look(&snapshot);
    for step in [|db: &Db| db.engine.checkpoint().unwrap(), |db: &Db| db.engine.compact().unwrap()] {
        step(&db);
        look(&snapshot);
        snapshot.refresh_sources();
        look(&snapshot);
    }
    assert_eq!(open.by_ref().filter(|event| event.is_ok()).count(), 590);
    assert_eq!(positions(&store, &tagged("t:0"), ReadOptions::default()), [1]);
    drop((snapshot, open));
}

#[test]
fn merge_reclaims_space_of_deleted_store() {
    let env = Env::memory();
    let db = Db::manual(&env);
    let store = db.store("s");
    let events: Vec<Event> =
        (0..500).map(|i| event("A", &[&format!("unique:{i}")]).data(vec![7; 100])).collect();
    db.store("kept").append(&events[..1], None).unwrap();
    for _ in 0..4 {
        store.append(&events, None).unwrap();
        db.engine.checkpoint().unwrap();
    }
    let entries = |db: &Db| {
        let stats = db.engine.stats().store;
        let of = |name: &str| stats.keyspaces.iter().find(|k| k.name == name).unwrap().entries;
        (of("events"), of("events.terms"))
    };
    assert_eq!(entries(&db).0, 2001);
    store.delete().unwrap();
    db.engine.compact().unwrap();
    assert_eq!(entries(&db), (1, 2));
}

#[test]
fn append_prepared_before_delete_is_rejected_or_precedes_it() {
    let db = Db::memory();
    let store = db.store("s");
    store.append(&[event("A", &[])], None).unwrap();
    let prepared = store.operation(&[event("B", &[])], AppendOptions::default()).unwrap();
    store.delete().unwrap();
    let refused = db.engine.commit(vec![Box::new(prepared)], Default::default()).map_err(EventsError::from);
    assert!(matches!(refused, Err(EventsError::UnknownStore { .. })), "{refused:?}");
    // Concurrent writers and a deleter: every result is a position in the store it went to, or a typed
    // rejection.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    match store.append(&[event("E", &["t"])], None) {
                        Ok(appended) => assert_eq!(appended.first, appended.last),
                        Err(EventsError::UnknownStore { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        scope.spawn(|| (0..50).filter(|_| store.delete().unwrap()).count());
    });
    let head = store.head().unwrap().map_or(0, |head| head.0);
    assert_eq!(store.count(&tagged("t")).unwrap(), head);
    assert_eq!(positions(&store, &tagged("t"), ReadOptions::default()), (1..=head).collect::<Vec<_>>());
}

/// Appends, flushes, deletes, creates again, merges; returns how many of the numbered steps were
/// acknowledged.
fn story(env: &Env) -> Result<u32, (u32, EventsError)> {
    let model = std::sync::Arc::new(ropewalk_events::EventsModel::new(1));
    let options = ropewalk_engine::EngineOptions {
        background: ropewalk_engine::Background::Manual,
        ..Default::default()
    };
    let done = std::cell::Cell::new(0);
    let run = || -> Result<(), EventsError> {
        let engine = ropewalk_engine::Engine::open(env, "/db".as_ref(), options, vec![model.clone()])?;
        let engine = std::sync::Arc::new(engine);
        let step = |result: Result<(), EventsError>| result.map(|()| done.set(done.get() + 1));
        let store = ropewalk_events::EventStore::new(engine.clone(), model, "s")?;
        step(store.append(&[event("Old", &["t"]), event("Old", &["t"])], None).map(drop))?;
        step(engine.checkpoint().map_err(Into::into))?;
        step(store.append(&[event("Old", &["t"])], None).map(drop))?;
        step(store.delete().map(|_| ()))?;
        step(store.append(&[event("New", &["t"])], None).map(drop))?;
        step(engine.checkpoint().map_err(Into::into))?;
        step(engine.compact().map_err(Into::into))
    };
    run().map(|()| done.get()).map_err(|error| (done.get(), error))
}

#[test]
fn a_power_cut_at_any_operation_leaves_all_of_it_or_nothing() {
    let mut cuts = 0;
    loop {
        let disk = ropewalk_vfs::FaultyVfs::new(cuts);
        let env = Env { vfs: std::sync::Arc::new(disk.clone()), ..Env::memory() };
        disk.crash_at(cuts);
        let outcome = story(&env);
        let acknowledged = match &outcome {
            Ok(steps) => *steps,
            Err((steps, _)) => *steps,
        };
        disk.crash();
        let db = Db::manual(&env);
        let store = db.store("s");
        let found = crate::read(&store, &tagged("t"), ReadOptions::default());
        let kinds: Vec<&str> = found.iter().map(|event| event.event.event_type.as_str()).collect();
        // After each acknowledged step: the guaranteed state, and the possible effect of the next step.
        let states: [&[&str]; 5] = [&[], &["Old", "Old"], &["Old", "Old", "Old"], &[], &["New"]];
        let at = [0, 1, 1, 2, 3, 4, 4, 4][acknowledged as usize];
        let expected = &states[at..(at + 2).min(5)];
        assert!(expected.contains(&kinds.as_slice()), "cut {cuts}, {acknowledged} steps: {kinds:?}");
        assert_eq!(store.head().unwrap().map_or(0, |head| head.0), kinds.len() as u64, "cut {cuts}");
        assert!(db.engine.verify().unwrap().violations.is_empty(), "cut {cuts}");
        // The next store of the name never gets a number that was used.
        store.delete().unwrap();
        let last = (1..=2).rev().find(|id| db.model.store_name(*id).is_some()).unwrap_or(0);
        store.create().unwrap();
        assert!(store.id().unwrap() > last, "cut {cuts}");
        if outcome.is_ok() {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 20, "the story does something: {cuts}");
}
