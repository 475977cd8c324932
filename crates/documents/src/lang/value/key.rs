//! Encoding of values as bytes that sort as the values do: index keys and sort keys.
//!
//! ```text
//! key    := class value                                    class: one byte, the order of types
//! number := floor (8)  00 | 01 exponent (2) digits (15)    see `number`; below zero all bytes inverted
//! text   := bytes, 00 as 00 FF, then 00 01
//! fields := { class name 00 key } 00                       a document; an array has keys alone
//! descending: all bytes inverted
//! ```
//!
//! Invariants
//! 1. `encode(a) < encode(b)` exactly when `compare(a, b)` is less; equal values of different types have
//!    equal keys.
//! 2. No key is a prefix of another, so keys can be concatenated in a compound index.
//! 3. No key begins with 00 or FF, so bounds exist below and above all of them, also inverted.
//!
//! A missing field has the key of null. An array has one entry per distinct element; an empty one the key of
//! undefined.
//!
//! Not here: which intervals a filter allows (`lang::filter::bounds`).

use ropewalk_base::keys::{prefix_end, put_bytes, put_i64, put_u64};

use crate::lang::budget::steps;
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::number::{Rank, Sortable};
use crate::lang::value::order;
use crate::lang::value::path;
use crate::lang::value::{Doc, Value};

/// Appends the key of `value`.
pub fn encode(value: Value<'_>, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    put(value, out);
    if descending {
        invert(out, start);
    }
    debug_assert!(!matches!(out.get(start), None | Some(0 | 0xFF)), "no key begins with 00 or FF");
}

/// Appends the key that a missing field has: that of null.
pub fn encode_missing(descending: bool, out: &mut Vec<u8>) {
    encode(Value::Null, descending, out);
}

/// The key of one value, ascending.
#[must_use]
pub fn key_of(value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(12);
    put(value, &mut out);
    out
}

fn invert(out: &mut [u8], start: usize) {
    for byte in out.iter_mut().skip(start) {
        *byte = !*byte;
    }
}

fn put(value: Value<'_>, out: &mut Vec<u8>) {
    out.push(order::class(value));
    match value {
        Value::MinKey | Value::MaxKey | Value::Null | Value::Undefined => {}
        Value::String(text) | Value::Symbol(text) | Value::Code(text) => put_bytes(out, text.as_bytes()),
        Value::Document(doc) => put_fields(doc, out),
        Value::Array(array) => {
            array.values().for_each(|value| put(value, out));
            out.push(0);
        }
        Value::Binary(subtype, bytes) => {
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(id) => out.extend_from_slice(&id),
        Value::Bool(b) => out.push(u8::from(b)),
        Value::DateTime(ms) => put_i64(out, ms),
        Value::Timestamp(stamp) => put_u64(out, stamp),
        Value::Regex(pattern, options) => {
            put_bytes(out, pattern.as_bytes());
            put_bytes(out, options.as_bytes());
        }
        Value::DbPointer(name, id) => {
            out.extend_from_slice(&(name.len() as u32).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&id);
        }
        Value::CodeWithScope(code, scope) => {
            put_bytes(out, code.as_bytes());
            put_fields(scope, out);
        }
        number => put_number(Sortable::of(number).expect("all other values are numbers"), out),
    }
}

fn put_number(number: Sortable, out: &mut Vec<u8>) {
    if number.rank == Rank::NaN {
        // Below the inverted bits of every negative number, the least of which are those of infinity.
        out.extend_from_slice(&[0; 9]);
        return;
    }
    let start = out.len();
    put_u64(out, number.floor | 1 << 63);
    match number.rest {
        None => out.push(0),
        Some((exponent, digits)) => {
            out.push(1);
            debug_assert!((-(1 << 14)..1 << 14).contains(&exponent), "exponent {exponent} has 15 bits");
            out.extend_from_slice(&((exponent + (1 << 14)) as u16).to_be_bytes());
            // 34 digits are 113 bits; the first byte of sixteen is zero.
            let [zero, digits @ ..] = digits.to_be_bytes();
            debug_assert_eq!(zero, 0, "a number has 34 digits at most");
            out.extend_from_slice(&digits);
        }
    }
    if number.rank == Rank::Negative {
        invert(out, start);
    }
}

fn put_fields(doc: Doc<'_>, out: &mut Vec<u8>) {
    for (name, value) in doc {
        out.push(order::class(value));
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        put(value, out);
    }
    out.push(0);
}

/// Keys from `start` (included) to `end` (excluded), of one field or of several concatenated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The first bytes in the interval.
    pub start: Vec<u8>,
    /// The first bytes after the interval.
    pub end: Vec<u8>,
    /// A single value, so that the next field of a compound index is sorted within the interval.
    pub point: bool,
}

impl Interval {
    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self { start: vec![0x01], end: vec![0xFF], point: false }
    }

    /// The interval of one value.
    #[must_use]
    pub fn point(value: Value<'_>) -> Self {
        let start = key_of(value);
        let end = behind(&start);
        Self { start, end, point: true }
    }

    /// Values whose keys begin with these bytes.
    #[must_use]
    pub(crate) fn prefix(start: Vec<u8>) -> Self {
        let end = behind(&start);
        Self { start, end, point: false }
    }

    /// No key at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Keys in both intervals.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self {
            start: self.start.clone().max(other.start.clone()),
            end: self.end.clone().min(other.end.clone()),
            point: self.point || other.point,
        }
    }

    /// The same values for a descending field.
    #[must_use]
    pub fn descending(&self) -> Self {
        let inverted = |bytes: &[u8]| behind(&bytes.iter().map(|byte| !byte).collect::<Vec<_>>());
        Self { start: inverted(&self.end), end: inverted(&self.start), point: self.point }
    }

    /// True when the key is in the interval.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }
}

/// The least bytes greater than everything that begins with `prefix`.
#[must_use]
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    prefix_end(prefix).unwrap_or_else(|| vec![0xFF; prefix.len() + 1])
}

/// A field of an index or of a sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexField {
    /// The dotted path.
    pub path: String,
    /// True for descending order.
    pub descending: bool,
}

/// The entries of one document in one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    /// The keys, sorted and distinct.
    pub keys: Vec<Vec<u8>>,
    /// For each field: true when its path goes through an array.
    pub multikey: Vec<bool>,
    /// True when none of the fields exists: a sparse index has no entry.
    pub missing_all: bool,
}

/// The entries of a document: one for each distinct combination of its fields' values. Cost: a search for
/// each field.
///
/// # Errors
/// `CannotIndexParallelArrays`: two fields go through different arrays.
pub fn entries(doc: Doc<'_>, fields: &[IndexField]) -> LangResult<Entries> {
    let mut multikey = vec![false; fields.len()];
    let remaining: Vec<Remaining<'_>> =
        fields.iter().map(|field| Remaining::At(Value::Document(doc), &field.path)).collect();
    let mut keys = Vec::new();
    let mut missing_all = true;
    expand(&remaining, fields, &mut multikey, &mut missing_all, &mut keys)?;
    keys.sort_unstable();
    keys.dedup();
    Ok(Entries { keys, multikey, missing_all })
}

/// Longest key that is built for each element of an array; longer than an index accepts.
const KEY_BYTES_MADE: usize = 64 << 10;

/// State of following a field's path.
#[derive(Clone, Copy)]
enum Remaining<'a> {
    /// The rest of the path from this value on; an empty rest means the value itself, if it is no array.
    At(Value<'a>, &'a str),
    Found(Value<'a>),
    Missing,
}

impl<'a> Remaining<'a> {
    /// Follows the path up to its end or to the first array, which is returned.
    fn follow(self) -> (Self, Option<Doc<'a>>) {
        let Self::At(mut value, mut rest) = self else { return (self, None) };
        loop {
            if let Value::Array(array) = value {
                return (Self::At(value, rest), Some(array));
            }
            if rest.is_empty() {
                return (Self::Found(value), None);
            }
            let (name, tail) = path::split(rest);
            match value.as_document().and_then(|doc| doc.get(name)) {
                Some(next) => (value, rest) = (next, tail),
                None => return (Self::Missing, None),
            }
        }
    }
}

fn expand(
    remaining: &[Remaining<'_>],
    fields: &[IndexField],
    multikey: &mut [bool],
    missing_all: &mut bool,
    keys: &mut Vec<Vec<u8>>,
) -> LangResult<()> {
    steps(1 + remaining.len())?;
    // The caller rejects a key that exceeds the index limit, so the others, which may be as long, are not
    // built.
    if keys.last().is_some_and(|key| key.len() > KEY_BYTES_MADE) {
        return Ok(());
    }
    let followed: Vec<_> = remaining.iter().map(|field| field.follow()).collect();
    let mut arrays = followed.iter().filter_map(|(_, array)| *array);
    let Some(array) = arrays.next() else {
        let mut key = Vec::with_capacity(16 * fields.len());
        for ((field, _), spec) in followed.iter().zip(fields) {
            match field {
                Remaining::Found(value) => {
                    *missing_all = false;
                    encode(*value, spec.descending, &mut key);
                }
                _ => encode_missing(spec.descending, &mut key),
            }
        }
        keys.push(key);
        return Ok(());
    };
    // Identical bytes at the same address are the same array: two fields below it expand its elements
    // together.
    let same = |other: Doc<'_>| std::ptr::eq(other.bytes(), array.bytes());
    if !arrays.all(same) {
        let names = fields.iter().map(|field| field.path.as_str()).collect::<Vec<_>>().join(", ");
        refuse!(CannotIndexParallelArrays, "cannot index parallel arrays: the index on {names}");
    }
    for ((_, found), flag) in followed.iter().zip(multikey.iter_mut()) {
        *flag |= found.is_some();
    }
    // A position in the path selects that element, for all of them.
    let fixed: Vec<Option<Value<'_>>> = followed
        .iter()
        .map(|(field, found)| match (field, found) {
            (Remaining::At(_, rest), Some(array)) => {
                path::position(path::split(rest).0).and_then(|at| array.values().nth(at))
            }
            _ => None,
        })
        .collect();
    let step = |element| -> LangResult<Vec<_>> {
        let fields = followed.iter().zip(&fixed);
        fields
            .map(|((field, found), fixed)| match (field, found) {
                (Remaining::At(_, rest), Some(_)) => below(rest, element, *fixed),
                (field, _) => Ok(*field),
            })
            .collect()
    };
    if array.is_empty() {
        return expand(&step(None)?, fields, multikey, missing_all, keys);
    }
    array.values().try_for_each(|element| expand(&step(Some(element))?, fields, multikey, missing_all, keys))
}

/// Continues a field's path in one element of an array, or in the element at the position that the path
/// names.
fn below<'a>(
    rest: &'a str,
    element: Option<Value<'a>>,
    fixed: Option<Value<'a>>,
) -> LangResult<Remaining<'a>> {
    let (name, tail) = path::split(rest);
    Ok(match (element, fixed) {
        (None, _) if rest.is_empty() => Remaining::Found(Value::Undefined),
        (None, _) => Remaining::Missing,
        (Some(element), _) if rest.is_empty() => Remaining::Found(element),
        (Some(Value::Document(doc)), Some(_)) if doc.get(name).is_some() => {
            refuse!(16746, "ambiguous: {name:?} is a position in an array and a field of one of its elements")
        }
        (Some(_), Some(fixed)) if tail.is_empty() => match fixed {
            Value::Array(_) => Remaining::At(fixed, tail),
            other => Remaining::Found(other),
        },
        (Some(_), Some(fixed @ (Value::Document(_) | Value::Array(_)))) => Remaining::At(fixed, tail),
        (Some(Value::Document(doc)), None) => Remaining::At(Value::Document(doc), rest),
        _ => Remaining::Missing,
    })
}
