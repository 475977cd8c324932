//! INSERT, UPDATE and DELETE: the read part finds rows along a path and asks the whole condition of each; then they are written by
//! key, in the statement's transaction.
//!
//! Invariants
//! 1. Rows are found before the first one is written: a statement never meets its own writes.
//! 2. A condition that cannot be planned is an error. No statement runs without the WHERE it was given.

use std::sync::{Arc, LazyLock};

use ropewalk::tables::{ColumnRef, Expr as TableExpr, OwnedRow, Schema, Table, Type, Value};
use sqlparser::ast;

use crate::access::Access;
use crate::bind::{Binder, Typed};
use crate::budget::Budget;
use crate::cast::{Strength, cast_in};
use crate::error::{Result, SqlError, state};
use crate::exec::{Record, run};
use crate::expr::{Context, Expr, Input, Nothing, bug};
use crate::parse;
use crate::path::{Path, key_value};
use crate::plan::{Planner, ResultColumn, Select, alias_of, nothing_else, split};
use crate::scope::{Scope, folded, parts};

/// RETURNING.
pub(crate) struct Returning {
    pub(crate) output: Vec<Expr>,
    pub(crate) columns: Vec<ResultColumn>,
}

/// A value that an INSERT or UPDATE gives a column.
pub(crate) enum Given {
    Expr(Expr),
    Default,
}

pub(crate) enum Source {
    Values(Vec<Vec<Given>>),
    Select(Box<Select>),
    /// A query of the query engine, and the types that its columns are cast to.
    Whole(crate::query::Finder, Vec<(Type, bool)>),
}

/// What happens to a row that is there already.
pub(crate) struct OnConflict {
    /// Places of the columns whose values conflict, each with the constraint over it; all constraints when none was named.
    pub(crate) targets: Vec<Target>,
    /// `None` does nothing. Expressions are over the old row and the one that was to be inserted.
    pub(crate) update: Option<(Vec<(usize, Given)>, Option<Expr>)>,
}

/// A unique constraint: the places of its columns, and its index unless it is the primary key.
pub(crate) struct Target {
    index: Option<String>,
    places: Vec<usize>,
}

pub(crate) struct Insert {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    /// Places of the columns that values are given for.
    pub(crate) places: Vec<usize>,
    pub(crate) source: Source,
    /// What the last of the columns get, which are given none: the clock of the session's zone.
    locals: Vec<Expr>,
    pub(crate) on_conflict: Option<OnConflict>,
    pub(crate) returning: Option<Returning>,
    /// Columns without a value that sequences number: place and sequence.
    numbered: Vec<(usize, u32)>,
    given: crate::sequences::Given,
}

/// The rows that an UPDATE or DELETE is about.
pub(crate) struct Found {
    pub(crate) table: Table,
    pub(crate) schema: Arc<Schema>,
    pub(crate) path: Path,
    pub(crate) filter: Vec<Expr>,
}

pub(crate) struct Update {
    pub(crate) found: Found,
    pub(crate) set: Vec<(usize, Given)>,
    pub(crate) returning: Option<Returning>,
}

pub(crate) struct Delete {
    pub(crate) found: Found,
    pub(crate) returning: Option<Returning>,
}

static INSERT: LazyLock<Option<ast::Insert>> =
    LazyLock::new(|| match parse::template("INSERT INTO t VALUES (1)")? {
        ast::Statement::Insert(insert) => Some(insert),
        _ => None,
    });
static UPDATE: LazyLock<Option<ast::Update>> =
    LazyLock::new(|| match parse::template("UPDATE t SET a = 1")? {
        ast::Statement::Update(update) => Some(update),
        _ => None,
    });
static DELETE: LazyLock<Option<ast::Delete>> = LazyLock::new(|| match parse::template("DELETE FROM t")? {
    ast::Statement::Delete(delete) => Some(delete),
    _ => None,
});

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "write the statement over one table, with subqueries that stand alone")
}

pub(crate) fn is_default(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// Refuses what no planner of UPDATE looks at.
pub(crate) fn nothing_but_an_update(update: &ast::Update) -> Result<()> {
    let empty = UPDATE.as_ref();
    let mut rest = update.clone();
    if let Some(empty) = empty {
        rest.table.clone_from(&empty.table);
        rest.assignments.clone_from(&empty.assignments);
    }
    (rest.from, rest.selection, rest.returning) = (None, None, None);
    nothing_else(&rest, empty)
}

/// Refuses what no planner of DELETE looks at.
pub(crate) fn nothing_but_a_delete(delete: &ast::Delete) -> Result<()> {
    let empty = DELETE.as_ref();
    let mut rest = delete.clone();
    if let Some(empty) = empty {
        rest.from.clone_from(&empty.from);
    }
    (rest.using, rest.selection, rest.returning) = (None, None, None);
    nothing_else(&rest, empty)
}

impl Planner<'_> {
    pub(crate) fn returning(
        &mut self,
        items: Option<&[ast::SelectItem]>,
        scope: &Scope,
    ) -> Result<Option<Returning>> {
        let Some(items) = items else { return Ok(None) };
        let mut aggregates = Vec::new();
        let projected = self.projection(items, scope, &mut aggregates)?;
        if !aggregates.is_empty() {
            let message = "aggregate functions are not allowed in RETURNING";
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        }
        let (output, columns) = projected.into_iter().unzip();
        Ok(Some(Returning { output, columns }))
    }

    /// A value for the column at `place`.
    pub(crate) fn given(
        &mut self,
        expr: &ast::Expr,
        schema: &Schema,
        place: usize,
        scope: &Scope,
        clause: &'static str,
    ) -> Result<Given> {
        if is_default(expr) {
            return Ok(Given::Default);
        }
        let typed = Binder::new(self, scope, clause).bind(expr)?;
        self.assigned(typed, schema, place, scope).map(Given::Expr)
    }

    fn assigned(&mut self, typed: Typed, schema: &Schema, place: usize, scope: &Scope) -> Result<Expr> {
        let column = schema.columns().get(place).ok_or_else(|| bug("a column beyond its table"))?;
        let ty = column.column_type();
        let found = typed.ty;
        Binder::new(self, scope, "a value").settle(typed, ty, Strength::Assignment).map_err(|error| {
            if error.state != state::DATATYPE_MISMATCH {
                return error;
            }
            let message = format!(
                "column \"{}\" is of type {} but expression is of type {}",
                column.name(),
                crate::types::type_name(ty),
                crate::types::shown(found)
            );
            SqlError::new(state::DATATYPE_MISMATCH, message)
                .hint("you will need to rewrite or cast the expression")
        })
    }

    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> Result<Insert> {
        let empty = INSERT.as_ref();
        let mut rest = insert.clone();
        if let Some(empty) = empty {
            rest.table.clone_from(&empty.table);
            rest.source.clone_from(&empty.source);
        }
        rest.columns.clear();
        (rest.on, rest.returning, rest.table_alias) = (None, None, None);
        nothing_else(&rest, empty)?;
        let ast::TableObject::TableName(name) = &insert.table else { return Err(unsupported(&insert.table)) };
        let (table, schema) = self.table(name)?;
        let alias = match &insert.table_alias {
            Some(alias) => folded(&alias.alias),
            None => schema.name().to_owned(),
        };
        let mut places = Vec::new();
        for column in &insert.columns {
            let place = column_place(&schema, column)?;
            if places.contains(&place) {
                let message = format!("column \"{column}\" specified more than once");
                return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
            }
            places.push(place);
        }
        let names_columns = !places.is_empty();
        if !names_columns {
            places = (0..schema.columns().len()).collect();
        }
        let nothing = Scope::default();
        let arity = |found: usize| {
            let message = match found > places.len() {
                true => "INSERT has more expressions than target columns",
                false => "INSERT has more target columns than expressions",
            };
            if found > places.len() || names_columns && found < places.len() {
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
            Ok(())
        };
        let mut locals = self.local_defaults(&schema);
        let mut width = places.len();
        let source = match insert.source.as_deref() {
            // DEFAULT VALUES
            None => {
                width = 0;
                Source::Values(vec![Vec::new()])
            }
            Some(query) => match query.body.as_ref() {
                ast::SetExpr::Values(values) if query.order_by.is_none() && query.limit_clause.is_none() => {
                    let plain = empty.and_then(|empty| empty.source.as_deref());
                    let mut bare = query.clone();
                    if let Some(plain) = plain {
                        bare.body.clone_from(&plain.body);
                    }
                    nothing_else(&bare, plain)?;
                    let mut rows = Vec::new();
                    for row in &values.rows {
                        arity(row.content.len())?;
                        width = row.content.len();
                        let given: Result<Vec<Given>> = (row.content.iter().zip(&places))
                            .map(|(expr, place)| match locals.iter().find(|(local, _)| local == place) {
                                Some((_, now)) if is_default(expr) => Ok(Given::Expr(now.clone())),
                                _ => self.given(expr, &schema, *place, &nothing, "VALUES"),
                            })
                            .collect();
                        rows.push(given?);
                    }
                    if rows.iter().any(|row| row.len() != width) {
                        let message = "VALUES lists must all be the same length";
                        return Err(SqlError::new(state::SYNTAX_ERROR, message));
                    }
                    Source::Values(rows)
                }
                _ => match self.query(query) {
                    Err(error) if crate::query::may_serve(&error) => {
                        self.subqueries.clear();
                        self.outer.clear();
                        let planned = crate::query::Finder::plan(query, self)?;
                        arity(planned.columns().len())?;
                        width = planned.columns().len();
                        let mut types = Vec::new();
                        for (column, place) in planned.columns().iter().zip(&places) {
                            // Looks whether it may be assigned; the cast itself comes with the values.
                            let typed = Typed::new(Expr::Column(0), column.ty);
                            self.assigned(typed, &schema, *place, &nothing)?;
                            let ty = schema.columns().get(*place).map_or(Type::TEXT, |c| c.column_type());
                            types.push((ty, ty != column.ty));
                        }
                        Source::Whole(planned, types)
                    }
                    Err(error) => return Err(error),
                    Ok(mut select) => {
                        arity(select.columns.len())?;
                        width = select.columns.len();
                        let mut output = Vec::new();
                        for ((expr, column), place) in
                            select.output.into_iter().zip(&select.columns).zip(&places)
                        {
                            // The literal of a select list is text by now; it may still become what the column is.
                            let literal = matches!(expr, Expr::Const(Value::Text(_) | Value::Null));
                            let typed = Typed { expr, ty: (!literal).then_some(column.ty) };
                            output.push(self.assigned(typed, &schema, *place, &nothing)?);
                        }
                        select.output = output;
                        Source::Select(Box::new(select))
                    }
                },
            },
        };
        places.truncate(width);
        locals.retain(|(place, _)| !places.contains(place));
        places.extend(locals.iter().map(|(place, _)| *place));
        let mut scope = Scope::default();
        scope.add_table(alias, &schema)?;
        let on_conflict = match &insert.on {
            None => None,
            Some(ast::OnInsert::OnConflict(on)) => Some(self.on_conflict(on, &schema, &scope)?),
            Some(other) => return Err(unsupported(other)),
        };
        let returning = self.returning(insert.returning.as_deref(), &scope)?;
        let numbered = schema.columns().iter().enumerate().filter(|(place, _)| !places.contains(place));
        let numbered = numbered.filter_map(|(place, column)| match column.default_value() {
            ropewalk::tables::DefaultValue::Next(sequence) => Some((place, *sequence)),
            _ => Some((place, column.sequence()?)),
        });
        let (numbered, given) = (numbered.collect(), self.standing.given.clone());
        let locals = locals.into_iter().map(|(_, now)| now).collect();
        Ok(Insert { table, schema, places, source, locals, on_conflict, returning, numbered, given })
    }

    /// Columns whose default is what the clock shows, where that is not what it shows in UTC.
    fn local_defaults(&self, schema: &Schema) -> Vec<(usize, Expr)> {
        if self.standing.settings.zone.is_utc() {
            return Vec::new();
        }
        let shows_clock = |(place, column): (usize, &ropewalk::tables::Column)| {
            let is_now = *column.default_value() == ropewalk::tables::DefaultValue::Now;
            let ty = column.column_type();
            let now = Box::new(Expr::Call(crate::function::Function::Now, Vec::new()));
            (is_now && ty != Type::TIMESTAMPTZ).then_some((place, Expr::Cast(now, ty)))
        };
        schema.columns().iter().enumerate().filter_map(shows_clock).collect()
    }

    fn on_conflict(&mut self, on: &ast::OnConflict, schema: &Schema, scope: &Scope) -> Result<OnConflict> {
        let all = unique_targets(schema);
        let none = || {
            SqlError::new(
                state::INVALID_COLUMN_REFERENCE,
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            )
        };
        let targets = match &on.conflict_target {
            None => all,
            Some(ast::ConflictTarget::Columns(names)) => {
                let mut places = Vec::new();
                for name in names {
                    places.push(column_place(schema, &ast::ObjectName::from(vec![name.clone()]))?);
                }
                places.sort_unstable();
                let same = |target: &Target| {
                    let mut own = target.places.clone();
                    own.sort_unstable();
                    own == places
                };
                vec![all.into_iter().find(same).ok_or_else(none)?]
            }
            Some(ast::ConflictTarget::OnConstraint(name)) => {
                let names = parts(name)?;
                let key_name = format!("{}_pkey", schema.name());
                let named =
                    |target: &Target| names.last() == Some(target.index.as_ref().unwrap_or(&key_name));
                vec![all.into_iter().find(named).ok_or_else(|| {
                    let message =
                        format!("constraint \"{name}\" for table \"{}\" does not exist", schema.name());
                    SqlError::new(state::UNDEFINED_OBJECT, message)
                })?]
            }
        };
        let update = match &on.action {
            ast::OnConflictAction::DoNothing => None,
            ast::OnConflictAction::DoUpdate(update) => {
                if on.conflict_target.is_none() {
                    let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                    return Err(SqlError::new(state::SYNTAX_ERROR, message)
                        .hint("for example, ON CONFLICT (column_name)"));
                }
                let mut both = scope.clone();
                both.add_qualified("excluded", schema)?;
                let set = self.assignments(&update.assignments, schema, &both)?;
                let filter = match &update.selection {
                    None => None,
                    Some(selection) => Some(Binder::new(self, &both, "WHERE").condition(selection)?),
                };
                Some((set, filter))
            }
        };
        Ok(OnConflict { targets, update })
    }

    pub(crate) fn assignments(
        &mut self,
        assignments: &[ast::Assignment],
        schema: &Schema,
        scope: &Scope,
    ) -> Result<Vec<(usize, Given)>> {
        let mut set: Vec<(usize, Given)> = Vec::new();
        let mut pairs: Vec<(&ast::ObjectName, &ast::Expr)> = Vec::new();
        for assignment in assignments {
            match (&assignment.target, &assignment.value) {
                (ast::AssignmentTarget::ColumnName(name), value) => pairs.push((name, value)),
                (ast::AssignmentTarget::Tuple(names), ast::Expr::Tuple(values))
                    if names.len() == values.len() =>
                {
                    pairs.extend(names.iter().zip(values));
                }
                _ => return Err(unsupported(assignment)),
            }
        }
        for (name, value) in pairs {
            let place = column_place(schema, name)?;
            if set.iter().any(|(at, _)| *at == place) {
                let message = format!("multiple assignments to same column \"{name}\"");
                return Err(SqlError::new(state::SYNTAX_ERROR, message));
            }
            set.push((place, self.given(value, schema, place, scope, "UPDATE")?));
        }
        Ok(set)
    }

    /// The one table of an UPDATE or DELETE, and its rows that fulfil `selection`.
    fn found(&mut self, from: &ast::TableWithJoins, selection: Option<&ast::Expr>) -> Result<(Found, Scope)> {
        let ast::TableFactor::Table { name, alias, .. } = &from.relation else {
            return Err(unsupported(from));
        };
        let plain = ast::TableFactor::Table {
            name: name.clone(),
            alias: alias.clone(),
            args: None,
            with_hints: Vec::new(),
            version: None,
            with_ordinality: false,
            partitions: Vec::new(),
            json_path: None,
            sample: None,
            index_hints: Vec::new(),
        };
        if !from.joins.is_empty() || from.relation != plain {
            return Err(unsupported(from));
        }
        let (table, schema) = self.table(name)?;
        let mut scope = Scope::default();
        scope.add_table(alias_of(alias.as_ref())?.unwrap_or_else(|| schema.name().to_owned()), &schema)?;
        let mut filter = Vec::new();
        if let Some(selection) = selection {
            split(Binder::new(self, &scope, "WHERE").condition(selection)?, &mut filter);
        }
        let path = Path::choose(&schema, 0, &filter, &[], false);
        Ok((Found { table, schema, path, filter }, scope))
    }

    pub(crate) fn update(&mut self, update: &ast::Update) -> Result<Update> {
        nothing_but_an_update(update)?;
        if update.from.is_some() {
            return Err(unsupported("FROM"));
        }
        let (found, scope) = self.found(&update.table, update.selection.as_ref())?;
        let schema = found.schema.clone();
        let set = self.assignments(&update.assignments, &schema, &scope)?;
        let returning = self.returning(update.returning.as_deref(), &scope)?;
        Ok(Update { found, set, returning })
    }

    pub(crate) fn delete(&mut self, delete: &ast::Delete) -> Result<Delete> {
        nothing_but_a_delete(delete)?;
        if delete.using.is_some() {
            return Err(unsupported("USING"));
        }
        let ast::FromTable::WithFromKeyword(tables) = &delete.from else { return Err(unsupported(delete)) };
        let [from] = tables.as_slice() else { return Err(unsupported(delete)) };
        let (found, scope) = self.found(from, delete.selection.as_ref())?;
        let returning = self.returning(delete.returning.as_deref(), &scope)?;
        Ok(Delete { found, returning })
    }
}

/// The place of a column that is written; a table's name in front of it is refused, as PostgreSQL does.
pub(crate) fn column_place(schema: &Schema, name: &ast::ObjectName) -> Result<usize> {
    match parts(name)?.as_slice() {
        [column] => Ok(schema.index_of(column)?),
        _ => Err(unsupported(format!("the column {name}"))),
    }
}

/// The unique constraints of a table.
fn unique_targets(schema: &Schema) -> Vec<Target> {
    let mut targets = Vec::new();
    if !schema.key_columns().is_empty() {
        targets.push(Target { index: None, places: schema.key_columns().to_vec() });
    }
    for index in schema.indexes().iter().filter(|index| index.is_unique() && index.filter().is_none()) {
        let place = |column: &ropewalk::tables::IndexColumn| match column.expr {
            TableExpr::Column(ColumnRef::Id(id)) => {
                schema.columns().iter().position(|column| column.id() == id)
            }
            _ => None,
        };
        if let Some(places) = index.columns().iter().map(place).collect() {
            targets.push(Target { index: Some(index.name().to_owned()), places });
        }
    }
    targets
}

/// How many rows were written, and what RETURNING says of them.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) count: u64,
    pub(crate) rows: Vec<Record>,
}

impl Written {
    pub(crate) fn row(
        &mut self,
        row: &dyn Input,
        returning: Option<&Returning>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<()> {
        self.count += 1;
        if let Some(returning) = returning {
            let mut record = Vec::with_capacity(returning.output.len());
            for expr in &returning.output {
                record.push(expr.eval(cx, row)?.into_owned());
            }
            budget.take_row(&record)?;
            self.rows.push(record);
        }
        Ok(())
    }
}

fn column_name(schema: &Schema, place: usize) -> Result<&str> {
    schema.columns().get(place).map(|column| column.name()).ok_or_else(|| bug("a column beyond its table"))
}

/// The old row and the one that was to be inserted, side by side.
struct Both<'r> {
    old: &'r OwnedRow,
    new: &'r [Value<'static>],
    width: usize,
}

impl Input for Both<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        match index.checked_sub(self.width) {
            None => Ok(self.old.get(index)?),
            Some(place) => self.new.column(place),
        }
    }
}

impl Insert {
    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let mut written = Written::default();
        let mut records: Vec<Vec<Option<Value<'static>>>> = Vec::new();
        match &self.source {
            Source::Values(rows) => {
                for row in rows {
                    let value = |given: &Given| match given {
                        Given::Default => Ok(None),
                        Given::Expr(expr) => expr.constant(cx).map(Some),
                    };
                    records.push(row.iter().map(value).collect::<Result<_>>()?);
                }
            }
            Source::Select(select) => {
                run(select, access, cx, budget, &mut |row| {
                    budget.take_row(&row)?;
                    records.push(row.into_iter().map(Some).collect());
                    Ok(true)
                })?;
            }
            Source::Whole(..) => {}
        }
        let mut touched: Vec<Vec<Value<'static>>> = Vec::new();
        let mut locals = Vec::with_capacity(self.locals.len());
        for local in &self.locals {
            locals.push(Some(local.constant(cx)?));
        }
        if let Source::Whole(query, casts) = &self.source {
            query.run(types, access, cx, budget, &mut |row| {
                budget.take_row(&row)?;
                let record = row.into_iter().zip(casts).map(|(value, (ty, needs_cast))| {
                    Ok(Some(if *needs_cast { cast_in(value, *ty, cx.zone)?.into_owned() } else { value }))
                });
                records.push(record.collect::<Result<_>>()?);
                Ok(true)
            })?;
        }
        if !locals.is_empty() {
            records.iter_mut().for_each(|record| record.extend(locals.iter().cloned()));
        }
        if self.on_conflict.is_none() && self.returning.is_none() && records.len() > 1 {
            return self.insert_all(access, records);
        }
        for record in records {
            self.insert_one(record, access, cx, budget, &mut written, &mut touched)?;
        }
        Ok(written)
    }

    fn named<'r>(&'r self, record: &'r [Option<Value<'static>>]) -> Result<Vec<(&'r str, Value<'r>)>> {
        let mut named = Vec::with_capacity(record.len());
        for (place, value) in self.places.iter().zip(record) {
            if let Some(value) = value {
                named.push((column_name(&self.schema, *place)?, value.borrowed()));
            }
        }
        Ok(named)
    }

    /// As one statement of the model, so that rows may refer to each other.
    fn insert_all(
        &self,
        access: &mut Access<'_>,
        records: Vec<Vec<Option<Value<'static>>>>,
    ) -> Result<Written> {
        let named: Vec<Vec<(&str, Value<'_>)>> =
            records.iter().map(|record| self.named(record)).collect::<Result<_>>()?;
        let rows: Vec<&[(&str, Value<'_>)]> = named.iter().map(Vec::as_slice).collect();
        if let Some(last) = access.transaction()?.tables().insert_many(&self.table, &rows)? {
            self.note_numbers(&last)?;
        }
        Ok(Written { count: rows.len() as u64, rows: Vec::new() })
    }

    fn insert_one(
        &self,
        record: Vec<Option<Value<'static>>>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        written: &mut Written,
        touched: &mut Vec<Vec<Value<'static>>>,
    ) -> Result<()> {
        let Some(on_conflict) = &self.on_conflict else {
            let row = access.transaction()?.tables().insert(&self.table, &self.named(&record)?)?;
            self.note_numbers(&row)?;
            return written.row(&row, self.returning.as_ref(), cx, budget);
        };
        let new = self.proposed(&record)?;
        for target in &on_conflict.targets {
            let Some(old) = target.find(&self.table, &self.schema, &new, access, cx)? else { continue };
            let Some((set, filter)) = &on_conflict.update else { return Ok(()) };
            let key: Vec<Value<'static>> = identity(&old, &self.schema)?;
            if touched.contains(&key) {
                let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                return Err(SqlError::new(state::CARDINALITY_VIOLATION, message)
                    .hint("ensure that no rows proposed for insertion have the same key"));
            }
            let both = Both { old: &old, new: &new, width: self.schema.columns().len() };
            if let Some(filter) = filter
                && !filter.holds(cx, &both)?
            {
                return Ok(());
            }
            let changes = changes(set, &self.schema, cx, &both)?;
            let changed =
                change(access, &self.table, &self.schema, &old, &changes, self.returning.is_some())?;
            touched.push(key);
            return match &changed {
                Some(row) => written.row(row, self.returning.as_ref(), cx, budget),
                None => {
                    let overlaid = Overlaid { row: &old, changes: &changes };
                    written.row(&overlaid, self.returning.as_ref(), cx, budget)
                }
            };
        }
        let row = access.transaction()?.tables().insert(&self.table, &self.named(&record)?)?;
        self.note_numbers(&row)?;
        if on_conflict.update.is_some() {
            touched.push(identity(&row, &self.schema)?);
        }
        written.row(&row, self.returning.as_ref(), cx, budget)
    }

    /// Numbers that the row was given by sequences are the session's last ones.
    fn note_numbers(&self, row: &OwnedRow) -> Result<()> {
        for (place, sequence) in &self.numbered {
            if let Some(number) = row.get(*place)?.as_integer() {
                self.given.note(*sequence, number);
            }
        }
        Ok(())
    }

    /// The row that is to be inserted, with the defaults that are known before.
    fn proposed(&self, record: &[Option<Value<'static>>]) -> Result<Record> {
        let mut row: Record = Vec::with_capacity(self.schema.columns().len());
        for (place, column) in self.schema.columns().iter().enumerate() {
            let at = self.places.iter().position(|given| *given == place);
            let given = at.and_then(|at| record.get(at)).and_then(Option::as_ref);
            row.push(match (given, column.default_value()) {
                (Some(value), _) => value.clone().assign(column.column_type()).map_err(|source| {
                    let (table, column) = (self.schema.name().to_owned(), column.name().to_owned());
                    SqlError::from(ropewalk::tables::TablesError::Value { table, column, source })
                })?,
                (None, ropewalk::tables::DefaultValue::Value(value)) => value.clone(),
                // What is numbered, dated or made up is so when the row is inserted.
                (None, _) => Value::Null,
            });
        }
        Ok(row)
    }
}

impl Target {
    /// The row that has the same values here as `new`.
    fn find(
        &self,
        table: &Table,
        schema: &Schema,
        new: &Record,
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<Option<OwnedRow>> {
        let mut key = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let value = new.column(*place)?.into_owned();
            if value.is_null() {
                return Ok(None);
            }
            key.push(value);
        }
        let Some(index) = &self.index else { return access.get(table, &key) };
        let conjuncts: Vec<Expr> = self
            .places
            .iter()
            .zip(key)
            .map(|(place, value)| {
                let (column, value) = (Box::new(Expr::Column(*place)), Box::new(Expr::Const(value)));
                Expr::Compare(crate::arith::Compare::Eq, column, value)
            })
            .collect();
        let mut path = Path::choose(schema, 0, &conjuncts, &[], false);
        if path.index.as_ref() != Some(index) && !path.is_point {
            path = Path::choose(schema, 0, &conjuncts, &[], true);
        }
        let mut found = None;
        access.walk(table, &path, cx, &Nothing, &mut |row| {
            for conjunct in &conjuncts {
                if !conjunct.holds(cx, &row)? {
                    return Ok(true);
                }
            }
            found = Some(row.to_owned());
            Ok(false)
        })?;
        Ok(found)
    }
}

/// The primary key of a row, or all of it where there is none.
fn identity(row: &OwnedRow, schema: &Schema) -> Result<Vec<Value<'static>>> {
    let key = schema.key_columns();
    if key.is_empty() {
        return Ok(row.values()?.into_iter().map(Value::into_owned).collect());
    }
    key.iter().map(|place| Ok(row.get(*place)?.into_owned())).collect()
}

/// New values of columns, by place.
pub(crate) fn changes(
    set: &[(usize, Given)],
    schema: &Schema,
    cx: &Context<'_>,
    input: &dyn Input,
) -> Result<Vec<(usize, Value<'static>)>> {
    let mut changes = Vec::with_capacity(set.len());
    for (place, given) in set {
        changes.push((
            *place,
            match given {
                Given::Expr(expr) => expr.eval(cx, input)?.into_owned(),
                Given::Default => default_value(schema, *place, cx)?,
            },
        ));
    }
    Ok(changes)
}

pub(crate) fn default_value(schema: &Schema, place: usize, cx: &Context<'_>) -> Result<Value<'static>> {
    use ropewalk::tables::DefaultValue as D;
    let column = schema.columns().get(place).ok_or_else(|| bug("a column beyond its table"))?;
    if column.identity().is_some() {
        return Err(unsupported("SET an identity column TO DEFAULT"));
    }
    Ok(match column.default_value() {
        D::None => Value::Null,
        D::Value(value) => value.clone(),
        D::Now => cast_in(Value::Timestamptz(cx.now), column.column_type(), cx.zone)?.into_owned(),
        D::Next(_) => return Err(unsupported("SET a column TO DEFAULT that a sequence numbers")),
        D::NewUuid => Expr::Call(crate::function::Function::NewUuid, Vec::new()).constant(cx)?,
    })
}

/// Writes changed columns; answers the row as it is now when that is asked for.
pub(crate) fn change(
    access: &mut Access<'_>,
    table: &Table,
    schema: &Schema,
    row: &OwnedRow,
    changes: &[(usize, Value<'static>)],
    is_wanted: bool,
) -> Result<Option<OwnedRow>> {
    let mut named = Vec::with_capacity(changes.len());
    for (place, value) in changes {
        let column = schema.columns().get(*place).ok_or_else(|| bug("a column beyond its table"))?;
        if column.identity() == Some(ropewalk::tables::Identity::Always) {
            let message = format!("column \"{}\" can only be updated to DEFAULT", column.name());
            return Err(SqlError::new(state::GENERATED_ALWAYS, message));
        }
        named.push((column.name(), value.borrowed()));
    }
    access.transaction()?.tables().update_row(row, &named)?;
    if !is_wanted {
        return Ok(None);
    }
    let key = schema.key_columns();
    if key.is_empty() {
        return Ok(None);
    }
    let mut new_key = Vec::with_capacity(key.len());
    for place in key {
        let changed = changes.iter().find(|(at, _)| at == place).map(|(_, value)| value.clone());
        let value = match changed {
            Some(value) => value,
            None => row.get(*place)?.into_owned(),
        };
        let ty = schema.columns().get(*place).map_or(Type::TEXT, |column| column.column_type());
        new_key.push(key_value(value, ty).ok_or_else(|| bug("a key that does not fit"))?);
    }
    access.get(table, &new_key)
}

impl Found {
    /// The rows, each asked the whole condition.
    fn rows(&self, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Vec<OwnedRow>> {
        let mut rows = Vec::new();
        access.walk(&self.table, &self.path, cx, &Nothing, &mut |row| {
            for condition in &self.filter {
                if !condition.holds(cx, &row)? {
                    return Ok(true);
                }
            }
            budget.take(256)?;
            rows.push(row.to_owned());
            Ok(true)
        })?;
        Ok(rows)
    }
}

/// A row of a table without a key as it will be: the old one with the changes over it.
struct Overlaid<'r> {
    row: &'r OwnedRow,
    changes: &'r [(usize, Value<'static>)],
}

impl Input for Overlaid<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        match self.changes.iter().find(|(place, _)| *place == index) {
            Some((_, value)) => Ok(value.borrowed()),
            None => Ok(self.row.get(index)?),
        }
    }
}

impl Update {
    pub(crate) fn run(&self, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Written> {
        let mut written = Written::default();
        let Found { table, schema, .. } = &self.found;
        let rows = self.found.rows(access, cx, budget)?;
        let places: Vec<usize> = self.set.iter().map(|(place, _)| *place).collect();
        access.transaction()?.tables().lock_rows(&rows, Some(&places))?;
        for row in rows {
            let changes = changes(&self.set, schema, cx, &row)?;
            let now = change(access, table, schema, &row, &changes, self.returning.is_some())?;
            match &now {
                Some(now) => written.row(now, self.returning.as_ref(), cx, budget)?,
                None => {
                    let overlaid = Overlaid { row: &row, changes: &changes };
                    written.row(&overlaid, self.returning.as_ref(), cx, budget)?;
                }
            }
        }
        Ok(written)
    }
}

impl Delete {
    pub(crate) fn run(&self, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Written> {
        let mut written = Written::default();
        let rows = self.found.rows(access, cx, budget)?;
        access.transaction()?.tables().lock_rows(&rows, None)?;
        access.transaction()?.tables().delete_rows(&rows)?;
        for row in &rows {
            written.row(row, self.returning.as_ref(), cx, budget)?;
        }
        Ok(written)
    }
}
