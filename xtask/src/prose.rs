//! The texts that people read in a source file or a page, and where each begins.
//!
//!   Markdown ─▶ paragraphs without code blocks
//!   Rust     ─▶ module headers, other comments, string literals outside tests, names of tests
//!
//! Neighbouring lines of one kind are one text, so that a sentence may cross lines.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source;

/// Where a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Docs,
    Header,
    Literal,
    TestName,
    Comment,
}

/// A text, and the line on which it begins, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// The texts of a file; `None` for files that are neither Rust nor Markdown.
pub(crate) fn texts(root: &Path, file: &str) -> Result<Option<Vec<Text>>> {
    let read = || fs::read_to_string(root.join(file)).with_context(|| file.to_owned());
    Ok(match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("md") => Some(markdown(&read()?)),
        Some("rs") => Some(rust(&read()?, file.contains("/tests/") || file.ends_with("/tests.rs"))),
        _ => None,
    })
}

fn markdown(source: &str) -> Vec<Text> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in source.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        let text = if fence || in_code { "" } else { line.trim() };
        // Headings, list items and rows begin a text; a blank line ends it.
        let marks = ["#", "- ", "* ", "|", ">"];
        let begins = marks.iter().any(|mark| text.starts_with(mark));
        add(&mut found, number + 1, Kind::Docs, text, begins);
    }
    found.retain(|text| !text.text.is_empty());
    found
}

fn rust(source: &str, is_test: bool) -> Vec<Text> {
    let mut found = Vec::new();
    for comment in source::comments(source) {
        let text = comment.text.trim_start_matches('/');
        let (kind, text) = match text.strip_prefix('!') {
            Some(text) => (Kind::Header, text),
            None => (Kind::Comment, text),
        };
        add(&mut found, comment.line, kind, text.trim(), false);
    }
    found.retain(|text| !text.text.is_empty());
    found.extend(test_names(source));
    if !is_test {
        found.extend(literals(source));
    }
    found
}

/// Appends a line to the last text when it is its next line and of the same kind. An empty line ends the last text.
fn add(found: &mut Vec<Text>, line: usize, kind: Kind, text: &str, begins: bool) {
    let next = |last: &Text| last.kind == kind && last.line + last.text.matches('\n').count() + 1 == line;
    match found.last_mut() {
        Some(last) if !begins && !text.is_empty() && !last.text.is_empty() && next(last) => {
            last.text.push('\n');
            last.text.push_str(text);
        }
        _ => found.push(Text { line, kind, text: text.to_owned() }),
    }
}

/// String literals with a space, up to the tests of the file.
fn literals(source: &str) -> Vec<Text> {
    let end = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| source.find(mark)).min();
    let source = source.get(..end.unwrap_or(source.len())).unwrap_or_default();
    source::literals(source)
        .into_iter()
        .filter(|literal| literal.text.contains(' ') && !literal.text.starts_with('b'))
        .map(|literal| Text { line: literal.line, kind: Kind::Literal, text: literal.text.to_owned() })
        .collect()
}

/// Names of functions under a `test` attribute, as words.
fn test_names(source: &str) -> Vec<Text> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (number, line) in source.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("#[") {
            is_test |= line
                .trim_end_matches(']')
                .split(['(', ' '])
                .next()
                .is_some_and(|name| name.ends_with("test"));
            continue;
        }
        let name =
            line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split('(').next());
        if let Some(name) = name.filter(|_| is_test) {
            found.push(Text { line: number + 1, kind: Kind::TestName, text: name.replace('_', " ") });
        }
        is_test = false;
    }
    found
}

/// Blanks text in backticks, targets of links and placeholders of format strings; places stay as they are.
pub(crate) fn without_code(text: &str) -> String {
    [("`", "`"), ("](", ")"), ("{", "}")]
        .iter()
        .fold(text.to_owned(), |text, (open, close)| blanked(&text, open, close))
}

/// Blanks the parts of `text` between `open` and the next `close`.
fn blanked(text: &str, open: &str, close: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((inside, after)) = after.split_once(close) else { break };
        result.push_str(before);
        result.push_str(open);
        result.extend(inside.chars().map(|c| if c == '\n' { c } else { '·' }));
        result.push_str(close);
        rest = after;
    }
    result + rest
}

/// Sentences with the place of each: a sentence ends with `.`, `!`, `?` or a cell of a table.
pub(crate) fn sentences(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let space = chars.peek().is_none_or(|(_, next)| next.is_whitespace() || *next == '"');
        let ends = c == '|' || (matches!(c, '.' | '!' | '?') && space) || chars.peek().is_none();
        if ends {
            let whole = text.get(start..at + c.len_utf8()).unwrap_or_default();
            let sentence = whole.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`');
            if !sentence.is_empty() {
                found.push((start + whole.len() - sentence.len(), sentence));
            }
            start = at + c.len_utf8();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Vec<(usize, Kind, String)> {
        rust(source, false).into_iter().map(|text| (text.line, text.kind, text.text)).collect()
    }

    #[test]
    fn comments_headers_literals_and_test_names_are_texts() {
        let source = "//! One\n//! two.\n\n/// Doc\nfn f() { g(\"a b // c\", \"word\"); } // end\n#[cfg(test)]\nmod t {\n    #[test]\n    fn a_b() { g(\"d e\") }\n}\n";
        assert_eq!(
            of(source),
            [
                (1, Kind::Header, "One\ntwo.".to_owned()),
                (4, Kind::Comment, "Doc\nend".to_owned()),
                (9, Kind::TestName, "a b".to_owned()),
                (5, Kind::Literal, "\"a b // c\"".to_owned()),
            ]
        );
    }

    #[test]
    fn paragraphs_of_markdown_are_texts_and_code_blocks_are_not() {
        let texts = markdown("# Head\na\nb\n\n```sh\ncode\n```\n| x | y |\n- item\n  more\n");
        let texts: Vec<(usize, &str)> = texts.iter().map(|text| (text.line, text.text.as_str())).collect();
        assert_eq!(texts, [(1, "# Head\na\nb"), (8, "| x | y |"), (9, "- item\nmore")]);
    }

    #[test]
    fn sentences_end_with_marks_and_cells() {
        let texts =
            |text| sentences(text).into_iter().map(|(_, sentence)| sentence.to_owned()).collect::<Vec<_>>();
        assert_eq!(texts("One is 1.5. Two?\nThree"), ["One is 1.5.", "Two?", "Three"]);
        assert_eq!(texts("| What | who is it |"), ["What |", "who is it |"]);
    }
}
