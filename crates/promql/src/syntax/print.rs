//! Prints a syntax tree in canonical form, which tools display and compare. It parses to the same tree.

use std::fmt::{self, Display, Formatter, Write as _};

use ropewalk_labels::text::{is_label_name, quote, quote_bytes};
use ropewalk_labels::{METRIC_NAME, MatchOp, Matcher};

use crate::data::text::{duration, float};
use crate::syntax::ast::*;

impl Display for Expr {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Number(e) => e.fmt(out),
            Expr::Text(e) => out.write_str(&quote_bytes(&e.value)),
            Expr::Selector(e) => e.fmt(out),
            Expr::Matrix(e) => e.fmt(out),
            Expr::Subquery(e) => write!(out, "{}{}", e.expr, Behind(e)),
            Expr::Call(e) => {
                write!(out, "{}(", e.function.name)?;
                list(&e.args, out)?;
                out.write_str(if e.keep_name { ") keep_metric_names" } else { ")" })
            }
            Expr::Aggregate(e) => e.fmt(out),
            Expr::Binary(e) => write!(out, "{} {} {}", e.left, Middle(e), e.right),
            Expr::Unary(e) => write!(out, "{}{}", if e.negative { "-" } else { "+" }, e.expr),
            Expr::Paren(e) => {
                let keep_name = matches!(&e.expr, Expr::Binary(inner) if inner.keep_name);
                write!(out, "({}){}", e.expr, if keep_name { " keep_metric_names" } else { "" })
            }
            Expr::WithOffset(e) => {
                e.expr.fmt(out)?;
                at(e.at, out)?;
                offset(&e.offset, out)
            }
            Expr::Invariant(e) => e.fmt(out),
        }
    }
}

/// The text after the expression of a subquery.
pub(crate) struct Behind<'e>(pub(crate) &'e Subquery);

impl Display for Behind<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "[{}:", self.0.range)?;
        if self.0.step != Duration::NONE {
            self.0.step.fmt(out)?;
        }
        out.write_str("]")?;
        at(self.0.at, out)?;
        offset(&self.0.offset, out)
    }
}

/// The text between the two sides of an operator.
pub(crate) struct Middle<'e>(pub(crate) &'e Binary);

impl Display for Middle<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(self.0.op.name())?;
        if self.0.bool {
            out.write_str(" bool")?;
        }
        match &self.0.matching {
            Some(matching) => matching.fmt(out),
            None => Ok(()),
        }
    }
}

/// The text before the arguments of an aggregation.
pub(crate) struct Head<'e>(pub(crate) &'e Aggregate);

impl Display for Head<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(self.0.op.name())?;
        if !self.0.without && self.0.grouping.is_empty() {
            return Ok(());
        }
        out.write_str(if self.0.without { " without " } else { " by " })?;
        names(&self.0.grouping, out)?;
        out.write_str(" ")
    }
}

fn list(items: &[impl Display], out: &mut Formatter<'_>) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.write_str(", ")?;
        }
        item.fmt(out)?;
    }
    Ok(())
}

/// A label name, quoted when it must be.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if is_label_name(self.0) { out.write_str(self.0) } else { out.write_str(&quote(self.0)) }
    }
}

fn names(labels: &[String], out: &mut Formatter<'_>) -> fmt::Result {
    let labels: Vec<Name<'_>> = labels.iter().map(|label| Name(label)).collect();
    out.write_str("(")?;
    list(&labels, out)?;
    out.write_str(")")
}

impl Display for Number {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.duration {
            out.write_str(&duration((self.value * 1000.0).round() as i64))
        } else {
            out.write_str(&float(self.value))
        }
    }
}

impl Display for Selector {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.bare_text(out)?;
        at(self.at, out)?;
        edges(self.edges, out)?;
        offset(&self.offset, out)
    }
}

impl Selector {
    fn bare_text(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let of_name = |m: &&Matcher| {
            m.name() == METRIC_NAME
                && m.op() == MatchOp::Equal
                && m.value() == self.name
                && !self.name.is_empty()
        };
        let list = |matchers: &[Matcher]| {
            let mut texts: Vec<String> =
                matchers.iter().filter(|m| !of_name(m)).map(ToString::to_string).collect();
            texts.sort();
            texts.join(",")
        };
        out.write_str(&self.name)?;
        let mut text = list(&self.matchers);
        for other in &self.others {
            text += " or ";
            text += &list(other);
        }
        if text.is_empty() && !self.name.is_empty() {
            return Ok(());
        }
        write!(out, "{{{text}}}")
    }
}

impl Display for Matrix {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.selector.bare_text(out)?;
        if !self.range.is_implicit() {
            write!(out, "[{}]", self.range)?;
        }
        edges(self.selector.edges, out)?;
        at(self.selector.at, out)?;
        offset(&self.selector.offset, out)
    }
}

fn at(at: Option<AtModifier>, out: &mut Formatter<'_>) -> fmt::Result {
    match at {
        None => Ok(()),
        Some(AtModifier::Time(ms)) => {
            let sign = if ms < 0 { "-" } else { "" };
            write!(out, " @ {sign}{}.{:03}", ms.unsigned_abs() / 1000, ms.unsigned_abs() % 1000)
        }
        Some(AtModifier::Start) => out.write_str(" @ start()"),
        Some(AtModifier::End) => out.write_str(" @ end()"),
    }
}

fn edges(edges: RangeEdges, out: &mut Formatter<'_>) -> fmt::Result {
    match edges {
        RangeEdges::Plain => Ok(()),
        RangeEdges::Anchored => out.write_str(" anchored"),
        RangeEdges::Smoothed => out.write_str(" smoothed"),
    }
}

fn offset(offset: &Duration, out: &mut Formatter<'_>) -> fmt::Result {
    if *offset == Duration::NONE { Ok(()) } else { write!(out, " offset {offset}") }
}

impl Display for Duration {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Duration::Fixed(ms) => out.write_str(&duration(*ms)),
            Duration::Expr(expr) => expr.fmt(out),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.wrapped {
            out.write_char('(')?;
        }
        match &self.kind {
            DurationKind::Number(number) => number.fmt(out)?,
            DurationKind::Step => out.write_str("step()")?,
            DurationKind::Range => out.write_str("range()")?,
            // The selector omits an implicit range.
            DurationKind::Window => {}
            DurationKind::Negative(expr) => write!(out, "-{expr}")?,
            DurationKind::Binary(op, left, right) => write!(out, "{left} {} {right}", op.name())?,
            DurationKind::MinOf(left, right) => write!(out, "min_of({left}, {right})")?,
            DurationKind::MaxOf(left, right) => write!(out, "max_of({left}, {right})")?,
        }
        if self.wrapped {
            out.write_char(')')?;
        }
        Ok(())
    }
}

impl Display for Aggregate {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}(", Head(self))?;
        list(&self.args(), out)?;
        out.write_str(")")?;
        match self.limit {
            Some(limit) => write!(out, " limit {limit}"),
            None => Ok(()),
        }
    }
}

impl Display for Matching {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let grouped = matches!(self.card, Cardinality::ManyToOne | Cardinality::OneToMany);
        if !self.labels.is_empty() || self.on || grouped {
            out.write_str(if self.on { " on " } else { " ignoring " })?;
            names(&self.labels, out)?;
        }
        if grouped {
            out.write_str(if self.card == Cardinality::ManyToOne {
                " group_left "
            } else {
                " group_right "
            })?;
            names(&self.include, out)?;
        }
        match (self.fill_left, self.fill_right) {
            // NaN is not equal to itself, and so Prometheus prints it twice.
            (Some(left), Some(right)) if left == right => {
                write!(out, " fill ({})", float(left))
            }
            (left, right) => {
                if let Some(left) = left {
                    write!(out, " fill_left ({})", float(left))?;
                }
                if let Some(right) = right {
                    write!(out, " fill_right ({})", float(right))?;
                }
                Ok(())
            }
        }
    }
}
