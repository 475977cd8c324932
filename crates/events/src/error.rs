use ropewalk_base::{Position, Seq};
use ropewalk_engine::{CommitError, EngineError};

/// The error of application code that applies, encodes or decodes events.
pub type ApplyError = Box<dyn std::error::Error + Send + Sync>;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = EventsError> = core::result::Result<T, E>;

/// Errors of the event store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// An event matches a condition of the append. Nothing was written.
    ///
    /// With `after`: read again and decide again. Without it the same append fails again.
    #[error("append condition {condition} failed: the event at position {position} matches its query")]
    AppendConditionFailed {
        /// Index of the append's condition, from 0.
        condition: usize,
        /// The first matching event.
        position: Position,
        /// Index of the item of the condition's query that matches it, from 0; `None` for a query of all
        /// events.
        item: Option<usize>,
        /// The position after which the condition allows no match; `None`: it allows none at all.
        after: Option<Position>,
        /// The commit that wrote the event.
        seq: Seq,
    },
    /// A condition matches an event that the same transaction appends. Nothing was written.
    #[error(
        "append condition {condition} failed: the transaction itself appends an event that matches its query, of type {event_type:?}"
    )]
    OwnEventMatches {
        /// Index of the append's condition, from 0.
        condition: usize,
        /// Index of the item of the condition's query that matches it, from 0; `None` for a query of all
        /// events.
        item: Option<usize>,
        /// The type of the event.
        event_type: String,
    },
    /// Another transaction appended an event that this one would have read. Nothing was written; run it
    /// again.
    #[error(
        "event store {store:?}: commit {seq} appended the event at position {position}, which matches what this transaction read"
    )]
    ReadConflict {
        /// The event store.
        store: String,
        /// The first matching event.
        position: Position,
        /// The commit that wrote it.
        seq: Seq,
    },
    /// The tracking position does not rise. Nothing was written; the upstream event has been processed
    /// before.
    #[error("tracking position {position} of source {source_name:?} is not above the stored {stored}")]
    TrackingConflict {
        /// The upstream source.
        source_name: String,
        /// The rejected position.
        position: u64,
        /// The stored position.
        stored: u64,
    },
    /// The idempotency key was used for other events.
    #[error("idempotency key {key:?} was used before for other events (positions {first} to {last})")]
    IdempotencyMismatch {
        /// The key.
        key: String,
        /// First position of that append.
        first: Position,
        /// Last position of that append.
        last: Position,
    },
    /// Nothing to append.
    #[error("an append needs at least one event, or tracking")]
    EmptyAppend,
    /// One of the events breaks a limit.
    #[error("event {ordinal} of the append: {what}")]
    InvalidEvent {
        /// Index of the event, from 0.
        ordinal: usize,
        /// The violated limit or rule.
        what: String,
    },
    /// A typed event to append does not encode.
    #[error("typed event {ordinal}: {source}")]
    Unencoded {
        /// Index in the list, from 0.
        ordinal: usize,
        /// The error of its [`ToEvent`](crate::event::typed::ToEvent).
        source: ApplyError,
    },
    /// A stored event cannot be decoded or applied by the application's types.
    #[error("the event at position {position}, of type {event_type:?}, cannot be applied: {source}")]
    Unapplied {
        /// The event.
        position: Position,
        /// Its type.
        event_type: String,
        /// The error of [`FromEvent`](crate::event::typed::FromEvent) or
        /// [`Projection::apply`](crate::read::projection::Projection::apply).
        source: ApplyError,
    },
    /// The query is invalid.
    #[error("query: {what}")]
    InvalidQuery {
        /// The reason.
        what: String,
    },
    /// A name or key is empty, too long or has control characters.
    #[error("{kind} {name:?}: 1 to 255 bytes without control characters are allowed")]
    InvalidName {
        /// The kind of name.
        kind: &'static str,
        /// The name, truncated.
        name: String,
    },
    /// The store was never created and nothing was appended to it.
    #[error("there is no event store {name:?}")]
    UnknownStore {
        /// Its name.
        name: String,
    },
    /// A store holds at most 2^40 - 1 events, an engine 2^24 - 1 stores.
    #[error("{what} are used up")]
    Exhausted {
        /// The exhausted resource.
        what: &'static str,
    },
    /// An event or posting passed its checksum but is invalid.
    #[error("store {store}, {place}: {what}")]
    Damaged {
        /// Number of the store.
        store: u32,
        /// The position or posting.
        place: String,
        /// The reason.
        what: String,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<CommitError> for EventsError {
    fn from(error: CommitError) -> Self {
        error.reason().unwrap_or_else(Self::Engine)
    }
}

impl From<ropewalk_engine::StoreError> for EventsError {
    fn from(error: ropewalk_engine::StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl EventsError {
    /// True when a concurrent commit conflicted, so that reading and deciding again may succeed: for
    /// [`EventsError::AppendConditionFailed`] of a condition with `after`, and for
    /// [`EventsError::ReadConflict`].
    pub fn is_conflict(&self) -> bool {
        self.conflict_seq().is_some()
    }

    /// True when a rule of the append itself does not hold, so that the same append fails again: a condition
    /// without `after`, or tracking that does not rise.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::AppendConditionFailed { after: None, .. }
                | Self::OwnEventMatches { .. }
                | Self::TrackingConflict { .. }
        )
    }

    /// The conflicting commit, if the error is a conflict.
    pub fn conflict_seq(&self) -> Option<Seq> {
        match self {
            Self::AppendConditionFailed { after: Some(_), seq, .. } | Self::ReadConflict { seq, .. } => {
                Some(*seq)
            }
            _ => None,
        }
    }
}
