//! SQL over the tables of a database: PostgreSQL's dialect, types, rules and error codes.
//!
//! ```text
//! text ─▶ parse (sqlparser) ─▶ plan: names, types, paths ─▶ Prepared, cached by text and by the definitions it rests on
//!            SELECT by primary key ─▶ one look-up          (a prepared one: no parsing, no planning)
//!            SELECT ─▶ exec: walk, join, group, sort, within a memory limit
//!            every other SELECT ─▶ query: a plan for DataFusion, which reads through us
//!            INSERT, UPDATE, DELETE ─▶ write: rows are found, then written by key in the transaction
//!            CREATE, ALTER, DROP ─▶ ddl: definitions of the tables model
//! Session: BEGIN ... COMMIT, savepoints, the failed transaction; outside of one, every statement is its own
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
//! Read `session`, then `plan`, `path` and `exec`; `bind` and `expr` for expressions. What is not served answers 0A000 with a
//! hint.
//!
//! Not here: sockets and the wire format of PostgreSQL, collations (text is ordered by its bytes).
#![deny(missing_docs)]

mod access;
mod advisory;
mod aggregate;
mod announce;
mod arith;
mod array_query;
mod binary;
mod bind;
mod bind_aggregate;
mod bind_call;
mod bind_catalog;
mod bind_interval;
mod bind_jsonb;
mod bind_operator;
mod bind_sequence;
mod bounds;
mod bson_json;
mod budget;
mod cast;
mod catalog;
mod comments;
mod copy;
mod copy_read;
mod copy_write;
mod copying;
mod current_of;
mod cursor;
mod cursor_words;
mod datetime;
mod ddl;
mod dialect;
mod enums;
mod error;
mod exec;
mod executor;
mod explain;
mod expr;
mod format;
mod from_template;
mod function;
mod function_bytes;
mod function_list;
mod function_more;
mod function_number;
mod function_regex;
mod function_time;
mod interrupt;
mod interval;
mod json;
mod jsonb;
mod lifting;
mod lifting_locks;
mod like;
mod locking;
mod overriding;
mod parse;
mod path;
mod peers;
mod plan;
mod prepared;
mod query;
mod quota;
mod rights;
mod rows_in;
mod schemas;
mod scope;
mod sequences;
mod session;
mod session_command;
mod session_set;
mod session_transaction;
mod settings;
mod small;
mod spool;
mod spread;
mod squeezing;
mod submit;
mod temp_files;
mod text;
mod to_char;
mod to_char_number;
mod types;
mod unwritable;
mod utility;
mod views;
mod waiting;
mod write;
mod zone;

pub use announce::Announcement;
pub use binary::{from_binary, put_binary};
pub use copying::{CopyIn, CopyShape, CopyWay};
pub use error::{About, Location, SqlError, SqlState, state};
pub use executor::Executor;
pub use interrupt::Canceller;
pub use lifting::lift;
pub use peers::{Activity, Doing, Peers};
pub use plan::ResultColumn;
pub use prepared::{Outcome, Prepared};
pub use query::{column_bytes, default_column_bytes, limit_columns, share_promql_memory};
pub use quota::Hold;
pub use rights::{Rights, StatementKind};
pub use session::{Session, Status};
pub use settings::Settings;
pub use submit::{Progress, Script, Submitted};
pub use temp_files::{TempFileLimits, limit_temp_files};
pub use text::{from_text, from_text_in, to_text, to_text_in};
pub use types::{enum_of_oid, oid, type_name};
pub use waiting::RowWait;
pub use zone::Zone;
