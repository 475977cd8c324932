//! Rows stored for repeated reading in any order: in memory while they are few, otherwise in a temporary
//! file.
//!
//! ```text
//! page: rows, one after the other         row: for each column a length u32 and the bytes of `Value::put_row`;
//!                                         NULL has the greatest length
//! ```
//! The file has no name and is deleted with the value. Reading holds one page at a time in memory.

use std::io::{Read, Seek, SeekFrom, Write};

use ropewalk::tables::{Type, Value};
use tempfile::SpooledTempFile;

use crate::error::{Result, SqlError, state};
use crate::expr::{Record, bug};
use crate::limits::quota::{Shares, Taken};
use crate::limits::temp_files::Spooled;

/// Approximate size of a page in bytes.
const PAGE_BYTES: usize = 128 << 10;
/// Bytes held in memory before a file is used.
const MEMORY_BYTES_MAX: usize = 512 << 10;
const NULL: u32 = u32::MAX;

/// Location of a page, and the number of its first row.
struct Page {
    first: u64,
    offset: u64,
    length: usize,
}

/// The page being read: its number, its bytes, and the offsets of its rows.
struct Open {
    page: usize,
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

/// Spooled rows of one shape.
pub(crate) struct Spool {
    types: Vec<Type>,
    pages: Vec<Page>,
    written: SpooledTempFile,
    end: u64,
    /// The page being written, and the number of rows before it.
    last: Vec<u8>,
    last_first: u64,
    count: u64,
    open: Option<Open>,
    /// Bytes of the file, counted for the session.
    taken: Taken,
    /// Bytes in memory, until there is a file.
    held: Option<Taken>,
    /// Bytes of the file, counted for the database.
    spooled: Spooled,
}

fn failed(error: std::io::Error) -> SqlError {
    SqlError::new(state::IO_ERROR, format!("the rows of a cursor in a temporary file: {error}"))
}

impl Spool {
    /// An empty spool.
    pub(crate) fn new(types: Vec<Type>, shares: &Shares, spooled: Spooled) -> Result<Self> {
        Ok(Self {
            types,
            pages: Vec::new(),
            written: SpooledTempFile::new(MEMORY_BYTES_MAX),
            end: 0,
            last: Vec::new(),
            last_first: 0,
            count: 0,
            open: None,
            taken: shares.files.take(0)?,
            held: Some(shares.answers.take(0)?),
            spooled,
        })
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: &[Value<'_>]) -> Result<()> {
        for value in row {
            let start = self.last.len();
            self.last.extend([0; 4]);
            value.put_row(&mut self.last);
            let length = match value {
                Value::Null => NULL,
                _ => u32::try_from(self.last.len() - start - 4).map_err(|_| bug("a value over 4 GiB"))?,
            };
            if let Some(place) = self.last.get_mut(start..start + 4) {
                place.copy_from_slice(&length.to_le_bytes());
            }
        }
        self.count += 1;
        if self.last.len() >= PAGE_BYTES { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> Result<()> {
        let page = Page { first: self.last_first, offset: self.end, length: self.last.len() };
        self.taken.grow(self.last.len() as u64)?;
        self.spooled.grow(self.last.len() as u64)?;
        self.end += self.last.len() as u64;
        self.written.seek(SeekFrom::Start(page.offset)).map_err(failed)?;
        self.written.write_all(&self.last).map_err(failed)?;
        self.held = self.held.take().filter(|_| !self.written.is_rolled());
        if let Some(held) = &mut self.held {
            held.grow(self.last.len() as u64)?;
        }
        self.last.clear();
        self.last_first = self.count;
        self.pages.push(page);
        Ok(())
    }

    /// Row `number`, counted from 0.
    pub(crate) fn row(&mut self, number: u64) -> Result<Record> {
        let page = self.pages.partition_point(|page| page.first <= number).saturating_sub(1);
        // The page after the stored ones is being written: it may have grown.
        let page = if number >= self.last_first { self.pages.len() } else { page };
        let is_open = |open: &Open| {
            open.page == page && (page < self.pages.len() || open.bytes.len() == self.last.len())
        };
        if !self.open.as_ref().is_some_and(is_open) {
            let bytes = match self.pages.get(page) {
                None => self.last.clone(),
                Some(page) => {
                    let mut bytes = vec![0; page.length];
                    self.written.seek(SeekFrom::Start(page.offset)).map_err(failed)?;
                    self.written.read_exact(&mut bytes).map_err(failed)?;
                    bytes
                }
            };
            self.open = Some(Open { page, starts: self.starts(&bytes)?, bytes });
        }
        let first = self.pages.get(page).map_or(self.last_first, |page| page.first);
        self.read(number - first)
    }

    fn starts(&self, bytes: &[u8]) -> Result<Vec<usize>> {
        let mut starts = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            starts.push(at);
            for _ in &self.types {
                at = value_at(bytes, at)?.1;
            }
        }
        Ok(starts)
    }

    fn read(&self, place: u64) -> Result<Record> {
        let missing = || bug("a row of a cursor");
        if self.types.is_empty() {
            return Ok(Vec::new());
        }
        let open = self.open.as_ref().ok_or_else(missing)?;
        let place = usize::try_from(place).ok();
        let mut at = *place.and_then(|place| open.starts.get(place)).ok_or_else(missing)?;
        let mut row = Vec::with_capacity(self.types.len());
        for ty in &self.types {
            let (bytes, next) = value_at(&open.bytes, at)?;
            at = next;
            row.push(match bytes {
                None => Value::Null,
                Some(bytes) => Value::from_row(*ty, bytes).ok_or_else(missing)?.into_owned(),
            });
        }
        Ok(row)
    }
}

/// The bytes of the value at `at`, and the offset of the next one.
fn value_at(bytes: &[u8], at: usize) -> Result<(Option<&[u8]>, usize)> {
    let missing = || bug("a value of a cursor");
    let head = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(missing)?;
    let length = u32::from_le_bytes(*head);
    if length == NULL {
        return Ok((None, at + 4));
    }
    let end = at + 4 + length as usize;
    Ok((Some(bytes.get(at + 4..end).ok_or_else(missing)?), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_memory_and_file() {
        let db = ropewalk::Database::in_memory().unwrap();
        let mut spool =
            Spool::new(vec![Type::INT8, Type::TEXT], &Shares::default(), Spooled::new(&db)).unwrap();
        let row = |number: u64| {
            let text = if number.is_multiple_of(7) {
                Value::Null
            } else {
                Value::text("x".repeat(number as usize % 300))
            };
            vec![Value::Int8(number as i64), text]
        };
        for count in [10, 9_000] {
            for number in spool.len()..count {
                spool.push(&row(number)).unwrap();
            }
            assert_eq!(spool.written.is_rolled(), count > 10);
            for number in (0..count).rev().step_by(3).chain(0..count) {
                assert_eq!(spool.row(number).unwrap(), row(number));
            }
        }
        assert!(spool.row(9_000).is_err());
    }
}
