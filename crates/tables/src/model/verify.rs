//! Checks the invariants of tables on all stored data: every row decodes; every index has exactly the
//! entries of its rows; every reference has its parent; every key belongs to a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropewalk_engine::{EngineError, ReadView};

use crate::catalog::{Spaces, enum_key, loading_objects, object_range};
use crate::row::Row;
use crate::row::display;
use crate::row::keys::index_entry;
use crate::schema::{Parts, Schema};

/// Most reported lines; the rest is counted.
const LINES_MAX: usize = 100;

pub(crate) fn verify(spaces: Spaces, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
    let mut lines = Vec::new();
    let schemas = schemas(spaces, read, &mut lines)?;
    let mut objects: BTreeSet<u32> = schemas.values().flat_map(|schema| schema.parts.objects()).collect();
    objects.extend(loading_objects(spaces, read)?);
    enums(spaces, read, &schemas, &mut lines)?;
    for schema in schemas.values() {
        rows(spaces, read, schema, &schemas, &mut lines)?;
    }
    let mut cursor = read.cursor(spaces.rows);
    cursor.first()?;
    while cursor.valid() {
        let object = cursor.key().first_chunk().copied().map(u32::from_be_bytes);
        if !object.is_some_and(|object| objects.contains(&object)) {
            lines.push(format!("object {object:?} has keys and belongs to no table"));
        }
        // Skip to the next object.
        let Some((_, Some(next))) = object.map(object_range) else { break };
        cursor.seek(&next)?;
    }
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more"));
    }
    Ok(lines)
}

fn schemas(
    spaces: Spaces,
    read: ReadView<'_>,
    lines: &mut Vec<String>,
) -> Result<BTreeMap<u32, Arc<Schema>>, EngineError> {
    let mut found = BTreeMap::new();
    let mut cursor = read.cursor(spaces.catalog);
    cursor.seek(b"t")?;
    while cursor.valid() && cursor.key().first() == Some(&b't') {
        match Parts::decode(cursor.value()) {
            Ok(parts) => {
                found.insert(parts.id, Arc::new(Schema::new(parts)));
            }
            Err(error) => lines.push(format!("a definition does not decode: {error}")),
        }
        cursor.next()?;
    }
    Ok(found)
}

/// Checks that the enum types in definitions equal the types themselves.
fn enums(
    spaces: Spaces,
    read: ReadView<'_>,
    schemas: &BTreeMap<u32, Arc<Schema>>,
    lines: &mut Vec<String>,
) -> Result<(), EngineError> {
    for schema in schemas.values() {
        for column in schema.columns() {
            let Some(labels) = &column.labels else { continue };
            let stored = read.get(spaces.catalog, &enum_key(labels.name()))?;
            let mut known = Vec::new();
            labels.encode(&mut known);
            if stored.as_deref() != Some(known.as_slice()) {
                let (table, column) = (schema.name(), column.name());
                lines.push(format!(
                    "table {table:?}, column {column:?}: its type is not as {:?} is",
                    labels.name()
                ));
            }
        }
    }
    Ok(())
}

fn rows(
    spaces: Spaces,
    read: ReadView<'_>,
    schema: &Arc<Schema>,
    schemas: &BTreeMap<u32, Arc<Schema>>,
    lines: &mut Vec<String>,
) -> Result<(), EngineError> {
    let table = schema.name();
    let mut expected = vec![0_u64; schema.indexes().len()];
    let (start, end) = object_range(schema.parts.rows);
    let mut cursor = read.cursor(spaces.rows);
    cursor.seek(&start)?;
    while cursor.valid() && end.is_none_or(|end| cursor.key() < end.as_slice()) {
        let row = Row::new(schema, cursor.key(), cursor.value());
        let values = match row.values() {
            Ok(values) => values,
            Err(error) => {
                lines.push(error.to_string());
                cursor.next()?;
                continue;
            }
        };
        for (index, expected) in schema.indexes().iter().zip(&mut expected) {
            match index_entry(schema, index, &values, cursor.key()) {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    let stored = read.get(spaces.rows, &entry.key)?;
                    *expected += u64::from(stored.is_some());
                    if stored.as_deref() != Some(&entry.value) && index.ready {
                        let row = display::row_key(schema, cursor.key());
                        lines.push(format!("table {table:?}, index {:?} lacks row {row}", index.name));
                    }
                }
                Err(error) => lines.push(error.to_string()),
            }
        }
        for foreign in schema.foreign_keys() {
            let parent = schemas.get(&foreign.parent);
            match crate::write::references::parent_of(schema, foreign, &values, parent) {
                Ok(Some(key)) if read.get(spaces.rows, &key)?.is_none() => {
                    let row = display::row_key(schema, cursor.key());
                    lines.push(format!(
                        "table {table:?}, foreign key {:?}: row {row} has no parent",
                        foreign.name
                    ));
                }
                Ok(_) => {}
                Err(error) => lines.push(error.to_string()),
            }
        }
        cursor.next()?;
    }
    for (index, expected) in schema.indexes().iter().zip(expected) {
        let (start, end) = object_range(index.object);
        let mut cursor = read.cursor(spaces.rows);
        cursor.seek(&start)?;
        let mut found = 0;
        while cursor.valid() && end.is_none_or(|end| cursor.key() < end.as_slice()) {
            found += 1;
            cursor.next()?;
        }
        if found != expected {
            lines.push(format!(
                "table {table:?}, index {:?} has {found} entries, its rows {expected}",
                index.name
            ));
        }
    }
    Ok(())
}
