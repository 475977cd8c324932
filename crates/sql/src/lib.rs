//! SQL over the tables of a database: PostgreSQL's dialect, types, rules and error codes.
//!
//! ```text
//! text ─▶ parse (sqlparser) ─▶ plan: names, types, paths ─▶ Prepared, cached by text and definitions
//!            SELECT by primary key ─▶ one lookup           (a prepared one: no parsing, no planning)
//!            SELECT ─▶ exec::point: scan, join, group, sort, within a memory limit
//!            every other SELECT ─▶ exec::analytic: a plan for DataFusion, which reads through this crate
//!            INSERT, UPDATE, DELETE ─▶ dml: finds rows, then writes them by key in the transaction
//!            CREATE, ALTER, DROP ─▶ ddl: definitions of the tables model
//! Session: BEGIN ... COMMIT, savepoints, the failed transaction; else each statement is its own transaction
//! ```
//!
//! ```
//! use ropewalk::Database;
//! use ropewalk::tables::Value;
//! use ropewalk_sql::Session;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut session = Session::new(Database::in_memory()?);
//! session.execute("CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL UNIQUE)", &[])?;
//! session.execute("INSERT INTO users VALUES ($1, $2), (2, 'Bob')", &[Value::Int8(1), Value::text("Ann")])?;
//! let answer = session.execute("SELECT name FROM users WHERE id = $1", &[Value::Int8(1)])?;
//! assert_eq!(answer.rows, [[Value::text("Ann")]]);
//! let taken = session.execute("INSERT INTO users VALUES (3, 'Bob')", &[]).unwrap_err();
//! assert_eq!(taken.state.0, "23505");
//! # Ok(())
//! # }
//! ```
//!
//! Tables, events, documents and metrics are relations of the same statements: docs/sql.md.
//!
//! The folders, from top to bottom: `session` (a client's state, prepared statements, COPY), `ddl` and `dml`
//! (definitions and writes), `exec` (rows by key, nested loops, the analytic engine), `plan` (names, types,
//! paths), `catalog` (`pg_catalog`), `access` (stored rows and definitions), `functions`, `expr`, `types`,
//! `limits`, `syntax`; `error` is below all. Start with `session`, then `plan` and `exec`. An unsupported
//! statement fails with 0A000 and a hint.
//!
//! Without the feature `analytic` (on by default), DataFusion is not compiled: statements run by key or by nested
//! loops, views cannot be created, and a query that needs the engine fails with 0A000.
//!
//! Not here: sockets and the wire format of PostgreSQL, collations (text is ordered by its bytes).
#![deny(missing_docs)]
// Parts that only plans of the query engine use.
#![cfg_attr(not(feature = "analytic"), allow(dead_code))]

mod access;
mod catalog;
mod ddl;
mod dml;
mod error;
mod exec;
mod expr;
mod functions;
mod limits;
mod plan;
mod session;
mod syntax;
mod types;

pub use access::peers::{SessionInfo, SessionRegistry, SessionState};
pub use access::projections::{
    DamagedProjection, ListedProjections, PARKED_MAX, ParkedEvent, ProjectionInfo, StoredProjection,
    hide_rebuilds, parked_at, parked_count, projection_at, projections_after, projections_at,
    stored_projections,
};
pub use access::rights::Rights;
pub use catalog::is_system_table;
pub use error::{About, Location, SqlError, SqlState, state};
#[cfg(feature = "analytic")]
pub use exec::analytic::{
    ArrowRows, arrow_rows, column_bytes, default_column_bytes, limit_columns, single_rows,
};
pub use exec::relations::promql::share_promql_memory;
pub use expr::advisory::AdvisoryLimit;
pub use limits::interrupt::Canceller;
pub use limits::quota::Hold;
pub use limits::temp_files::{TempFileLimits, limit_temp_files};
pub use session::async_statements::{Progress, Script, Submitted};
pub use session::auto_parameters::parameterize_literals;
pub use session::copy::{CopyDirection, CopyFormat, CopyIn};
pub use session::event_statement::EventStatement;
pub use session::notify::Announcement;
pub use session::prepared::Prepared;
pub use session::rights::StatementKind;
pub use session::row_lock_retry::RowWait;
pub use session::{Session, Status};
pub use syntax::projections::{OnError, ProjectionChange, ProjectionDef, ProjectionRule};
pub use types::binary_format::{from_binary, put_binary};
pub use types::executor::Executor;
pub use types::names::{enum_of_oid, oid, type_name};
pub use types::outcome::{Outcome, ResultColumn};
pub use types::settings::Settings;
pub use types::text_format::{from_text, from_text_in, to_text, to_text_in};
pub use types::zone::Zone;

/// Arrow's columns, and their export by the C stream interface.
#[cfg(feature = "analytic")]
pub mod arrow {
    pub use arrow_array::ffi_stream::FFI_ArrowArrayStream;
    pub use arrow_array::{RecordBatch, RecordBatchIterator};
}

/// Compiles and runs the examples of the guide.
#[cfg(all(doctest, feature = "analytic"))]
#[doc = include_str!("../../../docs/guides/sql-in-process.md")]
struct SqlInProcess;
