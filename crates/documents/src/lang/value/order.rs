//! The order of BSON values, over all types.
//!
//! ```text
//! MinKey < undefined < null < numbers < text < documents < arrays < binary < ObjectId < bool < date < timestamp < regex
//!        < DBPointer < code < code with scope < MaxKey
//! ```
//!
//! Numbers compare by their exact value, whatever their types (`value::number`); symbols are text. Text
//! compares by its bytes; [`super::ordering`] has the order under a collation. Documents compare field by
//! field: class of the value, name, value. [`super::key`] gives bytes in the same order.

use std::cmp::Ordering;

use crate::lang::value::number;
use crate::lang::value::{Doc, Value};

/// The class of a value, the first thing that is compared. The first byte of its key.
#[must_use]
pub(crate) fn class(value: Value<'_>) -> u8 {
    match value {
        Value::MinKey => 0x01,
        Value::Undefined => class::UNDEFINED,
        Value::Null => class::NULL,
        Value::Double(_) | Value::Int32(_) | Value::Int64(_) | Value::Decimal(_) => 0x20,
        Value::String(_) | Value::Symbol(_) => 0x28,
        Value::Document(_) => 0x30,
        Value::Array(_) => class::ARRAY,
        Value::Binary(..) => 0x40,
        Value::ObjectId(_) => 0x48,
        Value::Bool(_) => 0x50,
        Value::DateTime(_) => 0x58,
        Value::Timestamp(_) => 0x60,
        Value::Regex(..) => 0x68,
        Value::DbPointer(..) => 0x70,
        Value::Code(_) => 0x78,
        Value::CodeWithScope(..) => 0x80,
        Value::MaxKey => 0xF0,
    }
}

/// Classes that other modules refer to by name.
pub(crate) mod class {
    pub(crate) const UNDEFINED: u8 = 0x10;
    pub(crate) const NULL: u8 = 0x18;
    pub(crate) const ARRAY: u8 = 0x38;
}

/// Compares two values of any types, text by its bytes.
#[must_use]
pub fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    compare_by(a, b, &str::cmp)
}

/// Compares two values of any types, text as `texts` does.
pub(crate) fn compare_by(a: Value<'_>, b: Value<'_>, texts: &impl Fn(&str, &str) -> Ordering) -> Ordering {
    let classes = class(a).cmp(&class(b));
    if classes.is_ne() {
        return classes;
    }
    match (a, b) {
        (Value::String(a) | Value::Symbol(a), Value::String(b) | Value::Symbol(b)) => texts(a, b),
        (Value::Document(a), Value::Document(b)) => documents(a, b, texts),
        (Value::Array(a), Value::Array(b)) => arrays(a, b, texts),
        (Value::Binary(s, a), Value::Binary(t, b)) => (a.len(), s, a).cmp(&(b.len(), t, b)),
        (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(&b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(&b),
        (Value::DateTime(a), Value::DateTime(b)) => a.cmp(&b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(&b),
        (Value::Regex(a, s), Value::Regex(b, t)) => (a, s).cmp(&(b, t)),
        (Value::DbPointer(a, x), Value::DbPointer(b, y)) => (a.len(), a, x).cmp(&(b.len(), b, y)),
        (Value::Code(a), Value::Code(b)) => a.cmp(b),
        (Value::CodeWithScope(a, s), Value::CodeWithScope(b, t)) => {
            a.cmp(b).then_with(|| documents(s, t, texts))
        }
        _ => number::compare(a, b),
    }
}

/// Compares values of which either may be missing: a missing value is between MinKey and null, like
/// undefined.
#[must_use]
pub fn compare_options(a: Option<Value<'_>>, b: Option<Value<'_>>) -> Ordering {
    compare(a.unwrap_or(Value::Undefined), b.unwrap_or(Value::Undefined))
}

/// True for text, and for values that may contain some.
pub(crate) fn holds_text(value: Value<'_>) -> bool {
    matches!(
        value,
        Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_) | Value::CodeWithScope(..)
    )
}

/// Equality of values; the types of numbers do not matter.
#[must_use]
pub fn equal(a: Value<'_>, b: Value<'_>) -> bool {
    compare(a, b).is_eq()
}

fn documents(a: Doc<'_>, b: Doc<'_>, texts: &impl Fn(&str, &str) -> Ordering) -> Ordering {
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some((name, value)), Some((other_name, other))) => {
                let order = class(value)
                    .cmp(&class(other))
                    .then_with(|| name.cmp(other_name))
                    .then_with(|| compare_by(value, other, texts));
                if order.is_ne() {
                    return order;
                }
            }
        }
    }
}

fn arrays(a: Doc<'_>, b: Doc<'_>, texts: &impl Fn(&str, &str) -> Ordering) -> Ordering {
    let (mut a, mut b) = (a.values(), b.values());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => {
                let order = compare_by(a, b, texts);
                if order.is_ne() {
                    return order;
                }
            }
        }
    }
}
