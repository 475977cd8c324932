//! Interval literals, and the operators that take or return intervals.

use ropewalk::tables::{Field, Interval, Precision, SECOND_DIGITS_MAX, Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::Arith;
use crate::expr::cast::Strength;
use crate::plan::bind::{Binder, Typed, unsupported};
use crate::types::interval;
use crate::types::names::rank;

/// Reads an interval literal; a number without a unit counts in the `least` field.
pub(crate) fn read_interval(text: &str, least: Option<Field>) -> Result<Interval> {
    let least = least.map(|least| format!("{least:?}").to_lowercase());
    interval::parse(text, least.as_deref()).ok_or_else(|| {
        let message = format!("invalid input syntax for type interval: \"{text}\"");
        SqlError::new(state::INVALID_DATETIME_FORMAT, message)
    })
}

fn is_moment(ty: Type) -> bool {
    matches!(ty, Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ)
}

/// The type of a date or time plus an interval.
fn moved(ty: Type) -> Type {
    if ty == Type::DATE { Type::TIMESTAMP } else { ty }
}

impl Binder<'_, '_> {
    /// `INTERVAL '1' DAY`, `INTERVAL '1-2' YEAR TO MONTH`.
    pub(crate) fn interval(&mut self, whole: &ast::Expr, written: &ast::Interval) -> Result<Typed> {
        let ast::Interval {
            value,
            leading_field,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        } = written;
        let text = match value.as_ref() {
            ast::Expr::Value(value) => match &value.value {
                ast::Value::SingleQuotedString(text) => text,
                _ => return Err(unsupported(whole)),
            },
            _ => return Err(unsupported(whole)),
        };
        // Of `MINUTE TO SECOND`, two numbers are minutes and seconds.
        let is_of_minutes = matches!(leading_field, Some(ast::DateTimeField::Minute)) && last_field.is_some();
        let text = match text.trim().split(':').count() {
            2 if is_of_minutes => &format!("00:{}", text.trim()),
            _ => text,
        };
        let least =
            last_field.as_ref().or(leading_field.as_ref()).map(|field| field.to_string().to_lowercase());
        let digits = fractional_seconds_precision.or(*leading_precision);
        let least = match least.as_deref() {
            None if digits.is_none() => None,
            Some("year") => Some(Field::Year),
            Some("month") => Some(Field::Month),
            Some("day") => Some(Field::Day),
            Some("hour") => Some(Field::Hour),
            Some("minute") => Some(Field::Minute),
            Some("second") => Some(Field::Second),
            _ => return Err(unsupported(whole)),
        };
        if digits.is_some() && least != Some(Field::Second) {
            return Err(unsupported(whole));
        }
        let digits = digits.map(|digits| u8::try_from(digits).unwrap_or(SECOND_DIGITS_MAX));
        let precision = Precision { digits, fields: least.map(|least| (least, least)) };
        let cut = precision.keep(Value::Interval(read_interval(text, least)?));
        Ok(Typed::new(Expr::Const(cut), Type::INTERVAL))
    }

    /// The operation, where it is one with intervals or times.
    pub(crate) fn time_arithmetic(
        &mut self,
        op: Arith,
        left: &Typed,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        const INTERVAL: Type = Type::INTERVAL;
        let (left, right) = (left.clone(), right.clone());
        let is_number = |ty: Type| rank(ty).is_some();
        Ok(Some(match (left.ty, op, right.ty) {
            (Some(ty), Arith::Add | Arith::Sub, Some(INTERVAL)) if is_moment(ty) || ty == Type::TIME => {
                self.shifted(left, right, op)?
            }
            (Some(INTERVAL), Arith::Add, Some(ty)) if is_moment(ty) || ty == Type::TIME => {
                self.shifted(right, left, op)?
            }
            // An untyped literal added to a time is an interval; one subtracted from it is a time.
            (Some(Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME), Arith::Add, None) => {
                self.shifted(left, right, op)?
            }
            (None, Arith::Add, Some(Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME)) => {
                self.shifted(right, left, op)?
            }
            (Some(INTERVAL), Arith::Add | Arith::Sub, Some(INTERVAL) | None)
            | (None, Arith::Add | Arith::Sub, Some(INTERVAL)) => {
                let right = Typed::new(self.settle(right, INTERVAL, Strength::Implicit)?, INTERVAL);
                let right = if op == Arith::Sub { negated(right) } else { right };
                self.call("*interval_add", vec![left, right])?
            }
            (Some(INTERVAL), Arith::Mul | Arith::Div, other) if other.is_none_or(is_number) => {
                let factor = self.settle(right, Type::FLOAT8, Strength::Assignment)?;
                let name = if op == Arith::Mul { "*interval_times" } else { "*interval_divided" };
                self.call(name, vec![left, Typed::new(factor, Type::FLOAT8)])?
            }
            (other, Arith::Mul, Some(INTERVAL)) if other.is_none_or(is_number) => {
                let factor = self.settle(left, Type::FLOAT8, Strength::Assignment)?;
                self.call("*interval_times", vec![right, Typed::new(factor, Type::FLOAT8)])?
            }
            (Some(Type::DATE), Arith::Add, Some(Type::TIME)) => self.shifted(left, right, op)?,
            (Some(Type::TIME), Arith::Add, Some(Type::DATE)) => self.shifted(right, left, op)?,
            (Some(a), Arith::Sub, Some(b))
                if is_moment(a) && is_moment(b) && (a, b) != (Type::DATE, Type::DATE) =>
            {
                self.difference(left, right)?
            }
            (Some(ty), Arith::Sub, None) | (None, Arith::Sub, Some(ty))
                if matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME) =>
            {
                let left = Typed::new(self.settle(left, ty, Strength::Implicit)?, ty);
                let right = Typed::new(self.settle(right, ty, Strength::Implicit)?, ty);
                self.difference(left, right)?
            }
            (Some(Type::TIME), Arith::Sub, Some(Type::TIME)) => self.difference(left, right)?,
            _ => return Ok(None),
        }))
    }

    fn shifted(&mut self, moment: Typed, length: Typed, op: Arith) -> Result<Typed> {
        let ty = moment.ty.map_or(Type::TIMESTAMP, moved);
        let moment = self.settle(moment, ty, Strength::Implicit)?;
        let length = Typed::new(self.settle(length, Type::INTERVAL, Strength::Implicit)?, Type::INTERVAL);
        let length = if op == Arith::Sub { negated(length) } else { length };
        self.call("*shifted", vec![Typed::new(moment, ty), length])
    }

    fn difference(&mut self, left: Typed, right: Typed) -> Result<Typed> {
        let ty = match (left.ty, right.ty) {
            (Some(Type::TIME), _) => Type::TIME,
            (Some(Type::TIMESTAMPTZ), _) | (_, Some(Type::TIMESTAMPTZ)) => Type::TIMESTAMPTZ,
            _ => Type::TIMESTAMP,
        };
        let left = self.settle(left, ty, Strength::Implicit)?;
        let right = self.settle(right, ty, Strength::Implicit)?;
        self.call("*between", vec![Typed::new(left, ty), Typed::new(right, ty)])
    }

    /// `make_interval(years => 1, secs => 2.5)`: every argument may be left out.
    pub(crate) fn make_interval(&mut self, arguments: &[ast::FunctionArg]) -> Result<Typed> {
        const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
        let mut given: Vec<Typed> =
            NAMES.iter().map(|_| Typed::new(Expr::Const(Value::Int4(0)), Type::INT4)).collect();
        for (number, argument) in arguments.iter().enumerate() {
            let (place, expr) = match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => (Some(number), expr),
                ast::FunctionArg::ExprNamed {
                    name: ast::Expr::Identifier(name),
                    arg: ast::FunctionArgExpr::Expr(expr),
                    ..
                } => {
                    let name = crate::syntax::names::folded(name);
                    (NAMES.iter().position(|known| *known == name), expr)
                }
                other => return Err(unsupported(format!("the argument {other}"))),
            };
            let unknown = || {
                SqlError::new(
                    state::UNDEFINED_FUNCTION,
                    "make_interval takes years, months, weeks, days, hours, mins, secs",
                )
            };
            let bound = self.bind(expr)?;
            let slot = match place {
                Some(place) => given.get_mut(place),
                None => None,
            };
            *slot.ok_or_else(unknown)? = bound;
        }
        self.call("make_interval", given)
    }
}

fn negated(interval: Typed) -> Typed {
    match interval.expr {
        Expr::Const(Value::Interval(constant)) if interval::negate(constant).is_some() => {
            let constant = interval::negate(constant).unwrap_or(constant);
            Typed::new(Expr::Const(Value::Interval(constant)), Type::INTERVAL)
        }
        expr => Typed::new(Expr::Negate(Box::new(expr)), Type::INTERVAL),
    }
}
