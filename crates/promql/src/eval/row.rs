//! Values of one series at all steps of a query.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ropewalk_labels::{Histogram, Labels, STALE, is_stale};

use crate::budget::{Budget, BudgetError, Holding};
use crate::error::{Result, SAME_LABELS, refused};

/// Marks a step without a value. No calculation returns these bits: they are those of a signalling NaN, and
/// arithmetic quiets NaNs.
pub(crate) const ABSENT: f64 = STALE;

/// True for a step without a float.
#[inline]
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// The steps of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) start_ms: i64,
    pub(crate) step_ms: i64,
    pub(crate) count: usize,
}

impl Steps {
    pub(crate) fn one(at_ms: i64) -> Self {
        Self { start_ms: at_ms, step_ms: 1, count: 1 }
    }

    /// The steps from `start_ms` to at most `end_ms`.
    pub(crate) fn new(start_ms: i64, end_ms: i64, step_ms: i64) -> Self {
        let count = if end_ms < start_ms {
            0
        } else {
            ((end_ms.abs_diff(start_ms) / step_ms.unsigned_abs().max(1)) as usize).saturating_add(1)
        };
        Self { start_ms, step_ms, count }
    }

    pub(crate) fn time(&self, step: usize) -> i64 {
        self.start_ms.saturating_add(self.step_ms.saturating_mul(step as i64))
    }

    pub(crate) fn times(self) -> impl Iterator<Item = i64> {
        (0..self.count).map(move |step| self.time(step))
    }
}

/// A value at one step.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// A series over all steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) labels: Labels,
    /// The metric name is to be removed at the end of the query.
    pub(crate) drop_name: bool,
    /// One per step, [`ABSENT`] where there is no float.
    pub(crate) floats: Vec<f64>,
    /// Empty without histograms, else one per step.
    pub(crate) histograms: Vec<Option<Arc<Histogram>>>,
}

impl Row {
    pub(crate) fn new(labels: Labels, drop_name: bool, steps: usize) -> Self {
        Self { labels, drop_name, floats: vec![ABSENT; steps], histograms: Vec::new() }
    }

    /// Resets it to an empty row.
    pub(crate) fn reset(&mut self, labels: Labels, drop_name: bool, steps: usize) {
        self.labels = labels;
        self.drop_name = drop_name;
        self.floats.clear();
        self.floats.resize(steps, ABSENT);
        self.histograms.clear();
    }

    pub(crate) fn steps(&self) -> usize {
        self.floats.len()
    }

    #[inline]
    pub(crate) fn float(&self, step: usize) -> Option<f64> {
        self.floats.get(step).copied().filter(|value| !is_absent(*value))
    }

    #[inline]
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<Histogram>> {
        self.histograms.get(step).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn has(&self, step: usize) -> bool {
        self.float(step).is_some() || self.histogram(step).is_some()
    }

    pub(crate) fn cell(&self, step: usize) -> Option<Cell> {
        self.float(step)
            .map(Cell::Float)
            .or_else(|| self.histogram(step).map(|h| Cell::Histogram(Arc::clone(h))))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.floats.iter().all(|value| is_absent(*value)) && self.histograms.iter().all(Option::is_none)
    }

    pub(crate) fn set(&mut self, step: usize, cell: Cell) {
        match cell {
            Cell::Float(value) => {
                if let Some(place) = self.floats.get_mut(step) {
                    *place = value;
                }
            }
            Cell::Histogram(histogram) => {
                if self.histograms.is_empty() {
                    self.histograms.resize(self.floats.len(), None);
                }
                if let Some(place) = self.histograms.get_mut(step) {
                    *place = Some(histogram);
                }
            }
        }
    }

    /// Removes the value of a step.
    pub(crate) fn clear(&mut self, step: usize) {
        if let Some(place) = self.floats.get_mut(step) {
            *place = ABSENT;
        }
        if let Some(place) = self.histograms.get_mut(step) {
            *place = None;
        }
    }

    /// Applies a function to all floats, and removes the histograms.
    pub(crate) fn map_floats(&mut self, change: impl Fn(f64) -> f64) {
        self.histograms.clear();
        for value in self.floats.iter_mut().filter(|value| !is_absent(**value)) {
            *value = change(*value);
        }
    }

    /// Moves the values of `other` into the free steps of this row; false when both have a value at a step.
    pub(crate) fn absorb(&mut self, other: &Row) -> bool {
        for step in 0..self.steps() {
            if let Some(cell) = other.cell(step) {
                if self.has(step) {
                    return false;
                }
                self.set(step, cell);
            }
        }
        true
    }

    /// Repeats the first step over `steps` steps.
    pub(crate) fn spread(&mut self, steps: usize) {
        let first = self.floats.first().copied().unwrap_or(ABSENT);
        self.floats.clear();
        self.floats.resize(steps, first);
        if let Some(first) = self.histograms.first().cloned() {
            self.histograms.clear();
            self.histograms.resize(steps, first);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        ROW_BYTES
            + self.labels.bytes()
            + self.floats.capacity() * 8
            + self.histograms.capacity() * 8
            + self.histograms.iter().flatten().map(|h| h.bytes()).sum::<usize>()
    }
}

/// Bytes of a row in addition to its values and labels: its struct in a grown list, and its entry in a table
/// while rows are merged.
const ROW_BYTES: usize = 320;

/// Intermediate rows, counted in the budget until dropped.
pub(crate) struct Rows<'a> {
    pub(crate) list: Vec<Row>,
    pub(crate) held: Holding<'a>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(budget: &'a Budget<'a>) -> Result<Self, BudgetError> {
        Ok(Self { list: Vec::new(), held: budget.holding(0)? })
    }

    pub(crate) fn push(&mut self, row: Row) -> Result<(), BudgetError> {
        self.held.grow(row.bytes())?;
        self.list.push(row);
        Ok(())
    }

    /// Moves a row here unless it has no value.
    pub(crate) fn take(&mut self, row: &mut Row) -> Result<()> {
        if !row.is_empty() {
            self.push(std::mem::take(row))?;
        }
        Ok(())
    }

    /// Sets the value of a stored row, and counts its memory.
    pub(crate) fn set(&mut self, place: usize, step: usize, cell: Cell) -> Result<(), BudgetError> {
        let Some(row) = self.list.get_mut(place) else { return Ok(()) };
        if let Cell::Histogram(histogram) = &cell {
            let list = if row.histograms.is_empty() { row.floats.len() * 8 } else { 0 };
            self.held.grow(list + histogram.bytes())?;
        }
        row.set(step, cell);
        Ok(())
    }

    /// Merges rows of the same labels.
    ///
    /// # Errors
    /// When two of them have a value at one step.
    pub(crate) fn merge(&mut self) -> Result<()> {
        merge(&mut self.list)
    }
}

/// One number for each step, counted in the budget until dropped.
pub(crate) struct Numbers<'a> {
    list: Vec<f64>,
    _held: Holding<'a>,
}

impl<'a> Numbers<'a> {
    pub(crate) fn new(budget: &'a Budget<'a>, list: Vec<f64>) -> Result<Self, BudgetError> {
        let held = budget.holding(list.capacity() * 8)?;
        Ok(Self { list, _held: held })
    }

    /// The numbers alone, no longer counted.
    pub(crate) fn into_list(self) -> Vec<f64> {
        self.list
    }
}

impl Deref for Numbers<'_> {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.list
    }
}

impl DerefMut for Numbers<'_> {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.list
    }
}

/// Merges rows of the same labels, in order of the first of each.
pub(crate) fn merge(rows: &mut Vec<Row>) -> Result<()> {
    if rows.len() < 2 {
        return Ok(());
    }
    // A series whose name will be removed does not equal one whose name is retained.
    let mut places: HashMap<(Labels, bool), usize> = HashMap::with_capacity(rows.len());
    let mut merged: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows.drain(..) {
        let key = (row.labels.clone(), row.drop_name);
        match places.get(&key).and_then(|place| merged.get_mut(*place)) {
            Some(first) => {
                if !first.absorb(&row) {
                    return refused(SAME_LABELS);
                }
            }
            None => {
                places.insert(key, merged.len());
                merged.push(row);
            }
        }
    }
    *rows = merged;
    Ok(())
}
