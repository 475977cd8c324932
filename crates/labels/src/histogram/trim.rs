//! The operators `</` and `>/`: a histogram without the observations above or below a value. The bucket that
//! contains the value is split by interpolation, and the sum is estimated from the middles of the remaining
//! buckets.

use super::Bounded;
use super::Histogram;

impl Histogram {
    /// Retains the observations below `at` when `below`, else those above.
    pub fn trim(&mut self, at: f64, below: bool) {
        let custom = self.is_custom();
        let (mut count, mut sum, mut trimmed) = (0.0, 0.0, false);
        let mut keep = |old: &mut f64, (kept, middle): (f64, f64)| {
            count += kept;
            sum += middle * kept;
            if *old != kept {
                *old = kept;
                trimmed = true;
            }
        };
        let shape = self.clone();
        let (mut has_positive, mut has_negative) = (false, false);
        for bucket in self.positive.iter_mut().filter(|b| b.count != 0.0) {
            has_positive = true;
            let bounded = shape.positive_bounded(bucket);
            keep(&mut bucket.count, trim_bucket(bounded, at, below, true, custom));
        }
        for bucket in self.negative.iter_mut().filter(|b| b.count != 0.0) {
            has_negative = true;
            let bounded = shape.negative_bounded(bucket);
            keep(&mut bucket.count, trim_bucket(bounded, at, below, false, custom));
        }
        let has = [has_positive, has_negative];
        if self.zero_count > 0.0 {
            keep(&mut self.zero_count, trim_zero(shape.zero_bounded(), at, below, has));
        }
        if trimmed {
            (self.count, self.sum) = (count, sum);
            self.compact();
        }
    }
}

/// The part of the bucket that is retained, and the middle of that.
fn trim_bucket(b: Bounded, at: f64, below: bool, positive: bool, custom: bool) -> (f64, f64) {
    let (all, some) = if below { (b.upper <= at, b.lower < at) } else { (b.lower >= at, b.upper > at) };
    if all {
        return (b.count, middle(b.lower, b.upper, positive, custom));
    }
    if !some {
        return (0.0, 0.0);
    }
    if b.lower == f64::NEG_INFINITY {
        return trim_open_below(b, at, below);
    }
    if b.upper == f64::INFINITY {
        // The distribution in the last bucket is unknown: its observations count as lying right above the
        // value.
        return if below { (0.0, 0.0) } else { (b.count, at) };
    }
    let under = b.count * b.fraction_below(at, custom);
    if below {
        (under, middle(b.lower, at, positive, custom))
    } else {
        (b.count - under, middle(at, b.upper, positive, custom))
    }
}

/// A first bucket without a lower bound. With a positive upper bound it is assumed to begin at zero, as for
/// quantiles.
fn trim_open_below(b: Bounded, at: f64, below: bool) -> (f64, f64) {
    let finite = b.upper.is_finite();
    if below {
        if at > 0.0 && b.upper > 0.0 && finite {
            return (b.count * at / b.upper, at / 2.0);
        }
        return if b.upper <= 0.0 { (b.count, at) } else { (0.0, 0.0) };
    }
    if at >= 0.0 && b.upper > at && finite {
        return (b.count * (1.0 - at / b.upper), (at + b.upper) / 2.0);
    }
    (0.0, 0.0)
}

/// The zero bucket, which ends at zero on a side where there are no other buckets. `has` says: positive ones,
/// negative ones.
fn trim_zero(zero: Bounded, at: f64, below: bool, has: [bool; 2]) -> (f64, f64) {
    let lower = if has == [true, false] { 0.0 } else { zero.lower };
    let upper = if has == [false, true] { 0.0 } else { zero.upper };
    let whole = (zero.count, (lower + upper) / 2.0);
    let width = upper - lower;
    match (below, at <= lower, at >= upper) {
        (true, true, _) | (false, false, true) => (0.0, 0.0),
        (true, false, true) | (false, true, _) => whole,
        (true, false, false) => (zero.count * ((at - lower) / width), (lower + at) / 2.0),
        (false, false, false) => (zero.count * ((upper - at) / width), (at + upper) / 2.0),
    }
}

fn middle(lower: f64, upper: f64, positive: bool, linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) if upper > 0.0 => upper / 2.0,
        (true, false) => upper,
        (false, true) => lower,
        (false, false) if linear => (lower + upper) / 2.0,
        (false, false) => {
            let mean = (lower * upper).abs().sqrt();
            if positive { mean } else { -mean }
        }
    }
}
