//! Directories of nodes that do not run, for the commands `ropewalk cluster init`, `reseed`, `adopt`, `leave` and `restore`.
//!
//! ```text
//! alone ── make_log ─▶ the first node of a cluster ── leave ─▶ alone
//! copies of nodes ── make_log ─▶ a new shared log ◀── adopt ── the other nodes
//! checkpoints ── restore ─▶ a copy, for make_log or leave
//! ```
//! Every call needs the directories for itself, and fails while a process has one open.

use std::path::PathBuf;

use ropewalk::Class;

pub use crate::cluster::directories::{adopt, leave, make_log, restore};
use crate::server::ServeError;

/// How a shared log is made from copies of a database.
#[derive(Debug, Clone, Default)]
pub struct NewLog {
    /// Directories of nodes that do not run, or copies of those.
    pub copies: Vec<PathBuf>,
    /// The copy is a database that is in no cluster.
    pub is_alone: bool,
    /// Continue although commits are known that no copy has; these are lost.
    pub accepts_loss: bool,
}

/// A shared log that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLogMade {
    /// The directory with the most commits.
    pub from: PathBuf,
    /// Its newest commit.
    pub seq: u64,
    /// The commit that the first entry continues: a node with fewer commits begins with an empty directory and a checkpoint.
    pub base: u64,
    /// Number of entries.
    pub entries: u64,
    /// Commits that were known and are lost, in words.
    pub lost: Option<String>,
}

/// A database that was a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftCluster {
    /// Its newest commit.
    pub seq: u64,
    /// The newest entry of the shared log that it had noted, if it had.
    pub entry: Option<u64>,
}

/// A directory that has the database of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// The newest commit in it.
    pub seq: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Why a directory or a shared log was not changed as asked.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct DirectoryError {
    class: Class,
    what: String,
    remedy: &'static str,
}

impl DirectoryError {
    pub(crate) fn new(class: Class, what: impl Into<String>, remedy: &'static str) -> Self {
        Self { class, what: what.into(), remedy }
    }

    /// Category of the error.
    pub fn class(&self) -> Class {
        self.class
    }

    /// An action that helps; empty if none is known.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

impl From<ServeError> for DirectoryError {
    fn from(error: ServeError) -> Self {
        let class = match &error {
            ServeError::Settings(_) => Class::Invalid,
            ServeError::Database(error) => error.class(),
            _ => Class::Io,
        };
        Self::new(class, error.to_string(), "")
    }
}
