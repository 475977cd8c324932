//! Numbers, times and durations as Prometheus reads and writes them: Go's shortest form, `+Inf`, `-Inf`,
//! `NaN`; times as seconds with up to three decimals.

use std::io::Write;

use ropewalk::promql;
use ropewalk_http_kit::json::put_number;

/// A float as Go's `strconv` formats it with `f` and the least digits.
///
/// Very large and very small ones have an exponent.
pub fn put_float(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    let size = value.abs();
    if size < 1e15 && value.trunc() == value && (value != 0.0 || value.is_sign_positive()) {
        return put_number(out, value as i64);
    }
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        return put_exponent(out, value);
    }
    // Writing to a vector does not fail.
    let _ = write!(out, "{value}");
}

/// Go writes an exponent with its sign and with two digits at least: `1e-07`, `1e+21`.
fn two_digits(out: &mut Vec<u8>, start: usize) {
    let Some(e) = out.iter().skip(start).position(|byte| *byte == b'e').map(|at| start + at) else { return };
    let exponent = out.split_off(e + 1);
    let (sign, digits) = match exponent.strip_prefix(b"-") {
        Some(digits) => (b'-', digits),
        None => (b'+', exponent.as_slice()),
    };
    out.push(sign);
    if digits.len() < 2 {
        out.push(b'0');
    }
    out.extend_from_slice(digits);
}

/// A float with an exponent, also where the shortest form has none: `1e+00`.
pub fn put_exponent(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        return put_float(out, value);
    }
    let start = out.len();
    // Writing to a vector does not fail.
    let _ = write!(out, "{value:e}");
    two_digits(out, start);
}

/// A time in milliseconds as JSON number of seconds: `1435781451.781`, `-0.005`, `7`.
pub fn put_time(out: &mut Vec<u8>, time_ms: i64) {
    if time_ms < 0 {
        out.push(b'-');
    }
    let size = time_ms.unsigned_abs();
    put_number(out, size / 1000);
    let rest = size % 1000;
    if rest != 0 {
        let _ = write!(out, ".{rest:03}");
    }
}

/// Parses a number as Prometheus does: decimal, `Inf`, `NaN` in any case.
pub fn parse_float(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let named = body.starts_with(|c: char| c.is_ascii_alphabetic());
    if named && !["inf", "infinity", "nan"].iter().any(|name| body.eq_ignore_ascii_case(name)) {
        return None;
    }
    text.parse().ok()
}

/// A duration in milliseconds, from seconds as a number or from `1h30m`.
///
/// As a number it may be negative or zero.
///
/// # Errors
/// The text of the error.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let refuse = |why: &str| format!("cannot parse {text:?} to a valid duration{why}");
    let Some(seconds) = parse_float(text) else {
        return promql::parse_duration(text).map_err(|_| refuse(""));
    };
    let nanos = seconds * 1e9;
    if nanos.is_nan() || nanos.abs() >= i64::MAX as f64 {
        return Err(refuse(". It overflows int64"));
    }
    Ok((seconds * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f64) -> String {
        let mut out = b"x".to_vec();
        put_float(&mut out, value);
        String::from_utf8(out).unwrap()[1..].to_owned()
    }

    #[test]
    fn bounds_look_like_those_of_prometheus() {
        for (value, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (-1.0, "-1.0"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (100_000.0, "100000.0"),
            (123_456.5, "123456.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(promql::format_float_open_metrics(value), text);
        }
        let mut out = Vec::new();
        [1.0, 0.0, 1234.5, -0.25, f64::NEG_INFINITY].iter().for_each(|value| {
            put_exponent(&mut out, *value);
            out.push(b' ');
        });
        assert_eq!(String::from_utf8(out).unwrap(), "1e+00 0e+00 1.2345e+03 -2.5e-01 -Inf ");
    }

    #[test]
    fn floats_look_like_those_of_go() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e6, "1000000"),
            (1e20, "100000000000000000000"),
            (123456789012345680.0, "123456789012345680"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-07"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn times_are_seconds() {
        for (time, text) in [
            (1_435_781_451_781, "1435781451.781"),
            (7_000, "7"),
            (1_500, "1.500"),
            (-5, "-0.005"),
            (0, "0"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            let mut out = Vec::new();
            put_time(&mut out, time);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn names_of_numbers() {
        assert_eq!(parse_float("+inf"), Some(f64::INFINITY));
        assert!(parse_float("nan").unwrap().is_nan());
        assert_eq!(parse_float("-1e3"), Some(-1000.0));
        assert_eq!(parse_float("infinite"), None);
        assert_eq!(parse_float("e5"), None);
        assert_eq!(parse_float(""), None);
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
        assert!(parse_duration("1e10").unwrap_err().ends_with("It overflows int64"));
    }
}
