//! Syntax highlighting of a statement while it is typed, and of shell commands.

use super::complete::WORDS;
use super::split;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Word,
    Text,
    Number,
    Comment,
    Command,
}

/// Splits a text into tokens that cover all of it. An unterminated token extends to the end.
pub(crate) fn pieces(text: &str) -> Vec<(Kind, &str)> {
    if split::is_command(text) {
        return vec![(Kind::Command, text)];
    }
    let mut found: Vec<(Kind, &str)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let has_escapes = found.last().is_some_and(|(_, last)| last.eq_ignore_ascii_case("e"));
        let (kind, bytes) = piece(rest, has_escapes);
        let (piece, behind) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
        found.push((kind, piece));
        rest = behind;
    }
    found
}

/// The first token of a text: its kind and its length in bytes.
fn piece(text: &str, has_escapes: bool) -> (Kind, usize) {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let run = |is: &dyn Fn(char) -> bool| text.find(|c| !is(c)).unwrap_or(text.len());
    let Some(first) = text.chars().next() else { return (Kind::Plain, 0) };
    match first {
        '-' if text.starts_with("--") => (Kind::Comment, text.find('\n').unwrap_or(text.len())),
        '/' if text.starts_with("/*") => (Kind::Comment, comment_bytes(text)),
        '\'' => (Kind::Text, quoted_bytes(text, has_escapes)),
        '"' => (Kind::Plain, quoted_bytes(text, false)),
        '$' => match split::dollar_tag(text) {
            Some(tag) => {
                let behind = text.get(tag.len()..).unwrap_or_default();
                (Kind::Text, behind.find(tag).map_or(text.len(), |end| end + tag.len() * 2))
            }
            None => (Kind::Plain, 1),
        },
        '0'..='9' => (Kind::Number, run(&|c| c.is_alphanumeric() || c == '.' || c == '_')),
        _ if is_of_word(first) => {
            let bytes = run(&is_of_word);
            let word = text.get(..bytes).unwrap_or_default();
            let is_known = WORDS.split_whitespace().any(|known| known.eq_ignore_ascii_case(word));
            (if is_known { Kind::Word } else { Kind::Plain }, bytes)
        }
        _ => (Kind::Plain, first.len_utf8()),
    }
}

/// Length of a quoted token. A doubled quote ends it and begins the next token.
fn quoted_bytes(text: &str, has_escapes: bool) -> usize {
    let mut letters = text.char_indices();
    let quote = letters.next().map(|(_, quote)| quote);
    while let Some((place, letter)) = letters.next() {
        if has_escapes && letter == '\\' {
            letters.next();
        } else if Some(letter) == quote {
            return place + 1;
        }
    }
    text.len()
}

/// Length of the comment at the start of the text; comments nest.
fn comment_bytes(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let step = match rest {
            _ if rest.starts_with("/*") => {
                depth += 1;
                2
            }
            _ if rest.starts_with("*/") => {
                depth = depth.saturating_sub(1);
                2
            }
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_kind() {
        let text = "select E'it\\'s', 'ä''b', \"from\", $x$ from $x$, 1.5e3 -- from\nFROM t /* a /* b */ c */ WHERE x = $1 AND 'open";
        let found = pieces(text);
        assert_eq!(found.iter().map(|(_, piece)| *piece).collect::<String>(), text);
        let of = |kind: Kind| -> Vec<&str> {
            found.iter().filter(|(of, _)| *of == kind).map(|(_, piece)| *piece).collect()
        };
        assert_eq!(of(Kind::Word), ["select", "FROM", "WHERE", "AND"]);
        assert_eq!(of(Kind::Text), ["'it\\'s'", "'ä'", "'b'", "$x$ from $x$", "'open"]);
        assert_eq!(of(Kind::Number), ["1.5e3", "1"]);
        assert_eq!(of(Kind::Comment), ["-- from", "/* a /* b */ c */"]);
        assert_eq!(pieces("\\d users"), [(Kind::Command, "\\d users")]);
    }
}
