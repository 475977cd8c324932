//! Reads whole runs in order, every version of every key: for compaction, for `verify`, and for flushing
//! memtables. Large reads into one buffer leave the block cache and the resident size of the process
//! unaffected.

use std::sync::Arc;

use ropewalk_base::Seq;

use crate::error::StoreError;
use crate::options::Compression;
use crate::run::Run;
use crate::run::block::{self, Block, Layout};

const CHUNK_BYTES: u64 = 256 << 10;

/// Scans the entries of one run.
pub(crate) struct RunScanner {
    run: Arc<Run>,
    /// Stored bytes of the blocks from `chunk_first` to before `chunk_end`.
    chunk: Vec<u8>,
    chunk_at: u64,
    chunk_end: usize,
    next_block: usize,
    /// The current block, when it had to be unpacked.
    unpacked: Vec<u8>,
    /// Place of the current block in `chunk`, when it did not.
    place: (usize, usize),
    layout: Option<Layout>,
    position: usize,
    key: Vec<u8>,
    value: Option<(usize, usize)>,
}

impl RunScanner {
    /// Positioned before the first entry.
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            chunk: Vec::new(),
            chunk_at: 0,
            chunk_end: 0,
            next_block: 0,
            unpacked: Vec::new(),
            place: (0, 0),
            layout: None,
            position: 0,
            key: Vec::new(),
            value: None,
        }
    }

    fn bytes(&self) -> &[u8] {
        if self.run.footer.options.compression == Compression::None {
            self.chunk.get(self.place.0..self.place.0 + self.place.1).unwrap_or_default()
        } else {
            &self.unpacked
        }
    }

    /// Steps to the next entry. False after the last.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, StoreError> {
        self.position += 1;
        let mut fresh = false;
        if self.layout.is_none_or(|layout| self.position >= layout.count) {
            if self.next_block >= self.run.blocks() {
                self.layout = None;
                return Ok(false);
            }
            self.next_block()?;
            self.position = 0;
            fresh = true;
        }
        let mut key = std::mem::take(&mut self.key);
        let Some(layout) = self.layout else { return Ok(false) };
        let block = Block::with_layout(self.bytes(), layout);
        let read = if fresh {
            block.read(self.position, &mut key)
        } else {
            block.read_next(self.position, &mut key)
        };
        self.key = key;
        self.value = read.map_err(|e| self.run.corrupt(self.next_block - 1, e))?;
        Ok(true)
    }

    fn next_block(&mut self) -> Result<(), StoreError> {
        let index = self.next_block;
        self.next_block += 1;
        let run = self.run.clone();
        let outside = || run.corrupt(index, "block inside the run");
        let (at, len) = run.index()?.block_at(index).ok_or_else(outside)?;
        if index >= self.chunk_end {
            self.read_chunk(index, at)?;
        }
        let start = (at - self.chunk_at) as usize;
        let stored = self.chunk.get(start..start + len).ok_or_else(outside)?;
        if self.run.footer.options.compression == Compression::None {
            if !block::crc_matches(stored) {
                return Err(self.run.corrupt(index, "checksum of a block"));
            }
            self.place = (start, len);
        } else {
            self.unpacked = self.run.unpack(index, stored.to_vec())?;
        }
        self.layout = Some(Layout::parse(self.bytes()).map_err(|e| self.run.corrupt(index, e))?);
        Ok(())
    }

    fn read_chunk(&mut self, first: usize, at: u64) -> Result<(), StoreError> {
        let index = self.run.index()?;
        let mut end = first;
        let mut end_at = at;
        while let Some((start, len)) = index.block_at(end)
            && (end == first || start + len as u64 - at <= CHUNK_BYTES)
        {
            end += 1;
            end_at = start + len as u64;
        }
        self.chunk.resize((end_at - at) as usize, 0);
        self.run.read_stored(&mut self.chunk, at)?;
        (self.chunk_at, self.chunk_end) = (at, end);
        Ok(())
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn seq(&self) -> Seq {
        self.layout.map_or(Seq::ZERO, |layout| Block::with_layout(self.bytes(), layout).seq(self.position))
    }

    /// `None` for a tombstone.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        let (at, len) = self.value?;
        self.bytes().get(at..at + len)
    }
}

/// Scans the entries of several runs with disjoint ranges, in key order.
pub(crate) struct SourceScanner {
    runs: std::vec::IntoIter<Arc<Run>>,
    current: Option<RunScanner>,
}

impl SourceScanner {
    /// Positioned at the first entry.
    pub(crate) fn start(runs: Vec<Arc<Run>>) -> Result<Self, StoreError> {
        let mut source = Self { runs: runs.into_iter(), current: None };
        source.next()?;
        Ok(source)
    }

    /// The current entry; `None` after the last.
    #[inline]
    pub(crate) fn entry(&self) -> Option<&RunScanner> {
        self.current.as_ref()
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Result<(), StoreError> {
        loop {
            if let Some(current) = &mut self.current
                && current.next()?
            {
                return Ok(());
            }
            self.current = self.runs.next().map(RunScanner::new);
            if self.current.is_none() {
                return Ok(());
            }
        }
    }
}
