//! Adding constraints to tables with rows, and dropping them.
//!
//! A new constraint is checked on every row, within the transaction: it conflicts with concurrent writes to
//! the table, so that no row escapes the check. A unique constraint is a unique index, see
//! [`TablesTx::create_index`].

use crate::ddl::{bind_condition, column_ids, fresh_name};
use crate::error::{Result, TablesError, invalid};
use crate::schema::define::{Action, ForeignKeyDef, IndexDef};
use crate::schema::names::{check_name, schema_and_name};
use crate::schema::{Check, ForeignKey, INDEXES_MAX, Index, Parts};
use crate::value::expr::Expr;
use crate::write::tx::TablesTx;
use crate::write::values::check;

impl TablesTx<'_> {
    pub(crate) fn new_foreign_key(&mut self, parts: &mut Parts, def: ForeignKeyDef) -> Result<()> {
        let columns = column_ids(parts, &def.columns)?;
        let to_itself = def.parent == parts.name;
        let parent = if to_itself {
            parts.clone()
        } else {
            let unknown = || TablesError::UnknownTable { name: def.parent.clone() };
            let id = self.find(&def.parent)?.ok_or_else(unknown)?;
            self.schema_by_id(id)?.parts.clone()
        };
        let parent_columns = column_ids(&parent, &def.parent_columns)?;
        let ty = |parts: &Parts, id: &u16| parts.columns.iter().find(|c| c.id == *id).map(|c| c.ty);
        let types = |parts: &Parts, ids: &[u16]| ids.iter().map(|id| ty(parts, id)).collect::<Vec<_>>();
        if types(parts, &columns) != types(&parent, &parent_columns) {
            let what =
                format!("{:?} and {:?} of {:?} differ in type", def.columns, def.parent_columns, def.parent);
            return Err(invalid(&parts.name, what));
        }
        let unique = parent.key == parent_columns
            || parent
                .indexes
                .iter()
                .any(|i| i.unique && i.ready && i.plain_columns().as_ref() == Some(&parent_columns));
        if !unique {
            let what =
                format!("{:?} is neither the primary key of {:?} nor unique", def.parent_columns, def.parent);
            return Err(invalid(&parts.name, what));
        }
        let nulls = [def.on_delete, def.on_update].contains(&Action::SetNull);
        if let Some(column) = parts.columns.iter().find(|c| nulls && columns.contains(&c.id) && !c.nullable) {
            let what = format!("column {:?} is NOT NULL; a foreign key cannot set it to NULL", column.name);
            return Err(invalid(&parts.name, what));
        }
        let taken = |name: &str| parts.foreign_keys.iter().any(|key| key.name == name);
        let name = match def.name {
            Some(name) if taken(&name) => return Err(TablesError::Duplicate { kind: "foreign key", name }),
            Some(name) => name,
            None => fresh_name(
                taken,
                format!("{}_{}_fkey", schema_and_name(&parts.name).1, def.columns.join("_")),
            ),
        };
        check_name(&parts.name, "foreign key", &name)?;
        // Children are found through an index; a foreign key creates one if necessary.
        let serves = |index: &&Index| {
            index.ready && index.plain_columns().is_some_and(|plain| plain.starts_with(&columns))
        };
        let index = match parts.indexes.iter().find(serves) {
            Some(index) => index.object,
            None => {
                let index = IndexDef { of_key: true, ..IndexDef::on(&def.columns) };
                let index = self.new_index(parts, index, true)?;
                let object = index.object;
                parts.indexes.push(index);
                object
            }
        };
        if to_itself {
            parts.referenced_by.push(parts.id);
            parts.referenced_by.dedup();
        } else if !parent.referenced_by.contains(&parts.id) {
            let mut parent = parent.clone();
            parent.referenced_by.push(parts.id);
            self.put_parts(parent, false)?;
        }
        let (on_delete, on_update) = (def.on_delete, def.on_update);
        let parent = parent.id;
        parts.foreign_keys.push(ForeignKey {
            name,
            columns,
            parent,
            parent_columns,
            on_delete,
            on_update,
            index,
        });
        Ok(())
    }

    /// Adds a check.
    ///
    /// # Errors
    /// The name is taken; [`TablesError::Check`] when a row violates it.
    pub fn add_check(&mut self, table: &str, name: &str, expr: Expr) -> Result<()> {
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

    /// Adds a foreign key, and an index on its columns if necessary.
    ///
    /// # Errors
    /// As at the creation of a table; [`TablesError::ForeignKey`] when a row has no parent.
    pub fn add_foreign_key(&mut self, table: &str, def: ForeignKeyDef) -> Result<()> {
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

    /// Drops a check or foreign key. An index created by a foreign key is dropped with the last key that
    /// needs it, unless it was created explicitly since.
    ///
    /// # Errors
    /// [`TablesError::UnknownConstraint`].
    pub fn drop_constraint(&mut self, table: &str, name: &str) -> Result<()> {
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
    /// A row has NULL there; the column is in the primary key, is an identity column, or a foreign key sets
    /// it to NULL.
    pub fn set_nullable(&mut self, table: &str, column: &str, nullable: bool) -> Result<()> {
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
            parts.column_mut(place).nullable = nullable;
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
