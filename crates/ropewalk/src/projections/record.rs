//! Stored state of a projection: one record for its live generation, one for a running rebuild.
//!
//! ```text
//! key     store, 0, projection, 0, kind ('l' live, 'r' rebuild)          names hold no control characters
//! value   version 1 | generation varint | store number varint | checkpoint varint | until varint
//!         | failed u8 | if 1: position varint, microseconds u64, type bytes, error bytes
//! ```

use ropewalk_base::{DecodeError, Decoder, Position, put_bytes, put_u64, put_varint};

use crate::database::Snapshot;
use crate::database::transaction::Transaction;
use crate::error::{ProjectionError, Result};
use crate::keyspace::Keyspace;

const VERSION: u8 = 1;

/// Longest stored error text, bytes.
const ERROR_BYTES_MAX: usize = 4_096;

/// The event that a projection fails on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionFailure {
    /// Position of the event.
    pub position: Position,
    /// Type of the event.
    pub event_type: String,
    /// The error that the projection returned.
    pub error: String,
    /// Time of the failure, microseconds since 1970 UTC.
    pub time_micros: i64,
}

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Live,
    Rebuild,
}

/// Progress of one generation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) generation: u64,
    /// Number of the store; zero if there was none.
    pub(super) store: u32,
    /// Every event up to here was applied or does not match.
    pub(super) checkpoint: u64,
    /// End of a rebuild without a live generation.
    pub(super) until: u64,
    pub(super) failure: Option<ProjectionFailure>,
}

pub(super) fn key(store: &str, projection: &str, kind: Kind) -> Vec<u8> {
    let kind = match kind {
        Kind::Live => b"l",
        Kind::Rebuild => b"r",
    };
    [store.as_bytes(), b"\0", projection.as_bytes(), b"\0", kind].concat()
}

impl Record {
    /// True if the checkpoint refers to the store with this number.
    pub(super) fn is_of(&self, store: Option<u32>) -> bool {
        self.checkpoint == 0 || store == Some(self.store)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for number in [self.generation, u64::from(self.store), self.checkpoint, self.until] {
            put_varint(&mut out, number);
        }
        match &self.failure {
            None => out.push(0),
            Some(failure) => {
                out.push(1);
                put_varint(&mut out, failure.position.0);
                put_u64(&mut out, failure.time_micros.cast_unsigned());
                put_bytes(&mut out, failure.event_type.as_bytes());
                let mut end = failure.error.len().min(ERROR_BYTES_MAX);
                while !failure.error.is_char_boundary(end) {
                    end -= 1;
                }
                put_bytes(&mut out, failure.error.as_bytes().get(..end).unwrap_or_default());
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let wrong = |what, offset| DecodeError { what, offset };
        if decoder.u8("version")? != VERSION {
            return Err(wrong("version 1 of a projection's record", 0));
        }
        let generation = decoder.varint("generation")?;
        let offset = decoder.offset();
        let store = decoder.varint("store")?.try_into().map_err(|_| wrong("number of a store", offset))?;
        let (checkpoint, until) = (decoder.varint("checkpoint")?, decoder.varint("end of the rebuild")?);
        let offset = decoder.offset();
        let failure = match decoder.u8("failure")? {
            0 => None,
            1 => Some(ProjectionFailure {
                position: Position(decoder.varint("failing position")?),
                time_micros: decoder.u64("time of the failure")?.cast_signed(),
                event_type: decoder.str("failing type")?.to_owned(),
                error: decoder.str("error")?.to_owned(),
            }),
            _ => return Err(wrong("failure 0 or 1", offset)),
        };
        if !decoder.is_empty() {
            return Err(wrong("the end of a projection's record", decoder.offset()));
        }
        Ok(Self { generation, store, checkpoint, until, failure })
    }
}

fn decoded(name: &str, stored: Option<&[u8]>) -> Result<Option<Record>> {
    let damaged = |source| ProjectionError::Damaged { name: name.to_owned(), source };
    stored.map(|bytes| Record::decode(bytes).map_err(|error| damaged(error).into())).transpose()
}

/// Access to the records of one projection.
pub(super) struct Records<'a> {
    /// `None` while no node has defined it: there are no records.
    pub(super) keyspace: Option<Keyspace>,
    pub(super) store: &'a str,
    pub(super) name: &'a str,
}

impl Records<'_> {
    /// Reads the record in `tx`, which validates at commit that it is unchanged.
    pub(super) fn get(&self, tx: &mut Transaction, kind: Kind) -> Result<Option<Record>> {
        let Some(keyspace) = self.keyspace else { return Ok(None) };
        let stored = tx.get(keyspace, &key(self.store, self.name, kind))?;
        decoded(self.name, stored.as_deref())
    }

    /// Reads the record at a snapshot.
    pub(super) fn look(&self, snapshot: &Snapshot, kind: Kind) -> Result<Option<Record>> {
        let Some(keyspace) = self.keyspace else { return Ok(None) };
        let key = key(self.store, self.name, kind);
        let stored = snapshot.get(keyspace, &key)?;
        decoded(self.name, stored.as_deref())
    }

    pub(super) fn put(&self, tx: &mut Transaction, kind: Kind, record: &Record) {
        tx.put(self.defined(), &key(self.store, self.name, kind), &record.encode());
    }

    pub(super) fn delete(&self, tx: &mut Transaction, kind: Kind) {
        tx.delete(self.defined(), &key(self.store, self.name, kind));
    }

    fn defined(&self) -> Keyspace {
        self.keyspace
            .expect("a transaction that writes records begins with the definition, or has read a record")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let failure = ProjectionFailure {
            position: Position(9),
            event_type: "Paid".into(),
            error: "é".repeat(3_000),
            time_micros: -5,
        };
        let record =
            Record { generation: 3, store: 7, checkpoint: 1 << 39, until: 12, failure: Some(failure) };
        let decoded = Record::decode(&record.encode()).unwrap();
        assert_eq!(decoded.failure.as_ref().unwrap().error, "é".repeat(2_048));
        assert_eq!(Record { failure: None, ..decoded }, Record { failure: None, ..record });
        let plain = Record::default();
        assert_eq!(Record::decode(&plain.encode()).unwrap(), plain);
        for cut in 0..plain.encode().len() {
            assert!(Record::decode(&plain.encode()[..cut]).is_err());
        }
    }

    #[test]
    fn encoded_record_matches_documented_bytes() {
        let failure = ProjectionFailure {
            position: Position(5),
            event_type: "A".into(),
            error: "no".into(),
            time_micros: 1,
        };
        let record = Record { generation: 2, store: 1, checkpoint: 4, until: 0, failure: Some(failure) };
        let hex = ropewalk_base::hex(&record.encode());
        assert_eq!(hex, "0102010400010501000000000000000141026e6f");
        assert_eq!(key("s", "p", Kind::Live), b"s\0p\0l");
    }
}
