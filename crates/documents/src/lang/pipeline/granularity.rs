//! Preferred numbers: the boundaries that `$bucketAuto` rounds to with a `granularity`.
//!
//! Source: ISO 3 (Renard series), IEC 60063 (E series).

use crate::lang::error::{LangError, refuse};

/// A series of numbers that repeats in each decade, or the powers of two.
#[derive(Debug, Clone)]
pub(crate) enum Granularity {
    Series(Vec<f64>),
    PowersOfTwo,
}

const R40: [u16; 40] = [
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280, 300, 315,
    335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950,
];
/// The numbers of R80 that follow those of R40.
const R80: [u16; 40] = [
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290, 307, 325,
    345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975,
];
const E24: [u16; 24] =
    [10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91];
/// The decades of doubles, and some that are rounded to zero or infinity.
const DECADES: std::ops::RangeInclusive<i32> = -330..=310;

impl Granularity {
    pub(crate) fn parse(name: &str) -> Result<Self, LangError> {
        let every =
            |series: &[u16], step: usize| series.iter().step_by(step).copied().map(f64::from).collect();
        Ok(Self::Series(match name {
            "POWERSOF2" => return Ok(Self::PowersOfTwo),
            "1-2-5" => vec![1.0, 2.0, 5.0],
            // R5 is rounded to two digits.
            "R5" => vec![10.0, 16.0, 25.0, 40.0, 63.0],
            "R10" => every(&R40, 4),
            "R20" => every(&R40, 2),
            "R40" => every(&R40, 1),
            "R80" => R40.iter().zip(R80).flat_map(|(a, b)| [f64::from(*a), f64::from(b)]).collect(),
            "E6" => every(&E24, 4),
            "E12" => every(&E24, 2),
            "E24" => every(&E24, 1),
            "E48" => geometric(48),
            "E96" => geometric(96),
            "E192" => geometric(192),
            _ => refuse!(40257, "Unknown rounding granularity '{name}'"),
        }))
    }

    /// The least preferred number above `number`; zero stays.
    pub(crate) fn above(&self, number: f64) -> f64 {
        match self {
            _ if number == 0.0 || !number.is_finite() => number,
            Self::PowersOfTwo => 2f64.powf(number.log2().floor() + 1.0),
            Self::Series(series) => {
                let found = decades(series, number).flat_map(scaled(series)).find(|step| *step > number);
                found.unwrap_or(f64::INFINITY)
            }
        }
    }

    /// The greatest preferred number below `number`; zero stays.
    pub(crate) fn below(&self, number: f64) -> f64 {
        match self {
            _ if number == 0.0 || !number.is_finite() => number,
            Self::PowersOfTwo => 2f64.powf(number.log2().ceil() - 1.0),
            Self::Series(series) => {
                let steps = decades(series, number).flat_map(scaled(series));
                steps.take_while(|step| *step < number).last().unwrap_or(0.0)
            }
        }
    }
}

/// The decade of the number, with one on either side.
fn decades(series: &[f64], number: f64) -> impl Iterator<Item = i32> + use<> {
    let first = series.first().map_or(0, |first| first.log10().floor() as i32);
    let decade = number.log10().floor() as i32 - first;
    (decade - 1..=decade + 1).filter(|decade| DECADES.contains(decade))
}

fn scaled(series: &[f64]) -> impl Fn(i32) -> Vec<f64> + '_ {
    move |decade| {
        // A division by a power of ten is exact where the result is; a multiplication by 0.1 is not.
        let scale = 10f64.powi(decade.abs());
        series.iter().map(|step| if decade < 0 { step / scale } else { step * scale }).collect()
    }
}

/// Three digits of a geometric series: `count` numbers in a decade.
fn geometric(count: u32) -> Vec<f64> {
    let number = |at: u32| {
        let rounded = (100.0 * 10f64.powf(f64::from(at) / f64::from(count))).round();
        // The one number of IEC 60063 that is not the rounded one.
        if rounded == 919.0 { 920.0 } else { rounded }
    };
    (0..count).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_rounds_up_and_down_across_decades() {
        for (name, number, below, above) in [
            ("R5", 1.0, 0.63, 1.6),
            ("R5", 10.0, 6.3, 16.0),
            ("R5", 100.0, 63.0, 160.0),
            ("R10", 0.3, 0.25, 0.315),
            ("R20", 7.0, 6.3, 7.1),
            ("R80", 1000.0, 975.0, 1030.0),
            ("1-2-5", 3.0, 2.0, 5.0),
            ("1-2-5", 5000.0, 2000.0, 10_000.0),
            ("E6", 0.5, 0.47, 0.68),
            ("E12", 99.0, 82.0, 100.0),
            ("E24", 9.5, 9.1, 10.0),
            ("E48", 1.0, 0.953, 1.05),
            ("E96", 2.0, 1.96, 2.05),
            ("E192", 919.0, 909.0, 920.0),
            ("POWERSOF2", 8.0, 4.0, 16.0),
            ("POWERSOF2", 0.3, 0.25, 0.5),
        ] {
            let series = Granularity::parse(name).unwrap();
            assert_eq!((series.below(number), series.above(number)), (below, above), "{name} of {number}");
        }
    }

    #[test]
    fn series_ends_for_extreme_numbers() {
        for name in ["R5", "1-2-5", "E192", "POWERSOF2"] {
            let series = Granularity::parse(name).unwrap();
            for number in [0.0, f64::MIN_POSITIVE, 5e-324, 1e300, f64::MAX, f64::INFINITY] {
                assert!(series.below(number) <= number && series.above(number) >= number, "{name} {number}");
            }
        }
    }
}
