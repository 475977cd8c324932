//! One call for a unit of work: a transaction, its commit, and its retries.

use ropewalk_base::Seq;
use ropewalk_engine::{Durability, Isolation};

use crate::database::Database;
use crate::database::transaction::{AppendedEvents, Committed, Transaction};
use crate::error::Error;

/// Options of [`Database::run_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOptions {
    /// Isolation level. Default [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// Durability of the commit. Default [`Durability::Sync`].
    pub durability: Durability,
    /// Most attempts in all, at least one. Default 10.
    pub attempts: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { isolation: Isolation::Serializable, durability: Durability::Sync, attempts: 10 }
    }
}

/// Result of [`Database::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult<R> {
    /// The result of the work.
    pub value: R,
    /// The commit; `None` if the work wrote nothing.
    pub committed: Option<Committed>,
}

impl<R> RunResult<R> {
    /// Number of the commit; `None` if the work wrote nothing.
    pub fn seq(&self) -> Option<Seq> {
        self.committed.as_ref().map(|committed| committed.seq)
    }

    /// Stores and positions of the appended events, one entry for each append, in order.
    pub fn appended(&self) -> &[AppendedEvents] {
        self.committed.as_ref().map(|committed| committed.appended.as_slice()).unwrap_or_default()
    }
}

impl Database {
    /// Runs `work` in a serializable transaction, commits it durably, and retries after conflicts.
    ///
    /// Each retry waits for the commit that it conflicted with, and runs `work` again on the newest state, up
    /// to ten attempts in all. `work` must have no effects outside of the transaction.
    ///
    /// `E` is the application's error type: an error of `work` is returned at once and nothing is written. One
    /// implementation of `From` makes `?` convert the errors of all data models:
    ///
    /// ```
    /// use ropewalk::events::count;
    /// use ropewalk::{Database, Event, Query};
    ///
    /// #[derive(Debug)]
    /// enum CourseError {
    ///     Full,
    ///     Database(ropewalk::Error),
    /// }
    ///
    /// impl<E: Into<ropewalk::Error>> From<E> for CourseError {
    ///     fn from(error: E) -> Self {
    ///         Self::Database(error.into())
    ///     }
    /// }
    ///
    /// #[derive(Event)]
    /// struct Enrolled {
    ///     #[event(tag)]
    ///     course: String,
    /// }
    ///
    /// # fn main() -> Result<(), CourseError> {
    /// let db = Database::in_memory()?;
    /// let store = db.events("school")?;
    /// let enrol = || {
    ///     db.run(|tx| {
    ///         if tx.decision(&store, &count(Query::from_tags(["course:c1"])))? == 2 {
    ///             return Err(CourseError::Full);
    ///         }
    ///         tx.publish(&store, &[Enrolled { course: "c1".into() }])?;
    ///         Ok(())
    ///     })
    /// };
    /// let first = enrol()?;
    /// assert_eq!((first.seq(), first.appended()[0].last.0), (Some(db.seq()), 1));
    /// assert!(enrol().is_ok());
    /// assert!(matches!(enrol(), Err(CourseError::Full)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn run<R, E: From<Error> + 'static>(
        &self,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<RunResult<R>, E> {
        self.run_with(&RunOptions::default(), work)
    }

    /// Same as [`Database::run`], with options.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn run_with<R, E: From<Error> + 'static>(
        &self,
        options: &RunOptions,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<RunResult<R>, E> {
        let RunOptions { isolation, durability, attempts } = *options;
        let (value, committed) = self.transact_committed(isolation, durability, attempts, work)?;
        Ok(RunResult { value, committed })
    }
}
