//! Dispatch of function calls that return vectors.

use std::collections::{HashMap, HashSet};

use ropewalk_labels::text::quote_bytes;
use ropewalk_labels::{Labels, METRIC_NAME, MatchOp};

use super::Around;
use super::Eval;
use super::LABEL_BYTES_PER_WORK;
use super::Sink;
use super::row::{Row, Steps};
use crate::annotations::Note;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl Eval<'_> {
    pub(crate) fn call(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<()> {
        if call.function.args.contains(&ValueType::Matrix) {
            return self.call_range(call, steps, sink);
        }
        if crate::syntax::metricsql::find(call.function.name).is_some()
            && !call.function.name.starts_with("sort_")
        {
            return self.metricsql(call, steps, sink);
        }
        match (call.function.name, call.args.as_slice()) {
            ("vector", [scalar]) => {
                let _held = self.budget.holding(steps.count * 8)?;
                let floats = self.scalar(scalar, steps)?.into_list();
                sink(&mut Row { floats, ..Row::default() })
            }
            ("absent", [vector]) => self.absent(vector, steps, sink),
            (name, [vector, labels @ ..]) if name == "sort" || name.starts_with("sort_") => {
                self.sort(call, vector, labels, steps, sink)
            }
            ("label_replace", _) => self.label_replace(call, steps, sink),
            ("label_join", _) => self.label_join(call, steps, sink),
            ("info", [vector, labels @ ..]) => self.info(vector, labels.first(), steps, sink),
            ("timestamp", [vector]) => self.unnamed(vector, sink, |sink| self.timestamp(vector, steps, sink)),
            ("start_timestamp", [vector]) => {
                self.unnamed(vector, sink, |sink| self.start_timestamp(vector, steps, sink))
            }
            ("histogram_quantile", [q, vector]) => self.histogram_quantile(q, vector, steps, sink),
            ("histogram_quantiles", [vector, label, quantiles @ ..]) => {
                self.histogram_quantiles(vector, label, quantiles, steps, sink)
            }
            ("histogram_fraction", [lower, upper, vector]) => {
                self.histogram_fraction(lower, upper, vector, steps, sink)
            }
            ("clamp" | "clamp_min" | "clamp_max", [vector, bounds @ ..]) => {
                self.unnamed(vector, sink, |sink| self.clamp(call.function.name, vector, bounds, steps, sink))
            }
            ("round", [vector, to @ ..]) => {
                self.unnamed(vector, sink, |sink| self.round(vector, to.first(), steps, sink))
            }
            (name, []) => self.date_of_step(name, steps, sink),
            (name, [vector]) => self.unnamed(vector, sink, |sink| self.simple(name, vector, steps, sink)),
            (name, _) => refused(format!("function {name} gives no vector")),
        }
    }

    /// 1 at the steps where the vector is empty.
    fn absent(&self, vector: &Expr, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let _held = self.budget.holding(steps.count * 8)?;
        let mut result = Row::new(labels_of_absence(Some(vector)), false, steps.count);
        result.floats.fill(1.0);
        self.each_row(vector, steps, Around { func: Some("absent"), ..Around::default() }, &mut |row| {
            for step in 0..steps.count {
                if row.has(step) {
                    result.clear(step);
                }
            }
            Ok(())
        })?;
        if result.is_empty() { Ok(()) } else { sink(&mut result) }
    }

    fn sort(&self, call: &Call, vector: &Expr, labels: &[Expr], steps: Steps, sink: Sink<'_>) -> Result<()> {
        if steps.count > 1 {
            self.note(&Note::SortInRange, call.span);
        }
        let mut rows = self.rows(vector, steps, Around::default())?;
        let by_label = call.function.name.starts_with("sort_by_label");
        if !by_label {
            rows.list.iter_mut().for_each(|row| row.histograms.clear());
            rows.list.retain(|row| !row.is_empty());
        }
        if steps.count == 1 {
            let descending = call.function.name.ends_with("_desc");
            if by_label {
                let mut names = labels.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                // Drop labels that no series has, so that a comparison costs no more than the series have
                // labels.
                let mut there = HashSet::new();
                for row in &rows.list {
                    self.budget.work(1 + row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
                    there.extend(row.labels.iter().map(|(name, _)| name));
                }
                names.retain(|name| there.remove(name));
                drop(there);
                rows.list.sort_by(|a, b| {
                    let order = names
                        .iter()
                        .map(|name| natural_order(a.labels.get(name), b.labels.get(name)))
                        .find(|order| order.is_ne())
                        .unwrap_or_else(|| a.labels.cmp(&b.labels));
                    if descending { order.reverse() } else { order }
                });
            } else {
                let value = |row: &Row| row.float(0).unwrap_or(f64::NAN);
                rows.list.sort_by(|a, b| super::choose::nan_last(value(a), value(b), descending));
            }
        }
        self.give(std::mem::take(&mut rows.list), sink)
    }
}

/// The value of a string argument.
pub(super) fn text(expr: &Expr) -> Result<&str> {
    match expr.bare() {
        Expr::Text(text) => std::str::from_utf8(&text.value)
            .or_else(|_| refused(format!("string {} is not valid UTF-8", quote_bytes(&text.value)))),
        _ => refused("expected an expression of type string"),
    }
}

/// The labels that a missing series is known to have: those compared for equality, each once.
pub(super) fn labels_of_absence(expr: Option<&Expr>) -> Labels {
    let matchers = match expr.map(Expr::bare) {
        Some(Expr::Selector(e)) if e.others.is_empty() => &e.matchers,
        Some(Expr::Matrix(e)) if e.selector.others.is_empty() => &e.selector.matchers,
        _ => return Labels::default(),
    };
    let mut times: HashMap<&str, usize> = HashMap::new();
    matchers.iter().for_each(|m| *times.entry(m.name()).or_default() += 1);
    Labels::from_pairs(
        matchers
            .iter()
            .filter(|m| {
                m.name() != METRIC_NAME && m.op() == MatchOp::Equal && times.get(m.name()) == Some(&1)
            })
            .map(|m| (m.name(), m.value())),
    )
}

/// Natural sort order: numbers in texts compare by value.
fn natural_order(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut a, mut b) = (chunks(a), chunks(b));
    loop {
        let (a, b) = match (a.next(), b.next()) {
            (Some(a), Some(b)) => (a, b),
            (a, b) => return a.is_some().cmp(&b.is_some()),
        };
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            _ => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Alternating chunks of digits and other characters.
fn chunks(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let digits = text.chars().next()?.is_ascii_digit();
        let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
        let (chunk, rest) = text.split_at(end);
        text = rest;
        Some(chunk)
    })
}
