//! Parsing of SQL text to statements.

pub(crate) mod copy_statement;
pub(crate) mod current_of;
pub(crate) mod cursor_syntax;
pub(crate) mod dialect;
pub(crate) mod names;
pub(crate) mod operands;
pub(crate) mod overriding;
pub(crate) mod parse;
pub(crate) mod projections;
pub(crate) mod row_locks;
pub(crate) mod squeezing;
pub(crate) mod statements;
pub(crate) mod type_collation;
