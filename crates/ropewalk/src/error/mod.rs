mod group;
mod idempotency;
pub(crate) mod projection;

use ropewalk_base::Seq;
use ropewalk_documents::DocumentsError;
use ropewalk_engine::{CommitError, EngineError, KeyConflict, LockError, LogError, NotNewest, StoreError};
use ropewalk_events::EventsError;
use ropewalk_labels::LabelError;
use ropewalk_series::SeriesError;
use ropewalk_tables::TablesError;

pub use group::GroupError;
pub use idempotency::IdempotencyError;
pub use projection::ProjectionError;

/// Category of an error, by how the caller should react.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request breaks a rule or limit; the same request fails again.
    Invalid,
    /// The named object does not exist.
    NotFound,
    /// A concurrent commit changed what was read; read again and retry.
    Conflict,
    /// A condition of the request itself does not hold, such as one without `after`. A retry cannot help.
    Refused,
    /// Locked, or out of budget. A later retry may succeed.
    Busy,
    /// This node does not lead, and nothing was written. The leader accepts the request.
    NotLeader,
    /// The shared log gave no answer: the commit may have taken place. Read before a retry, or use an idempotency key.
    Unknown,
    /// Stored bytes are damaged or of an unknown format.
    Corrupt,
    /// The operating system reported an error.
    Io,
    /// The engine stopped or hit a bug.
    Internal,
}

/// The result of most functions of this crate.
pub(crate) type Result<T, E = Error> = core::result::Result<T, E>;

/// Any error of the database; [`Error::class`] gives its category.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of an event store.
    #[error(transparent)]
    Events(EventsError),
    /// An error of the tables.
    #[error(transparent)]
    Tables(TablesError),
    /// An error of a series store.
    #[error(transparent)]
    Series(SeriesError),
    /// Another commit changed a key that the transaction read or wrote.
    #[error(transparent)]
    KeyConflict(KeyConflict),
    /// Another commit came before that of a transaction with [`require_newest`].
    ///
    /// [`require_newest`]: crate::Transaction::require_newest
    #[error(transparent)]
    NotNewest(NotNewest),
    /// An error of the documents.
    #[error(transparent)]
    Documents(DocumentsError),
    /// An error of the engine.
    #[error(transparent)]
    Engine(EngineError),
    /// An error of a projection.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    /// An error of a consumer group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An error of the idempotency key of a transaction.
    #[error(transparent)]
    Idempotency(#[from] IdempotencyError),
    /// The call or its arguments are invalid.
    #[error("{0}")]
    Invalid(String),
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<EventsError> for Error {
    fn from(error: EventsError) -> Self {
        match error {
            EventsError::Engine(error) => Self::Engine(error),
            other => Self::Events(other),
        }
    }
}

impl From<DocumentsError> for Error {
    fn from(error: DocumentsError) -> Self {
        match error {
            DocumentsError::Engine(error) => Self::Engine(error),
            other => Self::Documents(other),
        }
    }
}

impl From<TablesError> for Error {
    fn from(error: TablesError) -> Self {
        match error {
            TablesError::Engine(error) => Self::Engine(error),
            other => Self::Tables(other),
        }
    }
}

impl From<SeriesError> for Error {
    fn from(error: SeriesError) -> Self {
        match error {
            SeriesError::Engine(error) => Self::Engine(error),
            other => Self::Series(other),
        }
    }
}

impl From<LabelError> for Error {
    fn from(error: LabelError) -> Self {
        Self::Series(error.into())
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Engine(error) => Self::Engine(error),
            CommitError::Unknown { seq, cause } => Self::Engine(EngineError::Unknown { seq, cause }),
            CommitError::Rejected(reason) => match reason.downcast::<EventsError>() {
                Ok(error) => (*error).into(),
                Err(reason) => match reason.downcast::<KeyConflict>() {
                    Ok(conflict) => Self::KeyConflict(*conflict),
                    Err(reason) => match reason.downcast::<SeriesError>() {
                        Ok(error) => (*error).into(),
                        Err(reason) => match reason.downcast::<EngineError>() {
                            Ok(engine) => Self::Engine(*engine),
                            Err(reason) => match reason.downcast::<NotNewest>() {
                                Ok(error) => Self::NotNewest(*error),
                                Err(other) => Self::Invalid(other.to_string()),
                            },
                        },
                    },
                },
            },
        }
    }
}

impl Error {
    /// The category of the error, by how the caller should react.
    pub fn class(&self) -> Class {
        match self {
            Self::Invalid(_) => Class::Invalid,
            Self::KeyConflict(_) => Class::Conflict,
            Self::NotNewest(_) => Class::Refused,
            Self::Projection(error) => error.class(),
            Self::Group(error) => error.class(),
            Self::Idempotency(error) => error.class(),
            Self::Events(error) => match error {
                error if error.is_conflict() => Class::Conflict,
                error if error.is_refused() => Class::Refused,
                EventsError::UnknownStore { .. } => Class::NotFound,
                EventsError::Damaged { .. } => Class::Corrupt,
                EventsError::Engine(error) => engine_class(error),
                _ => Class::Invalid,
            },
            Self::Tables(error) => match error {
                TablesError::Conflict { .. } | TablesError::Lock(LockError::Deadlock) => Class::Conflict,
                TablesError::Lock(_) => Class::Busy,
                TablesError::UnknownTable { .. }
                | TablesError::UnknownColumn { .. }
                | TablesError::UnknownIndex { .. }
                | TablesError::UnknownConstraint { .. } => Class::NotFound,
                TablesError::Damaged { .. } => Class::Corrupt,
                TablesError::Engine(error) => engine_class(error),
                _ => Class::Invalid,
            },
            Self::Documents(error) => match error {
                DocumentsError::Conflict { .. } => Class::Conflict,
                DocumentsError::UnknownCollection { .. }
                | DocumentsError::UnknownIndex { .. }
                | DocumentsError::ResumeLost { .. }
                | DocumentsError::PlaceLost { .. } => Class::NotFound,
                DocumentsError::Damaged { .. } => Class::Corrupt,
                DocumentsError::Engine(error) => engine_class(error),
                _ => Class::Invalid,
            },
            Self::Series(error) => match error {
                SeriesError::ReadConflict { .. } => Class::Conflict,
                SeriesError::UnknownSeries { .. } => Class::NotFound,
                SeriesError::Damaged { .. } => Class::Corrupt,
                SeriesError::Engine(error) => engine_class(error),
                _ => Class::Invalid,
            },
            Self::Engine(error) => engine_class(error),
        }
    }

    /// Address of the leader, if this node follows one that is known.
    pub fn leader(&self) -> Option<&str> {
        match self {
            Self::Engine(EngineError::NotLeader { leader }) => leader.as_deref(),
            _ => None,
        }
    }

    /// Number of the conflicting commit, if the error names it.
    pub fn conflict_seq(&self) -> Option<Seq> {
        match self {
            Self::KeyConflict(conflict) => Some(conflict.seq),
            Self::Events(error) => error.conflict_seq(),
            Self::Series(error) => error.conflict_seq(),
            Self::Tables(TablesError::Conflict { seq, .. })
            | Self::Documents(DocumentsError::Conflict { seq, .. }) => Some(*seq),
            _ => None,
        }
    }

    /// True for [`Class::Conflict`].
    pub fn is_conflict(&self) -> bool {
        self.class() == Class::Conflict
    }
}

fn engine_class(error: &EngineError) -> Class {
    match error {
        EngineError::Log(error) => match &**error {
            LogError::Io { .. } => Class::Io,
            LogError::Corrupt { .. }
            | LogError::Foreign { .. }
            | LogError::Future { .. }
            | LogError::Missing { .. }
            | LogError::Replay { .. } => Class::Corrupt,
            LogError::TooLarge { .. } | LogError::Checkpointed { .. } => Class::Invalid,
            LogError::Trimmed { .. } => Class::NotFound,
            _ => Class::Internal,
        },
        EngineError::Store(error) => match &**error {
            StoreError::Io { .. } => Class::Io,
            StoreError::Corrupt { .. }
            | StoreError::Missing { .. }
            | StoreError::Foreign { .. }
            | StoreError::Version { .. } => Class::Corrupt,
            _ => Class::Internal,
        },
        EngineError::Io { .. } => Class::Io,
        EngineError::Locked { .. } | EngineError::Busy { .. } => Class::Busy,
        EngineError::NotLeader { .. } => Class::NotLeader,
        EngineError::Unknown { .. } => Class::Unknown,
        EngineError::Record { .. }
        | EngineError::UnknownModel { .. }
        | EngineError::Damaged { .. }
        | EngineError::Diverged { .. }
        | EngineError::Differs(_)
        | EngineError::Distrusted { .. } => Class::Corrupt,
        EngineError::TooLarge { .. } | EngineError::BackupTarget { .. } => Class::Invalid,
        EngineError::FeedTrimmed { .. } | EngineError::Unreadable { .. } => Class::NotFound,
        _ => Class::Internal,
    }
}
