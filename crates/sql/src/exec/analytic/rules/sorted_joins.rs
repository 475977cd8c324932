//! Sort-merge joins instead of hash joins, for statements whose hash tables do not fit into memory: sorts
//! spill.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};

/// The rule that joins by sorting. It runs first, so that the other rules sort the inputs. `NOT IN` over
/// NULLs stays a hash join: sort-merge joins do not support it.
#[derive(Debug)]
pub(in crate::exec::analytic) struct JoinSorted;

impl PhysicalOptimizerRule for JoinSorted {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(plan)) };
            if join.null_aware || join.contains_projection() {
                return Ok(Transformed::no(plan));
            }
            let sorted = SortMergeJoinExec::try_new(
                join.left().clone(),
                join.right().clone(),
                join.on().to_vec(),
                join.filter().cloned(),
                *join.join_type(),
                vec![SortOptions::default(); join.on().len()],
                join.null_equality(),
            )?;
            Ok(Transformed::yes(Arc::new(sorted)))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "join_sorted"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
