//! Changes of how the values of a column are generated: identity columns and generated columns.

use ropewalk::tables::Identity;

use super::Ddl;
use crate::error::{Result, SqlError, state};
use crate::syntax::names::own;
use crate::syntax::statements::{AlterGeneration, GenerationChange};

impl Ddl<'_> {
    /// ALTER TABLE ... ALTER COLUMN ... SET GENERATED, DROP IDENTITY and DROP EXPRESSION.
    pub(super) fn alter_generation(&mut self, statement: &AlterGeneration) -> Result<()> {
        let AlterGeneration { table, if_exists, column, change } = statement;
        let table = match self.meant(table) {
            Err(error) if *if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(()),
            found => found?,
        };
        if *if_exists && !self.exists(&table)? {
            return Ok(());
        }
        let schema = self.schema(&table)?;
        let known = schema.index_of(column).map(|place| schema.columns().get(place))?;
        let sequence = known.and_then(|known| known.sequence());
        let is_not = |kind: &str| {
            let message = format!("column \"{column}\" of relation \"{}\" is not {kind} column", own(&table));
            SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        };
        match (*change, sequence) {
            (GenerationChange::SetGenerated { always }, Some(sequence)) => {
                let identity = if always { Identity::Always } else { Identity::ByDefault };
                self.transaction.tables().set_identity(&table, column, Some((identity, sequence)))?;
            }
            (GenerationChange::DropIdentity { .. }, Some(sequence)) => {
                let mut tables = self.transaction.tables();
                tables.set_identity(&table, column, None)?;
                tables.drop_sequences([sequence]);
            }
            (GenerationChange::DropIdentity { if_exists: true }, None) => {
                let error = is_not("an identity");
                self.note(format!("{}, skipping", error.message));
            }
            (GenerationChange::SetGenerated { .. } | GenerationChange::DropIdentity { .. }, None) => {
                return Err(is_not("an identity"));
            }
            (GenerationChange::DropExpression { if_exists }, _) => {
                if !self.transaction.tables().drop_expression(&table, column)? {
                    let error = is_not("a stored generated");
                    if !if_exists {
                        return Err(error);
                    }
                    self.note(format!("{}, skipping", error.message));
                }
            }
        }
        Ok(())
    }
}
