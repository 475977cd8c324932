//! `(a, b) IN (SELECT ...)`, rewritten to comparisons of columns.
//!
//! ```text
//! as a condition   EXISTS (SELECT 1 FROM (query) AS s(x, y) WHERE x = a AND y = b)
//! as a value       CASE WHEN EXISTS (that) THEN true
//!                       WHEN EXISTS (... WHERE (x = a AND y = b) IS NULL) THEN NULL ELSE false END
//! ```
//! As a condition only true counts, so NULL and false need no distinction. The engine runs it as a join.

use std::cmp::Ordering;

use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::bug;
use crate::plan::select_one;

/// The columns of a row constructor: `(a, b)`, `ROW(a, b)`.
pub(crate) fn row_of(expr: &ast::Expr) -> Option<Vec<ast::Expr>> {
    match expr {
        ast::Expr::Tuple(columns) => Some(columns.clone()),
        ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let ast::FunctionArguments::List(list) = &function.args else { return None };
            let column = |argument: &ast::FunctionArg| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            };
            list.args.iter().map(column).collect()
        }
        _ => None,
    }
}

/// Alias of the subquery.
const RELATION: &str = "*in";

/// Rejects a subquery with another number of columns than the row.
pub(crate) fn check_width(alias: &ast::TableAlias, width: usize) -> Result<()> {
    let much = match alias.columns.len().cmp(&width) {
        _ if alias.name.value != RELATION => return Ok(()),
        Ordering::Equal => return Ok(()),
        Ordering::Less => "many",
        Ordering::Greater => "few",
    };
    Err(SqlError::new(state::SYNTAX_ERROR, format!("subquery has too {much} columns")))
}

/// Name of a column of [`derived`].
pub(crate) fn column(number: usize) -> ast::Ident {
    ast::Ident::with_quote('"', format!("*{number}"))
}

/// `(query) AS "name" ("*0", "*1")`
pub(crate) fn derived(query: &ast::Query, name: ast::Ident, width: usize) -> ast::TableWithJoins {
    let columns = (0..width).map(|place| ast::TableAliasColumnDef { name: column(place), data_type: None });
    let alias = ast::TableAlias { explicit: true, name, columns: columns.collect(), at: None };
    let relation = ast::TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query.clone()),
        alias: Some(alias),
        sample: None,
    };
    ast::TableWithJoins { relation, joins: Vec::new() }
}

/// `EXISTS (SELECT 1 FROM (query) AS "*in" ("*1", "*2") WHERE condition)`; the condition compares columns
/// with the row.
fn exists(row: &[ast::Expr], query: &ast::Query, is_null: bool) -> Result<ast::Expr> {
    let mut outer = select_one().ok_or_else(|| bug("SELECT 1"))?;
    let ast::SetExpr::Select(select) = outer.body.as_mut() else { return Err(bug("SELECT 1")) };
    let relation = ast::Ident::with_quote('"', RELATION);
    let equal = row.iter().enumerate().map(|(place, value)| ast::Expr::BinaryOp {
        left: Box::new(ast::Expr::CompoundIdentifier(vec![relation.clone(), column(place)])),
        op: ast::BinaryOperator::Eq,
        right: Box::new(ast::Expr::Nested(Box::new(value.clone()))),
    });
    let all = equal.reduce(|left, right| ast::Expr::BinaryOp {
        left: Box::new(left),
        op: ast::BinaryOperator::And,
        right: Box::new(right),
    });
    let all = all.ok_or_else(|| bug("a row without columns"))?;
    select.from = vec![derived(query, relation, row.len())];
    select.selection = Some(match is_null {
        false => all,
        true => ast::Expr::IsNull(Box::new(ast::Expr::Nested(Box::new(all)))),
    });
    Ok(ast::Expr::Exists { subquery: Box::new(outer), negated: false })
}

/// The rewrite as a value.
pub(crate) fn in_rows(row: &[ast::Expr], query: &ast::Query) -> Result<ast::Expr> {
    let truth = |value: ast::Value| ast::Expr::Value(value.with_empty_span());
    let when = |condition, result| ast::CaseWhen { condition, result };
    Ok(ast::Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(exists(row, query, false)?, truth(ast::Value::Boolean(true))),
            when(exists(row, query, true)?, truth(ast::Value::Null)),
        ],
        else_result: Some(Box::new(truth(ast::Value::Boolean(false)))),
    })
}

/// Rewrites IN over rows in a condition to EXISTS; `None` without such an IN.
pub(crate) fn rows_exist(condition: &ast::Expr) -> Result<Option<ast::Expr>> {
    Ok(match condition {
        ast::Expr::InSubquery { expr, subquery, negated: false } => match row_of(expr) {
            Some(row) => Some(exists(&row, subquery, false)?),
            None => None,
        },
        ast::Expr::Nested(inner) => rows_exist(inner)?.map(|inner| ast::Expr::Nested(Box::new(inner))),
        ast::Expr::BinaryOp {
            left,
            op: op @ (ast::BinaryOperator::And | ast::BinaryOperator::Or),
            right,
        } => match (rows_exist(left)?, rows_exist(right)?) {
            (None, None) => None,
            (new_left, new_right) => Some(ast::Expr::BinaryOp {
                left: new_left.map_or_else(|| left.clone(), Box::new),
                op: op.clone(),
                right: new_right.map_or_else(|| right.clone(), Box::new),
            }),
        },
        _ => None,
    })
}
