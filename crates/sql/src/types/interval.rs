//! Intervals: PostgreSQL's text format, arithmetic, addition to times.
//!
//! Months, days and microseconds are separate, since months vary in length and days are added before the time
//! of day.

use ropewalk::hooks::civil;
use ropewalk::tables::{Interval, Numeric};

use crate::types::datetime::DAY;
use crate::types::zone::Zone;

const SECOND: f64 = 1e6;
/// PostgreSQL's length of a month, where one is needed.
const DAYS_OF_MONTH: i32 = 30;

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

/// Months of a number of units; the fraction of a year becomes whole months.
fn months_of(number: f64, unit: f64) -> f64 {
    if unit < 12.0 {
        number * unit
    } else {
        number.trunc() * unit + (number.fract() * unit).round_ties_even()
    }
}

/// An interval of parts with fractions: a month's become days, a day's become microseconds. `None` on
/// overflow.
fn of(months: f64, days: f64, micros: f64) -> Option<Interval> {
    let days = days + months.fract() * f64::from(DAYS_OF_MONTH);
    // Rounds away errors of the computation.
    let days = if (days - days.round()).abs() < 1e-9 { days.round() } else { days };
    let micros = (micros + days.fract() * DAY as f64).round();
    let fits = |value: f64, max: f64| value.is_finite() && value.abs() <= max;
    let all = fits(months, i32::MAX.into()) && fits(days, i32::MAX.into()) && fits(micros, 9e18);
    let whole =
        || Interval { months: months.trunc() as i32, days: days.trunc() as i32, micros: micros as i64 };
    all.then(whole)
}

/// Reads `1 day 02:03:04`, `-1.5 hours`, `2 years 3 mons ago`, `1-2`, `P1DT2H`; the unit of a plain number is
/// `field`, or seconds.
pub(crate) fn parse(text: &str, field: Option<&str>) -> Option<Interval> {
    let text = text.trim();
    if let Some(iso) = text.strip_prefix(['P', 'p']) {
        return parse_iso(iso);
    }
    let text = text.strip_prefix('@').unwrap_or(text);
    let (text, is_ago) = match text.strip_suffix("ago").or_else(|| text.strip_suffix("AGO")) {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (mut months, mut days, mut micros, mut exact) = (0.0, 0.0, 0.0, 0_i64);
    let mut words = words(text).into_iter().peekable();
    words.peek()?;
    while let Some(word) = words.next() {
        if word.contains(':') {
            exact = exact.checked_add(clock(word)?)?;
            continue;
        }
        if let Some(found) = years_and_months(word) {
            months += found;
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
        months += months_of(number, unit.0);
        days += number * unit.1;
        micros += number * unit.2;
    }
    let found = of(months, days, micros)?;
    let found = Interval { micros: found.micros.checked_add(exact)?, ..found };
    if is_ago { negate(found) } else { Some(found) }
}

/// Months of `years-months`, the format of the SQL standard.
fn years_and_months(word: &str) -> Option<f64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, word.strip_prefix('+').unwrap_or(word)),
    };
    let (years, months) = digits.split_once('-')?;
    let (years, months): (u32, u32) = (years.parse().ok()?, months.parse().ok()?);
    (months < 12).then(|| sign * (f64::from(years) * 12.0 + f64::from(months)))
}

fn parse_iso(text: &str) -> Option<Interval> {
    let (date, time) = text.split_once(['T', 't']).unwrap_or((text, ""));
    let (mut months, mut days, mut micros) = (0.0, 0.0, 0.0);
    for (part, is_time) in [(date, false), (time, true)] {
        let mut pairs = words(part).into_iter();
        while let Some(number) = pairs.next() {
            let number: f64 = number.parse().ok()?;
            match (pairs.next()?.to_ascii_uppercase().as_str(), is_time) {
                ("Y", false) => months += months_of(number, 12.0),
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
    (!date.is_empty() || !time.is_empty()).then(|| of(months, days, micros))?
}

/// `1 year 2 mons -3 days +04:05:06.7`.
pub(crate) fn show(interval: Interval) -> String {
    let mut out = String::new();
    let mut was_negative = false;
    let (years, months) = (interval.months / 12, interval.months % 12);
    for (number, unit) in [(years, "year"), (months, "mon"), (interval.days, "day")] {
        if number != 0 {
            let (space, plus) =
                (if out.is_empty() { "" } else { " " }, if was_negative && number > 0 { "+" } else { "" });
            out += &format!("{space}{plus}{number} {unit}{}", if number == 1 { "" } else { "s" });
            was_negative = number < 0;
        }
    }
    if interval.micros != 0 || out.is_empty() {
        let space = if out.is_empty() { "" } else { " " };
        let sign = match (interval.micros < 0, was_negative) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        let micros = interval.micros.unsigned_abs();
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        out += &format!("{space}{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        if fraction != 0 {
            out += format!(".{fraction:06}").trim_end_matches('0');
        }
    }
    out
}

/// Removes the parts smaller than a field, as for `INTERVAL '...' DAY`.
pub(crate) fn cut_to(interval: Interval, field: &str) -> Option<Interval> {
    let Interval { months, days, micros } = interval;
    let clock = |unit: i64| Interval { micros: micros - micros % unit, ..interval };
    Some(match field {
        "year" => Interval { months: months - months % 12, days: 0, micros: 0 },
        "month" => Interval { months, days: 0, micros: 0 },
        "day" => Interval { months, days, micros: 0 },
        "hour" => clock(3_600_000_000),
        "minute" => clock(60_000_000),
        "second" => interval,
        _ => return None,
    })
}

pub(crate) fn negate(interval: Interval) -> Option<Interval> {
    let Interval { months, days, micros } = interval;
    Some(Interval { months: months.checked_neg()?, days: days.checked_neg()?, micros: micros.checked_neg()? })
}

pub(crate) fn add(a: Interval, b: Interval) -> Option<Interval> {
    Some(Interval {
        months: a.months.checked_add(b.months)?,
        days: a.days.checked_add(b.days)?,
        micros: a.micros.checked_add(b.micros)?,
    })
}

/// Multiplies an interval.
pub(crate) fn times(interval: Interval, factor: f64) -> Option<Interval> {
    let Interval { months, days, micros } = interval;
    let whole = factor as i32;
    if f64::from(whole) == factor {
        return Some(Interval {
            months: months.checked_mul(whole)?,
            days: days.checked_mul(whole)?,
            micros: micros.checked_mul(whole.into())?,
        });
    }
    scaled(f64::from(months) * factor, f64::from(days) * factor, micros as f64 * factor)
}

/// An interval of the parts of a product or quotient. The rest of a month, in days, and that of a day, in seconds, are
/// rounded to six digits before they are carried.
///
/// Source: PostgreSQL 15, `interval_mul` of `timestamp.c`.
fn scaled(months: f64, days: f64, micros: f64) -> Option<Interval> {
    const DAY_SECONDS: f64 = 86_400.0;
    let rounded = |value: f64| (value * 1e6).round_ties_even() / 1e6;
    let of_month = rounded(months.fract() * f64::from(DAYS_OF_MONTH));
    let seconds = rounded((days.fract() + of_month.fract()) * DAY_SECONDS);
    let carried = (seconds / DAY_SECONDS).trunc();
    let days = days.trunc() + carried + of_month.trunc();
    let micros = (micros + (seconds - carried * DAY_SECONDS) * SECOND).round_ties_even();
    let fits = |value: f64, max: f64| value.is_finite() && value.abs() <= max;
    let all = fits(months, i32::MAX.into()) && fits(days, i32::MAX.into()) && fits(micros, 9e18);
    all.then(|| Interval { months: months.trunc() as i32, days: days as i32, micros: micros as i64 })
}

/// Divides an interval; `None` for a division by zero or overflow.
pub(crate) fn divided(interval: Interval, divisor: f64) -> Option<Interval> {
    let Interval { months, days, micros } = interval;
    scaled(f64::from(months) / divisor, f64::from(days) / divisor, micros as f64 / divisor)
}

/// Adds an interval to an instant; both in microseconds since 1970. Infinities are unchanged. `None` on
/// overflow.
pub(crate) fn after(interval: Interval, micros: i64) -> Option<i64> {
    if matches!(micros, i64::MAX | i64::MIN) {
        return Some(micros);
    }
    let (mut date, clock) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    if interval.months != 0 {
        let (year, month, day) = civil::from_days(date);
        let month = year * 12 + month - 1 + i64::from(interval.months);
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
        // The 31st of a shorter month is its last day.
        date = civil::to_days(year, month, day.min(civil::days_in_month(year, month)));
    }
    date = date.checked_add(interval.days.into())?;
    date.checked_mul(DAY)?.checked_add(clock)?.checked_add(interval.micros)
}

/// Adds an interval to an instant, with months and days of the zone's calendar.
pub(crate) fn after_in(interval: Interval, micros: i64, zone: &Zone) -> Option<i64> {
    if zone.is_utc() || interval.months == 0 && interval.days == 0 {
        return after(interval, micros);
    }
    let (dates, clock) =
        (Interval { micros: 0, ..interval }, Interval { months: 0, days: 0, micros: interval.micros });
    after(clock, zone.moment(after(dates, zone.local(micros))?))
}

/// The time between two instants, in days and microseconds.
pub(crate) fn between(later: i64, earlier: i64) -> Option<Interval> {
    let micros = later.checked_sub(earlier)?;
    Some(Interval { months: 0, days: i32::try_from(micros / DAY).ok()?, micros: micros % DAY })
}

/// The time between two instants, in years, months and days of the calendar: `age`.
pub(crate) fn age(later: i64, earlier: i64) -> Option<Interval> {
    if later < earlier {
        return negate(age(earlier, later)?);
    }
    let ((year, month, day), (from_year, from_month, from_day)) =
        (civil::from_days(later.div_euclid(DAY)), civil::from_days(earlier.div_euclid(DAY)));
    let mut micros = later.rem_euclid(DAY) - earlier.rem_euclid(DAY);
    let mut days = day - from_day;
    let mut months = (year - from_year) * 12 + month - from_month;
    if micros < 0 {
        (micros, days) = (micros + DAY, days - 1);
    }
    if days < 0 {
        (days, months) = (days + civil::days_in_month(from_year, from_month), months - 1);
    }
    Some(Interval { months: i32::try_from(months).ok()?, days: i32::try_from(days).ok()?, micros })
}

/// Converts hours beyond 24 to days.
pub(crate) fn justify_hours(interval: Interval) -> Option<Interval> {
    let whole = i32::try_from(interval.micros / DAY).ok()?;
    let (mut days, mut micros) = (interval.days.checked_add(whole)?, interval.micros % DAY);
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - DAY);
    }
    Some(Interval { days, micros, ..interval })
}

/// Converts days beyond 30 to months.
pub(crate) fn justify_days(interval: Interval) -> Option<Interval> {
    let mut months = interval.months.checked_add(interval.days / DAYS_OF_MONTH)?;
    let mut days = interval.days % DAYS_OF_MONTH;
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + DAYS_OF_MONTH);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - DAYS_OF_MONTH);
    }
    Some(Interval { months, days, ..interval })
}

/// Converts hours and days, and gives all parts the same sign.
pub(crate) fn justify(interval: Interval) -> Option<Interval> {
    let whole = i32::try_from(interval.micros / DAY).ok()?;
    let (all, mut micros) = (interval.days.checked_add(whole)?, interval.micros % DAY);
    let (mut months, mut days) = (interval.months.checked_add(all / DAYS_OF_MONTH)?, all % DAYS_OF_MONTH);
    if months > 0 && (days < 0 || days == 0 && micros < 0) {
        (months, days) = (months - 1, days + DAYS_OF_MONTH);
    } else if months < 0 && (days > 0 || days == 0 && micros > 0) {
        (months, days) = (months + 1, days - DAYS_OF_MONTH);
    }
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - DAY);
    }
    Some(Interval { months, days, micros })
}

/// `extract(field from interval)`; `None` for a field that intervals do not have.
pub(crate) fn part(interval: Interval, field: &str) -> Option<Numeric> {
    let Interval { months, days, micros } = interval;
    let whole = |number: i64| Some(Numeric::from(number));
    let (years, of_year) = (i64::from(months / 12), i64::from(months % 12));
    match field {
        "year" => whole(years),
        "month" => whole(of_year),
        "quarter" => whole(of_year / 3 + 1),
        "decade" => whole(years / 10),
        "century" => whole(years / 100),
        "millennium" => whole(years / 1000),
        "day" => whole(days.into()),
        "hour" => whole(micros / 3_600_000_000),
        "minute" => whole(micros / 60_000_000 % 60),
        "second" => Numeric::new((micros % 60_000_000).into(), 6),
        "milliseconds" => Numeric::new((micros % 60_000_000).into(), 3),
        "microseconds" => whole(micros % 60_000_000),
        // A year has 365.25 days here, as in PostgreSQL.
        "epoch" => {
            let quarters = i128::from(years) * 1461 + i128::from(of_year) * 120 + i128::from(days) * 4;
            Numeric::new(quarters * i128::from(DAY / 4) + i128::from(micros), 6)
        }
        _ => None,
    }
}

/// `date_trunc(field, interval)`; `None` for an unknown field.
pub(crate) fn truncated(interval: Interval, field: &str) -> Option<Interval> {
    let Interval { months, micros, .. } = interval;
    let years = |years: i32| Some(Interval { months: months - months % (12 * years), days: 0, micros: 0 });
    match field {
        "quarter" => Some(Interval { months: months - months % 3, days: 0, micros: 0 }),
        "decade" => years(10),
        "century" => years(100),
        "millennium" => years(1000),
        "second" => Some(Interval { micros: micros - micros % 1_000_000, ..interval }),
        "milliseconds" => Some(Interval { micros: micros - micros % 1000, ..interval }),
        "microseconds" => Some(interval),
        field => cut_to(interval, field),
    }
}

/// Splits numbers from names, also without blanks between them.
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
fn clock(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = text.split(':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let seconds: f64 = match parts.next() {
        None => 0.0,
        Some(seconds) => seconds.parse().ok().filter(|seconds| (0.0..60.0).contains(seconds))?,
    };
    let whole = (i64::from(hours) * 60 + i64::from(minutes)).checked_mul(60_000_000)?;
    parts
        .next()
        .is_none()
        .then(|| whole.checked_add((seconds * SECOND).round() as i64))?
        .map(|all| sign * all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(i32, i32, i64)> {
        parse(text, None).map(|i| (i.months, i.days, i.micros))
    }

    #[test]
    fn parse_accepts_every_format() {
        assert_eq!(parts("1 day"), Some((0, 1, 0)));
        assert_eq!(parts("2 years 3 mons -4 days"), Some((27, -4, 0)));
        assert_eq!(parts("1 day 02:03:04.5"), Some((0, 1, 7_384_500_000)));
        assert_eq!(parts("3 12:00"), Some((0, 3, 43_200_000_000)));
        assert_eq!(parts("1.5 hours"), Some((0, 0, 5_400_000_000)));
        assert_eq!(parts("1.5 months"), Some((1, 15, 0)));
        assert_eq!(parts("1 week ago"), Some((0, -7, 0)));
        assert_eq!(parts("@ 1 minute"), Some((0, 0, 60_000_000)));
        assert_eq!(parts("10"), Some((0, 0, 10_000_000)));
        assert_eq!(parts("2h30m"), Some((0, 0, 9_000_000_000)));
        assert_eq!(parts("1-2"), Some((14, 0, 0)));
        assert_eq!(parts("-1-2 3"), Some((-14, 0, 3_000_000)));
        assert_eq!(parts("P1Y2M3DT4H5M6S"), Some((14, 3, 14_706_000_000)));
        assert_eq!(parse("7", Some("day")), Some(Interval { months: 0, days: 7, micros: 0 }));
        for wrong in
            ["", "day", "1 parsec", "1 2 days", "1:70", "P", "PT1D", "1e400 days", "3000000000 days", "1-13"]
        {
            assert_eq!(parts(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn interval_text_round_trips() {
        for (months, days, micros, text) in [
            (0, 0, 0, "00:00:00"),
            (14, -3, 14_706_700_000, "1 year 2 mons -3 days +04:05:06.7"),
            (-14, 3, -1, "-1 years -2 mons +3 days -00:00:00.000001"),
            (1, 1, 0, "1 mon 1 day"),
            (0, -1, 0, "-1 days"),
            (
                i32::MAX,
                -i32::MAX,
                i64::MAX,
                "178956970 years 7 mons -2147483647 days +2562047788:00:54.775807",
            ),
        ] {
            let interval = Interval { months, days, micros };
            assert_eq!(show(interval), text);
            assert_eq!(parse(text, None), Some(interval), "{text}");
        }
    }

    #[test]
    fn added_months_clamp_to_the_month_end() {
        let at = |text: &str| crate::types::datetime::parse_timestamp(text).unwrap().0;
        let month = Interval { months: 1, days: 0, micros: 0 };
        assert_eq!(after(month, at("2024-01-31 10:00")), Some(at("2024-02-29 10:00")));
        assert_eq!(after(negate(month).unwrap(), at("2024-03-31")), Some(at("2024-02-29")));
        assert_eq!(after(month, at("2023-12-31 23:59:59")), Some(at("2024-01-31 23:59:59")));
        assert_eq!(times(month, 0.5), Some(Interval { months: 0, days: 15, micros: 0 }));
        assert_eq!(after(month, i64::MAX), Some(i64::MAX));
        assert_eq!(after(Interval { months: 0, days: i32::MAX, micros: 0 }, i64::MAX - 1), None);
    }

    #[test]
    fn age_and_justify() {
        let at = |text: &str| crate::types::datetime::parse_timestamp(text).unwrap().0;
        let aged = |a: &str, b: &str| show(age(at(a), at(b)).unwrap());
        assert_eq!(aged("2001-04-10", "1957-06-13"), "43 years 9 mons 27 days");
        assert_eq!(aged("1957-06-13", "2001-04-10"), "-43 years -9 mons -27 days");
        assert_eq!(aged("2024-03-01 01:00", "2024-01-31 02:00"), "1 mon 23:00:00");
        let justified = |text: &str| show(justify(parse(text, None).unwrap()).unwrap());
        assert_eq!(justified("1 mon -1 hour"), "29 days 23:00:00");
        assert_eq!(justified("35 days 25 hours"), "1 mon 6 days 01:00:00");
        let hours = |text: &str| show(justify_hours(parse(text, None).unwrap()).unwrap());
        assert_eq!(hours("27 hours"), "1 day 03:00:00");
        assert_eq!(show(justify_days(parse("-35 days 3 mons", None).unwrap()).unwrap()), "1 mon 25 days");
    }
}
