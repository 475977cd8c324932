//! Little-endian codec for records, manifests and values. Encoders append to a `Vec<u8>`; the decoder is a cursor
//! that never panics and says what it expected and where.

/// Bytes that do not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct DecodeError {
    /// The expected item.
    pub what: &'static str,
    /// Offset from the start of the decoded slice.
    pub offset: usize,
}

/// Appends `value`, 4 bytes little-endian.
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value`, 8 bytes little-endian.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` as LEB128: seven bits a byte, low bits first, 1 to 10 bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] takes for `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Splits a LEB128 number off the front of `bytes`.
///
/// `None` if it is cut off or does not fit 64 bits.
#[inline]
pub fn split_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        return Some((u64::from(byte), rest));
    }
    // Up to eight bytes at once: the first that has no top bit ends it; seven bits of each move together.
    if let Some(word) = bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
        && let ends = !word & 0x8080_8080_8080_8080
        && ends != 0
    {
        let length = ends.trailing_zeros() / 8 + 1;
        let bits = word & u64::MAX >> (64 - 8 * length) & 0x7f7f_7f7f_7f7f_7f7f;
        let bits = (bits & 0x7f00_7f00_7f00_7f00) >> 1 | bits & 0x007f_007f_007f_007f;
        let bits = (bits & 0x3fff_0000_3fff_0000) >> 2 | bits & 0x0000_3fff_0000_3fff;
        return Some(((bits >> 32) << 28 | bits & 0x0fff_ffff, bytes.get(length as usize..)?));
    }
    let mut value = 0_u64;
    for (place, &byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * place);
        if byte < 0x80 {
            return Some((value, bytes.get(place + 1..)?));
        }
    }
    None
}

/// Maps signed numbers near zero to small unsigned ones.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Appends a varint length and then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads the output of the `put_*` functions. A copy saves a position.
#[derive(Debug, Clone, Copy)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// Bytes consumed so far.
    pub fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Bytes not yet consumed.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True when everything was consumed.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn error(&self, what: &'static str) -> DecodeError {
        DecodeError { what, offset: self.offset() }
    }

    /// Takes the next `n` bytes.
    ///
    /// # Errors
    /// Fewer than `n` bytes are left.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.error(what))?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes `N` bytes as an array.
    ///
    /// # Errors
    /// Fewer than `N` bytes are left.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.error(what))?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// Nothing is left.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Takes 4 bytes little-endian.
    ///
    /// # Errors
    /// Fewer than 4 bytes are left.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Takes 8 bytes little-endian.
    ///
    /// # Errors
    /// Fewer than 8 bytes are left.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Takes a LEB128 number.
    ///
    /// # Errors
    /// The bytes end inside it, or it does not fit 64 bits.
    #[inline]
    pub fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(byte));
        }
        self.varint_long(what)
    }

    fn varint_long(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let Some((value, rest)) = split_varint(self.rest) else {
            // A number that is cut off is reported where its next byte would be.
            let offset = if self.rest.len() < 10 { self.len } else { self.offset() };
            return Err(DecodeError { what, offset });
        };
        self.rest = rest;
        Ok(value)
    }

    /// Takes a varint length and that many bytes.
    ///
    /// # Errors
    /// The bytes end before that.
    #[inline]
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.varint(what)?;
        let len = usize::try_from(len).map_err(|_| self.error(what))?;
        self.take(len, what)
    }

    /// Takes a varint length and that many bytes of UTF-8.
    ///
    /// # Errors
    /// The bytes end before that or are not UTF-8.
    #[inline]
    pub fn str(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let start = *self;
        std::str::from_utf8(self.bytes(what)?).map_err(|_| start.error(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(values: Vec<(u64, u8)>) {
            let values: Vec<u64> = values.into_iter().map(|(value, shift)| value >> (shift % 64)).collect();
            let mut bytes = Vec::new();
            for &v in &values {
                let before = bytes.len();
                put_varint(&mut bytes, v);
                prop_assert_eq!(bytes.len() - before, varint_len(v));
            }
            let mut decoder = Decoder::new(&bytes);
            for &v in &values {
                prop_assert_eq!(decoder.varint("value").unwrap(), v);
            }
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn varints_are_split_from_the_bytes_after_them(value: u64, shift in 0..64_u32, after: [u8; 8]) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(split_varint(&bytes), Some((value, &[][..])));
            bytes.extend(after);
            prop_assert_eq!(split_varint(&bytes), Some((value, &after[..])));
        }

        #[test]
        fn signs_round_trip(value: i64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn any_bytes_decode_or_fail_but_never_panic(bytes: Vec<u8>) {
            let mut decoder = Decoder::new(&bytes);
            while decoder.bytes("piece").is_ok() && !decoder.is_empty() {}
            let _ = Decoder::new(&bytes).str("text");
        }
    }

    #[test]
    fn an_overlong_varint_is_refused_where_it_starts() {
        let mut bytes = vec![7];
        bytes.extend_from_slice(&[0xff; 9]);
        bytes.push(2);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(decoder.varint("seq").unwrap(), 7);
        assert_eq!(decoder.varint("seq"), Err(DecodeError { what: "seq", offset: 1 }));
    }

    #[test]
    fn a_cut_varint_is_refused_where_it_ends() {
        let mut decoder = Decoder::new(&[7, 0x80, 0x80]);
        assert_eq!(decoder.varint("seq").unwrap(), 7);
        assert_eq!(decoder.varint("seq"), Err(DecodeError { what: "seq", offset: 3 }));
        assert_eq!((split_varint(&[]), split_varint(&[0x80]), split_varint(&[0xff; 12])), (None, None, None));
    }

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        put_varint(&mut out, 300);
        put_u32(&mut out, 1);
        put_bytes(&mut out, b"ab");
        assert_eq!(out, [0xac, 0x02, 1, 0, 0, 0, 2, b'a', b'b']);
    }
}
