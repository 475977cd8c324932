//! Queries over the catalogs, in memory.
//!
//! ```text
//! query ─▶ Node: a tree of selects and set operations ─▶ rows, made by nested loops
//!   a correlated subquery runs once for each outer row, with the outer columns substituted as constants
//! ```
//! Choice of the executor: a query with any reference to a relation of `pg_catalog` or `information_schema`
//! comes here ([`crate::catalog::is_asked`]); every other one goes by keys or to the query engine. So catalog
//! queries of PostgreSQL's clients finish in a millisecond. They may use correlated subqueries anywhere,
//! LATERAL, functions in the select list, WITH RECURSIVE and row_number(), some of which the engine lacks.
//! Tables may be joined with catalogs; they are read by key where a condition gives one, otherwise
//! completely. All rows count against the statement's budget, see [`nested::Run`].

mod check;
mod nested;
mod plan;
mod run;

use std::any::Any;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use ropewalk::tables::{Schema, Table, Type, Value};

use crate::error::Result;
use crate::exec::relations::models::ModelRelation;
use crate::expr::inner_query::{InnerQuery, NestedRun as _};
use crate::expr::{Context, Expr, Input, Order, Record};
use crate::functions::set_returning::SetFunction;
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::plan::bind::scope::Mark;
use crate::plan::with::Last;
use crate::plan::{Asked, Groups};
use crate::types::outcome::ResultColumn;

use nested::Run;
pub(crate) use run::{Filled, fill_expr};

/// A query.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) body: Body,
    pub(crate) columns: Vec<ResultColumn>,
    order: Vec<Order>,
    limit: Option<Expr>,
    offset: Option<Expr>,
    /// Columns with properties beyond their types.
    marks: Vec<(usize, Mark)>,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Expr>>),
    Set {
        op: SetOp,
        all: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    /// WITH RECURSIVE: the rows of `base`, then repeatedly those of `step` over the previous rows, until it
    /// returns no row.
    Recursive {
        base: Box<Node>,
        step: Box<Node>,
        all: bool,
        last: Last,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOp {
    Union,
    Intersect,
    Except,
}

#[derive(Debug, Clone)]
pub(crate) struct Select {
    from: Vec<From>,
    /// Conditions that use no column of FROM.
    constant: Vec<Expr>,
    groups: Option<Groups>,
    output: Vec<Output>,
    /// Over the rows of FROM, or the groups; empty where the order is over the result's columns.
    order: Vec<Order>,
    is_distinct: bool,
    /// DISTINCT ON.
    distinct_on: Vec<Expr>,
}

/// One relation of FROM.
#[derive(Debug, Clone)]
struct From {
    source: Source,
    /// Number of its first column, and the number of its columns.
    start: usize,
    width: usize,
    /// Condition on a row joined with the rows before it.
    filter: Vec<Expr>,
    is_outer: bool,
    /// WHERE conditions, applied after a LEFT JOIN.
    after: Vec<Expr>,
}

#[derive(Debug, Clone)]
enum Source {
    Made(Arc<Vec<Record>>),
    Table(Table, Arc<Schema>),
    Model(Arc<ModelRelation>),
    Query(Inner),
    /// In the step of a recursion.
    Last(Last),
    /// Evaluated for each row of the relations before it; with an ordinality column when true.
    Function(SetFunction, Vec<Expr>, bool),
}

/// An item of the select list.
#[derive(Debug, Clone)]
enum Output {
    One(Expr),
    /// As many rows as it returns.
    Many(SetFunction, Vec<Expr>, Take),
    /// `row_number()` within a partition, in an order.
    Number(Vec<Expr>, Vec<Order>),
}

/// The part of a function's row that becomes a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    Column(usize),
    /// All of a [`Mark::Pair`].
    Pair,
}

/// A query within a query. Columns of the enclosing query are [`Expr::Outer`] in it.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) node: Arc<Node>,
    pub(crate) asked: Asked,
    pub(crate) ty: Type,
    /// It reads columns of enclosing queries.
    is_correlated: bool,
    /// It did so before their values were substituted; it belongs to the copy with those values.
    is_settled: bool,
    /// Cached result of an uncorrelated query.
    kept: Arc<OnceLock<Arc<Vec<Record>>>>,
}

impl Node {
    /// Calls `each` for every direct expression, not for those of inner queries.
    fn each_expr(&mut self, each: &mut dyn FnMut(&mut Expr)) {
        let Self { body, columns: _, order, limit, offset, marks: _ } = self;
        order.iter_mut().for_each(|order| each(&mut order.expr));
        limit.iter_mut().chain(offset).for_each(&mut *each);
        match body {
            Body::Values(rows) => rows.iter_mut().flatten().for_each(each),
            Body::Set { left, right, .. } | Body::Recursive { base: left, step: right, .. } => {
                left.each_expr(each);
                right.each_expr(each);
            }
            Body::Select(select) => {
                let Select { from, constant, groups, output, order, is_distinct: _, distinct_on } =
                    &mut **select;
                for from in from {
                    if let Source::Function(_, arguments, _) = &mut from.source {
                        arguments.iter_mut().for_each(&mut *each);
                    }
                    from.filter.iter_mut().chain(&mut from.after).for_each(&mut *each);
                }
                constant.iter_mut().chain(distinct_on).for_each(&mut *each);
                order.iter_mut().for_each(|order| each(&mut order.expr));
                if let Some(Groups { keys, aggregates, having }) = groups {
                    keys.iter_mut().chain(having).for_each(&mut *each);
                    for aggregate in aggregates {
                        aggregate.arguments.iter_mut().chain(&mut aggregate.filter).for_each(&mut *each);
                        aggregate.order.iter_mut().for_each(|order| each(&mut order.expr));
                    }
                }
                for output in output {
                    match output {
                        Output::One(expr) => each(expr),
                        Output::Many(_, arguments, _) => arguments.iter_mut().for_each(&mut *each),
                        Output::Number(partition, order) => {
                            partition.iter_mut().for_each(&mut *each);
                            order.iter_mut().for_each(|order| each(&mut order.expr));
                        }
                    }
                }
            }
        }
    }

    /// Calls `each` for every relation of FROM that is a query.
    fn each_inner(&mut self, each: &mut dyn FnMut(&mut Inner)) {
        match &mut self.body {
            Body::Values(_) => {}
            Body::Set { left, right, .. } | Body::Recursive { base: left, step: right, .. } => {
                left.each_inner(each);
                right.each_inner(each);
            }
            Body::Select(select) => {
                for from in &mut select.from {
                    if let Source::Query(inner) = &mut from.source {
                        each(inner);
                    }
                }
            }
        }
    }

    /// Replaces columns of the directly enclosing query by the result of `give`. Columns of queries further
    /// out move one step in.
    pub(crate) fn settle_outer(&mut self, give: &mut dyn FnMut(usize) -> Expr) {
        self.change_outer(0, &mut |depth, steps, column| match steps.cmp(&depth) {
            Ordering::Less => None,
            Ordering::Equal => Some(give(column)),
            Ordering::Greater => Some(Expr::Outer(steps - 1, column)),
        });
    }

    /// Calls `change` for every column of an enclosing query, with the number of queries between this one and
    /// the reference, the steps out from the reference, and the column.
    fn change_outer(&mut self, depth: usize, change: &mut dyn FnMut(usize, usize, usize) -> Option<Expr>) {
        self.each_inner(&mut |inner| inner.change_outer(depth + 1, change));
        self.each_expr(&mut |expr| change_outer(expr, depth, change));
    }

    /// True when it reads a column of a query `depth` steps out or further.
    fn reads_outer(&mut self, depth: usize) -> bool {
        let mut found = false;
        // Works on a copy: other places may share the node.
        self.each_inner(&mut |inner| {
            found |= inner.is_correlated && (*inner.node).clone().reads_outer(depth + 1);
        });
        self.each_expr(&mut |expr| found |= reads_outer(expr, depth));
        found
    }
}

fn change_outer(expr: &mut Expr, depth: usize, change: &mut dyn FnMut(usize, usize, usize) -> Option<Expr>) {
    let taken = std::mem::replace(expr, Expr::Const(Value::Null));
    *expr = taken.rewrite(&mut |part| match part {
        Expr::Outer(steps, column) => change(depth, *steps, *column),
        Expr::Inner(query, left) => {
            let mut inner = Inner::of(&**query)?.clone();
            inner.change_outer(depth + 1, change);
            let mut left = left.clone();
            if let Some(left) = &mut left {
                change_outer(left, depth, change);
            }
            Some(inner.expr(left))
        }
        _ => None,
    });
}

/// True when a subquery in it reads columns of enclosing queries.
fn has_correlated(expr: &Expr) -> bool {
    let mut found = Inner::in_expr(expr).is_some_and(|inner| inner.is_correlated);
    expr.for_parts(&mut |part| found |= has_correlated(part));
    found
}

fn reads_outer(expr: &Expr, depth: usize) -> bool {
    match expr {
        Expr::Outer(steps, _) => *steps >= depth,
        other => {
            let mut found = Inner::in_expr(other)
                .is_some_and(|inner| inner.is_correlated && (*inner.node).clone().reads_outer(depth + 1));
            other.for_parts(&mut |part| found |= reads_outer(part, depth));
            found
        }
    }
}

impl Inner {
    fn new(mut node: Node, asked: Asked, ty: Type) -> Self {
        let is_correlated = node.reads_outer(0);
        Self { node: Arc::new(node), asked, ty, is_correlated, is_settled: false, kept: Arc::default() }
    }

    /// Every [`InnerQuery`] is one of these.
    fn of(query: &dyn InnerQuery) -> Option<&Self> {
        (query as &dyn Any).downcast_ref()
    }

    /// The query that an expression consists of.
    fn in_expr(expr: &Expr) -> Option<&Self> {
        match expr {
            Expr::Inner(query, _) => Self::of(&**query),
            _ => None,
        }
    }

    /// The expression of its value; `left` is the left operand of IN.
    fn expr(self, left: Option<Box<Expr>>) -> Expr {
        Expr::Inner(Box::new(self), left)
    }

    fn change_outer(&mut self, depth: usize, change: &mut dyn FnMut(usize, usize, usize) -> Option<Expr>) {
        if self.is_correlated {
            let mut node = (*self.node).clone();
            node.change_outer(depth, change);
            self.is_correlated = node.reads_outer(0);
            self.is_settled = true;
            (self.node, self.kept) = (Arc::new(node), Arc::default());
        }
    }
}

impl InnerQuery for Inner {
    fn copied(&self) -> Box<dyn InnerQuery> {
        Box::new(self.clone())
    }

    fn is_same(&self, other: &dyn InnerQuery) -> bool {
        Self::of(other).is_some_and(|other| Arc::ptr_eq(&self.node, &other.node))
    }

    fn eval(&self, left: Option<&Expr>, cx: &Context<'_>, input: &dyn Input) -> Result<Value<'static>> {
        if let Some(run) = cx.nested {
            return run.value(self, left, cx, input);
        }
        // Outside of queries, in VALUES for example.
        let budget = Budget::new(MEMORY_BYTES_MAX);
        let run = Run::new(None, &budget);
        run.value(self, left, &Context { nested: Some(&run), ..*cx }, input)
    }

    fn renumber(&mut self, number: &dyn Fn(usize) -> usize) {
        self.change_outer(0, &mut |depth, steps, column| {
            (steps == depth).then(|| Expr::Outer(steps, number(column)))
        });
    }

    fn outer_columns(&self, each: &mut dyn FnMut(usize)) {
        if self.is_correlated {
            (*self.node).clone().change_outer(0, &mut |depth, steps, column| {
                if steps == depth {
                    each(column);
                }
                None
            });
        }
    }
}
