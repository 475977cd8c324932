//! Binary operators: between a vector and a scalar, and between matching series of two vectors.
//!
//! Series are matched once by their signature, the labels used for matching; per step only the presence of
//! values is checked.

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk_labels::{Incompatible, Labels, METRIC_NAME, ResetHint, is_metadata};

use super::Around;
use super::Eval;
use super::KNOWN_BYTES;
use super::LABEL_BYTES_PER_WORK;
use super::Sink;
use super::row::{Cell, Row, Rows, Steps};
use super::scalar::{arithmetic, holds};
use crate::annotations::{Note, Operation};
use crate::budget::{Budget, Holding};
use crate::error::{Error, Result, SAME_LABELS, refused};
use crate::syntax::ast::*;
use crate::syntax::position::Span;

/// The result of an operator between two samples.
struct Outcome {
    cell: Cell,
    /// False when a comparison does not hold.
    keep: bool,
}

impl Outcome {
    fn value(cell: Cell) -> Option<Self> {
        Some(Self { cell, keep: true })
    }
}

fn is_listed(matching: &Matching, name: &[u8]) -> bool {
    matching.labels.iter().any(|label| label.as_bytes() == name)
}

/// The labels of a series that are used for matching.
fn signature(matching: &Matching, labels: &Labels) -> Labels {
    labels.filter(|name| {
        let is_listed = is_listed(matching, name);
        if matching.on { is_listed } else { name != METRIC_NAME.as_bytes() && !is_listed }
    })
}

/// The series of both sides by signature.
pub(super) struct Sides<'a> {
    pub(super) left: Vec<usize>,
    pub(super) right: Vec<usize>,
    signatures: Vec<Labels>,
    held: Holding<'a>,
}

/// Bytes of a series in [`Sides`] and the lists derived from it.
const SIDE_BYTES: usize = 64;

impl<'a> Sides<'a> {
    pub(super) fn new(
        budget: &'a Budget<'a>,
        matching: &Matching,
        left: &[Row],
        right: &[Row],
    ) -> Result<Self> {
        let mut held = budget.holding((left.len() + right.len()) * SIDE_BYTES)?;
        let mut numbers: HashMap<Labels, usize> = HashMap::new();
        let mut signatures = Vec::new();
        let mut number = |row: &Row| {
            budget.work(1 + matching.labels.len() + row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
            let labels = signature(matching, &row.labels);
            if let Some(number) = numbers.get(&labels) {
                return Ok(*number);
            }
            held.grow(labels.bytes() + 2 * KNOWN_BYTES)?;
            let next = numbers.len();
            signatures.push(labels.clone());
            numbers.insert(labels, next);
            Ok::<_, Error>(next)
        };
        let left = left.iter().map(&mut number).collect::<Result<_, _>>()?;
        let right = right.iter().map(&mut number).collect::<Result<_, _>>()?;
        Ok(Self { left, right, signatures, held })
    }

    /// For each signature, the series of a side that have it.
    pub(super) fn by_signature(&self, side: &[usize]) -> Vec<Vec<usize>> {
        let mut lists = vec![Vec::new(); self.signatures.len()];
        for (index, signature) in side.iter().enumerate() {
            if let Some(list) = lists.get_mut(*signature) {
                list.push(index);
            }
        }
        lists
    }

    /// For each signature and step, whether a series of a side has a value.
    fn presence(&mut self, rows: &[Row], left: bool, steps: usize) -> Result<Vec<Vec<bool>>> {
        let side = if left { &self.left } else { &self.right };
        let mut presence = vec![Vec::new(); self.signatures.len()];
        for (row, signature) in rows.iter().zip(side) {
            let Some(list) = presence.get_mut(*signature) else { continue };
            if list.is_empty() {
                self.held.grow(steps)?;
                list.resize(steps, false);
            }
            for (step, place) in list.iter_mut().enumerate() {
                *place |= row.has(step);
            }
        }
        Ok(presence)
    }
}

impl<'a> Eval<'a> {
    pub(crate) fn binary(&self, binary: &Binary, steps: Steps, sink: Sink<'_>) -> Result<()> {
        use ValueType::{Scalar, Vector};
        if binary.op.fills() {
            return self.fill(binary, steps, sink);
        }
        match (binary.left.value_type(), binary.right.value_type()) {
            (Vector, Scalar) => self.with_scalar(binary, &binary.left, &binary.right, false, steps, sink),
            (Scalar, Vector) => self.with_scalar(binary, &binary.right, &binary.left, true, steps, sink),
            (Vector, Vector) => {
                let Some(matching) = &binary.matching else { return refused("vectors without matching") };
                let left = self.rows(&binary.left, steps, Around::default())?;
                if left.list.is_empty() && binary.op == BinaryOp::And {
                    return Ok(());
                }
                let right = self.rows(&binary.right, steps, Around::default())?;
                if binary.op.is_set() {
                    self.set_operation(binary.op, matching, left, right, steps, sink)
                } else {
                    self.between_vectors(binary, matching, left, right, steps, sink)
                }
            }
            _ => refused("binary expression must contain only scalar and instant vector types"),
        }
    }

    /// A vector and a scalar; `swapped` when the scalar is on the left.
    fn with_scalar(
        &self,
        binary: &Binary,
        vector: &Expr,
        scalar: &Expr,
        swapped: bool,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let numbers = self.scalar(scalar, steps)?;
        let span = binary.left.span().to(binary.right.span());
        let renames = binary.op.changes_meaning() || binary.bool;
        let plain = binary.op.changes_meaning();
        let run = |sink: Sink<'_>| {
            self.each_row(vector, steps, Around::default(), &mut |row| {
                if renames {
                    self.drop_name(row);
                }
                if plain && row.histograms.is_empty() {
                    for (place, number) in row.floats.iter_mut().zip(numbers.iter()) {
                        if !super::row::is_absent(*place) {
                            let (a, b) = if swapped { (*number, *place) } else { (*place, *number) };
                            *place = arithmetic(binary.op, a, b);
                        }
                    }
                    return sink(row);
                }
                for (step, number) in numbers.iter().enumerate() {
                    let Some(cell) = row.cell(step) else { continue };
                    let number = Cell::Float(*number);
                    let (a, b) = if swapped { (&number, &cell) } else { (&cell, &number) };
                    let outcome = self.apply(binary.op, a, b, span);
                    row.clear(step);
                    let Some(outcome) = outcome else { continue };
                    if binary.bool {
                        row.set(step, Cell::Float(if outcome.keep { 1.0 } else { 0.0 }));
                    } else if outcome.keep {
                        // A comparison returns the vector's value, whichever side it is on.
                        row.set(step, if binary.op.compares() && swapped { cell } else { outcome.cell });
                    }
                }
                sink(row)
            })
        };
        if renames { self.unnamed(vector, sink, run) } else { run(sink) }
    }

    /// An operator between two samples; `None`, with an annotation, when there is no result.
    fn apply(&self, op: BinaryOp, a: &Cell, b: &Cell, span: Span) -> Option<Outcome> {
        use BinaryOp::{Add, Div, Equal, Mul, NotEqual, Sub, TrimLower, TrimUpper};
        let types = |left, right| {
            self.note(&Note::IncompatibleTypes { left, op, right }, span);
            None
        };
        match (a, b) {
            (Cell::Float(_), Cell::Float(_)) if matches!(op, TrimUpper | TrimLower) => {
                types("float", "float")
            }
            (Cell::Float(a), Cell::Float(b)) if op.compares() => {
                Some(Outcome { cell: Cell::Float(*a), keep: holds(op, *a, *b) })
            }
            (Cell::Float(a), Cell::Float(b)) => Outcome::value(Cell::Float(arithmetic(op, *a, *b))),
            (Cell::Float(factor), Cell::Histogram(h)) | (Cell::Histogram(h), Cell::Float(factor))
                if op == Mul =>
            {
                let mut h = (**h).clone();
                h.multiply(*factor);
                Outcome::value(Cell::Histogram(Arc::new(h.compacted())))
            }
            (Cell::Float(_), Cell::Histogram(_)) => types("float", "histogram"),
            (Cell::Histogram(h), Cell::Float(number)) => {
                let mut h = (**h).clone();
                match op {
                    Div => {
                        h.divide(*number);
                        h.compact();
                    }
                    TrimUpper | TrimLower => h.trim(*number, op == TrimUpper),
                    _ => return types("histogram", "float"),
                }
                Outcome::value(Cell::Histogram(Arc::new(h)))
            }
            (Cell::Histogram(a), Cell::Histogram(b)) => match op {
                Equal | NotEqual => {
                    Some(Outcome { cell: Cell::Histogram(Arc::clone(a)), keep: a.same(b) == (op == Equal) })
                }
                Add | Sub => {
                    let operation = if op == Add { Operation::Addition } else { Operation::Subtraction };
                    let mut sum = (**a).clone();
                    match if op == Add { sum.add(b) } else { sum.subtract(b) } {
                        Err(Incompatible) => {
                            self.note(&Note::IncompatibleBuckets { op }, span);
                            return None;
                        }
                        Ok(outcome) => {
                            if outcome.collision {
                                self.note(&Note::CounterResetCollision { operation }, span);
                            }
                            if outcome.reconciled {
                                self.note(&Note::BucketsReconciled { operation }, span);
                            }
                        }
                    }
                    if op == Sub {
                        sum.hint = ResetHint::Gauge;
                    }
                    Outcome::value(Cell::Histogram(Arc::new(sum.compacted())))
                }
                _ => types("histogram", "histogram"),
            },
        }
    }

    pub(super) fn set_operation(
        &self,
        op: BinaryOp,
        matching: &Matching,
        mut left: Rows<'a>,
        mut right: Rows<'a>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut sides = Sides::new(self.budget, matching, &left.list, &right.list)?;
        let is_or = op == BinaryOp::Or;
        let presence = sides.presence(if is_or { &left.list } else { &right.list }, is_or, steps.count)?;
        let (masked, side) = if is_or { (&mut right, &sides.right) } else { (&mut left, &sides.left) };
        for (row, signature) in masked.list.iter_mut().zip(side) {
            self.budget.work(2 * steps.count)?;
            let present = presence.get(*signature);
            for step in 0..steps.count {
                let partner = present.and_then(|list| list.get(step)).copied().unwrap_or(false);
                if partner != matches!(op, BinaryOp::And | BinaryOp::If) {
                    row.clear(step);
                }
            }
        }
        let mut rows = std::mem::take(&mut left.list);
        if op == BinaryOp::Or {
            rows.append(&mut right.list);
            rows.retain(|row| !row.is_empty());
            super::row::merge(&mut rows)?;
        }
        self.give(rows.into_iter().filter(|row| !row.is_empty()), sink)
    }

    fn between_vectors(
        &self,
        binary: &Binary,
        matching: &Matching,
        left: Rows<'a>,
        right: Rows<'a>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let filled = matching.fill_left.is_some() || matching.fill_right.is_some();
        if (left.list.is_empty() || right.list.is_empty()) && !filled {
            return Ok(());
        }
        // `many` is the side on which several series may share a partner of side `one`.
        let swapped = matching.card == Cardinality::OneToMany;
        let (many, one) = if swapped { (&right.list, &left.list) } else { (&left.list, &right.list) };
        let mut join = Join {
            eval: self,
            binary,
            matching,
            sides: Sides::new(self.budget, matching, many, one)?,
            swapped,
            span: binary.left.span().to(binary.right.span()),
            results: Rows::new(self.budget)?,
            places: HashMap::new(),
            taken: Vec::new(),
            steps,
        };
        join.check_one_side(many, one, filled)?;
        join.run(many, one)?;
        let mut rows = std::mem::take(&mut join.results.list);
        rows.retain(|row| !row.is_empty());
        self.give(rows, sink)
    }
}

/// The state of an operator between two vectors.
struct Join<'j, 'a> {
    eval: &'j Eval<'a>,
    binary: &'j Binary,
    matching: &'j Matching,
    sides: Sides<'a>,
    swapped: bool,
    span: Span,
    results: Rows<'a>,
    /// Results by their labels and whether their name is to be removed.
    places: HashMap<(Labels, bool), usize>,
    /// For each result and step: the signature (from 1) of the match stored there, 0 for none.
    taken: Vec<Vec<u32>>,
    steps: Steps,
}

impl Join<'_, '_> {
    /// On the "one" side, only one series of a signature may have a value at a step.
    fn check_one_side(&self, many: &[Row], one: &[Row], filled: bool) -> Result<()> {
        // Steps at which the other side has a value, computed on first use.
        let mut any_many: Option<Vec<bool>> = None;
        for (list, labels) in self.sides.by_signature(&self.sides.right).iter().zip(&self.sides.signatures) {
            if list.len() < 2 {
                continue;
            }
            if any_many.is_none() {
                self.eval.budget.work(many.len().saturating_mul(self.steps.count))?;
                any_many =
                    Some((0..self.steps.count).map(|step| many.iter().any(|row| row.has(step))).collect());
            }
            for step in 0..self.steps.count {
                self.eval.budget.work(list.len())?;
                if !filled && !any_many.as_ref().and_then(|any| any.get(step)).copied().unwrap_or(false) {
                    continue;
                }
                let mut present = list.iter().filter_map(|index| one.get(*index)).filter(|row| row.has(step));
                if let (Some(first), Some(second)) = (present.next(), present.next()) {
                    let mut both = [&first.labels, &second.labels].map(|labels| format!("{labels:#}"));
                    both.sort();
                    let side = if self.swapped { "left" } else { "right" };
                    return refused(format!(
                        "found duplicate series for the match group {labels:#} on the {side} hand-side of the operation: [{}];\
                         many-to-many matching not allowed: matching labels must be unique on one side",
                        both.join(", ")
                    ));
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, many: &[Row], one: &[Row]) -> Result<()> {
        let partners = self.sides.by_signature(&self.sides.right);
        let one_to_one = self.matching.card == Cardinality::OneToOne;
        // As in Prometheus, `fill_right` applies to the "one" side, also when `group_right` makes that the
        // left.
        let (fill_many, fill_one) = (self.matching.fill_left, self.matching.fill_right);
        // For each signature, the steps with a match.
        let mut matched: Vec<Vec<bool>> = vec![Vec::new(); self.sides.signatures.len()];
        for (row, signature) in many.iter().zip(self.sides.left.clone()) {
            let candidates = partners.get(signature).map(Vec::as_slice).unwrap_or_default();
            self.eval.budget.work(self.steps.count.saturating_mul(1 + candidates.len()))?;
            // The partner of the previous step, and the index of its result.
            let mut last: Option<(Option<usize>, usize)> = None;
            for step in 0..self.steps.count {
                let Some(cell) = row.cell(step) else { continue };
                let partner =
                    candidates.iter().copied().find(|index| one.get(*index).is_some_and(|r| r.has(step)));
                let other =
                    match (partner.and_then(|index| one.get(index)).and_then(|r| r.cell(step)), fill_one) {
                        (Some(cell), _) => cell,
                        (None, Some(value)) => Cell::Float(value),
                        (None, None) => continue,
                    };
                let Some(outcome) = self.outcome(&cell, &other) else { continue };
                let place = match last {
                    Some((before, place)) if before == partner => place,
                    _ => {
                        let labels = match partner.and_then(|index| one.get(index)) {
                            Some(one) => self.labels(&row.labels, &one.labels)?,
                            None => self.labels(&row.labels, &signature_of(&self.sides, signature))?,
                        };
                        self.place(labels, row.drop_name)?
                    }
                };
                last = Some((partner, place));
                if let Some(list) = matched.get_mut(signature) {
                    if list.is_empty() {
                        self.sides.held.grow(self.steps.count)?;
                        list.resize(self.steps.count, false);
                    }
                    if let Some(found) = list.get_mut(step) {
                        if *found && one_to_one {
                            return refused(
                                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
                            );
                        }
                        *found = true;
                    }
                }
                self.put(place, step, signature, outcome)?;
            }
        }
        if let Some(value) = fill_many {
            for (row, signature) in one.iter().zip(self.sides.right.clone()) {
                self.eval.budget.work(self.steps.count)?;
                let labels = signature_of(&self.sides, signature);
                for step in 0..self.steps.count {
                    let found =
                        matched.get(signature).and_then(|list| list.get(step)).copied().unwrap_or(false);
                    let Some(cell) = row.cell(step).filter(|_| !found) else { continue };
                    let Some(outcome) = self.outcome(&Cell::Float(value), &cell) else { continue };
                    let place = self.place(self.labels(&labels, &row.labels)?, row.drop_name)?;
                    self.put(place, step, signature, outcome)?;
                }
            }
        }
        Ok(())
    }

    fn outcome(&self, many: &Cell, one: &Cell) -> Option<Outcome> {
        let (left, right) = if self.swapped { (one, many) } else { (many, one) };
        self.eval.apply(self.binary.op, left, right, self.span)
    }

    /// The labels of a result.
    fn labels(&self, many: &Labels, one: &Labels) -> Result<Labels> {
        let renames = !self.eval.keep_name
            && (self.binary.op.changes_meaning()
                || self.binary.bool && !self.eval.options.delayed_name_removal);
        let one_to_one = self.matching.card == Cardinality::OneToOne;
        let mut labels = many.filter(|name| {
            !(renames && is_metadata(name))
                && (!one_to_one || is_listed(self.matching, name) == self.matching.on)
        });
        self.eval.budget.work(1 + self.matching.include.len())?;
        for name in &self.matching.include {
            labels = self.eval.relabeled(&labels, name, one.get(name))?;
        }
        Ok(labels)
    }

    fn place(&mut self, labels: Labels, drop_name: bool) -> Result<usize> {
        let drop_name =
            drop_name || self.binary.bool && self.eval.options.delayed_name_removal && !self.eval.keep_name;
        let key = (labels, drop_name);
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let place = self.results.list.len();
        self.results.push(Row::new(key.0.clone(), drop_name, self.steps.count))?;
        self.results.held.grow(self.steps.count * size_of::<u32>())?;
        self.places.insert(key, place);
        self.taken.push(vec![0; self.steps.count]);
        Ok(place)
    }

    fn put(&mut self, place: usize, step: usize, signature: usize, outcome: Outcome) -> Result<()> {
        let Some(taken) = self.taken.get_mut(place).and_then(|list| list.get_mut(step)) else {
            return Ok(());
        };
        let number = u32::try_from(signature + 1).unwrap_or(u32::MAX);
        if *taken == number && self.matching.card != Cardinality::OneToOne {
            return refused("multiple matches for labels: grouping labels must ensure unique matches");
        }
        *taken = number;
        if !outcome.keep && !self.binary.bool {
            return Ok(());
        }
        if self.results.list.get(place).is_some_and(|row| row.has(step)) {
            return refused(SAME_LABELS);
        }
        let truth = || Cell::Float(if outcome.keep { 1.0 } else { 0.0 });
        Ok(self.results.set(place, step, if self.binary.bool { truth() } else { outcome.cell })?)
    }
}

fn signature_of(sides: &Sides<'_>, signature: usize) -> Labels {
    sides.signatures.get(signature).cloned().unwrap_or_default()
}
