//! Reads partitions one after the other, where the engine would take their batches as they arrive.
//!
//! ```text
//! partition 0   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▶ read to its end
//! partition 1   ▓▓▓▓ runs ahead until its buffer is full ┄┄┄▶ then this one
//! partition 2   ▓▓▓▓
//! ```
//! So the parts of UNION ALL come in the order of the query, and a scan in the order of its keys, every time.
//!
//! A repartition below, without a step in between that first consumes its input, distributes rows to all
//! partitions at once: the rows of waiting partitions would pile up in it. A repartition that only spreads
//! work is removed, since it loses the order; a hash repartition stays, and above it batches are taken as
//! they arrive.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::exec::analytic::kernel::plan_step::plan_step;

/// Maximum number of batches that a partition runs ahead.
const AHEAD: usize = 16;

/// The rule that orders partitions; it runs last.
#[derive(Debug)]
pub(in crate::exec::analytic) struct PutInOrder;

impl PhysicalOptimizerRule for PutInOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = match partitions(&plan) {
            0 | 1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        };
        plan.transform_down(|plan| {
            let Some(merge) = plan.downcast_ref::<CoalescePartitionsExec>() else {
                return Ok(Transformed::no(plan));
            };
            let Some(input) = arranged(merge.input())? else { return Ok(Transformed::no(plan)) };
            Ok(Transformed::yes(Arc::new(InOrderExec::new(input, merge.fetch()))))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "put_in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn partitions(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}

/// The plan with partitions that may wait for each other; `None` if that is impossible.
fn arranged(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // A sort and an aggregate consume their input before they return rows.
    if partitions(plan) <= 1 || plan.is::<SortExec>() || plan.is::<AggregateExec>() {
        return Ok(Some(plan.clone()));
    }
    if let Some(step) = plan.downcast_ref::<RepartitionExec>() {
        return match step.partitioning() {
            Partitioning::RoundRobinBatch(_) => arranged(step.input()),
            _ => Ok(None),
        };
    }
    let mut children: Vec<Arc<dyn ExecutionPlan>> = plan.children().into_iter().cloned().collect();
    if plan.is::<UnionExec>() {
        for child in &mut children {
            *child = match arranged(child)? {
                Some(child) => child,
                None => Arc::new(CoalescePartitionsExec::new(child.clone())),
            };
        }
    } else if let Some(rows) = streamed(plan).and_then(|place| children.get_mut(place)) {
        let Some(arranged) = arranged(rows)? else { return Ok(None) };
        *rows = arranged;
    }
    replace_children_if_necessary(plan.clone(), children).map(Some)
}

/// The child that a step reads while it returns rows: joins first read the left one.
fn streamed(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let is_join = plan.name().ends_with("JoinExec");
    match plan.children().len() {
        0 => None,
        _ => Some(usize::from(is_join)),
    }
}

/// Reads the partitions of its input one after the other, while the others run ahead.
#[derive(Debug)]
struct InOrderExec {
    input: Arc<dyn ExecutionPlan>,
    fetch: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl InOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        let mut equal = input.equivalence_properties().clone();
        equal.clear_orderings();
        equal.clear_per_partition_constants();
        let properties = PlanProperties::new(
            equal,
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, fetch, metrics: ExecutionPlanMetricsSet::new(), properties: Arc::new(properties) }
    }
}

impl DisplayAs for InOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.fetch {
            Some(fetch) => write!(f, "InOrderExec: fetch={fetch}"),
            None => write!(f, "InOrderExec"),
        }
    }
}

impl ExecutionPlan for InOrderExec {
    plan_step!("InOrderExec");

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, self.fetch))),
            Err(_) => Err(DataFusionError::Internal("InOrderExec has one child".into())),
        }
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (turn, _) = watch::channel(0);
        let mut parts = Vec::new();
        for number in 0..partitions(&self.input) {
            let rows = self.input.execute(number, context.clone())?;
            let consumer = MemoryConsumer::new(format!("InOrderExec[{number}]"));
            let memory = consumer.register(context.memory_pool());
            let (sender, batches) = channel(AHEAD);
            let mine = turn.subscribe();
            let task = SpawnedTask::spawn(run_ahead(rows, number, mine, memory, sender));
            parts.push(Running { batches, task });
        }
        parts.reverse();
        let reading = Reading {
            parts,
            turn,
            left: self.fetch.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&self.metrics, 0),
        };
        let batches = stream::try_unfold(reading, |mut reading| async {
            Ok(reading.next().await?.map(|batch| (batch, reading)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// A waiting batch, with the memory it holds.
struct Waiting {
    batch: RecordBatch,
    _memory: Option<MemoryReservation>,
}

/// Reads a partition into its buffer. A batch that does not fit into memory waits for the partition's turn.
async fn run_ahead(
    mut rows: SendableRecordBatchStream,
    number: usize,
    mut turn: watch::Receiver<usize>,
    memory: MemoryReservation,
    sender: Sender<Result<Waiting>>,
) {
    // The reader has been dropped when neither a permit nor a turn arrives.
    while let Ok(permit) = sender.reserve().await {
        let batch = match rows.next().await {
            None => return,
            Some(Err(error)) => return permit.send(Err(error)),
            Some(Ok(batch)) => batch,
        };
        let held = memory.new_empty();
        let held = held.try_grow(batch.get_array_memory_size()).is_ok().then_some(held);
        if held.is_none() && turn.wait_for(|now| *now == number).await.is_err() {
            return;
        }
        permit.send(Ok(Waiting { batch, _memory: held }));
    }
}

struct Running {
    batches: Receiver<Result<Waiting>>,
    task: SpawnedTask<()>,
}

/// The partitions from the current one on, the last one first. Dropping it stops them.
struct Reading {
    parts: Vec<Running>,
    turn: watch::Sender<usize>,
    /// Rows that may still be returned.
    left: usize,
    metrics: BaselineMetrics,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0
            && let Some(part) = self.parts.last_mut()
        {
            if let Some(waiting) = part.batches.recv().await {
                let batch = waiting?.batch;
                let batch = if batch.num_rows() > self.left { batch.slice(0, self.left) } else { batch };
                self.left -= batch.num_rows();
                self.metrics.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            // The task ended, or failed in a way that it could not report.
            (&mut part.task).await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            self.parts.pop();
            self.turn.send_modify(|now| *now += 1);
        }
        self.parts.clear();
        self.metrics.done();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::cast::as_int64_array;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    use super::*;

    const PARTS: i64 = 5;
    const BATCHES: i64 = 60;

    /// Five partitions of sixty batches, of three rows each, numbered through.
    fn source() -> Arc<dyn ExecutionPlan> {
        let fields = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let batch = |first: i64| {
            let numbers = Int64Array::from_iter_values(first * 3..first * 3 + 3);
            RecordBatch::try_new(fields.clone(), vec![Arc::new(numbers)]).unwrap()
        };
        let part = |part: i64| (part * BATCHES..(part + 1) * BATCHES).map(batch).collect();
        let parts: Vec<Vec<RecordBatch>> = (0..PARTS).map(part).collect();
        MemorySourceConfig::try_new_exec(&parts, fields.clone(), None).unwrap()
    }

    fn numbers(plan: Arc<dyn ExecutionPlan>, memory_bytes_max: usize) -> Vec<i64> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        runtime.block_on(async {
            let pool = Arc::new(GreedyMemoryPool::new(memory_bytes_max));
            let env = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc().unwrap();
            let context = Arc::new(TaskContext::default().with_runtime(env));
            let mut rows = plan.execute(0, context.clone()).unwrap();
            let mut found = Vec::new();
            while let Some(batch) = rows.next().await {
                found.extend(as_int64_array(batch.unwrap().column(0)).unwrap().values());
            }
            drop(rows);
            assert_eq!(context.memory_pool().reserved(), 0);
            found
        })
    }

    #[test]
    fn partitions_are_read_one_after_the_other() {
        let plan = Arc::new(InOrderExec::new(source(), None));
        assert_eq!(numbers(plan, 1 << 20), (0..PARTS * BATCHES * 3).collect::<Vec<_>>());
    }

    #[test]
    fn partitions_without_memory_do_not_run_ahead_and_return_all_rows() {
        let plan = Arc::new(InOrderExec::new(source(), None));
        assert_eq!(numbers(plan, 0), (0..PARTS * BATCHES * 3).collect::<Vec<_>>());
    }

    #[test]
    fn a_limit_cuts_within_a_batch_and_stops_the_others() {
        let plan = Arc::new(InOrderExec::new(source(), Some(BATCHES as usize * 3 + 4)));
        assert_eq!(numbers(plan, 1 << 20), (0..BATCHES * 3 + 4).collect::<Vec<_>>());
    }

    #[test]
    fn round_robin_repartition_is_removed() {
        let spread = RepartitionExec::try_new(source(), Partitioning::RoundRobinBatch(7)).unwrap();
        let plan = PutInOrder.optimize(Arc::new(spread), &ConfigOptions::default()).unwrap();
        assert!(plan.is::<InOrderExec>());
        assert_eq!(numbers(plan, 1 << 20), (0..PARTS * BATCHES * 3).collect::<Vec<_>>());
    }
}
