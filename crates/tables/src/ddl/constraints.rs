//! Rules that come to a table with rows, and rules that go.
//!
//! A new rule is judged on every row, within the transaction: rows that others write meanwhile make it conflict, so that no
//! row escapes. A unique rule is a unique index, see [`TablesTx::create_index`].

use crate::ddl::bind_condition;
use crate::error::{TablesError, invalid};
use crate::schema::define::ForeignKeyDef;
use crate::schema::names::check_name;
use crate::schema::{Check, INDEXES_MAX};
use crate::value::expr::Expr;
use crate::write::tx::TablesTx;
use crate::write::values::check;

impl TablesTx<'_> {
    /// Adds a check.
    ///
    /// # Errors
    /// The name is taken; [`TablesError::Check`] when a row breaks it.
    pub fn add_check(&mut self, table: &str, name: &str, expr: Expr) -> Result<(), TablesError> {
        self.statement(|statement| {
            let tx = statement.tx();
            let mut parts = tx.known(table)?.parts.clone();
            check_name(table, "check", name)?;
            if parts.checks.iter().any(|check| check.name == name) {
                return Err(TablesError::Duplicate { kind: "check", name: name.to_owned() });
            }
            if parts.checks.len() >= INDEXES_MAX {
                return Err(invalid(table, format!("a table has at most {INDEXES_MAX} checks")));
            }
            let mut expr = expr;
            bind_condition(&parts, &mut expr)?;
            parts.checks.push(Check { name: name.to_owned(), expr });
            let schema = tx.put_parts(parts, false)?;
            statement.all_rows(&schema)?.iter().try_for_each(|row| check(&schema, &row.values()?))
        })
    }

    /// Adds a foreign key, and an index on its columns where there is none.
    ///
    /// # Errors
    /// As at the creation of a table; [`TablesError::ForeignKey`] when a row has no parent.
    pub fn add_foreign_key(&mut self, table: &str, def: ForeignKeyDef) -> Result<(), TablesError> {
        self.statement(|statement| {
            let tx = statement.tx();
            let mut parts = tx.known(table)?.parts.clone();
            if parts.foreign_keys.len() >= INDEXES_MAX || parts.indexes.len() >= INDEXES_MAX {
                return Err(invalid(
                    table,
                    format!("a table has at most {INDEXES_MAX} foreign keys and indexes"),
                ));
            }
            let indexes = parts.indexes.len();
            tx.new_foreign_key(&mut parts, def)?;
            let schema = tx.put_parts(parts, false)?;
            for index in schema.indexes().iter().skip(indexes) {
                statement.fill(&schema, index)?;
            }
            let key = schema.foreign_keys().len() - 1;
            for row in statement.all_rows(&schema)? {
                statement.expect_parent(&schema, key, &row.values()?);
            }
            Ok(())
        })
    }

    /// Drops a check or foreign key. The index that it brought goes with the last one that needs it, unless somebody asked for it
    /// since.
    ///
    /// # Errors
    /// [`TablesError::UnknownConstraint`].
    pub fn drop_constraint(&mut self, table: &str, name: &str) -> Result<(), TablesError> {
        self.alter(table, |tx, schema, parts| {
            if let Some(place) = parts.checks.iter().position(|check| check.name == name) {
                parts.checks.remove(place);
                return Ok(());
            }
            let place = parts.foreign_keys.iter().position(|key| key.name == name);
            let place = place.ok_or_else(|| TablesError::UnknownConstraint {
                table: table.to_owned(),
                constraint: name.to_owned(),
            })?;
            let gone = parts.foreign_keys.remove(place);
            let is_needed = parts.foreign_keys.iter().any(|key| key.index == gone.index);
            let own = parts.indexes.iter().position(|index| index.object == gone.index && index.of_key);
            if let (false, Some(place)) = (is_needed, own) {
                parts.indexes.remove(place);
                tx.drop_objects([gone.index]);
            }
            if parts.foreign_keys.iter().any(|key| key.parent == gone.parent) {
                return Ok(());
            }
            if gone.parent == schema.id() {
                parts.referenced_by.retain(|id| *id != schema.id());
                return Ok(());
            }
            let mut parent = tx.schema_by_id(gone.parent)?.parts.clone();
            parent.referenced_by.retain(|id| *id != schema.id());
            tx.put_parts(parent, false)?;
            Ok(())
        })
    }

    /// Allows NULL in a column, or forbids it.
    ///
    /// # Errors
    /// A row has NULL there; the column belongs to the primary key, numbers its rows, or a foreign key sets it to NULL.
    pub fn set_nullable(&mut self, table: &str, column: &str, nullable: bool) -> Result<(), TablesError> {
        self.statement(|statement| {
            let tx = statement.tx();
            let schema = tx.known(table)?;
            let place = schema.index_of(column)?;
            let mut parts = schema.parts.clone();
            let id = schema.column_at(place)?.id;
            let always = parts.key.contains(&id) || schema.column_at(place)?.identity.is_some();
            if nullable && always {
                return Err(invalid(table, format!("column {column:?} cannot be NULL")));
            }
            if !nullable && let Some(key) = parts.foreign_keys.iter().find(|key| key.sets_null(id)) {
                return Err(invalid(
                    table,
                    format!("foreign key {:?} sets column {column:?} to NULL", key.name),
                ));
            }
            if let Some(column) = parts.columns.get_mut(place) {
                column.nullable = nullable;
            }
            let schema = tx.put_parts(parts, false)?;
            if nullable {
                return Ok(());
            }
            for row in statement.all_rows(&schema)? {
                if row.get(place)?.is_null() {
                    return Err(TablesError::NotNull { table: table.to_owned(), column: column.to_owned() });
                }
            }
            Ok(())
        })
    }
}
