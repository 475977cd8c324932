//! Computes keys, arguments and filters of groups and windows as columns first. A projection evaluates guards
//! (see `guards`), the engine's aggregates and windows do not; and the engine mixes up computed keys of
//! windows.

use datafusion::logical_expr::{Expr as Df, LogicalPlan, LogicalPlanBuilder};
use ropewalk::tables::Type;

use crate::error::Result;
use crate::exec::analytic::build::select::{bare, is_of_queries};
use crate::exec::analytic::build::translate::Col;
use crate::exec::analytic::built;
use crate::expr::Expr;
use crate::plan::Planner;

impl Planner<'_> {
    /// Computes those of `exprs` that are `wanted` as columns after `cols`, and replaces them by these
    /// columns.
    pub(in crate::exec::analytic) fn computed_first<'e>(
        &mut self,
        plan: LogicalPlan,
        mut cols: Vec<Col>,
        exprs: impl IntoIterator<Item = (&'e mut Expr, Type)>,
        wanted: fn(&Expr) -> bool,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let mut shown: Vec<Df> = cols.iter().map(Col::expr).collect();
        let given = cols.clone();
        for (expr, ty) in exprs {
            if !wanted(expr) || is_of_queries(expr) {
                continue;
            }
            let (value, form, ty) = self.translated(expr, ty, &given)?;
            let column = bare(self.whole()?.fresh('c'));
            shown.push(value.alias(&column.name));
            *expr = Expr::Column(cols.len());
            cols.push(Col { column, form, ty });
        }
        if cols.len() == given.len() {
            return Ok((plan, cols));
        }
        let plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
        Ok((plan, cols))
    }
}

/// True for expressions with guards: conditions combined with an expression that may fail.
pub(in crate::exec::analytic) fn has_guards(expr: &Expr) -> bool {
    expr.may_fail() && has_junction(expr)
}

/// True for expressions other than columns and constants.
pub(in crate::exec::analytic) fn is_computed(expr: &Expr) -> bool {
    !matches!(expr, Expr::Column(_) | Expr::Const(_) | Expr::Param(_))
}

fn has_junction(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::And(_) | Expr::Or(_));
    expr.for_parts(&mut |part| found |= has_junction(part));
    found
}
