//! Postings: for every type and tag of a store the positions of its events, ascending.
//!
//! In runs a posting is a list of chunks of at most [`CHUNK_POSITIONS`] positions:
//! ```text
//! key:    store (24 bits) | hash (64 bits) | first position of the chunk (40 bits), as one u128 big-endian
//! value:  name bytes | positions varint | gaps to the previous position, varint each (the first position is in the key);
//!         again for each further term that has the same hash and a chunk that begins at the same position
//! hash = XXH3-64 of (store u32 little-endian | kind u8: 1 type, 2 tag | name)
//! ```
//! The hash makes keys of equal length that spread evenly within their store; the name in the value keeps
//! results exact when two terms share a hash. All keys of a store are adjacent, so that one range delete
//! drops them. Runs hold lower positions than any memory, older memories lower ones than newer ones, so a
//! term's complete posting is: chunks of the runs, then each generation, oldest first.

use ropewalk_base::{DecodeError, Decoder, hash64, put_bytes, put_varint};
use ropewalk_engine::{Cursor, Keyspace};

use crate::error::{EventsError, Result};
use crate::event::codec::{POSITION_MAX, STORES_MAX};
use crate::index::memory::{EventMemory, StoreMemory};
use crate::index::search::Source;

/// Positions per chunk: small enough that a seek decodes little, large enough that the key's overhead is
/// small.
pub(crate) const CHUNK_POSITIONS: usize = 256;

/// Kind of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Type = 1,
    Tag = 2,
}

/// A type or tag of one store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term<'a> {
    store: u32,
    pub(crate) hash: u64,
    pub(crate) kind: Kind,
    pub(crate) name: &'a [u8],
}

impl<'a> Term<'a> {
    pub(crate) fn new(store: u32, kind: Kind, name: &'a [u8]) -> Self {
        let mut short = [0_u8; 128];
        let len = 5 + name.len();
        let fill = |out: &mut [u8]| {
            let (id, rest) = out.split_at_mut(4);
            id.copy_from_slice(&store.to_le_bytes());
            if let Some((first, rest)) = rest.split_first_mut() {
                *first = kind as u8;
                rest.copy_from_slice(name);
            }
        };
        let hash = match short.get_mut(..len) {
            Some(out) => {
                fill(out);
                hash64(out)
            }
            None => {
                let mut long = vec![0; len];
                fill(&mut long);
                hash64(&long)
            }
        };
        // Two names with the same hash are hard to find.
        #[cfg(test)]
        let hash = if name.starts_with(b"collides:") { 7 } else { hash };
        Self { store, hash, kind, name }
    }

    /// The common prefix of the keys of all its chunks: store and hash.
    fn prefix(&self) -> u128 {
        u128::from(self.store) << 64 | u128::from(self.hash)
    }

    /// The same, as the first bytes of the key.
    pub(crate) fn prefix_bytes(&self) -> [u8; 11] {
        self.key(0).first_chunk().copied().unwrap_or_default()
    }

    pub(crate) fn key(&self, first: u64) -> [u8; 16] {
        (self.prefix() << POSITION_BITS | u128::from(first.min(POSITION_MAX))).to_be_bytes()
    }
}

/// Bits of a chunk's key that hold its first position; their bytes are those that the filters leave out.
const POSITION_BITS: u32 = 40;
pub(crate) const POSITION_BYTES: u8 = 5;

/// Prefix and first position of a chunk's key.
pub(crate) fn split_key(key: &[u8]) -> Option<(u128, u64)> {
    let both = u128::from_be_bytes(key.try_into().ok()?);
    Some((both >> POSITION_BITS, both as u64 & POSITION_MAX))
}

/// The range of keys that holds all postings of a store.
pub(crate) fn store_range(store: u32) -> (Vec<u8>, Vec<u8>) {
    let first = |store: u32| (u128::from(store) << 104).to_be_bytes().to_vec();
    let end = if store < STORES_MAX { first(store + 1) } else { vec![0xff; 17] };
    (first(store), end)
}

pub(crate) fn put_chunk(out: &mut Vec<u8>, name: &[u8], positions: &[u64]) {
    debug_assert!(positions.is_sorted_by(|a, b| a < b), "the positions of a chunk rise");
    put_bytes(out, name);
    put_varint(out, positions.len() as u64);
    for pair in positions.array_windows::<2>() {
        put_varint(out, pair[1] - pair[0]);
    }
}

/// Appends the chunk's positions to `out` if one of its parts belongs to `name`; false when all are of other
/// terms.
pub(crate) fn read_chunk(
    value: &[u8],
    name: &[u8],
    first: u64,
    out: &mut Vec<u64>,
) -> Result<bool, DecodeError> {
    let mut decoder = Decoder::new(value);
    loop {
        let own = decoder.bytes("term of a chunk")? == name;
        let count = decoder.varint("positions of a chunk")?;
        let mut position = first;
        if own {
            out.push(position);
        }
        for _ in 1..count {
            let gap = decoder.varint("gap of a chunk")?;
            position =
                position.checked_add(gap).ok_or(DecodeError { what: "position of a chunk", offset: 0 })?;
            if own {
                out.push(position);
            }
        }
        if own || decoder.is_empty() {
            return Ok(own);
        }
    }
}

/// Iterates over one posting in either direction; loads a chunk at a time.
pub(crate) struct TermCursor<'s> {
    term: Term<'s>,
    store: u32,
    postings: Keyspace,
    runs: Option<Cursor<'s>>,
    /// Positions from here on are in memories only.
    runs_end: u64,
    /// Oldest first.
    memories: Vec<Source<'s>>,
    /// A contiguous part of the posting: every position of the term between its first and last is in it.
    loaded: Vec<u64>,
    at: usize,
    /// No position of the term lies between `covered.0` and the first loaded one, nor between the last and
    /// `covered.1`.
    covered: (u64, u64),
    /// Seeks at or above the first, or at or below the second, find nothing.
    nothing: (u64, u64),
    /// Buffer for decoding adjacent chunks.
    next: Vec<u64>,
}

impl<'s> TermCursor<'s> {
    pub(crate) fn new(
        term: Term<'s>,
        store: u32,
        (postings, runs_end): (Keyspace, u64),
        memories: &[Source<'s>],
        read: ropewalk_engine::ReadView<'s>,
    ) -> Result<Self, EventsError> {
        let in_runs = runs_end > 1 && read.runs().may_contain_prefix(postings, &term.prefix_bytes())?;
        let runs = in_runs.then(|| read.runs().cursor(postings, read.at()));
        Ok(Self {
            term,
            store,
            postings,
            runs,
            runs_end,
            memories: memories.to_vec(),
            loaded: Vec::new(),
            at: 0,
            covered: (0, 0),
            nothing: (u64::MAX, 0),
            next: Vec::new(),
        })
    }

    /// The first position of the posting that is at least `target`.
    pub(crate) fn seek_ge(&mut self, target: u64) -> Result<Option<u64>> {
        if self.covered.0 <= target && self.loaded.last().is_some_and(|last| target <= *last) {
            return Ok(self.gallop_ge(target));
        }
        if target >= self.nothing.0 {
            return Ok(None);
        }
        if target < self.runs_end && self.load_run_ge(target)? {
            self.cover(target, target);
            return Ok(self.gallop_ge(target));
        }
        for index in 0..self.memories.len() {
            if self.load_memory_ge(index, target) {
                self.cover(target, target);
                return Ok(self.loaded.first().copied());
            }
        }
        self.nothing.0 = target;
        Ok(None)
    }

    /// The last position of the posting that is at most `target`.
    pub(crate) fn seek_le(&mut self, target: u64) -> Result<Option<u64>> {
        if target <= self.covered.1 && self.loaded.first().is_some_and(|first| *first <= target) {
            return Ok(self.gallop_le(target));
        }
        if target <= self.nothing.1 {
            return Ok(None);
        }
        for index in (0..self.memories.len()).rev() {
            if self.load_memory_le(index, target) {
                self.cover(target, target);
                return Ok(self.loaded.last().copied());
            }
        }
        // Positions begin at 1, so zero means that no run has any.
        if self.load_run_le(target.min(self.runs_end.saturating_sub(1)))? {
            self.cover(target, target);
            return Ok(self.gallop_le(target));
        }
        self.nothing.1 = target;
        Ok(None)
    }

    /// After loading for a seek to `low..=high`: no position lies between that and the loaded part.
    fn cover(&mut self, low: u64, high: u64) {
        let first = self.loaded.first().copied().unwrap_or(low);
        let last = self.loaded.last().copied().unwrap_or(high);
        self.covered = (low.min(first), high.max(last));
    }

    /// Steps from the last result in doubling strides, then searches between: near targets cost O(1).
    fn gallop_ge(&mut self, target: u64) -> Option<u64> {
        let value = |i: usize| self.loaded.get(i).copied();
        let here = value(self.at);
        if here.is_some_and(|v| v >= target)
            && self.at.checked_sub(1).and_then(value).is_none_or(|v| v < target)
        {
            return here;
        }
        let mut low = if value(self.at).is_some_and(|v| v < target) { self.at + 1 } else { 0 };
        let mut stride = 1;
        while low > 0 && value(low + stride - 1).is_some_and(|v| v < target) {
            low += stride;
            stride *= 2;
        }
        let rest = self.loaded.get(low..)?;
        let window = if low > 0 { rest.get(..stride).unwrap_or(rest) } else { rest };
        self.at = low + window.partition_point(|v| *v < target);
        value(self.at)
    }

    /// The mirror of [`Self::gallop_ge`].
    fn gallop_le(&mut self, target: u64) -> Option<u64> {
        let value = |i: usize| self.loaded.get(i).copied();
        let here = value(self.at);
        if here.is_some_and(|v| v <= target) && value(self.at + 1).is_none_or(|v| v > target) {
            return here;
        }
        let near = here.is_some_and(|v| v > target);
        let mut high = if near { self.at } else { self.loaded.len() };
        let mut stride = 1;
        while near && high.checked_sub(stride).and_then(value).is_some_and(|v| v > target) {
            high -= stride;
            stride *= 2;
        }
        // The beginning may be nearer than a stride.
        let low = if near { high.saturating_sub(stride) } else { 0 };
        let window = self.loaded.get(low..high)?;
        self.at = (low + window.partition_point(|v| *v <= target)).checked_sub(1)?;
        value(self.at)
    }

    fn damaged(&self, what: &str) -> EventsError {
        EventsError::Damaged {
            store: self.store,
            place: format!(
                "posting of {:?} in keyspace {}",
                String::from_utf8_lossy(self.term.name),
                self.postings.0
            ),
            what: what.to_owned(),
        }
    }

    /// Decodes the chunk under the run cursor into `next`. `None`: the cursor left the term's keys.
    fn decode_here(&mut self) -> Result<Option<bool>> {
        let Some(runs) = &self.runs else { return Ok(None) };
        if !runs.valid() {
            return Ok(None);
        }
        let Some((prefix, first)) = split_key(runs.key()) else {
            return Err(self.damaged("key of a chunk is not 16 bytes"));
        };
        if prefix != self.term.prefix() {
            return Ok(None);
        }
        self.next.clear();
        let own = read_chunk(runs.value(), self.term.name, first, &mut self.next);
        own.map(Some).map_err(|error| self.damaged(&error.to_string()))
    }

    /// Loads the chunk that contains the first position ≥ `target`. The chunk may begin before `target`.
    fn load_run_ge(&mut self, target: u64) -> Result<bool> {
        let key = self.term.key(target);
        let Some(runs) = &mut self.runs else { return Ok(false) };
        // The term's chunk that begins at or before the target may still contain it. Chunks of a term with
        // the same hash may lie between.
        runs.seek_for_prev(&key)?;
        let mut here = self.decode_here()?;
        while here == Some(false) {
            if let Some(runs) = &mut self.runs {
                runs.prev()?;
            }
            here = self.decode_here()?;
        }
        if here.is_none() {
            if let Some(runs) = &mut self.runs {
                runs.seek(&self.term.key(0))?;
            }
            here = self.decode_here()?;
        }
        loop {
            match here {
                None => return Ok(false),
                Some(true) if self.next.last().is_some_and(|last| *last >= target) => break,
                Some(_) => {}
            }
            if let Some(runs) = &mut self.runs {
                runs.next()?;
            }
            here = self.decode_here()?;
        }
        std::mem::swap(&mut self.loaded, &mut self.next);
        self.at = 0;
        Ok(true)
    }

    fn load_run_le(&mut self, target: u64) -> Result<bool> {
        let key = self.term.key(target);
        let Some(runs) = &mut self.runs else { return Ok(false) };
        runs.seek_for_prev(&key)?;
        loop {
            match self.decode_here()? {
                None => return Ok(false),
                Some(true) => break,
                Some(false) => {}
            }
            if let Some(runs) = &mut self.runs {
                runs.prev()?;
            }
        }
        std::mem::swap(&mut self.loaded, &mut self.next);
        self.at = self.loaded.len() - 1;
        Ok(true)
    }

    fn load_memory_ge(&mut self, index: usize, target: u64) -> bool {
        let source = self.memories.get(index).expect("the index of a memory");
        let Source { events, memory } = source;
        if memory.last().is_none_or(|last| last < target) {
            return false;
        }
        let loaded = &mut self.loaded;
        let found = copy_positions(events, memory, &self.term, loaded, |all| {
            let start = all.partition_point(|at| memory.first + u64::from(*at) < target);
            start..(start + CHUNK_POSITIONS).min(all.len())
        });
        if found {
            self.at = 0;
        }
        found
    }

    fn load_memory_le(&mut self, index: usize, target: u64) -> bool {
        let source = self.memories.get(index).expect("the index of a memory");
        let Source { events, memory } = source;
        if memory.first > target {
            return false;
        }
        let loaded = &mut self.loaded;
        let found = copy_positions(events, memory, &self.term, loaded, |all| {
            let end = all.partition_point(|at| memory.first + u64::from(*at) <= target);
            // There may be fewer than a chunk.
            end.saturating_sub(CHUNK_POSITIONS)..end
        });
        if found {
            self.at = self.loaded.len() - 1;
        }
        found
    }
}

/// Copies the selected part of a posting; leaves `out` unchanged when that part is empty.
fn copy_positions(
    events: &EventMemory,
    memory: &StoreMemory,
    term: &Term<'_>,
    out: &mut Vec<u64>,
    choose: impl FnOnce(&[u32]) -> std::ops::Range<usize>,
) -> bool {
    events.positions(memory, term, |all| {
        let chosen = all.get(choose(all)).unwrap_or(&[]);
        if chosen.is_empty() {
            return false;
        }
        out.clear();
        out.extend(chosen.iter().map(|at| memory.first + u64::from(*at)));
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_round_trip(mut positions in prop::collection::btree_set(1..u64::MAX, 1..300), name: Vec<u8>) {
            let first = *positions.first().unwrap();
            let all: Vec<u64> = std::mem::take(&mut positions).into_iter().collect();
            let mut value = Vec::new();
            put_chunk(&mut value, &name, &all);
            let mut back = Vec::new();
            prop_assert!(read_chunk(&value, &name, first, &mut back).unwrap());
            prop_assert_eq!(back, all);
        }

        #[test]
        fn any_bytes_decode_or_fail(value: Vec<u8>, first: u64) {
            let _ = read_chunk(&value, b"", first, &mut Vec::new());
        }
    }

    #[test]
    fn golden_bytes() {
        let term = Term::new(1, Kind::Tag, b"course:c1");
        assert_eq!(term.hash, hash64(b"\x01\0\0\0\x02course:c1"));
        assert_eq!(split_key(&term.key(7)), Some((term.prefix(), 7)));
        let mut key = vec![0, 0, 1];
        key.extend_from_slice(&term.hash.to_be_bytes());
        assert_eq!(term.prefix_bytes(), *key);
        key.extend_from_slice(&[0, 0, 0, 0, 7]);
        assert_eq!(term.key(7), *key);
        let (start, end) = store_range(1);
        assert!(start <= key && key < end && end < Term::new(2, Kind::Type, b"").key(1).to_vec());
        let last = Term::new(STORES_MAX, Kind::Tag, b"t").key(POSITION_MAX).to_vec();
        assert!(last < store_range(STORES_MAX).1);
        let mut value = Vec::new();
        put_chunk(&mut value, b"t", &[5, 6, 306]);
        assert_eq!(value, [1, b't', 3, 1, 0xac, 2]);
        assert!(!read_chunk(&value, b"u", 5, &mut Vec::new()).unwrap());
    }
}
