//! Values of columns. Text, bytes, JSON and arrays are borrowed when read.

pub(crate) mod enum_value;
pub(crate) mod expr;
pub(crate) mod inet;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod jsonb;
pub(crate) mod key;
pub(crate) mod numeric;
pub(crate) mod precision;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod types;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use ropewalk_base::{DecodeError, Decoder, hex, put_bytes, put_varint};

use crate::value::enum_value::EnumValue;
use crate::value::inet::Inet;
use crate::value::interval::Interval;
use crate::value::json::json_error;
use crate::value::jsonb::Jsonb;
use crate::value::numeric::Numeric;
use crate::value::types::{Scalar, Type};

/// One value of a column. `PartialEq` is equality of representation; order and equality of SQL are
/// [`Value::compare`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// No value, of any type.
    Null,
    /// False, true.
    Bool(bool),
    /// 16 bits.
    Int2(i16),
    /// 32 bits.
    Int4(i32),
    /// 64 bits.
    Int8(i64),
    /// 32 bits.
    Float4(f32),
    /// 64 bits.
    Float8(f64),
    /// Exact decimal.
    Numeric(Numeric),
    /// UTF-8.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytea(Cow<'a, [u8]>),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since midnight, 0 to 86 400 000 000.
    Time(i64),
    /// Microseconds since 1970, no zone.
    Timestamp(i64),
    /// Microseconds since 1970 UTC.
    Timestamptz(i64),
    /// 16 bytes.
    Uuid([u8; 16]),
    /// JSON text.
    Json(Cow<'a, str>),
    /// JSON as a value, in canonical text: [`crate::value::jsonb::Jsonb`].
    Jsonb(Cow<'a, str>),
    /// An interval.
    Interval(Interval),
    /// An address with the length of a network prefix.
    Inet(Inet),
    /// A network.
    Cidr(Inet),
    /// A label of an enum type.
    Enum(EnumValue<'a>),
    /// A list.
    Array(Array<'a>),
}

/// The reason why a value does not fit a column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It has another type.
    #[error("is of type {found}, not {expected}")]
    Type {
        /// The column's type.
        expected: Type,
        /// The value's type.
        found: Type,
    },
    /// Too great, too small or too precise.
    #[error("{value} is out of range of {expected}")]
    Range {
        /// The column's type.
        expected: Type,
        /// The value, as text.
        value: String,
    },
    /// A text that is not a label of an enum type.
    #[error("invalid input value for enum {name}: \"{label}\"")]
    Label {
        /// The type.
        name: String,
        /// The text.
        label: String,
    },
    /// A text that is not JSON.
    #[error("is not JSON at byte {offset}")]
    Json {
        /// Position of the error.
        offset: usize,
    },
}

/// Microseconds of a day; `Time` may reach it (24:00).
const DAY_MICROS: i64 = 86_400_000_000;

impl<'a> Value<'a> {
    /// A text.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// Bytes.
    pub fn bytea(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::Bytea(bytes.into())
    }

    /// A JSON text; checked when it is written.
    pub fn json(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Json(text.into())
    }

    /// The value's type; `None` for NULL.
    pub fn value_type(&self) -> Option<Type> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => Type::BOOL,
            Self::Int2(_) => Type::INT2,
            Self::Int4(_) => Type::INT4,
            Self::Int8(_) => Type::INT8,
            Self::Float4(_) => Type::FLOAT4,
            Self::Float8(_) => Type::FLOAT8,
            Self::Numeric(_) => Type::NUMERIC,
            Self::Text(_) => Type::TEXT,
            Self::Bytea(_) => Type::BYTEA,
            Self::Date(_) => Type::DATE,
            Self::Time(_) => Type::TIME,
            Self::Timestamp(_) => Type::TIMESTAMP,
            Self::Timestamptz(_) => Type::TIMESTAMPTZ,
            Self::Uuid(_) => Type::UUID,
            Self::Json(_) => Type::JSON,
            Self::Jsonb(_) => Type::JSONB,
            Self::Interval(_) => Type::INTERVAL,
            Self::Inet(_) => Type::INET,
            Self::Cidr(_) => Type::CIDR,
            Self::Enum(v) => Type::Scalar(Scalar::Enum(v.number)),
            Self::Array(array) => Type::Array(array.element),
        })
    }

    /// True for NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Text(text) => Value::Text(text.into_owned().into()),
            Self::Bytea(bytes) => Value::Bytea(bytes.into_owned().into()),
            Self::Json(text) => Value::Json(text.into_owned().into()),
            Self::Jsonb(text) => Value::Jsonb(text.into_owned().into()),
            Self::Array(array) => Value::Array(array.into_owned()),
            Self::Enum(v) => Value::Enum(v.into_owned()),
            Self::Null => Value::Null,
            Self::Bool(v) => Value::Bool(v),
            Self::Int2(v) => Value::Int2(v),
            Self::Int4(v) => Value::Int4(v),
            Self::Int8(v) => Value::Int8(v),
            Self::Float4(v) => Value::Float4(v),
            Self::Float8(v) => Value::Float8(v),
            Self::Numeric(v) => Value::Numeric(v),
            Self::Date(v) => Value::Date(v),
            Self::Time(v) => Value::Time(v),
            Self::Timestamp(v) => Value::Timestamp(v),
            Self::Timestamptz(v) => Value::Timestamptz(v),
            Self::Uuid(v) => Value::Uuid(v),
            Self::Interval(v) => Value::Interval(v),
            Self::Inet(v) => Value::Inet(v),
            Self::Cidr(v) => Value::Cidr(v),
        }
    }

    /// The same value, borrowed.
    pub fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(Cow::Borrowed(text)),
            Self::Bytea(bytes) => Value::Bytea(Cow::Borrowed(bytes)),
            Self::Json(text) => Value::Json(Cow::Borrowed(text)),
            Self::Jsonb(text) => Value::Jsonb(Cow::Borrowed(text)),
            Self::Enum(v) => Value::Enum(v.borrowed()),
            Self::Array(array) => {
                Value::Array(Array { element: array.element, bytes: Cow::Borrowed(&array.bytes) })
            }
            plain => plain.clone(),
        }
    }

    /// An integer of any width.
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Int2(v) => Some(v.into()),
            Self::Int4(v) => Some(v.into()),
            Self::Int8(v) => Some(v),
            _ => None,
        }
    }

    pub(crate) fn to_numeric(&self) -> Option<Numeric> {
        match self {
            Self::Numeric(v) => Some(*v),
            other => other.as_integer().map(Numeric::from),
        }
    }

    pub(crate) fn to_float(&self) -> Option<f64> {
        match self {
            Self::Float4(v) => Some((*v).into()),
            Self::Float8(v) => Some(*v),
            Self::Numeric(v) => Some(v.to_f64()),
            other => other.as_integer().map(|v| v as f64),
        }
    }

    /// The order of SQL: numbers of all types compare by value, NaN is greatest and equal to itself, -0
    /// equals 0, arrays compare by elements and then by length. `None` when one is NULL or the types do not
    /// compare.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) | (Self::Jsonb(a), Self::Jsonb(b)) => a.cmp(b),
            (Self::Bytea(a), Self::Bytea(b)) => a.cmp(b),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Time(a), Self::Time(b))
            | (Self::Timestamp(a), Self::Timestamp(b))
            | (Self::Timestamptz(a), Self::Timestamptz(b)) => a.cmp(b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (Self::Interval(a), Self::Interval(b)) => a.compare(*b),
            (Self::Inet(a) | Self::Cidr(a), Self::Inet(b) | Self::Cidr(b)) => a.compare(*b),
            (Self::Enum(a), Self::Enum(b)) if a.number == b.number => a.order.cmp(&b.order),
            (Self::Array(a), Self::Array(b)) => return a.compare(b),
            (Self::Float4(_) | Self::Float8(_), _) | (_, Self::Float4(_) | Self::Float8(_)) => {
                compare_floats(self.to_float()?, other.to_float()?)
            }
            _ => match (self.as_integer(), other.as_integer()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => self.to_numeric()?.cmp(&other.to_numeric()?),
            },
        })
    }

    /// Converts the value for a column of type `target`. Numbers are widened, and narrowed where they fit; a
    /// numeric is rounded to the column's scale; a text becomes JSON if it is JSON.
    ///
    /// # Errors
    /// It does not fit.
    pub fn assign(self, target: Type) -> Result<Self, ValueError> {
        let range = |value: &Self| ValueError::Range { expected: target, value: value.to_string() };
        let Some(found) = self.value_type() else { return Ok(self) };
        let scalar = match (target, self) {
            (Type::Array(element), Self::Array(array)) => {
                if array.element == element {
                    return Ok(Self::Array(array));
                }
                let items: Result<Vec<_>, _> = array
                    .iter()
                    .map(|item| item.map_err(|_| ValueError::Type { expected: target, found }))
                    .map(|item| item?.assign(Type::Scalar(element)).map(Value::into_owned))
                    .collect();
                return Ok(Self::Array(Array::from_assigned(element, &items?)));
            }
            (Type::Scalar(scalar), value) => (scalar, value),
            (Type::Array(_), _) => return Err(ValueError::Type { expected: target, found }),
        };
        Ok(match scalar {
            (Scalar::Int2 | Scalar::Int4 | Scalar::Int8, value) if value.as_integer().is_some() => {
                let wide = value.as_integer().expect("the value was just found to be an integer");
                match target {
                    Type::INT2 => Self::Int2(wide.try_into().map_err(|_| range(&value))?),
                    Type::INT4 => Self::Int4(wide.try_into().map_err(|_| range(&value))?),
                    _ => Self::Int8(wide),
                }
            }
            (Scalar::Float8, value) => match value.to_float() {
                Some(wide) => Self::Float8(wide),
                None => return Err(ValueError::Type { expected: target, found }),
            },
            (Scalar::Float4, value) => match value.to_float() {
                Some(wide) if wide.is_finite() && !(wide as f32).is_finite() => return Err(range(&value)),
                Some(wide) => Self::Float4(wide as f32),
                None => return Err(ValueError::Type { expected: target, found }),
            },
            (Scalar::Numeric(limits), value) => {
                let Some(number) = value.to_numeric() else {
                    return Err(ValueError::Type { expected: target, found });
                };
                Self::Numeric(match limits {
                    Some(limits) => number
                        .rescale(limits.scale)
                        .filter(|n| n.integer_digits() <= limits.precision - limits.scale)
                        .ok_or_else(|| range(&value))?,
                    None => number,
                })
            }
            (Scalar::Jsonb, Self::Text(text) | Self::Json(text) | Self::Jsonb(text)) => {
                match Jsonb::parse(&text) {
                    Ok(tree) => Self::Jsonb(tree.to_string().into()),
                    Err(offset) => return Err(ValueError::Json { offset }),
                }
            }
            (Scalar::Json, Self::Jsonb(text)) => Self::Json(text),
            (Scalar::Json, Self::Text(text) | Self::Json(text)) => match json_error(&text) {
                None => Self::Json(text),
                Some(offset) => return Err(ValueError::Json { offset }),
            },
            (Scalar::Time, Self::Time(micros)) if !(0..=DAY_MICROS).contains(&micros) => {
                return Err(range(&Self::Time(micros)));
            }
            // A network is an address.
            (Scalar::Inet, Self::Cidr(network)) => Self::Inet(network),
            (_, value) if found == target => value,
            _ => return Err(ValueError::Type { expected: target, found }),
        })
    }

    /// Appends the value without its type: fixed widths little-endian, everything else as its bytes.
    pub fn put_row(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => {}
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::Int2(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Int4(v) | Self::Date(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Int8(v) | Self::Time(v) | Self::Timestamp(v) | Self::Timestamptz(v) => {
                out.extend_from_slice(&v.to_le_bytes());
            }
            Self::Float4(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Float8(v) => out.extend_from_slice(&v.to_le_bytes()),
            Self::Numeric(v) => v.put_row(out),
            Self::Text(v) | Self::Json(v) | Self::Jsonb(v) => out.extend_from_slice(v.as_bytes()),
            Self::Bytea(v) => out.extend_from_slice(v),
            Self::Uuid(v) => out.extend_from_slice(v),
            Self::Interval(v) => v.put_row(out),
            Self::Inet(v) | Self::Cidr(v) => v.put_row(out),
            Self::Enum(v) => v.put_row(out),
            Self::Array(v) => out.extend_from_slice(&v.bytes),
        }
    }

    /// As [`Value::put_row`], without the labels of enums: reading takes them from the type.
    pub(crate) fn put_stored(&self, out: &mut Vec<u8>) {
        match self {
            Self::Enum(v) => EnumValue { number: v.number, order: v.order, label: "".into() }.put_row(out),
            Self::Array(v) if matches!(v.element, Scalar::Enum(_)) => {
                out.extend_from_slice(&v.without_labels().bytes);
            }
            other => other.put_row(out),
        }
    }

    /// Appends bytes that sort as [`Value::compare`] does for values of one type; equal values have equal
    /// bytes. NULL and JSON, which have no order, append nothing.
    pub fn put_key(&self, out: &mut Vec<u8>) {
        crate::value::key::put_value(out, self);
    }

    /// Decodes the output of [`Value::put_row`] for a value of type `ty`; `None` for invalid bytes.
    #[inline]
    pub fn from_row(ty: Type, bytes: &'a [u8]) -> Option<Self> {
        let scalar = match ty {
            Type::Scalar(scalar) => scalar,
            Type::Array(element) => return Some(Self::Array(Array { element, bytes: Cow::Borrowed(bytes) })),
        };
        let text = || std::str::from_utf8(bytes).ok().map(Cow::Borrowed);
        Some(match scalar {
            Scalar::Bool => match bytes {
                [0] => Self::Bool(false),
                [1] => Self::Bool(true),
                _ => return None,
            },
            Scalar::Int2 => Self::Int2(i16::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Int4 => Self::Int4(i32::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Int8 => Self::Int8(i64::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Float4 => Self::Float4(f32::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Float8 => Self::Float8(f64::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Numeric(_) => Self::Numeric(Numeric::from_row(bytes)?),
            Scalar::Text => Self::Text(text()?),
            Scalar::Bytea => Self::Bytea(Cow::Borrowed(bytes)),
            Scalar::Date => Self::Date(i32::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Time => Self::Time(i64::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Timestamp => Self::Timestamp(i64::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Timestamptz => Self::Timestamptz(i64::from_le_bytes(bytes.try_into().ok()?)),
            Scalar::Uuid => Self::Uuid(bytes.try_into().ok()?),
            Scalar::Json => Self::Json(text()?),
            Scalar::Jsonb => Self::Jsonb(text()?),
            Scalar::Interval => Self::Interval(Interval::from_row(bytes)?),
            Scalar::Inet => Self::Inet(Inet::from_row(bytes)?),
            Scalar::Cidr => Self::Cidr(Inet::from_row(bytes)?),
            Scalar::Enum(number) => Self::Enum(EnumValue::from_row(number, bytes)?),
        })
    }

    /// Appends type and value, so that [`Value::decode`] needs no schema. For the catalog.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self.value_type() {
            None => out.push(0),
            Some(ty) => {
                ty.encode(out);
                let mut bytes = Vec::new();
                self.put_row(&mut bytes);
                put_bytes(out, &bytes);
            }
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        if decoder.rest().first() == Some(&0) {
            decoder.u8("null")?;
            return Ok(Self::Null);
        }
        let ty = Type::decode(decoder)?;
        let offset = decoder.offset();
        let bytes = decoder.bytes("value")?;
        Self::from_row(ty, bytes).ok_or(DecodeError { what: "value of its type", offset })
    }
}

/// The order of floats in SQL: NaN equals itself and is greatest, -0 equals 0.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// A list of values of one scalar type, stored as the bytes of a row: count varint, then per element 0 (NULL)
/// or 1, and for 1 the value; values of varying width carry a varint length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array<'a> {
    element: Scalar,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Array<'a> {
    /// An array of `element` values.
    ///
    /// # Errors
    /// A value does not fit the element type.
    pub fn new<'v>(
        element: Scalar,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<Array<'static>, ValueError> {
        let values: Result<Vec<_>, _> =
            values.into_iter().map(|value| value.assign(Type::Scalar(element))).collect();
        Ok(Array::from_assigned(element, &values?))
    }

    fn from_assigned(element: Scalar, values: &[Value<'_>]) -> Array<'static> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, values.len() as u64);
        let mut one = Vec::new();
        for value in values {
            bytes.push(u8::from(!value.is_null()));
            if value.is_null() {
                continue;
            }
            if element.width().is_some() {
                value.put_row(&mut bytes);
            } else {
                one.clear();
                value.put_row(&mut one);
                put_bytes(&mut bytes, &one);
            }
        }
        Array { element, bytes: bytes.into() }
    }

    fn without_labels(&self) -> Array<'static> {
        let bare = |item: Value<'_>| match item {
            Value::Enum(v) => Value::Enum(EnumValue { number: v.number, order: v.order, label: "".into() }),
            other => other.into_owned(),
        };
        let items: Vec<Value<'static>> = self.iter().map_while(Result::ok).map(bare).collect();
        Array::from_assigned(self.element, &items)
    }

    /// The type of its elements.
    pub fn element(&self) -> Scalar {
        self.element
    }

    /// The elements, read in place. Ends after the first error.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'_>, DecodeError>> {
        let mut decoder = Decoder::new(&self.bytes);
        let element = self.element;
        let mut left = decoder.varint("count of an array");
        std::iter::from_fn(move || {
            let count = match &mut left {
                Ok(count) => count,
                Err(error) => {
                    let error = error.clone();
                    left = Ok(0);
                    return Some(Err(error));
                }
            };
            *count = count.checked_sub(1)?;
            let item = take_element(element, &mut decoder);
            if item.is_err() {
                left = Ok(0);
            }
            Some(item)
        })
    }

    /// Number of bytes that it takes in a row.
    pub fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// True when it has none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn into_owned(self) -> Array<'static> {
        Array { element: self.element, bytes: self.bytes.into_owned().into() }
    }

    fn compare(&self, other: &Array<'_>) -> Option<Ordering> {
        let (mut left, mut right) = (self.iter(), other.iter());
        loop {
            return Some(match (left.next(), right.next()) {
                (None, None) => Ordering::Equal,
                (None, Some(_)) => Ordering::Less,
                (Some(_), None) => Ordering::Greater,
                (Some(a), Some(b)) => {
                    let (a, b) = (a.ok()?, b.ok()?);
                    // Inside arrays NULLs are equal and greatest.
                    let order = match (a.is_null(), b.is_null()) {
                        (false, false) => a.compare(&b)?,
                        (a, b) => a.cmp(&b),
                    };
                    if order == Ordering::Equal {
                        continue;
                    }
                    order
                }
            });
        }
    }
}

fn take_element<'a>(element: Scalar, decoder: &mut Decoder<'a>) -> Result<Value<'a>, DecodeError> {
    let offset = decoder.offset();
    if decoder.u8("NULL or value")? == 0 {
        return Ok(Value::Null);
    }
    let bytes = match element.width() {
        Some(width) => decoder.take(width, "element of an array")?,
        None => decoder.bytes("element of an array")?,
    };
    Value::from_row(Type::Scalar(element), bytes).ok_or(DecodeError { what: "element of its type", offset })
}

impl fmt::Display for Value<'_> {
    /// A short form for messages; long text and bytes are truncated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(v) => v.fmt(f),
            Self::Int2(v) => v.fmt(f),
            Self::Int4(v) | Self::Date(v) => v.fmt(f),
            Self::Int8(v) | Self::Time(v) | Self::Timestamp(v) | Self::Timestamptz(v) => v.fmt(f),
            Self::Float4(v) => v.fmt(f),
            Self::Float8(v) => v.fmt(f),
            Self::Numeric(v) => v.fmt(f),
            Self::Text(v) | Self::Json(v) | Self::Jsonb(v) => {
                let cut: String = v.chars().take(60).collect();
                write!(f, "{cut}{}", if cut.len() < v.len() { "…" } else { "" })
            }
            Self::Bytea(v) => {
                let cut = v.get(..32).unwrap_or(v);
                write!(f, "\\x{}{}", hex(cut), if cut.len() < v.len() { "…" } else { "" })
            }
            Self::Uuid(v) => write!(f, "{}", uuid::Uuid::from_bytes(*v)),
            Self::Interval(v) => v.fmt(f),
            Self::Inet(v) => v.fmt(f),
            Self::Cidr(v) => write!(f, "{}/{}", v.address(), v.bits()),
            Self::Enum(v) => f.write_str(v.label()),
            Self::Array(v) => {
                f.write_str("{")?;
                for (index, item) in v.iter().take(20).enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    match item {
                        Ok(item) => write!(f, "{comma}{item}")?,
                        Err(_) => write!(f, "{comma}?")?,
                    }
                }
                f.write_str("}")
            }
        }
    }
}

macro_rules! from {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Value<'_> {
            fn from(value: $rust) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
from!(bool => Bool, i16 => Int2, i32 => Int4, i64 => Int8, f32 => Float4, f64 => Float8, Numeric => Numeric);

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Self::Text(value.into())
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytea(value.into())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
