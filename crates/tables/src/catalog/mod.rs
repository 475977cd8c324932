//! The catalog: keys and values of definitions. The tables model uses two keyspaces.
//!
//! ```text
//! tables.catalog   t table u32   definition            n name   table u32
//!                  o object u32  table u32             s sequence u32   first number not reserved, i64
//!                  e name of an enum type   definition, see `schema::enums`
//!                  l object u32  table u32: a load is filling the object, which belongs to no definition yet
//! tables           object u32 | key                    rows and index entries, see `value::key`
//! ```
//! All numbers of keys are big-endian. Tables, row objects, index objects and sequences draw from one
//! sequence (number 0).

pub(crate) mod sequence;
pub(crate) mod tables;

use ropewalk_engine::{EngineError, Keyspace, ReadView};

/// The model's keyspaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spaces {
    pub(crate) rows: Keyspace,
    pub(crate) catalog: Keyspace,
}

fn numbered(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

pub(crate) fn table_key(id: u32) -> [u8; 5] {
    numbered(b't', id)
}

pub(crate) fn object_key(object: u32) -> [u8; 5] {
    numbered(b'o', object)
}

/// Objects that a load fills.
pub(crate) fn loading_key(object: u32) -> [u8; 5] {
    numbered(b'l', object)
}

/// The objects of all [`loading_key`]s.
pub(crate) fn loading_objects(spaces: Spaces, read: ReadView<'_>) -> Result<Vec<u32>, EngineError> {
    let mut cursor = read.cursor(spaces.catalog);
    cursor.seek(b"l")?;
    let mut objects = Vec::new();
    while cursor.valid()
        && let Some((b'l', object)) = cursor.key().split_first()
    {
        objects.extend(object.first_chunk().copied().map(u32::from_be_bytes));
        cursor.next()?;
    }
    Ok(objects)
}

pub(crate) fn sequence_key(sequence: u32) -> [u8; 5] {
    numbered(b's', sequence)
}

pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

pub(crate) fn enum_key(name: &str) -> Vec<u8> {
    [b"e", name.as_bytes()].concat()
}

/// First key of an object, and the first key after it.
pub(crate) fn object_range(object: u32) -> ([u8; 4], Option<[u8; 4]>) {
    (object.to_be_bytes(), object.checked_add(1).map(u32::to_be_bytes))
}

/// Decodes a catalog value that is a number.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}
