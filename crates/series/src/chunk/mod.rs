//! A chunk: consecutive samples of one series, compressed without loss.
//!
//! ```text
//! u8 form     1: samples; 3: aggregates, then samples
//! varint      number of samples, 1 to 8192
//! signed      first time, relative to a base given by where the chunk is stored
//! varint      last time − first time
//! [aggregates: u8 flags │ sum │ first │ last │ [least] │ [greatest] │ resets varint │ [samples that count varint]]
//! u8 times    0: equal steps; 1: first step signed, then packed zigzag of the steps' differences
//! u8 values   see `value_column`
//! ```
//! (`signed` is a zigzag varint; packed numbers are those of `pack`.) Times never fall; equal times stay in
//! the order of arrival. All differences wrap, so the whole range of `i64` is allowed.
//!
//! The aggregates leave staleness markers out. Their flags: 1 least is first, 2 least is last, 4 greatest is first, 8 greatest
//! is last, 16 not all samples count. Each is a u8 e and m signed where it is m / 10^e with e up to 9, else 255 and 8 bytes.

pub(crate) mod int_column;
pub(crate) mod payload_chunk;
pub(crate) mod value_column;

use std::ops::Range;

use ropewalk_base::{DecodeError, Decoder, put_varint, unzigzag, zigzag};
use ropewalk_labels::STALE_BITS;

use crate::sample::pack::{Frames, pack, put_signed, take_signed};

/// Most samples that a chunk may hold: bounds what decoding a damaged chunk may allocate.
pub(crate) const CHUNK_SAMPLES_MAX: usize = 8192;
/// Samples from which on a stored chunk carries aggregates: they take about twenty bytes.
const AGGREGATES_FROM: usize = 480;

const LEAST_IS_FIRST: u8 = 1;
const LEAST_IS_LAST: u8 = 2;
const GREATEST_IS_FIRST: u8 = 4;
const GREATEST_IS_LAST: u8 = 8;
const SOME_COUNT: u8 = 16;

const SAMPLES: u8 = 1;
const WITH_AGGREGATES: u8 = 3;
const EQUAL_STEPS: u8 = 0;
const PACKED_STEPS: u8 = 1;

/// Aggregates of a chunk, known without reading its samples. Staleness markers do not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aggregates {
    /// Number of samples without staleness markers.
    pub count: u32,
    /// Their sum, with compensated summation, as if computed with twice the digits.
    pub sum: f64,
    /// The least, the earliest of equals; NaN only when all are NaN.
    pub min: f64,
    /// The greatest, the earliest of equals; NaN only when all are NaN.
    pub max: f64,
    /// The first.
    pub first: f64,
    /// The last.
    pub last: f64,
    /// How often a value is less than the previous one.
    pub resets: u32,
}

impl Aggregates {
    /// Aggregates of the values of a chunk, as bits; `None` when all are staleness markers.
    pub(crate) fn of(bits: &[u64]) -> Option<Self> {
        let mut values = bits.iter().filter(|b| **b != STALE_BITS).map(|b| f64::from_bits(*b));
        let first = values.next()?;
        let mut all = Self { count: 1, sum: first, min: first, max: first, first, last: first, resets: 0 };
        let mut lost = 0.0;
        for value in values {
            all.count += 1;
            let sum = all.sum + value;
            lost +=
                if all.sum.abs() >= value.abs() { (all.sum - sum) + value } else { (value - sum) + all.sum };
            all.sum = sum;
            all.min = lesser(all.min, value);
            all.max = greater(all.max, value);
            all.resets += u32::from(value < all.last);
            all.last = value;
        }
        if all.sum.is_finite() {
            all.sum += lost;
        }
        Some(all)
    }

    /// Aggregates of these samples followed by the others.
    pub(crate) fn and(self, behind: Self) -> Self {
        Self {
            count: self.count + behind.count,
            sum: self.sum + behind.sum,
            min: lesser(self.min, behind.min),
            max: greater(self.max, behind.max),
            first: self.first,
            last: behind.last,
            resets: self.resets + behind.resets + u32::from(behind.first < self.last),
        }
    }

    /// Appends the aggregates, as those of a chunk of `samples`.
    fn put(&self, samples: usize, out: &mut Vec<u8>) {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let flag = |flag: u8, set: bool| if set { flag } else { 0 };
        let least =
            flag(LEAST_IS_FIRST, same(self.min, self.first)) | flag(LEAST_IS_LAST, same(self.min, self.last));
        let greatest = flag(GREATEST_IS_FIRST, same(self.max, self.first))
            | flag(GREATEST_IS_LAST, same(self.max, self.last));
        let some = flag(SOME_COUNT, self.count as usize != samples);
        out.push(least | greatest | some);
        [self.sum, self.first, self.last].into_iter().for_each(|value| value_column::put_float(value, out));
        if least == 0 {
            value_column::put_float(self.min, out);
        }
        if greatest == 0 {
            value_column::put_float(self.max, out);
        }
        put_varint(out, u64::from(self.resets));
        if some != 0 {
            put_varint(out, u64::from(self.count));
        }
    }

    fn take(samples: usize, decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let flags = decoder.u8("flags of aggregates")?;
        if flags >= 2 * SOME_COUNT {
            return Err(DecodeError { what: "known flags of aggregates", offset });
        }
        let is = |flag: u8| flags & flag != 0;
        let sum = value_column::take_float(decoder)?;
        let (first, last) = (value_column::take_float(decoder)?, value_column::take_float(decoder)?);
        let mut extreme = |is_first: u8, is_last: u8| match (is(is_first), is(is_last)) {
            (true, _) => Ok(first),
            (false, true) => Ok(last),
            _ => value_column::take_float(decoder),
        };
        let min = extreme(LEAST_IS_FIRST, LEAST_IS_LAST)?;
        let max = extreme(GREATEST_IS_FIRST, GREATEST_IS_LAST)?;
        let mut number = |what| {
            let number = decoder.varint(what)?;
            u32::try_from(number).map_err(|_| DecodeError { what, offset })
        };
        let resets = number("resets")?;
        let count = if is(SOME_COUNT) { number("samples that count")? } else { samples as u32 };
        Ok(Self { count, sum, min, max, first, last, resets })
    }
}

fn lesser(earlier: f64, later: f64) -> f64 {
    if later < earlier || earlier.is_nan() { later } else { earlier }
}

fn greater(earlier: f64, later: f64) -> f64 {
    if later > earlier || earlier.is_nan() { later } else { earlier }
}

/// Samples are few when they are less than one in so many.
const FEW: usize = 4;

/// Which samples of a chunk are wanted when only those around some times count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'m> {
    /// Times, rising.
    pub(crate) marks: &'m [i64],
    pub(crate) which: Which,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The last at or before each time, and the last of all.
    Before,
    /// The first of all, and the first after each time.
    Behind,
    /// All of them.
    Both,
}

impl Around<'_> {
    /// Fills `places` with the requested places within `wanted`; `before` yields for each mark how many
    /// samples of the chunk are at or before it.
    fn places(&self, wanted: &Range<usize>, before: impl Iterator<Item = usize>, places: &mut Vec<u32>) {
        let mut put = |place: usize| {
            // A chunk holds 8192 at most.
            if wanted.contains(&place) && places.last().is_none_or(|last| (*last as usize) < place) {
                places.push(place as u32);
            }
        };
        if self.which != Which::Before {
            put(wanted.start);
        }
        for before in before {
            if self.which != Which::Behind
                && let Some(place) = before.checked_sub(1)
            {
                put(place);
            }
            if self.which != Which::Before {
                put(before);
            }
        }
        if self.which != Which::Behind
            && let Some(last) = wanted.end.checked_sub(1)
        {
            put(last);
        }
    }
}

/// Requested samples: places, times, the place after the whole range, and the column of values.
struct Placed<'a> {
    places: Vec<u32>,
    times: Vec<i64>,
    end: usize,
    values: Decoder<'a>,
}

/// An aggregate that can replace consecutive samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Their sum.
    Sum,
    /// The least of them.
    Least,
    /// The greatest of them.
    Greatest,
}

/// The head of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkHead<'a> {
    pub(crate) count: usize,
    pub(crate) first: i64,
    pub(crate) last: i64,
    has_aggregates: bool,
    /// The rest of the chunk: aggregates, then the columns.
    body: Decoder<'a>,
}

impl<'a> ChunkHead<'a> {
    /// Reads the head of a chunk whose times are relative to `base`.
    pub(crate) fn decode(bytes: &'a [u8], base: i64) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let form = decoder.u8("form of a chunk")?;
        if form != SAMPLES && form != WITH_AGGREGATES {
            return Err(DecodeError { what: "a known form of chunk", offset: 0 });
        }
        let offset = decoder.offset();
        let count = decoder.varint("number of samples")?;
        if count == 0 || count > CHUNK_SAMPLES_MAX as u64 {
            return Err(DecodeError { what: "1 to 8192 samples", offset });
        }
        let first = base.wrapping_add(take_signed(&mut decoder, "first time")?);
        let span = decoder.varint("span of times")?;
        let last = first.wrapping_add(span as i64);
        if last < first || (last.wrapping_sub(first)) as u64 != span {
            return Err(DecodeError { what: "times that do not fall", offset });
        }
        let has_aggregates = form == WITH_AGGREGATES;
        Ok(Self { count: count as usize, first, last, has_aggregates, body: decoder })
    }

    /// The aggregates, if the chunk carries them, and the columns.
    fn parts(&self) -> Result<(Option<Aggregates>, Decoder<'a>), DecodeError> {
        let mut decoder = self.body;
        let aggregates =
            if self.has_aggregates { Some(Aggregates::take(self.count, &mut decoder)?) } else { None };
        Ok((aggregates, decoder))
    }

    /// Aggregates of the samples, as far as they are known without reading the samples.
    pub(crate) fn aggregates(&self) -> Result<Option<Aggregates>, DecodeError> {
        let (stored, mut columns) = self.parts()?;
        if stored.is_some() || columns.u8("coding of times")? != EQUAL_STEPS {
            return Ok(stored);
        }
        let constant = value_column::constant(&mut columns)?.filter(|bits| *bits != STALE_BITS);
        Ok(constant.map(f64::from_bits).map(|value| Aggregates {
            count: self.count as u32,
            sum: value * self.count as f64,
            min: value,
            max: value,
            first: value,
            last: value,
            resets: 0,
        }))
    }

    /// Appends the samples. Samples appended before an error stay.
    pub(crate) fn samples(&self, times: &mut Vec<i64>, bits: &mut Vec<u64>) -> Result<(), DecodeError> {
        self.samples_within((self.first, self.last), times, bits)
    }

    /// Appends the samples from one time to another, both inclusive, and decodes no more of the others than it has to.
    pub(crate) fn samples_within<V: value_column::Stored>(
        &self,
        (from, to): (i64, i64),
        times: &mut Vec<i64>,
        values: &mut Vec<V>,
    ) -> Result<(), DecodeError> {
        let (_, mut decoder) = self.parts()?;
        let offset = decoder.offset();
        let wanted = match decoder.u8("coding of times")? {
            EQUAL_STEPS => self.equal_steps(offset, (from, to), times)?,
            PACKED_STEPS => {
                let start = times.len();
                self.packed_steps(&mut decoder, times)?;
                let all = times.get(start..).expect("times are appended");
                if all.last() != Some(&self.last) || !all.is_sorted() {
                    return Err(DecodeError { what: "times that rise to the last", offset });
                }
                let end = all.partition_point(|time| *time <= to);
                let skipped = all.partition_point(|time| *time < from).min(end);
                times.truncate(start + end);
                times.drain(start..start + skipped);
                skipped..end
            }
            _ => return Err(DecodeError { what: "a known coding of times", offset }),
        };
        let is_whole = wanted.end == self.count;
        let (before, len) = (values.len(), wanted.len());
        value_column::decode(&mut decoder, self.count, wanted, values)?;
        debug_assert_eq!(values.len() - before, len, "every time has a value");
        if is_whole && !decoder.is_empty() {
            return Err(DecodeError { what: "the end of the chunk", offset: decoder.offset() });
        }
        Ok(())
    }

    /// Appends the samples from one time to another, both inclusive, that are around some times, and reports
    /// for each of them how many samples there are from it to the next. Returns false, and appends nothing,
    /// when these would not be few.
    pub(crate) fn samples_around(
        &self,
        range: (i64, i64),
        around: &Around<'_>,
        (times, values): (&mut Vec<i64>, &mut Vec<f64>),
        counts: &mut Vec<u32>,
    ) -> Result<bool, DecodeError> {
        let Some(mut placed) = self.place(range, around)? else { return Ok(false) };
        let before = values.len();
        value_column::decode_at(&mut placed.values, self.count, &placed.places, values)?;
        debug_assert_eq!(values.len() - before, placed.times.len(), "every time has a value");
        times.append(&mut placed.times);
        let gaps = placed.places.iter().zip(placed.places.iter().skip(1)).map(|(a, b)| b - a);
        counts.extend(gaps.chain(placed.places.last().map(|_| 1)));
        Ok(true)
    }

    /// Appends one row for the samples between each two of some times, within one time and another: the time
    /// of the first, the aggregate `part` of their values, and their number. Returns false, and appends
    /// nothing, when these would not be few, or the values are not integers.
    pub(crate) fn parts_between(
        &self,
        range: (i64, i64),
        (marks, part): (&[i64], Part),
        (times, values): (&mut Vec<i64>, &mut Vec<f64>),
        counts: &mut Vec<u32>,
    ) -> Result<bool, DecodeError> {
        let around = Around { marks, which: Which::Behind };
        let Some(mut placed) = self.place(range, &around)? else { return Ok(false) };
        let ends = placed.places.iter().skip(1).copied().chain([placed.end as u32]);
        let parts: Vec<Range<usize>> =
            placed.places.iter().zip(ends).map(|(start, end)| *start as usize..end as usize).collect();
        if !value_column::fold(&mut placed.values, self.count, &parts, part, values)? {
            return Ok(false);
        }
        times.append(&mut placed.times);
        counts.extend(parts.iter().map(|part| part.len() as u32));
        Ok(true)
    }

    /// Places of the requested samples; `None` when they are not few.
    fn place(&self, (from, to): (i64, i64), around: &Around<'_>) -> Result<Option<Placed<'a>>, DecodeError> {
        let (first, last) = (from.max(self.first), to.min(self.last));
        let begin = around.marks.partition_point(|mark| *mark < first);
        let (_, marks) = around.marks.split_at(begin);
        let (marks, _) = marks.split_at(marks.partition_point(|mark| *mark < last));
        if (2 * marks.len() + 2) * FEW > self.count {
            return Ok(None);
        }
        let (_, mut decoder) = self.parts()?;
        let offset = decoder.offset();
        let mut places: Vec<u32> = Vec::with_capacity(2 * marks.len() + 2);
        let (times, end) = match decoder.u8("coding of times")? {
            EQUAL_STEPS => {
                let (wanted, step) = self.equally(offset, (from, to))?;
                let before = |time: &i64| match step {
                    0 => self.count,
                    _ => (time.wrapping_sub(self.first) as u64 / step) as usize + 1,
                };
                around.places(&wanted, marks.iter().map(before), &mut places);
                let time = |place: &u32| self.first.wrapping_add(i64::from(*place).wrapping_mul(step as i64));
                (places.iter().map(time).collect(), wanted.end)
            }
            PACKED_STEPS => {
                let mut all = Vec::with_capacity(self.count);
                self.packed_steps(&mut decoder, &mut all)?;
                if all.last() != Some(&self.last) || !all.is_sorted() {
                    return Err(DecodeError { what: "times that rise to the last", offset });
                }
                let end = all.partition_point(|time| *time <= to);
                let begin = all.partition_point(|time| *time < from).min(end);
                let before = |mark: &i64| all.partition_point(|time| time <= mark);
                around.places(&(begin..end), marks.iter().map(before), &mut places);
                (places.iter().filter_map(|place| all.get(*place as usize).copied()).collect(), end)
            }
            _ => return Err(DecodeError { what: "a known coding of times", offset }),
        };
        debug_assert!(places.is_sorted_by(|a, b| a < b), "places rise: {places:?}");
        debug_assert!(places.last().is_none_or(|last| (*last as usize) < end && end <= self.count));
        Ok(Some(Placed { places, times, end, values: decoder }))
    }

    fn equal_steps(
        &self,
        offset: usize,
        (from, to): (i64, i64),
        times: &mut Vec<i64>,
    ) -> Result<Range<usize>, DecodeError> {
        let (wanted, step) = self.equally(offset, (from, to))?;
        let time = |i: usize| self.first.wrapping_add((i as i64).wrapping_mul(step as i64));
        times.extend(wanted.clone().map(time));
        Ok(wanted)
    }

    /// The samples from one time to another, and the step between two.
    fn equally(&self, offset: usize, (from, to): (i64, i64)) -> Result<(Range<usize>, u64), DecodeError> {
        let span = self.last.wrapping_sub(self.first) as u64;
        let steps = (self.count as u64 - 1).max(1);
        if !span.is_multiple_of(steps) || self.count == 1 && span != 0 {
            return Err(DecodeError { what: "equal steps", offset });
        }
        let (from, to) = (from.max(self.first), to.min(self.last));
        let step = span / steps;
        if from > to {
            return Ok((0..0, step));
        }
        let behind = |time: i64| time.wrapping_sub(self.first) as u64;
        let wanted = match step {
            0 => 0..self.count,
            // Both are at most `steps`, which came from a usize.
            _ => behind(from).div_ceil(step) as usize..(behind(to) / step) as usize + 1,
        };
        Ok((wanted, step))
    }

    fn packed_steps(&self, decoder: &mut Decoder<'_>, times: &mut Vec<i64>) -> Result<(), DecodeError> {
        let mut step = take_signed(decoder, "first step")?;
        let mut time = self.first;
        times.push(time);
        if self.count > 1 {
            time = time.wrapping_add(step);
            times.push(time);
        }
        // The first two times, or the only one, need no frames.
        let mut frames = Frames::new(decoder, self.count.saturating_sub(2));
        while frames.len() > 0 {
            times.extend(frames.next()?.iter().map(|packed| {
                step = step.wrapping_add(unzigzag(*packed));
                time = time.wrapping_add(step);
                time
            }));
        }
        Ok(())
    }
}

/// Scratch memory of encoding, reused from chunk to chunk.
#[derive(Default)]
pub(crate) struct ChunkEncoder {
    steps: Vec<u64>,
    values: value_column::ValueEncoder,
}

impl ChunkEncoder {
    /// Appends a chunk for a file. `times` never fall; both columns have the same length, 1 to [`CHUNK_SAMPLES_MAX`].
    pub(crate) fn encode(&mut self, base: i64, times: &[i64], bits: &[u64], out: &mut Vec<u8>) {
        let one = bits.first().is_some_and(|first| bits.iter().all(|b| b == first));
        // For a constant, reading the values costs no more.
        let aggregates = if times.len() >= AGGREGATES_FROM && !one { Aggregates::of(bits) } else { None };
        self.encode_as(base, times, bits, aggregates, out);
    }

    /// Appends a chunk that lives until the next flush: as [`ChunkEncoder::encode`], with less work and a few
    /// bytes more.
    pub(crate) fn encode_briefly(&mut self, base: i64, times: &[i64], bits: &[u64], out: &mut Vec<u8>) {
        self.values.is_brief = true;
        self.encode_as(base, times, bits, None, out);
        self.values.is_brief = false;
    }

    fn encode_as(
        &mut self,
        base: i64,
        times: &[i64],
        bits: &[u64],
        aggregates: Option<Aggregates>,
        out: &mut Vec<u8>,
    ) {
        assert_eq!(times.len(), bits.len(), "every time has a value");
        assert!(times.len() <= CHUNK_SAMPLES_MAX, "no chunk of {} samples can be read", times.len());
        debug_assert!(times.is_sorted(), "times of a chunk do not fall");
        // A deletion may leave nothing.
        let (Some(first), Some(last)) = (times.first().copied(), times.last().copied()) else { return };
        out.push(if aggregates.is_some() { WITH_AGGREGATES } else { SAMPLES });
        put_varint(out, times.len() as u64);
        put_signed(out, first.wrapping_sub(base));
        put_varint(out, last.wrapping_sub(first) as u64);
        if let Some(aggregates) = aggregates {
            aggregates.put(times.len(), out);
        }
        self.encode_times(times, out);
        self.values.encode(bits, out);
    }

    fn encode_times(&mut self, times: &[i64], out: &mut Vec<u8>) {
        self.steps.clear();
        let mut all_equal = true;
        let mut pairs = times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a));
        // One time has no step.
        let first_step = pairs.next().unwrap_or(0);
        let mut before = first_step;
        for step in pairs {
            let change = step.wrapping_sub(before);
            all_equal &= change == 0;
            self.steps.push(zigzag(change));
            before = step;
        }
        // A step that does not fit an i64 wraps; dividing the span would give another one.
        if all_equal && first_step >= 0 {
            out.push(EQUAL_STEPS);
        } else {
            out.push(PACKED_STEPS);
            put_signed(out, first_step);
            pack(&self.steps, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_base::hex;

    fn encode(base: i64, times: &[i64], bits: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        ChunkEncoder::default().encode(base, times, bits, &mut out);
        out
    }

    fn decode(bytes: &[u8], base: i64) -> Result<(Vec<i64>, Vec<u64>), DecodeError> {
        let (mut times, mut bits) = (Vec::new(), Vec::new());
        ChunkHead::decode(bytes, base)?.samples(&mut times, &mut bits)?;
        Ok((times, bits))
    }

    pub(crate) fn any_times() -> impl Strategy<Value = Vec<i64>> {
        let regular = (any::<i32>(), 0..100_000_i64, 1..300_usize)
            .prop_map(|(first, step, n)| (0..n as i64).map(|i| i64::from(first) + i * step).collect());
        let jitter =
            (any::<i32>(), prop::collection::vec(14_990..15_010_i64, 0..300)).prop_map(|(first, steps)| {
                let mut time = i64::from(first);
                std::iter::once(time)
                    .chain(steps.into_iter().map(|s| {
                        time += s;
                        time
                    }))
                    .collect()
            });
        let wild = prop::collection::vec(any::<i64>(), 1..40).prop_map(|mut times: Vec<i64>| {
            times.sort_unstable();
            times
        });
        let edges = prop::collection::vec(
            prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
            1..10,
        )
        .prop_map(|mut times: Vec<i64>| {
            times.sort_unstable();
            times
        });
        prop_oneof![regular, jitter, wild, edges]
    }

    #[test]
    fn aggregates_of_parts_are_those_of_the_whole() {
        let bits: Vec<u64> = [3.0, 5.0, 1.0, 1.0, 0.5, 9.0].map(f64::to_bits).to_vec();
        for cut in 1..bits.len() {
            let (a, b) = bits.split_at(cut);
            let joined = Aggregates::of(a).unwrap().and(Aggregates::of(b).unwrap());
            assert_eq!(joined, Aggregates::of(&bits).unwrap());
        }
    }

    pub(crate) fn any_bits() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<f64>().prop_map(f64::to_bits),
            (-1000..1000_i64).prop_map(|i| (i as f64).to_bits()),
            (0..100_000_i64).prop_map(|i| (i as f64 / 1000.0).to_bits()),
            prop::sample::select(vec![
                STALE_BITS,
                f64::NAN.to_bits(),
                f64::INFINITY.to_bits(),
                f64::NEG_INFINITY.to_bits(),
                (-0.0_f64).to_bits(),
                f64::MIN_POSITIVE.to_bits(),
                1,
                u64::MAX,
                f64::MAX.to_bits(),
                9_007_199_254_740_993_f64.to_bits(),
            ]),
        ]
    }

    proptest! {
        #[test]
        fn chunks_round_trip(times in any_times(), pool in prop::collection::vec(any_bits(), 1..20), base: i64) {
            let bits: Vec<u64> = times.iter().zip(pool.iter().cycle()).map(|(_, b)| *b).collect();
            let bytes = encode(base, &times, &bits);
            let head = ChunkHead::decode(&bytes, base).unwrap();
            prop_assert_eq!((head.count, head.first, Some(&head.last)), (times.len(), times[0], times.last()));
            prop_assert_eq!(decode(&bytes, base).unwrap(), (times, bits));
        }

        #[test]
        fn parts_of_chunks_are_parts_of_their_samples(
            times in any_times(),
            pool in prop::collection::vec(any_bits(), 1..20),
            bounds in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), -1..2_i64, -1..2_i64),
        ) {
            let bits: Vec<u64> = times.iter().zip(pool.iter().cycle()).map(|(_, b)| *b).collect();
            let bytes = encode(7, &times, &bits);
            let from = bounds.0.get(&times).saturating_add(bounds.2);
            let to = bounds.1.get(&times).saturating_add(bounds.3);
            let (mut found, mut values) = (Vec::new(), Vec::new());
            let head = ChunkHead::decode(&bytes, 7).unwrap();
            head.samples_within((from, to), &mut found, &mut values).unwrap();
            let inside = times.iter().zip(&bits).filter(|(time, _)| from <= **time && **time <= to);
            let (wanted, wanted_values): (Vec<i64>, Vec<u64>) = inside.map(|(t, b)| (*t, *b)).unzip();
            prop_assert_eq!((found, values), (wanted, wanted_values));
        }

        #[test]
        fn samples_around_times_are_found_among_all(
            times in prop_oneof![any_times(), (0..50_i64, 1..9_i64, 100..400_i64)
                .prop_map(|(first, step, n)| (0..n).map(|i| first + i * step).collect::<Vec<i64>>())],
            pool in prop::collection::vec(any_bits(), 1..20),
            mut marks in prop::collection::vec((any::<prop::sample::Index>(), -2..3_i64), 0..8),
            bounds in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), -1..2_i64, -1..2_i64),
            both: bool,
        ) {
            let bits: Vec<u64> = times.iter().zip(pool.iter().cycle()).map(|(_, b)| *b).collect();
            let bytes = encode(7, &times, &bits);
            let from = bounds.0.get(&times).saturating_add(bounds.2);
            let to = bounds.1.get(&times).saturating_add(bounds.3);
            let mut marks: Vec<i64> =
                marks.drain(..).map(|(at, more)| at.get(&times).saturating_add(more)).collect();
            marks.sort_unstable();
            let (mut found, mut values, mut counts) = (Vec::new(), Vec::new(), Vec::new());
            let head = ChunkHead::decode(&bytes, 7).unwrap();
            let around = Around { marks: &marks, which: if both { Which::Both } else { Which::Before } };
            if !head.samples_around((from, to), &around, (&mut found, &mut values), &mut counts).unwrap() {
                prop_assert!(found.is_empty() && values.is_empty() && counts.is_empty());
                return Ok(());
            }
            let inside: Vec<(i64, u64)> =
                times.iter().zip(&bits).map(|(t, b)| (*t, *b)).filter(|(t, _)| from <= *t && *t <= to).collect();
            let found: Vec<(i64, u64)> = found.into_iter().zip(values.iter().map(|v| v.to_bits())).collect();
            prop_assert_eq!(found.last(), inside.last());
            prop_assert_eq!(counts.len(), found.len());
            if both {
                prop_assert_eq!(found.first(), inside.first());
                prop_assert_eq!(counts.iter().sum::<u32>() as usize, inside.len());
            }
            for mark in marks {
                let before = |all: &[(i64, u64)]| all.iter().rev().find(|(t, _)| *t <= mark).copied();
                let behind = |all: &[(i64, u64)]| all.iter().find(|(t, _)| *t > mark).copied();
                prop_assert_eq!(before(&found), before(&inside));
                prop_assert!(!both || behind(&found) == behind(&inside));
            }
        }

        #[test]
        fn parts_equal_aggregates_of_their_samples(
            step in 1..9_i64,
            pool in prop::collection::vec(prop_oneof![any_bits(), (0..1000_i64).prop_map(|i| (i as f64).to_bits())], 1..4),
            rise in 0..3_i64,
            mut marks in prop::collection::vec(-10..4_000_i64, 0..8),
            (from, to) in (-10..2_000_i64, 1_000..4_000_i64),
            part in prop::sample::select(vec![Part::Sum, Part::Least, Part::Greatest]),
        ) {
            let times: Vec<i64> = (0..400).map(|i| i * step).collect();
            let values: Vec<f64> = (0_i64..400)
                .zip(pool.iter().cycle())
                .map(|(i, b)| if rise > 0 { (i * rise + (*b % 7) as i64) as f64 } else { f64::from_bits(*b) })
                .collect();
            let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
            let bytes = encode(7, &times, &bits);
            marks.sort_unstable();
            let (mut found, mut sums, mut counts) = (Vec::new(), Vec::new(), Vec::new());
            let head = ChunkHead::decode(&bytes, 7).unwrap();
            let columns = (&mut found, &mut sums);
            if !head.parts_between((from, to), (&marks, part), columns, &mut counts).unwrap() {
                prop_assert!(found.is_empty() && sums.is_empty() && counts.is_empty());
                prop_assert!(rise == 0);
                return Ok(());
            }
            let inside: Vec<(i64, f64)> =
                times.iter().copied().zip(values).filter(|(t, _)| from <= *t && *t <= to).collect();
            let border = |time: i64| marks.partition_point(|mark| *mark < time);
            let parts: Vec<_> = inside.chunk_by(|a, b| border(a.0) == border(b.0)).collect();
            prop_assert_eq!(found, parts.iter().map(|part| part[0].0).collect::<Vec<_>>());
            prop_assert_eq!(counts, parts.iter().map(|part| part.len() as u32).collect::<Vec<_>>());
            for (sum, samples) in sums.into_iter().zip(parts) {
                let values = samples.iter().map(|(_, value)| *value);
                let wanted = match part {
                    Part::Sum => values.sum::<f64>(),
                    Part::Least => values.fold(f64::INFINITY, f64::min),
                    Part::Greatest => values.fold(f64::NEG_INFINITY, f64::max),
                };
                // Sums that overflow are infinite on both sides, where a difference is NaN.
                prop_assert!(sum == wanted || (sum - wanted).abs() <= 1e-12 * wanted.abs(), "{sum} {wanted}");
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(mut bytes: Vec<u8>, form in 0..4_u8, base: i64) {
            bytes.insert(0, form);
            let _ = decode(&bytes, base);
            if let Ok(head) = ChunkHead::decode(&bytes, base) {
                let around = Around { marks: &[head.first], which: Which::Both };
                let all = (i64::MIN, i64::MAX);
                let _ = head.samples_around(all, &around, (&mut Vec::new(), &mut Vec::new()), &mut Vec::new());
            }
        }

        #[test]
        fn a_changed_byte_is_no_panic(times in any_times(), at: prop::sample::Index, to: u8) {
            let bits: Vec<u64> = times.iter().map(|t| (*t as f64).to_bits()).collect();
            let mut bytes = encode(0, &times, &bits);
            let at = at.index(bytes.len());
            bytes[at] = to;
            let _ = decode(&bytes, 0);
        }
    }

    #[test]
    fn golden_bytes() {
        let one = |v: f64| v.to_bits();
        // Equal steps, a constant: times 1000, 16000, 31000 relative to 1000.
        let bytes = encode(1000, &[1000, 16_000, 31_000], &[one(1.0); 3]);
        assert_eq!(bytes, [1, 3, 0, 0xb0, 0xea, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        // Steps 10, 11, 10 and integers 5, 7, 9, 20.
        let bytes = encode(0, &[0, 10, 21, 31], &[5.0, 7.0, 9.0, 20.0].map(one));
        assert_eq!(hex(&bytes), "0104001f01140200060100000a010000040020f4");
    }

    #[test]
    fn aggregates_leave_staleness_markers_out() {
        let mut bits: Vec<u64> = (0..600).map(|i| f64::from(i % 300).to_bits()).collect();
        bits[10] = STALE_BITS;
        let times: Vec<i64> = (0..600).collect();
        let bytes = encode(0, &times, &bits);
        let found = ChunkHead::decode(&bytes, 0).unwrap().aggregates().unwrap().unwrap();
        let sum = 2.0 * (299.0 * 300.0 / 2.0) - 10.0;
        let expected =
            Aggregates { count: 599, sum, min: 0.0, max: 299.0, first: 0.0, last: 299.0, resets: 1 };
        assert_eq!(found, expected);
        assert!(Aggregates::of(&[STALE_BITS]).is_none());
    }

    #[test]
    fn golden_aggregates() {
        let mut bytes = Vec::new();
        let counter =
            Aggregates { count: 5, sum: 60.0, min: 1.5, max: 20.0, first: 1.5, last: 20.0, resets: 0 };
        counter.put(5, &mut bytes);
        assert_eq!(hex(&bytes), "090078011e002800");
        bytes.clear();
        let gauge = Aggregates {
            count: 4,
            sum: f64::INFINITY,
            min: 0.0,
            max: 3.0,
            first: 2.0,
            last: 1.0,
            resets: 300,
        };
        gauge.put(5, &mut bytes);
        assert_eq!(hex(&bytes), "10ff000000000000f07f0004000200000006ac0204");
    }

    proptest! {
        #[test]
        fn aggregates_round_trip(bits in prop::collection::vec(any_bits(), 1..20), more in 0..2_usize) {
            let Some(aggregates) = Aggregates::of(&bits) else { return Ok(()) };
            let mut bytes = Vec::new();
            aggregates.put(bits.len() + more, &mut bytes);
            let mut decoder = Decoder::new(&bytes);
            let back = Aggregates::take(bits.len() + more, &mut decoder).unwrap();
            prop_assert!(decoder.is_empty());
            prop_assert_eq!(format!("{back:?}"), format!("{aggregates:?}"));
        }
    }
}
