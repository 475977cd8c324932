//! Selectors: the samples that each step uses.
//!
//!   instant   the last sample in (t - lookback, t], unless it is a staleness marker
//!   range     all samples in (t - range, t], without staleness markers
//!
//! where t is the time of the step less the offset, or the time of `@` less the offset.

use std::collections::HashSet;
use std::sync::Arc;

use ropewalk_labels::{Histogram, Labels, Matcher, ResetHint, Samples, is_stale};

use super::Around;
use super::Eval;
use super::KNOWN_BYTES;
use super::Sink;
use super::row::{Cell, Row, Steps};
use crate::annotations::Note;
use crate::data::source::{Hints, SampleRuns, Select};
use crate::error::Result;
use crate::syntax::ast::*;

/// The times that a selector reads, one per step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    at: Option<i64>,
    offset_ms: i64,
    steps: Steps,
}

impl Reference {
    pub(crate) fn new(at: Option<AtModifier>, offset: &Duration, steps: Steps) -> Self {
        let at = match at {
            Some(AtModifier::Time(ms)) => Some(ms),
            _ => None,
        };
        Self { at, offset_ms: offset.ms(), steps }
    }

    pub(crate) fn time(&self, step: usize) -> i64 {
        self.at.unwrap_or_else(|| self.steps.time(step)).saturating_sub(self.offset_ms)
    }

    pub(crate) fn first(&self) -> i64 {
        self.time(0)
    }

    pub(crate) fn last(&self) -> i64 {
        self.time(self.steps.count.saturating_sub(1))
    }
}

/// One sample of an instant selector.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) time_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) cell: Cell,
}

impl Eval<'_> {
    /// Reads the series of a selector: labels, and samples in the bounds. `others` are further lists of
    /// matchers.
    pub(crate) fn each_series(
        &self,
        select: &Select<'_>,
        (others, totals): (&[Vec<Matcher>], bool),
        each: &mut dyn FnMut(&Labels, &mut Samples) -> Result<()>,
    ) -> Result<()> {
        self.budget.check()?;
        self.budget.looks_at(select.end_ms);
        let mut samples = Samples::default();
        let (mut held, mut held_known) = (self.budget.holding(0)?, self.budget.holding(0)?);
        // A series that matches two lists of matchers is returned once.
        let mut known = (!others.is_empty()).then(HashSet::new);
        for matchers in [select.matchers].into_iter().chain(others.iter().map(Vec::as_slice)) {
            let mut set = self.source.select(&Select { matchers, ..*select }, self.budget)?;
            while let Some(labels) = set.next()? {
                self.budget.one_series()?;
                if let Some(known) = &mut known {
                    if !known.insert(labels.clone()) {
                        continue;
                    }
                    held_known.grow(labels.bytes() + KNOWN_BYTES)?;
                }
                samples.clear();
                set.samples(&mut samples)?;
                // Functions split floats from histograms, so the samples are counted twice.
                held.set(samples.bytes().saturating_mul(2))?;
                if totals && !samples.histograms.is_empty() {
                    resolve_resets(&mut samples);
                }
                each(&labels, &mut samples)?;
            }
        }
        Ok(())
    }

    fn instant_bounds<'q>(
        &self,
        selector: &'q Selector,
        reference: &Reference,
        steps: Steps,
        around: Around<'q>,
    ) -> Select<'q> {
        let lookback = self.options.lookback_ms;
        let after = if selector.edges == RangeEdges::Smoothed { lookback } else { 0 };
        Select {
            matchers: &selector.matchers,
            start_ms: reference.first().saturating_sub(lookback).saturating_add(1),
            end_ms: reference.last().saturating_add(after),
            hints: Hints {
                step_ms: if steps.count > 1 { steps.step_ms } else { 0 },
                range_ms: 0,
                window_ms: lookback,
                func: around.func,
                grouping: around.grouping,
                by: around.by,
                runs: if selector.edges == RangeEdges::Smoothed {
                    SampleRuns::Apart
                } else {
                    SampleRuns::Last
                },
                starts: false,
            },
        }
    }

    /// An instant selector.
    pub(crate) fn select_instant(
        &self,
        selector: &Selector,
        steps: Steps,
        around: Around<'_>,
        sink: Sink<'_>,
    ) -> Result<()> {
        let reference = Reference::new(selector.at, &selector.offset, steps);
        let select = self.instant_bounds(selector, &reference, steps, around);
        let _held = self.budget.holding(steps.count * 8)?;
        let mut row = Row::default();
        self.each_series(&select, (&selector.others, selector.totals), &mut |labels, samples| {
            self.budget.work(steps.count)?;
            row.reset(labels.clone(), false, steps.count);
            if selector.edges == RangeEdges::Smoothed {
                self.smooth(selector, &reference, samples, &mut row);
            } else if samples.histograms.is_empty() {
                self.look_back_floats(&reference, samples, &mut row);
            } else {
                self.look_back(&reference, samples, |step, seen| row.set(step, seen.cell));
            }
            sink(&mut row)
        })
    }

    /// The fast path: floats only.
    fn look_back_floats(&self, reference: &Reference, samples: &Samples, row: &mut Row) {
        let lookback = self.options.lookback_ms;
        let (times, mut next) = (&samples.times_ms, 0);
        for (step, place) in row.floats.iter_mut().enumerate() {
            let time = reference.time(step);
            next = gallop(times, next, |at| *at <= time);
            let Some(last) = next.checked_sub(1) else { continue };
            if times.get(last).is_some_and(|at| *at > time.saturating_sub(lookback))
                && let Some(value) = samples.values.get(last)
            {
                // A staleness marker counts as an absent value.
                *place = *value;
            }
        }
    }

    /// Calls `each` with the sample of every step.
    pub(crate) fn look_back(
        &self,
        reference: &Reference,
        samples: &Samples,
        mut each: impl FnMut(usize, Seen),
    ) {
        let lookback = self.options.lookback_ms;
        let (times, mut next) = (&samples.times_ms, 0);
        for step in 0..reference.steps.count {
            let time = reference.time(step);
            next = gallop(times, next, |at| *at <= time);
            let Some(index) = next.checked_sub(1) else { continue };
            let Some(at) = times.get(index).filter(|at| **at > time.saturating_sub(lookback)) else {
                continue;
            };
            let cell = match samples.histograms.get(index) {
                Some(Some(histogram)) => Cell::Histogram(Arc::clone(histogram)),
                _ => match samples.values.get(index) {
                    Some(value) if !is_stale(*value) => Cell::Float(*value),
                    _ => continue,
                },
            };
            let start_ms = samples.starts_ms.get(index).copied().unwrap_or(0);
            each(step, Seen { time_ms: *at, start_ms, cell });
        }
    }

    /// The sample of each step of an instant selector, with its time.
    pub(crate) fn each_seen(
        &self,
        selector: &Selector,
        steps: Steps,
        starts: bool,
        each: &mut dyn FnMut(&Labels, &mut dyn Iterator<Item = (usize, Seen)>) -> Result<()>,
    ) -> Result<()> {
        let reference = Reference::new(selector.at, &selector.offset, steps);
        let mut select = self.instant_bounds(selector, &reference, steps, Around::default());
        if starts {
            (select.hints.starts, select.hints.runs) = (true, SampleRuns::Apart);
        }
        let _held = self.budget.holding(steps.count * 2 * size_of::<(usize, Seen)>())?;
        self.each_series(&select, (&selector.others, selector.totals), &mut |labels, samples| {
            self.budget.work(steps.count)?;
            let mut seen = Vec::new();
            self.look_back(&reference, samples, |step, found| seen.push((step, found)));
            each(labels, &mut seen.into_iter())
        })
    }

    /// `smoothed`: interpolates between the samples before and after.
    fn smooth(&self, selector: &Selector, reference: &Reference, samples: &mut Samples, row: &mut Row) {
        drop_stale(samples);
        let (times, lookback) = (&samples.times_ms, self.options.lookback_ms);
        let histogram = |index: usize| samples.histograms.get(index).and_then(Option::as_ref);
        let value = |index: usize| samples.values.get(index).copied().unwrap_or(f64::NAN);
        let name = row.labels.name().to_owned();
        for step in 0..row.steps() {
            let time = reference.time(step);
            let from = times.partition_point(|at| *at <= time.saturating_sub(lookback));
            let to = times.partition_point(|at| *at <= time.saturating_add(lookback));
            let histograms = (from..to).filter(|index| histogram(*index).is_some()).count();
            if histograms > 0 && histograms < to - from {
                self.note(&Note::MixedFloatsHistograms { name: &name }, selector.span);
                continue;
            }
            // The first sample not before the step, and the one before it.
            let next = times.partition_point(|at| *at < time).clamp(from, to);
            let exact = next < to && times.get(next) == Some(&time);
            let before = next.checked_sub(1).filter(|index| *index >= from);
            let cell = match (exact, before, next < to) {
                (true, ..) => {
                    histogram(next).map_or(Cell::Float(value(next)), |h| Cell::Histogram(Arc::clone(h)))
                }
                (false, None, _) => continue,
                (false, Some(before), false) => match histogram(before) {
                    None => Cell::Float(value(before)),
                    Some(h) => {
                        Cell::Histogram(Arc::new(Histogram { hint: ResetHint::Unknown, ..(**h).clone() }))
                    }
                },
                (false, Some(before), true) => {
                    let at = |index: usize| times.get(index).copied().unwrap_or(time);
                    let (t1, t2) = (at(before), at(next));
                    match (histogram(before), histogram(next)) {
                        (Some(h1), Some(h2)) => {
                            if h1.is_custom() != h2.is_custom() {
                                self.note(&Note::MixedSchemas { name: &name }, selector.span);
                                continue;
                            }
                            let counter = h1.hint != ResetHint::Gauge || h2.hint != ResetHint::Gauge;
                            let between = self.between((h1, t1), (h2, t2), time, counter, selector.span);
                            match between {
                                Ok(h) => Cell::Histogram(Arc::new(h)),
                                Err(_) => continue,
                            }
                        }
                        _ => Cell::Float(super::rate::on_line(
                            (t1, value(before)),
                            (t2, value(next)),
                            time,
                            false,
                        )),
                    }
                }
            };
            row.set(step, cell);
        }
    }
}

/// The first index from `from` on whose item does not hold; all before it do. Cost: the logarithm of the
/// distance.
pub(crate) fn gallop<T>(column: &[T], from: usize, holds: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut stride) = (from, 1);
    while column.get(low + stride - 1).is_some_and(&holds) {
        low += stride;
        stride *= 2;
    }
    let end = (low + stride - 1).min(column.len());
    low + column.get(low..end).unwrap_or_default().partition_point(holds)
}

/// Detects unknown resets between adjacent histograms.
fn resolve_resets(samples: &mut Samples) {
    let mut before: Option<Arc<Histogram>> = None;
    for histogram in samples.histograms.iter_mut().flatten() {
        let current = Arc::clone(histogram);
        if let Some(before) = before.as_ref().filter(|_| histogram.hint == ResetHint::Unknown) {
            let hint = if current.is_reset_from(before) { ResetHint::Reset } else { ResetHint::NotReset };
            *histogram = Arc::new(Histogram { hint, ..(*current).clone() });
        }
        before = Some(current);
    }
}

/// Removes staleness markers.
pub(crate) fn drop_stale(samples: &mut Samples) {
    // No early exit, so that the comparison is vectorized.
    if !samples.values.iter().fold(false, |any, value| any | is_stale(*value)) {
        return;
    }
    let keep: Vec<bool> = samples
        .values
        .iter()
        .enumerate()
        .map(|(index, value)| !is_stale(*value) || matches!(samples.histograms.get(index), Some(Some(_))))
        .collect();
    fn retain<T>(column: &mut Vec<T>, keep: &[bool]) {
        let mut keep = keep.iter();
        column.retain(|_| keep.next().copied().unwrap_or(true));
    }
    retain(&mut samples.times_ms, &keep);
    retain(&mut samples.values, &keep);
    retain(&mut samples.histograms, &keep);
    retain(&mut samples.starts_ms, &keep);
    retain(&mut samples.counts, &keep);
}
