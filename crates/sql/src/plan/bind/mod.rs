//! Binds sqlparser's expressions to ours: resolves names to positions, determines types, inserts casts.
//!
//! A literal in quotes, NULL and a parameter have no type by themselves: they take it from the context, as in
//! PostgreSQL. No part of the tree is ignored: an unsupported form is an error that names it.

pub(crate) mod aggregate;
pub(crate) mod call;
pub(crate) mod catalog;
mod enums;
mod inet;
pub(crate) mod interval;
pub(crate) mod jsonb;
mod keyword_call;
pub(crate) mod operator;
pub(crate) mod scope;
pub(crate) mod sequence;
mod subquery;

use ropewalk::tables::{Numeric, Precision, Type, Value};
use sqlparser::ast;
use sqlparser::ast::BinaryOperator;

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::Compare;
use crate::expr::cast::{Strength, allowed, cast_in};
use crate::expr::function::Function;
use crate::functions::aggregate::Aggregate;
use crate::functions::element_of;
use crate::plan::Planner;
use crate::plan::bind::interval::read_interval;
use crate::plan::bind::scope::{Scope, no_operator, unknown_column};
use crate::plan::row_in_subquery::{row_of, rows_exist};
use crate::syntax::names::{folded, own, reference};
use crate::types::names::{Modifiers, common, is_numeric, modifier_of, shown, unmodified};
use crate::types::zone::Zone;

/// Deepest nesting of an expression.
const DEPTH_MAX: usize = 200;

/// A bound expression with its type; `None` while the context has to determine it.
#[derive(Debug, Clone)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) ty: Option<Type>,
}

impl Typed {
    pub(crate) fn new(expr: Expr, ty: Type) -> Self {
        Self { expr, ty: Some(ty) }
    }
}

/// Binds the expressions of one scope.
pub(crate) struct Binder<'b, 'a> {
    pub(crate) planner: &'b mut Planner<'a>,
    pub(crate) scope: &'b Scope,
    /// The list that collects aggregates; `None` where they are not allowed.
    pub(crate) aggregates: Option<&'b mut Vec<Aggregate>>,
    /// The clause, for error messages.
    pub(crate) clause: &'static str,
    depth: usize,
}

pub(crate) fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "rewrite the expression without it")
}

/// The value of a number literal.
pub(crate) fn number(digits: &str) -> Result<Typed> {
    if let Ok(small) = digits.parse::<i32>() {
        return Ok(Typed::new(Expr::Const(Value::Int4(small)), Type::INT4));
    }
    if let Ok(wide) = digits.parse::<i64>() {
        return Ok(Typed::new(Expr::Const(Value::Int8(wide)), Type::INT8));
    }
    if let Ok(exact) = digits.parse::<Numeric>() {
        return Ok(Typed::new(Expr::Const(Value::Numeric(exact)), Type::NUMERIC));
    }
    // A literal with an exponent beyond all numerics is a float.
    match digits.parse::<f64>().ok().filter(|float| float.is_finite() && digits.contains(['e', 'E'])) {
        Some(float) => Ok(Typed::new(Expr::Const(Value::Float8(float)), Type::FLOAT8)),
        None => {
            let message = format!("{digits} is out of range for type numeric");
            let error = SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message);
            Err(error.hint("numerics have at most 38 digits"))
        }
    }
}

impl<'b, 'a> Binder<'b, 'a> {
    pub(crate) fn new(planner: &'b mut Planner<'a>, scope: &'b Scope, clause: &'static str) -> Self {
        Self { planner, scope, aggregates: None, clause, depth: 0 }
    }

    pub(crate) fn with_aggregates(mut self, aggregates: &'b mut Vec<Aggregate>) -> Self {
        self.aggregates = Some(aggregates);
        self
    }

    /// The session's time zone, in which constants are read.
    pub(crate) fn zone(&self) -> &Zone {
        &self.planner.standing.settings.zone
    }

    /// Binds an expression.
    ///
    /// # Errors
    /// Unknown names, types that do not fit, unsupported forms, too deep nesting.
    pub(crate) fn bind(&mut self, expr: &ast::Expr) -> Result<Typed> {
        if self.depth >= DEPTH_MAX {
            let message = format!("an expression nested deeper than {DEPTH_MAX}");
            return Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, message));
        }
        self.depth += 1;
        let bound = self.bind_one(expr);
        self.depth -= 1;
        bound.map(|bound| match bound.ty {
            Some(ty) => Typed::new(bound.expr.null_folded(ty), ty),
            None => bound,
        })
    }

    /// Binds a condition.
    pub(crate) fn condition(&mut self, expr: &ast::Expr) -> Result<Expr> {
        let bound = match rows_exist(expr)? {
            Some(expr) => self.bind(&expr)?,
            None => self.bind(expr)?,
        };
        if bound.ty.is_some_and(|ty| ty != Type::BOOL) {
            let message =
                format!("argument of {} must be type boolean, not type {}", self.clause, shown(bound.ty));
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        let condition = self.settle(bound, Type::BOOL, Strength::Implicit)?;
        // Not a condition of CASE within one: GROUP BY has the same CASE as it is written.
        let filters_rows = self.depth == 0 && matches!(self.clause, "WHERE" | "HAVING" | "JOIN/ON");
        Ok(if filters_rows && is_never_true(&condition) {
            Expr::Folded(Box::new(condition), Type::BOOL)
        } else {
            condition
        })
    }

    /// Binds and casts to `ty`.
    pub(crate) fn bind_as(&mut self, expr: &ast::Expr, ty: Type, strength: Strength) -> Result<Expr> {
        let bound = self.bind(expr)?;
        self.settle(bound, ty, strength)
    }

    /// Binds an expression; an undetermined type becomes text.
    pub(crate) fn bind_closed(&mut self, expr: &ast::Expr) -> Result<(Expr, Type)> {
        let bound = self.bind(expr)?;
        let ty = bound.ty.unwrap_or(Type::TEXT);
        Ok((self.settle(bound, ty, Strength::Implicit)?, ty))
    }

    /// The expression as one of type `ty`.
    ///
    /// # Errors
    /// 42804 when there is no such cast, or the error of reading a literal.
    pub(crate) fn settle(&mut self, bound: Typed, ty: Type, strength: Strength) -> Result<Expr> {
        let Typed { expr, ty: found } = bound;
        let ty = if found.is_none() && strength == Strength::Implicit { unmodified(ty) } else { ty };
        match (found, expr) {
            (None, Expr::Const(Value::Text(text))) => self.constant(&text, ty),
            (None, Expr::Param(index)) => {
                let settled = self.planner.params.settle(index, ty);
                self.settle(Typed::new(Expr::Param(index), settled), ty, strength)
            }
            (None, expr) => Ok(expr),
            (Some(found), expr) if found == ty || is_numeric(found) && ty == Type::NUMERIC => Ok(expr),
            (Some(found), expr) if allowed(found, ty, strength) => Ok(match expr {
                expr if let Some(read) = self.read_labels(&expr, found, ty)? => read,
                // Widened here, and not again for every row.
                Expr::Const(value) if strength == Strength::Implicit => {
                    Expr::Const(cast_in(value, ty, self.zone())?.into_owned())
                }
                expr => Expr::Cast(Box::new(expr), ty),
            }),
            (Some(found), _) => {
                let (found, ty) = (self.planner.shown(Some(found)), self.planner.shown(Some(ty)));
                Err(mismatch(&found, &ty, strength))
            }
        }
    }

    fn bind_one(&mut self, expr: &ast::Expr) -> Result<Typed> {
        use ast::Expr as E;
        let boolean = |expr| Ok(Typed::new(expr, Type::BOOL));
        match expr {
            E::Identifier(ident) => self.bind_name(ident),
            E::CompoundIdentifier(idents) => self.bind_qualified_name(expr, idents),
            E::Value(value) => self.literal(&value.value),
            E::Nested(inner) => self.bind(inner),
            E::Interval(written) => self.interval(expr, written),
            E::TypedString(typed) => {
                let (ty, modifiers) = self.planner.cut(&typed.data_type)?;
                self.cast_with(&E::Value(typed.value.clone()), ty, modifiers)
            }
            E::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr: inner,
                data_type,
                array: false,
                format: None,
            } => self.bind_cast(inner, data_type),
            // A row is NULL, or not NULL, if each of its columns is.
            E::IsNull(inner) if let Some(row) = row_of(inner) => self.row_is_null(&row, false),
            E::IsNotNull(inner) if let Some(row) = row_of(inner) => self.row_is_null(&row, true),
            E::IsNull(inner) => boolean(Expr::IsNull(Box::new(self.bind_closed(inner)?.0), false)),
            E::IsNotNull(inner) => boolean(Expr::IsNull(Box::new(self.bind_closed(inner)?.0), true)),
            E::IsTrue(inner) => self.is(inner, Some(true), false),
            E::IsNotTrue(inner) => self.is(inner, Some(true), true),
            E::IsFalse(inner) => self.is(inner, Some(false), false),
            E::IsNotFalse(inner) => self.is(inner, Some(false), true),
            E::IsUnknown(inner) => self.is(inner, None, false),
            E::IsNotUnknown(inner) => self.is(inner, None, true),
            E::IsDistinctFrom(left, right) => self.distinct(left, right, false),
            E::IsNotDistinctFrom(left, right) => self.distinct(left, right, true),
            E::InList { expr: inner, list, negated } => match inner.as_ref() {
                E::Tuple(row) => self.bind_row_in_list(expr, row, list, *negated),
                inner => self.bind_in_list(inner, list, *negated),
            },
            E::InSubquery { expr: inner, subquery, negated } if let Some(row) = row_of(inner) => {
                self.bind_row_in_subquery(&row, subquery, *negated)
            }
            E::InSubquery { .. } | E::Exists { .. } | E::Subquery(_) if self.planner.is_small => {
                self.inner(expr)
            }
            E::InSubquery { expr: inner, subquery, negated } => {
                self.bind_in_subquery(inner, subquery, *negated)
            }
            E::Exists { subquery, negated } => self.bind_exists(subquery, *negated),
            E::Subquery(query) => self.bind_subquery(query),
            E::Collate { expr: inner, collation } => self.collated(inner, collation),
            E::Between { expr: inner, negated, low, high } => self.bind_between(inner, low, high, *negated),
            E::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
                self.bind_junction(expr, op)
            }
            E::BinaryOp { left, op, right } => self.binary(left, op, right),
            E::UnaryOp { op, expr: inner } => self.unary(op, inner),
            E::Like { negated, any: false, expr: inner, pattern, escape_char } => {
                let like = self.like(inner, pattern, escape_char.as_ref(), false)?;
                boolean(negated_if(*negated, like))
            }
            E::ILike { negated, any: false, expr: inner, pattern, escape_char } => {
                let like = self.like(inner, pattern, escape_char.as_ref(), true)?;
                boolean(negated_if(*negated, like))
            }
            E::SimilarTo { negated, expr: inner, pattern, escape_char } => {
                let similar = self.similar(inner, pattern, escape_char.as_ref())?;
                boolean(negated_if(*negated, similar))
            }
            E::AnyOp { left, compare_op: op, right, is_some: _ } => self.bind_any_all(left, op, right, false),
            E::AllOp { left, compare_op: op, right } => self.bind_any_all(left, op, right, true),
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            E::Function(function) => self.function(function),
            E::Extract { field, syntax: _, expr: inner } => self.bind_extract(field, inner),
            E::Ceil {
                expr: inner,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.bind_call("ceil", &[inner]),
            E::Floor {
                expr: inner,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.bind_call("floor", &[inner]),
            E::Position { expr: part, r#in: whole } => self.bind_position(part, whole),
            E::Substring {
                expr: inner,
                substring_from: from,
                substring_for: length,
                special: _,
                shorthand,
            } => self.bind_substring(inner, from.as_deref(), length.as_deref(), *shorthand),
            E::Overlay { expr: inner, overlay_what, overlay_from, overlay_for } => {
                self.bind_overlay(inner, overlay_what, overlay_from, overlay_for.as_deref())
            }
            E::Trim { trim_where, trim_what, expr: inner, trim_characters } => {
                self.bind_trim(expr, inner, *trim_where, trim_what.as_deref(), trim_characters.as_deref())
            }
            E::AtTimeZone { timestamp, time_zone } => self.at_time_zone(timestamp, time_zone),
            E::Array(ast::Array { elem, named: true }) => self.bind_array(elem),
            E::CompoundFieldAccess { root, access_chain } => self.field_access(expr, root, access_chain),
            other => Err(unsupported(format!("the expression {other}"))),
        }
    }

    // The following functions are not inlined, so that the recursive `bind` needs no stack for their variables.

    /// A column by its name, or a function that is called without parentheses.
    #[inline(never)]
    fn bind_name(&mut self, ident: &ast::Ident) -> Result<Typed> {
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("current_role") {
            return self.call("current_role", Vec::new());
        }
        self.column(None, &folded(ident)).map_err(|error| error.at(ident.span))
    }

    /// A column by the names of its database, schema and relation; `whole` is shown in errors.
    #[inline(never)]
    fn bind_qualified_name(&mut self, whole: &ast::Expr, idents: &[ast::Ident]) -> Result<Typed> {
        match idents {
            [relation, column] => {
                self.column(Some(&folded(relation)), &folded(column)).map_err(|error| error.at(relation.span))
            }
            [schema, relation, column] => self
                .column(Some(&reference(Some(&folded(schema)), &folded(relation))), &folded(column))
                .map_err(|error| error.at(schema.span)),
            [database, rest @ ..] if rest.len() == 3 => {
                if folded(database) != self.planner.standing.settings.database {
                    let written = idents.iter().map(folded).collect::<Vec<_>>().join(".");
                    let message = format!("cross-database references are not implemented: {written}");
                    return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)
                        .hint("leave out the name of the database"));
                }
                self.bind_qualified_name(whole, rest)
            }
            _ => Err(unsupported(format!("the name {whole}"))),
        }
    }

    #[inline(never)]
    fn bind_cast(&mut self, inner: &ast::Expr, data_type: &ast::DataType) -> Result<Typed> {
        if let Some(cast) = self.object_cast(inner, data_type)? {
            return Ok(cast);
        }
        if let Some(name) = self.object_as_text(inner, data_type)? {
            return Ok(name);
        }
        if let Some(elements) = self.vector_as_text(inner, data_type)? {
            return Ok(elements);
        }
        let (ty, modifiers) = self.planner.cut(data_type)?;
        self.cast_with(inner, ty, modifiers)
    }

    #[inline(never)]
    fn bind_between(
        &mut self,
        inner: &ast::Expr,
        low: &ast::Expr,
        high: &ast::Expr,
        negated: bool,
    ) -> Result<Typed> {
        let value = self.bind(inner)?;
        let (low, high) = (self.bind(low)?, self.bind(high)?);
        let low = self.compare(Compare::Ge, value.clone(), low)?;
        let high = self.compare(Compare::Le, value, high)?;
        Ok(Typed::new(negated_if(negated, Expr::And(vec![low, high])), Type::BOOL))
    }

    /// A chain of AND or OR. It is a left-deep tree, traversed with a loop and not by recursion.
    #[inline(never)]
    fn bind_junction(&mut self, chain: &ast::Expr, op: &BinaryOperator) -> Result<Typed> {
        let (mut parts, mut rest) = (Vec::new(), chain);
        while let ast::Expr::BinaryOp { left, op: same, right } = rest
            && same == op
        {
            parts.push(self.condition_part(right, op)?);
            rest = left;
        }
        parts.push(self.condition_part(rest, op)?);
        parts.reverse();
        let expr = if *op == BinaryOperator::And { Expr::And(parts) } else { Expr::Or(parts) };
        Ok(Typed::new(expr, Type::BOOL))
    }

    /// `op ANY (right)`, or ALL. For a row and a subquery these are IN and NOT IN.
    #[inline(never)]
    fn bind_any_all(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        let of_in = if all { BinaryOperator::NotEq } else { BinaryOperator::Eq };
        match right {
            ast::Expr::Subquery(subquery) if *op == of_in && row_of(left).is_some() => {
                let (expr, subquery) = (Box::new(left.clone()), subquery.clone());
                self.bind(&ast::Expr::InSubquery { expr, subquery, negated: all })
            }
            _ => self.any_all(left, op, right, all),
        }
    }

    #[inline(never)]
    fn bind_array(&mut self, elements: &[ast::Expr]) -> Result<Typed> {
        let parts: Result<Vec<_>> = elements.iter().map(|part| self.bind(part)).collect();
        let (parts, ty) = self.unified(parts?, "ARRAY")?;
        let element = element_of(ty).ok_or_else(|| unsupported("an array of arrays"))?;
        Ok(Typed::new(Expr::ArrayOf(element, parts), Type::Array(element)))
    }

    fn column(&mut self, relation: Option<&str>, name: &str) -> Result<Typed> {
        if let Some((expr, ty)) = self.scope.find(relation, name)? {
            return Ok(Typed::new(expr, ty));
        }
        if let Some((index, ty)) = self.scope.scalar(name).filter(|_| relation.is_none()) {
            return Ok(Typed::new(Expr::Column(index), ty));
        }
        for (depth, outer) in self.planner.outer.iter().rev().enumerate() {
            if let Some((expr, ty)) = outer.find(relation, name)? {
                if self.planner.whole.is_some() || self.planner.is_small {
                    let around = |part: &Expr| match part {
                        Expr::Column(column) => Some(Expr::Outer(depth, *column)),
                        _ => None,
                    };
                    return Ok(Typed::new(expr.rewrite(&mut { around }), ty));
                }
                return Err(SqlError::unsupported(
                    format!("a subquery that reads \"{name}\" of the enclosing query"),
                    "write it as a join",
                ));
            }
        }
        match relation {
            Some(relation) if !self.scope.knows(relation) => {
                let message = format!("missing FROM-clause entry for table \"{}\"", own(relation));
                Err(SqlError::new(state::UNDEFINED_TABLE, message))
            }
            _ => {
                let error = unknown_column(relation, name);
                Err(match self.scope.nearest(relation, name) {
                    Some(meant) => {
                        error.hint(format!("Perhaps you meant to reference the column \"{meant}\"."))
                    }
                    None => error,
                })
            }
        }
    }

    /// Casts, and applies the modifiers of the type: length, precision, fields.
    fn cast_with(&mut self, inner: &ast::Expr, ty: Type, modifiers: Modifiers) -> Result<Typed> {
        if let Some(precision) = modifiers.precision {
            let cast = match (inner, precision.fields) {
                // A number without a unit counts in the least field.
                (ast::Expr::Value(value), Some((_, least)))
                    if let ast::Value::SingleQuotedString(text) = &value.value =>
                {
                    Expr::Const(Value::Interval(read_interval(text, Some(least))?))
                }
                _ => self.bind_as(inner, ty, Strength::Explicit)?,
            };
            return Ok(self.kept(cast, ty, precision));
        }
        let cast = self.bind_as(inner, ty, Strength::Explicit)?;
        let Some(most) = modifiers.characters_max else { return Ok(Typed::new(cast, ty)) };
        let most = Expr::Const(Value::Int4(i32::try_from(most).unwrap_or(i32::MAX)));
        Ok(Typed::new(Expr::Call(Function::Left, vec![cast, most]), ty))
    }

    /// A time rounded to a precision.
    pub(crate) fn kept(&mut self, time: Expr, ty: Type, precision: Precision) -> Typed {
        let expr = match time {
            Expr::Const(value) => Expr::Const(precision.keep(value)),
            time => {
                let modifier = i32::try_from(modifier_of(ty, precision)).unwrap_or(-1);
                Expr::Call(Function::Keep, vec![time, Expr::Const(Value::Int4(modifier))])
            }
        };
        Typed::new(expr, ty)
    }

    fn literal(&mut self, value: &ast::Value) -> Result<Typed> {
        use ast::Value as V;
        Ok(match value {
            V::Number(digits, false) => number(digits)?,
            V::SingleQuotedString(text) | V::EscapedStringLiteral(text) | V::UnicodeStringLiteral(text) => {
                Typed { expr: Expr::Const(Value::text(text.clone())), ty: None }
            }
            V::DollarQuotedString(text) => {
                Typed { expr: Expr::Const(Value::text(text.value.clone())), ty: None }
            }
            V::Boolean(truth) => Typed::new(Expr::Const(Value::Bool(*truth)), Type::BOOL),
            V::Null => Typed { expr: Expr::Const(Value::Null), ty: None },
            V::Placeholder(name) => {
                let (index, ty) = self.planner.params.find(name)?;
                Typed { expr: Expr::Param(index), ty }
            }
            other => return Err(unsupported(format!("the literal {other}"))),
        })
    }

    fn row_is_null(&mut self, row: &[ast::Expr], negated: bool) -> Result<Typed> {
        let mut all = Vec::with_capacity(row.len());
        for column in row {
            all.push(Expr::IsNull(Box::new(self.bind_closed(column)?.0), negated));
        }
        Ok(Typed::new(Expr::And(all), Type::BOOL))
    }

    fn is(&mut self, inner: &ast::Expr, wanted: Option<bool>, negated: bool) -> Result<Typed> {
        let inner = self.bind_as(inner, Type::BOOL, Strength::Implicit)?;
        Ok(Typed::new(Expr::Is(Box::new(inner), wanted, negated), Type::BOOL))
    }

    fn distinct(&mut self, left: &ast::Expr, right: &ast::Expr, negated: bool) -> Result<Typed> {
        let pair = vec![self.bind(left)?, self.bind(right)?];
        let (pair, ty) = self.unified(pair, "IS DISTINCT FROM")?;
        ordered(ty, "IS DISTINCT FROM")?;
        let [left, right] = <[Expr; 2]>::try_from(pair).map_err(|_| crate::expr::bug("two sides"))?;
        Ok(Typed::new(Expr::Distinct(Box::new(left), Box::new(right), negated), Type::BOOL))
    }

    fn condition_part(&mut self, expr: &ast::Expr, op: &BinaryOperator) -> Result<Expr> {
        let bound = self.bind(expr)?;
        if bound.ty.is_some_and(|ty| ty != Type::BOOL) {
            let message = format!("argument of {op} must be type boolean, not type {}", shown(bound.ty));
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        self.settle(bound, Type::BOOL, Strength::Implicit)
    }

    /// Converts all expressions to one common type.
    pub(crate) fn unified(&mut self, all: Vec<Typed>, what: &str) -> Result<(Vec<Expr>, Type)> {
        let ty = self.common_type(&all, what)?;
        let settled: Result<Vec<_>> =
            all.into_iter().map(|bound| self.settle(bound, ty, Strength::Implicit)).collect();
        Ok((settled?, ty))
    }

    /// The common type of all expressions.
    ///
    /// # Errors
    /// 42804: they have none.
    pub(crate) fn common_type<'t>(
        &mut self,
        all: impl IntoIterator<Item = &'t Typed> + Clone,
        what: &str,
    ) -> Result<Type> {
        let mut ty: Option<Type> = None;
        for found in all.clone().into_iter().filter_map(|bound| bound.ty) {
            ty = Some(match ty {
                None => found,
                Some(ty) => common(ty, found).ok_or_else(|| {
                    let message = format!(
                        "{what} types {} and {} cannot be matched",
                        self.planner.shown(Some(ty)),
                        self.planner.shown(Some(found))
                    );
                    SqlError::new(state::DATATYPE_MISMATCH, message)
                })?,
            });
        }
        let is_given = |bound: &Typed| bound.ty.is_some() || bound.expr == Expr::Const(Value::Null);
        let ty = ty.unwrap_or(Type::TEXT);
        Ok(if all.into_iter().all(is_given) { ty } else { unmodified(ty) })
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed> {
        let operand = operand.map(|operand| self.bind(operand)).transpose()?;
        let (mut whens, mut results) = (Vec::new(), Vec::new());
        for when in conditions {
            whens.push(match &operand {
                Some(operand) => {
                    let value = self.bind(&when.condition)?;
                    self.compare(Compare::Eq, operand.clone(), value)?
                }
                None => self.condition(&when.condition)?,
            });
            results.push(self.bind(&when.result)?);
        }
        if let Some(otherwise) = otherwise {
            results.push(self.bind(otherwise)?);
        }
        let (mut results, ty) = self.unified(results, "CASE")?;
        let otherwise = if otherwise.is_some() { results.pop().map(Box::new) } else { None };
        Ok(Typed::new(Expr::Case(whens.into_iter().zip(results).collect(), otherwise), ty))
    }
}

pub(crate) fn negated_if(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

/// Rejects types without an order, which have no equality either.
pub(crate) fn ordered(ty: Type, symbol: &str) -> Result<()> {
    if ty.is_ordered() { Ok(()) } else { Err(no_operator(symbol, Some(ty), Some(ty))) }
}

fn mismatch(found: &str, ty: &str, strength: Strength) -> SqlError {
    match strength {
        Strength::Explicit => {
            SqlError::new(state::CANNOT_COERCE, format!("cannot cast type {found} to {ty}"))
        }
        _ => SqlError::new(
            state::DATATYPE_MISMATCH,
            format!("an expression of type {found} where {ty} is needed"),
        )
        .hint("you might need to add an explicit cast"),
    }
}

/// True for a condition with a part that is never true. Such a part removes the others with their errors, as in PostgreSQL:
/// `1 / x BETWEEN NULL AND 5` divides nothing.
fn is_never_true(condition: &Expr) -> bool {
    match condition {
        Expr::And(parts) => parts.iter().any(is_never_true),
        Expr::Const(Value::Bool(false)) => true,
        other => other.is_null(),
    }
}
