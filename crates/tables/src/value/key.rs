//! Keys: tuples of values as bytes, in the order of the values.
//!
//! ```text
//! row:          object u32 | column, column, …                  big-endian, columns NOT NULL
//! index entry:  object u32 | (mark, column), …  [| row key]     mark 1 value, 2 NULL (0 NULL where NULLs come first)
//! bool 0/1 · integers, dates and times big-endian with the sign flipped · floats by total order, -0 as 0, one NaN above
//! all · text and bytes escaped, ended by 00 01 · uuid 16 bytes · interval its length, 16 bytes · enum its order as an
//! integer · numeric see `numeric` · inet and cidr see `inet` · array: per element 1 value or
//! 2 NULL, ended by 0 · a descending column: mark and value with every bit flipped
//! ```
//! No encoding is the prefix of another of the same type, so tuples compare column by column.

use ropewalk_base::{DecodeError, keys};

use crate::value::enum_value::EnumValue;
use crate::value::inet::Inet;
use crate::value::interval::Interval;
use crate::value::numeric::Numeric;
use crate::value::types::{Scalar, Type};
use crate::value::{Array, Value};

/// Sort order of an index column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyOrder {
    /// Greatest first.
    pub descending: bool,
    /// NULLs before all values. As in PostgreSQL the default is last, and first when descending.
    pub nulls_first: bool,
}

impl KeyOrder {
    /// Smallest first, NULLs last.
    pub const ASC: Self = Self { descending: false, nulls_first: false };
    /// Greatest first, NULLs first.
    pub const DESC: Self = Self { descending: true, nulls_first: true };
}

const VALUE: u8 = 1;
const NULL_FIRST: u8 = 0;
const NULL_LAST: u8 = 2;
const ARRAY_END: u8 = 0;
const ARRAY_NULL: u8 = 2;

/// Appends a value that is not NULL, ascending.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        // JSON has no order, and schemas do not allow it in a key.
        Value::Null | Value::Json(_) => {}
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Int2(v) => out.extend_from_slice(&((*v as u16) ^ (1 << 15)).to_be_bytes()),
        Value::Int4(v) | Value::Date(v) => out.extend_from_slice(&((*v as u32) ^ (1 << 31)).to_be_bytes()),
        Value::Int8(v) | Value::Time(v) | Value::Timestamp(v) | Value::Timestamptz(v) => {
            keys::put_i64(out, *v)
        }
        Value::Float4(v) => {
            let v = if v.is_nan() { f32::NAN.abs() } else { *v + 0.0 };
            let bits = v.to_bits();
            let mask = if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
            out.extend_from_slice(&(bits ^ mask).to_be_bytes());
        }
        // Adding zero turns -0 into 0.
        Value::Float8(v) => keys::put_f64(out, if v.is_nan() { f64::NAN.abs() } else { *v + 0.0 }),
        Value::Numeric(v) => v.put_key(out),
        Value::Text(v) | Value::Jsonb(v) => keys::put_bytes(out, v.as_bytes()),
        Value::Bytea(v) => keys::put_bytes(out, v),
        Value::Uuid(v) => out.extend_from_slice(v),
        Value::Interval(v) => v.put_key(out),
        Value::Inet(v) | Value::Cidr(v) => v.put_key(out),
        Value::Enum(v) => keys::put_i64(out, v.order),
        Value::Array(v) => {
            // An array that does not decode is cut at the error; writers only encode valid arrays.
            for item in v.iter().map_while(Result::ok) {
                if item.is_null() {
                    out.push(ARRAY_NULL);
                } else {
                    out.push(VALUE);
                    put_value(out, &item);
                }
            }
            out.push(ARRAY_END);
        }
    }
}

/// Appends a value or NULL with its mark, in the given order.
pub(crate) fn put_marked(out: &mut Vec<u8>, value: &Value<'_>, order: KeyOrder) {
    let start = out.len();
    if value.is_null() {
        out.push(if order.nulls_first { NULL_FIRST } else { NULL_LAST });
        return;
    }
    out.push(VALUE);
    put_value(out, value);
    if order.descending {
        // The mark is not inverted, only the value.
        out.iter_mut().skip(start + 1).for_each(|byte| *byte = !*byte);
    }
}

fn error(what: &'static str) -> DecodeError {
    DecodeError { what, offset: 0 }
}

fn take<const N: usize>(key: &[u8]) -> Result<([u8; N], &[u8]), DecodeError> {
    let (head, rest) = key.split_first_chunk().ok_or_else(|| error("value of a key"))?;
    Ok((*head, rest))
}

/// Decodes one ascending value; floats and numerics are normalised.
#[inline]
pub(crate) fn take_value(ty: Type, key: &[u8]) -> Result<(Value<'static>, &[u8]), DecodeError> {
    let scalar = match ty {
        Type::Scalar(scalar) => scalar,
        Type::Array(element) => return take_array(element, key),
    };
    let wide = |key| keys::take_i64(key);
    Ok(match scalar {
        Scalar::Bool => {
            let ([byte], rest) = take(key)?;
            (Value::Bool(byte != 0), rest)
        }
        Scalar::Int2 => {
            let (bytes, rest) = take(key)?;
            (Value::Int2((u16::from_be_bytes(bytes) ^ (1 << 15)) as i16), rest)
        }
        Scalar::Int4 | Scalar::Date => {
            let (bytes, rest) = take(key)?;
            let v = (u32::from_be_bytes(bytes) ^ (1 << 31)) as i32;
            (if scalar == Scalar::Date { Value::Date(v) } else { Value::Int4(v) }, rest)
        }
        Scalar::Int8 => wide(key).map(|(v, rest)| (Value::Int8(v), rest))?,
        Scalar::Time => wide(key).map(|(v, rest)| (Value::Time(v), rest))?,
        Scalar::Timestamp => wide(key).map(|(v, rest)| (Value::Timestamp(v), rest))?,
        Scalar::Timestamptz => wide(key).map(|(v, rest)| (Value::Timestamptz(v), rest))?,
        Scalar::Float4 => {
            let (bytes, rest) = take(key)?;
            let bits = u32::from_be_bytes(bytes);
            let mask = if bits >> 31 == 1 { 1 << 31 } else { u32::MAX };
            (Value::Float4(f32::from_bits(bits ^ mask)), rest)
        }
        Scalar::Float8 => {
            let (bytes, rest) = take(key)?;
            let bits = u64::from_be_bytes(bytes);
            let mask = if bits >> 63 == 1 { 1 << 63 } else { u64::MAX };
            (Value::Float8(f64::from_bits(bits ^ mask)), rest)
        }
        Scalar::Numeric(_) => Numeric::take_key(key).map(|(v, rest)| (Value::Numeric(v), rest))?,
        Scalar::Text | Scalar::Jsonb => {
            let (bytes, rest) = keys::take_bytes(key)?;
            let text = String::from_utf8(bytes).map_err(|_| error("UTF-8 of a key"))?.into();
            (if scalar == Scalar::Text { Value::Text(text) } else { Value::Jsonb(text) }, rest)
        }
        Scalar::Bytea => keys::take_bytes(key).map(|(v, rest)| (Value::Bytea(v.into()), rest))?,
        Scalar::Uuid => take(key).map(|(v, rest)| (Value::Uuid(v), rest))?,
        Scalar::Interval => Interval::take_key(key).map(|(v, rest)| (Value::Interval(v), rest))?,
        Scalar::Inet => Inet::take_key(key).map(|(v, rest)| (Value::Inet(v), rest))?,
        Scalar::Cidr => Inet::take_key(key).map(|(v, rest)| (Value::Cidr(v), rest))?,
        Scalar::Enum(number) => {
            let (order, rest) = wide(key)?;
            (Value::Enum(EnumValue { number, order, label: "".into() }), rest)
        }
        Scalar::Json => return Err(error("a type that has an order")),
    })
}

fn take_array(element: Scalar, mut key: &[u8]) -> Result<(Value<'static>, &[u8]), DecodeError> {
    let mut items = Vec::new();
    loop {
        let ([mark], rest) = take(key)?;
        key = rest;
        match mark {
            ARRAY_END => break,
            ARRAY_NULL => items.push(Value::Null),
            VALUE => {
                let (item, rest) = take_value(Type::Scalar(element), key)?;
                items.push(item);
                key = rest;
            }
            _ => return Err(error("mark of an array's element")),
        }
    }
    let array = Array::new(element, items).map_err(|_| error("elements of their type"))?;
    Ok((Value::Array(array), key))
}

/// Skips one ascending value without building it.
#[inline]
pub(crate) fn skip_value(ty: Type, key: &[u8]) -> Result<&[u8], DecodeError> {
    if let Some(width) = ty.width() {
        return key.get(width..).ok_or_else(|| error("value of a key"));
    }
    match ty {
        Type::TEXT | Type::BYTEA | Type::JSONB => {
            let mut rest = key;
            loop {
                match rest {
                    [0, 1, tail @ ..] => return Ok(tail),
                    [0, 0xff, tail @ ..] => rest = tail,
                    [] | [0, ..] => return Err(error("string terminator of a key")),
                    [_, tail @ ..] => rest = tail,
                }
            }
        }
        _ => take_value(ty, key).map(|(_, rest)| rest),
    }
}

/// Decodes the output of [`put_marked`].
pub(crate) fn take_marked(
    ty: Type,
    order: KeyOrder,
    key: &[u8],
) -> Result<(Value<'static>, &[u8]), DecodeError> {
    let ([mark], rest) = take(key)?;
    match mark {
        NULL_FIRST | NULL_LAST => Ok((Value::Null, rest)),
        VALUE if order.descending => {
            let turned: Vec<u8> = rest.iter().map(|byte| !byte).collect();
            let (value, left) = take_value(ty, &turned)?;
            let used = turned.len() - left.len();
            Ok((value, rest.get(used..).expect("a value takes no more bytes than there are")))
        }
        VALUE => take_value(ty, rest),
        _ => Err(error("mark of an index column")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::testing::{any_type, any_value, sql_order};
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn key(value: &Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        put_value(&mut out, value);
        out
    }

    #[test]
    fn golden() {
        assert_eq!(key(&Value::Int2(-1)), [0x7f, 0xff]);
        assert_eq!(key(&Value::Int4(1)), [0x80, 0, 0, 1]);
        assert_eq!(key(&Value::Int8(i64::MIN)), [0; 8]);
        assert_eq!(key(&Value::Float8(-0.0)), [0x80, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(key(&Value::Float4(f32::NAN)), [0xff, 0xc0, 0, 0]);
        assert_eq!(key(&Value::text("a\0")), [b'a', 0, 0xff, 0, 1]);
        assert_eq!(key(&Value::text("")), [0, 1]);
        let array = Array::new(Scalar::Bool, [true.into(), Value::Null]).unwrap();
        assert_eq!(key(&Value::Array(array)), [1, 1, 2, 0]);
        let mut out = Vec::new();
        put_marked(&mut out, &Value::Bool(true), KeyOrder::DESC);
        put_marked(&mut out, &Value::Null, KeyOrder::DESC);
        put_marked(&mut out, &Value::Null, KeyOrder::ASC);
        assert_eq!(out, [1, 0xfe, 0, 2]);
    }

    #[test]
    fn keys_of_extreme_values_are_in_order() {
        let inf = f64::INFINITY;
        let floats =
            [-inf, f64::MIN, -1.0, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX, inf, f64::NAN];
        let floats: Vec<_> = floats.iter().map(|&f| key(&Value::Float8(f))).collect();
        assert!(floats.is_sorted_by(|a, b| a < b));
        let ints = [i64::MIN, -1, 0, 1, i64::MAX].map(|i| key(&Value::Int8(i)));
        assert!(ints.is_sorted_by(|a, b| a < b));
        assert_eq!(key(&Value::Float8(-f64::NAN)), key(&Value::Float8(f64::NAN)));
        let texts =
            ["", "\0", "\0\0", "\u{1}", "a", "a\0", "a\0b", "a\u{1}", "b"].map(|t| key(&Value::text(t)));
        assert!(texts.is_sorted_by(|a, b| a < b));
    }

    fn tuples() -> impl Strategy<Value = Vec<(KeyOrder, Value<'static>, Value<'static>)>> {
        let order = (any::<bool>(), any::<bool>())
            .prop_map(|(descending, nulls_first)| KeyOrder { descending, nulls_first });
        let column = (any_type(), order).prop_flat_map(|(ty, order)| {
            let value = || prop_oneof![1 => Just(Value::Null), 6 => any_value(ty)];
            (Just(order), value(), value())
        });
        prop::collection::vec(column, 1..4)
    }

    proptest! {
        #[test]
        fn encoded_tuples_sort_as_their_values(columns in tuples()) {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let mut expected = Ordering::Equal;
            for (order, a, b) in &columns {
                put_marked(&mut left, a, *order);
                put_marked(&mut right, b, *order);
                expected = expected.then(sql_order(a, b, *order));
            }
            prop_assert_eq!(left.cmp(&right), expected);
            let mut rest = left.as_slice();
            for (order, a, _) in &columns {
                let ty = a.value_type().unwrap_or(Type::BOOL);
                let (value, tail) = take_marked(ty, *order, rest).unwrap();
                prop_assert_eq!(sql_order(&value, a, *order), Ordering::Equal);
                rest = tail;
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn skip_value_consumes_exactly_one_value(ty in any_type(), seed: u64, more: Vec<u8>) {
            let _ = seed;
            let value = any_value(ty);
            let mut runner = proptest::test_runner::TestRunner::deterministic();
            let value = value.new_tree(&mut runner).unwrap().current();
            let mut bytes = key(&value);
            bytes.extend_from_slice(&more);
            prop_assert_eq!(skip_value(ty, &bytes).unwrap(), more.as_slice());
        }

        #[test]
        fn no_bytes_panic(ty in any_type(), bytes: Vec<u8>) {
            let _ = take_value(ty, &bytes);
            let _ = skip_value(ty, &bytes);
        }
    }
}
