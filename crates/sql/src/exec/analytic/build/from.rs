//! FROM: tables, subqueries, names of WITH, joins; each with its columns in scope of the clauses that follow.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr as Df, LogicalPlan, LogicalPlanBuilder};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::functions::FunctionRelation;
use crate::exec::analytic::build::translate::Col;
use crate::exec::analytic::scan::rows::RelationSource;
use crate::exec::analytic::scan::table::TableRelation;
use crate::exec::analytic::{Relation, SortKey, Sorted, built, check_groups_and_windows, check_outer_joins};
use crate::exec::executor::unsupported;
use crate::exec::relations::Rows;
use crate::exec::relations::models::ModelRelation;
use crate::expr::Expr;
use crate::plan::Planner;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::{Present, Scope};
use crate::syntax::names::{folded, in_full, parts, plain_table, table_name};

/// Maximum depth of views within views.
const VIEWS_MAX: usize = 16;

/// The relations of FROM so far, joined into one.
pub(in crate::exec::analytic) struct From {
    pub(in crate::exec::analytic) plan: LogicalPlan,
    pub(in crate::exec::analytic) scope: Scope,
    pub(in crate::exec::analytic) cols: Vec<Col>,
    /// The order of the rows of a single ordered relation; empty after a join. The keys are columns of the plan, not of `cols`.
    pub(in crate::exec::analytic) order: Vec<SortKey>,
}

pub(in crate::exec::analytic) fn nothing() -> Result<LogicalPlan> {
    built(LogicalPlanBuilder::empty(true).build())
}

impl Planner<'_> {
    pub(in crate::exec::analytic) fn all_of_from(&mut self, items: &[ast::TableWithJoins]) -> Result<From> {
        let mut all: Option<From> = None;
        for item in items {
            let before = all.as_ref().map_or(0, |all| all.scope.shown_count());
            if let Some((joined, is_beside)) = self.function_item(&item.relation, all.as_ref(), false)? {
                let mut first = match all {
                    Some(before) if !is_beside => self.cross(before, joined)?,
                    _ => joined,
                };
                first.scope.begin_item(before);
                all = Some(self.joined(first, &item.joins)?);
                continue;
            }
            let next = self.item_of_from(item, all.as_ref())?;
            all = Some(match all {
                None => next,
                Some(before) => self.cross(before, next)?,
            });
        }
        match all {
            Some(all) => Ok(all),
            None => {
                Ok(From { plan: nothing()?, scope: Scope::default(), cols: Vec::new(), order: Vec::new() })
            }
        }
    }

    fn cross(&mut self, left: From, right: From) -> Result<From> {
        let (scope, cols) = both(&left, &right)?;
        let plan = built(LogicalPlanBuilder::from(left.plan).cross_join(right.plan).and_then(|b| b.build()))?;
        Ok(From { plan, scope, cols, order: Vec::new() })
    }

    fn item_of_from(&mut self, item: &ast::TableWithJoins, before: Option<&From>) -> Result<From> {
        let left = self.factor_relation(&item.relation, before)?;
        self.joined(left, &item.joins)
    }

    fn joined(&mut self, left: From, joins: &[ast::Join]) -> Result<From> {
        let mut left = left;
        for join in joins {
            use ast::JoinOperator as J;
            if join.global {
                return Err(unsupported("a global join"));
            }
            let (kind, constraint) = match &join.join_operator {
                J::Join(c) | J::Inner(c) | J::CrossJoin(c) => (JoinType::Inner, c),
                J::Left(c) | J::LeftOuter(c) => (JoinType::Left, c),
                J::Right(c) | J::RightOuter(c) => (JoinType::Right, c),
                J::FullOuter(c) => (JoinType::Full, c),
                _ => return Err(unsupported("this kind of join")),
            };
            if matches!(kind, JoinType::Inner | JoinType::Left)
                && let Some(joined) =
                    self.joined_function(&left, &join.relation, kind == JoinType::Left, constraint)?
            {
                left = joined;
                continue;
            }
            let right = self.factor_relation(&join.relation, Some(&left))?;
            left = self.join(left, right, kind, constraint)?;
        }
        Ok(left)
    }

    fn join(
        &mut self,
        left: From,
        right: From,
        kind: JoinType,
        constraint: &ast::JoinConstraint,
    ) -> Result<From> {
        let first_right = left.scope.shown_count();
        let (mut scope, cols) = both(&left, &right)?;
        let mut on: Vec<Expr> = Vec::new();
        self.whole()?.current.clone_from(&cols);
        match constraint {
            ast::JoinConstraint::On(condition) => {
                crate::plan::split(Binder::new(self, &scope, "JOIN/ON").condition(condition)?, &mut on);
            }
            constraint => {
                let present = match kind {
                    JoinType::Left => Present::Left,
                    JoinType::Right => Present::Right,
                    JoinType::Full => Present::Either,
                    _ => Present::Both,
                };
                let names = Self::names_of_using(constraint, &scope, first_right)?;
                on = self.using(&names, &mut scope, first_right, present)?;
            }
        }
        let translator = self.whole()?.translator(&cols);
        let conditions: Result<Vec<Df>> =
            on.iter().map(|condition| translator.condition(condition)).collect();
        let conditions = conditions?;
        let builder = LogicalPlanBuilder::from(left.plan);
        let plan = if kind == JoinType::Inner && conditions.is_empty() {
            builder.cross_join(right.plan)
        } else if conditions.is_empty() {
            builder.join_on(right.plan, kind, [datafusion::logical_expr::lit(true)])
        } else {
            builder.join_on(right.plan, kind, conditions)
        };
        let plan = built(plan.and_then(|builder| builder.build()))?;
        Ok(From { plan, scope, cols, order: Vec::new() })
    }

    fn factor_relation(&mut self, factor: &ast::TableFactor, before: Option<&From>) -> Result<From> {
        // A function that reads no earlier relation is a relation like any other.
        if let Some((alone, false)) = self.function_item(factor, None, false)? {
            return Ok(alone);
        }
        if let Some((name, alias, arguments)) = plain_table(factor) {
            let (relation, own, key) = match arguments {
                None => {
                    let (relation, own, key) = self.named_relation(name)?;
                    (self.renamed(relation)?, own, key)
                }
                Some(arguments) => {
                    let (mut relation, own) = self.table_function(name, arguments)?;
                    // The alias of a single-column function also names the column.
                    if let (Some(alias), [column]) = (alias, relation.names.as_mut_slice()) {
                        *column = folded(&alias.name);
                    }
                    (relation, own, Vec::new())
                }
            };
            let mut from = self.aliased(relation, alias, Some(own))?;
            from.scope.set_key(&key);
            return Ok(from);
        }
        match factor {
            ast::TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                let relation = self.apart(|planner| planner.relation(subquery))?;
                self.aliased(relation, alias.as_ref(), None)
            }
            ast::TableFactor::Derived { lateral: true, subquery, alias, sample: None } => {
                self.lateral(subquery, alias.as_ref(), before)
            }
            ast::TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.item_of_from(table_with_joins, before)
            }
            other => Err(unsupported(format!("FROM {other}"))),
        }
    }

    /// Plans an expression or query that sees nothing of the FROM that contains it.
    fn apart<R>(&mut self, plan: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let current = std::mem::take(&mut self.whole()?.current);
        let result = plan(self);
        self.whole()?.current = current;
        result
    }

    fn lateral(
        &mut self,
        query: &ast::Query,
        alias: Option<&ast::TableAlias>,
        before: Option<&From>,
    ) -> Result<From> {
        let Some(before) = before else {
            let relation = self.apart(|planner| planner.relation(query))?;
            return self.aliased(relation, alias, None);
        };
        self.outer.push(before.scope.clone());
        self.whole()?.outer.push(before.cols.clone());
        let relation = self.apart(|planner| planner.relation(query));
        self.outer.pop();
        self.whole()?.outer.pop();
        let relation = relation?;
        // FROM is before groups: what it reads is read by no subquery of the clauses after it.
        let is_before = |column: &Column| before.cols.iter().any(|col| col.column == *column);
        self.whole()?.folded.get_mut().retain(|column| !is_before(column));
        check_outer_joins(&relation.plan)?;
        check_groups_and_windows(&relation.plan, true)?;
        let outer_ref_columns = relation.plan.all_out_ref_exprs();
        if outer_ref_columns.is_empty() {
            return self.aliased(relation, alias, None);
        }
        let subquery = datafusion::logical_expr::Subquery {
            subquery: Arc::new(relation.plan),
            outer_ref_columns,
            spans: datafusion::common::Spans::new(),
        };
        let relation = Relation { plan: LogicalPlan::Subquery(subquery), sorted: None, ..relation };
        self.aliased(relation, alias, None)
    }

    /// The relation with a name, its name without an alias, and the places of a table's primary key.
    fn named_relation(&mut self, name: &ast::ObjectName) -> Result<(Relation, String, Vec<usize>)> {
        let parts = parts(name)?;
        if let [only] = parts.as_slice() {
            let whole = self.whole()?;
            if let Some(named) = whole.named.iter().rev().find(|named| named.name == *only) {
                return Ok((named.relation.clone(), only.clone(), Vec::new()));
            }
        }
        self.reads = true;
        // A model is known under its complete name.
        let (mut own, mut key) = (table_name(name)?, Vec::new());
        let relation: Box<dyn Rows> = match self.table(name) {
            Ok((table, schema)) => {
                own = self.standing.settings.table_alias(schema.name());
                key = schema.key_columns().to_vec();
                Box::new(TableRelation::new(table, schema, self.whole()?.around.clone()))
            }
            Err(error) if error.state == state::UNDEFINED_TABLE => {
                // A schema that does not exist may be a model, or the database of one.
                let kept = self.kept_name(name).ok();
                if let Some(kept) = &kept
                    && let Some(view) = crate::access::views::find(&mut self.access, kept)?
                {
                    return Ok((self.view(view)?, in_full(kept), key));
                }
                let is_schema = parts.len() == 2 && kept.is_some();
                match self.model_relation(&parts, is_schema)? {
                    Some(relation) => Box::new(relation),
                    // Nested loops can read it: `Finder` tries them next.
                    None if kept
                        .map(|kept| self.sequence_relation(&kept))
                        .transpose()?
                        .flatten()
                        .is_some() =>
                    {
                        return Err(unsupported("reading a sequence in this query"));
                    }
                    None => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        Ok((self.scanned(relation)?, own, key))
    }

    /// The query of a view, which sees nothing of the query that uses it.
    fn view(&mut self, view: crate::access::views::View) -> Result<Relation> {
        if self.whole()?.views >= VIEWS_MAX {
            let message = format!("views within views deeper than {VIEWS_MAX}");
            return Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, message));
        }
        let whole = self.whole()?;
        whole.views += 1;
        let named = std::mem::take(&mut whole.named);
        let outer_columns = std::mem::take(&mut whole.outer);
        let outer = std::mem::take(&mut self.outer);
        let relation = self.apart(|planner| planner.relation(&view.query));
        self.outer = outer;
        let whole = self.whole()?;
        (whole.named, whole.outer) = (named, outer_columns);
        whole.views -= 1;
        let mut relation = as_kept(relation?, &view)?;
        for (name, given) in relation.names.iter_mut().zip(view.columns) {
            *name = given;
        }
        Ok(relation)
    }

    /// Adds a relation with rows to a plan.
    fn scanned(&mut self, rows: Box<dyn Rows>) -> Result<Relation> {
        let fields = rows.fields().to_vec();
        let whole = self.whole()?;
        let relation = whole.fresh('t');
        let provider = RelationSource::new(rows, whole.source.clone());
        let plan = LogicalPlanBuilder::scan(
            TableReference::bare(relation.clone()),
            provider_as_source(Arc::new(provider)),
            None,
        );
        let plan = built(plan.and_then(|builder| builder.build()))?;
        let col = |(name, ty): &(String, Type)| Col {
            column: Column::new(Some(TableReference::bare(relation.clone())), name),
            form: crate::exec::analytic::kernel::convert::data_type(*ty),
            ty: *ty,
        };
        let cols: Vec<Col> = fields.iter().map(col).collect();
        let names = fields.into_iter().map(|(name, _)| name).collect();
        let open = vec![false; cols.len()];
        Ok(Relation { plan, cols, names, open, sorted: None })
    }

    /// In a subquery: the relation with columns of names that no other has. The engine joins a subquery under one name, in which
    /// it takes the columns `k` of two relations for one.
    fn renamed(&mut self, relation: Relation) -> Result<Relation> {
        let is_bare = relation.cols.iter().all(|col| col.column.relation.is_none());
        if is_bare || self.whole()?.outer.is_empty() {
            return Ok(relation);
        }
        let whole = self.whole()?;
        let renamed = |col: &Col| {
            let column = Column::from_name(format!("{}{}", col.column.name, whole.fresh('#')));
            (col.expr().alias(&column.name), Col { column, ..col.clone() })
        };
        let (exprs, cols): (Vec<Df>, Vec<Col>) = relation.cols.iter().map(renamed).unzip();
        let plan = built(LogicalPlanBuilder::from(relation.plan).project(exprs).and_then(|b| b.build()))?;
        Ok(Relation { plan, cols, sorted: None, ..relation })
    }

    /// A function in FROM, over constants.
    fn table_function(
        &mut self,
        name: &ast::ObjectName,
        arguments: &ast::TableFunctionArgs,
    ) -> Result<(Relation, String)> {
        let parts = parts(name)?;
        let refused = || unsupported(format!("the function {name} in FROM"));
        let ([function], None) = (parts.as_slice(), &arguments.settings) else { return Err(refused()) };
        let (mut values, mut types) = (Vec::new(), Vec::new());
        for argument in &arguments.args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else {
                return Err(unsupported(format!("the argument {argument}")));
            };
            let nothing = Scope::default();
            let (expr, ty) = Binder::new(self, &nothing, "a function in FROM").bind_closed(expr)?;
            let around = &self.whole()?.around;
            let mut reads_outer = false;
            expr.clone().rewrite(&mut |part| {
                reads_outer |= matches!(part, Expr::Outer(..));
                None
            });
            if reads_outer {
                return Err(unsupported("a function in FROM that reads the enclosing query"));
            }
            // Parameters are not known yet when a statement is prepared.
            let value = match &expr {
                Expr::Param(number) => around.params.get(*number).cloned().unwrap_or(Value::Null),
                expr => expr
                    .eval(
                        &around.context(&crate::limits::interrupt::Interrupt::never()),
                        &crate::expr::Nothing,
                    )?
                    .into_owned(),
            };
            values.push(value);
            types.push(ty);
        }
        let relation: Box<dyn Rows> = if function == "promql" {
            self.reads = true;
            let memory = self.whole()?.around.memory;
            Box::new(ModelRelation::promql(&values, &self.access, memory)?)
        } else {
            Box::new(FunctionRelation::find(function, &values, &types)?.ok_or_else(refused)?)
        };
        Ok((self.scanned(relation)?, function.clone()))
    }

    /// Gives each use of a relation a unique name: the same relation may be used twice.
    fn under_own_name(&mut self, plan: LogicalPlan, cols: Vec<Col>) -> Result<(LogicalPlan, Vec<Col>)> {
        let unique = self.whole()?.fresh('t');
        let builder = LogicalPlanBuilder::from(plan);
        let plan = built(builder.alias(unique.clone()).and_then(|builder| builder.build()))?;
        let named = |col: Col| Col {
            column: Column::new(Some(TableReference::bare(unique.clone())), col.column.name),
            ..col
        };
        Ok((plan, cols.into_iter().map(named).collect()))
    }

    /// A relation under its name in FROM.
    fn aliased(
        &mut self,
        relation: Relation,
        alias: Option<&ast::TableAlias>,
        own: Option<String>,
    ) -> Result<From> {
        let mut names = relation.names.clone();
        let name = match alias {
            Some(alias) if alias.at.is_some() => return Err(unsupported(format!("the alias {alias}"))),
            Some(alias) => {
                crate::plan::row_in_subquery::check_width(alias, names.len())?;
                if alias.columns.len() > names.len() {
                    let message = format!(
                        "table \"{}\" has {} columns available but {} columns specified",
                        folded(&alias.name),
                        names.len(),
                        alias.columns.len()
                    );
                    return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
                }
                for (name, column) in names.iter_mut().zip(&alias.columns) {
                    if column.data_type.is_some() {
                        return Err(unsupported(format!("the alias {alias}")));
                    }
                    *name = folded(&column.name);
                }
                folded(&alias.name)
            }
            None => own.unwrap_or_default(),
        };
        let reads_outer = !matches!(relation.plan, LogicalPlan::Subquery(_))
            && !relation.plan.all_out_ref_exprs().is_empty();
        let width = relation.cols.len();
        let (plan, mut cols, keys) = match (reads_outer, relation.sorted) {
            // The engine decomposes such a query and does not resolve columns of a renamed subquery. The
            // query has no other use.
            (true, _) => (relation.plan, relation.cols, Vec::new()),
            (false, None) => {
                let (plan, cols) = self.under_own_name(relation.plan, relation.cols)?;
                (plan, cols, Vec::new())
            }
            (false, Some(sorted)) => {
                let Sorted { plan, keys } = *sorted;
                let all = relation.cols.into_iter().chain(keys.iter().map(|key| key.col.clone())).collect();
                let (plan, cols) = self.under_own_name(plan, all)?;
                (plan, cols, keys)
            }
        };
        let order = keys.into_iter().zip(cols.split_off(width)).map(|(key, col)| SortKey { col, ..key });
        let order = order.collect();
        let mut scope = Scope::default();
        scope.add(name, names.into_iter().zip(cols.iter().map(|col| col.ty)).collect())?;
        Ok(From { plan, scope, cols, order })
    }
}

/// The columns of a view's query in the order of its names. Earlier builds listed columns of USING at their
/// positions in the tables; the stored names of a view over `*` from that time are in that order.
fn as_kept(relation: Relation, view: &crate::access::views::View) -> Result<Relation> {
    let place = |name: &String| relation.names.iter().position(|known| known == name);
    let places: Option<Vec<usize>> = view.columns.iter().map(place).collect();
    let text = view.query.to_string();
    let Some(places) = places.filter(|places| {
        let is_whole = places.len() == relation.names.len() && !places.is_sorted();
        is_whole && text.contains('*') && (text.contains(" USING(") || text.contains("NATURAL "))
    }) else {
        return Ok(relation);
    };
    let Relation { plan, cols, names, open, sorted } = relation;
    let cols: Vec<Col> = places.iter().filter_map(|place| cols.get(*place).cloned()).collect();
    let names = places.iter().filter_map(|place| names.get(*place).cloned()).collect();
    let open = places.iter().filter_map(|place| open.get(*place).copied()).collect();
    let shown: Vec<Df> = cols.iter().map(Col::expr).collect();
    let plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
    Ok(Relation { plan, cols, names, open, sorted })
}

/// The scope and the columns of two joined relations.
fn both(left: &From, right: &From) -> Result<(Scope, Vec<Col>)> {
    let mut scope = left.scope.clone();
    scope.append(&right.scope)?;
    Ok((scope, left.cols.iter().chain(&right.cols).cloned().collect()))
}
