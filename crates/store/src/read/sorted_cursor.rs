//! Scans the runs of one sorted source in both directions, one key at a time: of each key it returns the
//! newest version that the snapshot sees; keys without one are skipped.
//!
//! Position: an entry of a loaded block, or after the last entry (`run` = number of runs, no block).

use ropewalk_base::Seq;

use crate::error::StoreError;
use crate::prefetch::prefetch;
use crate::read::sorted::Sorted;
use crate::run::block::{Block, Layout};
use crate::run::fences::Place;
use crate::run::{BlockRef, Run, SEARCH_LINES};

/// A cursor reports progress every so many blocks, so that a long scan can release already-read pages.
const REPORT_BLOCKS: usize = 512;
/// A scan prefetches the value so many entries ahead, and so many lines of the next block's first values.
const AHEAD_ENTRIES: usize = 5;
const AHEAD_LINES: usize = 8;

pub(crate) struct SortedCursor<'a> {
    sorted: &'a Sorted,
    at: Seq,
    run: usize,
    block: usize,
    position: usize,
    loaded: Option<(BlockRef<'a>, Layout)>,
    /// Every entry of the block is the only version of its key, and visible.
    plain: bool,
    /// The current key.
    key: Vec<u8>,
    /// `key` starts with the bytes that the keys of this block share.
    key_of_block: bool,
    /// The previous key, to skip its older versions.
    before: Vec<u8>,
    /// Place of the value in the block; `None` for a tombstone.
    place: Option<(usize, usize)>,
    valid: bool,
    /// Block where the current scan entered the run.
    walked_from: usize,
}

impl Drop for SortedCursor<'_> {
    fn drop(&mut self) {
        // The next cursor may continue here: many short scans count as one long scan.
        if let Some(current) = self.sorted.runs.get(self.run) {
            current.walked(self.walked_from.min(self.block), self.walked_from.max(self.block));
        }
    }
}

impl<'a> SortedCursor<'a> {
    pub(crate) fn new(sorted: &'a Sorted, at: Seq) -> Self {
        Self {
            sorted,
            at,
            run: sorted.runs.len(),
            block: 0,
            position: 0,
            loaded: None,
            plain: false,
            key: Vec::new(),
            key_of_block: false,
            before: Vec::new(),
            place: None,
            valid: false,
            walked_from: 0,
        }
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(crate) fn is_tombstone(&self) -> bool {
        self.place.is_none()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match (&self.loaded, self.place) {
            (Some((bytes, _)), Some((at, len))) => bytes.get(at..at + len).unwrap_or_default(),
            _ => &[],
        }
    }

    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        self.view().map_or(Seq::ZERO, |block| block.seq(self.position))
    }

    /// The newest range tombstone over `key` that the snapshot sees.
    pub(crate) fn range_over(&self, key: &[u8]) -> Option<Seq> {
        if !self.sorted.has_ranges {
            return None;
        }
        let run = self.sorted.find(key).and_then(|i| self.sorted.runs.get(i))?;
        run.footer.ranges.newest(key, self.at)
    }

    pub(crate) fn has_ranges(&self) -> bool {
        self.sorted.has_ranges
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let there = self.raw_seek(key, self.at)?;
        self.settle_forward(there)
    }

    pub(crate) fn first(&mut self) -> Result<(), StoreError> {
        let there = self.enter_run(0)?;
        self.settle_forward(there)
    }

    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let mut after = key.to_vec();
        after.push(0);
        self.raw_seek(&after, Seq::MAX)?;
        self.settle_backward()
    }

    pub(crate) fn last(&mut self) -> Result<(), StoreError> {
        self.enter_run(self.sorted.runs.len())?;
        self.settle_backward()
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<(), StoreError> {
        if self.plain && self.position + 1 < self.count() {
            self.position += 1;
            return self.accept();
        }
        self.next_slow()
    }

    fn next_slow(&mut self) -> Result<(), StoreError> {
        // A plain block does not continue in the next one, so no older version of the key follows.
        let single = self.plain;
        std::mem::swap(&mut self.key, &mut self.before);
        self.key_of_block = false;
        while self.raw_next()? {
            if self.visible() {
                self.accept()?;
                if single || self.key != self.before {
                    return Ok(());
                }
            }
        }
        self.valid = false;
        Ok(())
    }

    #[inline]
    pub(crate) fn prev(&mut self) -> Result<(), StoreError> {
        if self.plain && self.position > 0 {
            self.position -= 1;
            return self.accept();
        }
        self.settle_backward()
    }

    /// From the entry at the position on to the first visible one.
    fn settle_forward(&mut self, mut there: bool) -> Result<(), StoreError> {
        while there {
            if self.visible() {
                return self.accept();
            }
            there = self.raw_next()?;
        }
        self.valid = false;
        Ok(())
    }

    /// From the position back to the newest visible version of the nearest key that has one. Newer versions
    /// of the current key are in between, but they are invisible.
    fn settle_backward(&mut self) -> Result<(), StoreError> {
        loop {
            if !self.raw_prev()? {
                self.valid = false;
                return Ok(());
            }
            if self.visible() {
                break;
            }
        }
        self.accept()?;
        while !self.plain {
            // The entry before may be a newer version of the same key.
            std::mem::swap(&mut self.key, &mut self.before);
            self.key_of_block = false;
            let newer = self.raw_prev()? && {
                self.accept()?;
                self.visible() && self.key == self.before
            };
            if !newer {
                self.raw_next()?;
                return self.accept();
            }
        }
        Ok(())
    }

    #[inline]
    fn visible(&self) -> bool {
        self.plain || self.seq() <= self.at
    }

    #[inline]
    fn view(&self) -> Option<Block<'_>> {
        self.loaded.as_ref().map(|(bytes, layout)| Block::with_layout(bytes, *layout))
    }

    #[inline]
    fn count(&self) -> usize {
        self.loaded.as_ref().map_or(0, |(_, layout)| layout.count)
    }

    fn current(&self) -> Option<&'a Run> {
        self.sorted.runs.get(self.run).map(|r| &**r)
    }

    /// Loads the entry at the position.
    #[inline]
    fn accept(&mut self) -> Result<(), StoreError> {
        let Some((bytes, layout)) = &self.loaded else {
            self.valid = false;
            return Ok(());
        };
        let block = Block::with_layout(bytes, *layout);
        let read = if self.key_of_block {
            block.read_next(self.position, &mut self.key)
        } else {
            block.read(self.position, &mut self.key)
        };
        self.key_of_block = true;
        self.valid = true;
        match (read, self.current()) {
            (Ok(place), _) => {
                // A scan reads values faster than they arrive: prefetch a later one.
                if let Some((at, len)) = place {
                    prefetch(bytes, at + AHEAD_ENTRIES * len, 1);
                }
                self.place = place;
                Ok(())
            }
            (Err(what), Some(run)) => Err(run.corrupt(self.block, what)),
            (Err(what), None) => Err(StoreError::Order(what)),
        }
    }

    fn load(&mut self, run: usize, block: usize) -> Result<(), StoreError> {
        self.report_walk(run, block);
        (self.run, self.block, self.loaded, self.key_of_block) = (run, block, None, false);
        if let Some(current) = self.current() {
            current.prefetch_block(block, SEARCH_LINES);
            let bytes = current.block(block)?;
            // A scan is likely to continue; the processor does not prefetch across pages.
            current.prefetch_block(block + 1, SEARCH_LINES + AHEAD_LINES);
            let layout = Layout::parse(&bytes).map_err(|e| current.corrupt(block, e))?;
            self.plain = layout.single_versions() && current.footer.max_seq <= self.at;
            self.loaded = Some((bytes, layout));
        }
        Ok(())
    }

    /// Reports a finished stretch of the scan, before it continues at `block` of `run`.
    fn report_walk(&mut self, run: usize, block: usize) {
        let steady = run == self.run && block.abs_diff(self.block) == 1;
        if !steady || self.walked_from.abs_diff(self.block) >= REPORT_BLOCKS {
            if let Some(current) = self.current() {
                current.walked(self.walked_from.min(self.block), self.walked_from.max(self.block));
            }
            self.walked_from = block;
        }
    }

    /// Moves to the first entry of `run` or of the first run after it that has any. False after the last
    /// entry.
    fn enter_run(&mut self, mut run: usize) -> Result<bool, StoreError> {
        while self.sorted.runs.get(run).is_some_and(|r| r.blocks() == 0) {
            run += 1;
        }
        self.position = 0;
        self.load(run, 0)?;
        Ok(self.loaded.is_some())
    }

    /// Steps to the next entry, whatever its version. False after the last.
    #[inline]
    fn raw_next(&mut self) -> Result<bool, StoreError> {
        self.position = self.position.wrapping_add(1);
        if self.position < self.count() {
            return Ok(true);
        }
        if self.block + 1 < self.current().map_or(0, Run::blocks) {
            self.load(self.run, self.block + 1)?;
            self.position = 0;
            return Ok(true);
        }
        self.enter_run(self.run + 1)
    }

    /// Steps to the previous entry, whatever its version. False before the first; then the position is one
    /// step before it.
    fn raw_prev(&mut self) -> Result<bool, StoreError> {
        if let Some(before) = self.position.checked_sub(1)
            && self.loaded.is_some()
        {
            self.position = before;
            return Ok(true);
        }
        let (mut run, mut block) = (self.run, if self.loaded.is_some() { self.block } else { 0 });
        while block == 0 {
            let Some(before) = run.checked_sub(1) else {
                // So that a step forward comes back to the first entry.
                self.position = usize::MAX;
                return Ok(false);
            };
            run = before;
            block = self.sorted.runs.get(run).map_or(0, |r| r.blocks());
        }
        self.load(run, block - 1)?;
        self.position = self.count().saturating_sub(1);
        Ok(true)
    }

    /// Moves to the first entry at or after (`key`, `at`). False after the last.
    fn raw_seek(&mut self, key: &[u8], at: Seq) -> Result<bool, StoreError> {
        let Some(run) = self.sorted.find(key) else { return self.enter_run(0) };
        let Some(current) = self.sorted.runs.get(run) else { return Ok(false) };
        let block = match current.index()?.fences.locate(key) {
            Place::Before => 0,
            Place::Block(block) => block,
            Place::After => return self.enter_run(run + 1),
        };
        if self.run != run || self.block != block || self.loaded.is_none() {
            self.load(run, block)?;
        }
        self.walked_from = block;
        let Some(view) = self.view() else { return Ok(false) };
        self.position = view.search(key, at).map_err(|e| current.corrupt(block, e))?.0;
        if self.position < self.count() {
            return Ok(true);
        }
        self.position -= 1;
        self.raw_next()
    }
}

impl Sorted {
    /// The newest version after `after` of any key in `start .. end`, range tombstones included.
    pub(crate) fn changed_in(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        after: Seq,
    ) -> Result<Option<Seq>, StoreError> {
        let touched = self.runs.iter().filter(|r| {
            r.footer.max_seq > after && !r.ends_before(start) && end.is_none_or(|end| r.start() < end)
        });
        let deleted = touched.clone().filter_map(|r| r.footer.ranges.newest_in(start, end, after)).max();
        let mut newest = deleted;
        if touched.count() > 0 {
            let mut cursor = SortedCursor::new(self, Seq::MAX);
            cursor.seek(start)?;
            while cursor.valid() && end.is_none_or(|end| cursor.key() < end) {
                newest = newest.max(Some(cursor.seq()).filter(|&seq| seq > after));
                cursor.next()?;
            }
        }
        Ok(newest)
    }
}
