//! Expressions of definitions: bound as usual, then translated to the smaller language of the tables model,
//! which evaluates them without SQL. Expressions that it cannot represent are rejected.

use ropewalk::tables::{Binary, DefaultValue, Expr as TableExpr, Function as TableFunction, Type, Unary};
use sqlparser::ast;

use super::Ddl;
use super::unsupported;
use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::{Arith, Compare};
use crate::expr::cast::Strength;
use crate::expr::function::Function;
use crate::expr::sequence_call::Asks;
use crate::plan::Planner;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::{Params, Scope};
use crate::types::names::rank;
use crate::types::settings::Settings;

impl Ddl<'_> {
    /// Binds an expression over the columns of a table being defined.
    pub(super) fn bound(
        &mut self,
        expr: &ast::Expr,
        scope: &Scope,
        clause: &'static str,
        ty: Option<Type>,
    ) -> Result<(Expr, Type)> {
        let access = Access::Transaction(self.db, self.transaction);
        let settings = Settings { zone: self.cx.zone.clone(), ..Settings::clone(&self.settings) };
        let created = self.created.clone();
        let standing = Standing { settings: settings.into(), created, ..Standing::default() };
        let mut planner = Planner::beside(access, Params::default(), standing);
        let mut binder = Binder::new(&mut planner, scope, clause);
        let bound = match ty {
            None => binder.bind_closed(expr)?,
            Some(ty) => (binder.bind_as(expr, ty, Strength::Assignment)?, ty),
        };
        if !planner.subqueries.is_empty() || !planner.params.finished().is_empty() {
            return Err(unsupported(format!("a subquery or parameter in {clause}")));
        }
        Ok(bound)
    }

    pub(super) fn check(&mut self, expr: &ast::Expr, scope: &Scope) -> Result<TableExpr> {
        let (expr, ty) = self.bound(expr, scope, "CHECK", None)?;
        if ty != Type::BOOL {
            let message = format!(
                "argument of CHECK must be type boolean, not type {}",
                crate::types::names::type_name(ty)
            );
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        lowered(&expr, &names(scope))
    }

    pub(super) fn default(&mut self, expr: &ast::Expr, ty: Type) -> Result<DefaultValue> {
        let (expr, _) = self.bound(expr, &Scope::default(), "DEFAULT", Some(ty))?;
        let mut inner = &expr;
        while let Expr::Cast(part, _) = inner {
            inner = part;
        }
        match inner {
            Expr::Call(Function::Now, _) => return Ok(DefaultValue::Now),
            Expr::Call(Function::NewUuid, _) if inner == &expr => return Ok(DefaultValue::NewUuid),
            Expr::Sequence(call, _) if call.asks == Asks::Next => return Ok(DefaultValue::Next(call.number)),
            _ => {}
        }
        if calls_anew(&expr) {
            return Err(SqlError::unsupported(
                "this DEFAULT",
                "a default is a constant, now(), current_date, gen_random_uuid() or nextval of a sequence",
            ));
        }
        Ok(match expr.constant(&self.cx)? {
            ropewalk::tables::Value::Null => DefaultValue::None,
            value => DefaultValue::Value(value),
        })
    }
}

/// Translates an expression to the language of the tables model.
pub(super) fn lowered(expr: &Expr, columns: &[String]) -> Result<TableExpr> {
    let boxed = |part: &Expr| lowered(part, columns).map(Box::new);
    let fold = |parts: &[Expr], op: Binary| {
        let mut all = parts.iter().map(|part| lowered(part, columns));
        let first = all.next().unwrap_or_else(|| Ok(TableExpr::value(op == Binary::And)))?;
        all.try_fold(first, |whole, part: Result<TableExpr>| {
            Ok::<_, SqlError>(TableExpr::Binary(op, Box::new(whole), Box::new(part?)))
        })
    };
    Ok(match expr {
        Expr::Const(value) => TableExpr::Literal(value.clone()),
        Expr::Column(place) => TableExpr::column(columns.get(*place).cloned().unwrap_or_default()),
        Expr::And(parts) => fold(parts, Binary::And)?,
        Expr::Or(parts) => fold(parts, Binary::Or)?,
        Expr::Not(inner) => TableExpr::Unary(Unary::Not, boxed(inner)?),
        Expr::Negate(inner) => TableExpr::Unary(Unary::Negate, boxed(inner)?),
        Expr::IsNull(inner, false) => TableExpr::Unary(Unary::IsNull, boxed(inner)?),
        Expr::IsNull(inner, true) => TableExpr::Unary(Unary::IsNotNull, boxed(inner)?),
        Expr::Compare(op, left, right) => {
            let op = match op {
                Compare::Eq => Binary::Eq,
                Compare::Ne => Binary::Ne,
                Compare::Lt => Binary::Lt,
                Compare::Le => Binary::Le,
                Compare::Gt => Binary::Gt,
                Compare::Ge => Binary::Ge,
            };
            TableExpr::Binary(op, boxed(left)?, boxed(right)?)
        }
        Expr::Arith(op, ty, left, right) if rank(*ty).is_some() => {
            let op = match op {
                Arith::Add => Binary::Add,
                Arith::Sub => Binary::Sub,
                Arith::Mul => Binary::Mul,
                Arith::Div => Binary::Div,
                Arith::Rem => Binary::Rem,
                other => return Err(unsupported(format!("the operator {} in a definition", other.symbol()))),
            };
            TableExpr::Binary(op, boxed(left)?, boxed(right)?)
        }
        Expr::Concat(left, right) => TableExpr::Binary(Binary::Concat, boxed(left)?, boxed(right)?),
        Expr::In(left, list) => {
            let equal = |item: &Expr| Ok(TableExpr::Binary(Binary::Eq, boxed(left)?, boxed(item)?));
            let mut all = list.iter().map(equal);
            let first = all.next().unwrap_or_else(|| Ok(TableExpr::value(false)))?;
            all.try_fold(first, |whole, part: Result<TableExpr>| Ok::<_, SqlError>(whole.or(part?)))?
        }
        Expr::Coalesce(parts) => {
            let parts: Result<Vec<_>> = parts.iter().map(|part| lowered(part, columns)).collect();
            TableExpr::Call(TableFunction::Coalesce, parts?)
        }
        Expr::Call(function, parts) if parts.len() == 1 => {
            let function = match function {
                Function::Lower => TableFunction::Lower,
                Function::Upper => TableFunction::Upper,
                Function::Length => TableFunction::Length,
                Function::Abs => TableFunction::Abs,
                other => {
                    return Err(unsupported(
                        format!("the function {other:?} in a definition").to_lowercase(),
                    ));
                }
            };
            let parts: Result<Vec<_>> = parts.iter().map(|part| lowered(part, columns)).collect();
            TableExpr::Call(function, parts?)
        }
        // The tables model combines numeric types without a cast.
        Expr::Cast(inner, ty) if rank(*ty).is_some() && is_number(inner) => lowered(inner, columns)?,
        expr if expr.is_null() => TableExpr::Literal(ropewalk::tables::Value::Null),
        _ => {
            return Err(SqlError::unsupported(
                "this expression in a definition",
                "use comparisons, AND, OR, NOT, IN, IS NULL, arithmetic, ||, lower, upper, length, abs, coalesce",
            ));
        }
    })
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Const(value) => value.value_type().is_some_and(|ty| rank(ty).is_some()),
        Expr::Arith(..) | Expr::Negate(_) => true,
        Expr::Call(function, _) => matches!(function, Function::Abs | Function::Length),
        _ => false,
    }
}

/// True if part of the expression can change its value from one evaluation to the next.
fn calls_anew(expr: &Expr) -> bool {
    let mut found = expr.is_volatile() || matches!(expr, Expr::Call(Function::Now, _));
    expr.for_parts(&mut |part| found |= calls_anew(part));
    found
}

pub(super) fn names(scope: &Scope) -> Vec<String> {
    scope.all(None).into_iter().map(|(name, _, _)| name).collect()
}
