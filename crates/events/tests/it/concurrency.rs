//! Many threads at once: DCB's guarantees hold in every interleaving.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ropewalk_events::{AppendCondition, AppendOptions, Event, Query, ReadOptions};
use ropewalk_vfs::Env;

use crate::{Db, event, positions, read};

#[test]
fn one_winner_per_username() {
    let db = Db::memory();
    let store = db.store("users");
    let wins = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for name in 0..50 {
                    let tag = format!("username:{name}");
                    let condition = AppendCondition::none_match(Query::from_tags([tag.clone()]));
                    match store.append(&[event("Registered", &[&tag])], Some(condition)) {
                        Ok(_) => wins.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert!(error.is_refused(), "{error}");
                            0
                        }
                    };
                }
            });
        }
    });
    assert_eq!(wins.into_inner(), 50);
    let tags: HashSet<String> =
        read(&store, &Query::all(), ReadOptions::default()).into_iter().flat_map(|e| e.event.tags).collect();
    assert_eq!(tags.len(), 50);
}

#[test]
fn readers_see_whole_appends_in_order_while_writers_write_and_flush() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    let model = std::sync::Arc::new(ropewalk_events::EventsModel::new(1));
    let options = ropewalk_engine::EngineOptions { memory_budget: 2 << 20, ..Default::default() };
    let engine = ropewalk_engine::Engine::open(&env, dir.path(), options, vec![model.clone()]).unwrap();
    let db = Db { engine: engine.into(), model };
    let store = db.store("s");
    let done = AtomicBool::new(false);
    let (written, rounds) = (AtomicU64::new(0), 250);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (store, written) = (store.clone(), &written);
                scope.spawn(move || {
                    for round in 0..rounds {
                        // Three events that belong together.
                        let tag = format!("batch:{writer}-{round}");
                        let events: Vec<Event> = (0..3)
                            .map(|i| event("E", &[&tag, &format!("w:{writer}")]).data(vec![i; 400]))
                            .collect();
                        let done = store.append_with(&events, AppendOptions::default()).unwrap();
                        assert_eq!(done.last.0 - done.first.0, 2);
                        written.fetch_add(3, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let reader = store.read(&Query::all(), ReadOptions::default()).unwrap();
                    let head = reader.head().map_or(0, |p| p.0);
                    assert_eq!(head % 3, 0, "half an append is visible");
                    let mut next = 1;
                    for event in reader {
                        assert_eq!(event.unwrap().position.0, next);
                        next += 1;
                    }
                    assert_eq!(next, head + 1);
                    let mut last =
                        positions(&store, &Query::from_tags(["w:2"]), ReadOptions::backwards().limit(30));
                    last.reverse();
                    assert!(last.is_sorted() && last.len().is_multiple_of(3));
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.head().unwrap().unwrap().0, written.into_inner());
    assert!(db.engine.stats().checkpoint.0 > 0, "the test was meant to flush while it ran");
    db.engine.compact().unwrap();
    let report = db.engine.verify().unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

#[test]
fn submitted_appends_keep_their_order() {
    let db = Db::memory();
    let store = db.store("s");
    let pending: Vec<_> = (0..2000)
        .map(|i: u32| {
            store.submit(&[Event::new("E").data(i.to_le_bytes())], AppendOptions::default()).unwrap()
        })
        .collect();
    let positions: Vec<u64> = pending.into_iter().map(|p| p.wait().unwrap().last.0).collect();
    assert_eq!(positions, (1..=2000).collect::<Vec<_>>());
}
