//! Functions that map each sample separately.

use ropewalk_labels::Histogram;

use super::Around;
use super::Eval;
use super::Sink;
use super::row::{Cell, Numbers, Row, Steps, is_absent};
use super::scalar::{largest, smallest};
use crate::data::calendar::{Civil, whole_seconds};
use crate::error::{Result, refused};
use crate::syntax::ast::*;

/// A function of a float.
fn of_float(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => f64::abs,
        "acos" => f64::acos,
        "acosh" => f64::acosh,
        "asin" => f64::asin,
        "asinh" => f64::asinh,
        "atan" => f64::atan,
        "atanh" => f64::atanh,
        "ceil" => f64::ceil,
        "cos" => f64::cos,
        "cosh" => f64::cosh,
        "deg" => |v| v * 180.0 / std::f64::consts::PI,
        "exp" => f64::exp,
        "floor" => f64::floor,
        "ln" => f64::ln,
        "log10" => f64::log10,
        "log2" => f64::log2,
        "rad" => |v| v * std::f64::consts::PI / 180.0,
        "sgn" => |v| {
            if v < 0.0 {
                -1.0
            } else if v > 0.0 {
                1.0
            } else {
                v
            }
        },
        "sin" => f64::sin,
        "sinh" => f64::sinh,
        "sqrt" => f64::sqrt,
        "tan" => f64::tan,
        "tanh" => f64::tanh,
        _ => of_date(name)?,
    })
}

/// A function of a time, given in seconds.
fn of_date(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "day_of_month" => |v| civil(v).day as f64,
        "day_of_week" => |v| civil(v).weekday as f64,
        "day_of_year" => |v| civil(v).yearday() as f64,
        "days_in_month" => |v| civil(v).days_in_month() as f64,
        "hour" => |v| civil(v).hour as f64,
        "minute" => |v| civil(v).minute as f64,
        "month" => |v| civil(v).month as f64,
        "year" => |v| civil(v).year as f64,
        _ => return None,
    })
}

fn civil(seconds: f64) -> Civil {
    Civil::new(whole_seconds(seconds))
}

/// A function of a histogram.
fn of_histogram(name: &str) -> Option<fn(&Histogram) -> f64> {
    Some(match name {
        "histogram_avg" => |h| h.sum / h.count,
        "histogram_count" => |h| h.count,
        "histogram_sum" => |h| h.sum,
        "histogram_stddev" => |h| h.variance().sqrt(),
        "histogram_stdvar" => |h| h.variance(),
        _ => return None,
    })
}

impl Eval<'_> {
    pub(super) fn simple(&self, name: &str, vector: &Expr, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let around = Around { func: Some(name), ..Around::default() };
        if let Some(change) = of_float(name) {
            return self.each_row(vector, steps, around, &mut |row| {
                self.drop_name(row);
                row.map_floats(change);
                sink(row)
            });
        }
        let Some(change) = of_histogram(name) else {
            return refused(format!("function {name} gives no vector"));
        };
        self.each_row(vector, steps, around, &mut |row| {
            self.drop_name(row);
            let histograms = std::mem::take(&mut row.histograms);
            row.floats.fill(super::row::ABSENT);
            for (place, histogram) in row.floats.iter_mut().zip(&histograms) {
                if let Some(histogram) = histogram {
                    *place = change(histogram);
                }
            }
            sink(row)
        })
    }

    /// `hour()` and similar functions without an argument: of the time of the step.
    pub(super) fn date_of_step(&self, name: &str, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let Some(change) = of_date(name) else { return refused(format!("function {name} gives no vector")) };
        let floats = steps.times().map(|ms| change((ms / 1000) as f64)).collect();
        sink(&mut Row { floats, ..Row::default() })
    }

    pub(super) fn clamp(
        &self,
        name: &str,
        vector: &Expr,
        bounds: &[Expr],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut bounds =
            bounds.iter().map(|bound| self.scalar(bound, steps)).collect::<Result<Vec<_>, _>>()?;
        let same = |value: f64| Numbers::new(self.budget, vec![value; steps.count]);
        let (low, high) = (same(f64::NEG_INFINITY)?, same(f64::INFINITY)?);
        let (high, low) = match (name, bounds.pop(), bounds.pop()) {
            ("clamp", Some(high), Some(low)) => (high, low),
            ("clamp_min", Some(low), None) => (high, low),
            ("clamp_max", Some(high), None) => (high, low),
            _ => return refused("wrong number of bounds"),
        };
        self.each_row(vector, steps, Around { func: Some(name), ..Around::default() }, &mut |row| {
            self.drop_name(row);
            row.histograms.clear();
            for (place, (low, high)) in row.floats.iter_mut().zip(low.iter().zip(high.iter())) {
                if high < low {
                    *place = super::row::ABSENT;
                } else if !is_absent(*place) {
                    *place = largest(*low, smallest(*high, *place));
                }
            }
            sink(row)
        })
    }

    pub(super) fn round(&self, vector: &Expr, to: Option<&Expr>, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let to = match to {
            Some(to) => self.scalar(to, steps)?,
            None => Numbers::new(self.budget, vec![1.0; steps.count])?,
        };
        self.each_row(vector, steps, Around { func: Some("round"), ..Around::default() }, &mut |row| {
            self.drop_name(row);
            row.histograms.clear();
            for (place, to) in row.floats.iter_mut().zip(to.iter()) {
                if !is_absent(*place) {
                    // Dividing by the inverse gives fewer inexact results.
                    let inverse = 1.0 / to;
                    *place = (*place * inverse + 0.5).floor() / inverse;
                }
            }
            sink(row)
        })
    }

    /// The time of the sample for a selector, else that of the step.
    pub(super) fn timestamp(&self, vector: &Expr, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let _held = self.budget.holding(steps.count * 8)?;
        let mut row = Row::default();
        match vector.bare() {
            Expr::Selector(selector) => self.each_seen(selector, steps, false, &mut |labels, seen| {
                row.reset(labels.clone(), false, steps.count);
                self.drop_name(&mut row);
                for (step, seen) in seen {
                    row.set(step, Cell::Float(seen.time_ms as f64 / 1000.0));
                }
                sink(&mut row)
            }),
            _ => self.each_row(vector, steps, Around::default(), &mut |found| {
                row.reset(found.labels.clone(), found.drop_name, steps.count);
                self.drop_name(&mut row);
                for (step, time) in steps.times().enumerate() {
                    if found.has(step) {
                        row.set(step, Cell::Float(time as f64 / 1000.0));
                    }
                }
                sink(&mut row)
            }),
        }
    }

    /// The start timestamp of the sample, 0 when it has none; no result if the argument is not a selector or
    /// start timestamps are switched off.
    pub(super) fn start_timestamp(&self, vector: &Expr, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let Expr::Selector(selector) = vector.bare() else { return Ok(()) };
        if !self.options.start_timestamps {
            return Ok(());
        }
        let mut row = Row::default();
        self.each_seen(selector, steps, true, &mut |labels, seen| {
            row.reset(labels.clone(), false, steps.count);
            self.drop_name(&mut row);
            for (step, seen) in seen {
                row.set(step, Cell::Float(seen.start_ms as f64 / 1000.0));
            }
            sink(&mut row)
        })
    }
}
