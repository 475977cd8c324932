//! Guarantees that other DCB stores were observed to break; ours hold.

use ropewalk_base::Position;
use ropewalk_events::{AppendCondition, Query, QueryItem};

use crate::{Db, event};

/// A store that flattens OR items into "types {A, B} and tags {x:1, y:2}" accepts this.
#[test]
fn condition_items_are_not_flattened() {
    let store = Db::memory().store("s");
    store.append(&[event("A", &["x:1"])], None).unwrap();
    let query = Query::from_items([QueryItem::new(["A"], ["x:1"]), QueryItem::new(["B"], ["y:2"])]);
    let error = store.append(&[event("C", &[])], Some(AppendCondition::none_match(query))).unwrap_err();
    assert!(error.is_refused(), "{error}");
}

/// A store whose order is by snapshot does not see commits newer than an open transaction.
#[test]
fn an_open_snapshot_hides_nothing_from_conditions() {
    let db = Db::memory();
    let store = db.store("s");
    let _open = db.engine.snapshot();
    store.append(&[event("Registered", &["username:bob"])], None).unwrap();
    let guard = AppendCondition::none_match(Query::from_tags(["username:bob"]));
    assert!(store.append(&[event("Registered", &["username:bob"])], Some(guard)).unwrap_err().is_refused());
    assert_eq!(store.head().unwrap(), Some(Position(1)));
}

/// Embedded stores with one unsynchronised writer were corrupted by this within a second.
#[test]
fn any_number_of_threads_append_through_one_handle() {
    let db = Db::memory();
    let store = db.store("s");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..500 {
                    store
                        .append(&[event("E", &[&format!("t:{thread}"), &format!("n:{thread}-{i}")])], None)
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store.head().unwrap(), Some(Position(4000)));
    assert_eq!(store.count(&Query::from_tags(["t:3"])).unwrap(), 500);
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

/// Isolation headers or not: `after` is honoured.
#[test]
fn after_is_honoured() {
    let store = Db::memory().store("s");
    store.append(&[event("A", &["t"])], None).unwrap();
    let condition = AppendCondition::none_match(Query::from_tags(["t"]));
    assert!(store.append(&[event("B", &[])], Some(condition.clone())).is_err());
    store.append(&[event("B", &[])], Some(condition.after(Position(1)))).unwrap();
}
