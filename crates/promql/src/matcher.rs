//! One condition on one label: equal, not equal, matches, does not match. Regular expressions are anchored at both ends and run
//! in linear time, whatever their author wrote.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::text;

/// Bytes a compiled regular expression may take.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// How a label is compared.
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
    regex: Option<Regex>,
}

/// A regular expression that does not compile, or is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct RegexError(String);

/// Compiles `pattern` so that it must match the whole text; `.` matches a newline, too.
pub(crate) fn whole(pattern: &str) -> Result<Regex, RegexError> {
    // The pattern alone first: `a)(b` must not become valid by the parentheses around it.
    anywhere(pattern).and_then(|_| anywhere(&format!("^(?:{pattern})$")))
}

/// Compiles `pattern` so that it may match any part of the text.
pub(crate) fn anywhere(pattern: &str) -> Result<Regex, RegexError> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(REGEX_BYTES_MAX).dot_matches_new_line(true).build().map_err(|error| {
        RegexError(match error {
            regex::Error::CompiledTooBig(_) => "expression too large".to_owned(),
            other => other.to_string().lines().last().unwrap_or("invalid").trim().to_owned(),
        })
    })
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
            MatchOp::Regex | MatchOp::NotRegex => Some(whole(&value)?),
        };
        Ok(Self { name, op, value, regex })
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

    /// True when a label of this value is wanted; a series without the label has the empty value.
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.regex) {
            (MatchOp::Equal, _) => self.value == value,
            (MatchOp::NotEqual, _) => self.value != value,
            (MatchOp::Regex, Some(regex)) => regex.is_match(value),
            (MatchOp::NotRegex, Some(regex)) => !regex.is_match(value),
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
