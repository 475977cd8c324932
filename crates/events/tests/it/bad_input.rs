//! Invalid input, which is rejected with a typed error that names the reason and the place.

use ropewalk_base::Position;
use ropewalk_engine::EngineError;
use ropewalk_events::{
    AppendCondition, AppendOptions, Event, EventStore, EventsError, Query, QueryItem, ReadOptions,
    TEXT_BYTES_MAX, Tracking,
};

use crate::{Db, event, positions};

fn refused(result: Result<impl Sized, EventsError>) -> String {
    result.err().expect("must be refused").to_string()
}

#[test]
fn an_empty_append() {
    let error = Db::memory().store("s").append(&[], None).unwrap_err();
    assert!(matches!(error, EventsError::EmptyAppend));
}

#[test]
fn types_and_tags_over_the_limits() {
    let store = Db::memory().store("s");
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let good = event("A", &[]);
    let said = refused(store.append(&[good.clone(), Event::new(long.clone())], None));
    assert!(said.starts_with("event 1 of the append: type of 65536 bytes"), "{said}");
    assert!(refused(store.append(&[good.clone().tag(long.clone())], None)).contains("tag of 65536 bytes"));
    assert!(refused(store.append(&[Event::new("")], None)).contains("type of 0 bytes"));
    assert!(refused(store.append(&[good.clone().tag("")], None)).contains("tag of 0 bytes"));
    assert!(refused(store.append(&[good.clone().metadata("k", long)], None)).contains("metadata"));
    let many = (0..=TEXT_BYTES_MAX).fold(good.clone(), |e, i| e.tag(i.to_string()));
    assert!(refused(store.append(&[many], None)).contains("more than 65535 tags"));
    // Exactly at the limits the append succeeds.
    let limit = "x".repeat(TEXT_BYTES_MAX);
    store.append(&[Event::new(limit.clone()).tag(limit.clone())], None).unwrap();
    assert_eq!(positions(&store, &Query::from_tags([limit]), ReadOptions::default()), [1]);
}

#[test]
fn duplicate_tags_and_metadata_keys() {
    let store = Db::memory().store("s");
    assert!(refused(store.append(&[event("A", &["t", "u", "t"])], None)).contains("duplicate tag \"t\""));
    let twice = Event::new("A").metadata("k", "1").metadata("k", "2");
    assert!(refused(store.append(&[twice], None)).contains("duplicate metadata key \"k\""));
    assert_eq!(store.head().unwrap(), None);
}

#[test]
fn a_batch_over_the_record_limit() {
    let db = Db::memory();
    let store = db.store("s");
    let big = Event::new("A").data(vec![0; 65 << 20]);
    let error = store.append(&[big], None).unwrap_err();
    assert!(matches!(error, EventsError::Engine(EngineError::TooLarge { .. })), "{error}");
    store.append(&[Event::new("A").data(vec![7; 20 << 20])], None).unwrap();
    assert_eq!(store.read_last(&Query::all()).unwrap().unwrap().event.data.len(), 20 << 20);
}

#[test]
fn invalid_queries_are_rejected() {
    let store = Db::memory().store("s");
    let read = |query: Query| refused(store.read(&query, ReadOptions::default()).map(|_| ()));
    let empty_item = Query::from_tags(["t"]).or(QueryItem::default());
    assert_eq!(
        read(empty_item.clone()),
        "query: item 1 has neither types nor tags; a query without items means all events"
    );
    assert!(read(Query::from_types([""])).contains("empty"));
    assert!(read(Query::from_tags((0..2000).map(|i| i.to_string()))).contains("more than 1000"));
    assert!(read(Query::from_items(vec![QueryItem::new(["A"], [""; 0]); 2000])).contains("2000 items"));
    assert!(read(Query::from_items([QueryItem::default().tag_prefix("")])).contains("empty"));
    // With a key only the sequencer could decide, and it does not scan every event.
    let prefix = Query::from_items([QueryItem::default().type_prefix("A")]);
    let options = AppendOptions {
        idempotency_key: Some("k".to_owned()),
        ..AppendOptions::condition(AppendCondition::none_match(prefix))
    };
    let what = "query: a condition with prefixes cannot go with an idempotency key";
    assert_eq!(refused(store.append_with(&[event("A", &[])], options)), what);
    let condition = AppendCondition::none_match(empty_item.clone());
    assert!(refused(store.append(&[event("A", &[])], Some(condition))).contains("item 1"));
    assert!(store.count(&empty_item).is_err() && store.subscribe(&empty_item, None).is_err());
}

#[test]
fn names_and_keys() {
    let db = Db::memory();
    for name in ["", "a\nb", &"x".repeat(256)] {
        let made = EventStore::new(db.engine.clone(), db.model.clone(), name);
        assert!(matches!(made, Err(EventsError::InvalidName { kind: "event store", .. })), "{name:?}");
        let options = AppendOptions { idempotency_key: Some(name.to_owned()), ..Default::default() };
        assert!(
            refused(db.store("s").append_with(&[event("A", &[])], options)).starts_with("idempotency key")
        );
        let tracking = Some(Tracking { source: name.to_owned(), position: 1 });
        let options = AppendOptions { tracking, ..Default::default() };
        assert!(
            refused(db.store("s").append_with(&[event("A", &[])], options)).starts_with("tracking source")
        );
    }
}

#[test]
fn positions_beyond_the_head_are_empty_not_wrong() {
    let store = Db::memory().store("s");
    store.append(&[event("A", &[])], None).unwrap();
    let far = Position(u64::MAX);
    assert!(positions(&store, &Query::all(), ReadOptions::default().from(far)).is_empty());
    assert!(positions(&store, &Query::all(), ReadOptions::default().after(far)).is_empty());
    assert_eq!(positions(&store, &Query::all(), ReadOptions::backwards().from(far)), [1]);
    assert!(positions(&store, &Query::all(), ReadOptions::default().before(Position(0))).is_empty());
    store.append(&[event("A", &[])], Some(AppendCondition::none_match(Query::all()).after(far))).unwrap();
}

#[test]
fn unknown_stores_read_as_empty() {
    let store = Db::memory().store("nobody");
    assert_eq!(store.head().unwrap(), None);
    assert_eq!(store.count(&Query::all()).unwrap(), 0);
    assert_eq!(store.read_last(&Query::from_types(["A"])).unwrap(), None);
    assert_eq!(store.tracking("up").unwrap(), None);
}
