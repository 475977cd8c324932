//! Calls of aggregates: each is added to a separate list, and the expression refers to it by number.

use ropewalk::tables::{Scalar, Type};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::cast::Strength;
use crate::expr::function::Function;
use crate::expr::{Expr, Order};
use crate::functions::aggregate::{self, Aggregate};
use crate::plan::bind::jsonb::as_jsonb;
use crate::plan::bind::scope::no_operator;
use crate::plan::bind::{Binder, Typed, unsupported};
use crate::types::names::is_numeric;

/// The clause name for arguments of an aggregate.
pub(crate) const OF_AGGREGATE: &str = "an aggregate";

impl Binder<'_, '_> {
    /// Binds the call of an aggregate.
    pub(crate) fn aggregate(
        &mut self,
        name: &str,
        list: &ast::FunctionArgumentList,
        filter: Option<&ast::Expr>,
        within: &[ast::OrderByExpr],
    ) -> Result<Typed> {
        let clause = self.clause;
        let Some(aggregates) = self.aggregates.take() else {
            if !self.planner.outer.is_empty()
                && self.aggregate_parts(name, list, filter, within).is_ok_and(|found| is_of_outer(&found))
            {
                return Err(outer_aggregate(name));
            }
            let message = match clause {
                OF_AGGREGATE => "aggregate function calls cannot be nested".to_owned(),
                clause => format!("aggregate functions are not allowed in {clause}"),
            };
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        };
        // With both lists removed, aggregates and window functions within aggregates are rejected.
        let clause = std::mem::replace(&mut self.clause, OF_AGGREGATE);
        let bound = self.without_windows(|binder| binder.aggregate_parts(name, list, filter, within));
        self.clause = clause;
        let bound = bound.and_then(|aggregate| {
            if is_of_outer(&aggregate) {
                return Err(outer_aggregate(name));
            }
            let ty = aggregate.ty;
            let known = aggregates.iter().position(|known| *known == aggregate);
            let number = known.unwrap_or_else(|| {
                aggregates.push(aggregate);
                aggregates.len() - 1
            });
            let bound = Typed::new(Expr::Aggregate(number), ty);
            Ok(if name.starts_with("jsonb_") { as_jsonb(bound) } else { bound })
        });
        self.aggregates = Some(aggregates);
        bound
    }

    pub(crate) fn aggregate_parts(
        &mut self,
        name: &str,
        list: &ast::FunctionArgumentList,
        filter: Option<&ast::Expr>,
        within: &[ast::OrderByExpr],
    ) -> Result<Aggregate> {
        let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        let is_of_set = aggregate::is_of_ordered_set(name);
        let order = match (clauses.as_slice(), within) {
            ([], []) if is_of_set => {
                let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
                return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
            }
            ([], [one]) if is_of_set => std::slice::from_ref(one),
            ([], []) => &[],
            ([ast::FunctionArgumentClause::OrderBy(order)], []) if !is_of_set => order.as_slice(),
            _ => return Err(unsupported(format!("{name} with {}", shown(clauses, within)))),
        };
        let distinct = *duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        if distinct && is_of_set {
            return Err(unsupported(format!("DISTINCT in {name}")));
        }
        let mut arguments = Vec::new();
        if let (true, [one]) = (is_of_set, within) {
            arguments.push(self.bind(&one.expr)?);
        }
        for argument in args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push(self.bind(expr)?)
                }
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) if name == "count" && !distinct => {
                }
                other => return Err(unsupported(format!("the argument {other} of {name}"))),
            }
        }
        let clause = std::mem::replace(&mut self.clause, "FILTER");
        let filter = filter.map(|filter| self.condition(filter)).transpose()?;
        self.clause = clause;
        let order = order.iter().map(|item| self.order_item(item)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Option<Type>> = arguments.iter().map(|argument| argument.ty).collect();
        let resolved = aggregate::resolve(name, &types)?;
        // Member names may be of any type that converts to text.
        let strength = match resolved.kind {
            aggregate::Kind::JsonObjectAgg => Strength::Assignment,
            _ => Strength::Implicit,
        };
        let settled: Result<Vec<_>> = arguments
            .into_iter()
            .zip(&resolved.arguments)
            .map(|(argument, ty)| self.settle(argument, *ty, strength))
            .collect();
        let mut types: Vec<Type> =
            types.iter().zip(&resolved.arguments).map(|(found, ty)| carried(*found, *ty)).collect();
        let mut arguments = settled?;
        if matches!(resolved.kind, aggregate::Kind::JsonAgg | aggregate::Kind::JsonObjectAgg) {
            // The JSON form of a timestamptz depends on the session's time zone.
            let last = arguments.last_mut().zip(types.last_mut());
            if let Some((argument, ty)) = last
                && matches!(ty, Type::Scalar(Scalar::Timestamptz) | Type::Array(Scalar::Timestamptz))
            {
                *argument = Expr::Call(Function::ToJson, vec![argument.clone()]);
                *ty = Type::JSON;
            }
        }
        if distinct && order.iter().any(|order| !arguments.contains(&order.expr)) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
        }
        let mut order = if resolved.kind.minds_order() { order } else { Vec::new() };
        if distinct && resolved.kind.minds_order() {
            // PostgreSQL finds duplicates by sorting, which determines the order of the result.
            for (argument, ty) in arguments.iter().zip(&types) {
                let is_known = order.iter().any(|known| known.expr == *argument);
                if !is_known && ty.is_ordered() && !matches!(argument, Expr::Const(_)) {
                    let expr = argument.clone();
                    order.push(Order { expr, ty: *ty, descending: false, nulls_first: false, shown: None });
                }
            }
        }
        Ok(Aggregate { kind: resolved.kind, arguments, types, distinct, filter, order, ty: resolved.ty })
    }

    /// A key of an ORDER BY within an expression.
    pub(crate) fn order_item(&mut self, item: &ast::OrderByExpr) -> Result<Order> {
        if item.with_fill.is_some() {
            return Err(unsupported(item));
        }
        let (expr, ty) = self.bind_closed(&item.expr)?;
        if !ty.is_ordered() {
            return Err(no_operator("<", Some(ty), Some(ty)));
        }
        let descending = item.options.asc == Some(false);
        let nulls_first = item.options.nulls_first.unwrap_or(descending);
        Ok(Order { expr, ty, descending, nulls_first, shown: None })
    }
}

/// True when an aggregate reads columns of the enclosing queries only: then PostgreSQL computes it over the
/// rows of the enclosing query.
fn is_of_outer(aggregate: &Aggregate) -> bool {
    let (mut own, mut outer) = (false, false);
    for expr in aggregate.arguments.iter().chain(&aggregate.filter) {
        expr.columns(&mut |_| own = true);
        levels(expr, &mut own, &mut outer);
    }
    outer && !own
}

fn levels(expr: &Expr, own: &mut bool, outer: &mut bool) {
    match expr {
        Expr::Outer(..) => *outer = true,
        // A subquery may read columns of either query.
        Expr::Subquery(_) | Expr::InSubquery(..) | Expr::Inner(..) => *own = true,
        _ => {}
    }
    expr.for_parts(&mut |part| levels(part, own, outer));
}

fn outer_aggregate(name: &str) -> SqlError {
    unsupported(format!("{name} over columns of the enclosing query"))
}

/// The type of an argument after its cast: numerics keep their limits.
fn carried(found: Option<Type>, ty: Type) -> Type {
    found.filter(|found| is_numeric(*found) && is_numeric(ty)).unwrap_or(ty)
}

/// Clauses of a call as written.
fn shown(clauses: &[ast::FunctionArgumentClause], within: &[ast::OrderByExpr]) -> String {
    let clauses = clauses.iter().map(ToString::to_string);
    let within = within.iter().map(|item| format!("WITHIN GROUP (ORDER BY {item})"));
    clauses.chain(within).collect::<Vec<_>>().join(" ")
}
