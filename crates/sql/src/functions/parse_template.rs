//! `to_date`, `to_timestamp` and `to_number` with a template: the inverse of `to_char`.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Data Type Formatting Functions".

use ropewalk::hooks::civil;
use ropewalk::tables::{Numeric, Value};

use crate::error::{Result, SqlError, state};
use crate::functions::datetime_template::DAYS;
use crate::types::datetime::DAY;
use crate::types::zone::Zone;

/// The fields, longer ones before their prefixes, with their numbers of digits.
const FIELDS: [(&str, usize); 45] = [
    ("A.D.", 0),
    ("A.M.", 0),
    ("AD", 0),
    ("AM", 0),
    ("B.C.", 0),
    ("BC", 0),
    ("CC", 2),
    ("DAY", 0),
    ("DDD", 3),
    ("DD", 2),
    ("DY", 0),
    ("D", 1),
    ("FF1", 1),
    ("FF2", 2),
    ("FF3", 3),
    ("FF4", 4),
    ("FF5", 5),
    ("FF6", 6),
    ("HH24", 2),
    ("HH12", 2),
    ("HH", 2),
    ("IDDD", 3),
    ("ID", 1),
    ("IW", 2),
    ("IYYY", 4),
    ("J", 7),
    ("MI", 2),
    ("MM", 2),
    ("MONTH", 0),
    ("MON", 0),
    ("MS", 3),
    ("P.M.", 0),
    ("PM", 0),
    ("Q", 1),
    ("SSSSS", 5),
    ("SSSS", 5),
    ("SS", 2),
    ("TZH", 2),
    ("TZM", 2),
    ("US", 6),
    ("YYYY", 4),
    ("YYY", 3),
    ("YY", 2),
    ("Y", 1),
    ("WW", 2),
];

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// Name, number of digits, and whether there may be fewer or more (`FM`).
    Field(&'static str, usize, bool),
    /// A blank, or a sign that separates fields.
    Between,
    Letter,
}

fn parts(template: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = template;
    let mut is_free = false;
    while let Some(c) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            parts.extend(text.chars().map(|_| Part::Letter));
            rest = behind;
            continue;
        }
        let is = |word: &str| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        if is("FM") {
            (is_free, rest) = (true, rest.get(2..).unwrap_or_default());
            continue;
        }
        if is("FX") || is("TM") || is("RM") {
            return Err(SqlError::unsupported("FX, TM or RM in a template that is read", "leave it out"));
        }
        match FIELDS.iter().find(|(word, _)| is(word)) {
            Some((word, digits)) => {
                parts.push(Part::Field(word, *digits, is_free));
                rest = rest.get(word.len()..).unwrap_or_default();
                if is_ordinal(rest) {
                    return Err(SqlError::unsupported("TH in a template that is read", "leave it out"));
                }
                is_free = false;
            }
            None => {
                let is_between = c.is_whitespace() || c.is_ascii_punctuation();
                parts.push(if is_between { Part::Between } else { Part::Letter });
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            }
        }
    }
    Ok(parts)
}

fn is_ordinal(rest: &str) -> bool {
    rest.get(..2).is_some_and(|head| head.eq_ignore_ascii_case("th"))
}

/// Field values read from the text.
#[derive(Debug, Default)]
struct Read {
    year: Option<i64>,
    is_bc: bool,
    century: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    of_year: Option<i64>,
    julian: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    week: Option<i64>,
    hour: i64,
    half: Option<bool>,
    is_half_clock: bool,
    minute: i64,
    second: i64,
    of_day: Option<i64>,
    micros: i64,
    /// Sign, hours, minutes.
    zone: Option<(i64, i64, i64)>,
}

fn malformed(message: String) -> SqlError {
    SqlError::new(state::INVALID_DATETIME_FORMAT, message)
}

/// The position of the name at the start of the text, and its length.
fn name(text: &str, names: &[&str], is_short: bool) -> Option<(i64, usize)> {
    (0_i64..).zip(names).find_map(|(place, name)| {
        let name = if is_short { name.get(..3)? } else { name };
        let head = text.get(..name.len())?;
        head.eq_ignore_ascii_case(name).then_some((place, name.len()))
    })
}

/// The number at a field, and its length in bytes. Without a following digit field it takes all digits.
fn digits(text: &str, field: &str, width: usize, takes_all: bool) -> Result<(i64, usize)> {
    let is_signed = matches!(text.as_bytes().first(), Some(b'+' | b'-'));
    let most = if takes_all { text.len() } else { width };
    let from = usize::from(is_signed && takes_all);
    let found = text.bytes().skip(from).take(most).take_while(u8::is_ascii_digit).count();
    let head: String = text.chars().take(if takes_all { usize::MAX } else { width }).collect();
    if found == 0 {
        let shown: String =
            text.split_whitespace().next().unwrap_or(&head).chars().take(width.max(1)).collect();
        return Err(malformed(format!("invalid value \"{shown}\" for \"{field}\""))
            .hint("the value must be an integer"));
    }
    if !takes_all && found < width {
        let error = match text.len() < width {
            true => malformed(format!("source string too short for \"{field}\" formatting field")),
            false => malformed(format!("invalid value \"{head}\" for \"{field}\"")),
        };
        return Err(error.hint("if the source is not of fixed width, use the FM modifier"));
    }
    let number: Option<i64> = text.get(from..from + found).and_then(|digits| digits.parse().ok());
    let number = number.filter(|number| *number <= i64::from(i32::MAX)).ok_or_else(|| {
        SqlError::new(
            state::DATETIME_FIELD_OVERFLOW,
            format!("value for \"{field}\" in source string is out of range"),
        )
    })?;
    Ok((if is_signed && text.starts_with('-') { -number } else { number }, from + found))
}

fn read(source: &str, template: &str) -> Result<Read> {
    let parts = parts(template)?;
    let mut read = Read::default();
    let mut text = source;
    for (place, part) in parts.iter().enumerate() {
        if matches!(part, Part::Field(..)) {
            text = text.trim_start();
        }
        if text.is_empty() {
            break;
        }
        let next = parts.get(place + 1);
        match *part {
            Part::Between => text = skip_separator(text, next),
            Part::Letter => text = skip_character(text),
            Part::Field(field, width, is_free) => {
                let takes_all = is_free
                    || match next {
                        None | Some(Part::Between | Part::Letter) => true,
                        Some(Part::Field(_, digits, _)) => *digits == 0,
                    };
                let taken = read.take_field(&FieldText { field, width, takes_all, text })?;
                text = text.get(taken..).unwrap_or_default();
            }
        }
    }
    Ok(read)
}

fn skip_character(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next();
    chars.as_str()
}

/// Skips a blank or a sign, but no sign of the offset that follows.
fn skip_separator<'t>(text: &'t str, next: Option<&Part>) -> &'t str {
    match text.chars().next() {
        Some('+' | '-') if matches!(next, Some(Part::Field("TZH", ..))) => text,
        Some(c) if c.is_whitespace() || c.is_ascii_punctuation() => skip_character(text),
        _ => text,
    }
}

/// A field of the template, and the text that begins with its value.
struct FieldText<'t> {
    field: &'static str,
    width: usize,
    /// No digit field follows: the number may have more digits than the field.
    takes_all: bool,
    text: &'t str,
}

impl FieldText<'_> {
    /// The number, and its length in bytes.
    fn number(&self) -> Result<(i64, usize)> {
        digits(self.text, self.field, self.width, self.takes_all)
    }

    /// The position of the name, and its length in bytes.
    fn name(&self, names: &[&str], is_short: bool) -> Result<(i64, usize)> {
        name(self.text, names, is_short).ok_or_else(|| {
            let shown: String = self.text.chars().take(self.field.len()).collect();
            malformed(format!("invalid value \"{shown}\" for \"{}\"", self.field))
                .hint("the given value did not match any of the allowed values for this field")
        })
    }
}

impl Read {
    /// Reads the value of a field. Returns its length in bytes.
    fn take_field(&mut self, at: &FieldText<'_>) -> Result<usize> {
        let field = at.field;
        Ok(match field {
            "MONTH" | "MON" => {
                let (place, taken) = at.name(&civil::MONTHS, field == "MON")?;
                self.month = Some(place + 1);
                taken
            }
            "DAY" | "DY" => at.name(&DAYS, field == "DY")?.1,
            "AM" | "PM" | "A.M." | "P.M." => {
                let words = if field.len() == 2 { ["AM", "PM"] } else { ["A.M.", "P.M."] };
                let (place, taken) = at.name(&words, false)?;
                (self.half, self.is_half_clock) = (Some(place == 1), true);
                taken
            }
            "BC" | "AD" | "B.C." | "A.D." => {
                let words = if field.len() == 2 { ["AD", "BC"] } else { ["A.D.", "B.C."] };
                let (place, taken) = at.name(&words, false)?;
                self.is_bc = place == 1;
                taken
            }
            "TZH" => {
                let sign = if at.text.starts_with('-') { -1 } else { 1 };
                let signed = usize::from(at.text.starts_with(['+', '-']));
                let rest = at.text.get(signed..).unwrap_or_default();
                let (hours, taken) = FieldText { text: rest, ..*at }.number()?;
                let minutes = self.zone.map_or(0, |zone| zone.2);
                self.zone = Some((sign, hours, minutes));
                taken + signed
            }
            _ => {
                let (number, taken) = at.number()?;
                self.take_number(field, number, taken);
                taken
            }
        })
    }

    /// Stores the value of a field of digits, of which the text has `count`.
    fn take_number(&mut self, field: &str, number: i64, count: usize) {
        match field {
            "TZM" => {
                let (sign, hours, _) = self.zone.unwrap_or((1, 0, 0));
                self.zone = Some((sign, hours, number));
            }
            "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                // Decimal places: missing digits are the lower ones.
                let places = places_of(field, if field == "MS" { 3 } else { 6 });
                let missing = places.saturating_sub(count);
                let scale = 10_i64.pow(u32::try_from(missing).unwrap_or_default());
                let unit = 10_i64.pow(u32::try_from(6 - places).unwrap_or_default());
                self.micros += number * scale * unit;
            }
            // Years of few digits are those nearest to 2020.
            "YYYY" | "YYY" | "YY" | "Y" => {
                self.year = Some(match number {
                    year if field == "YYYY" || count >= 4 => year,
                    0..=69 => number + 2000,
                    70..=99 => number + 1900,
                    100..=519 => number + 2000,
                    520..=999 => number + 1000,
                    year => year,
                });
            }
            "CC" => self.century = Some(number),
            "MM" => self.month = Some(number),
            "DD" => self.day = Some(number),
            "DDD" => self.of_year = Some(number),
            "J" => self.julian = Some(number),
            "IYYY" => self.iso_year = Some(number),
            "IW" => self.iso_week = Some(number),
            "ID" => self.iso_day = Some(number),
            "WW" => self.week = Some(number),
            "HH24" => self.hour = number,
            "HH12" | "HH" => (self.hour, self.is_half_clock) = (number, true),
            "MI" => self.minute = number,
            "SS" => self.second = number,
            "SSSS" | "SSSSS" => self.of_day = Some(number),
            // The quarter and the day of a week add no information.
            _ => {}
        }
    }
}

fn places_of(field: &str, otherwise: usize) -> usize {
    field.strip_prefix("FF").and_then(|places| places.parse().ok()).unwrap_or(otherwise)
}

/// Days since 1970 and microseconds of the day in a text, by a template.
fn moment(source: &str, template: &str) -> Result<(i64, i64, Read)> {
    let read = read(source, template)?;
    let outside = || {
        let message = format!("date/time field value out of range: \"{source}\"");
        SqlError::new(state::DATETIME_FIELD_OVERFLOW, message)
    };
    let mut year = match (read.year, read.century) {
        (Some(year), _) => year,
        (None, Some(century)) => (century - 1) * 100 + 1,
        // Without any year the year is 1 BC, as in PostgreSQL.
        (None, None) => 0,
    };
    if read.is_bc {
        year = 1 - year;
    } else if year < 0 {
        year += 1;
    }
    let days = if let Some(julian) = read.julian {
        julian - 2_440_588
    } else if let Some(iso_year) = read.iso_year {
        let week = read.iso_week.unwrap_or(1);
        if !(1..=53).contains(&week) {
            return Err(outside());
        }
        // The week of the 4th of January is the first one.
        let first = civil::monday(civil::to_days(iso_year, 1, 4));
        first + (week - 1) * 7 + read.iso_day.unwrap_or(1) - 1
    } else if let Some(of_year) = read.of_year {
        let most = civil::to_days(year + 1, 1, 1) - civil::to_days(year, 1, 1);
        if !(1..=most).contains(&of_year) {
            return Err(outside());
        }
        civil::to_days(year, 1, 1) + of_year - 1
    } else if let (Some(week), None) = (read.week, read.month) {
        civil::to_days(year, 1, 1) + (week - 1) * 7
    } else {
        let (month, day) = (read.month.unwrap_or(1), read.day.unwrap_or(1));
        if !(1..=12).contains(&month) || !(1..=civil::days_in_month(year, month)).contains(&day) {
            return Err(outside());
        }
        civil::to_days(year, month, day)
    };
    let hour = match read.is_half_clock {
        true if !(1..=12).contains(&read.hour) => {
            let message = format!("hour \"{}\" is invalid for the 12-hour clock", read.hour);
            return Err(malformed(message).hint("use the 24-hour clock, or give an hour between 1 and 12"));
        }
        true => match (read.hour, read.half) {
            (hour, Some(true)) if hour < 12 => hour + 12,
            (12, Some(false)) => 0,
            (hour, _) => hour,
        },
        false => read.hour,
    };
    let seconds = match read.of_day {
        Some(seconds) => seconds,
        None => hour * 3600 + read.minute * 60 + read.second,
    };
    let in_range = (0..=23).contains(&hour)
        && (0..=59).contains(&read.minute)
        && (0..=59).contains(&read.second)
        && (0..86_400).contains(&seconds)
        && (0..1_000_000).contains(&read.micros);
    if !in_range {
        return Err(outside());
    }
    Ok((days, seconds * 1_000_000 + read.micros, read))
}

/// `to_date(source, template)`.
///
/// # Errors
/// 22007, 22008.
pub(crate) fn to_date(source: &str, template: &str) -> Result<Value<'static>> {
    let (days, _, _) = moment(source, template)?;
    Ok(Value::Date(i32::try_from(days).map_err(|_| {
        let message = format!("date out of range: \"{source}\"");
        SqlError::new(state::DATETIME_FIELD_OVERFLOW, message)
    })?))
}

/// `to_timestamp(source, template)`: without an offset in the text, in the session's zone.
///
/// # Errors
/// 22007, 22008.
pub(crate) fn to_timestamp(source: &str, template: &str, zone: &Zone) -> Result<Value<'static>> {
    let (days, micros, read) = moment(source, template)?;
    let local = days.checked_mul(DAY).and_then(|day| day.checked_add(micros)).ok_or_else(|| {
        let message = format!("timestamp out of range: \"{source}\"");
        SqlError::new(state::DATETIME_FIELD_OVERFLOW, message)
    })?;
    Ok(Value::Timestamptz(match read.zone {
        Some((sign, hours, minutes)) => local - sign * (hours * 60 + minutes) * 60_000_000,
        None => zone.moment(local),
    }))
}

/// `to_number(source, template)`: the digits at digit positions of the template, without groups and
/// currencies.
///
/// # Errors
/// 22P02: no digits.
pub(crate) fn to_number(source: &str, template: &str) -> Result<Value<'static>> {
    let upper = template.to_ascii_uppercase();
    let shift = upper.split_once('V').map_or(0, |(_, behind)| behind.matches('9').count());
    let mut is_negative = false;
    let (mut digits, mut scale, mut has_point) = (String::new(), 0_u8, false);
    for c in source.chars() {
        match c {
            '0'..='9' => {
                digits.push(c);
                scale += u8::from(has_point && scale < u8::MAX);
            }
            '-' | '<' => is_negative = true,
            '.' if !has_point && (upper.contains(['.', 'D'])) => has_point = true,
            '.' => break,
            _ => {}
        }
    }
    let number = digits.parse::<i128>().ok().and_then(|mantissa| {
        let mantissa = if is_negative { -mantissa } else { mantissa };
        let scale = scale.checked_add(u8::try_from(shift).ok()?)?;
        Numeric::new(mantissa, scale)
    });
    match number {
        Some(number) => Ok(Value::Numeric(number)),
        None if digits.is_empty() => {
            let message = "invalid input syntax for type numeric: \" \"";
            Err(SqlError::new(state::INVALID_TEXT_REPRESENTATION, message))
        }
        None => Err(crate::expr::arith::out_of_range(ropewalk::tables::Type::NUMERIC)),
    }
}
