//! Random appends, reads, checkpoints, merges and reopenings against a `Vec` of events.

use proptest::prelude::*;
use ropewalk_base::Position;
use ropewalk_events::{AppendCondition, AppendOptions, Event, EventsError, Query, QueryItem, ReadOptions};
use ropewalk_vfs::Env;

use crate::{Db, positions, read};

#[derive(Debug, Clone)]
enum Step {
    Append { store: usize, events: Vec<(usize, Vec<usize>)>, condition: Option<(Query, Option<u64>)> },
    Read { store: usize, query: Query, options: ReadOptions },
    Delete { store: usize },
    Checkpoint,
    Background,
    Compact,
    Reopen,
}

/// Some are prefixes of others.
const TYPES: [&str; 5] = ["T", "T1", "T10", "T2", "U"];
const TAGS: [&str; 6] = ["tag:0", "tag:1", "tag:10", "tag:11", "tag:2", "other"];
const PREFIXES: [&str; 6] = ["T1", "T", "tag:1", "tag:", "o", "nothing"];

fn some(names: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(names).prop_map(str::to_owned), 0..most)
}

fn query() -> impl Strategy<Value = Query> {
    let prefixes = || prop_oneof![3 => Just(Vec::new()), 1 => some(&PREFIXES, 3)];
    let item = (some(&TYPES, 3), some(&TAGS, 3), prefixes(), prefixes())
        .prop_map(|(types, tags, type_prefixes, tag_prefixes)| QueryItem {
            types,
            tags,
            type_prefixes,
            tag_prefixes,
        })
        .prop_filter("an item says something", |item| !item.is_empty());
    prop::collection::vec(item, 0..4).prop_map(Query::from_items)
}

fn read_options() -> impl Strategy<Value = ReadOptions> {
    let bound = || prop::option::weighted(0.3, 0..90_u64);
    (bound(), bound(), bound(), any::<bool>(), prop::option::weighted(0.4, 0..12_u64)).prop_map(
        |(from, after, before, backwards, limit)| ReadOptions {
            from: from.map(Position),
            after: after.map(Position),
            before: before.map(Position),
            backwards,
            limit,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let event =
        (0..5_usize, prop::collection::btree_set(0..6_usize, 0..4).prop_map(|s| s.into_iter().collect()));
    let events = prop::collection::vec(event, 1..6);
    prop_oneof![
        8 => (0..2_usize, events, prop::option::of((query(), prop::option::of(0..90_u64))))
            .prop_map(|(store, events, condition)| Step::Append { store, events, condition }),
        6 => (0..2_usize, query(), read_options())
            .prop_map(|(store, query, options)| Step::Read { store, query, options }),
        1 => (0..2_usize).prop_map(|store| Step::Delete { store }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Background),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

fn matches(query: &Query, event: &Event) -> bool {
    let item = |item: &QueryItem| {
        let no_type = item.types.is_empty() && item.type_prefixes.is_empty();
        let of_type = item.types.contains(&event.event_type);
        let like_type = item.type_prefixes.iter().any(|prefix| event.event_type.starts_with(prefix.as_str()));
        let tags = item.tags.iter().all(|tag| event.tags.contains(tag));
        let like = |prefix: &String| event.tags.iter().any(|tag| tag.starts_with(prefix.as_str()));
        (no_type || of_type || like_type) && tags && item.tag_prefixes.iter().all(like)
    };
    let found = query.is_all() || query.items.iter().any(item);
    assert_eq!(query.matches(&event.event_type, event.tags.iter().map(String::as_str)), found);
    found
}

fn expected(model: &[Event], query: &Query, options: &ReadOptions) -> Vec<u64> {
    let inside = |p: u64| {
        let from = options.from.is_none_or(|from| if options.backwards { p <= from.0 } else { p >= from.0 });
        from && options.after.is_none_or(|after| p > after.0)
            && options.before.is_none_or(|before| p < before.0)
    };
    let mut found: Vec<u64> =
        (1..).zip(model).filter(|(p, e)| inside(*p) && matches(query, e)).map(|(p, _)| p).collect();
    if options.backwards {
        found.reverse();
    }
    found.truncate(options.limit.unwrap_or(u64::MAX) as usize);
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_query_equals_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let env = Env::memory();
        let mut db = Db::manual(&env);
        let mut model: [Vec<Event>; 2] = Default::default();
        for step in steps {
            match step {
                Step::Append { store, events, condition } => {
                    let events: Vec<Event> = events.iter().enumerate().map(|(i, (t, tags))| {
                        let event = Event::new(TYPES[*t]).data(format!("{i}"));
                        tags.iter().fold(event, |event, tag| event.tag(TAGS[*tag]))
                    }).collect();
                    let known = &mut model[store];
                    let conflict = condition.as_ref().and_then(|(query, after)| {
                        (1..).zip(known.iter()).find(|(p, e)| *p > after.unwrap_or(0) && matches(query, e)).map(|(p, _)| p)
                    });
                    let conditions = condition.iter().map(|(query, after)| AppendCondition {
                        fail_if_events_match: query.clone(), after: after.map(Position),
                    }).collect();
                    let result = db.store(&format!("s{store}")).append_with(&events, AppendOptions { conditions, ..Default::default() });
                    match (result, conflict) {
                        (Ok(done), None) => {
                            prop_assert_eq!(done.first.0, known.len() as u64 + 1);
                            known.extend(events);
                            prop_assert_eq!(done.last.0, known.len() as u64);
                        }
                        (Err(EventsError::AppendConditionFailed { position, .. }), Some(first)) => prop_assert_eq!(position.0, first),
                        (result, conflict) => prop_assert!(false, "{:?} but the model says {:?}", result, conflict),
                    }
                }
                Step::Read { store, query, options } => {
                    let (handle, known) = (db.store(&format!("s{store}")), &model[store]);
                    let want = expected(known, &query, &options);
                    let got = read(&handle, &query, options);
                    prop_assert_eq!(got.iter().map(|e| e.position.0).collect::<Vec<_>>(), want);
                    for event in &got {
                        prop_assert_eq!(&event.event, &known[event.position.0 as usize - 1]);
                    }
                    let all = expected(known, &query, &ReadOptions::default());
                    prop_assert_eq!(handle.count(&query).unwrap(), all.len() as u64);
                    prop_assert_eq!(handle.read_last(&query).unwrap().map(|e| e.position.0), all.last().copied());
                    let after = options.after.unwrap_or_default();
                    prop_assert_eq!(handle.exists(&query, Some(after)).unwrap(), all.iter().any(|p| *p > after.0));
                }
                Step::Delete { store } => {
                    db.store(&format!("s{store}")).delete().unwrap();
                    model[store].clear();
                }
                Step::Checkpoint => db.engine.checkpoint().unwrap(),
                Step::Background => { db.engine.background_step().unwrap(); }
                Step::Compact => db.engine.compact().unwrap(),
                Step::Reopen => {
                    drop(db);
                    db = Db::manual(&env);
                }
            }
        }
        for (store, known) in model.iter().enumerate() {
            let all = positions(&db.store(&format!("s{store}")), &Query::all(), ReadOptions::default());
            prop_assert_eq!(all, (1..=known.len() as u64).collect::<Vec<_>>());
        }
        let report = db.engine.verify().unwrap();
        prop_assert!(report.violations.is_empty(), "{:?}", report.violations);
    }
}
