//! Dropping a column with the objects that need it.
//!
//! As in PostgreSQL, indexes and constraints of the table itself that name the column are dropped with it. Foreign
//! keys that refer to the column, generated columns and views require CASCADE.

use ropewalk::tables::{ForeignKey, ForeignKeyDef, Schema, shown};

use super::{Ddl, dependent};
use crate::error::{Result, SqlError, state};

/// The definition of a foreign key of a table.
fn definition(schema: &Schema, parent: &Schema, key: &ForeignKey) -> ForeignKeyDef {
    let name = |schema: &Schema, id: &u16| {
        let column = schema.columns().iter().find(|column| column.id() == *id);
        column.map(|column| column.name().to_owned()).unwrap_or_default()
    };
    let columns: Vec<String> = key.columns().iter().map(|id| name(schema, id)).collect();
    let referred: Vec<String> = key.parent_columns().iter().map(|id| name(parent, id)).collect();
    ForeignKeyDef::new(columns, parent.name(), referred)
        .named(key.name())
        .on_delete(key.on_delete())
        .on_update(key.on_update())
        .deferral(key.deferral())
}

impl Ddl<'_> {
    /// Drops a column with its comments, its owned sequence, and the objects that need it.
    pub(crate) fn drop_column(&mut self, table: &str, name: &str, cascades: bool) -> Result<()> {
        let schema = self.schema(table)?;
        let place = schema.index_of(name)?;
        let Some(id) = schema.columns().get(place).map(|column| column.id()) else { return Ok(()) };
        self.part_from_references(&schema, &|key| key.parent_columns().contains(&id), cascades, &|| {
            format!("cannot drop column {name} of table {} because other objects depend on it", shown(table))
        })?;
        let reads =
            |column: &&ropewalk::tables::Column| column.generated().is_some_and(|expr| expr.reads(id));
        let generated: Vec<String> =
            schema.columns().iter().filter(reads).map(|column| column.name().to_owned()).collect();
        if let (Some(other), false) = (generated.first(), cascades) {
            let message = format!(
                "cannot drop column {name} of table {} because other objects depend on it",
                shown(table)
            );
            return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message)
                .detail(format!(
                    "column {other} of table {0} depends on column {name} of table {0}",
                    shown(table)
                ))
                .hint("use DROP ... CASCADE to drop the dependent objects too"));
        }
        for other in generated {
            self.drop_column(table, &other, cascades)?;
        }
        for key in schema.foreign_keys().iter().filter(|key| key.columns().contains(&id)) {
            self.drop_constraint_of(&schema, key.name())?;
        }
        for check in schema.checks().iter().filter(|check| check.expr().reads(id)) {
            self.drop_constraint_of(&schema, check.name())?;
        }
        self.drop_indexes_of(table, id)?;
        if schema.key_columns().contains(&place) {
            self.uncomment(Some("constraint"), i64::from(schema.id()), Some(schema.key_name()))?;
            self.transaction.tables().drop_primary_key(table).map_err(dependent)?;
        }
        self.transaction.tables().drop_column(table, name).map_err(dependent)?;
        self.uncomment(Some("column"), i64::from(schema.id()), Some(&id.to_string()))?;
        self.drop_owned(schema.id(), Some(id))
    }

    /// Drops the foreign keys to a table for which `is_meant` is true.
    ///
    /// # Errors
    /// 2BP01: there is one, without `cascades`.
    pub(super) fn part_from_references(
        &mut self,
        parent: &Schema,
        is_meant: &dyn Fn(&ForeignKey) -> bool,
        cascades: bool,
        refused: &dyn Fn() -> String,
    ) -> Result<()> {
        for table in self.tables()? {
            let child = self.schema(&table)?;
            let keys = child.foreign_keys().iter();
            for key in keys.filter(|key| key.parent() == parent.id() && is_meant(key)) {
                if !cascades {
                    let (key, child, parent) = (key.name(), shown(child.name()), shown(parent.name()));
                    return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, refused())
                        .detail(format!("constraint {key} on table {child} depends on table {parent}"))
                        .hint("use DROP ... CASCADE to drop the dependent objects too"));
                }
                self.drop_constraint_of(&child, key.name())?;
            }
        }
        Ok(())
    }

    fn drop_constraint_of(&mut self, schema: &Schema, name: &str) -> Result<()> {
        // Another reason may have dropped it before.
        let known = self.schema(schema.name())?;
        let is_there = known.foreign_keys().iter().any(|key| key.name() == name)
            || known.checks().iter().any(|check| check.name() == name);
        if is_there {
            self.uncomment(Some("constraint"), i64::from(schema.id()), Some(name))?;
            self.transaction.tables().drop_constraint(schema.name(), name).map_err(dependent)?;
        }
        Ok(())
    }

    /// Drops the indexes that read a column. Foreign keys that find their rows by one of them get another.
    fn drop_indexes_of(&mut self, table: &str, column: u16) -> Result<()> {
        loop {
            let schema = self.schema(table)?;
            let Some(index) = schema.indexes().iter().find(|index| index.uses(column)) else { return Ok(()) };
            let mut again = Vec::new();
            for key in schema.foreign_keys().iter().filter(|key| key.index_object() == index.object()) {
                let parent = self.tables()?.into_iter().map(|name| self.schema(&name));
                let parent = parent.filter_map(Result::ok).find(|known| known.id() == key.parent());
                let parent = parent.ok_or_else(|| crate::expr::bug("the parent of a foreign key"))?;
                again.push(definition(&schema, &parent, key));
                self.transaction.tables().drop_constraint(table, key.name())?;
            }
            self.uncomment(Some("index"), i64::from(schema.id()), Some(index.name()))?;
            let is_there = self.schema(table)?.indexes().iter().any(|known| known.name() == index.name());
            if is_there {
                self.transaction.tables().drop_index(table, index.name()).map_err(dependent)?;
            }
            for key in again {
                self.transaction.tables().add_foreign_key(table, key)?;
            }
        }
    }
}
