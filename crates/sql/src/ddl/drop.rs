//! DROP TABLE and TRUNCATE, with what refers to the tables.

use ropewalk::tables::TablesError;
use sqlparser::ast;

use super::{Ddl, dependent, unsupported};
use crate::error::{Result, SqlError, state};

impl Ddl<'_> {
    /// Drops the foreign keys that keep tables from going: those among them, and with CASCADE those of others.
    pub(super) fn part(&mut self, names: &[String], cascades: bool) -> Result<()> {
        if names.len() < 2 && !cascades {
            return Ok(());
        }
        let mut going = Vec::new();
        for name in names {
            if self.exists(name)? {
                going.push(self.schema(name)?.id());
            }
        }
        for table in self.tables()? {
            let schema = self.schema(&table)?;
            if !cascades && !going.contains(&schema.id()) {
                continue;
            }
            let others = schema.foreign_keys().iter().filter(|key| key.parent() != schema.id());
            for key in others.filter(|key| going.contains(&key.parent())) {
                self.uncomment(Some("constraint"), i64::from(schema.id()), Some(key.name()))?;
                self.transaction.tables().drop_constraint(schema.name(), key.name())?;
            }
        }
        Ok(())
    }

    pub(super) fn drop_table(&mut self, name: &str, if_exists: bool) -> Result<()> {
        if if_exists && !self.exists(name)? {
            return Ok(());
        }
        let id = if self.exists(name)? { Some(self.schema(name)?.id()) } else { None };
        self.transaction.tables().drop_table(name).map_err(dependent)?;
        if let Some(id) = id {
            self.uncomment(None, i64::from(id), None)?;
            self.drop_owned(id, None)?;
        }
        self.created.retain(|created| created != name);
        Ok(())
    }

    pub(super) fn truncate(&mut self, truncate: &ast::Truncate) -> Result<()> {
        let ast::Truncate {
            table_names,
            partitions: None,
            table: _,
            if_exists: false,
            identity,
            cascade,
            on_cluster: None,
        } = truncate
        else {
            return Err(unsupported(truncate));
        };
        let restart = *identity == Some(ast::TruncateIdentityOption::Restart);
        let names: Vec<String> =
            table_names.iter().map(|target| self.relation(&target.name)).collect::<Result<_>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let cascades = *cascade == Some(ast::CascadeOption::Cascade);
        let truncated = self.transaction.tables().truncate_all(&names, restart, cascades);
        let truncated = truncated.map_err(|error| match error {
            TablesError::Dependent { .. } => {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(
                    "truncate the table that refers to it at the same time, or use TRUNCATE ... CASCADE",
                )
            }
            other => other.into(),
        })?;
        for schema in truncated.iter().filter(|_| restart) {
            self.restart_owned(schema.id())?;
        }
        Ok(())
    }
}
