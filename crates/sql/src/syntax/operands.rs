//! `((SELECT ...) UNION ...)`: sqlparser accepts parentheses around the first query of a set operation at the
//! beginning of a statement only.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn is_set(token: &TokenWithSpan) -> bool {
    matches!(keyword(token), Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT)
}

/// For each opening parenthesis the place of the one that closes it.
fn closing(tokens: &[TokenWithSpan]) -> Vec<Option<usize>> {
    let (mut pairs, mut open) = (vec![None; tokens.len()], Vec::new());
    for (place, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open.push(place),
            Token::RParen => {
                if let Some(pair) = open.pop().and_then(|begin: usize| pairs.get_mut(begin)) {
                    *pair = Some(place);
                }
            }
            _ => {}
        }
    }
    pairs
}

/// True for a query that means the same without parentheses around it, before UNION.
fn stands_alone(query: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    keyword_of_first(query) == Keyword::SELECT
        && query.iter().all(|token| {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            let ends = matches!(
                keyword(token),
                Keyword::ORDER | Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH | Keyword::FOR
            );
            depth > 0 || !(ends || is_set(token))
        })
}

fn keyword_of_first(query: &[TokenWithSpan]) -> Keyword {
    query.first().map_or(Keyword::NoKeyword, keyword)
}

/// Removes these parentheses, or makes the query in them a subquery of FROM.
pub(crate) fn without_parentheses(mut part: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !part.iter().any(is_set) {
        return part;
    }
    part.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let pairs = closing(&part);
    let (mut removed, mut begins, mut ends) = (vec![false; part.len()], Vec::new(), Vec::new());
    for (place, window) in part.windows(2).enumerate() {
        let [outer, inner] = window else { continue };
        if outer.token != Token::LParen || inner.token != Token::LParen {
            continue;
        }
        let begin = place + 1;
        let Some(end) = pairs.get(begin).copied().flatten() else { continue };
        let query = part.get(begin + 1..end).unwrap_or_default();
        let is_query = matches!(keyword_of_first(query), Keyword::SELECT | Keyword::WITH | Keyword::VALUES)
            || query.first().is_some_and(|token| token.token == Token::LParen);
        if !is_query || !part.get(end + 1).is_some_and(is_set) {
            continue;
        }
        if stands_alone(query) {
            for paren in [begin, end] {
                removed.get_mut(paren).into_iter().for_each(|removed| *removed = true);
            }
        } else {
            begins.push(begin);
            ends.push(end);
        }
    }
    ends.sort_unstable();
    let word = |keyword: &str| TokenWithSpan::wrap(Token::make_keyword(keyword));
    let name = Word { value: "?operand".to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
    let name = TokenWithSpan::wrap(Token::Word(name));
    let mut out = Vec::with_capacity(part.len() + 5 * begins.len());
    for (place, token) in part.into_iter().enumerate() {
        if begins.binary_search(&place).is_ok() {
            out.extend([word("SELECT"), TokenWithSpan::wrap(Token::Mul), word("FROM")]);
        }
        if removed.get(place) != Some(&true) {
            out.push(token);
        }
        if ends.binary_search(&place).is_ok() {
            out.extend([word("AS"), name.clone()]);
        }
    }
    out
}
