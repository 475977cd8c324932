//! BSON values in place.
//!
//! ```text
//! bytes ─▶ Doc::check, once ─▶ Doc ─▶ get, iter ─▶ Value: numbers by value, the rest as slices of the same bytes
//!                                                    └─▶ Owned: a value that owns its bytes
//! Writer ─▶ DocBuf
//! ```
//!
//! A document is checked once, on input: lengths, types, UTF-8, depth, size. From then on no access can
//! fail, and a search by name skips fields by their lengths without reading them.
//!
//! Invariants
//! 1. Nothing here panics, whatever the bytes are: a `Doc` over bytes that were never checked ends early.
//! 2. A `Doc` that passed `check` is no deeper than [`DEPTH_MAX`], so recursion over it is bounded in this
//!    crate.
//!
//! Source: <https://bsonspec.org/spec.html>. The crate `bson` has the same idea in `RawDocument`, whose every
//! step can fail.

pub(crate) mod decimal;
pub mod key;
pub(crate) mod number;
pub mod order;
pub mod path;
pub(crate) mod restore;
pub(crate) mod sort;
pub(crate) mod tree;
pub(crate) mod val;
pub(crate) mod writer;

use std::fmt;

use ropewalk_base::hex;

use crate::lang::error::{LangResult, refuse};
use crate::lang::value::decimal::Decimal;
use crate::lang::value::writer::Writer;

/// Largest document, MongoDB's limit.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Deepest nesting of a document. MongoDB stores 180 levels as well.
pub const DEPTH_MAX: usize = 180;

/// A number or null in an array: its type, its position, its value.
pub(crate) const ELEMENT_BYTES: usize = 8;

const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// The bytes that identify types.
pub(crate) mod tag {
    pub(crate) const DOUBLE: u8 = 0x01;
    pub(crate) const STRING: u8 = 0x02;
    pub(crate) const DOCUMENT: u8 = 0x03;
    pub(crate) const ARRAY: u8 = 0x04;
    pub(crate) const BINARY: u8 = 0x05;
    pub(crate) const UNDEFINED: u8 = 0x06;
    pub(crate) const OBJECT_ID: u8 = 0x07;
    pub(crate) const BOOL: u8 = 0x08;
    pub(crate) const DATE: u8 = 0x09;
    pub(crate) const NULL: u8 = 0x0A;
    pub(crate) const REGEX: u8 = 0x0B;
    pub(crate) const DB_POINTER: u8 = 0x0C;
    pub(crate) const CODE: u8 = 0x0D;
    pub(crate) const SYMBOL: u8 = 0x0E;
    pub(crate) const CODE_WITH_SCOPE: u8 = 0x0F;
    pub(crate) const INT32: u8 = 0x10;
    pub(crate) const TIMESTAMP: u8 = 0x11;
    pub(crate) const INT64: u8 = 0x12;
    pub(crate) const DECIMAL: u8 = 0x13;
    pub(crate) const MIN_KEY: u8 = 0xFF;
    pub(crate) const MAX_KEY: u8 = 0x7F;
}

/// A document in place: bytes that were checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Doc<'a>(&'a [u8]);

impl<'a> Doc<'a> {
    /// Checks `bytes` completely. Cost: one pass.
    ///
    /// # Errors
    /// `InvalidBSON`, `BSONObjectTooLarge`, and `Overflow` for a document deeper than [`DEPTH_MAX`].
    pub fn check(bytes: &'a [u8]) -> LangResult<Self> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            let size = bytes.len();
            refuse!(BSONObjectTooLarge, "a document of {size} bytes; the limit is {DOCUMENT_BYTES_MAX}");
        }
        check_document(bytes, 1)?;
        Ok(Self(bytes))
    }

    /// A document whose bytes were checked before, such as one from the store.
    #[must_use]
    pub fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// `{}`
    #[must_use]
    pub fn empty() -> Doc<'static> {
        Doc(EMPTY)
    }

    /// All bytes, length and final zero included.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The first field with that name. Cost: skips the fields before it.
    #[must_use]
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        let mut fields = self.iter();
        while let Some(element) = fields.element() {
            if element.name == name.as_bytes() {
                return element.value();
            }
        }
        None
    }

    /// Names and values in order.
    #[must_use]
    pub fn iter(self) -> Fields<'a> {
        // Bytes that were never checked may be shorter than a document.
        let end = self.0.len().saturating_sub(1);
        Fields { rest: self.0.get(4..end).unwrap_or_default() }
    }

    /// The fields as raw bytes, for readers that need few of the values.
    pub(crate) fn elements(self) -> impl Iterator<Item = Element<'a>> {
        let mut fields = self.iter();
        std::iter::from_fn(move || fields.element())
    }

    /// The values alone: the elements of an array.
    pub fn values(self) -> impl Iterator<Item = Value<'a>> {
        self.iter().map(|(_, value)| value)
    }

    /// True when there are no fields.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.iter().rest.is_empty()
    }

    /// The first field.
    #[must_use]
    pub fn first(self) -> Option<(&'a str, Value<'a>)> {
        self.iter().next()
    }

    /// A copy that owns its bytes.
    #[must_use]
    pub fn to_buf(self) -> DocBuf {
        DocBuf(self.0.to_vec())
    }
}

impl<'a> IntoIterator for Doc<'a> {
    type Item = (&'a str, Value<'a>);
    type IntoIter = Fields<'a>;

    fn into_iter(self) -> Fields<'a> {
        self.iter()
    }
}

impl fmt::Debug for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::Document(*self).fmt(f)
    }
}

/// A document that owns its bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DocBuf(Vec<u8>);

impl DocBuf {
    /// `{}`
    #[must_use]
    pub fn empty() -> Self {
        Self(EMPTY.to_vec())
    }

    /// Takes bytes and checks them as [`Doc::check`] does.
    ///
    /// # Errors
    /// Those of [`Doc::check`].
    pub fn check(bytes: Vec<u8>) -> LangResult<Self> {
        Doc::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// Takes bytes that were checked before.
    #[must_use]
    pub fn trusted(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Releases excess capacity, before the document is held for long.
    #[must_use]
    pub fn compact(mut self) -> Self {
        if self.0.capacity() > self.0.len() + self.0.len() / 8 {
            self.0.shrink_to_fit();
        }
        self
    }

    /// The document as a borrowed `Doc`.
    #[must_use]
    pub fn doc(&self) -> Doc<'_> {
        Doc(&self.0)
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.doc().fmt(f)
    }
}

impl fmt::Display for DocBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.doc().fmt(f)
    }
}

/// Iterates over a document's fields.
#[derive(Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// A field as raw bytes.
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) name: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl<'a> Element<'a> {
    pub(crate) fn value(&self) -> Option<Value<'a>> {
        Value::decode(self.tag, self.payload)
    }
}

impl<'a> Fields<'a> {
    /// The fields encoded in these bytes.
    pub(crate) fn of(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Bytes of the remaining fields.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    fn element(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        let (name, rest) = split_cstr(rest)?;
        let (payload, rest) = rest.split_at_checked(payload_len(tag, rest)?)?;
        self.rest = rest;
        Some(Element { tag, name, payload })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.element()?;
        Some((std::str::from_utf8(element.name).ok()?, element.value()?))
    }
}

fn split_cstr(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

fn length(bytes: &[u8]) -> Option<usize> {
    usize::try_from(i32::from_le_bytes(*bytes.first_chunk()?)).ok()
}

/// Number of bytes of the value at the beginning of `bytes`.
fn payload_len(tag: u8, bytes: &[u8]) -> Option<usize> {
    Some(match tag {
        tag::DOUBLE | tag::DATE | tag::TIMESTAMP | tag::INT64 => 8,
        tag::STRING | tag::CODE | tag::SYMBOL => length(bytes)?.checked_add(4)?,
        tag::DOCUMENT | tag::ARRAY | tag::CODE_WITH_SCOPE => length(bytes)?,
        tag::BINARY => length(bytes)?.checked_add(5)?,
        tag::UNDEFINED | tag::NULL | tag::MIN_KEY | tag::MAX_KEY => 0,
        tag::OBJECT_ID => 12,
        tag::BOOL => 1,
        tag::REGEX => {
            let (pattern, rest) = split_cstr(bytes)?;
            let (options, _) = split_cstr(rest)?;
            pattern.len() + options.len() + 2
        }
        tag::DB_POINTER => length(bytes)?.checked_add(16)?,
        tag::INT32 => 4,
        tag::DECIMAL => 16,
        _ => return None,
    })
}

/// `[length][bytes][0]` as text.
fn text(payload: &[u8]) -> Option<&str> {
    let bytes = payload.get(4..)?;
    let (&last, bytes) = bytes.split_last()?;
    if last == 0 { std::str::from_utf8(bytes).ok() } else { None }
}

fn check_document(bytes: &[u8], depth: usize) -> LangResult<()> {
    if depth > DEPTH_MAX {
        refuse!(Overflow, "a document is nested deeper than {DEPTH_MAX} levels");
    }
    if bytes.len() < 5 || length(bytes) != Some(bytes.len()) || bytes.last() != Some(&0) {
        refuse!(InvalidBSON, "the length of a document is not that of its bytes");
    }
    let mut fields = Doc(bytes).iter();
    while !fields.rest.is_empty() {
        let Some(element) = fields.element() else {
            refuse!(InvalidBSON, "a field ends after its document, or its type is unknown");
        };
        let Ok(name) = std::str::from_utf8(element.name) else {
            refuse!(InvalidBSON, "a field name is not UTF-8");
        };
        let Some(value) = element.value() else {
            refuse!(InvalidBSON, "the value of field {name:?} is not of its type's form");
        };
        match value {
            Value::Document(doc) | Value::Array(doc) => check_document(doc.0, depth + 1)?,
            Value::CodeWithScope(_, scope) => check_document(scope.0, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

/// A value in place. An array holds its bytes as a `Doc`; use [`Doc::values`].
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// 64-bit floating point.
    Double(f64),
    /// Text.
    String(&'a str),
    /// A document.
    Document(Doc<'a>),
    /// An array.
    Array(Doc<'a>),
    /// Subtype and bytes.
    Binary(u8, &'a [u8]),
    /// Deprecated; compares below null.
    Undefined,
    /// The twelve bytes.
    ObjectId([u8; 12]),
    /// True or false.
    Bool(bool),
    /// Milliseconds since 1970.
    DateTime(i64),
    /// Null.
    Null,
    /// Pattern and options.
    Regex(&'a str, &'a str),
    /// Deprecated: namespace and id.
    DbPointer(&'a str, [u8; 12]),
    /// JavaScript; stored, never run.
    Code(&'a str),
    /// Deprecated text.
    Symbol(&'a str),
    /// JavaScript with variables.
    CodeWithScope(&'a str, Doc<'a>),
    /// 32-bit integer.
    Int32(i32),
    /// Seconds in the upper half, a counter in the lower.
    Timestamp(u64),
    /// 64-bit integer.
    Int64(i64),
    /// 128-bit decimal floating point.
    Decimal(Decimal),
    /// Below everything.
    MinKey,
    /// Above everything.
    MaxKey,
}

impl<'a> Value<'a> {
    fn decode(tag: u8, payload: &'a [u8]) -> Option<Self> {
        let int64 = || payload.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
        Some(match tag {
            tag::DOUBLE => Self::Double(f64::from_le_bytes(*payload.first_chunk()?)),
            tag::STRING => Self::String(text(payload)?),
            tag::DOCUMENT => Self::Document(Doc(payload)),
            tag::ARRAY => Self::Array(Doc(payload)),
            tag::BINARY => Self::Binary(*payload.get(4)?, payload.get(5..)?),
            tag::UNDEFINED => Self::Undefined,
            tag::OBJECT_ID => Self::ObjectId(*payload.first_chunk()?),
            tag::BOOL => match payload.first()? {
                0 => Self::Bool(false),
                1 => Self::Bool(true),
                _ => return None,
            },
            tag::DATE => Self::DateTime(int64()?),
            tag::NULL => Self::Null,
            tag::REGEX => {
                let (pattern, rest) = split_cstr(payload)?;
                let (options, _) = split_cstr(rest)?;
                Self::Regex(std::str::from_utf8(pattern).ok()?, std::str::from_utf8(options).ok()?)
            }
            tag::DB_POINTER => {
                let (name, id) = payload.split_last_chunk::<12>()?;
                Self::DbPointer(text(name)?, *id)
            }
            tag::CODE => Self::Code(text(payload)?),
            tag::SYMBOL => Self::Symbol(text(payload)?),
            tag::CODE_WITH_SCOPE => {
                let rest = payload.get(4..)?;
                let (code, scope) = rest.split_at_checked(length(rest)?.checked_add(4)?)?;
                Self::CodeWithScope(text(code)?, Doc(scope))
            }
            tag::INT32 => Self::Int32(i32::from_le_bytes(*payload.first_chunk()?)),
            tag::TIMESTAMP => Self::Timestamp(u64::from_le_bytes(*payload.first_chunk()?)),
            tag::INT64 => Self::Int64(int64()?),
            tag::DECIMAL => Self::Decimal(Decimal::from_bytes(*payload.first_chunk()?)),
            tag::MIN_KEY => Self::MinKey,
            tag::MAX_KEY => Self::MaxKey,
            _ => return None,
        })
    }

    /// The type's byte.
    #[must_use]
    pub fn tag(self) -> u8 {
        match self {
            Self::Double(_) => tag::DOUBLE,
            Self::String(_) => tag::STRING,
            Self::Document(_) => tag::DOCUMENT,
            Self::Array(_) => tag::ARRAY,
            Self::Binary(..) => tag::BINARY,
            Self::Undefined => tag::UNDEFINED,
            Self::ObjectId(_) => tag::OBJECT_ID,
            Self::Bool(_) => tag::BOOL,
            Self::DateTime(_) => tag::DATE,
            Self::Null => tag::NULL,
            Self::Regex(..) => tag::REGEX,
            Self::DbPointer(..) => tag::DB_POINTER,
            Self::Code(_) => tag::CODE,
            Self::Symbol(_) => tag::SYMBOL,
            Self::CodeWithScope(..) => tag::CODE_WITH_SCOPE,
            Self::Int32(_) => tag::INT32,
            Self::Timestamp(_) => tag::TIMESTAMP,
            Self::Int64(_) => tag::INT64,
            Self::Decimal(_) => tag::DECIMAL,
            Self::MinKey => tag::MIN_KEY,
            Self::MaxKey => tag::MAX_KEY,
        }
    }

    /// The type's name for `$type`.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        type_name(self.tag())
    }

    /// The document, if it is one.
    #[must_use]
    pub fn as_document(self) -> Option<Doc<'a>> {
        if let Self::Document(doc) = self { Some(doc) } else { None }
    }

    /// The array, if it is one.
    #[must_use]
    pub fn as_array(self) -> Option<Doc<'a>> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }

    /// The text, if it is text.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Null or undefined.
    #[must_use]
    pub fn is_nullish(self) -> bool {
        matches!(self, Self::Null | Self::Undefined)
    }

    /// One of the four numeric types.
    #[must_use]
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int32(_) | Self::Int64(_) | Self::Double(_) | Self::Decimal(_))
    }

    /// The value as an integer, if it is one and fits; of any numeric type.
    #[must_use]
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Self::Int32(n) => Some(n.into()),
            Self::Int64(n) => Some(n),
            // The bounds are exact: 2^63 is the first that does not fit.
            Self::Double(d) if d.fract() == 0.0 && (-TWO_63..TWO_63).contains(&d) => Some(d as i64),
            Self::Decimal(d) => d.to_integer(),
            _ => None,
        }
    }

    /// The nearest double, for numbers.
    #[must_use]
    pub fn as_double(self) -> Option<f64> {
        match self {
            Self::Int32(n) => Some(n.into()),
            Self::Int64(n) => Some(n as f64),
            Self::Double(d) => Some(d),
            Self::Decimal(d) => Some(d.to_double()),
            _ => None,
        }
    }

    /// The value as a condition: false, zero, null and undefined are false.
    #[must_use]
    pub fn is_truthy(self) -> bool {
        match self {
            Self::Bool(b) => b,
            Self::Null | Self::Undefined => false,
            Self::Int32(n) => n != 0,
            Self::Int64(n) => n != 0,
            Self::Double(d) => d != 0.0,
            Self::Decimal(d) => !d.is_zero(),
            _ => true,
        }
    }

    /// Bytes of the value without its type and name.
    pub(crate) fn payload_bytes(self) -> usize {
        match self {
            Self::Undefined | Self::Null | Self::MinKey | Self::MaxKey => 0,
            Self::Bool(_) => 1,
            Self::Int32(_) => 4,
            Self::Double(_) | Self::DateTime(_) | Self::Int64(_) | Self::Timestamp(_) => 8,
            Self::ObjectId(_) => 12,
            Self::Decimal(_) => 16,
            Self::String(text) | Self::Code(text) | Self::Symbol(text) => text.len() + 5,
            Self::Document(doc) | Self::Array(doc) => doc.0.len(),
            Self::Binary(_, bytes) => bytes.len() + 5,
            Self::Regex(pattern, options) => pattern.len() + options.len() + 2,
            Self::DbPointer(name, _) => name.len() + 17,
            Self::CodeWithScope(code, scope) => code.len() + scope.0.len() + 9,
        }
    }

    /// The value without its type and name.
    pub(crate) fn write_payload(self, out: &mut Vec<u8>) {
        let text = |text: &str, out: &mut Vec<u8>| {
            out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        };
        match self {
            Self::Double(d) => out.extend_from_slice(&d.to_le_bytes()),
            Self::String(s) | Self::Code(s) | Self::Symbol(s) => text(s, out),
            Self::Document(doc) | Self::Array(doc) => out.extend_from_slice(doc.0),
            Self::Binary(subtype, bytes) => {
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.push(subtype);
                out.extend_from_slice(bytes);
            }
            Self::Undefined | Self::Null | Self::MinKey | Self::MaxKey => {}
            Self::ObjectId(id) => out.extend_from_slice(&id),
            Self::Bool(b) => out.push(u8::from(b)),
            Self::DateTime(n) | Self::Int64(n) => out.extend_from_slice(&n.to_le_bytes()),
            Self::Regex(pattern, options) => {
                out.extend_from_slice(pattern.as_bytes());
                out.push(0);
                out.extend_from_slice(options.as_bytes());
                out.push(0);
            }
            Self::DbPointer(name, id) => {
                text(name, out);
                out.extend_from_slice(&id);
            }
            Self::CodeWithScope(code, scope) => {
                out.extend_from_slice(&((4 + 4 + code.len() + 1 + scope.0.len()) as u32).to_le_bytes());
                text(code, out);
                out.extend_from_slice(scope.0);
            }
            Self::Int32(n) => out.extend_from_slice(&n.to_le_bytes()),
            Self::Timestamp(n) => out.extend_from_slice(&n.to_le_bytes()),
            Self::Decimal(d) => out.extend_from_slice(&d.to_bytes()),
        }
    }
}

/// 2^63
pub(crate) const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// The name that `$type` gives a type's byte.
pub(crate) fn type_name(tag: u8) -> &'static str {
    TYPE_NAMES.iter().find(|(number, _)| *number == tag).map_or("unknown", |(_, name)| name)
}

pub(crate) const TYPE_NAMES: [(u8, &str); 21] = [
    (tag::DOUBLE, "double"),
    (tag::STRING, "string"),
    (tag::DOCUMENT, "object"),
    (tag::ARRAY, "array"),
    (tag::BINARY, "binData"),
    (tag::UNDEFINED, "undefined"),
    (tag::OBJECT_ID, "objectId"),
    (tag::BOOL, "bool"),
    (tag::DATE, "date"),
    (tag::NULL, "null"),
    (tag::REGEX, "regex"),
    (tag::DB_POINTER, "dbPointer"),
    (tag::CODE, "javascript"),
    (tag::SYMBOL, "symbol"),
    (tag::CODE_WITH_SCOPE, "javascriptWithScope"),
    (tag::INT32, "int"),
    (tag::TIMESTAMP, "timestamp"),
    (tag::INT64, "long"),
    (tag::DECIMAL, "decimal"),
    (tag::MIN_KEY, "minKey"),
    (tag::MAX_KEY, "maxKey"),
];

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As MongoDB's shell displays it, in short: `{ a: 1, b: [ "x" ] }`.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Double(d) if d.fract() == 0.0 && d.abs() < 1e15 => write!(f, "{d:.1}"),
            Self::Double(d) => write!(f, "{d}"),
            Self::String(s) => write!(f, "{s:?}"),
            Self::Document(doc) => {
                f.write_str("{")?;
                for (at, (name, value)) in doc.iter().enumerate() {
                    write!(f, "{} {name}: {value}", if at == 0 { "" } else { "," })?;
                }
                f.write_str(if doc.is_empty() { "}" } else { " }" })
            }
            Self::Array(array) => {
                f.write_str("[")?;
                for (at, value) in array.values().enumerate() {
                    write!(f, "{} {value}", if at == 0 { "" } else { "," })?;
                }
                f.write_str(if array.is_empty() { "]" } else { " ]" })
            }
            Self::Binary(subtype, bytes) => write!(f, "BinData({subtype}, {})", hex(bytes)),
            Self::Undefined => f.write_str("undefined"),
            Self::ObjectId(id) => write!(f, "ObjectId('{}')", hex(&id)),
            Self::Bool(b) => write!(f, "{b}"),
            Self::DateTime(ms) => write!(f, "new Date({ms})"),
            Self::Null => f.write_str("null"),
            Self::Regex(pattern, options) => write!(f, "/{pattern}/{options}"),
            Self::DbPointer(name, id) => write!(f, "DBPointer({name:?}, {})", hex(&id)),
            Self::Code(code) => write!(f, "Code({code:?})"),
            Self::Symbol(text) => write!(f, "Symbol({text:?})"),
            Self::CodeWithScope(code, scope) => write!(f, "Code({code:?}, {scope})"),
            Self::Int32(n) => write!(f, "{n}"),
            Self::Timestamp(n) => write!(f, "Timestamp({}, {})", n >> 32, n & 0xFFFF_FFFF),
            Self::Int64(n) => write!(f, "NumberLong({n})"),
            Self::Decimal(d) => write!(f, "NumberDecimal({d})"),
            Self::MinKey => f.write_str("MinKey"),
            Self::MaxKey => f.write_str("MaxKey"),
        }
    }
}

/// Longest text that is stored without an allocation; it does not make the value larger.
const SHORT_BYTES: usize = 24;

/// A value that owns its bytes.
#[derive(Clone)]
pub struct Owned(Inner);

#[derive(Clone)]
enum Inner {
    /// Values that hold no slice.
    Plain(Value<'static>),
    /// A short text, such as most text ids, and its length.
    Short(u8, [u8; SHORT_BYTES]),
    /// Type and payload.
    Encoded(u8, Vec<u8>),
}

impl Owned {
    /// Null.
    pub const NULL: Self = Self(Inner::Plain(Value::Null));

    /// The value as a borrowed `Value`.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        match &self.0 {
            Inner::Plain(value) => *value,
            Inner::Short(len, bytes) => {
                let text = bytes.get(..usize::from(*len)).and_then(|bytes| std::str::from_utf8(bytes).ok());
                Value::String(text.unwrap_or_default())
            }
            Inner::Encoded(tag, payload) => Value::decode(*tag, payload).unwrap_or(Value::Null),
        }
    }

    /// A document.
    #[must_use]
    pub fn document(doc: DocBuf) -> Self {
        Self(Inner::Encoded(tag::DOCUMENT, doc.0))
    }

    /// An array of those values.
    pub fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> Self {
        let mut writer = Writer::array();
        for value in values {
            writer.put("", value);
        }
        writer.into_owned()
    }

    /// Takes the bytes of a document or array.
    pub(crate) fn encoded(tag: u8, bytes: Vec<u8>) -> Self {
        Self(Inner::Encoded(tag, bytes))
    }

    /// Approximate bytes as a field or element.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let encoded = if let Inner::Encoded(_, bytes) = &self.0 { bytes.len() } else { 0 };
        ELEMENT_BYTES + encoded
    }

    /// Approximate memory of the value.
    pub(crate) fn bytes(&self) -> usize {
        let encoded = if let Inner::Encoded(_, bytes) = &self.0 { bytes.capacity() } else { 0 };
        size_of::<Self>() + encoded
    }
}

impl From<Value<'_>> for Owned {
    fn from(value: Value<'_>) -> Self {
        let plain = match value {
            Value::Double(d) => Value::Double(d),
            Value::Undefined => Value::Undefined,
            Value::ObjectId(id) => Value::ObjectId(id),
            Value::Bool(b) => Value::Bool(b),
            Value::DateTime(ms) => Value::DateTime(ms),
            Value::Null => Value::Null,
            Value::Int32(n) => Value::Int32(n),
            Value::Timestamp(n) => Value::Timestamp(n),
            Value::Int64(n) => Value::Int64(n),
            Value::Decimal(d) => Value::Decimal(d),
            Value::MinKey => Value::MinKey,
            Value::MaxKey => Value::MaxKey,
            Value::String(text) if text.len() <= SHORT_BYTES => {
                let mut bytes = [0; SHORT_BYTES];
                bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
                return Self(Inner::Short(text.len() as u8, bytes));
            }
            other => {
                let bytes = match other {
                    Value::String(text) => text.len() + 5,
                    Value::Binary(_, bytes) => bytes.len() + 5,
                    Value::Document(doc) | Value::Array(doc) => doc.0.len(),
                    _ => 0,
                };
                let mut payload = Vec::with_capacity(bytes);
                other.write_payload(&mut payload);
                return Self(Inner::Encoded(other.tag(), payload));
            }
        };
        Self(Inner::Plain(plain))
    }
}

/// Equality of value and type, byte for byte. See [`order::equal`] for the other equality.
impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |owned: &Self| {
            let mut out = vec![owned.value().tag()];
            owned.value().write_payload(&mut out);
            out
        };
        bytes(self) == bytes(other)
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}
