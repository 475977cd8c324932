//! OpenTelemetry spans of requests. None are built without the feature `otel` or a configured collector,
//! because then no subscriber is interested in their target.
//!
//! Names and attributes are those of Opossum, whose users have dashboards with them: `Append`, `Read`,
//! `ReadLast`, with `db.operation`, `opossum.context` (the store) and `opossum.append.conflict`. Other
//! requests are named by method and route. Spans are made where requests arrive, so they do not contain the
//! number of events.

use axum::body::Body;
use axum::http::{Method, Request, Response};
use tracing::Span;
use tracing::field::Empty;

/// Target of every span; log lines have others.
pub(crate) const TARGET: &str = "ropewalk::spans";

/// `grpc-status` of a failed condition.
const FAILED_PRECONDITION: &str = "9";

/// Begins the span of a request.
pub(crate) fn begin(request: &Request<Body>) -> Span {
    if !tracing::enabled!(target: TARGET, tracing::Level::TRACE) {
        return Span::none();
    }
    let (method, path) = (request.method(), request.uri().path());
    let (name, operation) = named(method, path);
    // The port knows the store of an event call without the header.
    let store = store_of_header(request)
        .or_else(|| if is_event_call(path) { None } else { store_of(path).or(Some("default")) });
    tracing::trace_span!(
        target: TARGET,
        "request",
        otel.name = name,
        otel.kind = "server",
        db.operation = operation,
        opossum.context = store,
        opossum.append.conflict = Empty,
        http.response.status_code = Empty,
    )
}

/// Records the store of the gRPC port that an event call came to, unless the call names another in its
/// header.
pub(crate) fn name_store(request: &Request<Body>, store: &str) {
    if is_event_call(request.uri().path()) && store_of_header(request).is_none() {
        Span::current().record("opossum.context", store);
    }
}

/// Records the outcome.
pub(crate) fn end(span: &Span, response: &Response<Body>) {
    if span.is_none() {
        return;
    }
    let status = response.status().as_u16();
    let refused = response.headers().get("grpc-status").is_some_and(|code| code == FAILED_PRECONDITION);
    span.record("http.response.status_code", status);
    span.record("opossum.append.conflict", status == 409 || refused);
}

fn store_of_header(request: &Request<Body>) -> Option<&str> {
    request.headers().get("x-store")?.to_str().ok()
}

/// True for the path of a call of a gRPC event service.
fn is_event_call(path: &str) -> bool {
    path.starts_with("/umadb.") || path.starts_with("/ropewalk.")
}

/// Name of the span and of the operation.
fn named(method: &Method, path: &str) -> (&'static str, &'static str) {
    let last = path.rsplit('/').next().unwrap_or_default();
    match (method.as_str(), last) {
        ("POST", "events" | "append" | "Append") => ("Append", "append"),
        ("POST", "events:query" | "Read") | ("GET", "events" | "read") => ("Read", "read"),
        (_, "events:last" | "Last") => ("ReadLast", "read_last"),
        ("GET", "subscribe") | (_, "Subscribe") => ("Subscribe", "subscribe"),
        _ => ("Request", "other"),
    }
}

/// `{store}` of `/v1/stores/{store}/…`, as written in the path.
fn store_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/stores/")?.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_names_that_dashboards_know() {
        let name = |method: Method, path: &str| named(&method, path).0;
        assert_eq!(name(Method::POST, "/v1/stores/a/events"), "Append");
        assert_eq!(name(Method::POST, "/umadb.v1.DCB/Append"), "Append");
        assert_eq!(name(Method::GET, "/v1/stores/a/events"), "Read");
        assert_eq!(name(Method::POST, "/v1/stores/a/events:last"), "ReadLast");
        assert_eq!(name(Method::GET, "/metrics"), "Request");
        assert_eq!(store_of("/v1/stores/a/events"), Some("a"));
    }

    #[test]
    fn no_span_is_built_without_a_collector() {
        assert!(begin(&Request::new(Body::empty())).is_none());
    }
}
