//! `INSERT ... OVERRIDING {SYSTEM | USER} VALUE`, which sqlparser does not support.
//!
//! The clause is removed before parsing, and a setting in the syntax tree marks the statement; PostgreSQL's
//! dialect does not use settings.

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The name of the setting.
const MARK: &str = "overriding";

/// The effect of OVERRIDING on values for identity columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overriding {
    /// The values are used, even for columns that are GENERATED ALWAYS.
    System,
    /// The values are ignored, and the columns draw from their sequences.
    User,
}

/// Removes the clause and returns it. It must belong to an INSERT outside of all parentheses.
pub(crate) fn taken(part: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, Option<Overriding>) {
    let is_word = |token: &Token, name: &str| matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name));
    if !part.iter().any(|token| is_word(&token.token, MARK)) {
        return (part, None);
    }
    let part: Vec<TokenWithSpan> =
        part.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let (mut depth, mut has_insert, mut found) = (0_usize, false, None);
    for (place, window) in part.windows(3).enumerate() {
        let [first, which, value] = window else { continue };
        match &first.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            token if depth == 0 && is_word(token, "insert") => has_insert = true,
            token if depth == 0 && has_insert && is_word(token, MARK) && is_word(&value.token, "value") => {
                let overriding = match &which.token {
                    token if is_word(token, "system") => Overriding::System,
                    token if is_word(token, "user") => Overriding::User,
                    _ => continue,
                };
                found = Some((place, overriding));
                break;
            }
            _ => {}
        }
    }
    let Some((place, overriding)) = found else { return (part, None) };
    let rest = part.iter().enumerate().filter(|(at, _)| !(place..place + 3).contains(at));
    (rest.map(|(_, token)| token.clone()).collect(), Some(overriding))
}

/// Marks the INSERT of a statement, which may follow WITH.
pub(crate) fn mark(statement: &mut ast::Statement, overriding: Overriding) {
    let insert = match statement {
        ast::Statement::Insert(insert) => insert,
        ast::Statement::Query(query) => match query.body.as_mut() {
            ast::SetExpr::Insert(ast::Statement::Insert(insert)) => insert,
            _ => return,
        },
        _ => return,
    };
    let value = ast::Value::Boolean(overriding == Overriding::System).with_empty_span();
    insert.settings = Some(vec![ast::Setting { key: ast::Ident::new(MARK), value: ast::Expr::Value(value) }]);
}

/// The OVERRIDING clause of a marked statement.
pub(crate) fn of(insert: &ast::Insert) -> Option<Overriding> {
    let [ast::Setting { key, value: ast::Expr::Value(value) }] = insert.settings.as_deref()? else {
        return None;
    };
    match value.value {
        ast::Value::Boolean(true) if key.value == MARK => Some(Overriding::System),
        ast::Value::Boolean(false) if key.value == MARK => Some(Overriding::User),
        _ => None,
    }
}
