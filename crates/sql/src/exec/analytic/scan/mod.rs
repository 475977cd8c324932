//! Scans of the engine: any relation row by row, tables from cached columns, rows that are shared.

pub(super) mod columns;
pub(super) mod rows;
pub(super) mod shared;
pub(super) mod table;
