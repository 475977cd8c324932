//! The catalog: keys and values of definitions. The documents model uses three keyspaces.
//!
//! ```text
//! documents.catalog    c collection u32        definition          n database 0 name    collection u32
//!                      o object u32            collection u32      x collection u32     database 0 name, of a dropped collection
//!                      d database              its settings        s                    first number not reserved, u32
//!                      r collection u32        1 or 0: a dropped collection had rules, or none
//!                      v database 0 name       a view, see `view`
//! documents            object u32 | key        documents and index entries, see `index::entry`
//! documents.sessions   see `write::retryable_writes`
//! ```
//! All numbers of keys are big-endian, of values little-endian. Collections and indexes draw their numbers
//! from one sequence; a number is never used again. A collection's documents are the object that has its own
//! number.

pub(crate) mod capped;
pub(crate) mod definition;
pub(crate) mod view;

use ropewalk_base::is_rebuild_name;
use ropewalk_engine::Keyspace;

use crate::error::{DocumentsError, Result};

/// Longest name of a database, bytes.
pub const DATABASE_NAME_BYTES_MAX: usize = 63;
/// Longest name of a collection, bytes.
pub const COLLECTION_NAME_BYTES_MAX: usize = 255;

/// The model's keyspaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spaces {
    pub(crate) documents: Keyspace,
    pub(crate) catalog: Keyspace,
    pub(crate) sessions: Keyspace,
}

fn numbered(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

pub(crate) fn definition_key(id: u32) -> [u8; 5] {
    numbered(b'c', id)
}

pub(crate) fn object_key(object: u32) -> [u8; 5] {
    numbered(b'o', object)
}

pub(crate) fn gone_key(id: u32) -> [u8; 5] {
    numbered(b'x', id)
}

/// Whether a collection that is gone had rules.
pub(crate) fn gone_rules_key(id: u32) -> [u8; 5] {
    numbered(b'r', id)
}

pub(crate) const SEQUENCE_KEY: &[u8] = b"s";

pub(crate) fn database_key(database: &str) -> Vec<u8> {
    [b"d", database.as_bytes()].concat()
}

pub(crate) fn name_key(database: &str, name: &str) -> Vec<u8> {
    [b"n", database.as_bytes(), b"\0", name.as_bytes()].concat()
}

/// The names of a database begin with this.
pub(crate) fn names_of(database: &str) -> Vec<u8> {
    name_key(database, "")
}

/// The names of later databases sort after this, those of the database before it.
pub(crate) fn after_database(database: &str) -> Vec<u8> {
    [b"n", database.as_bytes(), b"\x01"].concat()
}

/// Database and collection of a [`name_key`], or of the value under a [`gone_key`] when `skip` is zero.
pub(crate) fn split_name(key: &[u8], skip: usize) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(key.get(skip..)?).ok()?;
    text.split_once('\0')
}

/// First key of an object, and the first key after it.
pub(crate) fn object_range(object: u32) -> ([u8; 4], [u8; 4]) {
    // Numbers start at 1 and never reach the last one.
    (object.to_be_bytes(), object.saturating_add(1).to_be_bytes())
}

/// Decodes a catalog value that is a number.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn refuse(kind: &'static str, name: &str, what: &'static str) -> Result<()> {
    Err(DocumentsError::InvalidName { kind, name: name.to_owned(), what })
}

/// Rejects the name of a new collection that is reserved.
pub(crate) fn check_unreserved(name: &str) -> Result<()> {
    if is_rebuild_name(name) {
        let what = "names that end in __g and a number are reserved for rebuilds of projections";
        return refuse("collection", name, what);
    }
    Ok(())
}

/// Checks the name of a database.
pub(crate) fn check_database(name: &str) -> Result<()> {
    let kind = "database";
    match name {
        "" => refuse(kind, name, "it is empty"),
        _ if name.len() > DATABASE_NAME_BYTES_MAX => refuse(kind, name, "it is longer than 63 bytes"),
        _ if name.contains(['/', '\\', '.', '"', '$', ' ', '\0']) => {
            refuse(kind, name, r#"it holds one of / \ . " $, a space or a zero byte"#)
        }
        _ => Ok(()),
    }
}

/// Checks the name of a collection. Slashes are for collections below documents: `users/1/posts`.
pub(crate) fn check_collection(name: &str) -> Result<()> {
    let kind = "collection";
    match name {
        "" => refuse(kind, name, "it is empty"),
        _ if name.len() > COLLECTION_NAME_BYTES_MAX => refuse(kind, name, "it is longer than 255 bytes"),
        _ if name.contains(['$', '\0']) => refuse(kind, name, "it holds a $ or a zero byte"),
        _ if name.starts_with('.') || name.ends_with('.') => refuse(kind, name, "a dot begins or ends it"),
        _ if name.starts_with("system.") => refuse(kind, name, "names that begin with system. are reserved"),
        _ => Ok(()),
    }
}

/// True when `name` matches `glob`: `*` matches any characters but `/`, `**` any at all, `?` one but `/`.
///
/// ```
/// use ropewalk_documents::glob_matches;
/// assert!(glob_matches("users/*/posts", "users/17/posts"));
/// assert!(!glob_matches("users/*", "users/17/posts"));
/// assert!(glob_matches("users/**", "users/17/posts"));
/// ```
pub fn glob_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    // After a mismatch matching continues after the last star, one character of the name further. The product
    // of the lengths bounds the steps for any glob. A `*` cannot match a slash; then the last `**` is
    // extended.
    let (mut at, mut seen) = (0, 0);
    let mut single: Option<(usize, usize)> = None;
    let mut double: Option<(usize, usize)> = None;
    loop {
        let rest = glob.get(at..).expect("the position lies in the pattern");
        let next = name.get(seen).copied();
        if rest.starts_with(b"**") {
            at += 2;
            double = Some((at, seen));
            single = None;
            continue;
        }
        match (rest.first(), next) {
            (Some(b'*'), _) => {
                at += 1;
                single = Some((at, seen));
                continue;
            }
            (None, None) => return true,
            (Some(b'?'), Some(character)) if character != b'/' => {
                at += 1;
                seen += 1;
                continue;
            }
            (Some(wanted), Some(character)) if *wanted == character && *wanted != b'?' => {
                at += 1;
                seen += 1;
                continue;
            }
            _ => {}
        }
        if let Some((behind, from)) = single
            && name.get(from).is_some_and(|character| *character != b'/')
        {
            single = Some((behind, from + 1));
            (at, seen) = (behind, from + 1);
        } else if let Some((behind, from)) = double
            && from < name.len()
        {
            double = Some((behind, from + 1));
            single = None;
            (at, seen) = (behind, from + 1);
        } else {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same function, by recursion.
    fn naive(glob: &[u8], name: &[u8]) -> bool {
        match (glob, name) {
            ([], []) => true,
            ([b'*', b'*', rest @ ..], _) => (0..=name.len()).any(|n| naive(rest, &name[n..])),
            ([b'*', rest @ ..], _) => (0..=name.len())
                .take_while(|n| *n == 0 || name[n - 1] != b'/')
                .any(|n| naive(rest, &name[n..])),
            ([b'?', rest @ ..], [c, name @ ..]) => *c != b'/' && naive(rest, name),
            ([g, rest @ ..], [c, name @ ..]) => g == c && naive(rest, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn globs_match_as_defined(glob in "[ab/*?]{0,7}", name in "[ab/]{0,7}") {
            prop_assert_eq!(glob_matches(&glob, &name), naive(glob.as_bytes(), name.as_bytes()));
        }
    }

    #[test]
    fn names() {
        assert!(check_database("app").is_ok());
        assert!(check_collection("users/1/posts").is_ok());
        for bad in ["", "a.b", "a b", "a$", "a/b", &"x".repeat(64)] {
            assert!(check_database(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a$b", "a\0b", "system.users", ".a", "a.", &"x".repeat(256)] {
            assert!(check_collection(bad).is_err(), "{bad:?}");
        }
        assert_eq!(split_name(&name_key("app", "a/b"), 1), Some(("app", "a/b")));
    }
}
