//! Readable keys for messages: `(region, id)=(eu, 5)`.

use crate::schema::{Index, Schema};
use crate::value::Value;
use crate::value::key::{take_marked, take_value};
use crate::value::types::Type;

fn joined(values: impl Iterator<Item = Option<String>>) -> String {
    values.map(|value| value.unwrap_or_else(|| "?".into())).collect::<Vec<_>>().join(", ")
}

/// A value of a key, with its label if it is an enum.
fn named(schema: &Schema, value: &Value<'_>) -> String {
    let number = value.value_type().and_then(Type::enum_number);
    let mut labels = schema.columns().iter().filter_map(|column| column.labels.as_ref());
    let labels = labels.find(|labels| Some(labels.number()) == number);
    let named = labels.and_then(|labels| labels.named(value.borrowed()));
    named.as_ref().unwrap_or(value).to_string()
}

/// Columns and values of a row's key.
pub(crate) fn row_key(schema: &Schema, key: &[u8]) -> String {
    let mut rest = key.get(4..).unwrap_or_default();
    if schema.key_columns().is_empty() {
        return format!("number {}", ropewalk_base::keys::take_i64(rest).map_or(0, |(number, _)| number));
    }
    let columns = || schema.key_columns().iter().filter_map(|place| schema.columns().get(*place));
    let names = joined(columns().map(|column| Some(column.name.clone())));
    let values = joined(columns().map(|column| {
        let (value, tail) = take_value(column.ty, rest).ok()?;
        rest = tail;
        Some(named(schema, &value))
    }));
    format!("({names})=({values})")
}

fn index_names(schema: &Schema, index: &Index) -> String {
    joined(index.columns.iter().map(|part| {
        let plain = schema
            .columns()
            .iter()
            .find(|c| part.expr == crate::value::expr::Expr::Column(crate::value::expr::ColumnRef::Id(c.id)));
        Some(plain.map_or_else(|| "expression".to_owned(), |column| column.name.clone()))
    }))
}

/// Columns and values of an index entry.
pub(crate) fn entry_key(schema: &Schema, index: &Index, key: &[u8]) -> String {
    let mut rest = key.get(4..).unwrap_or_default();
    let values = joined(index.columns.iter().map(|part| {
        let (value, tail) = take_marked(part.ty, part.order, rest).ok()?;
        rest = tail;
        Some(named(schema, &value))
    }));
    format!("({})=({values})", index_names(schema, index))
}

/// Values of some columns.
pub(crate) fn columns(schema: &Schema, ids: &[u16], values: &[Value<'_>]) -> String {
    let name =
        |id: &u16| schema.place_of(*id).and_then(|place| Some(schema.columns().get(place)?.name.clone()));
    format!("({})=({})", joined(ids.iter().map(name)), joined(values.iter().map(|v| Some(v.to_string()))))
}

/// Describes any key of the table's objects: table, index, values.
pub(crate) fn any_key(schema: &Schema, key: &[u8]) -> String {
    let object = key.first_chunk().copied().map(u32::from_be_bytes);
    let table = schema.name();
    match schema.indexes().iter().find(|index| Some(index.object) == object) {
        Some(index) => format!("table {table:?}, index {:?}, {}", index.name, entry_key(schema, index, key)),
        None => format!("table {table:?}, row {}", row_key(schema, key)),
    }
}
