//! Keys of rows and index entries, built from values.
//!
//! The value of an index entry identifies the row. 0 and a varint length: the row's key (without its object)
//! is the tail of the entry's key. 1: the row's key follows; this form is for entries that are unique by
//! their columns.

use ropewalk_base::{DecodeError, Decoder, put_varint};

use crate::error::{Result, TablesError};
use crate::schema::{Index, KEY_BYTES_MAX, Schema};
use crate::value::Value;
use crate::value::key::{put_marked, put_value};

/// Replaces `out` by the key of the row with these primary key values. The key may exceed the limit for
/// keys: then a lookup finds nothing, and a write checks the length.
#[inline]
pub(crate) fn put_row_key(schema: &Schema, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    append_row_key(schema, values, out)
}

/// Appends the key of the row with these primary key values.
#[inline]
pub(crate) fn append_row_key(schema: &Schema, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&schema.parts.rows.to_be_bytes());
    if values.len() != schema.key_columns().len() || values.is_empty() {
        let (expected, found) = (schema.key_columns().len(), values.len());
        return Err(TablesError::Arity { table: schema.name().to_owned(), expected, found });
    }
    schema
        .key_columns()
        .iter()
        .zip(values)
        .try_for_each(|(place, value)| put_key_column(schema, *place, value, out))
}

pub(crate) fn check_length(schema: &Schema, what: &'static str, bytes: usize) -> Result<()> {
    if bytes > KEY_BYTES_MAX {
        let table = schema.name().to_owned();
        return Err(TablesError::TooLarge { table, what, bytes, max: KEY_BYTES_MAX });
    }
    Ok(())
}

/// Appends one column of a primary key.
#[inline]
pub(crate) fn put_key_column(
    schema: &Schema,
    place: usize,
    value: &Value<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let column = schema.column_at(place)?;
    if value.value_type() == Some(column.ty) {
        put_value(out, value);
        return Ok(());
    }
    if value.is_null() {
        let (table, column) = (schema.name().to_owned(), column.name.clone());
        return Err(TablesError::NotNull { table, column });
    }
    let value = column.assign(value.borrowed()).map_err(|source| TablesError::Value {
        table: schema.name().to_owned(),
        column: column.name.clone(),
        source,
    })?;
    put_value(out, &value);
    Ok(())
}

/// The key of a row number in a table without a primary key.
pub(crate) fn numbered_key(schema: &Schema, number: i64) -> Vec<u8> {
    let mut key = schema.parts.rows.to_be_bytes().to_vec();
    ropewalk_base::keys::put_i64(&mut key, number);
    key
}

/// One entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// No other row may have this key.
    pub(crate) exclusive: bool,
}

/// The entry of a row with these `values`; `None` when the index omits the row.
pub(crate) fn index_entry(
    schema: &Schema,
    index: &Index,
    values: &[Value<'_>],
    row_key: &[u8],
) -> Result<Option<Entry>> {
    let column = |id| {
        let place = schema.place_of(id).ok_or("an index reads a column that is gone")?;
        values.get(place).map(Value::borrowed).ok_or_else(|| "a row is short of a column".to_owned())
    };
    let failed = |what: String| {
        let what = format!("index {:?}: {what}", index.name);
        TablesError::Evaluation { table: schema.name().to_owned(), what }
    };
    if let Some(filter) = &index.filter
        && filter.eval(&column).map_err(failed)? != Value::Bool(true)
    {
        return Ok(None);
    }
    let mut key = index.object.to_be_bytes().to_vec();
    let mut exclusive = index.unique;
    for part in &index.columns {
        let value = part.expr.eval(&column).map_err(failed)?;
        exclusive &= !value.is_null();
        put_marked(&mut key, &value, part.order);
    }
    check_length(schema, "index key", key.len() - 4)?;
    let suffix = row_key.get(4..).expect("a row's key begins with its object");
    let mut value = vec![u8::from(exclusive)];
    if exclusive {
        value.extend_from_slice(suffix);
    } else {
        put_varint(&mut value, suffix.len() as u64);
        key.extend_from_slice(suffix);
    }
    debug_assert!(
        entry_row(schema.parts.rows, &key, &value).is_ok_and(|row| row.get(4..) == Some(suffix)),
        "an index entry leads to its row"
    );
    Ok(Some(Entry { key, value, exclusive }))
}

/// The key of the row that an index entry refers to.
pub(crate) fn entry_row(rows: u32, key: &[u8], value: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let error = DecodeError { what: "index entry that leads to a row", offset: 0 };
    let mut decoder = Decoder::new(value);
    let suffix = match decoder.u8("kind of index entry")? {
        0 => {
            let length =
                usize::try_from(decoder.varint("length of a row key")?).map_err(|_| error.clone())?;
            let start =
                key.len().checked_sub(length).filter(|start| *start >= 4).ok_or_else(|| error.clone())?;
            key.get(start..).ok_or(error)?
        }
        1 => decoder.rest(),
        _ => return Err(error),
    };
    Ok([&rows.to_be_bytes(), suffix].concat())
}
