//! INSERT, UPDATE and DELETE: the read part finds rows along a path and asks the whole condition of each; then they are written by
//! key, in the statement's transaction.
//!
//!   statement ─▶ plan: Insert, Update, Delete ─▶ run: rows are found, then written
//!   WITH whose queries write ─▶ chain
//!
//! Invariants
//! 1. Rows are found before the first one is written: a statement never meets its own writes.
//! 2. A condition that cannot be planned is an error. No statement runs without the WHERE it was given.

mod chain;
mod plan;
mod run;

use std::sync::Arc;

use ropewalk::tables::{Schema, Table, Type};

use crate::dml::overriding::Overriding;
use crate::exec::access_path::Path;
use crate::expr::Expr;
use crate::plan::{ResultColumn, Select};
use crate::types::error::SqlError;

pub(crate) use chain::{Chain, writes};
pub(crate) use plan::{
    assignments_of, column_place, is_default, nothing_but_a_delete, nothing_but_an_update,
};
pub(crate) use run::{Written, change, changes, default_value};

/// RETURNING.
pub(crate) struct Returning {
    pub(crate) output: Vec<Expr>,
    pub(crate) columns: Vec<ResultColumn>,
}

/// A value that an INSERT or UPDATE gives a column.
#[derive(Clone)]
pub(crate) enum Given {
    Expr(Expr),
    Default,
}

pub(crate) enum Source {
    Values(Vec<Vec<Given>>),
    Select(Box<Select>),
    /// A query of the query engine, and the types that its columns are cast to.
    Whole(crate::exec::analytic::Finder, Vec<(Type, bool)>),
}

/// What happens to a row that is there already.
pub(crate) struct OnConflict {
    /// Places of the columns whose values conflict, each with the constraint over it; all constraints when none was named.
    pub(crate) targets: Vec<Target>,
    /// `None` does nothing. Expressions are over the old row and the one that was to be inserted.
    pub(crate) update: Option<(Vec<(usize, Given)>, Option<Expr>)>,
}

/// A unique constraint: the places of its columns, and its index unless it is the primary key.
pub(crate) struct Target {
    index: Option<String>,
    places: Vec<usize>,
}

pub(crate) struct Insert {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    /// Places of the columns that values are given for.
    pub(crate) places: Vec<usize>,
    pub(crate) source: Source,
    /// What the last of the columns get, which are given none: the clock of the session's zone.
    locals: Vec<Expr>,
    pub(crate) on_conflict: Option<OnConflict>,
    pub(crate) returning: Option<Returning>,
    /// Columns without a value that sequences number: place and sequence.
    numbered: Vec<(usize, u32)>,
    given: crate::ddl::sequences::Given,
    overriding: Option<Overriding>,
}

/// The rows that an UPDATE or DELETE is about.
pub(crate) struct Found {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    pub(crate) path: Path,
    pub(crate) filter: Vec<Expr>,
}

pub(crate) struct Update {
    pub(crate) found: Found,
    pub(crate) set: Vec<(usize, Given)>,
    pub(crate) returning: Option<Returning>,
}

pub(crate) struct Delete {
    pub(crate) found: Found,
    pub(crate) returning: Option<Returning>,
}

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "write the statement over one table, with subqueries that stand alone")
}
