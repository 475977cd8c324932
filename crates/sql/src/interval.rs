//! Intervals, as operands: written out, added to a moment, compared with the difference of two.
//!
//! Months, days and microseconds are kept apart, since a month has no length and a day is added before the clock's part. There
//! is no column of this type.

use crate::datetime::{DAY, civil, days, days_in_month};
use crate::zone::Zone;

/// A length of time, of three parts that do not turn into each other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) micros: i64,
}

const SECOND: f64 = 1e6;
/// What PostgreSQL takes a month for, where it must.
const DAYS_OF_MONTH: f64 = 30.0;

/// Units by their names: months, days, microseconds.
fn unit(name: &str) -> Option<(f64, f64, f64)> {
    let name = name.to_ascii_lowercase();
    let months = |months: f64| Some((months, 0.0, 0.0));
    let micros = |micros: f64| Some((0.0, 0.0, micros));
    match name.as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => micros(1.0),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => micros(1e3),
        "s" | "sec" | "secs" | "second" | "seconds" => micros(SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => micros(60.0 * SECOND),
        "h" | "hr" | "hrs" | "hour" | "hours" => micros(3600.0 * SECOND),
        "d" | "day" | "days" => Some((0.0, 1.0, 0.0)),
        "w" | "week" | "weeks" => Some((0.0, 7.0, 0.0)),
        "mon" | "mons" | "month" | "months" => months(1.0),
        "y" | "yr" | "yrs" | "year" | "years" => months(12.0),
        "dec" | "decs" | "decade" | "decades" => months(120.0),
        "c" | "cent" | "century" | "centuries" => months(1200.0),
        _ => None,
    }
}

impl Interval {
    /// Parts that may have fractions: a month's become days, a day's become microseconds. `None` when it does not fit.
    fn of(months: f64, days: f64, micros: f64) -> Option<Self> {
        let days = days + months.fract() * DAYS_OF_MONTH;
        let micros = (micros + days.fract() * DAY as f64).round();
        let fits = |value: f64, max: f64| value.is_finite() && value.abs() <= max;
        let all = fits(months, i32::MAX.into()) && fits(days, i32::MAX.into()) && fits(micros, 9e18);
        all.then(|| Self { months: months.trunc() as i32, days: days.trunc() as i32, micros: micros as i64 })
    }

    /// Reads `1 day 02:03:04`, `-1.5 hours`, `2 years 3 mons ago`, `P1DT2H`; a number alone is of `field`, or of seconds.
    pub(crate) fn parse(text: &str, field: Option<&str>) -> Option<Self> {
        let text = text.trim();
        if let Some(iso) = text.strip_prefix(['P', 'p']) {
            return Self::parse_iso(iso);
        }
        let (text, sign) = match text.strip_suffix("ago").or_else(|| text.strip_suffix("AGO")) {
            Some(rest) => (rest, -1.0),
            None => (text, 1.0),
        };
        let (mut months, mut days, mut micros) = (0.0, 0.0, 0.0);
        let mut words = words(text).into_iter().peekable();
        words.peek()?;
        while let Some(word) = words.next() {
            if word.contains(':') {
                micros += clock(word)?;
                continue;
            }
            let number: f64 = word.parse().ok()?;
            let name = match words.next_if(|next| next.starts_with(|c: char| c.is_ascii_alphabetic())) {
                Some(name) => name,
                None if words.peek().is_none() => field.unwrap_or("second"),
                // `1 02:03:04` is a day and a time of day.
                None if words.peek().is_some_and(|next| next.contains(':')) => "day",
                None => return None,
            };
            let unit = unit(name)?;
            months += number * unit.0;
            days += number * unit.1;
            micros += number * unit.2;
        }
        Self::of(sign * months, sign * days, sign * micros)
    }

    fn parse_iso(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', 't']).unwrap_or((text, ""));
        let (mut months, mut days, mut micros) = (0.0, 0.0, 0.0);
        for (part, is_time) in [(date, false), (time, true)] {
            let mut pairs = words(part).into_iter();
            while let Some(number) = pairs.next() {
                let number: f64 = number.parse().ok()?;
                match (pairs.next()?.to_ascii_uppercase().as_str(), is_time) {
                    ("Y", false) => months += number * 12.0,
                    ("M", false) => months += number,
                    ("W", false) => days += number * 7.0,
                    ("D", false) => days += number,
                    ("H", true) => micros += number * 3600.0 * SECOND,
                    ("M", true) => micros += number * 60.0 * SECOND,
                    ("S", true) => micros += number * SECOND,
                    _ => return None,
                }
            }
        }
        (!date.is_empty() || !time.is_empty()).then(|| Self::of(months, days, micros))?
    }

    /// So many times as long.
    pub(crate) fn times(self, factor: f64) -> Option<Self> {
        if factor == 1.0 {
            return Some(self);
        }
        if factor == -1.0 {
            let (months, days, micros) =
                (self.months.checked_neg()?, self.days.checked_neg()?, self.micros.checked_neg()?);
            return Some(Self { months, days, micros });
        }
        Self::of(f64::from(self.months) * factor, f64::from(self.days) * factor, self.micros as f64 * factor)
    }

    /// The moment that is later by this; both in microseconds since 1970. Infinite moments stay. `None` when it does not fit.
    pub(crate) fn after(self, micros: i64) -> Option<i64> {
        if matches!(micros, i64::MAX | i64::MIN) {
            return Some(micros);
        }
        let (mut date, clock) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
        if self.months != 0 {
            let (year, month, day) = civil(date);
            let month = year * 12 + month - 1 + i64::from(self.months);
            let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
            // The 31st of a shorter month is its last day.
            date = days(year, month, day.min(days_in_month(year, month)));
        }
        date = date.checked_add(self.days.into())?;
        date.checked_mul(DAY)?.checked_add(clock)?.checked_add(self.micros)
    }

    /// The moment that is later by this, where months and days are those of the zone's calendar.
    pub(crate) fn after_in(self, micros: i64, zone: &Zone) -> Option<i64> {
        if zone.is_utc() || self.months == 0 && self.days == 0 {
            return self.after(micros);
        }
        let dates = Self { micros: 0, ..self };
        Self { months: 0, days: 0, ..self }.after(zone.moment(dates.after(zone.local(micros))?))
    }

    /// Its length where days have 24 hours and months 30 days, in microseconds: what comparisons go by.
    pub(crate) fn length(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * i128::from(DAY) + i128::from(self.micros)
    }
}

/// Numbers and names apart, also where nothing stands between them.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let is_name = first.is_ascii_alphabetic();
            let end = rest.find(|c: char| c.is_ascii_alphabetic() != is_name).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            words.push(word);
            rest = after;
        }
    }
    words
}

/// Microseconds of `[-]HH:MM[:SS[.ffffff]]`.
fn clock(text: &str) -> Option<f64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = text.split(':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let seconds: f64 = match parts.next() {
        None => 0.0,
        Some(seconds) => seconds.parse().ok().filter(|seconds| (0.0..60.0).contains(seconds))?,
    };
    let whole = f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0;
    parts.next().is_none().then_some(sign * (whole + seconds) * SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(i32, i32, i64)> {
        Interval::parse(text, None).map(|i| (i.months, i.days, i.micros))
    }

    #[test]
    fn texts_of_every_form() {
        assert_eq!(parts("1 day"), Some((0, 1, 0)));
        assert_eq!(parts("2 years 3 mons -4 days"), Some((27, -4, 0)));
        assert_eq!(parts("1 day 02:03:04.5"), Some((0, 1, 7_384_500_000)));
        assert_eq!(parts("3 12:00"), Some((0, 3, 43_200_000_000)));
        assert_eq!(parts("1.5 hours"), Some((0, 0, 5_400_000_000)));
        assert_eq!(parts("1.5 months"), Some((1, 15, 0)));
        assert_eq!(parts("1 week ago"), Some((0, -7, 0)));
        assert_eq!(parts("10"), Some((0, 0, 10_000_000)));
        assert_eq!(parts("2h30m"), Some((0, 0, 9_000_000_000)));
        assert_eq!(parts("P1Y2M3DT4H5M6S"), Some((14, 3, 14_706_000_000)));
        assert_eq!(Interval::parse("7", Some("day")), Some(Interval { months: 0, days: 7, micros: 0 }));
        for wrong in ["", "day", "1 parsec", "1 2 days", "1:70", "P", "PT1D", "1e400 days", "3000000000 days"]
        {
            assert_eq!(parts(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn months_end_where_they_end() {
        let at = |text: &str| crate::datetime::parse_timestamp(text).unwrap().0;
        let month = Interval { months: 1, days: 0, micros: 0 };
        assert_eq!(month.after(at("2024-01-31 10:00")), Some(at("2024-02-29 10:00")));
        assert_eq!(month.times(-1.0).unwrap().after(at("2024-03-31")), Some(at("2024-02-29")));
        assert_eq!(month.after(at("2023-12-31 23:59:59")), Some(at("2024-01-31 23:59:59")));
        assert_eq!(month.times(0.5), Some(Interval { months: 0, days: 15, micros: 0 }));
        assert_eq!(month.after(i64::MAX), Some(i64::MAX));
        assert_eq!(Interval { months: 0, days: i32::MAX, micros: 0 }.after(i64::MAX - 1), None);
    }
}
