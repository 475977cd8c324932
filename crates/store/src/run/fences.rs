//! Fences: one number per block, in memory, to find the block of a key, and a model that narrows the search.
//!
//! A block's fence is the shortest string that is greater than the last key of the previous block and not
//! greater than the block's first key. Its head (8 bytes after what all keys of the run share) decides,
//! unless the previous key has the same head; then the fence is *ambiguous* and stored completely. A block
//! that starts in the middle of a key's versions has that key plus a zero byte as its fence, so that a search
//! for the key finds the block where its versions begin.
//!
//! Invariants
//! 1. Heads ascend. Of several equal heads all but the first are ambiguous, that is, have a tail.
//! 2. The model only narrows the search; its prediction is checked against the heads.

use std::cmp::Ordering;

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_u64};
use ropewalk_learned::{ERROR_DEFAULT, Model};

use crate::run::block::head;
use crate::run::prefix::Prefix;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fences {
    /// Leading bytes that all keys of the run share.
    shared: Prefix,
    heads: Vec<u64>,
    /// Head of the last key.
    last: u64,
    tails: Option<Tails>,
    model: Option<Model>,
}

/// Place of a key relative to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before the first key.
    Before,
    /// In this block, if it exists.
    Block(usize),
    /// After the last key.
    After,
}

/// A block, and the approximate place of a key in it if keys are spread evenly between its fence and the
/// next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) block: usize,
    /// Of [`Spot::WHOLE`].
    share: usize,
}

impl Spot {
    const WHOLE: usize = 1 << 16;

    /// So much of `whole`, rounded down; `whole` at most 2^32.
    #[inline]
    pub(crate) fn of(self, whole: usize) -> usize {
        (self.share * whole) / Self::WHOLE
    }
}

/// The ambiguous fences after the shared bytes; empty for the others.
#[derive(Debug, Clone, Default, PartialEq)]
struct Tails {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Tails {
    fn push(&mut self, tail: &[u8]) {
        self.bytes.extend_from_slice(tail);
        self.ends.push(self.bytes.len() as u32);
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|i| self.ends.get(i)).copied().unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// The fences of a run that is being written, whole.
#[derive(Debug, Default)]
pub(crate) struct FenceBuilder {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl FenceBuilder {
    /// The fence of the first block.
    pub(crate) fn first(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The fence of a block that starts with `key` after a block that ended with `before`.
    pub(crate) fn between(&mut self, before: &[u8], key: &[u8]) {
        let same = crate::run::block::shared(before, key);
        self.bytes.extend_from_slice(key.get(..=same).unwrap_or(key));
        if before == key {
            self.bytes.push(0);
        }
        self.ends.push(self.bytes.len());
    }

    /// Cuts the fences down to heads and tails, now that the first and the last key of the run are known, and trains
    /// the model.
    pub(crate) fn finish(&self, min_key: &[u8], max_key: &[u8]) -> Fences {
        let (shared, last) = ends(min_key, max_key);
        let mut heads = Vec::with_capacity(self.ends.len());
        let mut tails = Tails::default();
        let mut start = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            let fence = self.bytes.get(start..end).unwrap_or_default();
            let after = fence.get(shared.len()..).unwrap_or_default();
            heads.push(head(after));
            let ambiguous = index > 0 && (after.len() > 8 || fence.last() == Some(&0));
            tails.push(if ambiguous { after } else { &[] });
            start = end;
        }
        let tails = (!tails.bytes.is_empty()).then_some(tails);
        let model = Model::train(&heads, ERROR_DEFAULT);
        let fences = Fences { shared, heads, last, tails, model };
        if cfg!(debug_assertions) {
            fences.check_ambiguous();
        }
        fences
    }
}

/// The bytes that all keys between these two share, and the head of the last.
fn ends(min_key: &[u8], max_key: &[u8]) -> (Prefix, u64) {
    let (shared, rest) =
        max_key.split_at_checked(crate::run::block::shared(min_key, max_key)).unwrap_or_default();
    (Prefix::new(shared), head(rest))
}

impl Fences {
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn pieces(&self) -> Option<usize> {
        self.model.as_ref().map(Model::pieces)
    }

    /// Checks invariant 1.
    fn check_ambiguous(&self) {
        assert!(self.heads.is_sorted() && self.heads.last() <= Some(&self.last).filter(|_| self.len() > 0));
        for (index, pair) in self.heads.windows(2).enumerate() {
            let is_ambiguous = self.tails.as_ref().is_some_and(|tails| !tails.get(index + 1).is_empty());
            assert!(pair.first() < pair.last() || is_ambiguous, "fence {} has a tail", index + 1);
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let tails = self.tails.as_ref().map_or(0, |t| t.bytes.len() + 4 * t.ends.len());
        8 * self.heads.len() + tails + self.model.as_ref().map_or(0, Model::bytes)
    }

    /// Forgets the model, to measure what it is worth.
    pub(crate) fn drop_model(&mut self) {
        self.model = None;
    }

    /// The block that holds `key`, if any does. A key just outside the run may be located in its first or
    /// last block.
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> Place {
        let rest = match self.shared.cut(key) {
            Ok(rest) => rest,
            Err(Ordering::Less) => return Place::Before,
            Err(_) => return Place::After,
        };
        let target = head(rest);
        match self.heads.first() {
            None => return Place::After,
            Some(&first) if target < first => return Place::Before,
            Some(_) if target > self.last => return Place::After,
            Some(_) => {}
        }
        // The first head is not above the target, but a damaged model may be wrong.
        let index = self.count_up_to(target).saturating_sub(1);
        Place::Block(match &self.tails {
            Some(tails) if self.heads.get(index) == Some(&target) => self.settle(tails, rest, target, index),
            _ => index,
        })
    }

    /// The block that holds `key`, if any does, and where in the block to search first.
    #[inline]
    pub(crate) fn spot(&self, key: &[u8]) -> Option<Spot> {
        let Place::Block(block) = self.locate(key) else { return None };
        let target = self.shared.cut(key).map_or(0, head);
        let low = self.heads.get(block).copied().unwrap_or(0);
        let high = self.heads.get(block + 1).copied().unwrap_or(self.last);
        let share = target.saturating_sub(low) as f64 / high.saturating_sub(low).max(1) as f64;
        Some(Spot { block, share: ((share * Spot::WHOLE as f64) as usize).min(Spot::WHOLE) })
    }

    /// The last block among those with head `target` (the last of which is `index`) whose fence is not above `rest`.
    fn settle(&self, tails: &Tails, rest: &[u8], target: u64, index: usize) -> usize {
        let mut low = self.heads.partition_point(|&h| h < target);
        let mut high = index + 1;
        while low < high {
            let middle = low + (high - low) / 2;
            if tails.get(middle) <= rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The first of equal heads has no tail, except in a damaged footer.
        low.saturating_sub(1)
    }

    /// Number of heads ≤ `target`.
    #[inline]
    fn count_up_to(&self, target: u64) -> usize {
        if let Some(model) = &self.model {
            let (low, high) = model.predict(target);
            if let Some(window) = self.heads.get(low..high) {
                let count = low + window.iter().map(|&h| usize::from(h <= target)).sum::<usize>();
                // The edges prove that the window is right; without this a wrong model could hide a key.
                let left = count > low || low == 0 || self.heads.get(low - 1).is_some_and(|&h| h <= target);
                let right = count < high || self.heads.get(high).is_none_or(|&h| h > target);
                if left && right {
                    return count;
                }
            }
        }
        self.heads.partition_point(|&h| h <= target)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for &head in &self.heads {
            put_u64(out, head);
        }
        out.push(u8::from(self.tails.is_some()));
        if let Some(tails) = &self.tails {
            for index in 0..self.heads.len() {
                put_bytes(out, tails.get(index));
            }
        }
        out.push(u8::from(self.model.is_some()));
        if let Some(model) = &self.model {
            model.encode(out);
        }
    }

    pub(crate) fn decode(
        blocks: usize,
        (min_key, max_key): (&[u8], &[u8]),
        decoder: &mut Decoder<'_>,
    ) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let bytes = decoder.take(blocks.saturating_mul(8), "fences")?;
        let heads: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|h| u64::from_le_bytes(*h)).collect();
        if !heads.is_sorted() {
            return Err(DecodeError { what: "fences in order", offset });
        }
        let tails = match decoder.u8("fence tails")? {
            0 => None,
            _ => {
                let mut tails = Tails::default();
                for _ in 0..blocks {
                    tails.push(decoder.bytes("tail of a fence")?);
                }
                Some(tails)
            }
        };
        let model = match decoder.u8("model")? {
            0 => None,
            _ => Some(Model::decode(decoder)?),
        };
        let (shared, last) = ends(min_key, max_key);
        Ok(Self { shared, heads, last, tails, model })
    }

    /// The head of block `index` and its ambiguous tail; for `verify`.
    pub(crate) fn get(&self, index: usize) -> (u64, &[u8]) {
        let tail = self.tails.as_ref().map_or(&[][..], |t| t.get(index));
        (self.heads.get(index).copied().unwrap_or(0), tail)
    }

    /// Bytes shared by all keys.
    pub(crate) fn shared(&self) -> usize {
        self.shared.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_is_located_in_its_block(
            mut keys in proptest::collection::vec(proptest::collection::vec(0..3_u8, 0..12), 1..80),
            per_block in 1..5_usize,
        ) {
            keys.sort();
            let mut builder = FenceBuilder::default();
            for (i, start) in (0..keys.len()).step_by(per_block).enumerate() {
                if i == 0 { builder.first(&keys[0]) } else { builder.between(&keys[start - 1], &keys[start]) }
            }
            let ends = (keys[0].as_slice(), keys.last().unwrap().as_slice());
            let fences = builder.finish(ends.0, ends.1);
            let mut bytes = Vec::new();
            fences.encode(&mut bytes);
            let fences = Fences::decode(fences.len(), ends, &mut Decoder::new(&bytes)).unwrap();
            for key in &keys {
                let first = keys.iter().position(|k| k == key).unwrap();
                prop_assert_eq!(fences.locate(key), Place::Block(first / per_block));
                let spot = fences.spot(key).unwrap();
                prop_assert!(spot.block == first / per_block && spot.of(per_block) <= per_block);
            }
        }
    }
}
