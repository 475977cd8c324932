//! Precision of a column of times: `timestamp(3)`, `interval year to month`.

use ropewalk_base::{DecodeError, Decoder};

use crate::value::Value;
use crate::value::interval::Interval;
use crate::value::types::{Scalar, Type};

/// Most digits of seconds.
pub const SECOND_DIGITS_MAX: u8 = 6;
/// Encodes that no number of digits is given.
const NO_DIGITS: u8 = u8::MAX;
/// Fields of an interval.
const FIELDS: [Field; 6] = [Field::Year, Field::Month, Field::Day, Field::Hour, Field::Minute, Field::Second];

/// A field of an interval, from the greatest to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Field {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

/// Precision of a column of times, timestamps or intervals. It does not affect key lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Precision {
    /// Digits of seconds, 0 to [`SECOND_DIGITS_MAX`]: values are rounded to them, halves away from zero.
    pub digits: Option<u8>,
    /// The greatest and the least field of an interval: smaller fields are cut off.
    pub fields: Option<(Field, Field)>,
}

impl Precision {
    /// Precision with so many digits of seconds.
    pub fn digits(digits: u8) -> Self {
        Self { digits: Some(digits), fields: None }
    }

    /// True for types that may have this precision.
    pub fn fits(self, ty: Type) -> bool {
        let is_timed = matches!(ty, Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL);
        let has_order = self.fields.is_none_or(|(greatest, least)| greatest <= least);
        is_timed
            && has_order
            && (self.fields.is_none() || ty == Type::Scalar(Scalar::Interval))
            && self.digits.is_none_or(|digits| digits <= SECOND_DIGITS_MAX)
    }

    /// The value at this precision.
    pub fn keep(self, value: Value<'_>) -> Value<'_> {
        match value {
            Value::Time(micros) => Value::Time(self.rounded(micros)),
            // The infinities are unchanged.
            Value::Timestamp(micros) if !is_infinite(micros) => Value::Timestamp(self.moment(micros)),
            Value::Timestamptz(micros) if !is_infinite(micros) => Value::Timestamptz(self.moment(micros)),
            Value::Interval(interval) => Value::Interval(self.cut(interval)),
            other => other,
        }
    }

    /// Rounds halves away from the year 2000, as in PostgreSQL.
    fn moment(self, micros: i64) -> i64 {
        const MICROS_2000: i64 = 946_684_800_000_000;
        match micros.checked_sub(MICROS_2000) {
            Some(since) => self.rounded(since).saturating_add(MICROS_2000),
            None => self.rounded(micros),
        }
    }

    fn rounded(self, micros: i64) -> i64 {
        let digits = self.digits.unwrap_or(SECOND_DIGITS_MAX).min(SECOND_DIGITS_MAX);
        let unit = 10_i64.pow(u32::from(SECOND_DIGITS_MAX - digits));
        let half = if micros < 0 { -(unit / 2) } else { unit / 2 };
        micros.saturating_add(half) / unit * unit
    }

    fn cut(self, interval: Interval) -> Interval {
        let Interval { months, days, micros } = interval;
        let clock = |unit: i64| Interval { micros: micros - micros % unit, ..interval };
        match self.fields.map_or(Field::Second, |(_, least)| least) {
            Field::Year => Interval { months: months - months % 12, days: 0, micros: 0 },
            Field::Month => Interval { months, days: 0, micros: 0 },
            Field::Day => Interval { months, days, micros: 0 },
            Field::Hour => clock(3_600_000_000),
            Field::Minute => clock(60_000_000),
            Field::Second => Interval { micros: self.rounded(micros), ..interval },
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let place =
            |field| FIELDS.iter().position(|known| *known == field).expect("all fields are listed") as u8;
        out.push(self.digits.unwrap_or(NO_DIGITS));
        out.push(self.fields.map_or(0, |(greatest, least)| 1 + place(greatest) * 6 + place(least)));
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let damaged = DecodeError { what: "known precision", offset };
        let digits = match decoder.u8("digits")? {
            NO_DIGITS => None,
            digits @ 0..=SECOND_DIGITS_MAX => Some(digits),
            _ => return Err(damaged),
        };
        let fields = match decoder.u8("fields")? {
            0 => None,
            number => {
                let field = |place: u8| FIELDS.get(usize::from(place)).copied();
                let (greatest, least) = (field((number - 1) / 6), field((number - 1) % 6));
                Some(greatest.zip(least).filter(|(greatest, least)| greatest <= least).ok_or(damaged)?)
            }
        };
        Ok(Self { digits, fields })
    }
}

fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MIN | i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_away_from_zero() {
        let kept = |digits, micros| Precision::digits(digits).rounded(micros);
        assert_eq!(kept(3, 1_234_500), 1_235_000);
        assert_eq!(kept(3, 1_234_499), 1_234_000);
        assert_eq!(kept(0, -1_500_000), -2_000_000);
        assert_eq!(kept(0, -1_499_999), -1_000_000);
        assert_eq!(kept(6, 1_234_567), 1_234_567);
        let before = Value::Timestamp(915_148_800_000_500);
        assert_eq!(Precision::digits(3).keep(before), Value::Timestamp(915_148_800_000_000));
        let forever = Value::Timestamp(i64::MAX);
        assert_eq!(Precision::digits(0).keep(forever.clone()), forever);
    }

    #[test]
    fn fields_below_the_least_are_cut_off() {
        let whole = Interval { months: 14, days: 3, micros: 3_723_456_789 };
        let cut = |greatest, least| Precision { digits: None, fields: Some((greatest, least)) }.cut(whole);
        assert_eq!(cut(Field::Year, Field::Year), Interval { months: 12, days: 0, micros: 0 });
        assert_eq!(cut(Field::Year, Field::Month), Interval { months: 14, days: 0, micros: 0 });
        assert_eq!(cut(Field::Day, Field::Hour), Interval { micros: 3_600_000_000, ..whole });
        assert_eq!(cut(Field::Day, Field::Minute), Interval { micros: 3_720_000_000, ..whole });
        assert_eq!(cut(Field::Day, Field::Second), whole);
    }

    #[test]
    fn encoded_and_back() {
        for digits in [None, Some(0), Some(6)] {
            for fields in [None, Some((Field::Year, Field::Month)), Some((Field::Second, Field::Second))] {
                let (precision, mut bytes) = (Precision { digits, fields }, Vec::new());
                precision.encode(&mut bytes);
                assert_eq!(Precision::decode(&mut Decoder::new(&bytes)).unwrap(), precision);
            }
        }
        for bytes in [[7, 0], [255, 37], [0, 7]] {
            assert!(Precision::decode(&mut Decoder::new(&bytes)).is_err(), "{bytes:?}");
        }
    }
}
