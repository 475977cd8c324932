//! Limits of capped collections.
//!
//! Source: MongoDB manual, "Capped Collections".

use crate::error::DocumentsError;

/// The least limit, and what limits are a multiple of, as in MongoDB.
const BYTES_MIN: u64 = 4096;
const BYTES_STEP: u64 = 256;
/// The largest limit, as in MongoDB: 1 PiB.
const BYTES_MAX: u64 = 1 << 50;

/// How much a capped collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capped {
    /// Bytes of documents.
    pub bytes: u64,
    /// Documents.
    pub documents: Option<u64>,
}

impl Capped {
    /// As MongoDB takes it: at least 4096 bytes, a multiple of 256 above; no number of documents below 1 is a limit.
    ///
    /// # Errors
    /// No bytes, or more than a PiB.
    pub fn of(bytes: i64, documents: Option<i64>) -> Result<Self, DocumentsError> {
        let refuse = || DocumentsError::InvalidOptions {
            what: format!("a capped collection holds between 1 and {BYTES_MAX} bytes, not {bytes}"),
        };
        let bytes = u64::try_from(bytes).ok().filter(|bytes| (1..=BYTES_MAX).contains(bytes));
        let bytes = bytes.ok_or_else(refuse)?.max(BYTES_MIN).next_multiple_of(BYTES_STEP);
        let documents = documents.and_then(|max| u64::try_from(max).ok()).filter(|max| *max > 0);
        Ok(Self { bytes, documents })
    }
}
