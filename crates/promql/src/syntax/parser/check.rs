//! Type checks of the tree.

use std::collections::HashSet;

use ropewalk_labels::text::quote;
use ropewalk_labels::{METRIC_NAME, Matcher};

use super::Fault;
use super::fault;
use crate::data::patterns::within_sum;
use crate::syntax::ast::*;
use crate::syntax::functions::{Function, Variadic};
use crate::syntax::position::Span;

/// Checks the whole tree, children first where their types matter.
pub(super) fn check(expr: &Expr, query: &str) -> Result<(), Fault> {
    match expr {
        Expr::Number(_) | Expr::Text(_) => Ok(()),
        Expr::Selector(e) => selector(e, true),
        Expr::Matrix(e) => selector(&e.selector, true),
        Expr::Invariant(e) => check(e, query),
        Expr::Paren(e) => check(&e.expr, query),
        Expr::WithOffset(e) => check(&e.expr, query),
        Expr::Unary(e) => {
            check(&e.expr, query)?;
            match e.expr.value_type() {
                ValueType::Scalar | ValueType::Vector => Ok(()),
                other => fault(
                    e.span,
                    format!(
                        "unary expression only allowed on expressions of type scalar or instant vector, got {}",
                        quote(other.documented())
                    ),
                ),
            }
        }
        Expr::Subquery(e) => {
            check(&e.expr, query)?;
            match e.expr.value_type() {
                ValueType::Vector => Ok(()),
                other => {
                    fault(e.span, format!("subquery is only allowed on instant vector, got {other} instead"))
                }
            }
        }
        Expr::Aggregate(e) => aggregate(e, query),
        Expr::Call(e) => call(e, query),
        Expr::Binary(e) => binary_types(e, query),
    }
}

fn expect_type(expr: &Expr, wanted: ValueType, context: &str) -> Result<(), Fault> {
    let got = expr.value_type();
    if got == wanted {
        return Ok(());
    }
    fault(
        expr.span(),
        format!("expected type {} in {context}, got {}", wanted.documented(), got.documented()),
    )
}

/// Checks the regular expressions of each list of matchers, since a source compiles every matcher of a list.
pub(super) fn check_patterns(selector: &Selector) -> Result<(), Fault> {
    for matchers in [&selector.matchers].into_iter().chain(&selector.others) {
        let distinct: HashSet<_> =
            matchers.iter().map(|m| (m.name(), m.op(), m.value(), m.pattern_bytes())).collect();
        let bytes = distinct.into_iter().map(|(.., bytes)| bytes).sum();
        within_sum(bytes).or_else(|error| fault(selector.span, error.to_string()))?;
    }
    Ok(())
}

fn selector(whole: &Selector, must_select: bool) -> Result<(), Fault> {
    check_patterns(whole)?;
    let mut lists = [&whole.matchers].into_iter().chain(&whole.others);
    lists.try_for_each(|matchers| conditions(whole, matchers, must_select))
}

fn conditions(selector: &Selector, matchers: &[Matcher], must_select: bool) -> Result<(), Fault> {
    if !selector.name.is_empty() {
        let others = matchers.iter().rev().skip(1).rev();
        return match others.into_iter().find(|m| m.name() == METRIC_NAME) {
            Some(again) => fault(
                selector.span,
                format!(
                    "metric name must not be set twice: {} or {}",
                    quote(&selector.name),
                    quote(again.value())
                ),
            ),
            None => Ok(()),
        };
    }
    if must_select && matchers.iter().all(|m| m.matches("")) {
        return fault(selector.span, "vector selector must contain at least one non-empty matcher");
    }
    Ok(())
}

fn aggregate(e: &Aggregate, query: &str) -> Result<(), Fault> {
    check(&e.expr, query)?;
    expect_type(&e.expr, ValueType::Vector, "aggregation expression")?;
    if let Some(param) = &e.param {
        check(param, query)?;
        expect_type(param, e.op.param_type(), "aggregation parameter")?;
    }
    for more in &e.more {
        check(more, query)?;
        expect_type(more, e.op.more_type(), "aggregation parameter")?;
    }
    Ok(())
}

fn call(e: &Call, query: &str) -> Result<(), Fault> {
    let Function { name, args, variadic, .. } = e.function;
    let (listed, given) = (args.len(), e.args.len());
    let count = |how: &str, wanted: usize| {
        fault(e.span, format!("expected {how}{wanted} argument(s) in call to {}, got {given}", quote(name)))
    };
    match variadic {
        Variadic::None if given != listed => return count("", listed),
        Variadic::UpTo(_) | Variadic::Any if given + 1 < listed => return count("at least ", listed - 1),
        Variadic::UpTo(more) if given > listed - 1 + more => return count("at most ", listed - 1 + more),
        _ => {}
    }
    if let ("info", Some(labels)) = (*name, e.args.get(1)) {
        if labels.value_type() != ValueType::Vector {
            let got = labels.value_type().documented();
            return fault(
                e.span,
                format!("expected type instant vector in call to function {}, got {got}", quote(name)),
            );
        }
        match labels {
            Expr::Selector(labels) if labels.name.is_empty() => {}
            Expr::Selector(labels) => {
                return fault(labels.span, "expected label selectors only, got vector selector instead");
            }
            other => return fault(other.span(), "expected label selectors only"),
        }
    }
    for (index, arg) in e.args.iter().enumerate() {
        match arg {
            Expr::Selector(labels) if *name == "info" && index == 1 => selector(labels, false)?,
            arg => check(arg, query)?,
        }
        let Some(wanted) = args.get(index).or(args.last()) else { continue };
        expect_type(arg, *wanted, &format!("call to function {}", quote(name)))?;
    }
    Ok(())
}

/// A binary operation as the parser creates it: matching only between vectors, many-to-many for set
/// operators.
pub(super) fn binary(op: BinaryOp, left: Expr, right: Expr, bool: bool, mut matching: Matching) -> Expr {
    if (op.is_set() || op.fills()) && matching.card == Cardinality::OneToOne {
        matching.card = Cardinality::ManyToMany;
    }
    Expr::Binary(Box::new(Binary { op, left, right, bool, matching: Some(matching), keep_name: false }))
}

fn binary_types(e: &Binary, query: &str) -> Result<(), Fault> {
    check(&e.left, query)?;
    check(&e.right, query)?;
    let (left, right) = (e.left.value_type(), e.right.value_type());
    let whole = e.left.span().to(e.right.span());
    if e.bool && !e.op.compares() {
        return fault(operator(e, query), "bool modifier can only be used on comparison operators");
    }
    if e.op.compares() && !e.bool && (left, right) == (ValueType::Scalar, ValueType::Scalar) {
        return fault(operator(e, query), "comparisons between scalars must use BOOL modifier");
    }
    let Some(matching) = &e.matching else { return Ok(()) };
    if let Some(twice) = matching.labels.iter().find(|label| matching.on && matching.include.contains(label))
    {
        let message = format!("label {} must not occur in ON and GROUP clause at once", quote(twice));
        return fault(operator(e, query), message);
    }
    for side in [&e.left, &e.right] {
        if !matches!(side.value_type(), ValueType::Scalar | ValueType::Vector) {
            return fault(side.span(), "binary expression must contain only scalar and instant vector types");
        }
    }
    let filled = matching.fill_left.is_some() || matching.fill_right.is_some();
    if (left, right) != (ValueType::Vector, ValueType::Vector) {
        if !matching.labels.is_empty() {
            return fault(whole, "vector matching only allowed between instant vectors");
        }
        if filled {
            return fault(whole, "filling in missing series only allowed between instant vectors");
        }
        if e.op.is_set() {
            let message =
                format!("set operator {} not allowed in binary scalar expression", quote(e.op.name()));
            return fault(whole, message);
        }
    } else if e.op.is_set() || e.op.fills() {
        if matching.card != Cardinality::ManyToMany {
            return fault(whole, format!("no grouping allowed for {} operation", quote(e.op.name())));
        }
        if filled {
            return fault(whole, "filling in missing series not allowed for set operators");
        }
    }
    Ok(())
}

/// The position of the operator and its modifiers: the text between the two sides, without white space.
fn operator(e: &Binary, query: &str) -> Span {
    let (from, to) = (e.left.span().end, e.right.span().start);
    let between = query.get(from..to).unwrap_or_default();
    let start = from + (between.len() - between.trim_start().len());
    Span { start, end: from + between.trim_end().len() }
}
