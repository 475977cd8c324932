//! Planning of queries for nested loops. Names and types are bound as in any other query; this adds the rest.

use std::sync::Arc;

use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use super::Body;
use super::From;
use super::Inner;
use super::Last;
use super::Node;
use super::Output;
use super::Select;
use super::SetOp;
use super::Source;
use super::Take;
use crate::error::{Result, SqlError, state};
use crate::exec::analytic::{ModelRelation, Rows as _};
use crate::expr::cast::Strength;
use crate::expr::function::Function;
use crate::expr::{Expr, Order};
use crate::functions::aggregate::Aggregate;
use crate::functions::set_returning::SetFunction;
use crate::plan::bind::catalog::is_vector;
use crate::plan::bind::scope::{Mark, Present, Scope};
use crate::plan::bind::{Binder, Typed, negated_if};
use crate::plan::{
    Asked, Groups, Planner, alone_first, check_distinct, check_distinct_on, label, limit_and_offset,
    nothing_but_a_select, split, unsupported,
};
use crate::syntax::names::{folded, in_full, parts, table_name};
use crate::types::names::{check_recursive, common};
use crate::types::outcome::ResultColumn;

/// A query of WITH in scope.
#[derive(Clone)]
pub(crate) struct Named {
    name: String,
    columns: Vec<String>,
    query: ast::Query,
    /// It reads itself: its rows are computed step by step.
    is_recursive: bool,
    /// The input of its step, set while the step is planned.
    last: Option<(Last, Vec<(String, Type)>)>,
    /// Its plan, made for the first reference.
    planned: Option<Found>,
}

impl Named {
    /// A query of WITH.
    pub(crate) fn of(cte: &ast::Cte, recursive: bool) -> Self {
        let name = folded(&cte.alias.name);
        Self {
            is_recursive: recursive && says(&cte.query.to_string(), &name),
            last: None,
            planned: None,
            name,
            columns: cte.alias.columns.iter().map(|column| folded(&column.name)).collect(),
            query: (*cte.query).clone(),
        }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// A named relation whose rows are computed before they are read.
    pub(crate) fn answered(
        name: String,
        columns: Vec<(String, Type)>,
        rows: Last,
        query: &ast::Query,
    ) -> Self {
        let last = Some((rows, columns));
        Self { is_recursive: false, last, planned: None, name, columns: Vec::new(), query: query.clone() }
    }
}

/// The select list of a query for nested loops.
#[derive(Default)]
struct SelectList {
    output: Vec<Output>,
    marks: Vec<(usize, Mark)>,
    /// The items as ORDER BY and GROUP BY find them.
    projected: Vec<(Expr, ResultColumn)>,
}

/// A relation of FROM: its source, name, columns, and the properties of those beyond their types.
type Found = (Source, String, Vec<(String, Type)>, Vec<(usize, Mark)>);

impl Planner<'_> {
    /// Plans a query whose rows all fit in memory.
    ///
    /// # Errors
    /// As [`Planner::query`].
    pub(crate) fn small(&mut self, query: &ast::Query) -> Result<Node> {
        let was_small = std::mem::replace(&mut self.is_small, true);
        let known = self.named.len();
        let node = self.small_query(query);
        self.named.truncate(known);
        self.is_small = was_small;
        let mut node = node?;
        if !was_small {
            debug_assert!(
                node.stays_within(&self.outer.iter().map(Scope::width).collect::<Vec<_>>()),
                "the binder numbers columns through the relations of their scope, and grouping renumbers them"
            );
            node.show_marks()?;
        }
        Ok(node)
    }

    fn small_query(&mut self, query: &ast::Query) -> Result<Node> {
        self.check_depth()?;
        let known = self.named.len();
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                self.named.push(Named::of(cte, with.recursive));
            }
        }
        self.nothing_but_a_query(query)?;
        let order = match &query.order_by {
            None => &[][..],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(list), interpolate: None }) => list,
            Some(other) => return Err(unsupported(other)),
        };
        let (limit, offset) = limit_and_offset(query, false)?;
        let mut node = match query.body.as_ref() {
            ast::SetExpr::Select(select) => self.small_select(select, order)?,
            other => {
                let mut node = self.small_set_expr(other)?;
                for item in order {
                    node.order.push(self.order_of_result(item, &node.columns)?);
                }
                node
            }
        };
        let nothing = Scope::default();
        for (from, to) in [(limit, &mut node.limit), (offset, &mut node.offset)] {
            if let Some(from) = from {
                *to = Some(Binder::new(self, &nothing, "LIMIT").bind_as(
                    from,
                    Type::INT8,
                    Strength::Assignment,
                )?);
            }
        }
        // A WITH query without a reference is planned and dropped: its errors are reported and its parameters get types.
        for place in known..self.named.len() {
            if self.named.get(place).is_some_and(|named| named.last.is_none()) {
                self.small_with(place)?;
            }
        }
        Ok(node)
    }

    fn small_set_expr(&mut self, body: &ast::SetExpr) -> Result<Node> {
        match body {
            ast::SetExpr::Select(select) => self.small_select(select, &[]),
            ast::SetExpr::Query(query) => self.small(query),
            ast::SetExpr::Values(values) => {
                let planned = self.values(values, &[])?;
                let rows = planned.values.unwrap_or_default();
                Ok(Node::new(Body::Values(rows), planned.columns))
            }
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let op = match op {
                    ast::SetOperator::Union => SetOp::Union,
                    ast::SetOperator::Intersect => SetOp::Intersect,
                    ast::SetOperator::Except | ast::SetOperator::Minus => SetOp::Except,
                };
                let all = match set_quantifier {
                    ast::SetQuantifier::All => true,
                    ast::SetQuantifier::Distinct | ast::SetQuantifier::None => false,
                    other => return Err(unsupported(other)),
                };
                let (mut left, mut right) = (self.small_set_expr(left)?, self.small_set_expr(right)?);
                if left.columns.len() != right.columns.len() {
                    let message = "each UNION query must have the same number of columns";
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
                let mut columns = left.columns.clone();
                for (place, other) in right.columns.clone().iter().enumerate() {
                    let Some(column) = columns.get_mut(place) else { continue };
                    let ty = match common(column.ty, other.ty) {
                        Some(ty) => ty,
                        None if left.is_null(place) => other.ty,
                        None if right.is_null(place) => column.ty,
                        None => {
                            let (a, b) = (self.shown(Some(column.ty)), self.shown(Some(other.ty)));
                            let message = format!("UNION types {a} and {b} cannot be matched");
                            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
                        }
                    };
                    column.ty = ty;
                }
                left.cast_to(&columns);
                right.cast_to(&columns);
                let (left, right) = (Box::new(left), Box::new(right));
                Ok(Node::new(Body::Set { op, all, left, right }, columns))
            }
            other => Err(unsupported(other)),
        }
    }

    /// ORDER BY over the columns of a result.
    fn order_of_result(&mut self, item: &ast::OrderByExpr, columns: &[ResultColumn]) -> Result<Order> {
        let projected: Vec<(Expr, ResultColumn)> = columns
            .iter()
            .cloned()
            .enumerate()
            .map(|(place, column)| (Expr::Column(place), column))
            .collect();
        let mut scope = Scope::default();
        scope.add(String::new(), columns.iter().map(|c| (c.name.clone(), c.ty)).collect())?;
        self.order(item, &scope, &projected, &mut Vec::new())
    }

    fn small_select(&mut self, select: &ast::Select, order: &[ast::OrderByExpr]) -> Result<Node> {
        let (is_distinct, on) = match &select.distinct {
            None | Some(ast::Distinct::All) => (false, &[][..]),
            Some(ast::Distinct::Distinct) => (true, &[][..]),
            Some(ast::Distinct::On(on)) => (false, on.as_slice()),
        };
        nothing_but_a_select(select)?;
        if !select.named_window.is_empty() {
            return Err(unsupported("WINDOW"));
        }
        let mut scope = Scope::default();
        let (mut from, mut conjuncts) = self.small_from(&select.from, &mut scope)?;
        if let Some(selection) = &select.selection {
            split(Binder::new(self, &scope, "WHERE").condition(selection)?, &mut conjuncts);
        }
        let mut aggregates = Vec::new();
        let SelectList { mut output, marks, projected } =
            self.small_projection(&select.projection, &scope, &mut aggregates)?;
        let group_keys = self.small_group_keys(&select.group_by, &scope, &projected)?;
        let having = match &select.having {
            None => None,
            Some(having) => {
                Some(Binder::new(self, &scope, "HAVING").with_aggregates(&mut aggregates).condition(having)?)
            }
        };
        let mut orders = Vec::new();
        for item in order {
            orders.push(self.order(item, &scope, &projected, &mut aggregates)?);
        }
        let mut distinct_on = Vec::new();
        for expr in on {
            distinct_on.push(self.distinct_on(expr, select, &scope, &projected, &mut aggregates)?.0);
        }
        if is_distinct {
            let shown: Vec<Expr> = projected.iter().map(|(expr, _)| expr.clone()).collect();
            let columns: Vec<ResultColumn> = projected.iter().map(|(_, column)| column.clone()).collect();
            check_distinct(&columns, &shown, orders.iter().map(|order| &order.expr))?;
        }
        check_distinct_on(
            &distinct_on.iter().collect::<Vec<_>>(),
            orders.iter().map(|order| &order.expr).take(distinct_on.len()),
        )?;
        let by_result =
            if distinct_on.is_empty() { take_order_of_result(&mut orders, &projected)? } else { Vec::new() };
        if orders.iter().map(|order| &order.expr).chain(&group_keys).chain(&distinct_on).any(is_made) {
            return Err(unsupported(
                "ORDER BY or GROUP BY of a function that returns rows, or of row_number()",
            ));
        }
        let columns: Vec<ResultColumn> = projected.into_iter().map(|(_, column)| column).collect();
        if aggregates.iter().any(Aggregate::is_of_sets) {
            return Err(unsupported("GROUPING"));
        }
        let groups = if group_keys.is_empty() && aggregates.is_empty() && having.is_none() {
            None
        } else {
            let mut over = |expr: &mut Expr| {
                let taken = std::mem::replace(expr, Expr::Const(Value::Null));
                *expr = crate::plan::grouped_expr(taken, &group_keys, &scope, &[])?;
                Ok::<_, SqlError>(())
            };
            output.iter_mut().try_for_each(|output| output.change_exprs(&mut over))?;
            orders.iter_mut().try_for_each(|order| over(&mut order.expr))?;
            distinct_on.iter_mut().try_for_each(&mut over)?;
            let mut having = having;
            having.iter_mut().try_for_each(&mut over)?;
            Some(Groups { keys: group_keys, aggregates, having })
        };
        let constant = place(&mut from, conjuncts);
        let select = Select { from, constant, groups, output, order: orders, is_distinct, distinct_on };
        Ok(Node { marks, order: by_result, ..Node::new(Body::Select(Box::new(select)), columns) })
    }

    /// The relations of FROM, and the conditions of their joins.
    fn small_from(
        &mut self,
        items: &[ast::TableWithJoins],
        scope: &mut Scope,
    ) -> Result<(Vec<From>, Vec<Expr>)> {
        let (mut from, mut conjuncts) = (Vec::new(), Vec::new());
        for item in items {
            scope.begin_item(scope.shown_count());
            self.small_factor(&item.relation, scope, &mut from, false)?;
            for join in &item.joins {
                self.small_join(join, scope, &mut from, &mut conjuncts)?;
            }
        }
        Ok((from, conjuncts))
    }

    fn small_projection(
        &mut self,
        items: &[ast::SelectItem],
        scope: &Scope,
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<SelectList> {
        let SelectList { mut output, mut marks, mut projected } = SelectList::default();
        for item in items {
            if let Some((many, column)) = self.many(item, scope)? {
                if matches!(many, Output::Many(.., Take::Pair)) {
                    marks.push((output.len(), Mark::Pair));
                }
                // No ORDER BY or GROUP BY may use it: no expression represents it.
                projected.push((Expr::Column(usize::MAX - output.len()), column));
                output.push(many);
                continue;
            }
            for (expr, column) in self.projection(std::slice::from_ref(item), scope, aggregates)? {
                if let Some(mark) = Binder::new(self, scope, "SELECT").mark_of(&expr) {
                    marks.push((output.len(), mark));
                }
                projected.push((expr.clone(), column));
                output.push(Output::One(expr));
            }
        }
        Ok(SelectList { output, marks, projected })
    }

    fn small_group_keys(
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
        keys.iter().map(|key| Ok(self.group_key(key, scope, projected)?.0)).collect()
    }

    /// A function of the select list that returns rows, or a field of those; or `row_number()`.
    fn many(&mut self, item: &ast::SelectItem, scope: &Scope) -> Result<Option<(Output, ResultColumn)>> {
        let (expr, name) = match item {
            ast::SelectItem::UnnamedExpr(expr) => (expr, label(expr)),
            ast::SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            _ => return Ok(None),
        };
        let (called, field) = match expr {
            ast::Expr::CompoundFieldAccess { root, access_chain } => match (&**root, access_chain.as_slice())
            {
                (ast::Expr::Nested(inner), [ast::AccessExpr::Dot(ast::Expr::Identifier(field))]) => {
                    (&**inner, Some(folded(field)))
                }
                _ => return Ok(None),
            },
            expr => (expr, None),
        };
        let ast::Expr::Function(function) = called else { return Ok(None) };
        let called = parts(&function.name)?.pop().unwrap_or_default();
        if called == "row_number"
            && field.is_none()
            && let Some(ast::WindowType::WindowSpec(spec)) = &function.over
        {
            let number = self.numbered(spec, scope)?;
            return Ok(Some((number, ResultColumn { name, ty: Type::INT8 })));
        }
        if !SetFunction::is_known(&called) {
            return Ok(None);
        }
        let Some((function, arguments)) = self.set_function(&called, &function.args, scope)? else {
            return Ok(None);
        };
        let columns = function.columns(&name);
        let (take, ty) = match &field {
            None if function == SetFunction::ExpandArray => (Take::Pair, Type::INT8.array()),
            None => (Take::Column(0), columns.first().map_or(Type::TEXT, |(_, ty)| *ty)),
            Some(field) => {
                let found = columns.iter().position(|(column, _)| column == field);
                let unknown = || crate::plan::bind::scope::unknown_column(None, field);
                let place = found.ok_or_else(unknown)?;
                (Take::Column(place), columns.get(place).map_or(Type::TEXT, |(_, ty)| *ty))
            }
        };
        Ok(Some((Output::Many(function, arguments, take), ResultColumn { name, ty })))
    }

    fn numbered(&mut self, spec: &ast::WindowSpec, scope: &Scope) -> Result<Output> {
        if spec.window_name.is_some() || spec.window_frame.is_some() {
            return Err(unsupported("a window with a name or a frame"));
        }
        let mut binder = Binder::new(self, scope, "OVER");
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            partition.push(binder.bind_closed(expr)?.0);
        }
        let order: Result<Vec<Order>> = spec.order_by.iter().map(|item| binder.order_item(item)).collect();
        Ok(Output::Number(partition, order?))
    }

    fn set_function(
        &mut self,
        name: &str,
        arguments: &ast::FunctionArguments,
        scope: &Scope,
    ) -> Result<Option<(SetFunction, Vec<Expr>)>> {
        let list = match arguments {
            ast::FunctionArguments::List(list) => list.args.as_slice(),
            ast::FunctionArguments::None => &[],
            ast::FunctionArguments::Subquery(_) => return Ok(None),
        };
        let (mut bound, mut marks) = (Vec::new(), Vec::new());
        for argument in list {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    let mut binder = Binder::new(self, scope, "a function");
                    let typed = binder.bind(expr)?;
                    marks.push(binder.mark_of(&typed.expr));
                    bound.push(typed);
                }
                other => return Err(unsupported(format!("the argument {other}"))),
            }
        }
        bound.extend(self.listening(name, list.len())?);
        let types: Vec<Option<Type>> = bound.iter().map(|typed| typed.ty).collect();
        let Some((mut function, wanted)) = SetFunction::resolve(name, &types)? else { return Ok(None) };
        if let (SetFunction::GenerateSubscripts(first), Some(Some(Mark::Vector))) =
            (&mut function, marks.first())
        {
            *first = 0;
        }
        let mut settled = Vec::new();
        for (typed, ty) in bound.into_iter().zip(wanted) {
            settled.push(Binder::new(self, scope, "a function").settle(typed, ty, Strength::Assignment)?);
        }
        Ok(Some((function, settled)))
    }

    fn small_join(
        &mut self,
        join: &ast::Join,
        scope: &mut Scope,
        from: &mut Vec<From>,
        conjuncts: &mut Vec<Expr>,
    ) -> Result<()> {
        use ast::JoinOperator as J;
        let (is_outer, constraint) = match &join.join_operator {
            J::Join(constraint) | J::Inner(constraint) | J::CrossJoin(constraint) => (false, constraint),
            J::Left(constraint) | J::LeftOuter(constraint) => (true, constraint),
            _ => return Err(unsupported("this kind of join")),
        };
        let right = scope.shown_count();
        self.small_factor(&join.relation, scope, from, is_outer)?;
        let mut on = Vec::new();
        match constraint {
            ast::JoinConstraint::On(condition) => {
                split(Binder::new(self, scope, "JOIN/ON").condition(condition)?, &mut on);
            }
            constraint => {
                let names = Self::names_of_using(constraint, scope, right)?;
                let present = if is_outer { Present::Left } else { Present::Both };
                on = self.using(&names, scope, right, present)?;
            }
        }
        match from.last_mut().filter(|_| is_outer) {
            Some(from) => from.filter = on,
            None => conjuncts.append(&mut on),
        }
        Ok(())
    }

    /// Adds one relation of FROM.
    fn small_factor(
        &mut self,
        factor: &ast::TableFactor,
        scope: &mut Scope,
        from: &mut Vec<From>,
        is_outer: bool,
    ) -> Result<()> {
        let mut marks = Vec::new();
        let (source, alias, name, mut columns) = match factor {
            ast::TableFactor::Table { name, alias, args: None, with_ordinality: false, .. } => {
                let (source, name, columns, found) = self.small_named(name)?;
                marks = found;
                (source, alias, name, columns)
            }
            ast::TableFactor::Table { args: Some(_), .. } | ast::TableFactor::Function { .. } => {
                let (name, args, with_ordinality, alias) = match factor {
                    ast::TableFactor::Table { name, args: Some(args), with_ordinality, alias, .. } => {
                        (name, &args.args, with_ordinality, alias)
                    }
                    ast::TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                        (name, args, with_ordinality, alias)
                    }
                    other => return Err(unsupported(format!("FROM {other}"))),
                };
                let called = parts(name)?.pop().unwrap_or_default();
                let list = ast::FunctionArgumentList {
                    duplicate_treatment: None,
                    args: args.clone(),
                    clauses: Vec::new(),
                };
                let arguments = ast::FunctionArguments::List(list);
                let Some((function, arguments)) = self.set_function(&called, &arguments, scope)? else {
                    return Err(unsupported(format!("the function {name} in FROM")));
                };
                let shown = alias.as_ref().map_or(called, |alias| folded(&alias.name));
                let mut columns = function.columns(&shown);
                if *with_ordinality {
                    columns.push(("ordinality".into(), Type::INT8));
                }
                (Source::Function(function, arguments, *with_ordinality), alias, shown, columns)
            }
            ast::TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => {
                let shown = alias.as_ref().map_or("unnest".into(), |alias| folded(&alias.name));
                // With several arrays each column is named after the function.
                let name = if array_exprs.len() == 1 { shown.as_str() } else { "unnest" };
                let (mut columns, mut arrays) = (Vec::new(), Vec::new());
                for array in array_exprs {
                    let bound = Binder::new(self, scope, "unnest").bind(array)?;
                    let Some((function, _)) = SetFunction::resolve("unnest", &[bound.ty])? else {
                        return Err(unsupported(factor));
                    };
                    columns.extend(function.columns(name));
                    arrays.push(bound.expr);
                }
                if *with_ordinality {
                    columns.push(("ordinality".into(), Type::INT8));
                }
                (Source::Function(SetFunction::UnnestAll, arrays, *with_ordinality), alias, shown, columns)
            }
            ast::TableFactor::Derived { lateral, subquery, alias, .. } => {
                let around = if *lateral { scope.clone() } else { Scope::default() };
                let node = self.within(&around, |planner| planner.small(subquery))?;
                let columns = node.columns.iter().map(|c| (c.name.clone(), c.ty)).collect();
                marks.clone_from(&node.marks);
                let inner = Inner::new(node, Asked::List, None, Type::TEXT);
                (Source::Query(inner), alias, String::new(), columns)
            }
            ast::TableFactor::NestedJoin { table_with_joins, alias: None }
                if from.is_empty() && !is_outer =>
            {
                let mut conjuncts = Vec::new();
                self.small_factor(&table_with_joins.relation, scope, from, false)?;
                for join in &table_with_joins.joins {
                    self.small_join(join, scope, from, &mut conjuncts)?;
                }
                if let Some(last) = from.last_mut() {
                    if last.is_outer {
                        last.after.append(&mut conjuncts);
                    } else {
                        last.filter.append(&mut conjuncts);
                    }
                }
                return Ok(());
            }
            other => return Err(unsupported(format!("FROM {other}"))),
        };
        let mut shown = name;
        if let Some(alias) = alias {
            crate::plan::row_in_subquery::check_width(alias, columns.len())?;
            shown = folded(&alias.name);
            for (column, given) in columns.iter_mut().zip(&alias.columns) {
                column.0 = folded(&given.name);
            }
        }
        if shown.is_empty() {
            // Without an alias its columns are found by their names.
            shown = format!("*{}", from.len());
        }
        let width = columns.len();
        let has_system =
            matches!(source, Source::Made(_)) && columns.last().is_some_and(|(name, _)| name == "tableoid");
        let start = scope.add(shown, columns)?;
        marks.into_iter().for_each(|(place, mark)| scope.mark(start + place, mark));
        if has_system {
            scope.withhold(start + width - 1);
        }
        from.push(From { source, start, width, filter: Vec::new(), is_outer, after: Vec::new() });
        Ok(())
    }

    fn small_named(&mut self, name: &ast::ObjectName) -> Result<Found> {
        let written = parts(name)?;
        if let [only] = written.as_slice()
            && let Some(place) = self.named.iter().rposition(|named| named.name == *only)
            && let Some(found) = self.small_with(place)?
        {
            return Ok(found);
        }
        if let Some((name, columns, rows)) = self.catalog_relation(&written)? {
            let vector = |(place, (name, _)): (usize, &(String, Type))| {
                is_vector(name).then_some((place, Mark::Vector))
            };
            let marks = columns.iter().enumerate().filter_map(vector).collect();
            return Ok((Source::Made(rows), name, columns, marks));
        }
        self.reads = true;
        let kept = self.kept_name(name).ok();
        match self.table(name) {
            Ok((table, schema)) => {
                let columns = schema.columns().iter().map(|c| (c.name().to_owned(), c.column_type()));
                let columns = columns.collect();
                Ok((Source::Table(table, schema.clone()), in_full(schema.name()), columns, Vec::new()))
            }
            Err(error) if error.state == state::UNDEFINED_TABLE => {
                if let Some(kept) = &kept {
                    if let Some((name, columns, rows)) = self.sequence_relation(kept)? {
                        return Ok((Source::Made(rows), name, columns, Vec::new()));
                    }
                    if crate::access::views::find(&mut self.access, kept)?.is_some() {
                        return Err(error);
                    }
                }
                let parts = parts(name)?;
                let is_schema = parts.len() == 2 && kept.is_some();
                let found = ModelRelation::find(&parts, is_schema, &mut self.access, &self.standing.acting)?;
                let model = found.ok_or(error)?;
                let columns = model.fields().to_vec();
                Ok((Source::Model(Arc::new(model)), table_name(name)?, columns, Vec::new()))
            }
            Err(error) => Err(error),
        }
    }

    /// Plans the query of WITH at a position in `named`.
    fn small_with(&mut self, place: usize) -> Result<Option<Found>> {
        let Some(named) = self.named.get(place).cloned() else { return Ok(None) };
        if let Some((last, columns)) = named.last {
            if columns.is_empty() {
                let message = format!("WITH query \"{}\" does not have a RETURNING clause", named.name);
                let error = SqlError::new(state::FEATURE_NOT_SUPPORTED, message);
                return Err(error.hint("make it return rows: RETURNING *"));
            }
            return Ok(Some((Source::Last(last), named.name, columns, Vec::new())));
        }
        if let Some(found) = named.planned {
            return Ok(Some(found));
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
        let inner = Inner::new(node, Asked::List, None, Type::TEXT);
        let is_shared = !inner.is_correlated;
        let found = (Source::Query(inner), named.name, columns, marks);
        if let Some(named) = self.named.get_mut(place).filter(|_| is_shared) {
            named.planned = Some(found.clone());
        }
        Ok(Some(found))
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

    /// Plans with one more enclosing query.
    fn within<R>(&mut self, around: &Scope, plan: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.outer.push(around.clone());
        let planned = plan(self);
        self.outer.pop();
        planned
    }
}

impl Binder<'_, '_> {
    /// A subquery of a query for nested loops.
    pub(crate) fn inner(&mut self, expr: &ast::Expr) -> Result<Typed> {
        let scope = self.scope.clone();
        let plan = |planner: &mut Planner<'_>, query: &ast::Query| {
            planner.within(&scope, |planner| planner.small(query))
        };
        let one = |node: &Node| match node.columns.as_slice() {
            [column] => Ok(column.ty),
            _ => Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column")),
        };
        match expr {
            ast::Expr::Exists { subquery, negated } => {
                let node = plan(self.planner, subquery)?;
                let inner = Expr::Inner(Inner::new(node, Asked::Exists, None, Type::BOOL));
                Ok(Typed::new(negated_if(*negated, inner), Type::BOOL))
            }
            ast::Expr::Subquery(query) => {
                let node = plan(self.planner, query)?;
                let ty = one(&node)?;
                Ok(Typed::new(Expr::Inner(Inner::new(node, Asked::Scalar, None, ty)), ty))
            }
            ast::Expr::InSubquery { expr: left, subquery, negated } => {
                let mut node = plan(self.planner, subquery)?;
                let ty = one(&node)?;
                let left = self.bind(left)?;
                let together = left.ty.map_or(Some(ty), |found| common(found, ty));
                let together =
                    together.ok_or_else(|| crate::plan::bind::scope::no_operator("=", left.ty, Some(ty)))?;
                let column = ResultColumn { name: String::new(), ty: together };
                node.cast_to(&[column]);
                let left = Box::new(self.settle(left, together, Strength::Implicit)?);
                let inner = Expr::Inner(Inner::new(node, Asked::List, Some(left), together));
                Ok(Typed::new(negated_if(*negated, inner), Type::BOOL))
            }
            other => Err(unsupported(other)),
        }
    }

    /// `ARRAY(subquery)`.
    pub(crate) fn array_of(&mut self, query: &ast::Query) -> Result<Typed> {
        let scope = self.scope.clone();
        let node = self.planner.within(&scope, |planner| planner.small(query))?;
        let [column] = node.columns.as_slice() else {
            return Err(SqlError::new(state::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let ty = column.ty.array();
        Ok(Typed::new(Expr::Inner(Inner::new(node, Asked::List, None, ty)), ty))
    }
}

impl Node {
    fn new(body: Body, columns: Vec<ResultColumn>) -> Self {
        Self { body, columns, order: Vec::new(), limit: None, offset: None, marks: Vec::new() }
    }

    /// Converts its columns to the form that clients receive: vectors in PostgreSQL's notation.
    fn show_marks(&mut self) -> Result<()> {
        for (place, mark) in std::mem::take(&mut self.marks) {
            let Body::Select(select) = &mut self.body else { continue };
            match (mark, select.output.get_mut(place), self.columns.get_mut(place)) {
                (Mark::Pair, ..) => return Err(unsupported("a result of rows with two fields")),
                (Mark::Vector, Some(Output::One(expr)), Some(column)) => {
                    let inner = std::mem::replace(expr, Expr::Const(Value::Null));
                    *expr = Expr::Call(Function::ArrayToString, vec![inner, Expr::Const(Value::text(" "))]);
                    column.ty = Type::TEXT;
                }
                (Mark::Vector, ..) => {}
            }
        }
        Ok(())
    }

    /// True when a column is a literal NULL.
    fn is_null(&self, place: usize) -> bool {
        match &self.body {
            Body::Select(select) => {
                matches!(select.output.get(place), Some(Output::One(Expr::Const(Value::Null))))
            }
            Body::Set { left, right, .. } => left.is_null(place) && right.is_null(place),
            Body::Values(_) | Body::Recursive { .. } => false,
        }
    }

    /// Casts its columns to these types.
    fn cast_to(&mut self, columns: &[ResultColumn]) {
        for (place, column) in columns.iter().enumerate() {
            let Some(own) = self.columns.get_mut(place) else { continue };
            if own.ty == column.ty {
                continue;
            }
            own.ty = column.ty;
            let cast = |expr: &mut Expr| {
                let inner = std::mem::replace(expr, Expr::Const(Value::Null));
                *expr = Expr::Cast(Box::new(inner), column.ty);
            };
            match &mut self.body {
                Body::Select(select) => {
                    if let Some(Output::One(expr)) = select.output.get_mut(place) {
                        cast(expr);
                    }
                }
                Body::Values(rows) => rows.iter_mut().filter_map(|row| row.get_mut(place)).for_each(cast),
                Body::Set { left, right, .. } | Body::Recursive { base: left, step: right, .. } => {
                    let mut types = left.columns.clone();
                    if let Some(slot) = types.get_mut(place) {
                        slot.ty = column.ty;
                    }
                    left.cast_to(&types);
                    right.cast_to(&types);
                }
            }
        }
    }
}

impl Output {
    /// Changes the expressions that it evaluates for a row of the input.
    fn change_exprs(&mut self, change: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
        match self {
            Self::One(expr) => change(expr),
            Self::Many(_, arguments, _) => arguments.iter_mut().try_for_each(change),
            Self::Number(partition, order) => {
                partition.iter_mut().try_for_each(&mut *change)?;
                order.iter_mut().try_for_each(|order| change(&mut order.expr))
            }
        }
    }
}

/// True for an expression over items of the select list that no expression represents.
fn is_made(expr: &Expr) -> bool {
    let mut is_made = false;
    expr.columns(&mut |column| is_made |= column > usize::MAX / 2);
    is_made
}

/// Takes an ORDER BY over rows of functions: they can be sorted only after all of them are computed.
fn take_order_of_result(orders: &mut Vec<Order>, projected: &[(Expr, ResultColumn)]) -> Result<Vec<Order>> {
    if !orders.iter().any(|order| is_made(&order.expr)) {
        return Ok(Vec::new());
    }
    let mut by_result = std::mem::take(orders);
    for order in &mut by_result {
        let place = projected.iter().position(|(expr, _)| *expr == order.expr);
        let place = place.ok_or_else(|| {
            unsupported("ORDER BY of a function that returns rows with an unselected expression")
        })?;
        order.expr = Expr::Column(place);
    }
    Ok(by_result)
}

/// True when a word of the text equals the name; planning determines whether it means this query.
pub(crate) fn says(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.eq_ignore_ascii_case(name))
}

/// Attaches each condition to the first relation at which all its columns are known; returns those without
/// columns.
fn place(from: &mut [From], conjuncts: Vec<Expr>) -> Vec<Expr> {
    let mut constant = Vec::new();
    for conjunct in conjuncts {
        let mut last = None;
        conjunct.columns(&mut |column| last = last.max(Some(column)));
        let relation = match last {
            Some(last) => from.iter_mut().rev().find(|from| from.start <= last),
            // It has no column, but its value differs for each row.
            None if conjunct.is_volatile() => from.last_mut(),
            None => None,
        };
        match relation {
            None => constant.push(conjunct),
            Some(from) if from.is_outer => from.after.push(conjunct),
            Some(from) => from.filter.push(conjunct),
        }
    }
    for from in from {
        alone_first(&mut from.filter, from.start);
    }
    constant
}
