//! Forms of FOR UPDATE and FOR SHARE that sqlparser does not support, rewritten before parsing.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Replaces FOR NO KEY UPDATE by FOR UPDATE, and FOR KEY SHARE by FOR SHARE, which the parser knows and which
/// lock more.
pub(crate) fn plain_strengths(part: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_word = |token: &TokenWithSpan, word: &str| matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word));
    let is_key = |token: &TokenWithSpan| is_word(token, "KEY");
    if !part.iter().any(is_key) || !part.iter().any(|token| is_word(token, "FOR")) {
        return part;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(part.len());
    for token in part.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))) {
        let is_strength = is_word(&token, "UPDATE") || is_word(&token, "SHARE");
        let words: &[&str] = if is_word(&token, "UPDATE") { &["FOR", "NO", "KEY"] } else { &["FOR", "KEY"] };
        let from = out.len().saturating_sub(words.len());
        let behind = out.get(from..).unwrap_or_default();
        if is_strength
            && behind.len() == words.len()
            && behind.iter().zip(words).all(|(token, word)| is_word(token, word))
        {
            out.truncate(from + 1);
        }
        out.push(token);
    }
    out
}

/// Moves a LIMIT that follows FOR UPDATE in front of it, where the parser expects it.
pub(crate) fn limits_first(part: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: Option<&TokenWithSpan>, words: &[&str]| match token.map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => {
            words.iter().any(|known| word.value.eq_ignore_ascii_case(known))
        }
        _ => false,
    };
    let begins = |at: usize, part: &[TokenWithSpan]| {
        is(part.get(at), &["for"]) && is(part.get(at + 1), &["update", "share"])
    };
    const LIMITS: &[&str] = &["limit", "offset", "fetch"];
    if !part.iter().any(|token| is(Some(token), &["update", "share"]))
        || !part.iter().any(|token| is(Some(token), LIMITS))
    {
        return part;
    }
    let part: Vec<TokenWithSpan> =
        part.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let (mut out, mut at) = (Vec::with_capacity(part.len()), 0);
    while let Some(token) = part.get(at) {
        if !begins(at, &part) {
            out.push(token.clone());
            at += 1;
            continue;
        }
        // The query ends with its parenthesis, or with the text.
        let (mut depth, mut end) = (0_usize, at);
        let mut limits = None;
        while let Some(token) = part.get(end) {
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => break,
                Token::RParen => depth -= 1,
                _ if depth == 0 && limits.is_none() && is(Some(token), LIMITS) => limits = Some(end),
                _ => {}
            }
            end += 1;
        }
        let limits = limits.unwrap_or(end);
        out.extend(part.iter().take(end).skip(limits).cloned());
        out.extend(part.iter().take(limits).skip(at).cloned());
        at = end;
    }
    out
}
