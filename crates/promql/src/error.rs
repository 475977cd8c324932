//! Errors of a query, sorted by what its sender can do about them.

use crate::budget::BudgetError;
use crate::data::source::SourceError;
use crate::syntax::parser::ParseError;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = Error> = core::result::Result<T, E>;

/// Reasons for a query to fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not an expression. Write another one.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The expression cannot be evaluated at these times: a duration that depends on them is out of bounds,
    /// or a range query would return ranges. Write another one.
    #[error("{0}")]
    Times(String),
    /// The expression has no value on this data: ambiguous matches, duplicate series, parameters out of
    /// bounds.
    #[error("{0}")]
    Execution(String),
    /// It costs more than allowed, or was stopped. Request less.
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
pub(crate) fn refused<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Execution(message.into()))
}

pub(crate) const SAME_LABELS: &str = "vector cannot contain metrics with the same labelset";
