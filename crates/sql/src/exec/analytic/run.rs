//! Runs a plan of the query engine for a waiting session.
//!
//! ```text
//! session's thread   plan ─▶ wait ◀─ batches, requests for rows of its transaction, the end
//! engine's threads   optimise, scan, join, group, sort: within a memory limit, spilling to temporary files
//! ```
//! The engine's runtime belongs to this crate; see docs/decisions/0009. A session never runs on it and never
//! blocks one of its threads. If the session stops reading, the whole run stops.

use std::error::Error;
use std::pin::pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr as Df, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionConfig;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::guards::{KeepGuards, KeepJoinFilters};
use crate::exec::analytic::built;
use crate::exec::analytic::memory::StatementMemory;
use crate::exec::analytic::rules::constants::ForgetConstants;
use crate::exec::analytic::rules::early_semi_joins::SemiJoinEarly;
use crate::exec::analytic::rules::filters_over_groups::FiltersOverGroups;
use crate::exec::analytic::rules::in_order::PutInOrder;
use crate::exec::analytic::rules::sorted_joins::JoinSorted;
use crate::exec::analytic::scan::rows::{Request, Want, read};
use crate::expr::{Context, bug};
use crate::limits::temp_files::{HINT as TEMP_FILES_HINT, StatementFiles, TempFiles};

/// Maximum number of batches that wait for the session.
const WAITING: usize = 4;
/// Interval at which a waiting session checks for interrupts.
const TICK: Duration = Duration::from_millis(100);

/// A message from the engine to the session's thread.
pub(crate) enum Event {
    Batch(RecordBatch),
    /// The engine needs rows of the session's transaction.
    Read(Request),
    /// Lines of EXPLAIN.
    Lines(Vec<String>),
    Done(std::result::Result<(), DataFusionError>),
}

/// Execution mode of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Rows,
    Explain,
    Analyze,
}

/// Limits of the execution of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) memory_bytes_max: usize,
    /// On one thread: some of our aggregates have no partial states.
    pub(crate) single: bool,
}

/// Stack of a thread that plans and runs queries, committed as it is used. Plans are traversed recursively,
/// and a plan of a thousand joins is that deep.
const STACK_BYTES: usize = 16 << 20;

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .thread_name("ropewalk-query")
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .build()
            .map_err(|error| error.to_string())
    });
    runtime.as_ref().map_err(|error| SqlError::new(state::INTERNAL_ERROR, format!("no threads: {error}")))
}

/// Strategy for running a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// On all processors, with hash joins, whose tables have to fit into memory.
    Parallel,
    /// On one thread, with sort-merge joins, which spill.
    Spilling,
}

fn session_state(
    limits: Limits,
    way: Way,
    (memory, files): (Arc<StatementMemory>, Arc<DiskManager>),
) -> std::result::Result<SessionState, DataFusionError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let single = limits.single || way == Way::Spilling;
    let mut config = SessionConfig::new().with_target_partitions(if single { 1 } else { threads });
    let options = config.options_mut();
    let reserved = &mut options.execution.sort_spill_reservation_bytes;
    *reserved = (*reserved).min(limits.memory_bytes_max / 16);
    options.optimizer.prefer_hash_join = true;
    // The alternative interleaves the parts of UNION ALL.
    options.optimizer.prefer_existing_union = true;
    options.sql_parser.enable_ident_normalization = false;
    // Constant folding may produce NULL in one schema and a non-null value in the other.
    options.execution.skip_physical_aggregate_schema_check = true;
    let mut env = RuntimeEnvBuilder::new().with_memory_pool(memory).build()?;
    env.disk_manager = files;
    let mut rules = PhysicalOptimizer::default().rules;
    // Filters have been pushed down by then. This rule matches columns by name, and two sides of a join may
    // have the same names.
    rules.retain(|rule| !rule.name().starts_with("FilterPushdown"));
    let sided = rules.iter().position(|rule| rule.name() == "join_selection");
    rules.insert(sided.map_or(0, |place| place + 1), Arc::new(ForgetConstants));
    if way == Way::Spilling {
        rules.insert(0, Arc::new(JoinSorted));
    }
    rules.insert(0, Arc::new(KeepJoinFilters));
    rules.push(Arc::new(KeepGuards));
    rules.push(Arc::new(PutInOrder));
    // After filters have been pushed down, and before projections are placed between joins.
    let mut logical = Optimizer::new().rules;
    let filtered = logical.iter().position(|rule| rule.name() == "push_down_filter");
    for rule in logical.iter_mut().filter(|rule| rule.name() == "push_down_filter") {
        *rule = Arc::new(FiltersOverGroups(PushDownFilter::new()));
    }
    logical.insert(filtered.map_or(logical.len(), |place| place + 1), Arc::new(SemiJoinEarly));
    let builder = SessionStateBuilder::new().with_config(config).with_runtime_env(Arc::new(env));
    Ok(builder.with_optimizer_rules(logical).with_physical_optimizer_rules(rules).build())
}

/// True when a subquery of the plan reads the enclosing query, or is an IN or an EXISTS: the engine runs
/// those that become joins.
fn asks_subqueries(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Subquery(subquery) if !subquery.outer_ref_columns.is_empty());
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                found |= match part {
                    Df::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
                    Df::Exists(_) | Df::InSubquery(_) => true,
                    _ => false,
                };
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    });
    found || walked.is_err()
}

/// True when the engine can run the plan: correlated subqueries have to turn into joins.
pub(crate) fn is_served(plan: &LogicalPlan) -> bool {
    if !asks_subqueries(plan) {
        return true;
    }
    let limits = Limits { memory_bytes_max: crate::limits::budget::MEMORY_BYTES_MAX, single: true };
    let memory = Arc::new(StatementMemory::new(limits.memory_bytes_max));
    let optimized = DiskManager::builder()
        .build()
        .and_then(|files| session_state(limits, Way::Parallel, (memory, Arc::new(files))))
        .and_then(|state| state.optimize(plan));
    optimized.is_ok_and(|plan| !asks_subqueries(&plan))
}

/// The channel between a session and the engine.
pub(crate) fn events() -> (Sender<Event>, Receiver<Event>) {
    channel()
}

/// The sender of the engine's results of a statement.
struct Answer {
    files: Arc<DiskManager>,
    events: Sender<Event>,
    /// Permits for batches that the session has not taken yet.
    room: Arc<Semaphore>,
    /// True once a batch was sent.
    begun: bool,
}

impl Answer {
    /// Sends a batch; returns false when the session has stopped reading.
    async fn send(&mut self, batch: RecordBatch) -> std::result::Result<bool, DataFusionError> {
        let permit = self.room.acquire().await.map_err(|_| DataFusionError::Internal("no room".into()))?;
        permit.forget();
        self.begun = true;
        Ok(self.events.send(Event::Batch(batch)).is_ok())
    }
}

/// Runs `plan`. If memory runs out before the first batch, restarts with the strategy that spills.
async fn work(
    plan: LogicalPlan,
    limits: Limits,
    mode: Mode,
    answer: &mut Answer,
) -> std::result::Result<(), DataFusionError> {
    match work_in(Way::Parallel, &plan, limits, mode, answer).await {
        Err(error) if !answer.begun && lacks_memory(&error) => {
            work_in(Way::Spilling, &plan, limits, mode, answer).await
        }
        done => done,
    }
}

async fn work_in(
    way: Way,
    plan: &LogicalPlan,
    limits: Limits,
    mode: Mode,
    answer: &mut Answer,
) -> std::result::Result<(), DataFusionError> {
    let memory = Arc::new(StatementMemory::new(limits.memory_bytes_max));
    let state = session_state(limits, way, (memory.clone(), answer.files.clone()))?;
    let physical = state.create_physical_plan(plan).await?;
    let lines = |physical: &Arc<dyn ExecutionPlan>| {
        let shown = match mode {
            Mode::Analyze => DisplayableExecutionPlan::with_metrics(physical.as_ref()),
            _ => DisplayableExecutionPlan::new(physical.as_ref()),
        };
        Event::Lines(shown.indent(false).to_string().lines().map(str::to_owned).collect())
    };
    if mode == Mode::Explain {
        let _ = answer.events.send(lines(&physical));
        return Ok(());
    }
    let mut stream = execute_stream(physical.clone(), state.task_ctx())?;
    let mut ended = pin!(memory.ended());
    loop {
        let batch = match select(stream.next(), ended.as_mut()).await {
            Either::Left((Some(batch), _)) => batch?,
            Either::Left((None, _)) => break,
            Either::Right(_) => return Err(memory.error()),
        };
        if mode == Mode::Analyze || batch.num_rows() == 0 {
            continue;
        }
        if !answer.send(batch).await? {
            return Ok(());
        }
    }
    if mode == Mode::Analyze {
        let _ = answer.events.send(lines(&physical));
    }
    Ok(())
}

impl StatementFiles for DiskManager {
    fn written_bytes(&self) -> u64 {
        self.used_disk_space()
    }
}

/// The files of a new statement. Their directory is created with the first file and removed on drop.
fn statement_files(all: &TempFiles) -> Result<Arc<DiskManager>> {
    let files = DiskManager::builder().with_max_temp_directory_size(all.statement_bytes_max());
    let files: Arc<DiskManager> = Arc::new(built(files.build())?);
    let weak = Arc::downgrade(&files);
    all.register(weak);
    Ok(files)
}

/// The error of a statement whose files reached their limit or filled the disk; `None` for other errors.
fn disk_full(error: &DataFusionError) -> Option<SqlError> {
    // DataFusion has no error variant for it.
    let text = error.to_string();
    let message = if text.contains("max_temp_directory_size") {
        "the temporary files of the statement are over their limit"
    } else if text.contains("No space left on device") {
        "the disk of the temporary files is full"
    } else {
        return None;
    };
    Some(SqlError::new(state::DISK_FULL, message).hint(TEMP_FILES_HINT))
}

/// Runs `plan`; passes its batches to `each` until that returns false. Returns the lines of EXPLAIN.
///
/// # Errors
/// Errors of expressions; 53200 when memory runs out; 0A000 for plans that the engine does not support.
pub(crate) fn run(
    plan: LogicalPlan,
    (sender, receiver): (Sender<Event>, Receiver<Event>),
    limits: Limits,
    mode: Mode,
    access: &mut Access<'_>,
    cx: &Context<'_>,
    each: &mut dyn FnMut(RecordBatch) -> Result<bool>,
) -> Result<Vec<String>> {
    let room = Arc::new(Semaphore::new(WAITING));
    let all_files = access.database().extension::<TempFiles>();
    let files = statement_files(&all_files)?;
    let task = {
        let room = room.clone();
        runtime()?.spawn(async move {
            let mut answer = Answer { files, events: sender, room, begun: false };
            let done = work(plan, limits, mode, &mut answer).await;
            let _ = answer.events.send(Event::Done(done));
        })
    };
    let outcome = serve(&receiver, (&room, limits, &all_files), access, cx, each, &|| task.is_finished());
    task.abort();
    outcome
}

fn serve(
    receiver: &Receiver<Event>,
    (room, limits, files): (&Semaphore, Limits, &TempFiles),
    access: &mut Access<'_>,
    cx: &Context<'_>,
    each: &mut dyn FnMut(RecordBatch) -> Result<bool>,
    is_finished: &dyn Fn() -> bool,
) -> Result<Vec<String>> {
    let mut shown = Vec::new();
    let mut idle = false;
    loop {
        cx.interrupt.check_now(cx.env)?;
        files.check()?;
        match receiver.recv_timeout(TICK) {
            Ok(Event::Batch(batch)) => {
                room.add_permits(1);
                if !each(batch)? {
                    return Ok(shown);
                }
            }
            Ok(Event::Read(request)) => {
                // The requester may have been dropped.
                let _ = request.reply.send(gather(&request.want, limits, access, cx));
            }
            Ok(Event::Lines(lines)) => shown = lines,
            Ok(Event::Done(done)) => return done.map(|()| shown).map_err(|error| from_run(&error)),
            Err(RecvTimeoutError::Timeout) if is_finished() && idle => {
                return Err(bug("the query engine stopped"));
            }
            Err(RecvTimeoutError::Timeout) => idle = is_finished(),
            Err(RecvTimeoutError::Disconnected) => return Err(bug("the query engine stopped")),
        }
    }
}

/// Reads for the engine within the session's transaction.
fn gather(
    want: &Want,
    limits: Limits,
    access: &mut Access<'_>,
    cx: &Context<'_>,
) -> Result<Vec<RecordBatch>> {
    let (mut batches, mut bytes) = (Vec::new(), 0_usize);
    let watch = cx.interrupt.watch(cx.env);
    for part in &want.parts {
        read(want, part.as_ref(), access, &watch, &mut |batch| {
            bytes = bytes.saturating_add(batch.get_array_memory_size());
            batches.push(batch);
            bytes <= limits.memory_bytes_max && cx.interrupt.check_now(cx.env).is_ok()
        })?;
    }
    cx.interrupt.check_now(cx.env)?;
    if bytes > limits.memory_bytes_max {
        let message =
            format!("the statement needs more than its {} bytes of memory", limits.memory_bytes_max);
        return Err(SqlError::new(state::OUT_OF_MEMORY, message)
            .hint("read fewer rows, read outside of a transaction, or give the session more memory"));
    }
    Ok(batches)
}

/// An error of the engine as an SQL error.
pub(crate) fn from_engine(error: &DataFusionError) -> SqlError {
    let ours = |inner: &(dyn Error + Send + Sync + 'static)| match inner.downcast_ref::<SqlError>() {
        Some(error) => error.clone(),
        None => bug(&inner.to_string()),
    };
    let root = error.find_root();
    if let Some(error) = disk_full(error) {
        return error;
    }
    match root {
        DataFusionError::External(inner) => ours(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => ours(inner.as_ref()),
            ArrowError::DivideByZero => SqlError::new(state::DIVISION_BY_ZERO, "division by zero"),
            ArrowError::ArithmeticOverflow(what) => {
                SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, what.as_str())
            }
            other => bug(&other.to_string()),
        },
        DataFusionError::ResourcesExhausted(_) => {
            let message = format!("the statement needs more memory than it may have: {error}");
            SqlError::new(state::OUT_OF_MEMORY, message)
                .hint("read fewer rows, or give the session more memory")
        }
        DataFusionError::Execution(what) if what.contains("more than one row") => SqlError::new(
            state::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        ),
        _ => {
            let message = format!("this query ({})", first_line(&root.to_string()));
            SqlError::unsupported(message, crate::exec::executor::HINT)
        }
    }
}

/// An error of a running plan. Unsupported features were detected during planning, so an error now is a bug,
/// of ours or the engine's.
fn from_run(error: &DataFusionError) -> SqlError {
    let known = from_engine(error);
    match error.find_root() {
        root @ (DataFusionError::Internal(_) | DataFusionError::Execution(_))
            if known.state == state::FEATURE_NOT_SUPPORTED =>
        {
            bug(&first_line(&root.to_string()))
        }
        _ => known,
    }
}

fn lacks_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) && disk_full(error).is_none()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_error_while_running_is_internal() {
        let internal = DataFusionError::Internal("a column that is not there".into());
        assert_eq!(from_run(&internal).state, state::INTERNAL_ERROR);
        let missing = DataFusionError::NotImplemented("a kind of join".into());
        assert_eq!(from_run(&missing).state, state::FEATURE_NOT_SUPPORTED);
    }

    #[test]
    fn out_of_memory_in_shared_plan_is_reported() {
        let lacking = || DataFusionError::ResourcesExhausted("no more".into());
        let shared = Arc::new(lacking());
        let others = shared.clone();
        for error in [
            lacking(),
            DataFusionError::Shared(shared),
            DataFusionError::Context("a join".into(), Box::new(lacking())),
        ] {
            assert_eq!(from_engine(&error).state, state::OUT_OF_MEMORY);
        }
        drop(others);
    }
}
