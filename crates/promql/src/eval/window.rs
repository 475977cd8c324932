//! Range functions over one window of one series. Rates are in `rate`.

use std::sync::Arc;

use ropewalk_labels::kahan::add as kahan;
use ropewalk_labels::{Histogram, HistogramSum, Incompatible, Labels, Outcome, ResetHint};

use super::Eval;
use super::quantile::quantile;
use super::rate;
use super::row::Cell;
use crate::annotations::{Note, Operation};
use crate::error::{Result, refused};
use crate::syntax::ast::RangeEdges;
use crate::syntax::position::Span;

/// A histogram sample.
#[derive(Debug, Clone)]
pub(crate) struct HistogramPoint {
    pub(crate) time_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) histogram: Arc<Histogram>,
}

/// Position of the call, and the range that it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Position of the first argument.
    pub(crate) first: Span,
    pub(crate) range_ms: i64,
    pub(crate) edges: RangeEdges,
}

/// The samples of one series at one step. Never empty.
pub(crate) struct Window<'w> {
    pub(crate) times: &'w [i64],
    pub(crate) values: &'w [f64],
    /// Empty when no sample has a start timestamp.
    pub(crate) starts: &'w [i64],
    pub(crate) histograms: &'w [HistogramPoint],
    /// Beginning of the range, exclusive, and its end, inclusive.
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// The time of the step.
    pub(crate) step_ms: i64,
    /// All falls of the series, by rising time: time after the fall, value before it. Only for rates of
    /// counters.
    pub(crate) falls: &'w [(i64, f64)],
    /// Scalar arguments at this step.
    pub(crate) params: &'w [f64],
    pub(crate) labels: &'w Labels,
    pub(crate) place: &'w Place,
}

impl Window<'_> {
    pub(crate) fn name(&self) -> &str {
        self.labels.name()
    }

    pub(super) fn param(&self, index: usize) -> f64 {
        self.params.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = (i64, f64)> + Clone + '_ {
        self.times.iter().copied().zip(self.values.iter().copied())
    }

    /// True when there are floats only, without start timestamps, and none from outside of the range.
    pub(crate) fn is_plain(&self) -> bool {
        self.histograms.is_empty() && self.starts.is_empty() && self.place.edges == RangeEdges::Plain
    }

    pub(crate) fn start_of(&self, index: usize) -> i64 {
        self.starts.get(index).copied().unwrap_or(0)
    }

    /// Adds an annotation that the histograms in a mixed window are ignored.
    fn note_ignored(&self, eval: &Eval<'_>) {
        if !self.histograms.is_empty() {
            eval.note(&Note::HistogramIgnoredInRange { name: self.name() }, self.place.first);
        }
    }

    /// True, with an annotation, when floats and histograms are mixed.
    pub(crate) fn is_mixed(&self, eval: &Eval<'_>) -> bool {
        let mixed = !self.histograms.is_empty() && !self.times.is_empty();
        if mixed {
            eval.note(&Note::MixedFloatsHistograms { name: self.name() }, self.place.first);
        }
        mixed
    }
}

pub(crate) type Apply = fn(&Eval<'_>, &Window<'_>) -> Result<Option<Cell>>;

/// A range function.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    apply: Apply,
    starts: bool,
}

impl Function {
    pub(crate) fn find(name: &str) -> Option<Self> {
        let apply: Apply = match name {
            "absent_over_time" | "present_over_time" => |_, _| float(1.0),
            "avg_over_time" => average,
            "changes" => rate::changes,
            "count_over_time" => |_, w| float((w.times.len() + w.histograms.len()) as f64),
            "delta" => |e, w| rate::rate(e, w, false, false),
            "deriv" => derivative,
            "double_exponential_smoothing" => smoothing,
            "first_over_time" => first,
            "idelta" => |e, w| rate::instant(e, w, false),
            "increase" => |e, w| rate::rate(e, w, true, false),
            "irate" => |e, w| rate::instant(e, w, true),
            "last_over_time" => last,
            "mad_over_time" => median_deviation,
            "max_over_time" => |e, w| extreme(e, w, |v, best| v > best, false),
            "min_over_time" => |e, w| extreme(e, w, |v, best| v < best, false),
            "ts_of_max_over_time" => |e, w| extreme(e, w, |v, best| v >= best, true),
            "ts_of_min_over_time" => |e, w| extreme(e, w, |v, best| v <= best, true),
            "predict_linear" => prediction,
            "quantile_over_time" => quantile_over_time,
            "rate" => |e, w| rate::rate(e, w, true, true),
            "resets" => rate::resets,
            "stddev_over_time" => |e, w| variance(e, w, f64::sqrt),
            "stdvar_over_time" => |e, w| variance(e, w, |v| v),
            "sum_over_time" => sum,
            "ts_of_first_over_time" => |_, w| {
                let times = [w.times.first().copied(), w.histograms.first().map(|p| p.time_ms)];
                seconds(times.into_iter().flatten().min())
            },
            "ts_of_last_over_time" => |_, w| {
                let times = [w.times.last().copied(), w.histograms.last().map(|p| p.time_ms)];
                seconds(times.into_iter().flatten().max())
            },
            name => super::metricsql::window(name)?,
        };
        Some(Self { apply, starts: matches!(name, "rate" | "irate" | "increase" | "resets") })
    }

    /// A function that reads nothing but the samples.
    pub(super) fn of(apply: Apply) -> Self {
        Self { apply, starts: false }
    }

    /// True for functions that need the falls of a counter.
    pub(crate) fn reads_falls(name: &str) -> bool {
        matches!(name, "rate" | "increase")
    }

    /// True when start timestamps change the result.
    pub(crate) fn reads_starts(self) -> bool {
        self.starts
    }

    pub(crate) fn apply(self, eval: &Eval<'_>, window: &Window<'_>) -> Result<Option<Cell>> {
        (self.apply)(eval, window)
    }
}

fn float(value: f64) -> Result<Option<Cell>> {
    Ok(Some(Cell::Float(value)))
}

fn seconds(ms: Option<i64>) -> Result<Option<Cell>> {
    Ok(ms.map(|ms| Cell::Float(ms as f64 / 1000.0)))
}

fn first(_: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    Ok(match (w.points().next(), w.histograms.first()) {
        (Some((time, value)), h) if h.is_none_or(|h| time < h.time_ms) => Some(Cell::Float(value)),
        (_, Some(h)) => Some(Cell::Histogram(Arc::clone(&h.histogram))),
        _ => None,
    })
}

fn last(_: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    Ok(match (w.times.last().zip(w.values.last()), w.histograms.last()) {
        (Some((time, value)), h) if h.is_none_or(|h| h.time_ms < *time) => Some(Cell::Float(*value)),
        (_, Some(h)) => Some(Cell::Histogram(Arc::clone(&h.histogram))),
        _ => None,
    })
}

fn sum(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if w.is_mixed(eval) {
        return Ok(None);
    }
    if w.values.is_empty() {
        return histogram_total(eval, w, |sum, _| sum);
    }
    let (sum, lost) = w.values.iter().fold((0.0, 0.0), |total, value| kahan(*value, total));
    float(if sum.is_infinite() { sum } else { sum + lost })
}

fn average(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if w.is_mixed(eval) {
        return Ok(None);
    }
    if w.values.is_empty() {
        return histogram_average(eval, w);
    }
    float(mean(w.values))
}

/// The mean: from the sum as long as that is finite, from then on a running mean.
pub(super) fn mean(values: &[f64]) -> f64 {
    let mut rest = values.iter().copied();
    let mut total = (rest.next().unwrap_or(f64::NAN), 0.0);
    let mut count = 1.0;
    while let Some(value) = rest.next() {
        let next = kahan(value, total);
        if next.0.is_infinite() {
            let mut average = (total.0 / count, total.1 / count);
            for value in std::iter::once(value).chain(rest) {
                count += 1.0;
                let weight = (count - 1.0) / count;
                average = kahan(value / count, (weight * average.0, weight * average.1));
            }
            return average.0 + average.1;
        }
        total = next;
        count += 1.0;
    }
    total.0 / count + total.1 / count
}

/// Hints and outcomes of adding up histograms, for annotations.
#[derive(Debug, Default)]
struct Seen {
    reset: bool,
    not_reset: bool,
    reconciled: bool,
}

impl Seen {
    fn hint(&mut self, hint: ResetHint) {
        self.reset |= hint == ResetHint::Reset;
        self.not_reset |= hint == ResetHint::NotReset;
    }

    fn outcome(&mut self, outcome: Outcome) {
        self.reconciled |= outcome.reconciled;
    }

    fn note(&self, eval: &Eval<'_>, w: &Window<'_>) {
        let operation = Operation::Aggregation;
        if self.reset && self.not_reset {
            eval.note(&Note::CounterResetCollision { operation }, w.place.first);
        }
        if self.reconciled {
            eval.note(&Note::BucketsReconciled { operation }, w.place.first);
        }
    }
}

fn histogram_total(
    eval: &Eval<'_>,
    w: &Window<'_>,
    finish: impl Fn(Histogram, f64) -> Histogram,
) -> Result<Option<Cell>> {
    let sum = combined(eval, w, HistogramSum::new, HistogramSum::add);
    Ok(sum.map(|sum| Cell::Histogram(Arc::new(finish(sum.total(), w.histograms.len() as f64)))))
}

fn histogram_average(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    let mean = combined(eval, w, HistogramMean::new, HistogramMean::add);
    Ok(mean.map(|mean| Cell::Histogram(Arc::new(mean.result()))))
}

/// The histograms of the window, combined one by one. Notes what the combination had to reconcile; `None` without
/// histograms, or with incompatible ones.
fn combined<T>(
    eval: &Eval<'_>,
    w: &Window<'_>,
    begin: fn(&Histogram) -> T,
    add: fn(&mut T, &Histogram) -> Result<Outcome, Incompatible>,
) -> Option<T> {
    let mut seen = Seen::default();
    let mut points = w.histograms.iter().map(|p| &p.histogram);
    let first = points.next()?;
    seen.hint(first.hint);
    let mut combined = begin(first);
    for histogram in points {
        seen.hint(histogram.hint);
        match add(&mut combined, histogram) {
            Ok(outcome) => seen.outcome(outcome),
            Err(Incompatible) => {
                eval.note(&Note::MixedSchemas { name: w.name() }, w.place.first);
                return None;
            }
        }
    }
    seen.note(eval, w);
    Some(combined)
}

/// The mean of histograms: from their sum as long as that is finite, from then on a running mean.
#[derive(Debug, Clone)]
pub(super) struct HistogramMean {
    total: HistogramSum,
    count: f64,
    stepwise: bool,
}

impl HistogramMean {
    pub(super) fn new(first: &Histogram) -> Self {
        Self { total: HistogramSum::new(first), count: 1.0, stepwise: false }
    }

    pub(super) fn add(&mut self, histogram: &Histogram) -> Result<Outcome, Incompatible> {
        self.count += 1.0;
        if !self.stepwise {
            let mut next = self.total.clone();
            let outcome = next.add(histogram)?;
            if !next.value.overflows() {
                self.total = next;
                return Ok(outcome);
            }
            self.stepwise = true;
            self.total.divide(self.count - 1.0);
        }
        self.total.multiply((self.count - 1.0) / self.count);
        let mut part = histogram.clone();
        part.divide(self.count);
        self.total.add(&part)
    }

    pub(super) fn result(mut self) -> Histogram {
        if !self.stepwise {
            self.total.divide(self.count);
        }
        self.total.total()
    }
}

fn extreme(
    eval: &Eval<'_>,
    w: &Window<'_>,
    better: fn(f64, f64) -> bool,
    time: bool,
) -> Result<Option<Cell>> {
    let Some(mut best) = w.points().next() else { return Ok(None) };
    w.note_ignored(eval);
    for point in w.points() {
        if better(point.1, best.1) || best.1.is_nan() {
            best = point;
        }
    }
    float(if time { best.0 as f64 / 1000.0 } else { best.1 })
}

fn variance(eval: &Eval<'_>, w: &Window<'_>, finish: fn(f64) -> f64) -> Result<Option<Cell>> {
    if w.values.is_empty() {
        return Ok(None);
    }
    w.note_ignored(eval);
    let (mut count, mut mean, mut total) = (0.0, (0.0, 0.0), (0.0, 0.0));
    for value in w.values {
        count += 1.0;
        let delta = value - (mean.0 + mean.1);
        mean = kahan(delta / count, mean);
        total = kahan(delta * (value - (mean.0 + mean.1)), total);
    }
    float(finish((total.0 + total.1) / count))
}

fn median_deviation(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if w.values.is_empty() {
        return Ok(None);
    }
    w.note_ignored(eval);
    if w.values.iter().any(|v| v.is_nan()) {
        return float(f64::NAN);
    }
    let mut values = w.values.to_vec();
    let median = quantile(0.5, &mut values);
    values.iter_mut().for_each(|value| *value = (*value - median).abs());
    float(quantile(0.5, &mut values))
}

fn quantile_over_time(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if w.values.is_empty() {
        return Ok(None);
    }
    let q = w.param(0);
    if !(0.0..=1.0).contains(&q) {
        eval.note(&Note::InvalidQuantile { value: q }, w.place.first);
    }
    w.note_ignored(eval);
    float(quantile(q, &mut w.values.to_vec()))
}

/// Slope and value at `time` of the linear regression.
fn regression(w: &Window<'_>, time: i64) -> (f64, f64) {
    let first = w.values.first().copied().unwrap_or(f64::NAN);
    if w.values.iter().all(|value| *value == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let [mut x_sum, mut y_sum, mut xy_sum, mut xx_sum] = [(0.0, 0.0); 4];
    for (at, y) in w.points() {
        let x = at.saturating_sub(time) as f64 / 1000.0;
        x_sum = kahan(x, x_sum);
        y_sum = kahan(y, y_sum);
        xy_sum = kahan(x * y, xy_sum);
        xx_sum = kahan(x * x, xx_sum);
    }
    let n = w.values.len() as f64;
    let [x, y, xy, xx] = [x_sum, y_sum, xy_sum, xx_sum].map(|(sum, lost)| sum + lost);
    let slope = (xy - x * y / n) / (xx - x * x / n);
    (slope, y / n - slope * x / n)
}

/// False when there are too few floats for a line, with an annotation if histograms were ignored.
fn has_two(eval: &Eval<'_>, w: &Window<'_>) -> bool {
    if !w.values.is_empty() {
        w.note_ignored(eval);
    }
    w.values.len() >= 2
}

fn derivative(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if !has_two(eval, w) {
        return Ok(None);
    }
    let time = w.times.first().copied().unwrap_or(0);
    float(regression(w, time).0)
}

fn prediction(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    if !has_two(eval, w) {
        return Ok(None);
    }
    let (slope, value) = regression(w, w.step_ms);
    float(slope * w.param(0) + value)
}

/// Holt's linear method: a level and a trend, both smoothed.
fn smoothing(eval: &Eval<'_>, w: &Window<'_>) -> Result<Option<Cell>> {
    let (level, trend) = (w.param(0), w.param(1));
    for (what, factor, letter) in [("smoothing", level, "sf"), ("trend", trend, "tf")] {
        if factor <= 0.0 || factor >= 1.0 {
            return refused(format!("invalid {what} factor. Expected: 0 < {letter} < 1, got: {factor:.6}"));
        }
    }
    if !has_two(eval, w) {
        return Ok(None);
    }
    let mut values = w.values.iter().copied();
    let first = values.next().unwrap_or(f64::NAN);
    let (mut before, mut now) = (0.0, first);
    let mut slope = w.values.get(1).copied().unwrap_or(f64::NAN) - first;
    for (index, value) in values.enumerate() {
        if index > 0 {
            slope = trend * (now - before) + (1.0 - trend) * slope;
        }
        (before, now) = (now, level * value + (1.0 - level) * (now + slope));
    }
    float(now)
}
