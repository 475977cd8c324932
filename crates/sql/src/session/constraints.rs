//! SET CONSTRAINTS: when the deferrable constraints of the open transaction are checked.

use ropewalk::tables::{TablesRead, schema_and_name};

use crate::access::row_source::Access;
use crate::access::{schemas, sequences};
use crate::error::{Result, SqlError, state};
use crate::session::Session;
use crate::syntax::statements::SetConstraints;
use crate::types::outcome::Outcome;

const COMMAND: &str = "SET CONSTRAINTS";

impl Session {
    pub(crate) fn set_constraints(&mut self, statement: &SetConstraints) -> Result<Outcome> {
        let SetConstraints { names, defers } = statement;
        let (db, settings) = (self.db.clone(), self.settings.clone());
        let Some(open) = self.open.as_deref_mut() else {
            let message = format!("{COMMAND} can only be used in transaction blocks");
            let notice = SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message);
            return Ok(Outcome { notice: Some(notice), ..Outcome::of(COMMAND) });
        };
        open.has_run = true;
        open.transaction.begin_statement();
        let Some(names) = names else {
            open.transaction.tables().defer_all(*defers)?;
            return Ok(Outcome::of(COMMAND));
        };
        let mut found = Vec::new();
        for (schema, name) in names {
            let mut access = Access::Transaction(&db, &mut open.transaction);
            let schemas = match schema {
                Some(schema) => vec![schema.clone()],
                None => schemas::path(&mut access, &settings)?,
            };
            let tables = sequences::tables_of(&access, &open.created)?;
            found.extend(constraints(&mut open.transaction, &schemas, &tables, name)?);
        }
        for (table, name) in found {
            open.transaction.tables().defer(&table, &name, *defers)?;
        }
        Ok(Outcome::of(COMMAND))
    }
}

/// The tables that have a constraint of this name, in the first schema with one.
///
/// # Errors
/// 42704: without one; 42809: one of them is not deferrable.
fn constraints(
    transaction: &mut ropewalk::Transaction,
    schemas: &[String],
    tables: &[String],
    name: &str,
) -> Result<Vec<(String, String)>> {
    for schema in schemas {
        let mut found = Vec::new();
        for table in tables.iter().filter(|table| schema_and_name(table).0 == schema) {
            let mut tables = transaction.tables();
            // Renamed or dropped by this transaction.
            let Ok(handle) = tables.table(table) else { continue };
            match tables.schema(&handle)?.deferral_of(name) {
                Some(deferral) if !deferral.is_deferrable() => {
                    let message = format!("constraint \"{name}\" is not deferrable");
                    return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message));
                }
                Some(_) => found.push((table.clone(), name.to_owned())),
                None => {}
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let message = format!("constraint \"{name}\" does not exist");
    Err(SqlError::new(state::UNDEFINED_OBJECT, message))
}
