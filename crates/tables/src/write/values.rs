//! The values of a row before it is written: assigned by name, completed by defaults, validated by checks.

use crate::catalog::tables::Tables;
use crate::error::{Result, TablesError};
use crate::schema::define::{DefaultValue, Identity};
use crate::schema::{Column, Schema};
use crate::value::Value;
use crate::value::types::Type;

/// The default value of a column for a new row.
pub(super) fn default(
    tables: &Tables,
    schema: &Schema,
    column: &Column,
    now_micros: &dyn Fn() -> i64,
) -> Result<Value<'static>> {
    if let Some((_, sequence)) = column.identity {
        return assigned(schema, column, Value::Int8(tables.next_number(sequence)?));
    }
    let env = tables.engine.env();
    let value = match &column.default {
        DefaultValue::None => Value::Null,
        DefaultValue::Value(value) => value.clone(),
        DefaultValue::Now => now(column.ty, now_micros()),
        DefaultValue::Next(sequence) => Value::Int8(tables.next_number(*sequence)?),
        DefaultValue::NewUuid => {
            let (high, low) = (env.random.next_u64(), env.random.next_u64());
            let random =
                uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
            Value::Uuid(random.into_uuid().into_bytes())
        }
    };
    assigned(schema, column, value)
}

/// The values of a row in stored form, with defaults for those not given. With `takes_generated` values may
/// be given for columns that are always generated.
pub(crate) fn completed<'v>(
    tables: &Tables,
    schema: &Schema,
    now_micros: &dyn Fn() -> i64,
    given: impl IntoIterator<Item = Option<Value<'v>>>,
    takes_generated: bool,
) -> Result<Vec<Value<'v>>> {
    let mut values = Vec::with_capacity(schema.columns().len());
    for (column, value) in schema.columns().iter().zip(given) {
        values.push(match value {
            Some(_) if !takes_generated && matches!(column.identity, Some((Identity::Always, _))) => {
                let (table, column) = (schema.name().to_owned(), column.name.clone());
                return Err(TablesError::Generated { table, column });
            }
            Some(value) => assigned(schema, column, value)?,
            None => default(tables, schema, column, now_micros)?,
        });
    }
    debug_assert_eq!(values.len(), schema.columns().len(), "every column was given, or left to its default");
    Ok(values)
}

/// Assigns named values to the columns.
pub(crate) fn named<'v>(schema: &Schema, values: &'v [(&str, Value<'_>)]) -> Result<Vec<Option<Value<'v>>>> {
    let mut row = vec![None; schema.columns().len()];
    for (name, value) in values {
        let place = schema.index_of(name)?;
        let slot = row.get_mut(place).expect("a row has a place for each column");
        if slot.replace(value.borrowed()).is_some() {
            return Err(TablesError::Duplicate { kind: "column", name: (*name).to_owned() });
        }
    }
    Ok(row)
}

pub(super) fn assigned<'v>(schema: &Schema, column: &Column, value: Value<'v>) -> Result<Value<'v>> {
    let names = || (schema.name().to_owned(), column.name.clone());
    if value.is_null() && !column.nullable {
        let (table, column) = names();
        return Err(TablesError::NotNull { table, column });
    }
    column.keep(value).map_err(|source| {
        let (table, column) = names();
        TablesError::Value { table, column, source }
    })
}

pub(crate) fn check(schema: &Schema, values: &[Value<'_>]) -> Result<()> {
    let column = |id| {
        let place = schema.place_of(id).ok_or("a check reads a column that is gone")?;
        values.get(place).map(Value::borrowed).ok_or_else(|| "a row is short of a column".to_owned())
    };
    for check in schema.checks() {
        let table = || schema.name().to_owned();
        let outcome = check.expr.eval(&column).map_err(|what| {
            let what = format!("check {:?}: {what}", check.name);
            TablesError::Evaluation { table: table(), what }
        })?;
        if outcome == Value::Bool(false) {
            return Err(TablesError::Check { table: table(), constraint: check.name.clone() });
        }
    }
    Ok(())
}

/// The current time as a value of a column's type.
pub(crate) fn now(ty: Type, micros: i64) -> Value<'static> {
    const DAY: i64 = 86_400_000_000;
    match ty {
        Type::TIMESTAMPTZ => Value::Timestamptz(micros),
        Type::DATE => Value::Date(i32::try_from(micros.div_euclid(DAY)).unwrap_or(i32::MAX)),
        Type::TIME => Value::Time(micros.rem_euclid(DAY)),
        _ => Value::Timestamp(micros),
    }
}
