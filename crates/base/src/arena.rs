//! Append-only memory: one writer at a time appends, any number of readers read published bytes without
//! locks.
//!
//!   push(bytes) ─▶ copy after the published length ─▶ publish (release)
//!   get(offset, len) ◀─ refused unless offset + len ≤ published length (acquire)
//!
//! Invariants
//! 1. Bytes below a chunk's published length never change and never move until the arena is dropped.
//! 2. A push never straddles two chunks. Chunk `k` holds at least `FIRST_CHUNK_BYTES << k` bytes.
//!
//! This is one of the files that may use `unsafe`: the reason is invariant 1, which lets a memtable hand out
//! `&[u8]` while its writer continues.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

const FIRST_CHUNK_BYTES: usize = 16 << 10;
const CHUNKS: usize = 40;

/// Address of pushed bytes; needed to read them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaOffset(u64);

impl ArenaOffset {
    fn new(chunk: usize, at: usize) -> Self {
        Self((chunk as u64) << 48 | at as u64)
    }

    /// The offset as a plain number, to be stored in an [`AppendList`].
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The offset that [`ArenaOffset::to_bits`] returned.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The offset `bytes` further on within the same push.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    fn chunk(self) -> usize {
        (self.0 >> 48) as usize
    }

    fn at(self) -> usize {
        (self.0 & 0xffff_ffff_ffff) as usize
    }
}

struct Chunk {
    bytes: Box<[UnsafeCell<u8>]>,
    published: AtomicUsize,
}

// SAFETY: bytes below `published` are never written again (invariant 1) and bytes above it are touched only by the
// writer that holds `Arena::writer`, so no byte is ever read and written at the same time.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(capacity: usize) -> Self {
        // Zeroed pages come from the operating system untouched, so a large chunk costs no memory until it is filled.
        let zeroed: Box<[u8]> = vec![0_u8; capacity].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8` (repr(transparent)), and the box is uniquely owned.
        let bytes = unsafe { Box::from_raw(Box::into_raw(zeroed) as *mut [UnsafeCell<u8>]) };
        Self { bytes, published: AtomicUsize::new(0) }
    }
}

/// Append-only bytes. See the module for the argument that sharing it is sound.
pub struct Arena {
    chunks: [OnceLock<Chunk>; CHUNKS],
    /// Index of the chunk that is being filled.
    writer: Mutex<usize>,
    used: AtomicU64,
}

impl Default for Arena {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], writer: Mutex::new(0), used: AtomicU64::new(0) }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("used", &self.used()).finish()
    }
}

impl Arena {
    /// Bytes pushed so far.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Copies `bytes` in and returns where they are. Concurrent calls are safe and queue up.
    pub fn push(&self, bytes: &[u8]) -> ArenaOffset {
        self.push_parts(&[bytes])
    }

    /// Copies the concatenation of `parts` in, contiguously.
    pub fn push_parts(&self, parts: &[&[u8]]) -> ArenaOffset {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let mut current = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, chunk) = loop {
            let index = *current;
            let slot = self.chunks.get(index).expect("40 doubling chunks are more than the address space");
            let chunk = slot.get_or_init(|| Chunk::new((FIRST_CHUNK_BYTES << index).max(len)));
            if chunk.bytes.len() - chunk.published.load(Ordering::Relaxed) >= len {
                break (index, chunk);
            }
            *current += 1;
        };
        let start = chunk.published.load(Ordering::Relaxed);
        let mut at = start;
        for part in parts {
            let target = chunk.bytes.get(at..at + part.len()).expect("the chunk was chosen to have room");
            // SAFETY: the target lies above `published`, so no reader accesses it, and `writer` is held, so
            // no other thread writes it. Source and target cannot overlap: no reference into the target
            // exists.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    part.as_ptr(),
                    UnsafeCell::raw_get(target.as_ptr()),
                    part.len(),
                );
            }
            at += part.len();
        }
        chunk.published.store(at, Ordering::Release);
        self.used.fetch_add(len as u64, Ordering::Relaxed);
        ArenaOffset::new(index, start)
    }

    /// The `len` bytes at `offset`, or `None` when they were never pushed.
    #[inline]
    pub fn get(&self, offset: ArenaOffset, len: usize) -> Option<&[u8]> {
        let chunk = self.chunks.get(offset.chunk())?.get()?;
        let end = offset.at().checked_add(len)?;
        if end > chunk.published.load(Ordering::Acquire) {
            return None;
        }
        let cells = chunk.bytes.get(offset.at()..end)?;
        // SAFETY: all of `cells` lies below `published`, so it is initialised and never written again (invariant 1);
        // the acquire load orders this read after the writer's copy.
        Some(unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), len) })
    }
}

const FIRST_LIST_LEN: usize = 64;

/// Append-only list of numbers: one writer, lock-free readers. Entry `i` is readable once `len() > i`.
pub struct AppendList {
    buckets: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
    len: AtomicUsize,
}

impl Default for AppendList {
    fn default() -> Self {
        Self { buckets: [const { OnceLock::new() }; CHUNKS], len: AtomicUsize::new(0) }
    }
}

impl std::fmt::Debug for AppendList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppendList").field("len", &self.len()).finish()
    }
}

/// Bucket `k` holds `FIRST_LIST_LEN << k` entries, so entry `i` is found from the top bit of `i + FIRST_LIST_LEN`.
#[inline]
fn list_slot(index: usize) -> (usize, usize) {
    let shifted = index + FIRST_LIST_LEN;
    let bucket = (shifted.ilog2() - FIRST_LIST_LEN.ilog2()) as usize;
    (bucket, shifted - (FIRST_LIST_LEN << bucket))
}

impl AppendList {
    /// Entries pushed so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// True before the first push.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry. Calls must not race each other: a push that races another may lose one of the two entries.
    pub fn push(&self, value: u64) {
        let index = self.len.load(Ordering::Relaxed);
        let (bucket, at) = list_slot(index);
        let slot = self.buckets.get(bucket).expect("40 doubling buckets are more than the address space");
        let entries = slot.get_or_init(|| {
            std::iter::repeat_with(|| AtomicU64::new(0)).take(FIRST_LIST_LEN << bucket).collect()
        });
        entries.get(at).expect("list_slot stays inside its bucket").store(value, Ordering::Relaxed);
        self.len.store(index + 1, Ordering::Release);
    }

    /// Entry `index`, or `None` beyond the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        if index >= self.len() {
            return None;
        }
        let (bucket, at) = list_slot(index);
        Some(self.buckets.get(bucket)?.get()?.get(at)?.load(Ordering::Relaxed))
    }

    /// Number of leading entries for which `pred` holds; the entries must be partitioned by it.
    pub fn partition_point(&self, mut pred: impl FnMut(u64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let mid = low + (high - low) / 2;
            if self.get(mid).is_some_and(&mut pred) {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn pushes_read_back_across_chunks() {
        let arena = Arena::default();
        let pieces: Vec<Vec<u8>> = (0..2000_usize).map(|i| vec![i as u8; i % 97 * 31]).collect();
        let offsets: Vec<_> = pieces.iter().map(|p| arena.push(p)).collect();
        for (piece, offset) in pieces.iter().zip(&offsets) {
            assert_eq!(arena.get(*offset, piece.len()).unwrap(), piece.as_slice());
        }
        let huge = vec![9; 3 << 20];
        let at = arena.push(&huge);
        assert_eq!(arena.get(at, huge.len()).unwrap(), huge.as_slice());
        assert_eq!(arena.used(), pieces.iter().map(|p| p.len() as u64).sum::<u64>() + (3 << 20));
    }

    #[test]
    fn unpublished_bytes_are_refused() {
        let arena = Arena::default();
        let at = arena.push(b"abc");
        assert!(arena.get(at, 4).is_none());
        assert!(arena.get(ArenaOffset::new(7, 0), 1).is_none());
        assert!(arena.get(ArenaOffset::new(0, usize::MAX >> 20), 1).is_none());
    }

    #[test]
    fn concurrent_readers_see_complete_entries() {
        let arena = Arc::new(Arena::default());
        let list = Arc::new(AppendList::default());
        let writer = {
            let (arena, list) = (arena.clone(), list.clone());
            std::thread::spawn(move || {
                for i in 0..200_000_u64 {
                    list.push(arena.push(&i.to_le_bytes()).to_bits());
                }
            })
        };
        let mut seen = 0;
        while seen < 200_000 {
            let len = list.len();
            for i in (seen..len).step_by(17).chain(len.checked_sub(1)) {
                let at = ArenaOffset::from_bits(list.get(i).unwrap());
                assert_eq!(arena.get(at, 8).unwrap(), (i as u64).to_le_bytes());
            }
            seen = len;
        }
        writer.join().unwrap();
        assert_eq!(list.partition_point(|bits| bits < list.get(777).unwrap()), 777);
        assert_eq!(list.get(200_000), None);
    }
}
