//! Views: queries under names, kept as text in a table of ours; and CREATE TABLE AS.
//!
//! A view is planned anew wherever it is used, so it follows the definitions under it. What it reads may be dropped: then using it
//! is an error, not the dropping.

use ropewalk::tables::{ColumnDef, TableDef, Value};
use sqlparser::ast;

use crate::access::Access;
use crate::budget::{Budget, MEMORY_BYTES_MAX};
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::parse;
use crate::plan::Planner;
use crate::query::{Planned, prepare};
use crate::scope::{Params, folded, table_name};

/// The table that holds views: name, the names of columns, query.
pub(crate) const VIEWS: &str = "ropewalk_views";

/// A view as it is kept.
pub(crate) struct View {
    pub(crate) columns: Vec<String>,
    pub(crate) query: ast::Query,
}

/// The view of this name.
pub(crate) fn find(access: &mut Access<'_>, name: &str) -> Result<Option<View>> {
    let table = match access.table(VIEWS) {
        Ok((table, _)) => table,
        Err(error) if error.state == state::UNDEFINED_TABLE => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(row) = access.get(&table, &[Value::text(name)])? else { return Ok(None) };
    let damaged = || SqlError::new(state::DATA_CORRUPTED, format!("the view \"{name}\""));
    let (Value::Array(columns), Value::Text(query)) = (row.column("columns")?, row.column("query")?) else {
        return Err(damaged());
    };
    let columns = columns.iter().map(|item| match item {
        Ok(Value::Text(text)) => Ok(text.into_owned()),
        _ => Err(damaged()),
    });
    let columns = columns.collect::<Result<_>>()?;
    match parse::one(&query)? {
        parse::Statement::Sql(ast::Statement::Query(query)) => Ok(Some(View { columns, query: *query })),
        _ => Err(damaged()),
    }
}

fn planned(ddl: &mut Ddl<'_>, query: &ast::Query) -> Result<Planned> {
    let mut planner = Planner::new(Access::Transaction(ddl.db, ddl.transaction), Params::default());
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

pub(crate) fn create(ddl: &mut Ddl<'_>, create: &ast::CreateView) -> Result<()> {
    let plain = !create.materialized
        && !create.or_alter
        && !create.secure
        && !create.temporary
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
    let name = table_name(&create.name)?;
    let exists = |what: &str| {
        SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{name}\" already exists{what}"))
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
    let query = Value::text(create.query.to_string());
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

/// CREATE TABLE AS: a table of the query's columns, with its rows.
pub(crate) fn create_table_as(ddl: &mut Ddl<'_>, create: &ast::CreateTable) -> Result<()> {
    let Some(query) = &create.query else { return Err(crate::expr::bug("no query")) };
    let name = table_name(&create.name)?;
    let mut rest = create.clone();
    (rest.query, rest.if_not_exists) = (None, false);
    crate::ddl::nothing_but_a_table(&rest)?;
    if ddl.transaction.tables().table(&name).is_ok() {
        if create.if_not_exists {
            return Ok(());
        }
        let message = format!("relation \"{name}\" already exists");
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
    Ok(())
}
