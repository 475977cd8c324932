//! Postings: for every type and tag of a store the positions of its events, ascending.
//!
//! In runs a posting is a list of chunks of at most [`CHUNK_POSITIONS`] positions:
//! ```text
//! key:    hash u64 big-endian | first position of the chunk u64 big-endian
//! value:  name bytes | positions varint | gaps to the previous position, varint each (the first position is in the key)
//! hash = XXH3-64 of (store u32 little-endian | kind u8: 1 type, 2 tag | name)
//! ```
//! The hash makes keys of equal length that spread evenly; the name in the value keeps the answer exact when two terms
//! share a hash. Runs hold lower positions than any memory, older memories lower ones than newer ones, so a term's whole
//! posting is: chunks of the runs, then each generation, oldest first.

use ropewalk_base::{DecodeError, Decoder, hash64, put_bytes, put_varint};
use ropewalk_engine::{Cursor, Keyspace};

use crate::error::EventsError;
use crate::memory::{EventMemory, StoreMemory};
use crate::search::Source;

/// Positions per chunk: small enough that a seek decodes little, large enough that the key is no burden.
pub(crate) const CHUNK_POSITIONS: usize = 256;

/// What a posting is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Type = 1,
    Tag = 2,
}

/// A type or tag of one store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term<'a> {
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
        Self { hash, kind, name }
    }

    pub(crate) fn prefix(&self) -> [u8; 8] {
        self.hash.to_be_bytes()
    }

    pub(crate) fn key(&self, first: u64) -> [u8; 16] {
        (u128::from(self.hash) << 64 | u128::from(first)).to_be_bytes()
    }
}

/// Hash and first position of a chunk's key.
pub(crate) fn split_key(key: &[u8]) -> Option<(u64, u64)> {
    let both = u128::from_be_bytes(key.try_into().ok()?);
    Some(((both >> 64) as u64, both as u64))
}

pub(crate) fn put_chunk(out: &mut Vec<u8>, name: &[u8], positions: &[u64]) {
    put_bytes(out, name);
    put_varint(out, positions.len() as u64);
    for pair in positions.array_windows::<2>() {
        put_varint(out, pair[1] - pair[0]);
    }
}

/// Appends the chunk's positions to `out` if it belongs to `name`; false when it belongs to another term.
pub(crate) fn read_chunk(
    value: &[u8],
    name: &[u8],
    first: u64,
    out: &mut Vec<u64>,
) -> Result<bool, DecodeError> {
    let mut decoder = Decoder::new(value);
    if decoder.bytes("term of a chunk")? != name {
        return Ok(false);
    }
    let count = decoder.varint("positions of a chunk")?;
    let mut position = first;
    out.push(position);
    for _ in 1..count {
        let gap = decoder.varint("gap of a chunk")?;
        position = position.checked_add(gap).ok_or(DecodeError { what: "position of a chunk", offset: 0 })?;
        out.push(position);
    }
    Ok(true)
}

/// Walks one posting in either direction; loads a chunk at a time.
pub(crate) struct TermCursor<'s> {
    term: Term<'s>,
    store: u32,
    postings: Keyspace,
    runs: Option<Cursor<'s>>,
    /// Positions from here on are in memories only.
    runs_end: u64,
    /// Oldest first.
    memories: Vec<Source<'s>>,
    /// A stretch of the posting without holes: every position of the term between its first and last is in it.
    loaded: Vec<u64>,
    at: usize,
    /// No position of the term lies between `covered.0` and the first loaded one, nor between the last and `covered.1`.
    covered: (u64, u64),
    /// Seeks at or above the first, at or below the second, are known to find nothing.
    nothing: (u64, u64),
    /// Scratch for decoding neighbours.
    next: Vec<u64>,
}

impl<'s> TermCursor<'s> {
    pub(crate) fn new(
        term: Term<'s>,
        store: u32,
        (postings, runs_end): (Keyspace, u64),
        memories: &[Source<'s>],
        read: ropewalk_engine::ReadView<'s>,
    ) -> Self {
        let in_runs = runs_end > 1 && read.runs().may_contain_prefix(postings, &term.prefix());
        let runs = in_runs.then(|| read.runs().cursor(postings, read.at()));
        Self {
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
        }
    }

    /// The first position of the posting that is at least `target`.
    pub(crate) fn seek_ge(&mut self, target: u64) -> Result<Option<u64>, EventsError> {
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
    pub(crate) fn seek_le(&mut self, target: u64) -> Result<Option<u64>, EventsError> {
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
        if self.load_run_le(target.min(self.runs_end.saturating_sub(1)))? {
            self.cover(target, target);
            return Ok(self.gallop_le(target));
        }
        self.nothing.1 = target;
        Ok(None)
    }

    /// After loading for a seek to `low..=high`: nothing lies between that and the loaded stretch.
    fn cover(&mut self, low: u64, high: u64) {
        let first = self.loaded.first().copied().unwrap_or(low);
        let last = self.loaded.last().copied().unwrap_or(high);
        self.covered = (low.min(first), high.max(last));
    }

    /// Steps from the last answer in doubling strides, then searches between: near targets cost O(1).
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

    fn gallop_le(&mut self, target: u64) -> Option<u64> {
        // The usual step backwards goes one down.
        if let Some(below) = self.at.checked_sub(1)
            && let (Some(&v), Some(&here)) = (self.loaded.get(below), self.loaded.get(self.at))
            && v <= target
            && target < here
        {
            self.at = below;
            return Some(v);
        }
        self.at = self.loaded.partition_point(|v| *v <= target).checked_sub(1)?;
        self.loaded.get(self.at).copied()
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

    /// Decodes the chunk under the run cursor into `next`. `None`: the cursor left the term's hash.
    fn decode_here(&mut self) -> Result<Option<bool>, EventsError> {
        let Some(runs) = &self.runs else { return Ok(None) };
        if !runs.valid() {
            return Ok(None);
        }
        let Some((hash, first)) = split_key(runs.key()) else {
            return Err(self.damaged("key of a chunk is not 16 bytes"));
        };
        if hash != self.term.hash {
            return Ok(None);
        }
        self.next.clear();
        let own = read_chunk(runs.value(), self.term.name, first, &mut self.next);
        own.map(Some).map_err(|error| self.damaged(&error.to_string()))
    }

    /// Loads the chunk that holds the first position ≥ `target`. The chunk may begin before `target`.
    fn load_run_ge(&mut self, target: u64) -> Result<bool, EventsError> {
        let key = self.term.key(target);
        let Some(runs) = &mut self.runs else { return Ok(false) };
        // The chunk that begins at or before the target may still reach it.
        runs.seek_for_prev(&key)?;
        let inside = runs.valid() && split_key(runs.key()).is_some_and(|(hash, _)| hash == self.term.hash);
        if !inside {
            runs.seek(&self.term.key(0))?;
        }
        loop {
            match self.decode_here()? {
                None => return Ok(false),
                Some(true) if self.next.last().is_some_and(|last| *last >= target) => break,
                Some(_) => {}
            }
            if let Some(runs) = &mut self.runs {
                runs.next()?;
            }
        }
        std::mem::swap(&mut self.loaded, &mut self.next);
        self.at = 0;
        Ok(true)
    }

    fn load_run_le(&mut self, target: u64) -> Result<bool, EventsError> {
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
        let Some(source) = self.memories.get(index) else { return false };
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
        let Some(source) = self.memories.get(index) else { return false };
        let Source { events, memory } = source;
        if memory.first > target {
            return false;
        }
        let loaded = &mut self.loaded;
        let found = copy_positions(events, memory, &self.term, loaded, |all| {
            let end = all.partition_point(|at| memory.first + u64::from(*at) <= target);
            end.saturating_sub(CHUNK_POSITIONS)..end
        });
        if found {
            self.at = self.loaded.len() - 1;
        }
        found
    }
}

/// Copies the chosen part of a posting; leaves `out` as it was when that part is empty.
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
        assert_eq!(split_key(&term.key(7)), Some((term.hash, 7)));
        let mut value = Vec::new();
        put_chunk(&mut value, b"t", &[5, 6, 306]);
        assert_eq!(value, [1, b't', 3, 1, 0xac, 2]);
        assert!(!read_chunk(&value, b"u", 5, &mut Vec::new()).unwrap());
    }
}
