//! Changes that rewrite every row: a primary key for a table that has rows, and another type for a column.
//! Rows and their index entries move into new objects.
//!
//! Small tables move within the transaction; larger ones through runs that bypass the log, as in a load
//! (`load::loader`). Either way it is a statement of the transaction, which may roll back, and which
//! conflicts with concurrent writes to the table.

use std::sync::Arc;

use ropewalk_engine::KeySpan;

use crate::catalog::object_range;
use crate::ddl::column_ids;
use crate::error::{Result, TablesError, invalid};
use crate::load::LoadOptions;
use crate::load::loader::Loader;
use crate::read::TablesRead;
use crate::row::Row;
use crate::schema::Schema;
use crate::value::Value;
use crate::value::expr::{ColumnRef, Expr};
use crate::value::types::Type;
use crate::write::tx::TablesTx;

/// Whether an index's condition reads a column.
fn of_filter(id: u16) -> impl Fn(&Expr) -> bool {
    move |filter| filter.reads(id)
}

/// Rows read at a time.
const BATCH: usize = 1024;

impl TablesTx<'_> {
    /// Makes `columns` the primary key of a table that has none; they become NOT NULL. Cost: every row is
    /// rewritten.
    ///
    /// # Errors
    /// The table has a primary key; rows have NULL there, or equal values.
    pub fn add_primary_key(&mut self, table: &str, name: Option<&str>, columns: &[String]) -> Result<()> {
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
            parts.forbid_null_in_key().map_err(|what| invalid(table, what))?;
            parts.renew_layout().map_err(|what| invalid(table, what))?;
            let new = Arc::new(Schema::new(parts.clone()));
            let mut loader = Loader::new(tx, new, LoadOptions::default(), false)?;
            tx.move_rows(&old, &mut loader, &mut |_| Ok(()))?;
            loader.finish(tx, Some(parts))?;
            tx.drop_sequences([numbers]);
            Ok(())
        })
    }

    /// Changes the type of a column, and removes its precision. `change` converts the value of a row, or
    /// returns `None` to stop. The default must be absent or of the new type: change it before. Cost: every
    /// row is rewritten.
    ///
    /// # Errors
    /// The column is part of a foreign key, a check or an index's expression; an identity column of a type
    /// that is not an integer; `change` stopped; rows that violate NOT NULL or uniqueness.
    pub fn set_type(
        &mut self,
        table: &str,
        column: &str,
        ty: Type,
        change: &mut dyn FnMut(&[Value<'_>]) -> Option<Value<'static>>,
    ) -> Result<()> {
        self.ddl(|tx| {
            let old = tx.known(table)?;
            tx.guard_schema(&old);
            let place = old.index_of(column)?;
            let mut parts = old.parts.clone();
            let (id, nullable) = (old.column_at(place)?.id, old.column_at(place)?.nullable);
            tx.may_change(&old, id, ty).map_err(|what| invalid(table, what))?;
            let labels = tx.labels_of(table, ty)?;
            for known in parts.columns.iter_mut().filter(|known| known.id == id) {
                known.ty = ty;
                known.labels.clone_from(&labels);
                known.missing = Value::Null;
                known.precision = None;
            }
            let plain = Expr::Column(ColumnRef::Id(id));
            let indexed = parts.indexes.iter_mut().flat_map(|index| &mut index.columns);
            indexed.filter(|indexed| indexed.expr == plain).for_each(|indexed| indexed.ty = ty);
            parts.renew_layout().map_err(|what| invalid(table, what))?;
            let new = Arc::new(Schema::new(parts.clone()));
            let mut loader = Loader::new(tx, new, LoadOptions::default(), false)?;
            tx.move_rows(&old, &mut loader, &mut |values| {
                let stopped = || invalid(table, format!("column {column:?} cannot become {ty} in every row"));
                let value = change(values).ok_or_else(stopped)?;
                if value.is_null() && !nullable {
                    return Err(TablesError::NotNull { table: table.to_owned(), column: column.to_owned() });
                }
                *values.get_mut(place).expect("a row has a value for each column") = value;
                Ok(())
            })?;
            loader.finish(tx, Some(parts))
        })
    }

    /// The reason why a column cannot get another type, if any, as the error.
    fn may_change(&mut self, schema: &Schema, id: u16, ty: Type) -> Result<(), String> {
        let plain = Expr::Column(ColumnRef::Id(id));
        let parts = &schema.parts;
        let name = parts.columns.iter().find(|column| column.id == id).map_or("", |column| &column.name);
        let refers = parts.foreign_keys.iter().any(|key| key.columns().contains(&id));
        let mut is_referred = false;
        for other in parts.referenced_by.iter().chain([&parts.id]) {
            let other = self.schema_by_id(*other).map_err(|error| error.to_string())?;
            let mut keys = other.foreign_keys().iter().filter(|key| key.parent() == parts.id);
            is_referred |= keys.any(|key| key.parent_columns().contains(&id));
        }
        if refers || is_referred {
            return Err(format!("column {name:?} is part of a foreign key: drop that first"));
        }
        if let Some(check) = parts.checks.iter().find(|check| check.expr().reads(id)) {
            return Err(format!("column {name:?} is part of the check {:?}: drop that first", check.name()));
        }
        let computes = |index: &&crate::schema::Index| {
            let of_column = |expr: &Expr| *expr != plain && expr.reads(id);
            index.columns().iter().any(|column| of_column(&column.expr))
                || index.filter().is_some_and(of_filter(id))
        };
        if let Some(index) = parts.indexes.iter().find(computes) {
            return Err(format!(
                "column {name:?} is part of an expression of {:?}: drop that first",
                index.name()
            ));
        }
        let column = parts.columns.iter().find(|column| column.id == id);
        if column.is_some_and(|column| column.identity.is_some())
            && !matches!(ty, Type::INT2 | Type::INT4 | Type::INT8)
        {
            return Err(format!("column {name:?} numbers its rows, and {ty} is no integer"));
        }
        let is_in_index =
            parts.indexes.iter().flat_map(|index| &index.columns).any(|column| column.expr == plain);
        if (parts.key.contains(&id) || is_in_index) && !ty.is_ordered() {
            return Err(format!("column {name:?} of type {ty} cannot be part of a key"));
        }
        Ok(())
    }

    /// Passes all rows to the loader, converted by `each`.
    fn move_rows(
        &mut self,
        old: &Arc<Schema>,
        loader: &mut Loader,
        each: &mut dyn FnMut(&mut Vec<Value<'_>>) -> Result<()>,
    ) -> Result<()> {
        // At commit there must be no rows other than those that were read.
        self.is_empty(old)?;
        let (start, end) = object_range(old.parts.rows);
        let end = end.as_ref().map(<[u8; 4]>::as_slice);
        let mut next = start.to_vec();
        let new = loader.schema().clone();
        loop {
            let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(BATCH);
            self.walk_rows(KeySpan::forward(&next, end), &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                rows.len() < BATCH
            })?;
            for (key, value) in &rows {
                let mut values = Row::new(old, key, value).values()?;
                each(&mut values)?;
                loader.take(self, &new, &values)?;
            }
            if rows.len() < BATCH {
                return Ok(());
            }
            let (last, _) = rows.pop().expect("a full batch has rows");
            debug_assert!(next <= last, "batches of rows follow each other");
            next = last;
            next.push(0);
        }
    }
}
