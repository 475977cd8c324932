//! Request bodies: JSON only, bounded in bytes before and after inflating, bounded in time and memory.
//!
//!   headers ─▶ type, encoding, announced length ─▶ bytes (≤ limit, in time) ─▶ inflate (≤ limit) ─▶ UTF-8 ─▶ parse
//!
//! Each step rejects separately, as early as it can: a body of the wrong type or an announced length over the
//! limit is never read. Inflating and parsing of large bodies leave the async threads.

use std::io::Read;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use flate2::read::MultiGzDecoder;
use ropewalk_auth::Caller;
use ropewalk_wire::{
    BodyBounds, BodyError, Code, ConnectionMemory, Reservation, inflated_bytes_max, receive_body,
};
use serde::Deserialize;

use crate::App;
use crate::kit::json::Object;
use crate::kit::problem::{Problem, Refusal};

/// Bodies from this size on are inflated and parsed as blocking work.
const INLINE_BYTES_MAX: usize = 256 << 10;
/// Largest body of a caller without any right: enough to change the own password.
const BYTES_MAX_WITHOUT_RIGHTS: usize = 64 << 10;
/// Largest window of a zstd body, as a power of two: 8 MiB, which RFC 8878 requires of every decoder.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The body of a request: JSON by its headers, valid UTF-8, not parsed yet.
pub(crate) struct JsonText(Bytes, Reservation);

impl JsonText {
    /// Parses the body and converts it with `build`.
    pub(crate) async fn parse<T: Send + 'static>(
        self,
        build: impl FnOnce(&str) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let long = self.0.len() > INLINE_BYTES_MAX;
        off_thread_if(long, move || {
            let text = std::str::from_utf8(&self.0).map_err(|error| {
                Problem::invalid(format!("the body is not UTF-8: byte {} is invalid", error.valid_up_to()))
            })?;
            let built = build(text);
            drop(self.1);
            built
        })
        .await
    }
}

/// Parses a JSON object; an error has message, line and column.
pub(crate) fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    serde_json::from_str::<Object<T>>(text).map(|Object(parsed)| parsed).map_err(|error| {
        match error.classify() {
            serde_json::error::Category::Data => Problem::invalid(error.to_string()),
            _ => Problem::invalid(format!("the body is not JSON: {error}")),
        }
    })
}

async fn off_thread_if<T: Send + 'static>(
    long: bool,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if !long {
        return work();
    }
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the request could not be worked on")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// A rejected body. A wrong encoding lists the supported ones.
pub(crate) enum BodyProblem {
    Encoding(Problem),
    Other(Problem),
}

impl From<Problem> for BodyProblem {
    fn from(problem: Problem) -> Self {
        Self::Other(problem)
    }
}

impl IntoResponse for BodyProblem {
    fn into_response(self) -> Response {
        match self {
            Self::Other(problem) => problem.into_response(),
            Self::Encoding(problem) => {
                let mut response = problem.into_response();
                response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd"));
                response
            }
        }
    }
}

impl FromRequest<App> for JsonText {
    type Rejection = BodyProblem;

    async fn from_request(request: Request, app: &App) -> Result<Self, BodyProblem> {
        check_type(request.headers())?;
        let encoding = encoding(request.headers()).map_err(BodyProblem::Encoding)?;
        let limits = app.service.limits();
        let (parts, body) = request.into_parts();
        let bytes_max = bytes_allowed(&parts, app);
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let bounds = BodyBounds { bytes_max, announced, time: limits.request_time };
        let memory = parts.extensions.get::<ConnectionMemory>().cloned();
        let memory = memory.unwrap_or_else(|| app.service.request_memory().connection());
        // Headers hold the buffer that they were read into.
        drop(parts);
        let (bytes, mut reservation) = receive_body(body, bounds, &memory).await.map_err(refused)?;
        if encoding == Encoding::Identity {
            return Ok(Self(bytes, reservation));
        }
        let compressed = bytes.len();
        let inflated_max = inflated_bytes_max(compressed, bytes_max);
        reservation.cover(compressed + inflated_max).await.map_err(Problem::from)?;
        let inflated = off_thread_if(true, move || inflate(encoding, &bytes, inflated_max)).await?;
        reservation.shrink_to(inflated.len());
        Ok(Self(inflated.into(), reservation))
    }
}

/// Most bytes that the caller may send. A caller without any right gets here only by routes that need none.
fn bytes_allowed(parts: &Parts, app: &App) -> usize {
    let bytes_max = app.service.limits().request_bytes;
    match parts.extensions.get::<Caller>() {
        Some(caller) if !caller.has_any_right() => bytes_max.min(BYTES_MAX_WITHOUT_RIGHTS),
        _ => bytes_max,
    }
}

fn refused(error: BodyError) -> Problem {
    match error {
        BodyError::Memory(error) => error.into(),
        BodyError::TooLarge(_) => Problem::new(Code::TooLarge, error.to_string()),
        BodyError::TooSlow(_) => Problem::refused(Refusal::SlowRequest, error.to_string()),
        BodyError::Broken(_) => Problem::invalid(error.to_string()),
    }
}

/// Extractor for requests without a body; rejects one that has a body.
pub(crate) struct NoBody;

impl FromRequestParts<App> for NoBody {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let length = parts.headers.get(CONTENT_LENGTH);
        if length.is_some_and(|length| length != "0") || parts.headers.contains_key(TRANSFER_ENCODING) {
            return Err(Problem::invalid("this request takes no body"));
        }
        Ok(Self)
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |what: &str| {
        let detail = format!("Content-Type is {what}; application/json is needed");
        Err(Problem::refused(Refusal::MediaType, detail))
    };
    let Some(value) = headers.get(CONTENT_TYPE) else { return refuse("missing") };
    let Ok(text) = value.to_str() else { return refuse("not a text") };
    let mut parts = text.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    if json && utf8 { Ok(()) } else { refuse(&format!("{text:?}")) }
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let mut found = Encoding::Identity;
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = value.to_str().unwrap_or("?");
        let next = match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => continue,
            "gzip" | "x-gzip" => Encoding::Gzip,
            "zstd" => Encoding::Zstd,
            _ => Encoding::Identity,
        };
        if next == Encoding::Identity || found != Encoding::Identity {
            let detail = format!("Content-Encoding {text:?}; one of gzip and zstd is possible");
            return Err(Problem::refused(Refusal::MediaType, detail));
        }
        found = next;
    }
    Ok(found)
}

fn inflate(encoding: Encoding, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, Problem> {
    let failed = |error: std::io::Error| Problem::invalid(format!("the body could not be inflated: {error}"));
    let mut inflated = Vec::new();
    let most = bytes_max as u64 + 1;
    match encoding {
        Encoding::Identity => inflated.extend_from_slice(bytes),
        Encoding::Gzip => {
            MultiGzDecoder::new(bytes).take(most).read_to_end(&mut inflated).map_err(failed)?;
        }
        Encoding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(failed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(failed)?;
            decoder.take(most).read_to_end(&mut inflated).map_err(failed)?;
        }
    }
    if inflated.len() > bytes_max {
        let detail = format!("the body inflates to more than {bytes_max} bytes, its limit by size and ratio");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    Ok(inflated)
}
