//! Prepares an expression for evaluation at known times: replaces `start()` and the like by numbers,
//! calculates durations, and marks the largest subexpressions whose value is the same at every step, to
//! evaluate them once.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::syntax::ast::*;
use crate::syntax::parser::SECONDS_MAX;

/// The times of a query in milliseconds; the step is 0 when there is one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) step_ms: i64,
    pub(crate) lookback_ms: i64,
}

/// Functions whose value depends on the time of the step even when their arguments do not.
pub(crate) const TIME_DEPENDENT: [&str; 15] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "end",
    "hour",
    "minute",
    "month",
    "predict_linear",
    "range",
    "start",
    "step",
    "time",
    "timestamp",
    "year",
];

/// Prepares an expression for evaluation.
pub(crate) fn plan(mut expr: Expr, times: Times) -> Result<Expr> {
    resolve(&mut expr, times)?;
    mark_totals(&mut expr, false);
    let (_, wrap) = mark(&mut expr);
    Ok(if wrap { invariant(expr) } else { expr })
}

fn resolve(expr: &mut Expr, times: Times) -> Result<()> {
    match expr {
        Expr::Number(_) | Expr::Text(_) => Ok(()),
        Expr::Selector(e) => resolve_selector(e, times),
        Expr::Matrix(e) => {
            resolve_selector(&mut e.selector, times)?;
            resolve_duration(&mut e.range, times, false)
        }
        Expr::Subquery(e) => {
            resolve_at(&mut e.at, times);
            resolve_duration(&mut e.offset, times, true)?;
            resolve_duration(&mut e.step, times, false)?;
            resolve_duration(&mut e.range, times, false)?;
            resolve(&mut e.expr, times)
        }
        Expr::Call(e) => {
            let seconds = |ms: i64| ms as f64 / 1000.0;
            let value = match e.function.name {
                "start" => seconds(times.start_ms),
                "end" => seconds(times.end_ms),
                "range" => seconds(times.end_ms.saturating_sub(times.start_ms)),
                "step" if times.start_ms == times.end_ms => 0.0,
                "step" => seconds(times.step_ms),
                _ => return e.args.iter_mut().try_for_each(|arg| resolve(arg, times)),
            };
            *expr = Expr::Number(Number { value, duration: false, span: e.span });
            Ok(())
        }
        Expr::Aggregate(e) => {
            let Aggregate { param, expr, more, .. } = &mut **e;
            param.iter_mut().chain([expr]).chain(more).try_for_each(|part| resolve(part, times))
        }
        Expr::WithOffset(e) => {
            resolve_at(&mut e.at, times);
            resolve_duration(&mut e.offset, times, true)?;
            resolve(&mut e.expr, times)
        }
        Expr::Binary(e) => {
            resolve(&mut e.left, times)?;
            resolve(&mut e.right, times)
        }
        Expr::Unary(e) => resolve(&mut e.expr, times),
        Expr::Paren(e) => resolve(&mut e.expr, times),
        Expr::Invariant(e) => resolve(e, times),
    }
}

fn resolve_selector(selector: &mut Selector, times: Times) -> Result<()> {
    // A source checks each matcher, and compiles each regular expression.
    for matchers in [&mut selector.matchers].into_iter().chain(&mut selector.others) {
        let mut known = HashSet::new();
        matchers.retain(|m| known.insert((m.name().to_owned(), m.op(), m.value().to_owned())));
    }
    resolve_at(&mut selector.at, times);
    resolve_duration(&mut selector.offset, times, true)
}

fn resolve_at(at: &mut Option<AtModifier>, times: Times) {
    match at {
        Some(AtModifier::Start) => *at = Some(AtModifier::Time(times.start_ms)),
        Some(AtModifier::End) => *at = Some(AtModifier::Time(times.end_ms)),
        _ => {}
    }
}

/// The error for a duration that is invalid at these times. The position is that of Prometheus: first byte
/// and end, for a choice between two durations those of both.
fn misfit<T>(expr: &DurationExpr, what: &str) -> Result<T> {
    let span = match &expr.kind {
        DurationKind::MinOf(one, other) | DurationKind::MaxOf(one, other) if !expr.wrapped => {
            one.span.to(other.span)
        }
        _ => expr.span,
    };
    Err(Error::Times(format!("{}:{}: {what}", span.start, span.end)))
}

fn resolve_duration(duration: &mut Duration, times: Times, any_sign: bool) -> Result<()> {
    let Duration::Expr(expr) = duration else { return Ok(()) };
    let at = |what: &str| misfit(expr, what);
    let seconds = calculate(expr, times)?;
    if !seconds.is_finite() {
        return at("duration is NaN or infinite");
    }
    if seconds <= 0.0 && !any_sign {
        return at("duration must be greater than 0");
    }
    if seconds.abs() > SECONDS_MAX {
        return at("duration is out of range");
    }
    *duration = Duration::Fixed((seconds * 1000.0) as i64);
    Ok(())
}

fn calculate(expr: &DurationExpr, times: Times) -> Result<f64> {
    Ok(match &expr.kind {
        DurationKind::Number(number) => number.value,
        DurationKind::Step => times.step_ms as f64 / 1000.0,
        DurationKind::Window if times.step_ms > 0 => times.step_ms as f64 / 1000.0,
        DurationKind::Window => times.lookback_ms as f64 / 1000.0,
        DurationKind::Range => times.end_ms.saturating_sub(times.start_ms) as f64 / 1000.0,
        DurationKind::Negative(expr) => -calculate(expr, times)?,
        DurationKind::MinOf(a, b) => calculate(a, times)?.min(calculate(b, times)?),
        DurationKind::MaxOf(a, b) => calculate(a, times)?.max(calculate(b, times)?),
        DurationKind::Binary(op, a, b) => {
            let (a, b) = (calculate(a, times)?, calculate(b, times)?);
            match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div if b == 0.0 => return misfit(expr, "division by zero"),
                BinaryOp::Div => a / b,
                BinaryOp::Mod if b == 0.0 => return misfit(expr, "modulo by zero"),
                BinaryOp::Mod => a % b,
                _ => a.powf(b),
            }
        }
    })
}

/// Marks the selectors of which only the counts and sums of histograms are used (`around`: inside of a
/// function that uses only these).
fn mark_totals(expr: &mut Expr, around: bool) {
    match expr {
        Expr::Number(_) | Expr::Text(_) => {}
        Expr::Selector(e) => e.totals = around,
        Expr::Matrix(e) => e.selector.totals = around,
        Expr::Call(e) => match e.function.name {
            "histogram_count" | "histogram_sum" | "histogram_avg" => {
                e.args.iter_mut().for_each(|arg| mark_totals(arg, true));
            }
            // These need the buckets, whatever is around them.
            "histogram_quantile"
            | "histogram_quantiles"
            | "histogram_fraction"
            | "histogram_stddev"
            | "histogram_stdvar" => {}
            _ => e.args.iter_mut().for_each(|arg| mark_totals(arg, around)),
        },
        // So do the trimming operators, and subqueries, which use only some of the samples.
        Expr::Subquery(_) => {}
        Expr::Binary(e) if matches!(e.op, BinaryOp::TrimUpper | BinaryOp::TrimLower) => {}
        Expr::Binary(e) => {
            mark_totals(&mut e.left, around);
            mark_totals(&mut e.right, around);
        }
        Expr::Aggregate(e) => {
            let Aggregate { param, expr, more, .. } = &mut **e;
            param.iter_mut().chain([expr]).chain(more).for_each(|part| mark_totals(part, around));
        }
        Expr::WithOffset(e) => mark_totals(&mut e.expr, around),
        Expr::Unary(e) => mark_totals(&mut e.expr, around),
        Expr::Paren(e) => mark_totals(&mut e.expr, around),
        Expr::Invariant(e) => mark_totals(e, around),
    }
}

fn invariant(expr: Expr) -> Expr {
    Expr::Invariant(Box::new(expr))
}

fn wrap_if(expr: &mut Expr, wrap: bool) {
    if wrap {
        let inner = std::mem::replace(expr, Expr::Text(Text { value: Vec::new(), span: Default::default() }));
        *expr = invariant(inner);
    }
}

/// Returns whether an expression is the same at every step, and whether it is worth marking; marks the
/// invariant parts of one that is not.
fn mark(expr: &mut Expr) -> (bool, bool) {
    match expr {
        Expr::Number(_) | Expr::Text(_) => (true, false),
        Expr::Invariant(_) => (true, false),
        Expr::Selector(e) => (e.at.is_some(), e.at.is_some()),
        // Ranges are read by the function around them, which is marked instead.
        Expr::Matrix(e) => (e.selector.at.is_some(), false),
        Expr::Subquery(e) => {
            let (same, _) = mark(&mut e.expr);
            wrap_if(&mut e.expr, same);
            (e.at.is_some(), false)
        }
        Expr::Paren(e) => mark(&mut e.expr),
        Expr::Unary(e) => mark(&mut e.expr),
        Expr::Binary(e) => mark_all(&mut [&mut e.left, &mut e.right], true),
        Expr::Aggregate(e) => {
            let Aggregate { expr, param, more, .. } = &mut **e;
            let mut parts: Vec<&mut Expr> = param.iter_mut().chain([expr]).chain(more).collect();
            mark_all(&mut parts, true)
        }
        Expr::WithOffset(e) => {
            let (same, wrap) = mark(&mut e.expr);
            if same || e.at.is_some() { (true, true) } else { (same, wrap) }
        }
        Expr::Call(e) => mark_call(e),
    }
}

fn mark_call(call: &mut Call) -> (bool, bool) {
    let name = call.function.name;
    let mut same = !TIME_DEPENDENT.contains(&name) && !call.function.across_steps;
    if name == "info" {
        // The second argument is not evaluated.
        let Some(first) = call.args.first_mut() else { return (false, false) };
        let uniform = crate::eval::info_reference(first).is_some();
        return mark_all(&mut [first], uniform);
    }
    // The timestamp of a fixed sample is fixed, whereas that of a calculated one is the step's.
    same |= name == "timestamp" && matches!(call.args.first().map(Expr::bare), Some(Expr::Selector(_)));
    let mut args: Vec<&mut Expr> = call.args.iter_mut().collect();
    mark_all(&mut args, same)
}

fn mark_all(parts: &mut [&mut Expr], otherwise_same: bool) -> (bool, bool) {
    let marks: Vec<(bool, bool)> = parts.iter_mut().map(|part| mark(part)).collect();
    if otherwise_same && marks.iter().all(|(same, _)| *same) {
        return (true, true);
    }
    for (part, (_, wrap)) in parts.iter_mut().zip(marks) {
        wrap_if(part, wrap);
    }
    (false, false)
}
