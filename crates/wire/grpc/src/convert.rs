//! Converts messages to the types of the database. Invalid messages become errors here, or in the database.

use core::time::Duration;

use ropewalk::events::{QueryItem, Tracking};
use ropewalk::{AppendCondition, Durability, Event, Position, Query};
use ropewalk_wire::WireError;
use uuid::Uuid;

use crate::proto::ropewalk::events::v1 as ours;
use crate::proto::umadb::v1 as umadb;

fn id(text: &str) -> Result<Option<Uuid>, uuid::Error> {
    if text.is_empty() { Ok(None) } else { Uuid::parse_str(text).map(Some) }
}

/// The events of a UmaDB append; fails with the ordinal of the first event with an invalid UUID.
pub(crate) fn umadb_events(events: Vec<umadb::Event>) -> Result<Vec<Event>, usize> {
    let event = |(ordinal, event): (usize, umadb::Event)| {
        Ok(Event {
            id: id(&event.uuid).map_err(|_| ordinal)?,
            event_type: event.event_type,
            tags: event.tags,
            data: event.data,
            metadata: event.metadata.into_iter().map(|entry| (entry.key, entry.value)).collect(),
        })
    };
    events.into_iter().enumerate().map(event).collect()
}

/// In UmaDB an item without types and tags matches everything, and so does then the complete query.
pub(crate) fn umadb_query(query: Option<umadb::Query>) -> Query {
    let items = query.map(|query| query.items).unwrap_or_default();
    if items.iter().any(|item| item.types.is_empty() && item.tags.is_empty()) {
        return Query::all();
    }
    Query::from_items(items.into_iter().map(|item| QueryItem::new(item.types, item.tags)))
}

pub(crate) fn umadb_condition(condition: umadb::AppendCondition) -> AppendCondition {
    AppendCondition {
        fail_if_events_match: umadb_query(condition.fail_if_events_match),
        after: condition.after.map(Position),
    }
}

pub(crate) fn events(events: Vec<ours::Event>) -> Result<Vec<Event>, WireError> {
    let event = |(ordinal, event): (usize, ours::Event)| {
        let id = id(&event.id)
            .map_err(|error| WireError::invalid(format!("event {ordinal} of the append: id: {error}")))?;
        Ok(Event {
            id,
            event_type: event.r#type,
            tags: event.tags,
            data: event.data,
            metadata: event.metadata.into_iter().map(|entry| (entry.key, entry.value)).collect(),
        })
    };
    events.into_iter().enumerate().map(event).collect()
}

pub(crate) fn query(query: Option<ours::Query>) -> Query {
    let items = query.map(|query| query.items).unwrap_or_default();
    Query::from_items(items.into_iter().map(|item| QueryItem::new(item.types, item.tags)))
}

/// A condition must have a query: an omitted one would match every event.
pub(crate) fn conditions(conditions: Vec<ours::AppendCondition>) -> Result<Vec<AppendCondition>, WireError> {
    let condition = |(ordinal, condition): (usize, ours::AppendCondition)| {
        let missing = || WireError::invalid(format!("condition {ordinal} has no query"));
        let fail_if_events_match = query(Some(condition.fail_if_events_match.ok_or_else(missing)?));
        Ok(AppendCondition { fail_if_events_match, after: condition.after.map(Position) })
    };
    conditions.into_iter().enumerate().map(condition).collect()
}

pub(crate) fn tracking(tracking: ours::UpstreamPosition) -> Tracking {
    Tracking { source: tracking.source, position: tracking.position }
}

/// Default sync interval of an `ASYNC` append, in milliseconds.
const ASYNC_MILLIS: u32 = 100;
const ASYNC_MILLIS_MAX: u32 = 60_000;

pub(crate) fn durability(kind: i32, interval: Option<u32>) -> Result<Durability, WireError> {
    let kind = ours::Durability::try_from(kind)
        .map_err(|_| WireError::invalid(format!("durability {kind} is not known")))?;
    if interval.is_some() && kind != ours::Durability::Async {
        return Err(WireError::invalid("async_interval_millis goes with durability ASYNC only"));
    }
    match kind {
        ours::Durability::Sync => Ok(Durability::Sync),
        ours::Durability::Buffered => Ok(Durability::Buffered),
        ours::Durability::Async => match interval.unwrap_or(ASYNC_MILLIS) {
            millis @ 1..=ASYNC_MILLIS_MAX => {
                Ok(Durability::Async { interval: Duration::from_millis(millis.into()) })
            }
            millis => Err(WireError::invalid(format!(
                "async_interval_millis {millis}: 1 to {ASYNC_MILLIS_MAX} are allowed"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_item_matches_everything_only_for_umadb() {
        let item = |types: &[&str]| umadb::QueryItem {
            types: types.iter().map(|t| (*t).to_owned()).collect(),
            tags: Vec::new(),
        };
        let both = umadb::Query { items: vec![item(&["A"]), item(&[])] };
        assert!(umadb_query(Some(both)).is_all());
        assert_eq!(umadb_query(Some(umadb::Query { items: vec![item(&["A"])] })), Query::from_types(["A"]));
        let empty = ours::Query { items: vec![ours::QueryItem::default()] };
        assert!(!query(Some(empty)).is_all());
    }

    #[test]
    fn durability_rejects_contradictory_options() {
        let millis = |n| Durability::Async { interval: Duration::from_millis(n) };
        assert_eq!(durability(0, None).unwrap(), Durability::Sync);
        assert_eq!(durability(1, None).unwrap(), Durability::Buffered);
        assert_eq!(durability(2, None).unwrap(), millis(100));
        assert_eq!(durability(2, Some(7)).unwrap(), millis(7));
        for (kind, interval) in
            [(0, Some(1)), (1, Some(1)), (2, Some(0)), (2, Some(60_001)), (3, None), (-1, None)]
        {
            assert!(durability(kind, interval).is_err(), "{kind} {interval:?}");
        }
    }
}
