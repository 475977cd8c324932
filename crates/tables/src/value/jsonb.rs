//! JSON as values: the form of `jsonb`. Members are ordered by length, then bytes, each name once; numbers
//! are exact decimals.
//!
//! The text of a tree is canonical: equal trees have equal texts, except for trailing zeros of numbers,
//! which are preserved. Source of the form: PostgreSQL's documentation, section "JSON Types".

use std::fmt::{self, Write as _};

use crate::value::json::json_error;

/// Most digits that an exponent may expand to.
const DIGITS_MAX: usize = 2_000;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Jsonb {
    /// null
    Null,
    /// true, false
    Bool(bool),
    /// Digits, optionally with a point, without an exponent.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// Elements.
    Array(Vec<Jsonb>),
    /// Members in order of the length and bytes of their names, each name once.
    Object(Vec<(String, Jsonb)>),
}

impl Jsonb {
    /// Parses a text.
    ///
    /// # Errors
    /// The byte position of invalid JSON, or of an unsupported value: a character 0, half of a surrogate
    /// pair, a number of more than 2000 digits.
    pub fn parse(text: &str) -> Result<Self, usize> {
        match json_error(text) {
            Some(offset) => Err(offset),
            None => {
                let mut walk = Walk { text, place: 0 };
                walk.value().ok_or(walk.place)
            }
        }
    }

    /// An object of members in any order; of equal names the last wins.
    pub fn object(members: Vec<(String, Jsonb)>) -> Self {
        let mut members = members;
        // The sort is stable: of equal names the last given comes last.
        members.sort_by(|(a, _), (b, _)| order(a, b));
        members.reverse();
        members.dedup_by(|(a, _), (b, _)| a == b);
        members.reverse();
        Self::Object(members)
    }

    /// The member of an object.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let place = members.binary_search_by(|(known, _)| order(known, name)).ok()?;
        members.get(place).map(|(_, value)| value)
    }
}

fn order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

impl fmt::Display for Jsonb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => truth.fmt(f),
            Self::Number(digits) => f.write_str(digits),
            Self::String(text) => quote(text, f),
            Self::Array(items) => {
                f.write_char('[')?;
                for (place, item) in items.iter().enumerate() {
                    f.write_str(if place > 0 { ", " } else { "" })?;
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Self::Object(members) => {
                f.write_char('{')?;
                for (place, (name, value)) in members.iter().enumerate() {
                    f.write_str(if place > 0 { ", " } else { "" })?;
                    quote(name, f)?;
                    f.write_str(": ")?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

fn quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\u{8}' => f.write_str("\\b")?,
            '\u{c}' => f.write_str("\\f")?,
            c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// A scan of a valid JSON text, no deeper than [`crate::value::json::JSON_DEPTH_MAX`].
struct Walk<'t> {
    text: &'t str,
    place: usize,
}

impl<'t> Walk<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.place..).unwrap_or_default()
    }

    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.place += rest.len() - trimmed.len();
        trimmed.chars().next()
    }

    /// Consumes a mark if it is next.
    fn is(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(mark);
        self.place += if found { mark.len_utf8() } else { 0 };
        found
    }

    fn value(&mut self) -> Option<Jsonb> {
        let word = |walk: &mut Self, word: &str, value| {
            walk.place += word.len();
            Some(value)
        };
        match self.peek()? {
            'n' => word(self, "null", Jsonb::Null),
            't' => word(self, "true", Jsonb::Bool(true)),
            'f' => word(self, "false", Jsonb::Bool(false)),
            '"' => self.string().map(Jsonb::String),
            '[' => {
                self.is('[');
                let mut items = Vec::new();
                while !self.is(']') {
                    items.push(self.value()?);
                    self.is(',');
                }
                Some(Jsonb::Array(items))
            }
            '{' => {
                self.is('{');
                let mut members = Vec::new();
                while !self.is('}') {
                    self.peek();
                    let name = self.string()?;
                    self.is(':');
                    members.push((name, self.value()?));
                    self.is(',');
                }
                Some(Jsonb::object(members))
            }
            _ => {
                let rest = self.rest();
                let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
                let number = rest.get(..end.unwrap_or(rest.len()))?;
                let unfolded = unfolded(number)?;
                self.place += number.len();
                Some(Jsonb::Number(unfolded))
            }
        }
    }

    /// The string that begins here.
    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest().char_indices();
        chars.next();
        let mut out = String::new();
        let hex = |chars: &mut std::str::CharIndices<'_>| {
            (0..4).try_fold(0_u32, |sum, _| Some(sum * 16 + chars.next()?.1.to_digit(16)?))
        };
        loop {
            match chars.next()? {
                (at, '"') => {
                    self.place += at + 1;
                    return Some(out);
                }
                (_, '\\') => out.push(match chars.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'u' => match hex(&mut chars)? {
                        0 => return None,
                        high @ 0xd800..0xdc00 => {
                            if (chars.next()?.1, chars.next()?.1) != ('\\', 'u') {
                                return None;
                            }
                            let low = hex(&mut chars)?.checked_sub(0xdc00)?;
                            char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)?
                        }
                        unit => char::from_u32(unit)?,
                    },
                    same => same,
                }),
                (_, c) => out.push(c),
            }
        }
    }
}

/// Expands the exponent of a number.
fn unfolded(number: &str) -> Option<String> {
    let (digits, exponent) = match number.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (number, 0),
    };
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{part}");
    // Number of digits before the point.
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let length = i64::try_from(all.len()).ok()?;
    if point.unsigned_abs() as usize > DIGITS_MAX || all.len() > DIGITS_MAX {
        return None;
    }
    let (whole, part) = if point <= 0 {
        ("0".to_owned(), format!("{}{all}", "0".repeat(point.unsigned_abs() as usize)))
    } else if point >= length {
        (format!("{all}{}", "0".repeat((point - length) as usize)), String::new())
    } else {
        let (whole, part) = all.split_at_checked(point as usize)?;
        (whole.to_owned(), part.to_owned())
    };
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    // Zero has no sign.
    let is_zero = whole == "0" && part.bytes().all(|digit| digit == b'0');
    let sign = if is_zero { "" } else { sign };
    Some(if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jsonb_text_is_canonical() {
        for (text, form) in [
            (r#" {"bb":1, "a" : [1,2 , {}], "bb":2 } "#, r#"{"a": [1, 2, {}], "bb": 2}"#),
            (r#"{"aa":1,"b":2,"":3}"#, r#"{"": 3, "b": 2, "aa": 1}"#),
            (r#""\u0041\n\u00e9\ud83d\ude00\u0001\/""#, "\"A\\né😀\\u0001/\""),
            ("[]", "[]"),
            ("1e3", "1000"),
            ("-1.50", "-1.50"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("12.5E-3", "0.0125"),
            ("12.5e1", "125"),
            ("1.25e1", "12.5"),
            ("null", "null"),
        ] {
            let tree = Jsonb::parse(text).unwrap();
            assert_eq!(tree.to_string(), form);
            assert_eq!(Jsonb::parse(form).unwrap(), tree);
        }
        for bad in ["", "{", r#""\u0000""#, r#""\ud800""#, r#""\ud800\u0041""#, "1e999999", "[1,]"] {
            assert!(Jsonb::parse(bad).is_err(), "{bad}");
        }
        let tree = Jsonb::parse(r#"{"b": 1, "aa": 2}"#).unwrap();
        assert_eq!(tree.member("aa"), Some(&Jsonb::Number("2".into())));
        assert_eq!(tree.member("a"), None);
    }
}
