//! Statements that take so little time that they may run on a thread that serves other clients, too.

use sqlparser::ast;

use super::{Plan, Prepared};

/// Number of rows that an INSERT writes in a fraction of a millisecond.
const BRIEF_ROWS_MAX: usize = 16;

impl Plan {
    /// True if an expression may wait, such as for an advisory lock. False for plans that are never brief.
    pub(super) fn sleeps(&self) -> bool {
        match self {
            Self::Select(select) => select.sleeps(),
            Self::Insert(insert) => insert.sleeps(),
            Self::Update(update) => update.sleeps(),
            Self::Delete(delete) => delete.sleeps(),
            Self::Model(write) => write.sleeps(),
            Self::Append(append) => append.sleeps(),
            Self::Notify(call) => call.sleeps(),
            Self::Declare(declared) => declared.1.sleeps,
            Self::Whole(_)
            | Self::Small(_)
            | Self::Keyed(_)
            | Self::Merge(_)
            | Self::Chain(_)
            | Self::Analyze(..)
            | Self::Explain(_)
            | Self::Copy(_)
            | Self::Other => false,
        }
    }
}

impl Prepared {
    /// True if a run reads only a few keys and does not wait, so that it may run on a thread that must not block.
    pub fn is_brief(&self) -> bool {
        use ast::Statement as S;
        if self.sleeps || !self.subqueries.is_empty() {
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
