//! The newest samples, between two checkpoints.
//!
//!   small groups ─▶ open samples (time, bits, commit), in two blocks ─▶ 256 of them are sealed: sorted, compressed
//!   long groups arrive as chunks, compressed by the caller's thread ─▶ stored unchanged
//!
//! One writer, the sequencer; readers read one series at a time. Series are spread over shards, each with a
//! lock that the writer holds for one long group of samples, or for thirty-two short ones, and a reader while
//! it copies open samples and takes handles on sealed chunks. Neither side waits for the other's I/O or
//! decoding. A reader waits for compression only if its shard seals a chunk at that time.
//!
//! Every sample carries the commit that wrote it, so a snapshot sees exactly its commits: sealed chunks hold
//! the commits as runs, and one number where they came complete.
//!
//! Sealing runs in the sequencer, because it costs about ten nanoseconds per sample there and halves the
//! memory until the checkpoint; the heavy work, merging with stored chunks, belongs to the flush.

pub(crate) mod index;
pub(crate) mod postings;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use roaring::RoaringBitmap;
use ropewalk_base::{DecodeError, Decoder, Seq, put_varint};
use ropewalk_engine::Memory;

use crate::chunk::{CHUNK_SAMPLES_MAX, ChunkEncoder, ChunkHead};
use crate::sample::pack::{put_signed, take_signed};

/// Open samples of a series that are sealed together.
const SEAL_SAMPLES: usize = 256;
/// Size of one contiguous block of open samples. The first block grows; nothing is copied when the second
/// begins.
const OPEN_BLOCK: usize = SEAL_SAMPLES / 2;
/// Number of different sizes of the first chunks of series, and the difference between two.
const FIRST_SIZES: u32 = 16;
const FIRST_STEP: usize = 12;
const _: () = assert!(FIRST_SIZES.is_power_of_two(), "a mask of the hash chooses the size of a first chunk");
const _: () = assert!((FIRST_SIZES as usize - 1) * FIRST_STEP < SEAL_SAMPLES, "a first chunk has samples");
/// Samples of a group that are added before a series is sealed again: with its open samples they fit a chunk.
const PUSH_SAMPLES_MAX: usize = CHUNK_SAMPLES_MAX - SEAL_SAMPLES;
const SHARDS: u32 = 64;
/// Series with neighbouring numbers that share a shard.
const BLOCK: u32 = 128;
/// Memory of a series in addition to its samples: its head, its slot, and the allocator's overhead.
const HEAD_BYTES: i64 = 64;
const SAMPLE_BYTES: i64 = 24;
/// Memory of a sealed chunk in addition to its bytes.
const CHUNK_BYTES: i64 = 128;
/// Number of groups of different series written at a time, and the longest length of each.
const TOGETHER: usize = 32;
const SHORT: usize = 8;
/// Step over open samples that are prefetched: two of them fill most of a cache line.
const TOUCH_STEP: usize = 2;
const TOUCHES_MAX: usize = 16;
const LINE_BYTES: usize = 64;

/// A float sample and the commit that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) time: i64,
    pub(crate) bits: u64,
    pub(crate) seq: Seq,
}

/// A sample with a payload, and the commit that wrote it.
#[derive(Debug, Clone)]
pub(crate) struct RichSample {
    pub(crate) time: i64,
    pub(crate) seq: Seq,
    pub(crate) payload: Arc<[u8]>,
}

/// A compressed chunk in memory. Times are relative to 0.
pub(crate) struct Sealed {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// No two samples have the same time.
    pub(crate) rises: bool,
    /// No value is less than the previous one, and none is a NaN. False when unknown.
    pub(crate) counts: bool,
    /// The first and the last commit in it.
    pub(crate) seqs: (Seq, Seq),
    /// When they differ: run by run, commit relative to the previous one (signed) and samples (varint).
    runs: Box<[u8]>,
}

impl Sealed {
    /// The commit of each sample.
    pub(crate) fn each_seq(&self, count: usize) -> Result<Vec<Seq>, DecodeError> {
        if self.seqs.0 == self.seqs.1 {
            return Ok(vec![self.seqs.0; count]);
        }
        let mut seqs = Vec::with_capacity(count);
        let mut decoder = Decoder::new(&self.runs);
        let mut seq = self.seqs.0.0;
        while !decoder.is_empty() && seqs.len() < count {
            seq = seq.wrapping_add(take_signed(&mut decoder, "commit")? as u64);
            let run = decoder.varint("samples of a commit")? as usize;
            seqs.resize((seqs.len() + run).min(count), Seq(seq));
        }
        debug_assert_eq!(seqs.len(), count, "the runs of a sealed chunk cover its samples");
        Ok(seqs)
    }
}

/// Samples of one series in a generation. Most of many series have only a few open samples here, so the rest
/// is separate.
#[derive(Default)]
pub(crate) struct Head {
    /// The newest open samples, a block at most.
    open: Vec<Sample>,
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    /// Sealed chunks with their first and last time, so that those of other times are not read.
    sealed: Vec<(i64, i64, Arc<Sealed>)>,
    rich: Vec<RichSample>,
    /// A full block of open samples before those of the head, or nothing.
    full: Vec<Sample>,
    /// True when an open sample is not later than the previous one.
    open_falls: bool,
}

impl Head {
    fn sealed(&self) -> &[(i64, i64, Arc<Sealed>)] {
        self.rest.as_ref().map_or(&[], |rest| &rest.sealed)
    }

    /// Sealed chunks that overlap the times from `from` to `to`, both inclusive.
    pub(crate) fn sealed_within(&self, from: i64, to: i64) -> impl Iterator<Item = &Arc<Sealed>> {
        let inside = move |(first, last, _): &&(i64, i64, Arc<Sealed>)| *first <= to && *last >= from;
        self.sealed().iter().filter(inside).map(|(.., sealed)| sealed)
    }

    pub(crate) fn rich(&self) -> &[RichSample] {
        self.rest.as_ref().map_or(&[], |rest| &rest.rich)
    }

    /// True when the times of the open samples rise, as their commits always do.
    pub(crate) fn open_rises(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| !rest.open_falls)
    }

    fn full(&self) -> &[Sample] {
        self.rest.as_ref().map_or(&[], |rest| &rest.full)
    }

    /// The open samples in the order in which they came, in two blocks.
    pub(crate) fn open(&self) -> [&[Sample]; 2] {
        [self.full(), &self.open]
    }

    fn open_len(&self) -> usize {
        self.full().len() + self.open.len()
    }

    /// Prefetches the newest open samples from `from` on.
    fn touch(&self, from: i64) -> usize {
        let touch = |block: &[Sample], most: usize| {
            let lines = block.rchunks(TOUCH_STEP).take(most);
            lines.take_while(|line| line.first().is_some_and(|sample| sample.time >= from)).count()
        };
        let touched = touch(&self.open, TOUCHES_MAX);
        touched + touch(self.full(), TOUCHES_MAX - touched)
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    /// Adds open samples; returns the change in bytes. The first block grows from one sample by doubling: of
    /// a million series most have one or two here.
    #[inline]
    fn push(&mut self, seq: Seq, samples: &[(i64, u64)]) -> i64 {
        debug_assert!(
            self.full().is_empty() || !self.open.is_empty(),
            "samples follow those of a full block"
        );
        debug_assert!(
            self.open.last().is_none_or(|last| last.seq <= seq),
            "commits are applied in their order"
        );
        let mut grown = 0;
        let mut last = self.open.last().map(|s| s.time);
        for (time, bits) in samples {
            if last >= Some(*time) {
                self.rest().open_falls = true;
            }
            last = Some(*time);
            if self.open.len() == self.open.capacity() {
                grown += self.make_room(samples.len());
            }
            self.open.push(Sample { time: *time, bits: *bits, seq });
        }
        grown
    }

    /// Makes space for `some` samples, if a block holds them, when the block is full; returns the change in
    /// bytes.
    fn make_room(&mut self, some: usize) -> i64 {
        let before = self.open.capacity();
        if before >= OPEN_BLOCK && self.full().is_empty() {
            let full = std::mem::replace(&mut self.open, Vec::with_capacity(OPEN_BLOCK));
            self.rest().full = full;
            return OPEN_BLOCK as i64 * SAMPLE_BYTES;
        }
        let wanted = before + some.max(before);
        let room = if before < OPEN_BLOCK { wanted.min(OPEN_BLOCK) } else { wanted };
        self.open.reserve_exact(room - self.open.len());
        (self.open.capacity() - before) as i64 * SAMPLE_BYTES
    }

    /// Compresses the open samples; returns the change in bytes.
    fn seal(&mut self) -> i64 {
        let mut open = self.open().concat();
        if !self.open_rises() {
            open.sort_by_key(|s| s.time);
        }
        let (Some(first), Some(last)) = (open.first(), open.last()) else {
            unreachable!("a series without open samples is not sealed");
        };
        let (first, last) = (first.time, last.time);
        let times: Vec<i64> = open.iter().map(|s| s.time).collect();
        let bits: Vec<u64> = open.iter().map(|s| s.bits).collect();
        let mut bytes = Vec::new();
        ChunkEncoder::default().encode_briefly(0, &times, &bits, &mut bytes);
        let least = open.iter().map(|s| s.seq).min().expect("there are open samples");
        let greatest = open.iter().map(|s| s.seq).max().expect("there are open samples");
        let mut runs = Vec::new();
        if least != greatest {
            let mut before = least.0;
            for run in open.chunk_by(|a, b| a.seq == b.seq) {
                let seq = run.first().map_or(before, |s| s.seq.0);
                put_signed(&mut runs, seq.wrapping_sub(before) as i64);
                put_varint(&mut runs, run.len() as u64);
                before = seq;
            }
        }
        let rises = times.is_sorted_by(|a, b| a < b);
        let counts = bits.array_windows().all(|[a, b]| f64::from_bits(*a) <= f64::from_bits(*b));
        let before = self.full().len() + self.open.capacity();
        // The capacity of a block stays: a series that filled two fills the next.
        self.open.clear();
        self.open.shrink_to(OPEN_BLOCK);
        let freed = (before - self.open.capacity()) as i64 * SAMPLE_BYTES;
        let rest = self.rest();
        rest.full = Vec::new();
        rest.open_falls = false;
        debug_assert_eq!(self.open_len(), 0, "every open sample is in the sealed chunk");
        let sealed = Sealed {
            bytes: bytes.into(),
            first,
            last,
            rises,
            counts,
            seqs: (least, greatest),
            runs: runs.into(),
        };
        let taken = CHUNK_BYTES + (sealed.bytes.len() + sealed.runs.len()) as i64;
        self.rest().sealed.push((first, last, Arc::new(sealed)));
        taken - freed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed().is_empty() && self.rich().is_empty()
    }
}

/// Number of open samples at which a series is sealed. Series that are written at the same times begin with
/// chunks of different sizes, from 76 to 256: sealing ten thousand of them together would block all commits
/// for tens of milliseconds.
fn seal_at(id: u32, is_first: bool) -> usize {
    let shorter = if is_first { id.wrapping_mul(0x9e37_79b9) >> 16 & (FIRST_SIZES - 1) } else { 0 };
    SEAL_SAMPLES - shorter as usize * FIRST_STEP
}

/// The shard of a series. Neighbours share one, and are adjacent in it: series of one target come together.
fn shard_of(id: u32) -> usize {
    (id / BLOCK % SHARDS) as usize
}

/// The slot of a series in its shard.
fn slot_of(id: u32) -> usize {
    (id / BLOCK / SHARDS * BLOCK + id % BLOCK) as usize
}

/// The series of a slot of a shard.
fn id_at(shard: u32, slot: usize) -> u32 {
    let (block, place) = (slot as u32 / BLOCK, slot as u32 % BLOCK);
    (block * SHARDS + shard) * BLOCK + place
}

#[derive(Default)]
struct Shard {
    /// By slot: place in `heads` plus one.
    slots: Vec<u32>,
    heads: Vec<Head>,
}

impl Shard {
    fn head(&mut self, id: u32, grown: &mut i64) -> &mut Head {
        let slot = slot_of(id);
        if self.slots.len() <= slot {
            *grown += (slot + 1 - self.slots.len()) as i64 * 4;
            self.slots.resize(slot + 1, 0);
        }
        let found = self.slots.get(slot).copied().unwrap_or(0) as usize;
        let place = if found > 0 {
            found - 1
        } else {
            *grown += HEAD_BYTES;
            self.heads.push(Head::default());
            if let Some(slot) = self.slots.get_mut(slot) {
                *slot = self.heads.len() as u32;
            }
            self.heads.len() - 1
        };
        self.heads.get_mut(place).expect("slots hold places of heads")
    }

    /// Adds float samples of one series; returns the change in bytes.
    #[inline]
    fn push(&mut self, id: u32, seq: Seq, samples: &[(i64, u64)]) -> i64 {
        let mut grown = 0;
        let head = self.head(id, &mut grown);
        grown += head.push(seq, samples);
        if head.open_len() >= seal_at(id, head.sealed().is_empty()) {
            grown += head.seal();
        }
        grown
    }

    fn find(&self, id: u32) -> Option<&Head> {
        self.at(slot_of(id))
    }

    fn at(&self, slot: usize) -> Option<&Head> {
        let place = self.slots.get(slot)?.checked_sub(1)?;
        self.heads.get(place as usize)
    }
}

/// A deletion of samples, as of one commit.
#[derive(Debug, Clone)]
pub(crate) struct Deletion {
    pub(crate) seq: Seq,
    /// The affected series; `None` for all.
    pub(crate) ids: Option<Arc<RoaringBitmap>>,
    /// Inclusive.
    pub(crate) from: i64,
    /// Inclusive.
    pub(crate) to: i64,
}

impl Deletion {
    pub(crate) fn covers(&self, id: u32) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }

    /// True when it deletes series and not only their samples.
    pub(crate) fn is_of_series(&self) -> bool {
        self.ids.is_some() && (self.from, self.to) == (i64::MIN, i64::MAX)
    }

    /// True when it hides a sample at `time` that commit `seq` wrote.
    #[inline]
    pub(crate) fn hides(&self, time: i64, seq: Seq) -> bool {
        seq < self.seq && self.from <= time && time <= self.to
    }
}

/// Samples of one store, of one generation.
pub(crate) struct StoreMemory {
    shards: Box<[Mutex<Shard>]>,
    deletions: RwLock<Vec<Deletion>>,
}

impl Default for StoreMemory {
    fn default() -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS as usize).collect();
        Self { shards, deletions: RwLock::default() }
    }
}

impl StoreMemory {
    fn shard(&self, id: u32) -> &Mutex<Shard> {
        self.shards.get(shard_of(id)).expect("a shard for every remainder")
    }

    /// Passes the samples of a series to `look`.
    pub(crate) fn with<R>(&self, id: u32, look: impl FnOnce(&Head) -> R) -> Option<R> {
        let shard = self.shard(id).lock();
        shard.find(id).map(look)
    }

    /// Prefetches the data that a reader of these series at `from` ms and later will read, level by level for
    /// all of them: the cache misses then overlap instead of waiting for each other, which is most of the
    /// cost of a short read. The ids are few and rise.
    pub(crate) fn warm(&self, ids: &[u32], from: i64) {
        let mut touched = 0;
        for some in ids.chunk_by(|a, b| shard_of(*a) == shard_of(*b)) {
            let first = some.first().expect("chunk_by yields no empty slice");
            let shard = self.shard(*first).lock();
            let heads: Vec<&Head> = some.iter().filter_map(|id| shard.find(*id)).collect();
            touched += heads.iter().map(|head| head.open_len()).sum::<usize>();
            touched += heads.iter().map(|head| head.touch(from)).sum::<usize>();
            let newest = heads.iter().filter_map(|head| head.sealed().last());
            let sealed = newest.filter(|(_, last, _)| *last >= from).map(|(.., sealed)| sealed);
            touched += sealed.clone().count();
            touched += sealed.clone().map(|sealed| sealed.bytes.len()).sum::<usize>();
            let lines = sealed.flat_map(|sealed| sealed.bytes.iter().step_by(LINE_BYTES));
            touched += lines.map(|byte| usize::from(*byte)).sum::<usize>();
        }
        std::hint::black_box(touched);
    }

    /// Deletions visible to a reader at `at`.
    pub(crate) fn deletions(&self, at: Seq) -> Vec<Deletion> {
        self.deletions.read().iter().filter(|d| d.seq <= at).cloned().collect()
    }

    /// The commit of the last deletion here.
    pub(crate) fn last_deletion(&self) -> Option<Seq> {
        self.deletions.read().iter().map(|deletion| deletion.seq).max()
    }

    /// Ids with samples here, ascending.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        for (number, shard) in (0..).zip(&self.shards) {
            let shard = shard.lock();
            let there = |slot: &usize| shard.at(*slot).is_some_and(|head| !head.is_empty());
            ids.extend((0..shard.slots.len()).filter(there).map(|slot| id_at(number, slot)));
        }
        ids.sort_unstable();
        ids
    }
}

/// Samples of every store, of one generation.
#[derive(Default)]
pub(crate) struct SeriesMemory {
    stores: RwLock<HashMap<u32, Arc<StoreMemory>>>,
    bytes: AtomicU64,
}

impl Memory for SeriesMemory {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl SeriesMemory {
    pub(crate) fn store(&self, store: u32) -> Option<Arc<StoreMemory>> {
        self.stores.read().get(&store).cloned()
    }

    /// Every store that was written to, in the order of their numbers.
    pub(crate) fn all_stores(&self) -> Vec<(u32, Arc<StoreMemory>)> {
        let mut all: Vec<_> = self.stores.read().iter().map(|(id, memory)| (*id, memory.clone())).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Starts writing the samples of commit `seq` to a store. Called by the sequencer only.
    pub(crate) fn writer(&self, store: u32, seq: Seq) -> MemoryWriter<'_> {
        let found = self.store(store);
        let grown = if found.is_some() { 0 } else { i64::from(SHARDS) * 64 };
        let store = found.unwrap_or_else(|| self.stores.write().entry(store).or_default().clone());
        MemoryWriter { memory: self, store, seq, gathered: Vec::new(), samples: Vec::new(), grown }
    }
}

/// Writes the samples of one commit to one store; gathered samples are written, and the growth is counted, on
/// drop.
pub(crate) struct MemoryWriter<'a> {
    memory: &'a SeriesMemory,
    store: Arc<StoreMemory>,
    seq: Seq,
    /// Short groups of series that share a shard, and where in `samples` each begins.
    gathered: Vec<(u32, usize)>,
    samples: Vec<(i64, u64)>,
    grown: i64,
}

impl Drop for MemoryWriter<'_> {
    fn drop(&mut self) {
        self.write_gathered();
        // Adding the two's complement subtracts: sealing frees memory.
        let before = self.memory.bytes.fetch_add(self.grown as u64, Ordering::Relaxed);
        debug_assert!(before as i64 + self.grown >= 0, "{before} bytes in use, {} more", self.grown);
    }
}

impl MemoryWriter<'_> {
    /// Adds float samples of one series. Short groups are written some at a time.
    #[inline]
    pub(crate) fn push(&mut self, id: u32, samples: &[(i64, u64)]) {
        if samples.len() > SHORT {
            self.write_gathered();
            let mut shard = self.store.shard(id).lock();
            for part in samples.chunks(PUSH_SAMPLES_MAX) {
                self.grown += shard.push(id, self.seq, part);
            }
            return;
        }
        let stays = self.gathered.first().is_none_or(|(other, _)| shard_of(*other) == shard_of(id));
        if !stays || self.gathered.len() == TOGETHER {
            self.write_gathered();
        }
        self.gathered.push((id, self.samples.len()));
        self.samples.extend_from_slice(samples);
    }

    /// Writes the gathered groups under one lock, after prefetching all of them so that the cache misses
    /// overlap.
    fn write_gathered(&mut self) {
        // Nothing is gathered after a long group, and in a commit without short ones.
        let Some((first, _)) = self.gathered.first() else { return };
        debug_assert!(
            self.gathered.iter().all(|(id, _)| shard_of(*id) == shard_of(*first)),
            "gathered series share the shard that is locked"
        );
        let mut shard = self.store.shard(*first).lock();
        let heads = || self.gathered.iter().filter_map(|(id, _)| shard.find(*id));
        let lengths: usize = heads().map(|head| head.open.len()).sum();
        let newest = heads().filter_map(|head| head.open.last()).fold(0, |all, sample| all ^ sample.time);
        std::hint::black_box((lengths, newest));
        let ends = self.gathered.iter().skip(1).map(|(_, start)| *start).chain([self.samples.len()]);
        for ((id, start), end) in self.gathered.iter().zip(ends) {
            let samples = self.samples.get(*start..end).expect("groups follow each other in the samples");
            self.grown += shard.push(*id, self.seq, samples);
        }
        self.gathered.clear();
        self.samples.clear();
    }

    /// Adds a chunk of one series, whose times rise and are relative to 0; returns the first time.
    pub(crate) fn push_chunk(&mut self, id: u32, bytes: &[u8]) -> Result<i64, DecodeError> {
        self.write_gathered();
        let head = ChunkHead::decode(bytes, 0)?;
        let (first, last) = (head.first, head.last);
        let (seqs, runs) = ((self.seq, self.seq), Box::default());
        let sealed = Sealed { bytes: bytes.into(), first, last, rises: true, counts: false, seqs, runs };
        let mut shard = self.store.shard(id).lock();
        shard.head(id, &mut self.grown).rest().sealed.push((first, last, Arc::new(sealed)));
        self.grown += CHUNK_BYTES + bytes.len() as i64;
        Ok(first)
    }

    /// Adds a sample with a payload.
    pub(crate) fn push_rich(&mut self, id: u32, time: i64, payload: &[u8]) {
        self.write_gathered();
        let mut shard = self.store.shard(id).lock();
        let sample = RichSample { time, seq: self.seq, payload: payload.into() };
        shard.head(id, &mut self.grown).rest().rich.push(sample);
        self.grown += 64 + payload.len() as i64;
    }

    /// Records a deletion.
    pub(crate) fn delete(&mut self, deletion: Deletion) {
        debug_assert_eq!(deletion.seq, self.seq, "a deletion has the number of its commit");
        self.write_gathered();
        self.grown += 64 + deletion.ids.as_ref().map_or(0, |ids| ids.serialized_size() as i64);
        self.store.deletions.write().push(deletion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_and_distinct() {
        let mut seen = std::collections::HashSet::new();
        for id in 0..SHARDS * BLOCK * 3 + 5 {
            assert!(seen.insert((shard_of(id), slot_of(id))));
            assert_eq!(id_at(shard_of(id) as u32, slot_of(id)), id);
            assert!(slot_of(id) < (4 * BLOCK) as usize);
        }
        assert!(slot_of(u32::MAX) <= (u32::MAX / SHARDS + BLOCK) as usize);
        assert_eq!(id_at(shard_of(u32::MAX) as u32, slot_of(u32::MAX)), u32::MAX);
    }

    #[test]
    fn first_chunks_are_of_many_sizes() {
        let mut sizes = std::collections::HashMap::new();
        (0..16_000).for_each(|id| *sizes.entry(seal_at(id, true)).or_insert(0) += 1);
        assert_eq!((sizes.keys().min(), sizes.keys().max(), sizes.len()), (Some(&76), Some(&256), 16));
        assert!(sizes.values().all(|series| (900..1100).contains(series)), "{sizes:?}");
        assert!((0..100).all(|id| seal_at(id, false) == SEAL_SAMPLES));
    }

    #[test]
    fn gathered_samples_are_written_in_arrival_order() {
        let memory = SeriesMemory::default();
        let mut writer = memory.writer(1, Seq(1));
        // Across shards, a series twice, more than are written at a time, and several samples after one.
        let ids: Vec<u32> = (0..3 * BLOCK).chain([5, 6]).collect();
        ids.iter().zip(0..).for_each(|(id, at)| writer.push(*id, &[(at, 0)]));
        writer.push(6, &[(1000, 0), (1001, 0)]);
        writer.push(6, &[(1002, 0)]);
        drop(writer);
        let store = memory.store(1).unwrap();
        let times = |id| {
            store.with(id, |head| head.open().concat().iter().map(|s| s.time).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(times(5), [5, 384]);
        assert_eq!(times(6), [6, 385, 1000, 1001, 1002]);
        assert_eq!(store.ids().len(), 384);
        assert!(store.with(6, Head::open_rises).unwrap());
        assert_eq!(memory.bytes() as i64, 64 * 64 + memory_of(&store));
    }

    /// Bytes of heads, slots and capacity for open samples.
    fn memory_of(store: &StoreMemory) -> i64 {
        let shards = store.shards.iter().map(Mutex::lock);
        shards
            .map(|shard| {
                let room = |head: &Head| head.full().len() + head.open.capacity();
                let room: usize = shard.heads.iter().map(room).sum();
                shard.heads.len() as i64 * HEAD_BYTES
                    + shard.slots.len() as i64 * 4
                    + room as i64 * SAMPLE_BYTES
            })
            .sum()
    }

    #[test]
    fn sealing_keeps_the_commit_of_every_sample() {
        let memory = SeriesMemory::default();
        let first = seal_at(77, true) as u64;
        for i in 0..first {
            // Out of order, two samples per commit.
            let time = if i % 5 == 0 { -(i as i64) } else { i as i64 };
            memory.writer(1, Seq(1000 + i / 2)).push(77, &[(time, i)]);
        }
        memory.writer(1, Seq(5000)).push(77, &[(3, 3)]);
        assert!(memory.bytes() > 0 && memory.bytes() < 64 * 64 + 5000, "{}", memory.bytes());
        let store = memory.store(1).unwrap();
        assert_eq!(store.ids(), [77]);
        store.with(77, |head| {
            assert_eq!((head.open_len(), head.sealed().len()), (1, 1));
            let (.., sealed) = &head.sealed()[0];
            assert_eq!(sealed.seqs, (Seq(1000), Seq(1000 + (first - 1) / 2)));
            let (mut times, mut bits) = (Vec::new(), Vec::new());
            let chunk = ChunkHead::decode(&sealed.bytes, 0).unwrap();
            chunk.samples(&mut times, &mut bits).unwrap();
            let seqs = sealed.each_seq(chunk.count).unwrap();
            assert!(times.is_sorted());
            assert!(bits.iter().zip(&seqs).all(|(i, seq)| seq.0 == 1000 + i / 2));
        });
        assert!(store.with(78, |_| ()).is_none());
    }
}
