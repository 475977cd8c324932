//! Durations in brackets and after `offset`: a number, or a calculation.

use super::Fault;
use super::Parser;
use super::fault;
use crate::syntax::ast::*;
use crate::syntax::lexer::{Kind, Special};
use crate::syntax::position::Span;

/// Largest duration in seconds: its nanoseconds fit 64 bits.
pub(crate) const SECONDS_MAX: f64 = 9_223_372_036.854_775;

/// Converts seconds to milliseconds, via nanoseconds.
pub(crate) fn seconds_to_ms(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64 / 1_000_000
}

impl Parser<'_> {
    /// A duration in brackets. `context` and `expected` are used in the text of a syntax error.
    pub(super) fn positive_duration(&mut self, context: &str, expected: &str) -> Result<Duration, Fault> {
        let expr = self.duration(0, context, expected)?;
        match &expr.kind {
            DurationKind::Number(number) if !expr.wrapped => {
                if number.value <= 0.0 {
                    return fault(number.span, "duration must be greater than 0");
                }
                Ok(Duration::Fixed(seconds_to_ms(number.value)))
            }
            _ => Ok(Duration::Expr(Box::new(expr))),
        }
    }

    /// The duration after `offset`: operators outside of parentheses belong to the enclosing expression.
    pub(super) fn offset_duration(&mut self) -> Result<Duration, Fault> {
        let (context, expected) = ("offset", "number, duration, step(), or range()");
        let sign = match self.token().kind {
            Kind::Operator(BinaryOp::Sub) => Some((true, self.next().span)),
            Kind::Operator(BinaryOp::Add) => Some((false, self.next().span)),
            _ => None,
        };
        let mut expr = self.duration_primary(context, expected)?;
        if let Some((negative, span)) = sign {
            expr = signed(negative, span, expr)?;
        }
        match &expr.kind {
            DurationKind::Number(number) if !expr.wrapped => Ok(Duration::Fixed(seconds_to_ms(number.value))),
            _ => Ok(Duration::Expr(Box::new(expr))),
        }
    }

    fn duration(&mut self, strength: u8, context: &str, expected: &str) -> Result<DurationExpr, Fault> {
        self.check_depth(1)?;
        self.depth += 1;
        let result = self.duration_binary(strength, context, expected);
        self.depth -= 1;
        result
    }

    fn duration_binary(
        &mut self,
        strength: u8,
        context: &str,
        expected: &str,
    ) -> Result<DurationExpr, Fault> {
        let mut left = match self.token().kind {
            Kind::Operator(op @ (BinaryOp::Add | BinaryOp::Sub)) => {
                let span = self.next().span;
                let (binds, _) = BinaryOp::Pow.precedence();
                let expr = self.duration(binds, context, expected)?;
                signed(op == BinaryOp::Sub, span, expr)?
            }
            _ => self.duration_primary(context, expected)?,
        };
        let mut grown = 0;
        while let Kind::Operator(op) = self.token().kind {
            use BinaryOp::{Add, Div, Mod, Mul, Pow, Sub};
            let (binds, to_the_right) = op.precedence();
            if !matches!(op, Add | Sub | Mul | Div | Mod | Pow) || binds < strength {
                break;
            }
            grown += 1;
            self.check_depth(grown)?;
            let operator = self.next().span;
            let right = self.duration(if to_the_right { binds } else { binds + 1 }, context, expected)?;
            self.experimental(left.span)?;
            let zero = matches!(&right.kind, DurationKind::Number(n) if n.value == 0.0 && !right.wrapped);
            match op {
                Div if zero => return fault(operator, "division by zero"),
                Mod if zero => return fault(operator, "modulo by zero"),
                _ => {}
            }
            let span = left.span.to(right.span);
            let kind = DurationKind::Binary(op, Box::new(left), Box::new(right));
            left = DurationExpr { kind, wrapped: false, span };
        }
        Ok(left)
    }

    fn experimental(&self, span: Span) -> Result<(), Fault> {
        if self.options.duration_expressions {
            return Ok(());
        }
        fault(span, "experimental duration expression is not enabled")
    }

    fn duration_primary(&mut self, context: &str, expected: &str) -> Result<DurationExpr, Fault> {
        let start = self.token().span;
        let plain = |kind, span| Ok(DurationExpr { kind, wrapped: false, span });
        match self.token().kind {
            Kind::Number | Kind::Duration => {
                let number = self.number()?;
                in_range(number.value, number.span)?;
                plain(DurationKind::Number(number), start)
            }
            Kind::LeftParen => {
                self.next();
                let inner = self.duration(0, context, expected)?;
                if !self.is(&Kind::RightParen) {
                    return self.unexpected(context, expected);
                }
                let close = self.next().span;
                self.experimental(inner.span)?;
                // Double parentheses mean the same as single ones.
                Ok(DurationExpr { wrapped: true, span: start.to(close), ..inner })
            }
            Kind::Special(word @ (Special::MaxOf | Special::MinOf)) => {
                self.next();
                if !self.eat(&Kind::LeftParen) {
                    return self.unexpected(context, expected);
                }
                let left = Box::new(self.duration(0, context, expected)?);
                if !self.eat(&Kind::Comma) {
                    return self.unexpected(context, expected);
                }
                let right = Box::new(self.duration(0, context, expected)?);
                if !self.is(&Kind::RightParen) {
                    return self.unexpected(context, expected);
                }
                let span = start.to(self.next().span);
                self.experimental(span)?;
                let kind = match word {
                    Special::MaxOf => DurationKind::MaxOf(left, right),
                    _ => DurationKind::MinOf(left, right),
                };
                plain(kind, span)
            }
            Kind::Special(word @ (Special::Step | Special::Range)) => {
                self.next();
                for paren in [Kind::LeftParen, Kind::RightParen] {
                    if !self.eat(&paren) {
                        return self.unexpected(context, expected);
                    }
                }
                let span = Span { start: start.start, end: self.end_of_last() };
                self.experimental(span)?;
                plain(if word == Special::Step { DurationKind::Step } else { DurationKind::Range }, span)
            }
            _ => self.unexpected(context, expected),
        }
    }
}

fn in_range(seconds: f64, span: Span) -> Result<(), Fault> {
    if seconds.abs() > SECONDS_MAX {
        return fault(span, "duration out of range");
    }
    Ok(())
}

fn signed(negative: bool, sign: Span, expr: DurationExpr) -> Result<DurationExpr, Fault> {
    let span = sign.to(expr.span);
    Ok(match expr {
        DurationExpr { kind: DurationKind::Number(number), wrapped: false, .. } => {
            let value = if negative { -number.value } else { number.value };
            let kind = DurationKind::Number(Number { value, span, ..number });
            DurationExpr { kind, wrapped: false, span }
        }
        expr if negative => {
            DurationExpr { kind: DurationKind::Negative(Box::new(expr)), wrapped: false, span }
        }
        expr => expr,
    })
}
