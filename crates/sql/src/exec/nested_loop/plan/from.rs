//! FROM of a query for nested loops: relations, joins, and the place of each condition.

use std::sync::Arc;

use ropewalk::tables::Type;
use sqlparser::ast;

use crate::error::{Result, state};
use crate::exec::nested_loop::{From, Inner, Source};
use crate::exec::relations::Rows as _;
use crate::expr::Expr;
use crate::functions::set_returning::SetFunction;
use crate::plan::bind::Binder;
use crate::plan::bind::catalog::is_vector;
use crate::plan::bind::scope::{Mark, Present, Scope};
use crate::plan::{Asked, Planner, alone_first, split, unsupported};
use crate::syntax::names::{folded, parts, table_name};

/// A relation of FROM: its source, name, columns, and the properties of those beyond their types.
pub(super) type Found = (Source, String, Vec<(String, Type)>, Vec<(usize, Mark)>);

impl Planner<'_> {
    /// The relations of FROM, and the conditions of their joins.
    pub(super) fn small_from(
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
                let inner = Inner::new(node, Asked::List, Type::TEXT);
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
        if let Source::Table(_, schema) = &source {
            scope.set_key(schema.key_columns());
        }
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
                Ok((
                    Source::Table(table, schema.clone()),
                    self.standing.settings.table_alias(schema.name()),
                    columns,
                    Vec::new(),
                ))
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
                let model = self.model_relation(&parts, is_schema)?.ok_or(error)?;
                let columns = model.fields().to_vec();
                Ok((Source::Model(Arc::new(model)), table_name(name)?, columns, Vec::new()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Attaches each condition to the first relation at which all its columns are known; returns those without
/// columns.
pub(super) fn place(from: &mut [From], conjuncts: Vec<Expr>) -> Vec<Expr> {
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
