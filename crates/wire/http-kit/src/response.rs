//! Responses: complete or in chunks, counted for the metrics.

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::Response;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use ropewalk_wire::{Code, Metrics, WireError};

/// A response with a serialized JSON value.
pub fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body of `first` with its length, or a stream of `first` and `rest`. A stream that fails is cut off, so
/// that no client can take a part for the complete result.
pub fn chunks<S, E>(first: Bytes, rest: Option<S>) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<axum::BoxError> + Send + 'static,
{
    match rest {
        None => Body::from(first),
        Some(rest) => Body::from_stream(stream::once(core::future::ready(Ok(first))).chain(rest)),
    }
}

/// Seconds of `Retry-After`, at least one.
pub fn retry_after_seconds(error: &WireError) -> Option<u64> {
    error.retry_after.map(|after| after.as_secs_f64().ceil().max(1.0) as u64)
}

/// Completes an error response: the code for [`measured`], and `Retry-After`.
pub fn mark(response: &mut Response, code: Code, retry_after_seconds: Option<u64>) {
    response.extensions_mut().insert(code);
    if let Some(seconds) = retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// Counts and times a request, which is `running`, under the name of its operation.
///
/// Not an `async fn`, whose future would reserve bytes for two copies of `running`.
pub fn measured<F: Future<Output = Response>>(
    metrics: &Metrics,
    protocol: &'static str,
    operation: &'static str,
    running: F,
) -> impl Future<Output = Response> + use<F> {
    let timer = metrics.request(protocol, operation);
    running.map(move |response| {
        let outcome = response.extensions().get::<Code>().map_or(Ok(()), |code| Err(*code));
        timer.done(outcome);
        response
    })
}
