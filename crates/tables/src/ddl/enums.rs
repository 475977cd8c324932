//! Creates, changes and drops enum types. A change also rewrites the definitions of the tables that use the
//! type.

use std::sync::Arc;

use crate::catalog::{enum_key, table_key};
use crate::error::{Result, TablesError, invalid};
use crate::read::TablesRead;
use crate::schema::define::DefaultValue;
use crate::schema::enums::{EnumChange, EnumType, wrong};
use crate::schema::names::check_kept_name;
use crate::schema::{DEFINITION_BYTES_MAX, Parts};
use crate::value::Value;
use crate::value::types::Type;
use crate::write::tx::TablesTx;

impl Parts {
    fn uses(&self, number: u32) -> bool {
        self.columns.iter().any(|column| column.ty.enum_number() == Some(number))
    }

    /// Replaces the cached copies of a changed type.
    fn renew_enum(&mut self, changed: &Arc<EnumType>) {
        let mut renamed = |value: &mut Value<'static>| {
            let is_of_type = value.value_type().and_then(Type::enum_number) == Some(changed.number());
            let named = changed.named(value.borrowed()).map(Value::into_owned);
            if let Some(named) = named.filter(|_| is_of_type) {
                *value = named;
            }
        };
        for column in &mut self.columns {
            if column.ty.enum_number() == Some(changed.number()) {
                column.labels = Some(changed.clone());
            }
            if let DefaultValue::Value(value) = &mut column.default {
                renamed(value);
            }
            renamed(&mut column.missing);
        }
        let indexed = self.indexes.iter_mut().flat_map(|index| {
            index.columns.iter_mut().map(|column| &mut column.expr).chain(&mut index.filter)
        });
        let checked = self.checks.iter_mut().map(|check| &mut check.expr);
        indexed.chain(checked).for_each(|expr| expr.for_literals(&mut renamed));
    }
}

impl TablesTx<'_> {
    /// Creates an enum type.
    ///
    /// # Errors
    /// The name is taken; a duplicate label.
    pub fn create_enum(&mut self, name: &str, labels: &[&str]) -> Result<EnumType> {
        check_kept_name("type", name)?;
        self.ddl(|tx| {
            if tx.enum_named(name)?.is_some() {
                return Err(TablesError::Duplicate { kind: "type", name: name.to_owned() });
            }
            let made = EnumType::new(tx.tables.model.new_object(&tx.tables.engine)?, name, labels)?;
            tx.put_enum(&made)?;
            Ok(made)
        })
    }

    /// Changes an enum type, and the definition of every table that has columns of it. Cost: none per row.
    ///
    /// # Errors
    /// [`TablesError::UnknownType`], [`TablesError::UnknownLabel`]; the new name or label is taken; no space
    /// between two labels.
    pub fn alter_enum(&mut self, name: &str, change: &EnumChange) -> Result<EnumType> {
        self.ddl(|tx| {
            let mut changed = tx.known_enum(name)?;
            changed.change(change)?;
            if changed.name() != name {
                if tx.enum_named(changed.name())?.is_some() {
                    return Err(TablesError::Duplicate { kind: "type", name: changed.name().to_owned() });
                }
                tx.delete_enum(name);
            }
            tx.put_enum(&changed)?;
            let shared = Arc::new(changed.clone());
            for mut parts in tx.users(changed.number())? {
                parts.renew_enum(&shared);
                tx.put_parts(parts, false)?;
            }
            Ok(changed)
        })
    }

    /// Drops an enum type.
    ///
    /// # Errors
    /// [`TablesError::UnknownType`]; [`TablesError::Dependent`] while a column uses it.
    pub fn drop_enum(&mut self, name: &str) -> Result<()> {
        self.ddl(|tx| {
            let known = tx.known_enum(name)?;
            if let Some(parts) = tx.users(known.number())?.first() {
                let column =
                    parts.columns.iter().find(|column| column.ty.enum_number() == Some(known.number()));
                let column = column.map_or("", |column| &column.name);
                let dependent = format!("column {column:?} of table {:?}", parts.name);
                return Err(TablesError::Dependent { what: format!("type {name:?}"), dependent });
            }
            tx.delete_enum(name);
            Ok(())
        })
    }

    fn known_enum(&mut self, name: &str) -> Result<EnumType> {
        self.enum_named(name)?.ok_or_else(|| TablesError::UnknownType { name: name.to_owned() })
    }

    fn put_enum(&mut self, made: &EnumType) -> Result<()> {
        let mut bytes = Vec::new();
        made.encode(&mut bytes);
        if bytes.len() > DEFINITION_BYTES_MAX {
            return Err(wrong(made.name(), format!("more than {DEFINITION_BYTES_MAX} bytes of labels")));
        }
        let catalog = self.spaces().catalog;
        self.kv.guard_key(catalog, &enum_key(made.name()));
        self.kv.put(catalog, &enum_key(made.name()), &bytes);
        self.kv.pin_statement_snapshot();
        Ok(())
    }

    fn delete_enum(&mut self, name: &str) {
        let catalog = self.spaces().catalog;
        self.kv.guard_key(catalog, &enum_key(name));
        self.kv.delete(catalog, &enum_key(name));
        self.kv.pin_statement_snapshot();
    }

    /// The definitions of the tables that have columns of a type.
    fn users(&mut self, number: u32) -> Result<Vec<Parts>> {
        let mut found = Vec::new();
        self.walk_catalog(&table_key(0), b"u", &mut |_, bytes| match Parts::decode(bytes) {
            Ok(parts) if !parts.uses(number) => {}
            other => found.push(other.map_err(TablesError::damaged("a definition"))),
        })?;
        found.into_iter().collect()
    }

    /// The type of a new column, if it is an enum. Writes the type's entry unchanged, so that the commit
    /// conflicts with a concurrent change or drop of the type.
    pub(crate) fn labels_of(&mut self, table: &str, ty: Type) -> Result<Option<Arc<EnumType>>> {
        let Some(number) = ty.enum_number() else { return Ok(None) };
        let unknown = || invalid(table, format!("there is no enum type of number {number}"));
        let known = self.enum_numbered(number)?.ok_or_else(unknown)?;
        self.put_enum(&known)?;
        Ok(Some(Arc::new(known)))
    }
}
