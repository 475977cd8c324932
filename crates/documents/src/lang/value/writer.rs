//! Builds documents from front to back.

use crate::lang::error::{LangResult, refuse};
use crate::lang::value::{DOCUMENT_BYTES_MAX, DocBuf, Owned, Value, length, tag};

/// Type byte, end of a name, and length of a document.
const HEAD_BYTES: usize = 6;
/// Initial capacity for a small document.
const SMALL_BYTES: usize = 64;

/// Builds a document front to back.
///
/// Inside of an array names are ignored and the elements numbered.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    /// The document or array being written; `None` after the end.
    innermost: Option<Frame>,
    /// The enclosing documents and arrays, from the outside.
    around: Vec<Frame>,
    /// Most bytes.
    max: usize,
    /// Something did not fit.
    full: bool,
}

#[derive(Debug)]
struct Frame {
    start: usize,
    /// The number of elements, when it is an array.
    elements: Option<usize>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Begins a document.
    #[must_use]
    pub fn new() -> Self {
        Self::begun(None)
    }

    fn begun(elements: Option<usize>) -> Self {
        // Most documents fit at once; growing the buffer in steps costs more than writing them.
        let mut out = Vec::with_capacity(SMALL_BYTES);
        out.extend_from_slice(&[0; 4]);
        let innermost = Some(Frame { start: 0, elements });
        Self { out, innermost, around: Vec::new(), max: usize::MAX, full: false }
    }

    /// Limits the writer to one document of the largest size: see [`Writer::within`].
    #[must_use]
    pub(crate) fn bounded(self) -> Self {
        self.with_room(DOCUMENT_BYTES_MAX)
    }

    /// Limits the writer to `bytes`. Values that do not fit are dropped, and [`Writer::within`] then rejects
    /// the result.
    #[must_use]
    pub(crate) fn with_room(mut self, bytes: usize) -> Self {
        self.max = bytes;
        self
    }

    /// The writer, if everything fitted; `what` names the function for the error.
    pub(crate) fn within(self, what: &str) -> LangResult<Self> {
        if self.full {
            refuse!(BSONObjectTooLarge, "{what} is larger than {} bytes", self.max);
        }
        Ok(self)
    }

    /// True once something did not fit: nothing more is written.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Begins a document of about that size.
    #[must_use]
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut writer = Self::new();
        writer.out.reserve(bytes);
        writer
    }

    /// Begins an array, for [`Writer::into_owned`].
    #[must_use]
    pub fn array() -> Self {
        Self::begun(Some(0))
    }

    /// Appends a field, or the next element.
    pub fn put(&mut self, name: &str, value: Value<'_>) {
        if self.head(value.tag(), name, value.payload_bytes()) {
            value.write_payload(&mut self.out);
        }
    }

    /// Begins a nested document.
    pub fn open_document(&mut self, name: &str) {
        self.open(tag::DOCUMENT, name, None);
    }

    /// Begins a nested array.
    pub fn open_array(&mut self, name: &str) {
        self.open(tag::ARRAY, name, Some(0));
    }

    /// Ends the innermost document or array, which is in another one.
    pub fn close(&mut self) {
        debug_assert!(!self.around.is_empty(), "a nested document or array is open");
        self.end();
    }

    fn end(&mut self) {
        let frame = self.innermost.take().expect("a document or array is open");
        self.innermost = self.around.pop();
        if self.full {
            return;
        }
        self.out.push(0);
        let length = ((self.out.len() - frame.start) as u32).to_le_bytes();
        let rest = self.out.get_mut(frame.start..);
        *rest.and_then(<[u8]>::first_chunk_mut).expect("a document begins with room for its length") = length;
    }

    /// Ends all open documents and arrays.
    #[must_use]
    pub fn finish(mut self) -> DocBuf {
        while self.innermost.is_some() {
            self.end();
        }
        if self.full {
            return DocBuf::empty();
        }
        debug_assert_eq!(length(&self.out), Some(self.out.len()), "a document has the length that it says");
        DocBuf::trusted(self.out)
    }

    /// Ends all open documents and arrays; returns a document or array, as it began.
    #[must_use]
    pub fn into_owned(self) -> Owned {
        let outermost = self.around.first().or(self.innermost.as_ref());
        let array = outermost.is_some_and(|frame| frame.elements.is_some());
        let bytes = self.finish().into_bytes();
        Owned::encoded(if array { tag::ARRAY } else { tag::DOCUMENT }, bytes)
    }

    /// Bytes so far.
    #[must_use]
    pub fn size(&self) -> usize {
        self.out.len()
    }

    /// Memory of the bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.out.capacity()
    }

    fn open(&mut self, tag: u8, name: &str, elements: Option<usize>) {
        let fits = self.head(tag, name, HEAD_BYTES);
        self.around.extend(self.innermost.replace(Frame { start: self.out.len(), elements }));
        if fits {
            self.out.extend_from_slice(&[0; 4]);
        }
    }

    /// Writes type and name of a field with a payload of `bytes`; false when it does not fit.
    fn head(&mut self, tag: u8, name: &str, bytes: usize) -> bool {
        debug_assert!(self.innermost.is_some(), "field {name:?} is in a document or array");
        let ends = self.around.len() + 1;
        let size = self.out.len().saturating_add(name.len()).saturating_add(bytes);
        if self.full || size.saturating_add(HEAD_BYTES + ends) > self.max {
            self.full = true;
            return false;
        }
        self.out.push(tag);
        match self.innermost.as_mut().and_then(|frame| frame.elements.as_mut()) {
            Some(count) => {
                write_decimal(&mut self.out, *count);
                *count += 1;
            }
            // A name is cut at a zero byte, which ends names. No name from a document contains one.
            None => self.out.extend_from_slice(name.split('\0').next().unwrap_or_default().as_bytes()),
        }
        self.out.push(0);
        true
    }
}

fn write_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        write_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}
