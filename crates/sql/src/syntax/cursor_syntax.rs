//! Parsing of DECLARE, FETCH and MOVE.

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use crate::error::Result;

use crate::syntax::statements::{Utility, Words};

/// Parses the rest after DECLARE.
pub(crate) fn declare(words: &mut Words<'_>) -> Result<Utility> {
    let name = words.ident()?;
    let (mut is_binary, mut scrolls) = (false, None);
    loop {
        if words.are(&["binary"]) {
            is_binary = true;
        } else if words.are(&["no", "scroll"]) {
            scrolls = Some(false);
        } else if words.are(&["scroll"]) {
            scrolls = Some(true);
        } else if !words.are(&["insensitive"]) && !words.are(&["asensitive"]) {
            break;
        }
    }
    words.expect(&["cursor"])?;
    let is_held = words.are(&["with", "hold"]);
    if !is_held {
        words.are(&["without", "hold"]);
    }
    words.expect(&["for"])?;
    let query = Box::new(words.rest_as_query()?);
    Ok(Utility::Declare(Declare { name, is_binary, scrolls, is_held, query }))
}

/// Parses the rest after FETCH or MOVE.
pub(crate) fn fetch(words: &mut Words<'_>, moves: bool) -> Result<Utility> {
    let direction = if words.is_last() { Direction::Forward(Some(1)) } else { direction(words)? };
    if !words.are(&["from"]) {
        words.are(&["in"]);
    }
    Ok(Utility::Fetch(Fetch { name: words.ident()?, direction, moves }))
}

fn direction(words: &mut Words<'_>) -> Result<Direction> {
    for (word, direction) in [
        ("next", Direction::Forward(Some(1))),
        ("prior", Direction::Backward(Some(1))),
        ("first", Direction::Absolute(1)),
        ("last", Direction::Absolute(-1)),
        ("all", Direction::Forward(None)),
    ] {
        if words.are(&[word]) {
            return Ok(direction);
        }
    }
    if words.are(&["absolute"]) {
        return Ok(Direction::Absolute(words.integer()?));
    }
    if words.are(&["relative"]) {
        return Ok(Direction::Relative(words.integer()?));
    }
    let (is_forward, is_backward) = (words.are(&["forward"]), words.are(&["backward"]));
    let count = match words.peek() {
        Some(Token::Number(..) | Token::Minus | Token::Plus) => Some(words.integer()?),
        _ if (is_forward || is_backward) && words.are(&["all"]) => None,
        _ => Some(1),
    };
    Ok(if is_backward { Direction::Backward(count) } else { Direction::Forward(count) })
}

/// DECLARE.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Declare {
    pub(crate) name: String,
    pub(crate) is_binary: bool,
    /// SCROLL or NO SCROLL; `None` if neither is given.
    pub(crate) scrolls: Option<bool>,
    pub(crate) is_held: bool,
    pub(crate) query: Box<ast::Query>,
}

/// Direction and distance of a FETCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Number of rows forward, or backward when negative; `None`: all.
    Forward(Option<i64>),
    Backward(Option<i64>),
    Absolute(i64),
    Relative(i64),
}

/// FETCH, or MOVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) name: String,
    pub(crate) direction: Direction,
    /// MOVE: the rows are counted and not returned.
    pub(crate) moves: bool,
}
