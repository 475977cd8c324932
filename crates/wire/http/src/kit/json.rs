//! The JSON types that clients send and get; `docs/openapi.json` is generated from them.
//!
//! An unknown field is rejected with its name, line and column: a misspelt `fail_if_event_match` must not
//! become an append without a condition. Payloads pass through as raw text and are never parsed into values.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::events::{QueryItem, ReadOptions, Tracking};
use ropewalk::{AppendCondition, AppendOptions, Durability, Event, Position, Query};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::kit::problem::{Problem, Result};

/// An object with the fields of `T`. (The derived form would accept an array of the values, too.)
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// A text, which borrows from the request unless it has escapes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// An event to append. `data` and `data_base64` exclude each other; without both the payload is empty.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Event)]
pub(crate) struct EventIn<'a> {
    /// The type of the event. 1 to 65,535 bytes.
    #[serde(rename = "type")]
    #[schema(example = "CourseDefined", min_length = 1)]
    event_type: String,
    /// Identifiers that it concerns: opaque texts, no duplicates, 1 to 65,535 bytes each.
    #[serde(default)]
    #[schema(example = json!(["course:c1"]))]
    tags: Vec<String>,
    /// The payload as any JSON; it is stored as it is spelled.
    #[serde(default, borrow, deserialize_with = "raw")]
    #[schema(value_type = Option<serde_json::Value>, example = json!({"capacity": 30}))]
    data: Option<&'a RawValue>,
    /// The payload as bytes in base64.
    #[schema(content_encoding = "base64")]
    data_base64: Option<String>,
    /// The client's own id.
    id: Option<Uuid>,
    /// The client's own metadata, in order: an object, or an array of pairs. Keys are unique.
    #[serde(default)]
    #[schema(value_type = Option<MetadataIn>)]
    metadata: Metadata,
}

/// JSON `null` is a payload like any other, not a missing one.
fn raw<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl EventIn<'_> {
    fn into_event(self, ordinal: usize) -> Result<Event> {
        let data = match (self.data, self.data_base64) {
            (None, None) => Vec::new(),
            (Some(json), None) => json.get().as_bytes().to_vec(),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| Problem::invalid_field(format!("events[{ordinal}].data_base64: {error}")))?,
            (Some(_), Some(_)) => {
                let what = format!("events[{ordinal}] has both data and data_base64");
                return Err(Problem::invalid_field(what));
            }
        };
        Ok(Event {
            event_type: self.event_type,
            tags: self.tags,
            data,
            id: self.id,
            metadata: self.metadata.0,
        })
    }
}

/// An object of texts, or an array of pairs of texts.
#[derive(ToSchema)]
#[schema(as = Metadata)]
#[allow(dead_code)] // only its schema is used
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum MetadataIn {
    Object(std::collections::BTreeMap<String, String>),
    Pairs(Vec<Vec<String>>),
}

/// Ordered pairs, read from either form. (A map type would lose the order.)
#[derive(Debug, Default)]
struct Metadata(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts, or an array of pairs of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Metadata(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Metadata, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = seq.next_element()? {
                    pairs.push(pair);
                }
                Ok(Metadata(pairs))
            }

            fn visit_unit<E>(self) -> Result<Metadata, E> {
                Ok(Metadata::default())
            }
        }

        deserializer.deserialize_any(Pairs)
    }
}

/// A query: events that match any of the items; no items means every event.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Query)]
pub(crate) struct QueryIn {
    /// The items, combined with OR.
    #[serde(default)]
    #[schema(value_type = Vec<QueryItemIn>)]
    pub(crate) items: Vec<Object<QueryItemIn>>,
}

/// One item: any of the types (none = every type) AND all of the tags.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueryItem)]
pub(crate) struct QueryItemIn {
    /// The event's type is one of these.
    #[serde(default, deserialize_with = "maybe", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub(crate) types: Vec<String>,
    /// The event has all of these.
    #[serde(default, deserialize_with = "maybe", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub(crate) tags: Vec<String>,
    /// The event's type begins with one of these, or is one of `types`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub(crate) type_prefixes: Vec<String>,
    /// For each of these the event has a tag that begins with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub(crate) tag_prefixes: Vec<String>,
}

/// `null` for an empty list, as several clients spell it.
fn maybe<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl From<QueryIn> for Query {
    fn from(query: QueryIn) -> Self {
        let item = |Object(item): Object<QueryItemIn>| {
            let QueryItemIn { types, tags, type_prefixes, tag_prefixes } = item;
            QueryItem { types, tags, type_prefixes, tag_prefixes }
        };
        Self::from_items(query.items.into_iter().map(item))
    }
}

impl From<Query> for QueryIn {
    fn from(query: Query) -> Self {
        let item = |item: QueryItem| {
            let QueryItem { types, tags, type_prefixes, tag_prefixes } = item;
            Object(QueryItemIn { types, tags, type_prefixes, tag_prefixes })
        };
        Self { items: query.items.into_iter().map(item).collect() }
    }
}

/// The append fails if an event after `after` matches.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AppendCondition)]
pub(crate) struct ConditionIn {
    #[schema(value_type = QueryIn)]
    fail_if_events_match: Object<QueryIn>,
    /// Events up to and including this position are ignored. Absent: any event counts.
    after: Option<u64>,
}

/// How far a consumer of an upstream source has come; stored with the events, rises only.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Tracking)]
pub(crate) struct TrackingIn {
    /// Name of the source, 1 to 255 bytes.
    #[schema(min_length = 1, max_length = 255)]
    source: String,
    /// Position there.
    position: u64,
}

/// When an append is acknowledged: `sync` after it is on disk, `buffered` after the operating system has it,
/// `async:MS` at once, synced within so many milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DurabilityIn(pub(crate) Durability);

impl<'de> Deserialize<'de> for DurabilityIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let durability = match &*text {
            "sync" => Some(Durability::Sync),
            "buffered" => Some(Durability::Buffered),
            other => other
                .strip_prefix("async:")
                .and_then(|millis| millis.parse().ok())
                .map(|millis| Durability::Async { interval: std::time::Duration::from_millis(millis) }),
        };
        let allowed = || {
            D::Error::custom(format!("durability {text:?}; allowed are sync, buffered, async:MILLISECONDS"))
        };
        durability.map(Self).ok_or_else(allowed)
    }
}

/// An append.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AppendRequest)]
pub(crate) struct AppendIn<'a> {
    /// Appended together, in this order, or not at all. At least one, unless there is `tracking`.
    #[serde(borrow, default)]
    #[schema(value_type = Vec<EventIn<'a>>)]
    events: Vec<Object<EventIn<'a>>>,
    /// All must hold, each with its own `after`.
    #[serde(default)]
    #[schema(value_type = Vec<ConditionIn>)]
    conditions: Vec<Object<ConditionIn>>,
    #[schema(value_type = Option<TrackingIn>)]
    tracking: Option<Object<TrackingIn>>,
    /// A second append with the same key and the same events writes nothing and returns the first one's
    /// positions. The header `Idempotency-Key` says the same.
    #[schema(min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
    /// Recognizes a repetition by the events' ids: where a condition fails because of exactly these events,
    /// nothing is written and the response has their positions.
    #[serde(default)]
    repeat_by_id: bool,
    /// `sync` (default): acknowledged when on disk. `buffered`: when the operating system has it. `async:MS`:
    /// at once, synced within so many milliseconds.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    durability: DurabilityIn,
}

impl AppendIn<'_> {
    pub(crate) fn into_parts(self) -> Result<(Vec<Event>, AppendOptions)> {
        let events = self.events.into_iter().enumerate();
        let events =
            events.map(|(ordinal, Object(event))| event.into_event(ordinal)).collect::<Result<_, _>>()?;
        let condition = |Object(condition): Object<ConditionIn>| AppendCondition {
            fail_if_events_match: condition.fail_if_events_match.0.into(),
            after: condition.after.map(Position),
        };
        let options = AppendOptions {
            conditions: self.conditions.into_iter().map(condition).collect(),
            tracking: self.tracking.map(|Object(t)| Tracking { source: t.source, position: t.position }),
            idempotency_key: self.idempotency_key,
            repeat_by_id: self.repeat_by_id,
            durability: self.durability.0,
        };
        Ok((events, options))
    }
}

/// An append within a transaction, which has its own durability and idempotency key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionAppend)]
pub(crate) struct AppendPartIn<'a> {
    /// The store, which the first append creates.
    store: String,
    /// Appended together, in this order. At least one, unless there is `tracking`.
    #[serde(borrow, default)]
    #[schema(value_type = Vec<EventIn<'a>>)]
    events: Vec<Object<EventIn<'a>>>,
    /// All must hold, each with its own `after`.
    #[serde(default)]
    #[schema(value_type = Vec<ConditionIn>)]
    conditions: Vec<Object<ConditionIn>>,
    #[schema(value_type = Option<TrackingIn>)]
    tracking: Option<Object<TrackingIn>>,
}

impl AppendPartIn<'_> {
    pub(crate) fn into_parts(self) -> Result<(String, Vec<Event>, AppendOptions)> {
        let Self { store, events, conditions, tracking } = self;
        let (idempotency_key, repeat_by_id, durability) = (None, false, DurabilityIn::default());
        let append = AppendIn { events, conditions, tracking, idempotency_key, repeat_by_id, durability };
        let (events, options) = append.into_parts()?;
        Ok((store, events, options))
    }
}

/// Which events, in which order.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReadRequest)]
pub(crate) struct ReadIn {
    /// Absent: every event.
    #[serde(default)]
    #[schema(value_type = QueryIn)]
    query: Object<QueryIn>,
    /// First position to look at, inclusive, in the direction of reading.
    from: Option<u64>,
    /// Only events after this position.
    after: Option<u64>,
    /// Only events before this position.
    before: Option<u64>,
    /// Newest first.
    #[serde(default)]
    backwards: bool,
    /// At most so many events.
    limit: Option<u64>,
}

impl ReadIn {
    pub(crate) fn into_parts(self) -> (Query, ReadOptions) {
        let options = ReadOptions {
            from: self.from.map(Position),
            after: self.after.map(Position),
            before: self.before.map(Position),
            backwards: self.backwards,
            limit: self.limit,
        };
        (self.query.0.into(), options)
    }
}

/// A query about matching events.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueryRequest)]
pub(crate) struct AskIn {
    /// Absent: every event.
    #[serde(default)]
    #[schema(value_type = QueryIn)]
    pub(crate) query: Object<QueryIn>,
}

/// Whether there are matching events after a position.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExistsRequest)]
pub(crate) struct ExistsIn {
    /// Absent: every event.
    #[serde(default)]
    #[schema(value_type = QueryIn)]
    pub(crate) query: Object<QueryIn>,
    /// Only events after this position.
    pub(crate) after: Option<u64>,
}

/// Positions of the appended events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Appended)]
pub(crate) struct AppendedOut {
    /// Position of the first event; null for an append without events.
    #[schema(example = 7)]
    pub(crate) first: Option<u64>,
    /// Position of the last event.
    #[schema(example = 8)]
    pub(crate) last: Option<u64>,
    /// The commit.
    #[schema(example = 12)]
    pub(crate) seq: u64,
}

/// A stored event. Only described here: `encode` writes it from the stored bytes.
#[derive(ToSchema)]
#[schema(as = SequencedEvent)]
#[allow(dead_code)]
pub(crate) struct EventOut {
    /// Its number in the store, from 1 without gaps.
    #[schema(example = 7)]
    position: u64,
    /// The commit that wrote it.
    #[schema(example = 12)]
    seq: u64,
    /// Commit time, RFC 3339, UTC.
    #[schema(format = DateTime, example = "2026-11-21T14:36:51.123456Z")]
    recorded_at: String,
    #[serde(rename = "type")]
    #[schema(example = "CourseDefined")]
    event_type: String,
    #[schema(example = json!(["course:c1"]))]
    tags: Vec<String>,
    id: Option<Uuid>,
    /// In the client's order.
    metadata: Option<std::collections::BTreeMap<String, String>>,
    /// The tracking position stored with the append.
    tracking: Option<TrackingIn>,
    /// The payload, when it is JSON.
    #[schema(example = json!({"capacity": 30}))]
    data: Option<serde_json::Value>,
    /// The payload, when it is something else.
    #[schema(content_encoding = "base64")]
    data_base64: Option<String>,
}

/// Matching events. Written as a stream.
#[derive(ToSchema)]
#[schema(as = Events)]
#[allow(dead_code)]
pub(crate) struct EventsOut {
    /// Last position of the store at the time of the read, matching or not; null when the store is empty.
    head: Option<u64>,
    events: Vec<EventOut>,
}

/// The newest matching event.
#[derive(ToSchema)]
#[schema(as = LastEvent)]
#[allow(dead_code)]
pub(crate) struct LastOut {
    event: Option<EventOut>,
}

/// The number of matching events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Count)]
pub(crate) struct CountOut {
    pub(crate) count: u64,
}

/// Whether there is a match.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Exists)]
pub(crate) struct ExistsOut {
    pub(crate) exists: bool,
}

/// Last position of a store.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Head)]
pub(crate) struct HeadOut {
    /// Null for an empty store.
    #[schema(example = 42)]
    pub(crate) head: Option<u64>,
}

/// The stored position of an upstream source.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TrackingPosition)]
pub(crate) struct TrackingOut {
    pub(crate) source: String,
    /// Null when the source was never named.
    pub(crate) position: Option<u64>,
}
