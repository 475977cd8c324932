//! The change feed: every commit of the database in order, whatever store or keyspace it wrote. `ropewalk
//! tail` displays it, and a replica of the database could read it.
//!
//! One line is one commit, so an interrupted reader resumes after the last complete line. The log is read
//! where blocking is allowed; a follower that has everything waits without a thread.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use ropewalk::changes::{Change, ChangeFeed, ChangedPart};
use ropewalk::engine::{EngineError, Keyspace};
use ropewalk::hooks::KvWrite;
use ropewalk::tables::{Type, Value};
use ropewalk::{Database, Error, Seq};
use ropewalk_auth::{Caller, Needs, Resource, Right};
use ropewalk_http_kit::json::put_number;
use ropewalk_sql::from_text;
use ropewalk_wire::{Code, Service, WireError};
use tokio::time::Instant;
use utoipa_axum::routes;

use crate::events::subscribe::{Follow, Frames};
use crate::kit::encode::{EXACT, Payload, exact_asked, put_base64, put_event_of, put_string, put_time};
use crate::kit::params::Params;
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::kit::stream::NDJSON;
use crate::route::Route;

/// Approximate bytes of one chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Allowed values of `interval_ms`.
const INTERVALS_MS: RangeInclusive<u64> = 100..=10_000;
/// Allowed values of `newest`.
const NEWEST: RangeInclusive<u64> = 1..=10_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::admin(Resource::AllStores), routes!(changes))]
}

/// Every commit in order, one per line. Needs the right `admin` on every store.
///
/// A line is
/// `{"seq":9,"recorded_at":"…","appends":[{"store":"s","events":[…]}],"writes":[{"keyspace":3,"change":"put",
/// "key_base64":"…"}]}`; a commit that deleted a store has `"deleted":true` in its part. Writes to other
/// models are reported by their size: `"others":[{"model":"tables","bytes":61}]`, `documents`, `time
/// series` and `keyspaces` (the definition of one) likewise. With `follow=true` the stream continues with each new commit, and sends heartbeats
/// (`{"control":"heartbeat"}`) in between. For a screen: with `interval_ms` and `newest` a fast writer is followed at
/// little cost; a line `{"control":"skipped","commits":812}` counts the commits that are left out.
#[utoipa::path(
    get, path = "/v1/changes", operation_id = "changes", tag = "stores",
    params(
        ("from" = Option<u64>, Query, description = "First commit. 404 when the log no longer holds it."),
        ("since" = Option<String>, Query, description = "Instead of `from`: the first commit at or after this time, as far as the log holds it. RFC 3339, or another text of SQL's `timestamptz`, in UTC unless it has an offset."),
        ("last" = Option<u64>, Query, description = "Instead of `from`: the newest so many commits, as far as the log holds them."),
        ("limit" = Option<u64>, Query, description = "Ends after so many commits."),
        ("follow" = Option<bool>, Query, description = "Continues with new commits."),
        ("interval_ms" = Option<u64>, Query, description = "With `follow`: milliseconds from one message with new commits to the next, 100 to 10,000. If absent, commits are sent as they become visible."),
        ("newest" = Option<u64>, Query, description = "With `follow`: of the commits since the last message only the newest so many, 1 to 10,000."),
    ),
    responses((status = 200, description = "Commits from the first that the log holds, or as asked.", body = String, content_type = "application/x-ndjson")),
)]
async fn changes(
    PathRequest { app, caller, query, .. }: PathRequest,
    headers: HeaderMap,
) -> Result<Response> {
    let mut params = Params::parse(query.as_deref())?;
    let (from, last) = (params.number("from")?, params.number("last")?);
    let since = params.one("since")?.map(|text| time_micros(&text)).transpose()?;
    let (limit, follow) = (params.number("limit")?, params.flag("follow")?);
    let interval = in_range(params.number("interval_ms")?, "interval_ms", INTERVALS_MS, follow)?;
    let skips_to_newest = in_range(params.number("newest")?, "newest", NEWEST, follow)?;
    params.finish()?;
    if usize::from(from.is_some()) + usize::from(since.is_some()) + usize::from(last.is_some()) > 1 {
        return Err(Problem::invalid_parameter("of the parameters from, since and last only one is allowed"));
    }
    let db = app.service.database();
    let newest = db.seq();
    let first = match (from, since, last) {
        (Some(from), ..) => from,
        (_, Some(time), _) => app.service.run_blocking_limited(|| first_since(db, time)).await?.0,
        (.., Some(last)) => (newest.0 + 1).saturating_sub(last),
        (None, None, None) => 1,
    };
    let first = Seq(first.max(1));
    let end = if follow { None } else { Some(newest) };
    let feed = Feed {
        feed: db.changes(first).map_err(WireError::from)?,
        exactly: from.is_some(),
        service: app.service.clone(),
        caller,
        access_seen: u64::MAX,
        end,
        left: limit.unwrap_or(u64::MAX),
        interval: interval.map(Duration::from_millis),
        caught_up: None,
        skips_to_newest,
        payload: if exact_asked(&headers) { Payload::Exact } else { Payload::Json },
    };
    let kind = if feed.payload == Payload::Exact { EXACT } else { NDJSON };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    let (feed, begin) = feed.chunk().await?;
    let lines = Frames::Lines.follow(feed, begin, app.settings.heartbeat);
    // Fused: the body may be polled again after its end.
    let body = Body::from_stream(lines.map(Ok::<_, Infallible>).fuse());
    Ok((headers, body).into_response())
}

/// Checks a parameter that is allowed with `follow` only.
fn in_range(
    value: Option<u64>,
    name: &str,
    allowed: RangeInclusive<u64>,
    follow: bool,
) -> Result<Option<u64>> {
    let Some(found) = value else { return Ok(None) };
    if !follow {
        return Err(Problem::invalid_parameter(format!(
            "parameter {name:?} is allowed with follow=true only"
        )));
    }
    if !allowed.contains(&found) {
        let (least, most) = (allowed.start(), allowed.end());
        let detail = format!("parameter {name:?} is {found}; {least} to {most} are allowed");
        return Err(Problem::invalid_parameter(detail));
    }
    Ok(value)
}

/// A time in the query string, microseconds since 1970.
fn time_micros(text: &str) -> Result<i64> {
    match from_text(text, Type::TIMESTAMPTZ) {
        Ok(Value::Timestamptz(micros)) => Ok(micros),
        _ => Err(Problem::invalid_parameter(format!(
            "parameter \"since\" is {text:?}; a time such as 2026-11-27T13:00:00Z is needed"
        ))),
    }
}

/// The first commit at or after a time, or else the number after the newest commit.
///
/// By halving: the times of commits do not fall. Each step reads a part of a segment of the log.
fn first_since(db: &Database, time_micros: i64) -> Result<Seq, WireError> {
    let (mut low, mut high) = (1, db.seq().0 + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match db.changes(Seq(middle))?.next(Duration::ZERO) {
            Ok(Some(change)) if change.time_micros < time_micros => low = middle + 1,
            Ok(_) => high = middle,
            Err(Error::Engine(EngineError::FeedTrimmed { oldest, .. })) => low = oldest.0.max(middle + 1),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Seq(low))
}

/// A position in the feed, and its end.
struct Feed {
    service: Service,
    caller: Caller,
    /// Changes of users and tokens at the last check of the caller.
    access_seen: u64,
    feed: ChangeFeed,
    /// If the log no longer holds the first commit: true fails, false begins with the oldest one.
    exactly: bool,
    /// Last commit; `None`: the feed never ends.
    end: Option<Seq>,
    /// Commits remaining until the end.
    left: u64,
    /// Least time between two chunks of new commits.
    interval: Option<Duration>,
    /// When the feed had sent every commit; `None` while it has more to send.
    caught_up: Option<Instant>,
    /// How many of the commits since the last chunk are sent.
    skips_to_newest: Option<u64>,
    payload: Payload,
}

impl Follow for Feed {
    /// Reads the available commits, up to a chunk. Fails when the caller's right was withdrawn.
    async fn chunk(mut self) -> Result<(Self, Vec<u8>), WireError> {
        if let Some((since, interval)) = self.caught_up.zip(self.interval) {
            tokio::select! {
                () = tokio::time::sleep_until(since + interval) => {}
                () = self.service.stop().wait() => return Err(WireError::stopping()),
            }
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut out = Vec::new();
            if self.caught_up.take().is_some() {
                self.skip(&mut out)?;
            }
            while !self.has_ended() && out.len() < CHUNK_BYTES {
                if !self.one(&mut out)? {
                    self.caught_up = Some(Instant::now());
                    break;
                }
            }
            Ok((self, out))
        });
        let (mut feed, out) = read
            .await
            .unwrap_or_else(|_| Err(WireError::new(Code::Internal, "the change feed could not be read")))?;
        if !out.is_empty() {
            // After the read: the commits may be newer than the withdrawal of a right.
            feed.service.access().revalidate(&mut feed.caller, &mut feed.access_seen)?;
            feed.caller.check(Right::Admin, None)?;
        }
        Ok((feed, out))
    }

    fn has_ended(&self) -> bool {
        self.left == 0 || self.end.is_some_and(|end| self.feed.next_seq() > end)
    }

    fn service(&self) -> &Service {
        &self.service
    }
}

impl Feed {
    /// Skips to the newest commits, if only so many are wanted.
    fn skip(&mut self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let Some(most) = self.skips_to_newest else { return Ok(()) };
        let db = self.service.database();
        let (next, newest) = (self.feed.next_seq().0, db.seq().0);
        let skipped = (newest + 1).saturating_sub(next).saturating_sub(most);
        if skipped > 0 {
            self.feed = db.changes(Seq(next + skipped))?;
            out.extend_from_slice(b"{\"control\":\"skipped\",\"commits\":");
            put_number(out, skipped);
            out.extend_from_slice(b"}\n");
        }
        Ok(())
    }

    fn one(&mut self, out: &mut Vec<u8>) -> Result<bool, WireError> {
        match self.feed.next(Duration::ZERO) {
            Ok(Some(change)) => put_change(out, &change, self.payload)?,
            Ok(None) => return Ok(false),
            Err(Error::Engine(EngineError::FeedTrimmed { oldest, .. })) if !self.exactly => {
                self.feed = self.service.database().changes(oldest)?;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
        self.left -= 1;
        // From here on a missing commit would be a gap in the feed.
        self.exactly = true;
        Ok(true)
    }
}

/// Begins the object of a commit: `{"seq":9,"recorded_at":"…"`.
pub(super) fn put_head(out: &mut Vec<u8>, change: &Change<'_>) {
    out.extend_from_slice(b"{\"seq\":");
    put_number(out, change.seq.0);
    out.extend_from_slice(b",\"recorded_at\":\"");
    put_time(out, change.time_micros);
    out.push(b'"');
}

fn put_change(out: &mut Vec<u8>, change: &Change<'_>, payload: Payload) -> Result<(), WireError> {
    put_head(out, change);
    out.extend_from_slice(b",\"appends\":[");
    let mut separate = Separate::default();
    for part in &change.parts {
        let ChangedPart::Events { store, append } = part else { continue };
        separate.before(out);
        out.extend_from_slice(b"{\"store\":");
        put_string(out, store);
        if append.deletes {
            out.extend_from_slice(b",\"deleted\":true");
        }
        if let Some((source, position)) = append.tracking {
            out.extend_from_slice(b",\"tracking\":{\"source\":");
            put_string(out, source);
            out.extend_from_slice(b",\"position\":");
            put_number(out, position);
            out.push(b'}');
        }
        out.extend_from_slice(b",\"events\":[");
        let mut separate = Separate::default();
        for event in append.events() {
            let (position, event) = event.map_err(|error| damaged(change, &error))?;
            separate.before(out);
            put_event_of(out, position, change.seq, change.time_micros, &event, payload);
        }
        out.extend_from_slice(b"]}");
    }
    out.push(b']');
    put_writes(out, change);
    put_others(out, change);
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Writes to keyspaces, without their values.
fn put_writes(out: &mut Vec<u8>, change: &Change<'_>) {
    out.extend_from_slice(b",\"writes\":[");
    let mut separate = Separate::default();
    for part in &change.parts {
        let ChangedPart::Keys(writes) = part else { continue };
        for (keyspace, write) in writes {
            separate.before(out);
            put_write(out, *keyspace, write);
        }
    }
    out.push(b']');
}

/// One write to a keyspace, without its value.
pub(super) fn put_write(out: &mut Vec<u8>, keyspace: Keyspace, write: &KvWrite<'_>) {
    out.extend_from_slice(b"{\"keyspace\":");
    put_number(out, u64::from(keyspace.id()));
    let (name, key, end) = match write {
        KvWrite::Put(key, _) => ("put", key, None),
        KvWrite::Delete(key) => ("delete", key, None),
        KvWrite::DeleteRange(start, end) => ("delete_range", start, Some(end)),
    };
    out.extend_from_slice(b",\"change\":");
    put_string(out, name);
    put_base64(out, "key_base64", key);
    if let Some(end) = end {
        put_base64(out, "end_base64", end);
    }
    out.push(b'}');
}

/// Sizes of writes to other models, if any: their bytes are only for the log.
pub(super) fn put_others(out: &mut Vec<u8>, change: &Change<'_>) {
    let mut separate = Separate::default();
    for part in &change.parts {
        let ChangedPart::Other(_, bytes) = part else { continue };
        if !separate.0 {
            out.extend_from_slice(b",\"others\":[");
        }
        separate.before(out);
        out.extend_from_slice(b"{\"model\":");
        put_string(out, part.model().unwrap_or("unknown"));
        out.extend_from_slice(b",\"bytes\":");
        put_number(out, bytes.len() as u64);
        out.push(b'}');
    }
    if separate.0 {
        out.push(b']');
    }
}

/// Writes commas between elements.
#[derive(Default)]
pub(super) struct Separate(bool);

impl Separate {
    pub(super) fn before(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.0, true) {
            out.push(b',');
        }
    }
}

pub(super) fn damaged(change: &Change<'_>, error: &dyn std::error::Error) -> WireError {
    WireError::new(Code::Corrupt, format!("commit {}: {error}", change.seq))
}
