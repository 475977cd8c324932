//! One value of a row, and its text in each output format.
//!
//! JSON preserves every byte: a UTF-8 payload is a string, any other is base64, with the encoding in a second
//! cell.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Characters of one table cell.
const TABLE_CELL_CHARS: usize = 300;

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    None,
    Text(String),
    Number(u64),
    Decimal(f64),
    Bool(bool),
    List(Vec<String>),
    Pairs(Vec<(String, String)>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl Cell {
    /// Appends the value as JSON.
    pub(super) fn json(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("null"),
            Self::Text(text) => quote(text, out),
            // Writing into a string cannot fail.
            Self::Number(number) => drop(write!(out, "{number}")),
            Self::Decimal(number) => drop(write!(out, "{number}")),
            Self::Bool(value) => drop(write!(out, "{value}")),
            Self::List(items) => {
                out.push('[');
                for (ordinal, item) in items.iter().enumerate() {
                    comma(ordinal, out);
                    quote(item, out);
                }
                out.push(']');
            }
            Self::Pairs(pairs) => {
                out.push('{');
                for (ordinal, (key, value)) in pairs.iter().enumerate() {
                    comma(ordinal, out);
                    quote(key, out);
                    out.push(':');
                    quote(value, out);
                }
                out.push('}');
            }
        }
    }

    /// The value as a field of CSV, quoted where RFC 4180 requires it.
    pub(super) fn csv(&self) -> String {
        let mut text = match self {
            Self::None => String::new(),
            Self::Text(text) => text.clone(),
            other => {
                let mut json = String::new();
                other.json(&mut json);
                json
            }
        };
        if text.contains([',', '"', '\r', '\n']) {
            text = format!("\"{}\"", text.replace('"', "\"\""));
        }
        text
    }

    /// The value for a terminal: one line, truncated, control characters escaped.
    pub(crate) fn eyes(&self) -> String {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => thousands(*number),
            Self::List(items) => items.join(" "),
            Self::Pairs(pairs) => pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
            Self::None => String::new(),
            other => other.csv(),
        };
        let text = printable(&text);
        match text.char_indices().nth(TABLE_CELL_CHARS) {
            Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
            None => text,
        }
    }
}

pub(super) fn comma(ordinal: usize, out: &mut String) {
    if ordinal > 0 {
        out.push(',');
    }
}

pub(super) fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
}

/// The text with its control characters escaped, so that a terminal does not interpret them.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// 1234567 as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (ordinal, digit) in digits.chars().enumerate() {
        if ordinal > 0 && (digits.len() - ordinal).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Microseconds since 1970 as RFC 3339.
pub(crate) fn time(micros: i64) -> Cell {
    jiff::Timestamp::from_microsecond(micros).map_or(Cell::None, |t| Cell::Text(t.to_string()))
}

/// A payload, and the name of its encoding if it is not plain text.
pub(crate) fn payload(data: &[u8]) -> (Cell, Cell) {
    match std::str::from_utf8(data) {
        Ok(text) => (text.into(), Cell::None),
        Err(_) => (Cell::Text(STANDARD.encode(data)), "base64".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_of_any_bytes_is_lossless() {
        assert_eq!(payload(b"{}"), ("{}".into(), Cell::None));
        assert_eq!(payload(&[0xff, 0]), ("/wA=".into(), "base64".into()));
    }

    #[test]
    fn thousands_separates_groups_of_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
