//! Matchers: conditions on label values.
//!
//!   pattern ─▶ the strings it can match, when they are few ─▶ look each up
//!           ─▶ else: prefix ─▶ scan only the values with it, test each with a linear-time automaton
//!
//! A regular expression must match the whole value; `.` matches every character, also a line end. A missing
//! label matches like an empty string.
//!
//! Compiled expressions take more memory than the pattern suggests: `\w{60}` is 4 MiB. So each is compiled
//! within the smallest limit that it fits ([`SIZES`]) and counted with that limit.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::literal::{ExtractKind, Extractor};

use crate::error::LabelError;
use crate::text::{is_label_name, quote};

/// Bytes that a compiled regular expression may take: counted is the first limit that it fits.
const SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Bytes of the states that a search builds while it runs, minimum and maximum, for each direction.
const STATES_BYTES: (usize, usize) = (128 << 10, 2 << 20);
/// Longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Limit of Unicode classes in one pattern: each takes thousands of bytes when it is parsed, before any size
/// limit applies.
const CLASSES_MAX: usize = 500;
/// Most strings that a pattern is expanded into.
const TEXTS_MAX: usize = 256;

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

impl MatchOp {
    /// By its number, the place in the list of variants: the same in stored rules and in remote read.
    pub fn from_number(number: u64) -> Option<Self> {
        let all = [Self::Equal, Self::NotEqual, Self::Regex, Self::NotRegex];
        all.into_iter().find(|op| *op as u64 == number)
    }

    fn takes_pattern(self) -> bool {
        matches!(self, Self::Regex | Self::NotRegex)
    }

    /// True for `!=` and `!~`.
    #[inline]
    pub fn is_negated(self) -> bool {
        matches!(self, Self::NotEqual | Self::NotRegex)
    }
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

/// A pattern that does not compile, or is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {0}")]
pub struct PatternError(String);

/// The part of a text that a pattern has to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The whole text.
    Whole,
    /// Any part of it.
    Any,
}

/// A regular expression, compiled.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    bytes: usize,
    shortcut: Shortcut,
}

/// The texts that a pattern matches, as far as they are known without a search.
#[derive(Debug)]
enum Shortcut {
    /// They are these, sorted.
    Texts(Vec<String>),
    /// They begin with this.
    Prefix(String),
    /// They are all texts.
    All,
    /// They are all texts but the empty one.
    NotEmpty,
}

/// How the values that match can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// They are among these.
    Texts(&'a [String]),
    /// They begin with this.
    Prefix(&'a str),
}

impl Pattern {
    /// Compiles a pattern. Cost: up to milliseconds.
    ///
    /// # Errors
    /// A pattern that is invalid or needs too much memory.
    pub fn new(part: Part, pattern: &str) -> Result<Self, PatternError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            let length = pattern.len();
            return Err(PatternError(format!(
                "pattern of {length} bytes exceeds the limit of {PATTERN_BYTES_MAX}"
            )));
        }
        let is_class = |pair: &[u8]| matches!(pair, b"\\w" | b"\\W" | b"\\p" | b"\\P");
        let classes = pattern.as_bytes().windows(2).filter(|pair| is_class(pair)).count();
        if classes > CLASSES_MAX {
            return Err(PatternError(format!("{classes} classes exceed the limit of {CLASSES_MAX}")));
        }
        let (text, shortcut) = match part {
            Part::Any => (pattern.to_owned(), Shortcut::Prefix(String::new())),
            Part::Whole => (format!("^(?:{pattern})$"), Shortcut::new(pattern)?),
        };
        // A program is more than eight times as large as the pattern: skip smaller limits.
        for size in SIZES.into_iter().filter(|size| *size > text.len().saturating_mul(8)) {
            match build(&text, size) {
                Ok(regex) => {
                    // Captures need two slots for each state of the program, for the current and the next
                    // position.
                    let bytes = size.saturating_mul(2 + regex.captures_len()) + 2 * states_bytes(size);
                    return Ok(Self { regex, bytes: bytes + shortcut.bytes(), shortcut });
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(explain(&error.to_string())),
            }
        }
        Err(PatternError("expression too large".to_owned()))
    }

    /// The compiled expression.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Bytes counted for it, including those that a search needs.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when it matches.
    #[inline]
    pub fn is_match(&self, text: &str) -> bool {
        match &self.shortcut {
            Shortcut::Texts(texts) => texts.binary_search_by(|t| t.as_str().cmp(text)).is_ok(),
            Shortcut::Prefix(prefix) => text.starts_with(prefix) && self.regex.is_match(text),
            Shortcut::All => true,
            Shortcut::NotEmpty => !text.is_empty(),
        }
    }
}

impl Shortcut {
    fn new(pattern: &str) -> Result<Self, PatternError> {
        match pattern {
            ".*" => return Ok(Self::All),
            ".+" => return Ok(Self::NotEmpty),
            _ => {}
        }
        // Parsed by itself: `a)(b` must not become valid by the parentheses around it.
        let mut parser = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build();
        let parsed = parser.parse(pattern).map_err(|error| explain(&error.to_string()))?;
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
                return Ok(Self::Texts(texts));
            }
        }
        let prefix = found.longest_common_prefix().unwrap_or_default();
        // A cut inside a character would be invalid UTF-8.
        Ok(Self::Prefix(std::str::from_utf8(prefix).unwrap_or_default().to_owned()))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.iter().map(|text| size_of::<String>() + text.len()).sum(),
            Self::Prefix(prefix) => prefix.len(),
            Self::All | Self::NotEmpty => 0,
        }
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

/// The last line of an error of the library; those before it show the place.
fn explain(error: &str) -> PatternError {
    PatternError(error.lines().last().unwrap_or("invalid").trim().to_owned())
}

/// One condition on one label.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    /// Of `=~` and `!~`. Shared: cloning a [`Regex`] would create separate caches.
    pattern: Option<Arc<Pattern>>,
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

impl Matcher {
    /// A matcher.
    ///
    /// # Errors
    /// [`LabelError::InvalidMatcher`]: an empty name, or a pattern that is invalid or needs too much memory.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self, LabelError> {
        let (name, value) = (name.into(), value.into());
        let invalid = |what: String| {
            let value: String = value.chars().take(100).collect();
            LabelError::InvalidMatcher { matcher: format!("{name}{op}{value:?}"), what }
        };
        if name.is_empty() {
            return Err(invalid("the label name is empty".to_owned()));
        }
        let compile = || Pattern::new(Part::Whole, &value).map_err(|error| invalid(error.to_string()));
        let pattern = op.takes_pattern().then(compile).transpose()?.map(Arc::new);
        Ok(Self { name, op, value, pattern })
    }

    /// As [`Matcher::new`], with `compile` for the pattern, if it needs one; the caller checks the name.
    ///
    /// # Errors
    /// Those of `compile`.
    pub fn compiled_by<E>(
        (name, op, value): (String, MatchOp, String),
        compile: impl FnOnce(&str) -> Result<Arc<Pattern>, E>,
    ) -> Result<Self, E> {
        let pattern = op.takes_pattern().then(|| compile(&value)).transpose()?;
        Ok(Self { name, op, value, pattern })
    }

    /// `name = value`. No series has an empty name.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), op: MatchOp::Equal, value: value.into(), pattern: None }
    }

    /// The label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it compares.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// String or pattern, as written.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Bytes counted for the compiled pattern; 0 without one.
    pub fn pattern_bytes(&self) -> usize {
        self.pattern.as_ref().map_or(0, |pattern| pattern.bytes)
    }

    /// True when a label with this value satisfies the matcher; an empty string represents a missing label.
    #[inline]
    pub fn matches(&self, value: &str) -> bool {
        self.test(value) != self.op.is_negated()
    }

    /// Compares without the negation.
    #[inline]
    pub fn test(&self, value: &str) -> bool {
        self.pattern.as_ref().map_or_else(|| self.value == value, |pattern| pattern.is_match(value))
    }

    /// How to find the values that [`Matcher::test`] accepts.
    pub fn lookup(&self) -> Lookup<'_> {
        match self.pattern.as_ref().map(|pattern| &pattern.shortcut) {
            None => Lookup::Texts(std::slice::from_ref(&self.value)),
            Some(Shortcut::Texts(texts)) => Lookup::Texts(texts),
            Some(Shortcut::Prefix(prefix)) => Lookup::Prefix(prefix),
            Some(Shortcut::All | Shortcut::NotEmpty) => Lookup::Prefix(""),
        }
    }

    /// True when [`Matcher::test`] accepts whatever value a label may have.
    pub fn accepts_all(&self) -> bool {
        self.pattern.as_ref().is_some_and(|p| matches!(p.shortcut, Shortcut::All | Shortcut::NotEmpty))
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_label_name(&self.name) {
            f.write_str(&self.name)?;
        } else {
            f.write_str(&quote(&self.name))?;
        }
        write!(f, "{}{}", self.op, quote(&self.value))
    }
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
