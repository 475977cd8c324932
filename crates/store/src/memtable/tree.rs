//! The order of a memtable: a tree of three levels over records whose bytes are elsewhere.
//!
//! ```text
//!   root      [heads]  one per branch         a head: 8 bytes of a key, as a number
//!   branch    [heads]  one per leaf           records: where key and value are in the arena
//!   leaf      [heads][records]  up to 127, one page
//! ```
//!
//! Each node takes its heads from where its keys begin to differ: all keys of a node lie between its first
//! key and the first key of the next node, so they share the common prefix of those two, which is never
//! compared. The first and the last node have one neighbour only; their keys share the prefix of all keys of
//! the tree. So heads nearly always decide, even below long common prefixes; equal heads are decided by the
//! keys in the arena.
//!
//! Invariants
//! 1. Order: key ascending, version descending. No node is empty.
//! 2. The first record of a node changes only for the first node.
//! 3. `heads[i]` of a node is taken at the node's `from` (the root's at the length of the prefix) from the key of record
//!    `i`, or from the first key of child `i`.
//!
//! Source: fence keys and prefix truncation, Graefe, "Modern B-Tree Techniques", 2011, section 3.5.

use std::cmp::{Ordering, Reverse};

use ropewalk_base::{Arena, ArenaOffset, Seq};

use crate::prefetch::prefetch;
use crate::run::block::{head, shared};
use crate::run::prefix::Prefix;
use crate::run::search::count_before;

/// Makes a leaf 4088 bytes: a page with space for the allocator's word.
const LEAF_MAX: usize = 127;
/// Cache lines of the heads of a leaf.
const HEAD_LINES: usize = LEAF_MAX.div_ceil(8);
const BRANCH_MAX: usize = 256;
const TOMBSTONE: u32 = u32::MAX;

/// Place of one version of one key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    /// [`ArenaOffset::to_bits`].
    at: u64,
    key_len: u32,
    /// [`TOMBSTONE`] or the length of the value, which follows the key.
    value_len: u32,
    pub(crate) seq: Seq,
}

impl Record {
    /// Copies key and value into the arena.
    fn push(arena: &Arena, key: &[u8], value: Option<&[u8]>, seq: Seq) -> Self {
        let at = arena.push_parts(&[key, value.unwrap_or_default()]).to_bits();
        let value_len = value.map_or(TOMBSTONE, |v| v.len() as u32);
        Self { at, key_len: key.len() as u32, value_len, seq }
    }

    #[inline]
    pub(crate) fn key(self, arena: &Arena) -> &[u8] {
        let key = arena.get(ArenaOffset::from_bits(self.at), self.key_len as usize);
        debug_assert!(key.is_some(), "the bytes of a record are in its arena");
        key.unwrap_or_default()
    }

    /// `None` for a tombstone.
    #[inline]
    pub(crate) fn value(self, arena: &Arena) -> Option<&[u8]> {
        if self.value_len == TOMBSTONE {
            return None;
        }
        let len = self.key_len as usize + self.value_len as usize;
        arena.get(ArenaOffset::from_bits(self.at), len)?.get(self.key_len as usize..)
    }

    /// Order relative to a key with the same head at `from`, and its version.
    #[inline]
    fn order(self, arena: &Arena, (key, seq): (&[u8], Seq), from: usize) -> Ordering {
        // A key that ends within its head is the other key or a prefix of it, so lengths decide.
        let by_key = if key.len() <= from + 8 {
            (self.key_len as usize).cmp(&key.len())
        } else {
            self.key(arena).cmp(key)
        };
        by_key.then_with(|| Reverse(self.seq).cmp(&Reverse(seq)))
    }
}

#[inline]
fn head_at(key: &[u8], from: usize) -> u64 {
    head(key.get(from..).unwrap_or_default())
}

struct Leaf {
    heads: [u64; LEAF_MAX],
    records: [Record; LEAF_MAX],
    max_seq: Seq,
    len: u32,
    from: u32,
}

impl Leaf {
    fn boxed() -> Box<Self> {
        let records = [Record::default(); LEAF_MAX];
        Box::new(Self { heads: [0; LEAF_MAX], records, max_seq: Seq::ZERO, len: 0, from: 0 })
    }

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn from(&self) -> usize {
        self.from as usize
    }

    #[inline]
    fn heads(&self) -> &[u64] {
        self.heads.get(..self.len()).unwrap_or_default()
    }

    #[inline]
    fn records(&self) -> &[Record] {
        self.records.get(..self.len()).unwrap_or_default()
    }

    fn first(&self) -> Record {
        debug_assert!(self.len > 0, "no node is empty");
        self.records().first().copied().unwrap_or_default()
    }

    /// Index of the first record at or after the probe.
    #[inline]
    fn lower_bound(&self, arena: &Arena, probe: (&[u8], Seq)) -> usize {
        // All lines at once: halving would wait for one after the other.
        prefetch(&self.heads, 0, HEAD_LINES);
        let target = head_at(probe.0, self.from());
        let low = count_before(self.heads(), |&h| h < target);
        let equal = self.heads().get(low..).unwrap_or_default();
        if equal.first() != Some(&target) {
            return low;
        }
        let equal = equal.partition_point(|&h| h == target);
        let records = self.records().get(low..low + equal).unwrap_or_default();
        low + records.partition_point(|r| r.order(arena, probe, self.from()) == Ordering::Less)
    }

    /// Puts a record at `index`; there must be room.
    fn insert(&mut self, index: usize, head: u64, record: Record) {
        let len = self.len();
        assert!(index <= len && len < LEAF_MAX, "a full leaf was split when it became full");
        self.heads.copy_within(index..len, index + 1);
        self.records.copy_within(index..len, index + 1);
        if let (Some(to), Some(slot)) = (self.heads.get_mut(index), self.records.get_mut(index)) {
            (*to, *slot) = (head, record);
        }
        self.len += 1;
        self.max_seq = self.max_seq.max(record.seq);
    }

    /// Moves the records from `cut` on into a new leaf.
    fn split_off(&mut self, cut: usize) -> Box<Self> {
        debug_assert!(0 < cut && cut < self.len(), "both halves of {} records have some: {cut}", self.len());
        let mut right = Self::boxed();
        right.from = self.from;
        for (index, (&head, &record)) in self.heads().iter().zip(self.records()).skip(cut).enumerate() {
            right.insert(index, head, record);
        }
        self.len = cut as u32;
        self.max_seq = self.records().iter().map(|r| r.seq).max().unwrap_or_default();
        right
    }

    /// Takes the heads from `from` on.
    fn refit(&mut self, arena: &Arena, from: usize) {
        if self.from() != from {
            self.from = from as u32;
            let len = self.len();
            for (head, record) in self.heads.iter_mut().zip(&self.records).take(len) {
                *head = head_at(record.key(arena), from);
            }
        }
    }
}

#[derive(Default)]
struct Branch {
    heads: Vec<u64>,
    /// Boxed, so that making room for one moves words, not pages.
    #[allow(clippy::vec_box)]
    leaves: Vec<Box<Leaf>>,
    from: usize,
}

impl Branch {
    fn first(&self) -> Record {
        self.first_of(0)
    }

    fn first_of(&self, leaf: usize) -> Record {
        self.leaves.get(leaf).map_or_else(Record::default, |leaf| leaf.first())
    }

    fn refit(&mut self, arena: &Arena, from: usize) {
        debug_assert!(!self.leaves.is_empty(), "no node is empty");
        self.from = from;
        self.heads.clear();
        self.heads.extend(self.leaves.iter().map(|leaf| head_at(leaf.first().key(arena), from)));
    }
}

/// A position: before record `index` of a leaf, or after its last.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    branch: usize,
    leaf: usize,
    index: usize,
}

/// Records in order.
#[derive(Default)]
pub(crate) struct Tree {
    /// Bytes that all keys start with.
    prefix: Prefix,
    heads: Vec<u64>,
    branches: Vec<Branch>,
    len: usize,
    /// Place of the newest record, or some other place: splitting a leaf moves its records.
    newest: Place,
}

/// The child in which the probe lies or would lie.
#[inline]
fn child(
    arena: &Arena,
    heads: &[u64],
    probe: (&[u8], Seq),
    from: usize,
    first: impl Fn(usize) -> Record,
) -> usize {
    let target = head_at(probe.0, from);
    let mut after = count_before(heads, |&h| h <= target);
    if heads.get(after.wrapping_sub(1)) == Some(&target) {
        let mut low = count_before(heads, |&h| h < target);
        while low < after {
            let middle = low + (after - low) / 2;
            if first(middle).order(arena, probe, from) == Ordering::Greater {
                after = middle;
            } else {
                low = middle + 1;
            }
        }
    }
    // A probe before all records belongs in the first child.
    after.saturating_sub(1)
}

impl Tree {
    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn leaf(&self, place: Place) -> Option<&Leaf> {
        self.branches.get(place.branch)?.leaves.get(place.leaf).map(|leaf| &**leaf)
    }

    /// Whether all keys share a prefix with `key`, and on which side of them all it lies if not.
    #[inline]
    fn side(&self, key: &[u8]) -> Ordering {
        self.prefix.cut(key).err().unwrap_or(Ordering::Equal)
    }

    /// Before the first record at or after the probe.
    #[inline]
    fn lower_bound(&self, arena: &Arena, probe: (&[u8], Seq)) -> Place {
        match self.side(probe.0) {
            Ordering::Equal => {}
            Ordering::Less => return Place::default(),
            Ordering::Greater => return self.end(),
        }
        let first = |i| self.branches.get(i).map_or_else(Record::default, |branch: &Branch| branch.first());
        let branch = child(arena, &self.heads, probe, self.prefix.len(), first);
        let Some(inner) = self.branches.get(branch) else { return Place::default() };
        let leaf = child(arena, &inner.heads, probe, inner.from, |i| inner.first_of(i));
        Place { branch, leaf, index: inner.leaves.get(leaf).map_or(0, |l| l.lower_bound(arena, probe)) }
    }

    /// After the last record.
    fn end(&self) -> Place {
        let leaves = self.branches.last().map_or(&[][..], |branch| &branch.leaves);
        // The end of an empty tree is its beginning.
        Place {
            branch: self.branches.len().saturating_sub(1),
            leaf: leaves.len().saturating_sub(1),
            index: leaves.last().map_or(0, |leaf| leaf.len()),
        }
    }

    /// The newest version of `key` that `at` sees.
    #[inline]
    pub(crate) fn find(&self, arena: &Arena, key: &[u8], at: Seq) -> Option<Record> {
        if self.side(key) != Ordering::Equal {
            return None;
        }
        let place = self.lower_bound(arena, (key, at));
        let leaf = self.leaf(place)?;
        if let Some(&record) = leaf.records().get(place.index) {
            let same_head = leaf.heads().get(place.index) == Some(&head_at(key, leaf.from()));
            let same = same_head && record.order(arena, (key, record.seq), leaf.from()) == Ordering::Equal;
            return same.then_some(record);
        }
        // Versions of a key may continue in the next leaf.
        let next = self.leaves_from(place).nth(1)?.first();
        (next.key(arena) == key).then_some(next)
    }

    /// All leaves from the one of `place` on.
    fn leaves_from(&self, place: Place) -> impl Iterator<Item = &Leaf> + Clone {
        let branches = self.branches.get(place.branch..).unwrap_or_default().iter().enumerate();
        let leaves = branches.flat_map(move |(i, branch)| {
            branch.leaves.get(if i == 0 { place.leaf } else { 0 }..).unwrap_or_default()
        });
        leaves.map(|leaf| &**leaf)
    }

    /// All leaves from the one of `place` back to the first.
    fn leaves_back_from(&self, place: Place) -> impl Iterator<Item = &Leaf> {
        let branches = self.branches.get(..=place.branch).unwrap_or_default().iter().enumerate().rev();
        let leaves = branches.flat_map(move |(i, branch)| {
            let end = if i == place.branch { place.leaf + 1 } else { branch.leaves.len() };
            branch.leaves.get(..end).unwrap_or_default().iter().rev()
        });
        leaves.map(|leaf| &**leaf)
    }

    /// Every record, in order.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> + Clone {
        self.leaves_from(Place::default()).flat_map(Leaf::records)
    }

    /// The records from the first one at or after the probe on.
    pub(crate) fn records_from(&self, arena: &Arena, probe: (&[u8], Seq)) -> impl Iterator<Item = Record> {
        let place = self.lower_bound(arena, probe);
        self.leaves_from(place).flat_map(Leaf::records).skip(place.index).copied()
    }

    /// The records before the first one at or after the probe, the nearest first; without a probe, from the end.
    pub(crate) fn records_before(
        &self,
        arena: &Arena,
        probe: Option<(&[u8], Seq)>,
    ) -> impl Iterator<Item = Record> {
        let place = probe.map_or_else(|| self.end(), |probe| self.lower_bound(arena, probe));
        let behind = self.leaf(place).map_or(0, |leaf| leaf.len() - place.index);
        self.leaves_back_from(place).flat_map(|leaf| leaf.records().iter().rev()).skip(behind).copied()
    }

    /// The newest version after `after` of any key in `start .. end`. Skips leaves without any.
    pub(crate) fn changed_in(
        &self,
        arena: &Arena,
        start: &[u8],
        end: Option<&[u8]>,
        after: Seq,
    ) -> Option<Seq> {
        let place = self.lower_bound(arena, (start, Seq::MAX));
        let beyond = |record: Record| end.is_some_and(|end| record.key(arena) >= end);
        let mut newest = None;
        for (i, leaf) in self.leaves_from(place).enumerate() {
            let skip = if i == 0 { place.index } else { 0 };
            if i > 0 && beyond(leaf.first()) {
                break;
            }
            if leaf.max_seq > after {
                let inside = leaf.records().iter().skip(skip).filter(|r| r.seq > after && !beyond(**r));
                newest = newest.max(inside.map(|r| r.seq).max());
            }
        }
        newest
    }

    /// Adds a version, or replaces the one with the same key and version.
    pub(crate) fn insert(&mut self, arena: &Arena, key: &[u8], value: Option<&[u8]>, seq: Seq) {
        if self.branches.is_empty() {
            self.prefix = Prefix::new(key);
            let mut leaf = Leaf::boxed();
            leaf.from = key.len() as u32;
            leaf.insert(0, 0, Record::push(arena, key, value, seq));
            self.branches.push(Branch { heads: vec![0], leaves: vec![leaf], from: key.len() });
            self.heads.push(0);
            self.len = 1;
            return;
        }
        if self.side(key) != Ordering::Equal {
            self.shorten_prefix(arena, key);
        }
        let place = self.place_of(arena, (key, seq));
        let branch = self.branches.get_mut(place.branch).expect("a key belongs in some branch");
        let leaf = branch.leaves.get_mut(place.leaf).expect("a key belongs in some leaf of its branch");
        // The records that will be moved are prefetched while the bytes are copied.
        prefetch(leaf.records(), place.index, 8);
        let record = Record::push(arena, key, value, seq);
        let head = head_at(key, leaf.from());
        if leaf.heads().get(place.index) == Some(&head)
            && let Some(old) = leaf.records.get_mut(place.index)
            && old.order(arena, (key, seq), leaf.from as usize) == Ordering::Equal
        {
            *old = record;
            return;
        }
        leaf.insert(place.index, head, record);
        self.len += 1;
        self.newest = place;
        let full = leaf.len() == LEAF_MAX;
        if place.index == 0 {
            // Only the first leaf of the first branch gets a new first record.
            let (branch_head, root_head) = (head_at(key, branch.from), head_at(key, self.prefix.len()));
            branch.heads.first_mut().into_iter().for_each(|h| *h = branch_head);
            self.heads.first_mut().into_iter().for_each(|h| *h = root_head);
        }
        if cfg!(debug_assertions) {
            self.check_inserted(arena, place);
        }
        if full {
            self.split(arena, place);
        }
    }

    /// Checks a new record against its neighbours (invariants 1 and 2).
    fn check_inserted(&self, arena: &Arena, place: Place) {
        let leaf = self.leaf(place).expect("a record was inserted there");
        let at = |index: usize| leaf.records().get(index).copied();
        let new = at(place.index).expect("a record was inserted there");
        let before = place.index.checked_sub(1).and_then(at);
        let after = at(place.index + 1).or_else(|| self.leaves_from(place).nth(1).map(Leaf::first));
        let rank = |record: Record| (record.key(arena), Reverse(record.seq));
        assert!(before.is_none_or(|before| rank(before) < rank(new)), "a record follows the one before it");
        assert!(after.is_none_or(|after| rank(new) < rank(after)), "a record comes before the next one");
        assert!(
            place.index > 0 || (place.branch, place.leaf) == (0, 0),
            "the first record of a node changes only for the first node"
        );
        assert_eq!(self.heads.len(), self.branches.len(), "the root has a head for each branch");
        let branch = self.branches.get(place.branch).expect("the leaf lies in it");
        assert_eq!(branch.heads.len(), branch.leaves.len(), "a branch has a head for each leaf");
    }

    /// Where the probe belongs.
    #[inline]
    fn place_of(&self, arena: &Arena, probe: (&[u8], Seq)) -> Place {
        // Sorted loads append: check the end before a search.
        let end = self.end();
        if let Some(leaf) = self.leaf(end)
            && let (Some(head), Some(last)) = (leaf.heads().last(), leaf.records().last())
        {
            let target = head_at(probe.0, leaf.from());
            let behind = head.cmp(&target).then_with(|| last.order(arena, probe, leaf.from()));
            if behind == Ordering::Less {
                return end;
            }
        }
        self.behind_newest(arena, probe).unwrap_or_else(|| self.lower_bound(arena, probe))
    }

    /// The place directly after the newest record, if the probe belongs there, as in sorted loads between
    /// existing keys.
    #[inline]
    fn behind_newest(&self, arena: &Arena, probe: (&[u8], Seq)) -> Option<Place> {
        let leaf = self.leaf(self.newest)?;
        let left = leaf.records().get(self.newest.index)?.key(arena);
        // Keys of a load differ near their ends. For others reading the next record may cost more than it
        // saves.
        let common = probe.0.len().saturating_sub(8);
        if left >= probe.0 || left.get(..common) != probe.0.get(..common) {
            return None;
        }
        let behind = Place { index: self.newest.index + 1, ..self.newest };
        let next = match leaf.records().get(behind.index) {
            Some(next) => Some(*next),
            None => self.leaves_from(behind).nth(1).map(Leaf::first),
        };
        next.is_none_or(|next| next.key(arena) > probe.0).then_some(behind)
    }

    /// Splits a full leaf: in the middle, or near the end when it grows at its end, as in a sorted load.
    fn split(&mut self, arena: &Arena, place: Place) {
        let branch = self.branches.get_mut(place.branch).expect("a record was inserted there");
        let leaf = branch.leaves.get_mut(place.leaf).expect("a record was inserted there");
        let cut = if place.index + 1 == leaf.len() { leaf.len() - 1 } else { leaf.len() / 2 };
        let right = leaf.split_off(cut);
        branch.heads.insert(place.leaf + 1, head_at(right.first().key(arena), branch.from));
        branch.leaves.insert(place.leaf + 1, right);
        let full = branch.leaves.len() == BRANCH_MAX;
        self.refit_leaf(arena, place.branch, place.leaf);
        self.refit_leaf(arena, place.branch, place.leaf + 1);
        if full {
            self.split_branch(arena, place);
        }
    }

    fn split_branch(&mut self, arena: &Arena, place: Place) {
        let branch = self.branches.get_mut(place.branch).expect("one of its leaves was split");
        let len = branch.leaves.len();
        let cut = if place.leaf + 2 == len { len - 1 } else { len / 2 };
        let right = Branch {
            heads: branch.heads.split_off(cut),
            leaves: branch.leaves.split_off(cut),
            from: branch.from,
        };
        self.heads.insert(place.branch + 1, head_at(right.first().key(arena), self.prefix.len()));
        self.branches.insert(place.branch + 1, right);
        for index in [place.branch, place.branch + 1] {
            let from = self.shared_with_next(arena, index, index + 1);
            if let Some(branch) = self.branches.get_mut(index) {
                branch.refit(arena, from);
            }
        }
    }

    /// Length of the prefix of all keys in branch `index`: bounded by branch `next` on the other side, unless
    /// it is the first or last.
    fn shared_with_next(&self, arena: &Arena, index: usize, next: usize) -> usize {
        match (index, self.branches.get(index), self.branches.get(next)) {
            (1.., Some(branch), Some(next)) => shared(branch.first().key(arena), next.first().key(arena)),
            _ => self.prefix.len(),
        }
    }

    fn refit_leaf(&mut self, arena: &Arena, branch: usize, leaf: usize) {
        let next = self.leaves_from(Place { branch, leaf, index: 0 }).nth(1).map(Leaf::first);
        let prefix = self.prefix.len();
        let here = self.branches.get_mut(branch).and_then(|b| b.leaves.get_mut(leaf));
        let here = here.expect("the leaf was split");
        let from = match next {
            Some(next) if branch > 0 || leaf > 0 => shared(here.first().key(arena), next.key(arena)),
            _ => prefix,
        };
        here.refit(arena, from);
    }

    /// Shortens the prefix to one that `key` has, too. Touches the root and the nodes at both ends only: the
    /// others are bounded by their neighbours.
    fn shorten_prefix(&mut self, arena: &Arena, key: &[u8]) {
        self.prefix.shorten(key);
        let prefix = self.prefix.len();
        self.heads.clear();
        self.heads.extend(self.branches.iter().map(|branch| head_at(branch.first().key(arena), prefix)));
        if let Some(first) = self.branches.first_mut() {
            first.refit(arena, prefix);
            first.leaves.first_mut().into_iter().for_each(|leaf| leaf.refit(arena, prefix));
        }
        if let Some(last) = self.branches.last_mut() {
            last.refit(arena, prefix);
            last.leaves.last_mut().into_iter().for_each(|leaf| leaf.refit(arena, prefix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => any::<u16>().prop_map(|n| [b"tenants/0123456789/".as_slice(), &n.to_be_bytes()].concat()),
            4 => (0..3_u64, any::<u16>()).prop_map(|(t, n)| [&t.to_be_bytes()[..], &[7; 9], &n.to_be_bytes()].concat()),
            2 => any::<u32>().prop_map(|n| n.to_be_bytes().to_vec()),
            1 => proptest::collection::vec(0..2_u8, 0..14),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn tree_equals_a_sorted_map(
            kind in 0..4_usize,
            raw in proptest::collection::vec((keys(), 1..4_u64), 1..4000),
            probes in proptest::collection::vec((keys(), 0..5_u64), 40),
        ) {
            let (arena, mut tree, mut model) = (Arena::default(), Tree::default(), BTreeMap::new());
            let mut puts = raw;
            match kind {
                0 => puts.sort(),
                1 => puts.sort_by(|a, b| b.cmp(a)),
                2 => {
                    // Sorted loads, the later ones between keys of the earlier.
                    puts.sort();
                    let (even, odd): (Vec<_>, Vec<_>) = puts.chunks(300).enumerate().partition(|(i, _)| i % 2 == 0);
                    puts = even.into_iter().chain(odd).flat_map(|(_, chunk)| chunk.to_vec()).collect();
                }
                _ => {}
            }
            for (i, (key, seq)) in puts.iter().enumerate() {
                let value = i.to_le_bytes();
                tree.insert(&arena, key, Some(&value), Seq(*seq));
                model.insert((key.clone(), Reverse(*seq)), value);
            }
            prop_assert_eq!(tree.len(), model.len());
            let show = |r: Record| ((r.key(&arena).to_vec(), Reverse(r.seq.0)), r.value(&arena).unwrap().to_vec());
            let all: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.to_vec())).collect();
            prop_assert_eq!(tree.records().map(|r| show(*r)).collect::<Vec<_>>(), all.clone());
            prop_assert_eq!(tree.records_before(&arena, None).map(show).collect::<Vec<_>>(), all.iter().rev().cloned().collect::<Vec<_>>());
            for (key, seq) in probes.iter().chain(puts.iter().take(40)) {
                let from = all.partition_point(|((k, s), _)| (k, s) < (key, &Reverse(*seq)));
                let found = tree.find(&arena, key, Seq(*seq)).map(show);
                prop_assert_eq!(found, all.get(from).filter(|e| e.0.0 == *key).cloned());
                prop_assert_eq!(tree.records_from(&arena, (key, Seq(*seq))).take(9).map(show).collect::<Vec<_>>(), all[from..].iter().take(9).cloned().collect::<Vec<_>>());
                prop_assert_eq!(tree.records_before(&arena, Some((key, Seq(*seq)))).take(9).map(show).collect::<Vec<_>>(), all[..from].iter().rev().take(9).cloned().collect::<Vec<_>>());
                let changed = all[all.partition_point(|e| e.0.0 < *key)..].iter().map(|e| Seq(e.0.1.0)).filter(|&s| s.0 > *seq).max();
                prop_assert_eq!(tree.changed_in(&arena, key, None, Seq(*seq)), changed);
            }
        }
    }

    #[test]
    fn branches_split_too() {
        let (arena, mut tree) = (Arena::default(), Tree::default());
        let key = |i: u64| {
            [b"shared by all/".as_slice(), &i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat()
        };
        for i in 0..200_000_u64 {
            tree.insert(&arena, &key(i), None, Seq(i + 1));
        }
        assert!(tree.branches.len() > 5);
        tree.insert(&arena, b"other", None, Seq(1));
        for i in (0..200_000).step_by(7) {
            assert_eq!(tree.find(&arena, &key(i), Seq::MAX).unwrap().seq, Seq(i + 1));
        }
        assert!(tree.records().map(|r| r.key(&arena)).is_sorted_by(|a, b| a < b));
        assert!(tree.find(&arena, b"other", Seq::MAX).is_some());
        assert!(tree.find(&arena, b"none", Seq::MAX).is_none());
    }
}
