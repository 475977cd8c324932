//! Subqueries of nested loops, as an expression evaluates them. The room `exec` implements both traits.

use std::any::Any;
use std::fmt::Debug;

use ropewalk::tables::Value;

use crate::error::Result;
use crate::expr::{Context, Expr, Input};

/// A query within an expression, evaluated for each row of the enclosing query.
pub(crate) trait InnerQuery: Any + Debug + Send + Sync {
    /// A copy for another expression.
    fn copied(&self) -> Box<dyn InnerQuery>;

    /// True when both have the same plan.
    fn is_same(&self, other: &dyn InnerQuery) -> bool;

    /// Its value for a row of the enclosing query. `left` is the left operand of IN.
    fn eval(&self, left: Option<&Expr>, cx: &Context<'_>, input: &dyn Input) -> Result<Value<'static>>;

    /// Makes it read column `number(n)` of the directly enclosing query in place of column `n`.
    fn renumber(&mut self, number: &dyn Fn(usize) -> usize);

    /// Calls `each` for the columns of the directly enclosing query that it reads.
    fn outer_columns(&self, each: &mut dyn FnMut(usize));
}

impl Clone for Box<dyn InnerQuery> {
    fn clone(&self) -> Self {
        (**self).copied()
    }
}

impl PartialEq for dyn InnerQuery {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

/// A run of nested loops, which holds the rows that its subqueries have read.
pub(crate) trait NestedRun {
    /// The value of a subquery that is part of the run.
    fn value(
        &self,
        inner: &dyn InnerQuery,
        left: Option<&Expr>,
        cx: &Context<'_>,
        input: &dyn Input,
    ) -> Result<Value<'static>>;
}
