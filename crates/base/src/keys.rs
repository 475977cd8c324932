//! Order-preserving keys: `encode(a) < encode(b)` as bytes exactly when `a < b` as values, also when several encodings
//! are concatenated (memcomparable tuples).

use crate::DecodeError;

/// Appends `value` so that unsigned order is byte order: 8 bytes big-endian.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends `value` so that signed order is byte order: big-endian with the sign bit flipped.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, (value as u64) ^ (1 << 63));
}

/// Appends `value` in the total order −NaN < −∞ < … < −0.0 < +0.0 < … < +∞ < +NaN (IEEE 754 totalOrder).
pub fn put_f64(out: &mut Vec<u8>, value: f64) {
    let bits = value.to_bits();
    let mask = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
    put_u64(out, bits ^ mask);
}

/// Appends `bytes` so that lexicographic order holds and no encoding is a prefix of another: each 0x00 becomes
/// 0x00 0xFF, and 0x00 0x01 ends the string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    for (index, part) in bytes.split(|&b| b == 0).enumerate() {
        if index > 0 {
            out.extend_from_slice(&[0, 0xff]);
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&[0, 1]);
}

/// Reads what [`put_bytes`] wrote; returns the string and the rest of the key.
///
/// # Errors
/// The terminator is missing or an escape is unknown.
pub fn take_bytes(key: &[u8]) -> Result<(Vec<u8>, &[u8]), DecodeError> {
    let mut out = Vec::new();
    let mut rest = key;
    loop {
        let offset = key.len() - rest.len();
        match rest {
            [0, 1, tail @ ..] => return Ok((out, tail)),
            [0, 0xff, tail @ ..] => {
                out.push(0);
                rest = tail;
            }
            [] | [0, ..] => return Err(DecodeError { what: "string terminator of a key", offset }),
            [b, tail @ ..] => {
                out.push(*b);
                rest = tail;
            }
        }
    }
}

/// Reads what [`put_u64`] wrote; returns the number and the rest of the key.
///
/// # Errors
/// Fewer than 8 bytes.
pub fn take_u64(key: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
    let (head, rest) = key.split_first_chunk().ok_or(DecodeError { what: "number of a key", offset: 0 })?;
    Ok((u64::from_be_bytes(*head), rest))
}

/// Reads what [`put_i64`] wrote; returns the number and the rest of the key.
///
/// # Errors
/// Fewer than 8 bytes.
pub fn take_i64(key: &[u8]) -> Result<(i64, &[u8]), DecodeError> {
    let (value, rest) = take_u64(key)?;
    Ok(((value ^ (1 << 63)) as i64, rest))
}

/// The smallest key greater than every key that starts with `prefix`, or `None` when no key is.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(f: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        f(&mut out);
        out
    }

    proptest! {
        #[test]
        fn signed_numbers_keep_their_order(a: i64, b: i64) {
            let (ka, kb) = (key(|k| put_i64(k, a)), key(|k| put_i64(k, b)));
            prop_assert_eq!(a.cmp(&b), ka.cmp(&kb));
            prop_assert_eq!(take_i64(&ka).unwrap().0, a);
        }

        #[test]
        fn floats_keep_the_total_order(a: u64, b: u64) {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert_eq!(a.total_cmp(&b), key(|k| put_f64(k, a)).cmp(&key(|k| put_f64(k, b))));
        }

        #[test]
        fn pairs_of_strings_keep_their_order(a: (Vec<u8>, Vec<u8>), b: (Vec<u8>, Vec<u8>)) {
            let pair = |p: &(Vec<u8>, Vec<u8>)| key(|k| { put_bytes(k, &p.0); put_bytes(k, &p.1) });
            prop_assert_eq!(a.cmp(&b), pair(&a).cmp(&pair(&b)));
            let encoded = pair(&a);
            let (first, rest) = take_bytes(&encoded).unwrap();
            let (second, rest) = take_bytes(rest).unwrap();
            prop_assert_eq!((first, second), a);
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn the_prefix_end_bounds_every_extension(prefix: Vec<u8>, more: Vec<u8>) {
            let mut longer = prefix.clone();
            longer.extend_from_slice(&more);
            if let Some(end) = prefix_end(&prefix) {
                prop_assert!(longer < end);
                prop_assert!(end > prefix);
            } else {
                prop_assert!(prefix.iter().all(|&b| b == 0xff));
            }
        }
    }
}
