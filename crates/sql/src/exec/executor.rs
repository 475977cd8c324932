//! Choice of the executor of a query: the setting `ropewalk.executor`.
//!
//! A testing aid. Three executors run queries. The size of the tables, an open transaction or a word in the
//! text may change the executor of a query, so tests run the same query in each of them and compare the
//! results.

use crate::error::{Result, SqlError, state};
use crate::plan::Planner;
use crate::types::executor::Executor;

pub(crate) const HINT: &str = "write the query another way, or report it";

/// The error for a part of a query that no executor supports.
pub(crate) fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, HINT)
}

/// True when the engine may run a query that the planner by keys rejected: an unsupported feature or an
/// unknown table.
pub(crate) fn may_serve(error: &SqlError) -> bool {
    matches!(error.state, state::FEATURE_NOT_SUPPORTED | state::UNDEFINED_TABLE | state::INVALID_SCHEMA_NAME)
}

impl Planner<'_> {
    /// The executor that the session has set.
    pub(crate) fn executor(&self) -> Executor {
        self.standing.settings.executor
    }

    /// Plans by `plan` where the session has set another executor than the one by keys. Returns `None` where
    /// it has not, or where that executor cannot run the statement: then the planner chooses.
    ///
    /// # Errors
    /// Those of `plan`, except "not supported".
    pub(crate) fn forced<R>(
        &mut self,
        plan: impl FnOnce(&mut Self) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        if !self.executor().is_not_by_keys() {
            return Ok(None);
        }
        let (mark, locks_within) = (self.mark(), self.locks_within);
        match plan(self) {
            Ok(Some(planned)) => return Ok(Some(planned)),
            Err(error) if !may_serve(&error) => return Err(error),
            Ok(None) | Err(_) => {}
        }
        self.back_to(mark);
        self.locks_within = locks_within;
        Ok(None)
    }
}
