//! What can go wrong with a query, sorted by what its sender can do about it.

use crate::budget::BudgetError;
use crate::data::source::SourceError;
use crate::syntax::parser::ParseError;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no expression. Write another one.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The expression cannot be asked for these times: a duration that depends on them is out of bounds, or a range query was to give
    /// ranges. Write another one.
    #[error("{0}")]
    Times(String),
    /// The expression has no value on this data: ambiguous matches, duplicate series, parameters out of bounds.
    #[error("{0}")]
    Execution(String),
    /// It costs more than allowed, or was stopped. Ask for less.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The storage failed.
    #[error("expanding series: {0}")]
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Budget(error) => Error::Budget(error),
            SourceError::Storage(error) => Error::Storage(error),
        }
    }
}

/// An execution error.
pub(crate) fn refused<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Execution(message.into()))
}

pub(crate) const SAME_LABELS: &str = "vector cannot contain metrics with the same labelset";
