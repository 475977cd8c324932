//! Sorts: `{ a: 1, "b.c": -1 }`.
//!
//! Each document gets one key of bytes, and the keys are compared as bytes. A field that goes through arrays
//! is sorted by its least element when ascending, by its greatest when descending; an empty array sorts
//! below null.

use crate::lang::budget::byte_steps;
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::key::{IndexField, encode};
use crate::lang::value::path::{self, AtEnd};
use crate::lang::value::{DOCUMENT_BYTES_MAX, Doc, Value};

/// Most fields of a sort, MongoDB's limit for indexes.
const FIELDS_MAX: usize = 32;
/// Largest key: nested fields may each hold the whole document.
const KEY_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;

/// A parsed sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    fields: Vec<IndexField>,
}

impl Sort {
    /// Parses a sort. Directions are 1 and -1, of any numeric type.
    ///
    /// # Errors
    /// `BadValue` for other directions, `NotImplemented` for `$meta`.
    pub fn parse(spec: Doc<'_>) -> LangResult<Self> {
        let mut fields = Vec::new();
        for (path, direction) in spec {
            if let Value::Document(_) = direction {
                refuse!(NotImplemented, "a sort by {{$meta: ..}} is not implemented: {path}");
            }
            let descending = match direction.as_integer() {
                Some(1) => false,
                Some(-1) => true,
                _ => refuse!(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
            };
            if path.split('.').any(str::is_empty) {
                refuse!(15998, "FieldPath field names may not be empty strings: {path:?}");
            }
            if path.starts_with('$') && (path != "$natural" || spec.iter().count() > 1) {
                refuse!(16410, "FieldPath field names may not start with '$': {path:?}");
            }
            if fields.iter().any(|field: &IndexField| field.path == path) {
                refuse!(BadValue, "the sort names {path:?} twice");
            }
            fields.push(IndexField { path: path.to_owned(), descending });
        }
        if fields.len() > FIELDS_MAX {
            refuse!(BadValue, "a sort by {} fields; the limit is {FIELDS_MAX}", fields.len());
        }
        Ok(Self { fields })
    }

    /// The fields, to compare with those of an index.
    #[must_use]
    pub fn fields(&self) -> &[IndexField] {
        &self.fields
    }

    /// The field, if there is exactly one.
    #[must_use]
    pub fn only(&self) -> Option<&IndexField> {
        match self.fields.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The direction of `{ $natural: 1 }`, in storage order; true: descending.
    #[must_use]
    pub fn natural(&self) -> Option<bool> {
        match self.fields.as_slice() {
            [only] if only.path == "$natural" => Some(only.descending),
            _ => None,
        }
    }

    /// The bytes by which a document is sorted.
    ///
    /// # Errors
    /// `BSONObjectTooLarge` for a key of more than 32 MiB; an end of the command.
    pub fn key(&self, doc: Doc<'_>) -> LangResult<Vec<u8>> {
        let mut key = Vec::new();
        for field in &self.fields {
            put_extreme(doc, field, &mut key)?;
            if key.len() > KEY_BYTES_MAX {
                refuse!(BSONObjectTooLarge, "a document has a sort key of more than {KEY_BYTES_MAX} bytes");
            }
        }
        Ok(key)
    }
}

/// Appends the least of the field's keys.
fn put_extreme(doc: Doc<'_>, field: &IndexField, key: &mut Vec<u8>) -> LangResult<()> {
    byte_steps(doc.bytes().len())?;
    let start = key.len();
    let mut candidate = Vec::new();
    let mut keep = |value: Value<'_>| {
        candidate.clear();
        encode(value, field.descending, &mut candidate);
        let least = key.get(start..).expect("the key is never cut below its start");
        if least.is_empty() || candidate.as_slice() < least {
            key.truncate(start);
            key.extend_from_slice(&candidate);
        }
    };
    let mut seen = false;
    path::any(doc, &field.path, AtEnd::Whole, &mut |value| {
        seen = true;
        match value {
            Some(Value::Array(array)) if array.is_empty() => keep(Value::Undefined),
            Some(Value::Array(array)) => array.values().for_each(&mut keep),
            Some(value) => keep(value),
            None => keep(Value::Null),
        }
        false
    })?;
    if !seen {
        keep(Value::Null);
    }
    Ok(())
}
