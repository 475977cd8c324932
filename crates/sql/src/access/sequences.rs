//! Stored sequences, and the resolution of sequence names.
//!
//! ```text
//! ropewalk_sequences   name ─▶ number of the sequence in the tables model, type, the column that owns it
//! identity columns     table_column_seq ─▶ the number in the definition of the column
//! ```

use std::sync::Arc;

use ropewalk::tables::{Schema, Type, Value};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::types::settings::Settings;

/// The table that holds all sequences except those of identity columns.
pub(crate) const SEQUENCES: &str = "ropewalk_sequences";

/// A named sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) name: String,
    /// Its number in the tables model.
    pub(crate) number: u32,
    pub(crate) ty: Type,
    /// The owning table and column, by number.
    pub(crate) owner: Option<(u32, u16)>,
    /// It belongs to an identity column, and has no entry in [`SEQUENCES`].
    pub(crate) is_identity: bool,
}

impl Sequence {
    pub(crate) fn undefined(name: &str) -> SqlError {
        SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    }

    /// The smallest and largest number of the type.
    pub(crate) fn bounds(ty: Type) -> (i64, i64) {
        match ty {
            Type::INT2 => (i16::MIN.into(), i16::MAX.into()),
            Type::INT4 => (i32::MIN.into(), i32::MAX.into()),
            _ => (i64::MIN, i64::MAX),
        }
    }
}

/// The sequences of a table's identity columns, named as PostgreSQL names them.
pub(crate) fn of_table(schema: &Schema) -> impl Iterator<Item = Sequence> + '_ {
    schema.columns().iter().filter_map(|column| {
        Some(Sequence {
            name: format!("{}_{}_seq", schema.name(), column.name()),
            number: column.sequence()?,
            ty: column.column_type(),
            owner: Some((schema.id(), column.id())),
            is_identity: true,
        })
    })
}

fn damaged() -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, "a sequence's definition")
}

pub(crate) fn type_of_bytes(bytes: i64) -> Result<Type> {
    match bytes {
        2 => Ok(Type::INT2),
        4 => Ok(Type::INT4),
        8 => Ok(Type::INT8),
        _ => Err(damaged()),
    }
}

pub(crate) fn bytes_of_type(ty: Type) -> i32 {
    match ty {
        Type::INT2 => 2,
        Type::INT4 => 4,
        _ => 8,
    }
}

/// All sequences except those of identity columns.
pub(crate) fn all(access: &mut Access<'_>) -> Result<Vec<Sequence>> {
    let table = match access.table(SEQUENCES) {
        Ok((table, _)) => table,
        Err(error) if error.state == state::UNDEFINED_TABLE => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let budget = Budget::new(MEMORY_BYTES_MAX);
    let rows = access.all(&table, &ropewalk::tables::KeyRange::all(), &budget)?;
    rows.into_iter().map(|row| decoded(&row)).collect()
}

fn decoded(row: &[Value<'_>]) -> Result<Sequence> {
    let [Value::Text(name), number, bytes, table, column] = row else { return Err(damaged()) };
    let number = number.as_integer().and_then(|number| u32::try_from(number).ok()).ok_or_else(damaged)?;
    let ty = type_of_bytes(bytes.as_integer().ok_or_else(damaged)?)?;
    let owner = match (table.as_integer(), column.as_integer()) {
        (Some(table), Some(column)) => Some((
            u32::try_from(table).map_err(|_| damaged())?,
            u16::try_from(column).map_err(|_| damaged())?,
        )),
        _ => None,
    };
    Ok(Sequence { name: name.to_string(), number, ty, owner, is_identity: false })
}

/// The sequence of this name. `created` are tables that are visible to the transaction only.
pub(crate) fn find(access: &mut Access<'_>, created: &[String], name: &str) -> Result<Option<Sequence>> {
    match access.table(SEQUENCES) {
        Ok((table, _)) => {
            if let Some(row) = access.get(&table, &[Value::text(name)])? {
                return decoded(&row.values()?).map(Some);
            }
        }
        Err(error) if error.state == state::UNDEFINED_TABLE => {}
        Err(error) => return Err(error),
    }
    for table in tables_of(access, created)? {
        if !name.starts_with(&table) {
            continue;
        }
        if let Some(schema) = schema_of(access, &table)?
            && let Some(found) = of_table(&schema).find(|sequence| sequence.name == name)
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The sequence of this number.
fn numbered(access: &mut Access<'_>, created: &[String], number: u32) -> Result<Option<Sequence>> {
    if let Some(found) = all(access)?.into_iter().find(|sequence| sequence.number == number) {
        return Ok(Some(found));
    }
    for table in tables_of(access, created)? {
        if let Some(schema) = schema_of(access, &table)?
            && let Some(found) = of_table(&schema).find(|sequence| sequence.number == number)
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Resolves an argument: a name, or a number as `regclass` prints it.
pub(crate) fn meant(
    access: &mut Access<'_>,
    settings: &Settings,
    created: &[String],
    argument: &Value<'_>,
) -> Result<Sequence> {
    let wrong_kind =
        |name: &str| SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence"));
    if let Some(oid) = argument.as_integer() {
        let number = u32::try_from(oid - crate::types::names::FIRST_OID).ok();
        let found = number.map(|number| numbered(access, created, number)).transpose()?.flatten();
        return found.ok_or_else(|| wrong_kind(&oid.to_string()));
    }
    let Value::Text(text) = argument else { return Err(wrong_kind("NULL")) };
    let parts = crate::syntax::names::name_parts(text);
    let name = crate::syntax::statements::relation_of(&parts)?;
    let (name, _) = crate::access::schemas::relation(access, settings, created, &name)?;
    match find(access, created, &name)? {
        Some(found) => Ok(found),
        None if access.table(&name).is_ok() => Err(wrong_kind(&name)),
        None => Err(Sequence::undefined(&name)),
    }
}

pub(crate) fn tables_of(access: &Access<'_>, created: &[String]) -> Result<Vec<String>> {
    let mut names = access.database().tables().names()?;
    names.extend(created.iter().cloned());
    names.sort();
    names.dedup();
    Ok(names)
}

pub(crate) fn schema_of(access: &mut Access<'_>, name: &str) -> Result<Option<Arc<Schema>>> {
    match access.table(name) {
        Ok((_, schema)) => Ok(Some(schema)),
        // Dropped or renamed by this transaction.
        Err(error) if error.state == state::UNDEFINED_TABLE => Ok(None),
        Err(error) => Err(error),
    }
}
