//! Statistics of the engine at an interval, as server-sent events or NDJSON.
//!
//! ```text
//! event: stats
//! data: {"seq":9,…}
//! ```
//! The stream ends with the caller's right, and when the server stops.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::{Stream, stream};
use ropewalk_auth::{Caller, Needs, Resource};
use ropewalk_wire::{Code, Page, Service, WireError};
use tokio::sync::OwnedSemaphorePermit;
use utoipa_axum::routes;

use crate::events::stores::StatsOut;
use crate::events::subscribe::{Frames, frames};
use crate::kit::params::{PageParams, Params};
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::route::Route;

/// Least and most milliseconds between two messages, and those of a request without an interval.
const INTERVAL_MS: (u64, u64, u64) = (100, 60_000, 1_000);

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::read(Resource::AllStores), routes!(live))]
}

/// State and sizes of the engine at an interval: the first message at once, then one after each interval.
///
/// Server-sent events by default (`Accept: text/event-stream` or `format=sse`), NDJSON by `Accept:
/// application/x-ndjson` or `format=ndjson`. A message has the form of `GET /v1/stats`. Needs the right to read
/// every store.
#[utoipa::path(
    get, path = "/v1/stats/live", operation_id = "live_stats", tag = "stores",
    params(
        PageParams,
        ("interval_ms" = Option<u64>, Query, description = "Milliseconds between two messages: 100 to 60,000, 1,000 if absent."),
        ("format" = Option<String>, Query, description = "`sse` or `ndjson`, instead of the header Accept."),
    ),
    responses(
        (status = 200, description = "A stream without end.",
            content((String = "text/event-stream"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is SSE and NDJSON."),
    ),
)]
async fn live(PathRequest { app, caller, query, .. }: PathRequest, headers: HeaderMap) -> Result<Response> {
    let mut params = Params::parse(query.as_deref())?;
    let frames = frames(&mut params, &headers)?;
    let (least, most, default) = INTERVAL_MS;
    let interval_ms = params.number("interval_ms")?.unwrap_or(default);
    let page = params.page()?;
    params.finish()?;
    if !(least..=most).contains(&interval_ms) {
        let detail = format!("parameter \"interval_ms\" is {interval_ms}; {least} to {most} are allowed");
        return Err(Problem::invalid(detail));
    }
    let permit = app.service.admit_stream()?;
    let interval = Duration::from_millis(interval_ms);
    let service = app.service.clone();
    let live = Live { service, caller, access_seen: u64::MAX, page, interval, _permit: permit };
    Ok(frames.respond(live.messages(frames)))
}

/// Statistics being sent.
struct Live {
    service: Service,
    caller: Caller,
    /// Version of users and tokens when the caller was last checked.
    access_seen: u64,
    /// The keyspaces of each message.
    page: Page,
    interval: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Live {
    fn messages(self, frames: Frames) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(Some((self, Duration::ZERO)), move |state| async move {
            let (mut live, pause) = state?;
            match live.next(pause, frames).await {
                Ok(message) => {
                    let interval = live.interval;
                    Some((message, Some((live, interval))))
                }
                Err(error) => Some((frames.error(error), None)),
            }
        })
    }

    /// The statistics after a pause, for a caller who still may read them.
    async fn next(&mut self, pause: Duration, frames: Frames) -> Result<Bytes, WireError> {
        tokio::select! {
            () = self.service.stop().wait() => return Err(WireError::stopping()),
            () = tokio::time::sleep(pause) => {}
        }
        self.service.access().revalidate(&mut self.caller, &mut self.access_seen)?;
        let stats = StatsOut::read(&self.service, &self.caller, &self.page)?;
        let json = serde_json::to_string(&stats)
            .map_err(|error| WireError::new(Code::Internal, format!("statistics: {error}")))?;
        Ok(frames.message("stats", &json))
    }
}
