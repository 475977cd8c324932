//! Conditions that guard others: `b <> 0 AND a / b > 1` divides by no zero.
//!
//! The engine evaluates both sides of AND and OR for all rows of a batch. That is correct, and fast, as long
//! as no evaluation fails. After a failure the same expression is evaluated again, with the right side only
//! for rows that the left side leaves undecided; of a filter's conditions, those that cannot fail are
//! evaluated first.
//!
//! ```text
//! Guarded ─▶ whole: the engine's expression ─▶ ok
//!               │ error
//!               └▶ lazy: each AND and OR a [`Lazy`] ─▶ ok, or the error of a row that no condition had excluded
//! ```
//! Nested loops evaluate parts of their filter below the join, for each row of one side, unless those parts are guarded
//! before: a CASE, or a key that is not equal, then guards nothing.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::kernels::boolean::{and_kleene, is_not_null, not, or_kleene};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::NestedLoopJoinExecBuilder;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::exec::analytic::kernel::arithmetic::Checked;
use crate::exec::analytic::kernel::scalar::{RowExpr, through};
use crate::expr::bug;

type Physical = Arc<dyn PhysicalExpr>;

/// The rule that adds guards to filters, joins and projections.
#[derive(Debug)]
pub(in crate::exec::analytic) struct KeepGuards;

impl PhysicalOptimizerRule for KeepGuards {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let guarded = with_guards(&plan)?;
            Ok(guarded.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "keep_guards"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rule that keeps the filters of nested loops whole if they may fail. It comes first.
#[derive(Debug)]
pub(in crate::exec::analytic) struct KeepJoinFilters;

impl PhysicalOptimizerRule for KeepJoinFilters {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() else {
                return Ok(Transformed::no(plan));
            };
            match join.filter().filter(|filter| may_fail(filter.expression())) {
                None => Ok(Transformed::no(plan)),
                Some(filter) => with_filter(join, whole_filter(filter)?).map(Transformed::yes),
            }
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "keep_join_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The step with guarded expressions; `None` when none of them needs a guard.
fn with_guards(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let Some(predicate) = guarded(filter.predicate(), true)? else { return Ok(None) };
        let filter = FilterExecBuilder::from(filter).with_predicate(predicate).build()?;
        return Ok(Some(Arc::new(filter)));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut exprs: Vec<ProjectionExpr> = projection.expr().to_vec();
        let mut is_changed = false;
        for item in &mut exprs {
            if let Some(expr) = guarded(&item.expr, false)? {
                (item.expr, is_changed) = (expr, true);
            }
        }
        let projection = || ProjectionExec::try_new(exprs, projection.input().clone());
        return Ok(if is_changed { Some(Arc::new(projection()?)) } else { None });
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let Some(filter) = guarded_join(join.filter())? else { return Ok(None) };
        return join.builder().with_filter(Some(filter)).build_exec().map(Some);
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = guarded_join(join.filter())? else { return Ok(None) };
        return with_filter(join, filter).map(Some);
    }
    Ok(None)
}

fn with_filter(join: &NestedLoopJoinExec, filter: JoinFilter) -> Result<Arc<dyn ExecutionPlan>> {
    let (left, right) = (join.left().clone(), join.right().clone());
    let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
        .with_filter(Some(filter))
        .with_projection_ref(join.projection().clone());
    Ok(Arc::new(join.build()?))
}

fn guarded_join(filter: Option<&JoinFilter>) -> Result<Option<JoinFilter>> {
    let filter = filter.filter(|filter| has_guard(filter.expression()));
    filter.map(whole_filter).transpose()
}

fn whole_filter(filter: &JoinFilter) -> Result<JoinFilter> {
    let whole: Physical = Arc::new(Guarded::new(filter.expression(), true)?);
    Ok(JoinFilter::new(whole, filter.column_indices().to_vec(), filter.schema().clone()))
}

/// The expression with its guards; `None` when none is needed. In a filter NULL counts as false.
fn guarded(expr: &Physical, is_filter: bool) -> Result<Option<Physical>> {
    if !has_guard(expr) {
        return Ok(None);
    }
    Ok(Some(Arc::new(Guarded::new(expr, is_filter)?)))
}

/// The expression as an AND or OR, if it is one.
fn junction(expr: &Physical) -> Option<&BinaryExpr> {
    expr.downcast_ref::<BinaryExpr>().filter(|binary| matches!(binary.op(), Operator::And | Operator::Or))
}

fn any_part(expr: &Physical, holds: &dyn Fn(&Physical) -> bool) -> bool {
    holds(expr) || expr.children().into_iter().any(|part| any_part(part, holds))
}

/// True when an AND or OR in it has a side that may fail.
fn has_guard(expr: &Physical) -> bool {
    any_part(expr, &|part| junction(part).is_some() && may_fail(part))
}

/// True when some row may make it fail.
fn may_fail(expr: &Physical) -> bool {
    any_part(expr, &|part| {
        let function = part.downcast_ref::<ScalarFunctionExpr>();
        function.is_some_and(|function| {
            let inner: &dyn std::any::Any = function.fun().inner().as_ref();
            inner.is::<Checked>() || inner.downcast_ref::<RowExpr>().is_some_and(RowExpr::may_fail)
        })
    })
}

/// The expression with every AND and OR evaluated from left to right.
fn lazy(expr: &Physical, is_filter: bool) -> Result<Physical> {
    let mut parts = match is_filter {
        true => split_conjunction(expr),
        false => vec![expr],
    };
    parts.sort_by_key(|part| may_fail(part));
    let mut all: Option<Physical> = None;
    for part in parts {
        let part = part.clone().transform_up(|part| {
            Ok(match junction(&part) {
                Some(binary) => {
                    let (left, right) = (binary.left().clone(), binary.right().clone());
                    let is_and = *binary.op() == Operator::And;
                    Transformed::yes(Arc::new(Lazy { left, right, is_and, is_filter: false }) as _)
                }
                None => Transformed::no(part),
            })
        });
        let part = part.data()?;
        all = Some(match all {
            None => part,
            Some(left) => Arc::new(Lazy { left, right: part, is_and: true, is_filter: true }),
        });
    }
    all.ok_or_else(|| through(bug("an expression without parts")))
}

/// AND or OR that evaluates its right side only where the left side does not decide.
#[derive(Debug, Eq)]
struct Lazy {
    left: Physical,
    right: Physical,
    is_and: bool,
    /// A left side that is NULL decides, too: the row is left out.
    is_filter: bool,
}

impl PartialEq for Lazy {
    fn eq(&self, other: &Self) -> bool {
        self.left.eq(&other.left)
            && self.right.eq(&other.right)
            && (self.is_and, self.is_filter) == (other.is_and, other.is_filter)
    }
}

impl Hash for Lazy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.left.hash(state);
        self.right.hash(state);
        self.is_and.hash(state);
    }
}

impl fmt::Display for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.left, if self.is_and { "AND" } else { "OR" }, self.right)
    }
}

impl PhysicalExpr for Lazy {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        Ok(self.left.nullable(schema)? || self.right.nullable(schema)?)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let left = self.left.evaluate(batch)?.into_array(batch.num_rows())?;
        let left = as_boolean_array(&left)?;
        let decided = if self.is_and { not(left)? } else { left.clone() };
        let is_known = is_not_null(left)?;
        let undecided = match self.is_filter {
            true => and_kleene(left, &is_known)?,
            false => not(&and_kleene(&decided, &is_known)?)?,
        };
        let right = self.right.evaluate_selection(batch, &undecided)?.into_array(batch.num_rows())?;
        let right = as_boolean_array(&right)?;
        let both: BooleanArray = if self.is_and { and_kleene(left, right)? } else { or_kleene(left, right)? };
        Ok(ColumnarValue::Array(Arc::new(both)))
    }

    fn children(&self) -> Vec<&Physical> {
        vec![&self.left, &self.right]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Physical>) -> Result<Physical> {
        match <[Physical; 2]>::try_from(children) {
            Ok([left, right]) => Ok(Arc::new(Self { left, right, ..*self })),
            Err(_) => Err(through(bug("AND or OR of two"))),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An expression, and the fallback that is evaluated when it fails for a whole batch. Other rules see its columns only.
#[derive(Debug, Eq)]
struct Guarded {
    whole: Physical,
    lazy: Physical,
    is_filter: bool,
    columns: Vec<Physical>,
}

impl Guarded {
    fn new(whole: &Physical, is_filter: bool) -> Result<Self> {
        let mut columns: Vec<Physical> = Vec::new();
        whole.apply(|part| {
            if part.is::<Column>() && !columns.contains(part) {
                columns.push(part.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self { lazy: lazy(whole, is_filter)?, whole: whole.clone(), is_filter, columns })
    }
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.whole.eq(&other.whole) && self.is_filter == other.is_filter
    }
}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.whole.hash(state);
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.whole, f)
    }
}

impl PhysicalExpr for Guarded {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.whole.return_field(schema)
    }

    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.whole.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.whole.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if is_volatile(&self.whole) {
            return self.lazy.evaluate(batch);
        }
        match self.whole.evaluate(batch) {
            Err(error) if is_of_a_row(&error) => self.lazy.evaluate(batch),
            done => done,
        }
    }

    fn children(&self) -> Vec<&Physical> {
        self.columns.iter().collect()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Physical>) -> Result<Physical> {
        // All at once: a new column may be equal to another one's old.
        let whole = self.whole.clone().transform_down(|part| {
            let place = self.columns.iter().position(|column| column.eq(&part));
            Ok(match place.and_then(|place| children.get(place)) {
                Some(new) => Transformed::new(new.clone(), true, TreeNodeRecursion::Jump),
                None => Transformed::no(part),
            })
        });
        Ok(Arc::new(Self::new(&whole.data()?, self.is_filter)?))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whole.fmt_sql(f)
    }
}

/// True when a second evaluation may return another value.
fn is_volatile(expr: &Physical) -> bool {
    any_part(expr, &|part| part.is_volatile_node())
}

/// True for errors caused by the value of a row, not by the end of memory or of the statement.
fn is_of_a_row(error: &DataFusionError) -> bool {
    use crate::error::state;
    let state = crate::exec::analytic::from_engine(error).state;
    !matches!(state, state::OUT_OF_MEMORY | state::QUERY_CANCELED | state::INTERNAL_ERROR)
}
