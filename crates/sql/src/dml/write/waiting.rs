//! Writes whose expressions may wait, such as for an advisory lock.

use super::{Delete, Found, Given, Insert, OnConflict, Returning, Source, Update};
use crate::expr::Expr;

impl Given {
    fn sleeps(&self) -> bool {
        matches!(self, Self::Expr(expr) if expr.sleeps())
    }
}

impl Source {
    /// True for at most `rows_max` rows of VALUES.
    pub(crate) fn is_brief(&self, rows_max: usize) -> bool {
        matches!(self, Self::Values(rows) if rows.len() <= rows_max)
    }

    /// True if an expression may wait. False for a query of the engine, which is never brief.
    pub(crate) fn sleeps(&self) -> bool {
        match self {
            Self::Values(rows) => rows.iter().flatten().any(Given::sleeps),
            Self::Select(select) => select.sleeps(),
            Self::Whole(..) => false,
        }
    }
}

impl Returning {
    pub(crate) fn sleeps(&self) -> bool {
        self.output.iter().any(Expr::sleeps)
    }
}

impl OnConflict {
    fn sleeps(&self) -> bool {
        self.update.as_ref().is_some_and(|(set, filter)| {
            set.iter().any(|(_, given)| given.sleeps()) || filter.as_ref().is_some_and(Expr::sleeps)
        })
    }
}

impl Insert {
    pub(crate) fn sleeps(&self) -> bool {
        self.source.sleeps()
            || self.on_conflict.as_ref().is_some_and(OnConflict::sleeps)
            || self.returning.as_ref().is_some_and(Returning::sleeps)
    }
}

impl Found {
    fn sleeps(&self) -> bool {
        self.filter.iter().any(Expr::sleeps)
    }
}

impl Update {
    pub(crate) fn sleeps(&self) -> bool {
        self.found.sleeps()
            || self.set.iter().any(|(_, given)| given.sleeps())
            || self.returning.as_ref().is_some_and(Returning::sleeps)
    }
}

impl Delete {
    pub(crate) fn sleeps(&self) -> bool {
        self.found.sleeps() || self.returning.as_ref().is_some_and(Returning::sleeps)
    }
}
