//! Terms with the same hash: results are still exact, in memory, in runs and after merging. Under test, names
//! that begin with `collides:` have the same hash.

use std::path::Path;
use std::sync::Arc;

use ropewalk_engine::{Engine, EngineOptions};
use ropewalk_vfs::Env;

use crate::event::types::Event;
use crate::event::types::Query;
use crate::event::types::ReadOptions;
use crate::model::EventsModel;
use crate::store::EventStore;

const TERMS: [&str; 4] = ["collides:a", "collides:b", "collides:c", "other"];

fn wanted(position: u64, term: usize) -> bool {
    // `a` on every event, so that its chunks are long; `b` and `c` sometimes, together or alone.
    match term {
        0 => true,
        1 => position % 97 < 3,
        2 => position % 89 < 2 || position == 1,
        _ => position.is_multiple_of(5),
    }
}

fn check(store: &EventStore, count: u64) {
    for (term, tag) in TERMS.iter().enumerate() {
        let query = Query::from_tags([*tag]);
        let expected: Vec<u64> = (1..=count).filter(|p| wanted(*p, term)).collect();
        for backwards in [false, true] {
            let options = ReadOptions { backwards, ..ReadOptions::default() };
            let mut found: Vec<u64> =
                store.read(&query, options).unwrap().map(|event| event.unwrap().position.0).collect();
            if backwards {
                found.reverse();
            }
            assert_eq!(found, expected, "{tag}, backwards {backwards}");
        }
        for after in [0, 50, 300, 700, 999] {
            let next = expected.iter().any(|p| *p > after);
            assert_eq!(store.exists(&query, Some(after.into())).unwrap(), next, "{tag} after {after}");
        }
    }
}

#[test]
fn terms_with_same_hash_are_distinguished() {
    let model = Arc::new(EventsModel::new(1));
    let engine =
        Engine::open(&Env::memory(), Path::new("/db"), EngineOptions::default(), vec![model.clone()]);
    let engine = Arc::new(engine.unwrap());
    let store = EventStore::new(engine.clone(), model, "s").unwrap();
    for position in 1..=1000 {
        let tags = TERMS.iter().enumerate().filter(|(term, _)| wanted(position, *term));
        let event = tags.fold(Event::new("T"), |event, (_, tag)| event.tag(*tag));
        store.append(&[event], None).unwrap();
        if position % 400 == 0 {
            check(&store, position);
            engine.checkpoint().unwrap();
            check(&store, position);
        }
    }
    engine.compact().unwrap();
    check(&store, 1000);
    assert!(engine.verify().unwrap().violations.is_empty());
}
