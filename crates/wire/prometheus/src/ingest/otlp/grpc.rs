//! OTLP metrics over gRPC: the unary call `Export`, the default of collectors.
//!
//! ```text
//! request    0 or 1 (compressed by grpc-encoding) │ length, 4 bytes │ ExportMetricsServiceRequest
//! response   0 │ length, 4 bytes │ ExportMetricsServiceResponse │ trailer grpc-status: 0
//! error      headers only: grpc-status, grpc-message
//! ```
//! Temporary errors are UNAVAILABLE or DEADLINE_EXCEEDED, the codes that OTLP's clients retry.
//! Source: "gRPC over HTTP2", "OpenTelemetry Protocol Specification".

use std::convert::Infallible;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use http_body_util::{BodyExt, Full};
use ropewalk_auth::Caller;
use ropewalk_http_kit::encoding::Encoding;
use ropewalk_wire::Code;

use crate::app::App;
use crate::request::body;
use crate::request::response::{ApiError, Kind};

use super::{Form, take};

/// Path of the call.
pub(crate) const PATH: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Bytes before a message.
pub(crate) const FRAME_HEAD: usize = 5;

/// `Export`.
pub(crate) async fn export(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    match answer(&app, &caller, request).await {
        Ok(message) => answered(&message),
        Err(error) => refused(&error),
    }
}

async fn answer(app: &App, caller: &Caller, request: Request) -> Result<Vec<u8>, ApiError> {
    let packed = encoding(request.headers());
    let body = body::plain(&app.service, request).await?;
    let cut = || ApiError::bad("the request is not one whole message");
    let (&[flag, a, b, c, d], message) = body.split_first_chunk::<FRAME_HEAD>().ok_or_else(cut)?;
    if message.len() != u32::from_be_bytes([a, b, c, d]) as usize {
        return Err(cut());
    }
    let encoding = match flag {
        0 => Encoding::Identity,
        _ => packed
            .ok_or_else(|| ApiError::new(Kind::MediaType, "grpc-encoding: gzip and zstd are possible"))?,
    };
    let body = body.message(FRAME_HEAD, encoding).await?;
    let refused = take(app, caller, Form::Protobuf, body).await?;
    Ok(Form::Protobuf.answer(refused))
}

/// Compression of messages whose compressed flag is set.
pub(crate) fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    match headers.get(ENCODING)?.to_str().ok()? {
        "gzip" => Some(Encoding::Gzip),
        "zstd" => Some(Encoding::Zstd),
        "identity" => Some(Encoding::Identity),
        _ => None,
    }
}

fn answered(message: &[u8]) -> Response {
    let trailers = trailers(None);
    let body = Full::new(frame(message)).with_trailers(async { Some(Ok::<_, Infallible>(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// A message with its frame header.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    Bytes::from([&[0][..], &length.to_be_bytes(), message].concat())
}

/// The trailers of a call whose response has begun.
pub(crate) fn trailers(error: Option<&ApiError>) -> HeaderMap {
    let status = error.map_or("0", |error| status(error).0);
    let mut trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static(status))]);
    if let Some(text) = error.and_then(|error| HeaderValue::try_from(escaped(&error.message)).ok()) {
        trailers.insert(MESSAGE, text);
    }
    trailers
}

fn status(error: &ApiError) -> (&'static str, Code) {
    match error.kind {
        Kind::BadData | Kind::Execution => ("3", Code::InvalidArgument),
        Kind::TooLarge => ("3", Code::TooLarge),
        Kind::Timeout => ("4", Code::Timeout),
        Kind::NotFound => ("5", Code::NotFound),
        Kind::Forbidden => ("7", Code::PermissionDenied),
        Kind::MediaType => ("12", Code::InvalidArgument),
        Kind::Internal => ("13", Code::Internal),
        Kind::TooMany => ("14", Code::ResourceExhausted),
        Kind::Unavailable | Kind::Canceled => ("14", Code::Stopping),
    }
}

pub(crate) fn refused(error: &ApiError) -> Response {
    let (status, code) = status(error);
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(STATUS, HeaderValue::from_static(status));
    headers.insert(ACCEPTED, HeaderValue::from_static("identity,gzip,zstd"));
    if let Ok(text) = HeaderValue::try_from(escaped(&error.message)) {
        headers.insert(MESSAGE, text);
    }
    response.extensions_mut().insert(code);
    response
}

/// Leaves printable ASCII, and escapes everything else as `%XX`.
fn escaped(text: &str) -> String {
    let each = |byte: u8| match byte {
        b' '..=b'$' | b'&'..=b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(each).collect()
}
