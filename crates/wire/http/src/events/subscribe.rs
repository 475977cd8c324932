//! Live subscriptions as server-sent events or NDJSON.
//!
//! ```text
//! id: 7                                       {"position":7,…}
//! data: {"position":7,…}
//!
//! id: 9
//! event: caught-up                            {"control":"caught-up","head":9}
//! data: {"head":9}
//!
//! : heartbeat                                 {"control":"heartbeat"}
//! ```
//! The id is the position to resume after: everything up to it has been delivered or does not match. A
//! browser sends it back automatically as `Last-Event-ID`. Subscriptions that follow the same query share the
//! encoded bytes: a batch is encoded once, by the first subscription that needs it, and cached next to the
//! events. Nothing is buffered for a slow reader; the database stores the events, and the reader its
//! position.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use ropewalk::Position;
use ropewalk_auth::Needs;
use ropewalk_http_kit::json::put_number;
use ropewalk_wire::{EncodedBatch, Followed, Following, Frame, Service, WireError};
use utoipa_axum::routes;

use crate::events::query_of;
use crate::kit::encode::put_event;
use crate::kit::params::{MustExist, Params, QueryParams};
use crate::kit::path::{PathRequest, StoreName};
use crate::kit::problem::{Problem, Result};
use crate::kit::stream::{NDJSON, preferred};
use crate::route::{Route, STORE};

const SSE: &str = "text/event-stream";

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::read(STORE), routes!(subscribe))]
}

/// Follows matching events for ever: existing ones, then each new one as soon as it is durable.
///
/// Server-sent events by default (`Accept: text/event-stream` or `format=sse`), NDJSON by `Accept:
/// application/x-ndjson` or `format=ndjson`. Besides events there are `caught-up` (everything up to `head`
/// has been delivered; the following events are live), `fell-behind` (the reader is slower than the writers),
/// heartbeats, and `error`, after which the stream ends. Nothing is skipped or repeated for a client that
/// resumes by `Last-Event-ID`. A store that does not exist yet is caught up with at once; its first events
/// are delivered when they are durable.
#[utoipa::path(
    get, path = "/v1/stores/{store}/subscribe", operation_id = "subscribe", tag = "events",
    params(
        StoreName, QueryParams,
        ("after" = Option<String>, Query, description = "Only events after this position; `head`: only new ones. Absent: from the first."),
        ("checkpoint" = Option<String>, Query, description = "Instead of `after`: only events after the checkpoint of this consumer."),
        MustExist,
        ("format" = Option<String>, Query, description = "`sse` or `ndjson`, instead of the header Accept."),
        ("last-event-id" = Option<u64>, Header, description = "Resumes after this position, whatever `after` says."),
    ),
    responses(
        (status = 200, description = "A stream without end.",
            content((String = "text/event-stream"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is SSE and NDJSON."),
    ),
)]
async fn subscribe(at: PathRequest<StoreName>, headers: HeaderMap) -> Result<Response> {
    let PathRequest { app, caller, names: StoreName { store }, query } = at;
    let mut params = Params::parse(query.as_deref())?;
    let store = params.asked(&store)?;
    let frames = frames(&mut params, &headers)?;
    let query = query_of(&mut params)?;
    let (after, consumer) = (params.one("after")?, params.one("checkpoint")?);
    if after.is_some() && consumer.is_some() {
        return Err(Problem::invalid_parameter("the parameter checkpoint excludes after"));
    }
    let after = match (resume(&headers)?, after.as_deref()) {
        (Some(position), _) => Some(position),
        (None, Some("head")) => app.service.head(&caller, store).await?,
        (None, Some(text)) => {
            let refuse = |_| {
                Problem::invalid_parameter(format!(
                    "parameter \"after\" is {text:?}; a position or head is needed"
                ))
            };
            Some(Position(text.parse().map_err(refuse)?))
        }
        (None, None) => match consumer {
            Some(consumer) => {
                app.service.checkpoints(&caller, store)?.get(&consumer).map_err(WireError::from)?
            }
            None => None,
        },
    };
    params.finish()?;
    let following = app.service.follow(&caller, store, query, after)?;
    Ok(respond(following, frames, app.settings.heartbeat))
}

pub(crate) fn frames(params: &mut Params, headers: &HeaderMap) -> Result<Frames> {
    match params.one("format")?.as_deref() {
        Some("sse") => Ok(Frames::Sse),
        Some("ndjson") => Ok(Frames::Lines),
        Some(other) => Err(Problem::invalid_parameter(format!(
            "parameter \"format\" is {other:?}; sse or ndjson is needed"
        ))),
        None if preferred(headers, &[SSE, NDJSON])? == SSE => Ok(Frames::Sse),
        None => Ok(Frames::Lines),
    }
}

fn resume(headers: &HeaderMap) -> Result<Option<Position>> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    let position = value.to_str().ok().and_then(|text| text.parse().ok());
    let refuse = || Problem::invalid_header(format!("Last-Event-ID is {value:?}; a position is needed"));
    position.map(|position| Some(Position(position))).ok_or_else(refuse)
}

/// Framing of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frames {
    Sse,
    Lines,
}

impl Frames {
    /// A response without end.
    pub(crate) fn respond(self, frames: impl Stream<Item = Bytes> + Send + 'static) -> Response {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static(if self == Self::Sse { SSE } else { NDJSON })),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        ];
        // Fused: the body may be polled again after its end.
        (headers, Body::from_stream(frames.map(Ok::<_, Infallible>).fuse())).into_response()
    }

    /// The frames of a stream after `begin`: chunks, heartbeats while there is nothing, and its error.
    pub(crate) fn follow(
        self,
        source: impl Follow,
        begin: Vec<u8>,
        heartbeat: Duration,
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        let rest = stream::unfold(Some(source), move |source| async move {
            match next(source?, self, heartbeat).await {
                Ok(next) => next.map(|(frame, source)| (frame, Some(source))),
                Err(error) => Some((self.error(error), None)),
            }
        });
        stream::iter((!begin.is_empty()).then(|| Bytes::from(begin))).chain(rest)
    }

    fn events(self, batch: &EncodedBatch) -> Bytes {
        let mut out = Vec::new();
        for event in batch.events() {
            match self {
                Self::Sse => {
                    out.extend_from_slice(b"id: ");
                    put_number(&mut out, event.position.0);
                    out.extend_from_slice(b"\ndata: ");
                    put_event(&mut out, &event);
                    out.extend_from_slice(b"\n\n");
                }
                Self::Lines => {
                    put_event(&mut out, &event);
                    out.push(b'\n');
                }
            }
        }
        out.into()
    }

    fn control(self, name: &str, head: Position) -> Bytes {
        let head = head.0;
        match self {
            Self::Sse => format!("id: {head}\nevent: {name}\ndata: {{\"head\":{head}}}\n\n"),
            Self::Lines => format!("{{\"control\":\"{name}\",\"head\":{head}}}\n"),
        }
        .into()
    }

    /// A message with a JSON object of one line.
    pub(super) fn message(self, name: &str, json: &str) -> Bytes {
        match self {
            Self::Sse => format!("event: {name}\ndata: {json}\n\n"),
            Self::Lines => format!("{json}\n"),
        }
        .into()
    }

    pub(crate) fn heartbeat(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Sse => b": heartbeat\n\n",
            Self::Lines => b"{\"control\":\"heartbeat\"}\n",
        })
    }

    pub(crate) fn error(self, error: WireError) -> Bytes {
        let problem = serde_json::to_string(Problem::from(error).body()).unwrap_or_default();
        match self {
            Self::Sse => format!("event: error\ndata: {problem}\n\n"),
            Self::Lines => format!("{{\"control\":\"error\",\"problem\":{problem}}}\n"),
        }
        .into()
    }
}

fn frame(frames: Frames, followed: Followed) -> Bytes {
    match followed {
        Followed::Events(batch) => {
            let kept = if frames == Frames::Sse { Frame::Sse } else { Frame::Ndjson };
            batch.frame(kept, |batch| frames.events(batch))
        }
        Followed::CaughtUp { head } => frames.control("caught-up", head),
        Followed::FellBehind { head } => frames.control("fell-behind", head),
    }
}

/// A stream over the commits of the database.
pub(crate) trait Follow: Sized + Send + 'static {
    /// Reads what there is, up to a chunk.
    fn chunk(self) -> impl Future<Output = Result<(Self, Vec<u8>), WireError>> + Send;

    /// True when nothing will be read any more.
    fn has_ended(&self) -> bool;

    fn service(&self) -> &Service;
}

async fn next<F: Follow>(
    mut source: F,
    frames: Frames,
    heartbeat: Duration,
) -> Result<Option<(Bytes, F)>, WireError> {
    while !source.has_ended() {
        // Any later commit wakes us.
        let seen = source.service().database().seq();
        let out;
        (source, out) = source.chunk().await?;
        if !out.is_empty() {
            return Ok(Some((out.into(), source)));
        }
        if source.has_ended() {
            break;
        }
        let service = source.service();
        tokio::select! {
            news = service.database().wait_visible_after(seen) => {
                news.map_err(|error| WireError::from(ropewalk::Error::from(error)))?;
            }
            () = service.stop().wait() => return Err(WireError::stopping()),
            () = tokio::time::sleep(heartbeat) => return Ok(Some((frames.heartbeat(), source))),
        }
    }
    Ok(None)
}

fn respond(following: Following, frames: Frames, heartbeat: Duration) -> Response {
    let live = stream::unfold(Some(following), move |following| async move {
        let mut following = following?;
        let frame = match tokio::time::timeout(heartbeat, following.next()).await {
            Err(_) => frames.heartbeat(),
            Ok(Ok(followed)) => frame(frames, followed),
            Ok(Err(error)) => return Some((frames.error(error), None)),
        };
        Some((frame, Some(following)))
    });
    frames.respond(live)
}
