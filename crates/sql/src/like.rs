//! LIKE and regular expressions. Both take time linear in the text for a pattern, whatever it says.
//!
//! LIKE remembers only the last `%`: what was matched before it need never be looked at again, since a `%` takes any text.
//! Regular expressions are the `regex` crate's: no backtracking, hence no back references.

use regex::{Regex, RegexBuilder};

use crate::error::{Result, SqlError, state};

/// Bytes that a compiled regular expression may take.
const REGEX_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// `%`
    Any,
    /// `_`
    One,
    Is(char),
}

/// A pattern of LIKE, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Like {
    items: Vec<Item>,
    fold: bool,
}

impl Like {
    /// `fold` ignores case.
    ///
    /// # Errors
    /// 22025: the escape character ends the pattern.
    pub(crate) fn new(pattern: &str, escape: Option<char>, fold: bool) -> Result<Self> {
        let lower = if fold { pattern.to_lowercase() } else { pattern.to_owned() };
        let mut items = Vec::new();
        let mut chars = lower.chars();
        while let Some(c) = chars.next() {
            items.push(match c {
                c if Some(c) == escape => Item::Is(chars.next().ok_or_else(|| {
                    SqlError::new(
                        state::INVALID_ESCAPE_SEQUENCE,
                        "LIKE pattern must not end with escape character",
                    )
                })?),
                '%' => Item::Any,
                '_' => Item::One,
                c => Item::Is(c),
            });
        }
        Ok(Self { items, fold })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        if self.fold { self.run(&text.to_lowercase()) } else { self.run(text) }
    }

    fn run(&self, text: &str) -> bool {
        let (mut at, mut rest) = (0, text.chars());
        // Where to go on after the last `%`: its place, and the text that it has not taken yet.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            match self.items.get(at) {
                Some(Item::Any) => {
                    at += 1;
                    retry = Some((at, rest.clone()));
                    continue;
                }
                Some(item) => {
                    if let Some(c) = rest.next() {
                        if *item == Item::One || *item == Item::Is(c) {
                            at += 1;
                            continue;
                        }
                    } else {
                        return false;
                    }
                }
                None if rest.as_str().is_empty() => return true,
                None => {}
            }
            // The last `%` takes one character more.
            let Some((place, taken)) = &mut retry else { return false };
            if taken.next().is_none() {
                return false;
            }
            (at, rest) = (*place, taken.clone());
        }
    }
}

/// A compiled regular expression, equal to others by its text.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(pub(crate) Regex, bool);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str() && self.1 == other.1
    }
}

/// Compiles a regular expression.
///
/// # Errors
/// 2201B: it is none, or takes more than a megabyte.
pub(crate) fn compile(pattern: &str, fold: bool) -> Result<Pattern> {
    let built = RegexBuilder::new(pattern).case_insensitive(fold).size_limit(REGEX_BYTES_MAX).build();
    built.map(|regex| Pattern(regex, fold)).map_err(|error| {
        let line = error.to_string();
        let what = line.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        SqlError::new(state::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "_b_", true),
            ("abc", "_b", false),
            ("", "%", true),
            ("", "_", false),
            ("aXbXc", "a%X%c", true),
            ("mississippi", "%iss%ip%", true),
            ("mississippi", "%iss%ipx", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("äöü", "ä_ü", true),
            ("abc", "", false),
        ] {
            assert_eq!(
                Like::new(pattern, Some('\\'), false).unwrap().matches(text),
                expected,
                "{text} {pattern}"
            );
        }
        assert!(Like::new("A%", Some('\\'), true).unwrap().matches("abc"));
        assert!(Like::new("a\\", Some('\\'), false).is_err());
        let hard = Like::new(&"%a".repeat(30), Some('\\'), false).unwrap();
        assert!(!hard.matches(&("a".repeat(29) + &"b".repeat(10_000))));
    }
}
