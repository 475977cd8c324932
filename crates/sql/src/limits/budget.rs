//! The memory budget of one statement: rows that are sorted, grouped, collected or returned.

use std::cell::Cell;

use ropewalk::tables::Value;

use crate::error::{Result, SqlError, state};

/// Default of [`crate::types::settings::Settings::memory_bytes_max`].
pub(crate) const MEMORY_BYTES_MAX: usize = 512 << 20;

/// Remaining memory of a statement, shared by all its operators.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<usize>,
    max: usize,
}

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self { left: Cell::new(max), max }
    }

    /// Remaining bytes.
    pub(crate) fn remaining(&self) -> usize {
        self.left.get()
    }

    /// Reserves `bytes`, or fails if fewer remain.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(SqlError::new(
                state::OUT_OF_MEMORY,
                format!("the statement needs more than its {} bytes of memory", self.max),
            )
            .hint("read fewer rows, or give the session more memory")),
        }
    }

    /// Releases bytes of data that is no longer held.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.left.set(self.left.get().saturating_add(bytes).min(self.max));
    }

    pub(crate) fn take_row(&self, row: &[Value<'_>]) -> Result<()> {
        self.take(row_bytes(row))
    }

    /// All rows that `run` passes on, counted.
    pub(crate) fn collect_rows(
        &self,
        run: impl FnOnce(&mut dyn FnMut(Vec<Value<'static>>) -> Result<bool>) -> Result<()>,
    ) -> Result<Vec<Vec<Value<'static>>>> {
        let mut rows = Vec::new();
        run(&mut |row| {
            self.take_row(&row)?;
            rows.push(row);
            Ok(true)
        })?;
        Ok(rows)
    }
}

/// Approximate memory size of a value.
pub(crate) fn value_bytes(value: &Value<'_>) -> usize {
    let heap = match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Array(array) => array.iter().flatten().map(|item| value_bytes(&item)).sum(),
        _ => 0,
    };
    std::mem::size_of::<Value<'_>>() + heap
}

/// Approximate memory size of a row.
pub(crate) fn row_bytes(row: &[Value<'_>]) -> usize {
    row.iter().map(value_bytes).sum::<usize>() + 24
}
