//! Streaming aggregations such as `sum` and `avg`: a running state per group and step.
//!
//! Not here: those that need all values of a step at once (`choose`).

use std::sync::Arc;

use ropewalk_labels::kahan::add as kahan;
use ropewalk_labels::{Histogram, HistogramSum, Incompatible, Labels, METRIC_NAME, Outcome, ResetHint};

use super::Around;
use super::Eval;
use super::Sink;
use super::groups::Groups;
use super::row::{Cell, Row, Steps, is_absent};
use super::window::HistogramMean;
use crate::annotations::{Note, Operation};
use crate::budget::Holding;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

/// Assigns series to groups.
pub(super) struct Grouping<'e> {
    labels: &'e [String],
    without: bool,
    groups: Groups,
}

impl<'e> Grouping<'e> {
    pub(super) fn new(aggregate: &'e Aggregate) -> Self {
        Self { labels: &aggregate.grouping, without: aggregate.without, groups: Groups::default() }
    }

    /// The number of the group, and its labels when it is new.
    pub(super) fn place(&mut self, labels: &Labels) -> (usize, Option<Labels>) {
        let listed = |name: &[u8]| self.labels.iter().any(|label| label.as_bytes() == name);
        if self.without {
            return self.groups.place(labels, None, |name| name != METRIC_NAME.as_bytes() && !listed(name));
        }
        // Without grouping labels, no name is compared.
        let last = self.labels.iter().max().map_or("", String::as_str);
        self.groups.place(labels, Some(last), listed)
    }
}

/// Bytes of a group in addition to its labels and values.
const GROUP_BYTES: usize = 320;

/// The running state of one group.
struct Group {
    labels: Labels,
    drop_name: bool,
    /// Per step: the sum, the smallest, the sum of squared differences, ...
    value: Vec<f64>,
    /// Per step: the compensation of the sum, or the mean.
    aside: Vec<f64>,
    /// Per step: how many floats.
    floats: Vec<u32>,
    /// Per step: how many histograms; empty without any.
    histograms: Vec<HistogramState>,
    /// Steps at which a sum became infinite and the average continues as a running mean; empty without any.
    means: Vec<bool>,
}

/// The running state of the histograms of one group and step.
#[derive(Default)]
struct HistogramState {
    count: u32,
    sum: Option<HistogramSum>,
    mean: Option<HistogramMean>,
    incompatible: bool,
    reset: bool,
    not_reset: bool,
}

impl Group {
    fn new(labels: Labels, steps: usize) -> Self {
        Self {
            labels,
            drop_name: false,
            value: vec![0.0; steps],
            aside: vec![0.0; steps],
            floats: vec![0; steps],
            histograms: Vec::new(),
            means: Vec::new(),
        }
    }

    /// Adds the floats of a row.
    fn add_floats(&mut self, op: AggregateOp, floats: &[f64]) {
        let Self { value, aside, floats: counts, means, .. } = self;
        let places = value.iter_mut().zip(aside.iter_mut()).zip(counts.iter_mut()).zip(floats);
        let blocked = &self.histograms;
        match op {
            AggregateOp::Sum if blocked.is_empty() => {
                for (((sum, lost), count), float) in places.filter(|(_, float)| !is_absent(**float)) {
                    (*sum, *lost) = if *count == 0 { (*float, 0.0) } else { kahan(*float, (*sum, *lost)) };
                    *count += 1;
                }
            }
            _ => {
                for (step, (((value, aside), count), float)) in places.enumerate() {
                    if is_absent(*float) || blocked.get(step).is_some_and(|state| state.incompatible) {
                        continue;
                    }
                    let first = *count == 0;
                    *count += 1;
                    add_float(op, *float, first, *count, (value, aside), step, means);
                }
            }
        }
    }
}

fn add_float(
    op: AggregateOp,
    float: f64,
    first: bool,
    count: u32,
    (value, aside): (&mut f64, &mut f64),
    step: usize,
    means: &mut Vec<bool>,
) {
    let n = f64::from(count);
    match op {
        AggregateOp::Sum => {
            (*value, *aside) = if first { (float, 0.0) } else { kahan(float, (*value, *aside)) }
        }
        AggregateOp::Avg => {
            if first {
                (*value, *aside) = (float, 0.0);
                return;
            }
            if !means.get(step).copied().unwrap_or(false) {
                let next = kahan(float, (*value, *aside));
                if next.0.is_finite() || next.0.is_nan() {
                    (*value, *aside) = next;
                    return;
                }
                means.resize(means.len().max(step + 1), false);
                if let Some(mean) = means.get_mut(step) {
                    *mean = true;
                }
                (*value, *aside) = (*value / (n - 1.0), *aside / (n - 1.0));
            }
            let weight = (n - 1.0) / n;
            (*value, *aside) = kahan(float / n, (weight * *value, weight * *aside));
        }
        AggregateOp::Min if first || *value > float || value.is_nan() => *value = float,
        AggregateOp::Max if first || *value < float || value.is_nan() => *value = float,
        AggregateOp::Stddev | AggregateOp::Stdvar => {
            if first {
                (*value, *aside) = (if float.is_finite() { 0.0 } else { f64::NAN }, float);
                return;
            }
            let delta = float - *aside;
            *aside += delta / n;
            *value += delta * (float - *aside);
        }
        _ => {}
    }
}

impl Eval<'_> {
    pub(crate) fn aggregate(&self, aggregate: &Aggregate, steps: Steps, sink: Sink<'_>) -> Result<()> {
        use AggregateOp::{
            Avg, Bottomk, Count, CountValues, Group, LimitRatio, Limitk, Max, Min, Quantile, Stddev, Stdvar,
            Sum, Topk,
        };
        let run = |sink: Sink<'_>| match aggregate.op {
            Topk | Bottomk | Limitk | LimitRatio | Quantile | CountValues => {
                self.choose(aggregate, steps, sink)
            }
            Sum | Avg | Count | Min | Max | Group | Stddev | Stdvar => {
                self.accumulate(aggregate, steps, sink)
            }
            _ => self.aggregate_of_metricsql(aggregate, steps, sink),
        };
        match aggregate.limit {
            None => run(sink),
            Some(limit) => self.first_groups(aggregate, limit, run, sink),
        }
    }

    /// Passes the series of all aggregated vectors to `each`.
    pub(super) fn each_member(
        &self,
        aggregate: &Aggregate,
        steps: Steps,
        around: Around<'_>,
        sink: Sink<'_>,
    ) -> Result<()> {
        aggregate.vectors().try_for_each(|vector| self.each_row(vector, steps, around, &mut *sink))
    }

    fn accumulate(&self, aggregate: &Aggregate, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let mut grouping = Grouping::new(aggregate);
        let mut groups: Vec<Group> = Vec::new();
        let mut held = self.budget.holding(0)?;
        let around = Around::aggregate(aggregate);
        self.each_member(aggregate, steps, around, &mut |row| {
            if row.is_empty() {
                return Ok(());
            }
            let (place, new) = grouping.place(&row.labels);
            if let Some(labels) = new {
                held.grow(labels.bytes() + GROUP_BYTES + steps.count * 20)?;
                groups.push(Group::new(labels, steps.count));
            }
            let Some(group) = groups.get_mut(place) else { return refused("a group was lost") };
            group.drop_name |= row.drop_name;
            if !row.histograms.is_empty() {
                self.add_histograms(aggregate, group, row, &mut held)?;
            }
            group.add_floats(aggregate.op, &row.floats);
            Ok(self.budget.work(steps.count)?)
        })?;
        for group in groups {
            self.budget.work(steps.count)?;
            // The state is taken apart; the resulting row is counted where it is stored.
            held.shrink(steps.count * 20);
            let mut row = self.finish(aggregate, group, steps);
            if !row.is_empty() {
                sink(&mut row)?;
            }
        }
        Ok(())
    }

    fn add_histograms(
        &self,
        aggregate: &Aggregate,
        group: &mut Group,
        row: &Row,
        held: &mut Holding<'_>,
    ) -> Result<()> {
        use AggregateOp::{Avg, Max, Min, Stddev, Stdvar, Sum};
        let (op, place) = (aggregate.op, aggregate.expr.span());
        if matches!(op, Min | Max | Stddev | Stdvar) {
            if row.histograms.iter().any(Option::is_some) {
                self.note(&Note::HistogramIgnored { aggregation: op.name() }, place);
            }
            return Ok(());
        }
        if group.histograms.is_empty() {
            held.grow(row.steps() * size_of::<HistogramState>())?;
            group.histograms.resize_with(row.steps(), HistogramState::default);
        }
        for ((state, histogram), floats) in
            group.histograms.iter_mut().zip(&row.histograms).zip(&group.floats)
        {
            let Some(histogram) = histogram else { continue };
            if state.incompatible {
                continue;
            }
            state.count += 1;
            if !matches!(op, Sum | Avg) {
                continue;
            }
            state.reset |= histogram.hint == ResetHint::Reset;
            state.not_reset |= histogram.hint == ResetHint::NotReset;
            if *floats > 0 && state.count == 1 {
                // The group has floats, too, so it has no result.
                continue;
            }
            if state.count == 1 {
                // Its buckets and their compensation.
                held.grow(2 * histogram.bytes())?;
            }
            match state.add(op, histogram) {
                Ok(outcome) => {
                    if outcome.reconciled {
                        self.note(&Note::BucketsReconciled { operation: Operation::Aggregation }, place);
                    }
                }
                Err(Incompatible) => {
                    self.note(&Note::MixedSchemas { name: row.labels.name() }, place);
                    state.incompatible = true;
                }
            }
        }
        Ok(())
    }

    fn finish(&self, aggregate: &Aggregate, group: Group, steps: Steps) -> Row {
        let Group { labels, drop_name, value, aside, floats, histograms, means } = group;
        let mut row = Row::new(labels, drop_name, steps.count);
        let place = aggregate.expr.span();
        let mut histograms = histograms.into_iter();
        for (step, ((value, aside), count)) in value.iter().zip(&aside).zip(&floats).enumerate() {
            let state = histograms.next().unwrap_or_default();
            let (n, all) = (f64::from(*count), f64::from(*count) + f64::from(state.count));
            if all == 0.0 {
                continue;
            }
            let adds = matches!(aggregate.op, AggregateOp::Sum | AggregateOp::Avg);
            if adds && *count > 0 && state.count > 0 && !state.incompatible {
                self.note(&Note::MixedFloatsHistogramsAggregation, place);
                continue;
            }
            if adds && state.incompatible {
                continue;
            }
            let is_mean = means.get(step).copied().unwrap_or(false);
            let float = match aggregate.op {
                AggregateOp::Count => all,
                AggregateOp::Group => 1.0,
                _ if *count == 0 => {
                    if state.reset && state.not_reset {
                        self.note(&Note::CounterResetCollision { operation: Operation::Aggregation }, place);
                    }
                    if let Some(histogram) = state.result() {
                        row.set(step, Cell::Histogram(Arc::new(histogram)));
                    }
                    continue;
                }
                AggregateOp::Sum => value + aside,
                AggregateOp::Avg if is_mean => value + aside,
                AggregateOp::Avg => value / n + aside / n,
                AggregateOp::Stdvar => value / n,
                AggregateOp::Stddev => (value / n).sqrt(),
                _ => *value,
            };
            row.set(step, Cell::Float(float));
        }
        row
    }
}

impl HistogramState {
    fn add(&mut self, op: AggregateOp, histogram: &Histogram) -> Result<Outcome, Incompatible> {
        if op == AggregateOp::Sum {
            match &mut self.sum {
                Some(sum) => return sum.add(histogram),
                None => self.sum = Some(HistogramSum::new(histogram)),
            }
        } else {
            match &mut self.mean {
                Some(mean) => return mean.add(histogram),
                None => self.mean = Some(HistogramMean::new(histogram)),
            }
        }
        Ok(Outcome::default())
    }

    fn result(self) -> Option<Histogram> {
        let total = self.sum.map(HistogramSum::total).or_else(|| self.mean.map(HistogramMean::result));
        total.map(Histogram::compacted)
    }
}
