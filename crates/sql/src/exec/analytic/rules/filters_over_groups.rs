//! Filter pushdown that stops at an aggregate which has a group without rows.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The engine's rule, except for filters over an aggregate that returns a row for no input: `SELECT * FROM
/// (SELECT 1 AS one, count(*) FROM t) q WHERE one > 1`. After the substitution of `one` the condition has no
/// column, and the rule moves it below the aggregate, where it removes the counted rows and not the count.
#[derive(Debug)]
pub(in crate::exec::analytic) struct FiltersOverGroups(pub(in crate::exec::analytic) PushDownFilter);

impl OptimizerRule for FiltersOverGroups {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(filter) = &plan
            && has_group_of_none(&filter.input)
        {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

/// True for an aggregate without GROUP BY, or with a grouping set that may be empty, also below further
/// filters: the rule merges adjacent filters and then rewrites the merged one without calling this wrapper
/// again.
fn has_group_of_none(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => has_group_of_none(&filter.input),
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.iter().all(|expr| matches!(expr, Expr::GroupingSet(_)))
        }
        _ => false,
    }
}
