//! The expressions of writes.

use super::{Delete, Found, Given, Insert, OnConflict, Returning, Source, Update};
use crate::expr::Expr;

impl Given {
    fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        if let Self::Expr(expr) = self {
            each(expr);
        }
    }
}

impl Source {
    /// True for at most `rows_max` rows of VALUES.
    pub(crate) fn is_brief(&self, rows_max: usize) -> bool {
        matches!(self, Self::Values(rows) if rows.len() <= rows_max)
    }

    /// Calls `each` for every expression, except those of a query of the engine.
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        match self {
            Self::Values(rows) => rows.iter().flatten().for_each(|given| given.each_expr(each)),
            Self::Select(select) => select.each_expr(each),
            Self::Whole(..) => {}
        }
    }
}

impl Returning {
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.output.iter().for_each(each);
    }
}

impl OnConflict {
    fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        if let Some((set, filter)) = &self.update {
            set.iter().for_each(|(_, given)| given.each_expr(each));
            filter.iter().for_each(each);
        }
    }
}

impl Insert {
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.source.each_expr(each);
        self.on_conflict.iter().for_each(|on| on.each_expr(each));
        self.returning.iter().for_each(|returning| returning.each_expr(each));
    }
}

impl Found {
    fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.filter.iter().for_each(each);
    }
}

impl Update {
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.found.each_expr(each);
        self.set.iter().for_each(|(_, given)| given.each_expr(each));
        self.returning.iter().for_each(|returning| returning.each_expr(each));
    }
}

impl Delete {
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.found.each_expr(each);
        self.returning.iter().for_each(|returning| returning.each_expr(each));
    }
}
