//! Native histograms of both versions, which have the same fields: spans of buckets, and counts as deltas of
//! integers or as floats. The stored form has an index and a count for each bucket that is not empty.

use ropewalk::hooks::unzigzag;
use ropewalk::series::{BUCKETS_MAX, Bucket, Histogram, ResetHint};

use crate::ingest::labels::Rejected;
use crate::ingest::protobuf::{Fields, Malformed, Value};

/// A histogram with its time and, in 2.0, its start.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    pub(crate) time_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) histogram: Histogram,
}

/// Buckets of one side as they are sent.
#[derive(Debug, Default)]
struct Side {
    /// Offset to the end of the previous span, and length.
    spans: Vec<(i32, u32)>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

impl Side {
    fn span(&mut self, message: Value<'_>) -> Result<(), Malformed> {
        let (mut fields, mut span) = (message.message()?, (0, 0));
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => span.0 = value.signed()? as i32,
                2 => span.1 = value.u64()? as u32,
                _ => {}
            }
        }
        self.spans.push(span);
        Ok(())
    }

    fn buckets(self, integers: bool) -> Result<Vec<Bucket>, &'static str> {
        let length: u64 = self.spans.iter().map(|(_, length)| u64::from(*length)).sum();
        let given = if integers { self.deltas.len() } else { self.counts.len() };
        if length != given as u64 {
            return Err("the spans have another number of buckets than there are counts");
        }
        let mut running = 0_i64;
        let mut deltas = self.deltas.into_iter();
        let mut counts = self.counts.into_iter();
        let mut next = || {
            if integers {
                running = running.checked_add(deltas.next()?)?;
                Some(running as f64)
            } else {
                counts.next()
            }
        };
        let mut buckets = Vec::with_capacity(given);
        let mut index = 0_i32;
        for (at, (offset, length)) in self.spans.into_iter().enumerate() {
            if at > 0 && offset < 0 {
                return Err("a span overlaps the one before");
            }
            let far = "a bucket's index is too large";
            index = index.checked_add(offset).ok_or(far)?;
            for _ in 0..length {
                let count = next().ok_or("a bucket's count is too large")?;
                if count < 0.0 {
                    return Err("a bucket's count is negative");
                }
                if count != 0.0 {
                    buckets.push(Bucket { index, count });
                }
                index = index.checked_add(1).ok_or(far)?;
            }
        }
        Ok(buckets)
    }
}

/// Reads a histogram. The inner error means invalid values: only this series is rejected.
pub(crate) fn decode(message: Value<'_>) -> Result<Result<Timed, Rejected>, Malformed> {
    let mut fields: Fields<'_> = message.message()?;
    let mut timed = Timed::default();
    let (mut positive, mut negative) = (Side::default(), Side::default());
    let mut integers = false;
    let mut schema = 0;
    let mut custom = Vec::new();
    let histogram = &mut timed.histogram;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => {
                histogram.count = value.u64()? as f64;
                integers = true;
            }
            2 => histogram.count = value.f64()?,
            3 => histogram.sum = value.f64()?,
            4 => schema = value.signed()?,
            5 => histogram.zero_threshold = value.f64()?,
            6 => histogram.zero_count = value.u64()? as f64,
            7 => histogram.zero_count = value.f64()?,
            8 => negative.span(value)?,
            9 => value.each_varint(|delta| negative.deltas.push(unzigzag(delta)))?,
            10 => value.each_fixed64(|bits| negative.counts.push(f64::from_bits(bits)))?,
            11 => positive.span(value)?,
            12 => value.each_varint(|delta| positive.deltas.push(unzigzag(delta)))?,
            13 => value.each_fixed64(|bits| positive.counts.push(f64::from_bits(bits)))?,
            14 => {
                histogram.hint = ResetHint::from_number(value.u64()?).unwrap_or_default();
            }
            15 => timed.time_ms = value.i64()?,
            16 => value.each_fixed64(|bits| custom.push(f64::from_bits(bits)))?,
            17 => timed.start_ms = value.i64()?,
            _ => {}
        }
    }
    Ok(finish(timed, (positive, negative, integers), (schema, custom))
        .map_err(|why| Rejected(why.to_owned())))
}

fn finish(
    mut timed: Timed,
    (positive, negative, integers): (Side, Side, bool),
    (schema, custom): (i64, Vec<f64>),
) -> Result<Timed, String> {
    let histogram = &mut timed.histogram;
    histogram.schema = i8::try_from(schema).map_err(|_| format!("histogram: there is no schema {schema}"))?;
    // The bounds of empty buckets matter, too, so custom bounds are stored unchanged.
    histogram.custom = custom.into();
    histogram.positive = positive.buckets(integers).map_err(|why| format!("histogram: {why}"))?;
    histogram.negative = negative.buckets(integers).map_err(|why| format!("histogram: {why}"))?;
    if histogram.positive.len() + histogram.negative.len() > BUCKETS_MAX {
        return Err("histogram: too many buckets".to_owned());
    }
    histogram.check().map_err(|error| error.to_string())?;
    check_counts(histogram, integers)?;
    Ok(timed)
}

/// Rejects a histogram whose count contradicts its buckets, by the rules of Prometheus.
///
/// An observation of NaN is counted, makes the sum NaN, and is in no bucket. Float counts come from
/// calculations, so they may differ from the sum of the buckets by rounding errors.
fn check_counts(histogram: &Histogram, integers: bool) -> Result<(), String> {
    for (what, count) in [("count", histogram.count), ("count of the zero bucket", histogram.zero_count)] {
        if count < 0.0 {
            return Err(format!("histogram: the {what} is negative: {count}"));
        }
    }
    if !integers {
        return Ok(());
    }
    let buckets = histogram.positive.iter().chain(&histogram.negative);
    let in_buckets = histogram.zero_count + buckets.map(|bucket| bucket.count).sum::<f64>();
    let count = histogram.count;
    if in_buckets > count || in_buckets < count && !histogram.sum.is_nan() {
        return Err(format!("histogram: the count is {count}, the buckets hold {in_buckets} observations"));
    }
    Ok(())
}
