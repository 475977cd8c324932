//! Sorted memory that one writer fills while any number of readers look.
//!
//! ```text
//!   heads:  [ .. | .. | .. ]          one number per leaf         searched under a lock that is held
//!              │    │    │                                        for one operation only
//!   leaves: [heads][records] …        up to 127 entries each
//!                      │
//!   arena:  keyvaluekeyvalue…         never moves: values are handed out without the lock
//! ```
//!
//! Order: key ascending, version descending. A head is the first 8 bytes of a key after the bytes that all keys of the
//! memtable share, so long common prefixes cost nothing; equal heads are settled by the keys in the arena.
//!
//! Invariants
//! 1. An entry, once put, never changes, but for a second put of the same key and version, which replaces it.
//! 2. Leaves are never empty; the first entry of leaf `i` has head `heads[i]`.

use std::cmp::{Ordering, Reverse};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use parking_lot::RwLock;
use ropewalk_base::{Arena, ArenaOffset, Seq};

use crate::block::{head, shared};
use crate::prefetch::prefetch;
use crate::ranges::RangeSet;
use crate::search::count_before;
use crate::value::{Entry, Value};

/// Makes a leaf 4080 bytes: a page with room for the allocator's words.
const LEAF_MAX: usize = 127;
const TOMBSTONE: u32 = u32::MAX;
/// How far a flush looks ahead: enough to hide a memory access behind the work on one entry.
const PREFETCH_RECORDS: usize = 12;

/// Where one version of one key is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    /// [`ArenaOffset::to_bits`].
    at: u64,
    key_len: u32,
    /// [`TOMBSTONE`] or the length of the value, which follows the key.
    value_len: u32,
    pub(crate) seq: Seq,
}

/// One page of memory: a search touches one entry of the address translation cache.
struct Leaf {
    heads: [u64; LEAF_MAX],
    records: [Record; LEAF_MAX],
    len: usize,
    max_seq: Seq,
}

#[derive(Default)]
struct Tree {
    /// Bytes that all keys start with.
    prefix: Vec<u8>,
    heads: Vec<u64>,
    /// Boxed, so that making room for one moves words, not pages.
    #[allow(clippy::vec_box)]
    leaves: Vec<Box<Leaf>>,
    len: usize,
}

/// Ordered versioned keys in memory.
#[derive(Default)]
pub struct Memtable {
    arena: Arena,
    tree: RwLock<Tree>,
    ranges: RwLock<RangeSet>,
    /// Number of fragments in `ranges`, so that readers skip its lock when there are none.
    range_count: AtomicU64,
    range_bytes: AtomicU64,
    max_seq: AtomicU64,
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({} entries, {} bytes)", self.len(), self.bytes())
    }
}

/// A key and version to look for, cut for a [`Tree`].
struct Probe<'k> {
    head: u64,
    key: &'k [u8],
    /// The head holds all of the key that follows the prefix.
    short: bool,
    seq: Seq,
}

impl Memtable {
    /// An empty memtable.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a version of `key`; `None` is a tombstone. A second put of the same key and `seq` replaces the first.
    /// One caller at a time. About 200 ns at 600 000 entries.
    pub fn put(&self, key: &[u8], value: Option<&[u8]>, seq: Seq) {
        let at = self.arena.push_parts(&[key, value.unwrap_or_default()]);
        let value_len = value.map_or(TOMBSTONE, |v| v.len() as u32);
        let at = at.to_bits();
        let record = Record { at, key_len: key.len() as u32, value_len, seq };
        self.tree.write().insert(&self.arena, key, record);
        self.max_seq.fetch_max(seq.0, Release);
    }

    /// Deletes all keys in `start .. end` (half-open) as of `seq`. One caller at a time.
    pub fn delete_range(&self, start: &[u8], end: &[u8], seq: Seq) {
        let mut ranges = self.ranges.write();
        ranges.insert(start, end, seq);
        self.range_count.store(ranges.len() as u64, Release);
        self.range_bytes.fetch_add((start.len() + end.len()) as u64 + 64, Release);
        self.max_seq.fetch_max(seq.0, Release);
    }

    /// The newest version of `key` that `at` sees, tombstones and range tombstones included.
    #[inline]
    pub fn get(&self, key: &[u8], at: Seq) -> Option<Entry<'_>> {
        let point = self.point(key, at);
        match self.range_over(key, at) {
            Some(deleted) if point.is_none_or(|record| record.seq < deleted) => {
                Some(Entry { seq: deleted, value: None })
            }
            _ => point.map(|record| Entry { seq: record.seq, value: self.value(record).map(Value::Slice) }),
        }
    }

    /// The newest version of `key`, tombstones and range tombstones included.
    pub fn newest(&self, key: &[u8]) -> Option<Seq> {
        self.point(key, Seq::MAX).map(|r| r.seq).max(self.range_over(key, Seq::MAX))
    }

    /// The newest change after `after` to any key in `start .. end` (no end: everything from `start`). Skips stretches
    /// of about 100 keys that did not change.
    pub fn changed_in(&self, start: &[u8], end: Option<&[u8]>, after: Seq) -> Option<Seq> {
        if self.max_seq() <= after {
            return None;
        }
        let deleted = self.ranges.read().newest_in(start, end, after);
        deleted.max(self.tree.read().changed_in(&self.arena, start, end, after))
    }

    /// The newest version of anything here; zero when empty.
    pub fn max_seq(&self) -> Seq {
        Seq(self.max_seq.load(Acquire))
    }

    /// Memory in use, in bytes: keys, values and about 40 bytes per entry.
    pub fn bytes(&self) -> u64 {
        let tree = self.tree.read();
        self.arena.used() + 40 * tree.len as u64 + self.range_bytes.load(Acquire)
    }

    /// Number of entries (versions of keys), without range tombstones.
    pub fn len(&self) -> usize {
        self.tree.read().len
    }

    /// True when nothing was put and no range deleted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.range_count.load(Acquire) == 0
    }

    #[inline]
    pub(crate) fn point(&self, key: &[u8], at: Seq) -> Option<Record> {
        self.tree.read().find(&self.arena, key, at)
    }

    #[inline]
    pub(crate) fn range_over(&self, key: &[u8], at: Seq) -> Option<Seq> {
        if self.range_count.load(Acquire) == 0 {
            return None;
        }
        self.ranges.read().newest(key, at)
    }

    pub(crate) fn ranges(&self) -> RangeSet {
        self.ranges.read().clone()
    }

    pub(crate) fn has_ranges(&self) -> bool {
        self.range_count.load(Acquire) > 0
    }

    #[inline]
    pub(crate) fn key(&self, record: Record) -> &[u8] {
        key_of(&self.arena, &record)
    }

    #[inline]
    pub(crate) fn value(&self, record: Record) -> Option<&[u8]> {
        if record.value_len == TOMBSTONE {
            return None;
        }
        let both = self
            .arena
            .get(ArenaOffset::from_bits(record.at), record.key_len as usize + record.value_len as usize);
        both.and_then(|b| b.get(record.key_len as usize..))
    }

    /// Copies up to `limit` records from the first one at or after (`key`, `seq`) on.
    pub(crate) fn records_from(&self, key: &[u8], seq: Seq, limit: usize, out: &mut Vec<Record>) {
        let tree = self.tree.read();
        let (leaf, index) = tree.lower_bound(&self.arena, key, seq);
        let mut skip = index;
        for leaf in tree.leaves.get(leaf..).unwrap_or_default() {
            let part = leaf.records().get(skip..).unwrap_or_default();
            out.extend(part.iter().take(limit.saturating_sub(out.len())));
            if out.len() >= limit {
                return;
            }
            skip = 0;
        }
    }

    /// Calls `f` with every version of every key, in order.
    pub(crate) fn for_each<E>(
        &self,
        mut f: impl FnMut(&[u8], Seq, Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let tree = self.tree.read();
        let records = tree.leaves.iter().flat_map(|leaf| leaf.records());
        let mut ahead = records.clone();
        for _ in 0..PREFETCH_RECORDS {
            ahead.next();
        }
        for record in records {
            // Neighbours in order are strangers in the arena: ask for their bytes in time.
            if let Some(soon) = ahead.next() {
                prefetch(self.key(*soon), 0, 1);
                prefetch(self.value(*soon).unwrap_or_default(), 56, 1);
            }
            f(self.key(*record), record.seq, self.value(*record))?;
        }
        Ok(())
    }

    /// Copies up to `limit` records before (`key`, `seq`), the nearest first. No key: from the end.
    pub(crate) fn records_before(&self, before: Option<(&[u8], Seq)>, limit: usize, out: &mut Vec<Record>) {
        let tree = self.tree.read();
        let (leaf, mut end) = match before {
            Some((key, seq)) => tree.lower_bound(&self.arena, key, seq),
            None => (tree.leaves.len().saturating_sub(1), usize::MAX),
        };
        for leaf in tree.leaves.get(..=leaf).unwrap_or(&tree.leaves).iter().rev() {
            let part = leaf.records().get(..end.min(leaf.len)).unwrap_or_default();
            out.extend(part.iter().rev().take(limit.saturating_sub(out.len())));
            if out.len() >= limit {
                return;
            }
            end = usize::MAX;
        }
    }
}

fn key_of<'a>(arena: &'a Arena, record: &Record) -> &'a [u8] {
    arena.get(ArenaOffset::from_bits(record.at), record.key_len as usize).unwrap_or_default()
}

/// Order of the key of a record with the probe's head relative to the probe's key.
#[inline]
fn key_order(arena: &Arena, record: &Record, probe: &Probe<'_>) -> Ordering {
    // Equal heads that hold all of both keys: only their lengths can differ. Otherwise the arena has to be asked.
    if probe.short && record.key_len as usize <= probe.key.len() {
        return (record.key_len as usize).cmp(&probe.key.len());
    }
    key_of(arena, record).cmp(probe.key)
}

/// Order of a record with the probe's head relative to the probe.
#[inline]
fn order(arena: &Arena, record: &Record, probe: &Probe<'_>) -> Ordering {
    key_order(arena, record, probe).then_with(|| Reverse(record.seq).cmp(&Reverse(probe.seq)))
}

impl Leaf {
    fn boxed() -> Box<Self> {
        let records = [Record::default(); LEAF_MAX];
        Box::new(Self { heads: [0; LEAF_MAX], records, len: 0, max_seq: Seq::ZERO })
    }

    #[inline]
    fn heads(&self) -> &[u64] {
        self.heads.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn records(&self) -> &[Record] {
        self.records.get(..self.len).unwrap_or_default()
    }

    /// Puts a record at `index`; there must be room.
    fn insert(&mut self, index: usize, head: u64, record: Record) {
        self.heads.copy_within(index..self.len, index + 1);
        self.records.copy_within(index..self.len, index + 1);
        if let (Some(to), Some(slot)) = (self.heads.get_mut(index), self.records.get_mut(index)) {
            (*to, *slot) = (head, record);
        }
        self.len += 1;
        self.max_seq = self.max_seq.max(record.seq);
    }

    /// Moves the records from `cut` on into a new leaf.
    fn split_off(&mut self, cut: usize) -> Box<Self> {
        let mut right = Self::boxed();
        for (index, (&head, &record)) in self.heads().iter().zip(self.records()).skip(cut).enumerate() {
            right.insert(index, head, record);
        }
        self.len = cut;
        self.max_seq = self.records().iter().map(|r| r.seq).max().unwrap_or_default();
        right
    }

    /// Index of the first record at or after the probe.
    #[inline]
    fn lower_bound(&self, arena: &Arena, probe: &Probe<'_>) -> usize {
        let low = count_before(self.heads(), |&h| h < probe.head);
        let equal = self.heads().get(low..).unwrap_or_default();
        if equal.first() != Some(&probe.head) {
            return low;
        }
        let equal = equal.partition_point(|&h| h == probe.head);
        let records = self.records().get(low..low + equal).unwrap_or_default();
        low + records.partition_point(|r| order(arena, r, probe) == Ordering::Less)
    }
}

impl Tree {
    /// Cuts a key into a probe; `Err` says that it lies before (Less) or after (Greater) every key of the tree.
    #[inline]
    fn probe<'k>(&self, key: &'k [u8], seq: Seq) -> Result<Probe<'k>, Ordering> {
        match key.split_at_checked(self.prefix.len()) {
            Some((front, rest)) if front == self.prefix => {
                Ok(Probe { head: head(rest), key, short: rest.len() <= 8, seq })
            }
            _ if key < self.prefix.as_slice() => Err(Ordering::Less),
            _ => Err(Ordering::Greater),
        }
    }

    /// The leaf in which the probe lies or would lie.
    #[inline]
    fn leaf_of(&self, arena: &Arena, probe: &Probe<'_>) -> usize {
        let after = self.heads.partition_point(|&h| h <= probe.head);
        let low = if self.heads.get(after.wrapping_sub(1)) == Some(&probe.head) {
            let first = self.heads.partition_point(|&h| h < probe.head);
            let leaves = self.leaves.get(first..after).unwrap_or_default();
            #[allow(clippy::borrowed_box)] // what a list of boxes hands out
            let not_above = |leaf: &Box<Leaf>| {
                leaf.records().first().is_some_and(|r| order(arena, r, probe) != Ordering::Greater)
            };
            first + leaves.partition_point(not_above)
        } else {
            after
        };
        low.saturating_sub(1)
    }

    /// Leaf and index of the first record at or after (`key`, `seq`); the index may be the leaf's length, and then the
    /// record is the first of the next leaf.
    fn lower_bound(&self, arena: &Arena, key: &[u8], seq: Seq) -> (usize, usize) {
        match self.probe(key, seq) {
            Ok(probe) => {
                let leaf = self.leaf_of(arena, &probe);
                (leaf, self.leaves.get(leaf).map_or(0, |l| l.lower_bound(arena, &probe)))
            }
            Err(Ordering::Less) => (0, 0),
            Err(_) => (self.leaves.len().saturating_sub(1), self.leaves.last().map_or(0, |l| l.len)),
        }
    }

    #[inline]
    fn find(&self, arena: &Arena, key: &[u8], at: Seq) -> Option<Record> {
        let probe = self.probe(key, at).ok()?;
        let leaf = self.leaf_of(arena, &probe);
        let index = self.leaves.get(leaf)?.lower_bound(arena, &probe);
        let (record, head) = match self.leaves.get(leaf)?.records().get(index) {
            Some(record) => (record, self.leaves.get(leaf)?.heads().get(index)?),
            None => (self.leaves.get(leaf + 1)?.records().first()?, self.heads.get(leaf + 1)?),
        };
        (*head == probe.head && key_order(arena, record, &probe) == Ordering::Equal).then_some(*record)
    }

    fn insert(&mut self, arena: &Arena, key: &[u8], record: Record) {
        if self.leaves.is_empty() {
            self.prefix = key.to_vec();
            self.heads.push(0);
            let mut leaf = Leaf::boxed();
            leaf.insert(0, 0, record);
            self.leaves.push(leaf);
            self.len = 1;
            return;
        }
        if !key.starts_with(&self.prefix) {
            self.shorten_prefix(arena, key);
        }
        let Ok(probe) = self.probe(key, record.seq) else { return };
        let at = self.leaf_of(arena, &probe);
        let Some(leaf) = self.leaves.get_mut(at) else { return };
        let index = leaf.lower_bound(arena, &probe);
        if leaf.heads().get(index) == Some(&probe.head)
            && let Some(old) = leaf.records.get_mut(index)
            && order(arena, old, &probe) == Ordering::Equal
        {
            *old = record;
            return;
        }
        leaf.insert(index, probe.head, record);
        let full = leaf.len == LEAF_MAX;
        self.len += 1;
        if index == 0
            && let Some(head) = self.heads.get_mut(at)
        {
            *head = probe.head;
        }
        if full {
            self.split(at, index);
        }
    }

    /// Cuts a full leaf in two: in the middle, or near the end when it grows at its end, as in a sorted load.
    fn split(&mut self, at: usize, grown_at: usize) {
        let Some(leaf) = self.leaves.get_mut(at) else { return };
        let cut = if grown_at + 1 == leaf.len { leaf.len - 1 } else { leaf.len / 2 };
        let right = leaf.split_off(cut);
        self.heads.insert(at + 1, right.heads().first().copied().unwrap_or(0));
        self.leaves.insert(at + 1, right);
    }

    /// Makes the prefix one that `key` has too, and all heads anew. Happens a few times, while the memtable is small.
    fn shorten_prefix(&mut self, arena: &Arena, key: &[u8]) {
        self.prefix.truncate(shared(&self.prefix, key));
        let skip = self.prefix.len();
        for (first, leaf) in self.heads.iter_mut().zip(&mut self.leaves) {
            for (head_of, record) in leaf.heads.iter_mut().zip(&leaf.records).take(leaf.len) {
                *head_of = head(key_of(arena, record).get(skip..).unwrap_or_default());
            }
            *first = leaf.heads().first().copied().unwrap_or(0);
        }
    }

    fn changed_in(&self, arena: &Arena, start: &[u8], end: Option<&[u8]>, after: Seq) -> Option<Seq> {
        let (leaf, mut skip) = self.lower_bound(arena, start, Seq::MAX);
        let mut newest = None;
        for leaf in self.leaves.get(leaf..).unwrap_or_default() {
            let beyond = |record: &Record| end.is_some_and(|end| key_of(arena, record) >= end);
            if leaf.records().first().is_some_and(|r| skip == 0 && beyond(r)) {
                break;
            }
            if leaf.max_seq > after {
                let inside = leaf.records().iter().skip(skip).filter(|r| r.seq > after && !beyond(r));
                newest = newest.max(inside.map(|r| r.seq).max());
            }
            skip = 0;
        }
        newest
    }
}
