//! LIKE and regular expressions. A regular expression takes time linear in the text; LIKE may take the
//! product of text and pattern lengths, so it checks the interrupt.
//!
//! LIKE backtracks only to the last `%`: an earlier `%` never needs another match, since the last one takes
//! any text.
//! Regular expressions are the `regex` crate's: no backtracking, hence no back references.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::error::{Result, SqlError, state};

use crate::limits::quota::{Share, Taken};

/// Maximum size of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Maximum size of the automaton cache of a search, for each direction.
const SEARCH_BYTES_MAX: usize = 256 << 10;
/// Minimum size charged for a compiled pattern.
const COMPILED_BYTES_MIN: u64 = 16 << 10;

/// Steps of a LIKE search between two checks of the interrupt.
const STEPS_PER_LOOK: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// `%`
    Any,
    /// `_`
    One,
    Is(char),
}

/// A parsed pattern of LIKE.
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
        let lower = if fold { pattern.chars().map(lower).collect() } else { pattern.to_owned() };
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

    /// The first text that begins as every match does, and the first one after them all, if there is one. `None` for a
    /// pattern that begins with a wildcard or ignores case.
    pub(crate) fn span(&self) -> Option<(String, Option<String>)> {
        let literal = |item: &Item| match item {
            Item::Is(c) if !self.fold => Some(*c),
            _ => None,
        };
        let mut prefix: Vec<char> = self.items.iter().map_while(literal).collect();
        let low: String = prefix.iter().collect();
        let mut high = None;
        // Texts are ordered by their bytes, and so by the numbers of their characters.
        while let (None, Some(last)) = (&high, prefix.pop()) {
            let next = (last..=char::MAX).nth(1);
            high = next.map(|next| prefix.iter().copied().chain([next]).collect());
        }
        (!low.is_empty()).then_some((low, high))
    }

    /// True for a text that the pattern matches. `look` is called between steps of the search and may stop
    /// it.
    ///
    /// # Errors
    /// Errors of `look`.
    pub(crate) fn matches(&self, text: &str, look: &dyn Fn() -> Result<()>) -> Result<bool> {
        match self.fold {
            true => self.run(&text.chars().map(lower).collect::<String>(), look),
            false => self.run(text, look),
        }
    }

    fn run(&self, text: &str, look: &dyn Fn() -> Result<()>) -> Result<bool> {
        let mut steps = 0_usize;
        let (mut at, mut rest) = (0, text.chars());
        // Position after the last `%`, and the text that it has not consumed yet.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            steps += 1;
            if steps.is_multiple_of(STEPS_PER_LOOK) {
                look()?;
            }
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
                        return Ok(false);
                    }
                }
                None if rest.as_str().is_empty() => return Ok(true),
                None => {}
            }
            // The last `%` takes one character more.
            let Some((place, taken)) = &mut retry else { return Ok(false) };
            if taken.next().is_none() {
                return Ok(false);
            }
            (at, rest) = (*place, taken.clone());
        }
    }
}

/// A compiled regular expression, compared by its text.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    fold: bool,
    /// Its bytes in the session's share, released when the last clone is dropped.
    _taken: Option<Arc<Taken>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.fold == other.fold
    }
}

/// Options of a regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegexFlags {
    /// `i`: case does not matter.
    pub(crate) fold: bool,
    /// `g`: all matches, not only the first one.
    pub(crate) global: bool,
    /// `.` also matches the end of a line; not with `n` and `p`.
    dot_takes_lines: bool,
    /// `n` and `w`: `^` and `$` match at line ends.
    has_lines: bool,
    /// `x`: blanks and comments are ignored.
    is_expanded: bool,
    /// `q`: every letter is literal.
    is_literal: bool,
}

impl RegexFlags {
    const fn plain(fold: bool) -> Self {
        let (global, has_lines, is_expanded, is_literal) = (false, false, false, false);
        Self { fold, global, dot_takes_lines: true, has_lines, is_expanded, is_literal }
    }

    /// Parses option letters.
    ///
    /// # Errors
    /// 22023: an unknown letter.
    pub(crate) fn read(letters: &str) -> Result<Self> {
        let mut flags = Self::plain(false);
        for letter in letters.chars() {
            match letter {
                'g' => flags.global = true,
                'i' => flags.fold = true,
                'c' => flags.fold = false,
                'n' | 'm' => (flags.dot_takes_lines, flags.has_lines) = (false, true),
                'p' => (flags.dot_takes_lines, flags.has_lines) = (false, false),
                's' => (flags.dot_takes_lines, flags.has_lines) = (true, false),
                'w' => (flags.dot_takes_lines, flags.has_lines) = (true, true),
                'x' => flags.is_expanded = true,
                't' => flags.is_expanded = false,
                'q' => flags.is_literal = true,
                _ => {
                    let message = format!("invalid regular expression option: \"{letter}\"");
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
            }
        }
        Ok(flags)
    }
}

/// Translates a pattern from PostgreSQL's syntax to that of the `regex` crate: `\m`, `\M`, `\y` and `\Z`
/// match word boundaries and the end; a brace that is no count and a bracket within brackets are literal.
fn in_words_of_regex(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('m') if !in_class => out += r"\b{start}",
                Some('M') if !in_class => out += r"\b{end}",
                Some('y') if !in_class => out += r"\b",
                Some('Y') if !in_class => out += r"\B",
                Some('Z') if !in_class => out += r"\z",
                Some('e') => out += r"\x1b",
                Some(c) => out.extend(['\\', c]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                out.push('[');
                in_class = true;
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // Directly after the bracket it does not end the class.
                if chars.next_if_eq(&']').is_some() {
                    out += r"\]";
                }
            }
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                while let Some(c) = chars.next() {
                    out.push(c);
                    if c == ':' && chars.peek() == Some(&']') {
                        out.extend(chars.next());
                        break;
                    }
                }
            }
            '[' | '&' | '~' if in_class => out.extend(['\\', c]),
            ']' if in_class => {
                out.push(']');
                in_class = false;
            }
            '{' if !in_class && !chars.peek().is_some_and(char::is_ascii_digit) => out += r"\{",
            c => out.push(c),
        }
    }
    out.replace("[[:<:]]", r"\b{start}").replace("[[:>:]]", r"\b{end}")
}

/// Compiled patterns cached per thread: a function uses the same pattern for each row.
const KEPT: usize = 16;

/// Pattern, flags, compiled pattern.
type Kept = (String, RegexFlags, Regex);

thread_local! {
    static COMPILED: RefCell<VecDeque<Kept>> = const { RefCell::new(VecDeque::new()) };
}

/// Compiles a regular expression.
///
/// # Errors
/// 2201B: it is invalid, or takes more than a megabyte.
pub(crate) fn compile(pattern: &str, fold: bool) -> Result<Pattern> {
    compile_with(pattern, RegexFlags::plain(fold)).map(|regex| Pattern { regex, fold, _taken: None })
}

/// Like [`compile`], for a pattern that a statement holds: it is charged to its session.
///
/// # Errors
/// Those of [`compile`]; 53200.
pub(crate) fn compile_kept(pattern: &str, fold: bool, share: &Share) -> Result<Pattern> {
    // Reserved before the actual size is known, so that concurrent compilations stay within the limit.
    let reserved = share.take(COMPILED_BYTES_MIN)?;
    let (regex, bytes) = built(pattern, RegexFlags::plain(fold))?;
    drop(reserved);
    let taken = share.take(bytes)?;
    Ok(Pattern { regex, fold, _taken: Some(Arc::new(taken)) })
}

/// Compiles a pattern within the smallest sufficient limit, and estimates its bytes.
fn built(pattern: &str, flags: RegexFlags) -> Result<(Regex, u64)> {
    let words = if flags.is_literal { regex::escape(pattern) } else { in_words_of_regex(pattern) };
    let mut builder = RegexBuilder::new(&words);
    builder
        .case_insensitive(flags.fold)
        .dot_matches_new_line(flags.dot_takes_lines)
        .multi_line(flags.has_lines)
        .ignore_whitespace(flags.is_expanded)
        .dfa_size_limit(SEARCH_BYTES_MAX);
    let mut failed = None;
    for limit in [REGEX_BYTES_MAX >> 6, REGEX_BYTES_MAX >> 3, REGEX_BYTES_MAX] {
        match builder.size_limit(limit).build() {
            // There is one program for each direction of a search.
            Ok(regex) => return Ok((regex, COMPILED_BYTES_MIN + 2 * limit as u64)),
            Err(error) => {
                let is_too_large = matches!(error, regex::Error::CompiledTooBig(_));
                failed = Some(error);
                if !is_too_large {
                    break;
                }
            }
        }
    }
    let line = failed.map(|error| error.to_string()).unwrap_or_default();
    let what = line.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Err(SqlError::new(state::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {what}")))
}

/// Like [`compile`], with flags.
///
/// # Errors
/// Those of [`compile`].
pub(crate) fn compile_with(pattern: &str, flags: RegexFlags) -> Result<Regex> {
    let flags = RegexFlags { global: false, ..flags };
    let known = COMPILED.with_borrow(|kept| {
        let known = kept.iter().find(|(text, with, _)| text == pattern && *with == flags);
        known.map(|(_, _, regex)| regex.clone())
    });
    if let Some(regex) = known {
        return Ok(regex);
    }
    let (regex, _) = built(pattern, flags)?;
    COMPILED.with_borrow_mut(|kept| {
        kept.truncate(KEPT - 1);
        kept.push_front((pattern.to_owned(), flags, regex.clone()));
    });
    Ok(regex)
}

/// Translates a pattern of SIMILAR TO to a regular expression for a complete text. `escape` is a character,
/// or empty for none.
///
/// # Errors
/// 22019: the escape has several characters.
pub(crate) fn similar_pattern(pattern: &str, escape: &str) -> Result<String> {
    let mut letters = escape.chars();
    let escape = letters.next();
    if letters.next().is_some() {
        let message = "invalid escape string";
        let error = SqlError::new(state::INVALID_ESCAPE_CHARACTER, message);
        return Err(error.hint("escape string must be empty or one character"));
    }
    let mut out = String::from("^(?:");
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => match chars.next() {
                Some(c) if c.is_alphanumeric() => out.push(c),
                Some(c) => out.extend(['\\', c]),
                None => {}
            },
            c if in_class => {
                in_class = c != ']';
                out.push(c);
            }
            '[' => {
                in_class = true;
                out.push('[');
            }
            '%' => out += ".*",
            '_' => out.push('.'),
            '(' => out += "(?:",
            '\\' | '.' | '^' | '$' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    Ok(out + ")$")
}

/// The lower case of a character: a single one, as in PostgreSQL, even where a language uses two.
pub(crate) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
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
                Like::new(pattern, Some('\\'), false).unwrap().matches(text, &|| Ok(())).unwrap(),
                expected,
                "{text} {pattern}"
            );
        }
        assert!(Like::new("A%", Some('\\'), true).unwrap().matches("abc", &|| Ok(())).unwrap());
        assert!(Like::new("a\\", Some('\\'), false).is_err());
        let hard = Like::new(&"%a".repeat(30), Some('\\'), false).unwrap();
        let text = "a".repeat(29) + &"b".repeat(10_000);
        assert!(!hard.matches(&text, &|| Ok(())).unwrap());
    }

    #[test]
    fn h8_long_search_is_stopped() {
        let pattern = Like::new(&format!("%{}b", "a".repeat(10_000)), None, false).unwrap();
        let stop = || Err(SqlError::new(state::QUERY_CANCELED, "stopped"));
        assert_eq!(pattern.matches(&"a".repeat(100_000), &stop).unwrap_err().state, state::QUERY_CANCELED);
    }

    #[test]
    fn patterns_are_translated_to_regex_syntax() {
        for (pattern, text, expected) in [
            (r"\mfoo\M", "a foo b", true),
            (r"\mfoo\M", "afoo", false),
            (r"\yfoo\y", "foo", true),
            ("[[:<:]]a[[:>:]]", "b a c", true),
            ("a.b", "a\nb", true),
            ("^b", "a\nb", false),
            ("[[a]", "[", true),
            ("[]a]", "]", true),
            ("[^]a]", "]", false),
            ("a{b", "a{b", true),
            ("a{2}$", "caa", true),
            ("[a&&b]", "&", true),
            (r"a\Z", "ba", true),
        ] {
            assert_eq!(compile(pattern, false).unwrap().regex.is_match(text), expected, "{pattern} {text}");
        }
        let lines = RegexFlags::read("n").unwrap();
        assert!(compile_with("^b$", lines).unwrap().is_match("a\nb\nc"));
        assert!(!compile_with("a.b", lines).unwrap().is_match("a\nb"));
        assert!(RegexFlags::read("z").is_err());
    }

    #[test]
    fn similar() {
        let holds = |pattern: &str, text: &str| {
            compile(&similar_pattern(pattern, "\\").unwrap(), false).unwrap().regex.is_match(text)
        };
        assert!(holds("%(b|d)%", "abc"));
        assert!(!holds("(b|c)%", "abc"));
        assert!(holds("a.c", "a.c") && !holds("a.c", "abc"));
        assert!(holds(r"a\%", "a%") && !holds(r"a\%", "ab"));
        assert!(holds("[a-c]+_", "abcd"));
        assert!(similar_pattern("a", "ab").is_err());
    }
}
