//! `histogram_quantile` and `histogram_fraction`: over native histograms, and over classic ones, whose
//! buckets are series that differ in their `le` label.

use std::sync::Arc;

use ropewalk_labels::{BUCKET, Histogram, Labels};

use super::Around;
use super::Eval;
use super::KNOWN_BYTES;
use super::LABEL_BYTES_PER_WORK;
use super::Sink;
use super::groups::Groups;
use super::row::{Row, Rows, Steps};
use crate::annotations::{Forced, Note};
use crate::data::text;
use crate::error::{Result, refused};
use crate::syntax::ast::*;
use crate::syntax::position::Span;

/// Relative difference of adjacent buckets that counts as a rounding error.
const SMALL_DELTA: f64 = 1e-12;

/// A cumulative bucket of a classic histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    upper: f64,
    count: f64,
}

/// The rows of one histogram: classic buckets by upper bound, or a native one.
#[derive(Default)]
struct Group {
    labels: Labels,
    classic: Vec<(f64, usize)>,
    native: Option<usize>,
}

/// All histograms of a vector.
struct Histograms<'a> {
    /// Their labels are counted with the rows.
    rows: Rows<'a>,
    groups: Vec<Group>,
    arg: Span,
}

/// Kind and value of one histogram at one step.
enum Shape<'h> {
    Native(&'h Arc<Histogram>),
    Classic(&'h mut Vec<Bucket>),
}

impl<'a> Eval<'a> {
    fn histograms(&self, vector: &Expr, func: &str, steps: Steps) -> Result<Histograms<'a>> {
        let mut rows = self.rows(vector, steps, Around { func: Some(func), ..Around::default() })?;
        let bytes = rows.list.iter().map(|row| row.labels.bytes() + 2 * KNOWN_BYTES).sum();
        rows.held.grow(bytes)?;
        let arg = vector.span();
        let (mut known, mut groups) = (Groups::default(), Vec::new());
        for (index, row) in rows.list.iter().enumerate() {
            self.budget.work(1 + row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
            let mut put = |left_out: &str, add: &dyn Fn(&mut Group)| {
                let (place, new) = known.place(&row.labels, None, |name| name != left_out.as_bytes());
                groups.extend(new.map(|labels| Group { labels, ..Group::default() }));
                if let Some(group) = groups.get_mut(place) {
                    add(group);
                }
            };
            if row.histograms.iter().any(Option::is_some) {
                put("", &|group| group.native = Some(index));
            }
            if row.floats.iter().any(|value| !super::row::is_absent(*value)) {
                let bound = row.labels.get(BUCKET);
                match text::parse_number(bound) {
                    Some(upper) => put(BUCKET, &|group| group.classic.push((upper, index))),
                    None => {
                        let name = if self.options.delayed_name_removal { row.labels.name() } else { "" };
                        self.note(&Note::BadBucketLabel { name, value: bound }, arg);
                    }
                }
            }
        }
        for group in &mut groups {
            group.classic.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        Ok(Histograms { rows, groups, arg })
    }

    /// Calls `each` for every histogram and step.
    fn each_histogram(
        &self,
        histograms: &Histograms<'_>,
        steps: Steps,
        mut each: impl FnMut(&Group, usize, Shape<'_>) -> f64,
        mut finish: impl FnMut(&Group, Vec<f64>) -> Result<()>,
    ) -> Result<()> {
        let mut buckets = Vec::new();
        for group in &histograms.groups {
            self.budget.work(steps.count * (1 + group.classic.len()))?;
            let native = group.native.and_then(|index| histograms.rows.list.get(index));
            let mut values = vec![super::row::ABSENT; steps.count];
            for (step, place) in values.iter_mut().enumerate() {
                buckets.clear();
                for (upper, index) in &group.classic {
                    if let Some(count) = histograms.rows.list.get(*index).and_then(|row| row.float(step)) {
                        buckets.push(Bucket { upper: *upper, count });
                    }
                }
                match (native.and_then(|row| row.histogram(step)), buckets.is_empty()) {
                    (Some(_), false) => {
                        let name = if self.options.delayed_name_removal { group.labels.name() } else { "" };
                        self.note(&Note::MixedClassicNative { name }, histograms.arg);
                    }
                    (Some(histogram), true) => *place = each(group, step, Shape::Native(histogram)),
                    (None, false) => *place = each(group, step, Shape::Classic(&mut buckets)),
                    (None, true) => {}
                }
            }
            finish(group, values)?;
        }
        Ok(())
    }

    fn quantile_of(&self, group: &Group, q: f64, shape: Shape<'_>, time_ms: i64, arg: Span) -> f64 {
        match shape {
            Shape::Native(histogram) => {
                let quantile = histogram.quantile(q);
                // The name is known unless it has been removed.
                let labels = self.without_name(&group.labels);
                let name = labels.name();
                if quantile.is_nan {
                    self.note(&Note::QuantileOfNan { name }, arg);
                }
                if quantile.skewed {
                    self.note(&Note::QuantileSkewed { name }, arg);
                }
                quantile.value
            }
            Shape::Classic(buckets) => {
                let (value, forced) = bucket_quantile(q, buckets);
                if let Some(forced) = forced {
                    let name = if self.options.delayed_name_removal { group.labels.name() } else { "" };
                    let forced = Forced { first_ms: time_ms, last_ms: time_ms, ..forced };
                    self.notes.borrow_mut().add_forced(name, arg, forced);
                }
                value
            }
        }
    }

    fn check_quantiles(&self, values: &[f64], span: Span) {
        for value in values.iter().filter(|value| !(0.0..=1.0).contains(*value)) {
            self.note(&Note::InvalidQuantile { value: *value }, span);
        }
    }

    pub(super) fn histogram_quantile(
        &self,
        q: &Expr,
        vector: &Expr,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let quantiles = self.scalar(q, steps)?;
        self.check_quantiles(&quantiles, q.span());
        let histograms = self.histograms(vector, "histogram_quantile", steps)?;
        let arg = histograms.arg;
        self.each_result(&histograms, steps, None, sink, |group, step, shape| {
            let q = quantiles.get(step).copied().unwrap_or(f64::NAN);
            self.quantile_of(group, q, shape, steps.time(step), arg)
        })
    }

    pub(super) fn histogram_quantiles(
        &self,
        vector: &Expr,
        label: &Expr,
        quantiles: &[Expr],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let label = super::call::text(label)?;
        if label.is_empty() {
            return refused("invalid label name \"\"");
        }
        let histograms = self.histograms(vector, "histogram_quantiles", steps)?;
        let arg = histograms.arg;
        let mut results = Rows::new(self.budget)?;
        for q in quantiles {
            let values = self.scalar(q, steps)?;
            self.check_quantiles(&values, q.span());
            // The label follows the quantile, which may change from step to step.
            let mut kinds = values.to_vec();
            kinds.sort_by(f64::total_cmp);
            kinds.dedup_by(|a, b| a.to_bits() == b.to_bits());
            for kind in kinds {
                let name = (label, text::float_open_metrics(kind));
                let push = &mut |row: &mut Row| Ok(results.push(std::mem::take(row))?);
                self.each_result(&histograms, steps, Some(&name), push, |group, step, shape| {
                    let q = values.get(step).copied().unwrap_or(f64::NAN);
                    if q.to_bits() != kind.to_bits() {
                        return super::row::ABSENT;
                    }
                    self.quantile_of(group, q, shape, steps.time(step), arg)
                })?;
            }
        }
        results.merge()?;
        self.give(std::mem::take(&mut results.list), sink)
    }

    pub(super) fn histogram_fraction(
        &self,
        lower: &Expr,
        upper: &Expr,
        vector: &Expr,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let (lower, upper) = (self.scalar(lower, steps)?, self.scalar(upper, steps)?);
        let histograms = self.histograms(vector, "histogram_fraction", steps)?;
        let arg = histograms.arg;
        self.each_result(&histograms, steps, None, sink, |group, step, shape| {
            let at = |values: &[f64]| values.get(step).copied().unwrap_or(f64::NAN);
            match shape {
                Shape::Native(histogram) => {
                    let fraction = histogram.fraction(at(&lower), at(&upper));
                    if fraction.has_nans {
                        let labels = self.without_name(&group.labels);
                        self.note(&Note::FractionOfNan { name: labels.name() }, arg);
                    }
                    fraction.value
                }
                Shape::Classic(buckets) => bucket_fraction(at(&lower), at(&upper), buckets),
            }
        })
    }

    /// One row of floats per histogram, with one more label if given.
    fn each_result(
        &self,
        histograms: &Histograms<'_>,
        steps: Steps,
        label: Option<&(&str, String)>,
        sink: Sink<'_>,
        each: impl FnMut(&Group, usize, Shape<'_>) -> f64,
    ) -> Result<()> {
        let mut rows = Rows::new(self.budget)?;
        self.each_histogram(histograms, steps, each, |group, floats| {
            let labels = match label {
                Some((name, value)) => self.relabeled(&group.labels, name, value)?,
                None => group.labels.clone(),
            };
            let mut row = Row { labels, drop_name: false, floats, histograms: Vec::new() };
            self.drop_name(&mut row);
            Ok(rows.push(row)?)
        })?;
        rows.merge()?;
        self.give(std::mem::take(&mut rows.list), sink)
    }
}

/// Buckets of the same bound, added up.
fn coalesce(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|next, kept| {
        let same = next.upper == kept.upper;
        if same {
            kept.count += next.count;
        }
        same
    });
}

/// Raises counts below their predecessor: cumulative counts cannot fall. Tiny differences are corrected
/// without an annotation.
fn make_monotonic(buckets: &mut [Bucket]) -> Option<Forced> {
    let mut forced: Option<Forced> = None;
    let mut rest = buckets.iter_mut();
    let mut before = rest.next()?.count;
    for bucket in rest {
        let now = bucket.count;
        if now == before {
            continue;
        }
        if nearly_equal(before, now, SMALL_DELTA) {
            bucket.count = before;
        } else if now < before {
            bucket.count = before;
            let all = forced.get_or_insert(Forced {
                first_ms: 0,
                last_ms: 0,
                bucket_min: f64::INFINITY,
                bucket_max: f64::NEG_INFINITY,
                diff_max: 0.0,
                count: 1,
            });
            all.bucket_min = all.bucket_min.min(bucket.upper);
            all.bucket_max = all.bucket_max.max(bucket.upper);
            all.diff_max = all.diff_max.max(before - now);
        } else {
            before = now;
        }
    }
    forced
}

/// True when two numbers differ by less than `epsilon` of their sum.
pub(crate) fn nearly_equal(a: f64, b: f64, epsilon: f64) -> bool {
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < epsilon * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < epsilon
}

fn bucket_quantile(q: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<Forced>) {
    if q.is_nan() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    if buckets.last().is_none_or(|b| b.upper != f64::INFINITY) {
        return (f64::NAN, None);
    }
    coalesce(buckets);
    let forced = make_monotonic(buckets);
    let [.., highest, infinite] = buckets.as_slice() else { return (f64::NAN, forced) };
    if infinite.count == 0.0 {
        return (f64::NAN, forced);
    }
    let rank = q * infinite.count;
    let finite = buckets.len() - 1;
    // Not a partition point: NaN counts make comparisons false.
    let found = {
        let (mut low, mut high) = (0, finite);
        while low < high {
            let middle = low.midpoint(high);
            if buckets.get(middle).is_some_and(|b| b.count >= rank) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        low
    };
    if found == finite {
        return (highest.upper, forced);
    }
    let Some(bucket) = buckets.get(found) else { return (f64::NAN, forced) };
    let below = found.checked_sub(1).and_then(|i| buckets.get(i));
    let value = match below {
        None if bucket.upper <= 0.0 => bucket.upper,
        None => bucket.upper * (rank / bucket.count),
        Some(below) => {
            below.upper + (bucket.upper - below.upper) * ((rank - below.count) / (bucket.count - below.count))
        }
    };
    (value, forced)
}

fn bucket_fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return f64::NAN };
    if last.upper != f64::INFINITY {
        return f64::NAN;
    }
    let mut below = if first.upper <= 0.0 { f64::NEG_INFINITY } else { 0.0 };
    coalesce(buckets);
    let count = buckets.last().map_or(0.0, |b| b.count);
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let (mut rank, mut lower_rank, mut upper_rank) = (0.0, None, None);
    for bucket in buckets.iter() {
        let rank_of = |value: f64| {
            if below == f64::NEG_INFINITY {
                return bucket.count;
            }
            rank + (bucket.count - rank) * (value - below) / (bucket.upper - below)
        };
        for (value, found) in [(lower, &mut lower_rank), (upper, &mut upper_rank)] {
            if found.is_none() && below >= value {
                *found = Some(rank);
            } else if found.is_none() && bucket.upper > value {
                *found = Some(rank_of(value));
            }
        }
        (rank, below) = (bucket.count, bucket.upper);
    }
    let at_most = |rank: Option<f64>| rank.map_or(count, |rank: f64| if rank > count { count } else { rank });
    (at_most(upper_rank) - at_most(lower_rank)) / count
}
