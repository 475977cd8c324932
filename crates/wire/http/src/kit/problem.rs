//! Errors as `application/problem+json` (RFC 9457), with codes that never change.
//!
//! `code` is for programs; `title`, of which a code may have several, and `detail` are for people. Codes of the database are those of [`ropewalk_wire::Code`];
//! the few that only HTTP has (a wrong content type, say) are in [`Refusal`]. An internal error or one of the
//! machine reaches the client without its inner detail.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk_auth::AuthError;
use ropewalk_http_kit::response::{mark, retry_after_seconds};
use ropewalk_http_kit::titles::{statement_title, title};
use ropewalk_wire::{Code, WireError};
use serde::Serialize;
use utoipa::ToSchema;

/// `Content-Type` of an error.
pub(crate) const PROBLEM_TYPE: &str = "application/problem+json";

/// The result of most functions of this crate.
pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

/// Errors of HTTP itself, before the database is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoRoute,
    Method,
    NotAcceptable,
    SlowRequest,
    MediaType,
    Encoding,
    Headers,
    Host,
    Origin,
    WriteToken,
    Precondition,
    Gone,
    Unfit,
    Quota,
}

impl Refusal {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NoRoute => (StatusCode::NOT_FOUND, "no_such_route", "No such route"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed"),
            Self::NotAcceptable => {
                (StatusCode::NOT_ACCEPTABLE, "not_acceptable", "No acceptable response format")
            }
            Self::SlowRequest => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "The body did not arrive in time")
            }
            Self::MediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Unsupported Content-Type")
            }
            Self::Encoding => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Unsupported Content-Encoding")
            }
            Self::Headers => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                "The headers exceed a limit of size",
            ),
            Self::Host => (StatusCode::MISDIRECTED_REQUEST, "unknown_host", "Unknown host name"),
            Self::Origin => (StatusCode::FORBIDDEN, "foreign_origin", "Origin not permitted"),
            Self::WriteToken => {
                (StatusCode::FORBIDDEN, "write_token_needed", "Write token of the session missing")
            }
            Self::Precondition => {
                (StatusCode::PRECONDITION_FAILED, "precondition_failed", "A precondition does not hold")
            }
            Self::Gone => (StatusCode::GONE, "commit_unreadable", "The commit cannot be read any more"),
            Self::Unfit => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "validation_failed",
                "A document violates a rule of its collection",
            ),
            Self::Quota => {
                (StatusCode::UNPROCESSABLE_ENTITY, "quota_exceeded", "The quota of the database is exceeded")
            }
        }
    }
}

/// Status of a code of the database.
fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::NoSuchLease => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::ConditionFailed | Code::TrackingConflict | Code::KeyConflict => {
            StatusCode::CONFLICT
        }
        Code::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Stopping | Code::NotLeader => StatusCode::SERVICE_UNAVAILABLE,
        Code::Timeout | Code::OutcomeUnknown => StatusCode::GATEWAY_TIMEOUT,
        Code::Corrupt | Code::Io | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// For the metrics.
    counted_as: Code,
    body: Box<ProblemBody>,
    retry_after_seconds: Option<u64>,
}

/// The body of every error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// `urn:ropewalk:problem:` and the code.
    #[serde(rename = "type")]
    #[schema(example = "urn:ropewalk:problem:condition_failed")]
    kind: String,
    /// The cause in a few words.
    title: &'static str,
    /// The status of the answer.
    #[schema(example = 409)]
    status: u16,
    /// The cause, the place, and the remedy.
    detail: String,
    /// Stable name of the error.
    #[schema(example = "condition_failed")]
    code: &'static str,
    /// Which condition failed, and because of which event.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<ConflictBody>,
    /// Of a transaction: the failed operation, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<usize>,
    /// Of a commit that cannot be read any more: the oldest one from which on every commit can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_readable: Option<u64>,
    /// Of an SQL statement: the SQLSTATE.
    #[serde(skip_serializing_if = "Option::is_none")]
    sqlstate: Option<&'static str>,
    /// Of an SQL statement: the violated constraint.
    #[serde(skip_serializing_if = "Option::is_none")]
    constraint: Option<String>,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Of a request that this node does not serve because it follows: the addresses of the leader, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
}

/// Which condition failed, and because of which event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Conflict)]
pub(crate) struct ConflictBody {
    /// Which of the conditions, from 0.
    condition: usize,
    /// The first matching event.
    position: u64,
    /// Which item of the condition's query matches, from 0; null for a query that means all events.
    item: Option<usize>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self::build((status(code), code.as_str(), title(code)), code, detail.into())
    }

    pub(crate) fn refused(refusal: Refusal, detail: impl Into<String>) -> Self {
        Self::build(refusal.parts(), Code::InvalidArgument, detail.into())
    }

    fn build(parts: (StatusCode, &'static str, &'static str), counted_as: Code, detail: String) -> Self {
        let (status, code, title) = parts;
        let kind = format!("urn:ropewalk:problem:{code}");
        let (conflict, operation, sqlstate, constraint, hint) = (None, None, None, None, None);
        let status_number = status.as_u16();
        let body = ProblemBody {
            kind,
            title,
            status: status_number,
            detail,
            code,
            conflict,
            operation,
            oldest_readable: None,
            sqlstate,
            constraint,
            hint,
            leader: None,
        };
        Self { status, counted_as, body: Box::new(body), retry_after_seconds: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, detail)
    }

    pub(crate) fn invalid_path(detail: impl Into<String>) -> Self {
        Self::invalid(detail).titled("Invalid path")
    }

    pub(crate) fn invalid_parameter(detail: impl Into<String>) -> Self {
        Self::invalid(detail).titled("Invalid query parameter")
    }

    pub(crate) fn invalid_header(detail: impl Into<String>) -> Self {
        Self::invalid(detail).titled("Invalid header")
    }

    /// Of a body that cannot be read, or is not JSON.
    pub(crate) fn invalid_body(detail: impl Into<String>) -> Self {
        Self::invalid(detail).titled("Invalid body")
    }

    /// Of a field of the body, or of a value that is itself JSON.
    pub(crate) fn invalid_field(detail: impl Into<String>) -> Self {
        Self::invalid(detail).titled("Invalid field")
    }

    fn titled(mut self, title: &'static str) -> Self {
        self.body.title = title;
        self
    }

    /// Prefixes the detail with a part of the request.
    #[must_use]
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.body.detail.insert_str(0, &format!("{place}: "));
        self
    }

    /// Adds the index of the failed operation.
    #[must_use]
    pub(crate) fn of_operation(mut self, operation: usize) -> Self {
        self.body.operation = Some(operation);
        self
    }

    /// Adds the oldest commit from which on every commit can be read.
    #[must_use]
    pub(crate) fn with_oldest_readable(mut self, seq: u64) -> Self {
        self.body.oldest_readable = Some(seq);
        self
    }

    /// Adds what the error of an SQL statement has beyond its message.
    #[must_use]
    pub(crate) fn of_statement(
        mut self,
        sqlstate: &'static str,
        constraint: Option<String>,
        hint: Option<String>,
    ) -> Self {
        if self.body.code == self.counted_as.as_str() {
            self.body.title = statement_title(self.counted_as, sqlstate);
        }
        self.body.sqlstate = Some(sqlstate);
        self.body.constraint = constraint;
        self.body.hint = hint;
        self
    }

    /// The detail as a sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.body.detail
    }

    /// The body, for streams whose status was already sent.
    pub(crate) fn body(&self) -> &ProblemBody {
        &self.body
    }
}

impl From<WireError> for Problem {
    fn from(error: WireError) -> Self {
        let retry_after_seconds = retry_after_seconds(&error);
        let mut problem = Self { retry_after_seconds, ..Self::new(error.code, error.message) };
        problem.body.conflict = error.conflict.map(|conflict| ConflictBody {
            condition: conflict.condition,
            position: conflict.position.0,
            item: conflict.item,
        });
        problem.body.leader = error.leader;
        problem
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        WireError::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        mark(&mut response, self.counted_as, self.retry_after_seconds);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.append(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"ropewalk\", charset=\"UTF-8\""),
            );
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ropewalk\""));
        }
        response
    }
}
