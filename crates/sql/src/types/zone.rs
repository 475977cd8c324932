//! Time zones: conversion between instants and local times.
//!
//! Names are those of the IANA database, which is built in. Offsets after a time, and numbers in SET TIME
//! ZONE, are positive to the east, as in ISO 8601; offsets used as a zone name, `UTC+3` or `+03:00`, are
//! positive to the west, as in POSIX and therefore in PostgreSQL.
//!
//! A local time that occurs twice when clocks are set back means the later one, in standard time. A local
//! time that is skipped when clocks are set forward is read with the offset before the change. Source:
//! PostgreSQL's manual, "Handling of Invalid or Ambiguous Timestamps".

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

const SECOND: i64 = 1_000_000;
/// Greatest offset that PostgreSQL accepts.
const OFFSET_MAX: i32 = 15 * 3600 + 59 * 60 + 59;

/// The most common of PostgreSQL's default abbreviations, in minutes east.
const ABBREVIATIONS: [(&str, i32); 26] = [
    ("utc", 0),
    ("gmt", 0),
    ("z", 0),
    ("zulu", 0),
    ("ut", 0),
    ("wet", 0),
    ("west", 60),
    ("bst", 60),
    ("cet", 60),
    ("cest", 120),
    ("met", 60),
    ("eet", 120),
    ("eest", 180),
    ("msk", 180),
    ("jst", 540),
    ("kst", 540),
    ("est", -300),
    ("edt", -240),
    ("cst", -360),
    ("cdt", -300),
    ("mst", -420),
    ("mdt", -360),
    ("pst", -480),
    ("pdt", -420),
    ("akst", -540),
    ("hst", -600),
];

/// A time zone. Cheap to clone.
#[derive(Clone, Default)]
pub struct Zone(Option<Arc<Inner>>);

struct Inner {
    name: String,
    zone: TimeZone,
}

impl std::fmt::Debug for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

/// Seconds of `HH[:MM[:SS]]` or `HHMM`.
fn clock(text: &str) -> Option<i32> {
    let mut parts = text.split(':');
    let first = parts.next()?;
    let number = |text: &str| match text.len() {
        1 | 2 if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse::<i32>().ok(),
        _ => None,
    };
    let (hours, minutes, seconds) = match (first.len(), parts.next()) {
        (4, None) => (number(first.get(..2)?)?, number(first.get(2..)?)?, 0),
        (_, minutes) => {
            let seconds = parts.next().map_or(Some(0), number)?;
            (number(first)?, minutes.map_or(Some(0), number)?, seconds)
        }
    };
    let all = hours * 3600 + minutes * 60 + seconds;
    (parts.next().is_none() && minutes < 60 && seconds < 60 && all <= OFFSET_MAX).then_some(all)
}

/// `+05:30`, `-08`.
pub(crate) fn shown_offset(seconds: i32) -> String {
    let (sign, all) = (if seconds < 0 { '-' } else { '+' }, seconds.saturating_abs());
    let mut out = format!("{sign}{:02}", all / 3600);
    if all % 3600 != 0 {
        out += &format!(":{:02}", all / 60 % 60);
    }
    if all % 60 != 0 {
        out += &format!(":{:02}", all % 60);
    }
    out
}

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(None);

    /// The zone with a fixed offset, in seconds to the east.
    pub(crate) fn fixed(name: String, seconds: i32) -> Option<Self> {
        let offset = Offset::from_seconds(seconds).ok()?;
        Some(Self(Some(Arc::new(Inner { name, zone: TimeZone::fixed(offset) }))))
    }

    /// The zone with a fixed offset and the name that SET TIME ZONE gives it, in seconds to the east.
    pub(crate) fn of_offset(seconds: i32) -> Option<Self> {
        let name = format!("<{}>{}", shown_offset(seconds), shown_offset(seconds.saturating_neg()));
        (seconds.saturating_abs() <= OFFSET_MAX).then(|| Self::fixed(name, seconds))?
    }

    /// The zone of SET TIME ZONE: like [`Zone::named`], but a number is hours to the east.
    pub fn set(text: &str) -> Option<Self> {
        match text.trim().parse::<f64>() {
            Ok(hours) if hours.is_nan() => None,
            Ok(hours) => Self::of_offset((hours * 3600.0).round() as i32),
            Err(_) => Self::named(text),
        }
    }

    /// The zone with a name; `None` if it is unknown.
    pub fn named(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("utc") {
            return Some(Self::UTC);
        }
        if let Ok(zone) = TimeZone::get(text) {
            let name = zone.iana_name().unwrap_or(text).to_owned();
            return Some(Self(Some(Arc::new(Inner { name, zone }))));
        }
        // POSIX format: an optional name, plain or in angle brackets, and the offset to the west.
        let rest = match text.strip_prefix('<') {
            Some(rest) => rest.split_once('>')?.1,
            None => text.trim_start_matches(|c: char| c.is_ascii_alphabetic()),
        };
        let abbreviation = ABBREVIATIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if let Some((_, minutes)) = abbreviation {
            return Self::fixed(text.to_uppercase(), minutes * 60);
        }
        let (sign, digits) = match rest.strip_prefix('-') {
            Some(digits) => (1, digits),
            None => (-1, rest.strip_prefix('+').unwrap_or(rest)),
        };
        Self::fixed(text.to_owned(), sign * clock(digits)?)
    }

    /// The zone at the end of a time literal: an abbreviation, a name, or an offset, which is positive to the
    /// east there.
    pub(crate) fn written(text: &str) -> Option<Self> {
        match text.split_at_checked(1) {
            Some(("+", digits)) => Self::fixed(text.to_owned(), clock(digits)?),
            Some(("-", digits)) => Self::fixed(text.to_owned(), -clock(digits)?),
            _ => Self::named(text).filter(|_| text.starts_with(|c: char| c.is_ascii_alphabetic())),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("UTC", |inner| &inner.name)
    }

    /// True for UTC itself.
    pub fn is_utc(&self) -> bool {
        self.0.is_none()
    }

    /// The nearest instant that the zone database covers: instants beyond its range get the offset at its
    /// end.
    fn reached(micros: i64) -> Timestamp {
        let end = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_microsecond(micros).unwrap_or(end)
    }

    /// Offset from UTC in seconds at an instant, in microseconds since 1970 UTC.
    pub(crate) fn offset_at(&self, micros: i64) -> i32 {
        self.0.as_ref().map_or(0, |inner| inner.zone.to_offset(Self::reached(micros)).seconds())
    }

    /// The zone's abbreviation at an instant.
    pub(crate) fn abbreviation_at(&self, micros: i64) -> String {
        match &self.0 {
            None => "UTC".to_owned(),
            Some(inner) => inner.zone.to_offset_info(Self::reached(micros)).abbreviation().to_owned(),
        }
    }

    /// True during daylight saving time.
    pub(crate) fn is_summer_at(&self, micros: i64) -> bool {
        let summer = |inner: &Arc<Inner>| inner.zone.to_offset_info(Self::reached(micros)).dst().is_dst();
        self.0.as_ref().is_some_and(summer)
    }

    /// The local time at an instant, both in microseconds since 1970. Infinities are unchanged.
    pub(crate) fn local(&self, micros: i64) -> i64 {
        match (&self.0, micros) {
            (None, _) | (_, i64::MAX | i64::MIN) => micros,
            _ => micros.saturating_add(i64::from(self.offset_at(micros)) * SECOND),
        }
    }

    /// The instant of a local time. Infinities are unchanged.
    pub(crate) fn moment(&self, local: i64) -> i64 {
        let (Some(inner), false) = (&self.0, matches!(local, i64::MAX | i64::MIN)) else { return local };
        let clock = TimeZone::UTC.to_datetime(Self::reached(local));
        let offset = match inner.zone.to_ambiguous_timestamp(clock).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } => before,
            AmbiguousOffset::Fold { after, .. } => after,
        };
        local.saturating_sub(i64::from(offset.seconds()) * SECOND)
    }

    /// Names of all zones of the database.
    pub(crate) fn all() -> Vec<String> {
        jiff::tz::db().available().map(|name| name.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::datetime::parse_timestamp;

    fn at(text: &str) -> i64 {
        parse_timestamp(text).unwrap().0
    }

    #[test]
    fn names_and_offsets() {
        let offset = |name: &str| Zone::named(name).map(|zone| zone.offset_at(0));
        assert_eq!(offset("UTC"), Some(0));
        assert_eq!(offset("europe/berlin"), Some(3600));
        assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
        let set = |name: &str| Zone::set(name).map(|zone| zone.offset_at(0));
        assert_eq!((set("-7"), set("5.5"), set("UTC+1")), (Some(-7 * 3600), Some(19_800), Some(-3600)));
        assert_eq!((set("99"), set("nan"), set("1e99")), (None, None, None));
        assert_eq!(offset("+03"), Some(-3 * 3600));
        assert_eq!(offset("UTC+3"), Some(-3 * 3600));
        assert_eq!(offset("+02:00"), Some(-7200));
        assert_eq!(offset("<+02>-02"), Some(7200));
        assert_eq!(offset("PST"), Some(-8 * 3600));
        assert_eq!(Zone::set("-8").unwrap().name(), "<-08>+08");
        for wrong in ["", "Nowhere/City", "UTC+99", "x y", "+1:99", "nan"] {
            assert_eq!(offset(wrong), None, "{wrong:?}");
        }
        assert_eq!(Zone::written("+05:30").unwrap().offset_at(0), 19_800);
        assert_eq!(Zone::written("-0800").unwrap().offset_at(0), -28_800);
        assert_eq!(Zone::written("7"), None);
    }

    #[test]
    fn local_times_at_clock_changes() {
        let zone = Zone::named("America/New_York").unwrap();
        assert_eq!(zone.moment(at("2018-03-11 02:30")), at("2018-03-11 07:30"));
        assert_eq!(zone.local(at("2018-03-11 07:30")), at("2018-03-11 03:30"));
        assert_eq!(zone.moment(at("2018-11-04 01:30")), at("2018-11-04 06:30"));
        assert_eq!(
            (zone.abbreviation_at(at("2018-07-01")), zone.is_summer_at(at("2018-07-01"))),
            ("EDT".into(), true)
        );
        for moment in [i64::MIN, i64::MAX, at("0001-01-01"), 1 << 62] {
            assert_eq!(zone.moment(zone.local(moment)), moment);
        }
    }
}
