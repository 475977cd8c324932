//! Keys of documents and index entries.
//!
//! ```text
//! document       collection u32 | key of _id                  the client's bytes, _id first
//! entry          index u32 | keys of the fields | key of _id   varint: bytes of the key of _id | types
//! unique entry   index u32 | keys of the fields               key of _id | types
//! ```
//! Keys of values are `lang::key`: ordered as the values are, and none is a prefix of another. The types are
//! a byte for each field and one for the `_id`, see `lang::restore`: with them an entry can serve queries
//! that need only its fields.

use ropewalk_base::{Decoder, put_varint};

use crate::catalog::definition::{Definition, Index};
use crate::error::{DocumentsError, Result};
use crate::index::wildcard;
use crate::lang::key::IndexField;
use crate::lang::tree::Tree;
use crate::lang::{self, Doc, DocBuf, Value, restore};

/// Longest key of an `_id` or of the fields of an index, bytes.
pub const KEY_BYTES_MAX: usize = 24 << 10;

/// A range of keys, half-open.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

/// The key of the document with this `_id`.
pub(crate) fn document_key(collection: u32, id: Value<'_>) -> Result<Vec<u8>> {
    let mut key = Vec::with_capacity(40);
    put_document_key(collection, id, &mut key)?;
    Ok(key)
}

/// Replaces `out` by the key of the document with this `_id`.
pub(crate) fn put_document_key(collection: u32, id: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    append_document_key(collection, id, out)
}

/// Appends the key of the document with this `_id`.
pub(crate) fn append_document_key(collection: u32, id: Value<'_>, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&collection.to_be_bytes());
    lang::key::encode(id, false, out);
    too_long("_id", out.len() - start - 4)
}

fn too_long(what: &'static str, bytes: usize) -> Result<()> {
    if bytes > KEY_BYTES_MAX {
        return Err(DocumentsError::TooLarge { what, bytes, max: KEY_BYTES_MAX });
    }
    Ok(())
}

/// The `_id` part of a document's key.
pub(crate) fn id_part(document_key: &[u8]) -> &[u8] {
    document_key.get(4..).expect("a document's key begins with its collection")
}

/// The `_id` of a stored document. Documents are stored with an `_id`, so null indicates damage.
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
    /// By field: true when there was an array on its path.
    pub(crate) multikey: Vec<bool>,
}

/// The entries of a document.
pub(crate) fn entries(
    collection: &Definition,
    index: &Index,
    doc: Doc<'_>,
    id_key: &[u8],
) -> Result<Entries> {
    if let Some(partial) = &index.partial
        && !partial.matches(doc)?
    {
        return Ok(Entries::default());
    }
    if let Some(root) = wildcard::root(index) {
        let types = [restore::LOST; 2];
        let keys = wildcard::keys(root, doc);
        let entry = |fields: &Vec<u8>| {
            too_long("index key", fields.len())?;
            Ok(entry(index, fields, id_key, &types))
        };
        let mut entries = keys.iter().map(entry).collect::<Result<Vec<_>>>()?;
        entries.sort_unstable();
        return Ok(Entries { entries, multikey: vec![true] });
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
    let types = types(index, doc, found.multikey.contains(&true));
    let mut entries = Vec::with_capacity(found.keys.len());
    for fields in &found.keys {
        too_long("index key", fields.len())?;
        entries.push(entry(index, fields, id_key, &types));
    }
    Ok(Entries { entries, multikey: found.multikey })
}

/// The type bytes of the fields and of the `_id`.
fn types(index: &Index, doc: Doc<'_>, through_arrays: bool) -> Vec<u8> {
    let of = |field: &IndexField| match lang::path::get(doc, &field.path) {
        // A missing parent and one that is not a document both give no value, but a projection displays them
        // differently.
        None if field.path.contains('.') => restore::LOST,
        _ if through_arrays => restore::LOST,
        value => restore::type_of(value),
    };
    index.fields().iter().map(of).chain([restore::type_of(Some(id_of(doc)))]).collect()
}

fn entry(index: &Index, fields: &[u8], id_key: &[u8], types: &[u8]) -> Entry {
    let entry = new_entry(index, fields, id_key, types);
    debug_assert_eq!(parts(index, &entry.key, &entry.value), Some((fields, id_key, types)));
    entry
}

fn new_entry(index: &Index, fields: &[u8], id_key: &[u8], types: &[u8]) -> Entry {
    let mut key = Vec::with_capacity(4 + fields.len() + id_key.len());
    key.extend_from_slice(&index.object.to_be_bytes());
    key.extend_from_slice(fields);
    if index.def.unique {
        return Entry { key, value: [id_key, types].concat() };
    }
    key.extend_from_slice(id_key);
    let mut value = Vec::with_capacity(2 + types.len());
    put_varint(&mut value, id_key.len() as u64);
    value.extend_from_slice(types);
    Entry { key, value }
}

/// The keys of the fields, the key of the `_id`, and the types, as stored in an entry.
fn parts<'e>(index: &Index, key: &'e [u8], value: &'e [u8]) -> Option<(&'e [u8], &'e [u8], &'e [u8])> {
    let fields = key.get(4..)?;
    let (front, types) = value.split_at_checked(value.len().checked_sub(index.fields().len() + 1)?)?;
    if index.def.unique {
        return Some((fields, front, types));
    }
    let bytes = Decoder::new(front).varint("length of an _id's key").ok()?;
    let (fields, id_key) =
        fields.split_at_checked(fields.len().checked_sub(usize::try_from(bytes).ok()?)?)?;
    Some((fields, id_key, types))
}

/// Whether two entries under one key of a unique index are of the same document.
pub(crate) fn same_document(index: &Index, key: &[u8], one: &[u8], other: &[u8]) -> bool {
    let id_key = |value| parts(index, key, value).map(|(_, id_key, _)| id_key.to_vec());
    id_key(one) == id_key(other)
}

/// A document with the fields of an entry and its `_id`; `None` when the entry does not hold all values.
pub(crate) fn restored(index: &Index, key: &[u8], value: &[u8]) -> Option<DocBuf> {
    let (keys, id_key, types) = parts(index, key, value)?;
    let (id_type, types) = types.split_last()?;
    let mut tree = Tree::default();
    tree.seed("_id", restore::take(id_key, *id_type)?.0).ok()?;
    let mut left = keys.len();
    for (field, kind) in index.fields().iter().zip(types) {
        let rest = keys.get(keys.len() - left..)?;
        let turned: Vec<u8>;
        let from = if field.descending {
            turned = rest.iter().map(|byte| !byte).collect();
            turned.as_slice()
        } else {
            rest
        };
        left = if *kind == restore::MISSING {
            restore::take_missing(from)?.len()
        } else {
            let (found, behind) = restore::take(from, *kind)?;
            if field.path != "_id" {
                tree.seed(&field.path, found).ok()?;
            }
            behind.len()
        };
    }
    tree.into_document().ok()
}

/// The key of the document that an entry refers to.
pub(crate) fn document_of(
    collection: &Definition,
    index: &Index,
    key: &[u8],
    value: &[u8],
) -> Result<Vec<u8>> {
    let id_key = parts(index, key, value).map(|(_, id_key, _)| id_key);
    let damaged = || {
        let place = format!("collection {:?}, index {:?}", collection.name, index.name);
        DocumentsError::damaged(place, "an entry that refers to a document")
    };
    let mut found = collection.id.to_be_bytes().to_vec();
    found.extend_from_slice(id_key.ok_or_else(damaged)?);
    Ok(found)
}
