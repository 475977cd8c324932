//! Range functions: the series of a range selector or subquery, and a window of their samples at each step.
//!
//! Both borders of the window only move forward, so all windows of a series are found in one pass over its
//! times.

use std::sync::Arc;

use ropewalk_labels::text::quote;
use ropewalk_labels::{Histogram, Labels, METRIC_TYPE, ResetHint, Samples};

use super::Around;
use super::Eval;
use super::Sink;
use super::fold::{Fold, Scratch};
use super::rate::Plain;
use super::row::{Cell, Numbers, Row, Steps};
use super::select::{Reference, drop_stale, gallop};
use super::window::{Apply, Function, HistogramPoint, Place, Window};
use crate::annotations::Note;
use crate::data::source::{Hints, SampleRuns, Select};
use crate::error::{Result, refused};
use crate::syntax::ast::*;

/// The samples of one series of a range, floats and histograms separated.
#[derive(Debug, Default)]
struct Track {
    samples: Samples,
    histograms: Vec<HistogramPoint>,
}

impl Track {
    /// Splits off the histograms and drops staleness markers.
    fn take(&mut self, samples: &mut Samples) {
        drop_stale(samples);
        self.histograms.clear();
        std::mem::swap(&mut self.samples, samples);
        if self.samples.histograms.iter().all(Option::is_none) {
            return;
        }
        let mixed = std::mem::take(&mut self.samples);
        for (index, (time_ms, value)) in mixed.times_ms.iter().zip(&mixed.values).enumerate() {
            let start_ms = mixed.starts_ms.get(index).copied().unwrap_or(0);
            match mixed.histograms.get(index) {
                Some(Some(histogram)) => {
                    self.histograms.push(HistogramPoint {
                        time_ms: *time_ms,
                        start_ms,
                        histogram: Arc::clone(histogram),
                    });
                }
                _ => {
                    self.samples.push(*time_ms, *value);
                    self.samples.set_start(start_ms);
                }
            }
        }
    }
}

/// A window's borders in a column of rising times.
#[derive(Debug, Clone, Copy, Default)]
struct Border {
    from: usize,
    to: usize,
}

impl Border {
    fn advance<T>(
        &mut self,
        column: &[T],
        time: impl Fn(&T) -> i64,
        after: i64,
        until: i64,
    ) -> (usize, usize) {
        self.to = gallop(column, self.to, |item| time(item) <= until);
        self.from = gallop(column, self.from, |item| time(item) <= after).min(self.to);
        (self.from, self.to)
    }
}

/// The range that an argument reads.
pub(crate) struct Range<'e> {
    pub(crate) expr: &'e Expr,
    pub(crate) range_ms: i64,
    pub(crate) edges: RangeEdges,
    pub(crate) reference: Reference,
}

impl<'e> Range<'e> {
    pub(crate) fn new(expr: &'e Expr, steps: Steps) -> Option<Self> {
        match expr.bare() {
            Expr::Matrix(e) => Some(Self {
                expr: expr.bare(),
                range_ms: e.range.ms(),
                edges: e.selector.edges,
                reference: Reference::new(e.selector.at, &e.selector.offset, steps),
            }),
            Expr::Subquery(e) => Some(Self {
                expr: expr.bare(),
                range_ms: e.range.ms(),
                edges: RangeEdges::Plain,
                reference: Reference::new(e.at, &e.offset, steps),
            }),
            _ => None,
        }
    }
}

impl Eval<'_> {
    /// Passes each series of a range to `each`: labels, whether the name is to be removed, samples.
    pub(crate) fn each_range(
        &self,
        range: &Range<'_>,
        steps: Steps,
        around: Around<'_>,
        starts: bool,
        each: &mut dyn FnMut(&Labels, bool, &mut Samples) -> Result<()>,
    ) -> Result<()> {
        let (first, last) = (range.reference.first(), range.reference.last());
        match range.expr {
            Expr::Subquery(e) => {
                let inner = self.subquery_steps(e, first, last)?;
                // Samples of 16 bytes, and as many that a function has moved out.
                let _held = self.budget.holding(inner.count * 32)?;
                let mut held_histograms = self.budget.holding(0)?;
                let mut samples = Samples::default();
                self.each_row(&e.expr, inner, Around::default(), &mut |row| {
                    samples.clear();
                    for (step, time_ms) in inner.times().enumerate() {
                        match row.cell(step) {
                            Some(Cell::Float(value)) => samples.push(time_ms, value),
                            Some(Cell::Histogram(h)) => samples.push_histogram(time_ms, unhinted(&h)),
                            None => {}
                        }
                    }
                    if samples.is_empty() {
                        return Ok(());
                    }
                    if !samples.histograms.is_empty() {
                        held_histograms.set(samples.bytes())?;
                    }
                    each(&row.labels, row.drop_name, &mut samples)
                })
            }
            Expr::Matrix(e) => {
                let lookback = self.options.lookback_ms;
                let (before, after) = match range.edges {
                    RangeEdges::Plain => (0, 0),
                    RangeEdges::Anchored => (lookback, 0),
                    RangeEdges::Smoothed => (lookback, lookback),
                };
                let select = Select {
                    matchers: &e.selector.matchers,
                    start_ms: first.saturating_sub(range.range_ms).saturating_sub(before).saturating_add(1),
                    end_ms: last.saturating_add(after),
                    hints: Hints {
                        step_ms: if steps.count > 1 { steps.step_ms } else { 0 },
                        range_ms: range.range_ms,
                        window_ms: range.range_ms,
                        func: around.func,
                        grouping: around.grouping,
                        by: around.by,
                        runs: if starts { SampleRuns::Apart } else { around.runs },
                        starts,
                    },
                };
                self.each_series(&select, (&e.selector.others, e.selector.totals), &mut |labels, samples| {
                    each(labels, false, samples)
                })
            }
            _ => refused("expected an expression of type range vector"),
        }
    }

    /// The steps of a subquery: multiples of its step, from after the beginning of the first range to the end
    /// of the last.
    pub(crate) fn subquery_steps(&self, subquery: &Subquery, first: i64, last: i64) -> Result<Steps> {
        let step_ms = match subquery.step.ms() {
            0 => self.options.subquery_step_ms,
            ms => ms,
        };
        let after = first.saturating_sub(subquery.range.ms());
        let start_ms = after.div_euclid(step_ms).saturating_add(1).saturating_mul(step_ms);
        let steps = Steps::new(start_ms, last, step_ms);
        self.budget.steps(steps.count as u64)?;
        Ok(steps)
    }

    /// A call of a function over a range.
    pub(crate) fn call_range(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let found = call.args.iter().find_map(|arg| Range::new(arg, steps));
        if let (Some(range), Some(parts)) = (&found, super::metricsql::parts(call.function.name)) {
            return self.each_part(call, range, parts, steps, sink);
        }
        let (Some(range), Some(function)) = (found, Function::find(call.function.name)) else {
            return refused(format!("function {} takes no range", call.function.name));
        };
        check_edges(range.edges, call.function.name)?;
        let mut scalars = Vec::new();
        for arg in call.args.iter().filter(|arg| arg.value_type() == ValueType::Scalar) {
            scalars.push(self.scalar(arg, steps)?);
        }
        if call.function.name == "absent_over_time" {
            return self.absent_over_time(call, &range, steps, sink);
        }
        let from = range.expr;
        self.unnamed(from, sink, |sink| self.each_window(call, function, &range, &scalars, steps, sink))
    }

    /// A function that returns several series for each: all, distinguished by a label, or the requested one.
    fn each_part(
        &self,
        call: &Call,
        range: &Range<'_>,
        parts: &[(&str, Apply)],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        check_edges(range.edges, call.function.name)?;
        let asked = call.args.get(1).map(super::call::text).transpose()?;
        if let Some(asked) = asked.filter(|asked| !parts.iter().any(|(part, _)| part == asked)) {
            return refused(format!("{}() does not give {}", call.function.name, quote(asked)));
        }
        for (part, apply) in parts.iter().filter(|(part, _)| asked.is_none_or(|asked| asked == *part)) {
            self.unnamed(range.expr, &mut *sink, |sink| {
                self.each_window(call, Function::of(*apply), range, &[], steps, &mut |row| {
                    if asked.is_none() {
                        row.labels = self.relabeled(&row.labels, "rollup", part)?;
                    }
                    sink(row)
                })
            })?;
        }
        Ok(())
    }

    fn each_window(
        &self,
        call: &Call,
        function: Function,
        range: &Range<'_>,
        scalars: &[Numbers<'_>],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let name = call.function.name;
        let keeps_name =
            matches!(name, "last_over_time" | "first_over_time") || super::metricsql::keeps_name(name);
        let starts = self.options.start_timestamps && function.reads_starts();
        let place = Place {
            first: call.args.first().map_or(call.span, Expr::span),
            range_ms: range.range_ms,
            edges: range.edges,
        };
        let runs =
            if range.edges == RangeEdges::Plain { runs(call.function.name) } else { SampleRuns::Apart };
        let around = Around { func: Some(call.function.name), runs, ..Around::default() };
        let (before, after) = self.widening(range.edges);
        let (mut track, mut row) = (Track::default(), Row::default());
        // A value for each step, and the borders of its window.
        let _held = self.budget.holding(steps.count * 24)?;
        let mut held_histograms = self.budget.holding(0)?;
        let mut params = vec![0.0; scalars.len()];
        let (fold, rates) = (Fold::find(call.function.name), Plain::find(call.function.name));
        let (mut bounds, mut scratch, mut falls) = (Vec::new(), Scratch::default(), Vec::new());
        self.each_range(range, steps, around, starts, &mut |labels, drop_name, samples| {
            track.take(samples);
            row.reset(labels.clone(), drop_name, steps.count);
            held_histograms.set(0)?;
            if !keeps_name {
                self.drop_name(&mut row);
            }
            let (mut floats, mut histograms) = (Border::default(), Border::default());
            if let Some(fold) = fold.filter(|_| track.histograms.is_empty()) {
                bounds.clear();
                bounds.extend((0..steps.count).map(|step| {
                    let end_ms = range.reference.time(step);
                    let start_ms = end_ms.saturating_sub(range.range_ms);
                    floats.advance(&track.samples.times_ms, |t| *t, start_ms, end_ms)
                }));
                super::fold::windows(fold, &track.samples, &bounds, &mut row.floats, &mut scratch);
                self.budget.work(steps.count + track.samples.len())?;
                std::mem::swap(&mut track.samples, samples);
                return sink(&mut row);
            }
            falls.clear();
            if Function::reads_falls(call.function.name) {
                find_falls(&track.samples, &mut falls);
            }
            let plain = track.histograms.is_empty() && track.samples.starts_ms.is_empty();
            if let Some(rates) = rates.filter(|_| plain && range.edges == RangeEdges::Plain) {
                let windows = (0..steps.count).map(|step| {
                    let end_ms = range.reference.time(step);
                    let start_ms = end_ms.saturating_sub(range.range_ms);
                    (floats.advance(&track.samples.times_ms, |t| *t, start_ms, end_ms), end_ms)
                });
                rates.windows(&track.samples, &falls, windows, range.range_ms, &mut row.floats);
                self.budget.work(steps.count + track.samples.len())?;
                if call.function.name != "delta" {
                    self.note_non_counter(&row, labels, &place);
                }
                std::mem::swap(&mut track.samples, samples);
                return sink(&mut row);
            }
            for step in 0..steps.count {
                let end_ms = range.reference.time(step);
                let start_ms = end_ms.saturating_sub(range.range_ms);
                let (after_ms, until_ms) = (start_ms.saturating_sub(before), end_ms.saturating_add(after));
                let (from, to) = floats.advance(&track.samples.times_ms, |t| *t, after_ms, until_ms);
                let (h_from, h_to) = histograms.advance(&track.histograms, |p| p.time_ms, after_ms, until_ms);
                let size = (to - from) + (h_to - h_from);
                if size == 0 || after_ms == until_ms {
                    continue;
                }
                // Checked at each step: a window may hold any number of samples.
                self.budget.work(size)?;
                for (param, values) in params.iter_mut().zip(scalars) {
                    *param = values.get(step).copied().unwrap_or(f64::NAN);
                }
                let window = Window {
                    times: track.samples.times_ms.get(from..to).unwrap_or_default(),
                    values: track.samples.values.get(from..to).unwrap_or_default(),
                    starts: track.samples.starts_ms.get(from..to).unwrap_or_default(),
                    histograms: track.histograms.get(h_from..h_to).unwrap_or_default(),
                    start_ms,
                    end_ms,
                    step_ms: steps.time(step),
                    falls: &falls,
                    params: &params,
                    labels,
                    place: &place,
                };
                if let Some(cell) = function.apply(self, &window)? {
                    if let Cell::Histogram(histogram) = &cell {
                        held_histograms.grow(size_of::<usize>() + histogram.bytes())?;
                    }
                    row.set(step, cell);
                }
            }
            self.budget.work(steps.count)?;
            if matches!(call.function.name, "rate" | "increase") {
                self.note_non_counter(&row, labels, &place);
            }
            std::mem::swap(&mut track.samples, samples);
            sink(&mut row)
        })
    }

    /// How far a selector reads beyond its range, to each side.
    fn widening(&self, edges: RangeEdges) -> (i64, i64) {
        match edges {
            RangeEdges::Plain => (0, 0),
            RangeEdges::Anchored => (self.options.lookback_ms, 0),
            RangeEdges::Smoothed => (self.options.lookback_ms, self.options.lookback_ms),
        }
    }

    /// Adds an annotation when a rate is calculated of a metric whose name does not look like a counter's.
    fn note_non_counter(&self, row: &Row, labels: &Labels, place: &Place) {
        let name = labels.name();
        if name.is_empty() || row.floats.iter().all(|value| super::row::is_absent(*value)) {
            return;
        }
        if self.options.type_and_unit_labels {
            let kind = labels.get(METRIC_TYPE);
            if kind != "counter" && kind != "histogram" {
                self.note(&Note::PossibleNonCounterLabel { name, kind }, place.first);
            }
        } else if !["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix)) {
            self.note(&Note::PossibleNonCounter { name }, place.first);
        }
    }

    /// 1 at the steps where no series has a sample.
    fn absent_over_time(&self, call: &Call, range: &Range<'_>, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let mut row = Row::new(super::call::labels_of_absence(call.args.first()), false, steps.count);
        row.floats.fill(1.0);
        let around = Around { func: Some("absent_over_time"), ..Around::default() };
        self.each_range(range, steps, around, false, &mut |_, _, samples| {
            drop_stale(samples);
            let mut border = Border::default();
            for step in 0..steps.count {
                let end = range.reference.time(step);
                let (from, to) =
                    border.advance(&samples.times_ms, |t| *t, end.saturating_sub(range.range_ms), end);
                if to > from {
                    row.clear(step);
                }
            }
            Ok(self.budget.work(steps.count)?)
        })?;
        if row.is_empty() { Ok(()) } else { sink(&mut row) }
    }
}

/// Rows that may replace samples that a range function only ever reads together.
fn runs(function: &str) -> SampleRuns {
    match function {
        "avg_over_time" | "count_over_time" | "sum_over_time" => SampleRuns::Sum,
        "min_over_time" => SampleRuns::Least,
        "max_over_time" => SampleRuns::Greatest,
        "delta" | "first_over_time" | "last_over_time" | "present_over_time" => SampleRuns::Ends,
        "ts_of_first_over_time" | "ts_of_last_over_time" => SampleRuns::Ends,
        "increase" | "rate" | "resets" => SampleRuns::RisingEnds,
        _ => SampleRuns::Apart,
    }
}

/// The positions where values fall: the time after, the value before.
fn find_falls(samples: &Samples, falls: &mut Vec<(i64, f64)>) {
    let Samples { times_ms, values, .. } = samples;
    let pairs = || values.iter().zip(values.iter().skip(1));
    // Most counters never fall; without an early exit, the comparison is vectorized.
    if pairs().fold(false, |any, (before, now)| any | (now < before)) {
        let timed = times_ms.iter().skip(1).zip(pairs());
        let fallen = timed.filter(|(_, (before, now))| now < before);
        falls.extend(fallen.map(|(time, (before, _))| (*time, *before)));
    }
}

fn check_edges(edges: RangeEdges, function: &str) -> Result<()> {
    let (word, allowed): (_, &[&str]) = match edges {
        RangeEdges::Plain => return Ok(()),
        RangeEdges::Anchored => ("anchored", &["changes", "delta", "increase", "rate", "resets"]),
        RangeEdges::Smoothed => ("smoothed", &["delta", "increase", "rate"]),
    };
    if allowed.contains(&function) {
        return Ok(());
    }
    refused(format!("{word} modifier can only be used with: {} - not with {function}", allowed.join(", ")))
}

/// Between the steps of a subquery resets may be missed: discards the hints about resets between neighbours.
fn unhinted(histogram: &Arc<Histogram>) -> Arc<Histogram> {
    match histogram.hint {
        ResetHint::Unknown | ResetHint::Gauge => Arc::clone(histogram),
        ResetHint::Reset | ResetHint::NotReset => {
            Arc::new(Histogram { hint: ResetHint::Unknown, ..(**histogram).clone() })
        }
    }
}
