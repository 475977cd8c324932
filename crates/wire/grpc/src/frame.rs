//! Encodes stored events once, from the store's memory into the bytes of a protobuf message.
//!
//!   SequencedEventRef (in place) ─▶ FrameWriter ─▶ Frame (message bytes) ─▶ Codec ─▶ HTTP/2
//!
//! Both protocols use the same field numbers, so one writer serves both; ours adds commit and time.
//! ```text
//! message        1 events*: SequencedEvent │ 2 head (of a read)
//! SequencedEvent 1 position │ 2 event │ 3 tracking{1 source, 2 position} │ 4 seq │ 5 recorded_at_micros (ours)
//! Event          1 type │ 2 tags* │ 3 data │ 4 id as text │ 5 metadata*{1 key, 2 value}
//! ```
//! Invariants
//! 1. The bytes are those that prost would write (checked by tests): minimal varints, default values left
//!    out.
//! 2. A frame stays below [`FRAME_BYTES_MAX`] unless it contains a single event.

use core::marker::PhantomData;

use bytes::{BufMut, Bytes};
use ropewalk::Position;
use ropewalk::events::SequencedEventRef;
use ropewalk::hooks::{put_varint, varint_len};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Clients reject messages over 4 MiB by default; the difference leaves space for the head.
pub(crate) const FRAME_BYTES_MAX: usize = (4 << 20) - 1024;

/// The encoded message of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame(pub(crate) Bytes);

impl Frame {
    /// A message with a single number field, which may be zero.
    pub(crate) fn signal(field: u8, position: Position) -> Self {
        let mut bytes = vec![field << 3];
        put_varint(&mut bytes, position.0);
        Self(bytes.into())
    }
}

/// The protocol, which determines the encoded fields of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `umadb.v1`.
    Umadb,
    /// `ropewalk.events.v1`.
    Events,
}

/// The content of the field `head` in a message of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// Nothing.
    Absent,
    /// This position; zero is left out.
    At(Position),
    /// The position of the message's last event.
    LastEvent,
}

/// Collects events into frames.
pub(crate) struct FrameWriter {
    dialect: Dialect,
    head: Head,
    ready: Vec<Frame>,
    bytes: Vec<u8>,
    last: Position,
}

impl FrameWriter {
    pub(crate) fn new(dialect: Dialect, head: Head) -> Self {
        Self { dialect, head, ready: Vec::new(), bytes: Vec::new(), last: Position::ZERO }
    }

    pub(crate) fn push(&mut self, event: &SequencedEventRef<'_>) {
        let sizes = Sizes::new(self.dialect, event);
        let bytes = field_len(sizes.sequenced);
        if !self.bytes.is_empty() && self.bytes.len() + bytes > FRAME_BYTES_MAX {
            self.close();
        }
        put_sequenced(&mut self.bytes, self.dialect, event, &sizes);
        self.last = event.position;
    }

    fn close(&mut self) {
        match self.head {
            Head::At(head) => put_number(&mut self.bytes, 2, head.0),
            Head::LastEvent => put_number(&mut self.bytes, 2, self.last.0),
            Head::Absent => {}
        }
        // The next frame of this writer will be about as large.
        let next = Vec::with_capacity(self.bytes.len());
        self.ready.push(Frame(std::mem::replace(&mut self.bytes, next).into()));
    }

    /// The frames; none if there was no event.
    pub(crate) fn finish(mut self) -> Vec<Frame> {
        if !self.bytes.is_empty() {
            self.close();
        }
        self.ready
    }

    /// A message without events.
    pub(crate) fn empty(head: Option<Position>) -> Frame {
        let mut bytes = Vec::new();
        put_number(&mut bytes, 2, head.map_or(0, |head| head.0));
        Frame(bytes.into())
    }
}

/// Lengths of the nested messages, which protobuf writes before them.
struct Sizes {
    event: usize,
    tracking: usize,
    sequenced: usize,
}

impl Sizes {
    fn new(dialect: Dialect, event: &SequencedEventRef<'_>) -> Self {
        let tags: usize = event.tags().map(|tag| field_len(tag.len())).sum();
        let metadata: usize = event.metadata().map(|(k, v)| field_len(entry_len(k, v))).sum();
        let id = if event.id().is_some() { field_len(UUID_TEXT) } else { 0 };
        let body = text_len(event.event_type().len()) + tags + text_len(event.data().len()) + id + metadata;
        let tracking = event.tracking().map_or(0, |(source, at)| text_len(source.len()) + number_len(at));
        let commit = match dialect {
            Dialect::Umadb => 0,
            Dialect::Events => number_len(event.seq.0) + number_len(event.time_micros as u64),
        };
        let nested = if event.tracking().is_some() { field_len(tracking) } else { 0 };
        let sequenced = number_len(event.position.0) + field_len(body) + nested + commit;
        Self { event: body, tracking, sequenced }
    }
}

/// Writes an event as an element of the field `events` of one of our messages.
pub(crate) fn put_event_element(out: &mut Vec<u8>, event: &SequencedEventRef<'_>) {
    put_sequenced(out, Dialect::Events, event, &Sizes::new(Dialect::Events, event));
}

fn put_sequenced(out: &mut Vec<u8>, dialect: Dialect, event: &SequencedEventRef<'_>, sizes: &Sizes) {
    put_length(out, 1, sizes.sequenced);
    put_number(out, 1, event.position.0);
    put_length(out, 2, sizes.event);
    put_event(out, event);
    if let Some((source, position)) = event.tracking() {
        put_length(out, 3, sizes.tracking);
        put_text(out, 1, source.as_bytes());
        put_number(out, 2, position);
    }
    if dialect == Dialect::Events {
        put_number(out, 4, event.seq.0);
        put_number(out, 5, event.time_micros as u64);
    }
}

/// Length of a UUID as text.
const UUID_TEXT: usize = uuid::fmt::Hyphenated::LENGTH;

fn put_event(out: &mut Vec<u8>, event: &SequencedEventRef<'_>) {
    put_text(out, 1, event.event_type().as_bytes());
    for tag in event.tags() {
        put_bytes(out, 2, tag.as_bytes());
    }
    put_text(out, 3, event.data());
    if let Some(id) = event.id() {
        let mut text = [0; UUID_TEXT];
        put_bytes(out, 4, id.hyphenated().encode_lower(&mut text).as_bytes());
    }
    for (key, value) in event.metadata() {
        put_length(out, 5, entry_len(key, value));
        put_text(out, 1, key.as_bytes());
        put_text(out, 2, value.as_bytes());
    }
}

fn entry_len(key: &str, value: &str) -> usize {
    text_len(key.len()) + text_len(value.len())
}

/// Length of a number with its field number; zero is left out.
fn number_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint_len(value) }
}

/// Length of a field of `len` bytes with its field number and length.
fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// The same for a field that is left out when empty.
fn text_len(len: usize) -> usize {
    if len == 0 { 0 } else { field_len(len) }
}

pub(crate) fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3);
        put_varint(out, value);
    }
}

fn put_length(out: &mut Vec<u8>, field: u8, len: usize) {
    out.push(field << 3 | 2);
    put_varint(out, len as u64);
}

/// Writes text, bytes, or the bytes of a message as a field, also if they are empty.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes(out, field, bytes);
    }
}

/// Writes a message as a field.
pub(crate) fn put_message(out: &mut Vec<u8>, field: u8, message: &impl prost::Message) {
    put_length(out, field, message.encoded_len());
    prost::Message::encode(message, out).expect("a vector grows as needed");
}

/// An encodable response: a frame, or any message of prost.
pub(crate) trait Encode: Send + 'static {
    /// Bytes to reserve for a response whose size is not known yet.
    const RESERVE: usize;
    /// Writes the message.
    ///
    /// # Errors
    /// None in practice: the buffer grows.
    fn encode(self, out: &mut EncodeBuf<'_>) -> Result<(), Status>;
}

impl Encode for Frame {
    const RESERVE: usize = 0;

    fn encode(self, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(self.0.len());
        out.put_slice(&self.0);
        Ok(())
    }
}

impl<T: prost::Message + 'static> Encode for T {
    // Responses without events are a few numbers.
    const RESERVE: usize = 64;

    fn encode(self, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::Message::encode(&self, out).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Requests by prost, responses by [`Encode`].
pub(crate) struct Codec<E, D>(PhantomData<fn(E) -> D>);

impl<E, D> Default for Codec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// Bytes reserved for a request before its length is known; most are small.
const REQUEST_RESERVE: usize = 1024;
/// Small messages that are ready at the same time are sent together, up to this many bytes.
const TOGETHER_BYTES: usize = 32 << 10;

impl<E: Encode, D: prost::Message + Default + Send + 'static> tonic::codec::Codec for Codec<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = FrameEncoder<E>;
    type Decoder = MessageDecoder<D>;

    fn encoder(&mut self) -> Self::Encoder {
        FrameEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        MessageDecoder(PhantomData)
    }
}

/// Reads requests.
pub(crate) struct MessageDecoder<D>(PhantomData<fn() -> D>);

impl<D: prost::Message + Default> Decoder for MessageDecoder<D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let malformed = |error| Status::invalid_argument(format!("the request is not its message: {error}"));
        D::decode(from).map(Some).map_err(malformed)
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(REQUEST_RESERVE, TOGETHER_BYTES)
    }
}

/// Writes responses.
pub(crate) struct FrameEncoder<E>(PhantomData<fn(E)>);

impl<E: Encode> Encoder for FrameEncoder<E> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, item: E, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out)
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(E::RESERVE, TOGETHER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ropewalk::events::v1 as ours;
    use crate::proto::umadb::v1 as umadb;
    use prost::Message;
    use ropewalk::events::{ReadOptions, Tracking};
    use ropewalk::{AppendOptions, Database, Event, Query};
    use uuid::Uuid;

    fn entries<T>(event: &Event, entry: impl Fn(String, String) -> T) -> Vec<T> {
        event.metadata.iter().map(|(k, v)| entry(k.clone(), v.clone())).collect()
    }

    fn id(event: &Event) -> String {
        event.id.map(|id| id.to_string()).unwrap_or_default()
    }

    fn as_umadb(event: &SequencedEventRef<'_>) -> umadb::SequencedEvent {
        let own = event.to_owned().event;
        umadb::SequencedEvent {
            position: event.position.0,
            tracking_info: event
                .tracking()
                .map(|(source, position)| umadb::TrackingInfo { source: source.to_owned(), position }),
            event: Some(umadb::Event {
                uuid: id(&own),
                metadata: entries(&own, |key, value| umadb::MetadataEntry { key, value }),
                event_type: own.event_type,
                tags: own.tags,
                data: own.data,
            }),
        }
    }

    fn as_ours(event: &SequencedEventRef<'_>) -> ours::SequencedEvent {
        let own = event.to_owned().event;
        ours::SequencedEvent {
            position: event.position.0,
            tracking: event
                .tracking()
                .map(|(source, position)| ours::UpstreamPosition { source: source.to_owned(), position }),
            seq: event.seq.0,
            recorded_at_micros: event.time_micros,
            event: Some(ours::Event {
                id: id(&own),
                metadata: entries(&own, |key, value| ours::MetadataEntry { key, value }),
                r#type: own.event_type,
                tags: own.tags,
                data: own.data,
            }),
        }
    }

    /// Events of every shape, around the lengths at which a varint grows.
    fn database() -> Database {
        let db = Database::in_memory().unwrap();
        let store = db.events("s").unwrap();
        let track = |source: &str, position| AppendOptions {
            tracking: Some(Tracking { source: source.to_owned(), position }),
            ..AppendOptions::default()
        };
        let mut events = vec![
            Event::new("A"),
            Event::new("Ünïcode").tag("tag:1").tag("größe:ß").data(*b"xy").id(Uuid::from_u128(7)),
            Event::new("M").metadata("", "").metadata("k", "").metadata("ü", "v".repeat(200)),
        ];
        for len in [0, 1, 126, 127, 128, 129, 16_383, 16_384, 70_000] {
            events.push(Event::new("L").tag("t".repeat(len.clamp(1, 60_000))).data(vec![7; len]));
        }
        store.append(&events, None).unwrap();
        store.append_with(&events, track("source", 300)).unwrap();
        store.append_with(&events, track("zero", 0)).unwrap();
        db
    }

    fn each(db: &Database, visit: impl FnMut(&SequencedEventRef<'_>)) {
        let store = db.events("s").unwrap();
        let mut reader = store.read(&Query::all(), ReadOptions::default()).unwrap();
        assert_eq!(reader.visit(1000, visit).unwrap(), 36);
    }

    #[test]
    fn the_bytes_are_those_of_prost() {
        let db = database();
        for head in [Head::Absent, Head::At(Position::ZERO), Head::At(Position(300)), Head::LastEvent] {
            let mut writers =
                [FrameWriter::new(Dialect::Umadb, head), FrameWriter::new(Dialect::Events, head)];
            let (mut uma, mut own) = (umadb::ReadResponse::default(), ours::ReadResponse::default());
            each(&db, |event| {
                writers.iter_mut().for_each(|writer| writer.push(event));
                uma.events.push(as_umadb(event));
                own.events.push(as_ours(event));
            });
            let head = match head {
                Head::Absent => 0,
                Head::At(position) => position.0,
                Head::LastEvent => 36,
            };
            uma.head = Some(head).filter(|head| *head > 0);
            own.head = head;
            let [a, b] = writers.map(|writer| writer.finish());
            assert_eq!(a, [Frame(uma.encode_to_vec().into())]);
            assert_eq!(b, [Frame(own.encode_to_vec().into())]);
        }
    }

    #[test]
    fn a_frame_without_events_is_a_message_too() {
        let decode = |frame: Frame| ours::SubscribeResponse::decode(frame.0).unwrap();
        assert_eq!(umadb::ReadResponse::decode(FrameWriter::empty(None).0).unwrap().head, None);
        assert_eq!(
            umadb::ReadResponse::decode(FrameWriter::empty(Some(Position(9))).0).unwrap().head,
            Some(9)
        );
        assert_eq!(decode(Frame::signal(2, Position::ZERO)).caught_up, Some(0));
        assert_eq!(decode(Frame::signal(3, Position(1 << 40))).fell_behind, Some(1 << 40));
        assert!(FrameWriter::new(Dialect::Umadb, Head::LastEvent).finish().is_empty());
    }

    #[test]
    fn frames_are_split_below_the_limit() {
        let db = Database::in_memory().unwrap();
        let store = db.events("s").unwrap();
        let sizes = [1 << 20, 2 << 20, 3 << 20, 5 << 20, 10, 20];
        for size in sizes {
            store.append(&[Event::new("A").data(vec![7; size])], None).unwrap();
        }
        let mut writer = FrameWriter::new(Dialect::Umadb, Head::LastEvent);
        let mut reader = store.read(&Query::all(), ReadOptions::default()).unwrap();
        reader.visit(100, |event| writer.push(event)).unwrap();
        let frames = writer.finish();
        let messages: Vec<_> =
            frames.iter().map(|frame| umadb::ReadResponse::decode(frame.0.clone()).unwrap()).collect();
        let counts: Vec<_> = messages.iter().map(|m| (m.events.len(), m.head)).collect();
        assert_eq!(counts, [(2, Some(2)), (1, Some(3)), (1, Some(4)), (2, Some(6))]);
        for (frame, message) in frames.iter().zip(&messages) {
            assert!(frame.0.len() <= 4 << 20 || message.events.len() == 1);
        }
    }
}
