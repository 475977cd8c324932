//! One commit with its parts in every model: events, documents, rows, samples, keys.
//!
//! The log has the commit as one record. Events and keys are in it; changes of documents come from a change
//! stream over the same commit; rows and samples are decoded by the facade. The state before is read where the
//! engine still has it.

use std::time::Duration;

use axum::response::Response;
use ropewalk::changes::{Change, ChangedPart, ChangedRow, ChangedRows, ChangedSamples};
use ropewalk::documents::lang::Value;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::{ChangeEvent, CommitEvents, Target, Watch};
use ropewalk::tables::{OwnedRow, shown};
use ropewalk::{Database, Error, Seq, Snapshot};
use ropewalk_auth::{Needs, Resource};
use ropewalk_http_kit::json::put_number;
use ropewalk_http_kit::response::json;
use ropewalk_sql::to_text;
use ropewalk_wire::WireError;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::changes::{Separate, damaged, put_head, put_others, put_write};
use crate::kit::encode::{Payload, put_event_of, put_string};
use crate::kit::path::PathRequest;
use crate::kit::problem::Result;
use crate::route::Route;

/// Most bytes of the parts of a response; a commit may have 64 MiB.
const PARTS_BYTES_MAX: usize = 4 << 20;
/// Most rows, documents and series.
const PARTS_MAX: usize = 1_000;
/// Most samples of one series.
const SAMPLES_MAX: usize = 100;
/// Memory of a response: the parts, and the last of them, which may exceed the bound.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::admin(Resource::AllStores), routes!(commit))]
}

/// The number in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct CommitNumber {
    /// Number of the commit.
    seq: u64,
}

/// A commit. Only its schema is used: the response is written by hand.
#[derive(Serialize, ToSchema)]
#[schema(as = Commit)]
#[allow(dead_code)]
struct CommitOut {
    #[schema(example = 77)]
    seq: u64,
    /// RFC 3339, UTC.
    recorded_at: String,
    /// Events by store: `{"store", "events"}`, as in the change feed.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    appends: Vec<serde_json::Value>,
    /// Changes of documents: `{"change", "before"}`. `change` is the event of a change stream; `before` is null
    /// for a new document, and where the state before cannot be read any more.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    documents: Vec<serde_json::Value>,
    /// `{"table", "change", "before", "after"}` with the columns as texts. `change` is `insert`, `update`,
    /// `delete`, or `write` where the state before cannot be read any more.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    rows: Vec<serde_json::Value>,
    /// `{"store", "labels", "count", "samples"}`: at most 100 samples of each series.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    samples: Vec<serde_json::Value>,
    /// Writes to keyspaces, without their values, as in the change feed.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    writes: Vec<serde_json::Value>,
    /// Sizes of the other parts of the commit's record, as in the change feed: `{"model", "bytes"}`. Absent without
    /// such parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    others: Vec<serde_json::Value>,
    /// Parts were left out: more than 1,000 rows, documents or series, or more than 4 MiB.
    truncated: bool,
}

/// One commit with its parts in every model. Needs the right `admin` on every store.
///
/// A commit that the log no longer holds is 404. Rows and documents have their state before the commit while
/// the engine still has it: until the next flush of memtables after the commit.
#[utoipa::path(
    get, path = "/v1/commits/{seq}", operation_id = "get_commit", tag = "stores",
    params(CommitNumber),
    responses((status = 200, description = "The commit.", body = CommitOut)),
)]
async fn commit(at: PathRequest<CommitNumber>) -> Result<Response> {
    let service = &at.app.service;
    let mut memory = service.answer_memory().connection().reservation();
    memory.try_cover(RESPONSE_BYTES_MAX)?;
    let db = service.database();
    let out = service.run_blocking_limited(|| read(db, Seq(at.names.seq))).await?;
    memory.shrink_to(out.len());
    Ok(json(memory.hold(out)))
}

fn read(db: &Database, seq: Seq) -> Result<Vec<u8>, WireError> {
    let missing = || WireError::not_found(format!("there is no commit {seq}; the newest is {}", db.seq()));
    if seq == Seq(0) || seq > db.seq() {
        return Err(missing());
    }
    let mut feed = db.changes(seq)?;
    let change = feed.next(Duration::ZERO)?.filter(|change| change.seq == seq).ok_or_else(missing)?;
    let mut commit = Commit { out: Vec::new(), is_truncated: false };
    put_head(&mut commit.out, &change);
    commit.appends(&change)?;
    commit.documents(db, &change)?;
    commit.rows(db.changed_rows(&change, PARTS_MAX, commit.room())?)?;
    commit.samples(db.changed_samples(&change, PARTS_MAX, SAMPLES_MAX, commit.room())?);
    commit.writes(&change);
    put_others(&mut commit.out, &change);
    let end = if commit.is_truncated { ",\"truncated\":true}" } else { ",\"truncated\":false}" };
    commit.out.extend_from_slice(end.as_bytes());
    Ok(commit.out)
}

/// A response in progress.
struct Commit {
    out: Vec<u8>,
    is_truncated: bool,
}

impl Commit {
    /// False when the response is full; the parts that follow are left out.
    fn has_room(&mut self) -> bool {
        let has_room = self.out.len() < PARTS_BYTES_MAX;
        self.is_truncated |= !has_room;
        has_room
    }

    /// Bytes for the parts that follow.
    fn room(&self) -> usize {
        PARTS_BYTES_MAX.saturating_sub(self.out.len())
    }

    fn appends(&mut self, change: &Change<'_>) -> Result<(), WireError> {
        self.out.extend_from_slice(b",\"appends\":[");
        let mut separate = Separate::default();
        for part in &change.parts {
            let ChangedPart::Events { store, append } = part else { continue };
            if !self.has_room() {
                break;
            }
            separate.before(&mut self.out);
            self.out.extend_from_slice(b"{\"store\":");
            put_string(&mut self.out, store);
            if append.deletes {
                self.out.extend_from_slice(b",\"deleted\":true");
            }
            self.out.extend_from_slice(b",\"events\":[");
            let mut separate = Separate::default();
            for event in append.events() {
                let (position, event) = event.map_err(|error| damaged(change, &error))?;
                if !self.has_room() {
                    break;
                }
                separate.before(&mut self.out);
                let (seq, time) = (change.seq, change.time_micros);
                put_event_of(&mut self.out, position, seq, time, &event, Payload::Json);
            }
            self.out.extend_from_slice(b"]}");
        }
        self.out.push(b']');
        Ok(())
    }

    fn documents(&mut self, db: &Database, change: &Change<'_>) -> Result<(), WireError> {
        self.out.extend_from_slice(b",\"documents\":[");
        let mut separate = Separate::default();
        let is_touched = change.parts.iter().any(|part| part.model() == Some("documents"));
        let found =
            if is_touched { document_events(db, change.seq, self.room())? } else { CommitEvents::default() };
        let before = db.snapshot_at(Seq(change.seq.0.saturating_sub(1))).ok();
        self.is_truncated |= found.is_truncated;
        for event in &found.events {
            if !self.has_room() {
                break;
            }
            separate.before(&mut self.out);
            self.out.extend_from_slice(b"{\"change\":");
            extjson::put_document(&mut self.out, event.document.doc(), Form::Relaxed);
            self.out.extend_from_slice(b",\"before\":");
            match before.as_ref().map(|at| document_before(db, at, event)).transpose()?.flatten() {
                Some(document) => extjson::put_document(&mut self.out, document.doc(), Form::Relaxed),
                None => self.out.extend_from_slice(b"null"),
            }
            self.out.push(b'}');
        }
        self.out.push(b']');
        Ok(())
    }

    fn rows(&mut self, changed: ChangedRows) -> Result<(), WireError> {
        self.out.extend_from_slice(b",\"rows\":[");
        let mut separate = Separate::default();
        self.is_truncated |= changed.is_truncated;
        for row in &changed.rows {
            if !self.has_room() {
                break;
            }
            separate.before(&mut self.out);
            self.out.extend_from_slice(b"{\"table\":");
            put_string(&mut self.out, &shown(&row.table));
            self.out.extend_from_slice(b",\"change\":");
            put_string(&mut self.out, kind(row, changed.knows_before));
            self.out.extend_from_slice(b",\"before\":");
            put_row(&mut self.out, row.before.as_ref())?;
            self.out.extend_from_slice(b",\"after\":");
            put_row(&mut self.out, row.after.as_ref())?;
            self.out.push(b'}');
        }
        self.out.push(b']');
        Ok(())
    }

    fn samples(&mut self, changed: ChangedSamples) {
        self.out.extend_from_slice(b",\"samples\":[");
        let mut separate = Separate::default();
        self.is_truncated |= changed.is_truncated;
        for series in &changed.series {
            if !self.has_room() {
                break;
            }
            separate.before(&mut self.out);
            self.out.extend_from_slice(b"{\"store\":");
            put_string(&mut self.out, &series.store);
            self.out.extend_from_slice(b",\"labels\":{");
            let mut separate = Separate::default();
            for (name, value) in series.labels.iter() {
                separate.before(&mut self.out);
                put_string(&mut self.out, name);
                self.out.push(b':');
                put_string(&mut self.out, value);
            }
            self.out.extend_from_slice(b"},\"count\":");
            put_number(&mut self.out, series.count);
            self.out.extend_from_slice(b",\"samples\":[");
            let mut separate = Separate::default();
            for (time, value) in &series.samples {
                separate.before(&mut self.out);
                // JSON has no infinities and no NaN: they are texts.
                let value = if value.is_finite() { value.to_string() } else { format!("\"{value}\"") };
                self.out.extend_from_slice(format!("[{time},{value}]").as_bytes());
            }
            self.out.extend_from_slice(b"]}");
        }
        self.out.push(b']');
    }

    fn writes(&mut self, change: &Change<'_>) {
        self.out.extend_from_slice(b",\"writes\":[");
        let mut separate = Separate::default();
        let keys = change.parts.iter().filter_map(|part| match part {
            ChangedPart::Keys(writes) => Some(writes),
            _ => None,
        });
        for (number, (keyspace, write)) in keys.flatten().enumerate() {
            if number >= PARTS_MAX || !self.has_room() {
                self.is_truncated = true;
                break;
            }
            separate.before(&mut self.out);
            put_write(&mut self.out, *keyspace, write);
        }
        self.out.push(b']');
    }
}

/// The events of a change stream over one commit, up to `bytes_max`.
fn document_events(db: &Database, seq: Seq, bytes_max: usize) -> Result<CommitEvents, WireError> {
    let watch = Watch { from: Some(seq), full_document: true, ..Watch::default() };
    let mut stream = db.documents().watch(Target::All, watch, None).map_err(Error::from)?;
    Ok(stream.next_commit(PARTS_MAX, bytes_max).map_err(Error::from)?.unwrap_or_default())
}

/// The document of an event as it was before the commit.
fn document_before(
    db: &Database,
    at: &Snapshot,
    event: &ChangeEvent,
) -> Result<Option<ropewalk::documents::lang::DocBuf>, WireError> {
    let document = event.document.doc();
    let within = |name: &str, member: &str| document.get(name)?.as_document()?.get(member);
    let names = within("ns", "db").and_then(Value::as_str).zip(within("ns", "coll").and_then(Value::as_str));
    let (Some((database, collection)), Some(id)) = (names, within("documentKey", "_id")) else {
        return Ok(None);
    };
    let collection = db.documents().collection(database, collection).map_err(Error::from)?;
    let found = at.documents(db).get(&collection, id);
    // A collection that the commit created has no documents before it.
    Ok(found.ok().flatten())
}

fn kind(row: &ChangedRow, knows_before: bool) -> &'static str {
    match (&row.before, &row.after) {
        (_, None) => "delete",
        (Some(_), Some(_)) => "update",
        (None, Some(_)) if knows_before => "insert",
        (None, Some(_)) => "write",
    }
}

/// A row as an object of texts, null for NULL; null for no row.
fn put_row(out: &mut Vec<u8>, row: Option<&OwnedRow>) -> Result<(), WireError> {
    let Some(row) = row else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    let row = row.row();
    out.push(b'{');
    let mut separate = Separate::default();
    let values = row.values().map_err(Error::from)?;
    for (column, value) in row.schema().columns().iter().zip(&values) {
        separate.before(out);
        put_string(out, column.name());
        out.push(b':');
        match to_text(value) {
            Some(text) => put_string(out, &text),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    Ok(())
}
