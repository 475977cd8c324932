//! Operators: binds both sides, then casts them to the types of the operator.

use ropewalk::tables::{Array, Type, Value};
use sqlparser::ast;
use sqlparser::ast::{BinaryOperator, UnaryOperator};

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::{Arith, Compare};
use crate::expr::cast::Strength;
use crate::expr::pattern::{Like, compile_kept, similar_pattern};
use crate::plan::array_query::gathered;
use crate::plan::bind::catalog::qualified;
use crate::plan::bind::scope::no_operator_of as no_operator;
use crate::plan::bind::{Binder, Typed, negated_if, number, ordered, unsupported};
use crate::plan::row_in_subquery::row_of;
use crate::types::names::{common, is_integer, rank, shown, type_name, unmodified};

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

impl Binder<'_, '_> {
    /// The error for two types that no operator combines.
    pub(crate) fn no_operator(&mut self, symbol: &str, left: Option<Type>, right: Option<Type>) -> SqlError {
        no_operator(symbol, &self.planner.shown(left), &self.planner.shown(right))
    }

    /// `left op right`, both converted to one type.
    pub(crate) fn compare(&mut self, op: Compare, left: Typed, right: Typed) -> Result<Expr> {
        let together = match (left.ty, right.ty) {
            // Numbers compare by value whatever their types, so none needs a cast.
            (Some(a), Some(b)) if rank(a).is_some() && rank(b).is_some() => None,
            (Some(a), Some(b)) => {
                Some(common(a, b).ok_or_else(|| self.no_operator(op.symbol(), left.ty, right.ty))?)
            }
            (Some(ty), None) | (None, Some(ty)) => Some(ty),
            (None, None) => Some(Type::TEXT),
        };
        let (left, right) = match together {
            None => (left.expr, right.expr),
            Some(ty) => {
                ordered(ty, op.symbol())?;
                // A number in quotes is read as the widest type of its kind, so that no limit rounds it.
                let ty = unmodified(ty);
                (self.settle(left, ty, Strength::Implicit)?, self.settle(right, ty, Strength::Implicit)?)
            }
        };
        Ok(Expr::Compare(op, Box::new(left), Box::new(right)).null_folded(Type::BOOL))
    }

    pub(crate) fn binary(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Typed> {
        use BinaryOperator as B;
        if let (B::Overlaps, Some(left), Some(right)) = (op, row_of(left), row_of(right)) {
            return self.times_overlap(&left, &right);
        }
        if let (Some(op), Some(lefts), Some(rights)) = (comparison(op), row_of(left), row_of(right)) {
            return self.tuples(op, &lefts, &rights);
        }
        let plain = qualified(op);
        let op = plain.as_ref().unwrap_or(op);
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        if let Some(op) = comparison(op) {
            return Ok(Typed::new(self.compare(op, left, right)?, Type::BOOL));
        }
        if let Some(bound) = self.jsonb_operator(&left, op, &right)? {
            return Ok(bound);
        }
        if let Some(bound) = self.inet_operator(&left, op, &right)? {
            return Ok(bound);
        }
        if let Some(op) = arithmetic(op) {
            if let Some(bound) = self.time_arithmetic(op, &left, &right)? {
                return Ok(bound);
            }
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
            B::StringConcat
                if [left.ty, right.ty].contains(&Some(Type::BYTEA))
                    && [left.ty, right.ty].iter().flatten().all(|ty| *ty == Type::BYTEA) =>
            {
                self.call("*bytes_concat", vec![left, right])
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
                    return Err(self.no_operator("||", left.ty, right.ty));
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
                    Expr::Const(Value::Text(pattern)) => {
                        let share = &self.planner.standing.shares.patterns;
                        Expr::Matches(text, compile_kept(&pattern, fold, share)?)
                    }
                    pattern => Expr::MatchesOf(text, Box::new(pattern), fold),
                };
                Ok(Typed::new(negated_if(negated, matches), Type::BOOL))
            }
            B::Arrow | B::LongArrow => {
                let symbol = if *op == B::Arrow { "->" } else { "->>" };
                let step = match right.ty {
                    Some(ty) if is_integer(ty) => right.expr,
                    None | Some(Type::TEXT) => self.settle(right.clone(), Type::TEXT, Strength::Implicit)?,
                    _ => return Err(self.no_operator(symbol, left.ty, right.ty)),
                };
                if left.ty.is_some_and(|ty| !matches!(ty, Type::JSON | Type::JSONB)) {
                    return Err(self.no_operator(symbol, left.ty, right.ty));
                }
                let of = left.ty.unwrap_or(Type::JSON);
                let document = Box::new(self.settle(left, of, Strength::Implicit)?);
                let as_text = *op == B::LongArrow;
                let ty = if as_text { Type::TEXT } else { of };
                Ok(Typed::new(Expr::Json(document, Box::new(step), as_text), ty))
            }
            B::AtArrow => self.call("*contains", vec![left, right]),
            B::PGExp => self.call("power", vec![left, right]),
            B::PGStartsWith => self.call("starts_with", vec![left, right]),
            other => Err(unsupported(format!("the operator {other}"))),
        }
    }

    /// `(a, b) = (c, d)`, and `<>`; ordering operators on rows are expanded column by column.
    pub(crate) fn tuples(&mut self, op: Compare, lefts: &[ast::Expr], rights: &[ast::Expr]) -> Result<Typed> {
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

    /// `(start, end) OVERLAPS (start, end)`; a length may replace an end.
    fn times_overlap(&mut self, left: &[ast::Expr], right: &[ast::Expr]) -> Result<Typed> {
        let mut bounds = Vec::with_capacity(4);
        for period in [left, right] {
            let [start, end] = period else {
                let message = "wrong number of parameters on OVERLAPS expression";
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            };
            let (start, mut end) = (self.bind(start)?, self.bind(end)?);
            if end.ty == Some(Type::INTERVAL)
                && let Some(sum) = self.time_arithmetic(Arith::Add, &start, &end)?
            {
                end = sum;
            }
            bounds.extend([start, end]);
        }
        let (bounds, ty) = self.unified(bounds, "OVERLAPS")?;
        if !matches!(ty, Type::DATE | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ) {
            let name = type_name(ty);
            let message =
                format!("function pg_catalog.overlaps({name}, {name}, {name}, {name}) does not exist");
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
        }
        let [a, b, c, d] = <[Expr; 4]>::try_from(bounds).map_err(|_| crate::expr::bug("two periods"))?;
        let typed = |expr: &Expr| Typed::new(expr.clone(), ty);
        let mut edge = |name: &str, x: &Expr, y: &Expr| self.call(name, vec![typed(x), typed(y)]);
        // A period that lacks one end begins with the other one, and has no end.
        let mut period = |x: &Expr, y: &Expr| -> Result<(Expr, Expr)> {
            let is_open = Expr::Or([x, y].map(|edge| Expr::IsNull(Box::new(edge.clone()), false)).to_vec());
            let (start, end) = (edge("least", x, y)?.expr, edge("greatest", x, y)?.expr);
            Ok((start, Expr::Case(vec![(is_open, Expr::Const(Value::Null))], Some(Box::new(end)))))
        };
        let ((first, first_end), (second, second_end)) = (period(&a, &b)?, period(&c, &d)?);
        let compare = |op, x: &Expr, y: &Expr| Expr::Compare(op, Box::new(x.clone()), Box::new(y.clone()));
        // Within the other period; otherwise the result is unknown for a period without end.
        let within = |start: &Expr, other_end: &Expr, own_end: &Expr| {
            Expr::Or(vec![compare(Compare::Lt, start, other_end), compare(Compare::Ne, own_end, own_end)])
        };
        let whens = vec![
            (compare(Compare::Lt, &second, &first), within(&first, &second_end, &first_end)),
            (compare(Compare::Lt, &first, &second), within(&second, &first_end, &second_end)),
        ];
        let same = Expr::And(vec![
            compare(Compare::Eq, &first, &second),
            compare(Compare::Eq, &first_end, &first_end),
            compare(Compare::Eq, &second_end, &second_end),
        ]);
        Ok(Typed::new(Expr::Case(whens, Some(Box::new(same))), Type::BOOL))
    }

    fn arithmetic(&mut self, op: Arith, left: Typed, right: Typed) -> Result<Typed> {
        let error = self.no_operator(op.symbol(), left.ty, right.ty);
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
                // A real combined with any other number is a double, as in PostgreSQL.
                (Some(x), Some(y)) if x.max(y) == 4 && x != y => Type::FLOAT8,
                (Some(_), Some(_)) => unmodified(common(a, b).ok_or(error.clone())?),
                _ => return Err(error),
            },
            (Some(ty), None) | (None, Some(ty)) if rank(ty).is_some() => unmodified(ty),
            _ => return Err(error),
        };
        if op.is_bitwise() && !is_integer(ty) || op == Arith::Rem && matches!(ty, Type::FLOAT4 | Type::FLOAT8)
        {
            return Err(error);
        }
        // A shift has the type of its left operand.
        let ty = match (op, left.ty) {
            (Arith::ShiftLeft | Arith::ShiftRight, Some(left)) => left,
            _ => ty,
        };
        let left = self.settle(left, ty, Strength::Implicit)?;
        let right = match op {
            // By so many places: an integer, also where the left operand is a bigint.
            Arith::ShiftLeft | Arith::ShiftRight if right.ty == Some(Type::INT8) => return Err(error),
            Arith::ShiftLeft | Arith::ShiftRight => self.settle(right, Type::INT4, Strength::Implicit)?,
            _ => self.settle(right, ty, Strength::Implicit)?,
        };
        Ok(Typed::new(Expr::Arith(op, ty, Box::new(left), Box::new(right)), ty))
    }

    pub(crate) fn unary(&mut self, op: &UnaryOperator, inner: &ast::Expr) -> Result<Typed> {
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
                if rank(ty).is_none() && ty != Type::INTERVAL {
                    let message = format!("operator does not exist: {op} {}", type_name(ty));
                    return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
                }
                let ty = unmodified(ty);
                let inner = self.settle(bound, ty, Strength::Implicit)?;
                let negated = *op == UnaryOperator::Minus;
                Ok(Typed::new(if negated { Expr::Negate(Box::new(inner)) } else { inner }, ty))
            }
            // In two's complement: as far below -1 as the number is above 0.
            UnaryOperator::BitwiseNot if bound.ty.is_some_and(is_integer) => {
                let ty = bound.ty.unwrap_or(Type::INT4);
                let last = Value::Int8(-1).assign(ty).map_err(|_| crate::expr::bug("a type without -1"))?;
                let last = Box::new(Expr::Const(last));
                Ok(Typed::new(Expr::Arith(Arith::Sub, ty, last, Box::new(bound.expr)), ty))
            }
            UnaryOperator::PGAbs => self.call("abs", vec![bound]),
            UnaryOperator::PGCubeRoot => self.call("cbrt", vec![bound]),
            UnaryOperator::PGSquareRoot => self.call("sqrt", vec![bound]),
            other => Err(unsupported(format!("the operator {other}"))),
        }
    }

    pub(crate) fn like(
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
            return Err(self.no_operator(if fold { "~~*" } else { "~~" }, bound.ty, pattern.ty));
        }
        let text = Box::new(self.settle(bound, Type::TEXT, Strength::Implicit)?);
        Ok(match self.settle(pattern, Type::TEXT, Strength::Implicit)? {
            Expr::Const(Value::Text(pattern)) => Expr::Like(text, Like::new(&pattern, escape, fold)?),
            pattern => Expr::LikeOf(text, Box::new(pattern), escape, fold),
        })
    }

    /// `inner SIMILAR TO pattern`: a regular expression that matches a complete string.
    pub(crate) fn similar(
        &mut self,
        inner: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
    ) -> Result<Expr> {
        let bound = self.bind(inner)?;
        let text = Box::new(self.settle(bound, Type::TEXT, Strength::Implicit)?);
        let mut arguments = vec![self.bind(pattern)?];
        if let Some(escape) = escape {
            arguments.push(self.bind(&ast::Expr::Value(escape.clone()))?);
        }
        let pattern = self.call("*similar", arguments)?.expr;
        let written = |expr: &Expr| match expr {
            Expr::Const(Value::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        let constant = match &pattern {
            Expr::Call(_, parts) => match parts.iter().map(written).collect::<Option<Vec<_>>>().as_deref() {
                Some([pattern]) => Some(similar_pattern(pattern, "\\")?),
                Some([pattern, escape]) => Some(similar_pattern(pattern, escape)?),
                _ => None,
            },
            _ => None,
        };
        Ok(match constant {
            Some(pattern) => {
                let share = &self.planner.standing.shares.patterns;
                Expr::Matches(text, compile_kept(&pattern, false, share)?)
            }
            None => Expr::MatchesOf(text, Box::new(pattern), false),
        })
    }

    pub(crate) fn any_all(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        let op =
            comparison(op).ok_or_else(|| unsupported(format!("{op} {}", if all { "ALL" } else { "ANY" })))?;
        let right = match right {
            ast::Expr::Nested(inner) => inner,
            other => other,
        };
        if let ast::Expr::Subquery(query) = right {
            if op == Compare::Eq && !all {
                let (expr, subquery) = (Box::new(left.clone()), query.clone());
                return self.bind(&ast::Expr::InSubquery { expr, subquery, negated: false });
            }
            if self.planner.is_small {
                let (left, array) = (self.bind(left)?, self.array_of(query)?);
                return self.any_all_of(left, op, array, all);
            }
            let array = self.bind(&ast::Expr::Subquery(Box::new(gathered(query)?)))?;
            let Some(ty @ Type::Array(element)) = array.ty else { return Err(crate::expr::bug("no array")) };
            // Where the enclosing query has no rows at all, the engine returns NULL.
            let none = Array::new(element, Vec::new()).map_err(|_| crate::expr::bug("an empty array"))?;
            let parts = vec![array.expr, Expr::Const(Value::Array(none))];
            let left = self.bind(left)?;
            return self.any_all_of(left, op, Typed::new(Expr::Coalesce(parts), ty), all);
        }
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        self.any_all_of(left, op, right, all)
    }

    fn any_all_of(&mut self, left: Typed, op: Compare, right: Typed, all: bool) -> Result<Typed> {
        let word = if all { "ALL" } else { "ANY" };
        let element = match (left.ty, right.ty) {
            (_, Some(Type::Array(element))) => Type::Scalar(element),
            (Some(Type::Scalar(scalar)), None) => Type::Scalar(scalar),
            _ => {
                let message = format!("op {word} (array) requires array on right side");
                return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
            }
        };
        // Numbers are compared as they are.
        let element = match left.ty {
            Some(ty) if rank(ty).is_none() => common(ty, element).unwrap_or(element),
            _ => element,
        };
        let array = self.settle(right, element.array(), Strength::Implicit)?;
        let left = match left.ty {
            Some(ty) if rank(ty).is_some() && rank(element).is_some() => left.expr,
            _ => self.settle(left, element, Strength::Implicit)?,
        };
        Ok(Typed::new(Expr::Any(op, Box::new(left), Box::new(array), all), Type::BOOL))
    }
}
