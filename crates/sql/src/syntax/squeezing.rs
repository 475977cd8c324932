//! Limits the tokens of a text before it is tokenized: each token, including each blank, takes a hundred
//! bytes or more.

use std::borrow::Cow;

use crate::error::{Result, SqlError, state};

/// Maximum number of tokens in a text, including blanks.
const TOKENS_MAX: usize = 500_000;

/// The text with few enough tokens. If blanks exceed the limit, each run of blanks becomes one.
///
/// # Errors
/// 54000.
pub(crate) fn bounded(text: &str) -> Result<Cow<'_, str>> {
    // No token is shorter than a byte.
    if text.len() <= TOKENS_MAX || count(text) <= TOKENS_MAX {
        return Ok(Cow::Borrowed(text));
    }
    let mut squeezed = String::new();
    let mut tokens = 0;
    let mut is_after_blank = false;
    for (part, kind) in parts(text) {
        let is_blank = kind == Kind::Blank;
        if !(is_blank && is_after_blank) {
            squeezed.push_str(part);
            tokens += 1;
        }
        is_after_blank = is_blank;
        if tokens > TOKENS_MAX {
            let message = format!("a text of more than {TOKENS_MAX} tokens");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
                .hint("send fewer rows in one statement, or use COPY"));
        }
    }
    Ok(Cow::Owned(squeezed))
}

/// Number of tokens of a text; never less than the tokenizer's.
pub(crate) fn count(text: &str) -> usize {
    parts(text).count()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Other,
}

/// The parts of a text, each a blank, a word, a literal, a comment or a sign.
fn parts(text: &str) -> impl Iterator<Item = (&str, Kind)> {
    let mut rest = text;
    let mut is_after_word = false;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = length_of(rest, first, is_after_word);
        let (part, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
        rest = behind;
        is_after_word = is_of_word(first);
        Some((part, if first.is_whitespace() { Kind::Blank } else { Kind::Other }))
    })
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii() && !c.is_whitespace()
}

/// Length in bytes of the first part of `rest`.
fn length_of(rest: &str, first: char, is_after_word: bool) -> usize {
    let until = |end: Option<usize>| end.unwrap_or(rest.len());
    match first {
        'e' | 'E' if rest.get(1..2) == Some("'") => 1 + escaped(rest.get(1..).unwrap_or_default()),
        c if is_of_word(c) => until(rest.find(|c| !is_of_word(c))),
        '\'' | '"' => quoted(rest, first),
        '-' if rest.starts_with("--") => until(rest.find('\n')),
        '/' if rest.starts_with("/*") => comment(rest),
        '$' if !is_after_word => dollars(rest).unwrap_or(1),
        c => c.len_utf8(),
    }
}

/// Bytes up to and including the closing quote; a doubled quote closes and reopens.
fn quoted(rest: &str, quote: char) -> usize {
    rest.get(1..).and_then(|inner| inner.find(quote)).map_or(rest.len(), |place| place + 2)
}

/// Bytes of a literal in which a backslash escapes the next character.
fn escaped(rest: &str) -> usize {
    let mut bytes = rest.bytes().enumerate().skip(1);
    while let Some((place, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'\'' => return place + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Bytes of a comment, which may contain others.
fn comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(two) = bytes.get(at..at + 2) {
        match two {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Bytes of a dollar-quoted literal; `None` where none begins.
fn dollars(rest: &str) -> Option<usize> {
    let name = rest.get(1..)?;
    let name = name.get(..name.find(|c| !is_of_word(c))?)?;
    let tag = rest.get(..name.len() + 2).filter(|tag| tag.ends_with('$'))?;
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let inner = rest.get(tag.len()..)?;
    Some(inner.find(tag).map_or(rest.len(), |place| place + 2 * tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<&str> {
        parts(text).map(|(part, _)| part).collect()
    }

    #[test]
    fn m8_literals_and_comments_are_single_parts() {
        for (text, expected) in [
            ("a  1", &["a", " ", " ", "1"][..]),
            ("'a  ''b' \"c  d\"", &["'a  '", "'b'", " ", "\"c  d\""]),
            (r"e'a\'  b' c", &[r"e'a\'  b'", " ", "c"]),
            ("-- a  b\n/* c /* d */  e */f", &["-- a  b", "\n", "/* c /* d */  e */", "f"]),
            ("$$a  b$$ $t$ $$ $t$ $1", &["$$a  b$$", " ", "$t$ $$ $t$", " ", "$", "1"]),
            ("a$b", &["a", "$", "b"]),
            ("ä>=ö", &["ä", ">", "=", "ö"]),
            ("'open", &["'open"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn m8_blanks_are_squeezed_and_rows_rejected() {
        let blanks = format!("SELECT{}'a  b'", " \n".repeat(TOKENS_MAX));
        assert_eq!(bounded(&blanks).unwrap(), "SELECT 'a  b'");
        let short = "SELECT   1";
        assert_eq!(bounded(short).unwrap(), short);
        let rows = format!("VALUES (1){}", ", (1)".repeat(TOKENS_MAX / 4));
        assert_eq!(bounded(&rows).unwrap_err().state.0, "54000");
    }
}
