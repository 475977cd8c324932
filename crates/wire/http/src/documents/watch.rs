//! Change streams over HTTP: changes of documents, as server-sent events or NDJSON.
//!
//! ```text
//! id: 00000000000000070000000000000000        {"_id":{"_data":"0000…"},"operationType":"insert",…}
//! event: insert
//! data: {"_id":{"_data":"0000…"},"operationType":"insert",…}
//! ```
//! The id is the token to resume after; a browser sends it back automatically as `Last-Event-ID`. A stream
//! reads the log, so it has no buffer, and while it waits it holds no thread.

use std::str::FromStr as _;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use ropewalk::Seq;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{Pipeline, Value};
use ropewalk::documents::{ChangeEvent, ChangeStream, DocumentsError, ResumeToken, Target, Watch};
use ropewalk_auth::{Needs, Right};
use ropewalk_wire::{Bounds, Code, Service, WireError};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::collections::DatabaseName;
use super::queries::CollectionName;
use super::{DocumentContext, Place, refused, requests, responses};
use crate::app::App;
use crate::events::subscribe::{Follow, Frames, frames};
use crate::kit::params::Params;
use crate::kit::problem::{Problem, Result};
use crate::route::{DATABASE, Route};

/// Approximate bytes of one chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Events read before other work may run.
const CHUNK_EVENTS: usize = 1_000;

/// Parameters of a change stream. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
struct WatchParams {
    /// Resumes after the event with this token. 404 when the log no longer holds it.
    after: Option<String>,
    /// Instead of `after`: begins with this commit.
    from: Option<u64>,
    /// Updates carry the document, as it was in its commit.
    full_document: Option<bool>,
    /// Stages over the events, as JSON.
    pipeline: Option<String>,
    /// Shows every type as it is, numbers too.
    canonical: Option<bool>,
    /// `sse` or `ndjson`, instead of the header Accept.
    format: Option<String>,
}

/// Rules apply to documents, and events contain them.
const RULES: &str = "a collection with rules: `admin`";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::read(DATABASE).later(RULES), routes!(database)),
        Route::new(Needs::read(DATABASE).later(RULES), routes!(collection)),
    ]
}

/// Watches a database: every change of every collection, from now on or from a position in the past.
///
/// Server-sent events by default (`Accept: text/event-stream` or `format=sse`), NDJSON by `Accept: application/x-ndjson`
/// or `format=ndjson`. Nothing is skipped or repeated for a client that resumes by `Last-Event-ID`.
#[utoipa::path(
    get, path = "/v1/databases/{database}/watch", operation_id = "watch_database", tag = "documents",
    params(
        DatabaseName,
        WatchParams,
        ("last-event-id" = Option<String>, Header, description = "As `after`, whatever that says."),
    ),
    responses(
        (status = 200, description = "A stream without end.", content((String = "text/event-stream"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is SSE and NDJSON."),
    ),
)]
async fn database(
    Place { context, .. }: Place<DatabaseName>,
    State(app): State<App>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    context.named()?;
    let target = Target::Database(context.database.clone());
    open(&app, context, target, &headers, query.as_deref()).await
}

/// Watches a collection, which need not exist yet. The stream ends with it (`invalidate`).
#[utoipa::path(
    get, path = "/v1/databases/{database}/collections/{collection}/watch", operation_id = "watch_collection", tag = "documents",
    params(
        CollectionName,
        WatchParams,
        ("last-event-id" = Option<String>, Header, description = "As `after`, whatever that says."),
    ),
    responses(
        (status = 200, description = "A stream without end, unless the collection goes.", content((String = "text/event-stream"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is SSE and NDJSON."),
    ),
)]
async fn collection(
    Place { context, name: CollectionName { collection, .. } }: Place<CollectionName>,
    State(app): State<App>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    context.collection(&collection)?;
    let target = Target::Collection { database: context.database.clone(), name: collection };
    open(&app, context, target, &headers, query.as_deref()).await
}

async fn open(
    app: &App,
    context: DocumentContext,
    target: Target,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Response> {
    let mut params = Params::parse(query)?;
    let frames = frames(&mut params, headers)?;
    let (watch, pipeline) = wanted(&context, &mut params, headers)?;
    let form = responses::form(params.flag("canonical")?);
    params.finish()?;
    not_ruled(&context, &target)?;
    let permit = context.service.admit_stream()?;
    let stream = context.documents().watch(target, watch, pipeline).map_err(refused)?;
    let live = Live { stream, context, frames, form, seen: u64::MAX, ended: false, _permit: permit };
    // The first read precedes the status, so that a lost position gets an error status.
    let (live, begin) = live.chunk().await?;
    Ok(frames.respond(frames.follow(live, begin, app.settings.heartbeat)))
}

/// The start of the stream, and its options.
fn wanted(
    context: &DocumentContext,
    params: &mut Params,
    headers: &HeaderMap,
) -> Result<(Watch, Option<Pipeline>)> {
    let token = |name: &str, text: &str| {
        let refuse = |_| format!("{name} is {text:?}; the id of an event is needed");
        ResumeToken::from_str(text).map_err(refuse)
    };
    let resumed = match headers.get("last-event-id").filter(|value| !value.is_empty()) {
        Some(value) => {
            let token = token("Last-Event-ID", value.to_str().unwrap_or_default());
            Some(token.map_err(Problem::invalid_header)?)
        }
        None => None,
    };
    let after = params.one("after")?.map(|text| token("parameter \"after\"", &text)).transpose();
    let after = after.map_err(Problem::invalid_parameter)?;
    let from = params.number("from")?.map(Seq);
    if after.is_some() && from.is_some() {
        return Err(Problem::invalid_parameter("the parameter after excludes from"));
    }
    let full_document = params.flag("full_document")?;
    let pipeline = params.one("pipeline")?;
    let parse = |text: String| context.bounds.run(|| requests::pipeline(&text, &context.options()));
    let pipeline = pipeline.map(parse).transpose()?;
    if pipeline.as_ref().is_some_and(|pipeline| pipeline.output().is_some()) {
        return Err(Problem::invalid_parameter("pipeline: a change stream writes nothing"));
    }
    Ok((Watch { after: resumed.or(after), from, full_document, expanded: false }, pipeline))
}

/// Rules apply to documents, and events show them to every watcher.
fn not_ruled(context: &DocumentContext, target: &Target) -> Result<()> {
    let names = match target {
        Target::Collection { name, .. } => vec![name.clone()],
        _ => context.documents().collections(&context.database).map_err(refused)?,
    };
    for name in names {
        if context.ruled(&context.collection(&name)?)? {
            let what =
                format!("collection {name:?} has rules; only administrators of the database may watch it");
            return Err(Problem::new(Code::PermissionDenied, what));
        }
    }
    Ok(())
}

/// A change stream being sent.
struct Live {
    stream: ChangeStream,
    context: DocumentContext,
    frames: Frames,
    form: Form,
    /// Version of users and tokens when the caller was last checked.
    seen: u64,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// Writes one event.
fn put(out: &mut Vec<u8>, event: &ChangeEvent, frames: Frames, form: Form) {
    if frames == Frames::Sse {
        let kind = event.document.doc().get("operationType").and_then(Value::as_str);
        // A pipeline may have changed the kind; an invalid word is not sent as an event name.
        let kind = kind.filter(|kind| kind.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        out.extend_from_slice(format!("id: {}\n", event.token).as_bytes());
        if let Some(kind) = kind {
            out.extend_from_slice(format!("event: {kind}\n").as_bytes());
        }
        out.extend_from_slice(b"data: ");
    }
    extjson::put_document(out, event.document.doc(), form);
    out.extend_from_slice(if frames == Frames::Sse { b"\n\n" } else { b"\n" });
}

impl Follow for Live {
    async fn chunk(mut self) -> Result<(Self, Vec<u8>), WireError> {
        let mut out = Vec::new();
        let (service, frames, form) = (self.context.service.clone(), self.frames, self.form);
        let read = || {
            for _ in 0..CHUNK_EVENTS {
                let Some(event) = self.stream.next(Duration::ZERO)? else { break };
                put(&mut out, &event, frames, form);
                if out.len() >= CHUNK_BYTES {
                    break;
                }
            }
            Ok::<_, DocumentsError>(())
        };
        let bounds = Bounds::new(&service);
        let read = || bounds.run(read);
        service.run_blocking_limited(read).await.map_err(|error| match error {
            DocumentsError::ResumeLost { .. } => WireError::not_found(error.to_string()),
            error => ropewalk::Error::from(error).into(),
        })?;
        self.ended = self.stream.has_ended();
        if !out.is_empty() {
            service.access().revalidate(&mut self.context.caller, &mut self.seen)?;
            self.context.caller.check(Right::Read, Some(&self.context.database))?;
        }
        Ok((self, out))
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn service(&self) -> &Service {
        &self.context.service
    }
}
