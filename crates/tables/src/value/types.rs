//! The types of columns.

use ropewalk_base::{DecodeError, Decoder, put_u32};

/// Most digits of a [`crate::value::numeric::Numeric`].
pub const NUMERIC_DIGITS_MAX: u8 = 38;

/// Bound of a `numeric(precision, scale)` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NumericLimits {
    /// Digits in all, 1 to 38.
    pub precision: u8,
    /// Digits after the point, at most `precision`.
    pub scale: u8,
}

/// A type without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// False, true.
    Bool,
    /// 16 bits, signed.
    Int2,
    /// 32 bits, signed.
    Int4,
    /// 64 bits, signed.
    Int8,
    /// IEEE 754, 32 bits.
    Float4,
    /// IEEE 754, 64 bits.
    Float8,
    /// Exact decimal of up to 38 digits; with limits, values are rounded to the scale and bounded by the
    /// precision.
    Numeric(Option<NumericLimits>),
    /// UTF-8, ordered by its bytes.
    Text,
    /// Bytes.
    Bytea,
    /// Days since 1970-01-01. The least and greatest number represent the infinities.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds since 1970-01-01 00:00, no zone. The least and greatest number represent the infinities.
    Timestamp,
    /// Microseconds since 1970-01-01 00:00 UTC. The least and greatest number represent the infinities.
    Timestamptz,
    /// 16 bytes.
    Uuid,
    /// JSON text, checked and stored unchanged. Has no order: it cannot be in a key or an index.
    Json,
    /// JSON as a value: members sorted, each name once. Ordered by the bytes of its text.
    Jsonb,
    /// An interval: [`crate::value::interval::Interval`].
    Interval,
    /// An address with the length of a network prefix: [`crate::value::inet::Inet`].
    Inet,
    /// A network: as [`Scalar::Inet`], with no other bits set.
    Cidr,
    /// A label of the [`crate::schema::enums::EnumType`] of this number, in the order of the type.
    Enum(u32),
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// One value.
    Scalar(Scalar),
    /// A list of values of one type, NULLs allowed.
    Array(Scalar),
}

#[allow(missing_docs)] // the names are self-explanatory
impl Type {
    pub const BOOL: Self = Self::Scalar(Scalar::Bool);
    pub const INT2: Self = Self::Scalar(Scalar::Int2);
    pub const INT4: Self = Self::Scalar(Scalar::Int4);
    pub const INT8: Self = Self::Scalar(Scalar::Int8);
    pub const FLOAT4: Self = Self::Scalar(Scalar::Float4);
    pub const FLOAT8: Self = Self::Scalar(Scalar::Float8);
    pub const NUMERIC: Self = Self::Scalar(Scalar::Numeric(None));
    pub const TEXT: Self = Self::Scalar(Scalar::Text);
    pub const BYTEA: Self = Self::Scalar(Scalar::Bytea);
    pub const DATE: Self = Self::Scalar(Scalar::Date);
    pub const TIME: Self = Self::Scalar(Scalar::Time);
    pub const TIMESTAMP: Self = Self::Scalar(Scalar::Timestamp);
    pub const TIMESTAMPTZ: Self = Self::Scalar(Scalar::Timestamptz);
    pub const UUID: Self = Self::Scalar(Scalar::Uuid);
    pub const JSON: Self = Self::Scalar(Scalar::Json);
    pub const JSONB: Self = Self::Scalar(Scalar::Jsonb);
    pub const INTERVAL: Self = Self::Scalar(Scalar::Interval);
    pub const INET: Self = Self::Scalar(Scalar::Inet);
    pub const CIDR: Self = Self::Scalar(Scalar::Cidr);
}

impl Type {
    /// `numeric(precision, scale)`.
    pub const fn numeric(precision: u8, scale: u8) -> Self {
        Self::Scalar(Scalar::Numeric(Some(NumericLimits { precision, scale })))
    }

    /// The array of this scalar; an array is returned unchanged, as in PostgreSQL.
    pub const fn array(self) -> Self {
        match self {
            Self::Scalar(scalar) | Self::Array(scalar) => Self::Array(scalar),
        }
    }

    /// True when values have an order, so that the type may be part of a key.
    pub fn is_ordered(self) -> bool {
        let (Self::Scalar(scalar) | Self::Array(scalar)) = self;
        scalar != Scalar::Json
    }

    /// The number of the enum type, or of that of the elements.
    pub fn enum_number(self) -> Option<u32> {
        match self {
            Self::Scalar(Scalar::Enum(number)) | Self::Array(Scalar::Enum(number)) => Some(number),
            _ => None,
        }
    }

    /// Bytes of a value in a row, when all values have the same number.
    pub(crate) fn width(self) -> Option<usize> {
        match self {
            Self::Scalar(scalar) => scalar.width(),
            Self::Array(_) => None,
        }
    }

    /// True when the key holds the exact value, so that the row need not repeat it.
    pub(crate) fn is_exact_in_keys(self) -> bool {
        // Floats lose the sign of zero in a key, numerics their trailing zeros, intervals their parts, and
        // strings are escaped.
        self.width().is_some() && !matches!(self, Self::FLOAT4 | Self::FLOAT8 | Self::INTERVAL)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let (array, scalar) = match self {
            Self::Scalar(scalar) => (0, scalar),
            Self::Array(scalar) => (0x80, scalar),
        };
        out.push(scalar.number() | array);
        if let Scalar::Numeric(limits) = scalar {
            let limits = limits.map_or([0, 0], |l| [l.precision, l.scale]);
            out.extend_from_slice(&limits);
        }
        if let Scalar::Enum(number) = scalar {
            put_u32(out, number);
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let number = decoder.u8("type")?;
        let mut scalar = SCALARS
            .into_iter()
            .find(|s| s.number() == number & 0x7f)
            .ok_or(DecodeError { what: "known type", offset })?;
        if let Scalar::Numeric(limits) = &mut scalar {
            let [precision, scale] = decoder.array("precision and scale")?;
            *limits = (precision > 0).then_some(NumericLimits { precision, scale });
        }
        if let Scalar::Enum(number) = &mut scalar {
            *number = decoder.u32("number of a type")?;
        }
        Ok(if number & 0x80 == 0 { Self::Scalar(scalar) } else { Self::Array(scalar) })
    }
}

pub(crate) const SCALARS: [Scalar; 20] = [
    Scalar::Bool,
    Scalar::Int2,
    Scalar::Int4,
    Scalar::Int8,
    Scalar::Float4,
    Scalar::Float8,
    Scalar::Numeric(None),
    Scalar::Text,
    Scalar::Bytea,
    Scalar::Date,
    Scalar::Time,
    Scalar::Timestamp,
    Scalar::Timestamptz,
    Scalar::Uuid,
    Scalar::Json,
    Scalar::Jsonb,
    Scalar::Interval,
    Scalar::Enum(0),
    Scalar::Inet,
    Scalar::Cidr,
];

impl Scalar {
    /// Part of the format.
    fn number(self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::Int2 => 2,
            Self::Int4 => 3,
            Self::Int8 => 4,
            Self::Float4 => 5,
            Self::Float8 => 6,
            Self::Numeric(_) => 7,
            Self::Text => 8,
            Self::Bytea => 9,
            Self::Date => 10,
            Self::Time => 11,
            Self::Timestamp => 12,
            Self::Timestamptz => 13,
            Self::Uuid => 14,
            Self::Json => 15,
            Self::Jsonb => 16,
            Self::Interval => 17,
            Self::Enum(_) => 18,
            Self::Inet => 19,
            Self::Cidr => 20,
        }
    }

    pub(crate) fn width(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Int2 => Some(2),
            Self::Int4 | Self::Float4 | Self::Date => Some(4),
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::Timestamptz => Some(8),
            Self::Uuid | Self::Interval => Some(16),
            Self::Numeric(_)
            | Self::Text
            | Self::Bytea
            | Self::Json
            | Self::Jsonb
            | Self::Enum(_)
            | Self::Inet
            | Self::Cidr => None,
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Bool => "bool",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Int8 => "int8",
            Self::Float4 => "float4",
            Self::Float8 => "float8",
            Self::Numeric(Some(l)) => return write!(f, "numeric({},{})", l.precision, l.scale),
            Self::Numeric(None) => "numeric",
            Self::Text => "text",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
            Self::Uuid => "uuid",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Interval => "interval",
            Self::Enum(_) => "enum",
            Self::Inet => "inet",
            Self::Cidr => "cidr",
        };
        f.write_str(name)
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scalar(scalar) => scalar.fmt(f),
            Self::Array(scalar) => write!(f, "{scalar}[]"),
        }
    }
}
