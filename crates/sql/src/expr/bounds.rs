//! Size limits of computed values, checked before their memory is allocated.
//!
//! ```text
//! text, bytes, JSON        TEXT_BYTES_MAX      54000
//! array, aggregate         LIST_BYTES_MAX      54000
//! operands at one time     OPERAND_BYTES_MAX   53200: of all nested calls, per thread of a statement
//! ```
//! A function whose result is at most a small factor larger than its arguments is checked afterwards. Every
//! other one adds up its result through this module while it builds it.

use std::borrow::Cow;

use ropewalk::tables::{Array, Scalar, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::bug;
use crate::limits::budget::value_bytes;
use crate::limits::interrupt::Interrupt;

/// Maximum size of a text, a bytea or a document that a function makes.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;
/// Maximum size of an array or an aggregate, including the memory overhead of each element.
pub(crate) const LIST_BYTES_MAX: usize = 64 << 20;
/// Maximum size of operands held while others are evaluated.
const OPERAND_BYTES_MAX: usize = 128 << 20;
/// Size of operands from which a call checks the interrupt.
const OPERANDS_PER_LOOK: usize = 64 << 10;

/// Rejects a text, a bytea or a document of this size.
///
/// # Errors
/// 54000.
pub(crate) fn check_text(bytes: usize) -> Result<()> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, format!("a text over {TEXT_BYTES_MAX} bytes")))
}

/// Rejects an array or an aggregate of this size.
///
/// # Errors
/// 54000.
pub(crate) fn check_list(bytes: usize) -> Result<()> {
    if bytes <= LIST_BYTES_MAX {
        return Ok(());
    }
    let message = format!("an array or an aggregate over {LIST_BYTES_MAX} bytes");
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("collect fewer values at a time"))
}

/// Rejects a computed value that is too large.
///
/// # Errors
/// 54000.
pub(crate) fn check_made(value: &Value<'_>) -> Result<()> {
    match value {
        Value::Array(_) => check_list(owned_bytes(value)),
        _ => check_text(owned_bytes(value)),
    }
}

/// Bytes on the heap of a value that is not borrowed.
fn owned_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::Text(Cow::Owned(text)) | Value::Json(Cow::Owned(text)) | Value::Jsonb(Cow::Owned(text)) => {
            text.len()
        }
        Value::Bytea(Cow::Owned(bytes)) => bytes.len(),
        Value::Array(array) => array.encoded_len(),
        _ => 0,
    }
}

/// An array of values.
///
/// # Errors
/// 54000; values of another type.
pub(crate) fn array(element: Scalar, items: Vec<Value<'_>>) -> Result<Value<'static>> {
    check_list(items.iter().map(value_bytes).sum())?;
    Array::new(element, items).map(Value::Array).map_err(|_| bug("elements of another type"))
}

/// A string builder with a size limit.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Appends a part.
    ///
    /// # Errors
    /// 54000.
    pub(crate) fn push(&mut self, part: &str) -> Result<()> {
        check_text(self.0.len().saturating_add(part.len()))?;
        self.0.push_str(part);
        Ok(())
    }

    /// Appends parts with a separator between them.
    ///
    /// # Errors
    /// 54000; those of the parts.
    pub(crate) fn join(&mut self, parts: impl IntoIterator<Item = String>, separator: &str) -> Result<()> {
        for (place, part) in parts.into_iter().enumerate() {
            if place > 0 {
                self.push(separator)?;
            }
            self.push(&part)?;
        }
        Ok(())
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Operands of one call, held while the others are evaluated.
pub(crate) struct Operands<'i> {
    interrupt: &'i Interrupt,
    bytes: usize,
}

impl<'i> Operands<'i> {
    pub(crate) fn new(interrupt: &'i Interrupt) -> Self {
        Self { interrupt, bytes: 0 }
    }

    /// Counts an operand.
    ///
    /// # Errors
    /// 53200.
    pub(crate) fn hold(&mut self, value: &Value<'_>) -> Result<()> {
        let bytes = owned_bytes(value);
        if bytes == 0 {
            return Ok(());
        }
        self.bytes += bytes;
        let all = self.interrupt.operands.get().saturating_add(bytes);
        self.interrupt.operands.set(all);
        if all <= OPERAND_BYTES_MAX {
            return Ok(());
        }
        let message =
            format!("the values of an expression or a row take more than {OPERAND_BYTES_MAX} bytes");
        Err(SqlError::new(state::OUT_OF_MEMORY, message).hint("compute fewer or smaller values at a time"))
    }

    /// True when the operands are so large that the interrupt has to be checked.
    pub(crate) fn are_large(&self) -> bool {
        self.bytes >= OPERANDS_PER_LOOK
    }
}

impl Drop for Operands<'_> {
    fn drop(&mut self) {
        let operands = &self.interrupt.operands;
        operands.set(operands.get().saturating_sub(self.bytes));
    }
}
