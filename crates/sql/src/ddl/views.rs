//! Views, stored as query text in a system table; and CREATE TABLE AS.
//!
//! A view is planned again on every use, so it follows changes of the definitions that it reads. A relation
//! or column that a view reads can be dropped only with CASCADE, which drops the view.

use ropewalk::tables::{ColumnDef, PUBLIC, TableDef, Value, qualify, schema_and_name};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::access::views::{VIEWS, find};
use crate::catalog::{Written, with_relations};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::exec::analytic::{Planned, prepare};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::plan::Planner;
use crate::plan::bind::scope::Params;
use crate::syntax::names::{folded, own, table_name};

fn planned(ddl: &mut Ddl<'_>, query: &ast::Query) -> Result<Planned> {
    let (settings, created) = (ddl.settings.clone(), ddl.created.clone());
    let standing = Standing { settings, created, ..Standing::default() };
    let mut planner =
        Planner::beside(Access::Transaction(ddl.db, ddl.transaction), Params::default(), standing);
    let planned = prepare(query, &mut planner)?;
    if !planner.params.finished().is_empty() {
        return Err(SqlError::new(state::UNDEFINED_PARAMETER, "there are no parameters in a definition"));
    }
    Ok(planned)
}

fn names(planned: &Planned, given: Vec<String>) -> Result<Vec<String>> {
    if given.len() > planned.columns.len() {
        return Err(SqlError::new(state::SYNTAX_ERROR, "more column names than columns"));
    }
    let own = planned.columns.iter().skip(given.len()).map(|column| column.name.clone());
    let names: Vec<String> = given.iter().cloned().chain(own).collect();
    for (place, name) in names.iter().enumerate() {
        if names.iter().skip(place + 1).any(|other| other == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
        }
    }
    Ok(names)
}

impl Ddl<'_> {
    /// The query text to store: relations are qualified with their schemas, except those in public.
    fn settled(&mut self, query: &ast::Query) -> Result<String> {
        let settings = self.settings.clone();
        let mut access = self.access();
        if crate::access::schemas::path(&mut access, &settings)? == [PUBLIC] {
            return Ok(query.to_string());
        }
        let mut failed = None;
        let text = with_relations(query, &mut |schema, name| {
            let None = schema else { return None };
            match crate::access::schemas::relation(&mut access, &settings, &[], name) {
                Ok((kept, _)) => match schema_and_name(&kept).0 {
                    PUBLIC | "" => None,
                    _ => Some(Written::of(&kept)),
                },
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(text),
        }
    }

    /// Rewrites the views that read from a renamed schema.
    pub(crate) fn follow_schema(&mut self, old: &str, new: &str) -> Result<()> {
        for view in crate::catalog::all_views(&mut self.access())? {
            let mut reads = false;
            let text = with_relations(&view.query, &mut |schema, name| {
                let is_it = schema == Some(old);
                reads |= is_it;
                is_it.then(|| Written::of(&qualify(new, name)))
            });
            if reads {
                self.rewrite(&view.name, &view.name, &text)?;
            }
        }
        Ok(())
    }

    /// Rewrites the views that read a renamed relation.
    pub(crate) fn follow(&mut self, old: &str, new: &str) -> Result<()> {
        for view in crate::catalog::all_views(&mut self.access())? {
            let mut reads = false;
            let text = with_relations(&view.query, &mut |schema, name| {
                let is_it = qualify(schema.unwrap_or(PUBLIC), name) == old;
                reads |= is_it;
                is_it.then(|| Written::of(new))
            });
            if reads {
                self.rewrite(&view.name, &view.name, &text)?;
            }
        }
        Ok(())
    }

    /// Renames a view.
    pub(crate) fn rename_view(&mut self, old: &str, new: &str) -> Result<()> {
        let view = find(&mut self.access(), old)?;
        let view = view
            .ok_or_else(|| SqlError::new(state::UNDEFINED_TABLE, format!("view \"{old}\" does not exist")))?;
        self.rewrite(old, new, &view.query.to_string())
    }

    fn rewrite(&mut self, old: &str, new: &str, query: &str) -> Result<()> {
        let mut tables = self.transaction.tables();
        let table = tables.table(VIEWS)?;
        let row = tables.get(&table, &[Value::text(old)])?;
        let row = row.ok_or_else(|| crate::expr::bug("a view"))?;
        let columns = row.column("columns")?.into_owned();
        tables.delete(&table, &[Value::text(old)])?;
        let (name, query) = (Value::text(new), Value::text(query));
        tables.insert(&table, &[("name", name), ("columns", columns), ("query", query)])?;
        Ok(())
    }
}

pub(crate) fn create(ddl: &mut Ddl<'_>, create: &ast::CreateView) -> Result<()> {
    if create.materialized {
        let hint = "CREATE VIEW reads the tables on each use; CREATE TABLE ... AS stores the current rows";
        return Err(SqlError::unsupported("a materialized view", hint));
    }
    if create.temporary {
        let hint = "CREATE VIEW makes one that every session sees; WITH defines one for a single statement";
        return Err(SqlError::unsupported("a temporary view", hint));
    }
    let plain = !create.or_alter
        && !create.secure
        && !create.with_no_schema_binding
        && create.cluster_by.is_empty()
        && create.comment.is_none()
        && create.to.is_none()
        && create.params.is_none()
        && create.options == ast::CreateTableOptions::None
        && create.columns.iter().all(|column| column.data_type.is_none() && column.options.is_none());
    if !plain {
        return Err(SqlError::unsupported(create, "CREATE [OR REPLACE] VIEW name [(columns)] AS query"));
    }
    let name = ddl.fresh(&table_name(&create.name)?)?;
    let exists = |what: &str| {
        SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{}\" already exists{what}", own(&name)))
    };
    let mut access = Access::Transaction(ddl.db, ddl.transaction);
    if access.table(&name).is_ok() {
        return Err(exists(" as a table"));
    }
    let known = find(&mut access, &name)?.is_some();
    if known && create.if_not_exists {
        return Ok(());
    }
    if known && !create.or_replace {
        return Err(exists(""));
    }
    let planned = planned(ddl, &create.query)?;
    let columns = names(&planned, create.columns.iter().map(|column| folded(&column.name)).collect())?;
    let query = ddl.settled(&create.query)?;
    let mut tables = ddl.transaction.tables();
    let table = match tables.table(VIEWS) {
        Ok(table) => table,
        Err(_) => tables.create_table(
            TableDef::new(VIEWS)
                .column(ColumnDef::new("name", ropewalk::tables::Type::TEXT))
                .column(ColumnDef::new("columns", ropewalk::tables::Type::TEXT.array()).not_null())
                .column(ColumnDef::new("query", ropewalk::tables::Type::TEXT).not_null())
                .primary_key(["name"]),
        )?,
    };
    if known {
        tables.delete(&table, &[Value::text(name.as_str())])?;
    }
    let columns = ropewalk::tables::Array::new(
        ropewalk::tables::Scalar::Text,
        columns.iter().map(|c| Value::text(c.as_str())),
    )
    .map_err(|error| crate::expr::bug(&error.to_string()))?;
    let query = Value::text(query);
    tables.insert(
        &table,
        &[("name", Value::text(name.as_str())), ("columns", Value::Array(columns)), ("query", query)],
    )?;
    Ok(())
}

pub(crate) fn drop(ddl: &mut Ddl<'_>, name: &str, if_exists: bool) -> Result<()> {
    let mut access = Access::Transaction(ddl.db, ddl.transaction);
    if find(&mut access, name)?.is_none() {
        if if_exists {
            return Ok(());
        }
        return Err(SqlError::new(state::UNDEFINED_TABLE, format!("view \"{name}\" does not exist")));
    }
    let (table, _) = access.table(VIEWS)?;
    ddl.transaction.tables().delete(&table, &[Value::text(name)])?;
    ddl.uncomment(Some("view"), 0, Some(name))
}

/// CREATE TABLE AS. Returns the number of rows; `None` if IF NOT EXISTS finds a table.
pub(crate) fn create_table_as(ddl: &mut Ddl<'_>, create: &ast::CreateTable) -> Result<Option<u64>> {
    let Some(query) = &create.query else { return Err(crate::expr::bug("no query")) };
    let name = ddl.fresh(&table_name(&create.name)?)?;
    let mut rest = create.clone();
    (rest.query, rest.if_not_exists) = (None, false);
    crate::ddl::nothing_but_a_table(&rest)?;
    if ddl.transaction.tables().table(&name).is_ok() {
        if create.if_not_exists {
            let message = format!("relation \"{}\" already exists, skipping", own(&name));
            ddl.notice = Some(SqlError::new(state::DUPLICATE_TABLE, message));
            return Ok(None);
        }
        let message = format!("relation \"{}\" already exists", own(&name));
        return Err(SqlError::new(state::DUPLICATE_TABLE, message));
    }
    let planned = planned(ddl, query)?;
    let names = names(&planned, Vec::new())?;
    let mut def = TableDef::new(name.as_str());
    for (name, column) in names.iter().zip(&planned.columns) {
        def = def.column(ColumnDef::new(name.as_str(), column.ty));
    }
    let table = ddl.transaction.tables().create_table(def)?;
    ddl.created.push(name);
    let (mut records, budget) = (Vec::new(), Budget::new(MEMORY_BYTES_MAX));
    planned.query.run(
        &[],
        &mut Access::Transaction(ddl.db, ddl.transaction),
        &ddl.cx,
        &budget,
        &mut |row| {
            budget.take_row(&row)?;
            records.push(row);
            Ok(true)
        },
    )?;
    let rows: Vec<Vec<(&str, Value<'_>)>> = records
        .iter()
        .map(|row| names.iter().map(String::as_str).zip(row.iter().map(Value::borrowed)).collect())
        .collect();
    let rows: Vec<&[(&str, Value<'_>)]> = rows.iter().map(Vec::as_slice).collect();
    ddl.transaction.tables().insert_many(&table, &rows)?;
    Ok(Some(rows.len() as u64))
}
