//! A statement that is planned once and run many times.
//!
//! The plan depends on definitions. Their versions are compared before each run; if one has changed, the
//! statement is planned again. A SELECT of one row by its primary key skips the executor.

mod brief;
mod plan;

pub(crate) use plan::{has_writers, is_written_by};

use std::sync::Arc;

use ropewalk::tables::{EnumType, PointGet, Table, Type, Value};
use ropewalk::{Database, Snapshot};
use sqlparser::ast;

use crate::access::access_path::key_value;
use crate::access::enums::Enums;
use crate::access::rights::Rights;
use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::catalog;
use crate::dml::append_event::Append;
use crate::dml::keyed::Keyed;
use crate::dml::merge::Merge;
use crate::dml::model::ModelWrite;
use crate::dml::write::{Chain, Delete, Insert, Update, Written};
use crate::error::{Result, SqlError, state};
use crate::exec::analytic::WholeQuery;
use crate::exec::nested_loop::Node;
use crate::exec::point;
use crate::expr::cast::{Strength, allowed, cast_in};
use crate::expr::enum_call::labelled;
use crate::expr::{Answer, Context, Expr, Record};
use crate::limits::budget::Budget;
use crate::limits::interrupt::Interrupt;
use crate::limits::quota::Taken;
use crate::plan::locking::{Locking, unskippable};
use crate::plan::{Select, SetConfig, Subquery};
use crate::session::copy::CopyPlan;
use crate::session::explain;
use crate::session::explain_formats::Format;
use crate::session::notify::NotifyCall;
use crate::session::rights::StatementKind;
use crate::syntax::cursor_syntax::Declare;
use crate::syntax::parse::Statement;
use crate::types::executor::Executor;
use crate::types::names::type_name;
use crate::types::outcome::{Outcome, ResultColumn};
use crate::types::settings::Settings;
use crate::types::text_format::from_text_in;
use crate::types::zone::Zone;

pub(crate) enum Plan {
    Select(Select),
    /// A query for the query engine, and its EXPLAIN.
    Whole(WholeQuery),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    /// UPDATE or DELETE of rows that a query finds.
    Keyed(Box<Keyed>),
    /// A write to a relation of another model.
    Model(Box<ModelWrite>),
    /// MERGE.
    Merge(Box<Merge>),
    /// A statement with writing queries in WITH.
    Chain(Box<Chain>),
    /// `SELECT append_event(...)`.
    Append(Box<Append>),
    /// `SELECT pg_notify(...)`.
    Notify(Box<NotifyCall>),
    /// Lines of EXPLAIN.
    Explain(Vec<String>),
    /// A query for nested loops in memory.
    Small(Box<Node>),
    /// DECLARE and its query.
    Declare(Box<(Declare, Prepared)>),
    /// COPY, whose bytes the session transports.
    Copy(CopyPlan),
    /// EXPLAIN ANALYZE: the plan to run and time, and its lines.
    Analyze(Box<Plan>, Vec<String>),
    /// Statements that the session runs.
    Other,
}

/// A lookup by primary key: the key's expressions, which read no row, with the types of its columns.
struct Point {
    get: PointGet,
    key: Vec<(Expr, Type)>,
    buffer: Vec<Value<'static>>,
}

/// A prepared statement. See [`crate::session::Session::prepare`].
pub struct Prepared {
    pub(crate) statement: Arc<Statement>,
    declared: Vec<Option<Type>>,
    parameters: Vec<Type>,
    columns: Option<Arc<[ResultColumn]>>,
    pub(crate) plan: Plan,
    /// The same SELECT for the query engine, used while its tables are large.
    whole: Option<WholeQuery>,
    subqueries: Vec<Subquery>,
    latest_read_seq: Vec<(Table, u32)>,
    /// Enum types that the plan uses.
    enums: Enums,
    point: Option<Point>,
    /// The rows that FOR UPDATE locks, or the reason why it cannot. Unused at the serializable level.
    locking: Option<Result<Locking>>,
    /// The plan depends on the catalog or on other state without a version, and is valid for one run.
    is_fleeting: bool,
    standing: Standing,
    /// The time zone at planning.
    zone: Zone,
    /// The `search_path` at planning.
    path: String,
    /// The setting `ropewalk.executor` at planning.
    executor: Executor,
    /// Calls of `set_config`.
    pub(crate) sets: Vec<SetConfig>,
    /// It draws numbers from sequences, or sets them.
    draws: bool,
    /// A subquery has FOR UPDATE.
    locks_within: bool,
    /// No expression waits, and all constants are small.
    is_light: bool,
    /// The rights that the statement needs.
    needs: Rights,
    /// Its share of the session's quota of prepared statements.
    room: Option<Taken>,
    /// A run returns the rows of the query engine as [`Outcome::batches`].
    pub(crate) is_columnar: bool,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prepared({})", self.statement)
    }
}

impl Prepared {
    /// True for SELECT ... FOR UPDATE and FOR SHARE.
    pub(crate) fn locks(&self) -> bool {
        self.locking.is_some()
    }

    /// True if a subquery has FOR UPDATE. Only serializable transactions can run it: they validate their
    /// reads at commit.
    pub(crate) fn locks_within(&self) -> bool {
        self.locks_within
    }

    /// True if a subquery or a query of WITH has FOR UPDATE.
    pub(crate) fn locks_in_parts(&self) -> bool {
        self.locks_within
            || self.subqueries.iter().any(|subquery| subquery.locking.is_some())
            || matches!(&self.plan, Plan::Chain(chain) if chain.locks())
    }

    /// The declared parameter types.
    pub(crate) fn declared(&self) -> &[Option<Type>] {
        &self.declared
    }

    /// True for statements that lock rows at the levels that use row locks.
    pub(crate) fn locks_rows(&self) -> bool {
        match &self.plan {
            Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_) => true,
            Plan::Keyed(_) | Plan::Merge(_) | Plan::Chain(_) => true,
            _ => self.locks() || self.subqueries.iter().any(|subquery| subquery.locking.is_some()),
        }
    }

    fn skips_locked(&self) -> bool {
        let Statement::Sql(ast::Statement::Query(query)) = &*self.statement else { return false };
        query.locks.iter().any(|lock| lock.nonblock == Some(ast::NonBlock::SkipLocked))
    }

    pub(crate) fn is_fleeting(&self) -> bool {
        self.is_fleeting
    }

    /// Updates the session state that the plan reads.
    pub(crate) fn stand_in(&mut self, standing: Standing) {
        if let Plan::Declare(declared) = &mut self.plan {
            declared.1.stand_in(standing.clone());
        }
        self.standing = standing;
    }

    /// The executor of a query; `None` for other statements. With [`Executor::Rows`] the query engine still
    /// runs it while its tables are large, unless the session has chosen that executor.
    pub fn executor(&self) -> Option<Executor> {
        match &self.plan {
            Plan::Select(_) => Some(Executor::Rows),
            Plan::Whole(_) => Some(Executor::Engine),
            Plan::Small(_) => Some(Executor::Nested),
            Plan::Declare(declared) => declared.1.executor(),
            _ => None,
        }
    }

    /// True for a query over the catalogs, where OIDs are bigint.
    pub fn is_over_catalogs(&self) -> bool {
        let Some(ast::Statement::Query(query)) = self.statement.sql() else { return false };
        matches!(self.plan, Plan::Small(_)) && catalog::is_asked(query)
    }

    /// The types of the parameters, in order.
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// The result columns; `None` when the statement returns no rows.
    pub fn columns(&self) -> Option<&[ResultColumn]> {
        self.columns.as_deref()
    }

    /// The rights that the statement needs.
    pub fn needs(&self) -> Rights {
        self.needs
    }

    /// The kind of the statement; `None` when it is not part of the dialect.
    pub fn kind(&self) -> Option<StatementKind> {
        StatementKind::of(&self.statement)
    }

    /// True for SELECT, INSERT, UPDATE and DELETE with a reusable plan.
    pub(crate) fn is_of_keys(&self) -> bool {
        let is_kind =
            matches!(self.plan, Plan::Select(_) | Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_));
        is_kind && !self.is_fleeting && !self.draws && self.sets.is_empty()
    }

    /// True for BEGIN, COMMIT and ROLLBACK.
    pub fn begins_or_ends(&self) -> bool {
        crate::session::begins_or_ends(&self.statement)
    }

    /// The name in a DEALLOCATE, inner `None` for ALL; `None` for another statement.
    pub fn deallocates(&self) -> Option<Option<String>> {
        match self.statement.sql() {
            Some(ast::Statement::Deallocate { name, .. }) => {
                Some(Some(crate::syntax::names::folded(name)).filter(|name| name != "all"))
            }
            _ => None,
        }
    }

    /// The result columns, to be compared with those already described to the client.
    pub fn shape(&self) -> Option<Arc<[ResultColumn]>> {
        self.columns.clone()
    }

    /// True when the statement may write.
    pub(crate) fn writes(&self) -> bool {
        match &self.plan {
            Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_) | Plan::Keyed(_) | Plan::Append(_) => true,
            Plan::Model(_) | Plan::Merge(_) | Plan::Chain(_) => true,
            Plan::Copy(plan) => matches!(plan, CopyPlan::In(_)),
            // NOTIFY is allowed in a READ ONLY transaction.
            Plan::Notify(_) => false,
            Plan::Select(_)
            | Plan::Whole(_)
            | Plan::Small(_)
            | Plan::Explain(_)
            | Plan::Analyze(..)
            | Plan::Declare(_)
            | Plan::Other => self.draws,
        }
    }

    /// True for statements that only a leader runs: they write, change definitions, lock rows, draw from a sequence,
    /// or notify other sessions, which may be at other nodes.
    pub(crate) fn needs_leader(&self) -> bool {
        let (needs, kind) = (self.needs, self.kind());
        let is_needed = |kind: StatementKind| {
            let least = kind.needs();
            least.append || least.admin || kind == StatementKind::Listen
        };
        needs.append
            || needs.admin
            || self.writes()
            || self.locks()
            || self.locks_within()
            || kind.is_some_and(is_needed)
    }

    /// Converts the parameters to the types that the plan expects.
    pub(crate) fn bound(&self, given: &[Value<'_>]) -> Result<Vec<Value<'static>>> {
        if given.len() != self.parameters.len() {
            let message = format!(
                "the statement takes {} parameters, {} were given",
                self.parameters.len(),
                given.len()
            );
            return Err(SqlError::new(state::UNDEFINED_PARAMETER, message));
        }
        let zone = &self.standing.settings.zone;
        let read = |(value, ty): (&Value<'_>, &Type)| parameter(value, *ty, zone, self.enums.of(*ty));
        given.iter().zip(&self.parameters).map(read).collect()
    }

    /// True if the values need no conversion to the types that the plan expects.
    pub(crate) fn takes(&self, values: &[Value<'static>]) -> bool {
        let fits = |(value, ty): (&Value<'_>, &Type)| value.value_type().is_none_or(|found| found == *ty);
        values.len() == self.parameters.len() && values.iter().zip(&self.parameters).all(fits)
    }

    /// Reserves memory quota for a prepared statement of this text.
    ///
    /// # Errors
    /// 53200.
    pub fn reserve(&mut self, text: &str) -> Result<()> {
        let bytes = crate::syntax::parse::bytes_of_plan(text);
        self.room = Some(self.standing.shares.statements.take(bytes)?);
        Ok(())
    }

    /// True once it has a share of the quota.
    pub(crate) fn is_reserved(&self) -> bool {
        self.room.is_some()
    }

    /// Replaces the plan by another one of the same statement.
    pub(crate) fn replace(&mut self, plan: Self) {
        let (room, is_columnar) = (self.room.take(), self.is_columnar);
        *self = Self { room, is_columnar, ..plan };
    }

    /// Plans again if a definition has changed.
    pub(crate) fn renew(&mut self, access: Access<'_>) -> Result<()> {
        let mut access = access;
        if self.is_fleeting || !self.is_of(&self.standing.settings) {
            self.replace(Self::plan(self.statement.clone(), &self.declared, access, self.standing.clone())?);
            return Ok(());
        }
        let mut is_old = false;
        for (table, version) in &self.latest_read_seq {
            let current = match access.schema(table) {
                Ok(schema) => Some(schema.version()),
                Err(error) if error.state == state::UNDEFINED_TABLE => None,
                Err(error) => return Err(error),
            };
            is_old |= current != Some(*version);
        }
        if is_old || !self.enums.are_current(&mut access)? {
            self.replace(Self::plan(self.statement.clone(), &self.declared, access, self.standing.clone())?);
        }
        Ok(())
    }

    /// True if the executor, the time zone (in which constants were parsed) and the `search_path` are those
    /// of planning.
    pub(crate) fn is_of(&self, settings: &Settings) -> bool {
        self.executor == settings.executor
            && self.zone == settings.zone
            && self.path == settings.search_path()
    }

    fn is_current(&self, db: &Database, snapshot: &Snapshot) -> bool {
        self.is_of(&self.standing.settings)
            && self.enums.are_current(&mut Access::Snapshot(db, snapshot)).unwrap_or(false)
            && self.latest_read_seq.iter().all(|(table, version)| {
                db.tables().schema(snapshot.engine(), table).is_ok_and(|schema| schema.version() == *version)
            })
    }

    /// Runs a lookup by primary key at a snapshot; `None` if the statement is not a lookup or its plan is
    /// stale.
    pub(crate) fn point(
        &mut self,
        db: &Database,
        snapshot: &Snapshot,
        cx: &Context<'_>,
    ) -> Result<Option<Outcome>> {
        if self.point.is_none() || self.locking.is_some() || !self.is_current(db, snapshot) {
            return Ok(None);
        }
        let (Some(point), Plan::Select(select), Some(columns)) = (&mut self.point, &self.plan, &self.columns)
        else {
            return Ok(None);
        };
        let mut outcome = Outcome { columns: Some(columns.clone()), ..Outcome::of("SELECT") };
        outcome.count = Some(0);
        point.buffer.clear();
        for (expr, ty) in &point.key {
            match key_value(expr.constant(cx)?, *ty) {
                Some(value) => point.buffer.push(value),
                // The value does not fit the key but may still be comparable: use the general path.
                None => return Ok(None),
            }
        }
        let Some(found) = point.get.get(snapshot.engine(), &point.buffer)? else { return Ok(Some(outcome)) };
        let row = found.row();
        for level in &select.levels {
            for condition in &level.filter {
                if !condition.holds(cx, &row)? {
                    return Ok(Some(outcome));
                }
            }
        }
        outcome.rows.push(Expr::record(&select.output, cx, &row)?);
        outcome.count = Some(1);
        Ok(Some(outcome))
    }

    /// A result of one value, for a statement with one column.
    pub(crate) fn one(&self, value: Value<'static>) -> Outcome {
        let columns = self.columns.clone();
        Outcome { count: Some(1), columns, rows: vec![vec![value]], ..Outcome::of("SELECT") }
    }

    /// Evaluates the subqueries.
    pub(crate) fn answers(
        &self,
        access: &mut Access<'_>,
        now: i64,
        budget: &Budget,
        interrupt: &Interrupt,
    ) -> Result<Vec<Answer>> {
        let env = access.database().engine().env().clone();
        let zone = &self.standing.settings.zone;
        let cx = Context { params: &[], answers: &[], now, env: &env, zone, interrupt, nested: None };
        point::answers(&self.subqueries, access, &cx, budget)
    }

    fn run_whole(
        &self,
        query: &WholeQuery,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Outcome> {
        let columns = self.columns.clone();
        #[cfg(feature = "analytic")]
        if self.is_columnar && !query.is_explain() {
            let batches = query.batches(&self.parameters, access, cx, budget)?;
            let count = Some(batches.iter().map(|batch| batch.num_rows() as u64).sum());
            return Ok(Outcome { count, columns, batches, ..Outcome::of("SELECT") });
        }
        let mut rows = Vec::new();
        let lines = query.run(&self.parameters, access, cx, budget, &mut |row| {
            budget.take_row(&row)?;
            rows.push(row);
            Ok(true)
        })?;
        if query.is_explain() {
            return Ok(self.explained(lines));
        }
        let count = Some(rows.len() as u64);
        Ok(Outcome { count, columns, rows, ..Outcome::of("SELECT") })
    }

    /// The result of EXPLAIN with these lines.
    fn explained(&self, lines: Vec<String>) -> Outcome {
        let format = explain::format(self.statement.sql());
        let value = |text: String| if format == Format::Json { Value::json(text) } else { Value::text(text) };
        let rows = format.rows(lines).into_iter().map(|text| vec![value(text)]).collect();
        Outcome { columns: self.columns.clone(), rows, ..Outcome::of("EXPLAIN") }
    }

    /// Runs `select`, which is its SELECT with additional columns.
    pub(crate) fn stream_select(
        &self,
        select: &Select,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        sink: &mut dyn FnMut(Record) -> Result<bool>,
    ) -> Result<()> {
        let answers = point::answers(&self.subqueries, access, cx, budget)?;
        point::run(select, access, &Context { answers: &answers, ..*cx }, budget, sink)
    }

    /// Runs a query and passes each row to `sink`. Call [`Prepared::renew`] before.
    pub(crate) fn stream(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        sink: &mut dyn FnMut(Record) -> Result<bool>,
    ) -> Result<()> {
        let whole = match (&self.plan, &self.whole) {
            (Plan::Whole(query), _) => Some(query),
            (Plan::Select(select), Some(query)) if is_large(select, &self.subqueries, access)? => Some(query),
            _ => None,
        };
        if let Some(query) = whole {
            let mut begun = false;
            let done = query.run(&self.parameters, access, cx, budget, &mut |row| {
                begun = true;
                sink(row)
            });
            let is_select = matches!(self.plan, Plan::Select(_));
            match done {
                Err(error) if is_select && !begun && error.state == state::FEATURE_NOT_SUPPORTED => {}
                done => return done.map(drop),
            }
        }
        if let Plan::Select(select) = &self.plan {
            let answers = point::answers(&self.subqueries, access, cx, budget)?;
            return point::run(select, access, &Context { answers: &answers, ..*cx }, budget, sink);
        }
        for row in self.run(access, cx, budget)?.rows {
            if !sink(row)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs the plan. Call [`Prepared::renew`] before.
    pub(crate) fn run(&self, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Outcome> {
        if let (Plan::Select(select), Some(query)) = (&self.plan, &self.whole)
            && is_large(select, &self.subqueries, access)?
        {
            let left = budget.remaining();
            match self.run_whole(query, access, cx, budget) {
                // For example NaN in a column of decimals. Row-by-row execution is slower, but supports it.
                Err(error) if error.state == state::FEATURE_NOT_SUPPORTED => {
                    budget.give_back(left.saturating_sub(budget.remaining()));
                }
                done => return done,
            }
        }
        let answers = point::answers(&self.subqueries, access, cx, budget)?;
        let cx = &Context { answers: &answers, ..*cx };
        match &self.locking {
            Some(locking) if access.is_locking() => {
                let rows = locking.as_ref().map_err(Clone::clone)?.run(access, cx, budget)?;
                let (count, columns) = (Some(rows.len() as u64), self.columns.clone());
                return Ok(Outcome { count, columns, rows, ..Outcome::of("SELECT") });
            }
            Some(_) if self.skips_locked() => return Err(unskippable()),
            _ => {}
        }
        let (command, written) = match &self.plan {
            Plan::Select(select) => {
                let rows = selected(select, access, cx, budget)?;
                let count = Some(rows.len() as u64);
                return Ok(Outcome { count, columns: self.columns.clone(), rows, ..Outcome::of("SELECT") });
            }
            Plan::Analyze(plan, lines) => {
                let Plan::Select(select) = plan.as_ref() else {
                    return Err(crate::expr::bug("EXPLAIN ANALYZE of no SELECT"));
                };
                let clock = &cx.env.clock;
                let start = clock.wall_micros();
                let count = selected(select, access, cx, budget)?.len();
                let taken = clock.wall_micros().saturating_sub(start);
                let mut lines = lines.clone();
                lines.push(format!("Rows: {count}, time: {:.3} ms", taken as f64 / 1000.0));
                return Ok(self.explained(lines));
            }
            Plan::Whole(query) => return self.run_whole(query, access, cx, budget),
            Plan::Small(node) => {
                let rows = node.answer(access, cx, budget)?;
                let count = Some(rows.len() as u64);
                return Ok(Outcome { count, columns: self.columns.clone(), rows, ..Outcome::of("SELECT") });
            }
            Plan::Explain(lines) => return Ok(self.explained(lines.clone())),
            Plan::Append(append) => {
                let count = append.run(&self.parameters, access, cx, budget)?;
                let rows = (0..count).map(|_| vec![Value::Null]).collect();
                let (count, columns) = (Some(count), self.columns.clone());
                return Ok(Outcome { count, columns, rows, ..Outcome::of("SELECT") });
            }
            Plan::Copy(_) => {
                let error =
                    SqlError::new(state::FEATURE_NOT_SUPPORTED, "COPY needs a client to transport its bytes");
                return Err(error.hint("call Session::copy_in or copy_out, or use psql"));
            }
            Plan::Other | Plan::Notify(_) | Plan::Declare(_) => {
                return Err(crate::expr::bug("a statement that the session runs"));
            }
            _ => access.writing(|access| self.write(access, cx, budget))?,
        };
        let columns = self.columns.clone();
        Ok(Outcome { count: Some(written.count), columns, rows: written.rows, ..Outcome::of(command) })
    }

    /// Runs a plan that writes; returns the command's name in the result, and what it wrote.
    fn write(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<(&'static str, Written)> {
        Ok(match &self.plan {
            Plan::Keyed(keyed) => (keyed.command(), keyed.run(&self.parameters, access, cx, budget)?),
            Plan::Chain(chain) => chain.run(access, cx, budget)?,
            Plan::Model(write) => write.run(&self.parameters, access, cx, budget)?,
            Plan::Merge(merge) => ("MERGE", merge.run(&self.parameters, access, cx, budget)?),
            Plan::Insert(insert) => ("INSERT", insert.run(&self.parameters, access, cx, budget)?),
            Plan::Update(update) => ("UPDATE", update.run(access, cx, budget)?),
            Plan::Delete(delete) => ("DELETE", delete.run(access, cx, budget)?),
            _ => return Err(crate::expr::bug("a plan that writes nothing")),
        })
    }
}

/// True when a SELECT or one of its subqueries works on complete large tables.
fn is_large(select: &Select, subqueries: &[Subquery], access: &mut Access<'_>) -> Result<bool> {
    for select in subqueries.iter().map(|subquery| &subquery.select).chain([select]) {
        if select.works_on_large_tables(access)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn selected(
    select: &Select,
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
) -> Result<Vec<Record>> {
    budget.collect_rows(|sink| point::run(select, access, cx, budget, sink))
}

/// Converts a parameter to the type that the statement expects.
fn parameter(
    value: &Value<'_>,
    ty: Type,
    zone: &Zone,
    labels: Option<&Arc<EnumType>>,
) -> Result<Value<'static>> {
    if labels.is_some() {
        let text = match value {
            Value::Text(text) => from_text_in(text, ty, zone)?,
            other => other.borrowed().into_owned(),
        };
        let read = labelled(text, labels.map(|labels| &**labels))?;
        if read.value_type().is_none_or(|found| found == ty) {
            return Ok(read);
        }
    }
    match (value, value.value_type()) {
        (_, None) => Ok(Value::Null),
        (value, Some(found)) if found == ty => Ok(value.clone().into_owned()),
        (Value::Text(text), _) => from_text_in(text, ty, zone),
        (value, Some(found)) if allowed(found, ty, Strength::Assignment) => {
            Ok(cast_in(value.borrowed(), ty, zone)?.into_owned())
        }
        (_, Some(found)) => {
            let message =
                format!("a parameter of type {} where {} is needed", type_name(found), type_name(ty));
            Err(SqlError::new(state::DATATYPE_MISMATCH, message))
        }
    }
}
