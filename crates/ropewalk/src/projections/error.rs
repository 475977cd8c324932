use ropewalk_base::{DecodeError, Position};
use ropewalk_documents::DocumentsError;
pub use ropewalk_events::ApplyError;
use ropewalk_events::EventsError;
use ropewalk_series::SeriesError;
use ropewalk_tables::TablesError;

use crate::error::{Class, Error};

/// Why a projection cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// An event could not be applied. What came before it is; nothing of it is.
    #[error("projection {name:?} stops at position {position}, event {event_type:?}: {source}")]
    Failed {
        /// The projection.
        name: String,
        /// Where it stops.
        position: Position,
        /// The event's type.
        event_type: String,
        /// What the projection answered.
        source: ApplyError,
    },
    /// A new generation could not be made ready.
    #[error("projection {name:?}, generation {generation}, could not be prepared: {source}")]
    Unprepared {
        /// The projection.
        name: String,
        /// Which build of its outputs.
        generation: u64,
        /// What the projection answered.
        source: ApplyError,
    },
    /// A new generation makes a table under the name of the live one.
    #[error(
        "projection {name:?}, generation {generation}, could not be prepared: table {table:?} exists and is live; create it under the name that ProjectionRun::name returns for {table:?}"
    )]
    LiveName {
        /// The projection.
        name: String,
        /// Which build of its outputs.
        generation: u64,
        /// The table.
        table: String,
    },
    /// A projection writes an output that it does not declare: a rebuild would neither swap nor drop it.
    #[error(
        "projection {name:?} declares no output {output:?}; its outputs are {declared:?}, add it to MaterializedProjection::outputs"
    )]
    UnknownOutput {
        /// The projection.
        name: String,
        /// The output.
        output: String,
        /// Those that are declared.
        declared: Vec<String>,
    },
    /// A projection appends events while a rebuild replays: they were appended when the event was first applied.
    #[error(
        "a projection that is rebuilt appends to event store {store:?}; append only when ProjectionRun::is_replay is false"
    )]
    AppendsInReplay {
        /// The event store.
        store: String,
    },
    /// No projection is registered by this name.
    #[error("there is no projection {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("a projection {name:?} is registered already")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The store was deleted since: its positions mean other events now.
    #[error(
        "event store {store:?} was deleted after projection {name:?} read it; rebuild it by force, or remove it"
    )]
    StoreReplaced {
        /// The projection.
        name: String,
        /// The store.
        store: String,
    },
    /// The record of a projection does not decode.
    #[error("the record of projection {name:?} is damaged: {source}")]
    Damaged {
        /// The projection.
        name: String,
        /// Where.
        source: DecodeError,
    },
}

impl ProjectionError {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Unknown { .. } => Class::NotFound,
            Self::Damaged { .. } => Class::Corrupt,
            _ => Class::Invalid,
        }
    }
}

/// The error as one of the database's, if it is one.
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

/// Tells what the event, or the code that applies it, is to blame for (`Err`) from what only came in between (`Ok`).
pub(super) fn passing(error: ApplyError) -> Result<Error, ApplyError> {
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
    fn only_what_the_event_is_to_blame_for_stops_a_projection() {
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
