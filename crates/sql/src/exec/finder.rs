//! A query run by the engine, or by nested loops in memory if the engine cannot run it.
//!
//! The engine cannot run correlated subqueries that do not turn into joins. Nested loops run them once for
//! each outer row, within the statement's budget.

use ropewalk::tables::Type;
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::error::{Result, state};
use crate::exec::analytic::{WholeQuery, prepare};
use crate::exec::nested_loop::Node;
use crate::expr::{Context, Record};
use crate::limits::budget::Budget;
use crate::plan::Planner;
use crate::types::executor::Executor;
use crate::types::outcome::ResultColumn;

/// A planned query.
pub(crate) enum Finder {
    Whole(WholeQuery),
    Loops(Box<Node>),
}

impl Finder {
    /// Plans a query.
    ///
    /// # Errors
    /// Unknown names, wrong types; the engine's 0A000 for queries that neither executor can run.
    pub(crate) fn plan(query: &ast::Query, planner: &mut Planner<'_>) -> Result<Self> {
        if planner.chained {
            return planner.small(query).map(|node| Self::Loops(Box::new(node)));
        }
        if planner.executor() == Executor::Nested
            && let Some(node) = planner.forced(|planner| planner.small(query).map(Some))?
        {
            return Ok(Self::Loops(Box::new(node)));
        }
        let mark = planner.mark();
        let planned = match prepare(query, planner) {
            Ok(planned) if planned.is_served => return Ok(Self::Whole(planned.query)),
            Err(error) if error.state != state::FEATURE_NOT_SUPPORTED => return Err(error),
            planned => planned,
        };
        let after = planner.mark();
        planner.back_to(mark);
        match planner.small(query) {
            Ok(node) => Ok(Self::Loops(Box::new(node))),
            Err(_) => {
                planner.back_to(after);
                Ok(Self::Whole(planned?.query))
            }
        }
    }

    pub(crate) fn columns(&self) -> &[ResultColumn] {
        match self {
            Self::Whole(query) => &query.columns,
            Self::Loops(node) => &node.columns,
        }
    }

    /// Passes every row to `sink` until it returns false.
    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        sink: &mut dyn FnMut(Record) -> Result<bool>,
    ) -> Result<()> {
        match self {
            Self::Whole(query) => query.run(types, access, cx, budget, sink).map(|_| ()),
            Self::Loops(node) => {
                for row in node.answer(access, cx, budget)? {
                    if !sink(row)? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}
