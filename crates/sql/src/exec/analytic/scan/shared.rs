//! A query of WITH that a statement reads several times: it runs once, and all readers share its rows.
//!
//! ```text
//! WITH q ─▶ plan ─▶ SharedRows, a table of the engine's ─▶ SharedScan, one for each reader ─▶ the batches of q
//!                                                          the first reader runs q, the others wait for it
//! ```
//! The rows are charged to the statement's memory; when that runs out they are written to a temporary file.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as DfResult, Statistics, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SpillFile, TaskContext};
use datafusion::logical_expr::{Expr as Df, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::{SpillManager, get_record_batch_memory_size};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
    execute_stream,
};
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use parking_lot::Mutex;
use sqlparser::ast;

use crate::catalog::with_relations;
use crate::error::Result;
use crate::exec::analytic::build::translate::Col;
use crate::exec::analytic::kernel::plan_step::plan_step;
use crate::exec::analytic::{Relation, SortKey, Sorted, built, run};
use crate::exec::executor::unsupported;
use crate::plan::Planner;
use crate::syntax::names::folded;

/// References to a query of WITH, and its MATERIALIZED option.
pub(in crate::exec::analytic) struct Sharing {
    is_materialized: bool,
    is_inlined: bool,
    /// Number of references.
    readers: usize,
}

impl Sharing {
    /// Collects the references to the query at a position of a WITH by the later ones and by the main query.
    pub(in crate::exec::analytic) fn of(query: &ast::Query, with: &ast::With, place: usize) -> Self {
        let Some(cte) = with.cte_tables.get(place) else {
            return Self { is_materialized: false, is_inlined: false, readers: 0 };
        };
        let name = folded(&cte.alias.name);
        let mut readers = 0;
        let mut count = |query: &ast::Query| {
            with_relations(query, &mut |schema, relation| {
                readers += usize::from(schema.is_none() && relation == name);
                None
            });
        };
        with.cte_tables.iter().skip(place + 1).for_each(|later| count(&later.query));
        count(&ast::Query { with: None, ..query.clone() });
        Self {
            is_materialized: cte.materialized == Some(ast::CteAsMaterialized::Materialized),
            is_inlined: cte.materialized == Some(ast::CteAsMaterialized::NotMaterialized),
            readers,
        }
    }

    /// Decides as PostgreSQL does, except that several readers may each read a table separately: the result
    /// is the same, and the engine narrows each of these reads.
    fn is_shared(&self, plan: &LogicalPlan) -> Result<bool> {
        if self.is_materialized {
            return Ok(true);
        }
        Ok(self.readers > 1 && (is_volatile(plan)? || !self.is_inlined && works(plan)?))
    }
}

/// True when it may return another result each time.
fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    built(plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    }))?;
    Ok(found)
}

/// True when it does more than read rows one by one.
fn works(plan: &LogicalPlan) -> Result<bool> {
    let is_plain = |node: &LogicalPlan| {
        matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::Values(_)
                | LogicalPlan::EmptyRelation(_)
        )
    };
    built(plan.exists(|node| Ok(!is_plain(node))))
}

impl Planner<'_> {
    /// Plans a query of WITH to run once where its readers could tell the difference.
    pub(in crate::exec::analytic) fn shared(
        &mut self,
        name: &str,
        relation: Relation,
        sharing: &Sharing,
    ) -> Result<Relation> {
        let (plan, keys) = match &relation.sorted {
            Some(sorted) => (&sorted.plan, sorted.keys.clone()),
            None => (&relation.plan, Vec::new()),
        };
        if !plan.all_out_ref_exprs().is_empty() || !sharing.is_shared(plan)? {
            return Ok(relation);
        }
        if !run::is_served(plan) {
            return Err(unsupported(format!("the query {name} of WITH")));
        }
        let width = relation.cols.len();
        let all = relation.cols.iter().chain(keys.iter().map(|key| &key.col));
        let exprs = all.map(|col| (col.expr(), col.form.clone(), col.ty)).collect();
        let (plan, mut cols) = self.projected(plan.clone(), exprs)?;
        let table = TableReference::bare(self.whole()?.fresh('t'));
        let rows = provider_as_source(Arc::new(SharedRows::new(name, plan)));
        let scan = LogicalPlanBuilder::scan(table.clone(), rows, None);
        let mut plan = built(scan.and_then(|builder| builder.build()))?;
        cols.iter_mut().for_each(|col| col.column.relation = Some(table.clone()));
        let keys = keys.into_iter().zip(cols.split_off(width)).map(|(key, col)| SortKey { col, ..key });
        let keys: Vec<SortKey> = keys.collect();
        let sorted = (!keys.is_empty()).then(|| Box::new(Sorted { plan: plan.clone(), keys }));
        if sorted.is_some() {
            let shown: Vec<Df> = cols.iter().map(Col::expr).collect();
            plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
        }
        Ok(Relation { plan, cols, sorted, ..relation })
    }
}

/// The rows of a query, as a table of the engine's.
struct SharedRows {
    name: String,
    plan: LogicalPlan,
    schema: SchemaRef,
    /// The run of the latest session: a statement that restarts has another session of the engine.
    run: tokio::sync::Mutex<Option<(String, Arc<Run>)>>,
}

impl SharedRows {
    fn new(name: &str, plan: LogicalPlan) -> Self {
        let schema = Arc::new(plan.schema().as_arrow().clone());
        Self { name: name.to_owned(), plan, schema, run: tokio::sync::Mutex::default() }
    }

    async fn run_of(&self, state: &dyn Session) -> DfResult<Arc<Run>> {
        let mut known = self.run.lock().await;
        if let Some((id, run)) = known.as_ref()
            && id == state.session_id()
        {
            return Ok(run.clone());
        }
        let plan = state.create_physical_plan(&self.plan).await?;
        let run = Arc::new(Run { plan, held: Mutex::default() });
        *known = Some((state.session_id().to_owned(), run.clone()));
        Ok(run)
    }
}

impl fmt::Debug for SharedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRows({})", self.name)
    }
}

#[async_trait::async_trait]
impl TableProvider for SharedRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Df],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let run = self.run_of(state).await?;
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let fields: SchemaRef = Arc::new(self.schema.project(&columns)?);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(fields),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Ok(Arc::new(SharedScan { name: self.name.clone(), run, columns, properties }))
    }
}

/// The rows of a run, present or future.
type Holding = Shared<BoxFuture<'static, std::result::Result<Arc<Held>, Arc<DataFusionError>>>>;

/// One run of the query.
struct Run {
    plan: Arc<dyn ExecutionPlan>,
    held: Mutex<Option<Holding>>,
}

impl Run {
    fn held(&self, context: &Arc<TaskContext>) -> Holding {
        let begin = || Held::gather(self.plan.clone(), context.clone()).map_err(Arc::new).boxed().shared();
        self.held.lock().get_or_insert_with(begin).clone()
    }
}

/// The rows of the query.
enum Held {
    InMemory {
        batches: Vec<RecordBatch>,
        /// Released when the rows are dropped.
        _memory: MemoryReservation,
    },
    InFile(SpillManager, Option<Arc<dyn SpillFile>>),
}

impl Held {
    async fn gather(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> DfResult<Arc<Self>> {
        let consumer = MemoryConsumer::new("SharedRows").with_can_spill(true);
        let memory = consumer.register(context.memory_pool());
        let mut rows = execute_stream(plan.clone(), context.clone())?;
        let mut batches = Vec::new();
        let mut file = None;
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let manager = SpillManager::new(context.runtime_env(), metrics, plan.schema());
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            if file.is_none() && memory.try_grow(get_record_batch_memory_size(&batch)).is_err() {
                let mut begun = manager.create_in_progress_file("rows of a WITH query")?;
                batches.drain(..).try_for_each(|held| begun.append_batch(&held).map(drop))?;
                memory.free();
                file = Some(begun);
            }
            match &mut file {
                Some(file) => drop(file.append_batch(&batch)?),
                None => batches.push(batch),
            }
        }
        Ok(Arc::new(match file {
            Some(mut file) => Self::InFile(manager, file.finish()?),
            None => Self::InMemory { batches, _memory: memory },
        }))
    }

    fn read(&self) -> DfResult<stream::BoxStream<'static, DfResult<RecordBatch>>> {
        Ok(match self {
            Self::InMemory { batches, .. } => stream::iter(batches.clone().into_iter().map(Ok)).boxed(),
            Self::InFile(_, None) => stream::empty().boxed(),
            Self::InFile(manager, Some(file)) => manager.read_spill_as_stream(file.clone(), None)?.boxed(),
        })
    }
}

/// The engine's step that reads the rows of a shared query.
struct SharedScan {
    name: String,
    run: Arc<Run>,
    columns: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for SharedScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedScan({})", self.name)
    }
}

impl DisplayAs for SharedScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedScan: {}", self.name)
    }
}

impl ExecutionPlan for SharedScan {
    // A leaf, because the query was optimised separately: filters of one reader do not hold for the others.
    plan_step!("SharedScan", leaf);

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let (held, columns) = (self.run.held(&context), self.columns.clone());
        let batches = async move { held.await.map_err(DataFusionError::Shared)?.read() };
        let batches = stream::once(batches).try_flatten();
        let batches = batches.map(move |batch| Ok(batch?.project(&columns)?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn partition_statistics(&self, _: Option<usize>) -> DfResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        let rows = StatisticsContext::new().compute(self.run.plan.as_ref(), &StatisticsArgs::new())?;
        statistics.num_rows = rows.num_rows;
        Ok(Arc::new(statistics))
    }
}
