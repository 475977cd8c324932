//! Validity of a histogram.

use super::Bucket;
use super::CUSTOM_SCHEMA;
use super::Histogram;
use crate::error::LabelError;

/// Most buckets of a histogram, both sides and custom bounds together.
pub const BUCKETS_MAX: usize = 64 << 10;

impl Histogram {
    /// Refuses an invalid histogram.
    ///
    /// # Errors
    /// [`LabelError::InvalidHistogram`].
    pub fn check(&self) -> Result<(), LabelError> {
        let rising = |buckets: &[Bucket]| buckets.is_sorted_by(|a, b| a.index < b.index);
        let is_custom = self.schema == CUSTOM_SCHEMA;
        let outside = |b: &Bucket| b.index < 0 || b.index as usize > self.custom.len();
        let what = if !is_custom && !(-4..=8).contains(&self.schema) {
            "the schema is not one of -4 to 8 or -53"
        } else if !rising(&self.positive) || !rising(&self.negative) {
            "the indexes of the buckets do not rise"
        } else if !is_custom && !self.custom.is_empty() {
            "custom bounds need the schema -53"
        } else if is_custom && (!self.negative.is_empty() || self.zero_count != 0.0) {
            "a histogram with custom bounds has no negative buckets and no zero bucket"
        } else if !self.custom.is_sorted_by(|a, b| a < b) || self.custom.iter().any(|b| b.is_nan()) {
            "the custom bounds do not rise"
        } else if is_custom && self.positive.iter().any(outside) {
            "a bucket lies outside the custom bounds"
        } else if self.positive.len() + self.negative.len() + self.custom.len() > BUCKETS_MAX {
            "more than 65536 buckets"
        } else {
            return Ok(());
        };
        Err(LabelError::InvalidHistogram { what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_histograms_are_refused() {
        let refused = |histogram: Histogram| histogram.check().unwrap_err().to_string();
        assert!(refused(Histogram { schema: 9, ..Default::default() }).contains("schema"));
        let bucket = |index| Bucket { index, count: 1.0 };
        let falls = Histogram { positive: vec![bucket(2), bucket(1)], ..Default::default() };
        assert!(refused(falls).contains("rise"));
        let custom = Histogram { custom: [1.0].into(), ..Default::default() };
        assert!(refused(custom.clone()).contains("-53"));
        let outside = Histogram { schema: CUSTOM_SCHEMA, positive: vec![bucket(2)], ..custom };
        assert!(refused(outside).contains("outside"));
    }
}
