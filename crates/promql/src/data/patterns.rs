//! The regular expressions of a query: each is compiled once, and their sum is limited
//! ([`PATTERNS_BYTES_MAX`]).

use std::collections::HashMap;
use std::sync::Arc;

use regex::Captures;
use ropewalk_labels::{MatchOp, Matcher, Part, Pattern};

use crate::budget::{BudgetError, StopReason};

/// Limit of bytes of all compiled regular expressions of a query, including what a search in them needs.
pub const PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Reasons to reject a pattern.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatternError {
    #[error(transparent)]
    Invalid(#[from] ropewalk_labels::PatternError),
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// The regular expressions of one query: equal ones are compiled once, and their bytes are added up.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: HashMap<(Part, String), Arc<Pattern>>,
    bytes: usize,
}

impl Patterns {
    /// The compiled pattern. `stop` is called before each new compilation.
    pub(crate) fn compile(
        &mut self,
        part: Part,
        pattern: &str,
        stop: &dyn Fn() -> Option<StopReason>,
    ) -> Result<Arc<Pattern>, PatternError> {
        let key = (part, pattern.to_owned());
        if let Some(known) = self.known.get(&key) {
            return Ok(Arc::clone(known));
        }
        if let Some(stop) = stop() {
            return Err(BudgetError::from(stop).into());
        }
        let compiled = Arc::new(Pattern::new(part, pattern)?);
        self.bytes = self.bytes.saturating_add(compiled.bytes());
        within_sum(self.bytes)?;
        self.known.insert(key, Arc::clone(&compiled));
        Ok(compiled)
    }

    /// A matcher whose pattern, if it has one, is among these.
    pub(crate) fn matcher(
        &mut self,
        condition: (String, MatchOp, String),
        stop: &dyn Fn() -> Option<StopReason>,
    ) -> Result<Matcher, PatternError> {
        Matcher::compiled_by(condition, |pattern| self.compile(Part::Whole, pattern, stop))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

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
        let stopped = patterns.compile(Part::Whole, "b.*", &|| Some(StopReason::TimedOut));
        assert!(matches!(stopped, Err(PatternError::Budget(BudgetError::TimedOut))));
    }
}
