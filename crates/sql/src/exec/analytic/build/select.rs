//! Queries and SELECT: clause by clause, in their logical order.
//!
//!   FROM ─▶ WHERE ─▶ GROUP BY, aggregates ─▶ HAVING ─▶ windows ─▶ output ─▶ DISTINCT ─▶ ORDER BY ─▶ LIMIT

use std::cell::RefCell;

use datafusion::common::Column;
use datafusion::functions_window::rank::rank_udwf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr as Df, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Operator, Sort, SortExpr, lit,
};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::aggregates::Keys;
use crate::exec::analytic::build::from::From;
use crate::exec::analytic::build::translate::{Col, balanced, comparable};
use crate::exec::analytic::build::unnest::SetCall;
use crate::exec::analytic::build::windows::Window;
use crate::exec::analytic::kernel::convert::compares;
use crate::exec::analytic::rules::computed_first::is_computed;
use crate::exec::analytic::scan::shared::Sharing;
use crate::exec::analytic::{Named, Relation, SortKey, Sorted, built};
use crate::exec::executor::unsupported;
use crate::expr::cast::Strength;
use crate::expr::{Expr, Nothing, Order};
use crate::functions::aggregate::Aggregate;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::Scope;
use crate::plan::{Planner, check_distinct, check_distinct_on, determined_keys, grouped_expr, split};
use crate::syntax::names::folded;
use crate::types::outcome::ResultColumn;

/// Maximum nesting of queries.
const DEPTH_MAX: usize = 32;

/// The select list of a SELECT with the clauses that filter and order its rows.
struct Output {
    exprs: Vec<(Expr, Type)>,
    orders: Vec<Order>,
    /// DISTINCT ON.
    on: Vec<(Expr, Type)>,
    is_distinct: bool,
    /// The order of the input rows, which still holds when they are returned one by one.
    inherited: Vec<Order>,
}

/// The rows of a SELECT after some of its clauses.
struct Stage {
    plan: LogicalPlan,
    cols: Vec<Col>,
    /// The order of the rows.
    inherited: Vec<Order>,
}

/// The bound clauses of a SELECT after WHERE. A clause that computes columns replaces its results in the others.
struct Clauses {
    output: Vec<Expr>,
    columns: Vec<ResultColumn>,
    orders: Vec<Order>,
    /// DISTINCT ON.
    on: Vec<(Expr, Type)>,
    is_distinct: bool,
    keys: Keys,
    aggregates: Vec<Aggregate>,
    having: Option<Expr>,
    windows: Vec<Window>,
    /// Set-returning functions.
    sets: Vec<SetCall>,
}

impl Clauses {
    /// Changes the select list, ORDER BY and DISTINCT ON.
    fn rewrite(&mut self, change: &dyn Fn(Expr) -> Result<Expr>) -> Result<()> {
        let orders = self.orders.iter_mut().map(|order| &mut order.expr);
        let on = self.on.iter_mut().map(|(expr, _)| expr);
        for expr in self.output.iter_mut().chain(orders).chain(on) {
            *expr = change(std::mem::replace(expr, Expr::Const(Value::Null)))?;
        }
        Ok(())
    }
}

impl Clauses {
    /// Adds the columns that the clauses read and the keys determine to the keys.
    fn add_determined_keys(&mut self, scope: &Scope, reads: &[Vec<usize>]) -> Result<()> {
        let names: Vec<Expr> = self.keys.exprs.iter().map(|(expr, _)| expr.clone()).collect();
        let further = RefCell::new(Vec::new());
        let look = |expr: Expr| {
            determined_keys(&expr, &names, scope, reads, &mut |key, ty| further.borrow_mut().push((key, ty)));
            Ok(expr)
        };
        self.rewrite(&look)?;
        self.windows.iter_mut().try_for_each(|window| window.rewrite(&look))?;
        self.sets.iter_mut().try_for_each(|call| call.rewrite(&look))?;
        self.having = self.having.take().map(look).transpose()?;
        for key in further.into_inner() {
            self.keys.add(key);
        }
        Ok(())
    }
}

/// The order of the rows of FROM, over `cols`; keys that are not among them are added.
fn inherited_order(keys: Vec<SortKey>, cols: &mut Vec<Col>) -> Vec<Order> {
    let mut inherited = Vec::with_capacity(keys.len());
    for key in keys {
        let known = cols.iter().position(|col| col.column == key.col.column);
        inherited.push(key.order(known.unwrap_or(cols.len())));
        if known.is_none() {
            cols.push(key.col);
        }
    }
    inherited
}

impl Planner<'_> {
    /// Plans a query of any form.
    ///
    /// # Errors
    /// Unknown names, wrong types; 0A000 for unsupported queries.
    pub(in crate::exec::analytic) fn relation(&mut self, query: &ast::Query) -> Result<Relation> {
        self.nothing_but_a_query(query)?;
        let mark = self.whole()?.named.len();
        if mark + self.outer.len() > DEPTH_MAX {
            let message = format!("queries nested deeper than {DEPTH_MAX}");
            return Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, message));
        }
        let planned = self.relation_with(query);
        self.whole()?.named.truncate(mark);
        planned
    }

    fn relation_with(&mut self, query: &ast::Query) -> Result<Relation> {
        if let Some(with) = &query.with {
            for (place, cte) in with.cte_tables.iter().enumerate() {
                self.cte(cte, with.recursive, &Sharing::of(query, with, place))?;
            }
        }
        let order = match &query.order_by {
            None => &[][..],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(list), interpolate: None }) => list,
            Some(other) => return Err(unsupported(other)),
        };
        let relation = match query.body.as_ref() {
            ast::SetExpr::Select(select) => self.whole_select(select, order)?,
            body => {
                let relation = self.set_expr(body)?;
                self.sorted(relation, order)?
            }
        };
        self.limited(relation, query)
    }

    fn cte(&mut self, cte: &ast::Cte, recursive: bool, sharing: &Sharing) -> Result<()> {
        if cte.from.is_some() || cte.alias.at.is_some() {
            return Err(unsupported(format!("WITH {}", cte.alias)));
        }
        let name = folded(&cte.alias.name);
        let columns: Vec<String> = cte.alias.columns.iter().map(|column| folded(&column.name)).collect();
        let current = std::mem::take(&mut self.whole()?.current);
        let relation = match self.recursive_parts(&cte.query, &name, recursive) {
            Some((first, next, distinct)) => self.recursive(&name, &columns, first, next, distinct),
            None => self.relation(&cte.query),
        };
        self.whole()?.current = current;
        let mut relation = self.shared(&name, relation?, sharing)?;
        if columns.len() > relation.names.len() {
            let message = format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                relation.names.len(),
                columns.len()
            );
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
        }
        for (name, given) in relation.names.iter_mut().zip(columns) {
            *name = given;
        }
        self.whole()?.named.push(Named { name, relation });
        Ok(())
    }

    /// Body parts other than a plain SELECT.
    pub(in crate::exec::analytic) fn set_expr(&mut self, body: &ast::SetExpr) -> Result<Relation> {
        match body {
            ast::SetExpr::Select(select) => self.whole_select(select, &[]),
            ast::SetExpr::Query(query) => self.relation(query),
            ast::SetExpr::Values(values) => self.values_relation(values),
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                self.set_operation(*op, *set_quantifier, left, right)
            }
            other => Err(unsupported(other)),
        }
    }

    fn values_relation(&mut self, values: &ast::Values) -> Result<Relation> {
        let select = self.values(values, &[])?;
        let types: Vec<Type> = select.columns.iter().map(|column| column.ty).collect();
        let names: Vec<String> = select.columns.iter().map(|column| column.name.clone()).collect();
        let rows = select.values.unwrap_or_default();
        let translator = self.whole()?.translator(&[]);
        let mut translated = Vec::with_capacity(rows.len());
        for row in &rows {
            let cells = row.iter().zip(&types).map(|(expr, ty)| {
                translator.in_form(expr, *ty, &crate::exec::analytic::kernel::convert::data_type(*ty))
            });
            translated.push(cells.collect::<Result<Vec<Df>>>()?);
        }
        let plan = built(LogicalPlanBuilder::values(translated).and_then(|builder| builder.build()))?;
        let exprs = plan.schema().columns().into_iter().zip(&types);
        let exprs = exprs
            .map(|(column, ty)| {
                (Df::Column(column), crate::exec::analytic::kernel::convert::data_type(*ty), *ty)
            })
            .collect();
        let (plan, cols) = self.projected(plan, exprs)?;
        // VALUES gives NULLs without a type the type text.
        let open = vec![false; cols.len()];
        Ok(Relation { plan, cols, names, open, sorted: None })
    }

    /// ORDER BY of a query other than SELECT: by names and numbers of its columns.
    fn sorted(&mut self, relation: Relation, order: &[ast::OrderByExpr]) -> Result<Relation> {
        if order.is_empty() {
            return Ok(relation);
        }
        let mut scope = Scope::default();
        scope.add(String::new(), relation.columns())?;
        let projected: Vec<(Expr, ResultColumn)> = relation
            .columns()
            .into_iter()
            .enumerate()
            .map(|(place, (name, ty))| (Expr::Column(place), ResultColumn { name, ty }))
            .collect();
        let (mut keys, mut sort_keys) = (Vec::new(), Vec::new());
        for item in order {
            let order = self.order(item, &scope, &projected, &mut Vec::new())?;
            let Expr::Column(place) = order.expr else {
                return Err(unsupported(
                    "an expression in the ORDER BY of UNION, INTERSECT, EXCEPT or VALUES",
                ));
            };
            let col = relation.cols.get(place).ok_or_else(|| crate::expr::bug("a column to sort by"))?;
            keys.push(sort_key(comparable(col.expr(), &col.form, col.ty), &order));
            sort_keys.push(SortKey::of(&order, col.clone()));
        }
        let plan = built(LogicalPlanBuilder::from(relation.plan).sort(keys).and_then(|b| b.build()))?;
        let sorted = Some(Box::new(Sorted { plan: plan.clone(), keys: sort_keys }));
        Ok(Relation { plan, sorted, ..relation })
    }

    fn limited(&mut self, relation: Relation, query: &ast::Query) -> Result<Relation> {
        let (limit, offset) = crate::plan::limit_and_offset(query, true)?;
        if limit.is_none() && offset.is_none() {
            return Ok(relation);
        }
        let nothing = Scope::default();
        let mut bound = [None, None];
        for (slot, (expr, clause)) in bound.iter_mut().zip([(limit, "LIMIT"), (offset, "OFFSET")]) {
            let Some(expr) = expr else { continue };
            let expr = Binder::new(self, &nothing, clause).bind_as(expr, Type::INT8, Strength::Assignment)?;
            if is_of_queries(&expr) {
                return Err(unsupported(format!("{clause} with a subquery or a column of an outer query")));
            }
            let around = &self.whole()?.around;
            // Parameters are not known yet when a statement is prepared: no limit is set then.
            let value = if around.params.is_empty() && reads_parameter(&expr) {
                Value::Null
            } else {
                expr.eval(&around.context(&crate::limits::interrupt::Interrupt::never()), &Nothing)?
                    .into_owned()
            };
            *slot = value.as_integer().map(|number| checked_count(number, clause)).transpose()?;
        }
        let [limit, offset] = bound;
        if query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties) {
            return with_ties(relation, offset.unwrap_or(0), limit);
        }
        let cut = |plan: LogicalPlan| {
            // For an OFFSET without LIMIT the engine loses the sort, or moves another one below it.
            if let (Some(skip), None, Some((sort, above))) = (offset, limit, sort_of(&plan)) {
                return numbered(sort, above, skip, None);
            }
            let builder = LogicalPlanBuilder::from(plan).limit(offset.unwrap_or(0), limit);
            built(builder.and_then(|builder| builder.build()))
        };
        let sorted = match relation.sorted {
            None => None,
            Some(sorted) => Some(Box::new(Sorted { plan: cut(sorted.plan)?, keys: sorted.keys })),
        };
        Ok(Relation { plan: cut(relation.plan)?, sorted, ..relation })
    }

    pub(in crate::exec::analytic) fn whole_select(
        &mut self,
        select: &ast::Select,
        order: &[ast::OrderByExpr],
    ) -> Result<Relation> {
        crate::plan::nothing_but_a_select(select)?;
        let current = self.whole()?.current.clone();
        let windows = std::mem::take(&mut self.whole()?.windows);
        let sets = self.whole()?.sets.take();
        let named = std::mem::replace(&mut self.whole()?.window_names, select.named_window.clone());
        let planned = self.select_clauses(select, order);
        let whole = self.whole()?;
        (whole.current, whole.windows, whole.window_names, whole.sets) = (current, windows, named, sets);
        planned
    }

    fn select_clauses(&mut self, select: &ast::Select, order: &[ast::OrderByExpr]) -> Result<Relation> {
        let From { plan, scope, mut cols, order: keys_of_from } = self.all_of_from(&select.from)?;
        let inherited = inherited_order(keys_of_from, &mut cols);
        self.whole()?.current.clone_from(&cols);
        let mut stage = Stage { plan, cols, inherited };
        if let Some(selection) = &select.selection {
            let mut conjuncts = Vec::new();
            split(Binder::new(self, &scope, "WHERE").condition(selection)?, &mut conjuncts);
            stage.plan = self.filtered(stage.plan, &conjuncts, &stage.cols)?;
        }
        let mut clauses = self.bind_clauses(select, order, &scope)?;
        if crate::plan::has_group_by(select) || !clauses.aggregates.is_empty() || clauses.having.is_some() {
            stage = self.group_rows(stage, &mut clauses, &scope)?;
        }
        if !clauses.windows.is_empty() {
            stage = self.add_windows(stage, &mut clauses)?;
        }
        if !clauses.sets.is_empty() {
            stage = self.add_sets(stage, &mut clauses)?;
        }
        let Stage { plan, cols, mut inherited } = stage;
        let Clauses { output, columns, orders, on, is_distinct, .. } = clauses;
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let types: Vec<Type> = columns.iter().map(|column| column.ty).collect();
        // A NULL without a type was given the type text.
        let is_open = |(expr, ty): (&Expr, &Type)| *expr == Expr::Const(Value::Null) && *ty == Type::TEXT;
        let open = output.iter().zip(&types).map(is_open).collect();
        if !orders.is_empty() || is_distinct || !on.is_empty() {
            inherited.clear();
        }
        let exprs = output.into_iter().zip(types).collect();
        let (plan, cols, sorted) =
            self.output(plan, &cols, Output { exprs, orders, on, is_distinct, inherited })?;
        Ok(Relation { plan, cols, names, open, sorted })
    }

    /// Binds the clauses after WHERE.
    fn bind_clauses(
        &mut self,
        select: &ast::Select,
        order: &[ast::OrderByExpr],
        scope: &Scope,
    ) -> Result<Clauses> {
        let mut aggregates = Vec::new();
        self.whole()?.windows = Some(Vec::new());
        self.whole()?.sets = Some(Vec::new());
        let projected = self.projection(&select.projection, scope, &mut aggregates)?;
        let sets = self.whole()?.sets.take().unwrap_or_default();
        let windows_of_output = self.whole()?.windows.take();
        let keys = self.group_keys(&select.group_by, scope, &projected)?;
        let having = self.having(select, scope, &mut aggregates)?;
        self.whole()?.windows = windows_of_output;
        let mut orders = Vec::new();
        for item in order {
            orders.push(self.order(item, scope, &projected, &mut aggregates)?);
        }
        let on = match &select.distinct {
            Some(ast::Distinct::On(items)) => items
                .iter()
                .map(|item| self.distinct_on(item, select, scope, &projected, &mut Vec::new()))
                .collect::<Result<Vec<_>>>()?,
            _ => Vec::new(),
        };
        let windows = self.whole()?.windows.take().unwrap_or_default();
        let (output, columns): (Vec<Expr>, Vec<ResultColumn>) = projected.into_iter().unzip();
        let is_distinct = matches!(select.distinct, Some(ast::Distinct::Distinct));
        if is_distinct {
            check_distinct(&columns, &output, orders.iter().map(|order| &order.expr))?;
        }
        Ok(Clauses { output, columns, orders, on, is_distinct, keys, aggregates, having, windows, sets })
    }

    /// GROUP BY, aggregates and HAVING.
    fn group_rows(&mut self, stage: Stage, clauses: &mut Clauses, scope: &Scope) -> Result<Stage> {
        let Stage { plan, cols, inherited } = stage;
        let reads = self.whole()?.reads_of_subqueries(&cols);
        if clauses.keys.sets.is_none() {
            clauses.add_determined_keys(scope, &reads)?;
        }
        let names: Vec<Expr> = clauses.keys.exprs.iter().map(|(expr, _)| expr.clone()).collect();
        let over_groups = |expr: Expr| grouped_expr(expr, &names, scope, &reads);
        clauses.rewrite(&over_groups)?;
        for window in &mut clauses.windows {
            window.rewrite(&over_groups)?;
        }
        for call in &mut clauses.sets {
            call.rewrite(&over_groups)?;
        }
        let (keys, mut aggregates) =
            (std::mem::take(&mut clauses.keys), std::mem::take(&mut clauses.aggregates));
        // Aggregates without ORDER BY take their rows in the order of FROM.
        for aggregate in aggregates.iter_mut().filter(|a| a.kind.minds_order() && a.order.is_empty()) {
            aggregate.order.clone_from(&inherited);
        }
        let (mut plan, cols) = self.grouped(plan, cols, keys, aggregates)?;
        if let Some(having) = clauses.having.take() {
            let mut conjuncts = Vec::new();
            split(over_groups(having)?, &mut conjuncts);
            plan = self.filtered(plan, &conjuncts, &cols)?;
        }
        Ok(Stage { plan, cols, inherited: Vec::new() })
    }

    /// Computes window functions as columns.
    fn add_windows(&mut self, stage: Stage, clauses: &mut Clauses) -> Result<Stage> {
        let Stage { plan, cols, mut inherited } = stage;
        let keeps_order = clauses.windows.iter().all(Window::keeps_order);
        clauses.windows.iter_mut().for_each(|window| window.follow(&inherited));
        if !keeps_order {
            inherited.clear();
        }
        for window in &mut clauses.windows {
            window.take_filter_along();
        }
        let parts = clauses.windows.iter_mut().flat_map(Window::parts_mut);
        let (plan, cols) = self.computed_first(plan, cols, parts, is_computed)?;
        let width = cols.len();
        let (plan, cols) = self.windowed(plan, cols, &clauses.windows)?;
        let placed = |expr: Expr| -> Result<Expr> {
            Ok(expr.rewrite(&mut |part| match part {
                Expr::Window(number) => Some(Expr::Column(width + number)),
                _ => None,
            }))
        };
        clauses.rewrite(&placed)?;
        for call in &mut clauses.sets {
            call.rewrite(&placed)?;
        }
        Ok(Stage { plan, cols, inherited })
    }

    /// Computes the rows of set-returning functions as columns.
    fn add_sets(&mut self, stage: Stage, clauses: &mut Clauses) -> Result<Stage> {
        let Stage { plan, cols, inherited } = stage;
        let width = cols.len();
        let (plan, cols) = self.unnested(plan, cols, &clauses.sets, false, false)?;
        clauses.rewrite(&|expr| {
            Ok(expr.rewrite(&mut |part| match part {
                Expr::Set(number) => Some(Expr::Column(width + number)),
                _ => None,
            }))
        })?;
        Ok(Stage { plan, cols, inherited })
    }

    pub(in crate::exec::analytic) fn filtered(
        &mut self,
        plan: LogicalPlan,
        conjuncts: &[Expr],
        cols: &[Col],
    ) -> Result<LogicalPlan> {
        let translator = self.whole()?.translator(cols);
        let conditions: Result<Vec<Df>> = conjuncts.iter().map(|c| translator.conjunct(c)).collect();
        match balanced(conditions?, Operator::And) {
            None => Ok(plan),
            Some(condition) => {
                built(LogicalPlanBuilder::from(plan).filter(condition).and_then(|builder| builder.build()))
            }
        }
    }

    fn group_keys(
        &mut self,
        group_by: &ast::GroupByExpr,
        scope: &Scope,
        projected: &[(Expr, ResultColumn)],
    ) -> Result<Keys> {
        let ast::GroupByExpr::Expressions(items, modifiers) = group_by else {
            return Err(unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(unsupported("GROUP BY with a modifier"));
        }
        let mut keys = Keys::default();
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        let mut has_sets = false;
        for item in items {
            let alternatives: Vec<Vec<&ast::Expr>> = match item {
                ast::Expr::GroupingSets(sets) => sets.iter().map(|set| set.iter().collect()).collect(),
                ast::Expr::Rollup(parts) => (0..=parts.len())
                    .rev()
                    .map(|length| parts.iter().take(length).flatten().collect())
                    .collect(),
                ast::Expr::Cube(parts) if parts.len() <= 6 => (0..1_usize << parts.len())
                    .rev()
                    .map(|bits| {
                        let chosen = parts.iter().enumerate();
                        let chosen = chosen.filter(|(at, _)| bits >> (parts.len() - 1 - at) & 1 == 1);
                        chosen.flat_map(|(_, part)| part.iter()).collect()
                    })
                    .collect(),
                ast::Expr::Cube(_) => return Err(unsupported("CUBE of more than 6")),
                ast::Expr::Tuple(parts) => vec![parts.iter().collect()],
                other => vec![vec![other]],
            };
            has_sets |=
                matches!(item, ast::Expr::GroupingSets(_) | ast::Expr::Rollup(_) | ast::Expr::Cube(_));
            let mut numbered = Vec::new();
            for alternative in alternatives {
                let mut numbers = Vec::new();
                for key in alternative {
                    numbers.push(keys.add(self.group_key(key, scope, projected)?));
                }
                numbered.push(numbers);
            }
            sets = sets
                .iter()
                .flat_map(|before| numbered.iter().map(move |next| [before.as_slice(), next].concat()))
                .collect();
        }
        if has_sets {
            keys.sets = Some(sets);
        }
        Ok(keys)
    }

    /// The select list, DISTINCT and ORDER BY.
    fn output(
        &mut self,
        plan: LogicalPlan,
        cols: &[Col],
        clauses: Output,
    ) -> Result<(LogicalPlan, Vec<Col>, Option<Box<Sorted>>)> {
        let Output { exprs: output, orders, on, is_distinct, inherited } = clauses;
        let mut exprs = Vec::with_capacity(output.len() + orders.len());
        for (expr, ty) in &output {
            exprs.push(self.translated(expr, *ty, cols)?);
        }
        // Sort keys are columns of the select list, or hidden columns after it.
        let mut places = Vec::with_capacity(orders.len());
        for order in &orders {
            let known = output.iter().position(|(expr, _)| *expr == order.expr);
            let known = order.shown.or(known
                .filter(|place| is_distinct || exprs.get(*place).is_some_and(|(_, form, _)| compares(form))));
            places.push(match known {
                Some(place) => place,
                None => {
                    let (expr, form, ty) = self.translated(&order.expr, order.ty, cols)?;
                    exprs.push((expr, form, ty));
                    exprs.len() - 1
                }
            });
        }
        let mut on_places = Vec::new();
        for (expr, ty) in &on {
            exprs.push(self.translated(expr, *ty, cols)?);
            on_places.push(exprs.len() - 1);
        }
        let inherited_from = exprs.len();
        for order in &inherited {
            exprs.push(self.translated(&order.expr, order.ty, cols)?);
        }
        let (mut plan, mut all) = self.projected(plan, exprs)?;
        if is_distinct {
            (plan, all) = self.distinct(plan, all)?;
        }
        let key = |all: &[Col], place: usize| -> Result<Df> {
            let col = all.get(place).ok_or_else(|| crate::expr::bug("a column to sort by"))?;
            Ok(comparable(col.expr(), &col.form, col.ty))
        };
        let sort_keys = |all: &[Col]| -> Result<Vec<SortExpr>> {
            let keys = places.iter().zip(&orders);
            keys.map(|(place, order)| Ok(sort_key(key(all, *place)?, order))).collect()
        };
        if !on.is_empty() {
            let on: Vec<&Expr> = on.iter().map(|(expr, _)| expr).collect();
            check_distinct_on(&on, orders.iter().map(|order| &order.expr))?;
            let keys: Result<Vec<Df>> = on_places.iter().map(|place| key(&all, *place)).collect();
            plan = first_of_each(plan, keys?, sort_keys(&all)?)?;
        }
        if !orders.is_empty() {
            let keys = sort_keys(&all)?;
            plan = built(LogicalPlanBuilder::from(plan).sort(keys).and_then(|builder| builder.build()))?;
        }
        let own = places
            .iter()
            .zip(&orders)
            .filter_map(|(place, order)| Some(SortKey::of(order, all.get(*place)?.clone())));
        let passed = inherited.iter().zip(all.iter().skip(inherited_from));
        let passed = passed.map(|(order, col)| SortKey::of(order, col.clone()));
        let keys: Vec<SortKey> = own.chain(passed).collect();
        let sorted = (!keys.is_empty()).then(|| Box::new(Sorted { plan: plan.clone(), keys }));
        if all.len() > output.len() {
            all.truncate(output.len());
            let shown: Vec<Df> = all.iter().map(Col::expr).collect();
            plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
        }
        Ok((plan, all, sorted))
    }

    /// Removes duplicate rows.
    pub(in crate::exec::analytic) fn distinct(
        &mut self,
        plan: LogicalPlan,
        cols: Vec<Col>,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        if cols.iter().all(|col| compares(&col.form)) {
            let plan = built(LogicalPlanBuilder::from(plan).distinct().and_then(|builder| builder.build()))?;
            return Ok((plan, cols));
        }
        let keys = cols.iter().enumerate().map(|(place, col)| (Expr::Column(place), col.ty)).collect();
        self.grouped(plan, cols, Keys { exprs: keys, sets: None }, Vec::new())
    }
}

/// The first row, in `order`, of those with the same `keys`.
fn first_of_each(plan: LogicalPlan, keys: Vec<Df>, order: Vec<SortExpr>) -> Result<LogicalPlan> {
    let number = Df::from(WindowFunction::new(row_number_udwf(), Vec::new())).partition_by(keys);
    // Its frame has rows, not a range: the engine rejects ranges over keys without subtraction, such as
    // arrays and intervals.
    let number = if order.is_empty() { number } else { number.order_by(order) };
    let number = built(number.build())?;
    let column = Df::Column(bare(number.schema_name().to_string()));
    let plan = built(LogicalPlanBuilder::window_plan(plan, [number]))?;
    built(LogicalPlanBuilder::from(plan).filter(column.eq(lit(1_u64))).and_then(|builder| builder.build()))
}

pub(in crate::exec::analytic) fn sort_key(expr: Df, order: &Order) -> SortExpr {
    SortExpr::new(expr, !order.descending, order.nulls_first)
}

fn checked_count(number: i64, clause: &str) -> Result<usize> {
    usize::try_from(number).map_err(|_| {
        let code = if clause == "LIMIT" {
            state::INVALID_ROW_COUNT_IN_LIMIT
        } else {
            state::INVALID_ROW_COUNT_IN_OFFSET
        };
        SqlError::new(code, format!("{clause} must not be negative"))
    })
}

/// A column without a relation's name.
pub(in crate::exec::analytic) fn bare(name: String) -> Column {
    Column::from_name(name)
}

/// True when a part of the expression is a parameter: a parameter declared as a smaller integer than LIMIT
/// takes is cast.
fn reads_parameter(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::Param(_));
    expr.for_parts(&mut |part| found |= reads_parameter(part));
    found
}

/// True when its value is known only while queries run: it reads an enclosing query or contains a subquery.
pub(in crate::exec::analytic) fn is_of_queries(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::Outer(..) | Expr::Subquery(_) | Expr::InSubquery(..));
    expr.for_parts(&mut |part| found |= is_of_queries(part));
    found
}

/// The sort of the rows of a plan, and the projection above it.
fn sort_of(plan: &LogicalPlan) -> Option<(&Sort, Option<&[Df]>)> {
    match plan {
        LogicalPlan::Sort(sort) => Some((sort, None)),
        LogicalPlan::Projection(above) => match above.input.as_ref() {
            LogicalPlan::Sort(sort) => Some((sort, Some(&above.expr))),
            _ => None,
        },
        _ => None,
    }
}

/// The rows of a sort after the first `skip`, limited to the first `last` and rows equal to the last of them.
fn numbered(sort: &Sort, above: Option<&[Df]>, skip: usize, last: Option<usize>) -> Result<LogicalPlan> {
    let shown: Vec<Df> =
        above.map_or_else(|| sort.input.schema().columns().into_iter().map(Df::Column).collect(), Vec::from);
    let over = |function| {
        built(Df::from(WindowFunction::new(function, Vec::new())).order_by(sort.expr.clone()).build())
    };
    let column = |call: &Df| Df::Column(bare(call.schema_name().to_string()));
    let mut calls = vec![over(row_number_udwf())?];
    let mut is_within: Vec<Df> = calls.iter().map(|number| column(number).gt(lit(skip as u64))).collect();
    if let Some(last) = last {
        let rank = over(rank_udwf())?;
        is_within.push(column(&rank).lt_eq(lit(last as u64)));
        calls.push(rank);
    }
    let plan = built(LogicalPlanBuilder::window_plan(sort.input.as_ref().clone(), calls))?;
    let mut builder = LogicalPlanBuilder::from(plan);
    for condition in is_within {
        builder = built(builder.filter(condition))?;
    }
    built(builder.sort(sort.expr.clone()).and_then(|b| b.project(shown)).and_then(|b| b.build()))
}

/// FETCH FIRST ... WITH TIES: also returns the following rows that are equal to the last one in the order.
fn with_ties(relation: Relation, skip: usize, fetch: Option<usize>) -> Result<Relation> {
    let (sort, above) = sort_of(&relation.plan).ok_or_else(without_order)?;
    let Some(fetch) = fetch else { return Ok(relation) };
    let plan = numbered(sort, above, skip, Some(skip.saturating_add(fetch)))?;
    Ok(Relation { plan, sorted: None, ..relation })
}

fn without_order() -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, "WITH TIES cannot be specified without ORDER BY clause")
}
