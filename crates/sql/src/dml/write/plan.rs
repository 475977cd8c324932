//! Plans of INSERT, UPDATE and DELETE.

use std::sync::LazyLock;

use ropewalk::tables::{Column, ColumnRef, Expr as TableExpr, Schema, Type, Value};
use sqlparser::ast;

use super::Delete;
use super::Found;
use super::Given;
use super::Insert;
use super::OnConflict;
use super::Returning;
use super::Source;
use super::Target;
use super::Update;
use super::assignments_of;
use super::unsupported;
use crate::access::access_path::Path;
use crate::error::{Result, SqlError, state};
use crate::exec::executor::may_serve;
use crate::exec::finder::Finder;
use crate::expr::cast::Strength;
use crate::expr::{Expr, bug};
use crate::plan::bind::scope::{Scope, columns_of};
use crate::plan::bind::{Binder, Typed};
use crate::plan::{Planner, Select, alias_of, nothing_else, split};
use crate::syntax::names::{folded, parts};
use crate::syntax::overriding::Overriding;
use crate::syntax::parse;

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

/// The plan of the query of an INSERT.
enum Rows {
    ByKeys(Box<Select>),
    Found(Finder),
}

/// The target columns of an INSERT.
pub(crate) struct Targets<'s> {
    /// The columns of the relation.
    columns: Vec<(&'s str, Type)>,
    pub(crate) places: Vec<usize>,
    /// The statement lists them, so each of them needs a value.
    are_listed: bool,
    /// Columns whose default is the current local time.
    locals: Vec<(usize, Expr)>,
}

impl<'s> Targets<'s> {
    /// The listed columns; without a list all columns of the table.
    fn find(listed: &[ast::ObjectName], schema: &'s Schema, locals: Vec<(usize, Expr)>) -> Result<Self> {
        let columns = schema.columns().iter().map(|column| (column.name(), column.column_type())).collect();
        let targets = Self::of(listed, columns, &|column| column_place(schema, column))?;
        Ok(Self { locals, ..targets })
    }

    /// The columns that `place` finds for the listed names; without a list all of `columns`.
    pub(crate) fn of(
        listed: &[ast::ObjectName],
        columns: Vec<(&'s str, Type)>,
        place: &dyn Fn(&ast::ObjectName) -> Result<usize>,
    ) -> Result<Self> {
        let mut places = Vec::new();
        for column in listed {
            let place = place(column)?;
            if places.contains(&place) {
                let message = format!("column \"{column}\" specified more than once");
                return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
            }
            places.push(place);
        }
        let are_listed = !places.is_empty();
        if !are_listed {
            places = (0..columns.len()).collect();
        }
        Ok(Self { columns, places, are_listed, locals: Vec::new() })
    }

    fn column(&self, place: usize) -> Result<(&'s str, Type)> {
        self.columns.get(place).copied().ok_or_else(|| bug("a column beyond its relation"))
    }

    /// Rejects a row with too many values, or too few.
    fn check_arity(&self, found: usize) -> Result<()> {
        let message = match found > self.places.len() {
            true => "INSERT has more expressions than target columns",
            false if self.are_listed && found < self.places.len() => {
                "INSERT has more target columns than expressions"
            }
            false => return Ok(()),
        };
        Err(SqlError::new(state::SYNTAX_ERROR, message))
    }
}

pub(crate) fn is_default(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// Rejects clauses that the planner of INSERT does not support.
pub(crate) fn nothing_but_an_insert(insert: &ast::Insert) -> Result<()> {
    let empty = INSERT.as_ref();
    let mut rest = insert.clone();
    if let Some(empty) = empty {
        rest.table.clone_from(&empty.table);
        rest.source.clone_from(&empty.source);
    }
    rest.columns.clear();
    (rest.on, rest.returning, rest.table_alias) = (None, None, None);
    if crate::syntax::overriding::of(insert).is_some() {
        rest.settings = None;
    }
    nothing_else(&rest, empty)
}

/// Rejects clauses that no planner of UPDATE supports.
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

/// Rejects clauses that no planner of DELETE supports.
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

    /// Binds a value for the column at `place`.
    pub(crate) fn given(
        &mut self,
        expr: &ast::Expr,
        schema: &Schema,
        place: usize,
        scope: &Scope,
        clause: &'static str,
    ) -> Result<Given> {
        let column = schema.columns().get(place).ok_or_else(|| bug("a column beyond its table"))?;
        self.given_for(expr, (column.name(), column.column_type()), scope, clause)
    }

    /// Binds a value for a column with this name and type.
    fn given_for(
        &mut self,
        expr: &ast::Expr,
        column: (&str, Type),
        scope: &Scope,
        clause: &'static str,
    ) -> Result<Given> {
        if is_default(expr) {
            return Ok(Given::Default);
        }
        let typed = Binder::new(self, scope, clause).bind(expr)?;
        self.assigned(typed, column, scope).map(Given::Expr)
    }

    pub(crate) fn assigned(&mut self, typed: Typed, (name, ty): (&str, Type), scope: &Scope) -> Result<Expr> {
        let found = typed.ty;
        let settled = Binder::new(self, scope, "a value").settle(typed, ty, Strength::Assignment);
        settled.map_err(|error| {
            if error.state != state::DATATYPE_MISMATCH {
                return error;
            }
            let message = format!(
                "column \"{name}\" is of type {} but expression is of type {}",
                self.shown(Some(ty)),
                self.shown(found)
            );
            SqlError::new(state::DATATYPE_MISMATCH, message)
                .hint("you will need to rewrite or cast the expression")
        })
    }

    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> Result<Insert> {
        nothing_but_an_insert(insert)?;
        let overriding = crate::syntax::overriding::of(insert);
        let ast::TableObject::TableName(name) = &insert.table else { return Err(unsupported(&insert.table)) };
        let (table, schema) = self.target_table(name)?;
        let alias = match &insert.table_alias {
            Some(alias) => folded(&alias.alias),
            None => self.standing.settings.table_alias(schema.name()),
        };
        let targets = Targets::find(&insert.columns, &schema, self.local_defaults(&schema))?;
        let (source, width) = self.insert_source(insert.source.as_deref(), &targets)?;
        let Targets { mut places, mut locals, .. } = targets;
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
        let numbers = |column: &Column| overriding == Some(Overriding::User) && column.identity().is_some();
        let numbered = schema.columns().iter().enumerate();
        let numbered = numbered.filter(|(place, column)| !places.contains(place) || numbers(column));
        let numbered = numbered.filter_map(|(place, column)| match column.default_value() {
            ropewalk::tables::DefaultValue::Next(sequence) => Some((place, *sequence)),
            _ => Some((place, column.sequence()?)),
        });
        let (numbered, given) = (numbered.collect(), self.standing.given.clone());
        let locals = locals.into_iter().map(|(_, now)| now).collect();
        Ok(Insert {
            table,
            schema,
            places,
            source,
            locals,
            on_conflict,
            returning,
            numbered,
            given,
            overriding,
        })
    }

    /// Plans the rows of an INSERT. Returns them with the number of values in each.
    pub(crate) fn insert_source(
        &mut self,
        query: Option<&ast::Query>,
        targets: &Targets<'_>,
    ) -> Result<(Source, usize)> {
        // DEFAULT VALUES
        let Some(query) = query else { return Ok((Source::Values(vec![Vec::new()]), 0)) };
        match query.body.as_ref() {
            ast::SetExpr::Values(values) if query.order_by.is_none() && query.limit_clause.is_none() => {
                self.insert_values(query, values, targets)
            }
            _ => match self.rows_of(query)? {
                Rows::Found(planned) => self.insert_found(query, planned, targets),
                Rows::ByKeys(select) => self.insert_selected(select, targets),
            },
        }
    }

    /// Binds the rows of VALUES.
    fn insert_values(
        &mut self,
        query: &ast::Query,
        values: &ast::Values,
        targets: &Targets<'_>,
    ) -> Result<(Source, usize)> {
        let plain = INSERT.as_ref().and_then(|empty| empty.source.as_deref());
        let mut bare = query.clone();
        if let Some(plain) = plain {
            bare.body.clone_from(&plain.body);
        }
        nothing_else(&bare, plain)?;
        let nothing = Scope::default();
        let mut width = targets.places.len();
        let mut rows = Vec::new();
        for row in &values.rows {
            targets.check_arity(row.content.len())?;
            width = row.content.len();
            let given: Result<Vec<Given>> = (row.content.iter().zip(&targets.places))
                .map(|(expr, place)| match targets.locals.iter().find(|(local, _)| local == place) {
                    Some((_, now)) if is_default(expr) => Ok(Given::Expr(now.clone())),
                    _ => self.given_for(expr, targets.column(*place)?, &nothing, "VALUES"),
                })
                .collect();
            rows.push(given?);
        }
        if rows.iter().any(|row| row.len() != width) {
            let message = "VALUES lists must all be the same length";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        Ok((Source::Values(rows), width))
    }

    /// Checks that rows which are computed before can be assigned, and determines which values need a cast.
    fn insert_found(
        &mut self,
        query: &ast::Query,
        planned: Finder,
        targets: &Targets<'_>,
    ) -> Result<(Source, usize)> {
        let width = planned.columns().len();
        targets.check_arity(width)?;
        let nothing = Scope::default();
        let mut types = Vec::new();
        for (number, (column, place)) in planned.columns().iter().zip(&targets.places).enumerate() {
            let target = targets.column(*place)?;
            let is_open = is_open(query, number);
            if !is_open {
                // Checks only that the column can be assigned; the cast is applied to the values.
                let typed = Typed::new(Expr::Column(0), column.ty);
                self.assigned(typed, target, &nothing)?;
            }
            types.push((target.1, is_open || target.1 != column.ty));
        }
        Ok((Source::Whole(planned, types), width))
    }

    /// Casts the output of a query by keys to the types of the target columns.
    fn insert_selected(&mut self, mut select: Box<Select>, targets: &Targets<'_>) -> Result<(Source, usize)> {
        let width = select.columns.len();
        targets.check_arity(width)?;
        let nothing = Scope::default();
        let mut output = Vec::new();
        for ((expr, column), place) in select.output.into_iter().zip(&select.columns).zip(&targets.places) {
            // A literal in the select list was bound as text; it can still take the type of the column.
            let literal = matches!(expr, Expr::Const(Value::Text(_) | Value::Null));
            let typed = Typed { expr, ty: (!literal).then_some(column.ty) };
            output.push(self.assigned(typed, targets.column(*place)?, &nothing)?);
        }
        select.output = output;
        Ok((Source::Select(select), width))
    }

    /// The rows of a query, without casts.
    pub(crate) fn source_of(&mut self, query: &ast::Query) -> Result<Source> {
        Ok(match self.rows_of(query)? {
            Rows::ByKeys(select) => Source::Select(select),
            Rows::Found(found) => {
                let types = found.columns().iter().map(|column| (column.ty, false)).collect();
                Source::Whole(found, types)
            }
        })
    }

    /// Plans the query of an INSERT, by keys if possible. Rows of a writing WITH have no keys yet.
    fn rows_of(&mut self, query: &ast::Query) -> Result<Rows> {
        if let Some(finder) = self.forced(|planner| Finder::plan(query, planner).map(Some))? {
            return Ok(Rows::Found(finder));
        }
        if !self.chained {
            match self.query(query) {
                Ok(select) => return Ok(Rows::ByKeys(Box::new(select))),
                Err(error) if may_serve(&error) => {}
                Err(error) => return Err(error),
            }
            self.subqueries.clear();
            self.outer.clear();
        }
        Finder::plan(query, self).map(Rows::Found)
    }

    /// Columns whose default is the current local time, in a time zone other than UTC.
    fn local_defaults(&self, schema: &Schema) -> Vec<(usize, Expr)> {
        if self.standing.settings.zone.is_utc() {
            return Vec::new();
        }
        let shows_clock = |(place, column): (usize, &ropewalk::tables::Column)| {
            let is_now = *column.default_value() == ropewalk::tables::DefaultValue::Now;
            let ty = column.column_type();
            let now = Box::new(Expr::Call(crate::expr::function::Function::Now, Vec::new()));
            (is_now && ty != Type::TIMESTAMPTZ).then_some((place, Expr::Cast(now, ty)))
        };
        schema.columns().iter().enumerate().filter_map(shows_clock).collect()
    }

    fn on_conflict(&mut self, on: &ast::OnConflict, schema: &Schema, scope: &Scope) -> Result<OnConflict> {
        let all = unique_targets(schema);
        let at_once = |target: Target| match target.is_deferrable {
            false => Ok(target),
            true => {
                let message = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
                Err(SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
            }
        };
        let none = || {
            SqlError::new(
                state::INVALID_COLUMN_REFERENCE,
                "there is no unique or exclusion constraint matching the ON CONFLICT specification",
            )
        };
        let targets = match &on.conflict_target {
            None => all.into_iter().filter(|target| !target.is_deferrable).collect(),
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
                // Another constraint on the same columns may be checked at once.
                let (deferrable, others): (Vec<_>, Vec<_>) =
                    all.into_iter().filter(same).partition(|target| target.is_deferrable);
                vec![at_once(others.into_iter().chain(deferrable).next().ok_or_else(none)?)?]
            }
            Some(ast::ConflictTarget::OnConstraint(name)) => {
                let names = parts(name)?;
                let key_name = schema.key_name().to_owned();
                let named =
                    |target: &Target| names.last() == Some(target.index.as_ref().unwrap_or(&key_name));
                vec![at_once(all.into_iter().find(named).ok_or_else(|| {
                    let message = format!(
                        "constraint \"{name}\" for table \"{}\" does not exist",
                        schema.unqualified_name()
                    );
                    SqlError::new(state::UNDEFINED_OBJECT, message)
                })?)?]
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
                both.add_qualified("excluded", columns_of(schema))?;
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
        for (place, value) in assignments_of(assignments, &|name| column_place(schema, name))? {
            set.push((place, self.given(&value, schema, place, scope, "UPDATE")?));
        }
        Ok(set)
    }

    /// The single table of an UPDATE or DELETE, and its rows that satisfy `selection`.
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
        let (table, schema) = self.target_table(name)?;
        let mut scope = Scope::default();
        scope.add_table(
            alias_of(alias.as_ref())?.unwrap_or_else(|| self.standing.settings.table_alias(schema.name())),
            &schema,
        )?;
        let mut filter = Vec::new();
        match selection {
            None => {}
            Some(selection) => match self.current_of(selection, &schema)? {
                Some(key) => filter = key,
                None => split(Binder::new(self, &scope, "WHERE").condition(selection)?, &mut filter),
            },
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

/// True for a literal in a select list, which takes the type of its target column.
fn is_open(query: &ast::Query, number: usize) -> bool {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return false };
    let are_plain = |item: &ast::SelectItem| {
        matches!(item, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. })
    };
    let (Some(ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }), true) =
        (select.projection.get(number), select.projection.iter().take(number).all(are_plain))
    else {
        return false;
    };
    matches!(expr, ast::Expr::Value(value)
        if matches!(value.value, ast::Value::SingleQuotedString(_) | ast::Value::Null))
}

/// The place of a target column; a qualified name is rejected, as in PostgreSQL.
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
        let places = schema.key_columns().to_vec();
        targets.push(Target { index: None, places, is_deferrable: false, nulls_equal: false });
    }
    for known in schema.indexes().iter().filter(|index| index.is_unique() && index.filter().is_none()) {
        let place = |column: &ropewalk::tables::IndexColumn| match column.expr {
            TableExpr::Column(ColumnRef::Id(id)) => {
                schema.columns().iter().position(|column| column.id() == id)
            }
            _ => None,
        };
        if let Some(places) = known.columns().iter().map(place).collect() {
            let (index, is_deferrable) = (Some(known.name().to_owned()), known.deferral().is_deferrable());
            let nulls_equal = known.has_equal_nulls();
            targets.push(Target { index, places, is_deferrable, nulls_equal });
        }
    }
    targets
}
