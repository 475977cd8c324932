//! Reads Rust source just well enough to say which paths it names and where it is `unsafe`.
//!
//!   text ─▶ tokens (no comments, no literals) ─▶ without test items ─▶ paths below `std`
//!
//! A parser would be more exact and much heavier; what is left out here (macros that build paths, renamed crates) is
//! left to reviewers.

/// A word or a mark, with its line, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lexeme {
    /// A word or a mark.
    Code,
    Comment,
    Literal,
    /// Blanks, characters and numbers.
    Other,
}

/// Words and marks of `source` in order; `::` is one mark; comments, strings, characters and numbers are left out.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    of_kind(source, Lexeme::Code)
}

/// Comments of `source`, each with its `//`.
pub(crate) fn comments(source: &str) -> Vec<Token<'_>> {
    of_kind(source, Lexeme::Comment)
}

/// String literals of `source`, each with its quotes.
pub(crate) fn literals(source: &str) -> Vec<Token<'_>> {
    of_kind(source, Lexeme::Literal)
}

fn of_kind(source: &str, kind: Lexeme) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (len, lexeme) = lexeme(first, rest);
        let (text, after) = rest.split_at(len);
        if lexeme == kind {
            found.push(Token { text, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    found
}

/// Length and kind of the lexeme that opens `rest`, whose first character is `first`.
fn lexeme(first: char, rest: &str) -> (usize, Lexeme) {
    match first {
        _ if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), Lexeme::Comment),
        _ if rest.starts_with("/*") => (block_comment_len(rest), Lexeme::Comment),
        '"' => (string_len(rest), Lexeme::Literal),
        '\'' => (character_len(rest), Lexeme::Other),
        _ if rest.starts_with("b\"") || rest.starts_with("c\"") => {
            (1 + string_len(rest.split_at(1).1), Lexeme::Literal)
        }
        _ if word(first) => match raw_string_len(rest) {
            Some(len) => (len, Lexeme::Literal),
            None => {
                let kind = if first.is_ascii_digit() { Lexeme::Other } else { Lexeme::Code };
                (rest.find(|c| !word(c)).unwrap_or(rest.len()), kind)
            }
        },
        _ if rest.starts_with("::") => (2, Lexeme::Code),
        _ => (first.len_utf8(), if first.is_whitespace() { Lexeme::Other } else { Lexeme::Code }),
    }
}

fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `/* … */` nests.
fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(tail) = rest.get(at..).filter(|t| !t.is_empty()) {
        let step = if tail.starts_with("/*") {
            depth += 1;
            2
        } else if tail.starts_with("*/") {
            depth -= 1;
            2
        } else {
            tail.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Bytes of the quoted text that opens `rest`, both quotes included.
fn string_len(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `br##"…"##`: the length, or none when `rest` does not open so.
fn raw_string_len(rest: &str) -> Option<usize> {
    let tail =
        rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'))?;
    let hashes = tail.len() - tail.trim_start_matches('#').len();
    let body = tail.trim_start_matches('#').strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opened = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |at| opened + at + end.len()))
}

/// A character literal as a whole, or the one mark that opens a lifetime.
fn character_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => rest.get(3..).and_then(|t| t.find('\'')).map_or(1, |at| 3 + at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// The tokens that end up in the built crate: items under `#[cfg(test)]` are dropped.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        let test_item = rest.len() >= ATTRIBUTE.len() && rest.iter().zip(ATTRIBUTE).all(|(t, a)| t.text == a);
        if test_item {
            rest = after_item(rest);
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    kept
}

/// Skips the item that opens `tokens`, which ends with its block or its semicolon.
pub(crate) fn after_item<'a, 'b>(tokens: &'b [Token<'a>]) -> &'b [Token<'a>] {
    let (mut braces, mut others) = (0i64, 0i64);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => braces += 1,
            "}" => braces -= 1,
            "(" | "[" => others += 1,
            ")" | "]" => others -= 1,
            _ => {}
        }
        let ended = matches!(token.text, "}" | ";") && braces == 0 && others == 0;
        if ended {
            return tokens.split_at(at + 1).1;
        }
    }
    &[]
}

/// Every path that begins with one of `roots`, groups written out: `use std::{fs, time::{self, Instant}}` gives
/// `std::fs`, `std::time::self`, `std::time::Instant`.
pub(crate) fn paths_from(tokens: &[Token<'_>], roots: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut rest = tokens;
    let mut before = "";
    while let Some((first, after)) = rest.split_first() {
        let begins = before != "::" && roots.contains(&first.text);
        before = first.text;
        if begins && after.first().is_some_and(|t| t.text == "::") {
            rest = path_tree("", rest, &mut found);
        } else {
            rest = after;
        }
    }
    found
}

fn path_tree<'a, 'b>(
    prefix: &str,
    tokens: &'b [Token<'a>],
    found: &mut Vec<(String, usize)>,
) -> &'b [Token<'a>] {
    let Some((first, mut rest)) = tokens.split_first() else { return tokens };
    let path = if prefix.is_empty() { first.text.to_owned() } else { format!("{prefix}::{}", first.text) };
    match rest {
        [colons, brace, inside @ ..] if colons.text == "::" && brace.text == "{" => {
            rest = inside;
            while let Some((token, after)) = rest.split_first() {
                match token.text {
                    "}" => return after,
                    "," => rest = after,
                    "as" => rest = after.split_first().map_or(after, |(_, rest)| rest),
                    _ => rest = path_tree(&path, rest, found),
                }
            }
            rest
        }
        [colons, next, ..] if colons.text == "::" && next.text.starts_with(|c| word(c) || c == '*') => {
            path_tree(&path, rest.split_at(1).1, found)
        }
        _ => {
            found.push((path, first.line));
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|t| t.text).collect()
    }

    fn paths(source: &str) -> Vec<String> {
        paths_from(&without_tests(&tokens(source)), &["std"]).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(words("a // unsafe\n/* b /* unsafe */ */ c"), ["a", "c"]);
        assert_eq!(
            words(r#"f("unsafe \" unsafe", b"unsafe", 'u', '\'', 12)"#),
            ["f", "(", ",", ",", ",", ",", ")"]
        );
        assert_eq!(words("r#\"unsafe \" unsafe\"# after"), ["after"]);
        assert_eq!(
            words("fn f<'a>(x: &'a str)"),
            ["fn", "f", "<", "a", ">", "(", "x", ":", "&", "a", "str", ")"]
        );
        assert_eq!(words("'\\u{1F600}' 'é' x"), ["x"]);
        assert_eq!(words("\"open"), Vec::<&str>::new());
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let found = tokens("a\n/* \n */ b\n\"\n\n\" c");
        assert_eq!(found.iter().map(|t| t.line).collect::<Vec<_>>(), [1, 3, 6]);
    }

    #[test]
    fn groups_are_written_out() {
        assert_eq!(paths("use std::fs;"), ["std::fs"]);
        assert_eq!(
            paths("use std::{fs::{self, File}, io, time::*}; fn f() { std::net::lookup() }"),
            ["std::fs::self", "std::fs::File", "std::io", "std::time::*", "std::net::lookup"]
        );
        assert_eq!(paths("let v = std::mem::size_of::<u8>();"), ["std::mem::size_of"]);
        assert_eq!(paths("use std::{io as time, fs as disk};"), ["std::io", "std::fs"]);
        assert_eq!(paths("nostd::fs::x; my::std;"), Vec::<String>::new());
    }

    #[test]
    fn test_items_are_dropped() {
        assert_eq!(
            paths("#[cfg(test)]\nmod tests { use std::fs; fn f() { g([1; 2]); } }\nuse std::io;"),
            ["std::io"]
        );
        assert_eq!(paths("#[cfg(test)] use std::fs; use std::io;"), ["std::io"]);
        assert_eq!(paths("#[cfg(test)] #[derive(Debug)] struct S([u8; 4]); use std::io;"), ["std::io"]);
        assert_eq!(paths("#[cfg(not(test))] use std::fs;"), ["std::fs"]);
    }
}
