//! Functions over enum types, and the conversion of strings to values.
//!
//! A value contains its label, so only parsing needs the type.

use std::sync::Arc;

use ropewalk::tables::{EnumType, Scalar, Type, Value, ValueError};

use crate::error::{Result, SqlError, state};
use crate::expr::bug;
use crate::types::text_format::from_text_in;
use crate::types::zone::Zone;

fn refused(error: ValueError) -> SqlError {
    let state = match error {
        ValueError::Label { .. } => state::INVALID_TEXT_REPRESENTATION,
        _ => state::DATATYPE_MISMATCH,
    };
    SqlError::new(state, error.to_string())
}

/// Converts strings to values of the type; other values are unchanged.
pub(crate) fn labelled(value: Value<'static>, labels: Option<&EnumType>) -> Result<Value<'static>> {
    match labels {
        None => Ok(value),
        Some(labels) => labels.read(value).map_err(refused),
    }
}

/// Operation of a function over an enum type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Parses a string, or an array of strings.
    Read(Type),
    /// The values between two labels.
    Range,
}

/// A bound call with its enum type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EnumCall {
    pub(crate) labels: Arc<EnumType>,
    pub(crate) asks: Asks,
}

impl EnumCall {
    /// The result type.
    pub(crate) fn result(&self) -> Type {
        match self.asks {
            Asks::Read(ty) => ty,
            Asks::Range => self.labels.column_type().array(),
        }
    }

    pub(crate) fn call(&self, arguments: &[Value<'_>], zone: &Zone) -> Result<Value<'static>> {
        match (self.asks, arguments) {
            (Asks::Read(ty), [Value::Text(text)]) => {
                labelled(from_text_in(text, ty, zone)?, Some(&self.labels))
            }
            (Asks::Read(_), [value]) => labelled(value.borrowed().into_owned(), Some(&self.labels)),
            (Asks::Range, [first, last]) => self.range(first, last),
            _ => Err(bug("a call over an enum type")),
        }
    }

    /// NULL means the first or last label.
    pub(crate) fn range(&self, first: &Value<'_>, last: &Value<'_>) -> Result<Value<'static>> {
        let is_within = |value: &Value<'_>| {
            !value.compare(first).is_some_and(std::cmp::Ordering::is_lt)
                && !value.compare(last).is_some_and(std::cmp::Ordering::is_gt)
        };
        let values = self.labels.values().filter(is_within).map(Value::into_owned);
        let array = ropewalk::tables::Array::new(Scalar::Enum(self.labels.number()), values);
        array.map(Value::Array).map_err(|error| bug(&error.to_string()))
    }
}
