//! The parsed COPY statement: source or target, direction, format and options.

use sqlparser::ast;

use crate::error::{Result, SqlError, state};

/// Direction of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    From,
    To,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Copied {
    Table { table: String, columns: Option<Vec<String>> },
    Query(Box<ast::Query>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Csv,
    Binary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    None,
    /// A line of names, which is skipped.
    Line,
    /// A line that must name the columns.
    Match,
}

/// The columns that a FORCE option applies to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Forced {
    #[default]
    None,
    All,
    Columns(Vec<String>),
}

impl Forced {
    /// Whether the option applies, for each of these columns.
    pub(crate) fn among(&self, columns: &[String]) -> Result<Vec<bool>> {
        match self {
            Self::None => Ok(vec![false; columns.len()]),
            Self::All => Ok(vec![true; columns.len()]),
            Self::Columns(names) => {
                if let Some(name) = names.iter().find(|name| !columns.contains(name)) {
                    let message = format!("column \"{name}\" is not copied");
                    return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
                }
                Ok(columns.iter().map(|column| names.contains(column)).collect())
            }
        }
    }
}

/// A COPY statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CopyStatement {
    pub(crate) what: Copied,
    pub(crate) direction: Direction,
    pub(crate) format: Format,
    pub(crate) header: Header,
    delimiter: Option<u8>,
    null: Option<String>,
    quote: Option<u8>,
    escape: Option<u8>,
    freezes: bool,
    pub(crate) force_quote: Forced,
    pub(crate) force_not_null: Forced,
    pub(crate) force_null: Forced,
}

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// Parses an option value that must be one single-byte character.
fn one_byte(option: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] if *byte != b'\n' && *byte != b'\r' => Ok(*byte),
        _ => Err(SqlError::new(
            state::FEATURE_NOT_SUPPORTED,
            format!("COPY {option} must be a single one-byte character"),
        )),
    }
}

impl CopyStatement {
    pub(crate) fn new(what: Copied, direction: Direction) -> Self {
        Self {
            what,
            direction,
            format: Format::Text,
            header: Header::None,
            delimiter: None,
            null: None,
            quote: None,
            escape: None,
            freezes: false,
            force_quote: Forced::None,
            force_not_null: Forced::None,
            force_null: Forced::None,
        }
    }

    /// Sets an option by its name.
    pub(crate) fn set(&mut self, option: &str, text: &str) -> Result<()> {
        match option {
            "format" => {
                self.format = match text {
                    "text" => Format::Text,
                    "csv" => Format::Csv,
                    "binary" => Format::Binary,
                    _ => return Err(wrong(format!("COPY format \"{text}\" not recognized"))),
                }
            }
            "header" => {
                self.header = match text {
                    "match" => Header::Match,
                    "true" => Header::Line,
                    _ => Header::None,
                }
            }
            // No effect: rows are never rewritten to be frozen, and no reader sees them before the commit.
            "freeze" => self.freezes = text == "true",
            "delimiter" => self.delimiter = Some(one_byte(option, text)?),
            "quote" => self.quote = Some(one_byte(option, text)?),
            "escape" => self.escape = Some(one_byte(option, text)?),
            "null" if text.contains(['\n', '\r']) => {
                return Err(wrong("COPY null representation cannot use newline or carriage return"));
            }
            "null" => self.null = Some(text.to_owned()),
            "encoding" if matches!(text.to_ascii_lowercase().as_str(), "utf8" | "utf-8") => {}
            "encoding" => return Err(SqlError::unsupported(format!("encoding {text}"), "use UTF8")),
            _ => {
                let message = format!("option \"{option}\" not recognized");
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
        }
        Ok(())
    }

    /// Sets a FORCE option; `None` means all columns.
    pub(crate) fn force(&mut self, option: &str, columns: Option<Vec<String>>) -> Result<()> {
        let forced = columns.map_or(Forced::All, Forced::Columns);
        match option {
            "force_quote" => self.force_quote = forced,
            "force_not_null" => self.force_not_null = forced,
            _ => self.force_null = forced,
        }
        Ok(())
    }

    /// Rejects options that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: &str| Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
        let syntax = |message: &str| Err(SqlError::new(state::SYNTAX_ERROR, message));
        let (binary, csv) = (self.format == Format::Binary, self.format == Format::Csv);
        let to = self.direction == Direction::To;
        match self {
            _ if binary && self.delimiter.is_some() => syntax("cannot specify DELIMITER in BINARY mode"),
            _ if binary && self.null.is_some() => syntax("cannot specify NULL in BINARY mode"),
            _ if binary && self.header != Header::None => refuse("cannot specify HEADER in BINARY mode"),
            _ if !csv && self.quote.is_some() => refuse("COPY quote available only in CSV mode"),
            _ if !csv && self.escape.is_some() => refuse("COPY escape available only in CSV mode"),
            _ if !(csv && to) && self.force_quote != Forced::None => {
                refuse("COPY force quote only available in CSV mode, using COPY TO")
            }
            _ if (to || !csv) && self.force_not_null != Forced::None => {
                refuse("COPY force not null only available in CSV mode, using COPY FROM")
            }
            _ if (to || !csv) && self.force_null != Forced::None => {
                refuse("COPY force null only available in CSV mode, using COPY FROM")
            }
            _ if to && self.header == Header::Match => refuse("cannot use \"match\" with HEADER in COPY TO"),
            _ if to && self.freezes => refuse("COPY freeze only available using COPY FROM"),
            _ if !csv && b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&self.delimiter()) => {
                wrong_delimiter(self.delimiter())
            }
            _ if csv && self.delimiter() == self.quote() => {
                Err(wrong("COPY delimiter and quote must be different"))
            }
            _ if self.null().contains(char::from(self.delimiter())) => {
                Err(wrong("COPY delimiter must not appear in the NULL specification"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn delimiter(&self) -> u8 {
        self.delimiter.unwrap_or(if self.format == Format::Csv { b',' } else { b'\t' })
    }

    pub(crate) fn null(&self) -> &str {
        self.null.as_deref().unwrap_or(if self.format == Format::Csv { "" } else { "\\N" })
    }

    pub(crate) fn quote(&self) -> u8 {
        self.quote.unwrap_or(b'"')
    }

    pub(crate) fn escape(&self) -> u8 {
        self.escape.unwrap_or_else(|| self.quote())
    }
}

fn wrong_delimiter(delimiter: u8) -> Result<()> {
    Err(wrong(format!("COPY delimiter cannot be \"{}\"", char::from(delimiter))))
}
