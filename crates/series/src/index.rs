//! Which series a store has: label bytes to id, id to labels, and postings from each label value to the ids that have it.
//!
//!   label bytes ─▶ XXH3 ─▶ id     (compared byte by byte, so two sets with one hash stay two series)
//!   name ─▶ value ─▶ ids          (values sorted: a prefix of a pattern is a range)
//!
//! It lives in memory, is written by the sequencer and built anew at open from the stored labels. Ids rise, so a snapshot
//! is a bound on ids, and a deleted series stays here, for older snapshots, with the number of the commit that deleted it.

use std::collections::btree_map::Range;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;

use roaring::RoaringBitmap;
use ropewalk_base::{Arena, ArenaOffset, Seq, hash64};

use crate::labels::LabelsRef;
use crate::matcher::{Lookup, MatchOp, Matcher};

/// The key is half of a hash already: the map takes its bits from both ends.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u32(&mut self, half: u32) {
        self.0 = u64::from(half) << 32 | u64::from(half);
    }
}

/// The half of a hash that the map keeps: among a million series a hundred share theirs with another, which costs less than eight
/// bytes for each.
fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Where the labels of a series are: chunk (6 bits), place in it (40) and length (18) of the arena; zero for none.
#[derive(Clone, Copy, Default)]
struct LabelPlace(u64);

const LENGTH_BITS: u32 = 18;
const _: () = assert!(crate::labels::LABEL_SET_BYTES_MAX < 1 << LENGTH_BITS);

impl LabelPlace {
    fn new(offset: ArenaOffset, len: usize) -> Self {
        let bits = offset.to_bits();
        let (chunk, at) = (bits >> 48, bits & 0xff_ffff_ffff);
        Self(chunk << 58 | at << LENGTH_BITS | len as u64)
    }

    fn offset(self) -> ArenaOffset {
        ArenaOffset::from_bits(self.0 >> 58 << 48 | self.0 >> LENGTH_BITS & 0xff_ffff_ffff)
    }

    fn len(self) -> usize {
        (self.0 & ((1 << LENGTH_BITS) - 1)) as usize
    }
}

/// Most label values of most systems belong to one series.
enum Ids {
    None,
    One(u32),
    Many(RoaringBitmap),
}

impl Ids {
    fn push(&mut self, id: u32) {
        match self {
            Self::None => *self = Self::One(id),
            Self::One(one) => *self = Self::Many([*one, id].into_iter().collect()),
            Self::Many(many) => {
                many.insert(id);
            }
        }
    }

    fn add_to(&self, all: &mut RoaringBitmap) {
        match self {
            Self::None => {}
            Self::One(one) => {
                all.insert(*one);
            }
            Self::Many(many) => *all |= many,
        }
    }

    fn meets(&self, ids: &RoaringBitmap) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => ids.contains(*one),
            Self::Many(many) => !many.is_disjoint(ids),
        }
    }

    fn common(&self, ids: &RoaringBitmap) -> u64 {
        match self {
            Self::None => 0,
            Self::One(one) => u64::from(ids.contains(*one)),
            Self::Many(many) => many.intersection_len(ids),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Many(many) => many.serialized_size() as u64,
        }
    }
}

/// Values in order, each with its place in `Index::lists`.
type Values = BTreeMap<Box<str>, u32>;

/// What is known of one label name.
#[derive(Default)]
struct Name {
    values: Values,
    /// The value that came last, and its list: series that come together share most of theirs.
    last: (String, u32),
}

/// Series of one store.
#[derive(Default)]
pub(crate) struct Index {
    by_hash: HashMap<u32, u32, BuildHasherDefault<Hashed>>,
    /// Series whose hash another one has taken.
    collided: HashMap<Box<[u8]>, u32>,
    /// Of the labels of id − 1.
    places: Vec<LabelPlace>,
    arena: Arena,
    names: BTreeMap<Box<str>, Name>,
    /// The series of each value of each name.
    lists: Vec<Ids>,
    alive: RoaringBitmap,
    /// Deleted since open, with the commit.
    died: HashMap<u32, Seq>,
    last: u32,
}

impl Index {
    /// The largest id that was ever given.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Ids up to here are never given again.
    pub(crate) fn raise_last(&mut self, last: u32) {
        self.last = self.last.max(last);
    }

    /// How many series were deleted since open: while it stands still, what was alive is.
    pub(crate) fn deaths(&self) -> usize {
        self.died.len()
    }

    /// Series that are there in the newest state.
    pub(crate) fn len(&self) -> u64 {
        self.alive.len()
    }

    pub(crate) fn is_alive(&self, id: u32) -> bool {
        self.alive.contains(id)
    }

    /// The labels of `id`, deleted or not.
    pub(crate) fn labels(&self, id: u32) -> Option<LabelsRef<'_>> {
        let place = *self.places.get(id.checked_sub(1)? as usize)?;
        let bytes = self.arena.get(place.offset(), place.len())?;
        (!bytes.is_empty()).then_some(LabelsRef(bytes))
    }

    /// The series with these labels in the newest state.
    #[inline]
    pub(crate) fn find(&self, labels: &[u8]) -> Option<u32> {
        self.confirm(self.candidate(hash64(labels)), labels)
    }

    /// The series that labels with this hash most likely mean.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        self.by_hash.get(&half(hash)).copied()
    }

    /// The series with these labels, where `candidate` is what their hash gave.
    #[inline]
    pub(crate) fn confirm(&self, candidate: Option<u32>, labels: &[u8]) -> Option<u32> {
        if let Some(id) = candidate
            && self.labels(id).is_some_and(|found| found.as_bytes() == labels)
        {
            return Some(id);
        }
        if self.collided.is_empty() { None } else { self.collided.get(labels).copied() }
    }

    /// Adds a series. Called by the sequencer and at open.
    pub(crate) fn insert(&mut self, id: u32, labels: &[u8]) {
        let offset = self.arena.push(labels);
        let slot = id.saturating_sub(1) as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, LabelPlace::default());
        }
        if let Some(place) = self.places.get_mut(slot) {
            *place = LabelPlace::new(offset, labels.len());
        }
        match self.by_hash.entry(half(hash64(labels))) {
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(id);
            }
            std::collections::hash_map::Entry::Occupied(_) => {
                self.collided.insert(labels.into(), id);
            }
        }
        for (name, value) in LabelsRef(labels).iter() {
            self.post(id, name, value);
        }
        self.alive.insert(id);
        self.last = self.last.max(id);
    }

    fn post(&mut self, id: u32, name: &str, value: &str) {
        let name = match self.names.get_mut(name) {
            Some(name) => name,
            None => self.names.entry(name.into()).or_default(),
        };
        if name.last.0 != value {
            let list = match name.values.get(value) {
                Some(list) => *list,
                None => {
                    let list = self.lists.len() as u32;
                    self.lists.push(Ids::None);
                    name.values.insert(value.into(), list);
                    list
                }
            };
            name.last.0.clear();
            name.last.0.push_str(value);
            name.last.1 = list;
        }
        if let Some(list) = self.lists.get_mut(name.last.1 as usize) {
            list.push(id);
        }
    }

    fn list(&self, list: u32) -> &Ids {
        self.lists.get(list as usize).unwrap_or(&Ids::None)
    }

    /// Deletes a series as of commit `seq`.
    pub(crate) fn forget(&mut self, id: u32, seq: Seq) {
        let Some(labels) = self.labels(id).map(|l| l.as_bytes().to_vec()) else { return };
        if !self.alive.remove(id) {
            return;
        }
        let half = half(hash64(&labels));
        if self.by_hash.get(&half) == Some(&id) {
            self.by_hash.remove(&half);
        } else {
            self.collided.remove(&*labels);
        }
        self.died.insert(id, seq);
    }

    /// The series that a reader at `at` sees, among ids up to `head`.
    pub(crate) fn all_at(&self, at: Seq, head: u32) -> RoaringBitmap {
        let mut all = self.alive.clone();
        all.extend(self.died.iter().filter(|(_, died)| **died > at).map(|(id, _)| *id));
        if let Some(beyond) = head.checked_add(1) {
            all.remove_range(beyond..);
        }
        all
    }

    /// The series for which all `matchers` hold.
    pub(crate) fn select(&self, matchers: &[Matcher], at: Seq, head: u32) -> RoaringBitmap {
        let mut found = self.all_at(at, head);
        let is_text = |m: &&Matcher| matches!(m.op(), MatchOp::Equal);
        // Cheap ones first: what they leave is what the others are asked about.
        let ordered = matchers.iter().filter(is_text).chain(matchers.iter().filter(|m| !is_text(m)));
        for matcher in ordered {
            if found.is_empty() {
                break;
            }
            let empty = matcher.matches_empty();
            let negated = matches!(matcher.op(), MatchOp::NotEqual | MatchOp::NotRegex);
            // Series without the label match the empty text: then those with a value that does not match are taken away.
            let named = self.named(matcher, negated == empty, &found);
            if empty {
                found -= named;
            } else {
                found &= named;
            }
        }
        found
    }

    /// Series with a value of the matcher's label that its test answers `expected`.
    fn named(&self, matcher: &Matcher, expected: bool, among: &RoaringBitmap) -> RoaringBitmap {
        let mut ids = RoaringBitmap::new();
        let Some(Name { values, .. }) = self.names.get(matcher.name()) else { return ids };
        match matcher.lookup() {
            Lookup::Texts(texts) if expected => {
                let lists = texts.iter().filter_map(|text| values.get(text.as_str()));
                lists.for_each(|list| self.list(*list).add_to(&mut ids));
            }
            Lookup::Prefix(prefix) if expected => {
                let all = matcher.accepts_all();
                for (_, list) in from_prefix(values, prefix).filter(|(value, _)| all || matcher.test(value)) {
                    self.list(list).add_to(&mut ids);
                }
            }
            _ => {
                for (_, list) in values.iter().filter(|(value, _)| !matcher.test(value)) {
                    self.list(*list).add_to(&mut ids);
                }
            }
        }
        ids &= among;
        ids
    }

    /// Names that occur among `ids`, sorted.
    pub(crate) fn names(&self, ids: &RoaringBitmap) -> Vec<String> {
        let occurs = |name: &Name| name.values.values().any(|list| self.list(*list).meets(ids));
        self.names.iter().filter(|(_, name)| occurs(name)).map(|(name, _)| name.to_string()).collect()
    }

    /// Values of `name` that occur among `ids`, sorted, at most `limit`.
    pub(crate) fn values(&self, name: &str, ids: &RoaringBitmap, limit: usize) -> Vec<String> {
        let values = self.names.get(name).into_iter().flat_map(|name| &name.values);
        let occurring = values.filter(|(_, list)| self.list(**list).meets(ids));
        occurring.map(|(value, _)| value.to_string()).take(limit).collect()
    }

    /// How many series have this value of this name in the newest state; with an empty value, how many lack the name.
    pub(crate) fn alive_with(&self, name: &str, value: &str) -> u64 {
        let name = self.names.get(name);
        let common = |list: &u32| self.list(*list).common(&self.alive);
        if value.is_empty() {
            let named: u64 = name.map_or(0, |name| name.values.values().map(common).sum());
            return self.alive.len() - named;
        }
        name.and_then(|name| name.values.get(value)).map_or(0, common)
    }

    /// Each value of each name with the number of series among `ids` that have it, through `each`.
    pub(crate) fn census(&self, ids: &RoaringBitmap, mut each: impl FnMut(&str, &str, u64)) {
        for (name, Name { values, .. }) in &self.names {
            for (value, list) in values {
                let series = self.list(*list).common(ids);
                if series > 0 {
                    each(name, value, series);
                }
            }
        }
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let values = |name: &Name| name.values.keys().map(|value| 48 + value.len() as u64).sum::<u64>();
        self.arena.used()
            + self.places.capacity() as u64 * 8
            + self.by_hash.capacity() as u64 * 10
            + self.names.values().map(values).sum::<u64>()
            + self.lists.iter().map(|ids| 32 + ids.bytes()).sum::<u64>()
    }
}

fn from_prefix<'a>(values: &'a Values, prefix: &str) -> impl Iterator<Item = (&'a str, u32)> {
    let range: Range<'a, Box<str>, u32> = values.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
    let prefix = prefix.to_owned();
    range.map(|(value, list)| (&**value, *list)).take_while(move |(value, _)| value.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    fn index() -> Index {
        let mut index = Index::default();
        for (id, pairs) in [
            (1, [("__name__", "up"), ("job", "a"), ("env", "")]),
            (2, [("__name__", "up"), ("job", "b"), ("env", "x")]),
            (3, [("__name__", "up"), ("job", "ab"), ("env", "y")]),
            (4, [("__name__", "down"), ("job", "a"), ("env", "x")]),
        ] {
            index.insert(id, Labels::new(pairs).unwrap().as_bytes());
        }
        index
    }

    fn select(index: &Index, matchers: &[(&str, MatchOp, &str)]) -> Vec<u32> {
        let matchers: Vec<_> = matchers.iter().map(|(n, op, v)| Matcher::new(*n, *op, *v).unwrap()).collect();
        index.select(&matchers, Seq::MAX, u32::MAX).iter().collect()
    }

    #[test]
    fn matchers_select() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};
        let index = index();
        assert_eq!(select(&index, &[("__name__", Equal, "up")]), [1, 2, 3]);
        assert_eq!(select(&index, &[("__name__", Equal, "up"), ("job", Regex, "a.*")]), [1, 3]);
        assert_eq!(select(&index, &[("env", Equal, "")]), [1]);
        assert_eq!(select(&index, &[("env", NotEqual, "")]), [2, 3, 4]);
        assert_eq!(select(&index, &[("env", NotEqual, "x")]), [1, 3]);
        assert_eq!(select(&index, &[("env", Regex, "x|")]), [1, 2, 4]);
        assert_eq!(select(&index, &[("env", NotRegex, "x|")]), [3]);
        assert_eq!(select(&index, &[("env", Regex, ".+")]), [2, 3, 4]);
        assert_eq!(select(&index, &[("env", NotRegex, ".+")]), [1]);
        assert_eq!(select(&index, &[("nosuch", Equal, "")]), [1, 2, 3, 4]);
        assert_eq!(select(&index, &[("nosuch", NotEqual, "")]), [0_u32; 0]);
        assert_eq!(select(&index, &[("job", NotRegex, "a|b"), ("__name__", Regex, "up|down")]), [3]);
        assert_eq!(select(&index, &[]), [1, 2, 3, 4]);
    }

    #[test]
    fn snapshots_bound_what_is_seen() {
        let mut index = index();
        let labels = index.labels(2).unwrap().to_owned();
        index.forget(2, Seq(9));
        assert_eq!(index.find(labels.as_bytes()), None);
        assert_eq!(index.all_at(Seq(8), 3).iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(index.all_at(Seq(9), 3).iter().collect::<Vec<_>>(), [1, 3]);
        index.insert(5, labels.as_bytes());
        assert_eq!(index.find(labels.as_bytes()), Some(5));
        let up = index.select(&[Matcher::equal("__name__", "up").unwrap()], Seq(8), 4);
        assert_eq!(index.values("job", &up, 9), ["a", "ab", "b"]);
        assert_eq!(index.names(&[1].into_iter().collect()), ["__name__", "job"]);
    }

    #[test]
    fn one_hash_two_series() {
        let mut index = index();
        let (one, other) = (Labels::new([("a", "1")]).unwrap(), Labels::new([("a", "2")]).unwrap());
        index.insert(5, one.as_bytes());
        // As if both had the same hash.
        index.by_hash.insert(half(hash64(other.as_bytes())), 5);
        assert_eq!(index.find(other.as_bytes()), None);
        index.insert(6, other.as_bytes());
        assert_eq!((index.find(one.as_bytes()), index.find(other.as_bytes())), (Some(5), Some(6)));
        index.forget(6, Seq(1));
        assert_eq!((index.find(one.as_bytes()), index.find(other.as_bytes())), (Some(5), None));
    }
}
