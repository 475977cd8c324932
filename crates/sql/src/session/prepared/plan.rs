//! Planning of a statement: its executor, parameters, result columns and dependencies.

use std::sync::Arc;

use ropewalk::Database;
use ropewalk::tables::Type;
use sqlparser::ast;

use super::Plan;
use super::Point;
use super::Prepared;
use super::is_large;
use crate::access::rights::Rights;
use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::catalog;
use crate::dml::append_event::Append;
use crate::dml::keyed::Keyed;
use crate::dml::model::ModelWrite;
use crate::dml::write::Returning;
use crate::error::{Result, SqlError};
use crate::exec::analytic;
use crate::exec::analytic::WholeQuery;
use crate::exec::executor::may_serve;
use crate::exec::finder::Finder;
use crate::plan::bind::scope::Params;
use crate::plan::locking::Locking;
use crate::plan::{Planner, Select, check_width, hoist_locks};
use crate::session::copy::CopyPlan;
use crate::session::explain_formats::Format;
use crate::session::notify::NotifyCall;
use crate::session::{explain, rights};
use crate::syntax::cursor_syntax::Declare;
use crate::syntax::parse::Statement;
use crate::syntax::parse::with_stack;
use crate::syntax::statements::Utility;
use crate::types::executor::Executor;
use crate::types::outcome::ResultColumn;

/// A plan with the columns of its result, if it returns rows.
type Planned = (Plan, Option<Arc<[ResultColumn]>>);

fn keyed(keyed: Keyed) -> Planned {
    let columns = columns_of(keyed.columns());
    (Plan::Keyed(Box::new(keyed)), columns)
}

fn model(write: ModelWrite) -> Planned {
    let columns = columns_of(write.returning());
    (Plan::Model(Box::new(write)), columns)
}

fn columns_of(returning: Option<&Returning>) -> Option<Arc<[ResultColumn]>> {
    returning.map(|returning| returning.columns.clone().into())
}

impl Prepared {
    /// The rows that FOR UPDATE locks, by table and key.
    fn locking(statement: &Statement, plan: &Plan) -> Option<Result<Locking>> {
        let Statement::Sql(ast::Statement::Query(query)) = statement else { return None };
        if query.locks.is_empty() {
            return None;
        }
        Some(match plan {
            Plan::Select(select) => Locking::of(query, select),
            _ => Err(SqlError::unsupported(
                "FOR UPDATE of this query at read committed",
                "lock the rows of a plain SELECT by their keys",
            )),
        })
    }

    /// Plans a statement against the tables that `access` sees.
    pub(crate) fn plan(
        statement: Arc<Statement>,
        declared: &[Option<Type>],
        access: Access<'_>,
        standing: Standing,
    ) -> Result<Self> {
        let held = standing.acting.rights();
        let least = rights::least(&statement, held);
        standing.acting.check(least)?;
        if let Statement::Utility(Utility::Declare(declare)) = &*statement {
            let query = Arc::new(Statement::Sql(ast::Statement::Query(declare.query.clone())));
            let query = Self::plan(query, declared, access, standing)?;
            if !matches!(query.plan, Plan::Select(_) | Plan::Whole(_) | Plan::Small(_)) {
                return Err(SqlError::unsupported("DECLARE CURSOR of this query", "run it by itself"));
            }
            return Ok(Self::of_declare(statement.clone(), declare.clone(), query));
        }
        let db = access.database().clone();
        let executor = standing.settings.executor;
        let mut standing = standing;
        if executor != Executor::Auto && locks_rows(&statement) {
            // Rows can be locked only if they are read by their keys.
            Arc::make_mut(&mut standing.settings).executor = Executor::Auto;
        }
        let mut planner = Planner::beside(access, Params::declared(declared), standing);
        let (plan, columns) = with_stack(|| Self::plan_one(&statement, &mut planner))?;
        let whole = match (&plan, statement.sql()) {
            (Plan::Select(select), Some(ast::Statement::Query(query)))
                if query.locks.is_empty()
                    && planner.executor() != Executor::Rows
                    && !planner.draws
                    && planner.subqueries.iter().all(|subquery| subquery.locking.is_none()) =>
            {
                beside(query, select, &mut planner)
            }
            _ => None,
        };
        check_width(columns.as_deref().map_or(0, <[ResultColumn]>::len))?;
        let parameters = planner.params.finished();
        for ty in &parameters {
            planner.enum_of(*ty)?;
        }
        let Planner {
            enums,
            subqueries,
            latest_read_seq,
            catalog,
            standing,
            sets,
            draws,
            is_fleeting,
            locks_within,
            reads,
            ..
        } = planner;
        let point = match &plan {
            Plan::Select(select) if subqueries.is_empty() => Point::of(select, &db),
            _ => None,
        };
        let declared = declared.to_vec();
        let locking = Self::locking(&statement, &plan);
        let is_light = plan.is_light();
        let locks =
            locks_within || locking.is_some() || subqueries.iter().any(|query| query.locking.is_some());
        let needs = Rights {
            read: least.read || reads || catalog.is_some() || reads_besides(&plan, draws),
            append: least.append || draws || locks,
            admin: least.admin,
        };
        standing.acting.check(needs)?;
        Ok(Self {
            needs,
            room: None,
            is_columnar: false,
            locking,
            statement,
            declared,
            parameters,
            enums,
            columns,
            plan,
            whole,
            subqueries,
            latest_read_seq,
            point,
            is_fleeting: is_fleeting || catalog.is_some(),
            zone: standing.settings.zone.clone(),
            path: standing.settings.search_path().to_owned(),
            executor,
            standing,
            sets,
            draws,
            locks_within,
            is_light,
        })
    }

    fn plan_one(statement: &Statement, planner: &mut Planner<'_>) -> Result<Planned> {
        match statement {
            Statement::Sql(statement) => Self::plan_sql(statement, planner),
            Statement::Utility(Utility::Copy(copy)) => Ok((Plan::Copy(CopyPlan::of(copy, planner)?), None)),
            Statement::Utility(Utility::ShowAll) => {
                let column = |name: &str| ResultColumn { name: name.into(), ty: Type::TEXT };
                let columns = ["name", "setting", "description"].map(column);
                Ok((Plan::Other, Some(columns.to_vec().into())))
            }
            Statement::Utility(Utility::Merge(merge)) => {
                Ok((Plan::Merge(Box::new(planner.merge(merge)?)), None))
            }
            Statement::Utility(Utility::Fetch(fetch)) if !fetch.moves => {
                planner.is_fleeting = true;
                let shape = planner.standing.cursors.get(&fetch.name);
                Ok((Plan::Other, shape.map(|shape| shape.columns.clone())))
            }
            Statement::Utility(_) => Ok((Plan::Other, None)),
        }
    }

    fn plan_sql(statement: &ast::Statement, planner: &mut Planner<'_>) -> Result<Planned> {
        if let Some(planned) = Self::plan_hoisted(statement, planner) {
            return Ok(planned);
        }
        match statement {
            ast::Statement::Query(query) => Self::plan_query(query, planner),
            ast::Statement::Insert(insert) => Self::plan_insert(insert, planner),
            ast::Statement::Update(update) => Self::plan_update(update, planner),
            ast::Statement::Delete(delete) => Self::plan_delete(delete, planner),
            ast::Statement::Explain {
                describe_alias: ast::DescribeAlias::Explain,
                analyze,
                verbose: false,
                query_plan: false,
                estimate: false,
                statement,
                format: None,
                options,
            } => {
                let options = options.as_deref().unwrap_or_default();
                let analyze = explain::analyzes(*analyze, options)?;
                let ty = if Format::of(options) == Some(Format::Json) { Type::JSON } else { Type::TEXT };
                Self::plan_explain(statement, (analyze, ty), planner)
            }
            ast::Statement::Explain { .. } => {
                Err(SqlError::unsupported("this form of EXPLAIN", "use EXPLAIN (options) statement"))
            }
            ast::Statement::ShowVariable { variable } => {
                let name = crate::types::settings::shown_name(variable);
                Ok((Plan::Other, Some(vec![ResultColumn { name, ty: Type::TEXT }].into())))
            }
            _ => Ok((Plan::Other, None)),
        }
    }

    /// Plans a statement with a subquery with SKIP LOCKED, which always locks rows: it is moved to WITH here, or
    /// rejected later. For other locking subqueries the session decides at each run, by the isolation level.
    fn plan_hoisted(statement: &ast::Statement, planner: &mut Planner<'_>) -> Option<Planned> {
        let query = hoist_locks::lifted(statement).filter(hoist_locks::skips)?;
        let mark = planner.mark();
        match planner.chain(&query) {
            Ok((chain, columns)) => Some((Plan::Chain(Box::new(chain)), columns.map(Into::into))),
            // Not possible, for example because the subquery is correlated: plan the statement unchanged.
            Err(_) => {
                planner.back_to(mark);
                None
            }
        }
    }

    fn plan_query(query: &ast::Query, planner: &mut Planner<'_>) -> Result<Planned> {
        if !query.locks.is_empty() {
            // Plan the query without its locks. A serializable transaction validates its reads at commit and
            // needs none; at other levels `locking` has them.
            let mut plain = query.clone();
            plain.locks.clear();
            return Self::plan_sql(&ast::Statement::Query(Box::new(plain)), planner);
        }
        if has_writers(query) {
            let (chain, columns) = planner.chain(query)?;
            return Ok((Plan::Chain(Box::new(chain)), columns.map(Into::into)));
        }
        if is_written_by(&query.body) {
            return Self::plan_with(query, planner);
        }
        if let Some(function) = Append::of(query) {
            let append = Append::plan(query, function, planner)?;
            let columns = append.columns.clone().into();
            return Ok((Plan::Append(Box::new(append)), Some(columns)));
        }
        if let Some(function) = NotifyCall::of(query) {
            let call = NotifyCall::plan(function, planner)?;
            let column = ResultColumn { name: "pg_notify".into(), ty: Type::TEXT };
            return Ok((Plan::Notify(Box::new(call)), Some(vec![column].into())));
        }
        let shown = crate::plan::bind::catalog::with_names_shown(query);
        let query = shown.as_ref().unwrap_or(query);
        if catalog::is_asked(query) {
            let node = planner.small(query)?;
            let columns = Some(node.columns.clone().into());
            return Ok((Plan::Small(Box::new(node)), columns));
        }
        if let Some(planned) = planner.forced(|planner| Self::plan_forced(query, planner))? {
            return Ok(planned);
        }
        let mark = planner.mark();
        match planner.query(query) {
            Ok(select) => {
                let columns = Some(select.columns.clone().into());
                Ok((Plan::Select(select), columns))
            }
            // A name may denote a relation of another model, and the query engine may run what needs more than
            // keys.
            Err(error) if may_serve(&error) => {
                planner.back_to(mark);
                Self::plan_whole(query, planner)
            }
            Err(error) => Err(error),
        }
    }

    fn plan_insert(insert: &ast::Insert, planner: &mut Planner<'_>) -> Result<Planned> {
        let mark = planner.mark();
        match planner.insert(insert) {
            Ok(insert) => {
                let columns = columns_of(insert.returning.as_ref());
                Ok((Plan::Insert(insert), columns))
            }
            Err(error) if may_serve(&error) => {
                planner.back_to(mark);
                match planner.model_insert(insert)? {
                    Some(insert) => Ok(model(ModelWrite::Insert(insert))),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Plans an UPDATE whose rows a query finds.
    fn plan_update_by_query(update: &ast::Update, planner: &mut Planner<'_>) -> Result<Planned> {
        match planner.model_update(update)? {
            Some(change) => Ok(model(ModelWrite::Change(change))),
            None => Ok(keyed(planner.keyed_update(update)?)),
        }
    }

    /// Plans a DELETE whose rows a query finds.
    fn plan_delete_by_query(delete: &ast::Delete, planner: &mut Planner<'_>) -> Result<Planned> {
        match planner.model_delete(delete)? {
            Some(change) => Ok(model(ModelWrite::Change(change))),
            None => Ok(keyed(planner.keyed_delete(delete)?)),
        }
    }

    fn plan_update(update: &ast::Update, planner: &mut Planner<'_>) -> Result<Planned> {
        if let Some(update) = planner.forced(|planner| {
            let update = planner.keyed_update(update)?;
            Ok((!planner.locks_within).then_some(update))
        })? {
            return Ok(keyed(update));
        }
        let mark = planner.mark();
        match planner.update(update) {
            Ok(update) => {
                let columns = columns_of(update.returning.as_ref());
                Ok((Plan::Update(update), columns))
            }
            Err(error) if may_serve(&error) => {
                planner.back_to(mark);
                Self::plan_update_by_query(update, planner)
            }
            Err(error) => Err(error),
        }
    }

    fn plan_delete(delete: &ast::Delete, planner: &mut Planner<'_>) -> Result<Planned> {
        if let Some(delete) = planner.forced(|planner| {
            let delete = planner.keyed_delete(delete)?;
            Ok((!planner.locks_within).then_some(delete))
        })? {
            return Ok(keyed(delete));
        }
        let mark = planner.mark();
        match planner.delete(delete) {
            Ok(delete) => {
                let columns = columns_of(delete.returning.as_ref());
                Ok((Plan::Delete(delete), columns))
            }
            Err(error) if may_serve(&error) => {
                planner.back_to(mark);
                Self::plan_delete_by_query(delete, planner)
            }
            Err(error) => Err(error),
        }
    }

    fn plan_explain(
        statement: &ast::Statement,
        (analyze, ty): (bool, Type),
        planner: &mut Planner<'_>,
    ) -> Result<Planned> {
        let column = Some(vec![ResultColumn { name: "QUERY PLAN".into(), ty }].into());
        let (plan, _) = Self::plan_sql(statement, planner)?;
        let plan = match (plan, statement) {
            (Plan::Select(select), ast::Statement::Query(query))
                if planner.executor() != Executor::Rows
                    && is_large(&select, &planner.subqueries, &mut planner.access)? =>
            {
                let whole = beside(query, &select, planner);
                whole.map_or(Plan::Select(select), Plan::Whole)
            }
            (plan, _) => plan,
        };
        match (plan, analyze) {
            (Plan::Whole(query), analyze) => Ok((Plan::Whole(query.explained(analyze)), column)),
            (plan, false) => Ok((Plan::Explain(explain::lines(&plan, &planner.subqueries)), column)),
            (plan @ Plan::Select(_), true) => {
                let lines = explain::lines(&plan, &planner.subqueries);
                Ok((Plan::Analyze(Box::new(plan), lines), column))
            }
            _ => Err(SqlError::unsupported(
                "EXPLAIN ANALYZE of a statement that writes",
                "EXPLAIN shows its paths",
            )),
        }
    }

    /// Plans INSERT, UPDATE or DELETE after WITH.
    fn plan_with(query: &ast::Query, planner: &mut Planner<'_>) -> Result<Planned> {
        let refused =
            || SqlError::unsupported("this statement after WITH", "write a query, INSERT, UPDATE or DELETE");
        let mut bare = query.clone();
        let with = bare.with.take().ok_or_else(refused)?;
        if bare.to_string() != query.body.to_string() {
            return Err(refused());
        }
        match query.body.as_ref() {
            ast::SetExpr::Insert(ast::Statement::Insert(insert)) => {
                let mut insert = insert.clone();
                let source = insert.source.as_mut().ok_or_else(refused)?;
                source.with = Some(match source.with.take() {
                    None => with,
                    // Its own WITH queries see those of the statement.
                    Some(own) => ast::With {
                        recursive: with.recursive || own.recursive,
                        cte_tables: with.cte_tables.into_iter().chain(own.cte_tables).collect(),
                        ..own
                    },
                });
                Self::plan_sql(&ast::Statement::Insert(insert), planner)
            }
            ast::SetExpr::Update(ast::Statement::Update(update)) => {
                planner.with = Some(with);
                Self::plan_update_by_query(update, planner)
            }
            ast::SetExpr::Delete(ast::Statement::Delete(delete)) => {
                planner.with = Some(with);
                Self::plan_delete_by_query(delete, planner)
            }
            _ => Err(refused()),
        }
    }

    /// Plans a query for the executor chosen by the session; `None` if that executor cannot run it.
    fn plan_forced(query: &ast::Query, planner: &mut Planner<'_>) -> Result<Option<Planned>> {
        let executor = planner.executor();
        let (plan, columns) = Self::plan_whole(query, planner)?;
        let is_asked = match &plan {
            Plan::Whole(_) => executor == Executor::Engine && !planner.draws,
            Plan::Small(_) => executor == Executor::Nested,
            _ => false,
        };
        Ok(is_asked.then_some((plan, columns)))
    }

    /// Plans a query for the query engine, or for nested loops in memory if the engine cannot run it.
    fn plan_whole(query: &ast::Query, planner: &mut Planner<'_>) -> Result<Planned> {
        let finder = Finder::plan(query, planner)?;
        let columns = Some(finder.columns().to_vec().into());
        Ok(match finder {
            Finder::Whole(query) => (Plan::Whole(query), columns),
            Finder::Loops(node) => (Plan::Small(node), columns),
        })
    }

    /// Combines DECLARE with its planned query.
    fn of_declare(statement: Arc<Statement>, declare: Declare, query: Self) -> Self {
        Self {
            locking: None,
            statement,
            declared: query.declared.clone(),
            parameters: query.parameters.clone(),
            enums: query.enums.clone(),
            columns: None,
            whole: None,
            subqueries: Vec::new(),
            latest_read_seq: Vec::new(),
            point: None,
            is_fleeting: query.is_fleeting,
            zone: query.zone.clone(),
            path: query.path.clone(),
            executor: query.executor,
            standing: query.standing.clone(),
            sets: query.sets.clone(),
            draws: query.draws,
            locks_within: query.locks_within,
            is_light: query.is_light,
            needs: query.needs,
            room: None,
            is_columnar: false,
            plan: Plan::Declare(Box::new((declare, query))),
        }
    }
}

/// True for a plan that needs the right to read even without reading a relation: it returns rows that it
/// wrote or found, or a value not drawn from a sequence.
fn reads_besides(plan: &Plan, draws: bool) -> bool {
    match plan {
        Plan::Select(_) | Plan::Whole(_) | Plan::Small(_) => !draws,
        Plan::Insert(insert) => insert.returning.is_some() || insert.on_conflict.is_some(),
        Plan::Model(write) => write.reads(),
        Plan::Append(_) | Plan::Notify(_) | Plan::Copy(CopyPlan::In(_)) | Plan::Other => false,
        Plan::Update(_) | Plan::Delete(_) | Plan::Keyed(_) | Plan::Merge(_) | Plan::Chain(_) => true,
        Plan::Copy(CopyPlan::Out(_) | CopyPlan::Whole(_)) => true,
        Plan::Explain(_) | Plan::Analyze(..) | Plan::Declare(_) => true,
    }
}

/// True for SELECT ... FOR UPDATE and FOR SHARE.
fn locks_rows(statement: &Statement) -> bool {
    matches!(statement, Statement::Sql(ast::Statement::Query(query)) if !query.locks.is_empty())
}

/// True if a query of WITH writes or locks rows.
pub(crate) fn has_writers(query: &ast::Query) -> bool {
    let mut queries = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| &cte.query);
    queries.any(|query| crate::dml::write::writes(query) || !query.locks.is_empty())
}

/// True for a writing statement in the position of a query.
pub(crate) fn is_written_by(body: &ast::SetExpr) -> bool {
    matches!(
        body,
        ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_)
    )
}

/// Plans the query for the query engine, too, if it works on complete tables and the columns are the same.
fn beside(query: &ast::Query, select: &Select, planner: &mut Planner<'_>) -> Option<WholeQuery> {
    let works = select.works_on_whole_tables()
        || planner.subqueries.iter().any(|subquery| subquery.select.works_on_whole_tables());
    if !works {
        return None;
    }
    let mark = planner.mark();
    let planned = analytic::prepare(query, planner);
    planner.back_to(mark);
    planned.ok().filter(|planned| planned.columns == select.columns).map(|planned| planned.query)
}

impl Point {
    fn of(select: &Select, db: &Database) -> Option<Self> {
        let [level] = select.levels.as_slice() else { return None };
        let plain = select.groups.is_none()
            && !select.is_distinct
            && select.constant.is_empty()
            && select.limit.is_none()
            && select.offset.is_none();
        let (exprs, types) = level.path.point().filter(|_| plain)?;
        let key = exprs.iter().cloned().zip(types).collect();
        Some(Self { get: db.tables().point(&level.table), key, buffer: Vec::new() })
    }
}
