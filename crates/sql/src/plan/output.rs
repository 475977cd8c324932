//! The result of a query: its select list with column names, grouping and order.

use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use super::Order;
use super::Planner;
use super::ResultColumn;
use super::unsupported;
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::functions::aggregate::Aggregate;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::Scope;
use crate::syntax::names::{folded, own, parts, table_name};

impl Planner<'_> {
    /// Binds a select list or RETURNING.
    pub(crate) fn projection(
        &mut self,
        items: &[ast::SelectItem],
        scope: &Scope,
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<Vec<(Expr, ResultColumn)>> {
        let mut projected = Vec::new();
        for item in items {
            let (expr, name) = match item {
                ast::SelectItem::UnnamedExpr(expr) => (expr, label(expr)),
                ast::SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
                ast::SelectItem::Wildcard(options) | ast::SelectItem::QualifiedWildcard(_, options) => {
                    if options != &ast::WildcardAdditionalOptions::default() {
                        return Err(unsupported(item));
                    }
                    let relation = match item {
                        ast::SelectItem::QualifiedWildcard(
                            ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                            _,
                        ) => Some(table_name(name)?),
                        ast::SelectItem::QualifiedWildcard(..) => return Err(unsupported(item)),
                        _ => None,
                    };
                    if let Some(relation) = &relation
                        && !scope.one_meant(relation)?
                    {
                        let message = format!("missing FROM-clause entry for table \"{}\"", own(relation));
                        return Err(SqlError::new(state::UNDEFINED_TABLE, message));
                    }
                    let all = scope.all(relation.as_deref());
                    if all.is_empty() {
                        let message = "SELECT * with no tables specified is not valid";
                        return Err(SqlError::new(state::SYNTAX_ERROR, message));
                    }
                    projected
                        .extend(all.into_iter().map(|(name, ty, expr)| (expr, ResultColumn { name, ty })));
                    continue;
                }
                ast::SelectItem::ExprWithAliases { .. } => return Err(unsupported(item)),
            };
            let (expr, ty) =
                Binder::new(self, scope, "SELECT").with_aggregates(aggregates).bind_closed(expr)?;
            projected.push((expr, ResultColumn { name, ty }));
        }
        Ok(projected)
    }

    /// Binds the keys of GROUP BY without ROLLUP, CUBE and GROUPING SETS.
    pub(crate) fn plain_group_keys(
        &mut self,
        group_by: &ast::GroupByExpr,
        scope: &Scope,
        projected: &[(Expr, ResultColumn)],
    ) -> Result<Vec<Expr>> {
        let ast::GroupByExpr::Expressions(keys, modifiers) = group_by else {
            return Err(unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(unsupported("GROUP BY with a modifier"));
        }
        // GROUP BY () has no keys and one group.
        let keys = keys.iter().filter(|key| !matches!(key, ast::Expr::Tuple(parts) if parts.is_empty()));
        keys.map(|key| Ok(self.group_key(key, scope, projected)?.0)).collect()
    }

    /// Binds the condition of HAVING.
    pub(crate) fn having(
        &mut self,
        select: &ast::Select,
        scope: &Scope,
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<Option<Expr>> {
        let Some(having) = &select.having else { return Ok(None) };
        Binder::new(self, scope, "HAVING").with_aggregates(aggregates).condition(having).map(Some)
    }

    pub(crate) fn group_key(
        &mut self,
        key: &ast::Expr,
        scope: &Scope,
        projected: &[(Expr, ResultColumn)],
    ) -> Result<(Expr, Type)> {
        let chosen = match key {
            // A column of the tables takes precedence over a name of the select list.
            ast::Expr::Identifier(ident) if scope.find(None, &folded(ident))?.is_none() => {
                named(&folded(ident), projected)?.map(|found| found.0.clone())
            }
            key => ordinal(key, projected, "GROUP BY")?.map(|found| found.0.clone()),
        };
        let (expr, ty) = match chosen {
            Some(expr) => {
                let found = projected.iter().find(|(known, _)| *known == expr);
                (expr, found.map_or(Type::TEXT, |(_, column)| column.ty))
            }
            None => Binder::new(self, scope, "GROUP BY").bind_closed(key)?,
        };
        if contains_aggregate(&expr) {
            return Err(SqlError::new(
                state::GROUPING_ERROR,
                "aggregate functions are not allowed in GROUP BY",
            ));
        }
        if !ty.is_ordered() {
            return Err(crate::plan::bind::scope::no_operator("=", Some(ty), Some(ty)));
        }
        Ok((expr, ty))
    }

    pub(crate) fn order(
        &mut self,
        item: &ast::OrderByExpr,
        scope: &Scope,
        projected: &[(Expr, ResultColumn)],
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<Order> {
        if item.with_fill.is_some() {
            return Err(unsupported(item));
        }
        let chosen = match &item.expr {
            // A name of the select list takes precedence over a column of the tables.
            ast::Expr::Identifier(ident) => named(&folded(ident), projected)?,
            key => ordinal(key, projected, "ORDER BY")?,
        };
        let place = chosen.and_then(|chosen| projected.iter().position(|item| std::ptr::eq(item, chosen)));
        let (expr, ty) = match chosen.cloned() {
            Some((expr, column)) => (expr, column.ty),
            None => {
                Binder::new(self, scope, "ORDER BY").with_aggregates(aggregates).bind_closed(&item.expr)?
            }
        };
        if !ty.is_ordered() {
            return Err(crate::plan::bind::scope::no_operator("<", Some(ty), Some(ty)));
        }
        let descending = item.options.asc == Some(false);
        let nulls_first = item.options.nulls_first.unwrap_or(descending);
        let equal = || projected.iter().position(|(known, _)| *known == expr);
        let shown = expr.is_volatile().then(|| place.or_else(equal)).flatten();
        Ok(Order { expr, ty, descending, nulls_first, shown })
    }

    /// Binds an item of DISTINCT ON: a number or name denotes a select list column, as in ORDER BY.
    pub(crate) fn distinct_on(
        &mut self,
        item: &ast::Expr,
        select: &ast::Select,
        scope: &Scope,
        projected: &[(Expr, ResultColumn)],
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<(Expr, Type)> {
        let known = match ordinal(item, projected, "DISTINCT ON")? {
            // An item written exactly as in the select list is that column, even a subquery or a window
            // function.
            None => written_so(&select.projection, item).and_then(|at| projected.get(at)),
            known => known,
        };
        if let Some((expr, column)) = known {
            return Ok((expr.clone(), column.ty));
        }
        let item = ast::OrderByExpr {
            expr: item.clone(),
            options: ast::OrderByOptions { asc: None, nulls_first: None },
            with_fill: None,
        };
        let Order { expr, ty, .. } = self.order(&item, scope, projected, aggregates)?;
        Ok((expr, ty))
    }
}

fn contains_aggregate(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::Aggregate(_));
    expr.for_parts(&mut |part| found |= contains_aggregate(part));
    found
}

/// Rejects DISTINCT over types without equality, or ordered by an expression that is not selected.
pub(crate) fn check_distinct<'e>(
    columns: &[ResultColumn],
    output: &[Expr],
    orders: impl IntoIterator<Item = &'e Expr>,
) -> Result<()> {
    if let Some(column) = columns.iter().find(|column| !column.ty.is_ordered()) {
        return Err(crate::plan::bind::scope::no_operator("=", Some(column.ty), Some(column.ty)));
    }
    if orders.into_iter().any(|order| !output.contains(order)) {
        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
    }
    Ok(())
}

/// Rejects DISTINCT ON expressions that are not the first ones of ORDER BY.
pub(crate) fn check_distinct_on<'e>(on: &[&Expr], orders: impl IntoIterator<Item = &'e Expr>) -> Result<()> {
    if orders.into_iter().take(on.len()).any(|order| !on.contains(&order)) {
        let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message));
    }
    Ok(())
}

/// Rewrites an expression over groups: keys and aggregates become columns; other columns are an error.
/// `reads` has the outer columns that each subquery of the query engine reads.
pub(crate) fn grouped_expr(expr: Expr, keys: &[Expr], scope: &Scope, reads: &[Vec<usize>]) -> Result<Expr> {
    let (mut stray, mut stray_within) = (None, None);
    let changed = grouped_parts(expr, keys, reads, &mut |column, is_within| {
        *(if is_within { &mut stray_within } else { &mut stray }) = Some(column);
    });
    let name = |column| scope.name_of(column).unwrap_or_default();
    let message = match (stray, stray_within) {
        (None, None) => return Ok(changed),
        (Some(column), _) => format!(
            "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
            name(column)
        ),
        (None, Some(_)) if keys.iter().any(|key| matches!(key, Expr::Coalesce(_)) || has_query(key)) => {
            // The subquery may read a merged column of USING, or be a grouping key itself.
            return Err(unsupported("a correlated subquery with such a GROUP BY"));
        }
        (None, Some(column)) => {
            format!("subquery uses ungrouped column \"{}\" from outer query", name(column))
        }
    };
    Err(SqlError::new(state::GROUPING_ERROR, message))
}

/// The columns that an expression over groups reads and the keys determine, which can be further keys: those of
/// tables whose primary keys are among the keys.
pub(crate) fn determined_keys(
    expr: &Expr,
    keys: &[Expr],
    scope: &Scope,
    reads: &[Vec<usize>],
    add: &mut dyn FnMut(Expr, Type),
) {
    let is_key = |column| keys.contains(&Expr::Column(column));
    grouped_parts(expr.clone(), keys, reads, &mut |column, _| {
        if let Some(ty) = scope.determined(column, &is_key).filter(|ty| ty.is_ordered()) {
            add(Expr::Column(column), ty);
        }
    });
}

/// Adds the columns that expressions over groups read and the keys determine to the keys.
pub(crate) fn add_determined<'e>(exprs: impl Iterator<Item = &'e Expr>, keys: &mut Vec<Expr>, scope: &Scope) {
    let mut further: Vec<Expr> = Vec::new();
    for expr in exprs {
        determined_keys(expr, keys, scope, &[], &mut |key, _| {
            if !further.contains(&key) {
                further.push(key);
            }
        });
    }
    keys.append(&mut further);
}

fn has_query(expr: &Expr) -> bool {
    let mut found = matches!(expr, Expr::Subquery(_) | Expr::InSubquery(..) | Expr::Inner(..));
    expr.for_parts(&mut |part| found |= has_query(part));
    found
}

/// As [`grouped_expr`]; `stray` receives the columns that are not keys, and whether a subquery reads them.
fn grouped_parts(
    expr: Expr,
    keys: &[Expr],
    reads: &[Vec<usize>],
    stray: &mut dyn FnMut(usize, bool),
) -> Expr {
    let place = |part: &Expr| keys.iter().position(|key| key == part);
    let within = |column: usize| place(&Expr::Column(column));
    expr.rewrite(&mut |part| {
        if let Some(place) = place(part) {
            return Some(Expr::Column(place));
        }
        match part {
            Expr::Aggregate(number) => Some(Expr::Column(keys.len() + number)),
            Expr::Column(column) => {
                stray(*column, false);
                Some(Expr::Const(Value::Null))
            }
            Expr::Subquery(number) | Expr::InSubquery(_, number) => {
                let read = reads.get(*number).into_iter().flatten().copied();
                read.filter(|column| within(*column).is_none()).for_each(|column| stray(column, true));
                None
            }
            Expr::Inner(inner, left) => {
                let mut inner = inner.clone();
                inner.outer_columns(&mut |column| {
                    if within(column).is_none() {
                        stray(column, true);
                    }
                });
                inner.renumber(&|column| within(column).unwrap_or_default());
                let left = left.clone().map(|left| Box::new(grouped_parts(*left, keys, reads, stray)));
                Some(Expr::Inner(inner, left))
            }
            _ => None,
        }
    })
}

/// The select list column of a constant, which must be its number; `None` if `key` is not a constant.
fn ordinal<'p>(
    key: &ast::Expr,
    projected: &'p [(Expr, ResultColumn)],
    clause: &str,
) -> Result<Option<&'p (Expr, ResultColumn)>> {
    let (value, sign) = match key {
        ast::Expr::Nested(inner) => return ordinal(inner, projected, clause),
        ast::Expr::Value(value) if matches!(value.value, ast::Value::Placeholder(_)) => return Ok(None),
        ast::Expr::Value(value) => (&value.value, ""),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match expr.as_ref() {
            ast::Expr::Value(value) => (&value.value, "-"),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let number = match value {
        ast::Value::Number(digits, false) => digits.parse::<usize>().ok(),
        _ => None,
    };
    let Some(number) = number else {
        return Err(SqlError::new(state::SYNTAX_ERROR, format!("non-integer constant in {clause}")));
    };
    let place = number.checked_sub(1).filter(|_| sign.is_empty());
    place.and_then(|place| projected.get(place)).map(Some).ok_or_else(|| {
        let message = format!("{clause} position {sign}{number} is not in select list");
        SqlError::new(state::INVALID_COLUMN_REFERENCE, message)
    })
}

/// The select list column with this name; an error if the name is ambiguous.
fn named<'p>(name: &str, projected: &'p [(Expr, ResultColumn)]) -> Result<Option<&'p (Expr, ResultColumn)>> {
    let mut found: Option<&(Expr, ResultColumn)> = None;
    for candidate in projected.iter().filter(|(_, column)| column.name == name) {
        if found.is_some_and(|found| found.0 != candidate.0) {
            let message = format!("ORDER BY \"{name}\" is ambiguous");
            return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
        }
        found = Some(candidate);
    }
    Ok(found)
}

/// The default name of a result column.
pub(crate) fn label(expr: &ast::Expr) -> String {
    figured(expr).map_or_else(|| "?column?".into(), |(name, _)| name)
}

/// The name that an expression gives its column, and whether an enclosing cast or CASE retains it.
///
/// Source: PostgreSQL 15, `FigureColnameInternal` of `parse_target.c`.
fn figured(expr: &ast::Expr) -> Option<(String, bool)> {
    use ast::Expr as E;
    let strong = |name: &str| Some((name.to_owned(), true));
    match expr {
        E::Identifier(ident) => Some((folded(ident), true)),
        E::CompoundIdentifier(idents) => Some((idents.last().map_or_else(String::new, folded), true)),
        E::Nested(inner) | E::Collate { expr: inner, .. } => figured(inner),
        E::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                ast::AccessExpr::Dot(E::Identifier(field)) => Some(folded(field)),
                _ => None,
            });
            field.map_or_else(|| figured(root), |field| Some((field, true)))
        }
        E::Function(function) => Some((
            parts(&function.name).ok().and_then(|names| names.last().cloned()).unwrap_or_default(),
            true,
        )),
        // A cast takes the name of its column or function, but not that of another type.
        E::Cast { expr: inner, data_type, .. } => match figured(inner) {
            Some((name, true)) => Some((name, true)),
            _ => Some((crate::types::names::short_name(data_type), false)),
        },
        E::TypedString(typed) => Some((crate::types::names::short_name(&typed.data_type), false)),
        E::Case { else_result, .. } => match else_result.as_deref().and_then(figured) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".into(), false)),
        },
        E::Subquery(query) => Some((label_of_query(&query.body), true)),
        E::Exists { negated: false, .. } => strong("exists"),
        E::BinaryOp { op: ast::BinaryOperator::Overlaps, .. } => strong("overlaps"),
        E::Interval(_) => Some(("interval".into(), false)),
        E::Extract { .. } => strong("extract"),
        E::AtTimeZone { .. } => strong("timezone"),
        E::Ceil { .. } => strong("ceil"),
        E::Floor { .. } => strong("floor"),
        E::Position { .. } => strong("position"),
        E::Substring { shorthand: true, .. } => strong("substr"),
        E::Substring { .. } => strong("substring"),
        E::Overlay { .. } => strong("overlay"),
        E::Trim { trim_where: Some(ast::TrimWhereField::Leading), .. } => strong("ltrim"),
        E::Trim { trim_where: Some(ast::TrimWhereField::Trailing), .. } => strong("rtrim"),
        E::Trim { .. } => strong("btrim"),
        E::Array(_) => strong("array"),
        E::Tuple(_) => strong("row"),
        _ => None,
    }
}

/// The name of the first column of a query.
fn label_of_query(body: &ast::SetExpr) -> String {
    match body {
        ast::SetExpr::Select(select) => match select.projection.first() {
            Some(ast::SelectItem::UnnamedExpr(inner)) => label(inner),
            Some(ast::SelectItem::ExprWithAlias { alias, .. }) => folded(alias),
            _ => "?column?".into(),
        },
        ast::SetExpr::SetOperation { left, .. } => label_of_query(left),
        ast::SetExpr::Query(query) => label_of_query(&query.body),
        ast::SetExpr::Values(_) => "column1".into(),
        _ => "?column?".into(),
    }
}

/// The position of the select-list item that is this expression; `None` where a `*` may have moved positions.
fn written_so(items: &[ast::SelectItem], expr: &ast::Expr) -> Option<usize> {
    let is_item = |item: &ast::SelectItem| matches!(item, ast::SelectItem::UnnamedExpr(found) | ast::SelectItem::ExprWithAlias { expr: found, .. } if found == expr);
    let is_plain = |item: &ast::SelectItem| {
        matches!(item, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. })
    };
    items.iter().take_while(|item| is_plain(item)).position(is_item)
}

/// True when column `place` of a query is a string that has no type yet: in a set operation it gets that of the other query.
pub(crate) fn is_untyped_string(body: &ast::SetExpr, place: usize) -> bool {
    let select = match body {
        ast::SetExpr::Select(select) => select,
        ast::SetExpr::Query(query) => return is_untyped_string(&query.body, place),
        _ => return false,
    };
    let is_one = |item: &ast::SelectItem| {
        matches!(item, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. })
    };
    match select.projection.get(..=place) {
        Some([before @ .., ast::SelectItem::UnnamedExpr(ast::Expr::Value(value))])
        | Some([before @ .., ast::SelectItem::ExprWithAlias { expr: ast::Expr::Value(value), .. }]) => {
            matches!(value.value, ast::Value::SingleQuotedString(_)) && before.iter().all(is_one)
        }
        _ => false,
    }
}
