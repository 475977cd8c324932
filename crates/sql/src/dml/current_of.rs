//! `UPDATE ... WHERE CURRENT OF cursor` and DELETE, which the parser does not know.
//!
//! The words stand in the tree as a call of a function that nobody else calls. A cursor of a transaction over the rows of one table
//! keeps their keys behind its columns; the condition is that the key is the one of the row that was fetched last.

use ropewalk::tables::{Schema, Value};
use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::expr::Expr;
use crate::expr::arith::Compare;
use crate::plan::{Planner, Select};
use crate::types::error::{Result, SqlError, state};

/// The name of the function.
const FUNCTION: &str = "*current_of";

/// The rows of a table that a cursor goes over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rows {
    /// The kept name of the table.
    pub(crate) table: String,
    /// The key of the row that the cursor stands on.
    pub(crate) key: Option<Vec<Value<'static>>>,
}

/// `WHERE CURRENT OF name` as `WHERE "*current_of"('name')`.
pub(crate) fn as_call(part: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_word = |token: &Token, name: &str| matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name));
    if !part.iter().any(|token| is_word(&token.token, "current")) {
        return part;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(part.len());
    let mut tokens = part.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).peekable();
    while let Some(token) = tokens.next() {
        let begins = is_word(&token.token, "current")
            && out.last().is_some_and(|before| is_word(&before.token, "where"))
            && tokens.peek().is_some_and(|next| is_word(&next.token, "of"));
        if !begins {
            out.push(token);
            continue;
        }
        tokens.next();
        let Some(TokenWithSpan { token: Token::Word(Word { value, quote_style, .. }), .. }) = tokens.next()
        else {
            // What is left is no condition, and the parser says so.
            out.push(token);
            continue;
        };
        let name = if quote_style.is_some() { value } else { value.to_lowercase() };
        let call = [
            Token::make_word(FUNCTION, Some('"')),
            Token::LParen,
            Token::SingleQuotedString(name),
            Token::RParen,
        ];
        out.extend(call.into_iter().map(TokenWithSpan::wrap));
    }
    out
}

/// The cursor that a condition names.
fn cursor_of(condition: &ast::Expr) -> Option<&str> {
    let ast::Expr::Function(function) = condition else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))] =
        list.args.as_slice()
    else {
        return None;
    };
    match &value.value {
        ast::Value::SingleQuotedString(cursor) if name.value == FUNCTION => Some(cursor),
        _ => None,
    }
}

/// True for the name of the function.
pub(crate) fn is_call(name: &str) -> bool {
    name == FUNCTION
}

impl Planner<'_> {
    /// The condition that a row is the one a cursor stands on; `None` for another one.
    ///
    /// # Errors
    /// 34000; 24000: the cursor goes over something else, or stands on no row.
    pub(crate) fn current_of(&mut self, condition: &ast::Expr, schema: &Schema) -> Result<Option<Vec<Expr>>> {
        let Some(name) = cursor_of(condition) else { return Ok(None) };
        // The next run finds it elsewhere.
        self.is_fleeting = true;
        let cursor = self.standing.cursors.get(name).ok_or_else(|| crate::session::cursor::unknown(name))?;
        let invalid = |message: String| SqlError::new(state::INVALID_CURSOR_STATE, message);
        let rows = cursor.rows.as_ref().filter(|rows| rows.table == schema.name()).ok_or_else(|| {
            let table = schema.own_name();
            invalid(format!("cursor \"{name}\" is not a simply updatable scan of table \"{table}\""))
                .hint("it has to be a SELECT of rows of that table, which has a primary key")
        })?;
        let key = rows.key.as_ref();
        let key = key.ok_or_else(|| invalid(format!("cursor \"{name}\" is not positioned on a row")))?;
        let equal = |(place, value): (&usize, &Value<'static>)| {
            Expr::Compare(Compare::Eq, Box::new(Expr::Column(*place)), Box::new(Expr::Const(value.clone())))
        };
        Ok(Some(schema.key_columns().iter().zip(key).map(equal).collect()))
    }
}

/// The query of a cursor with the keys of its rows behind their columns, and the table; `None` when its rows are no rows of one
/// table that has a key.
pub(crate) fn with_keys(select: &Select) -> Option<(Select, String, Vec<ropewalk::tables::Type>)> {
    let [level] = select.levels.as_slice() else { return None };
    if select.groups.is_some() || select.is_distinct || select.values.is_some() {
        return None;
    }
    let key = level.schema.key_columns();
    if key.is_empty() {
        return None;
    }
    let mut extended = select.clone();
    extended.output.extend(key.iter().map(|place| Expr::Column(level.start + place)));
    let columns = key.iter().filter_map(|place| level.schema.columns().get(*place));
    let types = columns.map(|column| column.column_type()).collect();
    Some((extended, level.schema.name().to_owned(), types))
}
