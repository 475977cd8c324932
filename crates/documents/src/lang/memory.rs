use std::cell::Cell;
use std::rc::Rc;

use super::error::{LangError, refuse};

/// The memory that the stages of one pipeline may hold together.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    used: Rc<Cell<usize>>,
    max: usize,
}

/// What one stage holds of it; given back when dropped.
#[derive(Debug)]
pub(crate) struct Holder {
    memory: Memory,
    stage: &'static str,
    own: Cell<usize>,
}

impl Memory {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: Rc::default(), max }
    }

    pub(crate) fn holder(&self, stage: &'static str) -> Holder {
        Holder { memory: self.clone(), stage, own: Cell::new(0) }
    }
}

impl Holder {
    /// Takes so many bytes more.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), LangError> {
        let used = self.memory.used.get().saturating_add(bytes);
        if used > self.memory.max {
            let (stage, max) = (self.stage, self.memory.max);
            refuse!(
                QueryExceededMemoryLimitNoDiskUseAllowed,
                "Exceeded memory limit for {stage}: {max} bytes"
            );
        }
        self.memory.used.set(used);
        self.own.set(self.own.get() + bytes);
        Ok(())
    }

    /// Holds so many bytes in all, fewer than before.
    pub(crate) fn set(&self, bytes: usize) {
        self.memory.used.set(self.memory.used.get().saturating_sub(self.own.get()).saturating_add(bytes));
        self.own.set(bytes);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.set(0);
    }
}
