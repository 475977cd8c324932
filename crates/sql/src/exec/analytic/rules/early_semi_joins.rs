//! Semi-joins, made of EXISTS and IN, below joins that do not reduce the rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule that moves a semi-join to the one relation that it tests, before that is joined to others:
///
/// ```text
/// (orders ⋈ lineitem) ⋉ large orders   ─▶   (orders ⋉ large orders) ⋈ lineitem
/// ```
/// It moves only past unfiltered relations: as a rule, joining one does not reduce the rows of the tested
/// relation. A join with a filtered relation may leave far fewer rows to test.
#[derive(Debug)]
pub(in crate::exec::analytic) struct SemiJoinEarly;

impl OptimizerRule for SemiJoinEarly {
    fn name(&self) -> &str {
        "semi_join_early"
    }

    /// From the top: a semi-join that moved below one join is visited again there.
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(semi) = &plan else { return Ok(Transformed::no(plan)) };
        let LogicalPlan::Join(inner) = semi.left.as_ref() else { return Ok(Transformed::no(plan)) };
        if semi.join_type != JoinType::LeftSemi || semi.null_aware || inner.join_type != JoinType::Inner {
            return Ok(Transformed::no(plan));
        }
        let sunk = if asks_only(semi, inner.left.schema()) && is_whole(&inner.right)? {
            Join { left: asked(semi, &inner.left)?, ..inner.clone() }
        } else if asks_only(semi, inner.right.schema()) && is_whole(&inner.left)? {
            Join { right: asked(semi, &inner.right)?, ..inner.clone() }
        } else {
            return Ok(Transformed::no(plan));
        };
        Ok(Transformed::yes(LogicalPlan::Join(sunk)))
    }
}

/// The semi-join of `relation` instead of the enclosing join.
fn asked(semi: &Join, relation: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    let sunk = Join::try_new(
        relation.clone(),
        semi.right.clone(),
        semi.on.clone(),
        semi.filter.clone(),
        semi.join_type,
        semi.join_constraint,
        semi.null_equality,
        semi.null_aware,
    )?;
    Ok(Arc::new(LogicalPlan::Join(sunk)))
}

/// True when all columns that the semi-join reads of its left side are in `schema`.
fn asks_only(semi: &Join, schema: &DFSchema) -> bool {
    let whole = semi.left.schema();
    let within = |expr: &Expr| {
        let columns = expr.column_refs();
        columns.into_iter().all(|column| !whole.has_column(column) || schema.has_column(column))
    };
    semi.on.iter().all(|(left, _)| within(left)) && semi.filter.iter().all(within)
}

/// True when only joins reduce the rows of the relations that `plan` reads.
fn is_whole(plan: &LogicalPlan) -> Result<bool> {
    let mut whole = true;
    plan.apply(|node| {
        whole &= match node {
            LogicalPlan::TableScan(scan) => scan.filters.is_empty() && scan.fetch.is_none(),
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => true,
            LogicalPlan::Join(join) => join.join_type == JoinType::Inner && join.filter.is_none(),
            _ => false,
        };
        Ok(if whole { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(whole)
}
