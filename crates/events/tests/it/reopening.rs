//! Acknowledged events survive reopening, whether they were in the log, frozen memory or runs.

use ropewalk_base::Seq;
use ropewalk_events::{AppendCondition, AppendOptions, Event, EventsError, Query, ReadOptions};
use ropewalk_vfs::Env;

use crate::{Db, event, positions};

#[test]
fn events_survive_in_log_and_runs() {
    let env = Env::memory();
    let mut total = 0;
    for round in 0..6 {
        let db = Db::manual(&env);
        let store = db.store("s");
        assert_eq!(store.head().unwrap().map_or(0, |p| p.0), total);
        for i in 0..100 {
            store.append(&[event("E", &[&format!("round:{round}")]).data(vec![i; 300])], None).unwrap();
            total += 1;
        }
        if round % 2 == 0 {
            db.engine.checkpoint().unwrap();
        }
        let tag = Query::from_tags([format!("round:{}", round / 2)]);
        assert_eq!(store.count(&tag).unwrap(), 100);
    }
    let db = Db::manual(&env);
    let all = positions(&db.store("s"), &Query::all(), ReadOptions::backwards());
    assert_eq!(all, (1..=600).rev().collect::<Vec<_>>());
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn replayed_events_are_found_by_tag_and_type_before_and_after_new_ones() {
    let env = Env::memory();
    let tags = |i: u64| [format!("id:{i}"), format!("even:{}", i.is_multiple_of(2))];
    let append = |db: &Db, i: u64| {
        let event =
            tags(i).iter().fold(Event::new(["A", "B", "C"][i as usize % 3]), |event, tag| event.tag(tag));
        db.store("s").append(&[event], None).unwrap();
    };
    let check = |db: &Db, count: u64| {
        let positions = |query| positions(&db.store("s"), &query, ReadOptions::default());
        let numbers =
            |keep: fn(u64) -> bool| (0..count).filter(|i| keep(*i)).map(|i| i + 1).collect::<Vec<_>>();
        assert_eq!(positions(Query::from_tags(["even:true"])), numbers(|i| i % 2 == 0));
        assert_eq!(positions(Query::from_types(["B"])), numbers(|i| i % 3 == 1));
        assert_eq!(positions(Query::from_tags([format!("id:{}", count - 1)])), [count]);
        assert!(db.engine.verify().unwrap().violations.is_empty());
    };
    let db = Db::manual(&env);
    (0..50).for_each(|i| append(&db, i));
    drop(db);
    // A reader first, a condition first, an append first, a flush first.
    for first in 0..4 {
        let db = Db::manual(&env);
        assert!(db.engine.recovery().records >= 50, "the events are replayed");
        let count = 50 + 3 * first;
        match first {
            0 => check(&db, count),
            1 => {
                let taken = AppendCondition::none_match(Query::from_tags(["id:7"]));
                let refused = db.store("s").append(&[Event::new("A")], Some(taken)).unwrap_err();
                assert!(matches!(refused, EventsError::AppendConditionFailed { .. }), "{refused}");
            }
            2 => {}
            _ => db.engine.checkpoint().unwrap(),
        }
        (count..count + 3).for_each(|i| append(&db, i));
        check(&db, count + 3);
    }
}

#[test]
fn thousand_stores_survive_reopening() {
    let env = Env::memory();
    let db = Db::manual(&env);
    for i in 0..1000 {
        db.store(&format!("store {i}")).append(&[Event::new("E").data(i.to_string())], None).unwrap();
    }
    db.engine.checkpoint().unwrap();
    for i in 0..500 {
        db.store(&format!("store {i}")).append(&[Event::new("F")], None).unwrap();
    }
    drop(db);
    let db = Db::manual(&env);
    assert_eq!(db.model.stores_at(db.engine.seq()).len(), 1000);
    for i in 0..1000 {
        let store = db.store(&format!("store {i}"));
        assert_eq!(store.head().unwrap().unwrap().0, if i < 500 { 2 } else { 1 });
        let first =
            store.read(&Query::from_types(["E"]), ReadOptions::default()).unwrap().next().unwrap().unwrap();
        assert_eq!(first.event.data, i.to_string().as_bytes());
    }
    db.store("new").append(&[Event::new("E")], None).unwrap();
    assert_eq!(db.model.stores_at(db.engine.seq()).len(), 1001);
}

#[test]
fn the_change_feed_resumes_from_any_commit() {
    let env = Env::memory();
    let db = Db::manual(&env);
    for i in 0..50 {
        db.store(if i % 2 == 0 { "even" } else { "odd" })
            .append_with(&[Event::new("E")], AppendOptions::default())
            .unwrap();
    }
    db.engine.checkpoint().unwrap();
    drop(db);
    let db = Db::manual(&env);
    db.store("even").append(&[Event::new("E")], None).unwrap();
    for start in [1, 17, 51, 52] {
        let mut feed = db.engine.changes(Seq(start)).unwrap();
        let mut seen = Vec::new();
        while let Some(change) = feed.next().unwrap() {
            seen.push(change.seq.0);
        }
        assert_eq!(seen, (start..=51).collect::<Vec<_>>());
        assert_eq!(feed.next_seq().0, 52);
    }
}
