//! Splits a text into statements at semicolons outside quotes, comments and dollar quotes. A line that starts
//! with `.` or `\` where a statement may start is a shell command.

/// The lexical context at a position of a text.
enum In {
    Plain,
    /// The closing quote, and whether a backslash escapes it.
    Quotes(u8, bool),
    Line,
    /// Comments nest.
    Comment(usize),
    Dollar(String),
}

/// Returns the first statement without its semicolon, and the rest; `None` if no statement ends in the text.
pub(crate) fn first(text: &str) -> Option<(&str, &str)> {
    let (end, behind) = walk(text).ok()?;
    Some((text.get(..end)?, text.get(behind..)?))
}

/// True if the text ends between statements.
pub(crate) fn is_whole(text: &str) -> bool {
    let mut rest = text;
    loop {
        match walk(rest) {
            Ok((_, behind)) => rest = rest.get(behind..).unwrap_or_default(),
            Err(is_plain) => return is_plain && is_blank(rest),
        }
    }
}

/// The text after the last complete statement; a shell command ends with its line.
pub(crate) fn last(text: &str) -> &str {
    let mut rest = text;
    while let Some((statement, behind)) = first(rest) {
        if behind.is_empty() && is_command(statement) {
            break;
        }
        rest = behind;
    }
    rest
}

/// The text without leading whitespace and comments.
pub(crate) fn bare(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        rest = match rest.strip_prefix("--") {
            Some(comment) => comment.split_once('\n').map_or("", |(_, behind)| behind).trim_start(),
            None if rest.starts_with("/*") => match rest.split_once("*/") {
                Some((_, behind)) => behind.trim_start(),
                None => return rest,
            },
            None => return rest,
        }
    }
}

/// True if the text is only whitespace and comments.
pub(crate) fn is_blank(text: &str) -> bool {
    bare(text).is_empty()
}

/// True for shell commands.
pub(crate) fn is_command(text: &str) -> bool {
    bare(text).starts_with(['.', '\\'])
}

/// Scans to the end of the first statement and the start of the next. The error says whether the text is
/// outside quotes and comments at its end.
fn walk(text: &str) -> Result<(usize, usize), bool> {
    let bytes = text.as_bytes();
    let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
    let mut place = 0;
    let mut state = In::Plain;
    // Set after whitespace and comments.
    let mut is_begun = false;
    while place < bytes.len() {
        let (byte, next) = (at(place), at(place + 1));
        let mut step = 1;
        state = match state {
            In::Plain => match (byte, next) {
                (b';', _) => return Ok((place, place + 1)),
                (b'.' | b'\\', _) if !is_begun => {
                    let line = text.get(place..).unwrap_or_default();
                    let end = place + line.find('\n').unwrap_or(line.len());
                    return Ok((end, end));
                }
                (b'-', b'-') => In::Line,
                (b'/', b'*') => {
                    step = 2;
                    In::Comment(1)
                }
                _ if byte.is_ascii_whitespace() => In::Plain,
                _ => {
                    is_begun = true;
                    match byte {
                        b'\'' => {
                            let marks = place.checked_sub(1).map_or(0, at).eq_ignore_ascii_case(&b'e');
                            let is_word = place.checked_sub(2).map_or(0, at).is_ascii_alphanumeric();
                            In::Quotes(byte, marks && !is_word)
                        }
                        b'"' => In::Quotes(byte, false),
                        b'$' => match dollar_tag(text.get(place..).unwrap_or_default()) {
                            Some(tag) => {
                                step = tag.len();
                                In::Dollar(tag.to_owned())
                            }
                            None => In::Plain,
                        },
                        _ => In::Plain,
                    }
                }
            },
            In::Quotes(quote, true) if byte == b'\\' => {
                step = 2;
                In::Quotes(quote, true)
            }
            // A doubled quote leaves the quotes and enters them again.
            In::Quotes(quote, _) if byte == quote => In::Plain,
            In::Line if byte == b'\n' => In::Plain,
            In::Comment(depth) if (byte, next) == (b'/', b'*') => {
                step = 2;
                In::Comment(depth + 1)
            }
            In::Comment(depth) if (byte, next) == (b'*', b'/') => {
                step = 2;
                if depth == 1 { In::Plain } else { In::Comment(depth - 1) }
            }
            In::Dollar(tag) if text.get(place..).is_some_and(|rest| rest.starts_with(&tag)) => {
                step = tag.len();
                In::Plain
            }
            same => same,
        };
        place += step;
    }
    Err(matches!(state, In::Plain | In::Line))
}

/// `$$` or `$name$` at the beginning of a text.
pub(crate) fn dollar_tag(text: &str) -> Option<&str> {
    let end = text.get(1..)?.find('$')? + 2;
    let tag = text.get(..end)?;
    let name = tag.trim_matches('$');
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (plain && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> (Vec<&str>, &str) {
        let (mut found, mut rest) = (Vec::new(), text);
        while let Some((statement, behind)) = first(rest) {
            found.push(statement);
            rest = behind;
        }
        (found, rest)
    }

    #[test]
    fn semicolons_in_quotes_and_comments_end_nothing() {
        let text = "SELECT ';' || \"a;b\" || E'\\';' || 'x\\'; -- not ; here\nSELECT $$;$$, $x$ ; $$ ; $x$ /* ; /* ; */ ; */; SELECT $1";
        let (statements, rest) = all(text);
        assert_eq!(statements.len(), 2);
        assert_eq!(rest, " SELECT $1");
        assert!(is_whole("SELECT 1; -- done"));
        assert!(is_whole("SELECT 'it''s'; \n"));
        for open in ["SELECT 1", "SELECT ';", "SELECT 1; /* ;", "SELECT $a$ ; $$;", "SELECT E'\\';"] {
            assert!(!is_whole(open), "{open}");
        }
        assert!(is_blank(" -- a\n /* b */ \n") && !is_blank("-- a\nSELECT"));
        assert_eq!((last("SELECT 1; SELECT"), last("SELECT 1;"), last("\\d a")), (" SELECT", "", "\\d a"));
    }

    #[test]
    fn commands_end_with_their_lines() {
        let script = "\\dt\nSELECT 1; .mode csv\n SELECT .5";
        assert_eq!(all(script), (vec!["\\dt", "\nSELECT 1", " .mode csv"], "\n SELECT .5"));
        assert!(is_command(" \\d t") && !is_command("SELECT .5"));
    }
}
