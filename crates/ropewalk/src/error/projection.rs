use ropewalk_base::{DecodeError, Position};
use ropewalk_documents::DocumentsError;
use ropewalk_events::ApplyError;
use ropewalk_events::EventsError;
use ropewalk_series::SeriesError;
use ropewalk_tables::TablesError;

use crate::error::{Class, Error};

/// Error of a projection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// An event could not be applied. Earlier events are applied; this one had no effect.
    #[error("projection {name:?} stops at position {position}, event {event_type:?}: {source}")]
    Failed {
        /// The projection.
        name: String,
        /// The position of the event.
        position: Position,
        /// The type of the event.
        event_type: String,
        /// The error that the projection returned.
        source: ApplyError,
    },
    /// A new generation could not be prepared.
    #[error("projection {name:?}, generation {generation}, could not be prepared: {source}")]
    Unprepared {
        /// The projection.
        name: String,
        /// The generation of the outputs.
        generation: u64,
        /// The error that the projection returned.
        source: ApplyError,
    },
    /// A new generation creates a table under the name of the live one.
    #[error(
        "projection {name:?}, generation {generation}, could not be prepared: table {table:?} exists and is live; create it under the name that ProjectionRun::name returns for {table:?}"
    )]
    LiveName {
        /// The projection.
        name: String,
        /// The generation of the outputs.
        generation: u64,
        /// The table.
        table: String,
    },
    /// A projection writes an undeclared output, which a rebuild would neither swap nor drop.
    #[error(
        "projection {name:?} declares no output {output:?}; its outputs are {declared:?}, add it to MaterializedProjection::outputs"
    )]
    UnknownOutput {
        /// The projection.
        name: String,
        /// The output.
        output: String,
        /// The declared outputs.
        declared: Vec<String>,
    },
    /// A projection appends events during a replay, although the first run has appended them.
    #[error(
        "a projection that is rebuilt appends to event store {store:?}; append only when ProjectionRun::is_replay is false"
    )]
    AppendsInReplay {
        /// The event store.
        store: String,
    },
    /// The handler was interrupted; the event is applied later.
    #[error("projection {name:?} was interrupted")]
    Interrupted {
        /// The projection.
        name: String,
    },
    /// No projection is registered under this name.
    #[error("there is no projection {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The name is already registered.
    #[error("a projection {name:?} is registered already")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// Another projection writes the output, and a rebuild of one would delete what the other has written.
    #[error("projection {name:?} cannot write {output}, which projection {other:?} writes")]
    SharedOutput {
        /// The projection that is registered.
        name: String,
        /// The projection that writes the output.
        other: String,
        /// The output.
        output: String,
    },
    /// The store was deleted since, so its positions no longer refer to the same events.
    #[error(
        "event store {store:?} was deleted after projection {name:?} read it; rebuild it by force, or remove it"
    )]
    StoreReplaced {
        /// The projection.
        name: String,
        /// The store.
        store: String,
    },
    /// The record of a projection cannot be decoded.
    #[error("the record of projection {name:?} is damaged: {source}")]
    Damaged {
        /// The projection.
        name: String,
        /// The decoding error.
        source: DecodeError,
    },
}

impl ProjectionError {
    /// The category of the error.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Unknown { .. } => Class::NotFound,
            Self::Damaged { .. } => Class::Corrupt,
            Self::Interrupted { .. } => Class::Busy,
            _ => Class::Invalid,
        }
    }
}

/// The error as an [`Error`] of the database, if it is one.
fn typed(error: ApplyError) -> Result<Error, ApplyError> {
    let error = match error.downcast::<Error>() {
        Ok(error) => return Ok(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<TablesError>() {
        Ok(error) => return Ok((*error).into()),
        Err(error) => error,
    };
    let error = match error.downcast::<DocumentsError>() {
        Ok(error) => return Ok((*error).into()),
        Err(error) => error,
    };
    let error = match error.downcast::<EventsError>() {
        Ok(error) => return Ok((*error).into()),
        Err(error) => error,
    };
    error.downcast::<SeriesError>().map(|error| (*error).into())
}

/// Separates transient errors (`Ok`) from errors caused by the event or its handler (`Err`).
pub(crate) fn passing(error: ApplyError) -> Result<Error, ApplyError> {
    let error = typed(error)?;
    match error.class() {
        Class::Invalid | Class::NotFound => Err(error.into()),
        _ => Ok(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_separates_transient_errors_from_errors_of_the_event() {
        let seq = ropewalk_base::Seq(3);
        let conflict = DocumentsError::Conflict { what: "x".into(), seq };
        assert!(passing(conflict.into()).is_ok_and(|error| error.is_conflict()));
        let unknown = TablesError::UnknownTable { name: "t".into() };
        assert_eq!(
            passing(unknown.into()).unwrap_err().to_string(),
            Error::from(TablesError::UnknownTable { name: "t".into() }).to_string()
        );
        assert_eq!(passing("no such customer".into()).unwrap_err().to_string(), "no such customer");
    }
}
