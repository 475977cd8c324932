//! Decoding of values from their keys, for queries that an index serves without the documents.
//!
//! A key determines how a value compares, not its type: 1 and 1.0 have one key. So an entry stores a byte
//! for each of its values: the type, or that there is no value, or that only the document has it. The last
//! applies to numbers that a double cannot represent, to minus zero, and to rarely used types.

use ropewalk_base::keys;

use crate::lang::value::order;
use crate::lang::value::{Owned, Value, tag};

/// There is no value.
pub(crate) const MISSING: u8 = 0;
/// The key does not hold the value.
pub(crate) const LOST: u8 = 0xFF;

/// Integers up to this one are doubles, too.
const INTEGER_MAX: u64 = 1 << 53;

/// The byte to store with the key of a value.
pub(crate) fn type_of(value: Option<Value<'_>>) -> u8 {
    let Some(value) = value else { return MISSING };
    let held = match value {
        Value::Null
        | Value::Bool(_)
        | Value::Int32(_)
        | Value::String(_)
        | Value::ObjectId(_)
        | Value::DateTime(_)
        | Value::Timestamp(_) => true,
        Value::Int64(number) => number.unsigned_abs() <= INTEGER_MAX,
        Value::Double(number) => number.is_finite() && (number != 0.0 || number.is_sign_positive()),
        _ => false,
    };
    if held { value.tag() } else { LOST }
}

/// Decodes the value of type `kind` at the front of `key`; `None` if [`type_of`] calls it missing or lost,
/// and for invalid keys.
pub(crate) fn take(key: &[u8], kind: u8) -> Option<(Owned, &[u8])> {
    let (class, rest) = key.split_first()?;
    let numeric = matches!(kind, tag::INT32 | tag::INT64 | tag::DOUBLE);
    if numeric && *class == order::class(Value::Int32(0)) {
        let (number, rest) = take_double(rest)?;
        let value = match kind {
            tag::INT32 => Value::Int32(number as i32),
            tag::INT64 => Value::Int64(number as i64),
            _ => Value::Double(number),
        };
        return Some((value.into(), rest));
    }
    Some(match kind {
        tag::NULL => (Value::Null.into(), rest),
        tag::BOOL => {
            let (flag, rest) = rest.split_first()?;
            (Value::Bool(*flag != 0).into(), rest)
        }
        tag::STRING => {
            let (text, rest) = keys::take_bytes(rest).ok()?;
            (Value::String(std::str::from_utf8(&text).ok()?).into(), rest)
        }
        tag::OBJECT_ID => {
            let (id, rest) = rest.split_first_chunk()?;
            (Value::ObjectId(*id).into(), rest)
        }
        tag::DATE => {
            let (ms, rest) = keys::take_i64(rest).ok()?;
            (Value::DateTime(ms).into(), rest)
        }
        tag::TIMESTAMP => {
            let (stamp, rest) = keys::take_u64(rest).ok()?;
            (Value::Timestamp(stamp).into(), rest)
        }
        _ => return None,
    })
}

/// Skips the key of a missing value: that of null.
pub(crate) fn take_missing(key: &[u8]) -> Option<&[u8]> {
    key.split_first().filter(|(class, _)| **class == order::class::NULL).map(|(_, rest)| rest)
}

/// A number whose key has no rest after the double.
fn take_double(key: &[u8]) -> Option<(f64, &[u8])> {
    let (bits, rest) = keys::take_u64(key).ok()?;
    let (flag, rest) = rest.split_first()?;
    // As in `key`: the bits with the highest one set; below zero all of them inverted.
    let (magnitude, sign, plain) = match bits >> 63 {
        1 => (bits & !(1 << 63), 1.0, 0),
        _ => (!bits & !(1 << 63), -1.0, u8::MAX),
    };
    (*flag == plain).then(|| (sign * f64::from_bits(magnitude), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lang::value::key;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Owned> {
        prop_oneof![
            any::<i32>().prop_map(|n| Value::Int32(n).into()),
            any::<i64>().prop_map(|n| Value::Int64(n).into()),
            (-5_i64..5).prop_map(|n| Value::Int64(n).into()),
            any::<f64>().prop_map(|n| Value::Double(n).into()),
            any::<bool>().prop_map(|b| Value::Bool(b).into()),
            any::<String>().prop_map(|text| Value::String(&text).into()),
            any::<[u8; 12]>().prop_map(|id| Value::ObjectId(id).into()),
            any::<i64>().prop_map(|ms| Value::DateTime(ms).into()),
            any::<u64>().prop_map(|stamp| Value::Timestamp(stamp).into()),
            Just(Value::Null.into()),
            Just(Value::Double(-0.0).into()),
            any::<Vec<u8>>().prop_map(|bytes| Value::Binary(0, &bytes).into()),
        ]
    }

    proptest! {
        #[test]
        fn value_of_restorable_type_decodes_from_its_key(value in value(), behind: Vec<u8>) {
            let kind = type_of(Some(value.value()));
            let mut encoded = key::key_of(value.value());
            encoded.extend_from_slice(&behind);
            match take(&encoded, kind) {
                Some((back, rest)) => {
                    // The same bits, not only an equal value.
                    prop_assert_eq!(format!("{:?}", back.value()), format!("{:?}", value.value()));
                    prop_assert_eq!(rest, behind.as_slice());
                }
                None => prop_assert_eq!(kind, LOST),
            }
        }

        #[test]
        fn take_of_any_bytes_does_not_panic(bytes: Vec<u8>, kind: u8) {
            let _ = take(&bytes, kind);
        }
    }
}
