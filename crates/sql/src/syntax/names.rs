//! Names of relations and types: from SQL text to references, and back to SQL text.
//!
//! ```text
//! t, s.t, public.t ─▶ reference: `name`, or `schema U+001F name`
//! ```

use ropewalk::tables::{PUBLIC, qualify, schema_and_name};
use sqlparser::ast::{self, Ident, ObjectName, ObjectNamePart};

use crate::error::{Result, SqlError, state};

/// The name of an identifier: folded to lower case unless it is quoted.
pub(crate) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The parts of a dotted name.
pub(crate) fn parts(name: &ObjectName) -> Result<Vec<String>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Ok(folded(ident)),
        ObjectNamePart::Function(_) => Err(SqlError::unsupported("a computed name", "write the name")),
    };
    name.0.iter().map(part).collect()
}

/// The name, alias and arguments of a table or function in FROM; `None` for other items and other clauses.
pub(crate) fn plain_table(
    factor: &ast::TableFactor,
) -> Option<(&ObjectName, Option<&ast::TableAlias>, Option<&ast::TableFunctionArgs>)> {
    match factor {
        ast::TableFactor::Table {
            name,
            alias,
            args,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } if with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty() => {
            Some((name, alias.as_ref(), args.as_ref()))
        }
        _ => None,
    }
}

/// The name of a relation or a type as written, see [`crate::syntax::names::reference`].
pub(crate) fn table_name(name: &ObjectName) -> Result<String> {
    let parts = parts(name)?;
    if let Some(part) = parts.iter().find(|part| part.contains('\u{1f}')) {
        let message = format!("the name {part:?} has a control character");
        return Err(SqlError::new(state::INVALID_NAME, message));
    }
    match parts.as_slice() {
        [table] => Ok(reference(None, table)),
        [schema, table] => Ok(reference(Some(schema), table)),
        _ => Err(SqlError::unsupported(format!("the name {name}"), "write schema.table or table")),
    }
}

/// A reference: the name as written in SQL, with its schema if given, even `public`.
pub(crate) fn reference(schema: Option<&str>, name: &str) -> String {
    match schema {
        None => name.to_owned(),
        Some(PUBLIC) => format!("{PUBLIC}\u{1f}{name}"),
        Some(schema) => qualify(schema, name),
    }
}

/// The schema-qualified reference of a stored name.
pub(crate) fn in_full(kept: &str) -> String {
    let (schema, name) = schema_and_name(kept);
    reference(Some(schema), name)
}

/// The schema and the name of a reference.
pub(crate) fn said(reference: &str) -> (Option<&str>, &str) {
    match schema_and_name(reference) {
        (_, name) if name == reference => (None, name),
        (schema, name) => (Some(schema), name),
    }
}

/// Converts a reference to a parser name.
pub(crate) fn object_name(reference: &str) -> ast::ObjectName {
    let part = |part: &str| ast::ObjectNamePart::Identifier(ast::Ident::with_quote('"', part));
    ast::ObjectName(match said(reference) {
        (None, name) => vec![part(name)],
        (Some(schema), name) => vec![part(schema), part(name)],
    })
}

/// A qualified column of the relation that a reference denotes.
pub(crate) fn column_of(reference: &str, column: &str) -> ast::Expr {
    let part = |name: &str| ast::Ident::with_quote('"', name);
    ast::Expr::CompoundIdentifier(match said(reference) {
        (None, name) => vec![part(name), part(column)],
        (Some(schema), name) => vec![part(schema), part(name), part(column)],
    })
}

/// The name without its schema.
pub(crate) fn own(kept: &str) -> &str {
    schema_and_name(kept).1
}

/// The enum type that a SQL type names, and whether it is an array of it; `None` for built-in types.
pub(crate) fn custom_name(data_type: &ast::DataType) -> Option<(&ast::ObjectName, bool)> {
    match data_type {
        ast::DataType::Custom(name, arguments) if arguments.is_empty() => Some((name, false)),
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, _)) => {
            custom_name(element).map(|(name, _)| (name, true))
        }
        _ => None,
    }
}

/// PostgreSQL's reserved words, which need quotes as names.
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric both case cast check collate column constraint \
create current_date current_role current_time current_timestamp current_user default deferrable desc distinct do else end \
except false fetch for foreign from grant group having in initially intersect into lateral leading limit localtime \
localtimestamp not null offset on only or order placing primary references returning select session_user some symmetric \
table then to trailing true union unique user using variadic when where window with ";

/// A name as SQL text, quoted if necessary.
pub(crate) fn ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&format!(" {name} "));
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A stored name, qualified with its schema.
pub(crate) fn whole_name(kept: &str) -> String {
    let (schema, name) = schema_and_name(kept);
    format!("{}.{}", ident(schema), ident(name))
}

/// A string as a quoted literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The parts of a name in SQL text.
pub(crate) fn name_parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut in_quotes = false;
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let Some(part) = parts.last_mut() else { break };
        match c {
            '"' if in_quotes && chars.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => in_quotes = !in_quotes,
            '.' if !in_quotes => parts.push(String::new()),
            c if in_quotes => part.push(c),
            c => part.extend(c.to_lowercase()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_splits_into_schema_and_name() {
        for (schema, name) in [(None, "t"), (Some("public"), "t"), (Some("s"), "a.b")] {
            assert_eq!(said(&reference(schema, name)), (schema, name));
        }
    }
}
