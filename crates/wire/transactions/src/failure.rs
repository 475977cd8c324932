//! Why a transaction failed, and at which operation.

use ropewalk::documents::DocumentsError;
use ropewalk::engine::{EngineError, NotNewest};
use ropewalk::{Error, Position, Seq};
use ropewalk_sql::{SqlError, state};
use ropewalk_wire::{Code, WireError};

/// The error of an operation or of the commit.
#[derive(Debug)]
pub enum Cause {
    /// Of events, samples, rights, limits, or of the commit.
    Wire(WireError),
    /// Of documents.
    Documents(DocumentsError),
    /// Of an SQL statement.
    Sql(Box<SqlError>),
    /// An operation concerned another number of documents or rows than it expects.
    Unexpected {
        /// Documents or rows.
        what: &'static str,
        /// The number found.
        found: u64,
        /// The number expected.
        expected: u64,
    },
    /// An event matches the precondition.
    EventsChanged {
        /// The first match.
        position: Position,
    },
    /// The consumer's checkpoint is another one than expected.
    CheckpointMoved {
        /// The recorded position; `None` without a checkpoint.
        recorded: Option<Position>,
    },
    /// Another commit is the newest than the precondition expects.
    NotNewest {
        /// The expected commit.
        expected: Seq,
        /// The newest commit.
        newest: Seq,
    },
    /// The commit to read cannot be read any more.
    Unreadable {
        /// The requested commit.
        asked: Seq,
        /// The oldest commit from which on every commit can be read.
        oldest: Seq,
        /// The newest visible commit.
        newest: Seq,
    },
    /// The transaction does not exist: its token is unknown, or it ended.
    UnknownTransaction,
}

/// A failed transaction: nothing of it was written.
#[derive(Debug)]
pub struct Failure {
    /// Index of the operation; `None` for the commit or the request.
    pub operation: Option<usize>,
    /// The error.
    pub cause: Cause,
}

impl Failure {
    pub(crate) fn at(operation: usize) -> impl FnOnce(Cause) -> Self {
        move |cause| Self { operation: Some(operation), cause }
    }
}

impl<C: Into<Cause>> From<C> for Failure {
    fn from(cause: C) -> Self {
        Self { operation: None, cause: cause.into() }
    }
}

impl Cause {
    /// True when the transaction may succeed if it runs again on the newest state.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Wire(error) => error.code == Code::KeyConflict,
            Self::Documents(error) => matches!(error, DocumentsError::Conflict { .. }),
            Self::Sql(error) => error.state == state::SERIALIZATION_FAILURE,
            _ => false,
        }
    }
}

impl From<WireError> for Cause {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<SqlError> for Cause {
    fn from(error: SqlError) -> Self {
        Self::Sql(Box::new(error))
    }
}

impl From<DocumentsError> for Cause {
    fn from(error: DocumentsError) -> Self {
        Self::Documents(error)
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        match error {
            Error::Documents(error) => Self::Documents(error),
            Error::NotNewest(NotNewest { expected, newest }) => Self::NotNewest { expected, newest },
            Error::Engine(EngineError::Unreadable { asked, oldest, newest }) => {
                Self::Unreadable { asked, oldest, newest }
            }
            Error::Tables(_) => Self::Sql(Box::new(error.into())),
            error => Self::Wire(error.into()),
        }
    }
}
