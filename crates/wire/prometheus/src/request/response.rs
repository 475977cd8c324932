//! The JSON envelope of every API response, and its errors.
//!
//!   {"status":"success","data":…,"warnings":[…],"infos":[…]}      {"status":"error","errorType":"bad_data","error":"…"}

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk::promql::BudgetError;
use ropewalk::series::SeriesError;
use ropewalk_http_kit::body::BodyError;
use ropewalk_http_kit::encoding::InflateError;
use ropewalk_http_kit::json::{put_list, put_texts};
use ropewalk_http_kit::params::NotDecoded;
use ropewalk_http_kit::response::{json, mark, retry_after_seconds};
use ropewalk_wire::{Code, WireError};

/// Kinds of errors, by the names of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    BadData,
    Execution,
    Timeout,
    Canceled,
    Internal,
    Unavailable,
    NotFound,
    /// The rest is specific to this server: Prometheus has no users and no such limits.
    Forbidden,
    TooLarge,
    TooMany,
    MediaType,
}

impl Kind {
    fn parts(self) -> (&'static str, StatusCode, Code) {
        match self {
            Self::BadData => ("bad_data", StatusCode::BAD_REQUEST, Code::InvalidArgument),
            Self::Execution => ("execution", StatusCode::UNPROCESSABLE_ENTITY, Code::InvalidArgument),
            Self::Timeout => ("timeout", StatusCode::SERVICE_UNAVAILABLE, Code::Timeout),
            Self::Canceled => ("canceled", StatusCode::SERVICE_UNAVAILABLE, Code::Stopping),
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
            Self::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, Code::Stopping),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND, Code::NotFound),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, Code::PermissionDenied),
            Self::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE, Code::TooLarge),
            Self::TooMany => ("too_many_requests", StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
            Self::MediaType => {
                ("unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument)
            }
        }
    }
}

/// An error as a client of Prometheus expects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    retry_after_seconds: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_seconds: None }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(Kind::BadData, message)
    }

    /// `invalid parameter "start": …`, as Prometheus says it.
    pub(crate) fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::bad(format!("invalid parameter {name:?}: {why}"))
    }

    /// The same error as plain text, for writing clients, which display or log the body unchanged.
    pub(crate) fn into_text(self) -> Response {
        let mut text = self.message.clone();
        text.push('\n');
        self.finish("text/plain; charset=utf-8", text.into_bytes())
    }

    fn finish(self, content_type: &'static str, body: Vec<u8>) -> Response {
        let (_, status, code) = self.kind.parts();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        mark(&mut response, code, self.retry_after_seconds);
        response
    }
}

impl From<BudgetError> for ApiError {
    fn from(error: BudgetError) -> Self {
        let kind = match error {
            BudgetError::TimedOut => Kind::Timeout,
            BudgetError::Cancelled => Kind::Canceled,
            BudgetError::Shared { .. } => Kind::TooMany,
            _ => Kind::Execution,
        };
        let retry_after_seconds = (kind == Kind::TooMany).then_some(1);
        Self { kind, message: error.to_string(), retry_after_seconds }
    }
}

impl From<SeriesError> for ApiError {
    fn from(error: SeriesError) -> Self {
        WireError::from(ropewalk::Error::from(error)).into()
    }
}

impl From<WireError> for ApiError {
    fn from(error: WireError) -> Self {
        let kind = match error.code {
            Code::PermissionDenied | Code::Unauthenticated => Kind::Forbidden,
            Code::NotFound => Kind::NotFound,
            Code::TooLarge => Kind::TooLarge,
            Code::ResourceExhausted => Kind::TooMany,
            Code::Stopping | Code::NotLeader | Code::OutcomeUnknown => Kind::Unavailable,
            Code::Timeout => Kind::Timeout,
            Code::Corrupt | Code::Io | Code::Internal => Kind::Internal,
            _ => Kind::BadData,
        };
        let retry_after_seconds = retry_after_seconds(&error);
        Self { kind, message: error.message, retry_after_seconds }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Memory(error) => error.into(),
            BodyError::Inflate(error) => error.into(),
            BodyError::TooLarge(_) => Self::new(Kind::TooLarge, error.to_string()),
            BodyError::TooSlow(_) => Self::new(Kind::Timeout, error.to_string()),
            BodyError::Broken(_) => Self::bad(error.to_string()),
        }
    }
}

impl From<InflateError> for ApiError {
    fn from(error: InflateError) -> Self {
        match error {
            InflateError::TooLarge(bytes_max) => BodyError::TooLarge(bytes_max).into(),
            InflateError::Malformed(_) => Self::bad(error.to_string()),
        }
    }
}

impl From<NotDecoded> for ApiError {
    fn from(error: NotDecoded) -> Self {
        Self::bad(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = b"{\"status\":\"error\",\"errorType\":".to_vec();
        put_text(&mut body, self.kind.parts().0);
        body.extend_from_slice(b",\"error\":");
        put_text(&mut body, &self.message);
        body.push(b'}');
        self.finish("application/json", body)
    }
}

/// An error as plain text.
#[derive(Debug)]
pub(crate) struct Plain(ApiError);

impl<E: Into<ApiError>> From<E> for Plain {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        self.0.into_text()
    }
}

/// Warnings and infos sent with a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub(crate) warnings: Vec<String>,
    pub(crate) infos: Vec<String>,
}

impl Notes {
    pub(crate) fn truncated() -> Self {
        Self { warnings: vec!["results truncated due to limit".to_owned()], infos: Vec::new() }
    }
}

/// Start of the envelope; `data` follows.
pub(crate) const HEAD: &[u8] = b"{\"status\":\"success\",\"data\":";

/// Writes the end of the envelope.
pub(crate) fn put_tail(out: &mut Vec<u8>, notes: &Notes) {
    for (name, list) in [("warnings", &notes.warnings), ("infos", &notes.infos)] {
        if !list.is_empty() {
            out.push(b',');
            put_text(out, name);
            out.push(b':');
            put_list(out, list, |out, text| put_text(out, text));
        }
    }
    out.push(b'}');
}

/// A complete response in memory, for small ones.
pub(crate) fn success(notes: &Notes, data: impl FnOnce(&mut Vec<u8>)) -> Response {
    let mut out = HEAD.to_vec();
    data(&mut out);
    put_tail(&mut out, notes);
    json(out)
}

/// `{"name":"value",…}`.
pub(crate) fn put_labels<'a>(out: &mut Vec<u8>, labels: impl IntoIterator<Item = (&'a str, &'a str)>) {
    put_texts(out, labels, put_text);
}

/// A JSON text.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let (special, tail) = tail.split_at(1);
        match special.as_bytes().first().copied().unwrap_or_default() {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => out.extend_from_slice(format!("\\u{other:04x}").as_bytes()),
        }
        rest = tail;
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_json() {
        for text in ["", "plain", "a\"b\\c\nd\te\r\u{1}f", "ö\u{2028}", "\\", "\""] {
            let mut out = Vec::new();
            put_text(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
