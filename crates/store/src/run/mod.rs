//! A run: one sorted immutable file. Found by key through fences and model, read in place where it is mapped.
//!
//!   key ─▶ index: fences (model) ─▶ block ─▶ first touch? check the checksum ─▶ heads ─▶ value, where it lies
//!
//! Two ways to the bytes, one decoder: a mapping, or read calls through the bounded cache of decoded blocks (compressed
//! blocks always take the cache).
//!
//! Invariant: the file is removed only when the last reference to a run marked as doomed is dropped, so a
//! view can continue to read while compaction replaces its runs. After a crash a doomed file is an orphan,
//! removed at open.

pub(crate) mod block;
pub(crate) mod block_builder;
pub(crate) mod fences;
pub(crate) mod files;
pub(crate) mod filter;
pub(crate) mod footer;
pub(crate) mod index;
mod opening;
pub(crate) mod prefix;
pub(crate) mod range_tombstones;
pub(crate) mod search;
mod section;
pub(crate) mod value;
pub(crate) mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropewalk_base::Seq;
use ropewalk_base::sync::Mutex;
use ropewalk_vfs::{File, Mapping};

use crate::error::StoreError;
use crate::options::{Compression, KeyspaceOptions};
use crate::prefetch::prefetch;
use crate::run::block::{Block, Damage};
use crate::run::fences::Spot;
use crate::run::files::Files;
use crate::run::filter::Filter;
use crate::run::footer::Footer;
use crate::run::index::Index;
use crate::run::search::NEAR;
use crate::run::value::{Entry, Value};

/// Bytes in front of a block of a compressed run: CRC-32C of what follows, then the raw length (0: stored as it is).
pub(crate) const ENVELOPE_BYTES: usize = 8;

/// The bytes of one block.
#[derive(Clone)]
pub(crate) enum BlockRef<'a> {
    Mapped(&'a [u8]),
    Shared(Arc<Vec<u8>>),
}

impl std::ops::Deref for BlockRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Shared(block) => block,
        }
    }
}

impl<'a> BlockRef<'a> {
    #[inline]
    pub(crate) fn value(self, at: usize, len: usize) -> Value<'a> {
        match self {
            Self::Mapped(bytes) => Value::Slice(bytes.get(at..at + len).unwrap_or_default()),
            Self::Shared(block) => Value::Shared { block, range: at..at + len },
        }
    }
}

/// Cache lines that hold header, heads and ends of a block of some forty entries: the lines read by a search
/// without a guess.
pub(crate) const SEARCH_LINES: usize = 7;
/// Cache lines that hold the heads near a guess.
const HEAD_LINES: usize = (2 * NEAR * 8).div_ceil(64) + 1;

/// Bytes of an entry's head and of the end of its data.
const INDEX_BYTES: usize = 8 + 2;
/// Longer data is not prefetched at a guess: one entry off, and it is another line.
const DATA_BYTES_MAX: usize = 96;
/// Cache lines around the data at a guess: one before where it should begin, and those it takes.
const DATA_LINES: usize = 3;

/// When to check the filter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Probe {
    /// Never: the key is expected here.
    Skip,
    /// Before anything else: the key is hardly expected here.
    Early(u64),
    /// After the fences were searched: the filter's line arrives meanwhile. (Asking for the block before the filter, too,
    /// gained nothing on hits and cost 70 % on misses at 10M rows.)
    Late(u64),
}

/// Scanned blocks that stay mapped after a scan: 2 MiB at 4 KiB.
const RELEASE_BLOCKS: usize = 512;

pub(crate) struct Run {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    /// Length of the file.
    pub(crate) bytes: u64,
    pub(crate) footer: Footer,
    file: Arc<dyn File>,
    /// The blocks may be read in place.
    may_map: bool,
    /// This process wrote the file.
    is_own: bool,
    /// Loaded by the first read of a block.
    access: OnceLock<BlockAccess>,
    /// Loaded by the first question; without lines if the run has no filter.
    filter: OnceLock<Filter>,
    /// Scanned blocks that are still mapped, as far as they adjoin: first and last.
    walked: Mutex<(usize, usize)>,
    files: Arc<Files>,
    doomed: AtomicBool,
}

/// Everything that reading a block needs.
struct BlockAccess {
    index: Index,
    /// The blocks can be read in place from here.
    mapping: Option<Mapping>,
    /// One bit per block whose checksum was seen to match; `None` when this process wrote the file.
    verified: Option<Box<[AtomicU64]>>,
    /// Entries of a block, on average.
    block_entries: usize,
    /// Bytes of an entry's data, on average, if prefetching them at a guess pays; else 0.
    data_bytes: usize,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.files.remove_run(self.bytes);
        if self.doomed.load(Ordering::Acquire) {
            // Nothing depends on it: what cannot be removed now is an orphan for the next open.
            let _ = self.files.env.vfs.remove(&self.path);
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Run({:x})", self.id)
    }
}

impl Run {
    /// The file is removed with the last reference, or stays, when the manifest names it.
    pub(crate) fn set_doomed(&self, doomed: bool) {
        self.doomed.store(doomed, Ordering::Release);
    }

    /// The index, and the mapping if there is one.
    #[inline]
    fn access(&self) -> Result<&BlockAccess, StoreError> {
        match self.access.get() {
            Some(access) => Ok(access),
            None => self.load_access(),
        }
    }

    #[inline]
    pub(crate) fn index(&self) -> Result<&Index, StoreError> {
        Ok(&self.access()?.index)
    }

    /// The mapping, if it was needed before and exists.
    #[inline]
    fn mapping(&self) -> Option<&Mapping> {
        self.access.get()?.mapping.as_ref()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.footer.blocks
    }

    /// The smallest key that an entry or range tombstone of the run covers.
    pub(crate) fn start(&self) -> &[u8] {
        let range = self.footer.ranges.start();
        if self.footer.entries == 0 {
            return range.unwrap_or_default();
        }
        range.map_or(self.footer.min_key.as_slice(), |r| r.min(&self.footer.min_key))
    }

    /// True when the run covers neither `key` nor any larger key.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        let points = self.footer.entries == 0 || self.footer.max_key.as_slice() < key;
        points && self.footer.ranges.end().is_none_or(|end| end <= key)
    }

    /// True when the key ranges of the runs overlap.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        !self.ends_before(other.start()) && !other.ends_before(self.start())
    }

    /// True when rewriting the run alone could make it smaller.
    pub(crate) fn has_garbage(&self) -> bool {
        self.footer.tombstones > 0 || self.footer.superseded > 0 || !self.footer.ranges.is_empty()
    }

    pub(crate) fn corrupt(&self, block: usize, what: Damage) -> StoreError {
        let place = self.access.get().and_then(|access| access.index.block_at(block));
        let offset = place.map_or(0, |(at, _)| at);
        StoreError::corrupt(&self.path, offset, what)
    }

    /// The bytes of a block, checked on first touch.
    #[inline]
    pub(crate) fn block(&self, index: usize) -> Result<BlockRef<'_>, StoreError> {
        let access = self.access()?;
        if let Some(mapping) = &access.mapping
            && let Some((at, len)) = access.index.block_at(index)
            && let Some(bytes) = mapping.get(at as usize..at as usize + len)
        {
            if let Some(verified) = &access.verified {
                self.check_once(verified, index, bytes)?;
            }
            return Ok(BlockRef::Mapped(bytes));
        }
        self.cached(index)
    }

    #[inline]
    fn check_once(&self, verified: &[AtomicU64], index: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        let Some(word) = verified.get(word) else { return Ok(()) };
        if word.load(Ordering::Relaxed) & bit == 0 {
            if !block::crc_matches(bytes) {
                return Err(self.corrupt(index, "checksum of a block"));
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn cached(&self, index: usize) -> Result<BlockRef<'_>, StoreError> {
        let key = (self.id, index as u32);
        if let Some(block) = self.files.cache.get(&key) {
            return Ok(BlockRef::Shared(block));
        }
        let block = Arc::new(self.load(self.index()?, index)?);
        self.files.cache.insert(key, block.clone());
        Ok(BlockRef::Shared(block))
    }

    /// Reads, checks and decompresses a block that lies where `index` says.
    pub(crate) fn load(&self, index: &Index, block: usize) -> Result<Vec<u8>, StoreError> {
        let (at, len) = index.block_at(block).ok_or_else(|| self.corrupt(block, "block inside the run"))?;
        let mut stored = vec![0; len];
        self.read_stored(&mut stored, at)?;
        self.unpack(block, stored)
    }

    /// Reads stored bytes as they are, unchecked; for sequential readers that take many blocks at once.
    pub(crate) fn read_stored(&self, bytes: &mut [u8], at: u64) -> Result<(), StoreError> {
        self.file.read_exact_at(bytes, at).map_err(StoreError::io("read", &self.path))
    }

    /// Checks the stored bytes of a block and returns the block.
    pub(crate) fn unpack(&self, index: usize, stored: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        if !block::crc_matches(&stored) {
            return Err(self.corrupt(index, "checksum of a block"));
        }
        if self.footer.options.compression == Compression::None {
            return Ok(stored);
        }
        let raw_len =
            stored.get(4..8).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b)) as usize;
        let payload = stored.get(ENVELOPE_BYTES..).unwrap_or_default();
        let unpacked = match self.footer.options.compression {
            _ if raw_len == 0 => Some(payload.to_vec()),
            _ if raw_len as u64 > 2 * block::ENTRY_BYTES_MAX => None,
            Compression::Zstd => zstd::bulk::decompress(payload, raw_len).ok(),
            Compression::Lz4 | Compression::None => lz4_flex::block::decompress(payload, raw_len).ok(),
        };
        unpacked
            .filter(|b| raw_len == 0 || b.len() == raw_len)
            .ok_or_else(|| self.corrupt(index, "compressed block"))
    }

    /// False when no key of the run, cut as its filter cuts keys, has this hash.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> Result<bool, StoreError> {
        let filter = match self.filter.get() {
            Some(filter) => filter,
            None => self.load_filter()?,
        };
        Ok(filter.may_contain(hash))
    }

    /// The part of `key` that the filter hashes.
    #[inline]
    pub(crate) fn filtered<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        KeyspaceOptions::filtered(self.footer.options.filter_ignores_last, key)
    }

    /// The newest version of `key` that `at` sees, or `None`. Ignores range tombstones.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: Seq, probe: Probe) -> Result<Option<Entry<'_>>, StoreError> {
        match probe {
            Probe::Early(hash) if !self.may_contain(hash)? => return Ok(None),
            Probe::Late(hash) => self.prefetch_filter(hash),
            Probe::Early(_) | Probe::Skip => {}
        }
        let Some(spot) = self.locate(key)? else { return Ok(None) };
        match probe {
            Probe::Late(hash) if !self.may_contain(hash)? => Ok(None),
            _ => self.search(spot, key, at),
        }
    }

    /// Place of `key`; starts loading the cache lines of its block. `None` outside of the run.
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> Result<Option<Spot>, StoreError> {
        let access = self.access()?;
        let Some(spot) = access.index.fences.spot(key) else { return Ok(None) };
        if let (Some(mapping), Some((at, _))) = (&access.mapping, access.index.block_at(spot.block)) {
            // Header, heads, and the end of the entry's data, at the same time: their places follow from the
            // average.
            let (at, entry) = (at as usize, spot.of(access.block_entries));
            let heads_at = at + block::HEADER_BYTES + access.index.fences.shared();
            prefetch(mapping, at, 1);
            prefetch(mapping, (heads_at + 8 * entry).saturating_sub(8 * NEAR).max(at), HEAD_LINES);
            prefetch(mapping, heads_at + 8 * access.block_entries + 2 * entry, 1);
            if access.data_bytes > 0 {
                let data_at = heads_at + INDEX_BYTES * access.block_entries + access.data_bytes * entry;
                prefetch(mapping, data_at.saturating_sub(64), DATA_LINES);
            }
        }
        Ok(Some(spot))
    }

    /// Prefetches the filter's cache line for `hash`.
    #[inline]
    pub(crate) fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = self.filter.get() {
            filter.prefetch(hash);
        }
    }

    /// The newest version of `key` that `at` sees, from the block of `spot` on.
    #[inline]
    pub(crate) fn search(&self, spot: Spot, key: &[u8], at: Seq) -> Result<Option<Entry<'_>>, StoreError> {
        let mut index = spot.block;
        loop {
            let bytes = self.block(index)?;
            let block = Block::parse(&bytes).map_err(|e| self.corrupt(index, e))?;
            let (position, found) = block.search_near(key, at, spot).map_err(|e| self.corrupt(index, e))?;
            if found {
                let seq = block.seq(position);
                let place = block.value(position).map_err(|e| self.corrupt(index, e))?;
                return Ok(Some(Entry { seq, value: place.map(|(at, len)| bytes.value(at, len)) }));
            }
            if position < block.layout().count || !block.layout().continues() {
                return Ok(None);
            }
            index += 1;
        }
    }

    /// Starts loading the first cache lines of a block that is read in place.
    #[inline]
    pub(crate) fn prefetch_block(&self, index: usize, lines: usize) {
        if let Some(BlockAccess { index: blocks, mapping: Some(mapping), .. }) = self.access.get()
            && let Some((at, _)) = blocks.block_at(index)
        {
            prefetch(mapping, at as usize, lines);
        }
    }

    /// Records that a cursor scanned the blocks from `low` to `high`. Once adjoining scans, of one cursor or
    /// many, have covered [`RELEASE_BLOCKS`], their mapped pages are released, so that reading a large store
    /// in parts does not make all of it resident.
    pub(crate) fn walked(&self, low: usize, high: usize) {
        if low == high || self.mapping().is_none() {
            return;
        }
        let mut walked = self.walked.lock();
        let adjoins = low <= walked.1 + 1 && walked.0 <= high + 1;
        *walked = if adjoins { (low.min(walked.0), high.max(walked.1)) } else { (low, high) };
        let (from, to) = *walked;
        if to - from >= RELEASE_BLOCKS {
            *walked = (high, high);
            drop(walked);
            self.release(from, to);
        }
    }

    /// Releases the mapped pages of blocks `from .. to` and of the huge pages around them.
    fn release(&self, from: usize, to: usize) {
        let Some(BlockAccess { index, mapping: Some(mapping), .. }) = self.access.get() else { return };
        let at = |block| index.block_at(block).map(|(at, _)| at as usize);
        if let (Some(start), Some(end)) = (at(from), at(to)) {
            mapping.release(start, end.saturating_sub(start));
        }
    }

    /// Bytes of memory that the run holds besides mapped pages: those of the parts that are loaded.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_access = |access: &BlockAccess| {
            access.index.bytes() + access.verified.as_ref().map_or(0, |verified| 8 * verified.len())
        };
        self.access.get().map_or(0, of_access) + self.filter.get().map_or(0, Filter::bytes)
    }

    /// Straight lines of the model; zero without one.
    pub(crate) fn model_pieces(&self) -> u64 {
        if self.files.options.learned_index { self.footer.model_pieces } else { 0 }
    }

    /// True if blocks are read in place. Before the first read: if they may be.
    pub(crate) fn is_mapped(&self) -> bool {
        self.access.get().map_or(self.may_map, |access| access.mapping.is_some())
    }
}
