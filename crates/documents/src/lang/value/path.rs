//! Dotted paths through documents and arrays.
//!
//! A filter's path selects every value it can reach: an array on the path is replaced by its elements, and a
//! number in the path also selects the element at that position. An array at the end is replaced by its
//! elements and itself.
//!
//! ```text
//! a.b in { a: [ { b: 1 }, { b: [2, 3] }, {}, 7 ] }   1, 2, 3, [2, 3], missing          the 7 has no fields and is ignored
//! a.1.b in the same                                  2, 3, [2, 3]: a position that is there is meant as one
//! a.b in { a: [] }                                   nothing at all
//! a.b in { a: 7 }                                    missing
//! ```

use crate::lang::budget::{Held, held, steps};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::{Doc, Value};

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

/// How an array at the end of a path is visited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The elements, then the array itself.
    Elements,
    /// The array only: for `$size`, `$elemMatch`.
    Whole,
}

/// Most values of one path in one document. When names are also positions, the number doubles with each
/// array on the path.
const VISITS_MAX: usize = 20_000_000;

/// Calls `found` with every value of the path, `None` for a missing field, until it returns `true`. Returns
/// the position in the outermost array on the path to the value that ended it.
///
/// # Errors
/// `ExceededTimeLimit` for too many values; an end of the command.
pub(crate) fn any<'a>(
    doc: Doc<'a>,
    path: &str,
    at_end: AtEnd,
    found: &mut dyn FnMut(Option<Value<'a>>) -> Found,
) -> LangResult<Option<Hit>> {
    Walk { at_end, found, left: VISITS_MAX }.document(doc, path)
}

/// Result of the visitor for one value: true ends the search.
pub(crate) type Found = bool;

/// Position where the search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    pub(crate) position: Option<usize>,
}

struct Walk<'w, 'a> {
    at_end: AtEnd,
    found: &'w mut dyn FnMut(Option<Value<'a>>) -> Found,
    /// Remaining visits.
    left: usize,
}

impl<'a> Walk<'_, 'a> {
    fn visit(&mut self) -> LangResult<()> {
        steps(1)?;
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => refuse!(ExceededTimeLimit, "a path has more than {VISITS_MAX} values in one document"),
        }
        Ok(())
    }

    fn hit(&mut self, value: Option<Value<'a>>, position: Option<usize>) -> Option<Hit> {
        if (self.found)(value) { Some(Hit { position }) } else { None }
    }

    fn document(&mut self, doc: Doc<'a>, path: &str) -> LangResult<Option<Hit>> {
        self.visit()?;
        let (name, rest) = split(path);
        match doc.get(name) {
            None => Ok(self.hit(None, None)),
            Some(value) => self.value(value, rest),
        }
    }

    fn value(&mut self, value: Value<'a>, rest: &str) -> LangResult<Option<Hit>> {
        if rest.is_empty() {
            if let (Value::Array(array), AtEnd::Elements) = (value, self.at_end) {
                for (at, element) in array.values().enumerate() {
                    self.visit()?;
                    if (self.found)(Some(element)) {
                        return Ok(Some(Hit { position: Some(at) }));
                    }
                }
            }
            return Ok(self.hit(Some(value), None));
        }
        match value {
            Value::Document(doc) => self.document(doc, rest),
            Value::Array(array) => self.elements(array, rest),
            _ => Ok(self.hit(None, None)),
        }
    }

    fn elements(&mut self, array: Doc<'a>, rest: &str) -> LangResult<Option<Hit>> {
        let (name, tail) = split(rest);
        let fixed = position(name).filter(|&at| array.values().nth(at).is_some());
        for (at, element) in array.values().enumerate() {
            self.visit()?;
            let mut end = None;
            if let Value::Document(doc) = element
                && (fixed.is_none() || doc.get(name).is_some())
            {
                end = self.document(doc, rest)?;
            }
            if end.is_none() && fixed == Some(at) {
                // A path cannot continue in a scalar element, which is ignored.
                if tail.is_empty() || matches!(element, Value::Document(_) | Value::Array(_)) {
                    end = self.value(element, tail)?;
                }
            }
            if end.is_some() {
                return Ok(Some(Hit { position: Some(at) }));
            }
        }
        Ok(None)
    }
}

/// Passes each value of a path to `each`, arrays at the end as their elements: the values of `distinct`.
///
/// # Errors
/// As `any`; the errors of `each`.
pub fn each_at<'a>(
    doc: Doc<'a>,
    path: &str,
    each: &mut dyn FnMut(Value<'a>) -> LangResult<()>,
) -> LangResult<()> {
    let mut result = Ok(());
    any(doc, path, AtEnd::Whole, &mut |value| {
        result = match value {
            Some(Value::Array(array)) => array.values().try_for_each(&mut *each),
            Some(value) => each(value),
            None => Ok(()),
        };
        result.is_err()
    })?;
    result
}

/// The values of [`each_at`], and the memory of their list.
pub(crate) fn values_at<'a>(doc: Doc<'a>, path: &str) -> LangResult<(Vec<Value<'a>>, Held)> {
    let (mut values, held) = (Vec::new(), held("the values at a path"));
    each_at(doc, path, &mut |value| {
        // The capacity of the list may be twice its length.
        held.take(2 * size_of::<Value<'_>>())?;
        values.push(value);
        Ok(())
    })?;
    Ok((values, held))
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
