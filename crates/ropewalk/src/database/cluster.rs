//! The database as one of several nodes that share a log.

use ropewalk_engine::Role;

use crate::database::Database;
use crate::error::Error;

impl Database {
    /// Part of this database among the nodes that share its log. Cheap.
    pub fn role(&self) -> Role {
        self.engine.role()
    }

    /// Prepares a database that has begun to lead for its first transaction, and lets the work of the leader begin:
    /// [`Database::leads`] is true from then on.
    ///
    /// Deletes what loads have left that an earlier leader did not finish, and forgets which numbers of sequences, tables and
    /// collections are reserved: another node may have used them. A database alone does this when it is opened.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`](crate::engine::EngineError::NotLeader); as a commit.
    pub fn begin_leading(&self) -> Result<(), Error> {
        self.forget_reserved_numbers();
        self.tables.recover()?;
        self.leading.begin();
        Ok(())
    }
}
