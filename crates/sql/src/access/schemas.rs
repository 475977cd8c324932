//! Schemas, and the resolution of names to schemas.
//!
//! ```text
//! ropewalk_schemas   name ─▶ number             all but public, which always exists
//! tables, types, views, sequences               stored as `name` in public, else under `schema U+001F name`
//! t, s.t, public.t ─▶ reference ─▶ stored name: in s, or in the first schema of search_path that has it
//! ```
//! Creating an object in a schema rewrites the schema's row, so that it conflicts with a concurrent DROP
//! SCHEMA.

use ropewalk::tables::{
    ColumnDef, KeyRange, PUBLIC, TableDef, TablesError, Type, Value, qualify, schema_and_name,
};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::syntax::names::said;
use crate::types::settings::Settings;

/// The table that holds schemas.
pub(crate) const SCHEMAS: &str = "ropewalk_schemas";
/// System schemas, in which no objects can be created.
const CATALOGS: [&str; 2] = ["pg_catalog", "information_schema"];

/// A schema made by CREATE SCHEMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    /// Permanent id.
    pub(crate) number: i64,
}

fn table(access: &mut Access<'_>) -> Result<Option<ropewalk::tables::Table>> {
    match access.table(SCHEMAS) {
        Ok((table, _)) => Ok(Some(table)),
        Err(error) if error.state == state::UNDEFINED_TABLE => Ok(None),
        Err(error) => Err(error),
    }
}

/// All schemas except `public` and the system schemas, by name.
pub(crate) fn all(access: &mut Access<'_>) -> Result<Vec<Namespace>> {
    let Some(table) = table(access)? else { return Ok(Vec::new()) };
    let rows = access.all(&table, &KeyRange::all(), &Budget::new(MEMORY_BYTES_MAX))?;
    let namespace = |row: Vec<Value<'static>>| match row.as_slice() {
        [Value::Text(name), Value::Int8(number)] => Ok(Namespace { name: name.to_string(), number: *number }),
        _ => Err(SqlError::new(state::DATA_CORRUPTED, "a schema")),
    };
    rows.into_iter().map(namespace).collect()
}

/// True if the schema exists and may contain tables.
pub(crate) fn is_there(access: &mut Access<'_>, name: &str) -> Result<bool> {
    if name == PUBLIC {
        return Ok(true);
    }
    let Some(table) = table(access)? else { return Ok(false) };
    Ok(access.get(&table, &[Value::text(name)])?.is_some())
}

pub(crate) fn unknown(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

/// Splits a list of names as in `search_path`.
pub(crate) fn listed(list: &str) -> Vec<String> {
    let (mut names, mut name, mut in_quotes) = (Vec::new(), String::new(), false);
    let mut is_quoted = false;
    let mut finish = |name: &mut String, is_quoted: &mut bool| {
        let written = std::mem::take(name);
        let written = if *is_quoted { written } else { written.trim().to_lowercase() };
        if !written.is_empty() {
            names.push(written);
        }
        *is_quoted = false;
    };
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if in_quotes && chars.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => (in_quotes, is_quoted) = (!in_quotes, true),
            ',' if !in_quotes => finish(&mut name, &mut is_quoted),
            c if c.is_whitespace() && !in_quotes && (is_quoted || name.is_empty()) => {}
            c => name.push(c),
        }
    }
    finish(&mut name, &mut is_quoted);
    names
}

/// The existing schemas of `search_path`, in order.
pub(crate) fn path(access: &mut Access<'_>, settings: &Settings) -> Result<Vec<String>> {
    let mut path: Vec<String> = Vec::new();
    for name in listed(settings.search_path()) {
        let name = if name == "$user" { settings.user.clone() } else { name };
        if !path.contains(&name) && is_there(access, &name)? {
            path.push(name);
        }
    }
    Ok(path)
}

/// Resolves a reference to a stored name; `has` tests for it in one schema. True if only a changed path can
/// change the result.
///
/// # Errors
/// 3F000 for a schema that does not exist.
fn find(
    access: &mut Access<'_>,
    settings: &Settings,
    reference: &str,
    has: &mut dyn FnMut(&mut Access<'_>, &str) -> Result<bool>,
) -> Result<(String, bool)> {
    match said(reference) {
        (Some(PUBLIC), name) => Ok((name.to_owned(), true)),
        (Some(schema), name) if CATALOGS.contains(&schema) => {
            let message = format!("relation \"{schema}.{name}\" does not exist");
            Err(SqlError::new(state::UNDEFINED_TABLE, message).hint("only SELECT reads the catalogs"))
        }
        (Some(schema), _) if is_there(access, schema)? => Ok((reference.to_owned(), true)),
        (Some(schema), _) => Err(unknown(schema)),
        (None, name) => {
            let path = path(access, settings)?;
            if path == [PUBLIC] {
                return Ok((name.to_owned(), true));
            }
            for (place, schema) in path.iter().enumerate() {
                let kept = qualify(schema, name);
                if has(access, &kept)? {
                    return Ok((kept, place == 0));
                }
            }
            // No schema of the path has it.
            Ok((
                if path.iter().any(|schema| schema == PUBLIC) { name.into() } else { qualify("", name) },
                false,
            ))
        }
    }
}

/// The stored names that a reference may denote, in lookup order.
///
/// # Errors
/// 3F000 for a schema that does not exist.
pub(crate) fn candidates(
    access: &mut Access<'_>,
    settings: &Settings,
    reference: &str,
) -> Result<Vec<String>> {
    match said(reference) {
        (None, name) => Ok(path(access, settings)?.iter().map(|schema| qualify(schema, name)).collect()),
        _ => find(access, settings, reference, &mut |_, _| Ok(true)).map(|(kept, _)| vec![kept]),
    }
}

/// The stored name of the relation that a reference denotes, which need not exist.
///
/// # Errors
/// 3F000 for a schema that does not exist.
pub(crate) fn relation(
    access: &mut Access<'_>,
    settings: &Settings,
    created: &[String],
    reference: &str,
) -> Result<(String, bool)> {
    let (kept, lasts) = find(access, settings, reference, &mut |access, kept| {
        Ok(access.table(kept).is_ok()
            || crate::access::views::find(access, kept)?.is_some()
            || crate::access::sequences::find(access, created, kept)?.is_some())
    })?;
    Ok((settings.redirects.get(&kept).cloned().unwrap_or(kept), lasts))
}

/// The stored name of the type that a reference denotes.
///
/// # Errors
/// 3F000 for a schema that does not exist.
pub(crate) fn of_type(access: &mut Access<'_>, settings: &Settings, reference: &str) -> Result<String> {
    let found = find(access, settings, reference, &mut |access, kept| Ok(access.enum_named(kept)?.is_some()));
    found.map(|(kept, _)| kept)
}

/// The stored name for a new object: in the schema of the reference, or in the first of the path.
///
/// # Errors
/// 3F000.
pub(crate) fn fresh(access: &mut Access<'_>, settings: &Settings, reference: &str) -> Result<String> {
    let kept = match said(reference) {
        (None, name) => match path(access, settings)?.first() {
            Some(schema) => qualify(schema, name),
            None => {
                let message = "no schema has been selected to create in";
                return Err(
                    SqlError::new(state::INVALID_SCHEMA_NAME, message).hint("name one, or SET search_path")
                );
            }
        },
        _ => find(access, settings, reference, &mut |_, _| Ok(true))?.0,
    };
    touch(access, schema_and_name(&kept).0)?;
    Ok(kept)
}

/// Rewrites a schema's row unchanged, to conflict with a concurrent DROP SCHEMA.
pub(crate) fn touch(access: &mut Access<'_>, schema: &str) -> Result<()> {
    if schema == PUBLIC {
        return Ok(());
    }
    let known = all(access)?.into_iter().find(|known| known.name == schema).ok_or_else(|| unknown(schema))?;
    remove(access, schema)?;
    put(access, &known)
}

pub(crate) fn put(access: &mut Access<'_>, namespace: &Namespace) -> Result<()> {
    let mut tables = access.transaction()?.tables();
    let table = match tables.table(SCHEMAS) {
        Ok(table) => table,
        Err(TablesError::UnknownTable { .. }) => tables.create_table(
            TableDef::new(SCHEMAS)
                .column(ColumnDef::new("name", Type::TEXT))
                .column(ColumnDef::new("number", Type::INT8).not_null())
                .primary_key(["name"]),
        )?,
        Err(error) => return Err(error.into()),
    };
    let name = Value::text(namespace.name.as_str());
    tables.insert(&table, &[("name", name), ("number", Value::Int8(namespace.number))])?;
    Ok(())
}

pub(crate) fn remove(access: &mut Access<'_>, name: &str) -> Result<()> {
    let mut tables = access.transaction()?.tables();
    let table = tables.table(SCHEMAS)?;
    tables.delete(&table, &[Value::text(name)])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_path_text_parses_into_names() {
        assert_eq!(listed("\"$user\", public"), ["$user", "public"]);
        assert_eq!(listed("Other ,\"My, \"\"Own\"\"\" , x"), ["other", "My, \"Own\"", "x"]);
        assert_eq!(listed(""), Vec::<String>::new());
        assert_eq!(listed("\"\""), Vec::<String>::new());
    }
}
