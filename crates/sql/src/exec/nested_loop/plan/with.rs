//! Queries of WITH, also recursive ones: each is planned at its first reference.

use std::sync::Arc;

use ropewalk::tables::Type;
use sqlparser::ast;

use super::from::Found;
use crate::error::{Result, SqlError, state};
use crate::exec::nested_loop::{Body, Inner, Node, Source};
use crate::plan::bind::scope::Scope;
use crate::plan::with::{Last, Named};
use crate::plan::{Asked, Planner, unsupported};
use crate::types::names::check_recursive;

impl Planner<'_> {
    /// Plans the query of WITH at a position in `named`.
    pub(super) fn small_with(&mut self, place: usize) -> Result<Option<Found>> {
        let Some(named) = self.named.get(place).cloned() else { return Ok(None) };
        if let Some((last, columns)) = named.last {
            if columns.is_empty() {
                let message = format!("WITH query \"{}\" does not have a RETURNING clause", named.name);
                let error = SqlError::new(state::FEATURE_NOT_SUPPORTED, message);
                return Err(error.hint("make it return rows: RETURNING *"));
            }
            return Ok(Some((Source::Last(last), named.name, columns, Vec::new())));
        }
        if let Some((query, columns, marks)) = &named.planned
            && let Some(inner) = Inner::of(&**query)
        {
            return Ok(Some((Source::Query(inner.clone()), named.name, columns.clone(), marks.clone())));
        }
        // The query sees those before it, but not itself.
        let later = self.named.split_off(place);
        let node = self.within(&Scope::default(), |planner| match named.is_recursive {
            true => planner.small_recursive(&named),
            false => planner.small(&named.query),
        });
        self.named.extend(later);
        let node = node?;
        let mut columns: Vec<(String, Type)> = node.columns.iter().map(|c| (c.name.clone(), c.ty)).collect();
        if named.columns.len() > columns.len() {
            let (name, has, given) = (&named.name, columns.len(), named.columns.len());
            let message =
                format!("WITH query \"{name}\" has {has} columns available but {given} columns specified");
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
        }
        for (column, given) in columns.iter_mut().zip(named.columns) {
            column.0 = given;
        }
        let marks = node.marks.clone();
        let inner = Inner::new(node, Asked::List, Type::TEXT);
        if let Some(named) = self.named.get_mut(place).filter(|_| !inner.is_correlated) {
            named.planned = Some((Box::new(inner.clone()), columns.clone(), marks.clone()));
        }
        Ok(Some((Source::Query(inner), named.name, columns, marks)))
    }

    /// Plans a query of WITH RECURSIVE whose text contains its name: as `base UNION [ALL] step` if the step
    /// reads it, otherwise like any other query.
    fn small_recursive(&mut self, named: &Named) -> Result<Node> {
        let ast::SetExpr::SetOperation { op: ast::SetOperator::Union, set_quantifier, left, right } =
            named.query.body.as_ref()
        else {
            let message = format!(
                "recursive query \"{}\" does not have the form non-recursive-term UNION [ALL] recursive-term",
                named.name
            );
            return self.small_unless_recursive(named, SqlError::new(state::INVALID_RECURSION, message));
        };
        let is_more = named.query.with.is_some()
            || named.query.order_by.is_some()
            || named.query.limit_clause.is_some();
        if is_more {
            let refused = unsupported("WITH, ORDER BY or LIMIT in a recursive query");
            return self.small_unless_recursive(named, refused);
        }
        self.nothing_but_a_query(&named.query)?;
        let all = *set_quantifier == ast::SetQuantifier::All;
        let base = self.small_set_expr(left)?;
        let mut columns: Vec<(String, Type)> = base.columns.iter().map(|c| (c.name.clone(), c.ty)).collect();
        for (column, given) in columns.iter_mut().zip(&named.columns) {
            column.0.clone_from(given);
        }
        let last = Last::default();
        self.named.push(Named { last: Some((last.clone(), columns)), ..named.clone() });
        let step = self.small_set_expr(right);
        self.named.pop();
        let mut step = step?;
        // The step holds a reference to the rows that it reads.
        if Arc::strong_count(&last) == 1 {
            return self.small_set_expr(&named.query.body);
        }
        if step.columns.len() != base.columns.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        for (place, (first, next)) in base.columns.iter().zip(&step.columns).enumerate() {
            if !step.is_null(place) {
                check_recursive(&named.name, place, first.ty, next.ty)?;
            }
        }
        step.cast_to(&base.columns);
        let shown = base.columns.clone();
        let (base, step) = (Box::new(base), Box::new(step));
        Ok(Node::new(Body::Recursive { base, step, all, last }, shown))
    }

    /// Plans a query of WITH RECURSIVE that must not read itself; fails with `refused` when it does.
    fn small_unless_recursive(&mut self, named: &Named, refused: SqlError) -> Result<Node> {
        let itself = format!("relation \"{}\" does not exist", named.name);
        self.small(&named.query).map_err(|error| if error.message == itself { refused } else { error })
    }
}
