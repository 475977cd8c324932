//! Creates and drops indexes inside a transaction. For an index that is built concurrently with writers see
//! `build_index`.

use std::sync::Arc;

use crate::ddl::{bind, bind_condition, fresh_name};
use crate::error::{Result, TablesError, invalid};
use crate::read::table::Table;
use crate::read::{KeyRange, TablesRead};
use crate::row::OwnedRow;
use crate::row::keys::index_entry;
use crate::schema::define::IndexDef;
use crate::schema::names::{check_name, schema_and_name};
use crate::schema::{ForeignKey, INDEXES_MAX, Index, IndexColumn, KEY_COLUMNS_MAX, Parts, Schema};
use crate::value::expr::{ColumnRef, Expr};
use crate::value::key::KeyOrder;
use crate::write::Statement;
use crate::write::tx::TablesTx;

/// Default name of an index.
fn index_label(parts: &Parts, def: &IndexDef) -> String {
    let mut label = schema_and_name(&parts.name).1.to_owned();
    for (expr, _) in &def.columns {
        label += "_";
        label += match expr {
            Expr::Column(ColumnRef::Name(name)) => name,
            _ => "expr",
        };
    }
    label
        + match (def.unique, def.of_key) {
            (true, _) => "_key",
            (_, true) => "_fkey",
            _ => "_idx",
        }
}

/// Name of an index that remains only for a foreign key; `None` when no key is on exactly its columns.
fn label_for_key(parts: &Parts, place: usize) -> Option<String> {
    let index = parts.indexes.get(place).filter(|index| !index.unique && !index.of_key)?;
    let columns = index.plain_columns()?;
    parts.foreign_keys.iter().find(|key| key.index == index.object && key.columns == columns)?;
    let name =
        |id: &u16| parts.columns.iter().find(|column| column.id == *id).map(|column| column.name.clone());
    let def = IndexDef::on(columns.iter().filter_map(name));
    Some(index_label(parts, &IndexDef { of_key: true, ..def }))
}

fn index_name_taken(parts: &Parts, name: &str) -> bool {
    parts.key_name == name || parts.indexes.iter().any(|index| index.name == name)
}

impl TablesTx<'_> {
    pub(super) fn new_index(&self, parts: &Parts, def: IndexDef, ready: bool) -> Result<Index> {
        let mut columns = Vec::new();
        let label = index_label(parts, &def);
        for (mut expr, order) in def.columns {
            let ty = bind(parts, &mut expr)?;
            match ty {
                Some(ty) if ty.is_ordered() => columns.push(IndexColumn { expr, order, ty }),
                Some(ty) => {
                    return Err(invalid(&parts.name, format!("{ty} has no order and cannot be indexed")));
                }
                None => return Err(invalid(&parts.name, "an index on NULL finds nothing")),
            }
        }
        if columns.is_empty() || columns.len() > KEY_COLUMNS_MAX {
            return Err(invalid(&parts.name, format!("an index has 1 to {KEY_COLUMNS_MAX} columns")));
        }
        let mut filter = def.filter;
        if let Some(filter) = &mut filter {
            bind_condition(parts, filter)?;
        }
        let name = match def.name {
            Some(name) if index_name_taken(parts, &name) => {
                return Err(TablesError::Duplicate { kind: "index", name });
            }
            Some(name) => name,
            None => fresh_name(|name| index_name_taken(parts, name), label),
        };
        check_name(&parts.name, "index", &name)?;
        let (unique, stands_alone, of_key) = (def.unique, def.unique && def.stands_alone, def.of_key);
        Ok(Index { object: self.new_object()?, name, columns, unique, stands_alone, of_key, filter, ready })
    }

    /// Creates an index and fills it within this transaction, which conflicts with concurrent writes to the
    /// table. For large tables in use see [`crate::catalog::tables::Tables::create_index`].
    ///
    /// # Errors
    /// The name is taken; existing rows violate its uniqueness.
    pub fn create_index(&mut self, table: &str, def: IndexDef) -> Result<()> {
        self.statement(|statement| statement.create_index(table, def))
    }

    /// Adds an index to the definition; the caller fills it.
    pub(crate) fn declare_index(
        &mut self,
        table: &str,
        def: IndexDef,
        ready: bool,
    ) -> Result<(Arc<Schema>, Index)> {
        let mut parts = self.known(table)?.parts.clone();
        if parts.indexes.len() >= INDEXES_MAX {
            return Err(invalid(table, format!("a table has at most {INDEXES_MAX} indexes")));
        }
        let index = self.new_index(&parts, def, ready)?;
        parts.indexes.push(index.clone());
        Ok((self.put_parts(parts, false)?, index))
    }

    /// Reuses the index that a foreign key created for an equal definition. Returns false if no such index
    /// exists.
    fn adopt_index(&mut self, table: &str, def: &IndexDef) -> Result<bool> {
        let mut parts = self.known(table)?.parts.clone();
        let plain = |(expr, order): &(Expr, KeyOrder)| match expr {
            Expr::Column(ColumnRef::Name(name)) if *order == KeyOrder::ASC => {
                parts.columns.iter().find(|column| column.name == *name).map(|column| column.id)
            }
            _ => None,
        };
        let wanted: Option<Vec<u16>> = def.columns.iter().map(plain).collect();
        if wanted.is_none() || def.unique || def.filter.is_some() {
            return Ok(false);
        }
        let fits = |index: &Index| index.of_key && index.ready && index.plain_columns() == wanted;
        let Some(place) = parts.indexes.iter().position(fits) else { return Ok(false) };
        let name = match &def.name {
            Some(name) if index_name_taken(&parts, name) => {
                return Err(TablesError::Duplicate { kind: "index", name: name.clone() });
            }
            Some(name) => name.clone(),
            None => fresh_name(|name| index_name_taken(&parts, name), index_label(&parts, def)),
        };
        check_name(&parts.name, "index", &name)?;
        let index = parts.index_mut(place);
        (index.name, index.of_key) = (name, false);
        self.put_parts(parts, false)?;
        Ok(true)
    }

    /// Drops an index, finished or not. If a foreign key on the same columns needs it, it remains as the
    /// key's index.
    ///
    /// # Errors
    /// [`TablesError::UnknownIndex`]; [`TablesError::Dependent`] when a foreign key needs it.
    pub fn drop_index(&mut self, table: &str, name: &str) -> Result<()> {
        self.alter(table, |tx, schema, parts| {
            let place = parts.indexes.iter().position(|index| index.name == name);
            let place = place.ok_or_else(|| TablesError::UnknownIndex {
                table: table.to_owned(),
                index: name.to_owned(),
            })?;
            if let Some(label) = label_for_key(parts, place) {
                let name = fresh_name(|name| index_name_taken(parts, name), label);
                let index = parts.index_mut(place);
                (index.name, index.of_key) = (name, true);
                return Ok(());
            }
            let index = parts.indexes.remove(place);
            let mut dependent = parts.foreign_keys.iter().find(|key| key.index == index.object).cloned();
            let plain = index.plain_columns().filter(|plain| index.unique && *plain != parts.key);
            for child in schema.parts.referenced_by.iter().filter(|_| plain.is_some()) {
                let child = tx.schema_by_id(*child)?;
                let needs = |key: &&ForeignKey| {
                    key.parent == schema.id() && Some(&key.parent_columns) == plain.as_ref()
                };
                dependent = dependent.or_else(|| child.foreign_keys().iter().find(needs).cloned());
            }
            if let Some(key) = dependent {
                let what = format!("index {name:?}");
                return Err(TablesError::Dependent {
                    what,
                    dependent: format!("foreign key {:?}", key.name),
                });
            }
            tx.drop_objects([index.object]);
            Ok(())
        })
    }
}

impl Statement<'_, '_> {
    fn create_index(&mut self, table: &str, def: IndexDef) -> Result<()> {
        if self.tx().adopt_index(table, &def)? {
            return Ok(());
        }
        let (schema, index) = self.tx().declare_index(table, def, true)?;
        self.fill(&schema, &index)
    }

    /// All rows of the table; guards at commit that there are no others.
    pub(crate) fn all_rows(&mut self, schema: &Arc<Schema>) -> Result<Vec<OwnedRow>> {
        let tx = self.tx();
        tx.is_empty(schema)?;
        let mut rows = Vec::new();
        let handle = Table::new(&tx.tables.model, schema.id(), schema.name());
        tx.scan_within(&handle, &KeyRange::all(), false, &mut |row| {
            rows.push(row.to_owned());
            Ok(true)
        })?;
        Ok(rows)
    }

    /// Writes the entries of all rows.
    pub(crate) fn fill(&mut self, schema: &Arc<Schema>, index: &Index) -> Result<()> {
        for row in self.all_rows(schema)? {
            if let Some(entry) = index_entry(schema, index, &row.values()?, row.key())? {
                self.put_entry(schema, index, &entry)?;
            }
        }
        Ok(())
    }
}
