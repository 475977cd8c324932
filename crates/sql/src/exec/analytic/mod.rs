//! Queries without a point plan: planned by us, run by DataFusion over scans at the statement's snapshot.
//!
//! ```text
//! sqlparser's tree ─▶ names, types, expressions: the binder of every statement   (PostgreSQL's meaning)
//!                 ─▶ relations: FROM, WHERE, GROUP BY, windows, set operations   (a plan of the engine)
//!                 ─▶ run: optimised and executed by the engine, rows read by us  (speed, memory limit, spill)
//! ```
//! The engine's SQL front end is not used: its types, casts and arithmetic are not PostgreSQL's. The engine
//! receives columns with generated names (`c1`, `c2`, …), operators that mean the same on both sides, and
//! functions of ours for the rest.
//!
//! Invariant: a query returns PostgreSQL's result or is rejected. DML never goes through the engine's DML
//! (which may lose a WHERE: apache/datafusion#24654), only its reads do.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DataFusionError};
use datafusion::logical_expr::{Expr as Df, GroupingSet, LogicalPlan, LogicalPlanBuilder};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::error::{Result, SqlError};
use crate::exec::executor::unsupported;
use crate::expr::{Context, Expr, Order, Record};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::limits::interrupt::Canceller;
use crate::plan::bind::scope::{Params, Scope};
use crate::plan::{Asked, Planner};
use crate::types::outcome::ResultColumn;

mod build;
mod export;
mod kernel;
mod memory;
mod rules;
mod run;
mod scan;

use build::translate::{Col, Sub, Translator};
use build::windows::Window;
use kernel::convert::Reader;
use kernel::made::Made;
use kernel::scalar::Around;
use run::{Limits, Mode};
use scan::rows::Source;

pub use export::{ArrowRows, arrow_rows, single_rows};
pub(crate) use run::from_engine;
pub use scan::columns::{column_bytes, default_column_bytes, limit_columns};

/// A plan of the engine; its rejection becomes an SQL error.
pub(crate) fn built<T>(plan: std::result::Result<T, DataFusionError>) -> Result<T> {
    plan.map_err(|error| from_engine(&error))
}

/// A planned relation: its plan, its columns, their names.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    pub(crate) plan: LogicalPlan,
    pub(crate) cols: Vec<Col>,
    pub(crate) names: Vec<String>,
    /// Columns that contain only untyped NULLs.
    pub(crate) open: Vec<bool>,
    /// The order of its rows, if any.
    pub(crate) sorted: Option<Box<Sorted>>,
}

/// The order of a relation's rows. The engine does not preserve order between a query and the enclosing one;
/// aggregates that depend on the order of their rows sort by these keys again.
#[derive(Debug, Clone)]
pub(crate) struct Sorted {
    /// The plan of the relation, with sort keys that are not in its result as additional columns.
    plan: LogicalPlan,
    keys: Vec<SortKey>,
}

/// A column that rows are sorted by.
#[derive(Debug, Clone)]
pub(crate) struct SortKey {
    col: Col,
    descending: bool,
    nulls_first: bool,
}

impl SortKey {
    /// The order by it as column `place` of a row.
    fn order(&self, place: usize) -> Order {
        let Self { col, descending, nulls_first } = self;
        let expr = Expr::Column(place);
        Order { expr, ty: col.ty, descending: *descending, nulls_first: *nulls_first, shown: None }
    }

    fn of(order: &Order, col: Col) -> Self {
        Self { col, descending: order.descending, nulls_first: order.nulls_first }
    }
}

impl Relation {
    fn columns(&self) -> Vec<(String, Type)> {
        self.names.iter().cloned().zip(self.cols.iter().map(|col| col.ty)).collect()
    }

    fn result(&self) -> Vec<ResultColumn> {
        self.columns().into_iter().map(|(name, ty)| ResultColumn { name, ty }).collect()
    }
}

/// A relation of WITH.
struct Named {
    name: String,
    relation: Relation,
}

/// State of whole-query planning in addition to the planner's.
struct Whole {
    around: Around,
    source: Source,
    /// The columns in scope of the expressions that are being bound.
    current: Vec<Col>,
    /// Those of the enclosing queries, outermost first, parallel to the planner's scopes.
    outer: Vec<Vec<Col>>,
    subqueries: Vec<Sub>,
    /// Columns of enclosing queries in what folded to NULL, until their subquery is complete.
    folded: RefCell<Vec<Column>>,
    named: Vec<Named>,
    /// Window functions of the current SELECT; `None` where they are not allowed.
    windows: Option<Vec<Window>>,
    window_names: Vec<ast::NamedWindowDefinition>,
    /// Set-returning functions of the current select list; `None` where they are not allowed.
    sets: Option<Vec<build::unnest::SetCall>>,
    next: usize,
    single: bool,
    /// Number of views around the current query.
    views: usize,
}

impl Whole {
    fn new(around: Around, source: Source) -> Self {
        Self {
            around,
            source,
            current: Vec::new(),
            outer: Vec::new(),
            subqueries: Vec::new(),
            folded: RefCell::default(),
            named: Vec::new(),
            windows: None,
            window_names: Vec::new(),
            sets: None,
            next: 0,
            single: false,
            views: 0,
        }
    }

    /// A unique name for a column or relation of the statement.
    fn fresh(&mut self, letter: char) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    /// For each subquery the positions in `cols` of the columns that it reads of the enclosing query.
    fn reads_of_subqueries(&self, cols: &[Col]) -> Vec<Vec<usize>> {
        let read = |expr: Df| match expr {
            Df::OuterReferenceColumn(_, column) => Some(column),
            _ => None,
        };
        let reads = |sub: &Sub| {
            let columns = sub.plan.all_out_ref_exprs().into_iter().filter_map(read);
            let columns = columns.chain(sub.folded.iter().cloned());
            columns.filter_map(|column| cols.iter().position(|col| col.column == column)).collect()
        };
        self.subqueries.iter().map(reads).collect()
    }

    fn translator<'t>(&'t self, columns: &'t [Col]) -> Translator<'t> {
        Translator {
            columns,
            outer: &self.outer,
            subqueries: &self.subqueries,
            folded: &self.folded,
            around: &self.around,
        }
    }
}

/// Planning with generated names.
impl Planner<'_> {
    fn engine(&self) -> Option<&Whole> {
        self.whole.as_deref()?.downcast_ref()
    }

    fn engine_mut(&mut self) -> Option<&mut Whole> {
        self.whole.as_deref_mut()?.downcast_mut()
    }

    fn whole(&mut self) -> Result<&mut Whole> {
        self.engine_mut().ok_or_else(|| crate::expr::bug("no plan of a whole query"))
    }

    /// True while the query of a view is planned.
    pub(crate) fn is_in_view(&self) -> bool {
        self.engine().is_some_and(|whole| whole.views > 0)
    }

    /// Projects expressions, each with its type, to columns with new names.
    fn projected(
        &mut self,
        plan: LogicalPlan,
        exprs: Vec<(Df, DataType, Type)>,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let whole = self.whole()?;
        let mut cols = Vec::with_capacity(exprs.len());
        let mut aliased = Vec::with_capacity(exprs.len());
        for (expr, form, ty) in exprs {
            let name = whole.fresh('c');
            aliased.push(expr.alias(&name));
            cols.push(Col { column: Column::from_name(name), form, ty });
        }
        let plan = built(LogicalPlanBuilder::from(plan).project(aliased).and_then(|b| b.build()))?;
        Ok((plan, cols))
    }

    /// Translates an expression over `cols`.
    fn translated(&mut self, expr: &Expr, ty: Type, cols: &[Col]) -> Result<(Df, DataType, Type)> {
        let formed = self.whole()?.translator(cols).expr(expr, ty)?;
        Ok((formed.expr, formed.form, ty))
    }

    /// True when the subquery reads the enclosing query.
    pub(crate) fn is_correlated(&self, number: usize) -> bool {
        let sub = self.engine().and_then(|whole| whole.subqueries.get(number));
        sub.is_some_and(|sub| !sub.plan.all_out_ref_exprs().is_empty())
    }

    /// Plans a subquery of an expression in the scope `around`.
    pub(crate) fn whole_subquery(
        &mut self,
        query: &ast::Query,
        around: &Scope,
        asked: Asked,
    ) -> Result<(usize, Option<Type>)> {
        let current = std::mem::take(&mut self.whole()?.current);
        self.outer.push(around.clone());
        self.whole()?.outer.push(current);
        let relation = self.relation(query);
        self.outer.pop();
        let whole = self.whole()?;
        whole.current = whole.outer.pop().unwrap_or_default();
        let relation = relation?;
        let column = match (asked, relation.cols.as_slice()) {
            (Asked::Exists, _) => None,
            (_, [col]) => Some(col.clone()),
            _ => {
                let message = "subquery must return only one column";
                return Err(SqlError::new(crate::error::state::SYNTAX_ERROR, message));
            }
        };
        let ty = column.as_ref().map(|col| col.ty);
        let whole = self.whole()?;
        // The others belong to queries further out.
        let is_around = |found: &Column| whole.current.iter().any(|col| col.column == *found);
        let (folded, others) = whole.folded.take().into_iter().partition(is_around);
        whole.folded.replace(others);
        whole.subqueries.push(Sub { plan: relation.plan, asked, column, folded });
        Ok((whole.subqueries.len() - 1, ty))
    }
}

/// Rejects a correlated subquery with a group of no keys, which has a row for no rows: the engine joins the subquery, and a
/// join adds no rows. Only where it is a value (`is_value`) the engine adds the values of its aggregates. Rejects window
/// functions over correlated rows, too.
fn check_groups_and_windows(plan: &LogicalPlan, is_value: bool) -> Result<()> {
    let is_none = |expr: &Df| match expr {
        Df::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    };
    let is_value = match plan {
        // A lateral relation reads its neighbours, and was checked with them.
        LogicalPlan::Subquery(_) => return Ok(()),
        // The engine would apply the condition on these rows after it.
        LogicalPlan::Window(found) if !found.input.all_out_ref_exprs().is_empty() => {
            return Err(unsupported("a window function over rows of the enclosing query"));
        }
        LogicalPlan::Aggregate(found) => {
            let has_row = found.group_expr.is_empty() || found.group_expr.iter().any(is_none);
            if has_row
                && !(is_value && found.group_expr.is_empty())
                && !found.input.all_out_ref_exprs().is_empty()
            {
                return Err(unsupported("a group of no keys over rows of the enclosing query"));
            }
            false
        }
        // It adds nothing to a value that reads no aggregate.
        LogicalPlan::Projection(found) => {
            is_value && found.expr.iter().all(|expr| !expr.column_refs().is_empty())
        }
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => is_value,
        _ => false,
    };
    plan.inputs().into_iter().try_for_each(|input| check_groups_and_windows(input, is_value))
}

/// Rejects a correlated subquery where an outer join may add NULLs. The engine moves such a condition above
/// the join, where it drops rows instead of matches.
fn check_outer_joins(plan: &LogicalPlan) -> Result<()> {
    use datafusion::common::JoinType as J;
    let reads = |side: &LogicalPlan| !side.all_out_ref_exprs().is_empty();
    match plan {
        // A lateral relation reads its neighbours.
        LogicalPlan::Subquery(_) => return Ok(()),
        LogicalPlan::Join(join) if join.join_type != J::Inner => {
            let is_read_by = match join.join_type {
                J::Left | J::LeftSemi | J::LeftAnti | J::LeftMark => {
                    plan.contains_outer_reference() || reads(&join.right)
                }
                J::Right | J::RightSemi | J::RightAnti | J::RightMark => {
                    plan.contains_outer_reference() || reads(&join.left)
                }
                _ => reads(plan),
            };
            if is_read_by {
                return Err(unsupported("a subquery that reads the enclosing query within an outer join"));
            }
        }
        _ => {}
    }
    plan.inputs().into_iter().try_for_each(check_outer_joins)
}

/// A query for the engine. It is planned again for each run, with the parameters as constants.
#[derive(Debug, Clone)]
pub(crate) struct WholeQuery {
    query: Arc<ast::Query>,
    mode: Mode,
    standing: Standing,
    /// The columns when the query was prepared.
    pub(crate) columns: Arc<[ResultColumn]>,
}

/// Cancels when it is dropped.
struct Stopping(Canceller);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The result of planning.
pub(crate) struct Planned {
    pub(crate) query: WholeQuery,
    pub(crate) columns: Vec<ResultColumn>,
    /// The engine can run it; otherwise it rejects it.
    pub(crate) is_served: bool,
}

fn with_whole<'a>(
    access: Access<'a>,
    params: Params,
    standing: Standing,
    around: Around,
    source: Source,
) -> Planner<'a> {
    let mut planner = Planner::beside(access, params, standing);
    planner.whole = Some(Box::new(Whole::new(around, source)));
    planner
}

/// Plans `query` to determine its columns and parameters; `planner` receives the latter.
pub(crate) fn prepare(query: &ast::Query, planner: &mut Planner<'_>) -> Result<Planned> {
    let db = planner.access.database().clone();
    let now = db.engine().env().clock.wall_micros();
    let (sender, _) = run::events();
    let zone = planner.standing.settings.zone.clone();
    let around = Around {
        db,
        now,
        zone,
        params: Vec::new().into(),
        memory: MEMORY_BYTES_MAX,
        stop: Canceller::default(),
        made: Made::default(),
    };
    planner.whole = Some(Box::new(Whole::new(around, Source::Session(sender))));
    let relation = planner.relation(query);
    planner.whole = None;
    let relation = relation?;
    let columns = relation.result();
    let is_served = run::is_served(&relation.plan);
    let query = WholeQuery {
        query: Arc::new(query.clone()),
        mode: Mode::Rows,
        standing: planner.standing.clone(),
        columns: columns.clone().into(),
    };
    Ok(Planned { query, columns, is_served })
}

impl WholeQuery {
    /// Runs the query; passes every row of the result to `sink` until that returns false. Returns the lines
    /// of EXPLAIN.
    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        sink: &mut dyn FnMut(Record) -> Result<bool>,
    ) -> Result<Vec<String>> {
        self.run_batches(types, access, cx, budget, &mut |types, batch| {
            let readers: Result<Vec<Reader<'_>>> = batch
                .columns()
                .iter()
                .zip(types)
                .map(|(array, ty)| Reader::new(array.as_ref(), *ty))
                .collect();
            let readers = readers?;
            for row in 0..batch.num_rows() {
                let record: Result<Vec<Value<'static>>> =
                    readers.iter().map(|reader| Ok(reader.get(row)?.into_owned())).collect();
                if !sink(record?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Runs the query and returns its rows in columns.
    ///
    /// # Errors
    /// As [`WholeQuery::run`]; 53200 when they need more memory than the statement may have.
    pub(crate) fn batches(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        self.run_batches(types, access, cx, budget, &mut |_, batch| {
            budget.take(export::batch_bytes(&batch))?;
            batches.push(batch);
            Ok(true)
        })?;
        Ok(batches)
    }

    /// Runs the query; passes every batch of the result, with the types of its columns, to `each` until that
    /// returns false. Returns the lines of EXPLAIN.
    fn run_batches(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        each: &mut dyn FnMut(&[Type], RecordBatch) -> Result<bool>,
    ) -> Result<Vec<String>> {
        let db = access.database().clone();
        let zone = cx.zone.clone();
        let params = cx.params.to_vec().into();
        let stop = Canceller::default();
        let around = Around {
            db,
            now: cx.now,
            zone,
            params,
            memory: budget.remaining(),
            stop: stop.clone(),
            made: Made::default(),
        };
        let (sender, receiver) = run::events();
        let source = match access {
            Access::Snapshot(db, snapshot) => {
                Source::Snapshot((*db).clone(), (*snapshot).clone(), stop.clone())
            }
            Access::Transaction(..) => Source::Session(sender.clone()),
        };
        let declared: Vec<Option<Type>> = types.iter().copied().map(Some).collect();
        let mut planner =
            with_whole(access.again(), Params::declared(&declared), self.standing.clone(), around, source);
        let relation = planner.relation(&self.query)?;
        if relation.result().as_slice() != self.columns.as_ref() {
            return Err(SqlError::new(
                crate::error::state::FEATURE_NOT_SUPPORTED,
                "cached plan must not change result type",
            )
            .hint("prepare the statement again"));
        }
        let single = planner.whole()?.single;
        drop(planner);
        let types: Vec<Type> = relation.cols.iter().map(|col| col.ty).collect();
        let limits = Limits { memory_bytes_max: budget.remaining(), single };
        // At the end of the statement, expressions that still wait on the engine's threads are cancelled.
        let _stopping = Stopping(stop);
        run::run(relation.plan, (sender, receiver), limits, self.mode, access, cx, &mut |batch| {
            each(&types, batch)
        })
    }

    /// The same query in EXPLAIN mode.
    pub(crate) fn explained(self, analyze: bool) -> Self {
        Self { mode: if analyze { Mode::Analyze } else { Mode::Explain }, ..self }
    }

    pub(crate) fn is_explain(&self) -> bool {
        self.mode != Mode::Rows
    }
}
