//! Temporary files of statements and cursors, bounded for one statement and for all of a database.
//!
//! ```text
//! sorts, groups, joins ─▶ DiskManager of the statement ┐
//! pages of cursors     ─▶ Spooled                      ┴▶ TempFiles of the database
//! ```
//! The engine checks the bound of a statement at each write. The sum of all is checked while a statement waits for the engine and
//! before a page of a cursor is written, so it may be passed by what statements write within a tenth of a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datafusion::common::DataFusionError;
use datafusion::execution::disk_manager::DiskManager;
use parking_lot::Mutex;
use ropewalk::Database;

use crate::types::error::{Result, SqlError, state};

/// Bounds of temporary files in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TempFileLimits {
    /// Of one statement. 4 GiB.
    pub statement: u64,
    /// Of all statements and cursors of a database. 16 GiB.
    pub all: u64,
}

impl Default for TempFileLimits {
    fn default() -> Self {
        Self { statement: 4 << 30, all: 16 << 30 }
    }
}

/// Bounds the temporary files of a database, for statements that begin later. Unless it is called the default holds.
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
    /// The files of a statement that begins. Their directory is made with the first of them and removed with the value.
    pub(crate) fn statement(&self) -> std::result::Result<Arc<DiskManager>, DataFusionError> {
        let bytes_max = self.limits.lock().statement;
        let files = Arc::new(DiskManager::builder().with_max_temp_directory_size(bytes_max).build()?);
        let mut statements = self.statements.lock();
        statements.retain(|files| files.strong_count() > 0);
        statements.push(Arc::downgrade(&files));
        Ok(files)
    }

    /// Checks the sum of all.
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

/// Bytes that a cursor has written to its file.
#[derive(Debug)]
pub(crate) struct Spooled {
    of: Arc<TempFiles>,
    bytes: u64,
}

impl Spooled {
    /// For a cursor that has no file yet.
    pub(crate) fn new(db: &Database) -> Self {
        Self { of: db.companion(), bytes: 0 }
    }

    /// Counts bytes that are about to be written.
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

/// The error of a statement whose files reached their bound or filled the disk, if it is that.
pub(crate) fn disk_full(error: &DataFusionError) -> Option<SqlError> {
    // The engine has no variant for it.
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
