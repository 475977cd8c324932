//! `ARRAY(SELECT …)`: rewritten to `array_agg` over the query, and `{}` if it has no rows.
//!
//! ```text
//! ARRAY(SELECT e FROM … ORDER BY k)   is   (SELECT coalesce(array_agg(e ORDER BY k), '{}') FROM …)
//! ARRAY(any other query)              is   (SELECT coalesce(array_agg(c), '{}') FROM (query) AS q (c))
//! ```

use std::sync::LazyLock;

use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::plan::bind::catalog::shown_expr;
use crate::syntax::names::folded;
use crate::syntax::parse;

static GATHERING: LazyLock<Option<ast::Query>> = LazyLock::new(|| {
    match parse::template("SELECT coalesce(array_agg(c), '{}') FROM (SELECT 1) AS q (c)")? {
        ast::Statement::Query(query) => Some(*query),
        _ => None,
    }
});

/// The query whose single value is the array of the rows of `query`.
///
/// # Errors
/// 42601 when the query has several columns. 0A000 when their number is unknown, or the query has an ORDER BY
/// but is not a plain SELECT.
pub(crate) fn gathered(query: &ast::Query) -> Result<ast::Query> {
    let missing = || crate::expr::bug("a query over a query");
    match columns(&query.body) {
        Some(1) => {}
        Some(_) => return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column")),
        None => return Err(SqlError::unsupported(format!("ARRAY({query})"), "name the column")),
    }
    let mut around = GATHERING.clone().ok_or_else(missing)?;
    if let Some(by) = &query.order_by {
        let refused = || {
            let hint = "leave ORDER BY out, or gather the rows with array_agg(… ORDER BY …)";
            SqlError::unsupported(format!("ARRAY({query})"), hint)
        };
        let (list, select) = plain(query).ok_or_else(refused)?;
        let ast::OrderByKind::Expressions(order) = &by.kind else { return Err(refused()) };
        let call = arguments(&mut around).ok_or_else(missing)?;
        let mut order = order.clone();
        for item in order.iter_mut().filter(|item| means_the_column(&item.expr, list)) {
            item.expr = shown_expr(list).ok_or_else(refused)?.clone();
        }
        call.args = vec![ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(
            shown_expr(list).ok_or_else(refused)?.clone(),
        ))];
        call.clauses = vec![ast::FunctionArgumentClause::OrderBy(order)];
        let ast::SetExpr::Select(outer) = around.body.as_ref() else { return Err(missing()) };
        let select = ast::Select { projection: outer.projection.clone(), ..select.clone() };
        let body = Box::new(ast::SetExpr::Select(Box::new(select)));
        return Ok(ast::Query { body, order_by: None, ..query.clone() });
    }
    // A plain SELECT is rewritten in place, so that its outer references keep their nesting level.
    if let Some((list, select)) = plain(query).filter(|(_, select)| !select.from.is_empty())
        && let Some(item) = shown_expr(list).filter(|item| !calls_something(item))
    {
        let call = arguments(&mut around).ok_or_else(missing)?;
        call.args = vec![ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(item.clone()))];
        let ast::SetExpr::Select(outer) = around.body.as_ref() else { return Err(missing()) };
        let select = ast::Select { projection: outer.projection.clone(), ..select.clone() };
        return Ok(ast::Query { body: Box::new(ast::SetExpr::Select(Box::new(select))), ..query.clone() });
    }
    let ast::SetExpr::Select(outer) = around.body.as_mut() else { return Err(missing()) };
    let inner = outer.from.first_mut().map(|from| &mut from.relation);
    let Some(ast::TableFactor::Derived { subquery, .. }) = inner else { return Err(missing()) };
    **subquery = query.clone();
    Ok(around)
}

/// The number of columns of a query, if its text shows it.
pub(crate) fn columns(body: &ast::SetExpr) -> Option<usize> {
    match body {
        ast::SetExpr::Select(select) => {
            select.projection.iter().all(|item| shown_expr(item).is_some()).then_some(select.projection.len())
        }
        ast::SetExpr::Query(query) => columns(&query.body),
        ast::SetExpr::SetOperation { left, .. } => columns(left),
        ast::SetExpr::Values(values) => values.rows.first().map(|row| row.len()),
        _ => None,
    }
}

/// The only item and the SELECT of a query that does nothing but select and sort.
fn plain(query: &ast::Query) -> Option<(&ast::SelectItem, &ast::Select)> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let ast::GroupByExpr::Expressions(keys, _) = &select.group_by else { return None };
    let is_plain = select.distinct.is_none()
        && keys.is_empty()
        && select.having.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    match select.projection.as_slice() {
        [item] if is_plain => Some((item, select)),
        _ => None,
    }
}

/// True if the expression may contain an aggregate, a window function or a set-returning function.
fn calls_something(expr: &ast::Expr) -> bool {
    let text = expr.to_string();
    text.contains('(')
}

/// True for the number 1, and for the name of the item.
fn means_the_column(key: &ast::Expr, item: &ast::SelectItem) -> bool {
    match (key, item) {
        (ast::Expr::Value(value), _) => {
            matches!(&value.value, ast::Value::Number(digits, _) if digits == "1")
        }
        (ast::Expr::Identifier(name), ast::SelectItem::ExprWithAlias { alias, .. }) => {
            folded(name) == folded(alias)
        }
        _ => false,
    }
}

/// The arguments of `array_agg` in the rewritten query.
fn arguments(around: &mut ast::Query) -> Option<&mut ast::FunctionArgumentList> {
    let ast::SetExpr::Select(select) = around.body.as_mut() else { return None };
    let ast::SelectItem::UnnamedExpr(ast::Expr::Function(coalesce)) = select.projection.first_mut()? else {
        return None;
    };
    let ast::FunctionArguments::List(list) = &mut coalesce.args else { return None };
    let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Function(gather))) =
        list.args.first_mut()?
    else {
        return None;
    };
    match &mut gather.args {
        ast::FunctionArguments::List(list) => Some(list),
        _ => None,
    }
}
