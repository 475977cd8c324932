//! One order of the four numeric types.
//!
//! ```text
//!          ┌ rank: NaN < negative < positive, zero among the latter
//! number ─▶│ floor: the double next below the magnitude (or equal to it)
//!          └ rest: none, or the decimal digits of a magnitude that lies between two doubles
//! ```
//!
//! [`Sortable`] is that triple. Two numbers compare as their triples do, whatever their types; the order of
//! values and the bytes of index keys both derive from it, so they cannot disagree.
//!
//! Why it is exact: equal floors without rest mean the same double. A magnitude between two neighbouring
//! doubles is not a double, hence an integer or a decimal with at most 34 digits, and those compare by their
//! digits.

use std::cmp::Ordering;

use crate::lang::value::decimal::{Decimal, Parts};
use crate::lang::value::{TWO_63, Value};

/// A number in sortable form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sortable {
    pub(crate) rank: Rank,
    /// The bits of the greatest double that is not above the magnitude.
    pub(crate) floor: u64,
    /// For a magnitude above its floor: exponent of the first digit, and 34 digits.
    pub(crate) rest: Option<(i32, u128)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    NaN,
    Negative,
    Positive,
}

impl Sortable {
    pub(crate) fn of(value: Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Int32(n) => Self::double(n.into()),
            Value::Int64(n) => Self::integer(n),
            Value::Double(d) => Self::double(d),
            Value::Decimal(d) => Self::decimal(d),
            _ => return None,
        })
    }

    fn double(d: f64) -> Self {
        if d.is_nan() {
            return Self { rank: Rank::NaN, floor: 0, rest: None };
        }
        let rank = if d < 0.0 { Rank::Negative } else { Rank::Positive };
        Self { rank, floor: d.abs().to_bits(), rest: None }
    }

    fn integer(n: i64) -> Self {
        let magnitude = n.unsigned_abs();
        let mut floor = magnitude as f64;
        if floor as u128 > u128::from(magnitude) {
            floor = floor.next_down();
        }
        let rest =
            if floor as u128 == u128::from(magnitude) { None } else { Some(aligned(magnitude.into(), 0)) };
        let rank = if n < 0 { Rank::Negative } else { Rank::Positive };
        Self { rank, floor: floor.to_bits(), rest }
    }

    fn decimal(d: Decimal) -> Self {
        match d.parts() {
            Parts::NaN => Self::double(f64::NAN),
            Parts::Infinity { negative } => {
                Self::double(if negative { f64::NEG_INFINITY } else { f64::INFINITY })
            }
            Parts::Finite { coefficient: 0, .. } => Self::double(0.0),
            Parts::Finite { negative, coefficient, exponent } => {
                let (floor, exact) = floor_of(coefficient, exponent);
                let rank = if negative { Rank::Negative } else { Rank::Positive };
                let rest = if exact { None } else { Some(aligned(coefficient, exponent)) };
                Self { rank, floor: floor.to_bits(), rest }
            }
        }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank).then_with(|| {
            let magnitudes = (self.floor, self.rest).cmp(&(other.floor, other.rest));
            if self.rank == Rank::Negative { magnitudes.reverse() } else { magnitudes }
        })
    }
}

/// Exponent of the first digit, and the digits shifted left to 34 digits.
fn aligned(coefficient: u128, exponent: i32) -> (i32, u128) {
    let digits = coefficient.checked_ilog10().map_or(1, |log| log + 1);
    let shift = (crate::lang::value::decimal::DIGITS_MAX as u32).checked_sub(digits);
    let shift = shift.expect("a number that is no double has 34 digits at most");
    (exponent + digits as i32 - 1, coefficient * 10u128.pow(shift))
}

/// The greatest double that is not above `coefficient · 10^exponent`, and whether it is equal.
fn floor_of(coefficient: u128, exponent: i32) -> (f64, bool) {
    let nearest = format!("{coefficient}e{exponent}").parse::<f64>().unwrap_or(f64::MAX);
    if nearest.is_infinite() {
        return (f64::MAX, false);
    }
    if nearest == 0.0 {
        return (0.0, false);
    }
    match compare_exactly(nearest, coefficient, exponent) {
        Ordering::Less => (nearest, false),
        Ordering::Equal => (nearest, true),
        Ordering::Greater => (nearest.next_down(), false),
    }
}

/// Compares a positive double with a nearby `coefficient · 10^exponent`, by scaling both to integers.
fn compare_exactly(double: f64, coefficient: u128, exponent: i32) -> Ordering {
    let bits = double.to_bits();
    let (mantissa, binary) = match (bits >> 52) as i32 {
        0 => (bits, -1074),
        biased => (bits & ((1 << 52) - 1) | 1 << 52, biased - 1075),
    };
    let mut left = Big::from(mantissa.into());
    let mut right = Big::from(coefficient);
    // m · 2^b against c · 5^e · 2^e: the powers move to the side where they are positive.
    let fives = if exponent < 0 { &mut left } else { &mut right };
    for _ in 0..exponent.unsigned_abs() {
        fives.multiply(5);
    }
    let twos = binary - exponent;
    let shifted = if twos < 0 { &mut right } else { &mut left };
    shifted.shift(twos.unsigned_abs());
    left.compare(&right)
}

/// A large natural number, least significant limb first, without leading zero limbs.
struct Big(Vec<u32>);

impl Big {
    fn from(mut number: u128) -> Self {
        let mut limbs = Vec::new();
        while number != 0 {
            limbs.push(number as u32);
            number >>= 32;
        }
        Self(limbs)
    }

    fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for limb in &mut self.0 {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry != 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift(&mut self, bits: u32) {
        self.multiply(1 << (bits % 32));
        let zeros = vec![0; (bits / 32) as usize];
        self.0.splice(0..0, zeros);
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// Compares two numbers of any types.
pub(crate) fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Int32(a), Value::Int32(b)) => a.cmp(&b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(&b),
        (Value::Int32(a), Value::Int64(b)) => i64::from(a).cmp(&b),
        (Value::Int64(a), Value::Int32(b)) => a.cmp(&i64::from(b)),
        _ => match (Sortable::of(a), Sortable::of(b)) {
            (Some(a), Some(b)) => a.compare(&b),
            _ => Ordering::Equal,
        },
    }
}

pub(crate) fn is_nan(value: Value<'_>) -> bool {
    match value {
        Value::Double(d) => d.is_nan(),
        Value::Decimal(d) => d.is_nan(),
        _ => false,
    }
}

/// A number as a decimal.
pub(crate) fn to_decimal(value: Value<'_>) -> Option<Decimal> {
    Some(match value {
        Value::Int32(n) => Decimal::from_i64(n.into()),
        Value::Int64(n) => Decimal::from_i64(n),
        Value::Double(d) => Decimal::from_double(d),
        Value::Decimal(d) => d,
        _ => return None,
    })
}

/// The integer part, if it fits: for `$mod` and bit tests.
pub(crate) fn truncated(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Double(d) => {
            let whole = d.trunc();
            if (-TWO_63..TWO_63).contains(&whole) { Some(whole as i64) } else { None }
        }
        Value::Decimal(d) => d.truncated(),
        other => other.as_integer(),
    }
}

/// An integer in the smaller type when both operands had it and it fits.
pub(crate) fn narrow(number: i64, small: bool) -> Value<'static> {
    match i32::try_from(number) {
        Ok(number) if small => Value::Int32(number),
        _ => Value::Int64(number),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// Adds, subtracts or multiplies. The result has the wider type: decimal, double, long, int; an int that
/// overflows becomes a long. `None` when a long overflows or a value is no number.
pub(crate) fn calculate(a: Value<'_>, b: Value<'_>, how: Arithmetic) -> Option<Value<'static>> {
    if let (Value::Decimal(_), _) | (_, Value::Decimal(_)) = (a, b) {
        let (a, b) = (to_decimal(a)?, to_decimal(b)?);
        return Some(Value::Decimal(match how {
            Arithmetic::Add => a.add(b),
            Arithmetic::Subtract => a.subtract(b),
            Arithmetic::Multiply => a.multiply(b),
        }));
    }
    if let (Value::Double(_), _) | (_, Value::Double(_)) = (a, b) {
        let (a, b) = (a.as_double()?, b.as_double()?);
        return Some(Value::Double(match how {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
        }));
    }
    let small = matches!((a, b), (Value::Int32(_), Value::Int32(_)));
    let (a, b) = (a.as_integer()?, b.as_integer()?);
    let result = match how {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
    };
    Some(narrow(result?, small))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Value<'static> {
        Value::Decimal(Decimal::parse(text).unwrap())
    }

    #[test]
    fn numbers_of_different_types_compare_exactly() {
        let double = Value::Double;
        let rising = [
            double(f64::NAN),
            decimal("-Infinity"),
            decimal("-1E+400"),
            double(f64::MIN),
            Value::Int64(i64::MIN),
            Value::Int64(-9_007_199_254_740_993),
            double(-9_007_199_254_740_992.0),
            double(-0.1),
            decimal("-0.1"),
            decimal("-1E-400"),
            double(-0.0),
            decimal("1E-400"),
            double(5e-324),
            decimal("0.1"),
            double(0.1),
            decimal("0.3"),
            Value::Int32(1),
            decimal("1.000000000000000000000000000000001"),
            double(1.0f64.next_up()),
            double(9_007_199_254_740_992.0),
            decimal("9007199254740992.5"),
            Value::Int64(9_007_199_254_740_993),
            double(9_007_199_254_740_994.0),
            Value::Int64(i64::MAX),
            double(9_223_372_036_854_775_808.0),
            double(f64::MAX),
            decimal("1E+400"),
            double(f64::INFINITY),
        ];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                assert_eq!(compare(*a, *b), i.cmp(&j), "{a} {b}");
            }
        }
        for (a, b) in [
            (Value::Int32(5), decimal("5.00")),
            (Value::Int64(9_007_199_254_740_993), decimal("9007199254740993.0")),
            (double(0.5), decimal("0.50")),
            (double(-0.0), decimal("0E+10")),
            (double(1e22), decimal("1E+22")),
            (double(f64::NAN), decimal("NaN")),
        ] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
    }

    #[test]
    fn results_take_the_wider_type() {
        let text = |a, b, how| calculate(a, b, how).map(|value| value.to_string());
        assert_eq!(
            text(Value::Int32(i32::MAX), Value::Int32(1), Arithmetic::Add).unwrap(),
            "NumberLong(2147483648)"
        );
        assert_eq!(text(Value::Int64(1), Value::Int32(1), Arithmetic::Subtract).unwrap(), "NumberLong(0)");
        assert_eq!(text(Value::Int64(i64::MAX), Value::Int32(2), Arithmetic::Multiply), None);
        assert_eq!(text(Value::Int32(1), Value::Double(0.5), Arithmetic::Add).unwrap(), "1.5");
        assert_eq!(text(Value::Int32(1), decimal("0.5"), Arithmetic::Add).unwrap(), "NumberDecimal(1.5)");
    }
}
