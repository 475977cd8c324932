//! `rate` and related functions: the change of a counter or gauge, with counter resets and extrapolation to
//! the borders of the range.
//!
//! Plain ranges extrapolate from the samples inside to the borders, but not further than half an average
//! distance beyond where the series seems to begin or end, and never to a counter below zero. A start
//! timestamp inside the range is a sample of zero. Anchored ranges use the sample before the range as its
//! beginning; smoothed ones interpolate across both borders.

use std::sync::Arc;

use ropewalk_labels::{Histogram, Incompatible, Labels, Outcome, ResetHint, Samples};

use super::Eval;
use super::number::Numbers;
use super::row::Cell;
use super::window::{HistogramPoint, Place, Window};
use crate::annotations::{Note, Operation};
use crate::error::Result;
use crate::syntax::ast::RangeEdges;
use crate::syntax::position::Span;

/// The value at `time` on the line through two points. A counter that fell restarted at zero.
pub(super) fn on_line((t1, y1): (i64, f64), (t2, y2): (i64, f64), time: i64, counter: bool) -> f64 {
    let y1 = if counter && y2 < y1 { 0.0 } else { y1 };
    y1 + (y2 - y1) * time.saturating_sub(t1) as f64 / t2.saturating_sub(t1) as f64
}

/// True when a sample's start timestamp shows that its counter restarted after the previous sample.
fn restarted(before: (i64, i64), now: (i64, i64)) -> bool {
    let ((start_before, time_before), (start, time)) = (before, now);
    if start == 0 || start >= time || start < time_before {
        return false;
    }
    // A start right at the previous sample means a delta, when that one had a start timestamp, too.
    start > time_before || start_before <= time_before && start_before != 0 && start_before != time_before
}

/// True when a sample claims to have begun before the previous one ended.
fn overlaps(before: (i64, i64), start: i64) -> bool {
    start != 0 && start < before.1 && start != before.0
}

/// `rate`, `increase` (counters) and `delta` (gauges).
pub(super) fn rate(eval: &Eval<'_>, w: &Window<'_>, counter: bool, per_second: bool) -> Result<Option<Cell>> {
    if w.is_mixed(eval) {
        return Ok(None);
    }
    let extended = w.place.edges != RangeEdges::Plain;
    Ok(match (extended, w.values.is_empty()) {
        (true, false) => extended_float(w, counter, per_second).map(Cell::Float),
        (true, true) => {
            extended_histogram(eval, w, counter, per_second).map(|h| Cell::Histogram(Arc::new(h)))
        }
        (false, false) => {
            let change = float_change(eval, w, counter);
            let first = w.values.first().copied().unwrap_or(f64::NAN);
            let ends = (w.times.first().zip(w.times.last()), w.times.len());
            let (factor, from_zero) = factor(&w.span(), ends, w.start_of(0), counter, per_second, || {
                (change > 0.0 && first >= 0.0).then_some(first / change)
            })
            .map_or((None, false), |(factor, from_zero)| (Some(factor), from_zero));
            factor.map(|factor| Cell::Float(factor * if from_zero { change + first } else { change }))
        }
        (false, true) => histogram_rate(eval, w, counter, per_second).map(|h| Cell::Histogram(Arc::new(h))),
    })
}

/// A range of time: its beginning, exclusive, its end, and its nominal length.
pub(super) struct Range {
    start_ms: i64,
    end_ms: i64,
    length_ms: i64,
}

impl Window<'_> {
    fn span(&self) -> Range {
        Range { start_ms: self.start_ms, end_ms: self.end_ms, length_ms: self.place.range_ms }
    }
}

/// A function over plain ranges of floats without start timestamps: whether for counters, and whether per
/// second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    counter: bool,
    per_second: bool,
}

impl Plain {
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "rate" => Self { counter: true, per_second: true },
            "increase" => Self { counter: true, per_second: false },
            "delta" => Self { counter: false, per_second: false },
            _ => return None,
        })
    }

    /// As [`rate`] for every window of a series, which is (first sample, one past the last) and the end of
    /// its range. Sets the floats of those with two samples and more.
    pub(super) fn windows(
        self,
        samples: &Samples,
        falls: &[(i64, f64)],
        windows: impl Iterator<Item = ((usize, usize), i64)>,
        range_ms: i64,
        floats: &mut [f64],
    ) {
        let Samples { times_ms, values, .. } = samples;
        let numbers = Numbers::of(&samples.counts);
        let mut next = 0;
        for (place, ((from, to), end_ms)) in floats.iter_mut().zip(windows) {
            let (Some(times), Some(values)) = (times_ms.get(from..to), values.get(from..to)) else {
                continue;
            };
            let ([first, .., last], [first_value, .., last_value]) = (times, values) else { continue };
            let mut change = last_value - first_value;
            if self.counter {
                // The first samples of windows only move forward, and so do the falls after them.
                while falls.get(next).is_some_and(|(time, _)| time <= first) {
                    next += 1;
                }
                let inside = falls.iter().skip(next).take_while(|(time, _)| time <= last);
                change = inside.fold(change, |change, (_, before)| change + before);
            }
            let range = Range { start_ms: end_ms.saturating_sub(range_ms), end_ms, length_ms: range_ms };
            let ends = (Some((first, last)), numbers.within(from, to));
            let found = factor(&range, ends, 0, self.counter, self.per_second, || {
                (change > 0.0 && *first_value >= 0.0).then_some(first_value / change)
            });
            if let Some((factor, _)) = found {
                *place = factor * change;
            }
        }
    }
}

/// The last value less the first, plus the values before resets.
fn float_change(eval: &Eval<'_>, w: &Window<'_>, counter: bool) -> f64 {
    let (Some(first), Some(last)) = (w.values.first(), w.values.last()) else { return f64::NAN };
    let mut change = last - first;
    if !counter {
        return change;
    }
    if w.starts.is_empty() {
        // Falls are few; those in this window are those after its first sample.
        let (Some(first), Some(last)) = (w.times.first(), w.times.last()) else { return change };
        let from = w.falls.partition_point(|(time, _)| time <= first);
        let inside = w.falls.iter().skip(from).take_while(|(time, _)| time <= last);
        return inside.fold(change, |change, (_, before)| change + before);
    }
    let stamped = || w.starts.iter().copied().zip(w.points());
    let mut overlapped = false;
    for ((start_before, before), (start, now)) in stamped().zip(stamped().skip(1)) {
        overlapped |= overlaps((start_before, before.0), start);
        if now.1 < before.1 || restarted((start_before, before.0), (start, now.0)) {
            change += before.1;
        }
    }
    if overlapped {
        eval.notes.borrow_mut().add_overlap(w.name(), w.place.first);
    }
    change
}

/// The factor for the change between the first and last sample, and whether the first sample itself must be
/// added because its counter began inside of the range. `to_zero` returns the distance of the first sample
/// from zero, in sampled intervals.
#[inline]
fn factor(
    span: &Range,
    (ends, count): (Option<(&i64, &i64)>, usize),
    first_start: i64,
    counter: bool,
    per_second: bool,
    to_zero: impl FnOnce() -> Option<f64>,
) -> Option<(f64, bool)> {
    let (&first, &last) = ends?;
    let gaps = count - 1;
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let mut before = seconds(first.saturating_sub(span.start_ms));
    let mut after = seconds(span.end_ms.saturating_sub(last));
    let mut sampled = seconds(last.saturating_sub(first));
    let average = if gaps > 0 { sampled / gaps as f64 } else { 0.0 };
    let threshold = average * 1.1;
    let from_zero = counter && first_start != 0 && first_start > span.start_ms && first_start < first;
    if from_zero {
        before = 0.0;
        sampled = seconds(last.saturating_sub(first_start));
    } else if gaps == 0 {
        return None;
    } else {
        if before >= threshold {
            before = average / 2.0;
        }
        if counter
            && let Some(zero) = to_zero().map(|part| sampled * part)
            && zero < before
        {
            before = zero;
        }
    }
    if after >= threshold {
        after = average / 2.0;
    }
    let mut factor = if sampled == 0.0 { 1.0 } else { (sampled + before + after) / sampled };
    if per_second {
        factor /= seconds(span.length_ms);
    }
    Some((factor, from_zero))
}

fn histogram_rate(eval: &Eval<'_>, w: &Window<'_>, counter: bool, per_second: bool) -> Option<Histogram> {
    let first = &w.histograms.first()?;
    let mut change = if w.histograms.len() > 1 { Some(histogram_change(eval, w, counter)?) } else { None };
    let part = || {
        let change = change.as_ref().filter(|h| h.count > 0.0)?;
        (first.histogram.count >= 0.0).then_some(first.histogram.count / change.count)
    };
    let last = w.histograms.last()?;
    let ends = (Some((&first.time_ms, &last.time_ms)), w.histograms.len());
    let (factor, from_zero) = factor(&w.span(), ends, first.start_ms, counter, per_second, part)?;
    if from_zero {
        match &mut change {
            None => change = Some((*first.histogram).clone()),
            Some(change) => {
                if !noted(eval, w, change.add(&first.histogram), Operation::Addition) {
                    return None;
                }
            }
        }
    }
    let mut change = change?;
    change.multiply(factor);
    Some(change)
}

/// Adds the annotations of a histogram operation; false when it failed.
fn noted(
    eval: &Eval<'_>,
    w: &Window<'_>,
    result: Result<Outcome, Incompatible>,
    operation: Operation,
) -> bool {
    match result {
        Err(Incompatible) => {
            eval.note(&Note::MixedSchemas { name: w.name() }, w.place.first);
            false
        }
        Ok(outcome) => {
            if outcome.reconciled {
                eval.note(&Note::BucketsReconciled { operation }, w.place.first);
            }
            true
        }
    }
}

/// True when a counter restarted between two histograms.
fn histogram_restarted(before: &HistogramPoint, now: &HistogramPoint) -> bool {
    restarted((before.start_ms, before.time_ms), (now.start_ms, now.time_ms))
}

fn histogram_change(eval: &Eval<'_>, w: &Window<'_>, counter: bool) -> Option<Histogram> {
    let (first, last) = (w.histograms.first()?, w.histograms.last()?);
    let (name, place) = (w.name(), w.place.first);
    let gauge = |p: &HistogramPoint| p.histogram.hint == ResetHint::Gauge;
    if counter && (gauge(first) || gauge(last)) {
        eval.note(&Note::NotCounter { name }, place);
    }
    let mut before: Arc<Histogram> = Arc::clone(&first.histogram);
    let second = w.histograms.get(1)?;
    if counter && (histogram_restarted(first, second) || second.histogram.is_reset_from(&before)) {
        // The first sample is from before a reset, so its layout does not matter.
        before = Arc::new(Histogram {
            schema: second.histogram.schema,
            custom: Arc::clone(&second.histogram.custom),
            ..Histogram::default()
        });
    }
    let custom = before.is_custom();
    let mixed = || {
        eval.note(&Note::MixedSchemas { name }, place);
        None
    };
    if last.histogram.is_custom() != custom {
        return mixed();
    }
    let mut schema = last.histogram.schema.min(before.schema);
    if counter {
        let inner = w.histograms.len().saturating_sub(2);
        for point in w.histograms.iter().skip(1).take(inner) {
            if gauge(point) {
                eval.note(&Note::NotCounter { name }, place);
            }
            schema = schema.min(point.histogram.schema);
            if point.histogram.is_custom() != custom {
                return mixed();
            }
        }
    }
    let mut change = (*last.histogram).clone();
    if !custom {
        change.reduce(schema);
    }
    if !noted(eval, w, change.subtract(&before), Operation::Subtraction) {
        return None;
    }
    if counter {
        let mut overlapped = false;
        for (previous, now) in w.histograms.iter().zip(w.histograms.iter().skip(1)) {
            overlapped |= overlaps((previous.start_ms, previous.time_ms), now.start_ms);
            if (histogram_restarted(previous, now) || now.histogram.is_reset_from(&before))
                && !noted(eval, w, change.add(&before), Operation::Addition)
            {
                return None;
            }
            before = Arc::clone(&now.histogram);
        }
        if overlapped {
            eval.notes.borrow_mut().add_overlap(name, place);
        }
    } else if !gauge(first) || !gauge(last) {
        eval.note(&Note::NotGauge { name }, place);
    }
    change.hint = ResetHint::Gauge;
    Some(change.compacted())
}

/// The relevant samples of an extended range: the last one at or before the range or else the first, to the
/// last one in it or (smoothed) the first one at or after its end. `None` when none is in the range.
fn extended_bounds(
    w: &Window<'_>,
    times: impl Fn(usize) -> i64,
    len: usize,
    smoothed: bool,
) -> Option<(usize, usize)> {
    let mut last = len.checked_sub(1)?;
    // Both searches exclude the very last sample, which is the result when none before it matches.
    let search =
        |found: &dyn Fn(i64) -> bool, last: usize| (0..last).find(|i| found(times(*i))).unwrap_or(last);
    let first = search(&|t| t > w.start_ms, last).saturating_sub(1);
    if smoothed {
        last = search(&|t| t >= w.end_ms, last);
    }
    (times(last) > w.start_ms && !(smoothed && times(first) > w.end_ms)).then_some((first, last))
}

/// An extended range of floats: the relevant samples, and the values at the borders.
struct Border {
    first: usize,
    last: usize,
    left: f64,
    right: f64,
}

fn borders(w: &Window<'_>, counter: bool) -> Option<Border> {
    let smoothed = w.place.edges == RangeEdges::Smoothed;
    let point =
        |i: usize| (w.times.get(i).copied().unwrap_or(0), w.values.get(i).copied().unwrap_or(f64::NAN));
    let (first, last) = extended_bounds(w, |i| point(i).0, w.times.len(), smoothed)?;
    let left = if smoothed && point(first).0 < w.start_ms {
        on_line(point(first), point(first + 1), w.start_ms, counter)
    } else {
        point(first).1
    };
    let right = if smoothed && last > 0 && point(last).0 > w.end_ms {
        on_line(point(last - 1), point(last), w.end_ms, counter)
    } else {
        point(last).1
    };
    Some(Border { first, last, left, right })
}

fn extended_float(w: &Window<'_>, counter: bool, per_second: bool) -> Option<f64> {
    let Border { first, last, left, right } = borders(w, counter)?;
    let mut change = right - left;
    if counter {
        // Resets across the borders are already included in the values there.
        let inside = w.points().take(last + 1).skip(first);
        let inside =
            inside.filter(|(time, _)| *time > w.start_ms && *time < w.end_ms).map(|(_, value)| value);
        let mut before = left;
        for value in inside.chain([right]) {
            if value < before {
                change += before;
            }
            before = value;
        }
    }
    Some(if per_second { change / (w.place.range_ms as f64 / 1000.0) } else { change })
}

impl Eval<'_> {
    /// Interpolates the histogram at `time` between two.
    pub(super) fn between(
        &self,
        (h1, t1): (&Histogram, i64),
        (h2, t2): (&Histogram, i64),
        time: i64,
        counter: bool,
        span: Span,
    ) -> Result<Histogram, Incompatible> {
        if time == t1 {
            return Ok(h1.clone());
        }
        let mut result = h2.clone();
        if time == t2 {
            return Ok(result);
        }
        let part = time.saturating_sub(t1) as f64 / t2.saturating_sub(t1) as f64;
        if counter && h2.is_reset_from(h1) {
            result.multiply(part);
            return Ok(result);
        }
        for operation in [Operation::Subtraction, Operation::Addition] {
            let outcome = match operation {
                Operation::Subtraction => result.subtract(h1)?,
                _ => {
                    result.multiply(part);
                    result.add(h1)?
                }
            };
            if outcome.reconciled {
                self.note(&Note::BucketsReconciled { operation }, span);
            }
        }
        Ok(result)
    }
}

fn extended_histogram(eval: &Eval<'_>, w: &Window<'_>, counter: bool, per_second: bool) -> Option<Histogram> {
    let smoothed = w.place.edges == RangeEdges::Smoothed;
    let time = |i: usize| w.histograms.get(i).map_or(0, |p| p.time_ms);
    let (first, last) = extended_bounds(w, time, w.histograms.len(), smoothed)?;
    let used = w.histograms.get(first..=last)?;
    let (name, place) = (w.name(), w.place.first);
    let custom = used.first()?.histogram.is_custom();
    for point in used {
        if point.histogram.is_custom() != custom {
            eval.note(&Note::MixedSchemas { name }, place);
            return None;
        }
        if counter && point.histogram.hint == ResetHint::Gauge {
            eval.note(&Note::NotCounter { name }, place);
        }
    }
    let between = |a: usize, b: usize, at: i64| {
        let (a, b) = (w.histograms.get(a)?, w.histograms.get(b)?);
        let line = eval.between((&a.histogram, a.time_ms), (&b.histogram, b.time_ms), at, counter, place);
        line.inspect_err(|_| eval.note(&Note::MixedSchemas { name }, place)).ok()
    };
    let whole = |i: usize| w.histograms.get(i).map(|p| (*p.histogram).clone());
    let crosses_left = smoothed && time(first) < w.start_ms;
    let left = if crosses_left { between(first, first + 1, w.start_ms)? } else { whole(first)? };
    let crosses_right = smoothed && last > 0 && time(last) > w.end_ms;
    let right = if crosses_right { between(last - 1, last, w.end_ms)? } else { whole(last)? };
    if !counter && (left.hint != ResetHint::Gauge || right.hint != ResetHint::Gauge) {
        eval.note(&Note::NotGauge { name }, place);
    }
    let mut change = right.clone();
    if !noted(eval, w, change.subtract(&left), Operation::Subtraction) {
        return None;
    }
    if counter {
        let lost = lost_in_resets(eval, w, (first, last), (&left, &right), crosses_left)?;
        if let Some(lost) = lost
            && !noted(eval, w, change.add(&lost), Operation::Addition)
        {
            return None;
        }
    }
    if per_second {
        change.divide(w.place.range_ms as f64 / 1000.0);
    }
    change.hint = ResetHint::Gauge;
    Some(change.compacted())
}

/// The counts before each reset between two borders; `None` when the histograms are incompatible.
fn lost_in_resets(
    eval: &Eval<'_>,
    w: &Window<'_>,
    (first, last): (usize, usize),
    (left, right): (&Histogram, &Histogram),
    crosses_left: bool,
) -> Option<Option<Histogram>> {
    let point = |i: usize| w.histograms.get(i).map(|p| &*p.histogram);
    let (mut from, mut before) = (first + 1, left);
    if crosses_left {
        let (a, b) = (point(first)?, point(first + 1)?);
        if b.is_reset_from(a) {
            // The interpolation at the left border already includes that reset.
            (from, before) = (first + 2, b);
        }
    }
    // `right` represents the last sample, and has its hint.
    if from > last {
        return Some(None);
    }
    let mut lost: Option<Histogram> = None;
    for now in (from..last).filter_map(point).chain([right]) {
        if now.is_reset_from(before) {
            match &mut lost {
                None => lost = Some(before.clone()),
                Some(lost) => {
                    if !noted(eval, w, lost.add(before), Operation::Addition) {
                        return None;
                    }
                }
            }
        }
        before = now;
    }
    Some(lost)
}

/// A sample of either kind.
#[derive(Clone, Copy)]
struct Sample<'w> {
    time: i64,
    start: i64,
    value: Value<'w>,
}

#[derive(Clone, Copy)]
enum Value<'w> {
    Float(f64),
    Histogram(&'w Histogram),
}

/// All samples of the window in order of time. In an anchored range, from the last one at or before its
/// beginning; none if the range itself is empty.
fn samples<'w>(w: &'w Window<'_>) -> Vec<Sample<'w>> {
    let floats = w.points().enumerate().map(|(i, (time, value))| Sample {
        time,
        start: w.start_of(i),
        value: Value::Float(value),
    });
    let histograms = w.histograms.iter().map(|p| Sample {
        time: p.time_ms,
        start: p.start_ms,
        value: Value::Histogram(&p.histogram),
    });
    let mut all: Vec<Sample<'_>> = floats.chain(histograms).collect();
    if !w.histograms.is_empty() {
        all.sort_by_key(|sample| sample.time);
    }
    if w.place.edges == RangeEdges::Anchored {
        let inside = all.partition_point(|sample| sample.time <= w.start_ms);
        if inside == all.len() {
            return Vec::new();
        }
        all.drain(..inside.saturating_sub(1));
    }
    all
}

/// The number of counter resets.
pub(super) fn resets(_: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if w.is_plain() {
        return Ok(count_floats(w, |before, now| now < before));
    }
    Ok(count_pairs(w, |before, now| {
        restarted((before.start, before.time), (now.start, now.time))
            || match (before.value, now.value) {
                (Value::Float(before), Value::Float(now)) => now < before,
                (Value::Histogram(before), Value::Histogram(now)) => now.is_reset_from(before),
                _ => true,
            }
    }))
}

/// The number of value changes.
pub(super) fn changes(_: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if w.is_plain() {
        return Ok(count_floats(w, |before, now| now != before && !(now.is_nan() && before.is_nan())));
    }
    Ok(count_pairs(w, |before, now| match (before.value, now.value) {
        (Value::Float(before), Value::Float(now)) => now != before && !(now.is_nan() && before.is_nan()),
        (Value::Histogram(before), Value::Histogram(now)) => !now.same(before),
        _ => true,
    }))
}

fn count_floats(w: &Window<'_>, counts: impl Fn(f64, f64) -> bool) -> Option<Cell> {
    let pairs = w.values.iter().zip(w.values.iter().skip(1));
    Some(Cell::Float(pairs.filter(|(before, now)| counts(**before, **now)).count() as f64))
}

fn count_pairs(w: &Window<'_>, counts: impl Fn(&Sample<'_>, &Sample<'_>) -> bool) -> Option<Cell> {
    let samples = samples(w);
    if samples.is_empty() {
        return None;
    }
    let count =
        samples.iter().zip(samples.iter().skip(1)).filter(|(before, now)| counts(before, now)).count();
    Some(Cell::Float(count as f64))
}

/// `irate` (counters, per second) and `idelta` (gauges): from the last two samples.
pub(super) fn instant(eval: &Eval<'_>, w: &Window<'_>, counter: bool) -> Result<Option<Cell>> {
    let all = samples(w);
    let [.., before, now] = all.as_slice() else { return Ok(None) };
    if before.time == now.time {
        return Ok(None);
    }
    let seconds = now.time.saturating_sub(before.time) as f64 / 1000.0;
    let restarted = restarted((before.start, before.time), (now.start, now.time));
    let (name, place) = (w.name(), w.place.first);
    Ok(match (before.value, now.value) {
        (Value::Float(before), Value::Float(now)) => {
            let change = if counter && (now < before || restarted) { now } else { now - before };
            Some(Cell::Float(if counter { change / seconds } else { change }))
        }
        (Value::Histogram(before), Value::Histogram(now)) => {
            let gauges = [before, now].iter().filter(|h| h.hint == ResetHint::Gauge).count();
            if counter && gauges > 0 {
                eval.note(&Note::NotCounter { name }, place);
            }
            if !counter && gauges < 2 {
                eval.note(&Note::NotGauge { name }, place);
            }
            let mut change = now.clone();
            if !counter || (!restarted && !now.is_reset_from(before)) {
                let result = change.subtract(before);
                if !noted(eval, w, result, Operation::Subtraction) {
                    return Ok(None);
                }
            }
            change.hint = ResetHint::Gauge;
            change.compact();
            if counter {
                change.divide(seconds);
            }
            Some(Cell::Histogram(Arc::new(change)))
        }
        _ => {
            eval.note(&Note::MixedFloatsHistograms { name }, place);
            None
        }
    })
}

/// The points of an extended range as a range selector returns them: its two borders, and the samples between
/// them.
pub(crate) fn extended_points(
    samples: &Samples,
    start_ms: i64,
    end_ms: i64,
    smoothed: bool,
) -> Vec<(i64, f64)> {
    let place = Place {
        first: Span::default(),
        range_ms: end_ms.saturating_sub(start_ms),
        edges: if smoothed { RangeEdges::Smoothed } else { RangeEdges::Anchored },
    };
    let w = Window {
        times: &samples.times_ms,
        values: &samples.values,
        starts: &[],
        histograms: &[],
        start_ms,
        end_ms,
        step_ms: end_ms,
        falls: &[],
        params: &[],
        labels: &Labels::default(),
        place: &place,
    };
    let Some(Border { first, last, left, right }) = borders(&w, false) else { return Vec::new() };
    let all: Vec<(i64, f64)> = w.points().collect();
    let inside =
        all.into_iter().take(last + 1).skip(first).filter(|(time, _)| *time > start_ms && *time < end_ms);
    std::iter::once((start_ms, left)).chain(inside).chain([(end_ms, right)]).collect()
}
