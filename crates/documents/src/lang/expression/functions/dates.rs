//! Dates: milliseconds since 1970 as years, weeks and hours, and back.
//!
//! The calendar is that of [`civil`], time zones are those of [`super::zones`]. Units up to hours are added
//! as elapsed time, units from days on as local time.

use ropewalk_base::civil;

use super::zones::{Zone, offset};
use super::{Arguments, Function, arg, fixed, named};
use crate::lang::error::{LangError, LangResult, refuse};
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::writer::Writer;
use crate::lang::value::{DOCUMENT_BYTES_MAX, Value};

const DAY_MS: i64 = 86_400_000;

const fn part(name: &'static str, call: fn(&[Val<'_>]) -> Answer) -> Function {
    Function { name, arguments: Arguments::NamedOrOne(&["date", "timezone"], 1), call }
}

pub(super) const TABLE: &[Function] = &[
    part("$year", |args| field(args, |t| t.year)),
    part("$month", |args| field(args, |t| t.month)),
    fixed("$tsSecond", 1, |args| timestamp("$tsSecond", args, 5687301, |time| time >> 32)),
    fixed("$tsIncrement", 1, |args| timestamp("$tsIncrement", args, 5687302, |time| time & 0xFFFF_FFFF)),
    part("$dayOfMonth", |args| field(args, |t| t.day)),
    part("$hour", |args| field(args, |t| t.hour)),
    part("$minute", |args| field(args, |t| t.minute)),
    part("$second", |args| field(args, |t| t.second)),
    part("$millisecond", |args| field(args, |t| t.millisecond)),
    part("$dayOfWeek", |args| field(args, |t| t.weekday() + 1)),
    part("$dayOfYear", |args| field(args, |t| t.day_of_year())),
    part("$week", |args| field(args, |t| (t.day_of_year() + 6 - t.weekday()) / 7)),
    part("$isoDayOfWeek", |args| field(args, |t| t.iso_weekday())),
    part("$isoWeek", |args| field(args, |t| civil::iso_week(t.days()).1)),
    part("$isoWeekYear", |args| field(args, |t| civil::iso_week(t.days()).0)),
    named("$dateToParts", &["date", "timezone", "iso8601"], 1, to_parts),
    named(
        "$dateFromParts",
        &[
            "year",
            "month",
            "day",
            "hour",
            "minute",
            "second",
            "millisecond",
            "timezone",
            "isoWeekYear",
            "isoWeek",
            "isoDayOfWeek",
        ],
        0,
        from_parts,
    ),
    named("$dateToString", &["date", "format", "timezone", "onNull"], 1, to_text),
    named("$dateFromString", &["dateString", "format", "timezone", "onError", "onNull"], 1, from_text),
    named("$dateAdd", &["startDate", "unit", "amount", "timezone"], 3, |args| shift("$dateAdd", args, 1)),
    named("$dateSubtract", &["startDate", "unit", "amount", "timezone"], 3, |args| {
        shift("$dateSubtract", args, -1)
    }),
    named("$dateDiff", &["startDate", "endDate", "unit", "timezone", "startOfWeek"], 3, difference),
    named("$dateTrunc", &["date", "unit", "binSize", "timezone", "startOfWeek"], 2, truncate),
];

/// A point in time, in parts.
struct Parts {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
}

impl Parts {
    fn of(ms: i64) -> Self {
        let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        let (year, month, day) = civil::from_days(days);
        Self {
            year,
            month,
            day,
            hour: rest / 3_600_000,
            minute: rest / 60_000 % 60,
            second: rest / 1000 % 60,
            millisecond: rest % 1000,
        }
    }

    fn days(&self) -> i64 {
        civil::to_days(self.year, self.month, self.day)
    }

    /// Day of the week; Sunday is 0.
    fn weekday(&self) -> i64 {
        civil::weekday(self.days())
    }

    /// Day of the week; Monday is 1.
    fn iso_weekday(&self) -> i64 {
        self.days() - civil::monday(self.days()) + 1
    }

    fn day_of_year(&self) -> i64 {
        self.days() - civil::to_days(self.year, 1, 1) + 1
    }

    fn to_ms(&self) -> Option<i64> {
        let of_day =
            [(self.hour, 3_600_000), (self.minute, 60_000), (self.second, 1000), (self.millisecond, 1)];
        let days = i128::from(self.days()) * i128::from(DAY_MS);
        let total = of_day.iter().fold(days, |sum, (n, ms)| sum + i128::from(*n) * i128::from(*ms));
        i64::try_from(total).ok()
    }
}

/// Milliseconds of a date, timestamp or ObjectId.
pub(crate) fn date_of(value: Value<'_>) -> Option<i64> {
    match value {
        Value::DateTime(ms) => Some(ms),
        Value::Timestamp(stamp) => Some(((stamp >> 32) as i64) * 1000),
        Value::ObjectId([a, b, c, d, ..]) => Some(i64::from(u32::from_be_bytes([a, b, c, d])) * 1000),
        _ => None,
    }
}

/// A date in local time of a zone.
struct Local {
    ms: i64,
    /// Milliseconds that the zone is ahead of UTC at that time.
    ahead: i64,
    zone: Zone,
}

/// Date and zone of two operands; `None` if either is null.
fn local(name: &str, date: &Val<'_>, timezone: &Val<'_>) -> LangResult<Option<Local>> {
    let zone = Zone::of(timezone)?;
    if date.is_nullish() {
        return Ok(None);
    }
    let Some(ms) = date.get().and_then(date_of) else {
        refuse!(16006, "{name} can't convert from type {} to Date", date.type_name());
    };
    match zone {
        None => Ok(None),
        Some(zone) => match ms.checked_add(zone.ahead(ms)) {
            Some(local) => Ok(Some(Local { ms: local, ahead: zone.ahead(ms), zone })),
            None => refuse!(Overflow, "{name}: date out of range"),
        },
    }
}

fn number(n: i64) -> Val<'static> {
    Val::Ref(crate::lang::value::number::narrow(n, true))
}

fn field(args: &[Val<'_>], get: fn(&Parts) -> i64) -> Answer {
    Ok(match local("the date operator", arg(args, 0), arg(args, 1))? {
        Some(local) => number(get(&Parts::of(local.ms))),
        None => Val::NULL,
    })
}

fn to_parts(args: &[Val<'_>]) -> Answer {
    let Some(Local { ms, .. }) = local("$dateToParts", arg(args, 0), arg(args, 1))? else {
        return Ok(Val::NULL);
    };
    let parts = Parts::of(ms);
    let iso = match arg(args, 2).get() {
        None | Some(Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(Value::Null) => return Ok(Val::NULL),
        Some(other) => refuse!(40521, "iso8601 must evaluate to a bool, found {}", other.type_name()),
    };
    let mut writer = Writer::new().bounded();
    let mut put = |name: &str, n: i64| writer.put(name, crate::lang::value::number::narrow(n, true));
    if iso {
        let (year, week) = civil::iso_week(parts.days());
        put("isoWeekYear", year);
        put("isoWeek", week);
        put("isoDayOfWeek", parts.iso_weekday());
    } else {
        put("year", parts.year);
        put("month", parts.month);
        put("day", parts.day);
    }
    put("hour", parts.hour);
    put("minute", parts.minute);
    put("second", parts.second);
    put("millisecond", parts.millisecond);
    val::built(writer)
}

fn from_parts(args: &[Val<'_>]) -> Answer {
    let Some(zone) = Zone::of(arg(args, 7))? else { return Ok(Val::NULL) };
    let get = |at: usize, default: i64| -> LangResult<Option<i64>> {
        match arg(args, at).get() {
            None => Ok(Some(default)),
            Some(value) if value.is_nullish() => Ok(None),
            Some(value) => match value.as_integer().filter(|n| (-32_768..=32_767).contains(n)) {
                Some(n) => Ok(Some(n)),
                None => refuse!(40515, "$dateFromParts takes integers from -32768 to 32767, found: {value}"),
            },
        }
    };
    let iso = arg(args, 8).get().is_some();
    if !iso && arg(args, 0).get().is_none() {
        refuse!(40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present");
    }
    let mixed = if iso { 0..3 } else { 9..11 };
    if mixed.clone().any(|at| arg(args, at).get().is_some()) {
        refuse!(40489, "$dateFromParts does not allow mixing natural dates and ISO dates");
    }
    let values = (get(3, 0)?, get(4, 0)?, get(5, 0)?, get(6, 0)?);
    let (Some(hour), Some(minute), Some(second), Some(millisecond)) = values else { return Ok(Val::NULL) };
    let date =
        if iso { (get(8, 1970)?, get(9, 1)?, get(10, 1)?) } else { (get(0, 1970)?, get(1, 1)?, get(2, 1)?) };
    let (Some(year), Some(b), Some(c)) = date else { return Ok(Val::NULL) };
    let parts = if iso {
        // The 4th of January is in the first week.
        let monday = civil::monday(civil::to_days(year, 1, 4));
        Parts { year: 1970, month: 1, day: monday + (b - 1) * 7 + c, hour, minute, second, millisecond }
    } else {
        if !(1..=9999).contains(&year) {
            refuse!(40523, "'year' must evaluate to an integer in the range 1 to 9999");
        }
        Parts { year, month: b, day: c, hour, minute, second, millisecond }
    };
    match parts.to_ms().and_then(|ms| zone.utc(ms)) {
        Some(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        None => refuse!(Overflow, "$dateFromParts: date out of range"),
    }
}

/// As ISO 8601, the default format.
pub(crate) fn iso_text(ms: i64) -> String {
    let t = Parts::of(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        t.year, t.month, t.day, t.hour, t.minute, t.second, t.millisecond
    )
}

fn to_text(args: &[Val<'_>]) -> Answer {
    let Some(Local { ms, ahead, .. }) = local("$dateToString", arg(args, 0), arg(args, 2))? else {
        return Ok(match arg(args, 3) {
            Val::Missing => Val::NULL,
            other => other.clone().into_static(),
        });
    };
    let format = match arg(args, 1).get() {
        None if ahead == 0 => return val::text(&iso_text(ms)),
        None => "%Y-%m-%dT%H:%M:%S.%L%z",
        Some(Value::String(format)) => format,
        Some(value) if value.is_nullish() => return Ok(Val::NULL),
        Some(other) => {
            refuse!(18533, "$dateToString requires that 'format' be a string, found: {}", other.type_name())
        }
    };
    let t = Parts::of(ms);
    let minutes = ahead / 60_000;
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if out.len() > DOCUMENT_BYTES_MAX {
            break;
        }
        if character != '%' {
            out.push(character);
            continue;
        }
        let month = civil::MONTHS.get(t.month as usize - 1).copied().unwrap_or_default();
        out += &match rest.next() {
            Some('Y') => format!("{:04}", t.year),
            Some('m') => format!("{:02}", t.month),
            Some('d') => format!("{:02}", t.day),
            Some('H') => format!("{:02}", t.hour),
            Some('M') => format!("{:02}", t.minute),
            Some('S') => format!("{:02}", t.second),
            Some('L') => format!("{:03}", t.millisecond),
            Some('j') => format!("{:03}", t.day_of_year()),
            Some('w') => (t.weekday() + 1).to_string(),
            Some('u') => t.iso_weekday().to_string(),
            Some('U') => format!("{:02}", (t.day_of_year() + 6 - t.weekday()) / 7),
            Some('V') => format!("{:02}", civil::iso_week(t.days()).1),
            Some('G') => format!("{:04}", civil::iso_week(t.days()).0),
            Some('b') => month.chars().take(3).collect(),
            Some('B') => month.to_owned(),
            Some('z') => {
                let sign = if minutes < 0 { '-' } else { '+' };
                format!("{sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60)
            }
            Some('Z') => format!("{minutes:+}"),
            Some('%') => "%".to_owned(),
            other => refuse!(18536, "Invalid format character '%{}' in format string", other.unwrap_or(' ')),
        };
    }
    val::text(&out)
}

fn from_text(args: &[Val<'_>]) -> Answer {
    let default = |at: usize| arg(args, at).clone().into_static();
    let text = match arg(args, 0).get() {
        Some(Value::String(text)) => text,
        _ if arg(args, 0).is_nullish() => {
            return Ok(if let Val::Missing = arg(args, 4) { Val::NULL } else { default(4) });
        }
        _ if arg(args, 3).get().is_some() => return Ok(default(3)),
        Some(other) => refuse!(
            ConversionFailure,
            "$dateFromString requires that 'dateString' be a string, found: {}",
            other.type_name()
        ),
        None => return Ok(Val::NULL),
    };
    let Some(zone) = Zone::of(arg(args, 2))? else { return Ok(Val::NULL) };
    let parsed = match arg(args, 1).get() {
        None => shown(text),
        Some(Value::String(format)) => parse_format(text, format)?,
        Some(value) if value.is_nullish() => return Ok(Val::NULL),
        Some(other) => {
            refuse!(40684, "$dateFromString requires that 'format' be a string, found: {}", other.type_name())
        }
    };
    // A zone in the text takes precedence over the operand.
    let parsed = parsed.and_then(|(ms, ahead)| match ahead {
        Some(ahead) => ms.checked_sub(ahead),
        None => zone.utc(ms),
    });
    match parsed {
        Some(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        None if arg(args, 3).get().is_some() => Ok(default(3)),
        None => refuse!(ConversionFailure, "Error parsing date string '{text}'"),
    }
}

/// Reads digits and signs in sequence.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let digits = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.0.split_at_checked(digits)?;
        if digits < least {
            return None;
        }
        self.0 = rest;
        number.parse().ok()
    }

    fn skip(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// `Z`, `+02:00`, or nothing: milliseconds ahead of UTC, if given.
    fn zone(&mut self) -> Option<Option<i64>> {
        let rest = self.0.trim_start();
        if rest.is_empty() {
            return Some(None);
        }
        self.0 = "";
        if matches!(rest, "Z" | "z" | "UTC" | "GMT") {
            Some(Some(0))
        } else {
            offset(rest).map(|minutes| Some(minutes * 60_000))
        }
    }
}

fn valid(parts: &Parts) -> bool {
    (1..=12).contains(&parts.month)
        && (1..=civil::days_in_month(parts.year, parts.month)).contains(&parts.day)
        && (0..24).contains(&parts.hour)
        && (0..60).contains(&parts.minute)
        && (0..60).contains(&parts.second)
}

/// `2026-11-21`, with a time after `T` or a space, a fraction, a zone; UTC without one.
pub(crate) fn parse_iso(text: &str) -> Option<i64> {
    let (ms, ahead) = shown(text)?;
    ms.checked_sub(ahead.unwrap_or(0))
}

/// The date in a text, and its offset from UTC if given.
fn shown(text: &str) -> Option<(i64, Option<i64>)> {
    let mut reader = Reader(text.trim());
    let mut parts =
        Parts { year: reader.number(4, 4)?, month: 1, day: 1, hour: 0, minute: 0, second: 0, millisecond: 0 };
    if !reader.skip("-") {
        return None;
    }
    parts.month = reader.number(1, 2)?;
    if reader.skip("-") {
        parts.day = reader.number(1, 2)?;
    }
    if reader.skip("T") || reader.skip("t") || reader.skip(" ") {
        parts.hour = reader.number(1, 2)?;
        if reader.skip(":") {
            parts.minute = reader.number(2, 2)?;
            if reader.skip(":") {
                parts.second = reader.number(2, 2)?;
                if reader.skip(".") {
                    parts.millisecond = fraction(&mut reader)?;
                }
            }
        }
    }
    let ahead = reader.zone()?;
    if valid(&parts) { Some((parts.to_ms()?, ahead)) } else { None }
}

fn fraction(reader: &mut Reader<'_>) -> Option<i64> {
    let before = reader.0.len();
    let number = reader.number(1, 9)?;
    let digits = (before - reader.0.len()) as u32;
    Some(if digits > 3 { number / 10i64.pow(digits - 3) } else { number * 10i64.pow(3 - digits) })
}

fn parse_format(text: &str, format: &str) -> LangResult<Option<(i64, Option<i64>)>> {
    let mut parts = Parts { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0, millisecond: 0 };
    let mut ahead = None;
    let mut reader = Reader(text);
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            if !reader.skip(character.encode_utf8(&mut [0; 4])) {
                return Ok(None);
            }
            continue;
        }
        let specifier = rest.next();
        let read = match specifier {
            Some('Y') => reader.number(4, 4).map(|n| parts.year = n),
            Some('m') => reader.number(1, 2).map(|n| parts.month = n),
            Some('d') => reader.number(1, 2).map(|n| parts.day = n),
            Some('H') => reader.number(1, 2).map(|n| parts.hour = n),
            Some('M') => reader.number(1, 2).map(|n| parts.minute = n),
            Some('S') => reader.number(1, 2).map(|n| parts.second = n),
            Some('L') => fraction(&mut reader).map(|n| parts.millisecond = n),
            Some('z') => {
                let length = reader.0.bytes().take_while(|byte| b"+-:0123456789Zz".contains(byte)).count();
                let (name, rest) = reader.0.split_at_checked(length).unwrap_or((reader.0, ""));
                reader.0 = rest;
                Reader(name).zone().map(|n| ahead = Some(n.unwrap_or(0)))
            }
            Some('%') => reader.skip("%").then_some(()),
            other => {
                refuse!(18536, "Invalid format character '%{}' in format string", other.unwrap_or(' '))
            }
        };
        if read.is_none() {
            return Ok(None);
        }
    }
    if !reader.0.is_empty() || !valid(&parts) {
        return Ok(None);
    }
    Ok(parts.to_ms().map(|ms| (ms, ahead)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Months(i64),
    Milliseconds(i64),
}

/// A half of a timestamp.
fn timestamp(name: &str, args: &[Val<'_>], code: i32, half: fn(u64) -> u64) -> Answer {
    match arg(args, 0).or_null() {
        Value::Timestamp(time) => Ok(Val::Ref(Value::Int64(half(time) as i64))),
        value if value.is_nullish() => Ok(Val::NULL),
        value => Err(LangError::new(
            crate::lang::error::Code::Location(code),
            format!("Argument to {name} must be a timestamp, but is {}", value.type_name()),
        )),
    }
}

/// Rejects a text that is not the name of a unit of time.
pub(crate) fn check_unit(name: &str, text: &str) -> LangResult<()> {
    unit(name, &Val::Ref(Value::String(text))).map(drop)
}

fn unit(name: &str, value: &Val<'_>) -> LangResult<Option<(Unit, bool)>> {
    let text = match value.get() {
        Some(Value::String(text)) => text,
        _ if value.is_nullish() => return Ok(None),
        _ => refuse!(5439013, "{name} requires 'unit' to be a string, but got {}", value.type_name()),
    };
    let unit = match text {
        "year" => Unit::Months(12),
        "quarter" => Unit::Months(3),
        "month" => Unit::Months(1),
        "week" => Unit::Milliseconds(7 * DAY_MS),
        "day" => Unit::Milliseconds(DAY_MS),
        "hour" => Unit::Milliseconds(3_600_000),
        "minute" => Unit::Milliseconds(60_000),
        "second" => Unit::Milliseconds(1000),
        "millisecond" => Unit::Milliseconds(1),
        _ => refuse!(
            FailedToParse,
            "{name} parameter 'unit' value cannot be recognized as a time unit: {text}"
        ),
    };
    Ok(Some((unit, text == "week")))
}

/// Moves a date by a number of units: date, unit, amount, time zone.
pub(crate) fn shift(name: &str, args: &[Val<'_>], sign: i64) -> Answer {
    let (unit, amount) = (unit(name, arg(args, 1))?, arg(args, 2));
    let (Some(Local { ms, ahead, zone }), Some((unit, _))) = (local(name, arg(args, 0), arg(args, 3))?, unit)
    else {
        return Ok(Val::NULL);
    };
    if amount.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(amount) = amount.or_null().as_integer().and_then(|n| n.checked_mul(sign)) else {
        refuse!(5166405, "{name} expects an integer for the amount: {}", amount.or_null());
    };
    let moved = match unit {
        Unit::Milliseconds(size) if size < DAY_MS => {
            amount.checked_mul(size).and_then(|by| ms.checked_sub(ahead)?.checked_add(by))
        }
        Unit::Milliseconds(size) => {
            amount.checked_mul(size).and_then(|by| ms.checked_add(by)).and_then(|ms| zone.utc(ms))
        }
        Unit::Months(size) => add_months(ms, amount.checked_mul(size)).and_then(|ms| zone.utc(ms)),
    };
    match moved {
        Some(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        None => refuse!(5166406, "{name} overflowed"),
    }
}

/// Adds months; a day that the month does not have becomes its last.
fn add_months(ms: i64, months: Option<i64>) -> Option<i64> {
    // More months than the range of dates has.
    let months = months.filter(|months| months.unsigned_abs() < 12 * 600_000_000)?;
    let mut parts = Parts::of(ms);
    let total = parts.year * 12 + parts.month - 1 + months;
    parts.year = total.div_euclid(12);
    parts.month = total.rem_euclid(12) + 1;
    parts.day = parts.day.min(civil::days_in_month(parts.year, parts.month));
    parts.to_ms()
}

/// The weekday that weeks begin with, Sunday 0.
fn week_start(value: &Val<'_>) -> LangResult<i64> {
    let Some(value) = value.get() else { return Ok(0) };
    let name = value.as_str().unwrap_or_default().to_ascii_lowercase();
    let names = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    match names.iter().position(|own| *own == name || own.get(..3) == Some(name.as_str())) {
        Some(at) => Ok(at as i64),
        None => {
            refuse!(FailedToParse, "'startOfWeek' value cannot be recognized as a day of a week: {value}")
        }
    }
}

fn months_of(ms: i64) -> i64 {
    let parts = Parts::of(ms);
    parts.year * 12 + parts.month - 1
}

/// 1970-01-01 was a Thursday: milliseconds to the beginning of a week before it.
fn week_origin(start: i64) -> i64 {
    -((4 - start).rem_euclid(7)) * DAY_MS
}

fn difference(args: &[Val<'_>]) -> Answer {
    let name = "$dateDiff";
    let unit = unit(name, arg(args, 2))?;
    let (a, b) = (local(name, arg(args, 0), arg(args, 3))?, local(name, arg(args, 1), arg(args, 3))?);
    let (Some(a), Some(b), Some((unit, week))) = (a, b, unit) else { return Ok(Val::NULL) };
    let (a, b) = (a.ms, b.ms);
    let count = match unit {
        Unit::Months(size) => Some(months_of(b).div_euclid(size) - months_of(a).div_euclid(size)),
        Unit::Milliseconds(size) => {
            let origin = if week { week_origin(week_start(arg(args, 4))?) } else { 0 };
            let place = |ms: i64| ms.saturating_sub(origin).div_euclid(size);
            place(b).checked_sub(place(a))
        }
    };
    match count {
        Some(count) => Ok(Val::Ref(Value::Int64(count))),
        None => refuse!(5166308, "{name} overflowed"),
    }
}

fn truncate(args: &[Val<'_>]) -> Answer {
    let name = "$dateTrunc";
    let unit = unit(name, arg(args, 1))?;
    let bins = match arg(args, 2).get() {
        None => 1,
        Some(value) if value.is_nullish() => return Ok(Val::NULL),
        Some(value) => match value.as_integer() {
            Some(bins) if bins > 0 && bins < 1 << 40 => bins,
            _ => refuse!(
                5439017,
                "{name} requires 'binSize' to be a positive 64-bit integer, but got '{value}'"
            ),
        },
    };
    let (Some(Local { ms, zone, .. }), Some((unit, week))) = (local(name, arg(args, 0), arg(args, 3))?, unit)
    else {
        return Ok(Val::NULL);
    };
    // Bins are counted from the year 2000.
    let epoch = civil::to_days(2000, 1, 1) * DAY_MS;
    let start = match unit {
        Unit::Months(size) => {
            let size = size.saturating_mul(bins);
            let months = (months_of(ms) - 24_000).div_euclid(size).saturating_mul(size);
            add_months(epoch, Some(months))
        }
        Unit::Milliseconds(size) => {
            let size = size.saturating_mul(bins);
            let origin = if week {
                // The first such weekday of 2000, a year that began on a Saturday.
                epoch + (week_start(arg(args, 4))? - 6).rem_euclid(7) * DAY_MS
            } else {
                epoch
            };
            let bin = ms.saturating_sub(origin).div_euclid(size);
            bin.checked_mul(size).and_then(|from| from.checked_add(origin))
        }
    };
    match start.and_then(|start| zone.utc(start)) {
        Some(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        None => refuse!(5439018, "{name} overflowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_795_219_200_000, "2026-11-21T00:00:00.000Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_text(ms), text);
            assert_eq!(parse_iso(text), Some(ms), "{text}");
        }
        for ms in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            assert_eq!(Parts::of(ms).to_ms(), Some(ms));
        }
        let t = Parts::of(parse_iso("2021-01-03").unwrap());
        assert_eq!(
            (t.weekday(), t.iso_weekday(), civil::iso_week(t.days()), t.day_of_year()),
            (0, 7, (2020, 53), 3)
        );
        assert_eq!(parse_iso("2021-02-29"), None);
        assert_eq!(parse_iso("2026-11-21T01:00+01:00"), parse_iso("2026-11-21"));
    }
}
