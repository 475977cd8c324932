//! Relations that a statement cannot write: views, sequences, catalogs, tables of definitions, and those of other
//! models where only a table is possible. Errors name the alternative.

use std::sync::Arc;

use ropewalk::tables::{Schema, Table};
use sqlparser::ast;

use crate::access::rights::Acting;
use crate::access::row_source::Access;
use crate::catalog;
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::exec::relations::models::ModelRelation;
use crate::plan::Planner;
use crate::syntax::names::parts;

impl Planner<'_> {
    /// The target table of a writing statement.
    ///
    /// # Errors
    /// 0A000 for a relation that is no table; 42501 for a table of definitions.
    pub(crate) fn target_table(&mut self, name: &ast::ObjectName) -> Result<(Table, Arc<Schema>)> {
        match self.table(name) {
            Err(error) if error.state == state::UNDEFINED_TABLE => {
                Err(self.why_not_written(name)?.unwrap_or(error))
            }
            Ok((table, schema)) => {
                check_no_definitions(schema.name())?;
                Ok((table, schema))
            }
            Err(error) => Err(error),
        }
    }

    fn why_not_written(&mut self, name: &ast::ObjectName) -> Result<Option<SqlError>> {
        if let Ok(kept) = self.kept_name(name) {
            if crate::access::views::find(&mut self.access, &kept)?.is_some() {
                let what = format!("writing through the view \"{name}\"");
                return Ok(Some(SqlError::unsupported(what, "write to the tables that the view reads")));
            }
            if crate::access::sequences::find(&mut self.access, &self.standing.created, &kept)?.is_some() {
                let error =
                    SqlError::new(state::WRONG_OBJECT_TYPE, format!("cannot change sequence \"{name}\""));
                return Ok(Some(error.hint("use nextval, setval or ALTER SEQUENCE")));
            }
        }
        let parts = parts(name)?;
        if crate::catalog::is_relation(&parts) {
            let message = format!("permission denied: \"{name}\" is a system catalog");
            let error = SqlError::new(state::INSUFFICIENT_PRIVILEGE, message);
            return Ok(Some(error.hint("use CREATE, ALTER, DROP and COMMENT ON")));
        }
        why_no_table(&parts, &mut self.access)
    }
}

impl Ddl<'_> {
    /// Returns the error, or a better one when one of the names is a relation of another model.
    pub(crate) fn explained(&mut self, names: Vec<&ast::ObjectName>, error: SqlError) -> SqlError {
        if error.state != state::UNDEFINED_TABLE && error.state != state::INVALID_SCHEMA_NAME {
            return error;
        }
        for name in names {
            let is_table = self.relation(name).and_then(|kept| self.exists(&kept)).unwrap_or(false);
            if !is_table
                && let Ok(parts) = parts(name)
                && let Ok(Some(why)) = why_no_table(&parts, &mut self.access())
            {
                return why;
            }
        }
        error
    }
}

/// Rejects writes to a table of definitions, by its stored name. Views and projections run what it says.
///
/// # Errors
/// 42501, whatever rights the caller has.
pub(crate) fn check_no_definitions(kept: &str) -> Result<()> {
    if !catalog::is_system_table(kept) {
        return Ok(());
    }
    let message = format!("permission denied: table \"{kept}\" stores definitions");
    Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message).hint("use CREATE, ALTER, DROP and COMMENT ON"))
}

fn why_no_table(parts: &[String], access: &mut Access<'_>) -> Result<Option<SqlError>> {
    let relation = ModelRelation::find(parts, true, access, &Acting::default())?;
    Ok(relation.map(|relation| relation.not_written()))
}
