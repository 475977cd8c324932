//! Converts the points of the five kinds of metrics to samples.

use std::hash::{DefaultHasher, Hasher};

use ropewalk::hooks::hex;
use ropewalk::series::{Bucket, Exemplar, Histogram, Labels};
use ropewalk_monitoring::notation::put_float;

use crate::ingest::protobuf::{Fields, Malformed, Value};

use super::delta::Amount;
use super::{Context, Pairs, Read, Way, attribute, names};

/// Temporalities.
pub(crate) const DELTA: u64 = 1;
pub(crate) const CUMULATIVE: u64 = 2;
/// Flag of a point that has no value any more.
const NO_VALUE: u64 = 1;
/// Default width of the zero bucket, as in Prometheus.
const ZERO_THRESHOLD: f64 = 1e-128;
/// Schemas of native histograms.
const SCHEMA_MIN: i64 = -4;
const SCHEMA_MAX: i64 = 8;

/// Fields of a metric's data message around its points.
#[derive(Default)]
pub(crate) struct Shell<'a> {
    pub(crate) points: Vec<Fields<'a>>,
    pub(crate) temporality: u64,
    pub(crate) monotonic: bool,
}

impl<'a> Shell<'a> {
    pub(crate) fn read(mut fields: Fields<'a>) -> Result<Self, Malformed> {
        let mut shell = Self::default();
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => shell.points.push(value.message()?),
                2 => shell.temporality = value.u64()?,
                3 => shell.monotonic = value.u64()? != 0,
                _ => {}
            }
        }
        Ok(shell)
    }
}

fn ms(nanos: u64) -> i64 {
    (nanos / 1_000_000) as i64
}

/// Fields common to all kinds of points.
#[derive(Default)]
struct Point {
    labels: Pairs,
    start_ms: i64,
    time_ms: i64,
    stale: bool,
    exemplars: Vec<Exemplar>,
}

impl Point {
    fn new(context: &Context<'_>) -> Self {
        Self { labels: context.own.clone(), ..Self::default() }
    }

    fn way<'a>(&self, context: &Context<'a>) -> Way<'a> {
        Way {
            time_ms: self.time_ms,
            start_ms: self.start_ms,
            temporality: context.temporality,
            stale: self.stale,
            layout: 0,
        }
    }

    /// Labels of the resource win over those of the point.
    fn attribute(&mut self, value: Value<'_>) -> Result<(), Malformed> {
        let (name, value) = attribute(value, 0)?;
        self.labels.entry(names::label(&name)).or_insert(value);
        Ok(())
    }

    fn exemplar(&mut self, value: Value<'_>, read: &mut Read) -> Result<(), Malformed> {
        let (mut pairs, mut number_of, mut time_ms) = (Pairs::new(), 0.0, 0);
        let mut fields = value.message()?;
        while let Some((number, value)) = fields.next()? {
            match number {
                2 => time_ms = ms(value.fixed64()?),
                3 => number_of = value.f64()?,
                4 => drop(pairs.insert("span_id".to_owned(), hex(value.bytes()?))),
                5 => drop(pairs.insert("trace_id".to_owned(), hex(value.bytes()?))),
                6 => number_of = value.fixed64()? as i64 as f64,
                7 => {
                    let (name, value) = attribute(value, 0)?;
                    pairs.insert(names::label(&name), value);
                }
                _ => {}
            }
        }
        pairs.retain(|_, value| !value.is_empty());
        match if pairs.is_empty() { Ok(None) } else { Labels::new(&pairs).map(Some) } {
            Ok(labels) => self.exemplars.push(Exemplar { time_ms, value: number_of, labels }),
            Err(error) => read.refused.add(1, || error.to_string()),
        }
        Ok(())
    }
}

/// A gauge or a sum.
pub(crate) fn number(
    mut fields: Fields<'_>,
    name: &str,
    context: &Context<'_>,
    read: &mut Read,
) -> Result<i64, Malformed> {
    let (mut point, mut number_of) = (Point::new(context), 0.0);
    while let Some((number, value)) = fields.next()? {
        match number {
            2 => point.start_ms = ms(value.fixed64()?),
            3 => point.time_ms = ms(value.fixed64()?),
            4 => number_of = value.f64()?,
            5 => point.exemplar(value, read)?,
            6 => number_of = value.fixed64()? as i64 as f64,
            7 => point.attribute(value)?,
            8 => point.stale = value.u64()? & NO_VALUE != 0,
            _ => {}
        }
    }
    let exemplars = std::mem::take(&mut point.exemplars);
    read.number((name, ""), &point.labels, None, &point.way(context), number_of, exemplars);
    Ok(point.time_ms)
}

/// A histogram with explicit bounds, as classic buckets.
pub(crate) fn histogram(
    mut fields: Fields<'_>,
    name: &str,
    context: &Context<'_>,
    (read, budget): (&mut Read, &mut usize),
) -> Result<i64, Malformed> {
    let mut point = Point::new(context);
    let (mut count, mut sum, mut counts, mut bounds) = (0, None, Vec::new(), Vec::new());
    while let Some((number, value)) = fields.next()? {
        match number {
            2 => point.start_ms = ms(value.fixed64()?),
            3 => point.time_ms = ms(value.fixed64()?),
            4 => count = value.fixed64()?,
            5 => sum = Some(value.f64()?),
            6 => value.each_fixed64(|bits| counts.push(bits))?,
            7 => value.each_fixed64(|bits| bounds.push(f64::from_bits(bits)))?,
            8 => point.exemplar(value, read)?,
            9 => point.attribute(value)?,
            10 => point.stale = value.u64()? & NO_VALUE != 0,
            _ => {}
        }
    }
    let time_ms = point.time_ms;
    if !counts.is_empty() && counts.len() != bounds.len() + 1 {
        read.refused
            .add(1, || format!("histogram {name:?} has {} counts for {} bounds", counts.len(), bounds.len()));
        return Ok(time_ms);
    }
    let label_bytes: usize = point.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    let spent = (bounds.len() + 3).saturating_mul(label_bytes + name.len());
    *budget = budget.checked_sub(spent).ok_or(Malformed("labels of the request are too long in all"))?;
    let mut layout = DefaultHasher::new();
    bounds.iter().for_each(|bound| layout.write_u64(bound.to_bits()));
    let way = Way { layout: layout.finish(), ..point.way(context) };
    let mut total = 0_u64;
    let mut exemplars = std::mem::take(&mut point.exemplars);
    for (bound, count) in bounds.iter().zip(&counts) {
        total = total.saturating_add(*count);
        let mut le = Vec::new();
        put_float(&mut le, *bound);
        let (below, above): (Vec<_>, Vec<_>) =
            exemplars.into_iter().partition(|exemplar| exemplar.value <= *bound);
        exemplars = above;
        let le = String::from_utf8_lossy(&le);
        read.number((name, "_bucket"), &point.labels, Some(("le", &le)), &way, total as f64, below);
    }
    let count = count as f64;
    read.number((name, "_bucket"), &point.labels, Some(("le", "+Inf")), &way, count, exemplars);
    read.number((name, "_count"), &point.labels, None, &way, count, Vec::new());
    if let Some(sum) = sum {
        read.number((name, "_sum"), &point.labels, None, &way, sum, Vec::new());
    }
    Ok(time_ms)
}

/// Buckets of one side. An OTLP index identifies the lower bound, ours the upper one.
fn buckets(message: Fields<'_>, shift: u32) -> Result<Vec<Bucket>, Malformed> {
    let (mut fields, mut offset, mut counts) = (message, 0, Vec::new());
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => offset = value.signed()?,
            2 => value.each_varint(|count| counts.push(count))?,
            _ => {}
        }
    }
    let mut buckets: Vec<Bucket> = Vec::new();
    for (place, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let index = (offset.saturating_add(place as i64) >> shift) + 1;
        let index = i32::try_from(index).map_err(|_| Malformed("the index of a bucket is too large"))?;
        match buckets.last_mut().filter(|last| last.index == index) {
            Some(last) => last.count += count as f64,
            None => buckets.push(Bucket { index, count: count as f64 }),
        }
    }
    Ok(buckets)
}

/// Converts an exponential histogram to a native one. Finer scales than ours are downscaled.
pub(crate) fn exponential(
    mut fields: Fields<'_>,
    name: &str,
    context: &Context<'_>,
    read: &mut Read,
) -> Result<i64, Malformed> {
    let mut point = Point::new(context);
    let mut histogram = Histogram { zero_threshold: ZERO_THRESHOLD, ..Histogram::default() };
    let (mut scale, mut positive, mut negative) = (0, Fields(&[]), Fields(&[]));
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => point.attribute(value)?,
            2 => point.start_ms = ms(value.fixed64()?),
            3 => point.time_ms = ms(value.fixed64()?),
            4 => histogram.count = value.fixed64()? as f64,
            5 => histogram.sum = value.f64()?,
            6 => scale = value.signed()?,
            7 => histogram.zero_count = value.fixed64()? as f64,
            8 => positive = value.message()?,
            9 => negative = value.message()?,
            10 => point.stale = value.u64()? & NO_VALUE != 0,
            11 => point.exemplar(value, read)?,
            14 => histogram.zero_threshold = value.f64()?.max(ZERO_THRESHOLD),
            _ => {}
        }
    }
    let time_ms = point.time_ms;
    if scale < SCHEMA_MIN {
        read.refused.add(1, || format!("histogram {name:?} has scale {scale}; -4 is the least"));
        return Ok(time_ms);
    }
    let shift = u32::try_from((scale - SCHEMA_MAX).clamp(0, 62)).unwrap_or(0);
    histogram.schema = scale.min(SCHEMA_MAX) as i8;
    histogram.positive = buckets(positive, shift)?;
    histogram.negative = buckets(negative, shift)?;
    if let Err(error) = histogram.check() {
        read.refused.add(1, || format!("histogram {name:?}: {error}"));
        return Ok(time_ms);
    }
    let exemplars = std::mem::take(&mut point.exemplars);
    let amount = Amount::Histogram(Box::new(histogram));
    read.amount((name, ""), &point.labels, None, &point.way(context), amount, exemplars);
    Ok(time_ms)
}

/// A summary: quantiles, sum and count.
pub(crate) fn summary(
    mut fields: Fields<'_>,
    name: &str,
    context: &Context<'_>,
    (read, budget): (&mut Read, &mut usize),
) -> Result<i64, Malformed> {
    let mut point = Point::new(context);
    let (mut count, mut sum, mut quantiles) = (0, 0.0, Vec::new());
    while let Some((number, value)) = fields.next()? {
        match number {
            2 => point.start_ms = ms(value.fixed64()?),
            3 => point.time_ms = ms(value.fixed64()?),
            4 => count = value.fixed64()?,
            5 => sum = value.f64()?,
            6 => {
                let (mut fields, mut pair) = (value.message()?, (0.0, 0.0));
                while let Some((number, value)) = fields.next()? {
                    match number {
                        1 => pair.0 = value.f64()?,
                        2 => pair.1 = value.f64()?,
                        _ => {}
                    }
                }
                quantiles.push(pair);
            }
            7 => point.attribute(value)?,
            8 => point.stale = value.u64()? & NO_VALUE != 0,
            _ => {}
        }
    }
    let way = point.way(context);
    let label_bytes: usize = point.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    let spent = (quantiles.len() + 2).saturating_mul(label_bytes + name.len());
    *budget = budget.checked_sub(spent).ok_or(Malformed("labels of the request are too long in all"))?;
    for (quantile, value) in quantiles {
        let mut text = Vec::new();
        put_float(&mut text, quantile);
        let text = String::from_utf8_lossy(&text);
        read.number((name, ""), &point.labels, Some(("quantile", &text)), &way, value, Vec::new());
    }
    for (suffix, value) in [("_count", count as f64), ("_sum", sum)] {
        read.number((name, suffix), &point.labels, None, &way, value, Vec::new());
    }
    Ok(point.time_ms)
}
