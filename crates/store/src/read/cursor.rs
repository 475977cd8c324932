//! An ordered scan over many sources: memtables, flushes, levels, newest first.
//!
//! Each source returns, key by key, the newest version that the snapshot sees. The cursor takes the smallest
//! key (backward: the largest); among equals the newest source wins and the others skip it. Entries under a
//! tombstone or a range tombstone are skipped.
//!
//! Invariant: while the cursor is valid and scans forward, every source but the current one is positioned
//! after the current key (backward: before it).

use ropewalk_base::Seq;

use crate::error::StoreError;
use crate::memtable::Memtable;
use crate::memtable::cursor::MemCursor;
use crate::options::Keyspace;
use crate::read::sorted_cursor::SortedCursor;
use crate::read::view::StoreView;

enum Source<'a> {
    Memory(MemCursor<'a>),
    Runs(Box<SortedCursor<'a>>),
}

macro_rules! each {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memory($cursor) => $call,
            Source::Runs($cursor) => $call,
        }
    };
}

impl Source<'_> {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, c => c.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, c => c.key())
    }

    #[inline]
    fn is_tombstone(&self) -> bool {
        match self {
            Self::Memory(c) => c.value().is_none(),
            Self::Runs(c) => c.is_tombstone(),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self {
            Self::Memory(c) => c.value().unwrap_or_default(),
            Self::Runs(c) => c.value(),
        }
    }

    fn seq(&self) -> Seq {
        each!(self, c => c.seq())
    }

    fn has_ranges(&self) -> bool {
        each!(self, c => c.has_ranges())
    }

    fn range_over(&self, key: &[u8]) -> Option<Seq> {
        each!(self, c => c.range_over(key))
    }

    fn move_to(&mut self, target: Target<'_>) -> Result<(), StoreError> {
        match self {
            Self::Memory(c) => {
                match target {
                    Target::First => c.first(),
                    Target::Last => c.last(),
                    Target::AtOrAfter(key) => c.seek(key),
                    Target::AtOrBefore(key) => c.seek_for_prev(key),
                }
                Ok(())
            }
            Self::Runs(c) => match target {
                Target::First => c.first(),
                Target::Last => c.last(),
                Target::AtOrAfter(key) => c.seek(key),
                Target::AtOrBefore(key) => c.seek_for_prev(key),
            },
        }
    }

    #[inline]
    fn step(&mut self, backward: bool) -> Result<(), StoreError> {
        match (self, backward) {
            (Self::Memory(c), false) => c.next(),
            (Self::Memory(c), true) => c.prev(),
            (Self::Runs(c), false) => return c.next(),
            (Self::Runs(c), true) => return c.prev(),
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Target<'k> {
    First,
    Last,
    AtOrAfter(&'k [u8]),
    AtOrBefore(&'k [u8]),
}

/// An ordered scan over a keyspace at one snapshot. Unpositioned at first: seek before reading.
pub struct Cursor<'a> {
    /// Newest first.
    sources: Vec<Source<'a>>,
    current: Option<usize>,
    backward: bool,
    /// Some source has range tombstones.
    has_ranges: bool,
    error: Option<StoreError>,
}

impl std::fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({} sources, valid: {})", self.sources.len(), self.valid())
    }
}

impl<'a> Cursor<'a> {
    /// A scan over `memtables` (newest first) and the runs of `view`, as the snapshot `at` sees them. An
    /// unknown keyspace is reported by the first seek. Cost: a few allocations.
    pub fn merged(memtables: &[&'a Memtable], view: &'a StoreView, keyspace: Keyspace, at: Seq) -> Self {
        let memory =
            memtables.iter().filter(|m| !m.is_empty()).map(|m| Source::Memory(MemCursor::new(m, at)));
        let mut sources: Vec<Source<'a>> = memory.collect();
        let mut error = None;
        match view.keyspace(keyspace) {
            Ok(keyspace) => {
                sources.extend(keyspace.sources().map(|s| Source::Runs(Box::new(SortedCursor::new(s, at)))));
            }
            Err(unknown) => error = Some(unknown),
        }
        let has_ranges = sources.iter().any(Source::has_ranges);
        Self { sources, current: None, backward: false, has_ranges, error }
    }

    /// To the first key at or after `key`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], I/O errors, unknown keyspace.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.move_all(Target::AtOrAfter(key), false)
    }

    /// To the last key at or before `key`.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.move_all(Target::AtOrBefore(key), true)
    }

    /// To the first key of the keyspace.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn first(&mut self) -> Result<(), StoreError> {
        self.move_all(Target::First, false)
    }

    /// To the last key of the keyspace.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn last(&mut self) -> Result<(), StoreError> {
        self.move_all(Target::Last, true)
    }

    /// To the next key. Nothing happens when the cursor is not valid.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    #[allow(clippy::should_implement_trait)] // a lending walk in both directions is no Iterator
    pub fn next(&mut self) -> Result<(), StoreError> {
        self.step(false)
    }

    /// To the key before. Nothing happens when the cursor is not valid.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    pub fn prev(&mut self) -> Result<(), StoreError> {
        self.step(true)
    }

    /// True when the cursor is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn shown(&self) -> Option<&Source<'a>> {
        self.sources.get(self.current?)
    }

    /// The key; empty when not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.shown().map_or(&[], Source::key)
    }

    /// The value; empty when not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.shown().map_or(&[], Source::value)
    }

    /// The version; zero when every live snapshot saw it as its run was written, or when not valid.
    pub fn seq(&self) -> Seq {
        self.shown().map_or(Seq::ZERO, Source::seq)
    }

    fn move_all(&mut self, target: Target<'_>, backward: bool) -> Result<(), StoreError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.backward = backward;
        self.current = None;
        for source in &mut self.sources {
            source.move_to(target)?;
        }
        self.settle()
    }

    #[inline]
    fn step(&mut self, backward: bool) -> Result<(), StoreError> {
        // As promised: nothing happens when the cursor is not valid.
        let Some(current) = self.current else { return Ok(()) };
        if self.backward != backward {
            self.turn(current, backward)?;
        }
        self.current = None;
        self.sources.get_mut(current).expect("the current source is one of them").step(backward)?;
        if self.sources.len() == 1 && !self.has_ranges {
            // Nothing to merge with; tombstones are the only thing to skip.
            return self.settle_alone();
        }
        self.settle()
    }

    #[inline]
    fn settle_alone(&mut self) -> Result<(), StoreError> {
        let source = self.sources.first_mut().expect("the current source is the only one");
        while source.valid() {
            if !source.is_tombstone() {
                self.current = Some(0);
                return Ok(());
            }
            source.step(self.backward)?;
        }
        Ok(())
    }

    /// Moves every other source to the other side of the current key.
    fn turn(&mut self, current: usize, backward: bool) -> Result<(), StoreError> {
        self.backward = backward;
        let key = self.key().to_vec();
        let target = if backward { Target::AtOrBefore(&key) } else { Target::AtOrAfter(&key) };
        for (index, source) in self.sources.iter_mut().enumerate() {
            if index != current {
                source.move_to(target)?;
                if source.valid() && source.key() == key {
                    source.step(backward)?;
                }
            }
        }
        Ok(())
    }

    /// Finds the next entry: the sources are positioned at their candidates.
    fn settle(&mut self) -> Result<(), StoreError> {
        while let Some(nearest) = self.nearest() {
            self.step_over_equals(nearest)?;
            let source = self.sources.get(nearest).expect("the nearest source is one of them");
            let hidden = source.is_tombstone() || self.has_ranges && self.is_deleted(nearest, source);
            if !hidden {
                self.current = Some(nearest);
                return Ok(());
            }
            self.sources.get_mut(nearest).expect("the nearest source is one of them").step(self.backward)?;
        }
        self.current = None;
        Ok(())
    }

    /// The source with the nearest key; of equals the newest.
    #[inline]
    fn nearest(&self) -> Option<usize> {
        let mut best: Option<(usize, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            if source.valid() {
                let key = source.key();
                if best.is_none_or(|(_, other)| if self.backward { key > other } else { key < other }) {
                    best = Some((index, key));
                }
            }
        }
        best.map(|(index, _)| index)
    }

    /// Moves older sources past the key of source `nearest`.
    #[inline]
    fn step_over_equals(&mut self, nearest: usize) -> Result<(), StoreError> {
        let (newer, older) = self.sources.split_at_mut(nearest + 1);
        let key = newer.last().map(Source::key).expect("the nearest source is the last of the first part");
        for source in older {
            if source.valid() && source.key() == key {
                source.step(self.backward)?;
            }
        }
        Ok(())
    }

    /// True when a range tombstone of a newer source, or a newer one of the same source, covers the entry of
    /// source `index`.
    fn is_deleted(&self, index: usize, source: &Source<'a>) -> bool {
        let key = source.key();
        let newer = self.sources.get(..index).expect("the source is one of them");
        newer.iter().any(|s| s.range_over(key).is_some())
            || source.range_over(key).is_some_and(|deleted| source.seq() < deleted)
    }
}
