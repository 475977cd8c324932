//! Tracking with and without events, and retries that are detected by the events' ids.

use ropewalk_base::Position;
use ropewalk_engine::EngineOptions;
use ropewalk_events::{
    AppendCondition, AppendOptions, Event, EventStore, EventsError, Query, ReadOptions, Tracking,
};
use ropewalk_vfs::Env;
use uuid::Uuid;

use crate::{Db, event, positions, read};

fn tracking(position: u64) -> AppendOptions {
    let tracking = Some(Tracking { source: "upstream".into(), position });
    AppendOptions { tracking, ..AppendOptions::default() }
}

fn tracked(store: &EventStore) -> Vec<Option<u64>> {
    let all = read(store, &Query::all(), ReadOptions::default());
    all.iter().map(|event| event.tracking.as_ref().map(|t| t.position)).collect()
}

#[test]
fn every_event_of_the_append_carries_it() {
    let env = Env::memory();
    let db = Db::manual(&env);
    let store = db.store("s");
    store.append(&[event("A", &["t"])], None).unwrap();
    store.append_with(&[event("B", &["t"]), event("C", &["ü"]).metadata("k", "ß")], tracking(7)).unwrap();
    let expected = [None, Some(7), Some(7)];
    assert_eq!(tracked(&store), expected);
    db.engine.compact().unwrap();
    assert_eq!(tracked(&store), expected);
    drop((store, db));
    let db = Db::manual(&env);
    assert_eq!(tracked(&db.store("s")), expected);
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn tracking_needs_no_events() {
    let env = Env::memory();
    let db = Db::open(&env, EngineOptions::default());
    let store = db.store("s");
    let appended = store.append_with(&[], tracking(5)).unwrap();
    assert_eq!((appended.first, appended.last), (Position::ZERO, Position::ZERO));
    assert_eq!((store.head().unwrap(), store.tracking("upstream").unwrap()), (None, Some(5)));
    let error = store.append_with(&[], tracking(5)).unwrap_err();
    assert!(matches!(error, EventsError::TrackingConflict { stored: 5, .. }), "{error}");
    store.append(&[event("A", &[])], None).unwrap();
    store.append_with(&[], tracking(6)).unwrap();
    store.append(&[event("A", &[])], None).unwrap();
    drop((store, db));
    let db = Db::open(&env, EngineOptions::default());
    let store = db.store("s");
    assert_eq!(store.tracking("upstream").unwrap(), Some(6));
    assert_eq!(positions(&store, &Query::all(), ReadOptions::default()), [1, 2]);
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn a_key_covers_an_append_without_events() {
    let store = Db::memory().store("s");
    let options = AppendOptions { idempotency_key: Some("k".into()), ..tracking(1) };
    let first = store.append_with(&[], options.clone()).unwrap();
    assert_eq!(store.append_with(&[], options).unwrap(), first);
    assert_eq!(first.last, Position::ZERO);
}

#[test]
fn condition_is_checked_before_tracking() {
    let store = Db::memory().store("s");
    store.append_with(&[event("A", &[])], tracking(3)).unwrap();
    let options =
        AppendOptions { conditions: vec![AppendCondition::none_match(Query::all())], ..tracking(3) };
    let error = store.append_with(&[event("A", &[])], options).unwrap_err();
    assert!(matches!(error, EventsError::AppendConditionFailed { .. }), "{error}");
}

#[test]
fn retry_is_detected_by_event_ids() {
    let store = Db::memory().store("s");
    let once = |after: Option<u64>, tracked: Option<u64>| AppendOptions {
        conditions: vec![AppendCondition {
            fail_if_events_match: Query::from_tags(["t"]),
            after: after.map(Position),
        }],
        repeat_by_id: true,
        ..tracked.map_or_else(AppendOptions::default, tracking)
    };
    let with_id = |id: u128| event("A", &["t"]).id(Uuid::from_u128(id));
    let both = [with_id(1), with_id(2)];
    let conflict = |events: &[Event], after: Option<u64>| {
        let error = store.append_with(events, once(after, None)).unwrap_err();
        assert!(matches!(error, EventsError::AppendConditionFailed { .. }), "{error}");
    };
    store.append(&[event("Other", &["u"])], None).unwrap();
    let first = store.append_with(&both, once(Some(1), Some(9))).unwrap();
    assert_eq!((first.first, first.last), (Position(2), Position(3)));
    // Again, with tracking that does not rise and a lower `after`: the same positions, nothing written.
    for after in [None, Some(1)] {
        let again = store.append_with(&both, once(after, Some(9))).unwrap();
        assert_eq!((again.first, again.last), (Position(2), Position(3)));
    }
    // Any other events are a conflict: other ids, another order, fewer, more, without ids.
    conflict(&[with_id(1), with_id(3)], None);
    conflict(&[with_id(2), with_id(1)], None);
    conflict(&[with_id(1), with_id(2), with_id(3)], None);
    conflict(&[with_id(2)], Some(1));
    conflict(&[event("A", &["t"])], None);
    assert_eq!(store.append_with(&both[..1], once(None, None)).unwrap().last, Position(2));
    // Later matches do not matter; without the option no retry is detected.
    store.append(&[with_id(4)], None).unwrap();
    assert_eq!(store.append_with(&both, once(None, None)).unwrap().last, Position(3));
    let plain = AppendOptions { repeat_by_id: false, ..once(None, None) };
    assert!(store.append_with(&both, plain).unwrap_err().is_refused());
    assert_eq!(store.head().unwrap(), Some(Position(4)));
}
