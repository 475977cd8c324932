//! Parser of times and durations in API parameters: seconds with decimals, RFC 3339, `1h30m`.

/// The current time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The error for a text that is not a time or duration.
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
    if let Some(seconds) = crate::request::number::parse_float(text) {
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

/// Units of a duration from long to short, in milliseconds. Each may occur once, in this order.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A duration in milliseconds: seconds as a number, or `1h30m`. May be negative or zero as a number.
pub(crate) fn parse_duration(text: &str) -> Result<i64, NotTime> {
    let refuse = |why: &str| NotTime(format!("cannot parse {text:?} to a valid duration{why}"));
    if let Some(seconds) = crate::request::number::parse_float(text) {
        let nanos = seconds * 1e9;
        if nanos.is_nan() || nanos.abs() >= i64::MAX as f64 {
            return Err(refuse(". It overflows int64"));
        }
        return Ok((seconds * 1000.0).round() as i64);
    }
    let mut rest = text;
    let mut total = 0_i64;
    let mut from = 0;
    while !rest.is_empty() {
        let digits =
            rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0).ok_or_else(|| refuse(""))?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let at = UNITS.iter().position(|(name, _)| *name == unit).filter(|at| *at >= from);
        let (at, (_, ms)) = at.and_then(|at| Some((at, UNITS.get(at)?))).ok_or_else(|| refuse(""))?;
        from = at + 1;
        let part = number.parse::<i64>().ok().and_then(|number| number.checked_mul(*ms));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| refuse(""))?;
        rest = after;
    }
    if text.is_empty() || total > i64::MAX / 1_000_000 {
        return Err(refuse(""));
    }
    Ok(total)
}

/// A duration as Prometheus prints it: `1m30s`, `90d`, `500ms`; years and weeks only without a remainder.
pub(crate) fn duration(time: std::time::Duration) -> String {
    let mut rest = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let mut out = String::new();
    for (unit, ms) in UNITS {
        if !matches!(unit, "y" | "w") || rest % ms == 0 {
            let count = rest / ms;
            rest -= count * ms;
            if count > 0 {
                out.push_str(&format!("{count}{unit}"));
            }
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_prometheus_writes_them() {
        for (ms, text) in [
            (0, "0s"),
            (500, "500ms"),
            (15_000, "15s"),
            (90_000, "1m30s"),
            (90 * 86_400_000, "90d"),
            (14 * 86_400_000, "2w"),
            (365 * 86_400_000, "1y"),
            (3_600_001, "1h1ms"),
        ] {
            assert_eq!(duration(std::time::Duration::from_millis(ms)), text);
        }
    }

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

    #[test]
    fn durations() {
        for (text, ms) in [
            ("15s", 15_000),
            ("1h30m", 5_400_000),
            ("1y2w3d4h5m6s7ms", 31_536_000_000 + 1_209_600_000 + 259_200_000 + 14_706_007),
            ("0", 0),
            ("0s", 0),
            ("60", 60_000),
            ("0.5", 500),
            ("-5", -5_000),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
        for text in ["", "s", "1x", "30m1h", "1h1h", "1.5h", "-5m", " 5m", "5m ", "99999999999y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("1e10").unwrap_err().0.ends_with("It overflows int64"));
    }
}
