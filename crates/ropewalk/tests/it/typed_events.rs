//! Typed events, composed decision models, queries of no event.

use core::time::Duration;
use std::sync::Arc;

use ropewalk::events::{
    DecisionError, Delivery, EventsError, FromEvent, QueryItem, ReadOptions, Recorded, RetryPolicy,
    SequencedEventRef, ToEvent, count, exists, to_events, try_projection, typed_projection,
};
use ropewalk::groups::GroupSettings;
use ropewalk::projections::{
    ApplyError, MaterializedProjection, Output, ProjectionError, ProjectionRun, RebuildMode,
};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{
    AppendCondition, AppendOptions, Class, Database, Error, Event, EventStore, Isolation, Position, Query,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shop {
    Placed { order: String, cents: u64 },
    Paid { order: String },
}

impl ToEvent for Shop {
    fn to_event(&self) -> Result<Event, ApplyError> {
        let (name, order) = match self {
            Self::Placed { order, .. } if order.is_empty() => return Err("an order without a name".into()),
            Self::Placed { order, .. } => ("Placed", order),
            Self::Paid { order } => ("Paid", order),
        };
        Ok(Event::new(name).tag(format!("order:{order}")).data(serde_json::to_vec(self)?))
    }
}

impl FromEvent for Shop {
    const TYPES: &'static [&'static str] = &["Placed", "Paid"];

    fn from_event(event: &impl Recorded) -> Result<Self, ApplyError> {
        Ok(serde_json::from_slice(event.data())?)
    }
}

fn open() -> (Database, EventStore) {
    let db = Database::in_memory().unwrap();
    let store = db.events("shop").unwrap();
    (db, store)
}

fn placed(order: &str, cents: u64) -> Shop {
    Shop::Placed { order: order.to_owned(), cents }
}

fn open_cents() -> impl ropewalk::events::Projection<State = u64> {
    typed_projection(Shop::query(), 0_u64, |sum, event| {
        if let Shop::Placed { cents, .. } = event {
            *sum += cents;
        }
    })
}

#[test]
fn d1_7_typed_events_come_back_as_they_were_appended() {
    let (_, store) = open();
    let events = [placed("o1", 5), placed("o2", 7), Shop::Paid { order: "o1".into() }];
    store.append(&[Event::new("Other").data("no JSON")], None).unwrap();
    store.append(&to_events(&events).unwrap(), None).unwrap();

    let all = store.read(&Shop::query(), ReadOptions::default()).unwrap().decoded();
    let all: Vec<(Position, Shop)> = all.collect::<Result<_, _>>().unwrap();
    assert_eq!(all[2], (Position(4), events[2].clone()));
    assert_eq!(all.len(), 3);
    let of_order = store.read(&Shop::tagged(["order:o2"]), ReadOptions::default()).unwrap();
    assert_eq!(
        of_order.decoded::<Shop>().map(|found| found.unwrap().1).collect::<Vec<_>>(),
        [placed("o2", 7)]
    );
    assert_eq!(store.decision(&open_cents()).unwrap().state, 12);
}

#[test]
fn d1_7_event_that_does_not_encode_is_named_by_its_place() {
    let error = to_events(&[placed("o1", 5), placed("", 1)]).unwrap_err();
    assert!(matches!(error, EventsError::Unencoded { ordinal: 1, .. }));
    assert_eq!(error.to_string(), "typed event 1: an order without a name");
    assert_eq!(Error::from(error).class(), Class::Invalid);
}

#[test]
fn d1_7_event_that_does_not_decode_fails_the_decision() {
    let (db, store) = open();
    store.append(&to_events(&[placed("o1", 5)]).unwrap(), None).unwrap();
    store.append(&[Event::new("Paid").data("{")], None).unwrap();
    let shown =
        |error: &str| error.starts_with("the event at position 2, of type \"Paid\", cannot be applied: ");

    let error = store.decision(&open_cents()).unwrap_err();
    assert!(matches!(error, EventsError::Unapplied { position: Position(2), .. }));
    assert!(shown(&error.to_string()), "{error}");
    // There is no retry: the event does not change.
    let mut runs = 0;
    let result = store.execute_decision(&(open_cents(), count(Query::all())), RetryPolicy::default(), |_| {
        runs += 1;
        Ok::<_, Error>(Vec::new())
    });
    assert!(matches!(result, Err(DecisionError::Store(EventsError::Unapplied { .. }))) && runs == 0);
    // In a transaction, and as the application error type.
    let error = db.begin().decision(&store, &open_cents()).unwrap_err();
    assert!(shown(&error.to_string()) && error.class() == Class::Invalid && !error.is_conflict());
    let refuses = try_projection(Query::all(), (), |(), event| match event.event_type() {
        "Paid" => Err("no payments here".into()),
        _ => Ok(()),
    });
    let error = store.decision(&refuses).unwrap_err().to_string();
    assert_eq!(error, "the event at position 2, of type \"Paid\", cannot be applied: no payments here");
    // A reader may continue after it.
    store.append(&to_events(&[placed("o2", 5)]).unwrap(), None).unwrap();
    let read = store.read(&Shop::query(), ReadOptions::default()).unwrap().decoded::<Shop>();
    assert_eq!(read.map(|event| event.is_ok()).collect::<Vec<_>>(), [true, false, true]);
}

/// The open orders, as rows.
struct Orders;

impl MaterializedProjection for Orders {
    fn query(&self) -> Query {
        Shop::query()
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("orders")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let table = TableDef::new(run.name("orders")?).column(ColumnDef::new("id", Type::TEXT));
        run.tx().tables().create_table(table.primary_key(["id"]))?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let orders = run.table("orders")?;
        // The methods of events read in place.
        assert!(event.tags().count() < 2 && Shop::TYPES.contains(&event.event_type()));
        match event.decode()? {
            Shop::Placed { order, .. } => {
                run.tx().tables().insert(&orders, &[("id", order.into())]).map(drop)?
            }
            Shop::Paid { order } => run.tx().tables().delete(&orders, &[order.into()]).map(drop)?,
        }
        Ok(())
    }
}

#[test]
fn d1_7_materialised_projection_decodes_as_a_decision_does() {
    let (db, store) = open();
    store.append(&to_events(&[placed("o1", 5), placed("o2", 6)]).unwrap(), None).unwrap();
    store.append(&[Event::new("Paid").data("?")], None).unwrap();
    let projections = db.projections("shop").unwrap();
    projections.register("orders", Arc::new(Orders)).unwrap();
    let error = projections.catch_up("orders").unwrap_err();
    let Error::Projection(ProjectionError::Failed { position, source, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!(position, Position(3));
    assert!(source.is::<Error>() || source.is::<EventsError>(), "{source:?}");
    assert_eq!(projections.status("orders").unwrap().checkpoint, Some(Position(2)));
    assert_eq!(projections.rebuild("orders", RebuildMode::ResumeOnly).unwrap(), None);
}

#[test]
fn d1_7_lists_and_options_of_models_are_models() {
    let (_, store) = open();
    for tag in ["a", "b", "a", "c"] {
        store.append(&[Event::new("E").tag(tag)], None).unwrap();
    }
    let of = |tag: &str| count(Query::from_tags([tag]));
    let decision = store.decision(&vec![of("a"), of("b"), of("x")]).unwrap();
    assert_eq!(decision.state, [2, 1, 0]);
    assert_eq!(decision.condition.fail_if_events_match.items.len(), 3);

    let coupon = |used: Option<&str>| (of("a"), used.map(|tag| exists(Query::from_tags([tag]))));
    assert_eq!(store.decision(&coupon(Some("c"))).unwrap().state, (2, Some(true)));
    let without = store.decision(&coupon(None)).unwrap();
    assert_eq!(without.state, (2, None));
    assert_eq!(without.condition.fail_if_events_match, Query::from_tags(["a"]));

    // The model needs no events, so no commit can conflict.
    let mut models = vec![of("a")];
    models.clear();
    let nothing = store.decision(&models).unwrap();
    assert!(nothing.condition.fail_if_events_match.is_none());
    store.append(&[Event::new("E").tag("a")], Some(nothing.condition)).unwrap();
}

#[test]
fn d1_7_query_of_no_event_finds_none() {
    let (db, store) = open();
    let none = Query::none();
    assert!(none.is_none() && !none.is_all() && none != Query::all());
    assert!(!none.matches("E", ["a"].into_iter()) && !none.has_prefixes());
    assert!(Query::all().is_all() && Query::from_items([]).is_all());
    let item = QueryItem::new(["E"], ["a"]);
    let one = Query::from_items([item.clone()]);
    assert_eq!(none.clone().or(item), one);
    assert_eq!(none.clone().union(one.clone()), one);
    assert_eq!(one.clone().union(none.clone()), one);
    assert!(none.clone().union(none.clone()).is_none());
    assert!(none.clone().union(Query::all()).is_all() && Query::all().union(none.clone()).is_all());

    store.append(&[Event::new("E").tag("a"), Event::new("F")], None).unwrap();
    for options in [ReadOptions::default(), ReadOptions::backwards(), ReadOptions::default().limit(1)] {
        let reader = store.read(&none, options).unwrap();
        assert_eq!(reader.head(), Some(Position(2)));
        assert_eq!(reader.count(), 0);
        let mut tx = db.begin();
        tx.append(&store, &[Event::new("G")], AppendOptions::default()).unwrap();
        assert_eq!(tx.read_events(&store, &none, options).unwrap().count(), 0);
    }
    assert_eq!((store.read_last(&none).unwrap(), store.count(&none).unwrap()), (None, 0));
    assert!(!store.exists(&none, None).unwrap());
    assert_eq!(store.fold(&none, 0, |count, _| count + 1).unwrap(), (0, Some(Position(2))));
    assert_eq!(store.scan(&none, ReadOptions::default(), |scan| scan.next_position()).unwrap(), None);
    let mut feed = store.subscribe(&none, None).unwrap();
    assert_eq!(feed.next(Duration::from_secs(5)).unwrap(), Some(Delivery::CaughtUp { head: Position(2) }));
    store.append(&[Event::new("E").tag("a")], None).unwrap();
    assert_eq!(feed.next(Duration::from_millis(1)).unwrap(), None);
}

#[test]
fn d1_7_condition_on_no_event_never_fails() {
    let (db, store) = open();
    store.append(&[Event::new("E")], None).unwrap();
    let condition = AppendCondition::none_match(Query::none());
    let conditions = [condition.clone(), condition.clone().after(Position::ZERO)];
    for condition in &conditions {
        store.append(&[Event::new("E")], Some(condition.clone())).unwrap();
    }
    let mut tx = db.begin();
    for condition in conditions {
        tx.append(&store, &[Event::new("E")], AppendOptions::condition(condition)).unwrap();
    }
    // Nothing was read, so nothing can conflict.
    let mut other = db.begin_with(Isolation::Serializable);
    other.read_events(&store, &Query::none(), ReadOptions::default()).unwrap();
    other.decision(&store, &Some(count(Query::none()))).unwrap();
    other.append(&store, &[Event::new("E")], AppendOptions::default()).unwrap();
    tx.commit().unwrap();
    other.commit().unwrap();
    assert_eq!(store.head().unwrap(), Some(Position(6)));
}

#[test]
fn d1_7_group_of_no_event_is_refused() {
    let (db, _) = open();
    let groups = db.consumer_groups("shop").unwrap();
    let error = groups.create("g", GroupSettings::new(Query::none()), None).unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    assert!(error.to_string().contains("Query::none"), "{error}");
    assert!(groups.names().unwrap().is_empty());
}
