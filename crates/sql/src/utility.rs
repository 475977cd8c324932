//! Statements that we read ourselves, from the parser's tokens: COPY, sequences, COMMENT, VACUUM and the like, whose syntax in
//! PostgreSQL is another one than the parser's.
//!
//! A statement belongs here by its first words; everything else is the parser's.

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::copy::{Copied, CopyStatement, Direction};
use crate::error::{Result, SqlError, state};

/// A statement of ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Utility {
    Copy(CopyStatement),
    /// `VACUUM` and `ANALYZE`: the tables they name.
    Vacuum {
        command: &'static str,
        tables: Vec<String>,
    },
    /// The tables of `LOCK TABLE ... IN ACCESS SHARE MODE`.
    LockForReading(Vec<String>),
    ShowAll,
}

impl Utility {
    /// The first words, for messages.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Copy(_) => "COPY",
            Self::Vacuum { command, .. } => command,
            Self::LockForReading(_) => "LOCK TABLE",
            Self::ShowAll => "SHOW",
        }
    }
}

/// The statement of these tokens, if it is one of ours.
///
/// # Errors
/// 42601; 0A000 for options that are not served.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Utility>> {
    let tokens: Vec<&Token> =
        tokens.iter().map(|t| &t.token).filter(|t| !matches!(t, Token::Whitespace(_))).collect();
    let mut words = Words { tokens: &tokens, place: 0 };
    let utility = match words.word().as_deref() {
        Some("copy") => copy(&mut words)?,
        Some("vacuum") => vacuum(&mut words, "VACUUM")?,
        Some("analyze" | "analyse") => vacuum(&mut words, "ANALYZE")?,
        Some("lock") => lock(&mut words)?,
        Some("show") if words.are(&["all"]) => Utility::ShowAll,
        _ => return Ok(None),
    };
    words.end()?;
    Ok(Some(utility))
}

/// A walk over tokens.
pub(crate) struct Words<'t> {
    tokens: &'t [&'t Token],
    place: usize,
}

impl<'t> Words<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.place).copied()
    }

    fn error(&self) -> SqlError {
        let near = match self.peek() {
            Some(token) => format!("syntax error at or near \"{token}\""),
            None => "syntax error at end of input".into(),
        };
        SqlError::new(state::SYNTAX_ERROR, near)
    }

    fn end(&self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.error()) }
    }

    /// The next token if it is a word without quotes, in lower case; what else it is stays.
    fn word(&mut self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(word)) if word.quote_style.is_none() => {
                self.place += 1;
                Some(word.value.to_lowercase())
            }
            _ => None,
        }
    }

    /// Takes these words if they are next.
    pub(crate) fn are(&mut self, words: &[&str]) -> bool {
        let start = self.place;
        let all = words.iter().all(|word| self.word().as_deref() == Some(word));
        if !all {
            self.place = start;
        }
        all
    }

    fn is(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.place += usize::from(found);
        found
    }

    fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.is(token) { Ok(()) } else { Err(self.error()) }
    }

    /// A name, folded unless it is quoted.
    fn ident(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.place += 1;
                Ok(if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() })
            }
            _ => Err(self.error()),
        }
    }

    fn dotted(&mut self) -> Result<Vec<String>> {
        let mut parts = vec![self.ident()?];
        while self.is(&Token::Period) {
            parts.push(self.ident()?);
        }
        Ok(parts)
    }

    /// The name of a relation.
    fn relation(&mut self) -> Result<String> {
        let parts = self.dotted()?;
        relation_of(&parts)
    }

    fn string(&mut self) -> Result<String> {
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            _ => return Err(self.error()),
        };
        self.place += 1;
        Ok(text)
    }

    fn integer(&mut self) -> Result<i64> {
        let negative = self.is(&Token::Minus);
        if !negative {
            self.is(&Token::Plus);
        }
        let Some(Token::Number(digits, false)) = self.peek() else { return Err(self.error()) };
        let sign = if negative { "-" } else { "" };
        let number = format!("{sign}{digits}").parse().map_err(|_| self.error())?;
        self.place += 1;
        Ok(number)
    }

    /// `(a, b, c)`.
    fn names(&mut self) -> Result<Vec<String>> {
        self.expect_token(&Token::LParen)?;
        let mut names = vec![self.ident()?];
        while self.is(&Token::Comma) {
            names.push(self.ident()?);
        }
        self.expect_token(&Token::RParen)?;
        Ok(names)
    }

    /// What stands between parentheses, as the parser's query.
    fn query(&mut self) -> Result<ast::Query> {
        self.expect_token(&Token::LParen)?;
        let start = self.place;
        let mut depth = 1;
        while depth > 0 {
            match self.peek() {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) => depth -= 1,
                Some(_) => {}
                None => return Err(self.error()),
            }
            self.place += 1;
        }
        let inner = self.tokens.get(start..self.place - 1).unwrap_or_default();
        let tokens = inner.iter().map(|token| (*token).clone()).collect();
        let dialect = PostgreSqlDialect {};
        let mut parser =
            Parser::new(&dialect).with_recursion_limit(crate::parse::DEPTH_MAX).with_tokens(tokens);
        match parser.parse_statements().map_err(crate::parse::refused)?.as_mut_slice() {
            [ast::Statement::Query(query)] => Ok((**query).clone()),
            _ => {
                Err(SqlError::unsupported("COPY of a statement that is no query", "copy a SELECT or VALUES"))
            }
        }
    }

    fn truth(&mut self) -> Result<bool> {
        let word = match self.peek() {
            Some(Token::Number(digits, false)) => digits.clone(),
            Some(Token::SingleQuotedString(text)) => text.to_lowercase(),
            Some(Token::Word(word)) => word.value.to_lowercase(),
            // An option without a value is on.
            _ => return Ok(true),
        };
        let truth = match word.as_str() {
            "true" | "on" | "1" => true,
            "false" | "off" | "0" => false,
            _ => return Err(self.error()),
        };
        self.place += 1;
        Ok(truth)
    }
}

pub(crate) fn relation_of(parts: &[String]) -> Result<String> {
    let name = parts.iter().map(|part| ast::ObjectNamePart::Identifier(ast::Ident::with_quote('"', part)));
    crate::scope::table_name(&ast::ObjectName(name.collect()))
}

fn vacuum(words: &mut Words<'_>, command: &'static str) -> Result<Utility> {
    if words.is(&Token::LParen) {
        loop {
            match words.word().as_deref() {
                Some(
                    "analyze"
                    | "analyse"
                    | "verbose"
                    | "full"
                    | "freeze"
                    | "skip_locked"
                    | "disable_page_skipping"
                    | "index_cleanup"
                    | "process_toast"
                    | "truncate",
                ) => {
                    words.truth()?;
                }
                Some("parallel") => {
                    words.integer()?;
                }
                _ => return Err(words.error()),
            }
            if !words.is(&Token::Comma) {
                break;
            }
        }
        words.expect_token(&Token::RParen)?;
    } else if command == "VACUUM" {
        words.are(&["full"]);
        words.are(&["freeze"]);
        words.are(&["verbose"]);
        let _ = words.are(&["analyze"]) || words.are(&["analyse"]);
    } else {
        words.are(&["verbose"]);
    }
    let mut tables = Vec::new();
    while words.peek().is_some() {
        tables.push(words.relation()?);
        if words.peek() == Some(&Token::LParen) {
            words.names()?;
        }
        if !words.is(&Token::Comma) {
            break;
        }
    }
    Ok(Utility::Vacuum { command, tables })
}

fn lock(words: &mut Words<'_>) -> Result<Utility> {
    words.are(&["table"]);
    let mut tables = Vec::new();
    loop {
        words.are(&["only"]);
        tables.push(words.relation()?);
        if !words.is(&Token::Comma) {
            break;
        }
    }
    if !words.are(&["in", "access", "share", "mode"]) {
        return Err(SqlError::unsupported(
            "LOCK TABLE in this mode",
            "nothing blocks here: a transaction that met another commit fails with 40001 and is run again",
        ));
    }
    words.are(&["nowait"]);
    Ok(Utility::LockForReading(tables))
}

fn copy(words: &mut Words<'_>) -> Result<Utility> {
    let what = if words.peek() == Some(&Token::LParen) {
        Copied::Query(Box::new(words.query()?))
    } else {
        let table = words.relation()?;
        let columns = if words.peek() == Some(&Token::LParen) { Some(words.names()?) } else { None };
        Copied::Table { table, columns }
    };
    let direction = match words.word().as_deref() {
        Some("from") if matches!(what, Copied::Table { .. }) => Direction::From,
        Some("to") => Direction::To,
        _ => return Err(words.error()),
    };
    let (stream, other) = match direction {
        Direction::From => ("stdin", "COPY from a file or program"),
        Direction::To => ("stdout", "COPY to a file or program"),
    };
    if !words.are(&[stream]) {
        return Err(SqlError::unsupported(
            other,
            "use COPY FROM STDIN or COPY TO STDOUT, as psql's \\copy does",
        ));
    }
    let mut copy = CopyStatement::new(what, direction);
    words.are(&["with"]);
    if words.is(&Token::LParen) {
        loop {
            let option = words.ident()?;
            option_of(words, &option, &mut copy)?;
            if !words.is(&Token::Comma) {
                break;
            }
        }
        words.expect_token(&Token::RParen)?;
    } else {
        // The older form: words without parentheses.
        while let Some(option) = words.word() {
            match option.as_str() {
                "binary" | "csv" => copy.set("format", &option)?,
                "header" | "freeze" => copy.set(&option, "true")?,
                "delimiter" | "delimiters" | "null" | "quote" | "escape" | "encoding" => {
                    words.are(&["as"]);
                    let text = words.string()?;
                    copy.set(option.trim_end_matches('s'), &text)?;
                }
                "force" if words.are(&["quote"]) => force(words, "force_quote", &mut copy)?,
                "force" if words.are(&["not", "null"]) => force(words, "force_not_null", &mut copy)?,
                "force" if words.are(&["null"]) => force(words, "force_null", &mut copy)?,
                _ => {
                    words.place -= 1;
                    return Err(words.error());
                }
            }
        }
    }
    copy.check()?;
    Ok(Utility::Copy(copy))
}

fn force(words: &mut Words<'_>, option: &str, copy: &mut CopyStatement) -> Result<()> {
    if option == "force_quote" && words.is(&Token::Mul) {
        return copy.force(option, None);
    }
    let mut names = vec![words.ident()?];
    while words.is(&Token::Comma) {
        names.push(words.ident()?);
    }
    copy.force(option, Some(names))
}

fn option_of(words: &mut Words<'_>, option: &str, copy: &mut CopyStatement) -> Result<()> {
    match option {
        "force_quote" if words.is(&Token::Mul) => copy.force(option, None),
        "force_quote" | "force_not_null" | "force_null" => {
            let names = words.names()?;
            copy.force(option, Some(names))
        }
        "format" => {
            let format = words.ident()?;
            copy.set(option, &format)
        }
        "header" if words.are(&["match"]) => copy.set(option, "match"),
        "header" | "freeze" => {
            let truth = words.truth()?;
            copy.set(option, if truth { "true" } else { "false" })
        }
        _ => {
            let text = words.string()?;
            copy.set(option, &text)
        }
    }
}
