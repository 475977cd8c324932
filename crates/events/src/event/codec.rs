//! Bytes of an event and of an append's section in the commit record. Drawn in `docs/format/events.md`.
//!
//! ```text
//! event value (run and memory):  seq u64 | time i64 | body
//! body:     type str | tags varint, each str | flags u8 (1 id, 2 metadata, 4 tracking) | [id 16]
//!           | [entries varint, each str str] | [source str, position varint] | data (the rest)
//! section:  store u32 | flags u8 (1 creates the store, 2 tracking, 4 idempotency key, 8 deletes the store) | first position u64
//!           | [name str] | [source str, position varint] | [key str, fingerprint u64] | events varint, each: bytes(body)
//! ```
//! Numbers are little-endian; `str` and `bytes` are a varint length and that many bytes.

use ropewalk_base::{DecodeError, Decoder, Position, Seq, put_bytes, put_u32, put_u64, put_varint};
use uuid::Uuid;

use crate::error::Result;
use crate::event::typed::{FromEvent, decode};
use crate::event::types::{Event, Tracking};

/// Events one store can hold.
pub(crate) const POSITION_MAX: u64 = (1 << 40) - 1;
/// Stores one engine can hold.
pub(crate) const STORES_MAX: u32 = (1 << 24) - 1;

const HAS_ID: u8 = 1;
const HAS_METADATA: u8 = 2;
const HAS_TRACKING: u8 = 4;

/// Bytes of an event value before the body.
pub(crate) const VALUE_HEADER: usize = 16;

pub(crate) fn put_body(out: &mut Vec<u8>, event: &Event, tracking: Option<&Tracking>) {
    put_bytes(out, event.event_type.as_bytes());
    put_varint(out, event.tags.len() as u64);
    for tag in &event.tags {
        put_bytes(out, tag.as_bytes());
    }
    let flags = if event.id.is_some() { HAS_ID } else { 0 }
        | if event.metadata.is_empty() { 0 } else { HAS_METADATA }
        | if tracking.is_some() { HAS_TRACKING } else { 0 };
    out.push(flags);
    if let Some(id) = &event.id {
        out.extend_from_slice(id.as_bytes());
    }
    if !event.metadata.is_empty() {
        put_varint(out, event.metadata.len() as u64);
        for (key, value) in &event.metadata {
            put_bytes(out, key.as_bytes());
            put_bytes(out, value.as_bytes());
        }
    }
    if let Some(tracking) = tracking {
        put_bytes(out, tracking.source.as_bytes());
        put_varint(out, tracking.position);
    }
    out.extend_from_slice(&event.data);
}

/// An event's body, read in place. Decoding scans the tags once and copies nothing.
#[derive(Debug, Clone, Copy)]
pub struct BodyRef<'a> {
    event_type: &'a str,
    tag_count: usize,
    tags: Decoder<'a>,
    id: Option<Uuid>,
    metadata_count: usize,
    metadata: Decoder<'a>,
    tracking: Option<(&'a [u8], u64)>,
    data: &'a [u8],
}

impl<'a> BodyRef<'a> {
    #[inline]
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        decoder.bytes("event type")?;
        let tag_count = decoder.varint("number of tags")? as usize;
        let tags = decoder;
        for _ in 0..tag_count {
            decoder.bytes("tag")?;
        }
        let flags = decoder.u8("event flags")?;
        if flags & !(HAS_ID | HAS_METADATA | HAS_TRACKING) != 0 {
            return Err(DecodeError { what: "known event flags", offset: decoder.offset() - 1 });
        }
        let id = if flags & HAS_ID != 0 { Some(Uuid::from_bytes(decoder.array("event id")?)) } else { None };
        let metadata_count = if flags & HAS_METADATA != 0 {
            decoder.varint("number of metadata entries")? as usize
        } else {
            0
        };
        let metadata = decoder;
        for _ in 0..metadata_count {
            decoder.bytes("metadata key")?;
            decoder.bytes("metadata value")?;
        }
        let tracking = if flags & HAS_TRACKING != 0 {
            Some((decoder.bytes("tracking source")?, decoder.varint("tracking position")?))
        } else {
            None
        };
        let data = decoder.rest();
        // Almost every head is plain ASCII, lengths included, and then all its strings are: one check instead
        // of one each.
        let (head, _) = body.split_at(body.len() - data.len());
        if !head.is_ascii() {
            Self::check_text(body, (tag_count, tags), (metadata_count, metadata), tracking)?;
        }
        let event_type = Decoder::new(body).str("event type")?;
        Ok(Self { event_type, tag_count, tags, id, metadata_count, metadata, tracking, data })
    }

    #[cold]
    fn check_text(
        body: &[u8],
        (tag_count, mut tags): (usize, Decoder<'_>),
        (metadata_count, mut metadata): (usize, Decoder<'_>),
        tracking: Option<(&[u8], u64)>,
    ) -> Result<(), DecodeError> {
        Decoder::new(body).str("event type")?;
        for _ in 0..tag_count {
            tags.str("tag")?;
        }
        for _ in 0..2 * metadata_count {
            metadata.str("metadata")?;
        }
        if tracking.is_some_and(|(source, _)| std::str::from_utf8(source).is_err()) {
            return Err(DecodeError { what: "a tracking source in UTF-8", offset: metadata.offset() });
        }
        Ok(())
    }

    /// The event type.
    pub fn event_type(&self) -> &'a str {
        self.event_type
    }

    /// The tags, in the order of the append.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        let mut decoder = self.tags;
        // `decode` has checked the same bytes, so the default is never used.
        (0..self.tag_count).map(move |_| decoder.str("tag").unwrap_or_default())
    }

    /// The client's id of the event.
    pub fn id(&self) -> Option<Uuid> {
        self.id
    }

    /// The client's metadata, in order.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let mut decoder = self.metadata;
        (0..self.metadata_count).map(move |_| {
            let key = decoder.str("metadata key").unwrap_or_default();
            (key, decoder.str("metadata value").unwrap_or_default())
        })
    }

    /// The upstream source and position that were stored with the append.
    pub fn tracking(&self) -> Option<(&'a str, u64)> {
        self.tracking.map(|(source, position)| (std::str::from_utf8(source).unwrap_or_default(), position))
    }

    /// The payload.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// An owned copy.
    pub fn to_event(&self) -> Event {
        Event {
            event_type: self.event_type.to_owned(),
            tags: self.tags().map(str::to_owned).collect(),
            data: self.data.to_vec(),
            id: self.id,
            metadata: self.metadata().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        }
    }
}

/// An event with its position, read in place.
#[derive(Debug, Clone, Copy)]
pub struct SequencedEventRef<'a> {
    /// Its number in the store.
    pub position: Position,
    /// The commit that wrote it.
    pub seq: Seq,
    /// Commit time, microseconds since 1970 UTC.
    pub time_micros: i64,
    body: BodyRef<'a>,
    /// The complete stored bytes.
    value: &'a [u8],
}

impl<'a> SequencedEventRef<'a> {
    #[inline]
    pub(crate) fn from_stored(position: u64, value: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, body) = value
            .split_first_chunk::<VALUE_HEADER>()
            .ok_or(DecodeError { what: "event header", offset: 0 })?;
        let (seq, time) = header.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        Ok(Self {
            position: Position(position),
            seq: Seq(number(seq)),
            time_micros: number(time) as i64,
            body: BodyRef::decode(body)?,
            value,
        })
    }

    /// The event as it is stored; an [`crate::event::batch::EventBatch`] consists of these.
    pub(crate) fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Bytes of the event as it is stored: a little more than its strings and data together.
    pub fn stored_bytes(&self) -> usize {
        self.value.len()
    }

    /// The application's typed form.
    ///
    /// # Errors
    /// [`crate::EventsError::Unapplied`], with position, type and the error of [`FromEvent`].
    pub fn decode<E: FromEvent>(&self) -> Result<E> {
        decode(self)
    }

    /// An owned copy.
    pub fn to_owned(&self) -> SequencedEvent {
        let tracking = self.body.tracking();
        SequencedEvent {
            position: self.position,
            seq: self.seq,
            time_micros: self.time_micros,
            event: self.body.to_event(),
            tracking: tracking.map(|(source, position)| Tracking { source: source.to_owned(), position }),
        }
    }
}

impl<'a> std::ops::Deref for SequencedEventRef<'a> {
    type Target = BodyRef<'a>;

    fn deref(&self) -> &BodyRef<'a> {
        &self.body
    }
}

/// An event with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequencedEvent {
    /// Its number in the store, from 1 without gaps.
    pub position: Position,
    /// The commit that wrote it.
    pub seq: Seq,
    /// Commit time, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// The event as appended.
    pub event: Event,
    /// The upstream source and position of the append.
    pub tracking: Option<Tracking>,
}

impl SequencedEvent {
    /// Its type.
    pub fn event_type(&self) -> &str {
        &self.event.event_type
    }

    /// Its tags, in the order of the append.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.event.tags.iter().map(String::as_str)
    }

    /// The client's id of the event.
    pub fn id(&self) -> Option<Uuid> {
        self.event.id
    }

    /// The client's metadata, in order.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        self.event.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The payload.
    pub fn data(&self) -> &[u8] {
        &self.event.data
    }

    /// The application's typed form.
    ///
    /// # Errors
    /// [`crate::EventsError::Unapplied`], with position, type and the error of [`FromEvent`].
    pub fn decode<E: FromEvent>(&self) -> Result<E> {
        decode(self)
    }

    /// Passes the event to code that reads stored events. Cost: it is encoded once.
    pub fn with_ref<R>(&self, look: impl FnOnce(&SequencedEventRef<'_>) -> R) -> R {
        let mut value = Vec::with_capacity(self.event.data.len() + 64);
        put_u64(&mut value, self.seq.0);
        put_u64(&mut value, self.time_micros.cast_unsigned());
        put_body(&mut value, &self.event, self.tracking.as_ref());
        let event = SequencedEventRef::from_stored(self.position.0, &value);
        look(&event.expect("an encoded event decodes"))
    }
}

const CREATES: u8 = 1;
const TRACKS: u8 = 2;
const IDEMPOTENT: u8 = 4;
/// No other flag is set: the store and all its events are deleted.
const DELETES: u8 = 8;

/// The commit record's section of an append, or of the creation or deletion of a store.
#[derive(Debug, Clone)]
pub struct AppendSection<'a> {
    /// Number of the store.
    pub store: u32,
    /// Position of the first event.
    pub first: Position,
    /// Name of the store, when this append creates it.
    pub creates: Option<&'a str>,
    /// The store is deleted; nothing else is in the section.
    pub deletes: bool,
    /// Upstream source and position.
    pub tracking: Option<(&'a str, u64)>,
    /// Idempotency key and fingerprint of the events.
    pub idempotency: Option<(&'a str, u64)>,
    count: u64,
    events: Decoder<'a>,
}

/// The parts of a section other than its events.
pub(crate) struct SectionHead<'a> {
    pub(crate) store: u32,
    pub(crate) first: u64,
    pub(crate) creates: Option<&'a str>,
    pub(crate) tracking: Option<&'a Tracking>,
    pub(crate) idempotency: Option<(&'a str, u64)>,
    pub(crate) count: usize,
}

pub(crate) fn put_section(out: &mut Vec<u8>, head: &SectionHead<'_>, bodies: &[u8]) {
    put_u32(out, head.store);
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        flag(head.creates.is_some(), CREATES)
            | flag(head.tracking.is_some(), TRACKS)
            | flag(head.idempotency.is_some(), IDEMPOTENT),
    );
    put_u64(out, head.first);
    if let Some(name) = head.creates {
        put_bytes(out, name.as_bytes());
    }
    if let Some(tracking) = head.tracking {
        put_bytes(out, tracking.source.as_bytes());
        put_varint(out, tracking.position);
    }
    if let Some((key, fingerprint)) = head.idempotency {
        put_bytes(out, key.as_bytes());
        put_u64(out, fingerprint);
    }
    put_varint(out, head.count as u64);
    out.extend_from_slice(bodies);
}

/// The section that deletes a store whose last position is `last`.
pub(crate) fn put_deletion(out: &mut Vec<u8>, store: u32, last: u64) {
    put_u32(out, store);
    out.push(DELETES);
    put_u64(out, last + 1);
    put_varint(out, 0);
}

impl<'a> AppendSection<'a> {
    /// Reads a section of the events model.
    ///
    /// # Errors
    /// The bytes are not a section.
    pub fn decode(section: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(section);
        let store = decoder.u32("store")?;
        let flags = decoder.u8("append flags")?;
        let deletes = flags == DELETES;
        if !deletes && flags & !(CREATES | TRACKS | IDEMPOTENT) != 0 {
            return Err(DecodeError { what: "known append flags", offset: 4 });
        }
        let first = Position(decoder.u64("first position")?);
        let creates = if flags & CREATES != 0 { Some(decoder.str("store name")?) } else { None };
        let tracking = if flags & TRACKS != 0 {
            Some((decoder.str("tracking source")?, decoder.varint("tracking position")?))
        } else {
            None
        };
        let idempotency = if flags & IDEMPOTENT != 0 {
            Some((decoder.str("idempotency key")?, decoder.u64("fingerprint")?))
        } else {
            None
        };
        let offset = decoder.offset();
        let count = decoder.varint("number of events")?;
        let end = first.0.checked_add(count);
        if first == Position::ZERO || store > STORES_MAX || end.is_none_or(|end| end > POSITION_MAX + 1) {
            return Err(DecodeError { what: "a store number and positions within the limits", offset });
        }
        if deletes && count > 0 {
            return Err(DecodeError { what: "no events in a deletion", offset });
        }
        Ok(Self { store, first, creates, deletes, tracking, idempotency, count, events: decoder })
    }

    /// Number of events.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// True for a section that only creates or deletes a store or moves a tracking position.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bodies, in order.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = Result<&'a [u8], DecodeError>> + use<'a> {
        let mut decoder = self.events;
        (0..self.count).map_while(move |_| (!decoder.is_empty()).then(|| decoder.bytes("event")))
    }

    /// The events with their positions, in order.
    pub fn events(&self) -> impl Iterator<Item = Result<(Position, BodyRef<'a>), DecodeError>> + use<'a> {
        let first = self.first.0;
        self.bodies().zip(first..).map(|(body, position)| Ok((Position(position), BodyRef::decode(body?)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_event() -> impl Strategy<Value = Event> {
        (
            ".{1,8}",
            prop::collection::vec(".{1,8}", 0..5),
            any::<Vec<u8>>(),
            any::<Option<[u8; 16]>>(),
            prop::collection::vec((".{0,4}", ".{0,4}"), 0..3),
        )
            .prop_map(|(event_type, tags, data, id, metadata)| Event {
                event_type,
                tags,
                data,
                id: id.map(Uuid::from_bytes),
                metadata,
            })
    }

    fn any_tracking() -> impl Strategy<Value = Option<Tracking>> {
        prop::option::of(
            (".{1,4}", any::<u64>()).prop_map(|(source, position)| Tracking { source, position }),
        )
    }

    proptest! {
        #[test]
        fn events_round_trip(event in any_event(), tracking in any_tracking()) {
            let mut body = Vec::new();
            put_body(&mut body, &event, tracking.as_ref());
            let decoded = BodyRef::decode(&body).unwrap();
            prop_assert_eq!(decoded.to_event(), event);
            prop_assert_eq!(decoded.tracking(), tracking.as_ref().map(|t| (t.source.as_str(), t.position)));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = BodyRef::decode(&bytes).map(|b| b.to_event());
            if let Ok(section) = AppendSection::decode(&bytes) {
                let _ = section.events().count();
            }
        }
    }

    #[test]
    fn decode_rejects_invalid_sections() {
        let section = |store: u32, first: u64, count: usize| {
            let head = SectionHead { store, first, creates: None, tracking: None, idempotency: None, count };
            let mut section = Vec::new();
            put_section(&mut section, &head, b"\x03\x01A\x00\x00");
            AppendSection::decode(&section).is_ok()
        };
        assert!(section(1, 1, 1) && section(STORES_MAX, POSITION_MAX, 1) && section(1, POSITION_MAX + 1, 0));
        assert!(!section(STORES_MAX + 1, 1, 1));
        assert!(!section(1, 0, 1) && !section(1, POSITION_MAX, 2) && !section(1, u64::MAX, 1));
        let mut deletion = Vec::new();
        put_deletion(&mut deletion, 5, 8);
        assert_eq!(deletion, b"\x05\0\0\0\x08\x09\0\0\0\0\0\0\0\0");
        assert!(AppendSection::decode(&deletion).is_ok_and(|section| section.deletes && section.is_empty()));
        deletion[4] |= CREATES;
        assert!(AppendSection::decode(&deletion).is_err());
        assert!(BodyRef::decode(b"\x01A\x00\x00xy").is_ok());
        assert!(BodyRef::decode(b"\x01A\x00\x08xy").is_err());
    }

    #[test]
    fn golden_bytes() {
        let event = Event::new("A").tag("t:1").data(*b"xy").metadata("k", "v");
        let mut body = Vec::new();
        let upstream = Tracking { source: "u".into(), position: 300 };
        put_body(&mut body, &event, Some(&upstream));
        assert_eq!(body, b"\x01A\x01\x03t:1\x06\x01\x01k\x01v\x01u\xac\x02xy");
        body.clear();
        put_body(&mut body, &event, None);
        assert_eq!(body, b"\x01A\x01\x03t:1\x02\x01\x01k\x01vxy");
        let mut bodies = Vec::new();
        put_bytes(&mut bodies, &body);
        let tracking = Tracking { source: "up".into(), position: 300 };
        let head = SectionHead {
            store: 5,
            first: 9,
            creates: Some("s"),
            tracking: Some(&tracking),
            idempotency: Some(("k", 7)),
            count: 1,
        };
        let mut section = Vec::new();
        put_section(&mut section, &head, &bodies);
        let mut expected =
            b"\x05\0\0\0\x07\x09\0\0\0\0\0\0\0\x01s\x02up\xac\x02\x01k\x07\0\0\0\0\0\0\0\x01\x0f".to_vec();
        expected.extend_from_slice(&body);
        assert_eq!(section, expected);
    }
}
