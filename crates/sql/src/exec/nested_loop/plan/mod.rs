//! Planning of queries for nested loops. Names and types are bound as in any other query; this adds the rest.

mod columns;
mod from;
mod select_list;
mod with;

use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use super::Body;
use super::Inner;
use super::Node;
use super::Select;
use super::SetOp;
use crate::error::{Result, SqlError, state};
use crate::expr::cast::Strength;
use crate::expr::{Expr, Order};
use crate::functions::aggregate::{self, Aggregate};
use crate::plan::bind::scope::Scope;
use crate::plan::bind::{Binder, Typed, negated_if};
use crate::plan::with::Named;
use crate::plan::{
    Asked, Groups, Planner, check_distinct, check_distinct_on, is_untyped_string, limit_and_offset,
    nothing_but_a_select, split, unsupported,
};
use crate::types::names::{common, unmodified};
use crate::types::outcome::ResultColumn;

use from::place;
use select_list::SelectList;

impl Planner<'_> {
    /// Plans a query whose rows all fit in memory.
    ///
    /// # Errors
    /// As [`Planner::query`].
    pub(crate) fn small(&mut self, query: &ast::Query) -> Result<Node> {
        let was_small = std::mem::replace(&mut self.is_small, true);
        let known = self.named.len();
        let node = self.small_query(query);
        self.named.truncate(known);
        self.is_small = was_small;
        let mut node = node?;
        if !was_small {
            debug_assert!(
                node.stays_within(&self.outer.iter().map(Scope::width).collect::<Vec<_>>()),
                "the binder numbers columns through the relations of their scope, and grouping renumbers them"
            );
            node.show_marks()?;
        }
        Ok(node)
    }

    fn small_query(&mut self, query: &ast::Query) -> Result<Node> {
        self.check_depth()?;
        let known = self.named.len();
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                self.named.push(Named::of(cte, with.recursive));
            }
        }
        self.nothing_but_a_query(query)?;
        let order = match &query.order_by {
            None => &[][..],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(list), interpolate: None }) => list,
            Some(other) => return Err(unsupported(other)),
        };
        let (limit, offset) = limit_and_offset(query, false)?;
        let mut node = match query.body.as_ref() {
            ast::SetExpr::Select(select) => self.small_select(select, order)?,
            other => {
                let mut node = self.small_set_expr(other)?;
                for item in order {
                    node.order.push(self.order_of_result(item, &node.columns)?);
                }
                node
            }
        };
        let nothing = Scope::default();
        for (from, to) in [(limit, &mut node.limit), (offset, &mut node.offset)] {
            if let Some(from) = from {
                *to = Some(Binder::new(self, &nothing, "LIMIT").bind_as(
                    from,
                    Type::INT8,
                    Strength::Assignment,
                )?);
            }
        }
        // A WITH query without a reference is planned and dropped: its errors are reported and its parameters get types.
        for place in known..self.named.len() {
            if self.named.get(place).is_some_and(|named| named.last.is_none()) {
                self.small_with(place)?;
            }
        }
        Ok(node)
    }

    fn small_set_expr(&mut self, body: &ast::SetExpr) -> Result<Node> {
        match body {
            ast::SetExpr::Select(select) => self.small_select(select, &[]),
            ast::SetExpr::Query(query) => self.small(query),
            ast::SetExpr::Values(values) => {
                let planned = self.values(values, &[])?;
                let rows = planned.values.unwrap_or_default();
                Ok(Node::new(Body::Values(rows), planned.columns))
            }
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let op = match op {
                    ast::SetOperator::Union => SetOp::Union,
                    ast::SetOperator::Intersect => SetOp::Intersect,
                    ast::SetOperator::Except | ast::SetOperator::Minus => SetOp::Except,
                };
                let all = match set_quantifier {
                    ast::SetQuantifier::All => true,
                    ast::SetQuantifier::Distinct | ast::SetQuantifier::None => false,
                    other => return Err(unsupported(other)),
                };
                let bodies = (left, right);
                let (mut left, mut right) = (self.small_set_expr(left)?, self.small_set_expr(right)?);
                if left.columns.len() != right.columns.len() {
                    let message = "each UNION query must have the same number of columns";
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
                let mut columns = left.columns.clone();
                for (place, other) in right.columns.clone().iter().enumerate() {
                    let Some(column) = columns.get_mut(place) else { continue };
                    let ty = match common(column.ty, other.ty) {
                        Some(ty) => ty,
                        None if column.ty == Type::TEXT && left.is_null(place) => other.ty,
                        None if other.ty == Type::TEXT && right.is_null(place) => column.ty,
                        None if is_untyped_string(bodies.0, place) => unmodified(other.ty),
                        None if is_untyped_string(bodies.1, place) => unmodified(column.ty),
                        None => {
                            let (a, b) = (self.shown(Some(column.ty)), self.shown(Some(other.ty)));
                            let message = format!("UNION types {a} and {b} cannot be matched");
                            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                        }
                    };
                    column.ty = ty;
                }
                left.cast_to(&columns);
                right.cast_to(&columns);
                let (left, right) = (Box::new(left), Box::new(right));
                Ok(Node::new(Body::Set { op, all, left, right }, columns))
            }
            other => Err(unsupported(other)),
        }
    }

    /// ORDER BY over the columns of a result.
    fn order_of_result(&mut self, item: &ast::OrderByExpr, columns: &[ResultColumn]) -> Result<Order> {
        let projected: Vec<(Expr, ResultColumn)> = columns
            .iter()
            .cloned()
            .enumerate()
            .map(|(place, column)| (Expr::Column(place), column))
            .collect();
        let mut scope = Scope::default();
        scope.add(String::new(), columns.iter().map(|c| (c.name.clone(), c.ty)).collect())?;
        self.order(item, &scope, &projected, &mut Vec::new())
    }

    fn small_select(&mut self, select: &ast::Select, order: &[ast::OrderByExpr]) -> Result<Node> {
        let (is_distinct, on) = match &select.distinct {
            None | Some(ast::Distinct::All) => (false, &[][..]),
            Some(ast::Distinct::Distinct) => (true, &[][..]),
            Some(ast::Distinct::On(on)) => (false, on.as_slice()),
        };
        nothing_but_a_select(select)?;
        if !select.named_window.is_empty() {
            return Err(unsupported("WINDOW"));
        }
        let mut scope = Scope::default();
        let (mut from, mut conjuncts) = self.small_from(&select.from, &mut scope)?;
        if let Some(selection) = &select.selection {
            split(Binder::new(self, &scope, "WHERE").condition(selection)?, &mut conjuncts);
        }
        let mut aggregates = Vec::new();
        let SelectList { mut output, marks, projected } =
            self.small_projection(&select.projection, &scope, &mut aggregates)?;
        let mut group_keys = self.plain_group_keys(&select.group_by, &scope, &projected)?;
        let having = self.having(select, &scope, &mut aggregates)?;
        let mut orders = Vec::new();
        for item in order {
            orders.push(self.order(item, &scope, &projected, &mut aggregates)?);
        }
        let mut distinct_on = Vec::new();
        for expr in on {
            distinct_on.push(self.distinct_on(expr, select, &scope, &projected, &mut aggregates)?.0);
        }
        if is_distinct {
            let shown: Vec<Expr> = projected.iter().map(|(expr, _)| expr.clone()).collect();
            let columns: Vec<ResultColumn> = projected.iter().map(|(_, column)| column.clone()).collect();
            check_distinct(&columns, &shown, orders.iter().map(|order| &order.expr))?;
        }
        check_distinct_on(
            &distinct_on.iter().collect::<Vec<_>>(),
            orders.iter().map(|order| &order.expr).take(distinct_on.len()),
        )?;
        let by_result =
            if distinct_on.is_empty() { take_order_of_result(&mut orders, &projected)? } else { Vec::new() };
        if orders.iter().map(|order| &order.expr).chain(&group_keys).chain(&distinct_on).any(is_made) {
            return Err(unsupported(
                "ORDER BY or GROUP BY of a function that returns rows, or of row_number()",
            ));
        }
        let columns: Vec<ResultColumn> = projected.into_iter().map(|(_, column)| column).collect();
        if aggregates.iter().any(Aggregate::is_of_sets) {
            return Err(unsupported("GROUPING"));
        }
        let groups = if !crate::plan::has_group_by(select) && aggregates.is_empty() && having.is_none() {
            None
        } else {
            let exprs = orders.iter().map(|order| &order.expr).chain(&distinct_on).chain(&having);
            crate::plan::add_determined(exprs, &mut group_keys, &scope);
            for item in &mut output {
                item.change_exprs(&mut |expr| {
                    crate::plan::add_determined(std::iter::once(&*expr), &mut group_keys, &scope);
                    Ok::<_, SqlError>(())
                })?;
            }
            let mut over = |expr: &mut Expr| {
                let taken = std::mem::replace(expr, Expr::Const(Value::Null));
                *expr = crate::plan::grouped_expr(taken, &group_keys, &scope, &[])?;
                Ok::<_, SqlError>(())
            };
            output.iter_mut().try_for_each(|output| output.change_exprs(&mut over))?;
            orders.iter_mut().try_for_each(|order| over(&mut order.expr))?;
            distinct_on.iter_mut().try_for_each(&mut over)?;
            let mut having = having;
            having.iter_mut().try_for_each(&mut over)?;
            Some(Groups { keys: group_keys, aggregates, having })
        };
        let constant = place(&mut from, conjuncts);
        let select = Select { from, constant, groups, output, order: orders, is_distinct, distinct_on };
        Ok(Node { marks, order: by_result, ..Node::new(Body::Select(Box::new(select)), columns) })
    }

    /// Plans with one more enclosing query.
    fn within<R>(&mut self, around: &Scope, plan: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.outer.push(around.clone());
        let planned = plan(self);
        self.outer.pop();
        planned
    }
}

impl Binder<'_, '_> {
    /// A subquery of a query for nested loops.
    pub(crate) fn inner(&mut self, expr: &ast::Expr) -> Result<Typed> {
        let scope = self.scope.clone();
        let plan = |planner: &mut Planner<'_>, query: &ast::Query| {
            planner.within(&scope, |planner| planner.small(query))
        };
        let one = |node: &Node| match node.columns.as_slice() {
            [column] => Ok(column.ty),
            _ => Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column")),
        };
        match expr {
            ast::Expr::Exists { subquery, negated } => {
                let node = plan(self.planner, subquery)?;
                let inner = Inner::new(node, Asked::Exists, Type::BOOL).expr(None);
                Ok(Typed::new(negated_if(*negated, inner), Type::BOOL))
            }
            ast::Expr::Subquery(query) => {
                let node = plan(self.planner, query)?;
                let ty = one(&node)?;
                Ok(Typed::new(Inner::new(node, Asked::Scalar, ty).expr(None), ty))
            }
            ast::Expr::InSubquery { expr: left, subquery, negated } => {
                let mut node = plan(self.planner, subquery)?;
                let ty = one(&node)?;
                let left = self.bind(left)?;
                let together = left.ty.map_or(Some(ty), |found| common(found, ty));
                let together =
                    together.ok_or_else(|| crate::plan::bind::scope::no_operator("=", left.ty, Some(ty)))?;
                let column = ResultColumn { name: String::new(), ty: together };
                node.cast_to(&[column]);
                let left = Box::new(self.settle(left, together, Strength::Implicit)?);
                let inner = Inner::new(node, Asked::List, together).expr(Some(left));
                Ok(Typed::new(negated_if(*negated, inner), Type::BOOL))
            }
            other => Err(unsupported(other)),
        }
    }

    /// `ARRAY(subquery)`.
    pub(crate) fn array_of(&mut self, query: &ast::Query) -> Result<Typed> {
        let scope = self.scope.clone();
        let node = self.planner.within(&scope, |planner| planner.small(query))?;
        let [column] = node.columns.as_slice() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let ty = aggregate::resolve("array_agg", &[Some(column.ty)])?.ty;
        Ok(Typed::new(Inner::new(node, Asked::List, ty).expr(None), ty))
    }
}

impl Node {
    fn new(body: Body, columns: Vec<ResultColumn>) -> Self {
        Self { body, columns, order: Vec::new(), limit: None, offset: None, marks: Vec::new() }
    }
}

/// True for an expression over items of the select list that no expression represents.
fn is_made(expr: &Expr) -> bool {
    let mut is_made = false;
    expr.columns(&mut |column| is_made |= column > usize::MAX / 2);
    is_made
}

/// Takes an ORDER BY over rows of functions: they can be sorted only after all of them are computed.
fn take_order_of_result(orders: &mut Vec<Order>, projected: &[(Expr, ResultColumn)]) -> Result<Vec<Order>> {
    if !orders.iter().any(|order| is_made(&order.expr)) {
        return Ok(Vec::new());
    }
    let mut by_result = std::mem::take(orders);
    for order in &mut by_result {
        let place = projected.iter().position(|(expr, _)| *expr == order.expr);
        let place = place.ok_or_else(|| {
            unsupported("ORDER BY of a function that returns rows with an unselected expression")
        })?;
        order.expr = Expr::Column(place);
    }
    Ok(by_result)
}
