//! Creates, empties, renames and drops tables.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::catalog::{name_key, table_key};
use crate::ddl::{bind_condition, column_ids, fresh_name};
use crate::error::{Result, TablesError, invalid};
use crate::read::TablesRead;
use crate::read::table::Table;
use crate::schema::define::TableDef;
use crate::schema::names::{check_kept_name, check_name, schema_and_name};
use crate::schema::{Check, INDEXES_MAX, Parts, Schema};
use crate::write::tx::TablesTx;

impl TablesTx<'_> {
    /// Creates a table.
    ///
    /// # Errors
    /// The name is taken; the definition is invalid or exceeds a limit; a referenced table does not exist.
    pub fn create_table(&mut self, def: TableDef) -> Result<Table> {
        self.ddl(|tx| tx.create(def))
    }

    /// The table with the definition's name, created if it does not exist. Definitions are not compared.
    ///
    /// # Errors
    /// As [`TablesTx::create_table`].
    pub fn create_table_if_absent(&mut self, def: TableDef) -> Result<Table> {
        self.ddl(|tx| match tx.find(&def.name)? {
            Some(id) => Ok(Table::new(&tx.tables.model, id, &def.name)),
            None => tx.create(def),
        })
    }

    fn create(&mut self, def: TableDef) -> Result<Table> {
        check_kept_name("table", &def.name)?;
        self.check_unreserved(&def.name)?;
        let own = schema_and_name(&def.name).1.to_owned();
        if self.find(&def.name)?.is_some() {
            return Err(TablesError::Duplicate { kind: "table", name: def.name });
        }
        if let Some(name) = &def.key_name {
            check_name(&def.name, "primary key", name)?;
        }
        let mut parts = Parts {
            id: self.new_object()?,
            version: 1,
            name: def.name.clone(),
            rows: self.new_object()?,
            rowid: None,
            key: Vec::new(),
            key_name: def.key_name.clone().unwrap_or_else(|| format!("{own}_pkey")),
            next_column: 1,
            columns: Vec::new(),
            layouts: Vec::new(),
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            referenced_by: Vec::new(),
        };
        for column in def.columns {
            let column = self.new_column(&mut parts, column)?;
            parts.columns.push(column);
        }
        if def.key.is_empty() {
            parts.rowid = Some(self.new_object()?);
        } else {
            parts.key = column_ids(&parts, &def.key)?;
            parts.forbid_null_in_key().map_err(|what| invalid(&def.name, what))?;
        }
        for (name, mut expr) in def.checks {
            bind_condition(&parts, &mut expr)?;
            let taken = |name: &str| parts.checks.iter().any(|check| check.name == name);
            let name = match name {
                Some(name) if taken(&name) => return Err(TablesError::Duplicate { kind: "check", name }),
                Some(name) => name,
                None => fresh_name(taken, format!("{own}_check")),
            };
            check_name(&def.name, "check", &name)?;
            parts.checks.push(Check { name, expr });
        }
        for index in def.indexes {
            let index = self.new_index(&parts, index, true)?;
            parts.indexes.push(index);
        }
        for foreign in def.foreign_keys {
            self.new_foreign_key(&mut parts, foreign)?;
        }
        for (what, count) in [
            ("indexes", parts.indexes.len()),
            ("checks", parts.checks.len()),
            ("foreign keys", parts.foreign_keys.len()),
        ] {
            if count > INDEXES_MAX {
                return Err(invalid(&def.name, format!("{count} {what}; {INDEXES_MAX} are allowed")));
            }
        }
        let catalog = self.spaces().catalog;
        self.kv.guard_key(catalog, &name_key(&def.name));
        self.kv.put(catalog, &name_key(&def.name), &parts.id.to_le_bytes());
        let table = Table::new(&self.tables.model, parts.id, &def.name);
        self.put_parts(parts, true)?;
        Ok(table)
    }

    /// Creates an empty table with the definition of another one.
    ///
    /// Its identity columns count from their start. Tables that refer to the other one do not refer to it.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`]; as [`TablesTx::create_table`].
    pub fn create_table_like(&mut self, like: &str, name: &str) -> Result<Table> {
        self.ddl(|tx| {
            check_kept_name("table", name)?;
            tx.check_unreserved(name)?;
            if tx.find(name)?.is_some() {
                return Err(TablesError::Duplicate { kind: "table", name: name.to_owned() });
            }
            let schema = tx.known(like)?;
            tx.guard_schema(&schema);
            let mut parts = schema.parts.clone();
            let old = std::mem::replace(&mut parts.id, tx.new_object()?);
            (parts.version, parts.name, parts.referenced_by) = (1, name.to_owned(), Vec::new());
            // The copy has no rows in older layouts.
            parts.layouts.drain(..parts.layouts.len().saturating_sub(1));
            parts.indexes.iter_mut().for_each(|index| index.ready = true);
            tx.renew_objects(&mut parts)?;
            if parts.rowid.is_some() {
                parts.rowid = Some(tx.new_object()?);
            }
            tx.restart_identities(&mut parts)?;
            for foreign in &mut parts.foreign_keys {
                if foreign.parent == old {
                    foreign.parent = parts.id;
                }
            }
            let parents: BTreeSet<u32> = parts.foreign_keys.iter().map(|foreign| foreign.parent).collect();
            for parent in parents {
                if parent == parts.id {
                    parts.referenced_by.push(parts.id);
                } else {
                    let mut parent = tx.schema_by_id(parent)?.parts.clone();
                    parent.referenced_by.push(parts.id);
                    tx.put_parts(parent, false)?;
                }
            }
            let catalog = tx.spaces().catalog;
            tx.kv.guard_key(catalog, &name_key(name));
            tx.kv.put(catalog, &name_key(name), &parts.id.to_le_bytes());
            let table = Table::new(&tx.tables.model, parts.id, name);
            tx.put_parts(parts, true)?;
            Ok(table)
        })
    }

    /// Gives a definition new, empty objects for its rows and indexes.
    fn renew_objects(&mut self, parts: &mut Parts) -> Result<()> {
        parts.rows = self.new_object()?;
        let mut renewed = HashMap::new();
        for index in &mut parts.indexes {
            let object = self.new_object()?;
            renewed.insert(index.object, object);
            index.object = object;
        }
        for foreign in &mut parts.foreign_keys {
            foreign.index = renewed.get(&foreign.index).copied().unwrap_or(foreign.index);
        }
        Ok(())
    }

    /// Gives the identity columns new sequences; returns the old ones.
    fn restart_identities(&mut self, parts: &mut Parts) -> Result<Vec<u32>> {
        let mut old = Vec::new();
        for (_, sequence) in parts.columns.iter_mut().filter_map(|column| column.identity.as_mut()) {
            let (steps, ..) = self.tables.sequence(*sequence)?;
            old.push(std::mem::replace(sequence, self.tables.new_sequence(steps)?));
        }
        Ok(old)
    }

    /// Rejects the drop of a table that other tables refer to.
    fn not_referenced(&mut self, schema: &Schema) -> Result<()> {
        let other = schema.parts.referenced_by.iter().find(|id| **id != schema.id());
        let Some(other) = other else { return Ok(()) };
        let dependent = format!("table {:?}", self.schema_by_id(*other)?.name());
        Err(TablesError::Dependent { what: format!("table {:?}", schema.name()), dependent })
    }

    /// Drops a table with its rows and indexes.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`]; [`TablesError::Dependent`] when other tables refer to it.
    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        self.ddl(|tx| {
            let schema = tx.known(name)?;
            tx.not_referenced(&schema)?;
            for foreign in schema.foreign_keys() {
                if foreign.parent != schema.id() {
                    let mut parent = tx.schema_by_id(foreign.parent)?.parts.clone();
                    parent.referenced_by.retain(|id| *id != schema.id());
                    tx.put_parts(parent, false)?;
                }
            }
            let catalog = tx.spaces().catalog;
            tx.drop_objects(schema.parts.objects());
            tx.drop_sequences(schema.parts.sequences());
            for key in [table_key(schema.id()).to_vec(), name_key(name)] {
                tx.kv.guard_key(catalog, &key);
                tx.kv.delete(catalog, &key);
            }
            tx.forget(schema.id());
            Ok(())
        })
    }

    /// Empties a table. Its identity columns continue counting, or restart.
    ///
    /// # Errors
    /// As [`TablesTx::drop_table`].
    pub fn truncate(&mut self, name: &str, restart_identity: bool) -> Result<()> {
        self.truncate_all(&[name], restart_identity, false).map(|_| ())
    }

    /// Empties tables, which may refer to each other; with `cascade` also those that refer to them. Returns
    /// the emptied tables.
    ///
    /// # Errors
    /// As [`TablesTx::drop_table`].
    pub fn truncate_all(
        &mut self,
        names: &[&str],
        restart_identity: bool,
        cascade: bool,
    ) -> Result<Vec<Arc<Schema>>> {
        self.ddl(|tx| {
            let mut all: Vec<Arc<Schema>> = Vec::new();
            let mut waiting = Vec::new();
            for name in names {
                waiting.push(tx.known(name)?);
            }
            while let Some(schema) = waiting.pop() {
                if all.iter().any(|known| known.id() == schema.id()) {
                    continue;
                }
                if cascade {
                    for child in &schema.parts.referenced_by {
                        waiting.push(tx.schema_by_id(*child)?);
                    }
                }
                all.push(schema);
            }
            for schema in &all {
                let others = schema.parts.referenced_by.iter();
                let mut others = others.filter(|id| !all.iter().any(|schema| schema.id() == **id));
                if let Some(other) = others.next() {
                    let dependent = format!("table {:?}", tx.schema_by_id(*other)?.name());
                    return Err(TablesError::Dependent {
                        what: format!("table {:?}", schema.name()),
                        dependent,
                    });
                }
            }
            for schema in &all {
                tx.empty(schema, restart_identity)?;
            }
            Ok(all)
        })
    }

    fn empty(&mut self, schema: &Schema, restart_identity: bool) -> Result<()> {
        let mut parts = schema.parts.clone();
        let old: Vec<u32> = parts.objects().collect();
        self.renew_objects(&mut parts)?;
        if restart_identity {
            let gone = self.restart_identities(&mut parts)?;
            self.drop_sequences(gone);
        }
        self.put_parts(parts, false)?;
        self.drop_objects(old);
        Ok(())
    }

    /// Renames a table.
    ///
    /// # Errors
    /// The new name is taken.
    pub fn rename_table(&mut self, table: &str, name: &str) -> Result<()> {
        self.alter(table, |tx, _, parts| {
            check_kept_name("table", name)?;
            // A table that has such a name may change its schema.
            if schema_and_name(table).1 != schema_and_name(name).1 {
                tx.check_unreserved(name)?;
            }
            if tx.find(name)?.is_some() {
                return Err(TablesError::Duplicate { kind: "table", name: name.to_owned() });
            }
            let catalog = tx.spaces().catalog;
            for key in [name_key(table), name_key(name)] {
                tx.kv.guard_key(catalog, &key);
            }
            tx.kv.delete(catalog, &name_key(table));
            tx.kv.put(catalog, &name_key(name), &parts.id.to_le_bytes());
            parts.name = name.to_owned();
            Ok(())
        })
    }
}
