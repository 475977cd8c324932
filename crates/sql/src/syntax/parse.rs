//! Parsing of SQL text to statements by `sqlparser`, within limits.

use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Location, Result, SqlError, state};
use crate::syntax::dialect::Bounded;
use crate::syntax::statements::{self, Utility};

/// Maximum size of a text with one or more statements.
pub(crate) const STATEMENT_BYTES_MAX: usize = 16 << 20;
/// Maximum nesting that the parser follows.
pub(crate) const DEPTH_MAX: usize = 60;
/// Bytes of stack for that nesting. The frames of debug builds, in which the parser is not optimised, are large.
const STACK_NEEDED: usize = if cfg!(debug_assertions) { 16 << 20 } else { 1 << 20 };
/// Maximum number of statements in one text.
const STATEMENTS_MAX: usize = 10_000;
/// Estimated bytes of a plan for each token of its text.
const PLAN_BYTES_PER_TOKEN: u64 = 256;
/// Maximum number of operators in a row on one level of parentheses: the parser makes a tree of that depth.
const CHAIN_MAX: usize = 2000;
/// Maximum number of UNION, EXCEPT and INTERSECT in one statement: planning and execution recurse for each,
/// with larger stack frames.
const SETS_MAX: usize = 250;

fn too_complex(what: String) -> SqlError {
    SqlError::new(state::STATEMENT_TOO_COMPLEX, what).hint("split the statement, or use a list: x IN (...)")
}

/// Rejects chains of operators whose tree would be deeper than the stack allows.
fn check_chains(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![0_usize];
    let mut sets = 0;
    for token in tokens {
        if let Token::Word(word) = &token.token
            && matches!(word.keyword, Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT)
            && word.quote_style.is_none()
        {
            sets += 1;
            if sets > SETS_MAX {
                let what = format!("more than {SETS_MAX} of UNION, EXCEPT and INTERSECT");
                return Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, what)
                    .hint("split the statement, or bring the rows together in a table"));
            }
        }
        let count = match &token.token {
            Token::LParen | Token::LBracket => {
                levels.push(0);
                continue;
            }
            Token::RParen | Token::RBracket => {
                // A chain continues after the parentheses; the parser rejects unbalanced ones.
                if levels.len() > 1 {
                    levels.pop();
                }
                continue;
            }
            Token::Comma | Token::SemiColon => {
                if token.token == Token::SemiColon {
                    sets = 0;
                }
                if let Some(level) = levels.last_mut() {
                    *level = 0;
                }
                continue;
            }
            Token::Word(_)
            | Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Period => match &token.token {
                Token::Word(word)
                    if matches!(
                        word.value.to_ascii_uppercase().as_str(),
                        "AND" | "OR" | "NOT" | "UNION" | "EXCEPT" | "INTERSECT" | "JOIN" | "IS"
                    ) =>
                {
                    1
                }
                _ => 0,
            },
            _ => 1,
        };
        if let Some(level) = levels.last_mut() {
            *level += count;
            if *level > CHAIN_MAX {
                return Err(too_complex(format!("more than {CHAIN_MAX} operators in a row")));
            }
        }
    }
    Ok(())
}

fn syntax(message: &str) -> SqlError {
    let message = message.trim_start_matches("sql parser error: ");
    let mut error = SqlError::new(state::SYNTAX_ERROR, format!("syntax error: {message}"));
    error.location = location(message).map(Box::new);
    error
}

/// The position at the end of the parser's message.
fn location(message: &str) -> Option<Location> {
    let (_, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location { line: line.parse().ok()?, column: column.trim().parse().ok()?, position: None })
}

/// A statement: the parser's, or one of our utility statements.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // there is one at a time, in an Arc
pub(crate) enum Statement {
    Sql(ast::Statement),
    Utility(Utility),
}

impl Statement {
    /// The parser's statement, if it is one.
    pub(crate) fn sql(&self) -> Option<&ast::Statement> {
        match self {
            Self::Sql(statement) => Some(statement),
            Self::Utility(_) => None,
        }
    }
}

impl std::fmt::Display for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql(statement) => statement.fmt(f),
            Self::Utility(utility) => f.write_str(utility.command()),
        }
    }
}

pub(crate) fn refused(dialect: &Bounded, error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded if dialect.is_spent() => {
            let what = "too many ways to read the statement, none of which holds so far";
            SqlError::new(state::STATEMENT_TOO_COMPLEX, what)
                .hint("look for a syntax error within nested calls, or nest fewer of them")
        }
        ParserError::RecursionLimitExceeded => too_complex(format!("nested deeper than {DEPTH_MAX}")),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => syntax(&message),
    }
}

/// Replaces `OPERATOR(pg_catalog.=) ANY` by `= ANY`, the one place where the parser does not take the long
/// form.
fn plain_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_word = |token: &Token, name: &str| matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name));
    if !tokens.iter().any(|token| is_word(&token.token, "operator")) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if let [open, schema, dot, operator, close, after @ ..] = behind
            && is_word(&first.token, "operator")
            && (&open.token, &dot.token, &close.token) == (&Token::LParen, &Token::Period, &Token::RParen)
            && is_word(&schema.token, "pg_catalog")
            && after
                .iter()
                .find(|token| !matches!(token.token, Token::Whitespace(_)))
                .is_some_and(|next| ["any", "all", "some"].iter().any(|word| is_word(&next.token, word)))
        {
            out.push(operator.clone());
            rest = after;
        } else {
            out.push(first.clone());
        }
    }
    out
}

/// Replaces `FETCH FIRST (expression) ROWS ONLY` by `LIMIT (expression)`: there the parser accepts only a
/// literal. WITH TIES stays, after the limit, without a number.
fn fetch_as_limit(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &TokenWithSpan, names: [&str; 2]| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => {
            names.iter().any(|name| word.value.eq_ignore_ascii_case(name))
        }
        _ => false,
    };
    if !tokens.iter().any(|token| is(token, ["fetch", "fetch"])) {
        return tokens;
    }
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((token, behind)) = rest.split_first() {
        rest = behind;
        if let [first, open, after @ ..] = behind
            && is(token, ["fetch", "fetch"])
            && is(first, ["first", "next"])
            && open.token == Token::LParen
            && let Some(length) = enclosed(after)
            && let Some((inner, [rows, with, end @ ..])) = after.split_at_checked(length)
            && is(rows, ["row", "rows"])
            && is(with, ["only", "with"])
        {
            out.push(TokenWithSpan::wrap(Token::make_keyword("LIMIT")));
            out.push(open.clone());
            out.extend_from_slice(inner);
            if is(with, ["with", "with"]) {
                out.extend([token, first, rows, with].into_iter().cloned());
            }
            rest = end;
        } else if let [first, rows, only, end @ ..] = behind
            && is(token, ["fetch", "fetch"])
            && is(first, ["first", "next"])
            && is(rows, ["row", "rows"])
            && is(only, ["only", "only"])
        {
            out.push(TokenWithSpan::wrap(Token::make_keyword("LIMIT")));
            out.push(TokenWithSpan::wrap(Token::Number("1".into(), false)));
            rest = end;
        } else {
            out.push(token.clone());
        }
    }
    out
}

/// Number of tokens up to and including the parenthesis that closes an open one.
fn enclosed(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut open = 1_usize;
    for (place, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open += 1,
            Token::RParen => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(place + 1);
        }
    }
    None
}

/// Removes ONLY before the name of a table: tables have no inheritance here.
fn without_only(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let word = |token: &Token| match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
        _ => None,
    };
    let is_only = |token: &TokenWithSpan| word(&token.token).is_some_and(|word| word == "ONLY");
    if !tokens.iter().any(is_only) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len());
    let mut before = None;
    for token in tokens {
        let names_table = matches!(before.as_deref(), Some("FROM" | "JOIN" | "UPDATE"));
        if is_only(&token) && names_table {
            continue;
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            before = word(&token.token);
        }
        out.push(token);
    }
    out
}

/// True for the first tokens of CREATE PROJECTION.
fn is_projection(part: &[TokenWithSpan]) -> bool {
    let words = part.iter().filter_map(|token| match &token.token {
        Token::Whitespace(_) => None,
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => Some(String::new()),
    });
    let words: Vec<String> = words.take(4).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    matches!(words.as_slice(), ["create", "projection", ..] | ["create", "or", "replace", "projection"])
}

/// Estimated bytes of the plan of a text.
pub(crate) fn bytes_of_plan(text: &str) -> u64 {
    let tokens = crate::syntax::squeezing::count(text) as u64;
    tokens.saturating_mul(PLAN_BYTES_PER_TOKEN).saturating_add(text.len() as u64)
}

/// The statements of a text.
///
/// # Errors
/// 42601, 54000, 54001.
pub(crate) fn statements(text: &str) -> Result<Vec<Statement>> {
    if text.len() > STATEMENT_BYTES_MAX {
        let message =
            format!("a statement of {} bytes exceeds the limit of {STATEMENT_BYTES_MAX}", text.len());
        return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let text = crate::syntax::squeezing::bounded(text)?;
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, &text).tokenize_with_location();
    let tokens = tokens.map_err(|error| syntax(&error.to_string()))?;
    check_chains(&tokens)?;
    let mut statements = Vec::new();
    let mut part: Vec<TokenWithSpan> = Vec::new();
    let mut depth = 0_usize;
    let last = tokens.len();
    for (place, token) in tokens.into_iter().chain([TokenWithSpan::wrap(Token::SemiColon)]).enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        // The statements of a projection are in parentheses.
        let ends = token.token == Token::SemiColon && (depth == 0 || place == last || !is_projection(&part));
        if !ends {
            part.push(token);
            continue;
        }
        depth = 0;
        let part = std::mem::take(&mut part);
        if part.iter().all(|token| matches!(token.token, Token::Whitespace(_))) {
            continue;
        }
        if statements.len() >= STATEMENTS_MAX {
            let message = format!("more than {STATEMENTS_MAX} statements in one text");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("split the text"));
        }
        let part = statements::identity_in_order(plain_operators(fetch_as_limit(without_only(part))));
        let part = crate::syntax::row_locks::limits_first(crate::syntax::row_locks::plain_strengths(part));
        let part = crate::syntax::current_of::as_call(part);
        let part = crate::syntax::type_collation::as_call(part);
        let part = crate::syntax::operands::without_parentheses(part);
        let (part, overriding) = crate::syntax::overriding::taken(part);
        if let Some(utility) = statements::parse(&part)? {
            statements.push(Statement::Utility(utility));
            continue;
        }
        let mut parsed = parsed(part)?;
        if let (Some(overriding), Some(statement)) = (overriding, parsed.first_mut()) {
            crate::syntax::overriding::mark(statement, overriding);
        }
        statements.extend(parsed.into_iter().map(Statement::Sql));
    }
    Ok(statements)
}

/// Runs a step that descends into a statement, on a larger stack if little of that of the thread is left.
pub(crate) fn with_stack<R>(step: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(STACK_NEEDED, 2 * STACK_NEEDED, step)
}

/// The statements of some tokens. Takes a larger stack for nested ones if little of that of the thread is left.
///
/// # Errors
/// 42601, 54001.
pub(crate) fn parsed(tokens: Vec<TokenWithSpan>) -> Result<Vec<ast::Statement>> {
    with_stack(|| {
        let dialect = Bounded::of(&tokens);
        let mut parser =
            Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
        parser.parse_statements().map_err(|error| refused(&dialect, error))
    })
}

/// The single statement of a text.
///
/// # Errors
/// Those of [`statements`]; 42601 when there are several or none.
pub(crate) fn one(text: &str) -> Result<Statement> {
    let mut all = statements(text)?;
    match (all.pop(), all.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (None, _) => Err(SqlError::new(state::SYNTAX_ERROR, "there is no statement")),
        (Some(_), false) => {
            let message = "cannot insert multiple commands into a prepared statement";
            Err(SqlError::new(state::SYNTAX_ERROR, message))
        }
    }
}

/// The single statement of an internal text, as the parser's statement.
pub(crate) fn template(text: &str) -> Option<ast::Statement> {
    match one(text).ok()? {
        Statement::Sql(statement) => Some(statement),
        Statement::Utility(_) => None,
    }
}
