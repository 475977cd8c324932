//! Size of a transaction's writes before commit: in its log record, and in memory.
//!
//! ```text
//! put, delete ─▶ record: what the commit would write ─▶ limit of one transaction
//! put, delete ─▶ record: bytes that the commit will write ─▶ limit of one transaction
//!            └─▶ memory: with replaced values, for rollback ─▶ limit of all that share a budget
//! Both are checked before a write is added, so that neither an open transaction nor many of them exceed their limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_engine::{EngineError, TRANSACTION_BYTES_MAX};

use crate::error::{DocumentsError, Result};

/// Memory of one write in addition to its key and value: two copies of the key's vector, a tree entry, a
/// journal entry.
const WRITE_OVERHEAD: u64 = 160;

/// Memory that the writes of several open transactions may take together.
#[derive(Debug)]
pub struct WriteBudget {
    used: AtomicU64,
    max: u64,
}

impl WriteBudget {
    /// A budget of `max` bytes.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), max })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.max)
        });
        taken.map(drop).map_err(|_| DocumentsError::TransactionMemory { max: self.max })
    }

    fn release(&self, bytes: u64) {
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(used >= bytes, "{bytes} bytes are released of {used}");
    }
}

/// The size of one transaction's writes.
#[derive(Default)]
pub(crate) struct Held {
    size: HeldSize,
    budget: Option<Arc<WriteBudget>>,
}

/// Both sizes of a transaction at one point.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeldSize {
    record: u64,
    memory: u64,
}

impl Held {
    pub(crate) fn size(&self) -> HeldSize {
        self.size
    }

    /// Charges memory to `budget` from now on, including what is already held.
    pub(crate) fn share(&mut self, budget: &Arc<WriteBudget>) -> Result<()> {
        if self.budget.is_none() {
            budget.take(self.size.memory)?;
            self.budget = Some(budget.clone());
        }
        Ok(())
    }

    /// Adds memory that is not of documents.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<()> {
        if let Some(budget) = &self.budget {
            budget.take(bytes)?;
        }
        self.size.memory += bytes;
        Ok(())
    }

    /// Adds a write of `key` and `value` bytes that replaces an own one of `replaced` bytes; `section` is
    /// the size of the model's section.
    pub(crate) fn take(
        &mut self,
        (key, value): (usize, usize),
        replaced: usize,
        section: usize,
    ) -> Result<()> {
        let record = self.size.record + (key + value) as u64;
        debug_assert!(record >= replaced as u64, "the {replaced} bytes that are replaced were taken");
        let record = record.saturating_sub(replaced as u64);
        check(record, section)?;
        let memory = (2 * key + value) as u64 + WRITE_OVERHEAD;
        if let Some(budget) = &self.budget {
            budget.take(memory)?;
        }
        self.size = HeldSize { record, memory: self.size.memory + memory };
        Ok(())
    }

    /// Checks the record's size after a statement: its section grows with each write.
    pub(crate) fn check(&self, section: usize) -> Result<()> {
        check(self.size.record, section)
    }

    /// Releases what was taken since `size`.
    pub(crate) fn back_to(&mut self, size: HeldSize) {
        debug_assert!(size.memory <= self.size.memory, "the memory only grows until a rollback");
        if let Some(budget) = &self.budget {
            budget.release(self.size.memory.saturating_sub(size.memory));
        }
        self.size = size;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.back_to(HeldSize::default());
    }
}

fn check(record: u64, section: usize) -> Result<()> {
    let (bytes, max) = (record + section as u64, TRANSACTION_BYTES_MAX);
    if bytes > max {
        return Err(EngineError::TooLarge { bytes, max }.into());
    }
    Ok(())
}
