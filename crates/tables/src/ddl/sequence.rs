//! The sequences of a table's columns: assign, replace, drop.

use crate::catalog::sequence_key;
use crate::error::{Result, TablesError};
use crate::schema::define::{DefaultValue, Identity};
use crate::value::types::Type;
use crate::write::tx::TablesTx;

impl TablesTx<'_> {
    /// Drops sequences that no table uses, when the transaction commits. Numbers drawn from them meanwhile
    /// are lost.
    pub fn drop_sequences(&mut self, sequences: impl IntoIterator<Item = u32>) {
        let catalog = self.tables.model.spaces().catalog;
        sequences
            .into_iter()
            .for_each(|sequence| self.kv.delete_unconditionally(catalog, &sequence_key(sequence)));
    }

    /// Makes a column an identity column, or a plain one again.
    ///
    /// # Errors
    /// The column is not an integer, or has a default; [`TablesError::UnknownTable`],
    /// [`TablesError::UnknownColumn`].
    pub fn set_identity(
        &mut self,
        table: &str,
        column: &str,
        identity: Option<(Identity, u32)>,
    ) -> Result<()> {
        self.alter(table, |_, schema, parts| {
            let place = schema.index_of(column)?;
            let column = parts.column_mut(place);
            let is_integer = matches!(column.ty, Type::INT2 | Type::INT4 | Type::INT8);
            if identity.is_some() && (!is_integer || column.default != DefaultValue::None || column.nullable)
            {
                let what =
                    format!("identity column {:?} is an integer, NOT NULL, without a default", column.name);
                return Err(TablesError::Definition { table: table.to_owned(), what });
            }
            column.identity = identity;
            Ok(())
        })
    }

    /// Makes an identity column, or one with a sequence as default, use another sequence.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn replace_sequence(&mut self, table: &str, old: u32, new: u32) -> Result<()> {
        self.alter(table, |_, _, parts| {
            for column in &mut parts.columns {
                if let Some((_, sequence)) = column.identity.as_mut().filter(|(_, known)| *known == old) {
                    *sequence = new;
                }
                if column.default == DefaultValue::Next(old) {
                    column.default = DefaultValue::Next(new);
                }
            }
            Ok(())
        })
    }
}
