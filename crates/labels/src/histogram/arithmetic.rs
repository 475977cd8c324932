//! Addition, subtraction and scaling. Two histograms are first converted to the finest layout that both can
//! be converted to exactly.

use std::borrow::Cow;
use std::sync::Arc;

use super::Bucket;
use super::Histogram;
use super::ResetHint;
use crate::kahan::add as kahan;

/// Error: one histogram has exponential buckets, the other custom ones, so they cannot be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incompatible;

/// Findings while two histograms were combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// One hint says there was a counter reset, the other that there was not.
    pub collision: bool,
    /// Custom bounds differed, and only the common ones were retained.
    pub reconciled: bool,
}

/// The index in a coarser schema.
fn coarser(index: i32, from: i8, to: i8) -> i32 {
    (index.saturating_sub(1) >> (i32::from(from) - i32::from(to)).clamp(0, 31)) + 1
}

/// Reindexes buckets by a monotonic function, adding up those that get the same index.
fn renamed(buckets: &[Bucket], index: impl Fn(i32) -> i32) -> Vec<Bucket> {
    let mut out: Vec<Bucket> = Vec::with_capacity(buckets.len());
    for bucket in buckets {
        let index = index(bucket.index);
        match out.last_mut() {
            Some(last) if last.index == index => last.count += bucket.count,
            _ => out.push(Bucket { index, count: bucket.count }),
        }
    }
    out
}

/// Adds `sign` times `more` to `buckets`.
fn merge(buckets: &mut Vec<Bucket>, more: &[Bucket], sign: f64) {
    if buckets.len() == more.len() && buckets.iter().zip(more).all(|(a, b)| a.index == b.index) {
        for (bucket, more) in buckets.iter_mut().zip(more) {
            bucket.count += sign * more.count;
        }
        return;
    }
    let mine = std::mem::take(buckets);
    let (mut left, mut right) = (mine.iter().peekable(), more.iter().peekable());
    loop {
        let bucket = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(a), Some(b)) if a.index == b.index => {
                Bucket { index: a.index, count: a.count + sign * b.count }
            }
            (Some(a), b) if b.is_none_or(|b| a.index < b.index) => **a,
            (_, Some(b)) => Bucket { index: b.index, count: sign * b.count },
            (Some(a), None) => **a,
        };
        left.next_if(|a| a.index == bucket.index);
        right.next_if(|b| b.index == bucket.index);
        buckets.push(bucket);
    }
}

impl Histogram {
    /// Multiplies all counts and the sum. A negative factor makes a gauge.
    pub fn multiply(&mut self, factor: f64) {
        self.each_count(|count| *count *= factor);
        if factor < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum. Zero leaves no buckets.
    pub fn divide(&mut self, by: f64) {
        if by == 0.0 {
            self.positive.clear();
            self.negative.clear();
        }
        self.each_count(|count| *count /= by);
        if by < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    fn each_count(&mut self, change: impl Fn(&mut f64)) {
        for count in [&mut self.zero_count, &mut self.count, &mut self.sum] {
            change(count);
        }
        for bucket in self.positive.iter_mut().chain(&mut self.negative) {
            change(&mut bucket.count);
        }
    }

    /// True when a count or the sum has become infinite.
    pub fn overflows(&self) -> bool {
        [self.zero_count, self.count, self.sum].iter().any(|v| v.is_infinite())
            || self.positive.iter().chain(&self.negative).any(|b| b.count.is_infinite())
    }

    /// Adds `other`, in the coarser of the two layouts; false, without an effect, when only one of them has
    /// custom bounds.
    pub fn accumulate(&mut self, other: &Self) -> bool {
        self.add(other).is_ok()
    }

    /// Adds `other`. The result may have empty buckets.
    pub fn add(&mut self, other: &Histogram) -> Result<Outcome, Incompatible> {
        self.combine(other, 1.0)
    }

    /// Subtracts `other`. The result may have empty buckets.
    pub fn subtract(&mut self, other: &Histogram) -> Result<Outcome, Incompatible> {
        self.combine(other, -1.0)
    }

    fn combine(&mut self, other: &Histogram, sign: f64) -> Result<Outcome, Incompatible> {
        let (other, outcome) = self.align(other, None)?;
        self.zero_count += sign * other.zero_count;
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        merge(&mut self.positive, &other.positive, sign);
        merge(&mut self.negative, &other.negative, sign);
        Ok(outcome)
    }

    /// Converts this, its compensation and `other` to one layout, and sets the hint of their sum.
    fn align<'o>(
        &mut self,
        other: &'o Histogram,
        mut compensation: Option<&mut Histogram>,
    ) -> Result<(Cow<'o, Histogram>, Outcome), Incompatible> {
        if self.is_custom() != other.is_custom() {
            return Err(Incompatible);
        }
        let mut outcome = Outcome { collision: self.join_hint(other.hint), reconciled: false };
        let mut other = Cow::Borrowed(other);
        if self.is_custom() {
            if self.custom != other.custom {
                outcome.reconciled = true;
                let common = intersection(&self.custom, &other.custom);
                self.with_bounds(&common);
                if let Some(compensation) = compensation {
                    compensation.with_bounds(&common);
                }
                other.to_mut().with_bounds(&common);
            }
            return Ok((other, outcome));
        }
        while self.zero_threshold != other.zero_threshold {
            if self.zero_threshold > other.zero_threshold {
                other.to_mut().widen_zero(self.zero_threshold);
            }
            if other.zero_threshold > self.zero_threshold {
                self.widen_zero(other.zero_threshold);
                if let Some(compensation) = compensation.as_deref_mut() {
                    compensation.fold_into_zero(self.zero_threshold);
                }
            }
        }
        if other.schema < self.schema {
            if let Some(compensation) = compensation {
                compensation.reduce(other.schema);
            }
            self.reduce(other.schema);
        } else if other.schema > self.schema {
            other.to_mut().reduce(self.schema);
        }
        Ok((other, outcome))
    }

    /// Sets the hint of a sum; true when the two contradict each other.
    fn join_hint(&mut self, other: ResetHint) -> bool {
        use ResetHint::{Gauge, NotReset, Reset, Unknown};
        let (hint, collision) = match (self.hint, other) {
            (Gauge, _) | (_, Gauge) => (Gauge, false),
            (Unknown, _) | (_, Unknown) => (Unknown, false),
            (Reset, Reset) => (Reset, false),
            (NotReset, NotReset) => (NotReset, false),
            (Reset, NotReset) | (NotReset, Reset) => (Unknown, true),
        };
        self.hint = hint;
        collision
    }

    /// Reduces the resolution of exponential buckets.
    pub fn reduce(&mut self, schema: i8) {
        if schema >= self.schema {
            return;
        }
        let from = self.schema;
        self.positive = renamed(&self.positive, |index| coarser(index, from, schema));
        self.negative = renamed(&self.negative, |index| coarser(index, from, schema));
        self.schema = schema;
    }

    /// Merges custom buckets into fewer bounds, which must be a subset of the present ones.
    pub(super) fn with_bounds(&mut self, bounds: &Arc<[f64]>) {
        let old = Arc::clone(&self.custom);
        let target = |index: i32| {
            let upper =
                usize::try_from(index).ok().and_then(|i| old.get(i)).copied().unwrap_or(f64::INFINITY);
            bounds.partition_point(|bound| *bound < upper) as i32
        };
        self.positive = renamed(&self.positive, target);
        self.custom = Arc::clone(bounds);
    }

    /// Widens the zero bucket to at least `threshold`; further if that lies within a populated bucket.
    pub(super) fn widen_zero(&mut self, threshold: f64) {
        let mut threshold = threshold;
        loop {
            let inside = |b: &&Bucket| {
                b.count != 0.0
                    && self.bound(b.index.saturating_sub(1)) < threshold
                    && self.bound(b.index) > threshold
            };
            let further =
                self.positive.iter().chain(&self.negative).find(inside).map(|b| self.bound(b.index));
            match further {
                Some(bound) => threshold = bound,
                None => break,
            }
        }
        self.fold_into_zero(threshold);
    }

    /// Moves the buckets that begin below `threshold` into the zero bucket.
    fn fold_into_zero(&mut self, threshold: f64) {
        let mut moved = (self.zero_count, 0.0);
        for buckets in [&self.positive, &self.negative] {
            for bucket in buckets.iter().filter(|b| self.bound(b.index.saturating_sub(1)) < threshold) {
                moved = kahan(bucket.count, moved);
            }
        }
        self.zero_count = moved.0 + moved.1;
        let schema = self.schema;
        let stays = |b: &Bucket| super::exponential_bound(b.index.saturating_sub(1), schema) >= threshold;
        self.positive.retain(stays);
        self.negative.retain(stays);
        self.zero_threshold = threshold;
    }
}

/// Bounds that are in both.
pub(super) fn intersection(a: &[f64], b: &[f64]) -> Arc<[f64]> {
    a.iter().copied().filter(|bound| b.binary_search_by(|other| other.total_cmp(bound)).is_ok()).collect()
}

/// A compensated running sum of histograms.
#[derive(Debug, Clone)]
pub struct HistogramSum {
    /// The sum so far, without the compensation.
    pub value: Histogram,
    lost: Histogram,
}

impl HistogramSum {
    /// Starts with one histogram.
    pub fn new(first: &Histogram) -> Self {
        let lost = Histogram {
            hint: first.hint,
            schema: first.schema,
            zero_threshold: first.zero_threshold,
            custom: Arc::clone(&first.custom),
            ..Histogram::default()
        };
        Self { value: first.clone(), lost }
    }

    /// Adds one more.
    pub fn add(&mut self, other: &Histogram) -> Result<Outcome, Incompatible> {
        let (other, outcome) = self.value.align(other, Some(&mut self.lost))?;
        let (value, lost) = (&mut self.value, &mut self.lost);
        (value.zero_count, lost.zero_count) = kahan(other.zero_count, (value.zero_count, lost.zero_count));
        (value.count, lost.count) = kahan(other.count, (value.count, lost.count));
        (value.sum, lost.sum) = kahan(other.sum, (value.sum, lost.sum));
        kahan_merge(&mut value.positive, &mut lost.positive, &other.positive);
        kahan_merge(&mut value.negative, &mut lost.negative, &other.negative);
        Ok(outcome)
    }

    /// Multiplies the sum.
    pub fn multiply(&mut self, factor: f64) {
        self.value.multiply(factor);
        self.lost.multiply(factor);
    }

    /// Divides the sum.
    pub fn divide(&mut self, by: f64) {
        self.value.divide(by);
        self.lost.divide(by);
    }

    /// The compensated sum.
    pub fn total(self) -> Histogram {
        let Self { mut value, mut lost } = self;
        lost.hint = value.hint;
        // The two have one layout, so this cannot fail; a histogram without the correction would still be
        // right.
        let _ = value.add(&lost);
        value
    }
}

fn kahan_merge(buckets: &mut Vec<Bucket>, lost: &mut Vec<Bucket>, more: &[Bucket]) {
    for add in more {
        match buckets.binary_search_by_key(&add.index, |b| b.index) {
            Err(at) => buckets.insert(at, *add),
            Ok(at) => {
                let Some(bucket) = buckets.get_mut(at) else { continue };
                let place = lost.binary_search_by_key(&add.index, |b| b.index);
                let before = place.ok().and_then(|at| lost.get(at)).map_or(0.0, |b| b.count);
                let (sum, rest) = kahan(add.count, (bucket.count, before));
                bucket.count = sum;
                match place {
                    Ok(at) => {
                        if let Some(lost) = lost.get_mut(at) {
                            lost.count = rest;
                        }
                    }
                    Err(at) if rest != 0.0 => lost.insert(at, Bucket { index: add.index, count: rest }),
                    Err(_) => {}
                }
            }
        }
    }
}
