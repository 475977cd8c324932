//! Dates and times as text, in PostgreSQL's default format (ISO).
//!
//! A date counts days, a timestamp microseconds since 1970-01-01; the least and greatest number are the
//! infinities. The calendar is that of [`civil`].

use ropewalk::hooks::civil;

use crate::types::zone::{Zone, shown_offset};

/// Microseconds of a day.
pub(crate) const DAY: i64 = 86_400_000_000;
const SECOND: i64 = 1_000_000;
/// Years allowed in text; later ones do not fit 64 bits of microseconds.
const YEARS: std::ops::RangeInclusive<i64> = 1..=294_275;

/// Reason why a text is no date or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The format is invalid.
    Form,
    /// A value out of range: a month 13, a 30th of February.
    Range,
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Result<i64, Wrong> {
    if !digits.contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Wrong::Form);
    }
    text.parse().map_err(|_| Wrong::Form)
}

fn civil_text(text: &str) -> Result<i64, Wrong> {
    let mut parts = text.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Wrong::Form);
    };
    let (year, month, day) = (number(year, 4..=6)?, number(month, 1..=2)?, number(day, 1..=2)?);
    let real = YEARS.contains(&year)
        && (1..=12).contains(&month)
        && (1..=civil::days_in_month(year, month)).contains(&day);
    if real { Ok(civil::to_days(year, month, day)) } else { Err(Wrong::Range) }
}

/// Microseconds of `HH:MM[:SS[.ffffff]]`; 24:00 is the end of the day.
fn clock_text(text: &str) -> Result<i64, Wrong> {
    let mut parts = text.split(':');
    let hour = number(parts.next().unwrap_or_default(), 1..=2)?;
    let minute = number(parts.next().ok_or(Wrong::Form)?, 1..=2)?;
    let mut micros = 0;
    if let Some(second) = parts.next() {
        let (whole, fraction) = second.split_once('.').unwrap_or((second, ""));
        let whole = number(whole, 1..=2)?;
        let rounded = if fraction.is_empty() {
            0
        } else {
            number(fraction, 1..=18)?;
            let digit = |n: usize| fraction.as_bytes().get(n).map_or(0, |b| i64::from(b - b'0'));
            (0..6).fold(0, |sum, n| sum * 10 + digit(n)) + i64::from(digit(6) >= 5)
        };
        if whole > 60 {
            return Err(Wrong::Range);
        }
        micros = whole * SECOND + rounded;
    }
    if parts.next().is_some() {
        return Err(Wrong::Form);
    }
    let all = (hour * 60 + minute) * 60 * SECOND + micros;
    if hour > 24 || minute > 59 || all > DAY { Err(Wrong::Range) } else { Ok(all) }
}

/// The zone in the text of a time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Named {
    /// Ahead of UTC, in microseconds.
    Offset(i64),
    Zone(Zone),
}

impl Named {
    /// The instant at which its clock shows `local`.
    pub(crate) fn moment(&self, local: i64) -> Option<i64> {
        match self {
            Self::Offset(offset) => local.checked_sub(*offset),
            Self::Zone(zone) => Some(zone.moment(local)),
        }
    }
}

/// Splits a zone off the end of `text`.
fn zone_text(text: &str) -> Result<(&str, Option<Named>), Wrong> {
    let trimmed = text.trim_end();
    for name in ["UTC", "utc", "GMT", "Z", "z"] {
        if let Some(rest) = trimmed.strip_suffix(name) {
            return Ok((rest.trim_end(), Some(Named::Offset(0))));
        }
    }
    // A name follows the time, or a blank after the date.
    let from = trimmed.find([':', ' ']).unwrap_or(trimmed.len());
    let behind = trimmed.get(from..).unwrap_or_default();
    if let Some(place) = behind.find(|c: char| c.is_ascii_alphabetic()) {
        let (rest, name) = trimmed.split_at(from + place);
        let zone = Zone::written(name).ok_or(Wrong::Form)?;
        return Ok((rest.trim_end(), Some(Named::Zone(zone))));
    }
    // The dashes of the date precede the time.
    let Some(colon) = trimmed.find(':') else { return Ok((trimmed, None)) };
    let (head, tail) = trimmed.split_at(colon);
    let Some(sign) = tail.find(['+', '-']) else { return Ok((trimmed, None)) };
    let (clock, zone) = tail.split_at(sign);
    let digits = zone.get(1..).unwrap_or_default();
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if digits.len() == 4 => digits.split_at(2),
        None => (digits, "0"),
    };
    let offset = number(hours, 1..=2)? * 60 + number(minutes, 1..=2)?;
    if offset > 16 * 60 {
        return Err(Wrong::Range);
    }
    let offset = offset * 60 * SECOND;
    let end = head.len() + clock.len();
    let rest = trimmed.get(..end).unwrap_or(trimmed).trim_end();
    Ok((rest, Some(Named::Offset(if zone.starts_with('-') { -offset } else { offset }))))
}

fn infinity(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "infinity" => Some(true),
        "-infinity" => Some(false),
        _ => None,
    }
}

/// A date; a time after it is ignored, as in PostgreSQL.
pub(crate) fn parse_date(text: &str) -> Result<i32, Wrong> {
    let text = text.trim();
    match infinity(text) {
        Some(true) => return Ok(i32::MAX),
        Some(false) => return Ok(i32::MIN),
        None if text.eq_ignore_ascii_case("epoch") => return Ok(0),
        None => {}
    }
    let date = match text.find([' ', 'T']) {
        Some(_) => parse_timestamp(text)?.0.div_euclid(DAY),
        None => civil_text(text)?,
    };
    i32::try_from(date).map_err(|_| Wrong::Range)
}

/// Microseconds since midnight.
pub(crate) fn parse_time(text: &str) -> Result<i64, Wrong> {
    clock_text(text.trim())
}

/// Microseconds since 1970 as written, and the zone if the text has one.
pub(crate) fn parse_timestamp(text: &str) -> Result<(i64, Option<Named>), Wrong> {
    let text = text.trim();
    match infinity(text) {
        Some(true) => return Ok((i64::MAX, None)),
        Some(false) => return Ok((i64::MIN, None)),
        // The same instant in every zone.
        None if text.eq_ignore_ascii_case("epoch") => return Ok((0, Some(Named::Offset(0)))),
        None => {}
    }
    let (text, zone) = zone_text(text)?;
    let (date, clock) = text.split_once([' ', 'T', 't']).unwrap_or((text, ""));
    let clock = if clock.trim().is_empty() { 0 } else { clock_text(clock.trim())? };
    let micros = civil_text(date)?.checked_mul(DAY).and_then(|d| d.checked_add(clock));
    Ok((micros.ok_or(Wrong::Range)?, zone))
}

fn push_clock(micros: i64, out: &mut String) {
    let (seconds, fraction) = (micros / SECOND, micros % SECOND);
    *out += &format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        *out += format!(".{fraction:06}").trim_end_matches('0');
    }
}

/// `2024-02-29`.
pub(crate) fn show_date(date: i32) -> String {
    match date {
        i32::MAX => return "infinity".into(),
        i32::MIN => return "-infinity".into(),
        _ => {}
    }
    let (year, month, day) = civil::from_days(date.into());
    if year > 0 {
        format!("{year:04}-{month:02}-{day:02}")
    } else {
        format!("{:04}-{month:02}-{day:02} BC", 1 - year)
    }
}

/// `03:04:05.678`.
pub(crate) fn show_time(micros: i64) -> String {
    let mut out = String::new();
    push_clock(micros, &mut out);
    out
}

/// `2024-02-29 03:04:05.678`; with a zone the local time at that instant, followed by the offset.
pub(crate) fn show_timestamp(micros: i64, zone: Option<&Zone>) -> String {
    match micros {
        i64::MAX => return "infinity".into(),
        i64::MIN => return "-infinity".into(),
        _ => {}
    }
    let local = zone.map_or(micros, |zone| zone.local(micros));
    let (year, month, day) = civil::from_days(local.div_euclid(DAY));
    let mut out = format!("{:04}-{month:02}-{day:02} ", if year > 0 { year } else { 1 - year });
    push_clock(local.rem_euclid(DAY), &mut out);
    if let Some(zone) = zone {
        out += &if zone.is_utc() { "+00".to_owned() } else { shown_offset(zone.offset_at(micros)) };
    }
    if year <= 0 {
        out += " BC";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let round = |text: &str| parse_timestamp(text).map(|(micros, _)| show_timestamp(micros, None));
        assert_eq!(round("2024-02-29 03:04:05.678900").unwrap(), "2024-02-29 03:04:05.6789");
        assert_eq!(round("1969-12-31T23:59").unwrap(), "1969-12-31 23:59:00");
        assert_eq!(round("2024-01-01").unwrap(), "2024-01-01 00:00:00");
        assert_eq!(round("2023-02-29"), Err(Wrong::Range));
        assert_eq!(round("2023-2"), Err(Wrong::Form));
        assert_eq!(round("x"), Err(Wrong::Form));
        assert_eq!(
            parse_timestamp("2024-01-01 00:00:00-05").unwrap().1,
            Some(Named::Offset(-18_000 * SECOND))
        );
        assert_eq!(parse_timestamp("2024-01-01 00:00+0530").unwrap().1, Some(Named::Offset(19_800 * SECOND)));
        assert_eq!(parse_timestamp("2024-01-01 00:00:00Z").unwrap().1, Some(Named::Offset(0)));
        for text in ["2024-07-01 12:00 Europe/Berlin", "2024-07-01T12:00CEST", "2024-07-01 12:00:00 +02"] {
            let (local, zone) = parse_timestamp(text).unwrap();
            assert_eq!(zone.unwrap().moment(local).map(|m| m.rem_euclid(DAY)), Some(DAY / 24 * 10), "{text}");
        }
        assert_eq!(parse_timestamp("2024-01-01 00:00 Mars"), Err(Wrong::Form));
        assert_eq!(parse_time("24:00").unwrap(), DAY);
        assert_eq!(parse_time("24:01"), Err(Wrong::Range));
        assert_eq!(show_time(parse_time("1:2:3.0000005").unwrap()), "01:02:03.000001");
        assert_eq!(show_date(parse_date("infinity").unwrap()), "infinity");
        assert_eq!(show_date(parse_date("0044-03-15").unwrap()), "0044-03-15");
    }
}
