//! Limits of capped collections.
//!
//! Source: MongoDB manual, "Capped Collections".

use crate::error::{DocumentsError, Result};

/// The least limit. Limits are a multiple of 256, as in MongoDB.
const BYTES_MIN: u64 = 4096;
const BYTES_STEP: u64 = 256;
/// The largest limit, as in MongoDB: 1 PiB.
const BYTES_MAX: u64 = 1 << 50;

/// How much a capped collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CappedLimits {
    /// Bytes of documents.
    pub bytes: u64,
    /// Documents.
    pub documents: Option<u64>,
}

impl CappedLimits {
    /// Checks and rounds limits as MongoDB does: at least 4096 bytes, above that a multiple of 256. A number
    /// of documents below 1 means no limit.
    ///
    /// # Errors
    /// Not a positive number of bytes, or more than 1 PiB.
    pub fn new(bytes: i64, documents: Option<i64>) -> Result<Self> {
        let refuse = || DocumentsError::InvalidOptions {
            what: format!("a capped collection holds between 1 and {BYTES_MAX} bytes, not {bytes}"),
        };
        let bytes = u64::try_from(bytes).ok().filter(|bytes| (1..=BYTES_MAX).contains(bytes));
        let bytes = bytes.ok_or_else(refuse)?.max(BYTES_MIN).next_multiple_of(BYTES_STEP);
        let documents = documents.and_then(|max| u64::try_from(max).ok()).filter(|max| *max > 0);
        Ok(Self { bytes, documents })
    }
}
