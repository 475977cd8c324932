//! `ALTER COLUMN ... TYPE ... COLLATE name [USING ...]`, which sqlparser does not support.
//!
//! Before parsing, the clause is rewritten to a call of a reserved function in USING.

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Name of the reserved function, whose arguments are the new value and the collation.
const FUNCTION: &str = "*collated";

fn is_word(token: &Token, name: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name))
}

/// Number of tokens before a comma or one of these words outside of parentheses.
fn length(tokens: &[TokenWithSpan], words: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (place, TokenWithSpan { token, .. }) in tokens.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => return place,
            token if depth == 0 && words.iter().any(|word| is_word(token, word)) => return place,
            _ => {}
        }
    }
    tokens.len()
}

/// The name of the column whose type the last tokens begin to change.
fn column(before: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    let before = match before {
        [head @ .., set, data] if is_word(&set.token, "set") && is_word(&data.token, "data") => head,
        all => all,
    };
    match before {
        [.., alter, column, name] if is_word(&alter.token, "alter") && is_word(&column.token, "column") => {
            Some(name)
        }
        [.., alter, name] if is_word(&alter.token, "alter") && !is_word(&name.token, "table") => Some(name),
        _ => None,
    }
}

/// Rewrites `TYPE t COLLATE c USING e` to `TYPE t USING "*collated"(e, 'c')`; without USING the value is the
/// column.
pub(crate) fn as_call(part: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let has = |word: &str| part.iter().any(|token| is_word(&token.token, word));
    if !(has("collate") && has("alter") && has("type")) {
        return part;
    }
    let tokens: Vec<TokenWithSpan> =
        part.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((token, behind)) = rest.split_first() {
        rest = behind;
        let name = column(&out).filter(|_| is_word(&token.token, "type")).cloned();
        out.push(token.clone());
        let Some(name) = name else { continue };
        let (type_name, behind) = rest.split_at(length(rest, &["collate", "using"]));
        let [collate, behind @ ..] = behind else { continue };
        if !is_word(&collate.token, "collate") {
            continue;
        }
        let (collation, behind) = behind.split_at(length(behind, &["using"]));
        let Some(Token::Word(word)) = collation.last().map(|token| &token.token) else { continue };
        let collation =
            if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
        let (value, behind) = match behind {
            [using, behind @ ..] if is_word(&using.token, "using") => behind.split_at(length(behind, &[])),
            _ => (std::slice::from_ref(&name), behind),
        };
        out.extend_from_slice(type_name);
        let begun = [Token::make_keyword("USING"), Token::make_word(FUNCTION, Some('"')), Token::LParen];
        out.extend(begun.map(TokenWithSpan::wrap));
        out.extend_from_slice(value);
        let ended = [Token::Comma, Token::SingleQuotedString(collation), Token::RParen];
        out.extend(ended.map(TokenWithSpan::wrap));
        rest = behind;
    }
    out
}

/// The value and the collation of the reserved call.
pub(crate) fn of(using: &ast::Expr) -> Option<(&ast::Expr, &str)> {
    let ast::Expr::Function(function) = using else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let [
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)),
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(collation))),
    ] = list.args.as_slice()
    else {
        return None;
    };
    match &collation.value {
        ast::Value::SingleQuotedString(collation) if name.value == FUNCTION => Some((value, collation)),
        _ => None,
    }
}
