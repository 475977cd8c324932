//! Parser and printer of expressions.

pub mod ast;
pub mod functions;
pub(crate) mod lexer;
pub(crate) mod metricsql;
pub(crate) mod parser;
pub(crate) mod position;
pub(crate) mod pretty;
pub(crate) mod print;
