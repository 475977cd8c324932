//! Changes that rewrite every row: a primary key for a table that has rows, and another type for a column.
//! Rows and their index entries move into new objects.
//!
//! Small tables move within the transaction; larger ones through runs that bypass the log, as in a load
//! (`load::loader`). Either way it is a statement of the transaction, which may roll back, and which
//! conflicts with concurrent writes to the table.

use std::sync::Arc;

use ropewalk_engine::KeySpan;

use crate::catalog::object_range;
use crate::ddl::{bind, bind_condition, column_ids};
use crate::error::{Result, TablesError, invalid};
use crate::load::LoadOptions;
use crate::load::loader::Loader;
use crate::read::TablesRead;
use crate::row::Row;
use crate::schema::define::OperatorClass;
use crate::schema::{Column, Parts, Schema};
use crate::value::Value;
use crate::value::types::Type;
use crate::write::tx::TablesTx;

/// Checks the conditions and indexes that read a column with its new type.
fn rebind(parts: &mut Parts, id: u16) -> Result<()> {
    let mut checks = std::mem::take(&mut parts.checks);
    for check in checks.iter_mut().filter(|check| check.expr.reads(id)) {
        bind_condition(parts, &mut check.expr)?;
    }
    let mut indexes = std::mem::take(&mut parts.indexes);
    for index in &mut indexes {
        for column in index.columns.iter_mut().filter(|column| column.expr.reads(id)) {
            let ty = bind(parts, &mut column.expr)?;
            let fits =
                |ty: &Type| ty.is_ordered() && (column.class == OperatorClass::Default || *ty == Type::TEXT);
            let unfit = || invalid(&parts.name, format!("index {:?} cannot be of that type", index.name));
            column.ty = ty.filter(fits).ok_or_else(unfit)?;
        }
        if let Some(filter) = &mut index.filter {
            bind_condition(parts, filter)?;
        }
    }
    (parts.checks, parts.indexes) = (checks, indexes);
    Ok(())
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

    /// Removes the primary key of a table: its rows get hidden numbers, in the order of the key. Its columns remain
    /// NOT NULL. Cost: every row is rewritten.
    ///
    /// # Errors
    /// [`TablesError::UnknownConstraint`] for a table without a primary key; [`TablesError::Dependent`] when a
    /// foreign key refers to it.
    pub fn drop_primary_key(&mut self, table: &str) -> Result<()> {
        self.ddl(|tx| {
            let old = tx.known(table)?;
            tx.guard_schema(&old);
            let mut parts = old.parts.clone();
            if parts.key.is_empty() {
                let (table, constraint) = (table.to_owned(), parts.key_name.clone());
                return Err(TablesError::UnknownConstraint { table, constraint });
            }
            for child in &parts.referenced_by {
                let child = tx.schema_by_id(*child)?;
                let mut keys = child.foreign_keys().iter().filter(|key| key.parent == parts.id);
                if let Some(key) = keys.find(|key| key.parent_columns == parts.key) {
                    let dependent = format!("foreign key {:?} of table {:?}", key.name, child.name());
                    return Err(TablesError::Dependent { what: "the primary key".into(), dependent });
                }
            }
            parts.key.clear();
            parts.rowid = Some(tx.new_object()?);
            parts.renew_layout().map_err(|what| invalid(table, what))?;
            let new = Arc::new(Schema::new(parts.clone()));
            let mut loader = Loader::new(tx, new, LoadOptions::default(), false)?;
            tx.move_rows(&old, &mut loader, &mut |_| Ok(()))?;
            loader.finish(tx, Some(parts))
        })
    }

    /// Changes the type of a column, and removes its precision. `change` converts the value of a row, or
    /// returns `None` to stop. The default must be absent or of the new type: change it before. Cost: every
    /// row is rewritten.
    ///
    /// # Errors
    /// The column is part of a foreign key, or of a check or index that does not take the new type; an identity
    /// column of a type that is not an integer; `change` stopped; rows that violate a constraint.
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
            rebind(&mut parts, id)?;
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

    /// Moves the rows of a table to a definition with a generated column at its end. Cost: every row is rewritten.
    pub(super) fn move_generated(&mut self, old: &Arc<Schema>, mut parts: Parts) -> Result<()> {
        self.guard_schema(old);
        parts.renew_layout().map_err(|what| invalid(&parts.name, what))?;
        let new = Arc::new(Schema::new(parts.clone()));
        let mut loader = Loader::new(self, new.clone(), LoadOptions::default(), false)?;
        self.move_rows(old, &mut loader, &mut |values| {
            values.push(Value::Null);
            new.generate(values)
        })?;
        loader.finish(self, Some(parts))
    }

    /// The reason why a column cannot get another type, if any, as the error.
    fn may_change(&mut self, schema: &Schema, id: u16, ty: Type) -> Result<(), String> {
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
        let deferred = |index: &&crate::schema::Index| index.deferral.is_deferrable() && index.reads(id);
        if let Some(index) = parts.indexes.iter().find(deferred) {
            return Err(format!(
                "column {name:?} is part of the deferrable constraint {:?}: drop that first",
                index.name()
            ));
        }
        let computes = |column: &&Column| {
            column.generated.as_ref().is_some_and(|expr| column.id == id || expr.reads(id))
        };
        if let Some(generated) = parts.columns.iter().find(computes) {
            return Err(format!("column {:?} is generated: drop that first", generated.name));
        }
        let column = parts.columns.iter().find(|column| column.id == id);
        if column.is_some_and(|column| column.identity.is_some())
            && !matches!(ty, Type::INT2 | Type::INT4 | Type::INT8)
        {
            return Err(format!("column {name:?} numbers its rows, and {ty} is no integer"));
        }
        if parts.key.contains(&id) && !ty.is_ordered() {
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
