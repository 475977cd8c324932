//! Native histograms: exponential buckets, or custom bounds, with all counts as floats.
//!
//! Stored form (`signed` is a zigzag varint):
//! ```text
//! u8 flags      1 counts are integers; 2 custom bounds follow; 4, 8 the hint
//! signed schema │ zero threshold f64 │ sum f64 │ count │ zero count
//! positive buckets, negative buckets: varint how many, each: gap to the index before signed, count
//! [custom bounds: varint how many, each f64]
//! ```
//! A count is a varint where all counts are integers below 2^53, else 8 bytes of a float.

use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, put_varint};

use crate::error::SeriesError;
use crate::sample::pack::{put_signed, take_signed};

/// Schema of histograms with custom bounds.
pub const CUSTOM_SCHEMA: i8 = -53;
/// Most buckets of a histogram, both sides and custom bounds together.
pub const BUCKETS_MAX: usize = 64 << 10;

const INTEGERS: u8 = 1;
const CUSTOM: u8 = 2;

/// Relation to the previous histogram with respect to counter resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetHint {
    /// Unknown.
    #[default]
    Unknown,
    /// The counter was reset.
    Reset,
    /// The counter was not reset.
    NotReset,
    /// The histogram is a gauge.
    Gauge,
}

/// A bucket: its index in the schema and its own count, which is not cumulative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// In exponential schemas the bucket ends at 2^(index · 2^−schema); with custom bounds it ends at bound `index`.
    pub index: i32,
    /// Observations in it.
    pub count: f64,
}

/// A native histogram at one instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Hint about a counter reset.
    pub hint: ResetHint,
    /// −4 to 8, or [`CUSTOM_SCHEMA`].
    pub schema: i8,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations.
    pub count: f64,
    /// Sum of all observations.
    pub sum: f64,
    /// Buckets of positive observations, by index.
    pub positive: Vec<Bucket>,
    /// Buckets of negative observations, by index of the absolute value.
    pub negative: Vec<Bucket>,
    /// Upper bounds of custom buckets, without +Inf; rising. Empty otherwise.
    pub custom: Arc<[f64]>,
}

fn is_count(value: f64) -> bool {
    (0.0..9_007_199_254_740_992.0).contains(&value)
        && (value as u64) as f64 == value
        && value.is_sign_positive()
}

impl Histogram {
    /// Refuses an invalid histogram.
    ///
    /// # Errors
    /// [`SeriesError::InvalidHistogram`].
    pub fn check(&self) -> Result<(), SeriesError> {
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
        Err(SeriesError::InvalidHistogram { what })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let buckets = || self.positive.iter().chain(&self.negative);
        let integers = buckets().map(|b| b.count).chain([self.count, self.zero_count]).all(is_count);
        let hint = match self.hint {
            ResetHint::Unknown => 0,
            ResetHint::Reset => 1,
            ResetHint::NotReset => 2,
            ResetHint::Gauge => 3,
        };
        let custom = if self.custom.is_empty() { 0 } else { CUSTOM };
        out.push(u8::from(integers) | custom | hint << 2);
        let count = |out: &mut Vec<u8>, value: f64| {
            if integers {
                put_varint(out, value as u64);
            } else {
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        };
        put_signed(out, i64::from(self.schema));
        out.extend_from_slice(&self.zero_threshold.to_bits().to_le_bytes());
        out.extend_from_slice(&self.sum.to_bits().to_le_bytes());
        count(out, self.count);
        count(out, self.zero_count);
        for side in [&self.positive, &self.negative] {
            put_varint(out, side.len() as u64);
            let mut before = 0;
            for bucket in side {
                put_signed(out, i64::from(bucket.index) - before);
                count(out, bucket.count);
                before = i64::from(bucket.index);
            }
        }
        if !self.custom.is_empty() {
            put_varint(out, self.custom.len() as u64);
            self.custom.iter().for_each(|bound| out.extend_from_slice(&bound.to_bits().to_le_bytes()));
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let flags = decoder.u8("flags of a histogram")?;
        if flags > 15 {
            return Err(DecodeError { what: "known flags of a histogram", offset });
        }
        let integers = flags & INTEGERS != 0;
        let float = |decoder: &mut Decoder<'_>| decoder.u64("number of a histogram").map(f64::from_bits);
        let count = |decoder: &mut Decoder<'_>| {
            if integers { Ok(decoder.varint("count of a histogram")? as f64) } else { float(decoder) }
        };
        let hint = match flags >> 2 {
            0 => ResetHint::Unknown,
            1 => ResetHint::Reset,
            2 => ResetHint::NotReset,
            _ => ResetHint::Gauge,
        };
        let offset = decoder.offset();
        let schema = take_signed(decoder, "schema")?;
        let schema = i8::try_from(schema).map_err(|_| DecodeError { what: "schema", offset })?;
        let (zero_threshold, sum) = (float(decoder)?, float(decoder)?);
        let (all, zero_count) = (count(decoder)?, count(decoder)?);
        let side = |decoder: &mut Decoder<'_>| {
            let len = decoder.varint("number of buckets")?;
            let (mut buckets, mut before) = (Vec::new(), 0_i64);
            for _ in 0..len {
                let offset = decoder.offset();
                before = before.wrapping_add(take_signed(decoder, "index of a bucket")?);
                let index = i32::try_from(before).map_err(|_| DecodeError { what: "index", offset })?;
                buckets.push(Bucket { index, count: count(decoder)? });
            }
            Ok::<_, DecodeError>(buckets)
        };
        let (positive, negative) = (side(decoder)?, side(decoder)?);
        let mut custom = Vec::new();
        if flags & CUSTOM != 0 {
            for _ in 0..decoder.varint("number of bounds")? {
                custom.push(float(decoder)?);
            }
        }
        let custom = custom.into();
        Ok(Self { hint, schema, zero_threshold, zero_count, count: all, sum, positive, negative, custom })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_histogram() -> impl Strategy<Value = Histogram> {
        let count = prop_oneof![
            (0..1000_u32).prop_map(f64::from),
            any::<f64>().prop_filter("number", |v| !v.is_nan())
        ];
        let side = prop::collection::btree_map(any::<i32>(), count.clone(), 0..6)
            .prop_map(|m| m.into_iter().map(|(index, count)| Bucket { index, count }).collect::<Vec<_>>());
        (-4..9_i8, side.clone(), side, count.clone(), count, 0..4_u8).prop_map(
            |(schema, positive, negative, count, sum, hint)| Histogram {
                hint: [ResetHint::Unknown, ResetHint::Reset, ResetHint::NotReset, ResetHint::Gauge]
                    [usize::from(hint)],
                schema,
                zero_threshold: 0.001,
                zero_count: 2.0,
                count,
                sum,
                positive,
                negative,
                custom: Arc::default(),
            },
        )
    }

    proptest! {
        #[test]
        fn histograms_round_trip(histogram in any_histogram()) {
            histogram.check().unwrap();
            let mut bytes = Vec::new();
            histogram.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(Histogram::decode(&mut decoder).unwrap(), histogram);
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = Histogram::decode(&mut Decoder::new(&bytes));
        }
    }

    #[test]
    fn golden_bytes() {
        let histogram = Histogram {
            hint: ResetHint::NotReset,
            schema: CUSTOM_SCHEMA,
            count: 3.0,
            sum: 1.5,
            positive: vec![Bucket { index: 0, count: 1.0 }, Bucket { index: 2, count: 2.0 }],
            custom: [0.5, 1.0].into(),
            ..Histogram::default()
        };
        histogram.check().unwrap();
        let mut bytes = Vec::new();
        histogram.encode(&mut bytes);
        let mut expected = vec![0b1011, 105];
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&1.5_f64.to_le_bytes());
        expected.extend_from_slice(&[3, 0, 2, 0, 1, 4, 2, 0, 2]);
        expected.extend_from_slice(&0.5_f64.to_le_bytes());
        expected.extend_from_slice(&1.0_f64.to_le_bytes());
        assert_eq!(bytes, expected);
        assert_eq!(Histogram::decode(&mut Decoder::new(&bytes)).unwrap(), histogram);
    }

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
