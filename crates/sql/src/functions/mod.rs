//! SQL functions, one file for each family.
//!
//! `resolve` finds the function with a name and argument types, `evaluate` calls it. All but a few return
//! NULL when one argument is NULL.

pub(crate) mod aggregate;
pub(crate) mod array;
pub(crate) mod bytes;
pub(crate) mod date_part;
pub(crate) mod datetime_template;
pub(crate) mod evaluate;
pub(crate) mod format;
pub(crate) mod inet;
pub(crate) mod json;
pub(crate) mod jsonb;
pub(crate) mod number;
pub(crate) mod number_template;
pub(crate) mod parse_template;
pub(crate) mod regex;
mod resolve;
pub(crate) mod set_returning;
pub(crate) mod statistics;
pub(crate) mod text;
pub(crate) mod time;

use crate::expr::function::Function;
use ropewalk::tables::{Scalar, Type, Value};

pub(crate) use date_part::zone_named;
pub(crate) use resolve::resolve;

/// A function with the types that its arguments are cast to, and its result type.
pub(crate) struct Resolved {
    pub(crate) function: Function,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// The element type of an array of `ty`; `None` for arrays of arrays.
pub(crate) fn element_of(ty: Type) -> Option<Scalar> {
    match ty {
        Type::Scalar(scalar) => Some(scalar),
        Type::Array(_) => None,
    }
}

/// The text of a text or a JSON document; empty for other values.
pub(crate) fn text_of<'v>(value: Option<&'v Value<'_>>) -> &'v str {
    match value {
        Some(Value::Text(text) | Value::Json(text) | Value::Jsonb(text)) => text,
        _ => "",
    }
}

/// The number of an integer; zero for other values.
pub(crate) fn integer_of(value: Option<&Value<'_>>) -> i64 {
    value.and_then(Value::as_integer).unwrap_or_default()
}

/// A number of characters, bytes or elements, or a position among them.
pub(crate) fn int4(number: usize) -> Value<'static> {
    Value::Int4(i32::try_from(number).unwrap_or(i32::MAX))
}
