//! Native histograms with float counts: the type, its buckets and their bounds.
//!
//!   schema s in -4..=8:  bucket i holds (2^(2^-s * (i-1)), 2^(2^-s * i)], mirrored for negative values, and a zero bucket
//!                        holds [-threshold, threshold]
//!   schema -53:          bucket i holds (custom[i-1], custom[i]], the last one reaches to +Inf
//!
//! Invariants
//! 1. Buckets are sorted by index, each index once. Empty buckets may be left out and mean the same.
//! 2. Arithmetic keeps the coarser of two layouts: schemas are reduced, zero buckets widened, custom bounds
//!    intersected.
//!
//! Not here: validity (`check`), adding and subtracting (`arithmetic`), counter resets (`reset`), trimming
//! (`trim`), quantiles (`statistics`), the storage form (`ropewalk-series`).

mod arithmetic;
mod bounds;
mod check;
mod reset;
mod statistics;
mod trim;

use std::fmt;
use std::sync::Arc;

pub use arithmetic::{HistogramSum, Incompatible, Outcome};
use bounds::exponential_bound;
pub use check::BUCKETS_MAX;
pub use statistics::{Fraction, Quantile};

use crate::text::float_g;

/// The schema of histograms with custom bounds.
pub const CUSTOM_SCHEMA: i8 = -53;

/// Whether a counter reset lies between a histogram and the previous one of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ResetHint {
    /// Not known: it has to be detected.
    #[default]
    Unknown,
    /// There was a reset.
    Reset,
    /// There was no reset.
    NotReset,
    /// It is a gauge, which has no resets.
    Gauge,
}

impl ResetHint {
    /// By its number, the place in the list of variants: the same in stored histograms and in remote write.
    pub fn from_number(number: u64) -> Option<Self> {
        let all = [Self::Unknown, Self::Reset, Self::NotReset, Self::Gauge];
        all.into_iter().find(|hint| *hint as u64 == number)
    }
}

/// The observations of one bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Index of the bucket, see the module.
    pub index: i32,
    /// Observations in this bucket alone.
    pub count: f64,
}

/// A native histogram with float counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Counter reset before it.
    pub hint: ResetHint,
    /// Layout of the buckets: -4..=8, or [`CUSTOM_SCHEMA`].
    pub schema: i8,
    /// Width of the zero bucket to each side.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations, those of NaN too.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// Buckets of positive values, or of custom bounds.
    pub positive: Vec<Bucket>,
    /// Buckets of negative values, by rising distance from zero.
    pub negative: Vec<Bucket>,
    /// Upper bounds of custom buckets without the last, +Inf; empty otherwise.
    pub custom: Arc<[f64]>,
}

/// A bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounded {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Observations between them.
    pub count: f64,
    /// True when a value at the lower bound is counted here.
    pub lower_inclusive: bool,
    /// True when a value at the upper bound is counted here.
    pub upper_inclusive: bool,
}

impl Histogram {
    /// True for custom bounds.
    pub fn is_custom(&self) -> bool {
        self.schema == CUSTOM_SCHEMA
    }

    /// Upper bound of positive (or custom) bucket `index`.
    fn bound(&self, index: i32) -> f64 {
        if !self.is_custom() {
            return exponential_bound(index, self.schema);
        }
        match usize::try_from(index) {
            Err(_) => f64::NEG_INFINITY,
            Ok(index) => self.custom.get(index).copied().unwrap_or(f64::INFINITY),
        }
    }

    fn positive_bounded(&self, bucket: &Bucket) -> Bounded {
        let (lower, upper) = (self.bound(bucket.index.saturating_sub(1)), self.bound(bucket.index));
        let (lower_inclusive, upper_inclusive) =
            if self.is_custom() { (bucket.index == 0, true) } else { (lower < 0.0, upper > 0.0) };
        Bounded { lower, upper, count: bucket.count, lower_inclusive, upper_inclusive }
    }

    fn negative_bounded(&self, bucket: &Bucket) -> Bounded {
        let (upper, lower) = (-self.bound(bucket.index.saturating_sub(1)), -self.bound(bucket.index));
        Bounded {
            lower,
            upper,
            count: bucket.count,
            lower_inclusive: lower < 0.0,
            upper_inclusive: upper > 0.0,
        }
    }

    fn zero_bounded(&self) -> Bounded {
        let (lower, upper) = (-self.zero_threshold, self.zero_threshold);
        Bounded { lower, upper, count: self.zero_count, lower_inclusive: true, upper_inclusive: true }
    }

    /// All buckets from the lowest to the highest; those adjacent to the zero bucket end where it begins.
    pub fn buckets(&self) -> Vec<Bounded> {
        let threshold = self.zero_threshold;
        let cut = |mut bucket: Bounded| {
            if bucket.upper < 0.0 && bucket.upper > -threshold {
                bucket.upper = -threshold;
            }
            if bucket.lower > 0.0 && bucket.lower < threshold {
                bucket.lower = threshold;
            }
            bucket
        };
        let negative = self.negative.iter().rev().map(|b| cut(self.negative_bounded(b)));
        let zero = (self.zero_count > 0.0).then(|| self.zero_bounded());
        let positive = self.positive.iter().map(|b| cut(self.positive_bounded(b)));
        negative.chain(zero).chain(positive).collect()
    }

    /// Removes empty buckets.
    pub fn compact(&mut self) {
        self.positive.retain(|bucket| bucket.count != 0.0);
        self.negative.retain(|bucket| bucket.count != 0.0);
    }

    /// Without empty buckets.
    pub fn compacted(mut self) -> Self {
        self.compact();
        self
    }

    /// The same data, bit by bit.
    pub fn same(&self, other: &Histogram) -> bool {
        let same_buckets = |a: &[Bucket], b: &[Bucket]| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| a.index == b.index && a.count.to_bits() == b.count.to_bits())
        };
        self.schema == other.schema
            && self.count.to_bits() == other.count.to_bits()
            && self.sum.to_bits() == other.sum.to_bits()
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.to_bits() == other.zero_count.to_bits()
            && (!self.is_custom() || self.custom == other.custom)
            && same_buckets(&self.positive, &other.positive)
            && same_buckets(&self.negative, &other.negative)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + (self.positive.capacity() + self.negative.capacity()) * size_of::<Bucket>()
    }
}

impl fmt::Display for Histogram {
    /// `{count:3, sum:4.5, [-0.5,0.5]:1, (1,2]:2}`
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{count:{}, sum:{}", float_g(self.count), float_g(self.sum))?;
        let negative = self.negative.iter().rev().map(|b| self.negative_bounded(b));
        let positive = self.positive.iter().map(|b| self.positive_bounded(b));
        for bucket in negative.chain([self.zero_bounded()]).chain(positive).filter(|b| b.count != 0.0) {
            let open = if bucket.lower_inclusive { '[' } else { '(' };
            let close = if bucket.upper_inclusive { ']' } else { ')' };
            let (lower, upper, count) = (float_g(bucket.lower), float_g(bucket.upper), float_g(bucket.count));
            write!(out, ", {open}{lower},{upper}{close}:{count}")?;
        }
        out.write_str("}")
    }
}
