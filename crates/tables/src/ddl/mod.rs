//! Definitions: tables and indexes come, change and go inside transactions, like rows.
//!
//! No change rewrites rows. Adding a column makes a new layout, and what the column was added with stands for it in older
//! rows; dropping one makes a new layout without it. TRUNCATE gives the table new, empty objects. The old ones go in the
//! same commit as one range, so their bytes come back with the next compaction.

pub(crate) mod build_index;
pub(crate) mod constraints;
pub(crate) mod enums;
pub(crate) mod rekey;
pub(crate) mod sequence;

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::{name_key, table_key};
use crate::error::{TablesError, invalid};
use crate::read::table::Table;
use crate::read::{KeyRange, TablesRead};
use crate::row::OwnedRow;
use crate::row::keys::index_entry;
use crate::schema::define::{Action, ColumnDef, DefaultValue, ForeignKeyDef, IndexDef, TableDef};
use crate::schema::enums::EnumType;
use crate::schema::names::{check_kept_name, check_name, schema_and_name};
use crate::schema::{
    COLUMNS_MAX, Check, Column, ForeignKey, INDEXES_MAX, Index, IndexColumn, KEY_COLUMNS_MAX, Parts, Schema,
};
use crate::value::Value;
use crate::value::expr::{ColumnRef, Expr};
use crate::value::key::KeyOrder;
use crate::value::precision::Precision;
use crate::value::types::{NUMERIC_DIGITS_MAX, Scalar, Type};
use crate::write::tx::TablesTx;
use crate::write::values::now;

/// The ids of columns by name, each at most once.
pub(crate) fn column_ids(parts: &Parts, names: &[String]) -> Result<Vec<u16>, TablesError> {
    let mut ids = Vec::new();
    for name in names {
        let column = parts.columns.iter().find(|column| column.name == *name);
        let id = column
            .map(|c| c.id)
            .ok_or_else(|| TablesError::UnknownColumn { table: parts.name.clone(), column: name.clone() })?;
        if ids.contains(&id) {
            return Err(invalid(&parts.name, format!("column {name:?} is named twice")));
        }
        ids.push(id);
    }
    if ids.is_empty() || ids.len() > KEY_COLUMNS_MAX {
        return Err(invalid(&parts.name, format!("a key has 1 to {KEY_COLUMNS_MAX} columns")));
    }
    Ok(ids)
}

fn bind(parts: &Parts, expr: &mut Expr) -> Result<Option<Type>, TablesError> {
    let columns = &parts.columns;
    let resolve = |column: &ColumnRef| {
        let found = columns.iter().find(|c| match column {
            ColumnRef::Name(name) => c.name == *name,
            ColumnRef::Id(id) => c.id == *id,
        })?;
        Some((found.id, found.ty))
    };
    expr.bind(&resolve).map_err(|what| invalid(&parts.name, what))
}

/// A condition, bound: it must be true or false.
pub(crate) fn bind_condition(parts: &Parts, expr: &mut Expr) -> Result<(), TablesError> {
    match bind(parts, expr)? {
        None | Some(Type::BOOL) => Ok(()),
        Some(other) => Err(invalid(&parts.name, format!("a condition is bool, not {other}"))),
    }
}

fn fresh_name(taken: impl Fn(&str) -> bool, wanted: String) -> String {
    let mut name: String = wanted.chars().take(60).collect();
    let stem = name.clone();
    let mut number = 1;
    while taken(&name) {
        name = format!("{stem}{number}");
        number += 1;
    }
    name
}

/// What an index is called that was given no name.
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

/// What an index is called once it is left to the foreign key that needs it; `None` when there is none on just its columns.
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

fn checked_precision(
    table: &str,
    column: &str,
    ty: Type,
    precision: Option<Precision>,
) -> Result<Option<Precision>, TablesError> {
    match precision.filter(|precision| !precision.fits(ty)) {
        None => Ok(precision),
        Some(_) => Err(invalid(table, format!("column {column:?}: a precision that no {ty} has"))),
    }
}

fn kept_default(default: DefaultValue, precision: Option<Precision>) -> DefaultValue {
    match (default, precision) {
        (DefaultValue::Value(value), Some(precision)) => DefaultValue::Value(precision.keep(value)),
        (default, _) => default,
    }
}

impl TablesTx<'_> {
    fn new_object(&self) -> Result<u32, TablesError> {
        self.tables.model.new_object(&self.tables.engine)
    }

    /// Creates a table.
    ///
    /// # Errors
    /// The name is taken; the definition makes no sense or breaks a limit; a table it refers to is not there.
    pub fn create_table(&mut self, def: TableDef) -> Result<Table, TablesError> {
        self.ddl(|tx| tx.create(def))
    }

    /// The table of the definition's name, which is created if it does not exist. Definitions are not compared.
    ///
    /// # Errors
    /// As [`TablesTx::create_table`].
    pub fn create_table_if_absent(&mut self, def: TableDef) -> Result<Table, TablesError> {
        self.ddl(|tx| match tx.find(&def.name)? {
            Some(id) => Ok(Table::new(&tx.tables.model, id, &def.name)),
            None => tx.create(def),
        })
    }

    fn create(&mut self, def: TableDef) -> Result<Table, TablesError> {
        check_kept_name("table", &def.name)?;
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
            for column in parts.columns.iter_mut().filter(|column| parts.key.contains(&column.id)) {
                column.nullable = false;
                if !column.ty.is_ordered() {
                    let what =
                        format!("column {:?} of type {} cannot be part of a key", column.name, column.ty);
                    return Err(invalid(&def.name, what));
                }
            }
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

    fn new_column(&mut self, parts: &mut Parts, def: ColumnDef) -> Result<Column, TablesError> {
        check_name(&parts.name, "column", &def.name)?;
        if parts.columns.iter().any(|column| column.name == def.name) {
            return Err(TablesError::Duplicate { kind: "column", name: def.name });
        }
        if parts.columns.len() >= COLUMNS_MAX || parts.next_column == u16::MAX {
            return Err(invalid(&parts.name, format!("a table has at most {COLUMNS_MAX} columns")));
        }
        let (Type::Scalar(scalar) | Type::Array(scalar)) = def.ty;
        if let Scalar::Numeric(Some(l)) = scalar
            && (l.precision == 0 || l.precision > NUMERIC_DIGITS_MAX || l.scale > l.precision)
        {
            let what =
                format!("{scalar}: precision is 1 to {NUMERIC_DIGITS_MAX}, scale at most the precision");
            return Err(invalid(&parts.name, what));
        }
        let labels = self.labels_of(&parts.name, def.ty)?;
        let default =
            self.checked_default(&parts.name, &def.name, (def.ty, labels.as_deref()), def.default)?;
        let identity = match def.identity {
            Some(_) if !matches!(def.ty, Type::INT2 | Type::INT4 | Type::INT8) => {
                return Err(invalid(&parts.name, format!("identity column {:?} is an integer", def.name)));
            }
            Some(_) if default != DefaultValue::None => {
                return Err(invalid(&parts.name, format!("identity column {:?} has no default", def.name)));
            }
            Some(identity) => Some((identity, self.new_object()?)),
            None => None,
        };
        let id = parts.next_column;
        parts.next_column += 1;
        let nullable = def.nullable && identity.is_none();
        let missing = Value::Null;
        let precision = checked_precision(&parts.name, &def.name, def.ty, def.precision)?;
        let default = kept_default(default, precision);
        Ok(Column { id, name: def.name, ty: def.ty, nullable, default, identity, missing, labels, precision })
    }

    fn checked_default(
        &self,
        table: &str,
        column: &str,
        (ty, labels): (Type, Option<&EnumType>),
        default: DefaultValue,
    ) -> Result<DefaultValue, TablesError> {
        let timed = matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::DATE | Type::TIME);
        Ok(match default {
            DefaultValue::Value(value) => {
                let read = match labels {
                    None => Ok(value),
                    Some(labels) => labels.read(value),
                };
                DefaultValue::Value(read.and_then(|value| value.assign(ty)).map_err(|source| {
                    TablesError::Value { table: table.to_owned(), column: column.to_owned(), source }
                })?)
            }
            DefaultValue::Now if !timed => {
                return Err(invalid(table, format!("column {column:?}: the time is no {ty}")));
            }
            DefaultValue::Next(_) if !matches!(ty, Type::INT2 | Type::INT4 | Type::INT8) => {
                return Err(invalid(
                    table,
                    format!("column {column:?}: the number of a sequence is no {ty}"),
                ));
            }
            DefaultValue::NewUuid if ty != Type::UUID => {
                return Err(invalid(table, format!("column {column:?}: a new UUID is no {ty}")));
            }
            other => other,
        })
    }

    fn new_index(&self, parts: &Parts, def: IndexDef, ready: bool) -> Result<Index, TablesError> {
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

    pub(crate) fn new_foreign_key(
        &mut self,
        parts: &mut Parts,
        def: ForeignKeyDef,
    ) -> Result<(), TablesError> {
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
        // Children are found through an index; a foreign key brings one where there is none.
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

    pub(crate) fn known(&mut self, name: &str) -> Result<Arc<Schema>, TablesError> {
        let id = self.find(name)?.ok_or_else(|| TablesError::UnknownTable { name: name.to_owned() })?;
        self.schema_by_id(id)
    }

    /// Other tables that refer to this one keep it from going.
    fn not_referenced(&mut self, schema: &Schema) -> Result<(), TablesError> {
        let other = schema.parts.referenced_by.iter().find(|id| **id != schema.id());
        let Some(other) = other else { return Ok(()) };
        let dependent = format!("table {:?}", self.schema_by_id(*other)?.name());
        Err(TablesError::Dependent { what: format!("table {:?}", schema.name()), dependent })
    }

    /// Drops a table with its rows and indexes.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`]; [`TablesError::Dependent`] when other tables refer to it.
    pub fn drop_table(&mut self, name: &str) -> Result<(), TablesError> {
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

    /// Empties a table. Its identity columns go on counting, or begin anew.
    ///
    /// # Errors
    /// As [`TablesTx::drop_table`].
    pub fn truncate(&mut self, name: &str, restart_identity: bool) -> Result<(), TablesError> {
        self.truncate_all(&[name], restart_identity, false).map(|_| ())
    }

    /// Empties tables, which may refer to each other; with `cascade` also those that refer to them. Answers which.
    ///
    /// # Errors
    /// As [`TablesTx::drop_table`].
    pub fn truncate_all(
        &mut self,
        names: &[&str],
        restart_identity: bool,
        cascade: bool,
    ) -> Result<Vec<Arc<Schema>>, TablesError> {
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

    fn empty(&mut self, schema: &Schema, restart_identity: bool) -> Result<(), TablesError> {
        let mut parts = schema.parts.clone();
        let old: Vec<u32> = parts.objects().collect();
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
        if restart_identity {
            let mut gone = Vec::new();
            for (_, sequence) in parts.columns.iter_mut().filter_map(|column| column.identity.as_mut()) {
                let (steps, ..) = self.tables.sequence(*sequence)?;
                gone.push(std::mem::replace(sequence, self.tables.new_sequence(steps)?));
            }
            self.drop_sequences(gone);
        }
        self.put_parts(parts, false)?;
        self.drop_objects(old);
        Ok(())
    }

    pub(crate) fn alter(
        &mut self,
        table: &str,
        change: impl FnOnce(&mut Self, &Arc<Schema>, &mut Parts) -> Result<(), TablesError>,
    ) -> Result<(), TablesError> {
        self.ddl(|tx| {
            let schema = tx.known(table)?;
            let mut parts = schema.parts.clone();
            change(tx, &schema, &mut parts)?;
            tx.put_parts(parts, false)?;
            Ok(())
        })
    }

    /// Adds a column; rows that are there show its default. Cost: none per row.
    ///
    /// # Errors
    /// The name is taken. A column that needs a value of its own in each row, such as one that is NOT NULL without a default,
    /// is refused unless the table is empty.
    pub fn add_column(&mut self, table: &str, def: ColumnDef) -> Result<(), TablesError> {
        self.alter(table, |tx, schema, parts| {
            let name = def.name.clone();
            let mut column = tx.new_column(parts, def)?;
            column.missing = match &column.default {
                DefaultValue::Value(value) => value.clone(),
                DefaultValue::Now => {
                    let now = now(column.ty, tx.tables.engine.env().clock.wall_micros());
                    column.precision.map_or(now.clone(), |precision| precision.keep(now))
                }
                DefaultValue::None | DefaultValue::NewUuid | DefaultValue::Next(_) => Value::Null,
            };
            let per_row = column.identity.is_some()
                || matches!(column.default, DefaultValue::NewUuid | DefaultValue::Next(_));
            if (per_row || !column.nullable && column.missing.is_null()) && !tx.is_empty(schema)? {
                let what = format!("column {name:?} needs a value in every row, and there are rows");
                return Err(invalid(table, what));
            }
            parts.columns.push(column);
            Ok(())
        })
    }

    /// Drops a column. Cost: none per row.
    ///
    /// # Errors
    /// [`TablesError::Dependent`] when the key, an index, a check or a foreign key needs it.
    pub fn drop_column(&mut self, table: &str, column: &str) -> Result<(), TablesError> {
        self.alter(table, |tx, schema, parts| {
            let place = schema.index_of(column)?;
            let id = schema.column_at(place)?.id;
            let key = parts.key.contains(&id).then(|| "the primary key".to_owned());
            let index = parts.indexes.iter().find(|i| i.reads(id)).map(|i| format!("index {:?}", i.name));
            let check = parts.checks.iter().find(|c| c.expr.reads(id)).map(|c| format!("check {:?}", c.name));
            if let Some(dependent) = key.or(index).or(check) {
                return Err(TablesError::Dependent { what: format!("column {column:?}"), dependent });
            }
            let dropped = parts.columns.remove(place);
            tx.drop_sequences(dropped.identity.map(|(_, sequence)| sequence));
            Ok(())
        })
    }

    /// Renames a column.
    ///
    /// # Errors
    /// The new name is taken.
    pub fn rename_column(&mut self, table: &str, column: &str, name: &str) -> Result<(), TablesError> {
        self.alter(table, |_, schema, parts| {
            check_name(table, "column", name)?;
            let place = schema.index_of(column)?;
            if schema.columns().iter().any(|column| column.name == name) {
                return Err(TablesError::Duplicate { kind: "column", name: name.to_owned() });
            }
            if let Some(column) = parts.columns.get_mut(place) {
                column.name = name.to_owned();
            }
            Ok(())
        })
    }

    /// Changes what new rows get that are given no value.
    ///
    /// # Errors
    /// A value that does not fit.
    pub fn set_default(
        &mut self,
        table: &str,
        column: &str,
        default: DefaultValue,
    ) -> Result<(), TablesError> {
        self.alter(table, |tx, schema, parts| {
            let place = schema.index_of(column)?;
            let known = schema.column_at(place)?;
            let default = tx.checked_default(table, column, (known.ty, known.labels.as_deref()), default)?;
            match parts.columns.get_mut(place) {
                Some(column) if column.identity.is_some() && default != DefaultValue::None => {
                    return Err(invalid(table, format!("identity column {:?} has no default", column.name)));
                }
                Some(column) => column.default = kept_default(default, column.precision),
                None => {}
            }
            Ok(())
        })
    }

    /// How exactly a column keeps times from now on; what rows have stays as it is.
    ///
    /// # Errors
    /// The column is of another type.
    pub fn set_precision(
        &mut self,
        table: &str,
        column: &str,
        precision: Option<Precision>,
    ) -> Result<(), TablesError> {
        self.alter(table, |_, schema, parts| {
            let place = schema.index_of(column)?;
            let ty = schema.column_at(place)?.ty;
            if let Some(known) = parts.columns.get_mut(place) {
                known.precision = checked_precision(table, column, ty, precision)?;
                known.default = kept_default(std::mem::take(&mut known.default), known.precision);
            }
            Ok(())
        })
    }

    /// Renames a table.
    ///
    /// # Errors
    /// The new name is taken.
    pub fn rename_table(&mut self, table: &str, name: &str) -> Result<(), TablesError> {
        self.alter(table, |tx, _, parts| {
            check_kept_name("table", name)?;
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

    /// Creates an index and fills it within this transaction: it is there when the transaction commits, which conflicts with
    /// writes to the table meanwhile. For large tables that are in use see [`crate::catalog::tables::Tables::create_index`].
    ///
    /// # Errors
    /// The name is taken; rows that are there break its uniqueness.
    pub fn create_index(&mut self, table: &str, def: IndexDef) -> Result<(), TablesError> {
        self.statement(|statement| statement.create_index(table, def))
    }

    /// Adds an index to the definition; the caller fills it.
    pub(crate) fn declare_index(
        &mut self,
        table: &str,
        def: IndexDef,
        ready: bool,
    ) -> Result<(Arc<Schema>, Index), TablesError> {
        let mut parts = self.known(table)?.parts.clone();
        if parts.indexes.len() >= INDEXES_MAX {
            return Err(invalid(table, format!("a table has at most {INDEXES_MAX} indexes")));
        }
        let index = self.new_index(&parts, def, ready)?;
        parts.indexes.push(index.clone());
        Ok((self.put_parts(parts, false)?, index))
    }

    /// Gives the index that a foreign key brought to whoever asks for one like it; false when there is none.
    fn adopt_index(&mut self, table: &str, def: &IndexDef) -> Result<bool, TablesError> {
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
        if let Some(index) = parts.indexes.get_mut(place) {
            (index.name, index.of_key) = (name, false);
        }
        self.put_parts(parts, false)?;
        Ok(true)
    }

    /// Drops an index, finished or not. One that a foreign key on the same columns needs stays as the key's own.
    ///
    /// # Errors
    /// [`TablesError::UnknownIndex`]; [`TablesError::Dependent`] when a foreign key needs it.
    pub fn drop_index(&mut self, table: &str, name: &str) -> Result<(), TablesError> {
        self.alter(table, |tx, schema, parts| {
            let place = parts.indexes.iter().position(|index| index.name == name);
            let place = place.ok_or_else(|| TablesError::UnknownIndex {
                table: table.to_owned(),
                index: name.to_owned(),
            })?;
            if let Some(label) = label_for_key(parts, place) {
                let name = fresh_name(|name| index_name_taken(parts, name), label);
                if let Some(index) = parts.indexes.get_mut(place) {
                    (index.name, index.of_key) = (name, true);
                }
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

impl crate::write::Statement<'_, '_> {
    fn create_index(&mut self, table: &str, def: IndexDef) -> Result<(), TablesError> {
        if self.tx().adopt_index(table, &def)? {
            return Ok(());
        }
        let (schema, index) = self.tx().declare_index(table, def, true)?;
        self.fill(&schema, &index)
    }

    /// Every row of the table, which at commit must have no others.
    pub(crate) fn all_rows(&mut self, schema: &Arc<Schema>) -> Result<Vec<OwnedRow>, TablesError> {
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

    /// Puts the entries of all rows.
    pub(crate) fn fill(&mut self, schema: &Arc<Schema>, index: &Index) -> Result<(), TablesError> {
        for row in self.all_rows(schema)? {
            if let Some(entry) = index_entry(schema, index, &row.values()?, row.key())? {
                self.put_entry(schema, index, &entry)?;
            }
        }
        Ok(())
    }
}
