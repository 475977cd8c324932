//! Keys of documents and index entries.
//!
//! ```text
//! document       collection u32 | key of _id                  the client's bytes, _id first
//! entry          index u32 | keys of the fields | key of _id   varint: bytes of the key of _id
//! unique entry   index u32 | keys of the fields               key of _id
//! ```
//! Keys of values are `lang::key`: ordered as the values are, and such that none begins another.

use ropewalk_base::{Decoder, put_varint};

use crate::definition::{Definition, Index};
use crate::error::DocumentsError;
use crate::lang::{self, Doc, Value};

/// Longest key of an `_id` or of the fields of an index, bytes.
pub const KEY_BYTES_MAX: usize = 24 << 10;

/// The key of the document with this `_id`.
pub(crate) fn document_key(collection: u32, id: Value<'_>) -> Result<Vec<u8>, DocumentsError> {
    let mut key = Vec::with_capacity(40);
    put_document_key(collection, id, &mut key)?;
    Ok(key)
}

/// Replaces `out` by the key of the document with this `_id`.
pub(crate) fn put_document_key(
    collection: u32,
    id: Value<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DocumentsError> {
    out.clear();
    append_document_key(collection, id, out)
}

/// Appends the key of the document with this `_id`.
pub(crate) fn append_document_key(
    collection: u32,
    id: Value<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DocumentsError> {
    let start = out.len();
    out.extend_from_slice(&collection.to_be_bytes());
    lang::key::encode(id, false, out);
    too_long("_id", out.len() - start - 4)
}

fn too_long(what: &'static str, bytes: usize) -> Result<(), DocumentsError> {
    if bytes > KEY_BYTES_MAX {
        return Err(DocumentsError::TooLarge { what, bytes, max: KEY_BYTES_MAX });
    }
    Ok(())
}

/// The `_id` part of a document's key.
pub(crate) fn id_part(document_key: &[u8]) -> &[u8] {
    document_key.get(4..).unwrap_or_default()
}

/// The `_id` of a stored document. Documents are stored with an `_id`, so null stands for damage.
pub(crate) fn id_of(doc: Doc<'_>) -> Value<'_> {
    doc.get("_id").unwrap_or(Value::Null)
}

/// One entry of an index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// The entries of one document in one index, sorted and distinct.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<Entry>,
    /// By field: there was an array on its path.
    pub(crate) multikey: Vec<bool>,
}

/// The entries of a document.
pub(crate) fn entries(
    collection: &Definition,
    index: &Index,
    doc: Doc<'_>,
    id_key: &[u8],
) -> Result<Entries, DocumentsError> {
    if let Some(partial) = &index.partial
        && !partial.matches(doc)?
    {
        return Ok(Entries::default());
    }
    let found = lang::key::entries(doc, index.fields()).map_err(|error| match index.fields() {
        [first, second, ..] if error.code.number() == 171 => DocumentsError::ParallelArrays {
            collection: collection.name.clone(),
            index: index.name.clone(),
            first: first.path.clone(),
            second: second.path.clone(),
        },
        _ => DocumentsError::Language(error),
    })?;
    if index.def.sparse && found.missing_all {
        return Ok(Entries::default());
    }
    let mut entries = Vec::with_capacity(found.keys.len());
    for fields in &found.keys {
        too_long("index key", fields.len())?;
        entries.push(entry(index, fields, id_key));
    }
    Ok(Entries { entries, multikey: found.multikey })
}

fn entry(index: &Index, fields: &[u8], id_key: &[u8]) -> Entry {
    let mut key = Vec::with_capacity(4 + fields.len() + id_key.len());
    key.extend_from_slice(&index.object.to_be_bytes());
    key.extend_from_slice(fields);
    if index.def.unique {
        return Entry { key, value: id_key.to_vec() };
    }
    key.extend_from_slice(id_key);
    let mut value = Vec::with_capacity(2);
    put_varint(&mut value, id_key.len() as u64);
    Entry { key, value }
}

/// The key of the document that an entry leads to.
pub(crate) fn document_of(
    collection: &Definition,
    index: &Index,
    key: &[u8],
    value: &[u8],
) -> Result<Vec<u8>, DocumentsError> {
    let id_key = if index.def.unique {
        Some(value)
    } else {
        let bytes = Decoder::new(value).varint("length of an _id's key").ok();
        bytes.and_then(|bytes| key.get(key.len().checked_sub(usize::try_from(bytes).ok()?)?..))
    };
    let damaged = || {
        let place = format!("collection {:?}, index {:?}", collection.name, index.name);
        DocumentsError::damaged(place, "an entry that leads to a document")
    };
    let mut found = collection.id.to_be_bytes().to_vec();
    found.extend_from_slice(id_key.ok_or_else(damaged)?);
    Ok(found)
}
