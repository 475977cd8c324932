//! Event stores, and what keyspaces have about them: checkpoints, groups, projections.

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use ropewalk::events::{SequencedEventRef, Tracking};
use ropewalk::groups::{ConsumerGroup, GroupSettings, Lease};
use ropewalk::projections::{
    ApplyError, MaterializedProjection, Output, ProjectionRun, Projections, RebuildMode,
};
use ropewalk::{AppendCondition, AppendOptions, Database, Event, Position, Query};

use super::Way;

/// A document for each event `Placed`; fails on one whose data is `bad`.
struct Ids;

impl MaterializedProjection for Ids {
    fn query(&self) -> Query {
        Query::from_types(["Placed"])
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::collection("ids")]
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        if event.data() == b"bad" {
            return Err("bad data".into());
        }
        let ids = run.collection("ids")?;
        let document = bson::serialize_to_vec(&doc! { "_id": event.position.0 as i64 }).unwrap();
        run.tx().documents().insert_one(&ids, &document)?;
        Ok(())
    }
}

fn projections(db: &Database) -> Projections {
    let projections = db.projections("shop").unwrap();
    projections.register("ids", Arc::new(Ids)).unwrap();
    projections
}

fn append(db: &Database, store: &str, event: Event) {
    db.events(store).unwrap().append(&[event], None).unwrap();
}

/// The group `mail`, and a lease of one event.
fn lease(db: &Database) -> (ConsumerGroup, Lease) {
    append(db, "shop", Event::new("Seen"));
    let group = db.consumer_groups("shop").unwrap().group("mail").unwrap();
    let lease = group.take(1).unwrap();
    assert_eq!(lease.events.len(), 1);
    (group, lease)
}

pub(super) const WAYS: &[Way] = &[
    ("a new event store", |db| assert!(db.events("shop").unwrap().create().unwrap())),
    ("append", |db| {
        let placed = Event::new("Placed").tag("order:1").tag("customer:2").data("{}").metadata("via", "web");
        append(db, "shop", placed);
    }),
    ("append with condition, tracking and idempotency key", |db| {
        let options = AppendOptions {
            conditions: vec![AppendCondition::none_match(Query::from_tags(["order:2"]))],
            tracking: Some(Tracking { source: "up".into(), position: 7 }),
            idempotency_key: Some("place-2".into()),
            ..AppendOptions::default()
        };
        let events = [Event::new("Placed").tag("order:2"), Event::new("Paid").tag("order:2")];
        db.events("shop").unwrap().append_with(&events, options).unwrap();
    }),
    ("tracking without events", |db| {
        let tracking = Some(Tracking { source: "up".into(), position: 9 });
        let options = AppendOptions { tracking, ..AppendOptions::default() };
        db.events("shop").unwrap().append_with(&[], options).unwrap();
    }),
    ("append that creates the store", |db| append(db, "other", Event::new("Seen"))),
    ("append to two stores in a transaction", |db| {
        let mut tx = db.begin();
        for store in ["shop", "other"] {
            let store = db.events(store).unwrap();
            tx.append(&store, &[Event::new("Moved").tag("order:1")], AppendOptions::default()).unwrap();
        }
        tx.commit().unwrap();
    }),
    ("an event store is deleted", |db| assert!(db.events("other").unwrap().delete().unwrap())),
    ("an event store has the name of a deleted one", |db| append(db, "other", Event::new("Again"))),
    ("a consumer checkpoint", |db| {
        db.consumer_checkpoints("shop").unwrap().set("mailer", Position(1)).unwrap();
    }),
    ("a consumer checkpoint is removed", |db| {
        assert!(db.consumer_checkpoints("shop").unwrap().remove("mailer").unwrap());
    }),
    ("a consumer group", |db| {
        let day = Duration::from_secs(86_400);
        let settings = GroupSettings::new(Query::all());
        let settings = GroupSettings { lease: day, pause: Duration::ZERO, ..settings };
        assert!(db.consumer_groups("shop").unwrap().create("mail", settings, None).unwrap());
    }),
    ("a lease", |db| {
        lease(db);
    }),
    ("a lease is extended", |db| {
        let (group, lease) = lease(db);
        group.extend(lease.id, Some(Duration::from_secs(90_000))).unwrap();
    }),
    ("a leased event is acknowledged", |db| {
        let (group, lease) = lease(db);
        assert_eq!(group.acknowledge(lease.id, None).unwrap().done, 1);
    }),
    ("a leased event is tried again", |db| {
        let (group, lease) = lease(db);
        assert_eq!(group.retry(lease.id, None, None, "later").unwrap().done, 1);
    }),
    ("a leased event is parked", |db| {
        let (group, lease) = lease(db);
        assert_eq!(group.park(lease.id, None, "poison").unwrap().parked, 1);
    }),
    ("parked events are replayed", |db| {
        let group = db.consumer_groups("shop").unwrap().group("mail").unwrap();
        assert_eq!(group.replay(None).unwrap().done, 1);
    }),
    ("parked events are discarded", |db| {
        let (group, lease) = lease(db);
        group.park(lease.id, None, "poison").unwrap();
        assert_eq!(group.discard(None).unwrap().done, 1);
    }),
    ("a consumer group is deleted", |db| {
        assert!(db.consumer_groups("shop").unwrap().delete("mail").unwrap());
    }),
    ("a projection", |db| assert!(projections(db).catch_up("ids").unwrap().applied > 0)),
    ("a projection is rebuilt", |db| {
        assert!(projections(db).rebuild("ids", RebuildMode::ForceFullRebuild).unwrap().unwrap().finished);
    }),
    ("a projection fails", |db| {
        append(db, "shop", Event::new("Placed").data("bad"));
        assert!(projections(db).catch_up("ids").is_err());
    }),
    ("a failing event is skipped", |db| {
        assert!(projections(db).skip_failing("ids").unwrap().is_some());
    }),
    ("a projection is removed", |db| projections(db).remove("ids").unwrap()),
];
