//! Plans of SELECT: names looked up, expressions bound, a path chosen for every table.
//!
//!   FROM ─▶ levels, each with an access path and the conditions that can be evaluated there
//!   WHERE, ON ─▶ conjuncts, assigned to the first level that has their columns
//!   GROUP BY, HAVING ─▶ groups ─▶ output ─▶ ORDER BY, DISTINCT, LIMIT
//!
//! Queries that [`Planner::query`] rejects with 0A000 go to `crate::exec::analytic`, over scans at the same
//! snapshot. So do complete scans of large tables (`Select::works_on_large_tables`).

pub(crate) mod array_query;
pub(crate) mod bind;
pub(crate) mod hoist_locks;
pub(crate) mod locking;
pub(crate) mod row_in_subquery;
pub(crate) mod with;

mod from;
mod output;

use std::any::Any;
use std::sync::{Arc, LazyLock};

use ropewalk::tables::{Schema, Table, Type, Value};
use sqlparser::ast;

use crate::access::access_path::Path;
use crate::access::enums::Enums;
use crate::access::row_source::Access;
use crate::access::schemas;
use crate::access::standing::Standing;
use crate::catalog::Catalog;
use crate::error::{Result, SqlError, state};
use crate::expr::cast::Strength;
use crate::expr::{Expr, Order};
use crate::functions::aggregate::Aggregate;
use crate::plan::bind::scope::{Params, Scope};
use crate::plan::bind::{Binder, Typed};
use crate::plan::locking::Locking;
use crate::plan::with::Named;
use crate::syntax::names::{said, table_name};
use crate::syntax::parse;
use crate::types::outcome::ResultColumn;

use from::{From, place, wanted};
pub(crate) use from::{alias_of, alone_first, split};
#[cfg(feature = "analytic")]
pub(crate) use output::determined_keys;
pub(crate) use output::{
    add_determined, check_distinct, check_distinct_on, grouped_expr, is_untyped_string, label,
};

/// A table of FROM.
#[derive(Clone)]
pub(crate) struct Level {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    pub(crate) path: Path,
    /// Number of its first column in the joined row.
    pub(crate) start: usize,
    /// Conditions that a row must satisfy when it is read. For a LEFT JOIN: its ON.
    pub(crate) filter: Vec<Expr>,
    /// LEFT JOIN: without a match there is one row of NULLs.
    pub(crate) is_outer: bool,
    /// WHERE conditions that are evaluated after a LEFT JOIN.
    pub(crate) after: Vec<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) struct Groups {
    pub(crate) keys: Vec<Expr>,
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) having: Option<Expr>,
}

#[derive(Clone)]
pub(crate) struct Select {
    pub(crate) levels: Vec<Level>,
    /// Conditions without a column.
    pub(crate) constant: Vec<Expr>,
    /// Rows of VALUES, instead of levels.
    pub(crate) values: Option<Vec<Vec<Expr>>>,
    pub(crate) groups: Option<Groups>,
    pub(crate) output: Vec<Expr>,
    pub(crate) columns: Vec<ResultColumn>,
    pub(crate) order: Vec<Order>,
    pub(crate) is_distinct: bool,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
}

impl Groups {
    fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.having.iter().for_each(&mut *each);
        self.each_over_rows(each);
    }

    /// Calls `each` for the expressions that are evaluated for each row.
    fn each_over_rows(&self, each: &mut dyn FnMut(&Expr)) {
        self.keys.iter().for_each(&mut *each);
        for aggregate in &self.aggregates {
            let orders = aggregate.order.iter().map(|order| &order.expr);
            aggregate.arguments.iter().chain(&aggregate.filter).chain(orders).for_each(&mut *each);
        }
    }
}

impl Select {
    /// Calls `each` for every expression, except the keys of paths: conditions have them, too.
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        for level in &self.levels {
            level.filter.iter().chain(&level.after).for_each(&mut *each);
        }
        self.groups.iter().for_each(|groups| groups.each_expr(each));
        let values = self.values.iter().flatten().flatten();
        let orders = self.order.iter().map(|order| &order.expr);
        let others = self.constant.iter().chain(&self.output).chain(&self.limit).chain(&self.offset);
        values.chain(orders).chain(others).for_each(each);
    }

    /// True if it filters, joins, groups or sorts complete tables, which the query engine does faster if they
    /// are large.
    pub(crate) fn works_on_whole_tables(&self) -> bool {
        let in_order =
            matches!(self.levels.as_slice(), [level] if level.path.is_ordered && self.groups.is_none());
        let works = self.levels.len() > 1
            || self.groups.is_some()
            || self.is_distinct
            || !self.order.is_empty() && !in_order
            || self.levels.iter().any(|level| !level.filter.is_empty());
        works && self.levels.iter().any(|level| level.path.is_whole())
    }

    /// With paths that read no rows of a table where an index holds all its columns that are read.
    fn covered(mut self) -> Self {
        let is_candidate = |level: &Level| {
            let index = level.path.index.as_deref();
            index.is_some_and(|index| {
                level
                    .schema
                    .indexes()
                    .iter()
                    .any(|known| known.name() == index && !known.included().is_empty())
            })
        };
        if !self.levels.iter().any(is_candidate) {
            return self;
        }
        let mut used = Vec::new();
        let mut take = |expr: &Expr| expr.columns(&mut |column| used.push(column));
        self.levels.iter().flat_map(|level| level.filter.iter().chain(&level.after)).for_each(&mut take);
        match &self.groups {
            Some(groups) => groups.each_over_rows(&mut take),
            None => self.output.iter().chain(self.order.iter().map(|order| &order.expr)).for_each(&mut take),
        }
        for Level { path, schema, start, .. } in &mut self.levels {
            let own = used.iter().filter_map(|column| column.checked_sub(*start));
            let mut own = own.filter(|place| *place < schema.columns().len());
            path.is_covering =
                path.index.as_deref().is_some_and(|index| own.all(|place| schema.is_covered(index, place)));
        }
        self
    }

    /// True if no expression reads a column beyond its row.
    fn stays_within(&self) -> bool {
        let within = |expr: &Expr, width: usize| {
            let mut within = true;
            expr.columns(&mut |column| within &= column < width);
            within
        };
        let end = |level: &Level| level.start + level.schema.columns().len();
        let mut width = self.levels.last().map_or(0, end);
        let known =
            |level: &Level| level.filter.iter().chain(&level.after).all(|expr| within(expr, end(level)));
        let filtered = self.levels.iter().all(known);
        let grouped = self.groups.as_ref().is_none_or(|Groups { keys, aggregates, having }| {
            let arguments = aggregates.iter().flat_map(|aggregate| {
                let orders = aggregate.order.iter().map(|order| &order.expr);
                aggregate.arguments.iter().chain(&aggregate.filter).chain(orders)
            });
            let over_rows = keys.iter().chain(arguments).all(|expr| within(expr, width));
            width = keys.len() + aggregates.len();
            over_rows && having.iter().all(|expr| within(expr, width))
        });
        let orders = self.order.iter().map(|order| &order.expr);
        filtered && grouped && self.output.iter().chain(orders).all(|expr| within(expr, width))
    }
}

/// The form in which a subquery is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Scalar,
    List,
    Exists,
}

/// An uncorrelated subquery, evaluated once before the statement.
pub(crate) struct Subquery {
    pub(crate) select: Select,
    pub(crate) asked: Asked,
    /// The rows that its FOR UPDATE locks.
    pub(crate) locking: Option<Box<Locking>>,
}

/// Plans one statement.
pub(crate) struct Planner<'a> {
    pub(crate) access: Access<'a>,
    pub(crate) params: Params,
    /// Nested subqueries come before those that contain them.
    pub(crate) subqueries: Vec<Subquery>,
    /// Scopes of the enclosing queries.
    pub(crate) outer: Vec<Scope>,
    /// Tables that the plan depends on, with the versions of their schemas.
    pub(crate) latest_read_seq: Vec<(Table, u32)>,
    /// Set while a query is planned for the query engine; `exec::analytic` defines its type.
    pub(crate) whole: Option<Box<dyn Any>>,
    /// State of the session.
    pub(crate) standing: Standing,
    /// The catalog, once it was read. The plan is then valid for one run.
    pub(crate) catalog: Option<Arc<Catalog>>,
    /// True while a query is planned for nested loops in memory.
    pub(crate) is_small: bool,
    /// Queries of WITH in scope.
    pub(crate) named: Vec<Named>,
    /// Calls of `set_config`, which the session applies before the statement runs.
    pub(crate) sets: Vec<SetConfig>,
    /// True for a call of nextval or setval, or of an advisory lock.
    pub(crate) draws: bool,
    /// True if a relation or a state of the database is read.
    pub(crate) reads: bool,
    /// The plan depends on state without a version: it is valid for one run.
    pub(crate) is_fleeting: bool,
    /// The WITH of the UPDATE or DELETE being planned.
    pub(crate) with: Option<ast::With>,
    /// A subquery has FOR UPDATE, which the plan does not apply.
    pub(crate) locks_within: bool,
    /// Set for a statement with writing queries in WITH: all tables that it reads are read into memory before
    /// it writes.
    pub(crate) chained: bool,
    /// Enum types that the plan uses.
    pub(crate) enums: Enums,
}

/// A call of `set_config`.
#[derive(Debug, Clone)]
pub(crate) struct SetConfig {
    pub(crate) name: Expr,
    pub(crate) value: Expr,
    pub(crate) is_local: Expr,
}

/// Maximum nesting depth of queries.
const DEPTH_MAX: usize = 16;

static QUERY: LazyLock<Option<ast::Query>> = LazyLock::new(|| match parse::template("SELECT 1")? {
    ast::Statement::Query(query) => Some(*query),
    _ => None,
});

/// `SELECT 1`, as a template.
pub(crate) fn select_one() -> Option<ast::Query> {
    QUERY.clone()
}

pub(crate) fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported_query(what)
}

/// Rejects unsupported clauses: `given`, with all supported clauses removed, must equal an empty statement.
pub(crate) fn nothing_else<T: PartialEq + std::fmt::Display>(given: &T, empty: Option<&T>) -> Result<()> {
    if empty == Some(given) { Ok(()) } else { Err(unsupported(format!("a clause of {given}"))) }
}

/// Rejects clauses that no planner of queries supports, and SKIP LOCKED in a subquery.
fn nothing_but_a_query(query: &ast::Query) -> Result<()> {
    let mut rest = query.clone();
    if rest.locks.iter().any(|lock| lock.nonblock == Some(ast::NonBlock::SkipLocked)) {
        return Err(SqlError::unsupported(
            "SKIP LOCKED within another query",
            "lock rows by a separate SELECT",
        ));
    }
    rest.locks.clear();
    let empty = QUERY.as_ref();
    if let Some(empty) = empty {
        rest.body = empty.body.clone();
    }
    (rest.with, rest.order_by, rest.limit_clause, rest.fetch) = (None, None, None, None);
    nothing_else(&rest, empty)
}

/// Maximum number of result columns, as in PostgreSQL.
const COLUMNS_MAX: usize = 1664;

/// Rejects a result or select list with too many columns.
///
/// # Errors
/// 54011.
pub(crate) fn check_width(columns: usize) -> Result<()> {
    if columns <= COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("target lists can have at most {COLUMNS_MAX} entries");
    Err(SqlError::new(state::TOO_MANY_COLUMNS, message).hint("select fewer columns, or build one document"))
}

/// Rejects clauses that no planner of SELECT supports.
pub(crate) fn nothing_but_a_select(select: &ast::Select) -> Result<()> {
    check_width(select.projection.len())?;
    let mut rest = select.clone();
    let empty = QUERY.as_ref().and_then(|query| match query.body.as_ref() {
        ast::SetExpr::Select(select) => Some(select.as_ref()),
        _ => None,
    });
    if let Some(empty) = empty {
        rest.projection.clone_from(&empty.projection);
        rest.group_by.clone_from(&empty.group_by);
    }
    (rest.distinct, rest.selection, rest.having) = (None, None, None);
    rest.from.clear();
    rest.named_window.clear();
    // The flag only gives the position of QUALIFY, which was rejected above.
    rest.window_before_qualify = false;
    nothing_else(&rest, empty)
}

/// True with GROUP BY, which may be that of no keys.
pub(crate) fn has_group_by(select: &ast::Select) -> bool {
    matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if !keys.is_empty())
}

/// The expressions of LIMIT and OFFSET; WITH TIES is rejected unless `may_tie`.
pub(crate) fn limit_and_offset(
    query: &ast::Query,
    may_tie: bool,
) -> Result<(Option<&ast::Expr>, Option<&ast::Expr>)> {
    let (limit, offset) = match &query.limit_clause {
        None => (None, None),
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
        }
        Some(other) => return Err(unsupported(other)),
    };
    let limit = match (&query.fetch, limit) {
        (None, limit) => limit,
        (Some(ast::Fetch { with_ties: true, percent: false, quantity: None }), Some(limit)) if may_tie => {
            Some(limit)
        }
        (Some(ast::Fetch { with_ties, percent: false, quantity: Some(quantity) }), None)
            if !with_ties || may_tie =>
        {
            Some(quantity)
        }
        (Some(fetch), _) => return Err(unsupported(fetch)),
    };
    Ok((limit, offset))
}

impl<'a> Planner<'a> {
    pub(crate) fn beside(access: Access<'a>, params: Params, standing: Standing) -> Self {
        Self {
            access,
            params,
            subqueries: Vec::new(),
            outer: Vec::new(),
            latest_read_seq: Vec::new(),
            whole: None,
            standing,
            catalog: None,
            is_small: false,
            named: Vec::new(),
            sets: Vec::new(),
            draws: false,
            reads: false,
            is_fleeting: false,
            with: None,
            locks_within: false,
            chained: false,
            enums: Enums::default(),
        }
    }

    /// The catalog; the plan depends on it after this call.
    pub(crate) fn catalog(&mut self) -> Result<Arc<Catalog>> {
        if let Some(catalog) = &self.catalog {
            return Ok(catalog.clone());
        }
        let catalog = Arc::new(Catalog::read(&mut self.access, &self.standing)?);
        self.catalog = Some(catalog.clone());
        Ok(catalog)
    }

    /// Planner state to return to with [`Planner::back_to`].
    pub(crate) fn mark(&self) -> (Params, usize, usize, usize) {
        (self.params.clone(), self.subqueries.len(), self.latest_read_seq.len(), self.sets.len())
    }

    /// Records a call that changes a sequence or takes an advisory lock, which needs the right to append.
    pub(crate) fn may_draw(&mut self) -> Result<()> {
        self.draws = true;
        self.standing.acting.check(crate::access::rights::Rights::APPEND)
    }

    /// Discards everything planned since the mark.
    pub(crate) fn back_to(
        &mut self,
        (params, subqueries, latest_read_seq, sets): (Params, usize, usize, usize),
    ) {
        self.params = params;
        self.subqueries.truncate(subqueries);
        self.latest_read_seq.truncate(latest_read_seq);
        self.sets.truncate(sets);
        self.outer.clear();
    }

    /// The stored name of a relation. Names in a view resolve as they did when the view was created.
    pub(crate) fn kept_name(&mut self, name: &ast::ObjectName) -> Result<String> {
        let reference = table_name(name)?;
        if self.is_in_view() && name.0.len() == 1 {
            return Ok(reference);
        }
        let Standing { settings, created, .. } = &self.standing;
        if let (Some(database), collection) = said(&reference)
            && settings.collection(database, collection).is_some()
        {
            let message = format!("relation \"{reference}\" does not exist");
            return Err(SqlError::new(state::UNDEFINED_TABLE, message));
        }
        let found = schemas::relation(&mut self.access, settings, created, &reference);
        let (kept, lasts) = found.map_err(|error| match error.state {
            // The error names the relation, as in PostgreSQL.
            state::INVALID_SCHEMA_NAME => {
                SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{reference}\" does not exist"))
            }
            _ => error,
        })?;
        self.is_fleeting |= !lasts;
        Ok(kept)
    }

    /// Resolves a table and adds it to the dependencies of the plan.
    pub(crate) fn table(&mut self, name: &ast::ObjectName) -> Result<(Table, Arc<Schema>)> {
        let at = |error: SqlError| error.at(ast::Spanned::span(name));
        let kept = self.kept_name(name).map_err(at)?;
        let (table, schema) = self.access.table(&kept).map_err(at)?;
        self.latest_read_seq.push((table.clone(), schema.version()));
        let enums = schema.columns().iter().filter_map(|column| column.enum_type());
        enums.for_each(|labels| self.enums.add(labels, true));
        Ok((table, schema))
    }

    /// Rejects unsupported clauses. Row locks are noted for the complete statement.
    pub(crate) fn nothing_but_a_query(&mut self, query: &ast::Query) -> Result<()> {
        self.locks_within |= !query.locks.is_empty();
        nothing_but_a_query(query)
    }

    /// Plans a query.
    ///
    /// # Errors
    /// Unknown names, wrong types; 0A000 for unsupported queries.
    pub(crate) fn query(&mut self, query: &ast::Query) -> Result<Select> {
        self.check_depth()?;
        if query.with.is_some() {
            return Err(unsupported("WITH"));
        }
        self.nothing_but_a_query(query)?;
        let order = match &query.order_by {
            None => &[][..],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(list), interpolate: None }) => list,
            Some(other) => return Err(unsupported(other)),
        };
        let mut planned = match query.body.as_ref() {
            ast::SetExpr::Select(select) => {
                let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
                self.select(select, order, is_limited)?
            }
            ast::SetExpr::Values(values) => self.values(values, order)?,
            ast::SetExpr::Query(inner) if order.is_empty() => self.query(inner)?,
            ast::SetExpr::SetOperation { op, .. } => return Err(unsupported(op)),
            other => return Err(unsupported(other)),
        };
        let (limit, offset) = limit_and_offset(query, false)?;
        if (limit.is_some() || offset.is_some()) && (planned.limit.is_some() || planned.offset.is_some()) {
            return Err(unsupported("a LIMIT of a LIMIT"));
        }
        let nothing = Scope::default();
        for (from, to) in [(limit, &mut planned.limit), (offset, &mut planned.offset)] {
            if let Some(from) = from {
                let bound =
                    Binder::new(self, &nothing, "LIMIT").bind_as(from, Type::INT8, Strength::Assignment)?;
                *to = Some(bound);
            }
        }
        Ok(planned)
    }

    pub(crate) fn check_depth(&self) -> Result<()> {
        if self.outer.len() <= DEPTH_MAX {
            return Ok(());
        }
        let message = format!("queries nested deeper than {DEPTH_MAX}");
        Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, message))
    }

    /// Plans a subquery of an expression; returns its number and the type of its single column.
    pub(crate) fn subquery(
        &mut self,
        query: &ast::Query,
        around: &Scope,
        is_list: bool,
    ) -> Result<(usize, Type)> {
        if self.whole.is_some() {
            let asked = if is_list { Asked::List } else { Asked::Scalar };
            let (number, ty) = self.whole_subquery(query, around, asked)?;
            return Ok((number, ty.unwrap_or(Type::TEXT)));
        }
        let (select, locking) = self.inner(query, around)?;
        let [column] = select.columns.as_slice() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let ty = column.ty;
        let asked = if is_list { Asked::List } else { Asked::Scalar };
        self.subqueries.push(Subquery { select, asked, locking });
        Ok((self.subqueries.len() - 1, ty))
    }

    /// Casts the values of a subquery to type `ty`.
    pub(crate) fn cast_subquery(&mut self, number: usize, ty: Type) {
        if let Some(subquery) = self.subqueries.get_mut(number)
            && let Some(output) = subquery.select.output.first_mut()
        {
            let inner = std::mem::replace(output, Expr::Const(Value::Null));
            *output = Expr::Cast(Box::new(inner), ty);
            if let Some(locking) = &mut subquery.locking {
                locking.answer_first(output.clone());
            }
        }
    }

    pub(crate) fn exists(&mut self, query: &ast::Query, around: &Scope) -> Result<usize> {
        if self.whole.is_some() {
            return Ok(self.whole_subquery(query, around, Asked::Exists)?.0);
        }
        let (select, locking) = self.inner(query, around)?;
        self.subqueries.push(Subquery { select, asked: Asked::Exists, locking });
        Ok(self.subqueries.len() - 1)
    }

    fn inner(&mut self, query: &ast::Query, around: &Scope) -> Result<(Select, Option<Box<Locking>>)> {
        self.outer.push(around.clone());
        let select = self.locking_query(query);
        self.outer.pop();
        select
    }

    /// Plans a subquery, which may have FOR UPDATE.
    pub(crate) fn locking_query(&mut self, query: &ast::Query) -> Result<(Select, Option<Box<Locking>>)> {
        if query.locks.is_empty() {
            return Ok((self.query(query)?, None));
        }
        let plain = ast::Query { locks: Vec::new(), ..query.clone() };
        let select = self.query(&plain)?;
        let locking = Locking::of(query, &select)?;
        Ok((select, Some(Box::new(locking))))
    }

    pub(crate) fn values(&mut self, values: &ast::Values, order: &[ast::OrderByExpr]) -> Result<Select> {
        if !order.is_empty() {
            return Err(unsupported("ORDER BY of VALUES"));
        }
        let nothing = Scope::default();
        let mut rows = Vec::new();
        for row in &values.rows {
            let bound: Result<Vec<Typed>> =
                row.content.iter().map(|expr| Binder::new(self, &nothing, "VALUES").bind(expr)).collect();
            rows.push(bound?);
        }
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != width) {
            return Err(SqlError::new(state::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        let mut types = Vec::new();
        for column in 0..width {
            let all = rows.iter().filter_map(|row| row.get(column));
            types.push(Binder::new(self, &nothing, "VALUES").common_type(all, "VALUES")?);
        }
        let mut settled = Vec::new();
        for row in rows {
            let row: Result<Vec<Expr>> = row
                .into_iter()
                .zip(&types)
                .map(|(typed, ty)| {
                    Binder::new(self, &nothing, "VALUES").settle(typed, *ty, Strength::Implicit)
                })
                .collect();
            settled.push(row?);
        }
        let column =
            |(place, ty): (usize, &Type)| ResultColumn { name: format!("column{}", place + 1), ty: *ty };
        Ok(Select {
            levels: Vec::new(),
            constant: Vec::new(),
            values: Some(settled),
            groups: None,
            output: (0..width).map(Expr::Column).collect(),
            columns: types.iter().enumerate().map(column).collect(),
            order: Vec::new(),
            is_distinct: false,
            limit: None,
            offset: None,
        })
    }

    fn select(
        &mut self,
        select: &ast::Select,
        order: &[ast::OrderByExpr],
        is_limited: bool,
    ) -> Result<Select> {
        nothing_but_a_select(select)?;
        if !select.named_window.is_empty() {
            return Err(unsupported("WINDOW"));
        }
        let is_distinct = match &select.distinct {
            None | Some(ast::Distinct::All) => false,
            Some(ast::Distinct::Distinct) => true,
            Some(ast::Distinct::On(_)) => return Err(unsupported("DISTINCT ON")),
        };

        let mut from = From::default();
        for item in &select.from {
            self.from(item, &mut from)?;
        }
        let From { scope, mut levels, mut conjuncts } = from;
        if let Some(selection) = &select.selection {
            split(Binder::new(self, &scope, "WHERE").condition(selection)?, &mut conjuncts);
        }

        let mut aggregates = Vec::new();
        let projected = self.projection(&select.projection, &scope, &mut aggregates)?;
        let mut group_keys = self.plain_group_keys(&select.group_by, &scope, &projected)?;
        let having = self.having(select, &scope, &mut aggregates)?;
        let mut orders = Vec::new();
        for item in order {
            orders.push(self.order(item, &scope, &projected, &mut aggregates)?);
        }
        let (mut output, columns): (Vec<Expr>, Vec<ResultColumn>) = projected.into_iter().unzip();
        if is_distinct {
            check_distinct(&columns, &output, orders.iter().map(|order| &order.expr))?;
        }

        if aggregates.iter().any(Aggregate::is_of_sets) {
            return Err(unsupported("GROUPING"));
        }
        let grouped = has_group_by(select) || !aggregates.is_empty() || having.is_some();
        let groups = if grouped {
            let over = output.iter().chain(orders.iter().map(|order| &order.expr)).chain(&having);
            add_determined(over, &mut group_keys, &scope);
            let mut over_groups = |expr: Expr| grouped_expr(expr, &group_keys, &scope, &[]);
            output = output.into_iter().map(&mut over_groups).collect::<Result<_>>()?;
            for order in &mut orders {
                order.expr = over_groups(order.expr.clone())?;
            }
            let having = having.map(&mut over_groups).transpose()?;
            Some(Groups { keys: group_keys, aggregates, having })
        } else {
            None
        };
        let wanted =
            if groups.is_none() && !is_distinct && levels.len() == 1 { wanted(&orders) } else { Vec::new() };
        let constant = place(&mut levels, conjuncts, &wanted, is_limited);
        let select = Select {
            levels,
            constant,
            values: None,
            groups,
            output,
            columns,
            order: orders,
            is_distinct,
            limit: None,
            offset: None,
        };
        debug_assert!(
            select.stays_within(),
            "the binder numbers columns through the levels, and grouping renumbers them"
        );
        Ok(select.covered())
    }
}
