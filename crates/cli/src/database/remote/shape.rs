//! The JSON of the HTTP API, as this client sends and reads it. Payloads are base64, so that every byte is preserved.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::events::{ReadOptions, SequencedEvent, Tracking};
use ropewalk::groups::GroupSettings;
use ropewalk::{AppendCondition, AppendOptions, Durability, Event, Position, Query, Seq};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::database::listed::{CommitPart, ListedCommit};
use crate::database::metadata::Metadata;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Serialize)]
struct EventBody<'a> {
    #[serde(rename = "type")]
    event_type: &'a str,
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    metadata: &'a [(String, String)],
}

#[derive(Serialize)]
pub(super) struct QueryShape<'a> {
    items: Vec<ItemShape<'a>>,
}

#[derive(Serialize)]
struct ItemShape<'a> {
    types: &'a [String],
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    type_prefixes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tag_prefixes: &'a [String],
}

impl<'a> QueryShape<'a> {
    fn new(query: &'a Query) -> Self {
        Self {
            items: query
                .items
                .iter()
                .map(|item| ItemShape {
                    types: &item.types,
                    tags: &item.tags,
                    type_prefixes: &item.type_prefixes,
                    tag_prefixes: &item.tag_prefixes,
                })
                .collect(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct GroupBody<'a> {
    query: QueryShape<'a>,
    after: Option<u64>,
    lease_ms: u64,
    pause_ms: u64,
    tries: u32,
    pending: u32,
    in_order: bool,
}

impl<'a> GroupBody<'a> {
    pub(super) fn new(settings: &'a GroupSettings, after: Option<Position>) -> Self {
        let millis = |time: std::time::Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        Self {
            query: QueryShape::new(&settings.query),
            after: after.map(|after| after.0),
            lease_ms: millis(settings.lease),
            pause_ms: millis(settings.pause),
            tries: settings.tries_max,
            pending: settings.pending_max,
            in_order: settings.in_order,
        }
    }
}

/// A page of a list that is sorted by name.
#[derive(Deserialize)]
pub(super) struct ListAnswer<T> {
    #[serde(alias = "groups", alias = "stores", alias = "users", alias = "tokens")]
    pub(super) entries: Vec<T>,
    /// The next page begins after this name.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ParkedAnswer {
    pub(super) parked: Vec<ParkedLine>,
}

#[derive(Deserialize)]
pub(super) struct ParkedLine {
    pub(super) tries: u64,
    pub(super) reason: String,
    pub(super) event: ParkedEvent,
}

#[derive(Deserialize)]
pub(super) struct ParkedEvent {
    pub(super) position: u64,
    #[serde(rename = "type")]
    pub(super) event_type: String,
}

#[derive(Serialize)]
pub(super) struct PositionsBody<'a> {
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    pub(super) positions: &'a [u64],
}

#[derive(Deserialize)]
pub(super) struct SettledAnswer {
    pub(super) done: u64,
}

#[derive(Serialize)]
struct ConditionShape<'a> {
    fail_if_events_match: QueryShape<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
}

#[derive(Serialize)]
struct TrackingShape<'a> {
    source: &'a str,
    position: u64,
}

#[derive(Serialize)]
pub(super) struct AppendBody<'a> {
    events: Vec<EventBody<'a>>,
    conditions: Vec<ConditionShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracking: Option<TrackingShape<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    repeat_by_id: bool,
    durability: String,
}

impl<'a> AppendBody<'a> {
    pub(super) fn new(events: &'a [Event], options: &'a AppendOptions) -> Self {
        let event = |event: &'a Event| EventBody {
            event_type: &event.event_type,
            tags: &event.tags,
            data_base64: (!event.data.is_empty()).then(|| STANDARD.encode(&event.data)),
            id: event.id,
            metadata: &event.metadata,
        };
        let condition = |condition: &'a AppendCondition| ConditionShape {
            fail_if_events_match: QueryShape::new(&condition.fail_if_events_match),
            after: condition.after.map(|after| after.0),
        };
        let tracking =
            |Tracking { source, position }: &'a Tracking| TrackingShape { source, position: *position };
        Self {
            events: events.iter().map(event).collect(),
            conditions: options.conditions.iter().map(condition).collect(),
            tracking: options.tracking.as_ref().map(tracking),
            idempotency_key: options.idempotency_key.as_deref(),
            repeat_by_id: options.repeat_by_id,
            durability: match options.durability {
                Durability::Sync => "sync".to_owned(),
                Durability::Buffered => "buffered".to_owned(),
                Durability::Async { interval } => format!("async:{}", interval.as_millis()),
            },
        }
    }
}

#[derive(Deserialize)]
pub(super) struct AppendedAnswer {
    pub(super) first: Option<u64>,
    pub(super) last: Option<u64>,
    pub(super) seq: u64,
}

#[derive(Serialize)]
pub(super) struct ReadBody<'a> {
    query: QueryShape<'a>,
    from: Option<u64>,
    after: Option<u64>,
    before: Option<u64>,
    backwards: bool,
    limit: Option<u64>,
}

impl<'a> ReadBody<'a> {
    pub(super) fn new(query: &'a Query, options: ReadOptions) -> Self {
        let number = |position: Option<Position>| position.map(|position| position.0);
        Self {
            query: QueryShape::new(query),
            from: number(options.from),
            after: number(options.after),
            before: number(options.before),
            backwards: options.backwards,
            limit: options.limit,
        }
    }
}

#[derive(Serialize)]
pub(super) struct QueryBody<'a> {
    query: QueryShape<'a>,
}

impl<'a> QueryBody<'a> {
    pub(super) fn new(query: &'a Query) -> Self {
        Self { query: QueryShape::new(query) }
    }
}

/// An event in the API.
#[derive(Deserialize)]
pub(super) struct EventLine {
    position: u64,
    seq: u64,
    recorded_at: String,
    #[serde(rename = "type")]
    event_type: String,
    tags: Vec<String>,
    id: Option<Uuid>,
    #[serde(default)]
    metadata: Metadata,
    data_base64: Option<String>,
}

impl EventLine {
    pub(super) fn event(self) -> Result<SequencedEvent> {
        let strange = |error: &dyn std::fmt::Display| {
            Failure::new(Exit::Internal, format!("the server's event {}: {error}", self.position), "")
        };
        let time: jiff::Timestamp = self.recorded_at.parse().map_err(|error| strange(&error))?;
        let data = self.data_base64.map(|text| STANDARD.decode(text)).transpose();
        let data = data.map_err(|error| strange(&error))?.unwrap_or_default();
        Ok(SequencedEvent {
            position: Position(self.position),
            seq: Seq(self.seq),
            time_micros: time.as_microsecond(),
            event: Event {
                event_type: self.event_type,
                tags: self.tags,
                data,
                id: self.id,
                metadata: self.metadata.0,
            },
            // No command prints it.
            tracking: None,
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Count {
    pub(super) count: u64,
}

#[derive(Deserialize)]
pub(super) struct Exists {
    pub(super) exists: bool,
}

#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) head: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct TrackingAnswer {
    pub(super) position: Option<u64>,
}

/// A commit of the change feed.
#[derive(Deserialize)]
pub(super) struct ChangeLine {
    pub(super) seq: u64,
    recorded_at: String,
    appends: Vec<AppendPart>,
    writes: Vec<WritePart>,
    /// Absent in responses of older servers.
    #[serde(default)]
    others: Vec<OtherPart>,
}

#[derive(Deserialize)]
struct AppendPart {
    store: String,
    #[serde(default)]
    deleted: bool,
    events: Vec<EventLine>,
}

#[derive(Deserialize)]
struct WritePart {
    keyspace: u64,
    change: String,
    key_base64: String,
    end_base64: Option<String>,
}

#[derive(Deserialize)]
struct OtherPart {
    model: String,
    bytes: u64,
}

impl ChangeLine {
    pub(super) fn commit(self) -> Result<ListedCommit> {
        let strange = |error: &dyn std::fmt::Display| {
            Failure::new(Exit::Internal, format!("the server's commit {}: {error}", self.seq), "")
        };
        let time: jiff::Timestamp = self.recorded_at.parse().map_err(|error| strange(&error))?;
        let bytes = |text: &str| STANDARD.decode(text).map_err(|error| strange(&error));
        let mut parts = Vec::new();
        for append in self.appends {
            parts.extend(append.deleted.then(|| CommitPart::Deleted { store: append.store.clone() }));
            for event in append.events {
                parts.push(CommitPart::Event { store: append.store.clone(), event: event.event()? });
            }
        }
        for write in self.writes {
            let key = bytes(&write.key_base64)?;
            let end = write.end_base64.as_deref().map(bytes).transpose()?;
            parts.push(CommitPart::Key { keyspace: write.keyspace, change: write.change, key, end });
        }
        parts.extend(
            self.others.into_iter().map(|OtherPart { model, bytes }| CommitPart::Other { model, bytes }),
        );
        Ok(ListedCommit { seq: Seq(self.seq), time_micros: time.as_microsecond(), parts })
    }
}

/// Response of `/v1/stats`.
#[derive(Deserialize)]
pub(crate) struct StatsAnswer {
    pub(crate) seq: u64,
    pub(crate) checkpoint: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) memtable_bytes_max: u64,
    pub(crate) memtables_frozen: u64,
    pub(crate) snapshots: u64,
    pub(crate) flush_error: Option<String>,
    pub(crate) log: LogAnswer,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_bytes_max: u64,
    pub(crate) run_memory_bytes: u64,
    pub(crate) keyspaces: Vec<KeyspaceAnswer>,
    /// The next page of keyspaces begins after this name.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct LogAnswer {
    pub(crate) appended_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) segments: u64,
    pub(crate) spare_segments: u64,
}

#[derive(Deserialize)]
pub(crate) struct KeyspaceAnswer {
    pub(crate) name: String,
    pub(crate) entries: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) compacted_bytes: u64,
    pub(crate) levels: Vec<LevelAnswer>,
}

#[derive(Deserialize)]
pub(crate) struct LevelAnswer {
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
}

/// Response of a backup.
#[derive(Deserialize)]
pub(crate) struct BackupAnswer {
    pub(crate) name: String,
    pub(crate) seq: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) linked_bytes: u64,
}
