//! MetricsQL functions over one window of one series: its floats only; histograms are ignored.

use super::super::quantile::quantile;
use super::super::row::Cell;
use super::super::window::{Apply, Window, mean};
use crate::error::Result;

/// A function that gives one value.
pub(crate) fn window(name: &str) -> Option<Apply> {
    Some(match name {
        "ascent_over_time" => |_, w| float(w, |w| pairs(w).map(|p| (p.to - p.from).max(0.0)).sum()),
        "count_eq_over_time" => |_, w| float(w, |w| count(w, |value, than| value == than)),
        "count_gt_over_time" => |_, w| float(w, |w| count(w, |value, than| value > than)),
        "count_le_over_time" => |_, w| float(w, |w| count(w, |value, than| value <= than)),
        "count_ne_over_time" => |_, w| float(w, |w| count(w, |value, than| value != than)),
        "decreases_over_time" => |_, w| float(w, |w| pairs(w).filter(|p| p.to < p.from).count() as f64),
        "deriv_fast" => |_, w| {
            let (first, last) = (w.points().next(), w.points().last());
            some(first.zip(last).and_then(|(first, last)| Pair::new(first, last).slope()))
        },
        "descent_over_time" => |_, w| float(w, |w| pairs(w).map(|p| (p.from - p.to).max(0.0)).sum()),
        "distinct_over_time" => |_, w| float(w, |w| runs(w).count() as f64),
        "duration_over_time" => {
            |_, w| float(w, |w| pairs(w).map(|p| p.seconds).filter(|seconds| *seconds <= w.param(0)).sum())
        }
        "geomean_over_time" => {
            |_, w| float(w, |w| w.values.iter().product::<f64>().powf(1.0 / w.values.len() as f64))
        }
        "ideriv" => |_, w| some(pairs(w).last().and_then(|last| last.slope())),
        "increases_over_time" => |_, w| float(w, |w| pairs(w).filter(|p| p.to > p.from).count() as f64),
        // Each value holds until the next, the last one until the end of the window.
        "integrate" => |_, w| {
            float(w, |w| {
                let (time, value) = w.points().last().unwrap_or_default();
                pairs(w).map(|p| p.from * p.seconds).sum::<f64>() + value * seconds(time, w.end_ms)
            })
        },
        "lag" => |_, w| some(w.times.last().map(|last| seconds(*last, w.end_ms))),
        "lifetime" => |_, w| some(span(w)),
        "median_over_time" => |_, w| float(w, |w| quantile(0.5, &mut w.values.to_vec())),
        "mode_over_time" => |_, w| {
            // The least of the most frequent values.
            let mut most: Option<(usize, f64)> = None;
            for (value, times) in runs(w) {
                if most.is_none_or(|(before, _)| times > before) {
                    most = Some((times, value));
                }
            }
            some(most.map(|(_, value)| value))
        },
        "outlier_iqr_over_time" => |_, w| {
            let (low, high) =
                (quantile(0.25, &mut w.values.to_vec()), quantile(0.75, &mut w.values.to_vec()));
            let far = 1.5 * (high - low);
            let last = w.values.last().copied().filter(|_| w.values.len() > 1);
            some(last.filter(|last| *last < low - far || *last > high + far))
        },
        "range_over_time" => |_, w| float(w, |w| most(w.values) - least(w.values)),
        "rate_over_sum" => {
            |_, w| float(w, |w| w.values.iter().sum::<f64>() / (w.place.range_ms as f64 / 1000.0))
        }
        "scrape_interval" => |_, w| some(span(w).map(|span| span / (w.times.len() - 1) as f64)),
        "share_eq_over_time" => |_, w| float(w, |w| share(w, |value, than| value == than)),
        "share_gt_over_time" => |_, w| float(w, |w| share(w, |value, than| value > than)),
        "share_le_over_time" => |_, w| float(w, |w| share(w, |value, than| value <= than)),
        "sum2_over_time" => |_, w| float(w, |w| w.values.iter().map(|value| value * value).sum()),
        "sum_eq_over_time" => |_, w| float(w, |w| sum(w, |value, than| value == than)),
        "sum_gt_over_time" => |_, w| float(w, |w| sum(w, |value, than| value > than)),
        "sum_le_over_time" => |_, w| float(w, |w| sum(w, |value, than| value <= than)),
        "tfirst_over_time" => |_, w| some(w.times.first().map(|time| seconds(0, *time))),
        "tlast_change_over_time" => |_, w| some(pairs(w).filter(|p| p.to != p.from).last().map(|p| p.at)),
        "tlast_over_time" => |_, w| some(w.times.last().map(|time| seconds(0, *time))),
        "tmax_over_time" => |_, w| some(time_of(w, |value, best| value > best)),
        "tmin_over_time" => |_, w| some(time_of(w, |value, best| value < best)),
        "zscore_over_time" => |_, w| {
            float(w, |w| {
                let middle = mean(w.values);
                let away = w.values.last().copied().unwrap_or(f64::NAN) - middle;
                let squares = w.values.iter().map(|value| (value - middle) * (value - middle)).sum::<f64>();
                if away == 0.0 { 0.0 } else { away / (squares / w.values.len() as f64).sqrt() }
            })
        },
        _ => return None,
    })
}

/// The values of a rollup function, each a separate series.
pub(crate) fn parts(name: &str) -> Option<&'static [(&'static str, Apply)]> {
    Some(match name {
        "rollup" => &[
            ("min", |_, w| float(w, |w| least(w.values))),
            ("max", |_, w| float(w, |w| most(w.values))),
            ("avg", |_, w| float(w, |w| mean(w.values))),
        ],
        "rollup_candlestick" => &[
            ("open", |_, w| some(w.values.first().copied())),
            ("high", |_, w| float(w, |w| most(w.values))),
            ("low", |_, w| float(w, |w| least(w.values))),
            ("close", |_, w| some(w.values.last().copied())),
        ],
        "rollup_delta" => &[
            ("min", |_, w| of_pairs(w, |p| p.to - p.from, least)),
            ("max", |_, w| of_pairs(w, |p| p.to - p.from, most)),
            ("avg", |_, w| of_pairs(w, |p| p.to - p.from, mean)),
        ],
        "rollup_deriv" => &[
            ("min", |_, w| of_pairs(w, |p| (p.to - p.from) / p.seconds, least)),
            ("max", |_, w| of_pairs(w, |p| (p.to - p.from) / p.seconds, most)),
            ("avg", |_, w| of_pairs(w, |p| (p.to - p.from) / p.seconds, mean)),
        ],
        "rollup_increase" => &[
            ("min", |_, w| of_pairs(w, Pair::increase, least)),
            ("max", |_, w| of_pairs(w, Pair::increase, most)),
            ("avg", |_, w| of_pairs(w, Pair::increase, mean)),
        ],
        "rollup_rate" => &[
            ("min", |_, w| of_pairs(w, |p| p.increase() / p.seconds, least)),
            ("max", |_, w| of_pairs(w, |p| p.increase() / p.seconds, most)),
            ("avg", |_, w| of_pairs(w, |p| p.increase() / p.seconds, mean)),
        ],
        "rollup_scrape_interval" => &[
            ("min", |_, w| of_pairs(w, |p| p.seconds, least)),
            ("max", |_, w| of_pairs(w, |p| p.seconds, most)),
            ("avg", |_, w| of_pairs(w, |p| p.seconds, mean)),
        ],
        _ => return None,
    })
}

/// True when the result is still of the metric's kind, so that its name is retained.
pub(crate) fn keeps_name(name: &str) -> bool {
    matches!(
        name,
        "geomean_over_time"
            | "median_over_time"
            | "mode_over_time"
            | "outlier_iqr_over_time"
            | "rollup"
            | "rollup_candlestick"
    )
}

/// Two consecutive samples.
#[derive(Clone, Copy)]
struct Pair {
    from: f64,
    to: f64,
    seconds: f64,
    /// When the second one is, in seconds.
    at: f64,
}

impl Pair {
    fn new(from: (i64, f64), to: (i64, f64)) -> Self {
        Self { from: from.1, to: to.1, seconds: seconds(from.0, to.0), at: seconds(0, to.0) }
    }

    fn slope(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| (self.to - self.from) / self.seconds)
    }

    /// Increase of a counter, which restarts at zero where it falls.
    fn increase(self) -> f64 {
        if self.to < self.from { self.to } else { self.to - self.from }
    }
}

fn pairs<'w>(w: &'w Window<'_>) -> impl Iterator<Item = Pair> + 'w {
    w.points().zip(w.points().skip(1)).map(|(from, to)| Pair::new(from, to))
}

/// Each value and its frequency, the least first.
fn runs(w: &Window<'_>) -> impl Iterator<Item = (f64, usize)> {
    let mut values = w.values.to_vec();
    values.sort_by(f64::total_cmp);
    let runs: Vec<(f64, usize)> =
        values.chunk_by(|a, b| a == b).filter_map(|run| Some((*run.first()?, run.len()))).collect();
    runs.into_iter()
}

fn seconds(from_ms: i64, to_ms: i64) -> f64 {
    to_ms.saturating_sub(from_ms) as f64 / 1000.0
}

/// Seconds between the first sample and the last, if there are two or more.
fn span(w: &Window<'_>) -> Option<f64> {
    let (first, last) = (w.times.first()?, w.times.last()?);
    (w.times.len() > 1).then(|| seconds(*first, *last))
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

fn time_of(w: &Window<'_>, better: fn(f64, f64) -> bool) -> Option<f64> {
    let first = w.points().next()?;
    let best = w.points().fold(first, |best, point| if better(point.1, best.1) { point } else { best });
    Some(seconds(0, best.0))
}

fn count(w: &Window<'_>, counts: fn(f64, f64) -> bool) -> f64 {
    w.values.iter().filter(|value| counts(**value, w.param(0))).count() as f64
}

fn share(w: &Window<'_>, counts: fn(f64, f64) -> bool) -> f64 {
    count(w, counts) / w.values.len() as f64
}

fn sum(w: &Window<'_>, counts: fn(f64, f64) -> bool) -> f64 {
    w.values.iter().filter(|value| counts(**value, w.param(0))).sum()
}

type Given = Result<Option<Cell>>;

fn some(value: Option<f64>) -> Given {
    Ok(value.map(Cell::Float))
}

/// A value of the floats, if there are any.
fn float(w: &Window<'_>, value: impl FnOnce(&Window<'_>) -> f64) -> Given {
    some((!w.values.is_empty()).then(|| value(w)))
}

/// A value of the results for consecutive samples, if there are any.
fn of_pairs(w: &Window<'_>, one: fn(Pair) -> f64, all: fn(&[f64]) -> f64) -> Given {
    let values: Vec<f64> = pairs(w).map(one).collect();
    some((!values.is_empty()).then(|| all(&values)))
}
