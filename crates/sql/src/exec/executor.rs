//! Choice of the executor of a query: the setting `ropewalk.executor`.
//!
//! A testing aid. Three executors run queries. The size of the tables, an open transaction or a word in the
//! text may change the executor of a query, so tests run the same query in each of them and compare the
//! results.

use crate::error::Result;
use crate::exec::analytic::may_serve;
use crate::plan::Planner;

/// The executor that queries are planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Executor {
    /// The planner chooses.
    #[default]
    Auto,
    /// Row by row, by keys and indexes. Never the query engine, whatever the size of the tables.
    Rows,
    /// The query engine.
    Engine,
    /// Nested loops over tables in memory.
    Nested,
}

impl Executor {
    /// All executors, by name.
    pub const ALL: [(&'static str, Self); 4] =
        [("auto", Self::Auto), ("rows", Self::Rows), ("engine", Self::Engine), ("nested", Self::Nested)];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, executor)| *executor)
    }

    /// The name of the executor, as SHOW returns it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, executor)| *executor == self).map_or("auto", |(name, _)| name)
    }

    /// True for executors that a query by keys reaches only through the setting.
    pub(crate) fn is_not_by_keys(self) -> bool {
        matches!(self, Self::Engine | Self::Nested)
    }
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
