//! Functions over all steps of a series at once: filling gaps, one value for the complete query, running
//! totals.
//!
//! A series without a value at any step is unchanged.

use super::super::Around;
use super::super::Eval;
use super::super::Sink;
use super::super::quantile::quantile;
use super::super::row::{ABSENT, Steps, is_absent};
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl Eval<'_> {
    pub(super) fn across(
        &self,
        name: &str,
        vector: &Expr,
        param: Option<&Expr>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let param = match param {
            Some(param) => self.scalar(param, steps)?.first().copied().unwrap_or(f64::NAN),
            None => f64::NAN,
        };
        let Some(change) = find(name) else { return refused(format!("function {name} gives no vector")) };
        let sums = matches!(name, "range_sum" | "running_sum");
        let run = |sink: Sink<'_>| {
            self.each_row(vector, steps, Around::default(), &mut |row| {
                row.histograms.clear();
                // A sum is no longer the named metric; the other results still are of its kind.
                if sums {
                    self.drop_name(row);
                }
                self.budget.work(steps.count)?;
                change(&mut row.floats, steps, param);
                sink(row)
            })
        };
        if sums { self.unnamed(vector, sink, run) } else { run(sink) }
    }
}

/// Changes the values of a series, absent ones among them.
type Change = fn(&mut [f64], Steps, f64);

fn find(name: &str) -> Option<Change> {
    Some(match name {
        "interpolate" => |values, _, _| interpolate(values),
        "keep_last_value" => |values, _, _| keep(values.iter_mut()),
        "keep_next_value" => |values, _, _| keep(values.iter_mut().rev()),
        "range_avg" => |values, _, _| fill(values, mean),
        "range_first" => |values, _, _| fill(values, |there| there.first().copied().unwrap_or(ABSENT)),
        "range_last" => |values, _, _| fill(values, |there| there.last().copied().unwrap_or(ABSENT)),
        "range_linear_regression" => |values, steps, _| regression(values, steps),
        "range_mad" => |values, _, _| fill(values, deviation),
        "range_max" => |values, _, _| fill(values, |there| there.iter().copied().fold(f64::NAN, f64::max)),
        "range_median" => |values, _, _| fill(values, |there| quantile(0.5, there)),
        "range_min" => |values, _, _| fill(values, |there| there.iter().copied().fold(f64::NAN, f64::min)),
        "range_normalize" => |values, _, _| normalize(values),
        "range_quantile" => |values, _, phi| fill(values, |there| quantile(phi, there)),
        "range_stddev" => |values, _, _| fill(values, |there| variance(there).sqrt()),
        "range_stdvar" => |values, _, _| fill(values, |there| variance(there)),
        "range_sum" => |values, _, _| fill(values, |there| there.iter().sum()),
        "range_trim_outliers" => |values, _, k| {
            let mut there = present(values);
            let (middle, away) = (quantile(0.5, &mut there.clone()), k * deviation(&mut there));
            trim(values, |value| (value - middle).abs() > away);
        },
        "range_trim_spikes" => |values, _, phi| {
            // Half of them on each side.
            let mut there = present(values);
            let (low, high) =
                (quantile(phi / 2.0, &mut there.clone()), quantile(1.0 - phi / 2.0, &mut there));
            trim(values, |value| value < low || value > high);
        },
        "range_trim_zscore" => |values, _, z| {
            let mut there = present(values);
            let (middle, away) = (mean(&mut there), z * variance(&there).sqrt());
            trim(values, |value| (value - middle).abs() > away);
        },
        "range_zscore" => |values, _, _| {
            let mut there = present(values);
            let (middle, deviation) = (mean(&mut there), variance(&there).sqrt());
            each(values, |value| (value - middle) / deviation);
        },
        "remove_resets" => |values, _, _| {
            let (mut before, mut lost) = (0.0, 0.0);
            each(values, |value| {
                if value < before {
                    lost += before;
                }
                before = value;
                value + lost
            });
        },
        "running_avg" => |values, _, _| {
            let (mut sum, mut count) = (0.0, 0.0);
            running(values, |value| {
                (sum, count) = (sum + value, count + 1.0);
                sum / count
            });
        },
        "running_max" => |values, _, _| {
            let mut most = f64::NAN;
            running(values, |value| {
                most = value.max(most);
                most
            });
        },
        "running_min" => |values, _, _| {
            let mut least = f64::NAN;
            running(values, |value| {
                least = value.min(least);
                least
            });
        },
        "running_sum" => |values, _, _| {
            let mut sum = 0.0;
            running(values, |value| {
                sum += value;
                sum
            });
        },
        "smooth_exponential" => |values, _, factor| {
            let factor = factor.clamp(0.0, 1.0);
            let mut smooth: Option<f64> = None;
            each(values, |value| {
                let next = smooth.map_or(value, |smooth| smooth * (1.0 - factor) + value * factor);
                smooth = Some(next);
                next
            });
        },
        _ => return None,
    })
}

fn present(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| !is_absent(*value)).collect()
}

/// Changes each present value, in order.
fn each(values: &mut [f64], mut change: impl FnMut(f64) -> f64) {
    for value in values.iter_mut().filter(|value| !is_absent(**value)) {
        *value = change(*value);
    }
}

/// As [`each`]; a gap after a value is filled with that value.
fn running(values: &mut [f64], change: impl FnMut(f64) -> f64) {
    each(values, change);
    keep(values.iter_mut());
}

/// Removes the values for which `far` returns true.
fn trim(values: &mut [f64], far: impl Fn(f64) -> bool) {
    for value in values.iter_mut().filter(|value| !is_absent(**value)) {
        if far(*value) {
            *value = ABSENT;
        }
    }
}

/// One value at every step.
fn fill(values: &mut [f64], of: impl Fn(&mut [f64]) -> f64) {
    let mut there = present(values);
    if !there.is_empty() {
        values.fill(of(&mut there));
    }
}

/// Fills gaps with the value before them.
fn keep<'v>(values: impl Iterator<Item = &'v mut f64>) {
    let mut last = ABSENT;
    for value in values {
        if is_absent(*value) {
            *value = last;
        } else {
            last = *value;
        }
    }
}

/// Fills gaps between values by linear interpolation.
fn interpolate(values: &mut [f64]) {
    let mut before: Option<(usize, f64)> = None;
    for at in 0..values.len() {
        let Some(value) = values.get(at).copied().filter(|value| !is_absent(*value)) else { continue };
        if let Some((from, first)) = before {
            let rise = (value - first) / (at - from) as f64;
            for (steps, place) in values.iter_mut().take(at).skip(from + 1).enumerate() {
                *place = first + rise * (steps + 1) as f64;
            }
        }
        before = Some((at, value));
    }
}

fn mean(values: &mut [f64]) -> f64 {
    super::super::window::mean(values)
}

/// The population variance.
fn variance(values: &[f64]) -> f64 {
    let middle = super::super::window::mean(values);
    values.iter().map(|value| (value - middle) * (value - middle)).sum::<f64>() / values.len() as f64
}

/// The median of the distances from the median.
fn deviation(values: &mut [f64]) -> f64 {
    let middle = quantile(0.5, values);
    values.iter_mut().for_each(|value| *value = (*value - middle).abs());
    quantile(0.5, values)
}

/// Scales values to 0, the least, to 1, the greatest; none where all are equal.
fn normalize(values: &mut [f64]) {
    let there = present(values);
    let least = there.iter().copied().fold(f64::NAN, f64::min);
    let width = there.iter().copied().fold(f64::NAN, f64::max) - least;
    for value in values.iter_mut().filter(|value| !is_absent(**value)) {
        *value = if width == 0.0 { ABSENT } else { (*value - least) / width };
    }
}

/// Linear regression, at every step.
fn regression(values: &mut [f64], steps: Steps) {
    let seconds = |step: usize| (steps.time(step) - steps.start_ms) as f64 / 1000.0;
    let points = values.iter().enumerate().filter(|(_, value)| !is_absent(**value));
    let (mut n, [mut x, mut y, mut xy, mut xx]) = (0.0, [0.0; 4]);
    for (step, value) in points {
        let at = seconds(step);
        n += 1.0;
        (x, y, xy, xx) = (x + at, y + value, xy + at * value, xx + at * at);
    }
    if n == 0.0 {
        return;
    }
    let across = n * xx - x * x;
    let slope = if across == 0.0 { 0.0 } else { (n * xy - x * y) / across };
    let first = (y - slope * x) / n;
    for (step, value) in values.iter_mut().enumerate() {
        *value = first + slope * seconds(step);
    }
}
