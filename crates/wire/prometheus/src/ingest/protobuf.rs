//! Zero-copy protobuf reader: a message is an iterator over its fields, a nested message is a slice.
//!
//!   bytes ─▶ Fields ─▶ (number, Value) … ─▶ Value::bytes ─▶ Fields …
//!
//! Nothing is copied or allocated, so that a request of a million labels does not allocate a million strings.
//! Unknown fields are skipped, as protobuf requires; groups, which no message here has, are rejected.
//! Source: the encoding page of the protobuf documentation.

use ropewalk::hooks::{put_varint, split_varint, unzigzag, zigzag};

/// The bytes are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The value of a field, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("a field that should hold bytes holds a number")),
        }
    }

    pub(crate) fn message(self) -> Result<Fields<'a>, Malformed> {
        self.bytes().map(Fields)
    }

    pub(crate) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    pub(crate) fn u64(self) -> Result<u64, Malformed> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(Malformed("a field that should hold an integer holds something else")),
        }
    }

    pub(crate) fn i64(self) -> Result<i64, Malformed> {
        self.u64().map(|value| value as i64)
    }

    /// A zigzag integer (`sint32`, `sint64`).
    pub(crate) fn signed(self) -> Result<i64, Malformed> {
        self.u64().map(unzigzag)
    }

    pub(crate) fn f64(self) -> Result<f64, Malformed> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(Malformed("a field that should hold a double holds something else")),
        }
    }

    pub(crate) fn fixed64(self) -> Result<u64, Malformed> {
        match self {
            Self::Fixed64(bits) => Ok(bits),
            _ => Err(Malformed("a field that should hold eight bytes holds something else")),
        }
    }

    /// Integers of a repeated field: packed, or one at a time.
    pub(crate) fn each_varint(self, mut take: impl FnMut(u64)) -> Result<(), Malformed> {
        match self {
            Self::Varint(value) => take(value),
            Self::Bytes(mut rest) => {
                while !rest.is_empty() {
                    take(varint(&mut rest)?);
                }
            }
            _ => return Err(Malformed("a list of integers holds something else")),
        }
        Ok(())
    }

    /// Eight-byte numbers of a repeated field: packed, or one at a time.
    pub(crate) fn each_fixed64(self, mut take: impl FnMut(u64)) -> Result<(), Malformed> {
        match self {
            Self::Fixed64(bits) => take(bits),
            Self::Bytes(bytes) => {
                let (chunks, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(Malformed("a packed list of doubles ends within one"));
                }
                chunks.iter().for_each(|chunk| take(u64::from_le_bytes(*chunk)));
            }
            _ => return Err(Malformed("a list of doubles holds something else")),
        }
        Ok(())
    }
}

/// The remaining fields of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field: its number and value. `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number != 0);
        let number = number.ok_or(Malformed("a field number is 0 or too large"))?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).unwrap_or(usize::MAX);
                let cut = Malformed("a field is longer than its message");
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(cut)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(Malformed("a group, or a wire type that does not exist")),
        };
        Ok(Some((number, value)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed("a number is cut off"))?;
        self.0 = rest;
        Ok(*bytes)
    }
}

/// Reads one varint.
#[inline]
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let (value, rest) = split_varint(bytes).ok_or(Malformed("an integer is cut off or too long"))?;
    *bytes = rest;
    Ok(value)
}

/// Writes a field that holds an integer.
pub(crate) fn put_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Writes a field that holds a zigzag integer.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: u32, value: i64) {
    put_integer(out, number, zigzag(value));
}

/// Writes a field that holds a double.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Writes a field that holds bytes, a string or a message.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    ropewalk::hooks::put_bytes(out, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut message = Vec::new();
        put_integer(&mut message, 1, u64::MAX);
        put_signed(&mut message, 2, -3);
        put_double(&mut message, 3, -0.0);
        put_bytes(&mut message, 4, "ö".as_bytes());
        let mut fields = Fields(&message);
        let mut next = || fields.next().unwrap();
        assert_eq!(next(), Some((1, Value::Varint(u64::MAX))));
        assert_eq!(next().unwrap().1.signed(), Ok(-3));
        assert_eq!(next().unwrap().1.f64().unwrap().to_bits(), (-0.0_f64).to_bits());
        assert_eq!(next().unwrap().1.text(), Ok("ö"));
        assert_eq!(next(), None);
    }

    #[test]
    fn rejects_malformed_messages() {
        for bytes in [
            &b"\x80"[..],
            b"\x00",
            b"\x08",
            b"\x0a\x05ab",
            b"\x09\x01",
            b"\x0b",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(Fields(bytes).next().is_err(), "{bytes:?}");
        }
        assert!(Value::Bytes(b"1234567").each_fixed64(|_| ()).is_err());
        assert!(Value::Bytes(b"\x80").each_varint(|_| ()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut fields = Fields(&bytes);
            while let Ok(Some(_)) = fields.next() {}
        }
    }
}
