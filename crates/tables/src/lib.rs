//! Ropewalk's tables: typed rows under a schema, with constraints and secondary indexes, inside the engine's
//! transactions.
//!
//! ```text
//! TableDef ─▶ ddl ─▶ catalog (a keyspace) ─▶ Schema ◀─ Table: a prepared handle
//! values ─▶ write: defaults, checks, row, index entries, foreign keys ─▶ KvTransaction ─▶ one commit
//! KeyRange ─▶ read: rows in place, from a transaction or a snapshot
//! many rows ─▶ load: sorted straight into runs ─▶ one commit gives them to the table
//! ```
//!
//! Read `value` and `schema::layout` for the stored bytes, `schema` for the definition of a table, then
//! `write`.
//!
//! Not here: SQL, time zones and text forms of dates, collations (text is ordered by its bytes).
#![deny(missing_docs)]

mod catalog;
mod ddl;
mod error;
mod load;
mod model;
mod read;
mod row;
mod schema;
mod value;
mod write;

pub use catalog::sequence::SequenceParams;
pub use catalog::tables::{TABLES, Tables, TablesModel};
pub use error::TablesError;
pub use load::{Load, LoadOptions, TxLoad};
pub use read::table::{PointGet, PointRow, Table, TablesAt};
pub use read::{KeyRange, TablesRead};
pub use row::convert::FromValue;
pub use row::{OwnedRow, Row};
pub use schema::define::{
    Action, ColumnDef, DefaultValue, Deferral, ForeignKeyDef, Identity, IndexDef, OperatorClass, TableDef,
};
pub use schema::enums::{EnumChange, EnumPlace, EnumType};
pub use schema::names::{PUBLIC, qualify, schema_and_name, shown};
pub use schema::{
    COLUMNS_MAX, Check, Column, DEFINITION_BYTES_MAX, ForeignKey, INDEXES_MAX, Index, IndexColumn,
    KEY_BYTES_MAX, KEY_COLUMNS_MAX, LAYOUTS_MAX, ROW_BYTES_MAX, Schema,
};
pub use value::enum_value::EnumValue;
pub use value::expr::{Binary, ColumnRef, Expr, Function, Unary};
pub use value::inet::Inet;
pub use value::interval::Interval;
pub use value::json::{JSON_DEPTH_MAX, json_error};
pub use value::jsonb::Jsonb;
pub use value::key::KeyOrder;
pub use value::numeric::{Numeric, NumericError};
pub use value::precision::{Field, Precision, SECOND_DIGITS_MAX};
pub use value::types::{NUMERIC_DIGITS_MAX, NumericLimits, Scalar, Type};
pub use value::{Array, Value, ValueError};
pub use write::deferred::TablesMark;
pub use write::tx::{TablesState, TablesTx};
