//! Errors as `application/problem+json` (RFC 9457), with codes that never change.
//!
//! `code` is for programs, `detail` for people. Codes of the database are those of [`ropewalk_wire::Code`];
//! the few that only HTTP has (a wrong content type, say) are in [`Refusal`]. An internal error or one of the
//! machine reaches the client without its inner detail.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk_auth::AuthError;
use ropewalk_http_kit::response::{mark, retry_after_seconds};
use ropewalk_wire::{Code, WireError};
use serde::Serialize;
use utoipa::ToSchema;

/// Errors of HTTP itself, before the database is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoRoute,
    Method,
    NotAcceptable,
    SlowRequest,
    MediaType,
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
            Self::NoRoute => (StatusCode::NOT_FOUND, "no_such_route", "There is nothing at this path"),
            Self::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path has other methods")
            }
            Self::NotAcceptable => {
                (StatusCode::NOT_ACCEPTABLE, "not_acceptable", "No such form of the answer")
            }
            Self::SlowRequest => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request came too slowly")
            }
            Self::MediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The body is of another type")
            }
            Self::Headers => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                "The headers are over the limit",
            ),
            Self::Host => {
                (StatusCode::MISDIRECTED_REQUEST, "unknown_host", "The request is for another host")
            }
            Self::Origin => (StatusCode::FORBIDDEN, "foreign_origin", "Pages of this origin may not do this"),
            Self::WriteToken => {
                (StatusCode::FORBIDDEN, "write_token_needed", "The request does not carry the write token")
            }
            Self::Precondition => {
                (StatusCode::PRECONDITION_FAILED, "precondition_failed", "It is not as the request expects")
            }
            Self::Gone => (StatusCode::GONE, "commit_unreadable", "The commit cannot be read any more"),
            Self::Unfit => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "validation_failed",
                "A document breaks a rule of its collection",
            ),
            Self::Quota => {
                (StatusCode::UNPROCESSABLE_ENTITY, "quota_exceeded", "The database is as large as it may be")
            }
        }
    }
}

/// Status and title of a code of the database.
fn status(code: Code) -> (StatusCode, &'static str) {
    match code {
        Code::InvalidArgument => (StatusCode::BAD_REQUEST, "Invalid request"),
        Code::Unauthenticated => (StatusCode::UNAUTHORIZED, "Authentication required"),
        Code::PermissionDenied => (StatusCode::FORBIDDEN, "Permission denied"),
        Code::NotFound => (StatusCode::NOT_FOUND, "Not found"),
        Code::NoSuchLease => (StatusCode::NOT_FOUND, "Unknown lease"),
        Code::AlreadyExists => (StatusCode::CONFLICT, "Already exists"),
        Code::ConditionFailed => (StatusCode::CONFLICT, "An event matches the append condition"),
        Code::TrackingConflict => (StatusCode::CONFLICT, "The tracking position does not increase"),
        Code::KeyConflict => (StatusCode::CONFLICT, "Another commit changed data that was read"),
        Code::IdempotencyMismatch => {
            (StatusCode::UNPROCESSABLE_ENTITY, "The idempotency key was used for other events")
        }
        Code::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The request exceeds a limit"),
        Code::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, "Too many requests; retry later"),
        Code::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "The server is stopping"),
        Code::Timeout => (StatusCode::GATEWAY_TIMEOUT, "Deadline exceeded"),
        Code::Corrupt => (StatusCode::INTERNAL_SERVER_ERROR, "Stored data is corrupt"),
        Code::Io => (StatusCode::INTERNAL_SERVER_ERROR, "I/O error"),
        Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
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
    /// The code in words.
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
        let (status, title) = status(code);
        Self::build((status, code.as_str(), title), code, detail.into())
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
        };
        Self { status, counted_as, body: Box::new(body), retry_after_seconds: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, detail)
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
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
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
