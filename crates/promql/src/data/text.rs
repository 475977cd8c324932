//! PromQL's notation: quoted strings, numbers, durations. Shared by lexer, printer, errors and label values,
//! because clients compare these texts.

use std::fmt::Write as _;

use ropewalk_labels::text::{float_g, quote};

/// Decodes a quoted string: `"` and `'` with escapes, backquotes raw. The result need not be UTF-8 (`\xff`).
///
/// # Errors
/// A word for the mistake.
pub(crate) fn unquote(quoted: &str) -> Result<Vec<u8>, &'static str> {
    const SYNTAX: &str = "invalid syntax";
    let quote = quoted.chars().next().ok_or(SYNTAX)?;
    let body = quoted.get(1..quoted.len().saturating_sub(1)).ok_or(SYNTAX)?;
    if !quoted.ends_with(quote) || quoted.len() < 2 {
        return Err(SYNTAX);
    }
    match quote {
        '`' => return if body.contains('`') { Err(SYNTAX) } else { Ok(body.as_bytes().to_vec()) },
        '"' | '\'' => {}
        _ => return Err(SYNTAX),
    }
    let mut out = Vec::with_capacity(body.len());
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c == '\n' || c == quote {
            return Err(SYNTAX);
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = chars.next().ok_or(SYNTAX)?;
        match escape {
            'a' => out.push(0x07),
            'b' => out.push(0x08),
            'f' => out.push(0x0c),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(0x0b),
            '\\' => out.push(b'\\'),
            '0'..='7' => {
                let mut value = escape.to_digit(8).ok_or(SYNTAX)?;
                for _ in 0..2 {
                    value = value * 8 + chars.next().and_then(|c| c.to_digit(8)).ok_or(SYNTAX)?;
                }
                out.push(u8::try_from(value).map_err(|_| SYNTAX)?);
            }
            'x' | 'u' | 'U' => {
                let digits = match escape {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let mut value = 0u32;
                for _ in 0..digits {
                    let digit = chars.next().and_then(|c| c.to_digit(16)).ok_or(SYNTAX)?;
                    value = value.checked_mul(16).ok_or(SYNTAX)? + digit;
                }
                if escape == 'x' {
                    out.push(u8::try_from(value).map_err(|_| SYNTAX)?);
                } else {
                    let c = char::from_u32(value).ok_or(SYNTAX)?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            _ if escape == quote => out.extend_from_slice(quote.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => return Err(SYNTAX),
        }
    }
    Ok(out)
}

/// A sample value as the API writes it: the shortest digits that read back the same, never an exponent;
/// `NaN`, `+Inf`, `-Inf`.
pub fn float(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { float_g(value) }
}

/// A quantile as a label value: in OpenMetrics' float format, always with a point or an exponent.
pub fn float_open_metrics(value: f64) -> String {
    let text = float_g(value);
    if text.contains(['e', '.']) || !value.is_finite() { text } else { format!("{text}.0") }
}

const UNITS: [(&str, i64, bool); 7] = [
    ("y", 365 * 24 * 3_600_000, true),
    ("w", 7 * 24 * 3_600_000, true),
    ("d", 24 * 3_600_000, false),
    ("h", 3_600_000, false),
    ("m", 60_000, false),
    ("s", 1000, false),
    ("ms", 1, false),
];

/// A duration of milliseconds, as `1h30m`. Years and weeks only without a remainder.
pub fn duration(ms: i64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut out = String::new();
    if ms < 0 {
        out.push('-');
    }
    let mut left = ms.unsigned_abs();
    for (unit, size, exact) in UNITS {
        let size = size.unsigned_abs();
        if left >= size && (!exact || left.is_multiple_of(size)) {
            let _ = write!(out, "{}{unit}", left / size);
            left %= size;
        }
    }
    out
}

/// Milliseconds of a duration such as `1h30m`: units from large to small, each at most once.
///
/// # Errors
/// The text of the error.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("not a valid duration string: {}", quote(text));
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let (mut rest, mut total, mut next_unit) = (text, 0i64, 0);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at_checked(digits).ok_or_else(invalid)?;
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(letters).ok_or_else(invalid)?;
        if !number.is_empty() && !unit.is_empty() && !UNITS.iter().any(|(name, ..)| *name == unit) {
            return Err(format!("unknown unit {} in duration {}", quote(unit), quote(text)));
        }
        let place = UNITS
            .iter()
            .position(|(name, ..)| *name == unit)
            .filter(|p| *p >= next_unit)
            .ok_or_else(invalid)?;
        if number.is_empty() {
            return Err(invalid());
        }
        let size = UNITS.get(place).map_or(1, |(_, size, _)| *size);
        total = number
            .parse::<i64>()
            .ok()
            .and_then(|n| n.checked_mul(size))
            .and_then(|n| total.checked_add(n))
            // A duration counts nanoseconds in 64 bits.
            .filter(|ms| *ms <= i64::MAX / 1_000_000)
            .ok_or("duration out of range")?;
        next_unit = place + 1;
        rest = tail;
    }
    Ok(total)
}

/// Parses a number of PromQL: decimal, hexadecimal, octal, with underscores between digits, `Inf`, `NaN`.
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let (negative, digits) = match lower.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, lower.strip_prefix('+').unwrap_or(&lower)),
    };
    let value = match digits {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ => parse_digits(digits)?,
    };
    Some(if negative { -value } else { value })
}

/// Parses a number with a multiplier such as `K`, `Mi` or `GB`.
pub(crate) fn parse_multiple(text: &str) -> Option<f64> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let (text, base) = text.strip_suffix('i').map_or((text, 1000.0_f64), |text| (text, 1024.0));
    let power = match text.chars().last()? {
        'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        _ => return None,
    };
    let number = parse_number(text.get(..text.len() - 1)?)?;
    Some(number * base.powi(power))
}

fn parse_digits(digits: &str) -> Option<f64> {
    let radix = |prefix: &str, radix: u32| {
        let body = digits.strip_prefix(prefix)?;
        i64::from_str_radix(&underscores_removed(body, true)?, radix).ok().map(|n| n as f64)
    };
    if digits.starts_with("0x") {
        return radix("0x", 16);
    }
    if digits.starts_with("0b") {
        return radix("0b", 2);
    }
    if digits.starts_with("0o") {
        return radix("0o", 8);
    }
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        // A leading zero means octal; a number that is not octal is read as decimal.
        let body = underscores_removed(digits, true)?;
        if let Ok(n) = i64::from_str_radix(&body, 8) {
            return Some(n as f64);
        }
    }
    if digits.contains('_') && !digits.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return None;
    }
    let body = underscores_removed(digits, false)?;
    body.bytes().next().filter(|b| b.is_ascii_digit() || *b == b'.')?;
    body.parse().ok()
}

/// Underscores only between digits (or, `after_prefix`, right after `0x`).
fn underscores_removed(digits: &str, after_prefix: bool) -> Option<String> {
    let bad = digits.ends_with('_') || digits.contains("__") || (!after_prefix && digits.starts_with('_'));
    (!bad).then(|| digits.replace('_', ""))
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
            assert_eq!(duration(ms), text);
        }
    }
}
