//! Stored state of a consumer group, in keyspace `sys.groups`.
//!
//! ```text
//! key                                        value
//! store, 0, group, 0, 'g'                    version 1 | store number varint | cursor varint | next lease varint | settings
//! store, 0, group, 0, 'p', position u64 BE   tries varint | lease varint | due u64 (microseconds since 1970 UTC) | reason bytes
//! store, 0, group, 0, 'x', position u64 BE   tries varint | time u64 | reason bytes                              (parked)
//! settings   flags u8 (1 in order) | lease, pause in microseconds varint | tries varint | pending varint
//!            | items varint, each: types varint, bytes … | tags varint, bytes … | the same of their prefixes
//! ```
//! Names hold no control characters.

use core::time::Duration;

use ropewalk_base::{DecodeError, Decoder, Position, put_bytes, put_u64, put_varint};
use ropewalk_events::{Query, QueryItem};

use super::GroupSettings;

const VERSION: u8 = 1;
const IN_ORDER: u8 = 1;

/// Longest stored reason, bytes.
const REASON_BYTES_MAX: usize = 1_024;

/// Settings and cursor of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupRecord {
    /// Number of the store; zero if there was none.
    pub(super) store: u32,
    /// Matching events up to here were handed out.
    pub(super) cursor: u64,
    pub(super) next_lease: u64,
    pub(super) settings: GroupSettings,
}

/// An event that was handed out and is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pending {
    pub(super) tries: u32,
    /// Zero if not leased.
    pub(super) lease: u64,
    /// Time from which it is handed out again.
    pub(super) due_micros: i64,
    /// Reason of the last failed try, if the consumer gave one.
    pub(super) reason: String,
}

/// A parked event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParkedRecord {
    pub(super) tries: u32,
    pub(super) time_micros: i64,
    pub(super) reason: String,
}

/// Common prefix of the keys of a group.
pub(super) fn prefix(store: &str, group: &str) -> Vec<u8> {
    [store.as_bytes(), b"\0", group.as_bytes(), b"\0"].concat()
}

pub(super) fn key(prefix: &[u8], kind: u8, position: Option<u64>) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key.push(kind);
    if let Some(position) = position {
        key.extend_from_slice(&position.to_be_bytes());
    }
    key
}

/// The position at the end of a key.
pub(super) fn position_of(key: &[u8]) -> Option<Position> {
    key.last_chunk().map(|bytes| Position(u64::from_be_bytes(*bytes)))
}

pub(super) const GROUP: u8 = b'g';
pub(super) const PENDING: u8 = b'p';
pub(super) const PARKED: u8 = b'x';

fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    put_varint(out, texts.len() as u64);
    texts.iter().for_each(|text| put_bytes(out, text.as_bytes()));
}

fn texts(decoder: &mut Decoder<'_>) -> Result<Vec<String>, DecodeError> {
    let count = decoder.varint("number of texts")?;
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(decoder.str("text")?.to_owned());
    }
    Ok(texts)
}

fn number(decoder: &mut Decoder<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let offset = decoder.offset();
    decoder.varint(what)?.try_into().map_err(|_| DecodeError { what, offset })
}

fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(out, reason.as_bytes().get(..end).unwrap_or_default());
}

fn finished<T>(decoder: &Decoder<'_>, decoded: T) -> Result<T, DecodeError> {
    if decoder.is_empty() {
        return Ok(decoded);
    }
    Err(DecodeError { what: "the end of the record", offset: decoder.offset() })
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

impl GroupRecord {
    /// True if the cursor refers to the store with this number.
    pub(super) fn is_of(&self, store: Option<u32>) -> bool {
        self.store == 0 || store == Some(self.store)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let GroupSettings { query, lease, pause, tries_max, pending_max, in_order } = &self.settings;
        let mut out = vec![VERSION];
        for number in [u64::from(self.store), self.cursor, self.next_lease] {
            put_varint(&mut out, number);
        }
        out.push(if *in_order { IN_ORDER } else { 0 });
        for number in [micros(*lease), micros(*pause), u64::from(*tries_max), u64::from(*pending_max)] {
            put_varint(&mut out, number);
        }
        put_varint(&mut out, query.items.len() as u64);
        for QueryItem { types, tags, type_prefixes, tag_prefixes } in &query.items {
            for list in [types, tags, type_prefixes, tag_prefixes] {
                put_texts(&mut out, list);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let decoder = &mut decoder;
        if decoder.u8("version")? != VERSION {
            return Err(DecodeError { what: "version 1 of a group", offset: 0 });
        }
        let store = number(decoder, "number of a store")?;
        let (cursor, next_lease) = (decoder.varint("cursor")?, decoder.varint("next lease")?);
        let offset = decoder.offset();
        let in_order = match decoder.u8("flags")? {
            0 => false,
            IN_ORDER => true,
            _ => return Err(DecodeError { what: "flags 0 or 1", offset }),
        };
        let lease = Duration::from_micros(decoder.varint("lease")?);
        let pause = Duration::from_micros(decoder.varint("pause")?);
        let (tries_max, pending_max) = (number(decoder, "tries")?, number(decoder, "pending")?);
        let items = decoder.varint("number of items")?;
        let mut query = Query::all();
        for _ in 0..items {
            query.items.push(QueryItem {
                types: texts(decoder)?,
                tags: texts(decoder)?,
                type_prefixes: texts(decoder)?,
                tag_prefixes: texts(decoder)?,
            });
        }
        let settings = GroupSettings { query, lease, pause, tries_max, pending_max, in_order };
        finished(decoder, Self { store, cursor, next_lease, settings })
    }
}

impl Pending {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, u64::from(self.tries));
        put_varint(&mut out, self.lease);
        put_u64(&mut out, self.due_micros.cast_unsigned());
        put_reason(&mut out, &self.reason);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let decoded = Self {
            tries: number(&mut decoder, "tries")?,
            lease: decoder.varint("lease")?,
            due_micros: decoder.u64("due")?.cast_signed(),
            reason: decoder.str("reason")?.to_owned(),
        };
        finished(&decoder, decoded)
    }
}

impl ParkedRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, u64::from(self.tries));
        put_u64(&mut out, self.time_micros.cast_unsigned());
        put_reason(&mut out, &self.reason);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let decoded = Self {
            tries: number(&mut decoder, "tries")?,
            time_micros: decoder.u64("time")?.cast_signed(),
            reason: decoder.str("reason")?.to_owned(),
        };
        finished(&decoder, decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_base::hex;

    #[test]
    fn records_round_trip_and_match_documented_bytes() {
        let query = Query::from_items([QueryItem::new(["A"], ["t"]).tag_prefix("u")]);
        let settings = GroupSettings {
            lease: Duration::from_micros(1),
            pause: Duration::from_micros(2),
            tries_max: 3,
            pending_max: 4,
            in_order: true,
            ..GroupSettings::new(query)
        };
        let group = GroupRecord { store: 1, cursor: 2, next_lease: 3, settings };
        assert_eq!(hex(&group.encode()), "0101020301010203040101014101017400010175");
        assert_eq!(GroupRecord::decode(&group.encode()).unwrap(), group);
        let pending = Pending { tries: 2, lease: 9, due_micros: 1, reason: "no".into() };
        assert_eq!(hex(&pending.encode()), "02090100000000000000026e6f");
        assert_eq!(Pending::decode(&pending.encode()).unwrap(), pending);
        let parked = ParkedRecord { tries: 2, time_micros: 1, reason: "no".into() };
        assert_eq!(hex(&parked.encode()), "020100000000000000026e6f");
        assert_eq!(ParkedRecord::decode(&parked.encode()).unwrap(), parked);
        for cut in 0..group.encode().len() {
            assert!(GroupRecord::decode(&group.encode()[..cut]).is_err());
        }
        assert!(Pending::decode(&[pending.encode(), vec![0]].concat()).is_err());
        assert_eq!(hex(&key(&prefix("s", "g"), PENDING, Some(258))), "73006700700000000000000102");
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let parked = ParkedRecord { tries: 1, time_micros: 0, reason: "é".repeat(1_000) };
        assert_eq!(ParkedRecord::decode(&parked.encode()).unwrap().reason, "é".repeat(512));
    }
}
