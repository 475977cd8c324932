//! Range tombstones as disjoint fragments.
//!
//!   delete [b, f) at 7, delete [d, k) at 9   ─▶   [b, d): 7   [d, f): 9, 7   [f, k): 9
//!
//! A tombstone hides older versions of the keys in its half-open range, in its own source and in all older ones.
//! Fragments are disjoint and sorted, so the newest tombstone over a key is found by one binary search.

use ropewalk_base::{DecodeError, Decoder, Seq, put_bytes, put_varint};

/// A half-open range of keys and the commits that deleted it, newest first, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    pub(crate) seqs: Vec<Seq>,
}

impl Fragment {
    /// The newest tombstone that `at` sees.
    fn newest(&self, at: Seq) -> Option<Seq> {
        self.seqs.iter().copied().find(|&seq| seq <= at)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    fragments: Vec<Fragment>,
}

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.fragments.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fragment> + Clone {
        self.fragments.iter()
    }

    pub(crate) fn start(&self) -> Option<&[u8]> {
        Some(&self.fragments.first()?.start)
    }

    pub(crate) fn end(&self) -> Option<&[u8]> {
        Some(&self.fragments.last()?.end)
    }

    /// Adds a tombstone over `start .. end`; an empty range is nothing. Cost: a splice of the fragments it touches.
    pub(crate) fn insert(&mut self, start: &[u8], end: &[u8], seq: Seq) {
        if start >= end {
            return;
        }
        let first = self.fragments.partition_point(|f| f.end.as_slice() <= start);
        let last = self.fragments.partition_point(|f| f.start.as_slice() < end);
        let mut replaced = Vec::new();
        let mut at = start.to_vec();
        for old in self.fragments.get(first..last).unwrap_or_default() {
            // The part before the new range, then the gap, then the overlap, then the part after the new
            // range.
            if old.start.as_slice() < start {
                replaced.push(Fragment {
                    start: old.start.clone(),
                    end: start.to_vec(),
                    seqs: old.seqs.clone(),
                });
            } else if at < old.start {
                replaced.push(Fragment { start: at, end: old.start.clone(), seqs: vec![seq] });
            }
            let from = old.start.as_slice().max(start);
            let to = old.end.as_slice().min(end);
            let mut seqs = old.seqs.clone();
            let place = seqs.partition_point(|&s| s > seq);
            if seqs.get(place) != Some(&seq) {
                seqs.insert(place, seq);
            }
            replaced.push(Fragment { start: from.to_vec(), end: to.to_vec(), seqs });
            if old.end.as_slice() > end {
                replaced.push(Fragment { start: end.to_vec(), end: old.end.clone(), seqs: old.seqs.clone() });
            }
            at = to.to_vec();
        }
        if at.as_slice() < end {
            replaced.push(Fragment { start: at, end: end.to_vec(), seqs: vec![seq] });
        }
        let count = replaced.len();
        self.fragments.splice(first..last, replaced);
        if cfg!(debug_assertions) {
            // The new fragments and one on each side: all of them would make many inserts quadratic.
            Self::check(self.fragments.iter().skip(first.saturating_sub(1)).take(count + 2));
        }
    }

    /// Checks fragments that follow each other: not empty, disjoint, ascending, versions newest first.
    fn check<'f>(fragments: impl Iterator<Item = &'f Fragment>) {
        let mut before: Option<&Fragment> = None;
        for fragment in fragments {
            assert!(fragment.start < fragment.end, "a fragment covers some key");
            assert!(before.is_none_or(|f| f.end <= fragment.start), "fragments are disjoint and ascend");
            assert!(!fragment.seqs.is_empty(), "some commit deleted a fragment");
            assert!(fragment.seqs.is_sorted_by(|a, b| a > b), "each commit once, newest first");
            before = Some(fragment);
        }
    }

    /// The fragment over `key`.
    pub(crate) fn over(&self, key: &[u8]) -> Option<&Fragment> {
        let index = self.fragments.partition_point(|f| f.end.as_slice() <= key);
        self.fragments.get(index).filter(|f| f.start.as_slice() <= key)
    }

    /// The newest tombstone over `key` that `at` sees.
    #[inline]
    pub(crate) fn newest(&self, key: &[u8], at: Seq) -> Option<Seq> {
        if self.fragments.is_empty() {
            return None;
        }
        self.over(key)?.newest(at)
    }

    /// The newest tombstone that touches `start .. end` (no end: everything from `start`) and is newer than `after`.
    pub(crate) fn newest_in(&self, start: &[u8], end: Option<&[u8]>, after: Seq) -> Option<Seq> {
        if end.is_some_and(|end| end <= start) {
            return None;
        }
        let first = self.fragments.partition_point(|f| f.end.as_slice() <= start);
        let touching = self.fragments.iter().skip(first);
        let touching = touching.take_while(|f| end.is_none_or(|end| f.start.as_slice() < end));
        touching.filter_map(|f| f.seqs.first().copied()).filter(|&seq| seq > after).max()
    }

    /// The part inside `start .. end`; no bound means unbounded.
    pub(crate) fn clip(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let clipped = self.fragments.iter().filter_map(|f| {
            let from = start.map_or(f.start.as_slice(), |s| s.max(&f.start));
            let to = end.map_or(f.end.as_slice(), |e| e.min(&f.end));
            (from < to).then(|| Fragment { start: from.to_vec(), end: to.to_vec(), seqs: f.seqs.clone() })
        });
        Self { fragments: clipped.collect() }
    }

    /// Adds every tombstone of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        for fragment in &other.fragments {
            for &seq in &fragment.seqs {
                self.insert(&fragment.start, &fragment.end, seq);
            }
        }
    }

    /// Rewrites the list of each fragment and joins neighbours that became alike.
    pub(crate) fn rewrite(&self, mut seqs_of: impl FnMut(&[Seq]) -> Vec<Seq>) -> Self {
        let mut fragments: Vec<Fragment> = Vec::new();
        for fragment in &self.fragments {
            let seqs = seqs_of(&fragment.seqs);
            match fragments.last_mut() {
                _ if seqs.is_empty() => {}
                Some(last) if last.end == fragment.start && last.seqs == seqs => {
                    last.end.clone_from(&fragment.end)
                }
                _ => fragments.push(Fragment {
                    start: fragment.start.clone(),
                    end: fragment.end.clone(),
                    seqs,
                }),
            }
        }
        if cfg!(debug_assertions) {
            Self::check(fragments.iter());
        }
        Self { fragments }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.fragments.len() as u64);
        for fragment in &self.fragments {
            put_bytes(out, &fragment.start);
            put_bytes(out, &fragment.end);
            put_varint(out, fragment.seqs.len() as u64);
            for seq in &fragment.seqs {
                put_varint(out, seq.0);
            }
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut fragments: Vec<Fragment> = Vec::new();
        for _ in 0..decoder.varint("count of range tombstones")? {
            let offset = decoder.offset();
            let start = decoder.bytes("start of a range tombstone")?.to_vec();
            let end = decoder.bytes("end of a range tombstone")?.to_vec();
            let mut seqs: Vec<Seq> = Vec::new();
            for _ in 0..decoder.varint("versions of a range tombstone")? {
                seqs.push(Seq(decoder.varint("version of a range tombstone")?));
            }
            let ordered = start < end && fragments.last().is_none_or(|last| last.end <= start);
            if !ordered || seqs.is_empty() || !seqs.is_sorted_by(|a, b| a > b) {
                return Err(DecodeError { what: "disjoint ascending range tombstones", offset });
            }
            fragments.push(Fragment { start, end, seqs });
        }
        Ok(Self { fragments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fragments_equal_a_list_of_ranges(
            ranges in proptest::collection::vec((0..20_u8, 0..20_u8, 1..30_u64), 0..20),
            low in 0..20_u8, high in 0..20_u8, at in 0..32_u64,
        ) {
            let mut set = RangeSet::default();
            for &(start, end, seq) in &ranges {
                set.insert(&[start], &[end], Seq(seq));
            }
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            prop_assert_eq!(&RangeSet::decode(&mut Decoder::new(&bytes)).unwrap(), &set);
            for key in 0..20_u8 {
                let hits = ranges.iter().filter(|r| r.0 <= key && key < r.1 && r.2 <= at);
                prop_assert_eq!(set.newest(&[key], Seq(at)), hits.map(|r| Seq(r.2)).max());
                let inside = low <= key && key < high;
                let clipped = set.clip(Some(&[low]), Some(&[high]));
                let expected = if inside { set.newest(&[key], Seq(at)) } else { None };
                prop_assert_eq!(clipped.newest(&[key], Seq(at)), expected);
            }
            let touching = ranges.iter().filter(|r| r.0 < r.1 && r.0 < high && low < r.1 && low < high && r.2 > at);
            if low < high {
                prop_assert_eq!(set.newest_in(&[low], Some(&[high]), Seq(at)), touching.map(|r| Seq(r.2)).max());
            }
        }

        #[test]
        fn any_bytes_decode_or_fail_but_never_panic(bytes: Vec<u8>) {
            let _ = RangeSet::decode(&mut Decoder::new(&bytes));
        }
    }
}
