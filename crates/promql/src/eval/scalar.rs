//! Scalars: one number per step.

use super::Around;
use super::Eval;
use super::Steps;
use super::row::Numbers;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl<'a> Eval<'a> {
    /// The values of a scalar expression, one per step.
    pub(crate) fn scalar(&self, expr: &Expr, steps: Steps) -> Result<Numbers<'a>> {
        self.budget.work(steps.count)?;
        match expr {
            Expr::Number(e) => self.numbers(vec![e.value; steps.count]),
            Expr::Paren(e) => self.scalar(&e.expr, steps),
            Expr::Invariant(e) => {
                let value = self.scalar(e, Steps { count: 1, ..steps })?.first().copied().unwrap_or(f64::NAN);
                self.numbers(vec![value; steps.count])
            }
            Expr::Unary(e) => {
                let mut values = self.scalar(&e.expr, steps)?;
                if e.negative {
                    values.iter_mut().for_each(|value| *value = -*value);
                }
                Ok(values)
            }
            Expr::Binary(e) => {
                let mut left = self.scalar(&e.left, steps)?;
                let right = self.scalar(&e.right, steps)?;
                for (left, right) in left.iter_mut().zip(right.iter()) {
                    *left = number(e.op, *left, *right);
                }
                Ok(left)
            }
            Expr::Call(e) => self.scalar_call(e, steps),
            _ => refused("expected an expression of type scalar"),
        }
    }

    fn numbers(&self, list: Vec<f64>) -> Result<Numbers<'a>> {
        Ok(Numbers::new(self.budget, list)?)
    }

    fn scalar_call(&self, call: &Call, steps: Steps) -> Result<Numbers<'a>> {
        match (call.function.name, call.args.as_slice()) {
            ("time", _) => self.numbers(steps.times().map(|ms| ms as f64 / 1000.0).collect()),
            ("pi", _) => self.numbers(vec![std::f64::consts::PI; steps.count]),
            ("scalar", [vector]) => {
                // The float of a step with a single value; NaN for none or several.
                let _held = self.budget.holding(steps.count * size_of::<(f64, u8)>())?;
                let mut values: Vec<(f64, u8)> = vec![(f64::NAN, 0); steps.count];
                self.each_row(
                    vector,
                    steps,
                    Around { func: Some("scalar"), ..Around::default() },
                    &mut |row| {
                        for (step, (value, count)) in values.iter_mut().enumerate() {
                            if let Some(float) = row.float(step) {
                                *count = count.saturating_add(1);
                                *value = if *count == 1 { float } else { f64::NAN };
                            }
                        }
                        Ok(())
                    },
                )?;
                self.numbers(values.iter().map(|(value, _)| *value).collect())
            }
            (name @ ("max_of" | "min_of"), [a, b]) => {
                let mut values = self.scalar(a, steps)?;
                for (a, b) in values.iter_mut().zip(self.scalar(b, steps)?.iter()) {
                    *a = if name == "max_of" { largest(*a, *b) } else { smallest(*a, *b) };
                }
                Ok(values)
            }
            (name, _) => refused(format!("function {name} gives no scalar")),
        }
    }
}

/// The larger of two numbers, NaN when one is (unless the other is +Inf).
pub(super) fn largest(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        return f64::INFINITY;
    }
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The smaller of two numbers, NaN when one is (unless the other is -Inf).
pub(super) fn smallest(a: f64, b: f64) -> f64 {
    -largest(-a, -b)
}

/// An operator between two numbers; comparisons return 1 or 0.
fn number(op: BinaryOp, a: f64, b: f64) -> f64 {
    let truth = |yes: bool| if yes { 1.0 } else { 0.0 };
    match op {
        BinaryOp::Equal => truth(a == b),
        BinaryOp::NotEqual => truth(a != b),
        BinaryOp::Greater => truth(a > b),
        BinaryOp::Less => truth(a < b),
        BinaryOp::GreaterEqual => truth(a >= b),
        BinaryOp::LessEqual => truth(a <= b),
        // A gap of a scalar is NaN.
        BinaryOp::Default if a.is_nan() => b,
        BinaryOp::If if b.is_nan() => f64::NAN,
        BinaryOp::IfNot if !b.is_nan() => f64::NAN,
        BinaryOp::Default | BinaryOp::If | BinaryOp::IfNot => a,
        op => arithmetic(op, a, b),
    }
}

/// An arithmetic operator between two numbers.
pub(super) fn arithmetic(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Mod => a % b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Atan2 => a.atan2(b),
        _ => f64::NAN,
    }
}

/// Whether a comparison holds.
pub(super) fn holds(op: BinaryOp, a: f64, b: f64) -> bool {
    number(op, a, b) == 1.0
}
