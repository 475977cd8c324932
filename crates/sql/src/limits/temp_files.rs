//! Temporary files of statements and cursors, bounded per statement and per database.
//!
//! ```text
//! sorts, groups, joins ─▶ DiskManager of the statement ┐
//! pages of cursors     ─▶ Spooled                      ┴▶ TempFiles of the database
//! ```
//! The engine checks the limit of a statement at each write. The total is checked while a statement waits for
//! the engine, and before a page of a cursor is written. Statements can therefore exceed it by the writes of
//! 0.1 s.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ropewalk::Database;

use crate::error::{Result, SqlError, state};

/// Limits of temporary files in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TempFileLimits {
    /// For one statement. Default: 4 GiB.
    pub statement: u64,
    /// For all statements and cursors of a database. Default: 16 GiB.
    pub all: u64,
}

impl Default for TempFileLimits {
    fn default() -> Self {
        Self { statement: 4 << 30, all: 16 << 30 }
    }
}

/// Sets the limits of a database's temporary files, for statements that begin later.
pub fn limit_temp_files(db: &Database, limits: TempFileLimits) {
    *db.extension::<TempFiles>().limits.lock() = limits;
}

/// The temporary files of one statement.
pub(crate) trait StatementFiles: std::fmt::Debug + Send + Sync {
    /// Their size in bytes.
    fn written_bytes(&self) -> u64;
}

/// The temporary files of a database.
#[derive(Debug, Default)]
pub(crate) struct TempFiles {
    limits: Mutex<TempFileLimits>,
    statements: Mutex<Vec<Weak<dyn StatementFiles>>>,
    spooled: AtomicU64,
}

impl TempFiles {
    /// Limit for one statement in bytes.
    #[cfg(feature = "analytic")]
    pub(crate) fn statement_bytes_max(&self) -> u64 {
        self.limits.lock().statement
    }

    /// Counts the files of a new statement until they are dropped.
    #[cfg(feature = "analytic")]
    pub(crate) fn register(&self, files: Weak<dyn StatementFiles>) {
        let mut statements = self.statements.lock();
        statements.retain(|files| files.strong_count() > 0);
        statements.push(files);
    }

    /// Checks the total size.
    ///
    /// # Errors
    /// 53100.
    pub(crate) fn check(&self) -> Result<()> {
        let written =
            |files: &Weak<dyn StatementFiles>| files.upgrade().map_or(0, |files| files.written_bytes());
        let written: u64 = self.statements.lock().iter().map(written).sum();
        let all_max = self.limits.lock().all;
        if written + self.spooled.load(Ordering::Relaxed) > all_max {
            let message = format!("the temporary files of all statements take more than {all_max} bytes");
            return Err(SqlError::new(state::DISK_FULL, message).hint(HINT));
        }
        Ok(())
    }
}

pub(crate) const HINT: &str = "sort, group or fetch fewer rows, or give the statement more memory";

/// Number of bytes that a cursor has written to its file.
#[derive(Debug)]
pub(crate) struct Spooled {
    of: Arc<TempFiles>,
    bytes: u64,
}

impl Spooled {
    /// For a cursor without a file.
    pub(crate) fn new(db: &Database) -> Self {
        Self { of: db.extension(), bytes: 0 }
    }

    /// Counts bytes before they are written.
    ///
    /// # Errors
    /// 53100.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<()> {
        self.of.spooled.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        self.of.check()
    }
}

impl Drop for Spooled {
    fn drop(&mut self) {
        self.of.spooled.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
