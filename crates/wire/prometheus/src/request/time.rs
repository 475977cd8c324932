//! Parser of times in API parameters: seconds with decimals, RFC 3339.

use ropewalk_monitoring::notation::parse_float;

/// The current time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The error for a text that is not a time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotTime(pub(crate) String);

/// The earliest time that Prometheus supports, as it prints it.
const EARLIEST: &str = "-292273086-05-16T16:47:06Z";
/// The latest.
const LATEST: &str = "292277025-08-18T07:12:54.999999999Z";
/// The earliest and the latest in milliseconds.
pub(crate) const EARLIEST_MS: i64 = -9_223_309_901_257_974_000;
pub(crate) const LATEST_MS: i64 = 9_223_309_901_257_974_999;

/// A time in milliseconds since 1970: seconds as a number, or RFC 3339.
pub(crate) fn parse_time(text: &str) -> Result<i64, NotTime> {
    let refuse = || NotTime(format!("cannot parse {text:?} to a valid timestamp"));
    if let Some(seconds) = parse_float(text) {
        // Round the fraction by itself, so that halves of a millisecond are exact.
        let ms = seconds.trunc() * 1000.0 + (seconds.fract() * 1000.0).round();
        let inside = ms.is_finite() && ms.abs() < LATEST_MS as f64;
        return inside.then_some(ms as i64).ok_or_else(refuse);
    }
    match text {
        EARLIEST => Ok(EARLIEST_MS),
        LATEST => Ok(LATEST_MS),
        _ => text.parse::<jiff::Timestamp>().map(|time| time.as_millisecond()).map_err(|_| refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in [
            ("0", 0),
            ("1.5", 1_500),
            ("-1", -1_000),
            ("1435781451.781", 1_435_781_451_781),
            ("1.0005", 1_000),
            ("2015-07-01T20:10:51.781Z", 1_435_781_451_781),
            ("2015-07-01T22:10:51.781+02:00", 1_435_781_451_781),
            (EARLIEST, EARLIEST_MS),
            (LATEST, LATEST_MS),
        ] {
            assert_eq!(parse_time(text), Ok(ms), "{text}");
        }
        for text in ["", "foo", "30s", "inf", "NaN", "1e300", "2015-07-01"] {
            let NotTime(why) = parse_time(text).unwrap_err();
            assert_eq!(why, format!("cannot parse {text:?} to a valid timestamp"));
        }
    }
}
