//! A primary key for a table that has rows: all of them, and their index entries, move into new objects in its order.
//!
//! Small tables move within the transaction; larger ones through runs beside the log, as a load does (`loader`). Either way
//! it is a statement of the transaction, which may roll back, and which conflicts with whoever writes to the table meanwhile.

use std::sync::Arc;

use crate::catalog::object_range;
use crate::ddl::{column_ids, invalid};
use crate::error::TablesError;
use crate::load::LoadOptions;
use crate::loader::Loader;
use crate::read::TablesRead;
use crate::row::Row;
use crate::schema::Schema;
use crate::tx::TablesTx;

/// Rows that are read at a time.
const BATCH: usize = 1024;

impl TablesTx<'_> {
    /// Makes `columns` the primary key of a table that has none; they become NOT NULL. Cost: every row is written anew.
    ///
    /// # Errors
    /// The table has a primary key; rows have NULL there, or the same values.
    pub fn add_primary_key(
        &mut self,
        table: &str,
        name: Option<&str>,
        columns: &[String],
    ) -> Result<(), TablesError> {
        self.ddl(|tx| {
            let old = tx.known(table)?;
            tx.guard_schema(&old);
            let mut parts = old.parts.clone();
            let Some(numbers) = parts.rowid.take() else {
                return Err(invalid(table, "multiple primary keys are not allowed"));
            };
            parts.key = column_ids(&parts, columns)?;
            if let Some(name) = name {
                parts.key_name = name.to_owned();
            }
            for column in parts.columns.iter_mut().filter(|column| parts.key.contains(&column.id)) {
                column.nullable = false;
                if !column.ty.is_ordered() {
                    let what =
                        format!("column {:?} of type {} cannot be part of a key", column.name, column.ty);
                    return Err(invalid(table, what));
                }
            }
            parts.renew_layout().map_err(|what| invalid(table, what))?;
            let new = Arc::new(Schema::new(parts.clone()));
            let mut loader = Loader::new(tx, new, LoadOptions::default(), false)?;
            tx.move_rows(&old, &mut loader)?;
            loader.finish(tx, Some(parts))?;
            tx.drop_sequences([numbers]);
            Ok(())
        })
    }

    fn move_rows(&mut self, old: &Arc<Schema>, loader: &mut Loader) -> Result<(), TablesError> {
        // At commit there must be no other rows than those that were read.
        self.is_empty(old)?;
        let (start, end) = object_range(old.parts.rows);
        let end = end.as_ref().map(<[u8; 4]>::as_slice);
        let mut next = start.to_vec();
        let new = loader.schema().clone();
        loop {
            let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(BATCH);
            self.walk(&next, end, false, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                rows.len() < BATCH
            })?;
            for (key, value) in &rows {
                loader.take(self, &new, &Row::new(old, key, value).values()?)?;
            }
            if rows.len() < BATCH {
                return Ok(());
            }
            if let Some((last, _)) = rows.pop() {
                next = last;
                next.push(0);
            }
        }
    }
}
