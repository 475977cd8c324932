//! 128-bit decimal floating point, as BSON stores it: sign, coefficient of at most 34 digits, exponent of
//! ten.
//!
//! ```text
//! bit 127  sign
//! 126..113 exponent + 6176, when bits 126..125 are not 11      112..0  coefficient, binary (BID)
//! 126..122 11110 infinity, 11111 not a number                  other forms: a coefficient above the limit, which is zero
//! ```
//!
//! Arithmetic works on strings of digits: simple, exact, rounded once at the end (half to even). Speed
//! matters little: decimals are for money.
//!
//! Source: IEEE 754-2008, 3.5.2, binary encoding of the significand; BSON's Decimal128 has its bytes in
//! reverse.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

/// Digits of a coefficient.
pub(crate) const DIGITS_MAX: usize = 34;
const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;
const EXPONENT_BIAS: i32 = 6176;
const EXPONENT_MAX: i32 = 6111;
const EXPONENT_MIN: i32 = -6176;

/// A decimal number, as its sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal(u128);

/// Components of a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// coefficient · 10^exponent
    Finite { negative: bool, coefficient: u128, exponent: i32 },
    /// Positive or negative infinity.
    Infinity { negative: bool },
    /// Not a number.
    NaN,
}

/// Direction of rounding when digits are dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    HalfEven,
    Truncate,
    Floor,
    Ceiling,
}

impl Decimal {
    pub(crate) const NAN: Self = Self(0b11111 << 122);

    /// Decodes BSON's bytes; every pattern is a decimal.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// BSON's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(crate) fn parts(self) -> Parts {
        let negative = self.0 >> 127 == 1;
        match (self.0 >> 122) & 0b11111 {
            0b11110 => Parts::Infinity { negative },
            0b11111 => Parts::NaN,
            high if high >> 3 == 0b11 => {
                // The form for coefficients of 2^113 and more, all of which exceed the limit.
                let exponent = ((self.0 >> 111) & 0x3FFF) as i32 - EXPONENT_BIAS;
                Parts::Finite { negative, coefficient: 0, exponent }
            }
            _ => {
                let exponent = ((self.0 >> 113) & 0x3FFF) as i32 - EXPONENT_BIAS;
                let coefficient = self.0 & ((1 << 113) - 1);
                let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
                Parts::Finite { negative, coefficient, exponent }
            }
        }
    }

    fn pack(negative: bool, coefficient: u128, exponent: i32) -> Self {
        debug_assert!(coefficient <= COEFFICIENT_MAX, "coefficient {coefficient} has more than 34 digits");
        debug_assert!((EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent), "exponent {exponent} has no place");
        let exponent = (exponent + EXPONENT_BIAS) as u128;
        Self(u128::from(negative) << 127 | exponent << 113 | coefficient)
    }

    pub(crate) fn infinity(negative: bool) -> Self {
        Self(u128::from(negative) << 127 | 0b11110 << 122)
    }

    pub(crate) fn is_nan(self) -> bool {
        self.parts() == Parts::NaN
    }

    pub(crate) fn is_zero(self) -> bool {
        matches!(self.parts(), Parts::Finite { coefficient: 0, .. })
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0 >> 127 == 1 && !self.is_nan()
    }

    pub(crate) fn negate(self) -> Self {
        Self(self.0 ^ (1 << 127))
    }

    pub(crate) fn from_i64(number: i64) -> Self {
        Self::pack(number < 0, number.unsigned_abs().into(), 0)
    }

    /// Converts to fifteen digits, the precision that a double guarantees.
    pub(crate) fn from_double(number: f64) -> Self {
        if number.is_nan() {
            return Self::NAN;
        }
        if number.is_infinite() {
            return Self::infinity(number < 0.0);
        }
        if number.fract() == 0.0 && number.abs() < 1e15 {
            return Self::from_i64(number as i64);
        }
        Self::parse(&format!("{number:.14e}")).unwrap_or(Self::NAN)
    }

    /// The nearest double.
    pub(crate) fn to_double(self) -> f64 {
        match self.parts() {
            Parts::NaN => f64::NAN,
            Parts::Infinity { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Parts::Finite { negative, coefficient, exponent } => {
                let magnitude = format!("{coefficient}e{exponent}").parse::<f64>().unwrap_or(f64::NAN);
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The value as an integer, if it is one and fits.
    pub(crate) fn to_integer(self) -> Option<i64> {
        let whole = self.quantize(0, Rounding::Truncate);
        if compare_magnitudes(self, whole) == Ordering::Equal { whole.truncated() } else { None }
    }

    /// The integer part, if it fits.
    pub(crate) fn truncated(self) -> Option<i64> {
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else { return None };
        let magnitude = if exponent >= 0 {
            coefficient.checked_mul(10u128.checked_pow(exponent as u32)?)?
        } else {
            10u128.checked_pow(exponent.unsigned_abs()).map_or(0, |divisor| coefficient / divisor)
        };
        let magnitude = i128::try_from(magnitude).ok()?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }

    /// From digits, most significant first, times ten to `exponent`; rounds if they do not fit.
    fn from_digits(negative: bool, digits: &[u8], exponent: i64) -> Self {
        let leading = digits.iter().take_while(|&&digit| digit == 0).count();
        let digits = digits.get(leading..).expect("no more digits lead than there are");
        // Below the least exponent digits are dropped, too: subnormal numbers. Above it no digit has to be.
        let drop_low = (i64::from(EXPONENT_MIN) - exponent).max(0) as usize;
        let drop = digits.len().saturating_sub(DIGITS_MAX).max(drop_low);
        let (coefficient, dropped) = round_digits(digits, drop, negative, Rounding::HalfEven);
        let mut coefficient = coefficient;
        let mut exponent = exponent + dropped as i64;
        if coefficient > COEFFICIENT_MAX {
            coefficient /= 10;
            exponent += 1;
        }
        if coefficient == 0 {
            let exponent = exponent.clamp(EXPONENT_MIN.into(), EXPONENT_MAX.into()) as i32;
            return Self::pack(negative, 0, exponent);
        }
        while exponent > i64::from(EXPONENT_MAX) {
            let Some(shifted) = coefficient.checked_mul(10).filter(|&c| c <= COEFFICIENT_MAX) else {
                return Self::infinity(negative);
            };
            coefficient = shifted;
            exponent -= 1;
        }
        Self::pack(negative, coefficient, exponent as i32)
    }

    /// Reads `-12.50`, `1E+3`, `NaN`, `Infinity`. Digits that do not fit are rounded.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        match rest.to_ascii_lowercase().as_str() {
            "nan" => return Some(Self::NAN),
            "inf" | "infinity" => return Some(Self::infinity(negative)),
            _ => {}
        }
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.len() + fraction.len() == 0 {
            return None;
        }
        let mut digits = Vec::with_capacity(whole.len() + fraction.len());
        for byte in whole.bytes().chain(fraction.bytes()) {
            digits.push(byte.checked_sub(b'0').filter(|&digit| digit <= 9)?);
        }
        Some(Self::from_digits(negative, &digits, i64::from(exponent) - fraction.len() as i64))
    }

    /// The sum, rounded once.
    pub(crate) fn add(self, other: Self) -> Self {
        let (a, b) = match (Finite::of(self), Finite::of(other)) {
            (Some(a), Some(b)) => (a, b),
            _ => {
                return match (self.parts(), other.parts()) {
                    (Parts::Infinity { negative: a }, Parts::Infinity { negative: b }) if a != b => Self::NAN,
                    (Parts::NaN, _) | (_, Parts::NaN) => Self::NAN,
                    (Parts::Infinity { .. }, _) => self,
                    _ => other,
                };
            }
        };
        let (mut high, mut low) = if a.adjusted() >= b.adjusted() { (a, b) } else { (b, a) };
        if low.is_zero() || high.is_zero() {
            let (zero, other) = if low.is_zero() { (low, high) } else { (high, low) };
            if other.is_zero() {
                let negative = zero.negative && other.negative;
                return Self::from_digits(negative, &[0], zero.exponent.min(other.exponent));
            }
            // Trailing zeros after the point are preserved: 1.5 + 0.00 is 1.50.
            let pad = (other.exponent - zero.exponent).clamp(0, (DIGITS_MAX - other.digits.len()) as i64);
            let mut digits = other.digits;
            digits.resize(digits.len() + pad as usize, 0);
            return Self::from_digits(other.negative, &digits, other.exponent - pad);
        }
        if high.adjusted() - low.adjusted() > 2 * DIGITS_MAX as i64 {
            // Too small to matter except for the direction of rounding, for which any tiny number will do.
            low.exponent = high.adjusted() - 2 * DIGITS_MAX as i64;
            low.digits = vec![1];
        }
        let exponent = high.exponent.min(low.exponent);
        for number in [&mut high, &mut low] {
            let pad = (number.exponent - exponent) as usize;
            number.digits.resize(number.digits.len() + pad, 0);
            number.digits.reverse();
        }
        if high.negative == low.negative {
            return Self::from_digits(high.negative, &sum(&high.digits, &low.digits), exponent);
        }
        let (larger, smaller) = if less(&high.digits, &low.digits) { (low, high) } else { (high, low) };
        let digits = difference(&larger.digits, &smaller.digits);
        let negative = larger.negative && digits.iter().any(|&digit| digit != 0);
        Self::from_digits(negative, &digits, exponent)
    }

    /// The difference.
    pub(crate) fn subtract(self, other: Self) -> Self {
        if other.is_nan() { Self::NAN } else { self.add(other.negate()) }
    }

    /// The product, rounded once.
    pub(crate) fn multiply(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        let (Some(a), Some(b)) = (Finite::of(self), Finite::of(other)) else {
            let undefined = self.is_nan() || other.is_nan() || self.is_zero() || other.is_zero();
            return if undefined { Self::NAN } else { Self::infinity(negative) };
        };
        let mut product = vec![0u32; a.digits.len() + b.digits.len() + 1];
        for (i, &x) in a.digits.iter().rev().enumerate() {
            for (place, &y) in product.iter_mut().skip(i).zip(b.digits.iter().rev()) {
                *place += u32::from(x) * u32::from(y);
            }
        }
        let mut carry = 0;
        let mut digits: Vec<u8> = product
            .iter()
            .map(|&place| {
                let total = place + carry;
                carry = total / 10;
                (total % 10) as u8
            })
            .collect();
        digits.reverse();
        Self::from_digits(negative, &digits, a.exponent + b.exponent)
    }

    /// The quotient; `None` for a divisor of zero.
    pub(crate) fn divide(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        let negative = self.is_negative() != other.is_negative();
        Some(match (self.parts(), other.parts()) {
            (Parts::NaN, _) | (_, Parts::NaN) | (Parts::Infinity { .. }, Parts::Infinity { .. }) => Self::NAN,
            (Parts::Infinity { .. }, _) => Self::infinity(negative),
            (_, Parts::Infinity { .. }) => Self::pack(negative, 0, 0),
            (
                Parts::Finite { coefficient: a, exponent: x, .. },
                Parts::Finite { coefficient: b, exponent: y, .. },
            ) => {
                let mut digits = digits_of(a / b);
                let mut remainder = a % b;
                let mut exponent = i64::from(x) - i64::from(y);
                // One digit more than fits, and a sticky digit for all that follow it.
                while remainder != 0 && digits.len() <= DIGITS_MAX + 1 {
                    remainder *= 10;
                    if digits == [0] {
                        digits.clear();
                    }
                    digits.push((remainder / b) as u8);
                    remainder %= b;
                    exponent -= 1;
                }
                if remainder != 0 {
                    digits.push(1);
                    exponent -= 1;
                }
                Self::from_digits(negative, &digits, exponent)
            }
        })
    }

    /// The remainder of a division towards zero; `None` for a divisor of zero.
    pub(crate) fn remainder(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        Some(match (self.parts(), other.parts()) {
            (Parts::NaN | Parts::Infinity { .. }, _) | (_, Parts::NaN) => Self::NAN,
            (_, Parts::Infinity { .. }) => self,
            (
                Parts::Finite { negative, coefficient: a, exponent: x },
                Parts::Finite { coefficient: b, exponent: y, .. },
            ) => {
                if x >= y {
                    let mut left = a % b;
                    for _ in y..x {
                        left = left * 10 % b;
                    }
                    Self::pack(negative, left, y)
                } else {
                    // A divisor that overflows when scaled exceeds every coefficient.
                    let scaled = 10u128.checked_pow(x.abs_diff(y)).and_then(|scale| b.checked_mul(scale));
                    Self::pack(negative, scaled.map_or(a, |b| a % b), x)
                }
            }
        })
    }

    /// Rounds to `places` digits after the point (before it, when negative).
    pub(crate) fn quantize(self, places: i32, rounding: Rounding) -> Self {
        let Parts::Finite { negative, coefficient, exponent } = self.parts() else { return self };
        let drop = i64::from(-places) - i64::from(exponent);
        if drop <= 0 {
            return self;
        }
        let digits = digits_of(coefficient);
        let (coefficient, dropped) = round_digits(&digits, drop as usize, negative, rounding);
        Self::from_digits(negative, &digits_of(coefficient), i64::from(exponent) + dropped as i64)
    }
}

/// Compares the magnitudes of finite numbers.
fn compare_magnitudes(a: Decimal, b: Decimal) -> Ordering {
    let magnitude = |d: Decimal| Decimal(d.0 & !(1 << 127));
    let difference = magnitude(a).subtract(magnitude(b));
    match difference.parts() {
        Parts::Finite { coefficient: 0, .. } => Ordering::Equal,
        _ if difference.is_negative() => Ordering::Less,
        _ => Ordering::Greater,
    }
}

struct Finite {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Finite {
    fn of(decimal: Decimal) -> Option<Self> {
        match decimal.parts() {
            Parts::Finite { negative, coefficient, exponent } => {
                Some(Self { negative, digits: digits_of(coefficient), exponent: exponent.into() })
            }
            _ => None,
        }
    }

    fn is_zero(&self) -> bool {
        self.digits == [0]
    }

    /// The exponent of the first digit.
    fn adjusted(&self) -> i64 {
        self.exponent + self.digits.len() as i64 - 1
    }
}

/// Most significant first; `[0]` for zero.
fn digits_of(mut number: u128) -> Vec<u8> {
    let mut digits = Vec::with_capacity(DIGITS_MAX);
    loop {
        digits.push((number % 10) as u8);
        number /= 10;
        if number == 0 {
            digits.reverse();
            return digits;
        }
    }
}

/// Drops the last `drop` digits and rounds; at most `DIGITS_MAX` digits may be left. Returns how many were
/// dropped.
fn round_digits(digits: &[u8], drop: usize, negative: bool, rounding: Rounding) -> (u128, usize) {
    // A number below all others loses more digits than it has.
    let keep = digits.len().saturating_sub(drop);
    debug_assert!(keep <= DIGITS_MAX, "{keep} digits are left of {}", digits.len());
    let kept = digits.iter().take(keep).fold(0u128, |number, &digit| number * 10 + u128::from(digit));
    let first = if drop > digits.len() { 0 } else { digits.get(keep).copied().unwrap_or(0) };
    let tail_from = if drop > digits.len() { 0 } else { keep + 1 };
    let more = digits.iter().skip(tail_from).any(|&digit| digit != 0);
    let up = match rounding {
        Rounding::HalfEven => first > 5 || first == 5 && (more || kept % 2 == 1),
        Rounding::Truncate => false,
        Rounding::Floor => negative && (first > 0 || more),
        Rounding::Ceiling => !negative && (first > 0 || more),
    };
    (kept + u128::from(up), drop)
}

/// Sum, difference and order of numbers as digits, least significant first; results most significant first.
fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut out: Vec<u8> = (0..a.len().max(b.len()) + 1)
        .map(|i| {
            let total = a.get(i).unwrap_or(&0) + b.get(i).unwrap_or(&0) + carry;
            carry = total / 10;
            total % 10
        })
        .collect();
    out.reverse();
    out
}

fn difference(larger: &[u8], smaller: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut out: Vec<u8> = (0..larger.len())
        .map(|i| {
            let total = 10 + larger.get(i).unwrap_or(&0) - smaller.get(i).unwrap_or(&0) - borrow;
            borrow = u8::from(total < 10);
            total % 10
        })
        .collect();
    out.reverse();
    out
}

fn less(a: &[u8], b: &[u8]) -> bool {
    let at = |digits: &[u8], i: usize| digits.get(i).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .rev()
        .map(|i| at(a, i).cmp(&at(b, i)))
        .find(|order| order.is_ne())
        .is_some_and(Ordering::is_lt)
}

/// Plain where that is short, otherwise scientific: `0.00`, `1E+3`, `1.5E-8`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, coefficient, exponent) = match self.parts() {
            Parts::NaN => return f.write_str("NaN"),
            Parts::Infinity { negative } => {
                return f.write_str(if negative { "-Infinity" } else { "Infinity" });
            }
            Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
        };
        let digits = coefficient.to_string();
        let adjusted = exponent + digits.len() as i32 - 1;
        let mut text = String::new();
        if exponent > 0 || adjusted < -6 {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            write!(text, "{first}{point}{rest}E{adjusted:+}")?;
        } else if exponent == 0 {
            text = digits;
        } else {
            let point = digits.len() as i32 + exponent;
            if point > 0 {
                let (whole, fraction) = digits.split_at(point as usize);
                write!(text, "{whole}.{fraction}")?;
            } else {
                write!(text, "0.{:0>1$}", digits, exponent.unsigned_abs() as usize)?;
            }
        }
        write!(f, "{}{text}", if negative { "-" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn text_there_and_back() {
        for text in [
            "0",
            "-0",
            "1",
            "-1.50",
            "0.001",
            "1E+3",
            "1.5E-8",
            "NaN",
            "Infinity",
            "-Infinity",
            "12345.678",
            "1E-6176",
        ] {
            assert_eq!(d(text).to_string(), text);
        }
        assert_eq!(
            d("9.999999999999999999999999999999999E+6144").to_string(),
            "9.999999999999999999999999999999999E+6144"
        );
        assert_eq!(d("1E+6144").to_string(), "1.000000000000000000000000000000000E+6144");
        assert_eq!(d("1E+6145").to_string(), "Infinity");
        assert_eq!(d("1E-6177").to_string(), "0E-6176");
        assert!(
            Decimal::parse("").is_none() && Decimal::parse("1x").is_none() && Decimal::parse(".").is_none()
        );
        assert_eq!(
            d("12345678901234567890123456789012345").to_string(),
            "1.234567890123456789012345678901234E+34"
        );
    }

    #[test]
    fn arithmetic() {
        assert_eq!(d("0.1").add(d("0.2")).to_string(), "0.3");
        assert_eq!(d("1.5").add(d("0.00")).to_string(), "1.50");
        assert_eq!(d("1").subtract(d("1.0")).to_string(), "0.0");
        assert_eq!(d("100").subtract(d("0.01")).to_string(), "99.99");
        assert_eq!(d("-3").add(d("10")).to_string(), "7");
        assert_eq!(d("1E+100").add(d("1E-100")).to_string(), "1.000000000000000000000000000000000E+100");
        assert_eq!(d("1.1").multiply(d("-1.1")).to_string(), "-1.21");
        assert_eq!(d("1").divide(d("3")).unwrap().to_string(), "0.3333333333333333333333333333333333");
        assert_eq!(d("2").divide(d("3")).unwrap().to_string(), "0.6666666666666666666666666666666667");
        assert_eq!(d("10").divide(d("4")).unwrap().to_string(), "2.5");
        assert!(d("1").divide(d("0")).is_none());
        assert_eq!(d("7.5").remainder(d("2")).unwrap().to_string(), "1.5");
        assert_eq!(d("1E+10").remainder(d("7")).unwrap().to_string(), "4");
        assert_eq!(d("2.5").quantize(0, Rounding::HalfEven).to_string(), "2");
        assert_eq!(d("-2.5").quantize(0, Rounding::Floor).to_string(), "-3");
        assert_eq!(d("2.1").quantize(0, Rounding::Ceiling).to_string(), "3");
        assert_eq!(d("1234").quantize(-2, Rounding::HalfEven).to_string(), "1.2E+3");
        assert_eq!(d("0.4").quantize(-2, Rounding::Ceiling).to_string(), "1E+2");
    }

    #[test]
    fn conversions() {
        assert_eq!(d("7.0").to_integer(), Some(7));
        assert_eq!(d("7.5").to_integer(), None);
        assert_eq!(d("9223372036854775807").to_integer(), Some(i64::MAX));
        assert_eq!(d("-9223372036854775808").to_integer(), Some(i64::MIN));
        assert_eq!(d("9223372036854775808").to_integer(), None);
        assert_eq!(d("1E+6000").to_integer(), None);
        assert_eq!(d("1.25").to_double(), 1.25);
        assert_eq!(Decimal::from_double(0.1).to_double(), 0.1);
    }
}
