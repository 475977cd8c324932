//! Exact decimals: an `i128` and the position of its point.
//!
//!   value = mantissa / 10^scale      |mantissa| < 10^38, scale 0 ..= 38; and NaN, greater than all
//!
//! The scale is preserved in text (`1.50` does not become `1.5`); comparison and hashing ignore it. The
//! range is that of the 128-bit decimals of Arrow, so that columns convert without loss.
//!
//! Row: scale (255 = NaN), then the mantissa in as few little-endian two's complement bytes as hold it. Key,
//! order-preserving: one byte for sign and magnitude, pairs of digits, an end; `1.5` and `1.50` are one key.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use ropewalk_base::DecodeError;

use crate::value::types::NUMERIC_DIGITS_MAX;

const LIMIT: i128 = 10_i128.pow(NUMERIC_DIGITS_MAX as u32);
const NAN_SCALE: u8 = u8::MAX;
const KEY_ZERO: u8 = 0x80;
const KEY_NAN: u8 = 0xff;

/// An exact decimal of up to 38 digits, or NaN. Packed, so that it does not increase the alignment of
/// values, which would slow down allocation.
#[derive(Clone, Copy)]
#[repr(Rust, packed(8))]
pub struct Numeric {
    mantissa: i128,
    scale: u8,
}

fn pow10(exponent: u8) -> i128 {
    10_i128.pow(u32::from(exponent.min(NUMERIC_DIGITS_MAX)))
}

impl Numeric {
    /// Not a number: equal to itself and greater than every number, as in PostgreSQL.
    pub const NAN: Self = Self { mantissa: 0, scale: NAN_SCALE };
    /// Zero.
    pub const ZERO: Self = Self { mantissa: 0, scale: 0 };

    /// `mantissa / 10^scale`, or `None` beyond 38 digits.
    pub fn new(mantissa: i128, scale: u8) -> Option<Self> {
        (scale <= NUMERIC_DIGITS_MAX && -LIMIT < mantissa && mantissa < LIMIT)
            .then_some(Self { mantissa, scale })
    }

    /// True for [`Numeric::NAN`].
    pub fn is_nan(self) -> bool {
        self.scale == NAN_SCALE
    }

    /// The digits as a number, without the point. Zero for NaN.
    pub fn mantissa(self) -> i128 {
        self.mantissa
    }

    /// Digits after the point. Zero for NaN.
    pub fn scale(self) -> u8 {
        if self.is_nan() { 0 } else { self.scale }
    }

    /// The same number with `scale` digits after the point, rounded half away from zero; `None` beyond 38
    /// digits.
    pub fn rescale(self, scale: u8) -> Option<Self> {
        if self.is_nan() {
            return Some(self);
        }
        if scale > NUMERIC_DIGITS_MAX {
            return None;
        }
        if scale >= self.scale {
            return Self::new(self.mantissa.checked_mul(pow10(scale - self.scale))?, scale);
        }
        let divisor = pow10(self.scale - scale);
        let (quotient, rest) = (self.mantissa / divisor, self.mantissa % divisor);
        let away = if rest.abs() >= divisor - rest.abs() { rest.signum() } else { 0 };
        Self::new(quotient + away, scale)
    }

    /// Digits before the point; zero for numbers below one.
    pub fn integer_digits(self) -> u8 {
        let whole = (self.mantissa / pow10(self.scale())).unsigned_abs();
        if whole == 0 { 0 } else { whole.ilog10() as u8 + 1 }
    }

    fn aligned(self, other: Self, f: impl Fn(i128, i128) -> Option<i128>) -> Option<Self> {
        if self.is_nan() || other.is_nan() {
            return Some(Self::NAN);
        }
        let scale = self.scale.max(other.scale);
        Self::new(f(self.rescale(scale)?.mantissa, other.rescale(scale)?.mantissa)?, scale)
    }

    /// Sum; `None` beyond 38 digits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.aligned(other, i128::checked_add)
    }

    /// Difference; `None` beyond 38 digits.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.aligned(other, i128::checked_sub)
    }

    /// Remainder with the sign of `self`; `None` beyond 38 digits or for a zero divisor.
    pub fn checked_rem(self, other: Self) -> Option<Self> {
        self.aligned(other, i128::checked_rem)
    }

    /// Product; `None` beyond 38 digits.
    pub fn checked_mul(self, other: Self) -> Option<Self> {
        if self.is_nan() || other.is_nan() {
            return Some(Self::NAN);
        }
        let (left, right) = (self.trimmed(), other.trimmed());
        let product =
            Self::new(left.mantissa.checked_mul(right.mantissa)?, left.scale.checked_add(right.scale)?)?;
        // Trimmed zeros are restored where they fit.
        let shown = self.scale.saturating_add(other.scale);
        Some(product.rescale(shown).unwrap_or(product))
    }

    /// Quotient with as many digits after the point as in PostgreSQL, or as fit into 38 digits; `None` for a
    /// zero divisor or beyond 38 digits.
    pub fn checked_div(self, other: Self) -> Option<Self> {
        if self.is_nan() || other.is_nan() {
            return Some(Self::NAN);
        }
        if other.mantissa == 0 {
            return None;
        }
        let wanted = self.scale_of_quotient(other);
        let divisor = other.mantissa.unsigned_abs();
        // Long division: `left` powers of ten are still to be appended to the dividend.
        let mut left = wanted + other.scale - self.scale;
        let (mut quotient, mut rest) =
            (self.mantissa.unsigned_abs() / divisor, self.mantissa.unsigned_abs() % divisor);
        while left > 0 {
            let room = NUMERIC_DIGITS_MAX.saturating_sub(digits(quotient));
            let at_once = left.min(room).min((u128::MAX / divisor).ilog10() as u8);
            let step = 10_u128.pow(u32::from(at_once));
            if at_once > 0 {
                (quotient, rest) = (quotient * step + rest * step / divisor, rest * step % divisor);
                left -= at_once;
            } else if room > 0 {
                (quotient, rest) = one_digit(quotient, rest, divisor);
                left -= 1;
            } else {
                break;
            }
        }
        let away = u128::from(rest >= divisor - rest);
        let magnitude = i128::try_from(quotient + away).ok()?;
        let sign = self.mantissa.signum() * other.mantissa.signum();
        Self::new(magnitude * sign, wanted.checked_sub(left)?)
    }

    /// Digits after the point of `self / other`: 16 significant ones, counted in groups of four, and no
    /// fewer than either operand has.
    ///
    /// Source: PostgreSQL 15, `select_div_scale` of `numeric.c`.
    fn scale_of_quotient(self, other: Self) -> u8 {
        let ((weight, first), (other_weight, other_first)) = (self.first_group(), other.first_group());
        let weight = weight - other_weight - i32::from(first <= other_first);
        let significant = u8::try_from(16 - 4 * weight).unwrap_or(0);
        significant.max(self.scale).max(other.scale).min(NUMERIC_DIGITS_MAX)
    }

    /// The first group of four digits that is not zero, counted from the point, and its distance from the
    /// point in groups.
    fn first_group(self) -> (i32, u128) {
        let (magnitude, scale) = (self.mantissa.unsigned_abs(), u32::from(self.scale));
        if magnitude == 0 {
            return (0, 0);
        }
        let behind = i32::from(self.scale);
        let weight = (magnitude.ilog10() as i32 - behind).div_euclid(4);
        // The group ends `4 * weight` digits before the point.
        let group = match u32::try_from(4 * weight + behind) {
            Ok(below) => magnitude / 10_u128.pow(below),
            Err(_) => magnitude * 10_u128.pow((4 * weight).unsigned_abs() - scale),
        };
        (weight, group)
    }

    /// Negates the number.
    #[must_use]
    pub fn negate(self) -> Self {
        Self { mantissa: -self.mantissa, ..self }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        if self.is_nan() {
            return f64::NAN;
        }
        // Parsing rounds correctly; a division of two rounded numbers would not.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The shortest decimal that parses to the same double; `None` for infinities and beyond 38 digits.
    pub fn from_f64(value: f64) -> Option<Self> {
        if value.is_nan() {
            return Some(Self::NAN);
        }
        format!("{value:e}").parse().ok()
    }

    /// The nearest integer, halves away from zero; `None` for NaN.
    pub fn to_i128(self) -> Option<i128> {
        if self.is_nan() { None } else { Some(self.rescale(0)?.mantissa) }
    }

    /// Without trailing zeros after the point.
    fn trimmed(self) -> Self {
        let Self { mut mantissa, mut scale } = self;
        if self.is_nan() {
            return self;
        }
        while scale > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            scale -= 1;
        }
        Self { mantissa, scale }
    }

    pub(crate) fn put_row(self, out: &mut Vec<u8>) {
        out.push(self.scale);
        if self.is_nan() || self.mantissa == 0 {
            return;
        }
        let bytes = self.mantissa.to_le_bytes();
        // The sign bit of the last stored byte must equal the dropped sign bits.
        let fill = if self.mantissa < 0 { 0xff } else { 0 };
        let mut len = bytes.iter().rposition(|&b| b != fill).map_or(1, |last| last + 1);
        if bytes.get(len - 1).is_some_and(|&b| (b ^ fill) & 0x80 != 0) {
            len += 1;
        }
        out.extend_from_slice(bytes.get(..len).unwrap_or(&bytes));
    }

    pub(crate) fn from_row(bytes: &[u8]) -> Option<Self> {
        let (&scale, digits) = bytes.split_first()?;
        if scale == NAN_SCALE {
            return digits.is_empty().then_some(Self::NAN);
        }
        let negative = digits.last().is_some_and(|b| b & 0x80 != 0);
        let mut mantissa = if negative { [0xff; 16] } else { [0; 16] };
        mantissa.get_mut(..digits.len())?.copy_from_slice(digits);
        Self::new(i128::from_le_bytes(mantissa), scale)
    }

    pub(crate) fn put_key(self, out: &mut Vec<u8>) {
        if self.is_nan() {
            return out.push(KEY_NAN);
        }
        if self.mantissa == 0 {
            return out.push(KEY_ZERO);
        }
        let text = self.mantissa.unsigned_abs().to_string();
        // value = 0.d1d2d3… * 10^exponent
        let exponent = text.len() as i16 - i16::from(self.scale);
        let magnitude = (exponent + 38) as u8; // 1 ..= 76
        let negative = self.mantissa < 0;
        out.push(if negative { KEY_ZERO - magnitude } else { KEY_ZERO + magnitude });
        let flip = if negative { 0xff } else { 0 };
        for pair in text.trim_end_matches('0').as_bytes().chunks(2) {
            let high = pair.first().map_or(0, |d| d - b'0');
            let low = pair.get(1).map_or(0, |d| d - b'0');
            out.push((high * 10 + low + 1) ^ flip);
        }
        out.push(flip);
    }

    pub(crate) fn take_key(key: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let error = DecodeError { what: "numeric of a key", offset: 0 };
        let (&head, mut rest) = key.split_first().ok_or_else(|| error.clone())?;
        if head == KEY_NAN {
            return Ok((Self::NAN, rest));
        }
        if head == KEY_ZERO {
            return Ok((Self::ZERO, rest));
        }
        let negative = head < KEY_ZERO;
        let flip = if negative { 0xff } else { 0 };
        let exponent = i16::from(head.abs_diff(KEY_ZERO)) - 38;
        let (mut mantissa, mut count) = (0_i128, 0_i16);
        loop {
            let (&byte, tail) = rest.split_first().ok_or_else(|| error.clone())?;
            rest = tail;
            match byte ^ flip {
                0 => break,
                pair @ 1..=100 if count < 38 => {
                    mantissa = mantissa * 100 + i128::from(pair - 1);
                    count += 2;
                }
                _ => return Err(error),
            }
        }
        if mantissa % 10 == 0 {
            mantissa /= 10;
            count -= 1;
        }
        let scale = count - exponent;
        let value = if scale >= 0 {
            u8::try_from(scale).ok().and_then(|scale| Self::new(mantissa, scale))
        } else {
            let up = u8::try_from(-scale).ok().filter(|up| *up <= NUMERIC_DIGITS_MAX);
            up.and_then(|up| Self::new(mantissa.checked_mul(pow10(up))?, 0))
        };
        let value = value.ok_or(error)?;
        Ok((if negative { value.negate() } else { value }, rest))
    }
}

/// Decimal digits; zero for zero.
fn digits(magnitude: u128) -> u8 {
    magnitude.checked_ilog10().map_or(0, |power| power as u8 + 1)
}

/// One step of a long division where ten times the rest may overflow.
fn one_digit(quotient: u128, rest: u128, divisor: u128) -> (u128, u128) {
    (0..10).fold((quotient * 10, 0), |(quotient, sum), _| {
        let sum = sum + rest;
        if sum >= divisor { (quotient + 1, sum - divisor) } else { (quotient, sum) }
    })
}

impl From<i64> for Numeric {
    fn from(value: i64) -> Self {
        Self { mantissa: i128::from(value), scale: 0 }
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        // Whole part, then the rest with 38 digits: both fit, and both have the sign of the number.
        let parts = |n: &Self| {
            let unit = pow10(n.scale());
            (n.is_nan(), n.mantissa / unit, (n.mantissa % unit) * pow10(NUMERIC_DIGITS_MAX - n.scale()))
        };
        parts(self).cmp(&parts(other))
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { mantissa, scale } = self.trimmed();
        (mantissa, scale).hash(state);
    }
}

/// Error for a text that is not a decimal, or has more than 38 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal number of at most 38 digits")]
pub struct NumericError;

impl FromStr for Numeric {
    type Err = NumericError;

    /// Parses `-12.50`, `.5`, `1e-3`, `NaN`.
    fn from_str(text: &str) -> Result<Self, NumericError> {
        if text.eq_ignore_ascii_case("nan") {
            return Ok(Self::NAN);
        }
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().map_err(|_| NumericError)?),
            None => (text, 0),
        };
        let (negative, number) = match number.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(NumericError);
        }
        let mut mantissa = 0_i128;
        for digit in whole.bytes().chain(fraction.bytes()) {
            let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0')).ok_or(NumericError)?;
            mantissa = mantissa.checked_mul(10).and_then(|m| m.checked_add(digit)).ok_or(NumericError)?;
        }
        let scale =
            i32::try_from(fraction.len()).ok().and_then(|f| f.checked_sub(exponent)).ok_or(NumericError)?;
        let mantissa = if negative { -mantissa } else { mantissa };
        if mantissa == 0 {
            return Ok(Self { mantissa, scale: scale.clamp(0, 38) as u8 });
        }
        if scale < 0 {
            let up = u8::try_from(-scale).ok().filter(|up| *up <= NUMERIC_DIGITS_MAX).ok_or(NumericError)?;
            return mantissa.checked_mul(pow10(up)).and_then(|m| Self::new(m, 0)).ok_or(NumericError);
        }
        u8::try_from(scale).ok().and_then(|scale| Self::new(mantissa, scale)).ok_or(NumericError)
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nan() {
            return f.write_str("NaN");
        }
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let unit = pow10(self.scale).unsigned_abs();
        let (whole, rest) = (self.mantissa.unsigned_abs() / unit, self.mantissa.unsigned_abs() % unit);
        match self.scale {
            0 => write!(f, "{sign}{whole}"),
            scale => write!(f, "{sign}{whole}.{rest:0width$}", width = usize::from(scale)),
        }
    }
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn n(text: &str) -> Numeric {
        text.parse().unwrap()
    }

    fn key(value: Numeric) -> Vec<u8> {
        let mut out = Vec::new();
        value.put_key(&mut out);
        out
    }

    fn numeric() -> impl Strategy<Value = Numeric> {
        let small = (-2000..2000_i128, 0..6_u8);
        let wide = (-(LIMIT - 1)..LIMIT, 0..39_u8);
        prop_oneof![4 => small, 2 => wide].prop_map(|(m, s)| Numeric::new(m, s).unwrap())
    }

    #[test]
    fn golden() {
        let mut row = Vec::new();
        n("-1.50").put_row(&mut row);
        assert_eq!(row, [2, 0x6a, 0xff]);
        assert_eq!(key(n("1.50")), [0x80 + 39, 16, 0]);
        assert_eq!(key(n("-1.5")), [0x80 - 39, 16 ^ 0xff, 0xff]);
        assert_eq!(key(n("0.00")), [0x80]);
        assert_eq!(key(Numeric::NAN), [0xff]);
    }

    #[test]
    fn numeric_parses_and_displays() {
        for (text, shown) in [
            ("1.50", "1.50"),
            ("-.5", "-0.5"),
            ("1e3", "1000"),
            ("12e-3", "0.012"),
            ("+7.", "7"),
            ("0e99", "0"),
            ("nan", "NaN"),
            ("99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
        ] {
            assert_eq!(n(text).to_string(), shown);
        }
        for bad in
            ["", ".", "-", "1.2.3", "1e", "x", "100000000000000000000000000000000000000", "1e39", "1e-39"]
        {
            assert!(bad.parse::<Numeric>().is_err(), "{bad}");
        }
    }

    #[test]
    fn arithmetic() {
        let show = |v: Option<Numeric>| v.unwrap().to_string();
        assert_eq!(show(n("0.1").checked_add(n("0.25"))), "0.35");
        assert_eq!(show(n("1.10").checked_mul(n("2.0"))), "2.200");
        for (dividend, divisor, quotient) in [
            ("1", "3", "0.33333333333333333333"),
            ("-7", "2", "-3.5000000000000000"),
            ("142", "3", "47.3333333333333333"),
            ("1", "2.25", "0.44444444444444444444"),
            ("1", "1623738600.000000", "0.0000000006158626764184826301"),
            ("0", "7", "0.00000000000000000000"),
            ("10000", "10000", "1.00000000000000000000"),
            ("0.00012", "7", "0.000017142857142857142857"),
            ("2", "3000", "0.00066666666666666667"),
            ("12345678901234567890", "0.7", "17636684144620811271.4"),
        ] {
            assert_eq!(show(n(dividend).checked_div(n(divisor))), quotient, "{dividend} / {divisor}");
        }
        // As many digits as fit.
        let nines = "99999999999999999999999999999999999999";
        assert_eq!(show(n("1").checked_div(n(nines))), "0.00000000000000000000000000000000000001");
        assert_eq!(show(n(nines).checked_div(n("7"))), "14285714285714285714285714285714285714");
        assert_eq!(n(nines).checked_div(n("0.1")), None);
        assert_eq!(show(n("-7").checked_rem(n("4"))), "-3");
        assert_eq!(show(n("2.5").rescale(0)), "3");
        assert_eq!(show(n("-2.45").rescale(1)), "-2.5");
        assert_eq!(n("1").checked_div(n("0.00")), None);
        assert_eq!(n("9e37").checked_add(n("1e37")), None);
        assert_eq!(n("0.5").integer_digits(), 0);
        assert_eq!(n("123.4").integer_digits(), 3);
        assert_eq!(Numeric::from_f64(0.1).unwrap(), n("0.1"));
        assert_eq!(n("0.1").to_f64(), 0.1);
    }

    proptest! {
        #[test]
        fn numeric_keys_sort_as_values(a in numeric(), b in numeric()) {
            prop_assert_eq!(a.cmp(&b), key(a).cmp(&key(b)), "{} {}", a, b);
            prop_assert!(a < Numeric::NAN && key(a) < key(Numeric::NAN));
        }

        #[test]
        fn row_key_and_text_round_trip(a in numeric()) {
            let mut row = Vec::new();
            a.put_row(&mut row);
            let back = Numeric::from_row(&row).unwrap();
            prop_assert_eq!((back.mantissa, back.scale), (a.mantissa, a.scale));
            let encoded = key(a);
            prop_assert_eq!(Numeric::take_key(&encoded).unwrap(), (a, &[][..]));
            let back = n(&a.to_string());
            prop_assert_eq!((back.mantissa, back.scale), (a.mantissa, a.scale));
        }

        #[test]
        fn quotient_times_divisor_is_dividend(a in -1_000_000..1_000_000_i64, b in 1..1_000_000_i64) {
            let quotient = Numeric::from(a).checked_div(Numeric::from(b)).unwrap();
            prop_assert!((quotient.to_f64() - a as f64 / b as f64).abs() <= 1e-15 * (a as f64 / b as f64).abs().max(1.0));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Numeric::from_row(&bytes);
            let _ = Numeric::take_key(&bytes);
        }
    }
}
