//! MERGE: one query joins source and target, then each of its rows is inserted, updated, deleted or left alone, by key.
//!
//!   MERGE INTO t USING s ON c WHEN …   ─▶   SELECT t.*, s.* FROM s LEFT JOIN t ON c   ─▶   the first clause that fits, row by row
//!
//! Invariants
//! 1. All rows are read before the first one is written.
//! 2. A row of the target that is changed by two rows of the source is an error (21000), as in PostgreSQL;
//!    the order of rows never decides.

use std::collections::HashSet;
use std::sync::Arc;

use ropewalk::tables::{OwnedRow, Schema, Table, Type, Value, shown};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::dml::keyed::SELECT;
use crate::dml::write::{Given, Written, change, changes, column_place};
use crate::error::{Result, SqlError, state};
use crate::exec::executor::unsupported;
use crate::exec::finder::Finder;
use crate::expr::arith::put_identity;
use crate::expr::{Context, Expr, Record, bug};
use crate::limits::budget::Budget;
use crate::plan::Planner;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::Scope;
use crate::syntax::names::{folded, object_name, own, table_name};
use crate::syntax::statements::MergeStatement;

enum Action {
    Nothing,
    Delete,
    /// Positions and values, which are over the target's columns followed by those of the source.
    Update(Vec<(usize, Given)>),
    /// Positions and values, which are over the source's columns.
    Insert(Vec<(usize, Given)>),
}

struct When {
    is_matched: bool,
    condition: Option<Expr>,
    action: Action,
}

/// A planned MERGE.
pub(crate) struct Merge {
    table: Table,
    schema: Arc<Schema>,
    query: Finder,
    whens: Vec<When>,
}

fn wildcard(reference: &str) -> ast::SelectItem {
    let name = object_name(reference);
    let kind = ast::SelectItemQualifiedWildcardKind::ObjectName(name);
    ast::SelectItem::QualifiedWildcard(kind, ast::WildcardAdditionalOptions::default())
}

impl Planner<'_> {
    /// The name that refers to a source.
    fn name_of_source(&mut self, source: &ast::TableFactor) -> Result<String> {
        match source {
            ast::TableFactor::Table { alias: Some(alias), .. }
            | ast::TableFactor::Derived { alias: Some(alias), .. } => Ok(folded(&alias.name)),
            ast::TableFactor::Table { name, .. } => {
                let written = table_name(name)?;
                let with = self.with.as_ref().map(|with| with.cte_tables.as_slice()).unwrap_or_default();
                if with.iter().any(|cte| folded(&cte.alias.name) == written) {
                    return Ok(written);
                }
                match self.table(name) {
                    Ok((_, schema)) => Ok(self.standing.settings.table_alias(schema.name())),
                    Err(_) => Ok(written),
                }
            }
            other => Err(unsupported(format!("MERGE ... USING {other} without an alias"))),
        }
    }

    pub(crate) fn merge(&mut self, statement: &MergeStatement) -> Result<Merge> {
        let ast::Merge { merge_token: _, optimizer_hints, into: _, table, source, on, clauses, output: None } =
            &statement.merge
        else {
            return Err(unsupported("OUTPUT of MERGE"));
        };
        if !optimizer_hints.is_empty() {
            return Err(unsupported("hints to MERGE"));
        }
        let target = ast::TableWithJoins { relation: table.clone(), joins: Vec::new() };
        let (table, schema, _, alias) = self.target(&target)?;
        let source_name = self.name_of_source(source)?;
        if own(&source_name) == own(&alias) {
            let message = format!("name \"{}\" specified more than once", own(&alias));
            return Err(SqlError::new(state::DUPLICATE_ALIAS, message)
                .hint("it is the name of the target and of the source: give one an alias"));
        }
        let has_others = clauses.iter().any(|clause| clause.clause_kind != ast::MergeClauseKind::Matched);
        let condition = ast::JoinConstraint::On((**on).clone());
        let join_operator = if has_others {
            ast::JoinOperator::LeftOuter(condition)
        } else {
            ast::JoinOperator::Inner(condition)
        };
        let mut query = SELECT.clone().ok_or_else(|| bug("SELECT 1"))?;
        let ast::SetExpr::Select(select) = query.body.as_mut() else { return Err(bug("SELECT 1")) };
        select.projection = vec![wildcard(&alias), wildcard(&source_name)];
        let join = ast::Join { relation: target.relation, global: false, join_operator };
        select.from = vec![ast::TableWithJoins { relation: source.clone(), joins: vec![join] }];
        let query = Finder::plan(&query, self)?;

        let behind = query.columns().iter().skip(schema.columns().len());
        let columns: Vec<(String, Type)> = behind.map(|column| (column.name.clone(), column.ty)).collect();
        let (mut both, mut alone) = (Scope::default(), Scope::default());
        both.add_table(alias, &schema)?;
        both.add(source_name.clone(), columns.clone())?;
        alone.add(source_name, columns)?;
        let mut whens = Vec::with_capacity(clauses.len());
        for (number, clause) in clauses.iter().enumerate() {
            let is_matched = match clause.clause_kind {
                ast::MergeClauseKind::Matched => true,
                ast::MergeClauseKind::NotMatched => false,
                _ => return Err(unsupported(format!("WHEN {}", clause.clause_kind))),
            };
            let scope = if is_matched { &both } else { &alone };
            let condition = match &clause.predicate {
                None => None,
                Some(predicate) => Some(Binder::new(self, scope, "MERGE WHEN").condition(predicate)?),
            };
            let action = if statement.idle.contains(&number) {
                Action::Nothing
            } else {
                self.merge_action(&clause.action, &schema, scope)?
            };
            whens.push(When { is_matched, condition, action });
        }
        Ok(Merge { table, schema, query, whens })
    }

    fn merge_action(&mut self, action: &ast::MergeAction, schema: &Schema, scope: &Scope) -> Result<Action> {
        match action {
            ast::MergeAction::Delete { .. } => Ok(Action::Delete),
            ast::MergeAction::Update(ast::MergeUpdateExpr {
                update_token: _,
                assignments,
                update_predicate: None,
                delete_predicate: None,
            }) => Ok(Action::Update(self.assignments(assignments, schema, scope)?)),
            ast::MergeAction::Insert(ast::MergeInsertExpr {
                insert_token: _,
                columns,
                kind_token: _,
                kind: ast::MergeInsertKind::Values(values),
                insert_predicate: None,
            }) => {
                let [row] = values.rows.as_slice() else { return Err(unsupported(action)) };
                let mut places = Vec::new();
                for column in columns {
                    places.push(column_place(schema, column)?);
                }
                let names_columns = !places.is_empty();
                if !names_columns {
                    places = (0..schema.columns().len()).collect();
                }
                let found = row.content.len();
                if found > places.len() || names_columns && found < places.len() {
                    let message = match found > places.len() {
                        true => "INSERT has more expressions than target columns",
                        false => "INSERT has more target columns than expressions",
                    };
                    return Err(SqlError::new(state::SYNTAX_ERROR, message));
                }
                let mut values = Vec::new();
                for (expr, place) in row.content.iter().zip(places) {
                    values.push((place, self.given(expr, schema, place, scope, "VALUES")?));
                }
                Ok(Action::Insert(values))
            }
            other => Err(unsupported(other)),
        }
    }
}

impl Merge {
    /// The lines of EXPLAIN that describe the write.
    pub(crate) fn line(&self) -> String {
        format!("Merge {} by the keys that a query finds", shown(self.schema.name()))
    }

    /// The clause that applies to a row; `None` when the row is left alone.
    fn clause<'m>(&'m self, row: &Record, cx: &Context<'_>) -> Result<Option<&'m When>> {
        let width = self.schema.columns().len();
        let place = self.schema.key_columns().first().copied().unwrap_or_default();
        // A key is NULL only where no row matched.
        let is_matched = row.get(place).is_some_and(|key| !key.is_null());
        let input = row.get(if is_matched { 0 } else { width }..).unwrap_or_default();
        for when in self.whens.iter().filter(|when| when.is_matched == is_matched) {
            let fits = match &when.condition {
                None => true,
                Some(condition) => condition.holds(cx, &input)?,
            };
            if fits {
                return Ok(Some(when).filter(|when| !matches!(when.action, Action::Nothing)));
            }
        }
        Ok(None)
    }

    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let mut found: Vec<(Record, &When)> = Vec::new();
        let mut touched: HashSet<Vec<u8>> = HashSet::new();
        self.query.run(types, access, cx, budget, &mut |row| {
            let Some(when) = self.clause(&row, cx)? else { return Ok(true) };
            budget.take_row(&row)?;
            if when.is_matched {
                let mut identity = Vec::new();
                for place in self.schema.key_columns() {
                    put_identity(row.get(*place).ok_or_else(|| bug("a key"))?, &mut identity);
                }
                budget.take(identity.len() + 48)?;
                if !touched.insert(identity) {
                    let message = "MERGE command cannot affect row a second time";
                    return Err(SqlError::new(state::CARDINALITY_VIOLATION, message)
                        .hint("ensure that not more than one source row matches any one target row"));
                }
            }
            found.push((row, when));
            Ok(true)
        })?;
        let mut written = Written::default();
        let width = self.schema.columns().len();
        for (row, when) in found {
            match &when.action {
                Action::Nothing => {}
                Action::Delete => {
                    let old = self.old(&row, access)?;
                    access.transaction()?.tables().delete_rows(&[old])?;
                }
                Action::Update(set) => {
                    let old = self.old(&row, access)?;
                    let changes = changes(set, &self.schema, cx, &row)?;
                    change(access, &self.table, &self.schema, &old, &changes, false)?;
                }
                Action::Insert(values) => {
                    let source = row.get(width..).unwrap_or_default();
                    self.insert(values, source, access, cx)?;
                }
            }
            written.count += 1;
        }
        Ok(written)
    }

    fn old(&self, row: &Record, access: &mut Access<'_>) -> Result<OwnedRow> {
        let key: Vec<Value<'_>> = self
            .schema
            .key_columns()
            .iter()
            .filter_map(|place| row.get(*place).map(Value::borrowed))
            .collect();
        access.get(&self.table, &key)?.ok_or_else(|| bug("a row that was read a moment ago"))
    }

    fn insert(
        &self,
        values: &[(usize, Given)],
        source: &[Value<'static>],
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<()> {
        let mut named = Vec::with_capacity(values.len());
        for (place, given) in values {
            let column = self.schema.columns().get(*place).ok_or_else(|| bug("a column"))?;
            if let Given::Expr(expr) = given {
                named.push((column.name(), expr.eval(cx, &source)?.into_owned()));
            }
        }
        access.transaction()?.tables().insert(&self.table, &named)?;
        Ok(())
    }
}
