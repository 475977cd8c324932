//! The invariant of a planned node: no expression reads a column beyond the row that it is evaluated for.
//!
//! Expressions refer to columns by number. Planning moves them between rows of different widths (relations
//! joined so far, groups, results), so a number that was not adjusted reads another column. This check finds
//! references outside the row.

use super::Body;
use super::From;
use super::Inner;
use super::Node;
use super::Output;
use super::Select;
use super::Source;
use crate::expr::{Expr, Order};
use crate::plan::Groups;

/// Widths of the accessible rows: those of the enclosing queries, outermost first, then that of the current
/// one.
#[derive(Clone, Copy)]
struct Rows<'r> {
    around: &'r [usize],
    width: usize,
}

impl Rows<'_> {
    fn hold(self, expr: &Expr) -> bool {
        let mut holds = match expr {
            Expr::Column(column) => *column < self.width,
            Expr::Outer(steps, column) => {
                let place = self.around.len().checked_sub(steps + 1);
                place.and_then(|place| self.around.get(place)).is_some_and(|width| column < width)
            }
            _ => Inner::in_expr(expr)
                .is_none_or(|inner| inner.node.stays_within(&[self.around, &[self.width]].concat())),
        };
        expr.for_parts(&mut |part| holds = holds && self.hold(part));
        holds
    }

    fn hold_all<'e>(self, exprs: impl IntoIterator<Item = &'e Expr>) -> bool {
        exprs.into_iter().all(|expr| self.hold(expr))
    }

    fn hold_orders(self, orders: &[Order]) -> bool {
        self.hold_all(orders.iter().map(|order| &order.expr))
    }
}

impl Node {
    /// True when every column that an expression reads belongs to its row, or to the row of an enclosing
    /// query. `around` lists the widths of the latter, outermost first.
    pub(super) fn stays_within(&self, around: &[usize]) -> bool {
        let rows = |width| Rows { around, width };
        let body = match &self.body {
            Body::Select(select) => select.stays_within(around),
            Body::Values(values) => rows(0).hold_all(values.iter().flatten()),
            Body::Set { left, right, .. } | Body::Recursive { base: left, step: right, .. } => {
                left.stays_within(around) && right.stays_within(around)
            }
        };
        let counts = self.limit.iter().chain(&self.offset);
        body && rows(self.columns.len()).hold_orders(&self.order) && rows(0).hold_all(counts)
    }
}

impl Select {
    fn stays_within(&self, around: &[usize]) -> bool {
        let Self { from, constant, groups, output, order, is_distinct: _, distinct_on } = self;
        let rows = |width| Rows { around, width };
        let mut source = rows(from.last().map_or(0, |last| last.start + last.width));
        let joined = from.iter().all(|from| from.stays_within(around)) && rows(0).hold_all(constant);
        let grouped = groups.as_ref().is_none_or(|Groups { keys, aggregates, having }| {
            let over_rows = source.hold_all(keys)
                && aggregates.iter().all(|aggregate| {
                    source.hold_all(aggregate.arguments.iter().chain(&aggregate.filter))
                        && source.hold_orders(&aggregate.order)
                });
            source = rows(keys.len() + aggregates.len());
            over_rows && source.hold_all(having)
        });
        let shown = output.iter().all(|output| match output {
            Output::One(expr) => source.hold(expr),
            Output::Many(_, arguments, _) => source.hold_all(arguments),
            Output::Number(partition, order) => source.hold_all(partition) && source.hold_orders(order),
        });
        joined && grouped && shown && source.hold_all(distinct_on) && source.hold_orders(order)
    }
}

impl From {
    fn stays_within(&self, around: &[usize]) -> bool {
        let Self { source, start, width, filter, is_outer: _, after } = self;
        let before = Rows { around, width: *start };
        let made = match source {
            Source::Query(inner) => inner.node.stays_within(&[around, &[*start]].concat()),
            Source::Function(_, arguments, _) => before.hold_all(arguments),
            Source::Made(_) | Source::Table(..) | Source::Model(_) | Source::Last(_) => true,
        };
        made && Rows { around, width: start + width }.hold_all(filter.iter().chain(after))
    }
}
