//! Detection of counter resets between two histograms of a series: a count that can only grow has decreased.

use std::borrow::Cow;

use super::Bucket;
use super::Histogram;
use super::ResetHint;
use super::arithmetic::intersection;

impl Histogram {
    /// True when there was a counter reset between `previous` and this.
    pub fn is_reset_from(&self, previous: &Histogram) -> bool {
        match self.hint {
            ResetHint::Reset => true,
            ResetHint::NotReset => false,
            // A gauge that is used as a counter is treated as one.
            ResetHint::Unknown | ResetHint::Gauge => self.has_shrunk_from(previous),
        }
    }

    fn has_shrunk_from(&self, previous: &Histogram) -> bool {
        if self.count < previous.count {
            return true;
        }
        if self.is_custom() {
            if !previous.is_custom() {
                return true;
            }
            if self.custom == previous.custom {
                return shrunk(&self.positive, &previous.positive);
            }
            let common = intersection(&self.custom, &previous.custom);
            let (mut now, mut before) = (self.clone(), previous.clone());
            now.with_bounds(&common);
            before.with_bounds(&common);
            return shrunk(&now.positive, &before.positive);
        }
        if previous.is_custom()
            || self.schema > previous.schema
            || self.zero_threshold < previous.zero_threshold
        {
            return true;
        }
        let mut before = Cow::Borrowed(previous);
        if self.zero_threshold > previous.zero_threshold {
            before.to_mut().widen_zero(self.zero_threshold);
            if before.zero_threshold != self.zero_threshold {
                // The new threshold is inside of a populated bucket.
                return true;
            }
        }
        if self.zero_count < before.zero_count {
            return true;
        }
        if self.schema < before.schema {
            before.to_mut().reduce(self.schema);
        }
        shrunk(&self.positive, &before.positive) || shrunk(&self.negative, &before.negative)
    }
}

/// True when a populated bucket is now missing or has fewer observations.
fn shrunk(now: &[Bucket], before: &[Bucket]) -> bool {
    let mut now = now.iter().peekable();
    before.iter().filter(|b| b.count != 0.0).any(|before| {
        while now.next_if(|b| b.index < before.index).is_some() {}
        now.peek().filter(|b| b.index == before.index).is_none_or(|b| b.count < before.count)
    })
}
