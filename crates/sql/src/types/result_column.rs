//! Columns of results.

use ropewalk::tables::Type;

/// A column of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultColumn {
    /// Name, not necessarily unique.
    pub name: String,
    /// Its type.
    pub ty: Type,
}
