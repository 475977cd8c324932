//! Layers around every route: time limit, compression, metrics, and the responses for unknown routes.

use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::future::Either;
use ropewalk_auth::{BrowserSession, Needs, Resource};
use ropewalk_http_kit::response::measured;
use ropewalk_wire::Code;
use tower_http::compression::predicate::SizeAbove;
use tower_http::compression::{CompressionLayer, CompressionLevel};
use utoipa_axum::routes;

use crate::admin::{auth, hosts};
use crate::app::App;
use crate::kit::problem::{Problem, Refusal};
use crate::route::Route;
use crate::routes::cluster;

/// Smaller responses are sent uncompressed: compression would cost more than it saves.
const COMPRESS_BYTES_MIN: u16 = 1_024;

pub(crate) fn compression() -> CompressionLayer<SizeAbove> {
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(COMPRESS_BYTES_MIN))
}

/// Finds the caller of a request, and ends a request that takes too long. Reading the body has a separate
/// limit, so a request has twice the time; a stream is past this once it begins.
pub(crate) fn admit(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> impl Future<Output = Response> + Send {
    // Boxed: the future would otherwise have bytes for the request until the response.
    admit_in_time(app, Box::new(request), next)
}

async fn admit_in_time(app: App, mut request: Box<Request>, next: Next) -> Response {
    if let Err(refused) = auth::authenticate(&app, &mut request).await {
        return refused;
    }
    let most = 2 * app.service.limits().request_time;
    let in_session = is_in_session(&request);
    let served = match app.service.cluster() {
        None => tokio::time::timeout(most, next.run(*request)).await,
        Some(_) => tokio::time::timeout(most, Box::pin(cluster::serve(&app, *request, next))).await,
    };
    match served {
        Ok(response) => uncached(in_session, response),
        Err(_) => {
            let detail = format!(
                "the request took longer than {most:?}, twice the setting limits.request_time; if it was an \
                 append, it may still have happened"
            );
            Problem::new(Code::Timeout, detail).into_response()
        }
    }
}

/// As [`admit`], without the limit of time.
pub(crate) async fn admit_without_limit(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(refused) = auth::authenticate(&app, &mut request).await {
        return refused;
    }
    let in_session = is_in_session(&request);
    uncached(in_session, next.run(request).await)
}

fn is_in_session(request: &Request) -> bool {
    request.extensions().get::<BrowserSession>().is_some()
}

/// Forbids caches to store the response to a request with the cookie of a session. A shared cache may store
/// it otherwise, since the request has no `Authorization`, and a browser may show it after the logout.
fn uncached(in_session: bool, mut response: Response) -> Response {
    if in_session {
        response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

/// Checks headers and host of each request, then counts and times it under the name of its operation. All in
/// one layer, since each layer costs a request almost a KiB while it is served.
pub(crate) fn enter(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> impl Future<Output = Response> + Send {
    let checked = auth::limit_headers(&app, &request).and_then(|()| hosts::check(&app, &request));
    if let Err(problem) = checked {
        return Either::Left(core::future::ready(problem.into_response()));
    }
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let operation = operation(request.method(), path);
    Either::Right(measured(app.service.metrics(), "http", operation, next.run(request)))
}

/// Operation names for metrics, few and fixed.
fn operation(method: &Method, path: &str) -> &'static str {
    let Some(rest) = path.strip_prefix("/v1/stores") else {
        return match (method.as_str(), path) {
            ("POST", "/append") => "compatible_append",
            ("GET" | "HEAD", "/read") => "compatible_read",
            ("POST", "/read") => "compatible_count",
            ("POST", "/cleanup") => "compatible_cleanup",
            (_, "/v1/stats" | "/v1/stats/live") => "stats",
            (_, "/v1/changes") => "changes",
            (_, "/v1/commits/{seq}") => "commit",
            (_, "/v1/session") => "session",
            (_, path) if path.starts_with("/v1/cluster") => "cluster",
            (_, path) if path.starts_with("/v1/databases") => documents(method, path),
            (_, "/v1/transactions") => "transaction",
            (_, path) if path.starts_with("/v1/transactions/") => "open_transaction",
            (_, path) if path.starts_with("/v1/projects") => "bundoc",
            (_, path) if path.starts_with("/v1/backups") => "backup",
            (_, path) if path.starts_with("/v1/users") || path.starts_with("/v1/tokens") => "access",
            (_, "") => "no_route",
            (_, path) if path.starts_with("/api/v1/") => "prometheus",
            _ => "other",
        };
    };
    match (method.as_str(), rest.strip_prefix("/{store}").unwrap_or("list")) {
        ("POST", "/events") => "append",
        ("GET" | "HEAD", "/events") | ("POST", "/events:query") => "read",
        (_, "/events:last") => "last",
        (_, "/events:count") => "count",
        (_, "/events:exists") => "exists",
        (_, "/head") => "head",
        (_, "/subscribe") => "subscribe",
        (_, "/tracking/{source}") => "tracking",
        (_, "/groups/{group}/take") => "group_take",
        (_, rest) if rest.starts_with("/groups/{group}/") => "group_settle",
        (_, rest) if rest.starts_with("/groups") => "groups",
        (_, rest) if rest.starts_with("/checkpoints") => "checkpoints",
        (_, "list") => "list_stores",
        ("PUT", "") => "create_store",
        ("DELETE", "") => "delete_store",
        (_, "") => "store",
        _ => "other",
    }
}

/// Operation names for documents.
fn documents(method: &Method, path: &str) -> &'static str {
    match (method.as_str(), path.rsplit('/').next().unwrap_or_default()) {
        (_, "transaction") => "documents_transaction",
        (_, "watch") => "documents_watch",
        ("GET" | "HEAD", "{id}") => "documents_get",
        (_, "{id}") => "documents_write_one",
        ("POST", "documents") => "documents_insert",
        (_, "documents" | "documents:query") => "documents_query",
        (_, "documents:aggregate") => "documents_aggregate",
        (_, "documents:count" | "documents:distinct" | "documents:explain") => "documents_ask",
        (_, "documents:update" | "documents:delete" | "documents:modify") => "documents_write",
        ("GET" | "HEAD", _) => "documents_look",
        _ => "documents_define",
    }
}

/// Liveness: the process responds.
pub(crate) async fn health() -> Json<serde_json::Value> {
    Json(serde_json::json!({ "status": "ok" }))
}

/// Routes that the OpenAPI document does not have.
pub(crate) fn routes() -> Vec<Route> {
    // The metrics name stores.
    vec![Route::undescribed(Needs::read(Resource::AllStores), Method::GET, "/metrics", metrics)]
}

/// All metrics, in the text format of Prometheus.
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let text = app.service.metrics().render(app.service.database());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

pub(crate) fn readiness() -> Route {
    Route::new(Needs::PUBLIC, routes!(ready))
}

/// Reports whether requests are accepted, including writes. Needs no credentials.
#[utoipa::path(
    get, path = "/ready", operation_id = "readiness", tag = "stores",
    responses((status = 200, description = "Requests are accepted.", body = serde_json::Value)),
)]
async fn ready(State(app): State<App>) -> Result<Json<serde_json::Value>, Problem> {
    app.service.readiness()?;
    Ok(Json(serde_json::json!({ "status": "ready" })))
}

pub(crate) async fn no_route(uri: Uri) -> Problem {
    Problem::refused(
        Refusal::NoRoute,
        format!("there is no path {:?}; /openapi.json lists every path", uri.path()),
    )
}

pub(crate) async fn other_methods(method: Method, uri: Uri) -> Problem {
    Problem::refused(
        Refusal::Method,
        format!("{method} is not possible at {:?}; the header Allow lists the methods", uri.path()),
    )
}
