//! Descriptions of cursors, for the catalog and for WHERE CURRENT OF.

use std::sync::Arc;

use ropewalk::tables::Value;

use crate::error::{SqlError, state};
use crate::types::outcome::ResultColumn;

/// Description of a cursor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CursorShape {
    pub(crate) columns: Arc<[ResultColumn]>,
    pub(crate) statement: String,
    pub(crate) is_binary: bool,
    pub(crate) is_held: bool,
    pub(crate) scrolls: bool,
    /// Microseconds since 1970.
    pub(crate) since: i64,
    /// The table that the cursor scans, for WHERE CURRENT OF.
    pub(crate) rows: Option<Rows>,
}

pub(crate) fn unknown(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

/// The table that a cursor scans, and its current row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rows {
    /// The stored name of the table.
    pub(crate) table: String,
    /// The key of the cursor's current row.
    pub(crate) key: Option<Vec<Value<'static>>>,
}
