//! What an operation answers when it does not succeed: a stable code, a sentence, and what a client needs to go on.
//!
//! Every protocol maps [`Code`] to its own numbers and sends the code's name along, so that clients can rely on one list
//! whatever they speak. Detail of our own failures (paths, offsets) goes to the log, never to the client.

use core::time::Duration;
use std::fmt;

use ropewalk::groups::GroupError;
use ropewalk::{Class, Error, EventsError, Position};

/// Why an operation failed. The names are stable; clients may match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request breaks a rule; the same request fails again.
    InvalidArgument,
    /// Who asks is not known, or the secret is wrong.
    Unauthenticated,
    /// Who asks may not do this.
    PermissionDenied,
    /// What was named does not exist.
    NotFound,
    /// A consumer group never handed out this lease.
    NoSuchLease,
    /// What was to be created exists.
    AlreadyExists,
    /// An event matches the append condition: read again, decide again.
    ConditionFailed,
    /// The tracking position does not rise: this was appended before.
    TrackingConflict,
    /// The idempotency key was used for other events.
    IdempotencyMismatch,
    /// Another transaction changed what this one read: retry.
    KeyConflict,
    /// Over a size or count limit.
    TooLarge,
    /// Too much at once; retry after `retry_after`.
    ResourceExhausted,
    /// The server is shutting down; retry elsewhere or later.
    Stopping,
    /// Stored bytes are damaged.
    Corrupt,
    /// The operating system refused.
    Io,
    /// A bug, or the engine stopped after a failure.
    Internal,
    /// The request's time was up. An append may still happen.
    Timeout,
}

impl Code {
    /// Every code, in order.
    pub const ALL: [Self; 17] = [
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
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which condition of an append met which event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// Which of the append's conditions, from 0.
    pub condition: usize,
    /// The first matching event.
    pub position: Position,
    /// Which item of the condition's query it matches, from 0; `None` for a query that means all events.
    pub item: Option<usize>,
}

/// An operation that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// For programs.
    pub code: Code,
    /// For people; safe to send.
    pub message: String,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
    /// With [`Code::ConditionFailed`]: where.
    pub conflict: Option<Conflict>,
}

/// What a client learns once the engine has stopped; the log says why.
pub(crate) const WRITES_NOTHING: &str = "the database writes nothing any more since its disk failed or was full; the server's log \
    says more, and a restart goes on from what is durable";

/// Pause that is proposed to a client after a limit was met.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl WireError {
    /// An error without further parts.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, conflict: None }
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

    /// [`Code::ResourceExhausted`], to be tried again after a second.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message).retry_after(RETRY_AFTER)
    }

    /// [`Code::Stopping`].
    pub fn stopping() -> Self {
        Self::new(Code::Stopping, "the server is shutting down").retry_after(RETRY_AFTER)
    }

    /// Proposes a pause.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// A failure of ours: the client learns the kind, the log all of it.
    pub(crate) fn ours(code: Code, error: &dyn fmt::Display) -> Self {
        tracing::error!(code = code.as_str(), %error, "operation failed");
        let message = match code {
            Code::Corrupt => "stored data is damaged; the server's log says where",
            Code::Io => "the server could not read or write its files; its log says more",
            _ => "the server failed; its log says more",
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
            (Error::Engine(ropewalk::EngineError::TooLarge { .. }), _) => Code::TooLarge,
            (Error::Group(GroupError::UnknownLease { .. }), _) => Code::NoSuchLease,
            (_, Class::Invalid) => Code::InvalidArgument,
            (_, Class::NotFound) => Code::NotFound,
            (_, Class::Conflict) => Code::KeyConflict,
            (_, Class::Refused) => Code::ConditionFailed,
            (_, Class::Busy) => {
                tracing::warn!(%error, "the engine is out of room");
                return Self::exhausted("the engine has no room for more writes now");
            }
            (_, Class::Corrupt) => return Self::ours(Code::Corrupt, &error),
            (_, Class::Io) => return Self::ours(Code::Io, &error),
            (Error::Engine(ropewalk::EngineError::Stopped { .. }), _) => {
                tracing::error!(%error, "operation failed");
                return Self::new(Code::Internal, WRITES_NOTHING);
            }
            (_, Class::Internal) => return Self::ours(Code::Internal, &error),
        };
        Self { conflict, ..Self::new(code, error.to_string()) }
    }
}

impl From<EventsError> for WireError {
    fn from(error: EventsError) -> Self {
        Error::from(error).into()
    }
}

impl From<ropewalk::EngineError> for WireError {
    fn from(error: ropewalk::EngineError) -> Self {
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
    fn a_conflict_keeps_its_place() {
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
    fn our_own_failures_keep_their_detail_to_the_log() {
        let damaged = EventsError::Damaged { store: 7, place: "secret".into(), what: "w".into() };
        let error: WireError = damaged.into();
        assert_eq!(error.code, Code::Corrupt);
        assert!(!error.message.contains("secret"));
    }
}
