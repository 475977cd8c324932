//! The columns and lists of columns that an UPDATE sets.
//!
//! ```text
//! SET (a, b) = (x, y), SET (a, b) = ROW(x, y)   is   SET a = x, b = y
//! SET (a, b) = (query)                          is   SET a = (SELECT "*0" FROM (query) AS "*set" ("*0", "*1")), b = ...
//! ```
//! The query is evaluated once for each column.

use std::borrow::Cow;

use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::bug;
use crate::plan::array_query::columns;
use crate::plan::row_in_subquery::{column, derived, row_of};
use crate::plan::{select_one, unsupported};

/// Alias of the query.
const RELATION: &str = "*set";

/// The columns that an UPDATE sets, by the places that `place` finds, and their expressions.
///
/// # Errors
/// 42601: a column is set twice; other numbers of columns and values. 0A000: the number of a query's columns is not evident.
pub(crate) fn assignments_of<'a>(
    assignments: &'a [ast::Assignment],
    place: &dyn Fn(&ast::ObjectName) -> Result<usize>,
) -> Result<Vec<(usize, Cow<'a, ast::Expr>)>> {
    let mut set: Vec<(usize, Cow<'a, ast::Expr>)> = Vec::new();
    for assignment in assignments {
        let (names, values) = match &assignment.target {
            ast::AssignmentTarget::ColumnName(name) => {
                (std::slice::from_ref(name), vec![Cow::Borrowed(&assignment.value)])
            }
            ast::AssignmentTarget::Tuple(names) => {
                (names.as_slice(), values_of(names.len(), &assignment.value)?)
            }
        };
        for (name, value) in names.iter().zip(values) {
            let place = place(name)?;
            if set.iter().any(|(at, _)| *at == place) {
                let message = format!("multiple assignments to same column \"{name}\"");
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
            set.push((place, value));
        }
    }
    Ok(set)
}

/// The values of a list of so many columns.
fn values_of(width: usize, value: &ast::Expr) -> Result<Vec<Cow<'_, ast::Expr>>> {
    let check = |found: usize| {
        let message = "number of columns does not match number of values";
        if found == width { Ok(()) } else { Err(SqlError::new(state::SYNTAX_ERROR, message)) }
    };
    if let Some(row) = row_of(value) {
        check(row.len())?;
        return Ok(row.into_iter().map(Cow::Owned).collect());
    }
    let ast::Expr::Subquery(query) = value else {
        let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    };
    check(columns(&query.body).ok_or_else(|| unsupported(format!("SET (...) = ({query})")))?)?;
    (0..width).map(|place| part_of(query, width, place).map(Cow::Owned)).collect()
}

/// `(SELECT "*set"."*1" FROM (query) AS "*set" ("*0", "*1"))`
fn part_of(query: &ast::Query, width: usize, place: usize) -> Result<ast::Expr> {
    let mut outer = select_one().ok_or_else(|| bug("SELECT 1"))?;
    let ast::SetExpr::Select(select) = outer.body.as_mut() else { return Err(bug("SELECT 1")) };
    let relation = ast::Ident::with_quote('"', RELATION);
    let value = ast::Expr::CompoundIdentifier(vec![relation.clone(), column(place)]);
    select.projection = vec![ast::SelectItem::UnnamedExpr(value)];
    select.from = vec![derived(query, relation, width)];
    Ok(ast::Expr::Subquery(Box::new(outer)))
}
