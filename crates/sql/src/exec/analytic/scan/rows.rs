//! Relations read by the query engine: columns, filters and limits are pushed down to the row source.
//!
//! ```text
//! snapshot      each part of a relation on a separate thread, row by row straight into Arrow's builders;
//!               a complete table from its cached columns, see `columns`
//! transaction   the session's thread reads for the engine, to see its own writes and record its reads
//! ```
//! Invariant: a filter that is pushed down only narrows the read. The engine evaluates it again for every
//! row.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as DfResult, Statistics};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr as Df, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use ropewalk::tables::{Type, shown as readable};
use ropewalk::{Database, Snapshot};
use tokio::sync::oneshot;

use crate::access::row_source::Access;
use crate::error::Result;
use crate::exec::analytic::kernel::convert::{Builder, data_type, scalar_value};
use crate::exec::analytic::kernel::plan_step::plan_step;
use crate::exec::analytic::kernel::scalar::{RowExpr, through};
use crate::exec::analytic::run::Event;
use crate::exec::analytic::scan::columns;
use crate::exec::analytic::scan::table::Whole;
use crate::exec::relations::{Part, Rows, Scan};
use crate::expr::arith::Compare;
use crate::expr::{Expr, bug};
use crate::limits::interrupt::{Canceller, Interrupt, Watch};

/// Rows of one batch.
pub(in crate::exec::analytic) const BATCH_ROWS: usize = 8192;

/// Source of the rows.
#[derive(Clone)]
pub(crate) enum Source {
    /// The canceller stops reads on the engine's threads when the statement has ended.
    Snapshot(Database, Snapshot, Canceller),
    /// The session's thread, which reads in its transaction.
    Session(Sender<Event>),
}

/// Description of one scan.
pub(crate) struct Want {
    pub(crate) parts: Vec<Box<dyn Part>>,
    pub(in crate::exec::analytic) fields: SchemaRef,
    pub(in crate::exec::analytic) columns: Vec<usize>,
    limit: Option<usize>,
}

/// Request to the session's thread to read for the engine.
pub(crate) struct Request {
    pub(crate) want: Want,
    pub(crate) reply: oneshot::Sender<Result<Vec<RecordBatch>>>,
}

/// A relation in the engine's catalog.
pub(crate) struct RelationSource {
    relation: Box<dyn Rows>,
    fields: SchemaRef,
    source: Source,
}

impl std::fmt::Debug for RelationSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RelationSource({})", self.relation.name())
    }
}

impl RelationSource {
    pub(crate) fn new(relation: Box<dyn Rows>, source: Source) -> Self {
        let field = |(name, ty): &(String, Type)| Field::new(name.as_str(), data_type(*ty), true);
        let fields: Vec<Field> = relation.fields().iter().map(field).collect();
        Self { relation, fields: Arc::new(ArrowSchema::new(fields)), source }
    }

    fn place(&self, expr: &Df) -> Option<usize> {
        match expr {
            Df::Column(column) => self.fields.index_of(&column.name).ok(),
            _ => None,
        }
    }

    fn constant(&self, expr: &Df, place: usize) -> Option<Expr> {
        let (_, ty) = self.relation.fields().get(place)?;
        match expr {
            Df::Literal(scalar, _) if scalar.data_type() == data_type(*ty) => {
                scalar_value(scalar, *ty).ok().map(Expr::Const)
            }
            _ => None,
        }
    }

    /// A filter as one of our expressions, where that is possible.
    fn conjunct(&self, filter: &Df) -> Option<Expr> {
        match filter {
            Df::BinaryExpr(binary) => {
                let op = match binary.op {
                    Operator::Eq => Compare::Eq,
                    Operator::Lt => Compare::Lt,
                    Operator::LtEq => Compare::Le,
                    Operator::Gt => Compare::Gt,
                    Operator::GtEq => Compare::Ge,
                    Operator::And => {
                        let both = [self.conjunct(&binary.left), self.conjunct(&binary.right)];
                        let some: Vec<Expr> = both.into_iter().flatten().collect();
                        return (!some.is_empty()).then_some(Expr::And(some));
                    }
                    Operator::Or => {
                        return one_of(self.conjunct(&binary.left)?, self.conjunct(&binary.right)?);
                    }
                    _ => return None,
                };
                let (op, place, constant) = match (self.place(&binary.left), self.place(&binary.right)) {
                    (Some(place), None) => (op, place, &binary.right),
                    (None, Some(place)) => (op.turned(), place, &binary.left),
                    _ => return None,
                };
                let constant = self.constant(constant, place)?;
                Some(Expr::Compare(op, Box::new(Expr::Column(place)), Box::new(constant)))
            }
            Df::Between(between) if !between.negated => {
                let place = self.place(&between.expr)?;
                let column = || Box::new(Expr::Column(place));
                let (low, high) = (self.constant(&between.low, place)?, self.constant(&between.high, place)?);
                Some(Expr::And(vec![
                    Expr::Compare(Compare::Ge, column(), Box::new(low)),
                    Expr::Compare(Compare::Le, column(), Box::new(high)),
                ]))
            }
            Df::InList(list) if !list.negated => {
                let place = self.place(&list.expr)?;
                let items: Option<Vec<Expr>> =
                    list.list.iter().map(|item| self.constant(item, place)).collect();
                Some(Expr::In(Box::new(Expr::Column(place)), items?))
            }
            Df::ScalarFunction(call) => {
                // An expression of ours, such as 'x' = ANY (tags), over columns of the relation.
                let inner: &dyn std::any::Any = call.func.inner().as_ref();
                let ours = inner.downcast_ref::<RowExpr>()?;
                let places: Option<Vec<usize>> = call.args.iter().map(|arg| self.place(arg)).collect();
                ours.over(&places?)
            }
            _ => None,
        }
    }

    fn plan(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Df],
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<(Want, String, Option<u64>)> {
        let conjuncts: Vec<Expr> = filters.iter().filter_map(|filter| self.conjunct(filter)).collect();
        let scan = match &self.source {
            Source::Snapshot(db, snapshot, _) => {
                let access = &mut Access::Snapshot(db, snapshot);
                self.relation.scan(&conjuncts, limit.is_some(), partitions, Some(access))
            }
            Source::Session(_) => self.relation.scan(&conjuncts, limit.is_some(), 1, None),
        };
        let Scan { parts, shown, estimate } = scan?;
        let columns = projection.cloned().unwrap_or_else(|| (0..self.fields.fields().len()).collect());
        let fields = self.fields.project(&columns).map_err(|error| bug(&error.to_string()))?;
        let name =
            |place: &usize| self.fields.fields().get(*place).map_or("?", |field| field.name().as_str());
        let names: Vec<&str> = columns.iter().map(name).collect();
        let mut shown =
            format!("{}, {shown}, columns [{}]", readable(self.relation.name()), names.join(", "));
        if let Some(limit) = limit {
            shown += &format!(", limit {limit}");
        }
        if parts.len() > 1 {
            shown += &format!(", {} parts", parts.len());
        }
        Ok((Want { parts, fields: Arc::new(fields), columns, limit }, shown, estimate))
    }
}

/// Restores `a IN (1, 2)` from `a = 1 OR a = 2`, into which the engine splits it.
fn one_of(left: Expr, right: Expr) -> Option<Expr> {
    let items = |expr: Expr| match expr {
        Expr::Compare(Compare::Eq, column, constant) => Some((*column, vec![*constant])),
        Expr::In(column, items) => Some((*column, items)),
        _ => None,
    };
    let ((column, mut all), (other, mut more)) = (items(left)?, items(right)?);
    all.append(&mut more);
    (column == other).then(|| Expr::In(Box::new(column), all))
}

/// Reads one part in batches, until `each` returns false.
pub(crate) fn read(
    want: &Want,
    part: &dyn Part,
    access: &mut Access<'_>,
    watch: &Watch,
    each: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<()> {
    let limit = want.limit.unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(());
    }
    let forms = want.fields.fields().iter();
    let builders: Result<Vec<Builder>> =
        forms.map(|field| Builder::new(field.data_type(), BATCH_ROWS)).collect();
    let mut builders = builders?;
    let (mut rows, mut total, mut goes_on) = (0_usize, 0_usize, true);
    let mut finish = |builders: &mut Vec<Builder>, rows: usize| -> Result<bool> {
        let arrays = builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(want.fields.clone(), arrays, &options)
            .map_err(|error| bug(&error.to_string()))?;
        Ok(each(batch))
    };
    part.read(access, watch, &mut |row| {
        for (builder, place) in builders.iter_mut().zip(&want.columns) {
            builder.push(&row.column(*place)?)?;
        }
        rows += 1;
        total += 1;
        if rows == BATCH_ROWS {
            goes_on = finish(&mut builders, rows)?;
            rows = 0;
        }
        Ok(goes_on && total < limit)
    })?;
    if rows > 0 && goes_on {
        finish(&mut builders, rows)?;
    }
    Ok(())
}

#[async_trait::async_trait]
impl TableProvider for RelationSource {
    fn schema(&self) -> SchemaRef {
        self.fields.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Df]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let narrows = |filter: &Df| self.conjunct(filter).is_some_and(|c| self.relation.narrows(&c));
        let kind = |filter: &&Df| match narrows(filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(kind).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Df],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let partitions = state.config().target_partitions();
        // A limit applies only when no filter is evaluated afterwards.
        let limit = limit.filter(|_| filters.is_empty());
        let (want, shown, estimate) = self.plan(projection, filters, limit, partitions).map_err(through)?;
        match &self.source {
            Source::Snapshot(db, snapshot, stop) => {
                let at = (db.clone(), snapshot.clone(), stop.clone());
                Ok(Arc::new(RowScan::new(Arc::new(want), shown, at, estimate)))
            }
            Source::Session(events) => {
                let fields = want.fields.clone();
                let (reply, answer) = oneshot::channel();
                let gone = |_| through(bug("the session is gone"));
                events.send(Event::Read(Request { want, reply })).map_err(|_| gone(()))?;
                let batches = answer.await.map_err(|_| gone(()))?.map_err(through)?;
                Ok(MemorySourceConfig::try_new_exec(&[batches], fields, None)?)
            }
        }
    }
}

/// The engine's step that reads a relation at a snapshot.
struct RowScan {
    want: Arc<Want>,
    shown: String,
    db: Database,
    snapshot: Snapshot,
    stop: Canceller,
    estimate: Option<u64>,
    properties: Arc<PlanProperties>,
}

impl RowScan {
    fn new(
        want: Arc<Want>,
        shown: String,
        (db, snapshot, stop): (Database, Snapshot, Canceller),
        estimate: Option<u64>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(want.fields.clone()),
            Partitioning::UnknownPartitioning(want.parts.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { want, shown, db, snapshot, stop, estimate, properties }
    }
}

impl std::fmt::Debug for RowScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowScan({})", self.shown)
    }
}

impl DisplayAs for RowScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowScan: {}", self.shown)
    }
}

impl ExecutionPlan for RowScan {
    plan_step!("RowScan", leaf);

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStreamBuilder::new(self.schema(), 2);
        let sender = stream.tx();
        let (want, db, snapshot) = (self.want.clone(), self.db.clone(), self.snapshot.clone());
        let watch = Interrupt::begin(&self.stop, 0, db.engine().env()).watch(db.engine().env());
        stream.spawn_blocking(move || {
            let Some(part) = want.parts.get(partition) else { return Ok(()) };
            let each = &mut |batch| sender.blocking_send(Ok(batch)).is_ok();
            let any: &dyn Any = part.as_ref();
            match any.downcast_ref::<Whole>() {
                Some(Whole(stretch)) => columns::read(&want, stretch, (&db, &snapshot), each),
                None => read(&want, part.as_ref(), &mut Access::Snapshot(&db, &snapshot), &watch, each),
            }
            .map_err(through)
        });
        Ok(stream.build())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> DfResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Some(rows) = self.estimate {
            let parts = if partition.is_some() { self.want.parts.len().max(1) as u64 } else { 1 };
            let rows = usize::try_from(rows / parts).unwrap_or(usize::MAX);
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }
}
