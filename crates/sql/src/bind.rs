//! From sqlparser's tree of an expression to ours: names become places, types are settled, casts put in.
//!
//! A literal in quotes, NULL and a parameter have no type of their own: they take that of what they meet, as in PostgreSQL.
//! Nothing of the tree is passed over: a form that is not handled is an error that names it.

use ropewalk::tables::{Numeric, Type, Value};
use sqlparser::ast;
use sqlparser::ast::{BinaryOperator, UnaryOperator};

use crate::aggregate::{self, Aggregate};
use crate::arith::{Arith, Compare};
use crate::array_query::gathered;
use crate::bind_catalog::{is_vector, plus_one, qualified};
use crate::cast::{Strength, allowed};
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::function::{self, element_of};
use crate::like::{Like, compile};
use crate::plan::Planner;
use crate::scope::{Scope, folded, no_operator, parts, unknown_column};
use crate::text::from_text;
use crate::types::{self, common, is_integer, is_numeric, rank, shown, type_name};

/// Deepest nesting of an expression.
const DEPTH_MAX: usize = 200;

/// A bound expression with its type; `None` while it takes that of what it meets.
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
    /// Where aggregates go; `None` where there may be none.
    pub(crate) aggregates: Option<&'b mut Vec<Aggregate>>,
    /// The clause, for messages.
    pub(crate) clause: &'static str,
    depth: usize,
}

pub(crate) fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "rewrite the expression without it")
}

pub(crate) fn comparison(op: &BinaryOperator) -> Option<Compare> {
    Some(match op {
        BinaryOperator::Eq => Compare::Eq,
        BinaryOperator::NotEq => Compare::Ne,
        BinaryOperator::Lt => Compare::Lt,
        BinaryOperator::LtEq => Compare::Le,
        BinaryOperator::Gt => Compare::Gt,
        BinaryOperator::GtEq => Compare::Ge,
        _ => return None,
    })
}

fn arithmetic(op: &BinaryOperator) -> Option<Arith> {
    Some(match op {
        BinaryOperator::Plus => Arith::Add,
        BinaryOperator::Minus => Arith::Sub,
        BinaryOperator::Multiply => Arith::Mul,
        BinaryOperator::Divide => Arith::Div,
        BinaryOperator::Modulo => Arith::Rem,
        BinaryOperator::BitwiseAnd => Arith::BitAnd,
        BinaryOperator::BitwiseOr => Arith::BitOr,
        BinaryOperator::PGBitwiseXor => Arith::BitXor,
        BinaryOperator::PGBitwiseShiftLeft => Arith::ShiftLeft,
        BinaryOperator::PGBitwiseShiftRight => Arith::ShiftRight,
        _ => return None,
    })
}

/// The value of a number as it is written.
fn number(digits: &str) -> Result<Typed> {
    if let Ok(small) = digits.parse::<i32>() {
        return Ok(Typed::new(Expr::Const(Value::Int4(small)), Type::INT4));
    }
    if let Ok(wide) = digits.parse::<i64>() {
        return Ok(Typed::new(Expr::Const(Value::Int8(wide)), Type::INT8));
    }
    let exact: Numeric = digits.parse().map_err(|_| {
        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("{digits} is out of range for type numeric"))
            .hint("numerics have at most 38 digits")
    })?;
    Ok(Typed::new(Expr::Const(Value::Numeric(exact)), Type::NUMERIC))
}

impl<'b, 'a> Binder<'b, 'a> {
    pub(crate) fn new(planner: &'b mut Planner<'a>, scope: &'b Scope, clause: &'static str) -> Self {
        Self { planner, scope, aggregates: None, clause, depth: 0 }
    }

    pub(crate) fn with_aggregates(mut self, aggregates: &'b mut Vec<Aggregate>) -> Self {
        self.aggregates = Some(aggregates);
        self
    }

    /// Binds an expression.
    ///
    /// # Errors
    /// Unknown names, types that do not fit, forms that are not supported, nesting that is too deep.
    pub(crate) fn bind(&mut self, expr: &ast::Expr) -> Result<Typed> {
        if self.depth >= DEPTH_MAX {
            let message = format!("an expression nested deeper than {DEPTH_MAX}");
            return Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, message));
        }
        self.depth += 1;
        let bound = self.bind_one(expr);
        self.depth -= 1;
        bound
    }

    /// Binds a condition.
    pub(crate) fn condition(&mut self, expr: &ast::Expr) -> Result<Expr> {
        let bound = self.bind(expr)?;
        if bound.ty.is_some_and(|ty| ty != Type::BOOL) {
            let message =
                format!("argument of {} must be type boolean, not type {}", self.clause, shown(bound.ty));
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        self.settle(bound, Type::BOOL, Strength::Implicit)
    }

    /// Binds and casts to `ty`.
    pub(crate) fn bind_as(&mut self, expr: &ast::Expr, ty: Type, strength: Strength) -> Result<Expr> {
        let bound = self.bind(expr)?;
        self.settle(bound, ty, strength)
    }

    /// Binds; what is still open becomes text.
    pub(crate) fn bind_closed(&mut self, expr: &ast::Expr) -> Result<(Expr, Type)> {
        let bound = self.bind(expr)?;
        let ty = bound.ty.unwrap_or(Type::TEXT);
        Ok((self.settle(bound, ty, Strength::Implicit)?, ty))
    }

    /// The expression as one of type `ty`.
    ///
    /// # Errors
    /// 42804 when there is no such cast, or what a literal answers.
    pub(crate) fn settle(&mut self, bound: Typed, ty: Type, strength: Strength) -> Result<Expr> {
        let Typed { expr, ty: found } = bound;
        match (found, expr) {
            (None, Expr::Const(Value::Text(text))) => Ok(Expr::Const(from_text(&text, ty)?)),
            (None, Expr::Param(index)) => {
                let settled = self.planner.params.settle(index, ty);
                self.settle(Typed::new(Expr::Param(index), settled), ty, strength)
            }
            (None, expr) => Ok(expr),
            (Some(found), expr) if found == ty || is_numeric(found) && ty == Type::NUMERIC => Ok(expr),
            (Some(found), expr) if allowed(found, ty, strength) => Ok(match expr {
                // Widened here, so that it is not for every row.
                Expr::Const(value) if strength == Strength::Implicit => {
                    Expr::Const(crate::cast::cast(value, ty)?.into_owned())
                }
                expr => Expr::Cast(Box::new(expr), ty),
            }),
            (Some(found), _) => Err(mismatch(found, ty, strength)),
        }
    }

    fn bind_one(&mut self, expr: &ast::Expr) -> Result<Typed> {
        use ast::Expr as E;
        let boolean = |expr| Ok(Typed::new(expr, Type::BOOL));
        match expr {
            E::Identifier(ident) => self.column(None, &folded(ident)),
            E::CompoundIdentifier(idents) => match idents.as_slice() {
                [relation, column] => self.column(Some(&folded(relation)), &folded(column)),
                [schema, relation, column]
                    if matches!(folded(schema).as_str(), "public" | "pg_catalog" | "information_schema") =>
                {
                    self.column(Some(&folded(relation)), &folded(column))
                }
                _ => Err(unsupported(format!("the name {expr}"))),
            },
            E::Value(value) => self.literal(&value.value),
            E::Nested(inner) => self.bind(inner),
            E::TypedString(typed) => {
                let ty = types::plain(&typed.data_type)?;
                let bound = self.literal(&typed.value.value)?;
                Ok(Typed::new(self.settle(bound, ty, Strength::Explicit)?, ty))
            }
            E::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr: inner,
                data_type,
                array: false,
                format: None,
            } => {
                if let Some(cast) = self.object_cast(inner, data_type)? {
                    return Ok(cast);
                }
                let ty = types::plain(data_type)?;
                Ok(Typed::new(self.bind_as(inner, ty, Strength::Explicit)?, ty))
            }
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
            E::InList { expr: inner, list, negated } => {
                let mut all = vec![self.bind(inner)?];
                for item in list {
                    all.push(self.bind(item)?);
                }
                let (mut all, ty) = self.unified(all, "IN")?;
                ordered(ty, "=")?;
                let first = if all.is_empty() { Expr::Const(Value::Null) } else { all.remove(0) };
                boolean(negated_if(*negated, Expr::In(Box::new(first), all)))
            }
            E::InSubquery { .. } | E::Exists { .. } | E::Subquery(_) if self.planner.is_small => {
                self.inner(expr)
            }
            E::Collate { expr: inner, collation } => self.collated(inner, collation),
            E::InSubquery { expr: inner, subquery, negated } => {
                let (number, ty) = self.planner.subquery(subquery, self.scope, true)?;
                let bound = self.bind(inner)?;
                let together = bound.ty.map_or(Some(ty), |found| common(found, ty));
                let together = together.ok_or_else(|| no_operator("=", bound.ty, Some(ty)))?;
                if self.planner.whole.is_some() {
                    // Both sides are brought together where the engine compares them.
                    let inner = match bound.ty {
                        None => self.settle(bound, ty, Strength::Implicit)?,
                        Some(_) => bound.expr,
                    };
                    return boolean(negated_if(*negated, Expr::InSubquery(Box::new(inner), number)));
                }
                if together != ty {
                    self.planner.cast_subquery(number, together);
                }
                let ty = together;
                let inner = Box::new(self.settle(bound, ty, Strength::Implicit)?);
                boolean(negated_if(*negated, Expr::InSubquery(inner, number)))
            }
            E::Exists { subquery, negated } => {
                let number = self.planner.exists(subquery, self.scope)?;
                boolean(negated_if(*negated, Expr::Subquery(number)))
            }
            E::Subquery(query) => {
                let (number, ty) = self.planner.subquery(query, self.scope, false)?;
                Ok(Typed::new(Expr::Subquery(number), ty))
            }
            E::Between { expr: inner, negated, low, high } => {
                let value = self.bind(inner)?;
                let (low, high) = (self.bind(low)?, self.bind(high)?);
                let low = self.compare(Compare::Ge, value.clone(), low)?;
                let high = self.compare(Compare::Le, value, high)?;
                boolean(negated_if(*negated, Expr::And(vec![low, high])))
            }
            E::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
                // A long chain leans to the left; it is walked, not followed down.
                let (mut parts, mut rest) = (Vec::new(), expr);
                while let E::BinaryOp { left, op: same, right } = rest
                    && same == op
                {
                    parts.push(self.condition_part(right, op)?);
                    rest = left;
                }
                parts.push(self.condition_part(rest, op)?);
                parts.reverse();
                boolean(if *op == BinaryOperator::And { Expr::And(parts) } else { Expr::Or(parts) })
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
            E::AnyOp { left, compare_op, right, is_some: _ } => self.any_all(left, compare_op, right, false),
            E::AllOp { left, compare_op, right } => self.any_all(left, compare_op, right, true),
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            E::Function(function) => self.function(function),
            E::Extract { field, syntax: _, expr: inner } => {
                if let Some(seconds) = self.seconds_between(field, inner)? {
                    return Ok(seconds);
                }
                let value = self.bind(inner)?;
                let field =
                    Typed::new(Expr::Const(Value::text(field.to_string().to_lowercase())), Type::TEXT);
                self.call("extract", vec![field, value])
            }
            E::Ceil {
                expr: inner,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => {
                let value = self.bind(inner)?;
                self.call("ceil", vec![value])
            }
            E::Floor {
                expr: inner,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => {
                let value = self.bind(inner)?;
                self.call("floor", vec![value])
            }
            E::Position { expr: inner, r#in } => {
                let (part, whole) = (self.bind(inner)?, self.bind(r#in)?);
                self.call("strpos", vec![whole, part])
            }
            E::Substring { expr: inner, substring_from, substring_for, special: _, shorthand: _ } => {
                let mut arguments = vec![self.bind(inner)?];
                arguments.push(match substring_from {
                    Some(from) => self.bind(from)?,
                    None => number("1")?,
                });
                if let Some(length) = substring_for {
                    arguments.push(self.bind(length)?);
                }
                self.call("substr", arguments)
            }
            E::Trim { trim_where, trim_what, expr: inner, trim_characters } => {
                let mut arguments = vec![self.bind(inner)?];
                match (trim_what, trim_characters.as_deref()) {
                    (Some(what), None) => arguments.push(self.bind(what)?),
                    (None, Some([what])) => arguments.push(self.bind(what)?),
                    (None, None) => {}
                    _ => return Err(unsupported(expr)),
                }
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    Some(ast::TrimWhereField::Both) | None => "btrim",
                };
                self.call(name, arguments)
            }
            E::AtTimeZone { timestamp, time_zone } => self.at_time_zone(timestamp, time_zone),
            E::Array(ast::Array { elem, named: true }) => {
                let parts: Result<Vec<_>> = elem.iter().map(|part| self.bind(part)).collect();
                let (parts, ty) = self.unified(parts?, "ARRAY")?;
                let element = element_of(ty).ok_or_else(|| unsupported("an array of arrays"))?;
                Ok(Typed::new(Expr::ArrayOf(element, parts), Type::Array(element)))
            }
            E::CompoundFieldAccess { root, access_chain } => match access_chain.as_slice() {
                [ast::AccessExpr::Subscript(ast::Subscript::Index { index })] => {
                    let bound = self.bind(root)?;
                    if bound.ty == Some(Type::TEXT) && self.planner.is_small {
                        return self.letter_of(bound, index);
                    }
                    let Some(Type::Array(element)) = bound.ty else {
                        let message = format!("cannot subscript type {}", shown(bound.ty));
                        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                    };
                    let from_zero = self.planner.is_small && is_vector(root);
                    let mut index = self.bind_as(index, Type::INT4, Strength::Assignment)?;
                    if from_zero {
                        index = plus_one(index);
                    }
                    let expr = Expr::Subscript(Box::new(bound.expr), Box::new(index));
                    Ok(Typed::new(expr, Type::Scalar(element)))
                }
                _ => Err(unsupported(expr)),
            },
            other => Err(unsupported(format!("the expression {other}"))),
        }
    }

    fn column(&mut self, relation: Option<&str>, name: &str) -> Result<Typed> {
        if let Some((index, ty)) = self.scope.find(relation, name)? {
            return Ok(Typed::new(Expr::Column(index), ty));
        }
        for (depth, outer) in self.planner.outer.iter().rev().enumerate() {
            if let Some((index, ty)) = outer.find(relation, name)? {
                if self.planner.whole.is_some() || self.planner.is_small {
                    return Ok(Typed::new(Expr::Outer(depth, index), ty));
                }
                return Err(SqlError::unsupported(
                    format!("a subquery that reads \"{name}\" of the query around it"),
                    "write it as a join",
                ));
            }
        }
        match relation {
            Some(relation) if !self.scope.knows(relation) => {
                let message = format!("missing FROM-clause entry for table \"{relation}\"");
                Err(SqlError::new(state::UNDEFINED_TABLE, message))
            }
            _ => Err(unknown_column(relation, name)),
        }
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

    /// All as the one type that they have in common.
    fn unified(&mut self, all: Vec<Typed>, what: &str) -> Result<(Vec<Expr>, Type)> {
        let mut ty: Option<Type> = None;
        for found in all.iter().filter_map(|bound| bound.ty) {
            ty = Some(match ty {
                None => found,
                Some(ty) => common(ty, found).ok_or_else(|| {
                    let message =
                        format!("{what} types {} and {} cannot be matched", type_name(ty), type_name(found));
                    SqlError::new(state::DATATYPE_MISMATCH, message)
                })?,
            });
        }
        let ty = ty.unwrap_or(Type::TEXT);
        let settled: Result<Vec<_>> =
            all.into_iter().map(|bound| self.settle(bound, ty, Strength::Implicit)).collect();
        Ok((settled?, ty))
    }

    /// `left op right`, both brought together.
    pub(crate) fn compare(&mut self, op: Compare, left: Typed, right: Typed) -> Result<Expr> {
        let together = match (left.ty, right.ty) {
            // Numbers compare by value whatever their types, so none needs a cast.
            (Some(a), Some(b)) if rank(a).is_some() && rank(b).is_some() => None,
            (Some(a), Some(b)) => {
                Some(common(a, b).ok_or_else(|| no_operator(op.symbol(), left.ty, right.ty))?)
            }
            (Some(ty), None) | (None, Some(ty)) => Some(ty),
            (None, None) => Some(Type::TEXT),
        };
        let (left, right) = match together {
            None => (left.expr, right.expr),
            Some(ty) => {
                ordered(ty, op.symbol())?;
                // A number's literal in quotes is read as the widest of its kind: no limit rounds it.
                let ty = if is_numeric(ty) { Type::NUMERIC } else { ty };
                (self.settle(left, ty, Strength::Implicit)?, self.settle(right, ty, Strength::Implicit)?)
            }
        };
        Ok(Expr::Compare(op, Box::new(left), Box::new(right)))
    }

    fn binary(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Typed> {
        use BinaryOperator as B;
        if let (Some(op), ast::Expr::Tuple(lefts), ast::Expr::Tuple(rights)) = (comparison(op), left, right) {
            return self.tuples(op, lefts, rights);
        }
        let plain = qualified(op);
        let op = plain.as_ref().unwrap_or(op);
        if let Some(bound) = self.with_interval(left, op, right)? {
            return Ok(bound);
        }
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        if let Some(op) = comparison(op) {
            return Ok(Typed::new(self.compare(op, left, right)?, Type::BOOL));
        }
        if let Some(op) = arithmetic(op) {
            return self.arithmetic(op, left, right);
        }
        match op {
            B::StringConcat
                if [left.ty, right.ty].iter().flatten().any(|ty| matches!(ty, Type::Array(_))) =>
            {
                let scalar = |ty: Option<Type>| matches!(ty, Some(Type::Scalar(_)));
                let name = match (left.ty, right.ty) {
                    (a, _) if scalar(a) => "array_prepend",
                    (_, b) if scalar(b) => "array_append",
                    _ => "array_cat",
                };
                self.call(name, vec![left, right])
            }
            B::ArrowAt => self.call("*contained", vec![left, right]),
            B::PGOverlap => self.call("*overlaps", vec![left, right]),
            B::HashArrow => self.call("*path", vec![left, right]),
            B::HashLongArrow => self.call("*path_text", vec![left, right]),
            B::StringConcat => {
                let texts = [left.ty, right.ty].iter().flatten().any(|ty| *ty == Type::TEXT)
                    || left.ty.is_none() && right.ty.is_none();
                if !texts
                    && (left.ty.is_some() && right.ty.is_some()
                        || [left.ty, right.ty].iter().flatten().any(|ty| matches!(ty, Type::Array(_))))
                {
                    return Err(no_operator("||", left.ty, right.ty));
                }
                let left = self.settle(left, Type::TEXT, Strength::Assignment)?;
                let right = self.settle(right, Type::TEXT, Strength::Assignment)?;
                Ok(Typed::new(Expr::Concat(Box::new(left), Box::new(right)), Type::TEXT))
            }
            B::PGRegexMatch | B::PGRegexIMatch | B::PGRegexNotMatch | B::PGRegexNotIMatch => {
                let fold = matches!(op, B::PGRegexIMatch | B::PGRegexNotIMatch);
                let negated = matches!(op, B::PGRegexNotMatch | B::PGRegexNotIMatch);
                let text = Box::new(self.settle(left, Type::TEXT, Strength::Implicit)?);
                let matches = match self.settle(right, Type::TEXT, Strength::Implicit)? {
                    Expr::Const(Value::Text(pattern)) => Expr::Matches(text, compile(&pattern, fold)?),
                    pattern => Expr::MatchesOf(text, Box::new(pattern), fold),
                };
                Ok(Typed::new(negated_if(negated, matches), Type::BOOL))
            }
            B::Arrow | B::LongArrow => {
                let symbol = if *op == B::Arrow { "->" } else { "->>" };
                let step = match right.ty {
                    Some(ty) if is_integer(ty) => right.expr,
                    None | Some(Type::TEXT) => self.settle(right.clone(), Type::TEXT, Strength::Implicit)?,
                    _ => return Err(no_operator(symbol, left.ty, right.ty)),
                };
                if left.ty.is_some_and(|ty| ty != Type::JSON) {
                    return Err(no_operator(symbol, left.ty, right.ty));
                }
                let document = Box::new(self.settle(left, Type::JSON, Strength::Implicit)?);
                let as_text = *op == B::LongArrow;
                let ty = if as_text { Type::TEXT } else { Type::JSON };
                Ok(Typed::new(Expr::Json(document, Box::new(step), as_text), ty))
            }
            B::AtArrow => self.contains(left, right),
            B::PGExp => self.call("power", vec![left, right]),
            B::PGStartsWith => self.call("starts_with", vec![left, right]),
            other => Err(unsupported(format!("the operator {other}"))),
        }
    }

    /// `array @> array`: every element of the right one is among those of the left one.
    fn contains(&mut self, left: Typed, right: Typed) -> Result<Typed> {
        let ty = match (left.ty, right.ty) {
            (Some(ty @ Type::Array(_)), None) => ty,
            (Some(ty @ Type::Array(_)), Some(other)) if ty == other => ty,
            _ => return Err(no_operator("@>", left.ty, right.ty)),
        };
        let (array, wanted) =
            (self.settle(left, ty, Strength::Implicit)?, self.settle(right, ty, Strength::Implicit)?);
        let items: Vec<Expr> = match wanted {
            Expr::ArrayOf(_, items) => items,
            Expr::Const(Value::Array(items)) => {
                let items: std::result::Result<Vec<_>, _> =
                    items.iter().map(|item| item.map(|item| Expr::Const(item.into_owned()))).collect();
                items.map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?
            }
            wanted => {
                return self.call("*contains", vec![Typed::new(array, ty), Typed::new(wanted, ty)]);
            }
        };
        let among = |item| Expr::Any(Compare::Eq, Box::new(item), Box::new(array.clone()), false);
        let mut all: Vec<Expr> = items.into_iter().map(among).collect();
        // What contains nothing more is still no NULL.
        all.push(Expr::IsNull(Box::new(array.clone()), true));
        Ok(Typed::new(Expr::And(all), Type::BOOL))
    }

    /// `(a, b) = (c, d)`, and `<>`; the orders of rows as what they mean column by column.
    fn tuples(&mut self, op: Compare, lefts: &[ast::Expr], rights: &[ast::Expr]) -> Result<Typed> {
        if lefts.len() != rights.len() || lefts.is_empty() {
            return Err(SqlError::new(state::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        let mut pairs = Vec::new();
        for (left, right) in lefts.iter().zip(rights) {
            pairs.push((self.bind(left)?, self.bind(right)?));
        }
        let expr = match op {
            Compare::Eq | Compare::Ne => {
                let each: Result<Vec<_>> =
                    pairs.into_iter().map(|(l, r)| self.compare(Compare::Eq, l, r)).collect();
                negated_if(op == Compare::Ne, Expr::And(each?))
            }
            _ => {
                // a < c OR (a = c AND (b < d OR ...)), from the last column on.
                let strict = if matches!(op, Compare::Lt | Compare::Le) { Compare::Lt } else { Compare::Gt };
                let mut whole: Option<Expr> = None;
                for (left, right) in pairs.into_iter().rev() {
                    whole = Some(match whole {
                        None => self.compare(op, left, right)?,
                        Some(rest) => {
                            let before = self.compare(strict, left.clone(), right.clone())?;
                            let equal = self.compare(Compare::Eq, left, right)?;
                            Expr::Or(vec![before, Expr::And(vec![equal, rest])])
                        }
                    });
                }
                whole.ok_or_else(|| crate::expr::bug("a row without columns"))?
            }
        };
        Ok(Typed::new(expr, Type::BOOL))
    }

    fn arithmetic(&mut self, op: Arith, left: Typed, right: Typed) -> Result<Typed> {
        let error = no_operator(op.symbol(), left.ty, right.ty);
        let plain = |ty: Type| if is_numeric(ty) { Type::NUMERIC } else { ty };
        match (left.ty, right.ty, op) {
            (Some(Type::DATE), Some(Type::INT2 | Type::INT4), Arith::Add | Arith::Sub) => {
                let expr = Expr::Arith(op, Type::DATE, Box::new(left.expr), Box::new(right.expr));
                return Ok(Typed::new(expr, Type::DATE));
            }
            (Some(Type::INT2 | Type::INT4), Some(Type::DATE), Arith::Add) => {
                let expr = Expr::Arith(op, Type::DATE, Box::new(right.expr), Box::new(left.expr));
                return Ok(Typed::new(expr, Type::DATE));
            }
            (Some(Type::DATE), Some(Type::DATE), Arith::Sub) => {
                let expr = Expr::Arith(op, Type::INT4, Box::new(left.expr), Box::new(right.expr));
                return Ok(Typed::new(expr, Type::INT4));
            }
            _ => {}
        }
        let ty = match (left.ty, right.ty) {
            (Some(a), Some(b)) => match (rank(a), rank(b)) {
                // A single with anything but a single is a double, as in PostgreSQL.
                (Some(x), Some(y)) if x.max(y) == 4 && x != y => Type::FLOAT8,
                (Some(_), Some(_)) => plain(common(a, b).ok_or(error.clone())?),
                _ => return Err(error),
            },
            (Some(ty), None) | (None, Some(ty)) if rank(ty).is_some() => plain(ty),
            _ => return Err(error),
        };
        if op.is_bitwise() && !is_integer(ty) || op == Arith::Rem && matches!(ty, Type::FLOAT4 | Type::FLOAT8)
        {
            return Err(error);
        }
        // A shift is of the type of what is shifted.
        let ty = match (op, left.ty) {
            (Arith::ShiftLeft | Arith::ShiftRight, Some(left)) => left,
            _ => ty,
        };
        let left = self.settle(left, ty, Strength::Implicit)?;
        let right = match op {
            Arith::ShiftLeft | Arith::ShiftRight => right.expr,
            _ => self.settle(right, ty, Strength::Implicit)?,
        };
        Ok(Typed::new(Expr::Arith(op, ty, Box::new(left), Box::new(right)), ty))
    }

    fn unary(&mut self, op: &UnaryOperator, inner: &ast::Expr) -> Result<Typed> {
        if let (UnaryOperator::Minus, ast::Expr::Value(value)) = (op, inner)
            && let ast::Value::Number(digits, false) = &value.value
        {
            return number(&format!("-{digits}"));
        }
        let bound = self.bind(inner)?;
        match op {
            UnaryOperator::Not => {
                if bound.ty.is_some_and(|ty| ty != Type::BOOL) {
                    let message =
                        format!("argument of NOT must be type boolean, not type {}", shown(bound.ty));
                    return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                }
                let inner = self.settle(bound, Type::BOOL, Strength::Implicit)?;
                Ok(Typed::new(Expr::Not(Box::new(inner)), Type::BOOL))
            }
            UnaryOperator::Plus | UnaryOperator::Minus => {
                let ty = bound.ty.unwrap_or(Type::FLOAT8);
                if rank(ty).is_none() {
                    let message = format!("operator does not exist: {op} {}", type_name(ty));
                    return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
                }
                let ty = if is_numeric(ty) { Type::NUMERIC } else { ty };
                let inner = self.settle(bound, ty, Strength::Implicit)?;
                let negated = *op == UnaryOperator::Minus;
                Ok(Typed::new(if negated { Expr::Negate(Box::new(inner)) } else { inner }, ty))
            }
            UnaryOperator::PGAbs => self.call("abs", vec![bound]),
            UnaryOperator::PGSquareRoot => self.call("sqrt", vec![bound]),
            other => Err(unsupported(format!("the operator {other}"))),
        }
    }

    fn like(
        &mut self,
        inner: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
        fold: bool,
    ) -> Result<Expr> {
        let bad = || {
            SqlError::new(state::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                .hint("the escape string is empty or one character")
        };
        let escape = match escape.map(|value| &value.value) {
            None => Some('\\'),
            Some(ast::Value::SingleQuotedString(text)) => {
                let mut chars = text.chars();
                let first = chars.next();
                if chars.next().is_some() {
                    return Err(bad());
                }
                first
            }
            Some(_) => return Err(bad()),
        };
        let bound = self.bind(inner)?;
        let pattern = self.bind(pattern)?;
        if [bound.ty, pattern.ty].iter().flatten().any(|ty| *ty != Type::TEXT) {
            return Err(no_operator(if fold { "~~*" } else { "~~" }, bound.ty, pattern.ty));
        }
        let text = Box::new(self.settle(bound, Type::TEXT, Strength::Implicit)?);
        Ok(match self.settle(pattern, Type::TEXT, Strength::Implicit)? {
            Expr::Const(Value::Text(pattern)) => Expr::Like(text, Like::new(&pattern, escape, fold)?),
            pattern => Expr::LikeOf(text, Box::new(pattern), escape, fold),
        })
    }

    fn any_all(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        let word = if all { "ALL" } else { "ANY" };
        let op = comparison(op).ok_or_else(|| unsupported(format!("{op} {word}")))?;
        let right = match right {
            ast::Expr::Nested(inner) => inner,
            other => other,
        };
        if let ast::Expr::Subquery(query) = right {
            if self.planner.is_small {
                return self.any_of(left, op, query, all);
            }
            if op == Compare::Eq && !all {
                let (number, ty) = self.planner.subquery(query, self.scope, true)?;
                let inner = Box::new(self.bind_as(left, ty, Strength::Implicit)?);
                return Ok(Typed::new(Expr::InSubquery(inner, number), Type::BOOL));
            }
            return Err(unsupported(format!("{} {word} (subquery)", op.symbol())));
        }
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        let element = match (left.ty, right.ty) {
            (_, Some(Type::Array(element))) => Type::Scalar(element),
            (Some(Type::Scalar(scalar)), None) => Type::Scalar(scalar),
            _ => {
                let message = format!("op {word} (array) requires array on right side");
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
        };
        let array = self.settle(right, element.array(), Strength::Implicit)?;
        let left = match left.ty {
            Some(ty) if rank(ty).is_some() && rank(element).is_some() => left.expr,
            _ => self.settle(left, element, Strength::Implicit)?,
        };
        Ok(Typed::new(Expr::Any(op, Box::new(left), Box::new(array), all), Type::BOOL))
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

    fn function(&mut self, function: &ast::Function) -> Result<Typed> {
        let name = match parts(&function.name)?.as_slice() {
            [name] => name.clone(),
            [schema, name] if schema == "pg_catalog" || schema == "information_schema" => name.clone(),
            _ => return Err(unsupported(format!("the function {}", function.name))),
        };
        let ast::Function {
            name: _,
            uses_odbc_syntax: false,
            parameters: ast::FunctionArguments::None,
            args,
            filter,
            null_treatment: None,
            over,
            within_group,
        } = function
        else {
            return Err(unsupported(format!("the call {function}")));
        };
        if !within_group.is_empty() && (over.is_some() || !aggregate::is_of_ordered_set(&name)) {
            return Err(unsupported(format!("the call {function}")));
        }
        if let Some(over) = over {
            return self.window(&name, function, over);
        }
        let none =
            ast::FunctionArgumentList { duplicate_treatment: None, args: Vec::new(), clauses: Vec::new() };
        let list = match args {
            ast::FunctionArguments::None => &none,
            ast::FunctionArguments::List(list) => list,
            ast::FunctionArguments::Subquery(query) if name == "array" && self.planner.is_small => {
                return self.array_of(query);
            }
            ast::FunctionArguments::Subquery(query) if name == "array" && filter.is_none() => {
                return self.bind(&ast::Expr::Subquery(Box::new(gathered(query)?)));
            }
            ast::FunctionArguments::Subquery(_) => return Err(unsupported(format!("the call {function}"))),
        };
        if aggregate::is_aggregate(&name) {
            return self.aggregate(&name, list, filter.as_deref(), within_group);
        }
        if filter.is_some() || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
            return Err(unsupported(format!("the call {function}")));
        }
        let mut arguments = Vec::new();
        for argument in &list.args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push(self.bind(expr)?)
                }
                other => return Err(unsupported(format!("the argument {other}"))),
            }
        }
        self.call(&name, arguments)
    }

    /// A call by name.
    pub(crate) fn call(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed> {
        let now = || Box::new(Expr::Call(function::Function::Now, Vec::new()));
        match (name, arguments.as_slice()) {
            ("coalesce", [_, ..]) => {
                let (parts, ty) = self.unified(arguments, "COALESCE")?;
                return Ok(Typed::new(Expr::Coalesce(parts), ty));
            }
            ("nullif", [left, right]) => {
                let ty = left.ty.or(right.ty).unwrap_or(Type::TEXT);
                let equal = self.compare(Compare::Eq, left.clone(), right.clone())?;
                let left = self.settle(left.clone(), ty, Strength::Implicit)?;
                let whens = vec![(equal, Expr::Const(Value::Null))];
                return Ok(Typed::new(Expr::Case(whens, Some(Box::new(left))), ty));
            }
            ("current_date", []) => return Ok(Typed::new(Expr::Cast(now(), Type::DATE), Type::DATE)),
            ("localtimestamp", []) => {
                return Ok(Typed::new(Expr::Cast(now(), Type::TIMESTAMP), Type::TIMESTAMP));
            }
            ("localtime", []) => return Ok(Typed::new(Expr::Cast(now(), Type::TIME), Type::TIME)),
            ("version", []) => {
                let version = concat!("PostgreSQL 15.0 (Ropewalk ", env!("CARGO_PKG_VERSION"), ")");
                return Ok(Typed::new(Expr::Const(Value::text(version)), Type::TEXT));
            }
            ("set_config", [_, _, _]) => return self.set_config(arguments),
            ("current_schema", []) => return Ok(Typed::new(Expr::Const(Value::text("public")), Type::TEXT)),
            ("pg_typeof", [argument]) => {
                return Ok(Typed::new(Expr::Const(Value::text(shown(argument.ty))), Type::TEXT));
            }
            _ => {}
        }
        let types: Vec<Option<Type>> = arguments.iter().map(|argument| argument.ty).collect();
        let unknown = || {
            let types: Vec<String> = types.iter().map(|ty| shown(*ty)).collect();
            let message = format!("function {name}({}) does not exist", types.join(", "));
            SqlError::new(state::UNDEFINED_FUNCTION, message).hint(
                "no function matches the name and argument types; you might need to add explicit type casts",
            )
        };
        if crate::small::SetFunction::is_known(name) {
            return Err(unsupported(format!("{name} here, which answers rows")));
        }
        let Some(resolved) = function::resolve(name, &types) else {
            return self.catalog_call(name, arguments)?.ok_or_else(unknown);
        };
        // Functions that join texts take what there is; all others ask for their types.
        let strength =
            if matches!(name, "concat" | "concat_ws" | "format" | "quote_literal" | "quote_nullable") {
                Strength::Assignment
            } else {
                Strength::Implicit
            };
        let mut settled = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.into_iter().zip(&resolved.arguments) {
            let fits = argument.ty.is_none_or(|found| allowed(found, *ty, strength))
                || argument.ty == Some(Type::INT8) && *ty == Type::INT4;
            if !fits {
                return Err(unknown());
            }
            settled.push(self.settle(argument, *ty, Strength::Assignment)?);
        }
        let expr = Expr::Call(resolved.function, settled);
        Ok(match name {
            "date_part" => Typed::new(Expr::Cast(Box::new(expr), Type::FLOAT8), Type::FLOAT8),
            _ => Typed::new(expr, resolved.result),
        })
    }
}

pub(crate) fn negated_if(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

/// Refuses what has no order, and so no equality.
fn ordered(ty: Type, symbol: &str) -> Result<()> {
    if ty.is_ordered() { Ok(()) } else { Err(no_operator(symbol, Some(ty), Some(ty))) }
}

fn mismatch(found: Type, ty: Type, strength: Strength) -> SqlError {
    let (found, ty) = (type_name(found), type_name(ty));
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
