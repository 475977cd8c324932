//! Relations that the engine reads: tables, models, rows of WITH queries.

pub(super) mod columns;
pub(super) mod models;
pub(super) mod promql;
pub(super) mod rows;
pub(super) mod shared;
pub(super) mod table;
