//! The documents section of a commit record: changes to collections, in addition to the written keys.
//!
//! ```text
//! collection varint | kind u8 | …                                  repeated to the end
//!   0 definition   event u8 | database bytes | name bytes          0 created, 1 changed, 2 dropped, 3 renamed from this name to that of the 1 that follows
//!   1 inserts      documents varint | bytes varint                 all keys that the record puts into the collection
//!   2 insert       key bytes | bytes varint
//!   3 replace      key bytes | old bytes varint | new bytes varint
//!   4 update       key bytes | old bytes varint | new bytes varint | difference bytes
//!   5 delete       key bytes | old bytes varint | _id bytes        a document that holds the _id alone
//!   6 report       database bytes | name bytes | event bytes       a change of a definition, in the format of change streams
//! ```
//! (`bytes` is a varint length and that many bytes; a key is the key of an `_id`.) The section updates the
//! counts, lets change streams distinguish an insert from an update, and invalidates definitions cached in
//! prepared handles.

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_varint};

/// A change of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Changed,
    Dropped,
    Renamed,
}

/// One change made by a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Definition { event: Event, database: &'a str, name: &'a str },
    Inserts { documents: u64, bytes: u64 },
    Insert { key: &'a [u8], bytes: u64 },
    Replace { key: &'a [u8], old: u64, new: u64 },
    Update { key: &'a [u8], old: u64, new: u64, difference: &'a [u8] },
    Delete { key: &'a [u8], old: u64, id: &'a [u8] },
    Told { database: &'a str, name: &'a str, event: &'a [u8] },
}

impl What<'_> {
    /// Appends the change to a section.
    pub(crate) fn put(&self, collection: u32, out: &mut Vec<u8>) {
        put_varint(out, u64::from(collection));
        match *self {
            Self::Definition { event, database, name } => {
                out.push(0);
                out.push(match event {
                    Event::Created => 0,
                    Event::Changed => 1,
                    Event::Dropped => 2,
                    Event::Renamed => 3,
                });
                put_bytes(out, database.as_bytes());
                put_bytes(out, name.as_bytes());
            }
            Self::Inserts { documents, bytes } => {
                out.push(1);
                put_varint(out, documents);
                put_varint(out, bytes);
            }
            Self::Insert { key, bytes } => {
                out.push(2);
                put_bytes(out, key);
                put_varint(out, bytes);
            }
            Self::Replace { key, old, new } => {
                out.push(3);
                put_bytes(out, key);
                put_varint(out, old);
                put_varint(out, new);
            }
            Self::Update { key, old, new, difference } => {
                out.push(4);
                put_bytes(out, key);
                put_varint(out, old);
                put_varint(out, new);
                put_bytes(out, difference);
            }
            Self::Delete { key, old, id } => {
                out.push(5);
                put_bytes(out, key);
                put_varint(out, old);
                put_bytes(out, id);
            }
            Self::Told { database, name, event } => {
                out.push(6);
                put_bytes(out, database.as_bytes());
                put_bytes(out, name.as_bytes());
                put_bytes(out, event);
            }
        }
    }

    /// Change in the numbers of documents and bytes.
    pub(crate) fn growth(&self) -> (i64, i64) {
        match *self {
            Self::Definition { .. } | Self::Told { .. } => (0, 0),
            Self::Inserts { documents, bytes } => (documents as i64, bytes as i64),
            Self::Insert { bytes, .. } => (1, bytes as i64),
            Self::Replace { old, new, .. } | Self::Update { old, new, .. } => (0, new as i64 - old as i64),
            Self::Delete { old, .. } => (-1, -(old as i64)),
        }
    }
}

/// Decodes a section, change by change.
///
/// # Errors
/// A change that does not decode; `each` has been called for the changes before it.
pub(crate) fn decode<'a>(section: &'a [u8], mut each: impl FnMut(u32, What<'a>)) -> Result<(), DecodeError> {
    let mut decoder = Decoder::new(section);
    while !decoder.is_empty() {
        let offset = decoder.offset();
        let collection = u32::try_from(decoder.varint("collection")?)
            .map_err(|_| DecodeError { what: "number of a collection", offset })?;
        let unknown = DecodeError { what: "kind of change", offset: decoder.offset() };
        let what = match decoder.u8("kind of change")? {
            0 => What::Definition {
                event: match decoder.u8("event of a definition")? {
                    0 => Event::Created,
                    1 => Event::Changed,
                    2 => Event::Dropped,
                    3 => Event::Renamed,
                    _ => return Err(unknown),
                },
                database: decoder.str("database")?,
                name: decoder.str("name")?,
            },
            1 => What::Inserts { documents: decoder.varint("documents")?, bytes: decoder.varint("bytes")? },
            2 => What::Insert { key: decoder.bytes("key")?, bytes: decoder.varint("bytes")? },
            3 => What::Replace {
                key: decoder.bytes("key")?,
                old: decoder.varint("old bytes")?,
                new: decoder.varint("new bytes")?,
            },
            4 => What::Update {
                key: decoder.bytes("key")?,
                old: decoder.varint("old bytes")?,
                new: decoder.varint("new bytes")?,
                difference: decoder.bytes("difference")?,
            },
            5 => What::Delete {
                key: decoder.bytes("key")?,
                old: decoder.varint("old bytes")?,
                id: decoder.bytes("_id")?,
            },
            6 => What::Told {
                database: decoder.str("database")?,
                name: decoder.str("name")?,
                event: decoder.bytes("event")?,
            },
            _ => return Err(unknown),
        };
        each(collection, what);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_and_back() {
        let parts = [
            (7, What::Definition { event: Event::Renamed, database: "d", name: "n/1" }),
            (7, What::Inserts { documents: 2, bytes: 300 }),
            (300, What::Insert { key: b"k", bytes: 5 }),
            (1, What::Replace { key: b"k", old: 6, new: 7 }),
            (1, What::Update { key: b"k", old: 6, new: 7, difference: b"df" }),
            (1, What::Delete { key: b"k", old: 6, id: b"id" }),
            (1, What::Told { database: "d", name: "n", event: b"ev" }),
        ];
        let mut bytes = Vec::new();
        parts.iter().for_each(|(collection, what)| what.put(*collection, &mut bytes));
        assert_eq!(
            ropewalk_base::hex(&bytes),
            "0700030164036e2f31070102ac02ac0202016b050103016b06070104016b0607026466010501 6b06026964 01060164016e026576"
                .replace(' ', "")
        );
        let mut back = Vec::new();
        decode(&bytes, |collection, what| back.push((collection, what))).unwrap();
        assert_eq!(back, parts);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = decode(&bytes, |_, _| ());
        }
    }
}
