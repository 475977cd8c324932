//! Errors of operations: a stable code, a message, and what a client needs to continue.
//!
//! Every protocol maps [`Code`] to its error numbers and sends the code's name along, so that clients can
//! rely on one list in every protocol. Details of internal failures (paths, offsets) go to the log, never to
//! the client.

use core::time::Duration;
use std::fmt;

use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::Code as LangCode;
use ropewalk::events::EventsError;
use ropewalk::groups::GroupError;
use ropewalk::transaction::IdempotencyError;
use ropewalk::{Class, Error, Position};
use ropewalk_auth::AuthError;

/// Why an operation failed. The names are stable; clients may match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request is invalid; the same request fails again.
    InvalidArgument,
    /// The caller is unknown, or the secret is wrong.
    Unauthenticated,
    /// The caller may not do this.
    PermissionDenied,
    /// The named object does not exist.
    NotFound,
    /// A consumer group never handed out this lease.
    NoSuchLease,
    /// The object to be created exists.
    AlreadyExists,
    /// An event matches the append condition: read again, decide again.
    ConditionFailed,
    /// The tracking position does not rise: this event was already appended.
    TrackingConflict,
    /// The idempotency key was used for other events.
    IdempotencyMismatch,
    /// Another transaction changed what this one read: retry.
    KeyConflict,
    /// Over a size or count limit.
    TooLarge,
    /// A limit of concurrent work was met; retry after `retry_after`.
    ResourceExhausted,
    /// The server is shutting down; retry elsewhere or later.
    Stopping,
    /// Stored bytes are damaged.
    Corrupt,
    /// The operating system reported an error.
    Io,
    /// A bug, or the engine stopped after a failure.
    Internal,
    /// The request's deadline passed. An append may still happen.
    Timeout,
    /// This node follows another one, and nothing was written: send the request to the leader.
    NotLeader,
    /// It is unknown whether the commit took place; a repeated request with an idempotency key tells.
    OutcomeUnknown,
}

impl Code {
    /// Every code, in order.
    pub const ALL: [Self; 19] = [
        Self::InvalidArgument,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::NoSuchLease,
        Self::AlreadyExists,
        Self::ConditionFailed,
        Self::TrackingConflict,
        Self::IdempotencyMismatch,
        Self::KeyConflict,
        Self::TooLarge,
        Self::ResourceExhausted,
        Self::Stopping,
        Self::Corrupt,
        Self::Io,
        Self::Internal,
        Self::Timeout,
        Self::NotLeader,
        Self::OutcomeUnknown,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::NoSuchLease => "no_such_lease",
            Self::AlreadyExists => "already_exists",
            Self::ConditionFailed => "condition_failed",
            Self::TrackingConflict => "tracking_conflict",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::KeyConflict => "key_conflict",
            Self::TooLarge => "too_large",
            Self::ResourceExhausted => "resource_exhausted",
            Self::Stopping => "stopping",
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Internal => "internal",
            Self::Timeout => "timeout",
            Self::NotLeader => "not_leader",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The failed condition of an append and the event that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// Index of the append's condition, from 0.
    pub condition: usize,
    /// The first matching event.
    pub position: Position,
    /// Index of the matching item of the condition's query, from 0; `None` for a query of all events.
    pub item: Option<usize>,
}

/// The result of most functions of this crate.
pub(crate) type Result<T, E = WireError> = core::result::Result<T, E>;

/// Error of an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// For programs.
    pub code: Code,
    /// For people; safe to send.
    pub message: String,
    /// Pause after which a retry makes sense.
    pub retry_after: Option<Duration>,
    /// With [`Code::ConditionFailed`]: the conflict.
    pub conflict: Option<Conflict>,
    /// With [`Code::NotLeader`]: the address that the leader advertises, if it is known.
    pub leader: Option<String>,
}

/// Message to clients once the engine has stopped; the log has the cause.
pub(crate) const WRITES_NOTHING: &str = "the database rejects writes since its disk failed or was full; the server's log \
    says more, and a restart resumes from the durable commits";

/// Suggested pause after a limit was met.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl WireError {
    /// An error without further parts.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, conflict: None, leader: None }
    }

    /// [`Code::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// [`Code::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// [`Code::TooLarge`]: `count` of `what` where `max` are allowed.
    pub fn too_large(what: &str, count: usize, max: usize) -> Self {
        Self::new(Code::TooLarge, format!("{count} {what}; at most {max} are allowed"))
    }

    /// [`Code::ResourceExhausted`], to be retried after a second.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message).retry_after(RETRY_AFTER)
    }

    /// [`Code::Stopping`].
    pub fn stopping() -> Self {
        Self::new(Code::Stopping, "the server is shutting down").retry_after(RETRY_AFTER)
    }

    /// [`Code::NotLeader`]: the node that advertises `leader` accepts the request.
    pub fn not_leader(leader: Option<&str>) -> Self {
        let message = match leader {
            Some(leader) => format!("this node follows the one at {leader}, which accepts writes"),
            None => "this node follows; no leader is known at the moment".to_owned(),
        };
        let error = Self { leader: leader.map(str::to_owned), ..Self::new(Code::NotLeader, message) };
        error.retry_after(RETRY_AFTER)
    }

    /// Suggests a pause.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// An internal failure: the client gets only its kind, the log all of it.
    fn ours(code: Code, error: &dyn fmt::Display) -> Self {
        tracing::error!(code = code.as_str(), %error, "operation failed");
        let message = match code {
            Code::Corrupt => "stored data is corrupt; see the server log",
            Code::Io => "the server could not read or write its files; see the server log",
            _ => "internal server error; see the server log",
        };
        Self::new(code, message)
    }
}

impl From<Error> for WireError {
    fn from(error: Error) -> Self {
        let conflict = match &error {
            Error::Events(EventsError::AppendConditionFailed { condition, position, item, .. }) => {
                Some(Conflict { condition: *condition, position: *position, item: *item })
            }
            _ => None,
        };
        let code = match (&error, error.class()) {
            (
                Error::Events(
                    EventsError::AppendConditionFailed { .. } | EventsError::OwnEventMatches { .. },
                ),
                _,
            ) => Code::ConditionFailed,
            (Error::Events(EventsError::TrackingConflict { .. }), _) => Code::TrackingConflict,
            (Error::Events(EventsError::IdempotencyMismatch { .. }), _) => Code::IdempotencyMismatch,
            (Error::Engine(ropewalk::engine::EngineError::TooLarge { .. }), _) => Code::TooLarge,
            (Error::Group(GroupError::UnknownLease { .. }), _) => Code::NoSuchLease,
            (Error::Idempotency(IdempotencyError::Mismatch), _) => Code::IdempotencyMismatch,
            (Error::Idempotency(IdempotencyError::TooLarge { .. }), _) => Code::TooLarge,
            (_, Class::Invalid) => Code::InvalidArgument,
            (_, Class::NotFound) => Code::NotFound,
            (_, Class::Conflict) => Code::KeyConflict,
            (_, Class::Refused) => Code::ConditionFailed,
            (_, Class::NotLeader) => return Self::not_leader(error.leader()),
            (_, Class::Unknown) => {
                tracing::warn!(%error, "the outcome of a commit is unknown");
                Code::OutcomeUnknown
            }
            (_, Class::Busy) => {
                tracing::warn!(%error, "the engine cannot accept writes");
                return Self::exhausted("the engine cannot accept more writes now");
            }
            (_, Class::Corrupt) => return Self::ours(Code::Corrupt, &error),
            (_, Class::Io) => return Self::ours(Code::Io, &error),
            (Error::Engine(ropewalk::engine::EngineError::Stopped { .. }), _) => {
                tracing::error!(%error, "operation failed");
                return Self::new(Code::Internal, WRITES_NOTHING);
            }
            (_, Class::Internal) => return Self::ours(Code::Internal, &error),
        };
        Self { conflict, ..Self::new(code, error.to_string()) }
    }
}

impl From<AuthError> for WireError {
    fn from(error: AuthError) -> Self {
        let code = match error {
            AuthError::Database(error) => return error.into(),
            AuthError::Throttled { pause } => return Self::exhausted(error.to_string()).retry_after(pause),
            AuthError::Damaged(_) => return Self::ours(Code::Corrupt, &error),
            AuthError::Random(_) | AuthError::Aborted(_) => return Self::ours(Code::Internal, &error),
            AuthError::Invalid(_) => Code::InvalidArgument,
            AuthError::Unauthenticated(_) => Code::Unauthenticated,
            AuthError::PermissionDenied(_) => Code::PermissionDenied,
            AuthError::NotFound(_) => Code::NotFound,
            AuthError::AlreadyExists(_) => Code::AlreadyExists,
        };
        Self::new(code, error.to_string())
    }
}

impl From<EventsError> for WireError {
    fn from(error: EventsError) -> Self {
        Error::from(error).into()
    }
}

/// With a code for each kind of error that clients of documents distinguish.
impl From<DocumentsError> for WireError {
    fn from(error: DocumentsError) -> Self {
        let code = match &error {
            DocumentsError::Damaged { .. } | DocumentsError::Engine(_) => return Error::from(error).into(),
            DocumentsError::Duplicate { .. }
            | DocumentsError::CollectionExists { .. }
            | DocumentsError::IndexExists { .. } => Code::AlreadyExists,
            DocumentsError::Denied { .. } | DocumentsError::Protected { .. } => Code::PermissionDenied,
            DocumentsError::UnknownCollection { .. }
            | DocumentsError::UnknownIndex { .. }
            | DocumentsError::ResumeLost { .. }
            | DocumentsError::PlaceLost { .. } => Code::NotFound,
            DocumentsError::Conflict { .. } => Code::KeyConflict,
            DocumentsError::Interrupted(error) => match error.code {
                LangCode::MaxTimeMSExpired => Code::Timeout,
                LangCode::InterruptedAtShutdown => Code::Stopping,
                LangCode::ExceededMemoryLimit => Code::ResourceExhausted,
                _ => Code::TooLarge,
            },
            DocumentsError::TooLarge { .. } | DocumentsError::SortMemory { .. } => Code::TooLarge,
            DocumentsError::Language(error) | DocumentsError::InCollection { source: error, .. } => {
                match error.code {
                    LangCode::BSONObjectTooLarge | LangCode::QueryExceededMemoryLimitNoDiskUseAllowed => {
                        Code::TooLarge
                    }
                    _ => Code::InvalidArgument,
                }
            }
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ropewalk::engine::EngineError> for WireError {
    fn from(error: ropewalk::engine::EngineError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_snake_case() {
        let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
    }

    #[test]
    fn conflict_keeps_condition_and_position() {
        let place = Conflict { condition: 1, position: Position(7), item: Some(2) };
        let failed = EventsError::AppendConditionFailed {
            condition: 1,
            position: Position(7),
            item: Some(2),
            after: None,
            seq: ropewalk::Seq(1),
        };
        let error: WireError = failed.into();
        assert_eq!((error.code, error.conflict), (Code::ConditionFailed, Some(place)));
    }

    #[test]
    fn write_on_a_follower_names_the_leader() {
        let refused = ropewalk::engine::EngineError::NotLeader { leader: Some("http://b:4780".into()) };
        let error: WireError = refused.into();
        assert_eq!((error.code, error.leader.as_deref()), (Code::NotLeader, Some("http://b:4780")));
        assert!(error.message.contains("http://b:4780") && error.retry_after.is_some());
        let error: WireError = ropewalk::engine::EngineError::NotLeader { leader: None }.into();
        assert_eq!((error.code, error.leader), (Code::NotLeader, None));
    }

    #[test]
    fn throttled_login_reports_its_pause() {
        let pause = Duration::from_secs(8);
        let error: WireError = AuthError::Throttled { pause }.into();
        assert_eq!((error.code, error.retry_after), (Code::ResourceExhausted, Some(pause)));
        assert_eq!(error.message, "too many wrong passwords");
    }

    #[test]
    fn details_of_internal_failures_go_only_to_the_log() {
        let damaged = EventsError::Damaged { store: 7, place: "secret".into(), what: "w".into() };
        let error: WireError = damaged.into();
        assert_eq!(error.code, Code::Corrupt);
        assert!(!error.message.contains("secret"));
        let error: WireError = AuthError::Damaged("key \"usecret\"".into()).into();
        assert_eq!(error.code, Code::Corrupt);
        assert!(!error.message.contains("secret"));
    }
}
