//! Regular expressions in linear time.
//!
//! MongoDB runs PCRE, which can take exponential time; this is the crate `regex`, which cannot. What it has no linear way
//! for, look-around and back-references, is refused with the code that MongoDB has for a broken pattern.
//!
//! Source: Cox, "Regular Expression Matching Can Be Simple And Fast", 2007.

use std::cell::RefCell;

use super::error::{LangError, refuse};

/// MongoDB's limit for the length of a pattern.
const PATTERN_BYTES_MAX: usize = 32_764;
/// A compiled program is no larger; a bounded repetition of bounded repetitions would be.
const PROGRAM_BYTES_MAX: usize = 4 << 20;

/// A compiled pattern and the text it came from.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) pattern: String,
    pub(crate) options: String,
    pub(crate) regex: regex::Regex,
}

impl Pattern {
    /// Compiles. Options: `i`, `m`, `s`, `x`, and `u`, which is always on.
    pub(crate) fn new(pattern: &str, options: &str) -> Result<Self, LangError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            refuse!(
                51091,
                "a regular expression of {} bytes; the limit is {PATTERN_BYTES_MAX}",
                pattern.len()
            );
        }
        if pattern.contains('\0') {
            refuse!(BadValue, "regular expression cannot contain an embedded null byte");
        }
        let mut builder = regex::RegexBuilder::new(pattern);
        builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(PROGRAM_BYTES_MAX);
        for option in options.chars() {
            match option {
                'i' => builder.case_insensitive(true),
                'm' => builder.multi_line(true),
                's' => builder.dot_matches_new_line(true),
                'x' => builder.ignore_whitespace(true),
                'u' => builder.unicode(true),
                other => refuse!(51108, "invalid flag in regex options: {other}"),
            };
        }
        match builder.build() {
            Ok(regex) => Ok(Self { pattern: pattern.to_owned(), options: options.to_owned(), regex }),
            Err(error) => {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or("too large").trim().trim_start_matches("error: ");
                refuse!(51091, "Regular expression is invalid: {why}")
            }
        }
    }

    /// Compiles, or takes the pattern that this thread compiled last: an expression asks for the same one document after document.
    pub(crate) fn again(pattern: &str, options: &str) -> Result<Self, LangError> {
        thread_local! {
            static LAST: RefCell<Option<Pattern>> = const { RefCell::new(None) };
        }
        LAST.with_borrow_mut(|last| match last {
            Some(own) if own.pattern == pattern && own.options == options => Ok(own.clone()),
            _ => {
                let new = Self::new(pattern, options)?;
                *last = Some(new.clone());
                Ok(new)
            }
        })
    }

    /// Text that every match begins with: `abc` of `^abc.*x`.
    pub(crate) fn prefix(&self) -> Option<String> {
        // With an alternative anywhere the beginning is one of several; options change what a character means.
        if !self.options.is_empty() || self.pattern.contains('|') {
            return None;
        }
        let rest = self.pattern.strip_prefix('^').or_else(|| self.pattern.strip_prefix("\\A"))?;
        let mut prefix = String::new();
        let mut characters = rest.chars().peekable();
        while let Some(character) = characters.next() {
            let literal = match character {
                '\\' => match characters.next() {
                    Some(escaped) if escaped.is_ascii_punctuation() => escaped,
                    _ => break,
                },
                '.' | '[' | ']' | '(' | ')' | '{' | '}' | '*' | '+' | '?' | '^' | '$' => break,
                plain => plain,
            };
            // A character with a count may be there no times.
            if let Some('*' | '+' | '?' | '{') = characters.peek() {
                break;
            }
            prefix.push(literal);
        }
        if prefix.is_empty() { None } else { Some(prefix) }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.pattern, &self.options) == (&other.pattern, &other.options)
    }
}
