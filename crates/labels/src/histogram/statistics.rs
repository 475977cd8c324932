//! Statistics of a histogram: quantiles, fractions, variance. Observations are assumed to lie evenly in a
//! bucket: on a linear scale for custom buckets and the zero bucket, on a logarithmic one for exponential
//! buckets.

use super::Bounded;
use super::Histogram;
use crate::kahan::add as kahan;

/// A quantile, and how NaN observations affect it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// The value below which the observations lie.
    pub value: f64,
    /// It lies among the NaNs.
    pub is_nan: bool,
    /// There are NaNs, counted above all others.
    pub skewed: bool,
}

/// A fraction of the observations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fraction {
    /// From 0 to 1.
    pub value: f64,
    /// There are NaNs, which no fraction includes.
    pub has_nans: bool,
}

impl Bounded {
    /// Part of the bucket's width below `value`, which lies strictly between its finite bounds.
    pub(super) fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        if linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let (lower, upper, at) = (self.lower.abs().log2(), self.upper.abs().log2(), value.abs().log2());
        if value > 0.0 { (at - lower) / (upper - lower) } else { 1.0 - (at - upper) / (lower - upper) }
    }
}

impl Histogram {
    /// The zero bucket ends at zero on a side where the histogram has no other buckets.
    fn clip_zero(&self, bucket: &mut Bounded) {
        match (self.negative.is_empty(), self.positive.is_empty()) {
            (true, false) => bucket.lower = 0.0,
            (false, true) => bucket.upper = 0.0,
            _ => {}
        }
    }

    /// The value below which `q` of the observations lie.
    pub fn quantile(&self, q: f64) -> Quantile {
        let plain = |value| Quantile { value, is_nan: false, skewed: false };
        if q < 0.0 {
            return plain(f64::NEG_INFINITY);
        }
        if q > 1.0 {
            return plain(f64::INFINITY);
        }
        if self.count == 0.0 || q.is_nan() {
            return plain(f64::NAN);
        }
        // NaN observations are in `count` and in no bucket, so with them counting must begin at the low end.
        let forwards = self.sum.is_nan() || q < 0.5;
        let mut rank = if forwards { q * self.count } else { (1.0 - q) * self.count };
        let mut buckets = self.buckets();
        if !forwards {
            buckets.reverse();
        }
        let mut rest = buckets.into_iter();
        let (mut count, mut bucket) = (0.0, None::<Bounded>);
        for next in rest.by_ref() {
            bucket = Some(next);
            if next.count != 0.0 {
                count += next.count;
                if count >= rank {
                    break;
                }
            }
        }
        let none =
            Bounded { lower: 0.0, upper: 0.0, count: 0.0, lower_inclusive: true, upper_inclusive: true };
        let mut bucket = bucket.unwrap_or(none);
        if !self.is_custom() && bucket.lower < 0.0 && bucket.upper > 0.0 {
            self.clip_zero(&mut bucket);
        } else if self.is_custom() {
            if bucket.lower == f64::NEG_INFINITY {
                if bucket.upper <= 0.0 {
                    return plain(bucket.upper);
                }
                bucket.lower = 0.0;
            } else if bucket.upper == f64::INFINITY {
                return plain(bucket.lower);
            }
        }
        count = count.min(self.count);
        if count < rank {
            if self.sum.is_nan() {
                return Quantile { value: f64::NAN, is_nan: true, skewed: false };
            }
            return plain(bucket.upper);
        }
        rank = if forwards { rank - (count - bucket.count) } else { count - rank };
        let skewed = self.sum.is_nan() && count + rest.map(|b| b.count).sum::<f64>() < self.count;
        let fraction = rank / bucket.count;
        let value = if self.is_custom() || (bucket.lower <= 0.0 && bucket.upper >= 0.0) {
            bucket.lower + (bucket.upper - bucket.lower) * fraction
        } else {
            let (lower, upper) = (bucket.lower.abs().log2(), bucket.upper.abs().log2());
            if bucket.lower > 0.0 {
                (lower + (upper - lower) * fraction).exp2()
            } else {
                -(upper + (lower - upper) * (1.0 - fraction)).exp2()
            }
        };
        Quantile { value, is_nan: false, skewed }
    }

    /// The part of the observations between two values.
    pub fn fraction(&self, lower: f64, upper: f64) -> Fraction {
        let plain = |value| Fraction { value, has_nans: false };
        if self.count == 0.0 || lower.is_nan() || upper.is_nan() {
            return plain(f64::NAN);
        }
        if lower >= upper {
            return plain(0.0);
        }
        let (mut rank, mut lower_rank, mut upper_rank) = (0.0, None, None);
        let buckets = self.buckets();
        for bucket in &buckets {
            let mut b = *bucket;
            let zero = b.lower <= 0.0 && b.upper >= 0.0;
            if zero {
                self.clip_zero(&mut b);
            }
            let linear = self.is_custom() || zero;
            let rank_of = |value: f64| {
                if linear && b.lower == f64::NEG_INFINITY {
                    // Nothing is known about a bucket without a lower bound: all of it counts as below.
                    return b.count;
                }
                rank + b.count * b.fraction_below(value, linear)
            };
            for (value, found) in [(lower, &mut lower_rank), (upper, &mut upper_rank)] {
                if found.is_none() && b.lower >= value {
                    *found = Some(rank);
                } else if found.is_none() && b.upper > value {
                    *found = Some(rank_of(value));
                }
            }
            if lower_rank.is_some() && upper_rank.is_some() {
                break;
            }
            rank += b.count;
        }
        let mut count = self.count;
        let mut has_nans = false;
        if self.sum.is_nan() {
            count = buckets.iter().map(|b| b.count).sum();
            has_nans = count < self.count;
        }
        let at_most =
            |rank: Option<f64>| rank.map_or(count, |rank: f64| if rank > count { count } else { rank });
        Fraction { value: (at_most(upper_rank) - at_most(lower_rank)) / self.count, has_nans }
    }

    /// The variance, with each observation assumed in the middle of its bucket.
    pub fn variance(&self) -> f64 {
        let mean = self.sum / self.count;
        let mut total = (0.0, 0.0);
        for b in self.buckets().iter().filter(|b| b.count != 0.0) {
            let value = if self.is_custom() {
                (b.upper + b.lower) / 2.0
            } else if b.lower <= 0.0 && b.upper >= 0.0 {
                0.0
            } else {
                let middle = (b.upper * b.lower).sqrt();
                if b.upper < 0.0 { -middle } else { middle }
            };
            let delta = value - mean;
            total = kahan(b.count * delta * delta, total);
        }
        (total.0 + total.1) / self.count
    }
}
