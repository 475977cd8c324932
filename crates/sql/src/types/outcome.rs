//! Results of statements.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "analytic")]
use datafusion::arrow::array::RecordBatch;
use ropewalk::tables::{Type, Value};

use crate::error::SqlError;

/// A column of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultColumn {
    /// Name, not necessarily unique.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// The result of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Start of PostgreSQL's command tag: `SELECT`, `INSERT`, `CREATE TABLE`.
    pub command: &'static str,
    /// Number of rows returned or written, for statements that count them.
    pub count: Option<u64>,
    /// The columns of `rows`; `None` for statements that return no rows.
    pub columns: Option<Arc<[ResultColumn]>>,
    /// The rows.
    pub rows: Vec<Vec<Value<'static>>>,
    /// The rows in columns, in the query engine's form, instead of `rows`. Only [`Session::run_columnar`] fills it;
    /// [`arrow_rows`] returns them in the form for other programs.
    ///
    /// [`Session::run_columnar`]: crate::session::Session::run_columnar
    /// [`arrow_rows`]: crate::exec::analytic::arrow_rows
    #[cfg(feature = "analytic")]
    pub batches: Vec<RecordBatch>,
    /// True for a cursor declared BINARY: the client expects the rows in binary format.
    pub is_binary: bool,
    /// A warning about a successful statement.
    pub notice: Option<SqlError>,
}

impl Outcome {
    /// A result with only a command tag.
    pub fn of(command: &'static str) -> Self {
        Self {
            command,
            count: None,
            columns: None,
            rows: Vec::new(),
            #[cfg(feature = "analytic")]
            batches: Vec::new(),
            is_binary: false,
            notice: None,
        }
    }

    /// The result of DEALLOCATE for a statement of the protocol, unknown to the session.
    pub fn deallocated() -> Self {
        Self::of("DEALLOCATE")
    }

    /// PostgreSQL's command tag: `SELECT 3`, `INSERT 0 1`, `CREATE TABLE`.
    pub fn tag(&self) -> impl fmt::Display + use<> {
        Tag(self.command, self.count)
    }
}

/// Command and number of rows.
struct Tag(&'static str, Option<u64>);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        let Some(count) = self.1 else { return Ok(()) };
        // PostgreSQL once had the OID of the row here.
        f.write_str(if self.0 == "INSERT" { " 0 " } else { " " })?;
        fmt::Display::fmt(&count, f)
    }
}
