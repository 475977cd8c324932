//! From a frozen memory to runs: sorts all samples of a series, merges small stored chunks, applies
//! deletions.
//!
//!   samples of a generation ─▶ parts that no snapshot splits ─▶ one sample per time ─▶ chunks of a partition
//!                                      └─ with one part: small chunks that are stored are merged in, and deleted as such
//!
//! Invariants
//! 1. A chunk never holds samples that a live or future snapshot distinguishes; its entry carries the version
//!    of its last commit, as every entry of the store does.
//! 2. A chunk never holds samples of both sides of a change of the rule about duplicates, so that its commit tells
//!    which rule its samples follow. Nor does it hold samples of both sides of a deletion. So a deletion hides a stored chunk's samples
//!    by the chunk's commit alone, and is applied here once and for all: nothing after its generation's
//!    memory records it.
//! 3. Merging takes along every chunk that overlaps one it takes, so that of two samples at one time the later stays the
//!    later.
//!
//! Merging is how chunks become long when a checkpoint holds few samples of each series: chunks up to four
//! times as large as the merged part are included, so a sample is rewritten a few times until its chunk is
//! full, and never again.

use std::cell::Cell;
use std::collections::BTreeMap;

use ropewalk_base::Seq;
use ropewalk_engine::{Cursor, Keyspace};
use ropewalk_store::{NewRun, Store, StoreView};

use crate::chunk::payload_chunk::{each_rich, put_rich};
use crate::chunk::{ChunkEncoder, ChunkHead};
use crate::error::{Result, SeriesError};
use crate::memory::{Deletion, Head, SeriesMemory, StoreMemory};
use crate::sample::duplicate_rules::DuplicateRules;
use crate::storage::chunk_keys::{
    ChunkKey, KeyBytes, bounds_key, damaged, each_chunk, partition_of, partitions, series_start,
};
use crate::storage::partition_bounds::Bounds;

/// Most samples of a chunk that is written here.
const CHUNK_SAMPLES: usize = 1024;
/// A stored chunk below this is small: it is merged by the next flush that writes near it.
const SMALL_SAMPLES: usize = CHUNK_SAMPLES / 2;

/// One sample; `value` is its bits, or the place of its payload.
#[derive(Clone)]
struct Row<V> {
    time: i64,
    seq: Seq,
    value: V,
}

/// The entries of a flush, in the order of creation, stored back to back: key, version u64, length u32 (its
/// greatest value: a deletion), value. There may be a million of them, so each costs little more than its
/// bytes.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Start of each entry.
    starts: Vec<usize>,
    ranges: Vec<(KeyBytes, KeyBytes, Seq)>,
}

const DELETED: u32 = u32::MAX;

impl Entries {
    fn put(&mut self, key: KeyBytes, version: Seq, value: Option<&[u8]>) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(&key);
        self.bytes.extend_from_slice(&version.0.to_le_bytes());
        debug_assert!(value.is_none_or(|value| value.len() < DELETED as usize), "a value is no deletion");
        self.bytes.extend_from_slice(&value.map_or(DELETED, |value| value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// The entry that begins at `start`.
    fn entry(&self, start: usize) -> (&KeyBytes, Seq, Option<&[u8]>) {
        self.get(start).expect("entries are whole from where they begin")
    }

    fn get(&self, start: usize) -> Option<(&KeyBytes, Seq, Option<&[u8]>)> {
        let (key, rest) = self.bytes.get(start..)?.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let value = match u32::from_le_bytes(*len) {
            DELETED => None,
            len => Some(rest.get(..len as usize)?),
        };
        Some((key, Seq(u64::from_le_bytes(*version)), value))
    }

    fn write(mut self, store: &Store, chunks: Keyspace) -> Result<Vec<NewRun>> {
        let mut starts = std::mem::take(&mut self.starts);
        // Newer versions come first. Of two entries with one key and version the later one counts: it begins later.
        let order = |start: &usize| {
            let (key, version, _) = self.entry(*start);
            (*key, std::cmp::Reverse(version), *start)
        };
        // They come almost in order, which a stable sort exploits.
        starts.sort_by_key(order);
        let mut writer = store.writer(chunks)?;
        for (start, end, seq) in &self.ranges {
            writer.add_range_tombstone(start, end, *seq)?;
        }
        let mut entries = starts.iter().map(|start| self.entry(*start)).peekable();
        while let Some((key, version, value)) = entries.next() {
            if entries.peek().is_none_or(|(next, other, _)| (*next, *other) != (key, version)) {
                writer.add(key, version, value)?;
            }
        }
        Ok(writer.finish()?)
    }
}

/// Callback for written chunks: store, partition, their bounds. Returns the bounds of the complete partition.
type Reaches<'a> = &'a dyn Fn(u32, i64, Bounds) -> Bounds;

/// Writes a frozen memory out. `duplicates` returns a store's rules.
pub(crate) fn flush(
    memory: &SeriesMemory,
    (store, chunks): (&Store, Keyspace),
    snapshots: &[Seq],
    duplicates: impl Fn(u32) -> DuplicateRules,
    reaches: Reaches<'_>,
) -> Result<Vec<NewRun>> {
    let stores = memory.all_stores();
    if stores.is_empty() {
        return Ok(Vec::new());
    }
    debug_assert!(!snapshots.is_empty() && snapshots.is_sorted(), "snapshots ascend to the newest commit");
    let view = store.view();
    let mut entries = Entries::default();
    for (id, memory) in stores {
        let mut flush = StoreFlush::new((id, &memory), (&view, chunks), snapshots, duplicates(id), reaches);
        flush.entries = std::mem::take(&mut entries);
        flush.run()?;
        entries = flush.entries;
    }
    entries.write(store, chunks)
}

/// A chunk written by this flush, with the data that later deletions need.
struct Live {
    key: ChunkKey,
    bytes: Vec<u8>,
}

struct StoreFlush<'a> {
    store: u32,
    memory: &'a StoreMemory,
    view: &'a StoreView,
    chunks: Keyspace,
    duplicates: DuplicateRules,
    snapshots: &'a [Seq],
    /// In order of their commits.
    deletions: Vec<Deletion>,
    /// Commits after which a new part begins, ascending.
    cuts: Vec<Seq>,
    cursors: Vec<(i64, Cursor<'a>)>,
    entries: Entries,
    live: Vec<Live>,
    encoder: ChunkEncoder,
    encoded: Vec<u8>,
    reaches: Reaches<'a>,
    /// Bounds of the written chunks of each partition, and their last commit.
    bounds: BTreeMap<i64, (Bounds, Seq)>,
    /// Samples from memory and from stored chunks, those of them that were written, and those that another sample replaced.
    taken: usize,
    written: usize,
    replaced: Cell<usize>,
}

impl<'a> StoreFlush<'a> {
    fn new(
        (store, memory): (u32, &'a StoreMemory),
        (view, chunks): (&'a StoreView, Keyspace),
        snapshots: &'a [Seq],
        duplicates: DuplicateRules,
        reaches: Reaches<'a>,
    ) -> Self {
        let mut deletions = memory.deletions(Seq::MAX);
        deletions.sort_by_key(|d| d.seq);
        debug_assert!(deletions.iter().all(|d| d.seq > Seq::ZERO), "commits are numbered from 1");
        let before = deletions.iter().map(|d| Seq(d.seq.0.saturating_sub(1)));
        let mut cuts: Vec<Seq> =
            snapshots.iter().copied().chain(before).chain(duplicates.changes()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        Self {
            store,
            memory,
            view,
            chunks,
            duplicates,
            snapshots,
            deletions,
            cuts,
            cursors: Vec::new(),
            entries: Entries::default(),
            live: Vec::new(),
            encoder: ChunkEncoder::default(),
            encoded: Vec::new(),
            reaches,
            bounds: BTreeMap::new(),
            taken: 0,
            written: 0,
            replaced: Cell::new(0),
        }
    }

    fn run(&mut self) -> Result<()> {
        let mut ids = self.memory.ids();
        for deletion in &self.deletions {
            match &deletion.ids {
                Some(some) => ids.extend(some.iter()),
                None => {
                    // All series, and whole partitions: one range of keys.
                    let (first, after) = (partition_of(deletion.from), partition_of(deletion.to) + 1);
                    let start = series_start(self.store, first, 0);
                    self.entries.ranges.push((
                        start,
                        series_start(self.store, after, 0),
                        self.number(deletion.seq),
                    ));
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            self.series(id)?;
        }
        assert_eq!(
            self.taken,
            self.written + self.replaced.get(),
            "every sample is written once, or another sample of its time is"
        );
        self.put_bounds();
        Ok(())
    }

    /// Reports the written chunks, and stores the bounds of each partition's chunks with it.
    fn put_bounds(&mut self) {
        for (partition, (bounds, seq)) in std::mem::take(&mut self.bounds) {
            let all = (self.reaches)(self.store, partition, bounds);
            debug_assert_eq!(all.and(bounds), all, "the bounds of a partition include those of new chunks");
            if let Some(value) = all.encode(partition) {
                self.entries.put(bounds_key(self.store, partition), self.number(seq), Some(&value));
            }
        }
    }

    /// The version that an entry of commit `seq` is written with: zero when every snapshot sees it.
    fn number(&self, seq: Seq) -> Seq {
        if self.snapshots.first().is_some_and(|oldest| seq <= *oldest) { Seq::ZERO } else { seq }
    }

    /// Samples with the same part are seen by the same snapshots, also by those still to come.
    fn part(&self, seq: Seq) -> Seq {
        if self.snapshots.last().is_none_or(|newest| seq > *newest) {
            return seq;
        }
        let cut = self.cuts.get(self.cuts.partition_point(|cut| *cut < seq));
        *cut.expect("the newest snapshot is a cut")
    }

    fn series(&mut self, id: u32) -> Result<()> {
        self.live.clear();
        let memory = self.memory;
        let (mut floats, rich) = memory.with(id, collect).unwrap_or_else(|| Ok((Vec::new(), Vec::new())))?;
        self.taken += floats.len() + rich.len();
        let deleted = self.deletions.iter().any(|d| d.covers(id));
        // Without samples there is only a deletion.
        let newest = floats.iter().map(|r| r.seq).max().unwrap_or_default();
        let oldest = floats.iter().map(|r| r.seq).min().unwrap_or_default();
        let is_one_part = self.number(newest) == Seq::ZERO && !self.duplicates.differ_within(oldest, newest);
        if !deleted && rich.is_empty() && is_one_part {
            // One part, and floats alone: stored chunks may be merged in.
            self.sort(&mut floats);
            return self.merge_floats(id, newest, floats);
        }
        let (mut floats, mut rich) = (self.parts(floats), self.parts(rich));
        for (part, rich) in &mut rich {
            if let Some((_, floats)) = floats.iter_mut().find(|(of, _)| of == part) {
                self.settle_kinds(floats, rich);
            }
        }
        // A part is empty when samples of the other kind replaced all of it.
        for (_, part) in floats {
            let seq = part.iter().map(|r| r.seq).max().unwrap_or_default();
            self.put_floats(id, seq, &part)?;
        }
        for (_, part) in rich {
            let seq = part.iter().map(|r| r.seq).max().unwrap_or_default();
            self.put_rich(id, seq, &part)?;
        }
        if deleted {
            let deletions: Vec<Deletion> = self.deletions.iter().filter(|d| d.covers(id)).cloned().collect();
            self.delete(id, &deletions)?;
        }
        Ok(())
    }

    /// Rows that belong together, oldest first, each part sorted.
    fn parts<V>(&self, rows: Vec<Row<V>>) -> Vec<(Seq, Vec<Row<V>>)> {
        let mut parts: Vec<(Seq, Vec<Row<V>>)> = Vec::new();
        for row in rows {
            let part = self.part(row.seq);
            match parts.iter_mut().rev().find(|(of, _)| *of == part) {
                Some((_, rows)) => rows.push(row),
                None => parts.push((part, vec![row])),
            }
        }
        parts.sort_by_key(|(part, _)| *part);
        parts.iter_mut().for_each(|(_, rows)| self.sort(rows));
        parts
    }

    /// Leaves one of a float and a payload at the same time. Within one commit the payload counts as the
    /// later.
    fn settle_kinds<V>(&self, floats: &mut Vec<Row<u64>>, rich: &mut Vec<Row<V>>) {
        let later = |float: Seq, payload: Seq| payload >= float;
        let at = |times: &[(i64, Seq)], time: i64| {
            let found = times.binary_search_by_key(&time, |(t, _)| *t).ok()?;
            times.get(found).map(|(_, seq)| *seq)
        };
        let payloads: Vec<(i64, Seq)> = rich.iter().map(|r| (r.time, r.seq)).collect();
        let before = floats.len() + rich.len();
        let keep_first = |float: Seq, payload: Seq| self.duplicates.keep_first(float.max(payload));
        let stays = |float: Seq, payload: Seq| later(float, payload) == keep_first(float, payload);
        floats.retain(|f| at(&payloads, f.time).is_none_or(|p| stays(f.seq, p)));
        let floats: Vec<(i64, Seq)> = floats.iter().map(|r| (r.time, r.seq)).collect();
        rich.retain(|p| at(&floats, p.time).is_none());
        self.replaced.update(|replaced| replaced + before - floats.len() - rich.len());
    }

    /// Sorts by time, leaving one sample for each. Rows of one time come in the order in which they were
    /// written.
    fn sort<V>(&self, rows: &mut Vec<Row<V>>) {
        if !rows.is_sorted_by(|a, b| a.time < b.time) {
            rows.sort_by_key(|r| (r.time, r.seq));
            let before = rows.len();
            rows.dedup_by(|later, kept| {
                let same = later.time == kept.time;
                if same && !self.duplicates.keep_first(later.seq) {
                    std::mem::swap(later, kept);
                }
                same
            });
            self.replaced.update(|replaced| replaced + before - rows.len());
        }
    }

    fn put_floats(&mut self, id: u32, seq: Seq, rows: &[Row<u64>]) -> Result<()> {
        for partition in rows.chunk_by(|a, b| partition_of(a.time) == partition_of(b.time)) {
            let len = partition.len().div_ceil(partition.len().div_ceil(CHUNK_SAMPLES));
            for chunk in partition.chunks(len) {
                let first = self.note_chunk(chunk, seq);
                let key = ChunkKey::at(first, id, false, seq);
                let times: Vec<i64> = chunk.iter().map(|r| r.time).collect();
                let bits: Vec<u64> = chunk.iter().map(|r| r.value).collect();
                self.encoded.clear();
                self.encoder.encode(key.base(), &times, &bits, &mut self.encoded);
                self.put(key, self.number(seq));
            }
        }
        Ok(())
    }

    fn put_rich(&mut self, id: u32, seq: Seq, rows: &[Row<std::sync::Arc<[u8]>>]) -> Result<()> {
        for partition in rows.chunk_by(|a, b| partition_of(a.time) == partition_of(b.time)) {
            for chunk in partition.chunks(CHUNK_SAMPLES) {
                let first = self.note_chunk(chunk, seq);
                let key = ChunkKey::at(first, id, true, seq);
                let samples: Vec<(i64, &[u8])> = chunk.iter().map(|r| (r.time, &*r.value)).collect();
                self.encoded.clear();
                put_rich(key.base(), &samples, &mut self.encoded)
                    .map_err(|error| damaged(&key.encode(self.store), &error))?;
                self.put(key, self.number(seq));
            }
        }
        Ok(())
    }

    /// Records the bounds of a chunk's rows, sorted; returns the first time.
    fn note_chunk<V>(&mut self, rows: &[Row<V>], seq: Seq) -> i64 {
        let ([first, .., last] | [first @ last]) = rows else {
            unreachable!("a chunk has samples");
        };
        if cfg!(debug_assertions) {
            self.check_chunk(rows, seq);
        }
        self.written += rows.len();
        let (bounds, partition) = (Bounds::of(first.time, last.time), partition_of(last.time));
        debug_assert_eq!(partition_of(first.time), partition, "a chunk stays in its partition");
        let (all, newest) = self.bounds.entry(partition).or_insert((bounds, seq));
        *all = all.and(bounds);
        *newest = seq.max(*newest);
        first.time
    }

    /// Checks the rows of a chunk that gets the number of commit `seq` (invariant 1).
    fn check_chunk<V>(&self, rows: &[Row<V>], seq: Seq) {
        assert!(rows.is_sorted_by(|a, b| a.time < b.time), "a chunk has one sample for each time");
        assert!(rows.iter().all(|row| row.seq <= seq), "a chunk has the number of its last commit");
        let oldest = rows.iter().map(|row| row.seq).min().unwrap_or(seq);
        let apart = self.snapshots.iter().find(|at| (oldest..seq).contains(*at));
        assert_eq!(apart, None, "a snapshot sees samples of commit {oldest:?} and not those of {seq:?}");
    }

    /// Writes `encoded`.
    fn put(&mut self, key: ChunkKey, version: Seq) {
        self.entries.put(key.encode(self.store), version, Some(&self.encoded));
        if !self.deletions.is_empty() {
            self.live.push(Live { key, bytes: self.encoded.clone() });
        }
    }

    fn cursor(&mut self, partition: i64) -> Option<&mut Cursor<'a>> {
        let place = match self.cursors.iter().position(|(p, _)| *p == partition) {
            Some(place) => place,
            None => {
                if self.cursors.len() >= 64 {
                    self.cursors.clear();
                }
                self.cursors.push((partition, self.view.cursor(self.chunks, Seq::MAX)));
                self.cursors.len() - 1
            }
        };
        self.cursors.get_mut(place).map(|(_, cursor)| cursor)
    }

    fn stored(&mut self, partition: i64, id: u32) -> Result<Vec<(Seq, Live)>> {
        let (store, mut found) = (self.store, Vec::new());
        if let Some(cursor) = self.cursor(partition) {
            each_chunk(cursor, store, partition, id, |key, version, value| {
                found.push((version, Live { key, bytes: value.to_vec() }));
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Writes new samples, sorted, together with small stored chunks of their partitions.
    fn merge_floats(&mut self, id: u32, seq: Seq, rows: Vec<Row<u64>>) -> Result<()> {
        for partition in rows.chunk_by(|a, b| partition_of(a.time) == partition_of(b.time)) {
            let of = partition.first().map(|r| partition_of(r.time)).expect("chunk_by yields no empty slice");
            let taken = match partition.len() {
                len if len >= CHUNK_SAMPLES => Vec::new(),
                len => self.small_chunks(of, id, len)?,
            };
            if taken.is_empty() {
                self.put_floats(id, seq, partition)?;
                continue;
            }
            let mut all = Vec::new();
            for chunk in &taken {
                let (times, bits) = decode(self.store, chunk)?;
                self.taken += times.len();
                let old = times.into_iter().zip(bits);
                all.extend(old.map(|(time, value)| Row { time, seq: chunk.key.seq, value }));
                self.entries.put(chunk.key.encode(self.store), Seq::ZERO, None);
            }
            all.extend_from_slice(partition);
            self.sort(&mut all);
            self.put_floats(id, seq, &all)?;
        }
        Ok(())
    }

    /// The stored chunks that samples of a series are merged with (invariant 3).
    fn small_chunks(&mut self, partition: i64, id: u32, len: usize) -> Result<Vec<Live>> {
        let oldest = *self.snapshots.first().expect("a flush has the snapshot of the newest commit");
        let stored = self.stored(partition, id)?;
        if stored.iter().any(|(_, chunk)| chunk.key.rich) {
            // Merged floats count as later than they are; with payloads among them that could matter.
            return Ok(Vec::new());
        }
        let mut chunks = Vec::new();
        for (version, chunk) in stored {
            let head = ChunkHead::decode(&chunk.bytes, chunk.key.base())
                .map_err(|error| damaged(&chunk.key.encode(self.store), &error))?;
            chunks.push((head.count, head.first, head.last, version <= oldest, chunk));
        }
        chunks.sort_by_key(|(count, ..)| *count);
        let mut sum = len;
        let mut taken = vec![false; chunks.len()];
        for ((count, _, _, seen, _), taken) in chunks.iter().zip(&mut taken) {
            if *count < SMALL_SAMPLES && *count <= 4 * sum && *seen {
                *taken = true;
                sum += count;
            }
        }
        loop {
            let mut grown = false;
            for index in 0..chunks.len() {
                let (_, first, last, _, _) = chunks.get(index).expect("an index below the length");
                let overlaps =
                    chunks.iter().zip(&taken).any(|((_, f, l, ..), t)| *t && f <= last && first <= l);
                if let Some(taken) = taken.get_mut(index).filter(|t| !**t && overlaps) {
                    *taken = true;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        if chunks.iter().zip(&taken).any(|((_, _, _, seen, _), taken)| *taken && !seen) {
            // A snapshot does not see one of them: merge another time.
            return Ok(Vec::new());
        }
        let chosen = chunks.into_iter().zip(taken).filter(|(_, taken)| *taken);
        Ok(chosen.map(|((.., chunk), _)| chunk).collect())
    }

    /// Removes from the chunks of a series, stored and new, the samples that deletions hide, each as of its
    /// commit.
    fn delete(&mut self, id: u32, deletions: &[Deletion]) -> Result<()> {
        let listed = || deletions.iter().filter(|d| d.ids.is_some());
        let (first, last) = (listed().map(|d| d.from).min(), listed().map(|d| d.to).max());
        debug_assert!(deletions.is_sorted_by_key(|d| d.seq), "deletions come in the order of their commits");
        let mut live = std::mem::take(&mut self.live);
        if let (Some(first), Some(last)) = (first, last) {
            let mut cursor = self.view.cursor(self.chunks, Seq::MAX);
            for partition in partitions(&mut cursor, self.store, partition_of(first), partition_of(last))? {
                live.extend(self.stored(partition, id)?.into_iter().map(|(_, chunk)| chunk));
            }
        }
        for deletion in deletions {
            let mut left = Vec::with_capacity(live.len());
            for chunk in live {
                if chunk.key.seq < deletion.seq {
                    left.extend(self.rewrite(id, chunk, deletion)?);
                } else {
                    left.push(chunk);
                }
            }
            live = left;
        }
        Ok(())
    }

    /// Replaces a chunk by its samples that remain after a deletion, if any.
    fn rewrite(&mut self, id: u32, chunk: Live, deletion: &Deletion) -> Result<Option<Live>> {
        debug_assert!(chunk.key.seq < deletion.seq, "a deletion hides what earlier commits wrote");
        let (seq, version) = (chunk.key.seq, self.number(deletion.seq));
        let hidden = |time: i64| deletion.from <= time && time <= deletion.to;
        let key = chunk.key.encode(self.store);
        let mut bytes = Vec::new();
        let (before, left, first) = if chunk.key.rich {
            let mut all: Vec<(i64, Vec<u8>)> = Vec::new();
            each_rich(&chunk.bytes, chunk.key.base(), |time, payload| all.push((time, payload.to_vec())))
                .map_err(|error| damaged(&key, &error))?;
            let left = all.iter().filter(|(time, _)| !hidden(*time));
            let left: Vec<(i64, &[u8])> = left.map(|(time, payload)| (*time, payload.as_slice())).collect();
            if !left.is_empty() {
                put_rich(chunk.key.base(), &left, &mut bytes).map_err(|error| damaged(&key, &error))?;
            }
            (all.len(), left.len(), left.first().map(|(time, _)| *time))
        } else {
            let (times, bits) = decode(self.store, &chunk)?;
            let left = times.iter().zip(&bits).filter(|(time, _)| !hidden(**time));
            let (kept, bits): (Vec<i64>, Vec<u64>) = left.map(|(t, b)| (*t, *b)).unzip();
            let first = kept.first().copied();
            // Where nothing is left, nothing is encoded.
            self.encoder.encode(first.unwrap_or_default(), &kept, &bits, &mut bytes);
            (times.len(), kept.len(), first)
        };
        if left == before {
            return Ok(Some(chunk));
        }
        self.entries.put(key, version, None);
        Ok(first.map(|first| {
            let key = ChunkKey::at(first, id, chunk.key.rich, seq);
            self.entries.put(key.encode(self.store), version, Some(&bytes));
            Live { key, bytes }
        }))
    }
}

type Floats = Vec<Row<u64>>;
type Rich = Vec<Row<std::sync::Arc<[u8]>>>;

/// All samples of a series in a generation, in the order in which they were written.
fn collect(head: &Head) -> Result<(Floats, Rich)> {
    let bad = |error: ropewalk_base::DecodeError| SeriesError::Damaged {
        place: "chunk in memory".into(),
        what: error.to_string(),
    };
    let mut floats = Vec::new();
    let (mut times, mut bits) = (Vec::new(), Vec::new());
    for sealed in head.sealed_within(i64::MIN, i64::MAX) {
        times.clear();
        bits.clear();
        let chunk = ChunkHead::decode(&sealed.bytes, 0).map_err(bad)?;
        chunk.samples(&mut times, &mut bits).map_err(bad)?;
        let seqs = sealed.each_seq(chunk.count).map_err(bad)?;
        let rows = times.iter().zip(&bits).zip(seqs);
        floats.extend(rows.map(|((time, value), seq)| Row { time: *time, seq, value: *value }));
    }
    floats.extend(head.open().into_iter().flatten().map(|s| Row { time: s.time, seq: s.seq, value: s.bits }));
    let rich = head.rich().iter().map(|s| Row { time: s.time, seq: s.seq, value: s.payload.clone() });
    Ok((floats, rich.collect()))
}

fn decode(store: u32, chunk: &Live) -> Result<(Vec<i64>, Vec<u64>)> {
    let (mut times, mut bits) = (Vec::new(), Vec::new());
    ChunkHead::decode(&chunk.bytes, chunk.key.base())
        .and_then(|head| head.samples(&mut times, &mut bits))
        .map_err(|error| damaged(&chunk.key.encode(store), &error))?;
    Ok((times, bits))
}
