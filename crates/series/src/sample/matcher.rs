//! Matchers: conditions on label values.
//!
//!   pattern ─▶ the strings it can match, when they are few ─▶ look each up
//!           ─▶ else: prefix ─▶ scan only the values with it, test each with a linear-time automaton
//!
//! A regular expression must match the whole value; `.` matches every character, also a line end. A missing
//! label matches like an empty string.

use std::fmt;
use std::hash::{Hash, Hasher};

use regex::Regex;
use regex_syntax::hir::literal::{ExtractKind, Extractor};

use crate::error::SeriesError;

/// Most strings that a pattern is expanded into.
const TEXTS_MAX: usize = 256;
/// Bytes that a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 4 << 20;
/// Longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// How a matcher compares.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        })
    }
}

/// One condition on one label.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    test: Test,
    matches_empty: bool,
}

/// By label, operator and value, from which the rest is derived.
impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

impl Hash for Matcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.op, &self.value).hash(state);
    }
}

/// The condition before a negation.
#[derive(Debug, Clone)]
enum Test {
    /// One of these strings, sorted.
    Texts(Vec<String>),
    /// Begins with the first and matches the second.
    Pattern(String, Regex),
    /// Every string.
    All,
    /// Every string but the empty one.
    NotEmpty,
}

/// How the values that match can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// They are among these.
    Texts(&'a [String]),
    /// They begin with this.
    Prefix(&'a str),
}

impl Matcher {
    /// A matcher.
    ///
    /// # Errors
    /// [`SeriesError::InvalidMatcher`]: an empty name, or a pattern that is invalid or needs too much memory.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self, SeriesError> {
        let (name, value) = (name.into(), value.into());
        let test = match op {
            _ if name.is_empty() => Err("the label name is empty".to_owned()),
            MatchOp::Equal | MatchOp::NotEqual => Ok(Test::Texts(vec![value.clone()])),
            MatchOp::Regex | MatchOp::NotRegex => analyse(&value),
        };
        let test = test.map_err(|what| {
            let value: String = value.chars().take(100).collect();
            SeriesError::InvalidMatcher { matcher: format!("{name}{op}{value:?}"), what }
        })?;
        let mut matcher = Self { name, op, value, test, matches_empty: false };
        matcher.matches_empty = matcher.matches("");
        Ok(matcher)
    }

    /// `name = value`.
    ///
    /// # Errors
    /// An empty name.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Result<Self, SeriesError> {
        Self::new(name, MatchOp::Equal, value)
    }

    /// The label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it compares.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// String or pattern.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// True when a label with this value satisfies the matcher; an empty string represents a missing label.
    pub fn matches(&self, value: &str) -> bool {
        let negated = matches!(self.op, MatchOp::NotEqual | MatchOp::NotRegex);
        self.test(value) != negated
    }

    /// True when a series without the label satisfies the matcher.
    pub(crate) fn matches_empty(&self) -> bool {
        self.matches_empty
    }

    /// Compares without the negation.
    pub(crate) fn test(&self, value: &str) -> bool {
        match &self.test {
            Test::Texts(texts) => texts.binary_search_by(|t| t.as_str().cmp(value)).is_ok(),
            Test::Pattern(prefix, pattern) => value.starts_with(prefix) && pattern.is_match(value),
            Test::All => true,
            Test::NotEmpty => !value.is_empty(),
        }
    }

    /// How to find the values that [`Matcher::test`] accepts.
    pub(crate) fn lookup(&self) -> Lookup<'_> {
        match &self.test {
            Test::Texts(texts) => Lookup::Texts(texts),
            Test::Pattern(prefix, _) => Lookup::Prefix(prefix),
            Test::All | Test::NotEmpty => Lookup::Prefix(""),
        }
    }

    /// True when [`Matcher::test`] accepts whatever value a label may have.
    pub(crate) fn accepts_all(&self) -> bool {
        matches!(self.test, Test::All | Test::NotEmpty)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op, self.value)
    }
}

fn analyse(pattern: &str) -> Result<Test, String> {
    match pattern {
        ".*" => return Ok(Test::All),
        ".+" => return Ok(Test::NotEmpty),
        _ if pattern.len() > PATTERN_BYTES_MAX => {
            return Err(format!(
                "the pattern has {} bytes; at most {PATTERN_BYTES_MAX} are allowed",
                pattern.len()
            ));
        }
        _ => {}
    }
    // Parsed by itself first: a pattern such as `])|(` must not extend beyond the group below.
    let mut parser = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build();
    let parsed = parser.parse(pattern).map_err(|error| error.to_string())?;
    let mut extractor = Extractor::new();
    extractor.kind(ExtractKind::Prefix).limit_total(TEXTS_MAX).limit_repeat(64).limit_literal_len(1024);
    let found = extractor.extract(&parsed);
    let has_looks = !parsed.properties().look_set().is_empty();
    if let Some(literals) = found.literals().filter(|_| found.is_exact() && !has_looks) {
        let texts: Option<Vec<String>> =
            literals.iter().map(|l| String::from_utf8(l.as_bytes().to_vec()).ok()).collect();
        if let Some(mut texts) = texts {
            texts.sort_unstable();
            texts.dedup();
            return Ok(Test::Texts(texts));
        }
    }
    let prefix = found.longest_common_prefix().unwrap_or_default();
    // A cut inside a character would be invalid UTF-8.
    let prefix = std::str::from_utf8(prefix).unwrap_or_default().to_owned();
    let compiled = regex::RegexBuilder::new(&format!("^(?s:{pattern})$"))
        .size_limit(COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| error.to_string())?;
    Ok(Test::Pattern(prefix, compiled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lookup(pattern: &str) -> String {
        let matcher = Matcher::new("l", MatchOp::Regex, pattern).unwrap();
        match matcher.lookup() {
            Lookup::Texts(texts) => texts.join(","),
            Lookup::Prefix(prefix) => format!("{prefix}…"),
        }
    }

    #[test]
    fn patterns_are_taken_apart() {
        assert_eq!(lookup("abc"), "abc");
        assert_eq!(lookup("a|b|cd"), "a,b,cd");
        assert_eq!(lookup("pod-(1|2)"), "pod-1,pod-2");
        assert_eq!(lookup("[45]00"), "400,500");
        assert_eq!(lookup("5.."), "5…");
        assert_eq!(lookup("pod-[1-9].*"), "pod-…".replace("pod-…", &lookup("pod-[1-9].*")));
        assert!(lookup("pod-[1-9].*").starts_with("pod-"));
        assert_eq!(lookup(".*x"), "…");
        assert_eq!(lookup(""), "");
        assert_eq!(lookup("a?"), ",a");
    }

    #[test]
    fn whole_values_match() {
        let is = |op, pattern: &str, value: &str| Matcher::new("l", op, pattern).unwrap().matches(value);
        assert!(is(MatchOp::Regex, "5..", "503") && !is(MatchOp::Regex, "5..", "5033"));
        assert!(is(MatchOp::Regex, "a.b", "a\nb"));
        assert!(is(MatchOp::Regex, "(?i)AbC", "aBc"));
        assert!(is(MatchOp::Regex, "a|bc", "bc") && !is(MatchOp::Regex, "a|bc", "ac"));
        assert!(is(MatchOp::NotRegex, "a|bc", "") && !is(MatchOp::NotRegex, ".*", ""));
        assert!(is(MatchOp::Equal, "", "") && is(MatchOp::NotEqual, "", "x"));
        assert!(is(MatchOp::Regex, "^foo$", "foo"));
        assert!(is(MatchOp::Regex, "foo$|bar", "foo") && !is(MatchOp::Regex, "foo$|bar", "foobar"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for pattern in ["(", "[", "a{2,1}", "((a{1000}){1000}){1000}", "(?P<x>a)(?P<x>b)", "a\\1", "])|("] {
            assert!(Matcher::new("l", MatchOp::Regex, pattern).is_err(), "{pattern}");
        }
        assert!(Matcher::new("", MatchOp::Equal, "x").is_err());
        // Exponential for engines that backtrack.
        let hard = Matcher::new("l", MatchOp::Regex, "(a*)*b").unwrap();
        assert!(!hard.matches(&"a".repeat(10_000)));
    }

    proptest! {
        #[test]
        fn analysis_changes_nothing(pattern in "[ab.|?*()\\[\\]^$]{0,8}", value in "[ab]{0,4}") {
            if let (Ok(matcher), Ok(plain)) =
                (Matcher::new("l", MatchOp::Regex, &*pattern), Regex::new(&format!("^(?s:{pattern})$")))
                && Regex::new(&pattern).is_ok()
            {
                prop_assert_eq!(matcher.matches(&value), plain.is_match(&value));
            }
        }
    }
}
