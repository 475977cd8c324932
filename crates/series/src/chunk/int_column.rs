//! Decoding a column of numbers (see `value_column` for its bytes): a range, or single places.
//!
//!   column ─▶ transform, known only here ─▶ frames of packed numbers ─▶ [`Walk`]: a range, or places
//!
//! Both walks stop after the last wanted number. Numbers before a wanted one are unpacked and summed up where
//! each depends on the previous one, and otherwise skipped.

use std::ops::Range;

use ropewalk_base::{DecodeError, Decoder, unzigzag};

use crate::sample::pack::{Frames, take_signed};

pub(crate) const OFFSETS: u8 = 0;
pub(crate) const STEPS: u8 = 1;
pub(crate) const BENDS: u8 = 2;
pub(crate) const XOR: u8 = 3;
pub(crate) const RISES: u8 = 4;

/// Appends the results of `of` for those of `count` numbers of a column that are in `range`. The first of a
/// column is zero, or stored before it when the column is one of `raw` bits.
#[inline]
pub(crate) fn decode_column<V>(
    decoder: &mut Decoder<'_>,
    count: usize,
    range: Range<usize>,
    raw: bool,
    out: &mut Vec<V>,
    of: impl Fn(u64) -> V,
) -> Result<(), DecodeError> {
    out.reserve(range.len());
    walk(decoder, count, raw, Within { at: 0, range, out, of })
}

/// Passes those of `count` numbers of a column that are at `places`, which rise, to `each`. `raw` as for
/// [`decode_column`].
#[inline]
pub(crate) fn column_at(
    decoder: &mut Decoder<'_>,
    count: usize,
    places: &[u32],
    raw: bool,
    each: impl FnMut(u64),
) -> Result<(), DecodeError> {
    debug_assert!(places.is_sorted_by(|a, b| a < b), "places rise: {places:?}");
    debug_assert!(
        places.last().is_none_or(|last| (*last as usize) < count),
        "every place is one of {count} numbers"
    );
    walk(decoder, count, raw, At { at: 0, left: places, each })
}

/// A consumer of the numbers of a column, one part after the other.
trait Walk {
    /// One number that is not packed.
    fn single(&mut self, value: u64);
    /// `count` numbers that are packed less `least`.
    fn offsets(&mut self, decoder: &mut Decoder<'_>, count: usize, least: u64) -> Result<(), DecodeError>;
    /// `count` numbers that `link` computes, each from the previous one; `value` is the one before the first.
    fn chain(
        &mut self,
        decoder: &mut Decoder<'_>,
        count: usize,
        value: u64,
        link: impl Link,
    ) -> Result<(), DecodeError>;
}

/// How a number is computed from the previous one.
trait Link {
    fn next(&mut self, value: u64, packed: &u64) -> u64;

    /// The last of the numbers that are `packed`, where `value` is the one before them.
    #[inline]
    fn over(&mut self, value: u64, packed: &[u64]) -> u64 {
        packed.iter().fold(value, |value, packed| self.next(value, packed))
    }
}

#[inline]
fn walk(decoder: &mut Decoder<'_>, count: usize, raw: bool, mut walk: impl Walk) -> Result<(), DecodeError> {
    let offset = decoder.offset();
    let transform = decoder.u8("transform of a column")?;
    let first = match (transform, raw) {
        (OFFSETS, _) => {
            let least = take_signed(decoder, "least value")? as u64;
            return walk.offsets(decoder, count, least);
        }
        (STEPS | XOR, true) => decoder.u64("first value")?,
        (STEPS | BENDS | RISES, false) => 0,
        _ => return Err(DecodeError { what: "a known transform of a column", offset }),
    };
    walk.single(first);
    debug_assert!(count > 0, "a column has numbers");
    let rest = count.saturating_sub(1);
    match transform {
        STEPS => walk.chain(decoder, rest, first, Step),
        RISES => {
            let least = take_signed(decoder, "least step")? as u64;
            walk.chain(decoder, rest, first, Rise(least))
        }
        XOR => {
            let shift = decoder.u8("shift")?;
            if shift > 63 {
                return Err(DecodeError { what: "a shift below 64", offset });
            }
            walk.chain(decoder, rest, first, Xor(shift))
        }
        _ => {
            let step = take_signed(decoder, "first step")?;
            let second = first.wrapping_add(step as u64);
            if count > 1 {
                walk.single(second);
            }
            // A column may have one number.
            walk.chain(decoder, count.saturating_sub(2), second, Bend(step))
        }
    }
}

struct Step;

impl Link for Step {
    #[inline]
    fn next(&mut self, value: u64, packed: &u64) -> u64 {
        value.wrapping_add(unzigzag(*packed) as u64)
    }
}

/// The least step.
struct Rise(u64);

impl Link for Rise {
    #[inline]
    fn next(&mut self, value: u64, packed: &u64) -> u64 {
        value.wrapping_add(*packed).wrapping_add(self.0)
    }

    #[inline]
    fn over(&mut self, value: u64, packed: &[u64]) -> u64 {
        let least = self.0.wrapping_mul(packed.len() as u64);
        packed.iter().fold(value.wrapping_add(least), |value, step| value.wrapping_add(*step))
    }
}

/// The shift, below 64.
struct Xor(u8);

impl Link for Xor {
    #[inline]
    fn next(&mut self, value: u64, packed: &u64) -> u64 {
        value ^ packed << self.0
    }

    #[inline]
    fn over(&mut self, value: u64, packed: &[u64]) -> u64 {
        value ^ packed.iter().fold(0, |all, bits| all ^ bits) << self.0
    }
}

/// The last step.
struct Bend(i64);

impl Link for Bend {
    #[inline]
    fn next(&mut self, value: u64, packed: &u64) -> u64 {
        self.0 = self.0.wrapping_add(unzigzag(*packed));
        value.wrapping_add(self.0 as u64)
    }
}

/// Takes the numbers of a range.
struct Within<'o, V, F> {
    /// Place of the next number.
    at: usize,
    range: Range<usize>,
    out: &'o mut Vec<V>,
    of: F,
}

impl<V, F> Within<'_, V, F> {
    /// Splits the numbers of a frame: those before the wanted ones, and the wanted ones.
    #[inline]
    fn part<'v>(&mut self, values: &'v [u64]) -> (&'v [u64], &'v [u64]) {
        // The range may begin, or end, before this frame.
        let skipped = self.range.start.saturating_sub(self.at).min(values.len());
        let end = self.range.end.saturating_sub(self.at).clamp(skipped, values.len());
        self.at += values.len();
        let (front, rest) = values.split_at(skipped);
        (front, rest.get(..end - skipped).expect("the end lies in the frame"))
    }

    fn is_done(&self) -> bool {
        self.at >= self.range.end
    }
}

impl<V, F: Fn(u64) -> V> Walk for Within<'_, V, F> {
    #[inline]
    fn single(&mut self, value: u64) {
        if self.range.contains(&self.at) {
            self.out.push((self.of)(value));
        }
        self.at += 1;
    }

    #[inline]
    fn offsets(&mut self, decoder: &mut Decoder<'_>, count: usize, least: u64) -> Result<(), DecodeError> {
        let mut frames = Frames::new(decoder, count);
        while frames.len() > 0 && !self.is_done() {
            if self.at + frames.len() <= self.range.start {
                self.at += frames.len();
                frames.skip()?;
                continue;
            }
            let (_, values) = self.part(frames.next()?);
            self.out.extend(values.iter().map(|v| (self.of)(v.wrapping_add(least))));
        }
        Ok(())
    }

    #[inline]
    fn chain(
        &mut self,
        decoder: &mut Decoder<'_>,
        count: usize,
        mut value: u64,
        mut link: impl Link,
    ) -> Result<(), DecodeError> {
        let mut frames = Frames::new(decoder, count);
        while frames.len() > 0 && !self.is_done() {
            let (front, values) = self.part(frames.next()?);
            value = link.over(value, front);
            self.out.extend(values.iter().map(|packed| {
                value = link.next(value, packed);
                (self.of)(value)
            }));
        }
        Ok(())
    }
}

/// Takes the numbers at places.
struct At<'p, F> {
    /// Place of the next number.
    at: usize,
    /// Places that are still to come.
    left: &'p [u32],
    each: F,
}

impl<'p, F> At<'p, F> {
    /// Advances by `count` numbers; returns the places among them.
    #[inline]
    fn within(&mut self, count: usize) -> &'p [u32] {
        self.at += count;
        let (inside, left) =
            self.left.split_at(self.left.partition_point(|place| (*place as usize) < self.at));
        self.left = left;
        inside
    }
}

impl<F: FnMut(u64)> Walk for At<'_, F> {
    #[inline]
    fn single(&mut self, value: u64) {
        if !self.within(1).is_empty() {
            (self.each)(value);
        }
    }

    #[inline]
    fn offsets(&mut self, decoder: &mut Decoder<'_>, count: usize, least: u64) -> Result<(), DecodeError> {
        let mut frames = Frames::new(decoder, count);
        while frames.len() > 0 && !self.left.is_empty() {
            let start = self.at;
            let inside = self.within(frames.len());
            if inside.is_empty() {
                frames.skip()?;
                continue;
            }
            let values = frames.next()?;
            for place in inside {
                let value = values.get(*place as usize - start).expect("the place lies in the frame");
                (self.each)(value.wrapping_add(least));
            }
        }
        Ok(())
    }

    #[inline]
    fn chain(
        &mut self,
        decoder: &mut Decoder<'_>,
        count: usize,
        mut value: u64,
        mut link: impl Link,
    ) -> Result<(), DecodeError> {
        let mut frames = Frames::new(decoder, count);
        while frames.len() > 0 && !self.left.is_empty() {
            let mut done = self.at;
            let inside = self.within(frames.len());
            let mut packed = frames.next()?;
            for place in inside {
                let upto = *place as usize + 1;
                let (front, rest) = packed.split_at((upto - done).min(packed.len()));
                value = link.over(value, front);
                (self.each)(value);
                (packed, done) = (rest, upto);
            }
            value = link.over(value, packed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_base::zigzag;

    use super::*;
    use crate::sample::pack::{pack, put_signed};

    /// A column of that transform, of `count` numbers, or as many as `packed` gives.
    fn column(transform: u8, raw: bool, head: i64, packed: &[u64], out: &mut Vec<u8>) -> usize {
        out.push(transform);
        if raw && transform != OFFSETS {
            out.extend_from_slice(&head.to_le_bytes());
        }
        match transform {
            OFFSETS | BENDS | RISES => put_signed(out, head),
            XOR => out.push((head & 63) as u8),
            _ => {}
        }
        pack(packed, out);
        packed.len()
            + match transform {
                OFFSETS => 0,
                BENDS => 2,
                _ => 1,
            }
    }

    proptest! {
        #[test]
        fn every_decoding_path_returns_the_same_numbers(
            (transform, raw) in prop::sample::select(vec![
                (OFFSETS, true), (OFFSETS, false), (STEPS, true), (STEPS, false), (BENDS, false), (XOR, true), (RISES, false),
            ]),
            head: i64,
            packed in prop::collection::vec(prop_oneof![0..4_u64, any::<u64>(), (-9..9_i64).prop_map(zigzag)], 1..400),
            ends in (0..400_usize, 0..400_usize),
            mut places in prop::collection::vec(0..400_u32, 0..30),
        ) {
            let mut bytes = Vec::new();
            let count = column(transform, raw, head, &packed, &mut bytes);
            let mut all: Vec<u64> = Vec::new();
            let mut decoder = Decoder::new(&bytes);
            decode_column(&mut decoder, count, 0..count, raw, &mut all, |value| value).unwrap();
            prop_assert!(decoder.is_empty());
            // Computed separately, from the previous one.
            for (at, value) in all.iter().enumerate() {
                let before = |back: usize| at.checked_sub(back).map_or(0, |at| all[at]);
                let right = match transform {
                    OFFSETS => packed[at].wrapping_add(head as u64),
                    _ if at == 0 => if raw { head as u64 } else { 0 },
                    STEPS => before(1).wrapping_add(unzigzag(packed[at - 1]) as u64),
                    RISES => before(1).wrapping_add(packed[at - 1]).wrapping_add(head as u64),
                    XOR => before(1) ^ packed[at - 1] << (head & 63),
                    _ if at == 1 => head as u64,
                    _ => {
                        let step = before(1).wrapping_sub(before(2));
                        before(1).wrapping_add(step).wrapping_add(unzigzag(packed[at - 2]) as u64)
                    }
                };
                prop_assert_eq!(*value, right, "number {}", at);
            }
            let (start, end) = (ends.0.min(ends.1).min(count), ends.0.max(ends.1).min(count));
            let mut some = vec![7];
            decode_column(&mut Decoder::new(&bytes), count, start..end, raw, &mut some, |value| value).unwrap();
            prop_assert_eq!(&some[1..], &all[start..end]);
            places.retain(|place| (*place as usize) < count);
            places.sort_unstable();
            places.dedup();
            let mut found = Vec::new();
            column_at(&mut Decoder::new(&bytes), count, &places, raw, |value| found.push(value)).unwrap();
            prop_assert_eq!(found, places.iter().map(|place| all[*place as usize]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn unknown_transforms_are_refused() {
        for (bytes, raw) in
            [(&[9, 0][..], true), (&[BENDS, 0], true), (&[XOR, 0], false), (&[RISES, 0], true)]
        {
            assert!(decode_column(&mut Decoder::new(bytes), 1, 0..1, raw, &mut Vec::new(), |v| v).is_err());
            assert!(column_at(&mut Decoder::new(bytes), 1, &[0], raw, |_| {}).is_err());
        }
        let shift = [&[XOR][..], &[0; 8], &[64]].concat();
        assert!(column_at(&mut Decoder::new(&shift), 1, &[0], true, |_| {}).is_err());
    }
}
