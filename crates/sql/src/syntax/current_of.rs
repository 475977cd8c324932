//! `UPDATE` and `DELETE ... WHERE CURRENT OF cursor`, which sqlparser does not support.
//!
//! Before parsing, the clause is rewritten to a call of a reserved function.

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Name of the reserved function.
const FUNCTION: &str = "*current_of";

/// Rewrites `WHERE CURRENT OF name` to `WHERE "*current_of"('name')`.
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
            // The remaining tokens are not a valid condition; the parser reports the error.
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
pub(crate) fn cursor_of(condition: &ast::Expr) -> Option<&str> {
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

/// True for the name of the reserved function.
pub(crate) fn is_call(name: &str) -> bool {
    name == FUNCTION
}
