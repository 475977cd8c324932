use std::cell::Cell;
use std::rc::Rc;

use crate::lang::budget::{self, Held};
use crate::lang::error::LangResult;

/// The memory that the stages of one pipeline may hold together: a part of the command's budget.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    used: Rc<Cell<usize>>,
    max: usize,
}

/// Memory held by one stage; released when dropped.
#[derive(Debug)]
pub(crate) struct Holder {
    memory: Memory,
    stage: &'static str,
    held: Held,
}

impl Memory {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: Rc::default(), max }
    }

    pub(crate) fn holder(&self, stage: &'static str) -> Holder {
        Holder { memory: self.clone(), stage, held: budget::held(stage) }
    }
}

impl Holder {
    /// Takes so many bytes more.
    pub(crate) fn take(&self, bytes: usize) -> LangResult<()> {
        let used = self.memory.used.get().saturating_add(bytes);
        if used > self.memory.max {
            return Err(budget::exceeded(self.stage, self.memory.max));
        }
        self.held.take(bytes)?;
        self.memory.used.set(used);
        Ok(())
    }

    /// Takes or returns bytes.
    pub(crate) fn change(&self, bytes: isize) -> LangResult<()> {
        match usize::try_from(bytes) {
            Ok(more) => self.take(more),
            Err(_) => {
                self.give_back(bytes.unsigned_abs());
                Ok(())
            }
        }
    }

    fn give_back(&self, bytes: usize) {
        // Callers may estimate more than they took.
        let bytes = bytes.min(self.held.bytes());
        self.held.give_back(bytes);
        let used = self.memory.used.get();
        debug_assert!(used >= bytes, "{bytes} bytes are released of {used}");
        self.memory.used.set(used.saturating_sub(bytes));
    }

    /// Sets the held bytes, to fewer than before.
    pub(crate) fn set(&self, bytes: usize) {
        debug_assert!(bytes <= self.held.bytes(), "{bytes} bytes are to be held of {}", self.held.bytes());
        self.give_back(self.held.bytes().saturating_sub(bytes));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.set(0);
    }
}
