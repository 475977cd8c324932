//! The analytic executor of a build without the feature `analytic`: it rejects every query.
//!
//! Rows by key and nested loops run what they can; the error of this module is returned for other queries.

use std::sync::Arc;

use ropewalk::tables::Type;
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::error::{Result, SqlError};
use crate::expr::{Context, Record};
use crate::limits::budget::Budget;
use crate::plan::bind::scope::Scope;
use crate::plan::bind::{Binder, Typed};
use crate::plan::{Asked, Planner, Select};
use crate::types::outcome::ResultColumn;

fn missing() -> SqlError {
    SqlError::unsupported(
        "a query for the analytic executor",
        "compile ropewalk-sql with the feature \"analytic\", or write a query for the executor by key or by nested loops",
    )
}

/// A query for the analytic executor. No value exists.
#[derive(Debug, Clone)]
pub(crate) struct WholeQuery {
    never: std::convert::Infallible,
    pub(crate) columns: Arc<[ResultColumn]>,
}

/// The result of planning. No value exists.
pub(crate) struct Planned {
    pub(crate) query: WholeQuery,
    pub(crate) columns: Vec<ResultColumn>,
    pub(crate) is_served: bool,
}

/// Rejects the query.
pub(crate) fn prepare(_: &ast::Query, _: &mut Planner<'_>) -> Result<Planned> {
    Err(missing())
}

impl WholeQuery {
    pub(crate) fn run(
        &self,
        _: &[Type],
        _: &mut Access<'_>,
        _: &Context<'_>,
        _: &Budget,
        _: &mut dyn FnMut(Record) -> Result<bool>,
    ) -> Result<Vec<String>> {
        match self.never {}
    }

    pub(crate) fn explained(self, _: bool) -> Self {
        match self.never {}
    }

    pub(crate) fn is_explain(&self) -> bool {
        match self.never {}
    }
}

impl Planner<'_> {
    /// False: views are planned by the analytic executor.
    pub(crate) fn is_in_view(&self) -> bool {
        false
    }

    /// False: only the analytic executor marks its subqueries.
    pub(crate) fn is_correlated(&self, _: usize) -> bool {
        false
    }

    pub(crate) fn whole_subquery(
        &mut self,
        _: &ast::Query,
        _: &Scope,
        _: Asked,
    ) -> Result<(usize, Option<Type>)> {
        Err(missing())
    }
}

impl Binder<'_, '_> {
    /// Binds; there are no window functions to reject.
    pub(crate) fn without_windows<R>(&mut self, bind: impl FnOnce(&mut Self) -> R) -> R {
        bind(self)
    }

    pub(crate) fn window(&mut self, _: &str, _: &ast::Function, _: &ast::WindowType) -> Result<Typed> {
        Err(missing())
    }

    /// None: only the analytic executor has set-returning functions in select lists.
    pub(crate) fn set_in_list(&mut self, _: &str, _: &[ast::FunctionArg]) -> Result<Option<Typed>> {
        Ok(None)
    }
}

impl Select {
    /// False: no other executor would take over.
    pub(crate) fn works_on_large_tables(&self, _: &mut Access<'_>) -> Result<bool> {
        Ok(false)
    }
}
