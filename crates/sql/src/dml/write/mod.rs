//! INSERT, UPDATE and DELETE: the read phase finds rows by an access path and evaluates the complete
//! condition for each; the write phase writes them by key, in the statement's transaction.
//!
//!   statement ─▶ plan: Insert, Update, Delete ─▶ run: finds rows, then writes them
//!   WITH whose queries write ─▶ chain
//!
//! Invariants
//! 1. All rows are found before the first write: a statement never sees its own writes.
//! 2. A condition that cannot be planned is an error. A statement never runs without its WHERE.

mod assignments;
mod chain;
mod exprs;
mod plan;
mod run;

use std::sync::Arc;

use ropewalk::tables::{Schema, Table, Type};

use crate::access::access_path::Path;
use crate::error::SqlError;
use crate::expr::Expr;
use crate::plan::Select;
use crate::syntax::overriding::Overriding;
use crate::types::outcome::ResultColumn;

pub(crate) use assignments::assignments_of;
pub(crate) use chain::{Chain, writes};
pub(crate) use plan::{
    Targets, column_place, is_default, nothing_but_a_delete, nothing_but_an_insert, nothing_but_an_update,
};
pub(crate) use run::{Proposed, Written, change, changes, default_value};

/// RETURNING.
pub(crate) struct Returning {
    pub(crate) output: Vec<Expr>,
    pub(crate) columns: Vec<ResultColumn>,
}

/// A value that an INSERT or UPDATE assigns to a column.
#[derive(Clone)]
pub(crate) enum Given {
    Expr(Expr),
    Default,
}

pub(crate) enum Source {
    Values(Vec<Vec<Given>>),
    Select(Box<Select>),
    /// A query for the query engine, and the type of each target column with whether a cast is needed.
    Whole(crate::exec::finder::Finder, Vec<(Type, bool)>),
}

/// ON CONFLICT.
pub(crate) struct OnConflict {
    /// The unique constraints whose violation is handled; all of them when none was named.
    pub(crate) targets: Vec<Target>,
    /// `None`: DO NOTHING. The expressions read the existing row, then the proposed one.
    pub(crate) update: Option<(Vec<(usize, Given)>, Option<Expr>)>,
}

/// A unique constraint: its columns by place, and its index unless it is the primary key.
pub(crate) struct Target {
    index: Option<String>,
    places: Vec<usize>,
    is_deferrable: bool,
    /// NULLs are equal.
    nulls_equal: bool,
}

pub(crate) struct Insert {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    /// The places of the target columns.
    pub(crate) places: Vec<usize>,
    pub(crate) source: Source,
    /// Defaults of the last target columns, if they depend on the clock in the session's time zone.
    locals: Vec<Expr>,
    pub(crate) on_conflict: Option<OnConflict>,
    pub(crate) returning: Option<Returning>,
    /// Columns without a value that draw from sequences: place and sequence.
    numbered: Vec<(usize, u32)>,
    given: crate::expr::sequence_call::Given,
    overriding: Option<Overriding>,
}

/// The rows that an UPDATE or DELETE affects.
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
    SqlError::unsupported(what, "write the statement over one table, with uncorrelated subqueries")
}
