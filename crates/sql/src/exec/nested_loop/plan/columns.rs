//! Changes to the columns of a planned query: casts, and the form that clients receive.

use ropewalk::tables::{Type, Value};

use crate::error::Result;
use crate::exec::nested_loop::{Body, Node, Output};
use crate::expr::Expr;
use crate::expr::function::Function;
use crate::plan::bind::scope::Mark;
use crate::plan::unsupported;
use crate::types::outcome::ResultColumn;

impl Node {
    /// Converts its columns to the form that clients receive: vectors in PostgreSQL's notation.
    pub(super) fn show_marks(&mut self) -> Result<()> {
        for (place, mark) in std::mem::take(&mut self.marks) {
            let Body::Select(select) = &mut self.body else { continue };
            match (mark, select.output.get_mut(place), self.columns.get_mut(place)) {
                (Mark::Pair, ..) => return Err(unsupported("a result of rows with two fields")),
                (Mark::Vector, Some(Output::One(expr)), Some(column)) => {
                    let inner = std::mem::replace(expr, Expr::Const(Value::Null));
                    *expr = Expr::Call(Function::ArrayToString, vec![inner, Expr::Const(Value::text(" "))]);
                    column.ty = Type::TEXT;
                }
                (Mark::Vector, ..) => {}
            }
        }
        Ok(())
    }

    /// True when a column is a literal NULL.
    pub(super) fn is_null(&self, place: usize) -> bool {
        match &self.body {
            Body::Select(select) => {
                matches!(select.output.get(place), Some(Output::One(Expr::Const(Value::Null))))
            }
            Body::Set { left, right, .. } => left.is_null(place) && right.is_null(place),
            Body::Values(_) | Body::Recursive { .. } => false,
        }
    }

    /// Casts its columns to these types.
    pub(super) fn cast_to(&mut self, columns: &[ResultColumn]) {
        for (place, column) in columns.iter().enumerate() {
            let Some(own) = self.columns.get_mut(place) else { continue };
            if own.ty == column.ty {
                continue;
            }
            own.ty = column.ty;
            let cast = |expr: &mut Expr| {
                let inner = std::mem::replace(expr, Expr::Const(Value::Null));
                *expr = Expr::Cast(Box::new(inner), column.ty);
            };
            match &mut self.body {
                Body::Select(select) => {
                    if let Some(Output::One(expr)) = select.output.get_mut(place) {
                        cast(expr);
                    }
                }
                Body::Values(rows) => rows.iter_mut().filter_map(|row| row.get_mut(place)).for_each(cast),
                Body::Set { left, right, .. } | Body::Recursive { base: left, step: right, .. } => {
                    let mut types = left.columns.clone();
                    if let Some(slot) = types.get_mut(place) {
                        slot.ty = column.ty;
                    }
                    left.cast_to(&types);
                    right.cast_to(&types);
                }
            }
        }
    }
}
