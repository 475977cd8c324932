//! Messages of protocol 3.0, as bytes.
//!
//! ```text
//! ┌─────┬──────────────┬────────────────────┐      the first message of a connection has no tag
//! │ tag │ length: i32  │ body               │      length counts itself and the body, not the tag
//! └─1───┴─4────────────┴─length - 4─────────┘      numbers are big-endian, texts end with a zero byte
//! ```
//! Client messages are read in place by [`Fields`]; every invalid shape is a [`Malformed`], never a panic.
//! Server messages are written into an [`Out`].
//!
//! Source: PostgreSQL's manual, part "Frontend/Backend Protocol", section "Message Formats".

use std::fmt::Display;
use std::io::Write as _;

use ropewalk_sql::ResultColumn;

use crate::types::{oid_in_catalogs, oid_of};

/// A message whose body does not match its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid message format: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The rest of a message's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A number of elements to come, each of at least `bytes` bytes; PostgreSQL reads it as unsigned.
    fn count(&mut self, bytes: usize) -> Result<usize, Malformed> {
        let count = usize::from(u16::from_be_bytes(self.array()?));
        match count * bytes <= self.0.len() {
            true => Ok(count),
            false => Err(Malformed("it counts more than it holds")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed("a text has no end"))?;
        let text = self.bytes(end)?;
        self.byte()?;
        std::str::from_utf8(text).map_err(|_| Malformed("a text is not UTF-8"))
    }

    /// A length-prefixed value; `None` is NULL.
    fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.bytes(length).map(Some),
                Err(_) => Err(Malformed("a value has a negative length")),
            },
        }
    }

    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("it has extra bytes after its end")) }
    }
}

/// Encoding of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

/// The formats of several values: an empty list is all text, one is for all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Formats {
    each: Vec<Format>,
    /// Arrays of bigint are arrays of oids: they come from the catalogs.
    pub(crate) are_oids: bool,
}

impl Formats {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let count = fields.count(2)?;
        let formats = (0..count).map(|_| match fields.i16()? {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            _ => Err(Malformed("a format is neither text nor binary")),
        });
        formats.collect::<Result<_, _>>().map(|each| Self { each, are_oids: false })
    }

    /// All in binary, or all as text.
    pub(crate) fn all_binary(is_binary: bool) -> Self {
        let each = if is_binary { vec![Format::Binary] } else { Vec::new() };
        Self { each, are_oids: false }
    }

    pub(crate) fn with_oids(self, are_oids: bool) -> Self {
        Self { are_oids, ..self }
    }

    /// True when they fit `count` values.
    pub(crate) fn fit(&self, count: usize) -> bool {
        self.each.len() <= 1 || self.each.len() == count
    }

    /// The format of value `place`.
    pub(crate) fn of(&self, place: usize) -> Format {
        let place = if self.each.len() == 1 { 0 } else { place };
        self.each.get(place).copied().unwrap_or(Format::Text)
    }
}

/// Statement or portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Statement,
    Portal,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request<'a> {
    Query(&'a str),
    Parse {
        name: &'a str,
        sql: &'a str,
        types: Vec<u32>,
    },
    Bind(Bind<'a>),
    Describe(Kind, &'a str),
    /// With the number of rows requested; 0 is all.
    Execute(&'a str, u32),
    Close(Kind, &'a str),
    Flush,
    Sync,
    CopyData(&'a [u8]),
    CopyDone,
    CopyFail(&'a str),
    Terminate,
    /// The legacy function call.
    FunctionCall,
    /// A message of the login exchange.
    Login(&'a [u8]),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bind<'a> {
    pub(crate) portal: &'a str,
    pub(crate) statement: &'a str,
    pub(crate) formats: Formats,
    pub(crate) values: Vec<Option<&'a [u8]>>,
    pub(crate) results: Formats,
}

impl<'a> Request<'a> {
    /// Reads the body of a message.
    ///
    /// # Errors
    /// The invalid part.
    pub(crate) fn read(tag: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let request = match tag {
            b'Q' => Self::Query(fields.text()?),
            b'P' => {
                let (name, sql) = (fields.text()?, fields.text()?);
                let count = fields.count(4)?;
                let types = (0..count).map(|_| fields.i32().map(|oid| oid.cast_unsigned()));
                Self::Parse { name, sql, types: types.collect::<Result<_, _>>()? }
            }
            b'B' => {
                let (portal, statement) = (fields.text()?, fields.text()?);
                let formats = Formats::read(&mut fields)?;
                let count = fields.count(4)?;
                let values = (0..count).map(|_| fields.value()).collect::<Result<_, _>>()?;
                let results = Formats::read(&mut fields)?;
                Self::Bind(Bind { portal, statement, formats, values, results })
            }
            b'D' | b'C' => {
                let kind = match fields.byte()? {
                    b'S' => Kind::Statement,
                    b'P' => Kind::Portal,
                    _ => return Err(Malformed("its kind is neither statement nor portal")),
                };
                let name = fields.text()?;
                if tag == b'D' { Self::Describe(kind, name) } else { Self::Close(kind, name) }
            }
            b'E' => {
                let name = fields.text()?;
                // A negative number is no limit, as in PostgreSQL.
                Self::Execute(name, u32::try_from(fields.i32()?).unwrap_or(0))
            }
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'd' => return Ok(Self::CopyData(body)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(fields.text()?),
            b'X' => Self::Terminate,
            b'p' => return Ok(Self::Login(body)),
            b'F' => return Ok(Self::FunctionCall),
            _ => return Err(Malformed("its tag is unknown")),
        };
        fields.end()?;
        Ok(request)
    }
}

/// Messages to a client, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Out {
    bytes: Vec<u8>,
}

impl Out {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the bytes sent, and memory that only a large reply needed.
    pub(crate) fn sent(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
    }

    /// Appends a message with this tag, whose body `fill` writes.
    pub(crate) fn message(&mut self, tag: u8, fill: impl FnOnce(&mut Body<'_>)) {
        self.bytes.push(tag);
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        fill(&mut Body(&mut self.bytes));
        self.end(start);
    }

    /// As [`Out::message`], but removed again when `fill` fails.
    pub(crate) fn try_message<E>(
        &mut self,
        tag: u8,
        fill: impl FnOnce(&mut Body<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.bytes.push(tag);
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        let filled = fill(&mut Body(&mut self.bytes));
        match filled {
            Ok(()) => self.end(start),
            Err(_) => self.bytes.truncate(start - 1),
        }
        filled
    }

    fn end(&mut self, start: usize) {
        // The memory limit of one statement is far below the bound.
        let length = i32::try_from(self.bytes.len() - start).unwrap_or(i32::MAX);
        if let Some(place) = self.bytes.get_mut(start..).and_then(|tail| tail.first_chunk_mut()) {
            *place = length.to_be_bytes();
        }
    }

    /// A message without a body.
    pub(crate) fn empty(&mut self, tag: u8) {
        self.message(tag, |_| {});
    }

    pub(crate) fn ready(&mut self, status: u8) {
        self.message(b'Z', |body| body.byte(status));
    }

    pub(crate) fn command_complete(&mut self, tag: impl Display) {
        self.message(b'C', |body| body.shown(tag));
    }

    pub(crate) fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |body| {
            body.text(name);
            body.text(value);
        });
    }

    /// Description of a result's rows; `None` for a statement without rows.
    pub(crate) fn row_description(&mut self, columns: Option<&[ResultColumn]>, formats: &Formats) {
        let Some(columns) = columns else { return self.empty(b'n') };
        self.message(b'T', |body| {
            body.count(columns.len());
            for (place, column) in columns.iter().enumerate() {
                let oid = if formats.are_oids { oid_in_catalogs(column.ty) } else { oid_of(column.ty) };
                body.text(&column.name);
                body.i32(0);
                body.i16(0);
                body.i32(oid.oid.cast_signed());
                body.i16(oid.bytes);
                body.i32(oid.modifier);
                body.i16((formats.of(place) == Format::Binary).into());
            }
        });
    }
}

/// Reply buffer that an idle connection retains.
const KEPT_BYTES: usize = 16 << 10;

/// The body of a message that is being written.
pub(crate) struct Body<'o>(pub(crate) &'o mut Vec<u8>);

impl Body<'_> {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn i16(&mut self, number: i16) {
        self.0.extend(number.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, number: i32) {
        self.0.extend(number.to_be_bytes());
    }

    /// A number of elements; every count here is bounded well below 65,536.
    pub(crate) fn count(&mut self, count: usize) {
        self.0.extend(u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
    }

    /// A string and its terminating zero. A zero byte inside would be taken for the end.
    pub(crate) fn text(&mut self, text: &str) {
        match text.as_bytes().contains(&0) {
            true => self.0.extend(text.bytes().filter(|byte| *byte != 0)),
            false => self.0.extend_from_slice(text.as_bytes()),
        }
        self.0.push(0);
    }

    /// The displayed form without zero bytes, and its terminating zero.
    fn shown(&mut self, what: impl Display) {
        // Writing to memory cannot fail.
        let _ = write!(self.0, "{what}");
        self.0.push(0);
    }

    /// A length-prefixed value, which `fill` appends.
    pub(crate) fn value<E>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.0.len();
        self.0.extend([0; 4]);
        fill(self.0)?;
        let length = i32::try_from(self.0.len() - start - 4).unwrap_or(i32::MAX);
        if let Some(place) = self.0.get_mut(start..).and_then(|tail| tail.first_chunk_mut()) {
            *place = length.to_be_bytes();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_is_read_in_place() {
        let mut body = b"p\0s\0".to_vec();
        for number in [1_i16, 1, 2] {
            body.extend(number.to_be_bytes());
        }
        body.extend(4_i32.to_be_bytes());
        body.extend(7_i32.to_be_bytes());
        body.extend((-1_i32).to_be_bytes());
        body.extend(0_i16.to_be_bytes());
        let Ok(Request::Bind(bind)) = Request::read(b'B', &body) else { panic!() };
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        assert_eq!(bind.values, [Some(7_i32.to_be_bytes().as_slice()), None]);
        assert_eq!(bind.formats.of(1), Format::Binary);
        assert_eq!(bind.results, Formats::default());
        for cut in 0..body.len() {
            assert!(Request::read(b'B', &body[..cut]).is_err(), "{cut}");
        }
        body.push(0);
        assert_eq!(Request::read(b'B', &body), Err(Malformed("it has extra bytes after its end")));
    }

    #[test]
    fn impossible_counts_and_lengths_are_rejected() {
        let huge = [b"\0\0".as_slice(), &[0xff, 0xff]].concat();
        assert_eq!(Request::read(b'P', &huge), Err(Malformed("it counts more than it holds")));
        let negative = [b"\0\0\0\0\0\x01".as_slice(), &(-2_i32).to_be_bytes()].concat();
        assert_eq!(Request::read(b'B', &negative), Err(Malformed("a value has a negative length")));
        assert!(Request::read(b'Q', b"no end").is_err());
        assert!(Request::read(b'Q', b"\xff\0").is_err());
        assert!(Request::read(b'?', b"").is_err());
        assert!(Request::read(b'S', b"x").is_err());
    }

    #[test]
    fn failed_message_is_removed() {
        let mut out = Out::default();
        out.ready(b'I');
        let failed: Result<(), ()> = out.try_message(b'D', |body| {
            body.i32(1);
            Err(())
        });
        assert!(failed.is_err());
        assert_eq!(out.bytes(), b"Z\0\0\0\x05I");
    }
}
