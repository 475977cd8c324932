//! The database as one of several nodes that share a log.

use std::path::Path;

use ropewalk_engine::Role;

use crate::database::Database;
use crate::database::options::Options;
use crate::error::{Error, Result};

/// The file in which a node notes its place in the shared log.
const PLACE: &str = "place";

/// Rejects a node of a cluster that is opened without its shared log: a commit would make it differ from the others.
pub(super) fn check_alone(path: &Path, options: &Options) -> Result<()> {
    let is_node =
        options.engine.shared.is_none() && options.env.vfs.exists(&path.join(PLACE)).unwrap_or(false);
    if is_node {
        let what = format!(
            "{} is a node of a cluster, which is opened with its shared log; without the file `{PLACE}` it is a \
             separate database, and no node any more",
            path.display()
        );
        return Err(Error::Invalid(what));
    }
    Ok(())
}

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
    pub fn begin_leading(&self) -> Result<()> {
        self.forget_reserved_numbers();
        self.tables.recover()?;
        self.leading.begin();
        Ok(())
    }
}
