//! Encoding of messages: the frame around the documents.
//!
//! ```text
//! ┌────────┬────────────┬─────────────┬────────┐
//! │ length │ request id │ response to │ opcode │ four int32, little-endian, then by opcode:
//! └────────┴────────────┴─────────────┴────────┘
//! 2013 OP_MSG          flags u32 | section… | CRC-32C if flag 0          section: 0 document
//!                                                                                 1 size i32, name\0, document…
//! 2004 OP_QUERY        flags i32 | name\0 | skip i32 | return i32 | document [fields]      only the handshake of old clients
//!    1 OP_REPLY        flags i32 | cursor i64 | start i32 | count i32 | document           the answer to it
//! 2012 OP_COMPRESSED   opcode i32 | size i32 | compressor u8 | bytes     around any other but itself
//! ```
//!
//! Invariants
//! 1. A frame is decoded completely or rejected; no input panics or allocates more than the frame's own
//!    limit.
//! 2. The body of a decoded request is a checked document. The documents of a sequence are framed, not
//!    checked: they are checked where they are used, since one bad document of many has a separate error.
//!
//! Source: <https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/>.

use std::ops::Range;

use ropewalk::documents::lang::{Doc, DocBuf, LangError};

use crate::protocol::compress::{Compressor, decompress};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// Longest message, header included, as reported by `hello`.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// Most writes of one command, as reported by `hello`.
pub(crate) const WRITES_MAX: usize = 100_000;
/// Bytes at the start of a compressed message, after the header.
pub const COMPRESSED_BYTES: usize = 9;
/// Sections of one message; there is one body and at most a handful of sequences.
const SECTIONS_MAX: usize = 16;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;

const CHECKSUM: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
const EXHAUST_ALLOWED: u32 = 1 << 16;
/// Flags below this one must be understood.
const OPTIONAL_FLAGS: u32 = 0xFFFF_0000;

/// Why bytes are not a valid message. The connection must be closed, since the next message's start is
/// unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length in the header is out of bounds.
    #[error("a message of {length} bytes; the least is 16, the most {MESSAGE_BYTES_MAX}")]
    Length {
        /// The length in the header.
        length: i32,
    },
    /// An unsupported opcode.
    #[error("opcode {opcode} is not supported")]
    Opcode {
        /// The opcode.
        opcode: i32,
    },
    /// The bytes do not fit their frame.
    #[error("malformed message: {what}")]
    Malformed {
        /// The invalid part.
        what: &'static str,
    },
    /// The CRC-32C at the end does not match.
    #[error("the checksum of the message does not match")]
    Checksum,
}

fn malformed(what: &'static str) -> FrameError {
    FrameError::Malformed { what }
}

/// Header of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the message, header included.
    pub length: usize,
    /// The sender's id for it.
    pub id: i32,
    response_to: i32,
    opcode: i32,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`FrameError::Length`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut bytes = Bytes(bytes);
        let (length, id, response_to, opcode) =
            (bytes.int32()?, bytes.int32()?, bytes.int32()?, bytes.int32()?);
        let refused = FrameError::Length { length };
        let length = usize::try_from(length).map_err(|_| refused.clone())?;
        if !(HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(refused);
        }
        Ok(Self { length, id, response_to, opcode })
    }

    /// True when the size before compression follows, see [`Header::plain_bytes`].
    pub fn is_compressed(self) -> bool {
        self.opcode == OP_COMPRESSED
    }

    /// Reply to a request whose body is not a document.
    pub fn reply(self, id: i32, reply: &DocBuf) -> Vec<u8> {
        let mut plain = vec![0; 5];
        plain.extend_from_slice(reply.bytes());
        framed(id, self.id, OP_MSG, &plain)
    }

    /// Memory of the decoded message, from its first bytes after the header.
    pub fn plain_bytes(self, begin: &[u8; COMPRESSED_BYTES]) -> usize {
        let [_, _, _, _, size @ .., _] = begin;
        let plain = usize::try_from(i32::from_le_bytes(*size)).unwrap_or(0);
        if self.is_compressed() { self.length + plain.min(MESSAGE_BYTES_MAX) } else { self.length }
    }
}

/// Format of a request, and so of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// OP_MSG.
    Message,
    /// OP_QUERY.
    Query,
}

/// A sequence of documents next to the body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sequence {
    name: Range<usize>,
    documents: Vec<Range<usize>>,
}

/// A decoded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's id for it.
    pub id: i32,
    /// Its format.
    pub form: Form,
    /// The client wants no reply.
    pub more_to_come: bool,
    /// The client accepts several replies.
    pub exhaust_allowed: bool,
    /// Its compression.
    pub compressor: Option<Compressor>,
    bytes: Vec<u8>,
    body: Range<usize>,
    sequences: Vec<Sequence>,
    /// The database of an OP_QUERY, whose body does not contain it.
    database: Option<String>,
}

impl Request {
    /// Decodes the bytes after a header.
    ///
    /// # Errors
    /// [`FrameError`]. The inner error: the frame is valid, but its body is not a document.
    pub fn decode(header: Header, bytes: Vec<u8>) -> Result<Result<Self, LangError>, FrameError> {
        if bytes.len() + HEADER_BYTES != header.length {
            return Err(malformed("its length differs from the header's"));
        }
        match header.opcode {
            OP_COMPRESSED => {
                let mut rest = Bytes(&bytes);
                let (opcode, size, compressor) = (rest.int32()?, rest.int32()?, rest.byte()?);
                let size =
                    usize::try_from(size).ok().filter(|size| *size <= MESSAGE_BYTES_MAX - HEADER_BYTES);
                let size = size.ok_or(malformed("the size before compression"))?;
                let compressor =
                    Compressor::numbered(compressor).ok_or(malformed("an unknown compressor"))?;
                let plain = decompress(compressor, rest.0, size).ok_or(malformed("the compressed part"))?;
                if opcode == OP_COMPRESSED {
                    return Err(malformed("compressed twice"));
                }
                let inner = Header { length: plain.len() + HEADER_BYTES, opcode, ..header };
                let request = Self::decode_plain(inner, plain, None)?;
                Ok(request.map(|request| Self { compressor: Some(compressor), ..request }))
            }
            OP_MSG if flags(&bytes) & CHECKSUM != 0 => {
                let (covered, sum) = bytes.split_last_chunk::<4>().ok_or(malformed("no checksum"))?;
                let head = [header.length as i32, header.id, header.response_to, header.opcode];
                let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
                let found = crc32c::crc32c_append(crc32c::crc32c(&head), covered);
                if found != u32::from_le_bytes(*sum) {
                    return Err(FrameError::Checksum);
                }
                let end = covered.len();
                Self::decode_plain(header, bytes, Some(end))
            }
            _ => Self::decode_plain(header, bytes, None),
        }
    }

    fn decode_plain(
        header: Header,
        bytes: Vec<u8>,
        end: Option<usize>,
    ) -> Result<Result<Self, LangError>, FrameError> {
        match header.opcode {
            OP_MSG => Self::decode_message(header, bytes, end),
            OP_QUERY => Self::decode_query(header, bytes),
            opcode => Err(FrameError::Opcode { opcode }),
        }
    }

    fn decode_message(
        header: Header,
        bytes: Vec<u8>,
        end: Option<usize>,
    ) -> Result<Result<Self, LangError>, FrameError> {
        let flags = flags(&bytes);
        let known = CHECKSUM | MORE_TO_COME;
        if flags & !known & !OPTIONAL_FLAGS != 0 {
            return Err(malformed("an unknown required flag"));
        }
        let end = match end {
            Some(end) => end,
            // Inside a compressed message the checksum remains, but covers a header that is gone.
            None if flags & CHECKSUM != 0 => bytes.len().checked_sub(4).ok_or(malformed("no checksum"))?,
            None => bytes.len(),
        };
        let covered = bytes.get(..end).ok_or(malformed("no sections"))?;
        let mut at = 4;
        let (mut body, mut sequences) = (None, Vec::new());
        while at < end {
            let section = covered.get(at..).unwrap_or_default();
            match section.first() {
                Some(0) => {
                    let found = document(covered, at + 1)?;
                    at = found.end;
                    if body.replace(found).is_some() {
                        return Err(malformed("two bodies"));
                    }
                }
                Some(1) => {
                    let (sequence, next) = decode_sequence(covered, at + 1)?;
                    at = next;
                    sequences.push(sequence);
                }
                _ => return Err(malformed("an unknown kind of section")),
            }
            if sequences.len() > SECTIONS_MAX {
                return Err(malformed("too many sections"));
            }
        }
        let body = body.ok_or(malformed("no body"))?;
        if let Err(error) = Doc::check(covered.get(body.clone()).unwrap_or_default()) {
            return Ok(Err(error));
        }
        Ok(Ok(Self {
            id: header.id,
            form: Form::Message,
            more_to_come: flags & MORE_TO_COME != 0,
            exhaust_allowed: flags & EXHAUST_ALLOWED != 0,
            compressor: None,
            bytes,
            body,
            sequences,
            database: None,
        }))
    }

    fn decode_query(header: Header, bytes: Vec<u8>) -> Result<Result<Self, LangError>, FrameError> {
        let mut rest = Bytes(&bytes);
        rest.int32()?;
        let name = rest.name()?;
        let database = name.strip_suffix(".$cmd").ok_or(malformed("OP_QUERY is only for the handshake"))?;
        let database = database.to_owned();
        rest.int32()?;
        rest.int32()?;
        let found = document(&bytes, bytes.len() - rest.0.len())?;
        let behind = bytes.get(found.end..).unwrap_or_default();
        if !behind.is_empty() && document(&bytes, found.end)?.end != bytes.len() {
            return Err(malformed("extra bytes after the query"));
        }
        if let Err(error) = Doc::check(bytes.get(found.clone()).unwrap_or_default()) {
            return Ok(Err(error));
        }
        Ok(Ok(Self {
            id: header.id,
            form: Form::Query,
            more_to_come: false,
            exhaust_allowed: false,
            compressor: None,
            body: found,
            bytes,
            sequences: Vec::new(),
            database: Some(database),
        }))
    }

    /// The command.
    pub fn body(&self) -> Doc<'_> {
        let body = Doc::trusted(self.bytes.get(self.body.clone()).unwrap_or_default());
        // Old clients wrap the command when they add a read preference.
        match (self.form, body.first()) {
            (Form::Query, Some(("$query" | "query", value))) => value.as_document().unwrap_or(body),
            _ => body,
        }
    }

    /// The database that the command is for.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref().or_else(|| self.body().get("$db")?.as_str())
    }

    /// The documents of the sequence `name`, not yet checked.
    pub fn sequence(&self, name: &str) -> Option<Vec<&[u8]>> {
        let found =
            self.sequences.iter().find(|s| self.bytes.get(s.name.clone()) == Some(name.as_bytes()))?;
        Some(found.documents.iter().filter_map(|place| self.bytes.get(place.clone())).collect())
    }

    /// Names of the sequences.
    pub fn sequence_names(&self) -> impl Iterator<Item = &str> {
        self.sequences.iter().filter_map(|s| std::str::from_utf8(self.bytes.get(s.name.clone())?).ok())
    }

    /// The encoded reply. `id`: the server's id for it.
    pub fn reply(&self, id: i32, reply: &DocBuf) -> Vec<u8> {
        self.reply_to(self.id, id, reply, false)
    }

    /// One of several replies: the first responds to the request, each other to the previous reply. `more`:
    /// another one follows.
    pub fn reply_to(&self, to: i32, id: i32, reply: &DocBuf, more: bool) -> Vec<u8> {
        let mut plain = Vec::with_capacity(reply.bytes().len() + 36);
        let opcode = match self.form {
            Form::Message => {
                plain.extend((if more { MORE_TO_COME } else { 0 }).to_le_bytes());
                plain.push(0);
                OP_MSG
            }
            Form::Query => {
                // Flags: await capable; no cursor; starting at 0; one document.
                plain.extend(8_i32.to_le_bytes());
                plain.extend([0; 12]);
                plain.extend(1_i32.to_le_bytes());
                OP_REPLY
            }
        };
        plain.extend_from_slice(reply.bytes());
        match self.compressor {
            Some(compressor) => match compressor.compress(&plain) {
                Some(small) => {
                    let mut around = Vec::with_capacity(small.len() + 9);
                    around.extend(opcode.to_le_bytes());
                    around.extend((plain.len() as i32).to_le_bytes());
                    around.push(compressor.number());
                    around.extend(small);
                    framed(id, to, OP_COMPRESSED, &around)
                }
                None => framed(id, to, opcode, &plain),
            },
            None => framed(id, to, opcode, &plain),
        }
    }
}

/// A message with its header.
fn framed(id: i32, response_to: i32, opcode: i32, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(payload.len() + HEADER_BYTES);
    for word in [(payload.len() + HEADER_BYTES) as i32, id, response_to, opcode] {
        message.extend(word.to_le_bytes());
    }
    message.extend_from_slice(payload);
    message
}

fn flags(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |flags| u32::from_le_bytes(*flags))
}

/// Range of the document at `at`.
fn document(bytes: &[u8], at: usize) -> Result<Range<usize>, FrameError> {
    let length =
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|length| i32::from_le_bytes(*length));
    let length = length.and_then(|length| usize::try_from(length).ok()).filter(|length| *length >= 5);
    let end = length.and_then(|length| at.checked_add(length)).filter(|end| *end <= bytes.len());
    Ok(at..end.ok_or(malformed("a document that is longer than its frame"))?)
}

/// Decodes the sequence at `at`, after its kind; also returns the start of the next section.
fn decode_sequence(bytes: &[u8], at: usize) -> Result<(Sequence, usize), FrameError> {
    let too_long = malformed("a sequence that is longer than its frame");
    let size = Bytes(bytes.get(at..).unwrap_or_default()).int32()?;
    let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size));
    let end = end.filter(|end| *end <= bytes.len()).ok_or(too_long.clone())?;
    let inside = bytes.get(..end).unwrap_or_default();
    let mut rest = Bytes(inside.get(at + 4..).ok_or(too_long)?);
    let name_at = end - rest.0.len();
    let name = name_at..name_at + rest.name()?.len();
    let mut next = end - rest.0.len();
    let mut documents = Vec::new();
    while next < end {
        let found = document(inside, next)?;
        next = found.end;
        documents.push(found);
    }
    Ok((Sequence { name, documents }, end))
}

/// Bytes consumed from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn int32(&mut self) -> Result<i32, FrameError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(malformed("it ends early"))?;
        self.0 = rest;
        Ok(i32::from_le_bytes(*bytes))
    }

    fn byte(&mut self) -> Result<u8, FrameError> {
        let (byte, rest) = self.0.split_first().ok_or(malformed("it ends early"))?;
        self.0 = rest;
        Ok(*byte)
    }

    /// A string up to a zero byte.
    fn name(&mut self) -> Result<&'a str, FrameError> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(malformed("a name without an end"))?;
        let (name, rest) = self.0.split_at_checked(end).ok_or(malformed("a name without an end"))?;
        self.0 = rest.get(1..).unwrap_or_default();
        std::str::from_utf8(name).map_err(|_| malformed("a name that is not UTF-8"))
    }
}
