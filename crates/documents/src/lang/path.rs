//! Dotted paths through documents and arrays.
//!
//! A filter's path means every value it can reach: an array on the way stands for its elements, and a number in the path for
//! that element, too. An array at the end stands for its elements and for itself.
//!
//! ```text
//! a.b in { a: [ { b: 1 }, { b: [2, 3] }, {}, 7 ] }   1, 2, 3, [2, 3], missing          the 7 has no fields and says nothing
//! a.1.b in the same                                  2, 3, [2, 3]: a position that is there is meant as one
//! a.b in { a: [] }                                   nothing at all
//! a.b in { a: 7 }                                    missing
//! ```

use super::value::{Doc, Value};

/// The first name of a path and the rest; an empty rest is the end.
#[must_use]
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.split_once('.').unwrap_or((path, ""))
}

/// A name that is a position in an array: digits without a leading zero.
#[must_use]
pub(crate) fn position(name: &str) -> Option<usize> {
    let plain = name == "0" || !name.starts_with('0');
    if plain && !name.is_empty() && name.len() < 10 && name.bytes().all(|byte| byte.is_ascii_digit()) {
        name.parse().ok()
    } else {
        None
    }
}

/// Whether a path passes through the elements of an array at its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The elements, then the array itself.
    Elements,
    /// The array only: `$size`, `$elemMatch`.
    Whole,
}

/// Calls `found` with every value of the path, `None` where a field is missing, until it says `true`. Returns the position in the
/// outermost array on the way to the value that ended it.
pub(crate) fn any<'a>(
    doc: Doc<'a>,
    path: &str,
    at_end: AtEnd,
    found: &mut dyn FnMut(Option<Value<'a>>) -> Found,
) -> Option<Hit> {
    let (name, rest) = split(path);
    match doc.get(name) {
        None => hit(None, None, found),
        Some(value) => from(value, rest, at_end, found),
    }
}

/// What the visitor says of one value.
pub(crate) type Found = bool;

/// Where the search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    pub(crate) position: Option<usize>,
}

fn hit<'a>(
    value: Option<Value<'a>>,
    position: Option<usize>,
    found: &mut dyn FnMut(Option<Value<'a>>) -> Found,
) -> Option<Hit> {
    if found(value) { Some(Hit { position }) } else { None }
}

fn from<'a>(
    value: Value<'a>,
    rest: &str,
    at_end: AtEnd,
    found: &mut dyn FnMut(Option<Value<'a>>) -> Found,
) -> Option<Hit> {
    if rest.is_empty() {
        if let (Value::Array(array), AtEnd::Elements) = (value, at_end) {
            for (at, element) in array.values().enumerate() {
                if found(Some(element)) {
                    return Some(Hit { position: Some(at) });
                }
            }
        }
        return hit(Some(value), None, found);
    }
    match value {
        Value::Document(doc) => any(doc, rest, at_end, found),
        Value::Array(array) => {
            let (name, tail) = split(rest);
            let fixed = position(name).filter(|&at| array.values().nth(at).is_some());
            for (at, element) in array.values().enumerate() {
                let mut end = None;
                if let Value::Document(doc) = element
                    && (fixed.is_none() || doc.get(name).is_some())
                {
                    end = any(doc, rest, at_end, found);
                }
                if end.is_none() && fixed == Some(at) {
                    // A scalar cannot go on, and says nothing.
                    if tail.is_empty() || matches!(element, Value::Document(_) | Value::Array(_)) {
                        end = from(element, tail, at_end, found);
                    }
                }
                if end.is_some() {
                    return Some(Hit { position: Some(at) });
                }
            }
            None
        }
        _ => hit(None, None, found),
    }
}

/// All values of a path, arrays at the end as their elements: what `distinct` sees.
#[must_use]
pub fn values_at<'a>(doc: Doc<'a>, path: &str) -> Vec<Value<'a>> {
    let mut values = Vec::new();
    any(doc, path, AtEnd::Whole, &mut |value| {
        match value {
            Some(Value::Array(array)) => values.extend(array.values()),
            Some(value) => values.push(value),
            None => {}
        }
        false
    });
    values
}

/// The value at a path that goes through documents only, and through arrays by position.
#[must_use]
pub fn get<'a>(doc: Doc<'a>, path: &str) -> Option<Value<'a>> {
    let mut value = Value::Document(doc);
    let mut rest = path;
    loop {
        let (name, tail) = split(rest);
        value = match value {
            Value::Document(doc) => doc.get(name)?,
            Value::Array(array) => array.values().nth(position(name)?)?,
            _ => return None,
        };
        if tail.is_empty() {
            return Some(value);
        }
        rest = tail;
    }
}
