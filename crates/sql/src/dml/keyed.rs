//! UPDATE and DELETE with rows found by a query: subqueries that read the row, other tables in FROM and
//! USING.
//!
//!   UPDATE t SET a = e FROM u WHERE c   ─▶   SELECT t.key…, e FROM t, u WHERE c   ─▶   write by key
//!
//! Invariants
//! 1. The complete condition is in the query; the writing step checks none of it.
//! 2. A row of the target that joins several rows of FROM is written once, for the first of them, as in
//!    PostgreSQL.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use ropewalk::tables::{OwnedRow, Schema, Table, Type, Value, shown};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::dml::write::{
    Returning, Written, assignments_of, change, column_place, default_value, is_default,
};
use crate::error::{Result, SqlError, state};
use crate::exec::executor::unsupported;
use crate::exec::finder::Finder;
use crate::expr::arith::{order, put_identity};
use crate::expr::cast::{Strength, allowed, cast_in};
use crate::expr::enum_call::labelled;
use crate::expr::{Context, Input, Record, bug};
use crate::limits::budget::Budget;
use crate::plan::Planner;
use crate::plan::bind::scope::Scope;
use crate::syntax::names::{column_of, folded, table_name};
use crate::types::text_format::from_text_in;

pub(super) static SELECT: LazyLock<Option<ast::Query>> =
    LazyLock::new(|| match crate::syntax::parse::template("SELECT 1")? {
        ast::Statement::Query(query) => Some(*query),
        _ => None,
    });

/// The new value of a column.
enum SetTo {
    Default,
    /// A column of the query; a literal is converted to the type of the target column.
    Column {
        number: usize,
        found: Type,
        is_literal: bool,
    },
}

/// An UPDATE or DELETE by the keys that a query finds.
pub(crate) struct Keyed {
    table: Table,
    schema: Arc<Schema>,
    query: Finder,
    /// `None` deletes.
    set: Option<Vec<(usize, SetTo)>>,
    returning: Option<Returning>,
    /// Positions of the other tables' columns in a row of the query, for RETURNING.
    others: Vec<usize>,
}

/// The written row, followed by the columns of the other tables from the query.
pub(super) struct Beside<'r> {
    pub(super) row: &'r dyn Input,
    pub(super) width: usize,
    pub(super) record: &'r Record,
    pub(super) others: &'r [usize],
}

impl Input for Beside<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        match index.checked_sub(self.width) {
            None => self.row.column(index),
            Some(place) => {
                let value = self.others.get(place).and_then(|place| self.record.get(*place));
                value.map(Value::borrowed).ok_or_else(|| bug("a column of another table"))
            }
        }
    }
}

/// Name of the marker column before the columns of each joined relation.
const MARK: &str = "*relation";

/// The relations of the FROM of an UPDATE.
pub(super) fn from_of(update: &ast::Update) -> &[ast::TableWithJoins] {
    match &update.from {
        None => &[],
        Some(ast::UpdateTableFromKind::BeforeSet(tables) | ast::UpdateTableFromKind::AfterSet(tables)) => {
            tables
        }
    }
}

/// The key columns of a table.
fn key_of(schema: &Schema, alias: &str) -> impl Iterator<Item = ast::Expr> {
    let names = schema.key_columns().iter().filter_map(|place| schema.columns().get(*place));
    names.map(move |column| column_of(alias, column.name()))
}

/// The relations of FROM or USING, by the names that refer to them.
pub(super) fn relations_of(others: &[ast::TableWithJoins]) -> Result<Vec<ast::ObjectName>> {
    let named = |alias: &Option<ast::TableAlias>| {
        alias.as_ref().map(|alias| ast::ObjectName::from(vec![alias.name.clone()]))
    };
    let mut names = Vec::new();
    for tables in others {
        let joined = tables.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&tables.relation).chain(joined) {
            let name = match factor {
                ast::TableFactor::Table { name, alias, .. } => named(alias).or_else(|| Some(name.clone())),
                ast::TableFactor::Derived { alias, .. }
                | ast::TableFactor::Function { alias, .. }
                | ast::TableFactor::TableFunction { alias, .. }
                | ast::TableFactor::UNNEST { alias, .. } => named(alias),
                _ => None,
            };
            names.push(name.ok_or_else(|| unsupported(format!("RETURNING with the unnamed {factor}")))?);
        }
    }
    Ok(names)
}

impl Planner<'_> {
    pub(crate) fn keyed_update(&mut self, update: &ast::Update) -> Result<Keyed> {
        crate::dml::write::nothing_but_an_update(update)?;
        let others = from_of(update);
        let (table, schema, scope, alias) = self.target(&update.table)?;
        let mut exprs = Vec::new();
        let mut set: Vec<(usize, SetTo)> = Vec::new();
        let keys = schema.key_columns().len();
        for (place, value) in assignments_of(&update.assignments, &|name| column_place(&schema, name))? {
            if is_default(&value) {
                // A generated column is computed anyway.
                if schema.columns().get(place).is_none_or(|column| column.generated().is_none()) {
                    set.push((place, SetTo::Default));
                }
                continue;
            }
            let ty = schema.columns().get(place).map_or(Type::TEXT, |column| column.column_type());
            let is_literal = self.takes_type(&value, ty)?;
            set.push((place, SetTo::Column { number: keys + exprs.len(), found: Type::TEXT, is_literal }));
            exprs.push(value.into_owned());
        }
        let shown = if update.returning.is_some() { relations_of(others)? } else { Vec::new() };
        let exprs = key_of(&schema, &alias).chain(exprs).collect();
        let query = self.key_query(&update.table, others, update.selection.as_ref(), (exprs, &shown))?;
        for (place, to) in &mut set {
            let column = schema.columns().get(*place).ok_or_else(|| bug("a column that is set"))?;
            if let SetTo::Column { number, found, is_literal } = to {
                *found = query.columns().get(*number).map_or(Type::TEXT, |column| column.ty);
                if !*is_literal {
                    self.check_assigned((column.name(), column.column_type()), *found)?;
                }
            }
        }
        let (returning, others) =
            self.returning_beside(update.returning.as_deref(), scope, &query, &shown)?;
        Ok(Keyed { table, schema, query, set: Some(set), returning, others })
    }

    pub(crate) fn keyed_delete(&mut self, delete: &ast::Delete) -> Result<Keyed> {
        crate::dml::write::nothing_but_a_delete(delete)?;
        let ast::FromTable::WithFromKeyword(tables) = &delete.from else { return Err(unsupported(delete)) };
        let [target] = tables.as_slice() else { return Err(unsupported(delete)) };
        let (table, schema, scope, alias) = self.target(target)?;
        let others = delete.using.as_deref().unwrap_or_default();
        let shown = if delete.returning.is_some() { relations_of(others)? } else { Vec::new() };
        let exprs = (key_of(&schema, &alias).collect(), shown.as_slice());
        let query = self.key_query(target, others, delete.selection.as_ref(), exprs)?;
        let (returning, others) =
            self.returning_beside(delete.returning.as_deref(), scope, &query, &shown)?;
        Ok(Keyed { table, schema, query, set: None, returning, others })
    }

    /// True for a value that takes the type of the column that it is written to. A parameter gets that type.
    pub(super) fn takes_type(&mut self, value: &ast::Expr, ty: Type) -> Result<bool> {
        let ast::Expr::Value(value) = value else { return Ok(false) };
        if let ast::Value::Placeholder(name) = &value.value {
            let (index, _) = self.params.find(name)?;
            self.params.settle(index, ty);
        }
        Ok(matches!(
            value.value,
            ast::Value::SingleQuotedString(_) | ast::Value::Null | ast::Value::Placeholder(_)
        ))
    }

    /// Rejects a value of a type that cannot be assigned to a column.
    pub(super) fn check_assigned(&mut self, (name, ty): (&str, Type), found: Type) -> Result<()> {
        if found == ty || allowed(found, ty, Strength::Assignment) {
            return Ok(());
        }
        let (ty, found) = (self.shown(Some(ty)), self.shown(Some(found)));
        let message = format!("column \"{name}\" is of type {ty} but expression is of type {found}");
        Err(SqlError::new(state::DATATYPE_MISMATCH, message)
            .hint("you will need to rewrite or cast the expression"))
    }

    /// RETURNING over the target and the joined relations, whose columns follow markers in the query's
    /// result.
    pub(super) fn returning_beside(
        &mut self,
        items: Option<&[ast::SelectItem]>,
        mut scope: Scope,
        query: &Finder,
        shown: &[ast::ObjectName],
    ) -> Result<(Option<Returning>, Vec<usize>)> {
        let columns = query.columns();
        let marks = columns.iter().enumerate().filter(|(_, column)| column.name == MARK);
        let begins: Vec<usize> = marks.map(|(place, _)| place + 1).collect();
        let mut others = Vec::new();
        for (number, (name, begin)) in shown.iter().zip(&begins).enumerate() {
            let end = begins.get(number + 1).map_or(columns.len(), |next| next - 1);
            let own = columns.get(*begin..end).unwrap_or_default();
            others.extend(*begin..end);
            let own = own.iter().map(|column| (column.name.clone(), column.ty)).collect();
            scope.add(table_name(name)?, own)?;
        }
        Ok((self.returning(items, &scope)?, others))
    }

    pub(super) fn target(
        &mut self,
        target: &ast::TableWithJoins,
    ) -> Result<(Table, Arc<Schema>, Scope, String)> {
        let (ast::TableFactor::Table { name, alias, args: None, .. }, true) =
            (&target.relation, target.joins.is_empty())
        else {
            return Err(unsupported(target));
        };
        let (table, schema) = self.target_table(name)?;
        if schema.key_columns().is_empty() {
            return Err(SqlError::unsupported(
                "this statement over a table without a primary key",
                "give the table a primary key",
            ));
        }
        let alias = alias
            .as_ref()
            .map_or_else(|| self.standing.settings.table_alias(schema.name()), |alias| folded(&alias.name));
        let mut scope = Scope::default();
        scope.add_table(alias.clone(), &schema)?;
        Ok((table, schema, scope, alias))
    }

    /// The query that selects `exprs`, which begin with the key of the target, and the columns of `shown`.
    pub(super) fn key_query(
        &mut self,
        target: &ast::TableWithJoins,
        others: &[ast::TableWithJoins],
        selection: Option<&ast::Expr>,
        (exprs, shown): (Vec<ast::Expr>, &[ast::ObjectName]),
    ) -> Result<Finder> {
        let mut query = SELECT.clone().ok_or_else(|| bug("SELECT 1"))?;
        let ast::SetExpr::Select(select) = query.body.as_mut() else { return Err(bug("SELECT 1")) };
        select.projection = exprs.into_iter().map(ast::SelectItem::UnnamedExpr).collect();
        for name in shown {
            let expr = ast::Expr::Value(ast::Value::Boolean(true).into());
            let alias = ast::Ident::with_quote('"', MARK);
            select.projection.push(ast::SelectItem::ExprWithAlias { expr, alias });
            let kind = ast::SelectItemQualifiedWildcardKind::ObjectName(name.clone());
            select
                .projection
                .push(ast::SelectItem::QualifiedWildcard(kind, ast::WildcardAdditionalOptions::default()));
        }
        select.from = std::iter::once(target).chain(others).cloned().collect();
        select.selection = selection.cloned();
        query.with.clone_from(&self.with);
        Finder::plan(&query, self)
    }
}

impl Keyed {
    pub(crate) fn columns(&self) -> Option<&Returning> {
        self.returning.as_ref()
    }

    pub(crate) fn command(&self) -> &'static str {
        if self.set.is_some() { "UPDATE" } else { "DELETE" }
    }

    /// The lines of EXPLAIN that describe the write.
    pub(crate) fn line(&self) -> String {
        let what = if self.set.is_some() { "Update" } else { "Delete" };
        format!("{what} {} by the keys that a query finds", shown(self.schema.name()))
    }

    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        // All rows are read before any row is written.
        let rows = budget.collect_rows(|sink| self.query.run(types, access, cx, budget, sink))?;
        self.write(rows, None, access, cx, budget)
    }

    /// The query that finds the keys.
    pub(crate) fn query(&self) -> &Finder {
        &self.query
    }

    /// Writes the rows with these keys, each once. In a statement with several parts `touched` contains the
    /// stored keys that earlier parts wrote; those rows are skipped.
    pub(crate) fn write(
        &self,
        rows: Vec<Record>,
        mut touched: Option<&mut HashSet<Vec<u8>>>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let keys = self.schema.key_columns().len();
        let (mut seen, mut found): (HashSet<Vec<u8>>, Vec<Record>) = (HashSet::new(), Vec::new());
        for row in rows {
            let mut identity = Vec::new();
            row.iter().take(keys).for_each(|value| put_identity(value, &mut identity));
            budget.take(identity.len() + 48)?;
            if seen.insert(identity) {
                found.push(row);
            }
        }
        // In key order, independent of the order in which the engine's threads found the rows.
        found.sort_by(|a, b| {
            let pairs = a.iter().zip(b).take(keys);
            pairs.map(|(a, b)| order(a, b)).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut rows: Vec<(OwnedRow, Record)> = Vec::with_capacity(found.len());
        for record in found {
            let key = record.get(..keys).ok_or_else(|| bug("a key"))?;
            match (access.get(&self.table, key)?, &mut touched) {
                (Some(row), None) => rows.push((row, record)),
                (Some(row), Some(touched)) => {
                    if touched.insert(row.row().stored_key().to_vec()) {
                        rows.push((row, record));
                    }
                }
                (None, Some(_)) => {}
                (None, None) => return Err(bug("a row that was read a moment ago")),
            }
        }
        let mut written = Written::default();
        let Some(set) = &self.set else {
            let (rows, records): (Vec<OwnedRow>, Vec<Record>) = rows.into_iter().unzip();
            access.transaction()?.tables().delete_rows(&rows)?;
            for (row, record) in rows.iter().zip(&records) {
                written.row(&self.beside(row, record), self.returning.as_ref(), cx, budget)?;
            }
            return Ok(written);
        };
        for (row, record) in &rows {
            let mut changes = Vec::with_capacity(set.len());
            for (place, to) in set {
                changes.push((*place, self.value(*place, to, record, cx)?));
            }
            let now = change(access, &self.table, &self.schema, row, &changes, self.returning.is_some())?;
            match &now {
                Some(now) => written.row(&self.beside(now, record), self.returning.as_ref(), cx, budget)?,
                None => written.row(row, None, cx, budget)?,
            }
        }
        Ok(written)
    }

    fn beside<'r>(&'r self, row: &'r dyn Input, record: &'r Record) -> Beside<'r> {
        Beside { row, width: self.schema.columns().len(), record, others: &self.others }
    }

    fn value(&self, place: usize, to: &SetTo, record: &Record, cx: &Context<'_>) -> Result<Value<'static>> {
        let column = self.schema.columns().get(place).ok_or_else(|| bug("a column that is set"))?;
        let ty = column.column_type();
        match to {
            SetTo::Default => default_value(&self.schema, place, cx),
            SetTo::Column { number, found, is_literal } => {
                let value = record.get(*number).ok_or_else(|| bug("a value that is set"))?;
                match value {
                    Value::Text(text) if *is_literal => {
                        labelled(from_text_in(text, ty, cx.zone)?, column.enum_type().map(|labels| &**labels))
                    }
                    value if *found == ty => Ok(value.clone()),
                    value => Ok(cast_in(value.borrowed(), ty, cx.zone)?.into_owned()),
                }
            }
        }
    }
}
