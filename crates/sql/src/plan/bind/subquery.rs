//! IN, EXISTS and scalar subqueries.
//!
//! These functions are not inlined, so that the recursive `Binder::bind` needs no stack for their variables.

use ropewalk::tables::{Type, Value};
use sqlparser::ast;
use sqlparser::ast::BinaryOperator;

use crate::error::{Result, SqlError};
use crate::expr::Expr;
use crate::expr::arith::Compare;
use crate::expr::cast::Strength;
use crate::plan::bind::{Binder, Typed, negated_if, ordered, unsupported};
use crate::plan::row_in_subquery::in_rows;
use crate::types::names::common;

fn truth(negated: bool, expr: Expr) -> Typed {
    Typed::new(negated_if(negated, expr), Type::BOOL)
}

impl Binder<'_, '_> {
    /// `value IN (item, ...)`.
    #[inline(never)]
    pub(crate) fn bind_in_list(
        &mut self,
        inner: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
    ) -> Result<Typed> {
        let mut all = vec![self.bind(inner)?];
        for item in list {
            all.push(self.bind(item)?);
        }
        let (mut all, ty) = self.unified(all, "IN")?;
        ordered(ty, "=")?;
        let first = if all.is_empty() { Expr::Const(Value::Null) } else { all.remove(0) };
        Ok(truth(negated, Expr::In(Box::new(first), all)))
    }

    /// `(a, b) IN ((c, d), ...)`; `whole` is shown in errors.
    #[inline(never)]
    pub(crate) fn bind_row_in_list(
        &mut self,
        whole: &ast::Expr,
        row: &[ast::Expr],
        list: &[ast::Expr],
        negated: bool,
    ) -> Result<Typed> {
        let mut any = Vec::with_capacity(list.len());
        for item in list {
            let ast::Expr::Tuple(rights) = item else { return Err(unsupported(whole)) };
            any.push(self.tuples(Compare::Eq, row, rights)?.expr);
        }
        Ok(truth(negated, Expr::Or(any)))
    }

    /// `(a, b) IN (SELECT ...)`.
    #[inline(never)]
    pub(crate) fn bind_row_in_subquery(
        &mut self,
        row: &[ast::Expr],
        subquery: &ast::Query,
        negated: bool,
    ) -> Result<Typed> {
        let is_condition = self.clause == "WHERE";
        let bound = self.bind(&in_rows(row, subquery)?).map_err(|error| {
            // The row is part of the subquery now.
            if !is_condition && error.message.ends_with("functions are not allowed in WHERE") {
                let what = "an aggregate or a window function in a row before IN";
                return SqlError::unsupported(what, "compute it in FROM");
            }
            error
        })?;
        Ok(truth(negated, self.settle(bound, Type::BOOL, Strength::Implicit)?))
    }

    /// `value IN (SELECT ...)`.
    #[inline(never)]
    pub(crate) fn bind_in_subquery(
        &mut self,
        inner: &ast::Expr,
        subquery: &ast::Query,
        negated: bool,
    ) -> Result<Typed> {
        let (number, ty) = self.planner.subquery(subquery, self.scope, true)?;
        // Whether a NULL among the rows counts depends on the outer row: only all rows together decide that.
        if negated && self.planner.is_correlated(number) {
            let rows = ast::Expr::Subquery(Box::new(subquery.clone()));
            return self.any_all(inner, &BinaryOperator::NotEq, &rows, true);
        }
        let bound = self.bind(inner)?;
        let together = bound.ty.map_or(Some(ty), |found| common(found, ty));
        let together = together.ok_or_else(|| self.no_operator("=", bound.ty, Some(ty)))?;
        if self.planner.whole.is_some() {
            // The engine converts both sides to one type for the comparison.
            let inner = match bound.ty {
                None => self.settle(bound, ty, Strength::Implicit)?,
                // An expression without an evident type would get that of the subquery's column.
                Some(found) if found != ty && !matches!(bound.expr, Expr::Column(_)) => {
                    Expr::Cast(Box::new(bound.expr), found)
                }
                Some(_) => bound.expr,
            };
            return Ok(truth(negated, Expr::InSubquery(Box::new(inner), number)));
        }
        if together != ty {
            self.planner.cast_subquery(number, together);
        }
        let inner = Box::new(self.settle(bound, together, Strength::Implicit)?);
        Ok(truth(negated, Expr::InSubquery(inner, number)))
    }

    pub(crate) fn bind_exists(&mut self, subquery: &ast::Query, negated: bool) -> Result<Typed> {
        let number = self.planner.exists(subquery, self.scope)?;
        Ok(truth(negated, Expr::Subquery(number)))
    }

    /// `(SELECT ...)` as a value.
    pub(crate) fn bind_subquery(&mut self, query: &ast::Query) -> Result<Typed> {
        let (number, ty) = self.planner.subquery(query, self.scope, false)?;
        Ok(Typed::new(Expr::Subquery(number), ty))
    }
}
