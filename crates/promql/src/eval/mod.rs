//! Evaluation: each part of an expression over all steps at once, one series at a time.
//!
//!   Source ─▶ selector ─▶ range function ─▶ aggregation ─▶ result       rows are pushed from left to right
//!                └─ samples of one series ─┘      └─ one row of steps ─┘
//!
//! Invariants
//! 1. An operator passes a [`Row`] to its sink and may reuse the row's memory when the sink returns; a sink
//!    that retains the row moves it out. So a sum over thousands of series holds one of them at a time.
//! 2. Work that depends on labels only is done once per series, never per step.
//! 3. Values do not depend on invariant marks, nor on how steps are grouped: a range query returns at each
//!    step the result of an instant query.
//!
//! Not here: which times a selector reads (`select`), range functions (`range`), operators between vectors
//! (`binary`).

mod aggregate;
mod binary;
mod buckets;
mod call;
mod choose;
mod fold;
mod groups;
mod info;
mod instant;
mod label;
pub(crate) mod metricsql;
mod number;
mod quantile;
mod range;
mod rate;
mod row;
mod scalar;
mod select;
mod window;

use std::cell::RefCell;
use std::sync::Arc;

pub(crate) use buckets::nearly_equal;
pub(crate) use info::reference as info_reference;
pub(crate) use range::Range;
pub(crate) use rate::extended_points;
pub(crate) use row::{Cell, Row, Rows, Steps};
pub(crate) use select::drop_stale;

use ropewalk_labels::{LABEL_SET_BYTES_MAX, LABEL_VALUE_BYTES_MAX, Labels, Part, Pattern};

use crate::annotations::{Annotations, Note};
use crate::budget::Budget;
use crate::data::patterns::{PatternError, Patterns};
use crate::data::source::{SampleRuns, Source};
use crate::error::{Result, refused};
use crate::options::Options;
use crate::syntax::ast::*;
use crate::syntax::position::Span;

/// The consumer of an operator's rows.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(&mut Row) -> Result<()>;

/// The direct parent of an expression, for the hints of selectors.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Around<'a> {
    pub(crate) func: Option<&'a str>,
    pub(crate) grouping: &'a [String],
    pub(crate) by: bool,
    pub(crate) runs: SampleRuns,
}

impl<'a> Around<'a> {
    pub(crate) fn aggregate(aggregate: &'a Aggregate) -> Self {
        Self {
            func: Some(aggregate.op.name()),
            grouping: &aggregate.grouping,
            by: !aggregate.without,
            ..Self::default()
        }
    }
}

/// One query being evaluated.
#[derive(Clone, Copy)]
pub(crate) struct Eval<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) budget: &'a Budget<'a>,
    pub(crate) options: &'a Options,
    pub(crate) notes: &'a RefCell<Annotations>,
    /// The regular expressions of its functions.
    pub(crate) patterns: &'a RefCell<Patterns>,
    /// The evaluated function or operator retains metric names.
    pub(crate) keep_name: bool,
}

impl<'a> Eval<'a> {
    pub(crate) fn note(&self, note: &Note<'_>, span: Span) {
        self.notes.borrow_mut().add(note, span);
    }

    /// Passes the series of a vector expression to `sink`, one by one. Rows may be empty.
    pub(crate) fn each_row(
        &self,
        expr: &Expr,
        steps: Steps,
        around: Around<'_>,
        sink: Sink<'_>,
    ) -> Result<()> {
        if steps.count == 0 {
            return Ok(());
        }
        match expr {
            Expr::Paren(e) => self.each_row(&e.expr, steps, around, sink),
            Expr::Invariant(e) => self.each_row(e, Steps { count: 1, ..steps }, around, &mut |row| {
                self.budget.work(steps.count)?;
                row.spread(steps.count);
                sink(row)
            }),
            Expr::Selector(e) => self.select_instant(e, steps, around, sink),
            Expr::Unary(e) => self.keeping(false).negate(e, steps, sink),
            Expr::Call(e) => self.keeping(e.keep_name).call(e, steps, sink),
            Expr::Aggregate(e) => self.aggregate(e, steps, sink),
            Expr::Binary(e) => self.keeping(e.keep_name).binary(e, steps, sink),
            Expr::WithOffset(e) => self.shifted(e, steps, around, sink),
            // The parser has checked types: the rest are scalars, strings and ranges, which are not allowed
            // as vectors.
            Expr::Number(_) | Expr::Text(_) | Expr::Matrix(_) | Expr::Subquery(_) => {
                refused("expected an expression of type instant vector")
            }
        }
    }

    /// A copy that retains metric names, or does not.
    pub(crate) fn keeping(&self, keep_name: bool) -> Self {
        Self { keep_name, ..*self }
    }

    /// Evaluates an expression at shifted times.
    fn shifted(&self, shifted: &WithOffset, steps: Steps, around: Around<'_>, sink: Sink<'_>) -> Result<()> {
        let earlier = |at_ms: i64| at_ms.saturating_sub(shifted.offset.ms());
        let Some(AtModifier::Time(at_ms)) = shifted.at else {
            let steps = Steps { start_ms: earlier(steps.start_ms), ..steps };
            return self.each_row(&shifted.expr, steps, around, sink);
        };
        self.each_row(&shifted.expr, Steps::one(earlier(at_ms)), Around::default(), &mut |row| {
            self.budget.work(steps.count)?;
            row.spread(steps.count);
            sink(row)
        })
    }

    /// All series of a vector expression that have a value.
    pub(crate) fn rows(&self, expr: &Expr, steps: Steps, around: Around<'_>) -> Result<Rows<'a>> {
        let mut rows = Rows::new(self.budget)?;
        self.each_row(expr, steps, around, &mut |row| rows.take(row))?;
        Ok(rows)
    }

    /// Passes rows to a sink.
    pub(crate) fn give(&self, rows: impl IntoIterator<Item = Row>, sink: Sink<'_>) -> Result<()> {
        for mut row in rows {
            self.budget.work(row.steps())?;
            sink(&mut row)?;
        }
        Ok(())
    }

    /// A label set with one label changed. The caller counts the memory if it stores the set.
    ///
    /// # Errors
    /// A value, or a set, over its limit; a stop.
    pub(crate) fn relabeled(&self, labels: &Labels, name: &str, value: &str) -> Result<Labels> {
        check_label_value(value)?;
        let bytes = labels.bytes() + name.len() + value.len();
        if bytes > SERIES_LABELS_BYTES_MAX {
            return refused(format!(
                "labels of {bytes} bytes exceed the limit of {SERIES_LABELS_BYTES_MAX} bytes for a series"
            ));
        }
        self.budget.work(1 + bytes / LABEL_BYTES_PER_WORK)?;
        Ok(labels.with(name, value))
    }

    /// A regular expression of a function, compiled in the patterns of the query.
    pub(crate) fn pattern(&self, function: &str, part: Part, pattern: &str) -> Result<Arc<Pattern>> {
        let compiled = self.patterns.borrow_mut().compile(part, pattern, &|| self.budget.stopped());
        compiled.or_else(|error| match error {
            PatternError::Budget(error) => Err(error.into()),
            PatternError::Invalid(_) => {
                let shown: String = pattern.chars().take(100).collect();
                refused(format!("invalid regular expression in {function}(): {shown}"))
            }
        })
    }

    /// Removes the metric name, now or at the end of the query, since the value is no longer that of the
    /// metric.
    pub(crate) fn drop_name(&self, row: &mut Row) {
        if self.keep_name {
            return;
        }
        if self.options.delayed_name_removal {
            row.drop_name = true;
        } else {
            row.labels = row.labels.without_name();
        }
    }

    /// As [`Eval::drop_name`], for labels.
    pub(crate) fn without_name(&self, labels: &Labels) -> Labels {
        if self.options.delayed_name_removal || self.keep_name {
            labels.clone()
        } else {
            labels.without_name()
        }
    }

    /// Runs an operator that removes names. If that can make two series equal, they are merged before they
    /// are passed on.
    pub(crate) fn unnamed(
        &self,
        from: &Expr,
        sink: Sink<'_>,
        run: impl FnOnce(Sink<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.options.delayed_name_removal || self.keep_name || names_are_equal(from) {
            return run(sink);
        }
        let mut rows = Rows::new(self.budget)?;
        run(&mut |row| rows.take(row))?;
        rows.merge()?;
        self.give(std::mem::take(&mut rows.list), sink)
    }

    fn negate(&self, unary: &Unary, steps: Steps, sink: Sink<'_>) -> Result<()> {
        if !unary.negative {
            return self.each_row(&unary.expr, steps, Around::default(), sink);
        }
        self.unnamed(&unary.expr, sink, |sink| {
            self.each_row(&unary.expr, steps, Around::default(), &mut |row| {
                self.drop_name(row);
                for value in row.floats.iter_mut().filter(|value| !row::is_absent(**value)) {
                    *value = -*value;
                }
                for histogram in row.histograms.iter_mut().flatten() {
                    Arc::make_mut(histogram).multiply(-1.0);
                }
                sink(row)
            })
        })
    }
}

/// Bytes of labels that cost as much time as one step.
const LABEL_BYTES_PER_WORK: usize = 64;

/// Bytes of all labels of a series to which a query has added some: twice what a store takes.
const SERIES_LABELS_BYTES_MAX: usize = 2 * LABEL_SET_BYTES_MAX;

/// Bytes of a label set in a table, in addition to its text.
const KNOWN_BYTES: usize = 96;

/// Rejects a label value over the limit.
pub(crate) fn check_label_value(value: &str) -> Result<()> {
    if value.len() > LABEL_VALUE_BYTES_MAX {
        let bytes = value.len();
        return refused(format!(
            "label value of {bytes} bytes exceeds the limit of {LABEL_VALUE_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// True when all series of the expression are known to have the same metric name, or none.
fn names_are_equal(expr: &Expr) -> bool {
    use ropewalk_labels::{METRIC_NAME, MatchOp};
    let of_selector = |selector: &Selector| {
        selector.others.is_empty()
            && selector
                .matchers
                .iter()
                .any(|m| m.name() == METRIC_NAME && m.op() == MatchOp::Equal && !m.value().is_empty())
    };
    match expr {
        Expr::Selector(e) => of_selector(e),
        Expr::Matrix(e) => of_selector(&e.selector),
        Expr::Paren(e) => names_are_equal(&e.expr),
        Expr::WithOffset(e) => names_are_equal(&e.expr),
        Expr::Invariant(e) => names_are_equal(e),
        _ => false,
    }
}
