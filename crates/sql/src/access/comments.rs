//! Stored comments. They are stored by the permanent ids of tables and columns, so they survive renames.

use ropewalk::tables::{KeyRange, Value};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};

/// The table that holds comments. Its key: kind of object, id of its table or 0, name or column number.
pub(crate) const COMMENTS: &str = "ropewalk_comments";

/// A comment and its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    /// `table`, `column`, `index`, `constraint`, `sequence`, `view`, `type`, `schema` or `database`.
    pub(crate) kind: String,
    /// The id of the table or type; 0 for other objects.
    pub(crate) table: i64,
    /// The column's number, or the name of another object; empty for a table.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// All comments.
pub(crate) fn all(access: &mut Access<'_>) -> Result<Vec<Comment>> {
    let table = match access.table(COMMENTS) {
        Ok((table, _)) => table,
        Err(error) if error.state == state::UNDEFINED_TABLE => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let rows = access.all(&table, &KeyRange::all(), &Budget::new(MEMORY_BYTES_MAX))?;
    let comment = |row: Vec<Value<'static>>| match row.as_slice() {
        [Value::Text(kind), Value::Int8(table), Value::Text(name), Value::Text(text)] => Ok(Comment {
            kind: kind.to_string(),
            table: *table,
            name: name.to_string(),
            text: text.to_string(),
        }),
        _ => Err(SqlError::new(state::DATA_CORRUPTED, "a comment")),
    };
    rows.into_iter().map(comment).collect()
}
