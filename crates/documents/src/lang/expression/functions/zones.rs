//! Time zones: offsets (`+05:30`), and named zones whose offset varies (`Europe/Berlin`).
//!
//! The rules of named zones are compiled in (the IANA database that jiff bundles), so that results do not
//! depend on the files of the machine.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::lang::error::{LangResult, refuse};
use crate::lang::value::Value;
use crate::lang::value::val::Val;

/// A zone.
#[derive(Debug, Clone)]
pub(super) enum Zone {
    /// Milliseconds ahead of UTC.
    Fixed(i64),
    Place(TimeZone),
}

static PLACES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl Zone {
    /// The zone that an operand names: UTC when it is missing, `None` for null.
    pub(super) fn of(value: &Val<'_>) -> LangResult<Option<Self>> {
        let name = match value.get() {
            None => return Ok(Some(Self::Fixed(0))),
            Some(value) if value.is_nullish() => return Ok(None),
            Some(Value::String(name)) => name,
            Some(other) => refuse!(40517, "timezone must evaluate to a string, found {}", other.type_name()),
        };
        if matches!(name, "UTC" | "GMT" | "Z" | "") {
            return Ok(Some(Self::Fixed(0)));
        }
        if let Some(minutes) = offset(name) {
            return Ok(Some(Self::Fixed(minutes * 60_000)));
        }
        match PLACES.get(name) {
            Ok(place) => Ok(Some(Self::Place(place))),
            Err(_) => refuse!(40485, "unrecognized time zone identifier: \"{name}\""),
        }
    }

    /// Milliseconds ahead of UTC at this time.
    pub(super) fn ahead(&self, ms: i64) -> i64 {
        match self {
            Self::Fixed(ahead) => *ahead,
            Self::Place(place) => {
                // Before the year -9999 and after 9999 the offset at those limits applies.
                let (least, most) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
                let at = Timestamp::from_millisecond(ms.clamp(least, most)).unwrap_or_default();
                i64::from(place.to_offset(at).seconds()) * 1000
            }
        }
    }

    /// The UTC time of the local time `local`. For an ambiguous time the earlier offset applies; within a
    /// gap, the offset before it.
    pub(super) fn utc(&self, local: i64) -> Option<i64> {
        let guess = local.checked_sub(self.ahead(local))?;
        local.checked_sub(self.ahead(guess))
    }
}

/// `+05:30`, `-0800`, `+02` in minutes.
pub(super) fn offset(name: &str) -> Option<i64> {
    let sign = match name.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = name.get(1..)?.split(':').collect();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        2 => (digits.as_str(), "0"),
        4 => digits.split_at(2),
        _ => return None,
    };
    Some(sign * (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?))
}
