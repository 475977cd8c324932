//! Relations that executors read row by row: the models, and results of PromQL queries.

use std::any::Any;

use ropewalk::tables::{Type, Value};

use crate::access::row_source::Access;
use crate::error::Result;
use crate::expr::{Expr, Input};
use crate::limits::interrupt::Watch;

pub(crate) mod models;
pub(crate) mod promql;

/// A named source of rows.
pub(crate) trait Rows: Send + Sync {
    fn name(&self) -> &str;

    fn fields(&self) -> &[(String, Type)];

    /// True when a condition, over columns by number, may narrow the read.
    fn narrows(&self, conjunct: &Expr) -> bool;

    /// The parts to read under conditions. With `access` the relation may read its first and last keys to
    /// divide itself into `parts`; `limited` means that few rows may be enough.
    fn scan(
        &self,
        conjuncts: &[Expr],
        limited: bool,
        parts: usize,
        access: Option<&mut Access<'_>>,
    ) -> Result<Scan>;
}

/// A planned scan of a relation.
pub(crate) struct Scan {
    pub(crate) parts: Vec<Box<dyn Part>>,
    /// For EXPLAIN.
    pub(crate) shown: String,
    /// Approximate number of rows.
    pub(crate) estimate: Option<u64>,
}

/// Receives rows as they are read, until it returns false.
pub(crate) type RowSink<'s> = dyn FnMut(&dyn Input) -> Result<bool> + 's;

/// A part of a relation: rows that are read one after another.
pub(crate) trait Part: Any + Send + Sync {
    /// Passes rows to `row` until it returns false. Long work between two rows checks `watch`.
    fn read(&self, access: &mut Access<'_>, watch: &Watch, row: &mut RowSink<'_>) -> Result<()>;
}

/// A row whose values are computed on access.
pub(crate) struct Computed<'m>(pub(crate) &'m dyn Fn(usize) -> Result<Value<'m>>);

impl Input for Computed<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        (self.0)(index)
    }
}
