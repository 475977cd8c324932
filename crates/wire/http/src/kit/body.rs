//! Request bodies: JSON only.
//!
//!   headers ─▶ type, encoding ─▶ RequestBody: received, inflated ─▶ UTF-8 ─▶ parse
//!
//! Each step rejects separately, as early as it can: a body of the wrong type is never read. Inflating and
//! parsing of large bodies leave the async threads.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use ropewalk_http_kit::body::{BodyError, RequestBody};
use ropewalk_http_kit::encoding::{Encoding, InflateError, UnknownEncoding};
use ropewalk_http_kit::media::MediaType;
use ropewalk_wire::Code;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::kit::json::Object;
use crate::kit::problem::{Problem, Refusal, Result};

/// Bodies from this size on are inflated and parsed as blocking work.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The body of a request: JSON by its headers, valid UTF-8, not parsed yet.
pub(crate) struct JsonText(RequestBody);

impl JsonText {
    /// Parses the body and converts it with `build`.
    pub(crate) async fn parse<T: Send + 'static>(
        self,
        build: impl FnOnce(&str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let long = self.0.len() > INLINE_BYTES_MAX;
        off_thread_if(long, move || {
            let text = std::str::from_utf8(&self.0).map_err(|error| {
                Problem::invalid_body(format!(
                    "the body is not UTF-8: byte {} is invalid",
                    error.valid_up_to()
                ))
            })?;
            build(text)
        })
        .await
    }

    /// Parses the body as a JSON object.
    pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(self) -> Result<T> {
        self.parse(|text| from_json(text)).await
    }
}

/// Parses a JSON object; an error has message, line and column.
pub(crate) fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    serde_json::from_str::<Object<T>>(text).map(|Object(parsed)| parsed).map_err(|error| {
        match error.classify() {
            serde_json::error::Category::Data => Problem::invalid_field(error.to_string()),
            _ => Problem::invalid_body(format!("the body is not JSON: {error}")),
        }
    })
}

async fn off_thread_if<T: Send + 'static>(
    long: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if !long {
        return work();
    }
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the server failed to process the body")))
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
        let encoding = Encoding::of(request.headers(), &Encoding::TEXTS).map_err(refused)?;
        let body = RequestBody::read(&app.service, request, encoding).await.map_err(Problem::from)?;
        let inflate = move || body.inflate().map_err(Problem::from);
        Ok(Self(off_thread_if(encoding != Encoding::Identity, inflate).await?))
    }
}

fn refused(UnknownEncoding(text): UnknownEncoding) -> BodyProblem {
    let detail = format!("Content-Encoding {text:?}; one of gzip and zstd is possible");
    BodyProblem::Encoding(Problem::refused(Refusal::Encoding, detail))
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Memory(error) => error.into(),
            BodyError::TooLarge(_) | BodyError::Inflate(InflateError::TooLarge(_)) => {
                Self::new(Code::TooLarge, error.to_string())
            }
            BodyError::TooSlow(_) => Self::refused(Refusal::SlowRequest, error.to_string()),
            BodyError::Broken(_) | BodyError::Inflate(InflateError::Malformed(_)) => {
                Self::invalid_body(error.to_string())
            }
        }
    }
}

/// Extractor for requests without a body; rejects one that has a body.
pub(crate) struct NoBody;

impl FromRequestParts<App> for NoBody {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self> {
        let length = parts.headers.get(CONTENT_LENGTH);
        if length.is_some_and(|length| length != "0") || parts.headers.contains_key(TRANSFER_ENCODING) {
            return Err(Problem::invalid_body("this request takes no body"));
        }
        Ok(Self)
    }
}

fn check_type(headers: &HeaderMap) -> Result<()> {
    let refuse = |what: &str| {
        let detail = format!("Content-Type is {what}; application/json is needed");
        Err(Problem::refused(Refusal::MediaType, detail))
    };
    let Some(value) = headers.get(CONTENT_TYPE) else { return refuse("missing") };
    let Ok(text) = value.to_str() else { return refuse("not a text") };
    let media = MediaType(text);
    let utf8 = media.parameters("charset").all(|charset| charset.eq_ignore_ascii_case("utf-8"));
    if media.is("application/json") && utf8 { Ok(()) } else { refuse(&format!("{text:?}")) }
}
