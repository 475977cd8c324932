//! `to_char` of times and intervals: a template of fields, such as `YYYY-MM-DD HH24:MI:SS`.
//!
//! Text in double quotes and all characters outside of fields are copied. `FM` before a field omits its
//! padding. PostgreSQL's other fields are rejected, never copied to the output.

use ropewalk::hooks::civil;
use ropewalk::tables::Interval;

use crate::error::{Result, SqlError, state};
use crate::types::datetime::DAY;
use crate::types::zone::{Zone, shown_offset};

pub(crate) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The supported fields, longer ones before their prefixes.
const FIELDS: [&str; 61] = [
    "HH24", "HH12", "HH", "MI", "MS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "SSSSS", "SSSS", "SS",
    "AM", "PM", "am", "pm", "A.M.", "P.M.", "a.m.", "p.m.", "YYYY", "YYY", "YY", "IYYY", "IYY", "IY",
    "MONTH", "Month", "month", "MON", "Mon", "mon", "MM", "DAY", "Day", "day", "DDD", "DD", "DY", "Dy", "dy",
    "D", "IDDD", "ID", "IW", "I", "WW", "W", "Q", "CC", "J", "RM", "rm", "TZ", "tz", "OF", "Y,YYY", "Y",
];

/// Fields of PostgreSQL that are not supported.
const REFUSED: [&str; 10] = ["BC", "AD", "bc", "ad", "B.C.", "A.D.", "b.c.", "a.d.", "TZH", "TZM"];

/// The months in Roman numerals.
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// The first digits of microseconds below a second: `FF1` to `FF6`.
fn fraction(field: &str, micros: i64) -> (i64, usize) {
    let digits = field.trim_start_matches("FF").parse().unwrap_or(6);
    (micros % 1_000_000 / 10_i64.pow(6 - digits), digits as usize)
}

/// The ending of an ordinal number.
fn ordinal(number: i64) -> &'static str {
    match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// Half of the day, in the way of the field.
fn half(field: &str, is_first: bool) -> String {
    let letters = if field.contains('.') { ["a.m.", "p.m."] } else { ["am", "pm"] };
    let [first, second] = letters.map(|text| match field.starts_with(char::is_uppercase) {
        true => text.to_uppercase(),
        false => text.to_owned(),
    });
    if is_first { first } else { second }
}

/// Source of the field values.
trait Fields {
    /// The field's text, and the width to which its number is padded.
    fn field(&self, field: &str) -> Result<(String, usize)>;
}

impl Fields for Interval {
    fn field(&self, field: &str) -> Result<(String, usize)> {
        let seconds = self.micros / 1_000_000;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let (years, months, days) =
            (i64::from(self.months / 12), i64::from(self.months % 12), i64::from(self.days));
        let number = |value: i64, width: usize| Ok((value.to_string(), width));
        match field {
            "HH24" => number(hour, 2),
            "HH12" | "HH" if hour % 12 == 0 => number(12, 2),
            "HH12" | "HH" => number(hour % 12, 2),
            "MI" => number(minute, 2),
            "SS" => number(second, 2),
            "SSSS" | "SSSSS" => number(seconds, 0),
            "MS" => number(self.micros % 1_000_000 / 1000, 3),
            "US" => number(self.micros % 1_000_000, 6),
            _ if field.starts_with("FF") => {
                let (value, width) = fraction(field, self.micros);
                number(value, width)
            }
            "YYYY" => number(years, 4),
            "YYY" => number(years % 1000, 3),
            "YY" => number(years % 100, 2),
            "Y" => number(years % 10, 1),
            "MM" => number(months, 2),
            "DD" => number(days, 2),
            "DDD" => number((years * 12 + months) * 30 + days, 3),
            "AM" | "PM" | "am" | "pm" | "A.M." | "P.M." | "a.m." | "p.m." => {
                Ok((half(field, hour % 24 < 12), 0))
            }
            _ => {
                let message = "invalid format specification for an interval value";
                Err(SqlError::new(state::INVALID_DATETIME_FORMAT, message)
                    .hint("intervals are not tied to specific calendar dates"))
            }
        }
    }
}

impl Fields for Moment {
    fn field(&self, field: &str) -> Result<(String, usize)> {
        Ok(self.shown(field))
    }
}

struct Moment {
    year: i64,
    month: i64,
    day: i64,
    days: i64,
    micros: i64,
    /// The zone's abbreviation and offset from UTC, if there is a zone.
    zone: Option<(String, String)>,
}

impl Moment {
    fn of_year(&self) -> i64 {
        self.days - civil::to_days(self.year, 1, 1) + 1
    }

    fn weekday(&self) -> i64 {
        civil::weekday(self.days)
    }

    /// The field's text, and the width to which its number is padded.
    fn shown(&self, field: &str) -> (String, usize) {
        let seconds = self.micros / 1_000_000;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let number = |value: i64, width: usize| (value.to_string(), width);
        let name = |names: &[&str], place: i64| {
            let place = usize::try_from(place).unwrap_or_default();
            names.get(place).copied().unwrap_or_default().to_owned()
        };
        let cased = |text: String| {
            let short = field.len() == 3 && field.to_uppercase() == "MON" || field.len() == 2;
            let text: String = if short { text.chars().take(3).collect() } else { text };
            let text = match field.chars().nth(1) {
                Some(c) if c.is_uppercase() => text.to_uppercase(),
                _ if field.starts_with(char::is_lowercase) => text.to_lowercase(),
                _ => text,
            };
            // Full names are padded to the longest one.
            (if short { text } else { format!("{text:<9}") }, 0)
        };
        match field {
            "HH24" => number(hour, 2),
            "HH12" | "HH" => number((hour + 11) % 12 + 1, 2),
            "MI" => number(minute, 2),
            "SS" => number(second, 2),
            "SSSS" | "SSSSS" => number(seconds, 0),
            "MS" => number(self.micros % 1_000_000 / 1000, 3),
            "US" => number(self.micros % 1_000_000, 6),
            _ if field.starts_with("FF") => {
                let (value, width) = fraction(field, self.micros);
                number(value, width)
            }
            "AM" | "PM" | "am" | "pm" | "A.M." | "P.M." | "a.m." | "p.m." => (half(field, hour < 12), 0),
            "YYYY" => number(self.year, 4),
            "Y,YYY" => (format!("{},{:03}", self.year / 1000, self.year % 1000), 0),
            "YYY" => number(self.year % 1000, 3),
            "YY" => number(self.year % 100, 2),
            "Y" => number(self.year % 10, 1),
            "IYYY" => number(civil::iso_week(self.days).0, 4),
            "IYY" => number(civil::iso_week(self.days).0 % 1000, 3),
            "IY" => number(civil::iso_week(self.days).0 % 100, 2),
            "I" => number(civil::iso_week(self.days).0 % 10, 1),
            "IW" => number(civil::iso_week(self.days).1, 2),
            "MM" => number(self.month, 2),
            "DD" => number(self.day, 2),
            "DDD" => number(self.of_year(), 3),
            "D" => number(self.weekday() + 1, 0),
            "ID" => number(self.days - civil::monday(self.days) + 1, 0),
            "IDDD" => {
                let week = civil::iso_week(self.days).1;
                number((week - 1) * 7 + self.days - civil::monday(self.days) + 1, 3)
            }
            "RM" => (format!("{:<4}", name(&ROMAN, self.month - 1)), 0),
            "rm" => (format!("{:<4}", name(&ROMAN, self.month - 1).to_lowercase()), 0),
            "WW" => number((self.of_year() - 1) / 7 + 1, 2),
            "W" => number((self.day - 1) / 7 + 1, 0),
            "Q" => number((self.month + 2) / 3, 0),
            "CC" => number((self.year + 99) / 100, 2),
            "J" => number(self.days + 2_440_588, 0),
            "TZ" => (self.zone.as_ref().map_or_else(String::new, |(name, _)| name.clone()), 0),
            "tz" => (self.zone.as_ref().map_or_else(String::new, |(name, _)| name.to_lowercase()), 0),
            "OF" => (self.zone.as_ref().map_or_else(|| "+00".to_owned(), |(_, offset)| offset.clone()), 0),
            _ if field.to_uppercase().starts_with("MON") => cased(name(&civil::MONTHS, self.month - 1)),
            _ => cased(name(&DAYS, self.weekday())),
        }
    }
}

/// Formats a time by a template. `micros` since 1970; with a zone in its local time.
///
/// # Errors
/// 0A000 for unsupported fields.
pub(crate) fn to_char(micros: i64, zone: Option<&Zone>, template: &str) -> Result<String> {
    if matches!(micros, i64::MAX | i64::MIN) {
        return Ok(String::new());
    }
    let shown = |zone: &Zone| (zone.abbreviation_at(micros), shown_offset(zone.offset_at(micros)));
    let (micros, zone) = (zone.map_or(micros, |zone| zone.local(micros)), zone.map(shown));
    let days = micros.div_euclid(DAY);
    let (year, month, day) = civil::from_days(days);
    let moment = Moment { year, month, day, days, micros: micros.rem_euclid(DAY), zone };
    filled(&moment, template)
}

/// Formats an interval by a template: hours may exceed a day. Calendar fields are invalid.
///
/// # Errors
/// 22007 for calendar fields, 0A000 for unsupported ones.
pub(crate) fn interval_to_char(interval: Interval, template: &str) -> Result<String> {
    filled(&interval, template)
}

/// Pads a number with zeros on the left.
fn filled_up(text: &str, width: usize) -> String {
    match text.strip_prefix('-') {
        Some(digits) if width > 0 => format!("-{digits:0>width$}"),
        _ => format!("{text:0>width$}"),
    }
}

fn filled(source: &dyn Fields, template: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = template;
    let mut fills = true;
    while let Some(c) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            out += text;
            rest = behind;
            continue;
        }
        if let Some(behind) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            (fills, rest) = (false, behind);
            continue;
        }
        if let Some(field) = REFUSED.iter().find(|field| rest.starts_with(**field)) {
            return Err(SqlError::unsupported(
                format!("{field} in to_char"),
                "put letters that are no field in double quotes",
            ));
        }
        // Number fields may be written in lower case.
        let upper =
            |field: &&&str| rest.get(..field.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(field));
        let exact = FIELDS.iter().find(|field| rest.starts_with(**field));
        match exact.or_else(|| FIELDS.iter().find(upper)) {
            Some(field) => {
                let (text, width) = source.field(field)?;
                out += &if fills { filled_up(&text, width) } else { text.trim_end().to_owned() };
                rest = rest.get(field.len()..).unwrap_or_default();
                fills = true;
                if let Ok(number) = text.parse::<i64>() {
                    if let Some(behind) = rest.strip_prefix("th") {
                        (out, rest) = (out + ordinal(number), behind);
                    } else if let Some(behind) = rest.strip_prefix("TH") {
                        (out, rest) = (out + &ordinal(number).to_uppercase(), behind);
                    }
                }
            }
            None => {
                out.push(c);
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            }
        }
    }
    Ok(out)
}
