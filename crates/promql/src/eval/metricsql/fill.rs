//! `default`, `if`, `ifnot`: operators on the presence of values.
//!
//! A scalar is a series without labels that has a gap where it is NaN; on the right it matches every series.

use ropewalk_labels::Labels;

use super::super::Around;
use super::super::Eval;
use super::super::Sink;
use super::super::Steps;
use super::super::binary::Sides;
use super::super::row::{ABSENT, Cell, Row, Rows};
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl<'a> Eval<'a> {
    pub(in crate::eval) fn fill(&self, binary: &Binary, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let Some(matching) = &binary.matching else { return refused("vectors without matching") };
        let mut left = self.rows_or_scalar(&binary.left, steps)?;
        let right = self.rows_or_scalar(&binary.right, steps)?;
        if binary.op == BinaryOp::Default && left.list.is_empty() {
            return self.give_all(right, sink);
        }
        self.budget.work(left.list.len().saturating_mul(steps.count))?;
        match (binary.op, binary.right.value_type()) {
            (BinaryOp::Default, ValueType::Scalar) => {
                let value: Vec<&Row> = right.list.iter().collect();
                left.list.iter_mut().for_each(|row| fill(row, &value));
            }
            (BinaryOp::Default, _) => {
                let sides = Sides::new(self.budget, matching, &left.list, &right.list)?;
                let partners = sides.by_signature(&sides.right);
                for (row, signature) in left.list.iter_mut().zip(&sides.left) {
                    let partners = partners.get(*signature).map(Vec::as_slice).unwrap_or_default();
                    self.budget.work(steps.count.saturating_mul(1 + partners.len()))?;
                    let partners = partners.iter();
                    let partners: Vec<&Row> = partners.filter_map(|index| right.list.get(*index)).collect();
                    fill(row, &partners);
                }
            }
            (op, ValueType::Scalar) => {
                for step in 0..steps.count {
                    if right.list.iter().any(|row| row.has(step)) != (op == BinaryOp::If) {
                        left.list.iter_mut().for_each(|row| row.clear(step));
                    }
                }
            }
            (op, _) => return self.set_operation(op, matching, left, right, steps, sink),
        }
        self.give_all(left, sink)
    }

    fn give_all(&self, mut rows: Rows<'a>, sink: Sink<'_>) -> Result<()> {
        let rows = std::mem::take(&mut rows.list);
        self.give(rows.into_iter().filter(|row| !row.is_empty()), sink)
    }

    fn rows_or_scalar(&self, expr: &Expr, steps: Steps) -> Result<Rows<'a>> {
        if expr.value_type() != ValueType::Scalar {
            return self.rows(expr, steps, Around::default());
        }
        let mut rows = Rows::new(self.budget)?;
        let mut row = Row::new(Labels::default(), false, steps.count);
        for (place, value) in row.floats.iter_mut().zip(self.scalar(expr, steps)?.iter()) {
            *place = if value.is_nan() { ABSENT } else { *value };
        }
        if !row.is_empty() {
            rows.push(row)?;
        }
        Ok(rows)
    }
}

/// Fills the gaps of a row with the first of `others` that has a value there.
fn fill(row: &mut Row, others: &[&Row]) {
    for step in 0..row.steps() {
        if row.has(step) {
            continue;
        }
        let found: Option<Cell> = others.iter().find_map(|other| other.cell(step));
        if let Some(cell) = found {
            row.set(step, cell);
        }
    }
}
