//! Stored views.

use ropewalk::tables::Value;
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::syntax::parse;

/// The table that holds views: name, column names, query.
pub(crate) const VIEWS: &str = "ropewalk_views";

/// A stored view.
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
