//! Ropewalk's tables: typed rows under a schema, with constraints and secondary indexes, inside the engine's transactions.
//!
//! ```text
//! TableDef ─▶ ddl ─▶ catalog (a keyspace) ─▶ Schema ◀─ Table: a prepared handle
//! values ─▶ write: defaults, checks, row, index entries, foreign keys ─▶ KvTransaction ─▶ one commit
//! KeyRange ─▶ read: rows in place, from a transaction or a snapshot
//! many rows ─▶ load: sorted straight into runs ─▶ one commit gives them to the table
//! ```
//!
//! Read `types` and `value`, `key` and `row` for the bytes, `schema` for what a table is, then `write`.
//!
//! Not here: SQL, time zones and text forms of dates, collations (text is ordered by its bytes).
#![deny(missing_docs)]

mod build;
mod catalog;
mod constraints;
mod convert;
mod ddl;
mod define;
mod enums;
mod error;
mod expr;
mod interval;
mod json;
mod jsonb;
mod key;
mod load;
mod loader;
mod model;
mod names;
mod numeric;
mod precision;
mod read;
mod reads;
mod rekey;
mod row;
mod rowkey;
mod schema;
mod schema_codec;
mod sequence;
mod show;
mod sorter;
mod stream;
mod table;
#[cfg(test)]
mod testing;
mod tx;
mod types;
mod value;
mod verify;
mod write;

pub use convert::FromValue;
pub use define::{Action, ColumnDef, DefaultValue, ForeignKeyDef, Identity, IndexDef, TableDef};
pub use enums::{EnumChange, EnumPlace, EnumType, EnumValue};
pub use error::TablesError;
pub use expr::{Binary, ColumnRef, Expr, Function, Unary};
pub use interval::Interval;
pub use json::{JSON_DEPTH_MAX, json_error};
pub use jsonb::Jsonb;
pub use key::KeyOrder;
pub use load::{Load, LoadOptions, TxLoad};
pub use model::{TABLES, Tables, TablesModel};
pub use names::{PUBLIC, name_in, schema_and_name, shown};
pub use numeric::{Numeric, NumericError};
pub use precision::{Field, Precision, SECOND_DIGITS_MAX};
pub use read::{KeyRange, TablesRead};
pub use row::{OwnedRow, Row};
pub use schema::{
    COLUMNS_MAX, Check, Column, DEFINITION_BYTES_MAX, ForeignKey, INDEXES_MAX, Index, IndexColumn,
    KEY_BYTES_MAX, KEY_COLUMNS_MAX, LAYOUTS_MAX, ROW_BYTES_MAX, Schema,
};
pub use sequence::Steps;
pub use table::{PointGet, PointRow, Table, TablesAt};
pub use tx::{TablesState, TablesTx};
pub use types::{NUMERIC_DIGITS_MAX, NumericLimits, Scalar, Type};
pub use value::{Array, Value, ValueError};
