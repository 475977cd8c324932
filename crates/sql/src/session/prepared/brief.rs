//! Statements that take so little time that they may run on a thread that serves other clients, too.

use ropewalk::tables::Value;
use sqlparser::ast;

use super::{Plan, Prepared};
use crate::expr::Expr;
use crate::limits::budget::row_bytes;

/// Number of rows that an INSERT writes in a fraction of a millisecond.
const BRIEF_ROWS_MAX: usize = 16;
/// Bytes of constants, and of parameters, that take about as long to process: JSON is scanned once for each level.
const BRIEF_BYTES_MAX: usize = 64 << 10;

impl Plan {
    /// Calls `each` for every expression of a plan that may be brief.
    fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        match self {
            Self::Select(select) => select.each_expr(each),
            Self::Insert(insert) => insert.each_expr(each),
            Self::Update(update) => update.each_expr(each),
            Self::Delete(delete) => delete.each_expr(each),
            Self::Model(write) => write.each_expr(each),
            Self::Append(append) => append.each_expr(each),
            Self::Notify(call) => call.each_expr(each),
            Self::Declare(declared) => declared.1.plan.each_expr(each),
            Self::Whole(_)
            | Self::Small(_)
            | Self::Keyed(_)
            | Self::Merge(_)
            | Self::Chain(_)
            | Self::Analyze(..)
            | Self::Explain(_)
            | Self::Copy(_)
            | Self::Other => {}
        }
    }

    /// True if no expression waits, as for an advisory lock, and all constants are small.
    pub(super) fn is_light(&self) -> bool {
        let (mut waits, mut bytes) = (false, 0);
        self.each_expr(&mut |expr| {
            waits |= expr.sleeps();
            bytes += expr.constant_bytes();
        });
        !waits && bytes <= BRIEF_BYTES_MAX
    }
}

impl Prepared {
    /// True if a run with these parameters reads only a few keys and does not wait, so that it may run on a thread
    /// that must not block.
    pub fn is_brief_with(&self, params: &[Value<'_>]) -> bool {
        self.is_brief() && row_bytes(params) <= BRIEF_BYTES_MAX
    }

    /// The same with small parameters.
    pub fn is_brief(&self) -> bool {
        use ast::Statement as S;
        if !self.is_light || !self.subqueries.is_empty() {
            return false;
        }
        let found = |found: &crate::dml::write::Found| found.path.is_point;
        match &self.plan {
            Plan::Select(select) => match select.levels.as_slice() {
                [] => select.values.is_none(),
                [level] => level.path.is_point,
                _ => false,
            },
            Plan::Insert(insert) => insert.source.is_brief(BRIEF_ROWS_MAX),
            Plan::Model(write) => write.is_brief(BRIEF_ROWS_MAX),
            Plan::Update(update) => found(&update.found),
            Plan::Delete(delete) => found(&delete.found),
            Plan::Explain(_) | Plan::Notify(_) => true,
            Plan::Append(append) => append.is_brief(),
            Plan::Declare(declared) => declared.1.is_brief(),
            Plan::Whole(_)
            | Plan::Small(_)
            | Plan::Keyed(_)
            | Plan::Merge(_)
            | Plan::Chain(_)
            | Plan::Analyze(..)
            | Plan::Copy(_) => false,
            Plan::Other => matches!(
                self.statement.sql(),
                Some(
                    S::StartTransaction { .. }
                        | S::Commit { .. }
                        | S::Rollback { .. }
                        | S::Savepoint { .. }
                        | S::ReleaseSavepoint { .. }
                        | S::Set(_)
                        | S::Reset(_)
                        | S::ShowVariable { .. }
                        | S::Prepare { .. }
                        | S::Deallocate { .. }
                        | S::LISTEN { .. }
                        | S::UNLISTEN { .. }
                        | S::NOTIFY { .. }
                )
            ),
        }
    }
}
