//! Parsing of SQL text to statements.

pub(crate) mod cursor_syntax;
pub(crate) mod dialect;
pub(crate) mod parse;
pub(crate) mod squeezing;
pub(crate) mod statements;
