//! Bounds of exponential buckets, bit-identical to Prometheus': clients read them as text and as labels.
//!
//! A bound is a fraction from 0.5 on, from a table, times a power of two. In the table of schema s every
//! second bound is that of schema s - 1, and each one between is the previous times 2^(2^-s), as in
//! Prometheus; calculating each directly would be more exact.

/// 2^(2^-s) of the schemas 1 to 8, rounded as Prometheus rounds them.
#[expect(clippy::approx_constant, reason = "the root of two as it is there, not as it is")]
const FACTORS: [f64; 8] = [
    1.414213562373095,
    1.189207115002721,
    1.0905077326652577,
    1.0442737824274138,
    1.0218971486541166,
    1.0108892860517005,
    1.0054299011128027,
    1.0027112750502025,
];

/// The finest schema; the tables of the others are parts of its.
const FINEST: usize = FACTORS.len();

/// Bounds of the finest schema from 0.5 to 1, the last not included.
static FRACTIONS: [f64; 1 << FINEST] = fractions();

#[expect(clippy::indexing_slicing, reason = "runs while compiling")]
const fn fractions() -> [f64; 1 << FINEST] {
    let mut all = [0.5; 1 << FINEST];
    let mut schema = 1;
    while schema <= FINEST {
        let apart = all.len() >> schema;
        let mut at = apart;
        while at < all.len() {
            all[at] = all[at - apart] * FACTORS[schema - 1];
            at += 2 * apart;
        }
        schema += 1;
    }
    all
}

/// Upper bound of bucket `index` of an exponential schema.
pub(super) fn exponential_bound(index: i32, schema: i8) -> f64 {
    let (exponent, fraction) = match usize::try_from(schema) {
        Err(_) => (i64::from(index) << -i32::from(schema), 0.5),
        Ok(schema) => {
            let place = index.rem_euclid(1 << schema) as usize;
            let fraction = FRACTIONS.get(place << (FINEST.saturating_sub(schema))).copied().unwrap_or(0.5);
            (i64::from(index >> schema), fraction)
        }
    };
    if exponent == 1024 && fraction == 0.5 {
        // The last bucket of finite numbers; the one after it holds the infinite ones.
        return f64::MAX;
    }
    times_power_of_two(2.0 * fraction, exponent)
}

/// `value`, of 1 to 2, times 2^`exponent`, rounded once.
fn times_power_of_two(value: f64, exponent: i64) -> f64 {
    /// Digits that the least normal numbers have more than the least of all.
    const MORE: i64 = 53;
    let power = |exponent: i64| f64::from_bits(((exponent + 1023) as u64) << 52);
    match exponent {
        1024.. => f64::INFINITY,
        -1022..=1023 => value * power(exponent),
        -1075..=-1023 => value * power(exponent + MORE) * power(-MORE),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{Bucket, Histogram};

    #[test]
    fn bounds_read_as_those_of_prometheus() {
        for line in include_str!("../../tests/bounds.txt").lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split(" | ").collect();
            let [schema, negative, positive, text] = parts[..] else { panic!("{line}") };
            let indexes =
                |part: &str| part.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<i32>>();
            let histogram = Histogram {
                schema: schema.parse().unwrap(),
                negative: indexes(negative).into_iter().map(|index| Bucket { index, count: 2.0 }).collect(),
                positive: (1..)
                    .zip(indexes(positive))
                    .map(|(n, index)| Bucket { index, count: f64::from(n) })
                    .collect(),
                ..Histogram::default()
            };
            assert_eq!(histogram.to_string(), format!("{{count:0, sum:0, {text}}}"));
        }
    }

    #[test]
    fn bounds_are_where_they_belong() {
        for schema in 1..=FINEST as i8 {
            for index in 0..1 << schema {
                let right = (f64::from(index) / f64::from(1 << schema)).exp2();
                let bound = exponential_bound(index, schema);
                assert!((bound / right - 1.0).abs() < 1e-14, "{schema} {index}: {bound} for {right}");
                assert_eq!(bound, exponential_bound(index << (8 - schema), 8), "{schema} {index}");
            }
        }
        assert_eq!(exponential_bound(-3, -4), 2f64.powi(-48));
    }

    #[test]
    fn bounds_end_with_the_numbers() {
        for schema in -4i8..=8 {
            let of_exponent =
                |e: i32| if schema < 0 { e >> -i32::from(schema) } else { e << i32::from(schema) };
            assert_eq!(exponential_bound(of_exponent(1024), schema), f64::MAX);
            assert_eq!(exponential_bound(of_exponent(1024) + 1, schema), f64::INFINITY);
            assert!(exponential_bound(of_exponent(1024) - 1, schema) < f64::MAX);
            assert_eq!(exponential_bound(i32::MAX, schema), f64::INFINITY);
            assert_eq!(exponential_bound(i32::MIN, schema), 0.0);
            // Without `powi`, whose result for subnormal numbers depends on optimisation.
            assert_eq!(exponential_bound(of_exponent(-1024), schema), f64::from_bits(1 << 50));
        }
        assert_eq!(exponential_bound(-1074, 0), f64::from_bits(1));
        assert_eq!(exponential_bound(-1075, 0), 0.0);
        // Rounded once, to the even neighbour only when just between two.
        assert_eq!(exponential_bound(-1075 * 2 + 1, 1), f64::from_bits(1));
    }
}
