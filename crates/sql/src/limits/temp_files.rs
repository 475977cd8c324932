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

use datafusion::common::DataFusionError;
use datafusion::execution::disk_manager::DiskManager;
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
    *db.companion::<TempFiles>().limits.lock() = limits;
}

/// The temporary files of a database.
#[derive(Debug, Default)]
pub(crate) struct TempFiles {
    limits: Mutex<TempFileLimits>,
    statements: Mutex<Vec<Weak<DiskManager>>>,
    spooled: AtomicU64,
}

impl TempFiles {
    /// The files of a new statement. Their directory is created with the first file and removed on drop.
    pub(crate) fn statement(&self) -> std::result::Result<Arc<DiskManager>, DataFusionError> {
        let bytes_max = self.limits.lock().statement;
        let files = Arc::new(DiskManager::builder().with_max_temp_directory_size(bytes_max).build()?);
        let mut statements = self.statements.lock();
        statements.retain(|files| files.strong_count() > 0);
        statements.push(Arc::downgrade(&files));
        Ok(files)
    }

    /// Checks the total size.
    ///
    /// # Errors
    /// 53100.
    pub(crate) fn check(&self) -> Result<()> {
        let written = |files: &Weak<DiskManager>| files.upgrade().map_or(0, |files| files.used_disk_space());
        let written: u64 = self.statements.lock().iter().map(written).sum();
        let all_max = self.limits.lock().all;
        if written + self.spooled.load(Ordering::Relaxed) > all_max {
            let message = format!("the temporary files of all statements take more than {all_max} bytes");
            return Err(SqlError::new(state::DISK_FULL, message).hint(HINT));
        }
        Ok(())
    }
}

const HINT: &str = "sort, group or fetch fewer rows, or give the statement more memory";

/// Number of bytes that a cursor has written to its file.
#[derive(Debug)]
pub(crate) struct Spooled {
    of: Arc<TempFiles>,
    bytes: u64,
}

impl Spooled {
    /// For a cursor without a file.
    pub(crate) fn new(db: &Database) -> Self {
        Self { of: db.companion(), bytes: 0 }
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

/// The error of a statement whose files reached their limit or filled the disk; `None` for other errors.
pub(crate) fn disk_full(error: &DataFusionError) -> Option<SqlError> {
    // DataFusion has no error variant for it.
    let text = error.to_string();
    let message = if text.contains("max_temp_directory_size") {
        "the temporary files of the statement are over their limit"
    } else if text.contains("No space left on device") {
        "the disk of the temporary files is full"
    } else {
        return None;
    };
    Some(SqlError::new(state::DISK_FULL, message).hint(HINT))
}
