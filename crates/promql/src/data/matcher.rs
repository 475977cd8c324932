//! One matcher on one label: equal, not equal, matches, does not match. Regular expressions are anchored at
//! both ends and run in linear time, whatever the pattern.
//!
//! Compiled expressions take more memory than the pattern suggests: `\w{60}` is 4 MiB. So each is compiled
//! within the smallest limit that it fits ([`SIZES`]) and counted with that limit, and the sum of a query is
//! limited ([`PATTERNS_BYTES_MAX`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use regex::{Captures, Regex, RegexBuilder};

use crate::budget::{BudgetError, Stop};
use crate::data::text;

/// Bytes that a compiled regular expression may take: counted is the first limit that it fits.
const SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Bytes of the states that a search builds while it runs, minimum and maximum, for each direction.
const STATES_BYTES: (usize, usize) = (128 << 10, 2 << 20);
/// Longest pattern, as in the store.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Limit of Unicode classes in one pattern: each takes thousands of bytes when it is parsed, before any size
/// limit applies.
const CLASSES_MAX: usize = 500;
/// Limit of bytes of all compiled regular expressions of a query, including what a search in them needs.
pub const PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Comparison operator of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

impl fmt::Display for MatchOp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        })
    }
}

/// A condition on a label.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    /// Shared: cloning a [`Regex`] would create separate caches.
    regex: Option<Arc<Compiled>>,
}

/// A regular expression that does not compile, or is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct RegexError(String);

/// Reasons to reject a pattern.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error(transparent)]
    Invalid(#[from] RegexError),
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// A regular expression and the bytes that are counted for it.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) regex: Regex,
    bytes: usize,
}

/// The part of a text that a pattern has to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The whole text.
    Whole,
    /// Any part of it.
    Any,
}

/// The regular expressions of one query: equal ones are compiled once, and their bytes are added up.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: HashMap<(Part, String), Arc<Compiled>>,
    bytes: usize,
}

impl Patterns {
    /// The compiled pattern. `stop` is called before each new compilation.
    pub(crate) fn compile(
        &mut self,
        part: Part,
        pattern: &str,
        stop: &dyn Fn() -> Option<Stop>,
    ) -> Result<Arc<Compiled>, PatternError> {
        let key = (part, pattern.to_owned());
        if let Some(known) = self.known.get(&key) {
            return Ok(Arc::clone(known));
        }
        if let Some(stop) = stop() {
            return Err(BudgetError::from(stop).into());
        }
        let compiled = Arc::new(Compiled::new(part, pattern)?);
        self.bytes = self.bytes.saturating_add(compiled.bytes);
        within_sum(self.bytes)?;
        self.known.insert(key, Arc::clone(&compiled));
        Ok(compiled)
    }

    /// Bytes counted for all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Rejects regular expressions that are too large together.
pub(crate) fn within_sum(bytes: usize) -> Result<(), BudgetError> {
    if bytes > PATTERNS_BYTES_MAX {
        return Err(BudgetError::Patterns { max: PATTERNS_BYTES_MAX as u64 });
    }
    Ok(())
}

impl Compiled {
    fn new(part: Part, pattern: &str) -> Result<Self, RegexError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            let length = pattern.len();
            return Err(RegexError(format!(
                "pattern of {length} bytes exceeds the limit of {PATTERN_BYTES_MAX}"
            )));
        }
        let is_class = |pair: &[u8]| matches!(pair, b"\\w" | b"\\W" | b"\\p" | b"\\P");
        let classes = pattern.as_bytes().windows(2).filter(|pair| is_class(pair)).count();
        if classes > CLASSES_MAX {
            return Err(RegexError(format!("{classes} classes exceed the limit of {CLASSES_MAX}")));
        }
        let text = match part {
            Part::Any => pattern.to_owned(),
            Part::Whole => {
                // Compile the pattern alone first: `a)(b` must not become valid by the parentheses around it.
                match build(pattern, SIZES.first().copied().unwrap_or_default()) {
                    Ok(_) | Err(regex::Error::CompiledTooBig(_)) => {}
                    Err(error) => return Err(explain(&error)),
                }
                format!("^(?:{pattern})$")
            }
        };
        let mut last = RegexError("expression too large".to_owned());
        // A program is more than eight times as large as the pattern: skip smaller limits.
        for size in SIZES.into_iter().filter(|size| *size > text.len().saturating_mul(8)) {
            match build(&text, size) {
                Ok(regex) => {
                    // Captures need two slots for each state of the program, for the current and the next
                    // position.
                    let bytes = size.saturating_mul(2 + regex.captures_len()) + 2 * states_bytes(size);
                    return Ok(Self { regex, bytes });
                }
                Err(error @ regex::Error::CompiledTooBig(_)) => last = explain(&error),
                Err(error) => return Err(explain(&error)),
            }
        }
        Err(last)
    }
}

fn states_bytes(size: usize) -> usize {
    let (least, most) = STATES_BYTES;
    size.saturating_mul(4).clamp(least, most)
}

/// Compiles within a limit; `.` matches a newline, too.
fn build(pattern: &str, size: usize) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(size).dfa_size_limit(states_bytes(size)).dot_matches_new_line(true).build()
}

fn explain(error: &regex::Error) -> RegexError {
    RegexError(match error {
        regex::Error::CompiledTooBig(_) => "expression too large".to_owned(),
        other => other.to_string().lines().last().unwrap_or("invalid").trim().to_owned(),
    })
}

/// Appends `template` with `$1` and `${name}` expanded to `out`; false when that passes `max` bytes.
///
/// Expands one reference at a time, so that a short template cannot repeat a long text a thousand times
/// before the length is checked.
pub(crate) fn expand(captures: &Captures<'_>, mut template: &str, out: &mut String, max: usize) -> bool {
    while !template.is_empty() {
        // From after a reference or `$$` to the next one; within braces a `$` is part of the name.
        let skip = match template.as_bytes() {
            [b'$', b'$', ..] => 2,
            [b'$', b'{', ..] => template.find('}').unwrap_or(1),
            [b'$', ..] => 1,
            _ => 0,
        };
        let next =
            template.get(skip..).and_then(|rest| rest.find('$')).map_or(template.len(), |at| skip + at);
        let (head, rest) = template.split_at(next);
        captures.expand(head, out);
        if out.len() > max {
            return false;
        }
        template = rest;
    }
    true
}

impl Matcher {
    /// A condition.
    ///
    /// # Errors
    /// A regular expression that does not compile.
    pub fn new(op: MatchOp, name: impl Into<String>, value: impl Into<String>) -> Result<Self, RegexError> {
        let (name, value) = (name.into(), value.into());
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(Arc::new(Compiled::new(Part::Whole, &value)?)),
        };
        Ok(Self { name, op, value, regex })
    }

    /// As [`Matcher::new`], with the regular expression compiled in the patterns of a query.
    pub(crate) fn among(
        patterns: &mut Patterns,
        (name, op, value): (String, MatchOp, String),
        stop: &dyn Fn() -> Option<Stop>,
    ) -> Result<Self, PatternError> {
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(patterns.compile(Part::Whole, &value, stop)?),
        };
        Ok(Self { name, op, value, regex })
    }

    /// Bytes counted for the compiled regular expression; 0 without one.
    pub fn pattern_bytes(&self) -> usize {
        self.regex.as_ref().map_or(0, |compiled| compiled.bytes)
    }

    /// `name = value`.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), regex: None }
    }

    /// The label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The comparison.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// The value or the pattern, as written in the query.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// True when a label with this value matches; a series without the label has the empty value.
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.regex) {
            (MatchOp::Equal, _) => self.value == value,
            (MatchOp::NotEqual, _) => self.value != value,
            (MatchOp::Regex, Some(compiled)) => compiled.regex.is_match(value),
            (MatchOp::NotRegex, Some(compiled)) => !compiled.regex.is_match(value),
            (_, None) => false,
        }
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl fmt::Display for Matcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if text::is_label_name(&self.name) {
            out.write_str(&self.name)?;
        } else {
            out.write_str(&text::quote(&self.name))?;
        }
        write!(out, "{}{}", self.op, text::quote(&self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn expand_equals_library(template in "[a$1{}x ]{0,12}", text in "[ab]{0,4}") {
            let regex = Regex::new("(?P<a>a*)(b*)").unwrap();
            let captures = regex.captures(&text).unwrap();
            let (mut wanted, mut given) = (String::new(), String::new());
            captures.expand(&template, &mut wanted);
            prop_assert!(expand(&captures, &template, &mut given, 1000));
            prop_assert_eq!(given, wanted);
        }
    }

    #[test]
    fn expand_stops_near_the_limit() {
        let long = "a".repeat(1000);
        let captures = Regex::new("(.*)").unwrap();
        let captures = captures.captures(&long).unwrap();
        let mut out = String::new();
        assert!(!expand(&captures, &"$1".repeat(1000), &mut out, 2500));
        assert!(out.len() <= 4000);
    }

    #[test]
    fn equal_patterns_are_compiled_once() {
        let mut patterns = Patterns::default();
        let one = patterns.compile(Part::Whole, "a.*", &|| None).unwrap();
        let bytes = patterns.bytes();
        let other = patterns.compile(Part::Whole, "a.*", &|| None).unwrap();
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(patterns.bytes(), bytes);
        let stopped = patterns.compile(Part::Whole, "b.*", &|| Some(Stop::TimedOut));
        assert!(matches!(stopped, Err(PatternError::Budget(BudgetError::TimedOut))));
    }
}
