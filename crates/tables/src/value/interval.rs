//! Intervals of three parts that cannot be converted: months vary in length, and a day may have 23 hours.
//!
//! They compare by their length with months of 30 days and days of 24 hours, as in PostgreSQL: `1 month`
//! equals `30 days`. A key contains only that length, so rows also store the parts.

use std::cmp::Ordering;
use std::fmt;

use ropewalk_base::DecodeError;

const DAY: i128 = 86_400_000_000;
const DAYS_OF_MONTH: i128 = 30;

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    /// Months, of whatever length.
    pub months: i32,
    /// Days of a calendar.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// Microseconds, with months of 30 days and days of 24 hours: the basis of comparisons.
    pub fn length(self) -> i128 {
        (i128::from(self.months) * DAYS_OF_MONTH + i128::from(self.days)) * DAY + i128::from(self.micros)
    }

    /// An interval of this length: as many months as fit, then days, microseconds. `None` if out of range.
    pub fn from_length(length: i128) -> Option<Self> {
        let within = |number: i128| number.clamp(i32::MIN.into(), i32::MAX.into());
        let days = length / DAY;
        let months = within(days / DAYS_OF_MONTH);
        let days = within(days - months * DAYS_OF_MONTH);
        let micros = length - (months * DAYS_OF_MONTH + days) * DAY;
        Some(Self {
            months: i32::try_from(months).ok()?,
            days: i32::try_from(days).ok()?,
            micros: i64::try_from(micros).ok()?,
        })
    }

    /// The order of SQL.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.length().cmp(&other.length())
    }

    pub(crate) fn put_row(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.micros.to_le_bytes());
        out.extend_from_slice(&self.days.to_le_bytes());
        out.extend_from_slice(&self.months.to_le_bytes());
    }

    pub(crate) fn from_row(bytes: &[u8]) -> Option<Self> {
        let (micros, rest) = bytes.split_first_chunk()?;
        let (days, rest) = rest.split_first_chunk()?;
        Some(Self {
            micros: i64::from_le_bytes(*micros),
            days: i32::from_le_bytes(*days),
            months: i32::from_le_bytes(rest.try_into().ok()?),
        })
    }

    pub(crate) fn put_key(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&((self.length() as u128) ^ (1 << 127)).to_be_bytes());
    }

    /// Decodes an interval of the same length as the encoded one.
    pub(crate) fn take_key(key: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let error = || DecodeError { what: "interval of a key", offset: 0 };
        let (bytes, rest) = key.split_first_chunk().ok_or_else(error)?;
        let length = (u128::from_be_bytes(*bytes) ^ (1 << 127)) as i128;
        Ok((Self::from_length(length).ok_or_else(error)?, rest))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}M{}DT{}US", self.months, self.days, self.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_intervals_decode_from_their_keys() {
        for (months, days, micros) in [
            (i32::MAX, i32::MAX, i64::MAX),
            (i32::MIN, i32::MIN, i64::MIN),
            (i32::MAX, i32::MIN, i64::MAX),
            (1, -30, 0),
            (0, 0, -1),
        ] {
            let interval = Interval { months, days, micros };
            let mut key = Vec::new();
            interval.put_key(&mut key);
            let (back, rest) = Interval::take_key(&key).unwrap();
            assert_eq!((back.length(), rest.len()), (interval.length(), 0), "{interval}");
            let mut row = Vec::new();
            interval.put_row(&mut row);
            assert_eq!(Interval::from_row(&row), Some(interval));
        }
    }
}
