//! Aggregations that need all values of a group and step at once: `topk`, `bottomk`, `limitk`, `limit_ratio`,
//! `quantile`, `count_values`.

use std::cmp::Ordering;

use ropewalk_labels::Labels;
use ropewalk_labels::text::{float_g, quote_bytes};

use super::Around;
use super::Eval;
use super::KNOWN_BYTES;
use super::LABEL_BYTES_PER_WORK;
use super::Sink;
use super::aggregate::Grouping;
use super::quantile::quantile;
use super::row::{Cell, Row, Rows, Steps};
use crate::annotations::Note;
use crate::budget::Holding;
use crate::data::text;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

/// Orders values, with NaN last in either direction.
pub(super) fn nan_last(a: f64, b: f64, descending: bool) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if descending => b.total_cmp(&a),
        (false, false) => a.total_cmp(&b),
    }
}

/// The rows of each group by their numbers, groups in order of the first row.
pub(super) struct Grouped<'a> {
    pub(super) list: Vec<(Labels, Vec<usize>)>,
    _held: Holding<'a>,
}

impl<'a> Eval<'a> {
    pub(super) fn grouped(&self, aggregate: &Aggregate, rows: &[Row]) -> Result<Grouped<'a>> {
        let mut held = self.budget.holding(rows.len() * 2 * size_of::<usize>())?;
        let mut grouping = Grouping::new(aggregate);
        let mut list: Vec<(Labels, Vec<usize>)> = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            self.budget.work(1 + row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
            let (place, new) = grouping.place(&row.labels);
            if let Some(labels) = new {
                held.grow(labels.bytes() + 2 * KNOWN_BYTES)?;
                list.push((labels, Vec::new()));
            }
            if let Some((_, members)) = list.get_mut(place) {
                members.push(index);
            }
        }
        Ok(Grouped { list, _held: held })
    }
}

/// Prometheus' sampling hash, so that both choose the same series: XXH64 of names and values, each after its
/// length.
fn sampling_hash(labels: &Labels) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    for part in labels.as_ref().byte_pairs().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(part.len()).ok().filter(|len| *len < u8::MAX) {
            Some(len) => bytes.push(len),
            None => {
                bytes.push(u8::MAX);
                bytes.extend(part.len().to_le_bytes().iter().take(3));
            }
        }
        bytes.extend_from_slice(part);
    }
    xxhash_rust::xxh64::xxh64(&bytes, 0)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

impl Eval<'_> {
    pub(super) fn choose(&self, aggregate: &Aggregate, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let around = Around::aggregate(aggregate);
        let Some(param) = &aggregate.param else { return refused("an aggregation lacks its parameter") };
        if aggregate.op == AggregateOp::CountValues {
            return self.count_values(aggregate, param, steps, around, sink);
        }
        let params = self.scalar(param, steps)?;
        let rows = self.rows(&aggregate.expr, steps, around)?;
        match aggregate.op {
            AggregateOp::Quantile => self.quantiles(aggregate, param, &params, &rows.list, steps, sink),
            AggregateOp::LimitRatio => self.limit_ratio(param, &params, rows, steps, sink),
            _ => self.limit(aggregate, &params, rows, steps, sink),
        }
    }

    /// `topk`, `bottomk`, `limitk`: at each step, `k` series of each group.
    fn limit(
        &self,
        aggregate: &Aggregate,
        params: &[f64],
        mut rows: Rows<'_>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        if params.iter().any(|k| k.is_nan()) {
            return refused("Parameter value is NaN");
        }
        let (least, most) = (least(params), most(params));
        if most < 1.0 {
            return Ok(());
        }
        if least <= i64::MIN as f64 {
            return refused(format!("Scalar value {} underflows int64", float_g(least)));
        }
        if most >= i64::MAX as f64 {
            return refused(format!("Scalar value {} overflows int64", float_g(most)));
        }
        let op = aggregate.op;
        if op != AggregateOp::Limitk && rows.list.iter().any(|row| row.histograms.iter().any(Option::is_some))
        {
            self.note(&Note::HistogramIgnored { aggregation: op.name() }, aggregate.span);
        }
        // The chosen rows of the first step in their order, and for each row the steps at which it is chosen.
        let mut order: Vec<usize> = Vec::new();
        let _held = self.budget.holding(rows.list.len().saturating_mul(steps.count + 48))?;
        let mut kept: Vec<Vec<bool>> = vec![vec![false; steps.count]; rows.list.len()];
        let mut groups = self.grouped(aggregate, &rows.list)?;
        // Equal values are ordered by labels, so that a choice does not depend on other steps.
        let labels = |index: usize| rows.list.get(index).map(|row| &row.labels);
        if op == AggregateOp::Limitk {
            for (_, members) in &mut groups.list {
                members.sort_by(|a, b| labels(*a).cmp(&labels(*b)));
            }
        }
        let mut present: Vec<(usize, f64)> = Vec::new();
        for (step, k) in params.iter().enumerate() {
            let k = *k as i64;
            if k < 1 {
                continue;
            }
            let k = usize::try_from(k).unwrap_or(usize::MAX);
            for (_, members) in &groups.list {
                self.budget.work(members.len())?;
                present.clear();
                for index in members {
                    let Some(row) = rows.list.get(*index) else { continue };
                    match row.float(step) {
                        Some(value) => present.push((*index, value)),
                        None if op == AggregateOp::Limitk && row.has(step) => {
                            present.push((*index, f64::NAN))
                        }
                        None => {}
                    }
                }
                if op != AggregateOp::Limitk {
                    let by_value = |a: &(usize, f64), b: &(usize, f64)| {
                        nan_last(a.1, b.1, op == AggregateOp::Topk)
                            .then_with(|| labels(a.0).cmp(&labels(b.0)))
                    };
                    if k < present.len() {
                        present.select_nth_unstable_by(k, by_value);
                    }
                    present.truncate(k);
                    present.sort_by(by_value);
                }
                for (index, _) in present.iter().take(k) {
                    if let Some(kept) = kept.get_mut(*index).and_then(|kept| kept.get_mut(step)) {
                        *kept = true;
                    }
                    if step == 0 {
                        order.push(*index);
                    }
                }
            }
        }
        for (row, kept) in rows.list.iter_mut().zip(&kept) {
            for step in kept.iter().enumerate().filter(|(_, kept)| !**kept).map(|(step, _)| step) {
                row.clear(step);
            }
        }
        if steps.count == 1 {
            let mut chosen = Vec::with_capacity(order.len());
            for index in order {
                chosen.extend(rows.list.get_mut(index).map(std::mem::take));
            }
            return self.give(chosen, sink);
        }
        rows.list.retain(|row| !row.is_empty());
        self.give(std::mem::take(&mut rows.list), sink)
    }

    /// A share of the series, chosen by the hash of their labels: always the same ones.
    fn limit_ratio(
        &self,
        param: &Expr,
        params: &[f64],
        mut rows: Rows<'_>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        if params.iter().any(|ratio| ratio.is_nan()) {
            return refused("Ratio value is NaN");
        }
        let (least, most) = (least(params), most(params));
        if most == 0.0 && least == 0.0 {
            return Ok(());
        }
        if most > 1.0 {
            self.note(&Note::InvalidRatio { value: most, capped: 1.0 }, param.span());
        }
        if least < -1.0 {
            self.note(&Note::InvalidRatio { value: least, capped: -1.0 }, param.span());
        }
        for row in &mut rows.list {
            self.budget.work(steps.count + row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
            let part = sampling_hash(&row.labels) as f64 / u64::MAX as f64;
            for (step, ratio) in params.iter().enumerate() {
                let ratio = ratio.clamp(-1.0, 1.0);
                if !(if ratio >= 0.0 { part < ratio } else { part >= 1.0 + ratio }) {
                    row.clear(step);
                }
            }
        }
        rows.list.retain(|row| !row.is_empty());
        self.give(std::mem::take(&mut rows.list), sink)
    }

    fn quantiles(
        &self,
        aggregate: &Aggregate,
        param: &Expr,
        params: &[f64],
        rows: &[Row],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        if params.iter().any(|q| q.is_nan()) {
            self.note(&Note::InvalidQuantile { value: f64::NAN }, param.span());
        }
        for value in [most(params), least(params)] {
            if !(0.0..=1.0).contains(&value) && value.is_finite()
                || value.is_infinite() && params.contains(&value)
            {
                self.note(&Note::InvalidQuantile { value }, param.span());
            }
        }
        if rows.iter().any(|row| row.histograms.iter().any(Option::is_some)) {
            self.note(&Note::HistogramIgnored { aggregation: "quantile" }, aggregate.expr.span());
        }
        let mut values = Vec::new();
        let _held = self.budget.holding(steps.count * 8 + rows.len() * 16)?;
        for (labels, members) in &self.grouped(aggregate, rows)?.list {
            let mut result = Row::new(labels.clone(), false, steps.count);
            let members: Vec<&Row> = members.iter().filter_map(|index| rows.get(*index)).collect();
            result.drop_name = members.iter().any(|row| row.drop_name);
            for (step, q) in params.iter().enumerate() {
                self.budget.work(members.len())?;
                values.clear();
                values.extend(members.iter().filter_map(|row| row.float(step)));
                if !values.is_empty() {
                    result.set(step, Cell::Float(quantile(*q, &mut values)));
                }
            }
            if !result.is_empty() {
                sink(&mut result)?;
            }
        }
        Ok(())
    }

    /// The number of series of each group with each value.
    fn count_values(
        &self,
        aggregate: &Aggregate,
        param: &Expr,
        steps: Steps,
        around: Around<'_>,
        sink: Sink<'_>,
    ) -> Result<()> {
        let Expr::Text(label) = param.bare() else { return refused("count_values takes a label name") };
        let name = std::str::from_utf8(&label.value).ok().filter(|name| !name.is_empty());
        let Some(name) = name else {
            return refused(format!("invalid label name {}", quote_bytes(&label.value)));
        };
        let mut with_label = aggregate.clone();
        if !aggregate.without {
            with_label.grouping.push(name.to_owned());
        }
        let mut grouping = Grouping::new(&with_label);
        let mut results = Rows::new(self.budget)?;
        self.each_row(&aggregate.expr, steps, around, &mut |row| {
            self.budget.work(steps.count)?;
            for step in 0..steps.count {
                let value = match row.cell(step) {
                    Some(Cell::Float(value)) => text::float(value),
                    Some(Cell::Histogram(histogram)) => histogram.to_string(),
                    None => continue,
                };
                self.budget.work(1 + value.len())?;
                let (place, new) = grouping.place(&self.relabeled(&row.labels, name, &value)?);
                if let Some(labels) = new {
                    results.push(Row::new(labels, false, steps.count))?;
                }
                if let Some(result) = results.list.get_mut(place) {
                    let count = result.float(step).unwrap_or(0.0);
                    result.set(step, Cell::Float(count + 1.0));
                }
            }
            Ok(())
        })?;
        self.give(std::mem::take(&mut results.list), sink)
    }
}
