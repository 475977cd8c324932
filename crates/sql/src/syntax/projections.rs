//! CREATE, ALTER and DROP PROJECTION, and the event in the statements of a projection.
//!
//! ```text
//! CREATE [OR REPLACE] PROJECTION name [VERSION n] FROM EVENTS store
//!     [INTO {table | COLLECTION database.name}, ...] [ON ERROR STOP | PARK]
//!     ON 'type', ... DO (statement; ...) ...
//! ALTER PROJECTION name PAUSE | RESUME | REBUILD | RETRY [position] | SKIP [position]
//! DROP PROJECTION [IF EXISTS] name
//! ```
//! A declaration is stored as this text. `event.column` in a statement becomes a parameter with the column's
//! type before the statement is parsed, so that it is planned once and run for each event.

use core::fmt;
use std::collections::BTreeSet;

use ropewalk::Query;
use ropewalk::projections::Output;
use ropewalk::tables::{PUBLIC, Scalar, Type, schema_and_name};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Result, SqlError, state};
use crate::syntax::names::{ident, literal, said};
use crate::syntax::statements::Words;

/// Columns of an event, as in the relation of an event store.
pub(crate) const EVENT_COLUMNS: [(&str, Type); 8] = [
    ("position", Type::INT8),
    ("type", Type::TEXT),
    ("tags", Type::Array(Scalar::Text)),
    ("data", Type::BYTEA),
    ("json", Type::JSON),
    ("metadata", Type::JSON),
    ("recorded_at", Type::TIMESTAMPTZ),
    ("id", Type::UUID),
];

/// Handling of an event that cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The projection stops at the event.
    #[default]
    Stop,
    /// The event is set aside, and the projection continues.
    Park,
}

impl OnError {
    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "STOP",
            Self::Park => "PARK",
        }
    }
}

/// The statements that a projection runs for events of some types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionRule {
    /// Types of the events.
    pub types: Vec<String>,
    /// INSERT, UPDATE, DELETE and MERGE statements, which run in this order.
    pub statements: Vec<String>,
}

/// A declared projection: its source, its outputs, and the statements of each event type.
///
/// Its text is CREATE PROJECTION.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionDef {
    /// Name of the projection.
    pub name: String,
    /// Version that the author gives it.
    pub version: u64,
    /// The event store.
    pub store: String,
    /// Tables and collections that it writes, exclusively; empty: those that its statements write.
    pub outputs: Vec<Output>,
    /// Handling of an event that cannot be applied.
    pub on_error: OnError,
    /// Statements of each type; several rules may name a type.
    pub rules: Vec<ProjectionRule>,
}

impl ProjectionDef {
    /// The types of the events that it applies; a type may occur more than once.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(|rule| &rule.types).map(String::as_str)
    }

    /// The tables that it writes, as SQL names.
    pub fn tables(&self) -> Vec<String> {
        self.outputs.iter().filter(|output| matches!(output, Output::Table(_))).map(named).collect()
    }

    /// The collections that it writes, as SQL names.
    pub fn collections(&self) -> Vec<String> {
        self.outputs.iter().filter(|output| matches!(output, Output::Collection { .. })).map(named).collect()
    }

    /// The events that it applies.
    pub fn query(&self) -> Query {
        let types: BTreeSet<&str> = self.types().collect();
        Query::from_types(types)
    }
}

/// The name of an output as SQL text.
fn named(output: &Output) -> String {
    match output {
        Output::Table(kept) => match schema_and_name(kept) {
            (PUBLIC, name) => ident(name),
            (schema, name) => format!("{}.{}", ident(schema), ident(name)),
        },
        Output::Collection { database, name } => format!("{}.{}", ident(database), ident(name)),
    }
}

/// An output in INTO.
fn shown(output: &Output) -> String {
    match output {
        Output::Table(_) => named(output),
        Output::Collection { .. } => format!("COLLECTION {}", named(output)),
    }
}

fn list<T>(items: &[T], shown: impl Fn(&T) -> String) -> String {
    items.iter().map(shown).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for ProjectionDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, store) = (ident(&self.name), ident(&self.store));
        write!(f, "CREATE PROJECTION {name} VERSION {} FROM EVENTS {store}", self.version)?;
        if !self.outputs.is_empty() {
            write!(f, " INTO {}", list(&self.outputs, shown))?;
        }
        write!(f, " ON ERROR {}", self.on_error.name())?;
        for rule in &self.rules {
            let types = list(&rule.types, |name| literal(name));
            write!(f, "\n  ON {types} DO ({})", rule.statements.join("; "))?;
        }
        Ok(())
    }
}

/// A statement about a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProjectionStatement {
    Create { def: ProjectionDef, or_replace: bool },
    Alter { name: String, change: ProjectionChange },
    Drop { name: String, if_exists: bool },
}

/// A change of a declared projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionChange {
    /// Stops applying events.
    Pause,
    /// Continues after a pause.
    Resume,
    /// Builds new outputs from the first event, next to the live ones, and replaces them.
    Rebuild,
    /// Applies a parked or failing event again; without a position all of them.
    Retry(Option<u64>),
    /// Skips the failing event, or discards a parked one; without a position the failing one.
    Skip(Option<u64>),
}

impl ProjectionStatement {
    /// The first words, for messages.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE PROJECTION",
            Self::Alter { .. } => "ALTER PROJECTION",
            Self::Drop { .. } => "DROP PROJECTION",
        }
    }
}

/// Parses what follows CREATE [OR REPLACE] PROJECTION.
pub(crate) fn create(words: &mut Words<'_>, or_replace: bool) -> Result<ProjectionStatement> {
    let name = words.ident()?;
    let version = if words.are(&["version"]) { number(words)? } else { 1 };
    words.expect(&["from", "events"])?;
    let store = match words.peek() {
        Some(Token::SingleQuotedString(_)) => words.string()?,
        _ => words.ident()?,
    };
    let mut outputs = Vec::new();
    if words.are(&["into"]) {
        outputs.push(output(words)?);
        while words.is(&Token::Comma) {
            outputs.push(output(words)?);
        }
    }
    let on_error = match words.are(&["on", "error"]) {
        false => OnError::default(),
        true if words.are(&["stop"]) => OnError::Stop,
        true => words.expect(&["park"]).map(|()| OnError::Park)?,
    };
    let mut rules = Vec::new();
    while rules.is_empty() || words.peek().is_some() {
        words.expect(&["on"])?;
        let mut types = vec![words.string()?];
        while words.is(&Token::Comma) {
            types.push(words.string()?);
        }
        words.expect(&["do"])?;
        rules.push(ProjectionRule { types, statements: statements(words)? });
    }
    let def = ProjectionDef { name, version, store, outputs, on_error, rules };
    Ok(ProjectionStatement::Create { def, or_replace })
}

/// Parses an output in INTO. A table may have the name `collection`.
fn output(words: &mut Words<'_>) -> Result<Output> {
    let table = words.relation()?;
    let is_collection = table == "collection"
        && matches!(words.peek(), Some(Token::Word(word)) if word.keyword != Keyword::ON);
    if !is_collection {
        return Ok(Output::Table(table));
    }
    match said(&words.relation()?) {
        (Some(database), name) => Ok(Output::collection_in(database, name)),
        (None, name) => {
            let message = format!("collection \"{name}\" has no database");
            Err(SqlError::new(state::SYNTAX_ERROR, message).hint("write COLLECTION database.name"))
        }
    }
}

/// Parses what follows ALTER PROJECTION.
pub(crate) fn alter(words: &mut Words<'_>) -> Result<ProjectionStatement> {
    let name = words.ident()?;
    let position = |words: &mut Words<'_>| words.peek().map(|_| number(words)).transpose();
    let change = if words.are(&["pause"]) {
        ProjectionChange::Pause
    } else if words.are(&["resume"]) {
        ProjectionChange::Resume
    } else if words.are(&["rebuild"]) {
        ProjectionChange::Rebuild
    } else if words.are(&["retry"]) {
        ProjectionChange::Retry(position(words)?)
    } else {
        words.expect(&["skip"])?;
        ProjectionChange::Skip(position(words)?)
    };
    Ok(ProjectionStatement::Alter { name, change })
}

/// Parses what follows DROP PROJECTION.
pub(crate) fn drop(words: &mut Words<'_>) -> Result<ProjectionStatement> {
    let if_exists = words.are(&["if", "exists"]);
    Ok(ProjectionStatement::Drop { name: words.ident()?, if_exists })
}

fn number(words: &mut Words<'_>) -> Result<u64> {
    u64::try_from(words.integer()?)
        .map_err(|_| SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "the number must not be negative"))
}

/// The statements in parentheses, as text.
fn statements(words: &mut Words<'_>) -> Result<Vec<String>> {
    let inner = words.enclosed()?;
    let mut statements = Vec::new();
    for part in inner.split(|token| **token == Token::SemiColon) {
        if !part.is_empty() {
            statements.push(text_of(part.iter().copied()));
        }
    }
    if statements.is_empty() {
        return Err(SqlError::new(state::SYNTAX_ERROR, "DO needs at least one statement"));
    }
    Ok(statements)
}

/// The statements of a text, in the form in which they are stored.
///
/// # Errors
/// 42601.
pub(crate) fn tidy(text: &str) -> Result<Vec<String>> {
    let tokens = tokens(text)?;
    let parts = tokens.split(|token| *token == Token::SemiColon).filter(|part| !part.is_empty());
    Ok(parts.map(text_of).collect())
}

/// The tokens of a text, without blanks and comments.
fn tokens(text: &str) -> Result<Vec<Token>> {
    let text = crate::syntax::squeezing::bounded(text)?;
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize();
    let mut tokens = tokens.map_err(|error| SqlError::new(state::SYNTAX_ERROR, error.to_string()))?;
    tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
    Ok(tokens)
}

/// SQL text of tokens. The tokens' own display does not escape quotes.
fn text_of<'t>(tokens: impl IntoIterator<Item = &'t Token>) -> String {
    let mut text = String::new();
    let mut before: Option<&Token> = None;
    for token in tokens {
        let sticks = matches!(
            (before, token),
            (None | Some(Token::LParen | Token::LBracket | Token::Period | Token::DoubleColon), _)
                | (Some(Token::Word(_) | Token::RParen | Token::RBracket), Token::LBracket)
                | (_, Token::RParen | Token::RBracket | Token::Comma | Token::Period | Token::DoubleColon)
        );
        if !sticks {
            text.push(' ');
        }
        match token {
            Token::Word(word) if word.quote_style.is_some() => {
                text.push_str(&format!("\"{}\"", word.value.replace('"', "\"\"")));
            }
            Token::SingleQuotedString(content)
            | Token::EscapedStringLiteral(content)
            | Token::UnicodeStringLiteral(content)
            | Token::NationalStringLiteral(content) => text.push_str(&literal(content)),
            other => text.push_str(&other.to_string()),
        }
        before = Some(token);
    }
    text
}

/// A statement with parameters in place of the event, and the event column of each.
///
/// # Errors
/// 42703 for a column that events do not have; 42P02 for a parameter in the text.
pub(crate) fn with_parameters(statement: &str) -> Result<(String, Vec<usize>)> {
    let tokens = tokens(statement)?;
    let (mut out, mut columns): (Vec<Token>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut rest = tokens.as_slice();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if matches!(first, Token::Placeholder(_)) {
            let message = format!("there is no parameter {first}; read the event by its columns");
            return Err(SqlError::new(state::UNDEFINED_PARAMETER, message));
        }
        let is_column = matches!(first, Token::Word(word) if word.quote_style.is_none()
            && word.value.eq_ignore_ascii_case("event"))
            && out.last() != Some(&Token::Period);
        let ([Token::Period, Token::Word(column), after @ ..], true) = (behind, is_column) else {
            out.push(first.clone());
            continue;
        };
        rest = after;
        let wanted = column.value.to_lowercase();
        let place = EVENT_COLUMNS.iter().position(|(name, _)| *name == wanted).ok_or_else(|| {
            let message = format!("column event.{wanted} does not exist");
            let names = EVENT_COLUMNS.map(|(name, _)| name).join(", ");
            SqlError::new(state::UNDEFINED_COLUMN, message).hint(format!("an event has {names}"))
        })?;
        let number = columns.iter().position(|known| *known == place).unwrap_or_else(|| {
            columns.push(place);
            columns.len() - 1
        });
        let parameter = Token::Placeholder(format!("${}", number + 1));
        // The parser takes a subscript after parentheses only.
        match after.first() {
            Some(Token::LBracket) => out.extend([Token::LParen, parameter, Token::RParen]),
            _ => out.push(parameter),
        }
    }
    Ok((text_of(&out), columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse::{self, Statement};
    use crate::syntax::statements::Utility;

    fn parsed(text: &str) -> ProjectionStatement {
        match parse::one(text).unwrap() {
            Statement::Utility(Utility::Projection(statement)) => *statement,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn declaration_is_parsed_from_its_own_text() {
        let text = "CREATE PROJECTION \"P 1\" VERSION 3 FROM EVENTS shop INTO a, s.b, COLLECTION shop.\"Docs\", collection
            ON ERROR PARK
            ON 'It''s', 'B' DO (INSERT INTO a VALUES ('it''s', event.tags[1], \"a\"\"b\"); DELETE FROM s.b WHERE x::int > 1;)
            ON 'C' DO (UPDATE a SET n = n - -1)";
        let ProjectionStatement::Create { def, or_replace: false } = parsed(text) else { panic!() };
        assert_eq!((def.name.as_str(), def.version, def.on_error), ("P 1", 3, OnError::Park));
        assert_eq!(def.rules[0].types, ["It's", "B"]);
        let [a, b, collection] = ["a", "s\u{1f}b", "collection"].map(Output::table);
        assert_eq!(def.outputs, [a, b, Output::collection_in("shop", "Docs"), collection]);
        assert_eq!((def.tables().len(), def.collections()), (3, vec!["shop.\"Docs\"".to_owned()]));
        let insert = "INSERT INTO a VALUES ('it''s', event.tags[1], \"a\"\"b\")";
        assert_eq!(def.rules[0].statements, [insert, "DELETE FROM s.b WHERE x::int > 1"]);
        let ProjectionStatement::Create { def: again, .. } = parsed(&def.to_string()) else { panic!() };
        assert_eq!(again, def);
    }

    #[test]
    fn event_columns_become_parameters() {
        let (text, columns) = with_parameters(
            "INSERT INTO t VALUES (event.json->>'a', Event.position, event.json, event.tags[1])",
        )
        .unwrap();
        assert_eq!(text, "INSERT INTO t VALUES ($1 ->> 'a', $2, $1, ($3)[1])");
        assert_eq!(columns, [4, 0, 2]);
        assert_eq!(with_parameters("SELECT event.x").unwrap_err().state, state::UNDEFINED_COLUMN);
        assert_eq!(with_parameters("SELECT $1").unwrap_err().state, state::UNDEFINED_PARAMETER);
        assert!(with_parameters("SELECT s.event.x").unwrap().1.is_empty());
    }

    #[test]
    fn changes_of_a_projection_are_parsed() {
        let change = |text: &str| match parsed(text) {
            ProjectionStatement::Alter { change, .. } => change,
            other => panic!("{other:?}"),
        };
        assert_eq!(change("ALTER PROJECTION p RETRY 7"), ProjectionChange::Retry(Some(7)));
        assert_eq!(change("ALTER PROJECTION p SKIP"), ProjectionChange::Skip(None));
        assert_eq!(change("ALTER PROJECTION p PAUSE"), ProjectionChange::Pause);
        let drop = ProjectionStatement::Drop { name: "p".into(), if_exists: true };
        assert_eq!(parsed("DROP PROJECTION IF EXISTS p"), drop);
    }
}
