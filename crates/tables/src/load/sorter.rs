//! Entries of one object on their way into runs or the log: streamed in key order, or sorted here in bounded
//! memory.
//!
//! ```text
//! add ─▶ buffer ─┬─ sorted so far and not small: stream ─▶ runs               (one pass, without a copy)
//!                └─ otherwise: sort when the memory is full ─▶ a chunk of runs ─▶ the next chunk
//! ```
//! Chunks may overlap in their keys; a key of a later chunk is looked up in the earlier ones, which are
//! readable by then. A big chunk is split repeatedly at its middle key; each part is sorted and written by a
//! separate thread.

use std::sync::Arc;

use ropewalk_engine::{Engine, Keyspace, NewRun, Snapshot};

use crate::error::TablesError;
use crate::load::entry_writer::EntryWriter;
use crate::load::stream::Stream;

/// Entries prefetched together, so that their cache misses overlap.
const AHEAD: usize = 64;
/// Least entries for which a thread is started.
const PIECE_ENTRIES: usize = 64 << 10;
const THREADS_MAX: usize = 8;
/// Bytes prefetched of an entry: enough for keys and small values.
const LOOKED_AT_BYTES: usize = 48;

/// Reasons why an entry was rejected.
#[derive(Debug)]
pub(crate) enum SortError {
    /// The key, with its object, exists already.
    Duplicate(Vec<u8>),
    /// An error of the store.
    Tables(TablesError),
}

impl<E: Into<TablesError>> From<E> for SortError {
    fn from(error: E) -> Self {
        Self::Tables(error.into())
    }
}

/// Position of an entry in the buffer.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// First bytes of the key, as a number that sorts the same.
    head: u64,
    at: u32,
    key: u16,
}

/// Destination of the entries.
#[derive(Clone, Copy)]
pub(crate) struct Target<'e> {
    pub(crate) engine: &'e Arc<Engine>,
    pub(crate) keyspace: Keyspace,
    pub(crate) object: u32,
}

#[derive(Default)]
pub(crate) struct Sorter {
    /// Per entry: length of the value u32, key, value.
    buffer: Vec<u8>,
    items: Vec<Item>,
    /// False when the buffer is in order and without duplicates.
    unsorted: bool,
    last: Vec<u8>,
    stream: Option<Stream>,
    /// The stream met a key out of order: chunks follow.
    streamed: bool,
    /// Earlier chunks are readable.
    chunks: bool,
}

/// Common data of the parts of one chunk.
#[derive(Clone, Copy)]
struct Chunk<'c> {
    buffer: &'c [u8],
    target: Target<'c>,
    /// A snapshot with the earlier chunks, if there are any.
    earlier: Option<&'c Snapshot>,
    /// The only chunk: its runs need no filters.
    alone: bool,
}

fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => key.iter().enumerate().fold(0, |sum, (i, &b)| sum | u64::from(b) << (56 - 8 * i)),
    }
}

impl Sorter {
    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len() + self.items.len() * size_of::<Item>()
    }

    /// True when all entries are still in the buffer.
    pub(crate) fn is_whole(&self) -> bool {
        self.stream.is_none() && !self.streamed && !self.chunks
    }

    /// True when entries can be written as they arrive.
    pub(crate) fn may_stream(&self) -> bool {
        !self.unsorted && self.is_whole()
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.stream.is_some()
    }

    /// Adds an entry; `key` is without its object. While streaming, returns the finished runs when a key
    /// breaks the order.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], object: u32) -> Result<Vec<NewRun>, SortError> {
        let mut complete = Vec::new();
        if let Some(stream) = &mut self.stream {
            match key.cmp(&self.last) {
                std::cmp::Ordering::Greater => {
                    self.last.clear();
                    self.last.extend_from_slice(key);
                    stream.add(object, key, value)?;
                    return Ok(complete);
                }
                std::cmp::Ordering::Equal => {
                    let mut full = Vec::new();
                    put_full(&mut full, object, key);
                    return Err(SortError::Duplicate(full));
                }
                std::cmp::Ordering::Less => {
                    self.streamed = true;
                    let stream = self.stream.take().expect("a stream was just found");
                    complete = stream.finish()?;
                }
            }
        } else if !self.unsorted && !self.items.is_empty() && key <= self.last.as_slice() {
            self.unsorted = true;
        }
        if !self.unsorted {
            self.last.clear();
            self.last.extend_from_slice(key);
        }
        let at = u32::try_from(self.buffer.len()).expect("a buffer is written before it has 4 GiB");
        let length = u16::try_from(key.len()).expect("keys are checked to be shorter than 64 KiB");
        self.items.push(Item { head: head(key), at, key: length });
        self.buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        Ok(complete)
    }

    /// Writes the buffer, which is in order, and then streams further entries.
    pub(crate) fn stream(&mut self, target: Target<'_>) -> Result<(), SortError> {
        assert!(self.may_stream(), "the streamed buffer is in order and not written yet");
        let mut writer = EntryWriter::new(target.engine, target.keyspace, true)?;
        self.each(target.object, |key, value| Ok(writer.add(key, value)?))?;
        self.forget_buffered();
        self.stream = Some(Stream::new(writer));
        Ok(())
    }

    /// Sorts the buffer and writes it as a chunk.
    pub(crate) fn spill(&mut self, target: Target<'_>, last: bool) -> Result<Vec<NewRun>, SortError> {
        if self.items.is_empty() {
            return Ok(Vec::new());
        }
        // A chunk among others is searched through its filter.
        let alone = last && self.is_whole();
        let earlier = (self.chunks || self.streamed).then(|| target.engine.snapshot());
        let chunk = Chunk { buffer: &self.buffer, target, earlier: earlier.as_ref(), alone };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runs = chunk.write_sorted(&mut self.items, threads, self.unsorted)?;
        self.chunks = true;
        self.forget_buffered();
        Ok(runs)
    }

    /// Finishes; returns the runs that are not yet readable.
    pub(crate) fn finish(&mut self, target: Target<'_>) -> Result<Vec<NewRun>, SortError> {
        match self.stream.take() {
            Some(stream) => Ok(stream.finish()?),
            None => self.spill(target, true),
        }
    }

    /// Sorts the buffer.
    pub(crate) fn sort(&mut self) {
        if std::mem::take(&mut self.unsorted) {
            let buffer = &self.buffer;
            self.items.sort_unstable_by(|a, b| compare(buffer, a, b));
        }
    }

    /// Calls `each` with keys, including their object, and values in order; the buffer must be sorted.
    pub(crate) fn each(
        &self,
        object: u32,
        each: impl FnMut(&[u8], &[u8]) -> Result<(), SortError>,
    ) -> Result<(), SortError> {
        show(&self.buffer, &self.items, object, each)
    }

    /// Empties the buffer; the next chunk reuses its memory.
    fn forget_buffered(&mut self) {
        self.items.clear();
        self.buffer.clear();
        self.unsorted = false;
    }
}

impl Chunk<'_> {
    /// Writes runs of `items`, in key order, with at most so many threads.
    fn write_sorted(
        self,
        items: &mut [Item],
        threads: usize,
        unsorted: bool,
    ) -> Result<Vec<NewRun>, SortError> {
        let middle = items.len() / 2;
        if threads < 2 || middle < PIECE_ENTRIES {
            return self.write_piece(items, unsorted);
        }
        if unsorted {
            items.select_nth_unstable_by(middle, |a, b| compare(self.buffer, a, b));
        }
        let (low, high) = items.split_at_mut(middle);
        let half = threads / 2;
        let (below, above) = std::thread::scope(|scope| {
            let above = scope.spawn(|| self.write_sorted(high, threads - half, unsorted));
            let below = self.write_sorted(low, half, unsorted);
            let above = above.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (below, above)
        });
        let (mut runs, above) = (below?, above?);
        // Each half has checked for duplicates; one may be on both sides of the cut.
        if let (Some(last), Some(first)) = (low.last(), high.first())
            && compare(self.buffer, last, first).is_eq()
        {
            let mut full = Vec::new();
            put_full(&mut full, self.target.object, entry(self.buffer, *first).0);
            return Err(SortError::Duplicate(full));
        }
        runs.extend(above);
        Ok(runs)
    }

    fn write_piece(self, items: &mut [Item], unsorted: bool) -> Result<Vec<NewRun>, SortError> {
        if unsorted {
            items.sort_unstable_by(|a, b| compare(self.buffer, a, b));
        }
        let keyspace = self.target.keyspace;
        let mut writer = EntryWriter::new(self.target.engine, keyspace, self.alone)?;
        show(self.buffer, items, self.target.object, |key, value| {
            if let Some(earlier) = self.earlier
                && earlier.read().get(keyspace, key)?.is_some()
            {
                return Err(SortError::Duplicate(key.to_vec()));
            }
            Ok(writer.add(key, value)?)
        })?;
        Ok(writer.finish()?)
    }
}

fn compare(buffer: &[u8], a: &Item, b: &Item) -> std::cmp::Ordering {
    a.head.cmp(&b.head).then_with(|| entry(buffer, *a).0.cmp(entry(buffer, *b).0))
}

/// Calls `each` with keys, including their object, and values of sorted `items`; a duplicate key is an
/// error.
fn show(
    buffer: &[u8],
    items: &[Item],
    object: u32,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), SortError>,
) -> Result<(), SortError> {
    let mut full = Vec::new();
    let mut before: Option<(u64, &[u8])> = None;
    for items in items.chunks(AHEAD) {
        // Sorted entries are scattered over the buffer: touching many first overlaps their cache misses.
        let touched = items.iter().map(|item| {
            let (at, end) = (item.at as usize, item.at as usize + LOOKED_AT_BYTES);
            buffer.get(at).copied().unwrap_or(0) ^ buffer.get(end).copied().unwrap_or(0)
        });
        std::hint::black_box(touched.fold(0_u8, u8::wrapping_add));
        for item in items {
            let (key, value) = entry(buffer, *item);
            put_full(&mut full, object, key);
            if before.is_some_and(|(head, before)| head == item.head && before == key) {
                return Err(SortError::Duplicate(full));
            }
            debug_assert!(before.is_none_or(|(_, before)| before < key), "entries are written in order");
            before = Some((item.head, key));
            each(&full, value)?;
        }
    }
    Ok(())
}

fn put_full(full: &mut Vec<u8>, object: u32, key: &[u8]) {
    full.clear();
    full.extend_from_slice(&object.to_be_bytes());
    full.extend_from_slice(key);
}

fn entry(buffer: &[u8], item: Item) -> (&[u8], &[u8]) {
    let whole = "items lie in the buffer that they were added to";
    let (len, rest) = buffer.get(item.at as usize..).and_then(<[u8]>::split_first_chunk::<4>).expect(whole);
    let (key, rest) = rest.split_at_checked(usize::from(item.key)).expect(whole);
    (key, rest.get(..u32::from_le_bytes(*len) as usize).expect(whole))
}
