//! Keys, arguments and filters of groups and windows that hold guards are columns before they are grouped by: a projection evaluates
//! guards (see `guards`), an aggregate and a window of the engine do not.

use datafusion::logical_expr::{Expr as Df, LogicalPlan, LogicalPlanBuilder};
use ropewalk::tables::Type;

use crate::error::Result;
use crate::expr::Expr;
use crate::plan::Planner;
use crate::query::built;
use crate::query::select::{bare, is_of_queries};
use crate::query::translate::Col;

impl Planner<'_> {
    /// Computes those of `exprs` that hold guards as columns behind `cols`, and puts these in their places.
    pub(super) fn guarded_first<'e>(
        &mut self,
        plan: LogicalPlan,
        mut cols: Vec<Col>,
        exprs: impl IntoIterator<Item = (&'e mut Expr, Type)>,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let mut shown: Vec<Df> = cols.iter().map(Col::expr).collect();
        let given = cols.clone();
        for (expr, ty) in exprs {
            if !expr.may_fail() || !has_junction(expr) || is_of_queries(expr) {
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

fn has_junction(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::And(_) | Expr::Or(_));
    expr.for_parts(&mut |part| found |= has_junction(part));
    found
}
