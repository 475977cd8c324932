//! The value column of a chunk.
//!
//! ```text
//! u8 coding
//! 0 constant   8 bytes: the bits of every value
//! 1 decimals   u8 e │ numbers of exceptions varint, each: gap to the one before varint, bits 8 bytes
//!              │ first m signed │ unit varint │ column of (m − first m) / unit      value = m / 10^e
//! 2 bits       column of the bits themselves
//!
//! column       u8 transform │ …
//! 0 offsets    least signed │ packed n: value − least
//! 1 steps      packed n − 1: zigzag of the differences               (of bits: first 8 bytes in front)
//! 2 bends      first step signed │ packed n − 2: zigzag of the differences of the differences
//! 3 xor        u8 shift │ packed n − 1: (value xor the one before) >> shift
//! 4 rises      least signed │ packed n − 1: difference − least             (of integers only)
//! ```
//! Most metrics are counters and gauges that are integers, or decimals with few places: they are packed as
//! such, and an exception (a NaN, an infinity, a negative zero, a value with more places) costs nine bytes.
//! Other values are packed by their bits. A value is a decimal only if dividing restores its exact bits, so
//! nothing is ever lost. Rising values need no sign, which saves a bit per step; the reset of a counter is
//! then an exception among the packed numbers.
//!
//! Source: ALP, Afroozeh et al., SIGMOD 2023, for decimals as integers; the transforms are the usual ones.

use std::ops::Range;

use ropewalk_base::{DecodeError, Decoder, put_varint, zigzag};

use crate::chunk::Part;
use crate::chunk::int_column::{BENDS, OFFSETS, RISES, STEPS, XOR, column_at, decode_column};
use crate::sample::pack::{FRAME, pack, packed_len, put_signed, signed_len, take_signed};

const CONSTANT: u8 = 0;
const DECIMALS: u8 = 1;
const BITS: u8 = 2;

/// Powers that decimals may be divided by.
const POWERS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Above this not every integer is a float.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// Number of values examined for their decimal places.
const PROBES: usize = 16;
/// Number of values by which a transform is chosen when it must be fast: two frames.
const BRIEF: usize = 2 * FRAME;

/// The integer m with `m / 10^e == value`, to the bit.
#[inline]
fn decimal(value: f64, power: f64) -> Option<i64> {
    let scaled = value * power;
    if scaled.is_nan() || scaled.abs() >= INTEGER_MAX {
        return None;
    }
    // Above this every float is an integer, and adding a half would round. Rounding itself is a call on older processors.
    let half = if scaled.abs() < 4_503_599_627_370_496.0 { 0.5_f64.copysign(scaled) } else { 0.0 };
    let m = (scaled + half) as i64;
    (((m as f64) / power).to_bits() == value.to_bits()).then_some(m)
}

/// Marks a number that is not a short decimal.
const RAW: u8 = 255;

/// Appends one number: its decimal places and an integer, or eight bytes.
pub(crate) fn put_float(value: f64, out: &mut Vec<u8>) {
    let decimals = (0_u8..).zip(POWERS).find_map(|(e, power)| Some((e, decimal(value, power)?)));
    match decimals {
        Some((e, m)) => {
            out.push(e);
            put_signed(out, m);
        }
        None => {
            out.push(RAW);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
    }
}

/// Reads a number that [`put_float`] wrote.
pub(crate) fn take_float(decoder: &mut Decoder<'_>) -> Result<f64, DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("decimal places")? {
        RAW => Ok(f64::from_bits(decoder.u64("number")?)),
        e => {
            let power = POWERS.get(usize::from(e));
            let power = power.ok_or(DecodeError { what: "at most 9 decimal places", offset })?;
            Ok(take_signed(decoder, "number")? as f64 / power)
        }
    }
}

/// Scratch memory, reused from chunk to chunk.
#[derive(Default)]
pub(crate) struct ValueEncoder {
    /// Examine fewer values before deciding.
    pub(crate) is_brief: bool,
    integers: Vec<u64>,
    exceptions: Vec<(usize, u64)>,
    best: Vec<u64>,
    trial: Vec<u64>,
}

impl ValueEncoder {
    /// Appends the column of `bits`, at least one.
    pub(crate) fn encode(&mut self, bits: &[u64], out: &mut Vec<u8>) {
        let first = *bits.first().expect("a column has numbers");
        if bits.iter().all(|b| *b == first) {
            out.push(CONSTANT);
            out.extend_from_slice(&first.to_le_bytes());
        } else if let Some(e) = self.as_decimals(bits) {
            self.encode_decimals(e, out);
        } else {
            out.push(BITS);
            let mut column = std::mem::take(&mut self.integers);
            column.clear();
            column.extend_from_slice(bits);
            self.encode_bits(&column, out);
            self.integers = column;
        }
    }

    /// Fills `integers` and `exceptions`, unless too many values are not decimals.
    fn as_decimals(&mut self, bits: &[u64]) -> Option<usize> {
        let stride = (bits.len() / PROBES).max(1);
        let places = |b: &u64| {
            let value = f64::from_bits(*b);
            POWERS.iter().position(|power| decimal(value, *power).is_some())
        };
        let e = bits.iter().step_by(stride).filter_map(places).max()?;
        let power = POWERS.get(e).copied()?;
        let exceptions_max = bits.len() / 12 + 1;
        self.integers.clear();
        self.exceptions.clear();
        let mut before = None;
        for (index, b) in bits.iter().enumerate() {
            match decimal(f64::from_bits(*b), power) {
                Some(m) => {
                    if before.is_none() {
                        // Exceptions at the start take the first integer, so that they cost nothing in the
                        // column.
                        self.integers.fill(m as u64);
                    }
                    before = Some(m);
                }
                None if self.exceptions.len() == exceptions_max => return None,
                None => self.exceptions.push((index, *b)),
            }
            self.integers.push(before.unwrap_or(0) as u64);
        }
        debug_assert_eq!(self.integers.len(), bits.len(), "exceptions have places in the column, too");
        before.map(|_| e)
    }

    fn encode_decimals(&mut self, e: usize, out: &mut Vec<u8>) {
        out.push(DECIMALS);
        out.push(e as u8);
        put_varint(out, self.exceptions.len() as u64);
        let mut next = 0;
        for (index, bits) in &self.exceptions {
            put_varint(out, (index - next) as u64);
            out.extend_from_slice(&bits.to_le_bytes());
            next = index + 1;
        }
        let mut column = std::mem::take(&mut self.integers);
        let first = *column.first().expect("a column has numbers") as i64;
        // |m| < 2^53, so differences neither overflow nor need all bits.
        let mut unit = 0;
        for m in &column {
            unit = gcd(unit, (*m as i64 - first).unsigned_abs());
            if unit == 1 {
                break;
            }
        }
        let unit = unit.max(1);
        for m in &mut column {
            *m = ((*m as i64 - first) / unit as i64) as u64;
        }
        put_signed(out, first);
        put_varint(out, unit);
        self.encode_integers(&column, out);
        self.integers = column;
    }

    /// A column of signed integers whose first is zero, in the transform that packs best.
    fn encode_integers(&mut self, column: &[u64], out: &mut Vec<u8>) {
        debug_assert_eq!(column.first(), Some(&0), "integers are relative to the first");
        let least = column.iter().map(|v| *v as i64).min().unwrap_or(0);
        offsets(column, least, &mut self.best);
        let (mut transform, mut bytes) = (OFFSETS, packed_len(&self.best) + signed_len(least));
        let rise = least_rise(column);
        match rise {
            Some(rise) => rises(column, rise, &mut self.trial),
            None => steps(column, &mut self.trial),
        }
        let trial_bytes = packed_len(&self.trial) + rise.map_or(0, signed_len);
        if trial_bytes < bytes {
            (transform, bytes) = (if rise.is_some() { RISES } else { STEPS }, trial_bytes);
            std::mem::swap(&mut self.best, &mut self.trial);
        }
        let first_step = column.get(1).map_or(0, |v| *v as i64);
        bends(column, &mut self.trial);
        if packed_len(&self.trial) + signed_len(first_step) < bytes {
            transform = BENDS;
            std::mem::swap(&mut self.best, &mut self.trial);
        }
        out.push(transform);
        match transform {
            OFFSETS => put_signed(out, least),
            BENDS => put_signed(out, first_step),
            RISES => put_signed(out, rise.expect("rises are tried with a least rise")),
            _ => {}
        }
        pack(&self.best, out);
    }

    fn encode_bits(&mut self, column: &[u64], out: &mut Vec<u8>) {
        let first = *column.first().expect("a column has numbers");
        let least = column.iter().map(|v| *v as i64).min().unwrap_or(0);
        // A transform that packs a part best also packs the whole well.
        let part = if self.is_brief { column.get(..BRIEF).unwrap_or(column) } else { column };
        offsets(part, least, &mut self.best);
        let (mut transform, mut bytes) = (OFFSETS, packed_len(&self.best) + signed_len(least));
        steps(part, &mut self.trial);
        let trial_bytes = packed_len(&self.trial) + 8;
        if trial_bytes < bytes {
            (transform, bytes) = (STEPS, trial_bytes);
            std::mem::swap(&mut self.best, &mut self.trial);
        }
        let mut shift = xors(part, &mut self.trial);
        if packed_len(&self.trial) + 9 < bytes {
            transform = XOR;
            std::mem::swap(&mut self.best, &mut self.trial);
        }
        if part.len() < column.len() {
            match transform {
                OFFSETS => offsets(column, least, &mut self.best),
                STEPS => steps(column, &mut self.best),
                _ => shift = xors(column, &mut self.best),
            }
        }
        out.push(transform);
        match transform {
            OFFSETS => put_signed(out, least),
            _ => out.extend_from_slice(&first.to_le_bytes()),
        }
        if transform == XOR {
            out.push(shift);
        }
        pack(&self.best, out);
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn offsets(column: &[u64], least: i64, out: &mut Vec<u64>) {
    out.clear();
    out.extend(column.iter().map(|v| v.wrapping_sub(least as u64)));
}

fn differences(column: &[u64]) -> impl Iterator<Item = i64> {
    column.iter().zip(column.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a) as i64)
}

fn steps(column: &[u64], out: &mut Vec<u64>) {
    out.clear();
    out.extend(differences(column).map(zigzag));
}

/// The least step that does not fall, of a column in which next to none falls.
fn least_rise(column: &[u64]) -> Option<i64> {
    let (mut falls, mut least) = (0, i64::MAX);
    for step in differences(column) {
        if step < 0 { falls += 1 } else { least = least.min(step) }
    }
    (falls * FRAME < column.len()).then_some(least).filter(|least| *least < i64::MAX)
}

fn rises(column: &[u64], least: i64, out: &mut Vec<u64>) {
    out.clear();
    out.extend(differences(column).map(|step| step.wrapping_sub(least) as u64));
}

fn bends(column: &[u64], out: &mut Vec<u64>) {
    out.clear();
    let pairs = differences(column).zip(differences(column).skip(1));
    out.extend(pairs.map(|(a, b)| zigzag(b.wrapping_sub(a))));
}

fn xors(column: &[u64], out: &mut Vec<u64>) -> u8 {
    out.clear();
    out.extend(column.iter().zip(column.iter().skip(1)).map(|(a, b)| a ^ b));
    let shift = out.iter().fold(0, |all, v| all | v).trailing_zeros().min(63);
    out.iter_mut().for_each(|v| *v >>= shift);
    shift as u8
}

/// Target type of decoding: floats, or their bits.
pub(crate) trait Stored: Copy {
    /// From a number.
    fn of_float(value: f64) -> Self;
    /// From the bits of a number.
    fn of_bits(bits: u64) -> Self;
}

impl Stored for f64 {
    #[inline]
    fn of_float(value: f64) -> Self {
        value
    }

    #[inline]
    fn of_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
}

impl Stored for u64 {
    #[inline]
    fn of_float(value: f64) -> Self {
        value.to_bits()
    }

    #[inline]
    fn of_bits(bits: u64) -> Self {
        bits
    }
}

/// The bits of every value, where all are the same.
pub(crate) fn constant(decoder: &mut Decoder<'_>) -> Result<Option<u64>, DecodeError> {
    match decoder.u8("coding of values")? {
        CONSTANT => Ok(Some(decoder.u64("constant value")?)),
        _ => Ok(None),
    }
}

/// Appends those of `count` values that are `wanted`; later values are not read.
///
/// # Errors
/// The bytes are not such a column.
pub(crate) fn decode<V: Stored>(
    decoder: &mut Decoder<'_>,
    count: usize,
    wanted: Range<usize>,
    out: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("coding of values")? {
        CONSTANT => {
            let constant = decoder.u64("constant value")?;
            out.resize(out.len() + wanted.len(), V::of_bits(constant));
            Ok(())
        }
        DECIMALS => decode_decimals(decoder, count, wanted, out),
        BITS => decode_column(decoder, count, wanted, true, out, V::of_bits),
        _ => Err(DecodeError { what: "a known coding of values", offset }),
    }
}

/// The head of a column of decimals.
struct Decimals<'a> {
    e: usize,
    power: f64,
    exceptions: u64,
    exceptions_at: Decoder<'a>,
    first: i64,
    unit: i64,
}

impl<'a> Decimals<'a> {
    fn take(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let e = usize::from(decoder.u8("decimal places")?);
        let power = *POWERS.get(e).ok_or(DecodeError { what: "at most 9 decimal places", offset })?;
        let exceptions = decoder.varint("number of exceptions")?;
        let exceptions_at = *decoder;
        for _ in 0..exceptions {
            decoder.varint("place of an exception")?;
            decoder.u64("value of an exception")?;
        }
        let first = take_signed(decoder, "first integer")?;
        let unit = decoder.varint("unit")? as i64;
        Ok(Self { e, power, exceptions, exceptions_at, first, unit })
    }

    #[inline]
    fn integer(&self, value: u64) -> f64 {
        self.first.wrapping_add((value as i64).wrapping_mul(self.unit)) as f64
    }

    /// Passes place and bits of each exception to `each`.
    fn each_exception(&self, count: usize, mut each: impl FnMut(usize, u64)) -> Result<(), DecodeError> {
        let mut decoder = self.exceptions_at;
        let mut next = 0_u64;
        for _ in 0..self.exceptions {
            let offset = decoder.offset();
            let index = next.saturating_add(decoder.varint("place of an exception")?);
            let bits = decoder.u64("value of an exception")?;
            let place = usize::try_from(index).ok().filter(|index| *index < count);
            each(place.ok_or(DecodeError { what: "an exception inside its chunk", offset })?, bits);
            next = index + 1;
        }
        Ok(())
    }
}

fn decode_decimals<V: Stored>(
    decoder: &mut Decoder<'_>,
    count: usize,
    wanted: Range<usize>,
    out: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let head = Decimals::take(decoder)?;
    let start = out.len();
    // Dividing is the slowest part, and most metrics count.
    match head.e {
        0 => decode_column(decoder, count, wanted.clone(), false, out, |m| V::of_float(head.integer(m)))?,
        _ => decode_column(decoder, count, wanted.clone(), false, out, |m| {
            V::of_float(head.integer(m) / head.power)
        })?,
    }
    head.each_exception(count, |place, bits| {
        if wanted.contains(&place)
            && let Some(slot) = out.get_mut(start + place - wanted.start)
        {
            *slot = V::of_bits(bits);
        }
    })
}

/// Appends those of `count` values that are at `places`, which rise; values after the last place are not
/// read. Cost: values between two places are unpacked and summed up, but not converted to numbers.
///
/// # Errors
/// The bytes are not such a column.
pub(crate) fn decode_at<V: Stored>(
    decoder: &mut Decoder<'_>,
    count: usize,
    places: &[u32],
    out: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("coding of values")? {
        CONSTANT => {
            let constant = decoder.u64("constant value")?;
            out.resize(out.len() + places.len(), V::of_bits(constant));
            Ok(())
        }
        DECIMALS => {
            let head = Decimals::take(decoder)?;
            let start = out.len();
            let value = |m| V::of_float(head.integer(m) / head.power);
            column_at(decoder, count, places, false, |m| out.push(value(m)))?;
            head.each_exception(count, |place, bits| {
                if let Ok(at) = places.binary_search(&(place as u32))
                    && let Some(slot) = out.get_mut(start + at)
                {
                    *slot = V::of_bits(bits);
                }
            })
        }
        BITS => column_at(decoder, count, places, true, |bits| out.push(V::of_bits(bits))),
        _ => Err(DecodeError { what: "a known coding of values", offset }),
    }
}

/// Appends the aggregate `part` of each of `parts`, places that follow each other without a gap. Returns
/// false, and appends nothing, when that would take more than a scan over integers: with exceptions, for sums
/// of decimals, and for bits.
///
/// # Errors
/// The bytes are not such a column.
pub(crate) fn fold(
    decoder: &mut Decoder<'_>,
    count: usize,
    parts: &[Range<usize>],
    part: Part,
    out: &mut Vec<f64>,
) -> Result<bool, DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("coding of values")? {
        CONSTANT => {
            let value = f64::from_bits(decoder.u64("constant value")?);
            let of =
                |range: &Range<usize>| if part == Part::Sum { value * range.len() as f64 } else { value };
            if value.is_finite() {
                out.extend(parts.iter().map(of));
            }
            return Ok(value.is_finite());
        }
        DECIMALS => {}
        BITS => return Ok(false),
        _ => return Err(DecodeError { what: "a known coding of values", offset }),
    }
    let head = Decimals::take(decoder)?;
    if head.exceptions > 0 || head.unit <= 0 || part == Part::Sum && head.e > 0 {
        return Ok(false);
    }
    debug_assert!(parts.is_sorted_by(|a, b| a.end == b.start), "parts follow each other: {parts:?}");
    let start = parts.first().map_or(0, |part| part.start);
    let end = parts.last().map_or(0, |part| part.end);
    let mut column: Vec<i64> = Vec::new();
    decode_column(decoder, count, start..end, false, &mut column, |value| value as i64)?;
    // The absolute value of an integer is below 2^53, that of a column below 2^54, and a chunk holds 2^13.
    let (first, unit) = (i128::from(head.first), i128::from(head.unit));
    out.extend(parts.iter().map(|range| {
        let values = column.get(range.start - start..range.end - start).expect("parts lie in the column");
        let integer = |value: Option<&i64>| head.integer(value.copied().unwrap_or(0) as u64) / head.power;
        match part {
            Part::Least => integer(values.iter().min()),
            Part::Greatest => integer(values.iter().max()),
            Part::Sum => {
                let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
                first.wrapping_mul(values.len() as i128).wrapping_add(unit.wrapping_mul(sum)) as f64
            }
        }
    }));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(values: &[f64]) -> usize {
        let bits: Vec<u64> = values.iter().map(|v| v.to_bits()).collect();
        let mut bytes = Vec::new();
        ValueEncoder::default().encode(&bits, &mut bytes);
        let mut back: Vec<u64> = Vec::new();
        let mut decoder = Decoder::new(&bytes);
        decode(&mut decoder, bits.len(), 0..bits.len(), &mut back).unwrap();
        assert!(decoder.is_empty());
        assert_eq!(back, bits);
        for stride in [1, 2, 7, 127, 128, 129, 500] {
            for offset in [0, 1, 5] {
                let places: Vec<u32> = (offset..bits.len() as u32).step_by(stride).collect();
                let wanted: Vec<u64> = places.iter().map(|place| bits[*place as usize]).collect();
                let mut found: Vec<u64> = Vec::new();
                decode_at(&mut Decoder::new(&bytes), bits.len(), &places, &mut found).unwrap();
                assert_eq!(found, wanted, "every {stride} from {offset}");
            }
        }
        bytes.len()
    }

    /// A small generator, so that sizes are the same in every run.
    fn noise(n: usize) -> impl Iterator<Item = u64> {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        })
        .take(n)
    }

    #[test]
    fn encoded_sizes_match_the_information_content() {
        let n = 1024;
        assert_eq!(len(&vec![1.5; n]), 9);
        let linear: Vec<f64> = (0..n).map(|i| 1e6 + 7.0 * i as f64).collect();
        assert!(len(&linear) < 40, "{}", len(&linear));
        let rare: Vec<f64> = noise(n)
            .scan(0.0, |c, x| {
                *c += f64::from(x % 20 == 0);
                Some(*c)
            })
            .collect();
        assert!(len(&rare) <= n / 8 + 40, "{}", len(&rare));
        let counter: Vec<f64> = noise(n)
            .scan(1e9, |c, x| {
                *c += (x % 1000) as f64;
                Some(*c)
            })
            .collect();
        assert!(len(&counter) <= n * 10 / 8 + 40, "{}", len(&counter));
        let reset: Vec<f64> = counter.iter().map(|c| if *c < 1e9 + 2e5 { *c } else { *c - 1e9 }).collect();
        assert!(len(&reset) <= len(&counter) + 16, "{}", len(&reset));
        let pages: Vec<f64> = noise(n).map(|x| (1000 + x % 64) as f64 * 4096.0).collect();
        assert!(len(&pages) <= n * 6 / 8 + 40, "{}", len(&pages));
        let load: Vec<f64> = noise(n).map(|x| (x % 400) as f64 / 100.0).collect();
        assert!(len(&load) <= n * 9 / 8 + 40, "{}", len(&load));
        let uniform: Vec<f64> = noise(n).map(|x| (x >> 11) as f64 / (1_u64 << 53) as f64 * 100.0).collect();
        assert!(len(&uniform) <= n * 7 + 40, "{}", len(&uniform));
    }

    #[test]
    fn exceptions_are_cheap() {
        let mut values: Vec<f64> = (0..1024).map(f64::from).collect();
        let before = len(&values);
        values[0] = f64::NAN;
        values[500] = -0.0;
        values[1023] = f64::INFINITY;
        assert!(len(&values) < before + 48);
    }
}
