//! The chunks of a block: floats, histograms of whole counts, histograms of floats.
//!
//!   u16 samples │ floats: first time, first value, step, then bends of the time and xors of the value, in bits
//!               │ histograms: u8 reset │ layout │ first sample │ each: bends of time and counts (or xors), xor of the sum

use std::sync::Arc;

use ropewalk_labels::{BUCKETS_MAX, Bucket, CUSTOM_SCHEMA, Histogram, ResetHint, STALE_BITS, Samples};

use super::bits::Bits;

const FLOATS: u8 = 1;
const HISTOGRAMS: u8 = 2;
const FLOAT_HISTOGRAMS: u8 = 3;

/// Why a chunk yields no samples.
pub(super) enum Refusal {
    Damaged(&'static str),
    Encoding(u8),
}

/// Appends the samples of a chunk, except those not later than the existing ones.
pub(super) fn decode(encoding: u8, data: &[u8], out: &mut Samples) -> Result<(), Refusal> {
    let (count, rest) = data.split_first_chunk::<2>().ok_or(Refusal::Damaged("the number of samples"))?;
    let count = u16::from_be_bytes(*count);
    let done = match encoding {
        FLOATS => floats(count, rest, out),
        HISTOGRAMS => histograms::<Whole>(count, rest, out),
        FLOAT_HISTOGRAMS => histograms::<Float>(count, rest, out),
        other => return Err(Refusal::Encoding(other)),
    };
    done.ok_or(Refusal::Damaged("as many samples as the chunk says, and known histograms"))
}

fn push(out: &mut Samples, time: i64, value: f64, histogram: Option<Histogram>) {
    if out.times_ms.last().is_some_and(|last| time <= *last) {
        return;
    }
    if histogram.is_some() && out.histograms.is_empty() {
        out.histograms.resize(out.times_ms.len(), None);
    }
    out.times_ms.push(time);
    out.values.push(value);
    if histogram.is_some() || !out.histograms.is_empty() {
        out.histograms.push(histogram.map(Arc::new));
    }
}

/// A float, each stored as its xor with the previous one.
#[derive(Default, Clone, Copy)]
struct Xor {
    bits: u64,
    leading: u32,
    trailing: u32,
}

impl Xor {
    fn first(bits: &mut Bits<'_>) -> Option<Self> {
        Some(Self { bits: bits.bits(64)?, ..Self::default() })
    }

    fn step(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        if !bits.bit()? {
            return Some(());
        }
        if bits.bit()? {
            self.leading = bits.bits(5)? as u32;
            let significant = match bits.bits(6)? as u32 {
                0 => 64,
                some => some,
            };
            self.trailing = 64_u32.checked_sub(self.leading + significant)?;
        }
        let significant = 64 - self.leading - self.trailing;
        self.bits ^= bits.bits(significant)? << self.trailing;
        Some(())
    }
}

fn floats(count: u16, data: &[u8], out: &mut Samples) -> Option<()> {
    let mut bits = Bits::new(data);
    if count == 0 {
        return Some(());
    }
    let mut time = bits.varint()?;
    let mut value = Xor::first(&mut bits)?;
    push(out, time, f64::from_bits(value.bits), None);
    let mut step = 0_i64;
    for at in 1..count {
        if at == 1 {
            step = bits.uvarint()? as i64;
        } else {
            let bend = match bits.ones(4)? {
                0 => 0,
                1 => bits.signed(14)?,
                2 => bits.signed(17)?,
                3 => bits.signed(20)?,
                _ => bits.bits(64)? as i64,
            };
            step = step.wrapping_add(bend);
        }
        time = time.wrapping_add(step);
        value.step(&mut bits)?;
        push(out, time, f64::from_bits(value.bits), None);
    }
    Some(())
}

/// Properties that all histograms of a chunk share.
struct Layout {
    zero_threshold: f64,
    schema: i8,
    positive: Vec<i32>,
    negative: Vec<i32>,
    custom: Arc<[f64]>,
}

fn layout(bits: &mut Bits<'_>) -> Option<Layout> {
    let zero_threshold = match bits.byte()? {
        0 => 0.0,
        255 => bits.float()?,
        power => 2_f64.powi(i32::from(power) - 244),
    };
    let schema = i8::try_from(bits.varbit_int()?).ok()?;
    let (positive, negative) = (spans(bits)?, spans(bits)?);
    let mut custom = Vec::new();
    if schema == CUSTOM_SCHEMA {
        let count = bits.varbit_uint().filter(|count| *count <= BUCKETS_MAX as u64)?;
        for _ in 0..count {
            custom.push(match bits.varbit_uint()? {
                0 => bits.float()?,
                thousandths => (thousandths - 1) as f64 / 1000.0,
            });
        }
    }
    Some(Layout { zero_threshold, schema, positive, negative, custom: custom.into() })
}

/// The indexes of the buckets of one side.
fn spans(bits: &mut Bits<'_>) -> Option<Vec<i32>> {
    let (mut indexes, mut next) = (Vec::new(), 0_i64);
    for _ in 0..bits.varbit_uint()? {
        let length = bits.varbit_uint()?;
        next = next.checked_add(bits.varbit_int()?)?;
        if length > (BUCKETS_MAX - indexes.len()) as u64 {
            return None;
        }
        for _ in 0..length {
            indexes.push(i32::try_from(next).ok()?);
            next += 1;
        }
    }
    Some(indexes)
}

/// How the counts of a chunk are written.
trait Count: Sized + Copy + Default {
    /// Count, count of the zero bucket.
    fn first(bits: &mut Bits<'_>) -> Option<Self>;
    /// The first count of a bucket: whole counts relative to the previous bucket.
    fn first_of_bucket(bits: &mut Bits<'_>) -> Option<Self>;
    fn step(&mut self, bits: &mut Bits<'_>) -> Option<()>;
    fn value(&self) -> f64;
    /// The count of a bucket after one with the count `before`.
    fn of_bucket(&self, before: f64) -> f64;
}

/// A whole number, by the differences of its differences.
#[derive(Clone, Copy, Default)]
struct Whole {
    now: i64,
    step: i64,
}

impl Count for Whole {
    fn first(bits: &mut Bits<'_>) -> Option<Self> {
        Some(Self { now: bits.varbit_uint()? as i64, step: 0 })
    }

    fn first_of_bucket(bits: &mut Bits<'_>) -> Option<Self> {
        Some(Self { now: bits.varbit_int()?, step: 0 })
    }

    fn step(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        self.step = self.step.wrapping_add(bits.varbit_int()?);
        self.now = self.now.wrapping_add(self.step);
        Some(())
    }

    fn value(&self) -> f64 {
        self.now as u64 as f64
    }

    fn of_bucket(&self, before: f64) -> f64 {
        before + self.now as f64
    }
}

/// A float, stored as its xor with the previous one.
#[derive(Clone, Copy, Default)]
struct Float(Xor);

impl Count for Float {
    fn first(bits: &mut Bits<'_>) -> Option<Self> {
        Xor::first(bits).map(Self)
    }

    fn first_of_bucket(bits: &mut Bits<'_>) -> Option<Self> {
        Self::first(bits)
    }

    fn step(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        self.0.step(bits)
    }

    fn value(&self) -> f64 {
        f64::from_bits(self.0.bits)
    }

    fn of_bucket(&self, _before: f64) -> f64 {
        self.value()
    }
}

fn histograms<C: Count>(count: u16, data: &[u8], out: &mut Samples) -> Option<()> {
    let mut bits = Bits::new(data);
    let mut hint = match bits.byte()? >> 6 {
        0 => ResetHint::Unknown,
        1 => ResetHint::NotReset,
        2 => ResetHint::Reset,
        _ => ResetHint::Gauge,
    };
    if count == 0 {
        return Some(());
    }
    let layout = layout(&mut bits)?;
    let (mut time, mut step) = (bits.varbit_int()?, 0_i64);
    let (mut all, mut zero) = (C::first(&mut bits)?, C::first(&mut bits)?);
    let mut sum = Xor::first(&mut bits)?;
    let mut side =
        |indexes: &[i32]| indexes.iter().map(|_| C::first_of_bucket(&mut bits)).collect::<Option<Vec<C>>>();
    let (mut positive, mut negative) = (side(&layout.positive)?, side(&layout.negative)?);
    for at in 0..count {
        if at > 0 {
            step = step.wrapping_add(bits.varbit_int()?);
            time = time.wrapping_add(step);
            all.step(&mut bits)?;
            zero.step(&mut bits)?;
            sum.step(&mut bits)?;
            // A staleness marker has no buckets.
            if sum.bits != STALE_BITS {
                positive.iter_mut().chain(&mut negative).try_for_each(|count| count.step(&mut bits))?;
            }
        }
        let buckets = |indexes: &[i32], counts: &[C]| {
            let mut before = 0.0;
            let each = indexes.iter().zip(counts).map(|(index, count)| {
                before = count.of_bucket(before);
                Bucket { index: *index, count: before }
            });
            each.collect::<Vec<Bucket>>()
        };
        if sum.bits == STALE_BITS {
            push(out, time, f64::from_bits(STALE_BITS), None);
            continue;
        }
        let histogram = Histogram {
            hint,
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            zero_count: zero.value(),
            count: all.value(),
            sum: f64::from_bits(sum.bits),
            positive: buckets(&layout.positive, &positive),
            negative: buckets(&layout.negative, &negative),
            custom: layout.custom.clone(),
        };
        histogram.check().ok()?;
        push(out, time, 0.0, Some(histogram));
        if hint != ResetHint::Gauge {
            hint = ResetHint::NotReset;
        }
    }
    Some(())
}
