//! Statements that we parse ourselves, from the parser's tokens: COPY, cursors, sequences, COMMENT, VACUUM
//! and similar ones, whose syntax in PostgreSQL differs from the parser's.
//!
//! The first words decide whether a statement belongs here; all others go to the parser.

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError, state};
use crate::syntax::copy_statement::{Copied, CopyStatement, Direction};
use crate::syntax::cursor_syntax;
use crate::syntax::cursor_syntax::{Declare, Fetch};
use crate::syntax::projections::{self, ProjectionStatement};

/// A utility statement.
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
    /// SET CONSTRAINTS.
    SetConstraints(SetConstraints),
    /// CREATE SEQUENCE and ALTER SEQUENCE.
    Sequence(SequenceStatement),
    /// ALTER TYPE ... OWNER TO.
    TypeOwner(String),
    /// ALTER ... SET SCHEMA.
    Move(MoveTo),
    /// ALTER TABLE ... ALTER COLUMN ... ADD GENERATED AS IDENTITY.
    Identity(AddIdentity),
    /// Other forms of ALTER TABLE ... ALTER COLUMN that the parser does not know.
    Generation(AlterGeneration),
    /// ALTER INDEX ... RENAME TO.
    RenameIndex {
        name: String,
        if_exists: bool,
        new: String,
    },
    /// CREATE EXTENSION.
    CreateExtension(CreateExtension),
    /// DROP EXTENSION.
    DropExtension {
        names: Vec<String>,
        if_exists: bool,
    },
    Merge(Box<MergeStatement>),
    Declare(Declare),
    Fetch(Fetch),
    Projection(Box<ProjectionStatement>),
    /// COMMENT ON; without a text the comment is removed.
    Comment {
        on: Commented,
        text: Option<String>,
    },
}

/// SET CONSTRAINTS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetConstraints {
    /// Schema and name of each; `None` for ALL.
    pub(crate) names: Option<Vec<(Option<String>, String)>>,
    /// DEFERRED; false for IMMEDIATE.
    pub(crate) defers: bool,
}

/// MERGE in the parser's form, which lacks DO NOTHING.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MergeStatement {
    pub(crate) merge: ast::Merge,
    /// The numbers of the DO NOTHING clauses.
    pub(crate) idle: Vec<usize>,
}

/// CREATE SEQUENCE or ALTER SEQUENCE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SequenceStatement {
    pub(crate) alters: bool,
    pub(crate) name: String,
    /// IF EXISTS of ALTER, IF NOT EXISTS of CREATE.
    pub(crate) exists: bool,
    pub(crate) changes: Vec<SequenceChange>,
}

/// An option of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SequenceChange {
    /// Size of its type in bytes.
    Type(i64),
    Increment(i64),
    /// `None`: the default.
    Least(Option<i64>),
    Greatest(Option<i64>),
    Start(i64),
    Restart(Option<i64>),
    Cycle(bool),
    /// Table and column.
    OwnedBy(Option<(String, String)>),
    Rename(String),
}

/// A column that becomes an identity column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddIdentity {
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) always: bool,
    pub(crate) changes: Vec<SequenceChange>,
}

/// A change of how the values of a column are generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlterGeneration {
    pub(crate) table: String,
    /// IF EXISTS of the table.
    pub(crate) if_exists: bool,
    pub(crate) column: String,
    pub(crate) change: GenerationChange,
}

/// A part of [`AlterGeneration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GenerationChange {
    /// SET GENERATED ALWAYS, or BY DEFAULT.
    SetGenerated {
        always: bool,
    },
    DropIdentity {
        if_exists: bool,
    },
    DropExpression {
        if_exists: bool,
    },
}

/// CREATE EXTENSION.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CreateExtension {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    pub(crate) schema: Option<String>,
    pub(crate) version: Option<String>,
}

/// ALTER ... SET SCHEMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MoveTo {
    pub(crate) what: Moved,
    pub(crate) name: String,
    pub(crate) if_exists: bool,
    pub(crate) schema: String,
}

/// Kind of object that is moved to another schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Table,
    View,
    Sequence,
    Type,
}

impl Moved {
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Table => "ALTER TABLE",
            Self::View => "ALTER VIEW",
            Self::Sequence => "ALTER SEQUENCE",
            Self::Type => "ALTER TYPE",
        }
    }
}

/// Object of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Commented {
    Table(String),
    Column(String, String),
    Index(String),
    Sequence(String),
    View(String),
    /// Table and name.
    Constraint(String, String),
    Database(String),
    Schema(String),
    Type(String),
}

impl Utility {
    /// The first words, for messages.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Copy(_) => "COPY",
            Self::Vacuum { command, .. } => command,
            Self::LockForReading(_) => "LOCK TABLE",
            Self::ShowAll => "SHOW",
            Self::SetConstraints(_) => "SET CONSTRAINTS",
            Self::Sequence(SequenceStatement { alters: true, .. }) => "ALTER SEQUENCE",
            Self::Sequence(_) => "CREATE SEQUENCE",
            Self::TypeOwner(_) => "ALTER TYPE",
            Self::Identity(_) | Self::Generation(_) => "ALTER TABLE",
            Self::RenameIndex { .. } => "ALTER INDEX",
            Self::CreateExtension(_) => "CREATE EXTENSION",
            Self::DropExtension { .. } => "DROP EXTENSION",
            Self::Move(moved) => moved.what.command(),
            Self::Comment { .. } => "COMMENT",
            Self::Merge(_) => "MERGE",
            Self::Declare(_) => "DECLARE CURSOR",
            Self::Fetch(Fetch { moves: true, .. }) => "MOVE",
            Self::Fetch(_) => "FETCH",
            Self::Projection(statement) => statement.command(),
        }
    }
}

/// The statement of these tokens, if it is one of ours.
///
/// # Errors
/// 42601; 0A000 for unsupported options.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Utility>> {
    let tokens: Vec<&Token> =
        tokens.iter().map(|t| &t.token).filter(|t| !matches!(t, Token::Whitespace(_))).collect();
    let mut words = Words { tokens: &tokens, place: 0 };
    if let Some(moved) = move_to(&mut words) {
        words.end()?;
        return Ok(Some(moved));
    }
    let utility = match words.word().as_deref() {
        Some("copy") => copy(&mut words)?,
        Some("vacuum") => vacuum(&mut words, "VACUUM")?,
        Some("analyze" | "analyse") => vacuum(&mut words, "ANALYZE")?,
        Some("lock") => lock(&mut words)?,
        Some("create") if words.are(&["projection"]) => projection(projections::create(&mut words, false)?),
        Some("create") if words.are(&["or", "replace", "projection"]) => {
            projection(projections::create(&mut words, true)?)
        }
        Some("alter") if words.are(&["projection"]) => projection(projections::alter(&mut words)?),
        Some("drop") if words.are(&["projection"]) => projection(projections::drop(&mut words)?),
        Some("create") if words.are(&["sequence"]) => sequence(&mut words, false)?,
        Some("alter") if words.are(&["sequence"]) => sequence(&mut words, true)?,
        Some("alter") if words.are(&["type"]) => match type_owner(&mut words) {
            Some(utility) => utility,
            None => return Ok(None),
        },
        Some("create") if words.are(&["extension"]) => create_extension(&mut words)?,
        Some("drop") if words.are(&["extension"]) => drop_extension(&mut words)?,
        Some("alter") if words.are(&["index"]) => match rename_index(&mut words)? {
            Some(utility) => utility,
            None => return Ok(None),
        },
        Some("alter") => match alter_generation(&mut words)? {
            Some(utility) => utility,
            None => return Ok(None),
        },
        Some("merge") => merge(&mut words)?,
        Some("declare") => cursor_syntax::declare(&mut words)?,
        Some("fetch") => cursor_syntax::fetch(&mut words, false)?,
        Some("move") => cursor_syntax::fetch(&mut words, true)?,
        Some("comment") if words.are(&["on"]) => comment(&mut words)?,
        Some("show") if words.are(&["all"]) => Utility::ShowAll,
        Some("set") if words.are(&["constraints"]) => set_constraints(&mut words)?,
        _ => return Ok(None),
    };
    words.end()?;
    Ok(Some(utility))
}

fn projection(statement: ProjectionStatement) -> Utility {
    Utility::Projection(Box::new(statement))
}

/// Reorders the options of identity columns as the parser expects them; SEQUENCE NAME is dropped, as the
/// sequence is named after the table and the column.
pub(crate) fn identity_in_order(part: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const ORDER: [&str; 6] = ["INCREMENT", "MINVALUE", "MAXVALUE", "START", "CACHE", "CYCLE"];
    let is_word = |token: &TokenWithSpan, word: &str| matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word));
    if !part.iter().any(|token| is_word(token, "IDENTITY")) {
        return part;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(part.len());
    let mut tokens = part.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).peekable();
    while let Some(token) = tokens.next() {
        let begins = is_word(&token, "IDENTITY")
            && out.last().is_some_and(|before| is_word(before, "AS"))
            && tokens.peek().is_some_and(|next| next.token == Token::LParen);
        out.push(token);
        if !begins {
            continue;
        }
        out.extend(tokens.next());
        let mut options: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
        let mut no = None;
        while let Some(token) = tokens.next_if(|token| token.token != Token::RParen) {
            let place = ORDER.iter().position(|word| is_word(&token, word));
            match (place, options.last_mut()) {
                _ if is_word(&token, "NO") => no = Some(token),
                (Some(place), _) => options.push((place, no.take().into_iter().chain([token]).collect())),
                (None, Some((_, option))) => option.push(token),
                (None, None) if is_word(&token, "SEQUENCE") => options.push((usize::MAX, Vec::new())),
                (None, None) => options.push((0, vec![token])),
            }
        }
        options.retain(|(place, _)| *place != usize::MAX);
        options.sort_by_key(|(place, _)| *place);
        out.extend(options.into_iter().flat_map(|(_, option)| option));
    }
    out
}

/// A cursor over tokens.
pub(crate) struct Words<'t> {
    tokens: &'t [&'t Token],
    place: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn peek(&self) -> Option<&'t Token> {
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

    /// Takes the next token if it is an unquoted word, and returns it in lower case; leaves any other token.
    pub(crate) fn word(&mut self) -> Option<String> {
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

    pub(crate) fn expect(&mut self, words: &[&str]) -> Result<()> {
        if self.are(words) { Ok(()) } else { Err(self.error()) }
    }

    pub(crate) fn is(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.place += usize::from(found);
        found
    }

    fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.is(token) { Ok(()) } else { Err(self.error()) }
    }

    /// A name, folded unless it is quoted.
    pub(crate) fn ident(&mut self) -> Result<String> {
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
    pub(crate) fn relation(&mut self) -> Result<String> {
        let parts = self.dotted()?;
        relation_of(&parts)
    }

    pub(crate) fn string(&mut self) -> Result<String> {
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            _ => return Err(self.error()),
        };
        self.place += 1;
        Ok(text)
    }

    pub(crate) fn integer(&mut self) -> Result<i64> {
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

    /// Takes parentheses and returns the tokens in them.
    pub(crate) fn enclosed(&mut self) -> Result<&'t [&'t Token]> {
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
        Ok(self.tokens.get(start..self.place - 1).unwrap_or_default())
    }

    /// Parses the contents of parentheses as a query.
    fn query(&mut self) -> Result<ast::Query> {
        Self::parsed(self.enclosed()?, "COPY")
    }

    /// Parses the remaining tokens as a query.
    pub(crate) fn rest_as_query(&mut self) -> Result<ast::Query> {
        let rest = self.tokens.get(self.place..).unwrap_or_default();
        self.place = self.tokens.len();
        Self::parsed(rest, "DECLARE CURSOR")
    }

    /// True when one token is left.
    pub(crate) fn is_last(&self) -> bool {
        self.place + 1 == self.tokens.len()
    }

    fn parsed(tokens: &[&Token], command: &str) -> Result<ast::Query> {
        let tokens = tokens.iter().map(|token| TokenWithSpan::wrap((*token).clone())).collect();
        match crate::syntax::parse::parsed(tokens)?.as_mut_slice() {
            [ast::Statement::Query(query)] => Ok((**query).clone()),
            _ => Err(SqlError::unsupported(
                format!("{command} of a statement that is no query"),
                "write a SELECT or VALUES",
            )),
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
    crate::syntax::names::table_name(&ast::ObjectName(name.collect()))
}

/// `ALTER ... SET SCHEMA s`, which the parser does not know; `None` for other statements.
fn move_to(words: &mut Words<'_>) -> Option<Utility> {
    let start = words.place;
    let moved = moved_to(words);
    if moved.is_none() {
        words.place = start;
    }
    moved
}

fn moved_to(words: &mut Words<'_>) -> Option<Utility> {
    if !words.are(&["alter"]) {
        return None;
    }
    let what = match words.word()?.as_str() {
        "table" => Moved::Table,
        "view" => Moved::View,
        "sequence" => Moved::Sequence,
        "type" => Moved::Type,
        _ => return None,
    };
    let if_exists = words.are(&["if", "exists"]);
    words.are(&["only"]);
    let name = words.relation().ok()?;
    if !words.are(&["set", "schema"]) {
        return None;
    }
    let schema = words.ident().ok()?;
    Some(Utility::Move(MoveTo { what, name, if_exists, schema }))
}

/// `ALTER TYPE t OWNER TO r`, which the parser does not know.
fn type_owner(words: &mut Words<'_>) -> Option<Utility> {
    let name = words.relation().ok()?;
    let is_about_owner = words.are(&["owner", "to"]) && words.ident().is_ok();
    is_about_owner.then_some(Utility::TypeOwner(name))
}

fn sequence(words: &mut Words<'_>, alters: bool) -> Result<Utility> {
    let exists = if alters { words.are(&["if", "exists"]) } else { words.are(&["if", "not", "exists"]) };
    let name = words.relation()?;
    let changes = sequence_changes(words, alters)?;
    Ok(Utility::Sequence(SequenceStatement { alters, name, exists, changes }))
}

/// `ALTER INDEX [IF EXISTS] i RENAME TO j`.
fn rename_index(words: &mut Words<'_>) -> Result<Option<Utility>> {
    let if_exists = words.are(&["if", "exists"]);
    let Ok(name) = words.relation() else { return Ok(None) };
    if !words.are(&["rename", "to"]) {
        return Ok(None);
    }
    Ok(Some(Utility::RenameIndex { name, if_exists, new: words.ident()? }))
}

/// `CREATE EXTENSION [IF NOT EXISTS] e [WITH] [SCHEMA s] [VERSION v] [CASCADE]`.
fn create_extension(words: &mut Words<'_>) -> Result<Utility> {
    let if_not_exists = words.are(&["if", "not", "exists"]);
    let name = words.ident()?;
    words.are(&["with"]);
    let (mut schema, mut version) = (None, None);
    loop {
        if words.are(&["schema"]) {
            schema = Some(words.ident()?);
        } else if words.are(&["version"]) {
            version = Some(words.string().or_else(|_| words.ident())?);
        } else if !words.are(&["cascade"]) {
            break;
        }
    }
    Ok(Utility::CreateExtension(CreateExtension { name, if_not_exists, schema, version }))
}

/// `DROP EXTENSION [IF EXISTS] e, ... [CASCADE | RESTRICT]`.
fn drop_extension(words: &mut Words<'_>) -> Result<Utility> {
    let if_exists = words.are(&["if", "exists"]);
    let mut names = vec![words.ident()?];
    while words.is(&Token::Comma) {
        names.push(words.ident()?);
    }
    let _ = words.are(&["cascade"]) || words.are(&["restrict"]);
    Ok(Utility::DropExtension { names, if_exists })
}

/// `ALTER TABLE t ALTER c ADD GENERATED ... AS IDENTITY (SEQUENCE NAME s ...)`, which the parser does not know
/// with a name; SET GENERATED, DROP IDENTITY and DROP EXPRESSION.
fn alter_generation(words: &mut Words<'_>) -> Result<Option<Utility>> {
    if !words.are(&["table"]) {
        return Ok(None);
    }
    let if_exists = words.are(&["if", "exists"]);
    words.are(&["only"]);
    let Ok(table) = words.relation() else { return Ok(None) };
    if !words.are(&["alter"]) {
        return Ok(None);
    }
    words.are(&["column"]);
    let Ok(column) = words.ident() else { return Ok(None) };
    let change = if words.are(&["drop", "identity"]) {
        Some(GenerationChange::DropIdentity { if_exists: words.are(&["if", "exists"]) })
    } else if words.are(&["drop", "expression"]) {
        Some(GenerationChange::DropExpression { if_exists: words.are(&["if", "exists"]) })
    } else if words.are(&["set", "generated", "always"]) {
        Some(GenerationChange::SetGenerated { always: true })
    } else if words.are(&["set", "generated", "by", "default"]) {
        Some(GenerationChange::SetGenerated { always: false })
    } else {
        None
    };
    if let Some(change) = change {
        return Ok(Some(Utility::Generation(AlterGeneration { table, if_exists, column, change })));
    }
    if if_exists || !words.are(&["add", "generated"]) {
        return Ok(None);
    }
    let always = words.are(&["always"]);
    if !always && !words.are(&["by", "default"]) || !words.are(&["as", "identity"]) {
        return Err(words.error());
    }
    let mut changes = Vec::new();
    if words.is(&Token::LParen) {
        // The sequence is named after the table and the column.
        if words.are(&["sequence", "name"]) {
            words.relation()?;
        }
        changes = sequence_changes(words, false)?;
        words.expect_token(&Token::RParen)?;
    }
    Ok(Some(Utility::Identity(AddIdentity { table, column, always, changes })))
}

fn sequence_changes(words: &mut Words<'_>, alters: bool) -> Result<Vec<SequenceChange>> {
    let mut changes = Vec::new();
    while words.peek().is_some_and(|token| *token != Token::RParen) {
        changes.push(match words.word().as_deref() {
            Some("as") => SequenceChange::Type(match words.word().as_deref() {
                Some("smallint" | "int2") => 2,
                Some("integer" | "int" | "int4") => 4,
                Some("bigint" | "int8") => 8,
                _ => {
                    let message = "sequence type must be smallint, integer, or bigint";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
            }),
            Some("increment") => {
                words.are(&["by"]);
                SequenceChange::Increment(words.integer()?)
            }
            Some("minvalue") => SequenceChange::Least(Some(words.integer()?)),
            Some("maxvalue") => SequenceChange::Greatest(Some(words.integer()?)),
            Some("start") => {
                words.are(&["with"]);
                SequenceChange::Start(words.integer()?)
            }
            Some("restart") if alters => {
                let says =
                    words.are(&["with"]) || matches!(words.peek(), Some(Token::Number(..) | Token::Minus));
                SequenceChange::Restart(if says { Some(words.integer()?) } else { None })
            }
            Some("cache") => {
                if words.integer()? < 1 {
                    let message = "CACHE must be greater than zero";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
                // Numbers are assigned one by one from a block that is reserved in the log; there is no cache
                // per session.
                continue;
            }
            Some("cycle") => SequenceChange::Cycle(true),
            Some("no") => match words.word().as_deref() {
                Some("cycle") => SequenceChange::Cycle(false),
                Some("minvalue") => SequenceChange::Least(None),
                Some("maxvalue") => SequenceChange::Greatest(None),
                _ => return Err(words.error()),
            },
            Some("owned") => {
                words.expect(&["by"])?;
                let mut parts = words.dotted()?;
                let last = parts.pop().ok_or_else(|| words.error())?;
                SequenceChange::OwnedBy(match parts.as_slice() {
                    [] if last == "none" => None,
                    [] => {
                        return Err(SqlError::new(state::SYNTAX_ERROR, "invalid OWNED BY option")
                            .hint("specify OWNED BY table.column or OWNED BY NONE"));
                    }
                    parts => Some((relation_of(parts)?, last)),
                })
            }
            Some("rename") if alters && changes.is_empty() => {
                words.expect(&["to"])?;
                SequenceChange::Rename(words.ident()?)
            }
            // The owner is ignored: all objects have the same one.
            Some("owner") if alters && changes.is_empty() => {
                words.expect(&["to"])?;
                words.ident()?;
                continue;
            }
            _ => return Err(words.error()),
        });
    }
    Ok(changes)
}

fn comment(words: &mut Words<'_>) -> Result<Utility> {
    let on = match words.word().as_deref() {
        Some("table") => Commented::Table(words.relation()?),
        Some("column") => {
            let mut parts = words.dotted()?;
            let column = parts.pop().ok_or_else(|| words.error())?;
            Commented::Column(relation_of(&parts)?, column)
        }
        Some("index") => Commented::Index(words.relation()?),
        Some("sequence") => Commented::Sequence(words.relation()?),
        Some("view") => Commented::View(words.relation()?),
        Some("constraint") => {
            let name = words.ident()?;
            words.expect(&["on"])?;
            Commented::Constraint(words.relation()?, name)
        }
        Some("type") => Commented::Type(words.relation()?),
        Some("database") => Commented::Database(words.ident()?),
        Some("schema") => Commented::Schema(words.ident()?),
        Some(other) => {
            return Err(SqlError::unsupported(
                format!("COMMENT ON {}", other.to_uppercase()),
                "comments are on tables, columns, indexes, constraints, sequences, views, types, the schema and the database",
            ));
        }
        None => return Err(words.error()),
    };
    words.expect(&["is"])?;
    let text = if words.are(&["null"]) { None } else { Some(words.string()?) };
    Ok(Utility::Comment { on, text: text.filter(|text| !text.is_empty()) })
}

/// Parses MERGE: the parser gets an action that it knows in place of DO NOTHING.
fn merge(words: &mut Words<'_>) -> Result<Utility> {
    let word = |text: &str| Token::make_keyword(text);
    let (mut tokens, mut idle) = (vec![word("MERGE")], Vec::new());
    let (mut depth, mut whens, mut is_matched) = (0_usize, 0_usize, true);
    while let Some(token) = words.peek() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && words.are(&["when", "not", "matched"]) => {
                (whens, is_matched) = (whens + 1, false);
                tokens.extend(["WHEN", "NOT", "MATCHED"].map(word));
                continue;
            }
            _ if depth == 0 && words.are(&["when", "matched"]) => {
                (whens, is_matched) = (whens + 1, true);
                tokens.extend(["WHEN", "MATCHED"].map(word));
                continue;
            }
            _ if depth == 0 && whens > 0 && words.are(&["then", "do", "nothing"]) => {
                idle.push(whens - 1);
                tokens.extend(if is_matched {
                    ["THEN", "DELETE"].map(word).to_vec()
                } else {
                    ["THEN", "INSERT", "VALUES"].map(word).to_vec()
                });
                if !is_matched {
                    tokens.extend([Token::LParen, word("NULL"), Token::RParen]);
                }
                continue;
            }
            _ => {}
        }
        tokens.push(token.clone());
        words.place += 1;
    }
    let mut parsed = crate::syntax::parse::parsed(tokens.into_iter().map(TokenWithSpan::wrap).collect())?;
    match (parsed.pop(), parsed.is_empty()) {
        (Some(ast::Statement::Merge(merge)), true) => {
            Ok(Utility::Merge(Box::new(MergeStatement { merge, idle })))
        }
        _ => Err(words.error()),
    }
}

/// `SET CONSTRAINTS { ALL | name, ... } { DEFERRED | IMMEDIATE }`.
fn set_constraints(words: &mut Words<'_>) -> Result<Utility> {
    let names = if words.are(&["all"]) {
        None
    } else {
        let mut names = Vec::new();
        loop {
            let mut parts = words.dotted()?;
            let name = parts.pop().ok_or_else(|| words.error())?;
            names.push(match parts.as_slice() {
                [] => (None, name),
                [schema] => (Some(schema.clone()), name),
                _ => return Err(words.error()),
            });
            if !words.is(&Token::Comma) {
                break Some(names);
            }
        }
    };
    let defers = words.are(&["deferred"]);
    if !defers {
        words.expect(&["immediate"])?;
    }
    Ok(Utility::SetConstraints(SetConstraints { names, defers }))
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
            "table locks do not block: a conflicting transaction fails with 40001 and must be retried",
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
