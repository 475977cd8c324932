//! Regular expressions in linear time.
//!
//! MongoDB runs PCRE, which can take exponential time; this is the crate `regex`, which cannot. Look-around
//! and back-references, which have no linear-time algorithm, are refused with MongoDB's code for an invalid
//! pattern.
//!
//! Source: Cox, "Regular Expression Matching Can Be Simple And Fast", 2007.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lang::budget::steps;
use crate::lang::error::{LangResult, refuse};

/// MongoDB's limit for the length of a pattern.
const PATTERN_BYTES_MAX: usize = 32_764;
/// Size limits for the compilation of a pattern, tried in order: its program is charged with the first that
/// suffices. A bounded repetition of bounded repetitions exceeds the last.
const PROGRAM_BYTES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Most bytes of all programs of one command.
const PROGRAMS_BYTES_MAX: usize = 16 << 20;
/// Matching is fastest with this much memory; the first patterns of a command get it.
const DFA_BYTES: usize = 256 << 10;
const DFA_PATTERNS_MAX: usize = 64;
/// Largest product of the bytes of a text and of a program: some seconds at worst. The smallest programs
/// accept a text of 16 MiB.
const MATCH_WORK_MAX: usize = 1 << 36;
/// Work that counts as one step.
const MATCH_WORK_PER_STEP: usize = 4 << 10;
/// Bytes of a program whose compilation costs as much as one step of an expression.
const BYTES_PER_STEP: u64 = 4;

/// The patterns of one command: equal ones are compiled once, and all programs share one memory limit.
#[derive(Clone)]
pub struct Patterns(Arc<Shared<CancelCheck>>);

/// Whether a command may continue compiling.
type CancelCheck = dyn Fn() -> LangResult<()> + Send + Sync;

struct Shared<L: ?Sized> {
    compiled: Mutex<Compiled>,
    bytes_max: usize,
    look: L,
}

#[derive(Default)]
struct Compiled {
    bytes: usize,
    known: HashMap<(String, String), Pattern>,
}

impl Default for Patterns {
    fn default() -> Self {
        Self::with_cancellation(|| Ok(()))
    }
}

impl std::fmt::Debug for Patterns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patterns").finish_non_exhaustive()
    }
}

impl Patterns {
    /// Patterns of a command; `look` is called between two of them and may end it.
    #[must_use]
    pub fn with_cancellation(look: impl Fn() -> LangResult<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { compiled: Mutex::default(), bytes_max: PROGRAMS_BYTES_MAX, look }))
    }

    /// Patterns of a stored definition, whose memory was counted when it was stored.
    pub(crate) fn stored() -> Self {
        Self(Arc::new(Shared { compiled: Mutex::default(), bytes_max: usize::MAX, look: || Ok(()) }))
    }

    /// Compiles. Options: `i`, `m`, `s`, `x`, and `u`, which is always on.
    pub(crate) fn compile(&self, pattern: &str, options: &str) -> LangResult<Pattern> {
        let mut compiled = self.0.compiled.lock().unwrap_or_else(|held| held.into_inner());
        let key = (pattern.to_owned(), options.to_owned());
        if let Some(known) = compiled.known.get(&key) {
            return Ok(known.clone());
        }
        (self.0.look)()?;
        let left = self.0.bytes_max.saturating_sub(compiled.bytes);
        let fast = compiled.known.len() < DFA_PATTERNS_MAX;
        let (new, bytes) = Pattern::within(pattern, options, left, fast)?;
        compiled.bytes += bytes;
        compiled.known.insert(key, new.clone());
        Ok(new)
    }
}

/// A compiled pattern and the text it came from.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) pattern: String,
    pub(crate) options: String,
    pub(crate) regex: regex::Regex,
    /// The size charged for its program.
    bytes: usize,
}

thread_local! {
    static LAST: RefCell<Option<Pattern>> = const { RefCell::new(None) };
    static COMPILED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Steps of an expression that this thread's compilations since the last call count as.
pub(crate) fn compile_steps() -> u64 {
    COMPILED_BYTES.take() / BYTES_PER_STEP
}

impl Pattern {
    /// Compiles a pattern that no command accounts for.
    pub(crate) fn new(pattern: &str, options: &str) -> LangResult<Self> {
        Ok(Self::within(pattern, options, usize::MAX, true)?.0)
    }

    /// Compiles with a program of at most `left` bytes; returns the charged size.
    fn within(pattern: &str, options: &str, left: usize, fast: bool) -> LangResult<(Self, usize)> {
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
        for size in PROGRAM_BYTES {
            if size > left {
                refuse!(
                    51091,
                    "the regular expressions of one command need more than {PROGRAMS_BYTES_MAX} bytes of programs"
                );
            }
            let cache = if fast { size.max(DFA_BYTES) } else { size };
            match builder.size_limit(size).dfa_size_limit(cache).build() {
                Ok(regex) => {
                    let (pattern, options) = (pattern.to_owned(), options.to_owned());
                    return Ok((Self { pattern, options, regex, bytes: size }, size));
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
                    refuse!(51091, "Regular expression is invalid: {why}")
                }
            }
        }
        let [.., max] = PROGRAM_BYTES;
        refuse!(51091, "Regular expression is invalid: Compiled regex exceeds size limit of {max} bytes.")
    }

    /// True when it matches a part of the text.
    ///
    /// # Errors
    /// A text too long for its program; an end of the command.
    pub(crate) fn is_match(&self, text: &str) -> LangResult<bool> {
        self.check_work(text, 1)?;
        Ok(self.regex.is_match(text))
    }

    /// Checks the work limit before a search for groups in a text.
    ///
    /// # Errors
    /// As [`Pattern::is_match`].
    pub(crate) fn check_groups(&self, text: &str) -> LangResult<()> {
        self.check_work(text, 1 + self.regex.captures_len())
    }

    /// A search cannot be interrupted: at worst it visits all of the program at each byte, and copies all
    /// groups there.
    fn check_work(&self, text: &str, factor: usize) -> LangResult<()> {
        let work = text.len().saturating_mul(self.bytes).saturating_mul(factor);
        steps(work / MATCH_WORK_PER_STEP)?;
        if work > MATCH_WORK_MAX {
            refuse!(
                51091,
                "a regular expression of {} bytes when compiled is too large for a text of {} bytes",
                self.bytes,
                text.len()
            );
        }
        Ok(())
    }

    /// Compiles, or reuses the pattern that this thread compiled last: an expression needs the same one for
    /// document after document.
    pub(crate) fn again(pattern: &str, options: &str) -> LangResult<Self> {
        LAST.with_borrow_mut(|last| match last {
            Some(own) if own.pattern == pattern && own.options == options => Ok(own.clone()),
            _ => {
                let (new, bytes) = Self::within(pattern, options, usize::MAX, true)?;
                COMPILED_BYTES.set(COMPILED_BYTES.get() + bytes as u64);
                *last = Some(new.clone());
                Ok(new)
            }
        })
    }

    /// Literal prefix of every match: `abc` of `^abc.*x`.
    pub(crate) fn prefix(&self) -> Option<String> {
        // With an alternative anywhere there may be several prefixes; options change the meaning of
        // characters.
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
            // A character with a repetition may occur zero times.
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
