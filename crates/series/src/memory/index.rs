//! The series of a store: label bytes to id, id to labels, and postings from each label value to the ids that
//! have it.
//!
//!   label bytes ─▶ XXH3 ─▶ id     (compared byte by byte, so two sets with one hash stay two series)
//!   id ─▶ labels ─▶ postings      (see `postings`; may lag until a reader needs them)
//!
//! It lives in memory, is written by the sequencer and rebuilt at open from the stored labels. Ids rise, so a
//! snapshot is a bound on ids, and a deleted series stays here, for older snapshots, with the number of the
//! commit that deleted it.
//!
//! Postings are most of the cost of a series here and only readers need them. So the sequencer, which delays
//! all commits, skips those of many new series; the creator of the series, or the first reader, adds them
//! slice by slice, so that others get in between.

use std::collections::HashMap;

use roaring::RoaringBitmap;
use ropewalk_base::{Arena, ArenaOffset, HashedMap, Seq, hash64};
use ropewalk_labels::{LABEL_SET_BYTES_MAX, LabelsRef, MatchOp, Matcher};

use crate::memory::postings::Postings;

/// The half of a hash that the map stores: among a million series a hundred share theirs with another, which
/// costs less than eight bytes for each.
fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Address of the labels of a series: chunk (6 bits), offset in it (40) and length (18) of the arena; zero
/// for none.
#[derive(Clone, Copy, Default)]
struct LabelPlace(u64);

const LENGTH_BITS: u32 = 18;
const _: () = assert!(LABEL_SET_BYTES_MAX < 1 << LENGTH_BITS);

impl LabelPlace {
    fn new(offset: ArenaOffset, len: usize) -> Self {
        let bits = offset.to_bits();
        let (chunk, at) = (bits >> 48, bits & 0xffff_ffff_ffff);
        assert!(chunk < 1 << 6 && at < 1 << 40, "no room for place {at} of chunk {chunk} of the labels");
        Self(chunk << 58 | at << LENGTH_BITS | len as u64)
    }

    fn offset(self) -> ArenaOffset {
        ArenaOffset::from_bits(self.0 >> 58 << 48 | self.0 >> LENGTH_BITS & 0xff_ffff_ffff)
    }

    fn len(self) -> usize {
        (self.0 & ((1 << LENGTH_BITS) - 1)) as usize
    }
}

/// Series of one store.
#[derive(Default)]
pub(crate) struct Index {
    by_hash: HashedMap<u32, u32>,
    /// Series whose hash is taken by another one.
    collided: HashMap<Box<[u8]>, u32>,
    /// Labels of id − 1.
    places: Vec<LabelPlace>,
    arena: Arena,
    postings: Postings,
    /// Ids up to here are in the postings.
    posted: u32,
    alive: RoaringBitmap,
    /// Deleted since open, with the commit.
    died: HashMap<u32, Seq>,
    last: u32,
}

impl Index {
    /// The largest id that was ever assigned.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Ids up to here are never assigned again.
    pub(crate) fn raise_last(&mut self, last: u32) {
        self.last = self.last.max(last);
    }

    /// Number of series deleted since open: while it is unchanged, existing series still exist.
    pub(crate) fn deaths(&self) -> usize {
        self.died.len()
    }

    /// Number of series in the newest state.
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
        (!bytes.is_empty()).then_some(LabelsRef::new(bytes))
    }

    /// The series with these labels, which have this hash, in the newest state.
    #[inline]
    pub(crate) fn find(&self, labels: &[u8], hash: u64) -> Option<u32> {
        self.confirm(self.candidate(hash), labels)
    }

    /// The most likely series for labels with this hash.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        self.by_hash.get(&half(hash)).copied()
    }

    /// The series with these labels, where `candidate` was found by their hash.
    #[inline]
    pub(crate) fn confirm(&self, candidate: Option<u32>, labels: &[u8]) -> Option<u32> {
        if let Some(id) = candidate
            && self.labels(id).is_some_and(|found| found.as_bytes() == labels)
        {
            return Some(id);
        }
        if self.collided.is_empty() { None } else { self.collided.get(labels).copied() }
    }

    /// Adds a series whose labels have this hash; [`Index::post`] adds it to the postings. Called by the sequencer and at open.
    pub(crate) fn insert(&mut self, id: u32, labels: &[u8], hash: u64) {
        debug_assert!(id > self.last, "series {id} comes after series {}", self.last);
        let offset = self.arena.push(labels);
        // Only damaged files have a series 0.
        let slot = id.saturating_sub(1) as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, LabelPlace::default());
        }
        if let Some(place) = self.places.get_mut(slot) {
            *place = LabelPlace::new(offset, labels.len());
        }
        match self.by_hash.entry(half(hash)) {
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(id);
            }
            std::collections::hash_map::Entry::Occupied(_) => {
                self.collided.insert(labels.into(), id);
            }
        }
        if self.alive.try_push(id).is_err() {
            self.alive.insert(id);
        }
        self.last = self.last.max(id);
    }

    /// Reserves memory for so many more series.
    pub(crate) fn reserve(&mut self, series: usize) {
        self.by_hash.reserve(series);
        self.places.reserve(series);
    }

    /// True when the postings have every series up to `head`.
    pub(crate) fn is_posted(&self, head: u32) -> bool {
        self.posted >= head || self.posted as usize >= self.places.len()
    }

    /// Adds the next `count` series to the postings.
    pub(crate) fn post(&mut self, count: usize) {
        // All the rest is the greatest count.
        let to = self.places.len().min((self.posted as usize).saturating_add(count)) as u32;
        for slot in self.posted..to {
            let place = *self.places.get(slot as usize).expect("slots below the end have places");
            // Ids whose series were deleted before the open have no labels.
            if let Some(labels) = self.arena.get(place.offset(), place.len()) {
                self.postings.add(slot + 1, LabelsRef::new(labels));
            }
        }
        self.posted = self.posted.max(to);
        debug_assert!(self.posted as usize <= self.places.len(), "only series with a place are posted");
    }

    /// Deletes a series as of commit `seq`.
    pub(crate) fn forget(&mut self, id: u32, seq: Seq) {
        // An earlier commit may have deleted the series, too; before the open, when its labels are gone.
        let Some(labels) = self.labels(id).map(|l| l.as_bytes().to_vec()) else { return };
        if !self.alive.remove(id) {
            return;
        }
        let half = half(hash64(&labels));
        if self.by_hash.get(&half) == Some(&id) {
            self.by_hash.remove(&half);
        } else {
            let removed = self.collided.remove(&*labels);
            debug_assert_eq!(removed, Some(id), "a live series is found by its hash or by its labels");
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

    /// The series for which all `matchers` hold, of those in the postings.
    pub(crate) fn select(&self, matchers: &[Matcher], at: Seq, head: u32) -> RoaringBitmap {
        let mut found = self.all_at(at, head);
        let is_text = |m: &&Matcher| matches!(m.op(), MatchOp::Equal);
        // Cheap ones first: the others are only evaluated on the rest.
        let ordered = matchers.iter().filter(is_text).chain(matchers.iter().filter(|m| !is_text(m)));
        for matcher in ordered {
            if found.is_empty() {
                break;
            }
            let (empty, negated) = (matcher.matches(""), matcher.op().is_negated());
            // Series without the label match the empty string: then those with a value that does not match
            // are removed.
            let named = self.postings.named(matcher, negated == empty, &found);
            if empty {
                found -= named;
            } else {
                found &= named;
            }
        }
        found
    }

    /// Names that occur among `ids`, sorted.
    pub(crate) fn names<'a>(&'a self, ids: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        self.postings.names(ids)
    }

    /// Values of `name` that occur among `ids`, sorted.
    pub(crate) fn values<'a>(&'a self, name: &str, ids: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        self.postings.values(name, ids)
    }

    /// Number of series with this value of this name in the newest state; with an empty value, of those
    /// without the name.
    pub(crate) fn alive_with(&self, name: &str, value: &str) -> u64 {
        self.postings.with(name, value, &self.alive)
    }

    /// Passes each value of each name with the number of series among `ids` that have it to `each`.
    pub(crate) fn census(&self, ids: &RoaringBitmap, each: impl FnMut(&str, &str, u64)) {
        self.postings.census(ids, each);
    }

    /// Bytes of memory, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.arena.used()
            + self.places.capacity() as u64 * 8
            + self.by_hash.capacity() as u64 * 10
            + self.postings.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_labels::Labels;

    fn index() -> Index {
        let mut index = Index::default();
        for (id, pairs) in [
            (1, [("__name__", "up"), ("job", "a"), ("env", "")]),
            (2, [("__name__", "up"), ("job", "b"), ("env", "x")]),
            (3, [("__name__", "up"), ("job", "ab"), ("env", "y")]),
            (4, [("__name__", "down"), ("job", "a"), ("env", "x")]),
        ] {
            insert(&mut index, id, &Labels::new(pairs).unwrap());
        }
        index
    }

    fn find(index: &Index, labels: &Labels) -> Option<u32> {
        index.find(labels.as_bytes(), hash64(labels.as_bytes()))
    }

    fn insert(index: &mut Index, id: u32, labels: &Labels) {
        index.insert(id, labels.as_bytes(), hash64(labels.as_bytes()));
        index.post(usize::MAX);
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
    fn snapshots_bound_visible_series() {
        let mut index = index();
        let labels = index.labels(2).unwrap().to_owned();
        index.forget(2, Seq(9));
        assert_eq!(find(&index, &labels), None);
        assert_eq!(index.all_at(Seq(8), 3).iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(index.all_at(Seq(9), 3).iter().collect::<Vec<_>>(), [1, 3]);
        insert(&mut index, 5, &labels);
        assert_eq!(find(&index, &labels), Some(5));
        let up = index.select(&[Matcher::equal("__name__", "up")], Seq(8), 4);
        assert_eq!(index.values("job", &up).collect::<Vec<_>>(), ["a", "ab", "b"]);
        assert_eq!(index.names(&[1].into_iter().collect()).collect::<Vec<_>>(), ["__name__", "job"]);
    }

    #[test]
    fn one_hash_two_series() {
        let mut index = index();
        let (one, other) = (Labels::new([("a", "1")]).unwrap(), Labels::new([("a", "2")]).unwrap());
        insert(&mut index, 5, &one);
        // As if both had the same hash.
        index.by_hash.insert(half(hash64(other.as_bytes())), 5);
        assert_eq!(find(&index, &other), None);
        insert(&mut index, 6, &other);
        assert_eq!((find(&index, &one), find(&index, &other)), (Some(5), Some(6)));
        index.forget(6, Seq(1));
        assert_eq!((find(&index, &one), find(&index, &other)), (Some(5), None));
    }

    #[test]
    fn postings_may_be_added_after_inserts() {
        let mut index = index();
        let labels = |i: u32| Labels::new([("__name__", "up".to_owned()), ("i", i.to_string())]).unwrap();
        // Ids between, which were assigned once, have no series.
        for id in 9..20 {
            index.insert(id, labels(id).as_bytes(), hash64(labels(id).as_bytes()));
        }
        index.forget(12, Seq(7));
        assert_eq!(find(&index, &labels(15)), Some(15));
        assert!(index.is_posted(4) && !index.is_posted(9));
        index.post(8);
        assert!(index.is_posted(12) && !index.is_posted(13));
        index.post(100);
        assert!(index.is_posted(19) && index.is_posted(u32::MAX));
        let up: Vec<u32> = [1, 2, 3].into_iter().chain(9..20).filter(|id| *id != 12).collect();
        assert_eq!(select(&index, &[("__name__", MatchOp::Equal, "up")]), up);
        let before = index.select(&[Matcher::equal("i", "12")], Seq(6), 19);
        assert_eq!(before.iter().collect::<Vec<_>>(), [12]);
        assert_eq!(index.alive_with("i", "12"), 0);
    }
}
