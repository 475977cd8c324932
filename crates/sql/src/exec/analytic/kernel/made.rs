//! Memory of the columns that our functions create; the engine does not reserve it before it calls them.
//!
//! A column holds its bytes of the statement's memory until the engine drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, BinaryArray, GenericByteViewArray};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use datafusion::arrow::error::ArrowError;

use crate::error::{Result, SqlError, state};
use crate::expr::bug;

/// Columns up to this size are not tracked.
const COLUMN_BYTES_MIN: usize = 256 << 10;

/// Bytes of the live columns of one statement.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made(Arc<AtomicUsize>);

/// The bytes of one column.
#[derive(Debug)]
pub(crate) struct Charge {
    made: Made,
    bytes: usize,
    max: usize,
}

impl Made {
    /// The charge for a new column; all columns together may have `max` bytes.
    pub(crate) fn column(&self, max: usize) -> Charge {
        Charge { made: self.clone(), bytes: 0, max }
    }
}

/// A buffer and its memory charge.
struct Held {
    buffer: Buffer,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Charge {
    /// Adds bytes to the charge.
    ///
    /// # Errors
    /// 53200.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        let all = self.made.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if all <= self.max {
            return Ok(());
        }
        let message = format!("the statement needs more than its {} bytes of memory", self.max);
        Err(SqlError::new(state::OUT_OF_MEMORY, message)
            .hint("read fewer rows, or give the session more memory"))
    }

    /// Holds the bytes to the end of the statement.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }

    /// Ties the bytes to the finished column.
    pub(crate) fn attach(self, column: ArrayRef) -> Result<ArrayRef> {
        if self.bytes < COLUMN_BYTES_MIN {
            return Ok(column);
        }
        let charge = Arc::new(self);
        let held =
            |buffer: Buffer| Buffer::from(bytes::Bytes::from_owner(Held { buffer, _charge: charge.clone() }));
        let column: std::result::Result<ArrayRef, ArrowError> = match column.data_type() {
            DataType::Utf8View => views::<StringViewType>(&column, held),
            DataType::BinaryView => views::<BinaryViewType>(&column, held),
            DataType::Binary => {
                let (offsets, values, nulls) = column.as_binary::<i32>().clone().into_parts();
                BinaryArray::try_new(offsets, held(values), nulls).map(|column| Arc::new(column) as ArrayRef)
            }
            _ => Ok(column),
        };
        column.map_err(|error| bug(&error.to_string()))
    }
}

fn views<T: ByteViewType>(
    column: &ArrayRef,
    held: impl Fn(Buffer) -> Buffer,
) -> std::result::Result<ArrayRef, ArrowError> {
    let (views, buffers, nulls) = column.as_byte_view::<T>().clone().into_parts();
    let buffers: Vec<Buffer> = buffers.iter().cloned().map(held).collect();
    let column = GenericByteViewArray::<T>::try_new(views, buffers, nulls)?;
    Ok(Arc::new(column))
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.made.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringViewArray;

    #[test]
    fn column_holds_its_bytes_until_it_is_dropped() {
        let made = Made::default();
        let text = "x".repeat(COLUMN_BYTES_MIN);
        let mut charge = made.column(2 * COLUMN_BYTES_MIN);
        charge.grow(text.len()).unwrap();
        let column: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str(), "short"]));
        let column = charge.attach(column).unwrap();
        assert_eq!(column.as_string_view().value(0), text);
        assert_eq!(made.0.load(Ordering::Relaxed), text.len());
        let sliced = column.slice(0, 1);
        drop(column);
        assert_eq!(made.column(COLUMN_BYTES_MIN).grow(1).unwrap_err().state, state::OUT_OF_MEMORY);
        drop(sliced);
        assert_eq!(made.0.load(Ordering::Relaxed), 0);
    }
}
