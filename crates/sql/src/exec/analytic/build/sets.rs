//! UNION, INTERSECT, EXCEPT and recursive queries.
//!
//! INTERSECT and EXCEPT are joins on all columns, with NULLs equal. With ALL, equal rows are numbered first,
//! so that the third one on the left joins the third one on the right.

use std::sync::Arc;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::{Column, JoinType, NullEquality, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr as Df, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder};
use ropewalk::tables::Type;
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::select::bare;
use crate::exec::analytic::build::translate::{Col, comparable};
use crate::exec::analytic::kernel::convert::data_type;
use crate::exec::analytic::kernel::scalar::RowExpr;
use crate::exec::analytic::{Named, Relation, built};
use crate::exec::executor::unsupported;
use crate::expr::Expr;
use crate::plan::{Planner, is_untyped_string};
use crate::types::names::{check_recursive, common, is_numeric, unmodified};

impl Planner<'_> {
    pub(in crate::exec::analytic) fn set_operation(
        &mut self,
        op: ast::SetOperator,
        quantifier: ast::SetQuantifier,
        left: &ast::SetExpr,
        right: &ast::SetExpr,
    ) -> Result<Relation> {
        let all = match quantifier {
            ast::SetQuantifier::All => true,
            ast::SetQuantifier::None | ast::SetQuantifier::Distinct => false,
            other => return Err(unsupported(format!("{op} {other}"))),
        };
        let relations = self.operands(left, right)?;
        self.combined(op, all, (left, right), relations)
    }

    /// Plans both queries. They nest as deep as a statement has set operations, so nothing else is on the stack meanwhile.
    #[inline(never)]
    fn operands(&mut self, left: &ast::SetExpr, right: &ast::SetExpr) -> Result<Box<(Relation, Relation)>> {
        let left = Box::new(self.set_expr(left)?);
        let right = Box::new(self.set_expr(right)?);
        Ok(Box::new((*left, *right)))
    }

    #[inline(never)]
    fn combined(
        &mut self,
        op: ast::SetOperator,
        all: bool,
        bodies: (&ast::SetExpr, &ast::SetExpr),
        relations: Box<(Relation, Relation)>,
    ) -> Result<Relation> {
        let (left, right) = self.matched(&op.to_string(), bodies, *relations)?;
        match op {
            ast::SetOperator::Union => {
                let builder = LogicalPlanBuilder::from(left.plan).union(right.plan);
                let plan = built(builder.and_then(|builder| builder.build()))?;
                let exprs = plan.schema().columns().into_iter().zip(&left.cols);
                let exprs = exprs.map(|(c, col)| (Df::Column(c), col.form.clone(), col.ty)).collect();
                let (mut plan, mut cols) = self.projected(plan, exprs)?;
                if !all {
                    ordered(&cols)?;
                    (plan, cols) = self.distinct(plan, cols)?;
                }
                // A column of one query only that is NULL everywhere has values of the other one now.
                let open = left.open.iter().zip(&right.open).map(|(a, b)| *a && *b).collect();
                Ok(Relation { plan, cols, open, sorted: None, ..left })
            }
            ast::SetOperator::Intersect => self.half_join(left, right, JoinType::LeftSemi, all),
            ast::SetOperator::Except => self.half_join(left, right, JoinType::LeftAnti, all),
            ast::SetOperator::Minus => Err(unsupported("MINUS")),
        }
    }

    /// Converts two relations to the same types and forms.
    fn matched(
        &mut self,
        what: &str,
        (left_body, right_body): (&ast::SetExpr, &ast::SetExpr),
        (left, right): (Relation, Relation),
    ) -> Result<(Relation, Relation)> {
        if left.cols.len() != right.cols.len() {
            let message = format!("each {what} query must have the same number of columns");
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let mut types = Vec::with_capacity(left.cols.len());
        let pairs = left.cols.iter().zip(&right.cols).zip(left.open.iter().zip(&right.open));
        for (place, ((a, b), (open_a, open_b))) in pairs.enumerate() {
            let ty = match (open_a, open_b) {
                (true, false) => b.ty,
                (false, true) => a.ty,
                _ if a.ty == b.ty => a.ty,
                _ if is_untyped_string(left_body, place) => unmodified(b.ty),
                _ if is_untyped_string(right_body, place) => unmodified(a.ty),
                _ => common(a.ty, b.ty).ok_or_else(|| {
                    let (a, b) = (self.shown(Some(a.ty)), self.shown(Some(b.ty)));
                    SqlError::new(
                        state::DATATYPE_MISMATCH,
                        format!("{what} types {a} and {b} cannot be matched"),
                    )
                })?,
            };
            let form = match (open_a, open_b) {
                (true, false) => b.form.clone(),
                (false, true) => a.form.clone(),
                _ if a.form == b.form && a.ty == b.ty => a.form.clone(),
                _ if is_numeric(ty) => data_type(Type::NUMERIC),
                _ => data_type(ty),
            };
            types.push((ty, form));
        }
        Ok((self.in_forms(left, &types)?, self.in_forms(right, &types)?))
    }

    fn in_forms(
        &mut self,
        relation: Relation,
        types: &[(Type, datafusion::arrow::datatypes::DataType)],
    ) -> Result<Relation> {
        let mut exprs = Vec::with_capacity(types.len());
        for (place, ((ty, form), open)) in types.iter().zip(&relation.open).enumerate() {
            let col = relation.cols.get(place).ok_or_else(|| crate::expr::bug("a column of a set"))?;
            let expr = if *open && col.ty != *ty {
                Expr::Const(ropewalk::tables::Value::Null)
            } else if col.ty == *ty || is_numeric(col.ty) && is_numeric(*ty) {
                Expr::Column(place)
            } else {
                Expr::Cast(Box::new(Expr::Column(place)), *ty)
            };
            let expr = self.whole()?.translator(&relation.cols).in_form(&expr, *ty, form)?;
            exprs.push((expr, form.clone(), *ty));
        }
        let (plan, cols) = self.projected(relation.plan, exprs)?;
        let open = relation.open;
        Ok(Relation { plan, cols, names: relation.names, open, sorted: None })
    }

    fn half_join(&mut self, left: Relation, right: Relation, kind: JoinType, all: bool) -> Result<Relation> {
        ordered(&left.cols)?;
        let names = left.names;
        let (mut left_plan, mut left_cols) = (left.plan, left.cols);
        if !all {
            (left_plan, left_cols) = self.distinct(left_plan, left_cols)?;
        }
        let (left_plan, shown, left_keys) = self.keyed(left_plan, &left_cols, all)?;
        let (right_plan, _, right_keys) = self.keyed(right.plan, &right.cols, all)?;
        let builder = LogicalPlanBuilder::from(left_plan).join_detailed(
            right_plan,
            kind,
            (left_keys, right_keys),
            None,
            NullEquality::NullEqualsNull,
        );
        let plan = built(builder.and_then(|builder| builder.build()))?;
        let exprs = shown.into_iter().map(|col| (col.expr(), col.form.clone(), col.ty)).collect();
        let (plan, cols) = self.projected(plan, exprs)?;
        let open = vec![false; cols.len()];
        Ok(Relation { plan, cols, names, open, sorted: None })
    }

    /// The columns of a relation, followed by those that compare rows; with `numbered` also by the number
    /// among equal rows.
    fn keyed(
        &mut self,
        plan: LogicalPlan,
        cols: &[Col],
        numbered: bool,
    ) -> Result<(LogicalPlan, Vec<Col>, Vec<Column>)> {
        let mut exprs: Vec<(Df, _, _)> =
            cols.iter().map(|col| (col.expr(), col.form.clone(), col.ty)).collect();
        for col in cols {
            let key = comparable(col.expr(), &col.form, col.ty);
            exprs.push((key, col.form.clone(), col.ty));
        }
        let (mut plan, mut all) = self.projected(plan, exprs)?;
        let keys = all.split_off(cols.len());
        let mut columns: Vec<Column> = keys.into_iter().map(|col| col.column).collect();
        if numbered {
            let by = columns.iter().cloned().map(Df::Column).collect();
            let call = Df::from(WindowFunction::new(row_number_udwf(), Vec::new())).partition_by(by).build();
            let call = built(call)?;
            let number = bare(call.schema_name().to_string());
            plan = built(LogicalPlanBuilder::window_plan(plan, [call]))?;
            columns.push(number);
        }
        Ok((plan, all, columns))
    }

    /// The parts of `WITH RECURSIVE name AS (first UNION next)`, when the query refers to itself.
    pub(in crate::exec::analytic) fn recursive_parts<'q>(
        &self,
        query: &'q ast::Query,
        name: &str,
        recursive: bool,
    ) -> Option<(&'q ast::SetExpr, &'q ast::SetExpr, bool)> {
        let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
        if !recursive || !plain || query.fetch.is_some() {
            return None;
        }
        let ast::SetExpr::SetOperation { op: ast::SetOperator::Union, set_quantifier, left, right } =
            query.body.as_ref()
        else {
            return None;
        };
        let found = crate::plan::with::says(&right.to_string(), name);
        found.then_some((left, right, *set_quantifier != ast::SetQuantifier::All))
    }

    pub(in crate::exec::analytic) fn recursive(
        &mut self,
        name: &str,
        columns: &[String],
        first: &ast::SetExpr,
        next: &ast::SetExpr,
        distinct: bool,
    ) -> Result<Relation> {
        let (first_body, next_body) = (first, next);
        let mut first = self.set_expr(first)?;
        for (name, given) in first.names.iter_mut().zip(columns) {
            name.clone_from(given);
        }
        // Numbers of the second part may have other digits than those of the first.
        let form = |col: &Col| if col.ty == Type::NUMERIC { data_type(col.ty) } else { col.form.clone() };
        let forms: Vec<_> = first.cols.iter().map(|col| (col.ty, form(col))).collect();
        first = self.in_forms(first, &forms)?;
        if distinct {
            ordered(&first.cols)?;
            if first.cols.iter().any(|col| !crate::exec::analytic::kernel::convert::compares(&col.form)) {
                return Err(unsupported("WITH RECURSIVE ... UNION over floats and numerics; use UNION ALL"));
            }
        }
        // A column that is never NULL in the first part may be NULL in the second.
        let around = self.whole()?.translator(&first.cols).around.clone();
        let perhaps = |col: &Col| {
            let same = RowExpr::perhaps_null(col.ty, col.form.clone(), around.clone());
            (same.call(vec![col.expr()]), col.form.clone(), col.ty)
        };
        let exprs = first.cols.iter().map(perhaps).collect();
        (first.plan, first.cols) = self.projected(first.plan, exprs)?;
        let table = self.whole()?.fresh('w');
        let schema = Arc::new(first.plan.schema().as_arrow().clone());
        let work = Arc::new(CteWorkTable::new(&table, schema));
        let scan =
            LogicalPlanBuilder::scan(TableReference::bare(table.clone()), provider_as_source(work), None);
        let scan = built(scan.and_then(|builder| builder.build()))?;
        let cols = first.cols.iter().map(|col| Col {
            column: Column::new(Some(TableReference::bare(table.clone())), col.column.name.clone()),
            ..col.clone()
        });
        let itself = Relation {
            plan: scan,
            cols: cols.collect(),
            names: first.names.clone(),
            open: vec![false; first.cols.len()],
            sorted: None,
        };
        self.whole()?.named.push(Named { name: name.to_owned(), relation: itself });
        let next = self.set_expr(next);
        self.whole()?.named.pop();
        let next = next?;
        if !next.plan.display_indent().to_string().contains(&format!("TableScan: {table}")) {
            let quantifier = if distinct { ast::SetQuantifier::None } else { ast::SetQuantifier::All };
            return self.set_operation(ast::SetOperator::Union, quantifier, first_body, next_body);
        }
        if next.cols.len() != first.cols.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        // The first part determines the column types; PostgreSQL rejects a second part with wider ones.
        let mut types = Vec::new();
        for (place, (a, b)) in first.cols.iter().zip(&next.cols).enumerate() {
            if !next.open.get(place).copied().unwrap_or(false) {
                check_recursive(name, place, a.ty, b.ty)?;
            }
            types.push((a.ty, a.form.clone()));
        }
        let next = self.in_forms(next, &types)?;
        let builder = LogicalPlanBuilder::from(first.plan).to_recursive_query(table, next.plan, distinct);
        let plan = built(builder.and_then(|builder| builder.build()))?;
        let exprs = plan.schema().columns().into_iter().zip(&first.cols);
        let exprs = exprs.map(|(c, col)| (Df::Column(c), col.form.clone(), col.ty)).collect();
        let (plan, cols) = self.projected(plan, exprs)?;
        let open = vec![false; cols.len()];
        Ok(Relation { plan, cols, names: first.names, open, sorted: None })
    }
}

fn ordered(cols: &[Col]) -> Result<()> {
    match cols.iter().find(|col| !col.ty.is_ordered()) {
        None => Ok(()),
        Some(col) => Err(crate::plan::bind::scope::no_operator("=", Some(col.ty), Some(col.ty))),
    }
}
