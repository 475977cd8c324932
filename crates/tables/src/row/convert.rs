//! Values as Rust types: accessors of a value, and typed reads of columns.

use std::borrow::Cow;

use uuid::Uuid;

use crate::error::{Result, TablesError};
use crate::row::{OwnedRow, Row};
use crate::value::Value;
use crate::value::interval::Interval;
use crate::value::numeric::Numeric;

impl Value<'_> {
    /// A bool.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(v) => Some(*v),
            _ => None,
        }
    }

    /// An integer, float or numeric as the nearest `f64`.
    pub fn as_f64(&self) -> Option<f64> {
        self.to_float()
    }

    /// A numeric, or an integer as one.
    pub fn as_numeric(&self) -> Option<Numeric> {
        self.to_numeric()
    }

    /// A text, the text of JSON, or the label of an enum.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Json(text) | Self::Jsonb(text) => Some(text),
            Self::Enum(value) => Some(value.label()),
            _ => None,
        }
    }

    /// The bytes of a bytea.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytea(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A UUID.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(bytes) => Some(Uuid::from_bytes(*bytes)),
            _ => None,
        }
    }
}

/// A Rust type as which [`Row::get_as`] can read a column.
///
/// Integers are read as any integer type that can hold them, floats, integers and numerics as `f64`, texts,
/// JSON and labels of enums as `String`. NULL can only be read as `Option`.
pub trait FromValue<'a>: Sized {
    /// The type's name in errors.
    const NAME: &'static str;

    /// The value as this type; `None` when it has another type or is out of range.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! from_value {
    ($($rust:ty = $name:literal: $read:expr;)+) => {$(
        impl<'a> FromValue<'a> for $rust {
            const NAME: &'static str = $name;

            fn from_value(value: Value<'a>) -> Option<Self> {
                let read: fn(Value<'a>) -> Option<Self> = $read;
                read(value)
            }
        }
    )+};
}

from_value! {
    bool = "bool": |value| value.as_bool();
    i16 = "i16": |value| value.as_integer()?.try_into().ok();
    i32 = "i32": |value| value.as_integer()?.try_into().ok();
    i64 = "i64": |value| value.as_integer();
    u32 = "u32": |value| value.as_integer()?.try_into().ok();
    u64 = "u64": |value| value.as_integer()?.try_into().ok();
    f64 = "f64": |value| value.as_f64();
    Numeric = "Numeric": |value| value.as_numeric();
    Interval = "Interval": |value| if let Value::Interval(v) = value { Some(v) } else { None };
    Uuid = "Uuid": |value| value.as_uuid();
    String = "String": |value| Cow::<str>::from_value(value).map(Cow::into_owned);
    Vec<u8> = "Vec<u8>": |value| Cow::<[u8]>::from_value(value).map(Cow::into_owned);
    Cow<'a, str> = "str": |value| match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => Some(text),
        other => other.as_str().map(|text| Cow::Owned(text.to_owned())),
    };
    Cow<'a, [u8]> = "[u8]": |value| if let Value::Bytea(bytes) = value { Some(bytes) } else { None };
    Value<'a> = "Value": Some;
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    const NAME: &'static str = T::NAME;

    fn from_value(value: Value<'a>) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl<'a> Row<'a> {
    /// The value of the column `name` as a Rust type, `Option` for a column that may be NULL.
    ///
    /// ```
    /// # use ropewalk_tables::{Row, TablesError};
    /// fn left(row: Row<'_>) -> Result<i64, TablesError> {
    ///     let note = row.get_as::<Option<String>>("note")?;
    ///     Ok(if note.is_some() { 0 } else { row.get_as("quantity")? })
    /// }
    /// # let _ = left;
    /// ```
    ///
    /// # Errors
    /// [`TablesError::WrongType`] for NULL, a value of another type, or an integer out of range;
    /// [`TablesError::UnknownColumn`]; damage.
    pub fn get_as<T: FromValue<'a>>(&self, name: &str) -> Result<T> {
        let value = self.column(name)?;
        T::from_value(value.clone()).ok_or_else(|| TablesError::WrongType {
            table: self.schema().name().to_owned(),
            column: name.to_owned(),
            found: match value.value_type() {
                // Only the schema knows the names of its enum types.
                Some(ty) if !matches!(value, Value::Enum(_)) => format!("{value} of type {ty}"),
                Some(_) => format!("{value} of an enum type"),
                None => value.to_string(),
            },
            wanted: T::NAME,
        })
    }
}

impl OwnedRow {
    /// As [`Row::get_as`].
    ///
    /// # Errors
    /// As [`Row::get_as`].
    pub fn get_as<'a, T: FromValue<'a>>(&'a self, name: &str) -> Result<T> {
        self.row().get_as(name)
    }
}
