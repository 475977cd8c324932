//! The condition of `WHERE CURRENT OF cursor`, which `syntax::current_of` parses.
//!
//! A cursor declared in a transaction over one table stores the key of each row after its columns. The
//! condition compares the key with that of the row fetched last.

use ropewalk::tables::{Schema, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::Compare;
use crate::plan::{Planner, Select};
use crate::syntax::current_of::cursor_of;

impl Planner<'_> {
    /// The condition that a row is the current one of a cursor; `None` for any other condition.
    ///
    /// # Errors
    /// 34000: no such cursor. 24000: it scans another table or query, or has no current row.
    pub(crate) fn current_of(&mut self, condition: &ast::Expr, schema: &Schema) -> Result<Option<Vec<Expr>>> {
        let Some(name) = cursor_of(condition) else { return Ok(None) };
        // The cursor's position can differ at the next run.
        self.is_fleeting = true;
        let cursor = self.standing.cursors.get(name).ok_or_else(|| crate::access::cursors::unknown(name))?;
        let invalid = |message: String| SqlError::new(state::INVALID_CURSOR_STATE, message);
        let rows = cursor.rows.as_ref().filter(|rows| rows.table == schema.name()).ok_or_else(|| {
            let table = schema.unqualified_name();
            invalid(format!("cursor \"{name}\" is not a simply updatable scan of table \"{table}\""))
                .hint("declare it for a plain SELECT from that table, which must have a primary key")
        })?;
        let key = rows.key.as_ref();
        let key = key.ok_or_else(|| invalid(format!("cursor \"{name}\" is not positioned on a row")))?;
        let equal = |(place, value): (&usize, &Value<'static>)| {
            Expr::Compare(Compare::Eq, Box::new(Expr::Column(*place)), Box::new(Expr::Const(value.clone())))
        };
        Ok(Some(schema.key_columns().iter().zip(key).map(equal).collect()))
    }
}

/// Adds the key of each row after the columns of a cursor's query. Returns the query, the table and the types
/// of the key; `None` if the rows are not those of one table with a key.
pub(crate) fn with_keys(select: &Select) -> Option<(Select, String, Vec<ropewalk::tables::Type>)> {
    let [level] = select.levels.as_slice() else { return None };
    if select.groups.is_some() || select.is_distinct || select.values.is_some() {
        return None;
    }
    let key = level.schema.key_columns();
    if key.is_empty() {
        return None;
    }
    let mut extended = select.clone();
    extended.output.extend(key.iter().map(|place| Expr::Column(level.start + place)));
    let columns = key.iter().filter_map(|place| level.schema.columns().get(*place));
    let types = columns.map(|column| column.column_type()).collect();
    Some((extended, level.schema.name().to_owned(), types))
}
