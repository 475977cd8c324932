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

use ropewalk_base::{DecodeError, Decoder, put_varint};
use ropewalk_labels::{Bucket, Histogram, ResetHint};

use crate::sample::pack::{put_signed, take_signed};

const INTEGERS: u8 = 1;
const CUSTOM: u8 = 2;

fn is_count(value: f64) -> bool {
    (0.0..9_007_199_254_740_992.0).contains(&value)
        && (value as u64) as f64 == value
        && value.is_sign_positive()
}

/// Appends a histogram.
pub(crate) fn put_histogram(out: &mut Vec<u8>, histogram: &Histogram) {
    let buckets = || histogram.positive.iter().chain(&histogram.negative);
    let integers = buckets().map(|b| b.count).chain([histogram.count, histogram.zero_count]).all(is_count);
    let custom = if histogram.custom.is_empty() { 0 } else { CUSTOM };
    out.push(u8::from(integers) | custom | (histogram.hint as u8) << 2);
    let count = |out: &mut Vec<u8>, value: f64| {
        if integers {
            put_varint(out, value as u64);
        } else {
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
    };
    put_signed(out, i64::from(histogram.schema));
    out.extend_from_slice(&histogram.zero_threshold.to_bits().to_le_bytes());
    out.extend_from_slice(&histogram.sum.to_bits().to_le_bytes());
    count(out, histogram.count);
    count(out, histogram.zero_count);
    for side in [&histogram.positive, &histogram.negative] {
        put_varint(out, side.len() as u64);
        let mut before = 0;
        for bucket in side {
            put_signed(out, i64::from(bucket.index) - before);
            count(out, bucket.count);
            before = i64::from(bucket.index);
        }
    }
    if !histogram.custom.is_empty() {
        put_varint(out, histogram.custom.len() as u64);
        histogram.custom.iter().for_each(|bound| out.extend_from_slice(&bound.to_bits().to_le_bytes()));
    }
}

/// Takes a histogram.
///
/// # Errors
/// Bytes that are no histogram.
pub(crate) fn take_histogram(decoder: &mut Decoder<'_>) -> Result<Histogram, DecodeError> {
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
    let hint = ResetHint::from_number(u64::from(flags >> 2)).unwrap_or_default();
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
    Ok(Histogram { hint, schema, zero_threshold, zero_count, count: all, sum, positive, negative, custom })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_labels::CUSTOM_SCHEMA;
    use std::sync::Arc;

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
            put_histogram(&mut bytes, &histogram);
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(take_histogram(&mut decoder).unwrap(), histogram);
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = take_histogram(&mut Decoder::new(&bytes));
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
        put_histogram(&mut bytes, &histogram);
        let mut expected = vec![0b1011, 105];
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&1.5_f64.to_le_bytes());
        expected.extend_from_slice(&[3, 0, 2, 0, 1, 4, 2, 0, 2]);
        expected.extend_from_slice(&0.5_f64.to_le_bytes());
        expected.extend_from_slice(&1.0_f64.to_le_bytes());
        assert_eq!(bytes, expected);
        assert_eq!(take_histogram(&mut Decoder::new(&bytes)).unwrap(), histogram);
    }
}
