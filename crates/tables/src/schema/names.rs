//! Names of tables and types, which belong to schemas.
//!
//! A name in the schema `public` is stored unchanged; other names are prefixed with the schema's name and
//! U+001F, which no name contains. So names stored before schemas existed remain valid. This module does not
//! know which schemas exist.

use crate::error::{Result, invalid};

/// The schema of names without a prefix.
pub const PUBLIC: &str = "public";
const BETWEEN: char = '\u{1f}';

/// The stored name of a table or type called `name` in `schema`.
pub fn qualify(schema: &str, name: &str) -> String {
    if schema == PUBLIC { name.to_owned() } else { format!("{schema}{BETWEEN}{name}") }
}

/// The schema of a stored name, and the name in it.
pub fn schema_and_name(kept: &str) -> (&str, &str) {
    kept.split_once(BETWEEN).unwrap_or((PUBLIC, kept))
}

/// Makes stored names in a text readable, also in debug output. A quoted name in the schema with an empty
/// name is displayed without it.
pub fn shown(text: &str) -> String {
    let text = text.replace("\\u{1f}", "\u{1f}");
    text.replace("\"\u{1f}", "\"").replace(BETWEEN, ".")
}

/// Longest name, bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

pub(crate) fn check_name(table: &str, kind: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let cut: String = name.chars().take(64).collect();
        let what = format!(
            "{kind} name {cut:?}: 1 to {NAME_BYTES_MAX} bytes without control characters are allowed"
        );
        return Err(invalid(table, what));
    }
    Ok(())
}

/// Checks the stored name of a table or type.
pub(crate) fn check_kept_name(kind: &str, kept: &str) -> Result<()> {
    let (schema, name) = schema_and_name(kept);
    check_name(kept, "schema", schema)?;
    check_name(kept, kind, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_name_splits_into_schema_and_name() {
        for (schema, name, kept) in [("public", "t", "t"), ("other", "a.b", "other\u{1f}a.b")] {
            assert_eq!(qualify(schema, name), kept);
            assert_eq!(schema_and_name(kept), (schema, name));
        }
        assert_eq!(shown(&format!("{:?} and {}", qualify("s", "t"), qualify("s", "u"))), "\"s.t\" and s.u");
        assert_eq!(shown(&format!("{:?}", qualify("", "t"))), "\"t\"");
    }
}
