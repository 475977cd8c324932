//! Translation of our bound expressions to those of the query engine.
//!
//! An expression is translated directly where the engine gives it exactly the same meaning: columns,
//! constants, comparisons of one form, AND, OR, NOT, checked arithmetic. Every other expression becomes one
//! function of ours over its columns ([`RowExpr`]), so that it has the same meaning in every executor.

use std::cell::RefCell;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue, Spans};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    Case, Expr as Df, LogicalPlan, Operator, Subquery, binary_expr, cast, expr::InList,
};
use ropewalk::tables::{Type, Value};

use crate::error::Result;
use crate::exec::analytic::kernel::arithmetic::checked;
use crate::exec::analytic::kernel::convert::{compares, data_type, literal};
use crate::exec::analytic::kernel::scalar::{Around, RowExpr, order_key, order_letters};
use crate::exec::analytic::{check_groups_and_windows, check_outer_joins};
use crate::expr::arith::{Arith, Compare};
use crate::expr::{Expr, bug};
use crate::plan::Asked;
use crate::types::names::{is_integer, is_numeric, rank, unmodified};

/// A column in scope: its column in the plan, its form, its type.
#[derive(Debug, Clone)]
pub(crate) struct Col {
    pub(crate) column: Column,
    pub(crate) form: DataType,
    pub(crate) ty: Type,
}

impl Col {
    pub(crate) fn expr(&self) -> Df {
        Df::Column(self.column.clone())
    }
}

/// A subquery of an expression.
#[derive(Debug, Clone)]
pub(crate) struct Sub {
    pub(crate) plan: LogicalPlan,
    pub(crate) asked: Asked,
    /// Its single column, if the expression reads one.
    pub(crate) column: Option<Col>,
    /// Columns of the enclosing query that it names only where the expression folds to NULL: the plan does
    /// not read them, but they have to be grouped.
    pub(crate) folded: Vec<Column>,
}

/// An expression of the engine, with the form of its values.
#[derive(Debug, Clone)]
pub(crate) struct Formed {
    pub(crate) expr: Df,
    pub(crate) form: DataType,
    /// `None` for NULL, which is of any type.
    pub(crate) ty: Option<Type>,
}

/// Translates the expressions over one set of columns.
pub(crate) struct Translator<'t> {
    pub(crate) columns: &'t [Col],
    /// Columns of the enclosing queries, outermost first.
    pub(crate) outer: &'t [Vec<Col>],
    pub(crate) subqueries: &'t [Sub],
    /// Receives the columns of enclosing queries in what folds to NULL.
    pub(crate) folded: &'t RefCell<Vec<Column>>,
    pub(crate) around: &'t Around,
}

fn operator(op: Compare) -> Operator {
    match op {
        Compare::Eq => Operator::Eq,
        Compare::Ne => Operator::NotEq,
        Compare::Lt => Operator::Lt,
        Compare::Le => Operator::LtEq,
        Compare::Gt => Operator::Gt,
        Compare::Ge => Operator::GtEq,
    }
}

/// A form of the value that the engine can compare: the value itself, or its order key.
pub(crate) fn comparable(expr: Df, form: &DataType, ty: Type) -> Df {
    if compares(form) { expr } else { order_key(ty).call(vec![expr]) }
}

/// The digits before the decimal point of a decimal form.
fn whole_digits(form: &DataType) -> Option<(i16, i16)> {
    match form {
        DataType::Decimal128(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale)))
        }
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        _ => None,
    }
}

/// The form in which numbers of two forms compare exactly, if any.
fn together(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as D;
    if a == b {
        return Some(a.clone());
    }
    if let (D::Float32 | D::Float64, _) | (_, D::Float32 | D::Float64) = (a, b) {
        let float = |form: &D| matches!(form, D::Float32 | D::Float64 | D::Int16 | D::Int32 | D::Int64);
        return (float(a) && float(b)).then_some(D::Float64);
    }
    let ((whole_a, scale_a), (whole_b, scale_b)) = (whole_digits(a)?, whole_digits(b)?);
    if !matches!(a, D::Decimal128(..)) && !matches!(b, D::Decimal128(..)) {
        return Some(if whole_a > whole_b { a.clone() } else { b.clone() });
    }
    let (whole, scale) = (whole_a.max(whole_b), scale_a.max(scale_b));
    let precision = u8::try_from(whole + scale).ok().filter(|precision| *precision <= 38)?;
    Some(D::Decimal128(precision, i8::try_from(scale).ok()?))
}

/// The form of a constant: numerics have exactly the digits they display.
fn form_of(value: &Value<'_>) -> Option<DataType> {
    match value {
        Value::Numeric(number) if number.is_nan() => Some(DataType::Binary),
        Value::Numeric(number) => {
            let digits = number.mantissa().unsigned_abs().checked_ilog10().unwrap_or(0) as u8 + 1;
            Some(DataType::Decimal128(digits.max(number.scale()).max(1), number.scale() as i8))
        }
        value => value.value_type().map(data_type),
    }
}

/// The same value in a given form, if that is exact.
fn exactly(value: &Value<'_>, ty: Type, form: &DataType) -> Option<ScalarValue> {
    let found = value.value_type()?;
    if found == ty || is_numeric(found) && is_numeric(ty) {
        let exact = match (value, form) {
            (Value::Numeric(number), DataType::Decimal128(precision, scale)) => {
                let scale = u8::try_from(*scale).ok()?;
                let same = number.rescale(scale).filter(|same| same == number && !number.is_nan())?;
                if same.integer_digits() + scale > *precision {
                    return None;
                }
                Value::Numeric(same)
            }
            (value, _) => value.borrowed(),
        };
        return literal(&exact, form).ok();
    }
    match (form, found) {
        (DataType::Decimal128(..), found) if is_integer(found) => {
            let number = ropewalk::tables::Numeric::from(value.as_integer()?);
            exactly(&Value::Numeric(number), Type::NUMERIC, form)
        }
        (_, found) if is_integer(found) && is_integer(ty) => {
            literal(&Value::Int8(value.as_integer()?).assign(ty).ok()?, form).ok()
        }
        _ => None,
    }
}

impl Translator<'_> {
    /// `expr`, whose type is `ty`.
    pub(crate) fn expr(&self, expr: &Expr, ty: Type) -> Result<Formed> {
        match self.native(expr)? {
            Some(Formed { ty: None, .. }) => self.null(ty),
            Some(formed) => Ok(formed),
            None => self.by_row(expr, ty, data_type(ty)),
        }
    }

    /// `expr` in a given form.
    pub(crate) fn in_form(&self, expr: &Expr, ty: Type, form: &DataType) -> Result<Df> {
        match self.native(expr)? {
            Some(formed) if formed.form == *form => Ok(formed.expr),
            Some(Formed { ty: None, .. }) => Ok(Df::Literal(literal(&Value::Null, form)?, None)),
            _ => Ok(self.by_row(expr, ty, form.clone())?.expr),
        }
    }

    /// `expr` in a form that the engine may compare, sort and group by.
    pub(crate) fn comparable(&self, expr: &Expr, ty: Type) -> Result<Df> {
        let formed = self.expr(expr, ty)?;
        Ok(comparable(formed.expr, &formed.form, ty))
    }

    /// Like [`Translator::comparable`], in a form that the engine accepts for the order of a window with a
    /// frame of peers.
    pub(crate) fn ranked(&self, expr: &Expr, ty: Type) -> Result<Df> {
        let formed = self.expr(expr, ty)?;
        let is_refused = matches!(formed.form, DataType::BinaryView | DataType::FixedSizeBinary(_));
        if is_refused || !compares(&formed.form) {
            return Ok(order_letters(ty).call(vec![formed.expr]));
        }
        Ok(formed.expr)
    }

    pub(crate) fn condition(&self, expr: &Expr) -> Result<Df> {
        Ok(self.expr(expr, Type::BOOL)?.expr)
    }

    fn null(&self, ty: Type) -> Result<Formed> {
        let form = data_type(ty);
        Ok(Formed { expr: Df::Literal(literal(&Value::Null, &form)?, None), form, ty: Some(ty) })
    }

    fn constant(&self, value: &Value<'_>) -> Result<Formed> {
        let Some(form) = form_of(value) else {
            return Ok(Formed { expr: Df::Literal(ScalarValue::Null, None), form: DataType::Null, ty: None });
        };
        Ok(Formed { expr: Df::Literal(literal(value, &form)?, None), form, ty: value.value_type() })
    }

    fn note_folded(&self, written: &Expr) {
        if let Expr::Outer(depth, index) = written {
            let columns = self.outer.iter().rev().nth(*depth);
            let column = columns.and_then(|columns| columns.get(*index)).map(|col| col.column.clone());
            self.folded.borrow_mut().extend(column);
        }
        written.for_parts(&mut |part| self.note_folded(part));
    }

    fn outer_column(&self, depth: usize, index: usize) -> Result<Formed> {
        let columns = self.outer.len().checked_sub(depth + 1).and_then(|place| self.outer.get(place));
        let col = columns.and_then(|columns| columns.get(index)).ok_or_else(|| bug("an outer column"))?;
        if depth > 0 {
            return Err(crate::exec::executor::unsupported(
                "a subquery that reads a query beyond the directly enclosing one",
            ));
        }
        let expr = datafusion::logical_expr::out_ref_col(col.form.clone(), col.column.clone());
        Ok(Formed { expr, form: col.form.clone(), ty: Some(col.ty) })
    }

    fn subquery(&self, number: usize) -> Result<Formed> {
        let sub = self.subqueries.get(number).ok_or_else(|| bug("a subquery without a number"))?;
        check_outer_joins(&sub.plan)?;
        check_groups_and_windows(&sub.plan, sub.asked == Asked::Scalar)?;
        let subquery = Subquery {
            outer_ref_columns: sub.plan.all_out_ref_exprs(),
            subquery: std::sync::Arc::new(sub.plan.clone()),
            spans: Spans::new(),
        };
        match (&sub.asked, &sub.column) {
            (Asked::Exists, _) => Ok(Formed {
                expr: Df::Exists(Exists { subquery, negated: false }),
                form: DataType::Boolean,
                ty: Some(Type::BOOL),
            }),
            (_, Some(col)) => {
                let expr = self.with_nulls(Df::ScalarSubquery(subquery), sub, col);
                Ok(Formed { expr, form: col.form.clone(), ty: Some(col.ty) })
            }
            _ => Err(bug("a subquery without a column")),
        }
    }

    /// The value of a subquery, marked as nullable. After constant folding in the subquery the engine
    /// considers the value as non-null as its column, and ignores that there may be no row.
    fn with_nulls(&self, value: Df, sub: &Sub, col: &Col) -> Df {
        if !sub.plan.all_out_ref_exprs().is_empty() {
            return value;
        }
        let same = RowExpr::function(Expr::Column(0), vec![col.ty], col.form.clone(), self.around.clone());
        same.call(vec![value])
    }

    /// A complete condition or one of several combined by AND: a row for which it is NULL is treated like
    /// false.
    pub(crate) fn conjunct(&self, expr: &Expr) -> Result<Df> {
        match expr {
            Expr::InSubquery(inner, number) => Ok(self.in_subquery(inner, *number, true)?.expr),
            // NOT IN of a plain column is an engine join that respects NULLs; for any other expression it
            // does not.
            Expr::Not(negated) => match negated.as_ref() {
                Expr::InSubquery(inner, number)
                    if matches!(**inner, Expr::Column(_)) && !self.reads_around(*number) =>
                {
                    Ok(!self.in_subquery(inner, *number, true)?.expr)
                }
                _ => self.condition(expr),
            },
            other => self.condition(other),
        }
    }

    fn reads_around(&self, number: usize) -> bool {
        self.subqueries.get(number).is_some_and(|sub| !sub.plan.all_out_ref_exprs().is_empty())
    }

    fn in_subquery(&self, inner: &Expr, number: usize, is_conjunct: bool) -> Result<Formed> {
        let sub = self.subqueries.get(number).ok_or_else(|| bug("a subquery without a number"))?;
        check_outer_joins(&sub.plan)?;
        check_groups_and_windows(&sub.plan, false)?;
        let col = sub.column.as_ref().ok_or_else(|| bug("a subquery without a column"))?;
        // Whether a NULL of the subquery counts then depends on the row; the engine does not check that.
        if !is_conjunct && self.reads_around(number) {
            return Err(crate::exec::executor::unsupported(
                "NOT IN, or IN within an expression, over a subquery that reads the enclosing query",
            ));
        }
        let found = match self.known(inner)? {
            Some(Formed { ty: None, .. }) | None => self.expr(inner, col.ty)?,
            Some(found) => found,
        };
        let is_null = found.expr.clone().is_null();
        let (expr, plan) = if found.form == col.form && compares(&col.form) {
            (found.expr, sub.plan.clone())
        } else {
            let (ty, other) = (found.ty.unwrap_or(col.ty), col.ty);
            let both = together(&found.form, &col.form).filter(compares);
            let (left, right) = match both {
                Some(form) => (cast(found.expr, form.clone()), cast(col.expr(), form)),
                None if ty == other || is_numeric(ty) && is_numeric(other) => {
                    let left = self.in_form(inner, ty, &DataType::Binary).unwrap_or(found.expr);
                    let form = if is_numeric(ty) { DataType::Binary } else { col.form.clone() };
                    (order_key(ty).call(vec![left]), order_key(ty).call(vec![self.reformed(col, &form)]))
                }
                None => {
                    return Err(crate::exec::executor::unsupported("IN over numbers of different kinds"));
                }
            };
            let plan = crate::exec::analytic::built(
                datafusion::logical_expr::LogicalPlanBuilder::from(sub.plan.clone())
                    .project(vec![right.alias("key")])
                    .and_then(|builder| builder.build()),
            )?;
            (left, plan)
        };
        let subquery = Subquery {
            outer_ref_columns: plan.all_out_ref_exprs(),
            subquery: std::sync::Arc::new(plan),
            spans: Spans::new(),
        };
        let mut expr = Df::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated: false });
        if !is_conjunct {
            expr = self.three_valued(expr, is_null, sub, col)?;
        }
        Ok(Formed { expr, form: DataType::Boolean, ty: Some(Type::BOOL) })
    }

    /// IN as a value: the engine knows whether there is a match, but not that without a match NULLs on either
    /// side make the result NULL.
    fn three_valued(&self, found: Df, is_null: Df, sub: &Sub, col: &Col) -> Result<Df> {
        use datafusion::logical_expr::{LogicalPlanBuilder, lit, when};
        // NULL for no rows, 1 for rows without NULLs, 2 for rows with NULLs.
        let kind =
            crate::exec::analytic::built(when(col.expr().is_null(), lit(2_i64)).otherwise(lit(1_i64)))?;
        let greatest = datafusion::functions_aggregate::min_max::max_udaf().call(vec![kind]);
        let plan = LogicalPlanBuilder::from(sub.plan.clone())
            .aggregate(Vec::<Df>::new(), vec![greatest.alias("nulls")])
            .and_then(|builder| builder.build());
        let subquery = Subquery {
            outer_ref_columns: Vec::new(),
            subquery: std::sync::Arc::new(crate::exec::analytic::built(plan)?),
            spans: Spans::new(),
        };
        let nulls = Df::ScalarSubquery(subquery);
        let open = Df::Literal(ScalarValue::Boolean(None), None);
        crate::exec::analytic::built(
            when(found, lit(true))
                .when(nulls.clone().is_null(), lit(false))
                .when(is_null.or(nulls.eq(lit(2_i64))), open)
                .otherwise(lit(false)),
        )
    }

    /// A column in another form of the same type.
    pub(crate) fn reformed(&self, col: &Col, form: &DataType) -> Df {
        if col.form == *form {
            return col.expr();
        }
        let function = RowExpr::function(Expr::Column(0), vec![col.ty], form.clone(), self.around.clone());
        function.call(vec![col.expr()])
    }

    /// The engine's native expression, or `None`.
    fn native(&self, expr: &Expr) -> Result<Option<Formed>> {
        let boolean = |expr| Ok(Some(Formed { expr, form: DataType::Boolean, ty: Some(Type::BOOL) }));
        match expr {
            Expr::Const(value) => self.constant(value).map(Some),
            Expr::Param(number) => match self.around.params.get(*number) {
                Some(value) => self.constant(value).map(Some),
                None => self.constant(&Value::Null).map(Some),
            },
            Expr::Column(index) => {
                let col = self.columns.get(*index).ok_or_else(|| bug("a column beyond its relation"))?;
                Ok(Some(Formed { expr: col.expr(), form: col.form.clone(), ty: Some(col.ty) }))
            }
            Expr::Outer(depth, index) => self.outer_column(*depth, *index).map(Some),
            Expr::Subquery(number) => self.subquery(*number).map(Some),
            Expr::InSubquery(inner, number) => self.in_subquery(inner, *number, false).map(Some),
            Expr::Not(inner) => boolean(!self.condition(inner)?),
            Expr::And(parts) | Expr::Or(parts) => {
                let op = if matches!(expr, Expr::And(_)) { Operator::And } else { Operator::Or };
                let parts: Result<Vec<Df>> = parts.iter().map(|part| self.condition(part)).collect();
                // Balanced, so that a long chain does not become a deep tree.
                boolean(
                    balanced(parts?, op)
                        .unwrap_or(Df::Literal(ScalarValue::Boolean(Some(op == Operator::And)), None)),
                )
            }
            Expr::Compare(op, left, right) => match self.pair(left, right)? {
                Some((left, right)) => boolean(binary_expr(left, operator(*op), right)),
                None => Ok(None),
            },
            Expr::Distinct(left, right, negated) => match self.pair(left, right)? {
                Some((left, right)) => {
                    let op = if *negated { Operator::IsNotDistinctFrom } else { Operator::IsDistinctFrom };
                    boolean(binary_expr(left, op, right))
                }
                None => Ok(None),
            },
            Expr::IsNull(inner, negated) => match self.native(inner)? {
                Some(found) if *negated => boolean(found.expr.is_not_null()),
                Some(found) => boolean(found.expr.is_null()),
                None => Ok(None),
            },
            Expr::Is(inner, wanted, negated) => {
                let inner = Box::new(self.condition(inner)?);
                boolean(match (wanted, negated) {
                    (Some(true), false) => Df::IsTrue(inner),
                    (Some(true), true) => Df::IsNotTrue(inner),
                    (Some(false), false) => Df::IsFalse(inner),
                    (Some(false), true) => Df::IsNotFalse(inner),
                    (None, false) => Df::IsUnknown(inner),
                    (None, true) => Df::IsNotUnknown(inner),
                })
            }
            Expr::In(inner, list) => self.in_list(inner, list),
            Expr::Cast(inner, ty) => self.cast(inner, *ty),
            Expr::Folded(written, ty) => {
                self.note_folded(written);
                self.cast(&Expr::Const(Value::Null), *ty)
            }
            Expr::Arith(op, ty, left, right) => self.arith(*op, *ty, left, right),
            Expr::Case(whens, otherwise) => self.case(whens, otherwise.as_deref()),
            _ => Ok(None),
        }
    }

    /// Two sides converted to one form that the engine compares as SQL does.
    fn pair(&self, left: &Expr, right: &Expr) -> Result<Option<(Df, Df)>> {
        let (Some(a), Some(b)) = (self.known(left)?, self.known(right)?) else { return Ok(None) };
        let (Some(ty_a), Some(ty_b)) = (a.ty, b.ty) else { return Ok(None) };
        if rank(ty_a).is_none() && ty_a != ty_b {
            return Ok(None);
        }
        if a.form == b.form && compares(&a.form) {
            return Ok(Some((a.expr, b.expr)));
        }
        // A constant is converted to the form of the column, so that keys and indexes are found.
        for (column, constant, turned) in [(&a, right, false), (&b, left, true)] {
            if let Some(value) = self.value(constant)
                && let Some(ty) = column.ty
                && compares(&column.form)
                && let Some(exact) = exactly(&value, ty, &column.form)
            {
                let (column, constant) = (column.expr.clone(), Df::Literal(exact, None));
                return Ok(Some(if turned { (constant, column) } else { (column, constant) }));
            }
        }
        if let Some(form) = together(&a.form, &b.form) {
            let (a, b) = (formed_as(a, &form), formed_as(b, &form));
            return Ok(Some(if compares(&form) {
                (a, b)
            } else {
                let ty = if form == DataType::Float64 { Type::FLOAT8 } else { ty_a };
                if form == DataType::Binary && ty_a != ty_b && !(is_numeric(ty_a) && is_numeric(ty_b)) {
                    return Ok(None);
                }
                (order_key(ty).call(vec![a]), order_key(ty).call(vec![b]))
            }));
        }
        Ok(None)
    }

    /// The translation of an expression whose type follows from the expression itself.
    fn known(&self, expr: &Expr) -> Result<Option<Formed>> {
        if let Some(found) = self.native(expr)? {
            return Ok(Some(found));
        }
        match self.type_of(expr) {
            Some(ty) => self.expr(expr, ty).map(Some),
            None => Ok(None),
        }
    }

    fn value(&self, expr: &Expr) -> Option<Value<'static>> {
        match expr {
            Expr::Const(value) => Some(value.clone()),
            Expr::Param(number) => self.around.params.get(*number).cloned(),
            _ => None,
        }
    }

    /// The type of an expression, where it is evident.
    fn type_of(&self, expr: &Expr) -> Option<Type> {
        match expr {
            Expr::Const(value) => value.value_type(),
            Expr::Column(index) => self.columns.get(*index).map(|col| col.ty),
            Expr::Cast(_, ty) | Expr::Folded(_, ty) | Expr::Arith(_, ty, _, _) => Some(*ty),
            Expr::Enum(call, _) => Some(call.result()),
            Expr::Negate(inner) => self.type_of(inner),
            Expr::Concat(..) | Expr::Json(_, _, true) => Some(Type::TEXT),
            Expr::Json(inner, _, false) => {
                Some(if self.type_of(inner) == Some(Type::JSONB) { Type::JSONB } else { Type::JSON })
            }
            Expr::ArrayOf(element, _) => Some(Type::Array(*element)),
            Expr::Case(whens, otherwise) => {
                let results = whens.iter().map(|(_, result)| result).chain(otherwise.as_deref());
                self.type_among(results)
            }
            Expr::Coalesce(parts) => self.type_among(parts.iter()),
            _ => None,
        }
    }

    fn type_among<'e>(&self, mut exprs: impl Iterator<Item = &'e Expr>) -> Option<Type> {
        let ty = exprs.find_map(|expr| self.type_of(expr))?;
        Some(unmodified(ty))
    }

    fn in_list(&self, inner: &Expr, list: &[Expr]) -> Result<Option<Formed>> {
        let Some(found) = self.known(inner)?.filter(|found| compares(&found.form)) else { return Ok(None) };
        let Some(ty) = found.ty else { return Ok(None) };
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            let Some(value) = self.value(item) else { return Ok(None) };
            let exact = if value.is_null() {
                literal(&Value::Null, &found.form).ok()
            } else {
                exactly(&value, ty, &found.form)
            };
            let Some(exact) = exact else { return Ok(None) };
            items.push(Df::Literal(exact, None));
        }
        let expr = Df::InList(InList { expr: Box::new(found.expr), list: items, negated: false });
        Ok(Some(Formed { expr, form: DataType::Boolean, ty: Some(Type::BOOL) }))
    }

    fn cast(&self, inner: &Expr, ty: Type) -> Result<Option<Formed>> {
        let Some(found) = self.known(inner)? else { return Ok(None) };
        let Some(from) = found.ty else { return Ok(None) };
        if from == ty {
            return Ok(Some(found));
        }
        let widens = matches!(
            (from, ty),
            (Type::INT2, Type::INT4 | Type::INT8)
                | (Type::INT4, Type::INT8)
                | (Type::INT2 | Type::INT4 | Type::INT8, Type::FLOAT8)
                | (Type::FLOAT4, Type::FLOAT8)
        );
        if widens {
            let form = data_type(ty);
            return Ok(Some(Formed { expr: formed_as(found, &form), form, ty: Some(ty) }));
        }
        if is_integer(from) && ty == Type::NUMERIC {
            let Some((digits, _)) = whole_digits(&found.form) else { return Ok(None) };
            let form = DataType::Decimal128(digits as u8, 0);
            return Ok(Some(Formed { expr: formed_as(found, &form), form, ty: Some(ty) }));
        }
        if is_numeric(from) && ty == Type::NUMERIC {
            return Ok(Some(Formed { ty: Some(ty), ..found }));
        }
        Ok(None)
    }

    fn arith(&self, op: Arith, ty: Type, left: &Expr, right: &Expr) -> Result<Option<Formed>> {
        if !matches!(op, Arith::Add | Arith::Sub | Arith::Mul | Arith::Div | Arith::Rem) {
            return Ok(None);
        }
        let (Some(a), Some(b)) = (self.known(left)?, self.known(right)?) else { return Ok(None) };
        let (Some(ty_a), Some(ty_b)) = (a.ty, b.ty) else { return Ok(None) };
        if is_integer(ty) || matches!(ty, Type::FLOAT8) {
            if ty_a != ty || ty_b != ty {
                return Ok(None);
            }
            let expr = checked(op, ty, data_type(ty)).call(vec![a.expr, b.expr]);
            return Ok(Some(Formed { expr, form: data_type(ty), ty: Some(ty) }));
        }
        let (DataType::Decimal128(_, scale_a), DataType::Decimal128(_, scale_b)) = (&a.form, &b.form) else {
            return Ok(None);
        };
        let scale = match op {
            Arith::Add | Arith::Sub => *scale_a.max(scale_b),
            Arith::Mul => scale_a + scale_b,
            // A quotient displays as many digits as its value needs.
            _ => return Ok(None),
        };
        if !is_numeric(ty) || scale > 30 {
            return Ok(None);
        }
        let form = DataType::Decimal128(38, scale);
        let expr = checked(op, ty, form.clone()).call(vec![a.expr, b.expr]);
        Ok(Some(Formed { expr, form, ty: Some(ty) }))
    }

    fn case(&self, whens: &[(Expr, Expr)], otherwise: Option<&Expr>) -> Result<Option<Formed>> {
        let mut shared: Option<(DataType, Type)> = None;
        let mut results = Vec::new();
        for result in whens.iter().map(|(_, result)| result).chain(otherwise) {
            let Some(found) = self.known(result)? else { return Ok(None) };
            if let Some(ty) = found.ty {
                match &shared {
                    None => shared = Some((found.form.clone(), ty)),
                    // Numerics of different scales keep their display scales.
                    Some((form, _)) if *form != found.form => return Ok(None),
                    Some(_) => {}
                }
            }
            results.push(found);
        }
        let Some((form, ty)) = shared else { return Ok(None) };
        // The engine makes AND and OR of it, which evaluate all sides.
        if ty == Type::BOOL && whens.iter().any(|(_, result)| result.may_fail()) {
            return Ok(None);
        }
        let null = Df::Literal(literal(&Value::Null, &form)?, None);
        let mut results =
            results.into_iter().map(|found| if found.ty.is_none() { null.clone() } else { found.expr });
        let mut when_then_expr = Vec::new();
        for (condition, _) in whens {
            let result = results.next().ok_or_else(|| bug("a CASE without a result"))?;
            when_then_expr.push((Box::new(self.condition(condition)?), Box::new(result)));
        }
        let expr = Df::Case(Case { expr: None, when_then_expr, else_expr: results.next().map(Box::new) });
        Ok(Some(Formed { expr, form, ty: Some(ty) }))
    }

    /// Translates an expression to one function of ours.
    fn by_row(&self, expr: &Expr, ty: Type, form: DataType) -> Result<Formed> {
        let mut leaves: Vec<Expr> = Vec::new();
        let mut arguments: Vec<Df> = Vec::new();
        let mut types: Vec<Type> = Vec::new();
        let mut failure = None;
        let mut leaf = |part: &Expr| -> Option<Expr> {
            if let Expr::Folded(written, ty) = part {
                self.note_folded(written);
                return Some(Expr::Cast(Box::new(Expr::Const(Value::Null)), *ty));
            }
            let is_leaf =
                matches!(part, Expr::Column(_) | Expr::Outer(..) | Expr::Subquery(_) | Expr::InSubquery(..));
            if !is_leaf {
                return None;
            }
            if let Some(known) = leaves.iter().position(|known| known == part) {
                return Some(Expr::Column(known));
            }
            match self.native(part) {
                Ok(Some(Formed { expr, ty: Some(ty), .. })) => {
                    arguments.push(expr);
                    types.push(ty);
                    leaves.push(part.clone());
                    Some(Expr::Column(leaves.len() - 1))
                }
                Ok(_) => {
                    failure = Some(bug("a leaf without a type"));
                    None
                }
                Err(error) => {
                    failure = Some(error);
                    Some(Expr::Const(Value::Null))
                }
            }
        };
        let over_arguments = expr.clone().rewrite(&mut leaf);
        if let Some(error) = failure {
            return Err(error);
        }
        let function = RowExpr::function(over_arguments, types, form.clone(), self.around.clone());
        Ok(Formed { expr: function.call(arguments), form, ty: Some(ty) })
    }
}

fn formed_as(found: Formed, form: &DataType) -> Df {
    if found.form == *form { found.expr } else { cast(found.expr, form.clone()) }
}

pub(crate) fn balanced(mut parts: Vec<Df>, op: Operator) -> Option<Df> {
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        count => {
            let right = parts.split_off(count / 2);
            Some(binary_expr(balanced(parts, op)?, op, balanced(right, op)?))
        }
    }
}
