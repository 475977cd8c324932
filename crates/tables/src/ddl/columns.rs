//! Adds, drops and changes columns, without a write to any row.

use crate::error::{Result, TablesError, invalid};
use crate::schema::define::{ColumnDef, DefaultValue};
use crate::schema::enums::EnumType;
use crate::schema::names::check_name;
use crate::schema::{COLUMNS_MAX, Column, Parts};
use crate::value::Value;
use crate::value::precision::Precision;
use crate::value::types::{NUMERIC_DIGITS_MAX, Scalar, Type};
use crate::write::tx::TablesTx;
use crate::write::values::now;

fn checked_precision(
    table: &str,
    column: &str,
    ty: Type,
    precision: Option<Precision>,
) -> Result<Option<Precision>> {
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
    pub(super) fn new_column(&mut self, parts: &mut Parts, def: ColumnDef) -> Result<Column> {
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
        debug_assert!(parts.columns.iter().all(|column| column.id < id), "numbers of columns rise");
        let nullable = def.nullable && identity.is_none();
        let missing = Value::Null;
        let precision = checked_precision(&parts.name, &def.name, def.ty, def.precision)?;
        let default = kept_default(default, precision);
        Ok(Column { id, name: def.name, ty: def.ty, nullable, default, identity, missing, labels, precision })
    }

    pub(super) fn checked_default(
        &self,
        table: &str,
        column: &str,
        (ty, labels): (Type, Option<&EnumType>),
        default: DefaultValue,
    ) -> Result<DefaultValue> {
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

    /// Adds a column; existing rows read its default. Cost: none per row.
    ///
    /// # Errors
    /// The name is taken. A column that needs an individual value in each row, such as one that is NOT NULL
    /// without a default, is rejected unless the table is empty.
    pub fn add_column(&mut self, table: &str, def: ColumnDef) -> Result<()> {
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
    pub fn drop_column(&mut self, table: &str, column: &str) -> Result<()> {
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
    pub fn rename_column(&mut self, table: &str, column: &str, name: &str) -> Result<()> {
        self.alter(table, |_, schema, parts| {
            check_name(table, "column", name)?;
            let place = schema.index_of(column)?;
            if schema.columns().iter().any(|column| column.name == name) {
                return Err(TablesError::Duplicate { kind: "column", name: name.to_owned() });
            }
            parts.column_mut(place).name = name.to_owned();
            Ok(())
        })
    }

    /// Changes the default for new rows.
    ///
    /// # Errors
    /// A value that does not fit.
    pub fn set_default(&mut self, table: &str, column: &str, default: DefaultValue) -> Result<()> {
        self.alter(table, |tx, schema, parts| {
            let place = schema.index_of(column)?;
            let known = schema.column_at(place)?;
            let default = tx.checked_default(table, column, (known.ty, known.labels.as_deref()), default)?;
            let column = parts.column_mut(place);
            if column.identity.is_some() && default != DefaultValue::None {
                return Err(invalid(table, format!("identity column {:?} has no default", column.name)));
            }
            column.default = kept_default(default, column.precision);
            Ok(())
        })
    }

    /// Changes the precision of a column of times; existing values are unchanged.
    ///
    /// # Errors
    /// The column is of another type.
    pub fn set_precision(&mut self, table: &str, column: &str, precision: Option<Precision>) -> Result<()> {
        self.alter(table, |_, schema, parts| {
            let place = schema.index_of(column)?;
            let ty = schema.column_at(place)?.ty;
            let known = parts.column_mut(place);
            known.precision = checked_precision(table, column, ty, precision)?;
            known.default = kept_default(std::mem::take(&mut known.default), known.precision);
            Ok(())
        })
    }
}
