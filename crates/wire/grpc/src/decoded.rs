//! The memory that the message of a request takes when it is decoded, found while its bytes arrive.
//!
//! ```text
//! proto files ─▶ build.rs ─▶ Shape of each message ─┐
//! frames of the body ────────────────────────────────┴▶ DecodedSize ─▶ reservation and limit (admission) ─▶ prost
//! ```
//! An empty element of a repeated field has two bytes in a message and up to hundreds in memory.
//!
//! Invariants
//! 1. Decoding a message takes the counted bytes, and the spare capacity of vectors while they grow: at
//!    most twice the counted bytes in addition.
//! 2. Bytes that are not a valid message are rejected here, before they are decoded, because a part that is
//!    not understood would not be counted.
//!
//! Source: the encoding page of the protobuf documentation. Groups, which no message here has, are rejected.

use ropewalk_wire::WireError;

/// Bytes before a message: the flag of compression and the length.
const HEAD_BYTES: u32 = 5;
/// Most bytes of a number.
const NUMBER_BYTES_MAX: u32 = 10;

/// The fields of a message that take memory beyond that of the message itself.
pub(crate) struct Shape {
    fields: &'static [Field],
}

/// A text, bytes or a message.
struct Field {
    number: u32,
    /// Bytes of an element in the vector of a repeated field; 0 for a field that is part of its message.
    element: usize,
    /// Absent for texts and bytes.
    message: Option<&'static Shape>,
}

#[allow(dead_code)] // messages of responses
mod shapes {
    use super::{Field, Shape};

    include!("../generated/shapes.rs");
}

/// The shape of the message of a call, by the path of the call.
pub(crate) fn shape(path: &str) -> Option<&'static Shape> {
    shapes::of_call(path)
}

/// The part of a message to which the next byte belongs.
#[derive(Clone, Copy)]
enum Next {
    /// The bytes before a message.
    Head,
    /// Number and wire type of a field, or the end of the message.
    Key,
    /// A number.
    Number,
    /// The length of a text, of bytes or of a message; of a field that takes memory, if it is known.
    Length(Option<&'static Field>),
}

/// Counts the bytes of decoded messages.
pub(crate) struct DecodedSize {
    shape: &'static Shape,
    bytes: usize,
    /// Number of bytes read.
    at: u64,
    /// Ends and shapes of the messages around the next byte, the innermost last; empty between messages.
    open: Vec<(u64, &'static Shape)>,
    next: Next,
    /// The number that is being read, and how many of its bytes were read.
    number: u64,
    digits: u32,
    /// Bytes that need not be read: the content of a field.
    skip: usize,
}

fn malformed(what: &str) -> WireError {
    WireError::invalid(format!("the request is not its message: {what}"))
}

impl DecodedSize {
    /// For a request whose messages have this shape.
    pub(crate) fn new(shape: &'static Shape) -> Self {
        let (open, next) = (Vec::new(), Next::Head);
        Self { shape, bytes: 0, at: 0, open, next, number: 0, digits: 0, skip: 0 }
    }

    /// The memory of what has arrived.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the next bytes of the request.
    ///
    /// # Errors
    /// They are not part of a message.
    pub(crate) fn add(&mut self, data: &[u8]) -> Result<(), WireError> {
        let mut rest = data;
        loop {
            let skipped = self.skip.min(rest.len());
            rest = rest.get(skipped..).unwrap_or_default();
            self.skip -= skipped;
            self.at += skipped as u64;
            if self.skip == 0 {
                self.end_messages()?;
            }
            let Some((byte, after)) = rest.split_first() else { return Ok(()) };
            rest = after;
            self.at += 1;
            self.read(*byte)?;
        }
    }

    /// Ends the messages that end before the next byte.
    fn end_messages(&mut self) -> Result<(), WireError> {
        while self.open.last().is_some_and(|(end, _)| *end == self.at) {
            if self.digits > 0 || !matches!(self.next, Next::Key) {
                return Err(malformed("a field is cut off"));
            }
            self.open.pop();
            if self.open.is_empty() {
                self.next = Next::Head;
            }
        }
        Ok(())
    }

    fn read(&mut self, byte: u8) -> Result<(), WireError> {
        match self.next {
            Next::Head => self.read_head(byte),
            Next::Key => {
                if let Some(key) = self.number(byte)? {
                    self.next = self.after_key(key)?;
                }
            }
            Next::Number => {
                if self.number(byte)?.is_some() {
                    self.next = Next::Key;
                }
            }
            Next::Length(field) => {
                if let Some(length) = self.number(byte)? {
                    self.next = Next::Key;
                    self.enter(field, length)?;
                }
            }
        }
        Ok(())
    }

    fn read_head(&mut self, byte: u8) {
        self.number = self.number << 8 | u64::from(byte);
        self.digits += 1;
        if self.digits < HEAD_BYTES {
            return;
        }
        let head = core::mem::take(&mut self.number);
        self.digits = 0;
        if head >> 32 == 0 {
            self.open.push((self.at + head, self.shape));
            self.next = Next::Key;
        } else {
            // Compressed, which is not offered: the call is rejected without decoding.
            self.skip = usize::MAX;
        }
    }

    /// The number that ends with this byte, if it does.
    fn number(&mut self, byte: u8) -> Result<Option<u64>, WireError> {
        // The last possible byte has one bit of the number.
        if self.digits == NUMBER_BYTES_MAX - 1 && byte > 1 {
            return Err(malformed("a number is too long"));
        }
        self.number |= u64::from(byte & 0x7f) << (7 * self.digits);
        self.digits += 1;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        self.digits = 0;
        Ok(Some(core::mem::take(&mut self.number)))
    }

    fn after_key(&mut self, key: u64) -> Result<Next, WireError> {
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| malformed("the number of a field is 0 or too large"))?;
        match key & 7 {
            0 => Ok(Next::Number),
            1 => {
                self.skip = self.fitting(8)?;
                Ok(Next::Key)
            }
            2 => {
                let shape = self.open.last().map(|(_, shape)| *shape);
                let known = |shape: &'static Shape| shape.fields.iter().find(|field| field.number == number);
                Ok(Next::Length(shape.and_then(known)))
            }
            5 => {
                self.skip = self.fitting(4)?;
                Ok(Next::Key)
            }
            _ => Err(malformed("it has a group, or a wire type that does not exist")),
        }
    }

    /// Counts a field whose content is the next `length` bytes.
    fn enter(&mut self, field: Option<&'static Field>, length: u64) -> Result<(), WireError> {
        let content = self.fitting(length)?;
        let Some(field) = field else {
            self.skip = content;
            return Ok(());
        };
        self.bytes = self.bytes.saturating_add(field.element);
        match field.message {
            Some(shape) => self.open.push((self.at + length, shape)),
            None => {
                self.bytes = self.bytes.saturating_add(content);
                self.skip = content;
            }
        }
        Ok(())
    }

    /// The length of a field, if it ends within its message.
    fn fitting(&self, length: u64) -> Result<usize, WireError> {
        let left = self.open.last().map_or(0, |(end, _)| end.saturating_sub(self.at));
        let fits = usize::try_from(length).ok().filter(|_| length <= left);
        fits.ok_or_else(|| malformed("a field is longer than its message"))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use ropewalk::hooks::put_varint;

    use super::*;
    use crate::proto::ropewalk::events::v1 as events;
    use crate::proto::ropewalk::v1 as proto;
    use crate::proto::ropewalk::v1::operation::Operation as Kind;

    const COMMIT: &str = "/ropewalk.v1.Transactions/Commit";

    /// A message with the bytes before it.
    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0_u8][..], &length, message].concat()
    }

    fn size(path: &str, request: &[u8]) -> Result<usize, WireError> {
        let mut size = DecodedSize::new(shape(path).unwrap());
        size.add(request).map(|()| size.bytes())
    }

    fn transaction() -> proto::CommitRequest {
        let event = events::Event {
            r#type: "Placed".to_owned(),
            tags: vec!["order:1".to_owned(), "sku:rope".to_owned()],
            data: vec![7; 300],
            metadata: vec![events::MetadataEntry { key: "by".to_owned(), value: "ann".to_owned() }],
            ..events::Event::default()
        };
        let append = proto::AppendEvents { events: vec![event; 2], ..proto::AppendEvents::default() };
        let parameter = proto::SqlValue { kind: Some(proto::sql_value::Kind::DoubleValue(0.5)) };
        let sql =
            proto::Statement { sql: "SELECT $1".to_owned(), parameters: vec![parameter], expect: Some(1) };
        let operations = [Kind::Append(append), Kind::Sql(sql)];
        let operations = operations.map(|operation| proto::Operation { operation: Some(operation) });
        proto::CommitRequest { operations: operations.into(), at: Some(1 << 40), ..Default::default() }
    }

    #[test]
    fn size_is_that_of_elements_texts_and_data() {
        let event = size_of::<events::Event>()
            + "Placed".len()
            + 2 * size_of::<String>()
            + "order:1sku:rope".len()
            + 300
            + size_of::<events::MetadataEntry>()
            + "byann".len();
        let sql = "SELECT $1".len() + size_of::<proto::SqlValue>();
        let expected = 2 * size_of::<proto::Operation>() + 2 * event + sql;
        let request = framed(&transaction().encode_to_vec());
        assert_eq!(size(COMMIT, &request).unwrap(), expected);
        // The same in any frames, and for each message of a stream.
        for cut in 0..request.len() {
            let mut parts = DecodedSize::new(shape(COMMIT).unwrap());
            let (first, second) = request.split_at(cut);
            for part in [first, second, request.as_slice()] {
                parts.add(part).unwrap();
            }
            assert_eq!(parts.bytes(), 2 * expected, "{cut}");
        }
        assert_eq!(size(COMMIT, &framed(b"")).unwrap(), 0);
    }

    fn put_field(number: u32, content: &[u8], out: &mut Vec<u8>) {
        put_varint(out, u64::from(number) << 3 | 2);
        put_varint(out, content.len() as u64);
        out.extend_from_slice(content);
    }

    /// The paths of all repeated fields of a message, with the bytes of an element.
    fn repeated(shape: &Shape, path: &[u32], found: &mut Vec<(Vec<u32>, usize)>) {
        for field in shape.fields {
            let path = [path, &[field.number]].concat();
            if field.element > 0 {
                found.push((path.clone(), field.element));
            }
            if let Some(message) = field.message {
                repeated(message, &path, found);
            }
        }
    }

    #[test]
    fn empty_elements_of_every_repeated_field_count() {
        const ELEMENTS: usize = 1_000;
        let mut tested = 0;
        for operation in crate::rights::operations() {
            let Some(shape) = shape(&operation.name) else { continue };
            let mut fields = Vec::new();
            repeated(shape, &[], &mut fields);
            for (path, element) in fields {
                let (last, around) = path.split_last().unwrap();
                let mut message = Vec::new();
                (0..ELEMENTS).for_each(|_| put_field(*last, &[], &mut message));
                for number in around.iter().rev() {
                    let inner = core::mem::take(&mut message);
                    put_field(*number, &inner, &mut message);
                }
                let counted = size(&operation.name, &framed(&message)).unwrap();
                assert!(counted >= ELEMENTS * element, "{} {path:?}: {counted}", operation.name);
                tested += 1;
            }
        }
        // Those of the transactions alone are more.
        assert!(tested > 30, "{tested}");
    }

    #[test]
    fn bytes_that_are_no_message_are_rejected() {
        for (message, what) in [
            (&b"\x80"[..], "cut off"),
            (b"\x0a", "cut off"),
            (b"\x0a\x80", "cut off"),
            (b"\x0a\x02\x1a", "longer"),
            (b"\x0a\x01\x80", "cut off"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "too long"),
            (b"\x00\x00", "number of a field"),
            (b"\x19\x00", "longer"),
            (b"\x0b\x0c", "group"),
            (b"\x0f", "group"),
        ] {
            let error = size(COMMIT, &framed(message)).unwrap_err();
            assert!(error.message.contains(what), "{message:?}: {}", error.message);
        }
        // The call is rejected for other reasons.
        assert_eq!(size(COMMIT, b"\x01\x00\x00\x00\x02\xff\xff\xff").unwrap(), 0);
    }

    #[test]
    fn messages_that_can_be_decoded_pass() {
        let encoded = transaction().encode_to_vec();
        let (mut state, mut decoded) = (1_u64, 0);
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % end as u64) as usize
        };
        for _ in 0..20_000 {
            let mut bytes = encoded.clone();
            for _ in 0..=below(3) {
                let place = below(bytes.len());
                bytes[place] = below(256) as u8;
            }
            let is_message = proto::CommitRequest::decode(&*bytes).is_ok();
            match size(COMMIT, &framed(&bytes)) {
                Ok(_) => decoded += usize::from(is_message),
                Err(error) => {
                    assert!(!is_message || error.message.contains("group"), "{bytes:?}: {}", error.message);
                }
            }
        }
        assert!(decoded > 1_000, "{decoded}");
    }
}
