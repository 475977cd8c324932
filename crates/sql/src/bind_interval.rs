//! Intervals within expressions: they have no column type, so they are known by how they are written, and stand only beside
//! an operator that takes one.

use ropewalk::tables::{Type, Value};
use sqlparser::ast::{self, BinaryOperator};

use crate::bind::{Binder, Typed, unsupported};
use crate::bind_operator::comparison;
use crate::cast::Strength;
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::interval::Interval;

/// An interval, and how many times it is taken.
struct Times {
    interval: Interval,
    times: Option<Typed>,
}

fn is_moment(ty: Option<Type>) -> bool {
    matches!(ty, Some(Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ))
}

fn literal(expr: &ast::Expr) -> Option<&str> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Both sides of a difference, whatever brackets stand around it.
fn difference(expr: &ast::Expr) -> Option<(&ast::Expr, &ast::Expr)> {
    match expr {
        ast::Expr::Nested(inner) => difference(inner),
        ast::Expr::BinaryOp { left, op: BinaryOperator::Minus, right } => Some((left, right)),
        _ => None,
    }
}

impl Binder<'_, '_> {
    /// The operation, where one of its sides is an interval.
    pub(crate) fn with_interval(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        let sign = if *op == BinaryOperator::Minus { -1.0 } else { 1.0 };
        match (self.interval(left)?, self.interval(right)?) {
            (None, None) => Ok(None),
            (None, Some(length)) if matches!(op, BinaryOperator::Plus | BinaryOperator::Minus) => {
                self.shifted(left, length, sign).map(Some)
            }
            (Some(length), None) if *op == BinaryOperator::Plus => {
                self.shifted(right, length, sign).map(Some)
            }
            (None, Some(length)) => self.compared(left, op, length, false).map(Some),
            (Some(length), None) => self.compared(right, op, length, true).map(Some),
            _ => Err(unsupported(format!("{left} {op} {right}"))),
        }
    }

    /// `extract(epoch from a - b)` over moments.
    pub(crate) fn seconds_between(
        &mut self,
        field: &ast::DateTimeField,
        inner: &ast::Expr,
    ) -> Result<Option<Typed>> {
        let Some((left, right)) = difference(inner).filter(|_| *field == ast::DateTimeField::Epoch) else {
            return Ok(None);
        };
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        if !matches!(left.ty, Some(Type::TIMESTAMP | Type::TIMESTAMPTZ)) || !is_moment(right.ty) {
            return Ok(None);
        }
        self.since(left, right).map(Some)
    }

    /// The interval that an expression is written as, if it is and stands once.
    pub(crate) fn plain_interval(&mut self, expr: &ast::Expr) -> Result<Option<Interval>> {
        // A literal without a type stands for an interval where only one may stand.
        if let Some(text) = literal(expr) {
            return parsed(text, None).map(Some);
        }
        Ok(self.interval(expr)?.filter(|times| times.times.is_none()).map(|times| times.interval))
    }

    /// The interval that an expression is written as, if it is.
    fn interval(&mut self, expr: &ast::Expr) -> Result<Option<Times>> {
        Ok(match expr {
            ast::Expr::Nested(inner) => return self.interval(inner),
            ast::Expr::Interval(interval) => {
                let ast::Interval {
                    value,
                    leading_field,
                    leading_precision: None,
                    last_field: None,
                    fractional_seconds_precision: None,
                } = interval
                else {
                    return Err(unsupported(expr));
                };
                let text = literal(value).ok_or_else(|| unsupported(expr))?;
                let field = leading_field.as_ref().map(ToString::to_string);
                Some(Times { interval: parsed(text, field.as_deref())?, times: None })
            }
            ast::Expr::Cast {
                expr: inner,
                data_type: ast::DataType::Interval { fields: None, precision: None },
                format: None,
                ..
            } => {
                let text = literal(inner).ok_or_else(|| unsupported(expr))?;
                Some(Times { interval: parsed(text, None)?, times: None })
            }
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: inner } => {
                match self.interval(inner)? {
                    Some(Times { interval, times }) => {
                        Some(Times { interval: interval.times(-1.0).ok_or_else(too_long)?, times })
                    }
                    None => None,
                }
            }
            ast::Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } => {
                let (interval, factor) = match (self.interval(left)?, self.interval(right)?) {
                    (Some(interval), None) => (interval, right),
                    (None, Some(interval)) => (interval, left),
                    _ => return Ok(None),
                };
                if interval.times.is_some() {
                    return Err(unsupported(expr));
                }
                let factor = self.bind(factor)?;
                Some(Times { times: Some(factor), ..interval })
            }
            _ => None,
        })
    }

    fn shifted(&mut self, moment: &ast::Expr, length: Times, sign: f64) -> Result<Typed> {
        let moment = self.bind(moment)?;
        let ty = match moment.ty {
            Some(Type::DATE | Type::TIMESTAMP) => Type::TIMESTAMP,
            Some(Type::TIMESTAMPTZ) => Type::TIMESTAMPTZ,
            _ => return Err(unsupported("an interval beside anything but a date or timestamp")),
        };
        let moment = match moment.ty {
            Some(found) if found != ty => Expr::Cast(Box::new(moment.expr), ty),
            _ => moment.expr,
        };
        let times = match length.times {
            None => Expr::Const(Value::Float8(1.0)),
            Some(times) => self.settle(times, Type::FLOAT8, Strength::Assignment)?,
        };
        let interval = length.interval.times(sign).ok_or_else(too_long)?;
        Ok(Typed::new(Expr::Shift(interval, Box::new(moment), Box::new(times)), ty))
    }

    /// The difference of two moments against an interval.
    fn compared(
        &mut self,
        moments: &ast::Expr,
        op: &BinaryOperator,
        length: Times,
        is_left: bool,
    ) -> Result<Typed> {
        let refused = || unsupported(format!("an interval beside {moments}"));
        let op = comparison(op).ok_or_else(refused)?;
        let ((left, right), None) = (difference(moments).ok_or_else(refused)?, &length.times) else {
            return Err(refused());
        };
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        if !matches!(left.ty, Some(Type::TIMESTAMP | Type::TIMESTAMPTZ)) || !is_moment(right.ty) {
            return Err(refused());
        }
        let between = self.since(left, right)?.expr;
        let seconds = ropewalk::tables::Numeric::new(length.interval.length(), 6).ok_or_else(too_long)?;
        let length = Expr::Const(Value::Numeric(seconds));
        let (left, right) = if is_left { (length, between) } else { (between, length) };
        Ok(Typed::new(Expr::Compare(op, Box::new(left), Box::new(right)), Type::BOOL))
    }

    /// Seconds from `right` to `left`, as PostgreSQL's `extract` shows them.
    fn since(&mut self, left: Typed, right: Typed) -> Result<Typed> {
        let ty = if left.ty == Some(Type::TIMESTAMPTZ) { Type::TIMESTAMPTZ } else { Type::TIMESTAMP };
        let left = self.settle(left, ty, Strength::Implicit)?;
        let right = self.settle(right, ty, Strength::Assignment)?;
        Ok(Typed::new(Expr::Since(Box::new(left), Box::new(right)), Type::NUMERIC))
    }
}

fn parsed(text: &str, field: Option<&str>) -> Result<Interval> {
    Interval::parse(text, field).ok_or_else(|| {
        let message = format!("invalid input syntax for type interval: \"{text}\"");
        SqlError::new(state::INVALID_DATETIME_FORMAT, message)
    })
}

pub(crate) fn too_long() -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, "interval out of range")
}
