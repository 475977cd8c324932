//! Extensions of MetricsQL: functions over windows of samples (`window`), over all steps of a series
//! (`across`), over labels (`label`); aggregations (`aggregate`); operators that fill or create gaps
//! (`fill`).

mod across;
mod aggregate;
mod fill;
mod label;
mod window;

pub(crate) use window::{keeps_name, parts, window};

use super::Around;
use super::Eval;
use super::KNOWN_BYTES;
use super::LABEL_BYTES_PER_WORK;
use super::Sink;
use super::call::text;
use super::row::{Row, Rows, Steps};
use crate::error::{Error, Result, refused};
use crate::syntax::ast::*;

impl Eval<'_> {
    /// A call of one of the functions that take vectors.
    pub(super) fn metricsql(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<()> {
        match (call.function.name, call.args.as_slice()) {
            ("union", vectors) => self.union(vectors, steps, sink),
            ("drop_common_labels", vectors) => self.drop_common_labels(vectors, steps, sink),
            ("limit_offset", [limit, offset, vector]) => {
                let first = |expr| Ok::<_, Error>(self.scalar(expr, steps)?.first().copied().unwrap_or(0.0));
                // Negative numbers and NaN count as 0.
                let (limit, offset) = (first(limit)? as usize, first(offset)? as usize);
                let mut rows = self.rows(vector, steps, Around::default())?;
                rows.list.sort_by(|a, b| a.labels.cmp(&b.labels));
                let list = std::mem::take(&mut rows.list);
                self.give(list.into_iter().skip(offset).take(limit), sink)
            }
            (name, [vector, texts @ ..]) if name.starts_with("label") || name == "alias" => {
                let texts = texts.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                self.change_labels(name, vector, &texts, steps, sink)
            }
            (name, [vector]) => self.across(name, vector, None, steps, sink),
            ("smooth_exponential", [vector, factor]) | (_, [factor, vector]) => {
                self.across(call.function.name, vector, Some(factor), steps, sink)
            }
            (name, _) => refused(format!("function {name} gives no vector")),
        }
    }

    /// The series of all vectors; of those with the same labels the first one.
    fn union(&self, vectors: &[Expr], steps: Steps, sink: Sink<'_>) -> Result<()> {
        let mut known = std::collections::HashSet::new();
        let mut held = self.budget.holding(0)?;
        for vector in vectors {
            self.each_row(vector, steps, Around::default(), &mut |row| {
                // A series whose name will be removed does not equal one whose name is retained.
                if row.is_empty() || !known.insert((row.labels.clone(), row.drop_name)) {
                    return Ok(());
                }
                self.budget.work(steps.count + row.labels.bytes())?;
                held.grow(row.labels.bytes() + KNOWN_BYTES)?;
                sink(row)
            })?;
        }
        Ok(())
    }

    /// The series of all vectors without the labels that all of them have with one value.
    fn drop_common_labels(&self, vectors: &[Expr], steps: Steps, sink: Sink<'_>) -> Result<()> {
        let mut rows = Rows::new(self.budget)?;
        for vector in vectors {
            self.each_row(vector, steps, Around::default(), &mut |row| rows.take(row))?;
        }
        let Some(first) = rows.list.first().map(|row| row.labels.clone()) else { return Ok(()) };
        let is_common = |name: &str| rows.list.iter().all(|row| row.labels.get(name) == first.get(name));
        let common: Vec<&str> = first.iter().map(|(name, _)| name).filter(|name| is_common(name)).collect();
        let Rows { list, held } = &mut rows;
        for row in list {
            self.budget.work(1 + row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
            row.labels = row.labels.filter(|name| !common.iter().any(|of| of.as_bytes() == name));
            held.grow(row.labels.bytes())?;
        }
        self.put_together(rows, sink)
    }

    /// Passes on rows whose labels were changed.
    fn put_together(&self, mut rows: Rows<'_>, sink: Sink<'_>) -> Result<()> {
        rows.merge()?;
        let list: Vec<Row> = std::mem::take(&mut rows.list);
        self.give(list, sink)
    }
}
