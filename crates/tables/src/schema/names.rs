//! Names of tables and types, which stand in schemas.
//!
//! A name in the schema `public` is kept as it is; one in another schema behind that schema's name and U+001F, which no name has.
//! So what was written before there were other schemas stays what it is. Which schemas there are is not known here.

use crate::error::{TablesError, invalid};

/// The schema of names that say nothing of another one.
pub const PUBLIC: &str = "public";
const BETWEEN: char = '\u{1f}';

/// The name that a table or type called `name` in `schema` is kept by.
pub fn name_in(schema: &str, name: &str) -> String {
    if schema == PUBLIC { name.to_owned() } else { format!("{schema}{BETWEEN}{name}") }
}

/// The schema of a kept name, and the name in it.
pub fn schema_and_name(kept: &str) -> (&str, &str) {
    kept.split_once(BETWEEN).unwrap_or((PUBLIC, kept))
}

/// A text for people in which kept names occur, also as they are debugged. A name in quotes in a schema without a name shows alone.
pub fn shown(text: &str) -> String {
    let text = text.replace("\\u{1f}", "\u{1f}");
    text.replace("\"\u{1f}", "\"").replace(BETWEEN, ".")
}

/// Longest name, bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

pub(crate) fn check_name(table: &str, kind: &str, name: &str) -> Result<(), TablesError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let cut: String = name.chars().take(64).collect();
        let what = format!(
            "{kind} name {cut:?}: 1 to {NAME_BYTES_MAX} bytes without control characters are allowed"
        );
        return Err(invalid(table, what));
    }
    Ok(())
}

/// The name of a table or a type, which may stand in a schema.
pub(crate) fn check_kept_name(kind: &str, kept: &str) -> Result<(), TablesError> {
    let (schema, name) = schema_and_name(kept);
    check_name(kept, "schema", schema)?;
    check_name(kept, kind, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_again() {
        for (schema, name, kept) in [("public", "t", "t"), ("other", "a.b", "other\u{1f}a.b")] {
            assert_eq!(name_in(schema, name), kept);
            assert_eq!(schema_and_name(kept), (schema, name));
        }
        assert_eq!(shown(&format!("{:?} and {}", name_in("s", "t"), name_in("s", "u"))), "\"s.t\" and s.u");
        assert_eq!(shown(&format!("{:?}", name_in("", "t"))), "\"t\"");
    }
}
