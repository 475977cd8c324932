//! Aggregations of MetricsQL. Some return a value per group (`median`), some change each series (`share`),
//! some choose series by all of their steps (`topk_max`, `outliersk`).
//!
//! Histograms are ignored. Where any series of a group would do, it is the first by labels, so that results
//! are deterministic.

use ropewalk_labels::Labels;

use super::super::Around;
use super::super::Eval;
use super::super::Sink;
use super::super::call::text;
use super::super::choose::nan_last;
use super::super::quantile::quantile;
use super::super::row::{ABSENT, Cell, Numbers, Row, Rows, Steps, is_absent};
use super::super::window::mean;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl<'a> Eval<'a> {
    pub(in crate::eval) fn aggregate_of_metricsql(
        &self,
        aggregate: &Aggregate,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        use AggregateOp::{
            Any, BottomkBy, OutliersIqr, OutliersMad, Outliersk, Quantiles, Share, TopkBy, Zscore,
        };
        let mut rows = Rows::new(self.budget)?;
        let around = Around::aggregate(aggregate);
        self.each_member(aggregate, steps, around, &mut |row| {
            row.histograms.clear();
            rows.take(row)
        })?;
        rows.list.sort_by(|a, b| a.labels.cmp(&b.labels));
        self.budget.work(rows.list.len().saturating_mul(steps.count))?;
        let grouped = self.grouped(aggregate, &rows.list)?;
        let groups = &grouped.list;
        let params = match &aggregate.param {
            Some(param) if aggregate.op.param_type() == ValueType::Scalar => self.scalar(param, steps)?,
            _ => Numbers::new(self.budget, Vec::new())?,
        };
        match aggregate.op {
            Quantiles => self.several_quantiles(aggregate, groups, &rows.list, steps, sink),
            Share | Zscore => {
                let change = if aggregate.op == Share { shares } else { zscores };
                for (_, members) in groups {
                    self.budget.work(members.len().saturating_mul(steps.count))?;
                    each_step(&mut rows.list, members, steps, change);
                }
                if aggregate.op == Zscore {
                    // It is no longer the named metric.
                    rows.list.iter_mut().for_each(|row| self.keeping(false).drop_name(row));
                    rows.merge()?;
                }
                self.give_rest(rows, sink)
            }
            Any => {
                let mut firsts: Vec<usize> =
                    groups.iter().filter_map(|(_, members)| members.first().copied()).collect();
                firsts.sort_unstable();
                keep(&mut rows.list, &firsts);
                self.give_rest(rows, sink)
            }
            OutliersIqr | OutliersMad => {
                let mut kept = Vec::new();
                for (_, members) in groups {
                    self.budget.work(members.len().saturating_mul(steps.count))?;
                    kept.extend(outliers(&rows.list, members, &params, steps));
                }
                kept.sort_unstable();
                keep(&mut rows.list, &kept);
                self.give_rest(rows, sink)
            }
            Outliersk | TopkBy(_) | BottomkBy(_) => {
                self.ranked(aggregate, groups, &params, rows, steps, sink)
            }
            op => {
                let Some(of) = single(op) else { return refused(format!("{} gives no vector", op.name())) };
                for (labels, members) in groups {
                    let mut row = Row::new(labels.clone(), false, steps.count);
                    row.drop_name = members.iter().any(|m| rows.list.get(*m).is_some_and(|r| r.drop_name));
                    for step in 0..steps.count {
                        self.budget.work(members.len())?;
                        let mut values = at_step(&rows.list, members, step);
                        if !values.is_empty() {
                            row.set(step, Cell::Float(of(&mut values)));
                        }
                    }
                    sink(&mut row)?;
                }
                Ok(())
            }
        }
    }

    fn give_rest(&self, mut rows: Rows<'_>, sink: Sink<'_>) -> Result<()> {
        let list = std::mem::take(&mut rows.list);
        self.give(list.into_iter().filter(|row| !row.is_empty()), sink)
    }

    /// `limit`: the rows of the first groups, by labels.
    pub(in crate::eval) fn first_groups(
        &self,
        aggregate: &Aggregate,
        limit: u64,
        run: impl FnOnce(Sink<'_>) -> Result<()>,
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut rows = Rows::new(self.budget)?;
        run(&mut |row| rows.take(row))?;
        let mut groups = self.grouped(aggregate, &rows.list)?;
        groups.list.sort_by(|a, b| a.0.cmp(&b.0));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut kept: Vec<usize> =
            groups.list.iter().take(limit).flat_map(|(_, members)| members).copied().collect();
        kept.sort_unstable();
        keep(&mut rows.list, &kept);
        self.give_rest(rows, sink)
    }

    /// `quantiles("label", phi, …, vector)`
    fn several_quantiles(
        &self,
        aggregate: &Aggregate,
        groups: &[(Labels, Vec<usize>)],
        rows: &[Row],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let Some(label) = &aggregate.param else { return refused("an aggregation lacks its parameter") };
        let label = text(label)?;
        for phi in &aggregate.more {
            let phis = self.scalar(phi, steps)?;
            let Some(first) = phis.first() else { continue };
            let value = crate::data::text::float(*first);
            for (labels, members) in groups {
                let mut row = Row::new(self.relabeled(labels, label, &value)?, false, steps.count);
                for (step, phi) in phis.iter().enumerate() {
                    self.budget.work(1 + members.len())?;
                    let mut values = at_step(rows, members, step);
                    if !values.is_empty() {
                        row.set(step, Cell::Float(quantile(*phi, &mut values)));
                    }
                }
                sink(&mut row)?;
            }
        }
        Ok(())
    }

    /// The series that rank first by one value of all their steps, and optionally the sum of the rest.
    fn ranked(
        &self,
        aggregate: &Aggregate,
        groups: &[(Labels, Vec<usize>)],
        params: &[f64],
        mut rows: Rows<'a>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let rest = aggregate.more.first().map(text).transpose()?;
        let (mut order, mut rests) = (Vec::new(), Vec::new());
        // The medians and sums of a group.
        let mut held = self.budget.holding(steps.count * 16)?;
        for (labels, members) in groups {
            self.budget.work(members.len().saturating_mul(steps.count))?;
            let medians: Vec<f64> =
                (0..steps.count).map(|step| quantile(0.5, &mut at_step(&rows.list, members, step))).collect();
            let mut ranked: Vec<(f64, usize)> = members
                .iter()
                .filter_map(|member| {
                    Some((rank(aggregate.op, &rows.list.get(*member)?.floats, &medians), *member))
                })
                .collect();
            let descending = !matches!(aggregate.op, AggregateOp::BottomkBy(_));
            // Members are in order of their labels, which decides between equals.
            ranked.sort_by(|a, b| nan_last(a.0, b.0, descending));
            let mut sums = Row::new(labels.clone(), false, steps.count);
            for (place, (_, member)) in ranked.iter().enumerate() {
                let Some(row) = rows.list.get_mut(*member) else { continue };
                for (step, k) in params.iter().enumerate() {
                    // Negative numbers and NaN count as 0.
                    if place < *k as usize {
                        continue;
                    }
                    if let Some(value) = row.float(step) {
                        sums.set(step, Cell::Float(sums.float(step).unwrap_or(0.0) + value));
                    }
                    row.clear(step);
                }
                order.push(*member);
            }
            if let Some(rest) = rest {
                let (label, value) = rest.split_once('=').unwrap_or((rest, rest));
                sums.labels = self.relabeled(&sums.labels, label, value)?;
                held.grow(sums.bytes())?;
                rests.push(sums);
            }
        }
        let mut list = std::mem::take(&mut rows.list);
        let chosen: Vec<Row> =
            order.into_iter().filter_map(|at| list.get_mut(at).map(std::mem::take)).collect();
        self.give(chosen.into_iter().chain(rests).filter(|row| !row.is_empty()), sink)
    }
}

/// The values that the members of a group have at a step.
fn at_step(rows: &[Row], members: &[usize], step: usize) -> Vec<f64> {
    members.iter().filter_map(|member| rows.get(*member)?.float(step)).collect()
}

/// Retains only the rows of these numbers, which rise.
fn keep(rows: &mut Vec<Row>, numbers: &[usize]) {
    let mut index = 0;
    rows.retain(|_| {
        index += 1;
        numbers.binary_search(&(index - 1)).is_ok()
    });
}

/// An aggregation that gives one value of a group's values at a step.
fn single(op: AggregateOp) -> Option<fn(&mut Vec<f64>) -> f64> {
    Some(match op {
        AggregateOp::Distinct => |values| runs(values).len() as f64,
        AggregateOp::Geomean => |values| values.iter().product::<f64>().powf(1.0 / values.len() as f64),
        AggregateOp::Mad => |values| deviation(values),
        AggregateOp::Median => |values| quantile(0.5, values),
        AggregateOp::Mode => |values| {
            // The least of the most frequent values.
            let runs = runs(values);
            let most = runs.iter().map(|(_, times)| *times).max().unwrap_or(0);
            runs.iter().find(|(_, times)| *times == most).map_or(f64::NAN, |(value, _)| *value)
        },
        AggregateOp::Sum2 => |values| values.iter().map(|value| value * value).sum(),
        _ => return None,
    })
}

/// Each value and its frequency, the least first.
fn runs(values: &mut [f64]) -> Vec<(f64, usize)> {
    values.sort_by(f64::total_cmp);
    values.chunk_by(|a, b| a == b).filter_map(|run| Some((*run.first()?, run.len()))).collect()
}

/// The median of the distances from the median.
fn deviation(values: &[f64]) -> f64 {
    let middle = quantile(0.5, &mut values.to_vec());
    quantile(0.5, &mut values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Changes the values of a group at each step, absent ones among them.
fn each_step(rows: &mut [Row], members: &[usize], steps: Steps, change: fn(&mut [f64])) {
    for step in 0..steps.count {
        let float = |member: &usize| rows.get(*member).and_then(|row| row.floats.get(step).copied());
        let mut values: Vec<f64> = members.iter().map(|member| float(member).unwrap_or(ABSENT)).collect();
        change(&mut values);
        for (member, value) in members.iter().zip(values) {
            if let Some(place) = rows.get_mut(*member).and_then(|row| row.floats.get_mut(step)) {
                *place = value;
            }
        }
    }
}

/// Shares of the sum; negative values have none.
fn shares(values: &mut [f64]) {
    let sum: f64 = values.iter().filter(|value| **value >= 0.0).sum();
    for value in values.iter_mut().filter(|value| !is_absent(**value)) {
        *value = if *value >= 0.0 { *value / sum } else { ABSENT };
    }
}

/// Distances from the mean, in standard deviations.
fn zscores(values: &mut [f64]) {
    let there: Vec<f64> = values.iter().copied().filter(|value| !is_absent(*value)).collect();
    let middle = mean(&there);
    let variance =
        there.iter().map(|value| (value - middle) * (value - middle)).sum::<f64>() / there.len() as f64;
    for value in values.iter_mut().filter(|value| !is_absent(**value)) {
        *value = (*value - middle) / variance.sqrt();
    }
}

/// Members that lie far from the others at some step.
fn outliers(rows: &[Row], members: &[usize], tolerances: &[f64], steps: Steps) -> Vec<usize> {
    let bounds: Vec<(f64, f64)> = (0..steps.count)
        .map(|step| {
            let mut values = at_step(rows, members, step);
            match tolerances.get(step) {
                Some(tolerance) => {
                    let (middle, far) = (quantile(0.5, &mut values.clone()), tolerance * deviation(&values));
                    (middle - far, middle + far)
                }
                None => {
                    let (low, high) = (quantile(0.25, &mut values.clone()), quantile(0.75, &mut values));
                    let far = 1.5 * (high - low);
                    (low - far, high + far)
                }
            }
        })
        .collect();
    let is_far = |row: &Row| {
        let places = row.floats.iter().zip(&bounds).filter(|(value, _)| !is_absent(**value));
        places.into_iter().any(|(value, (low, high))| value < low || value > high)
    };
    members.iter().copied().filter(|member| rows.get(*member).is_some_and(is_far)).collect()
}

/// One value of all steps of a series; `medians` are those of its group.
fn rank(op: AggregateOp, floats: &[f64], medians: &[f64]) -> f64 {
    let there: Vec<f64> = floats.iter().copied().filter(|value| !is_absent(*value)).collect();
    let of = |better: fn(f64, f64) -> f64| there.iter().copied().fold(f64::NAN, better);
    match op {
        AggregateOp::TopkBy(by) | AggregateOp::BottomkBy(by) => match by {
            Rank::Avg => mean(&there),
            Rank::Last => there.last().copied().unwrap_or(f64::NAN),
            Rank::Max => of(f64::max),
            Rank::Median => quantile(0.5, &mut there.clone()),
            Rank::Min => of(f64::min),
        },
        _ => {
            let places = floats.iter().zip(medians).filter(|(value, _)| !is_absent(**value));
            places.map(|(value, median)| (value - median) * (value - median)).sum()
        }
    }
}
