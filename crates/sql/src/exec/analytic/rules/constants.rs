//! Corrects columns that the engine treats as constant although they are not.
//!
//! ```text
//! (SELECT 1) UNION ALL (SELECT NULL::int)         constant in each part, but not in the union
//! a LEFT JOIN (SELECT id, 1 AS c FROM b) …        1 for a matched row, NULL for an unmatched one
//! ```
//! The engine would remove a sort by such a column. The rule inserts a step without equivalence properties
//! above the union or join, before the rules that read these properties.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, JoinType, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{AcrossPartitions, EquivalenceProperties};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    SendableRecordBatchStream,
};

use crate::exec::analytic::kernel::plan_step::plan_step;

/// The rule. It follows the one that chooses the sides of joins.
#[derive(Debug)]
pub(in crate::exec::analytic) struct ForgetConstants;

impl PhysicalOptimizerRule for ForgetConstants {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match has_false_constants(&plan) {
                true => Transformed::yes(Arc::new(ForgetExec::new(plan)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "forget_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn has_false_constants(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let constants = plan.equivalence_properties().constants();
    if plan.is::<UnionExec>() {
        return constants
            .iter()
            .any(|constant| constant.across_partitions == AcrossPartitions::Uniform(None));
    }
    let hash = plan.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let merge = plan.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::join_type);
    let loops = plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let is_outer =
        matches!(hash.or(merge).or(loops), Some(JoinType::Left | JoinType::Right | JoinType::Full));
    is_outer && !constants.is_empty()
}

/// Passes the rows of its input through, without equivalence properties.
#[derive(Debug)]
struct ForgetExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ForgetExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, properties: Arc::new(properties) }
    }
}

impl DisplayAs for ForgetExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForgetExec")
    }
}

impl ExecutionPlan for ForgetExec {
    plan_step!("ForgetExec");

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input))),
            Err(_) => Err(DataFusionError::Internal("ForgetExec has one child".into())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
