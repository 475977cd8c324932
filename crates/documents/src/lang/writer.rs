//! Documents front to back.

use super::value::{DocBuf, Owned, Value, tag};

/// Room for a small document.
const SMALL_BYTES: usize = 64;

/// Builds a document front to back.
///
/// Inside of an array names are ignored and the elements numbered.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    /// What is being written; `None` behind the end.
    innermost: Option<Frame>,
    /// What it lies in, from the outside.
    around: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    start: usize,
    /// How many elements, when it is an array.
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
        // Most documents fit at once; growing to that in steps costs more than writing them.
        let mut out = Vec::with_capacity(SMALL_BYTES);
        out.extend_from_slice(&[0; 4]);
        Self { out, innermost: Some(Frame { start: 0, elements }), around: Vec::new() }
    }

    /// Begins a document that will be about that large.
    #[must_use]
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut writer = Self::new();
        writer.out.reserve(bytes);
        writer
    }

    /// Begins an array, for [`Writer::into_owned`].
    #[must_use]
    pub fn array() -> Self {
        Self::begun(Some(0))
    }

    /// A field, or the next element.
    pub fn put(&mut self, name: &str, value: Value<'_>) {
        self.head(value.tag(), name);
        value.write_payload(&mut self.out);
    }

    /// Begins a document inside.
    pub fn open_document(&mut self, name: &str) {
        self.head(tag::DOCUMENT, name);
        self.begin(None);
    }

    /// Begins an array inside.
    pub fn open_array(&mut self, name: &str) {
        self.head(tag::ARRAY, name);
        self.begin(Some(0));
    }

    /// Ends the innermost document or array.
    pub fn close(&mut self) {
        if let Some(frame) = self.innermost.take() {
            self.innermost = self.around.pop();
            self.out.push(0);
            let length = ((self.out.len() - frame.start) as u32).to_le_bytes();
            if let Some(place) = self.out.get_mut(frame.start..).and_then(|rest| rest.first_chunk_mut()) {
                *place = length;
            }
        }
    }

    /// Ends everything.
    #[must_use]
    pub fn finish(mut self) -> DocBuf {
        while self.innermost.is_some() {
            self.close();
        }
        DocBuf::trusted(self.out)
    }

    /// Ends everything: a document or array, as it began.
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

    fn begin(&mut self, elements: Option<usize>) {
        self.around.extend(self.innermost.replace(Frame { start: self.out.len(), elements }));
        self.out.extend_from_slice(&[0; 4]);
    }

    fn head(&mut self, tag: u8, name: &str) {
        self.out.push(tag);
        match self.innermost.as_mut().and_then(|frame| frame.elements.as_mut()) {
            Some(count) => {
                write_decimal(&mut self.out, *count);
                *count += 1;
            }
            // A name with a zero inside would end there. No name out of a document has one.
            None => self.out.extend_from_slice(name.split('\0').next().unwrap_or_default().as_bytes()),
        }
        self.out.push(0);
    }
}

fn write_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        write_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}
