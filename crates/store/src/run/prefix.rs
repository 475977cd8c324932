//! The bytes that many keys share, compared as one number when they are few.

use std::cmp::Ordering;

use crate::run::block::head;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    bytes: Vec<u8>,
    head: u64,
}

impl Prefix {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), head: head(bytes) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Shortens the prefix to the part that `key` shares.
    pub(crate) fn shorten(&mut self, key: &[u8]) {
        *self = Self::new(key.get(..crate::run::block::shared(&self.bytes, key)).unwrap_or_default());
    }

    /// The part of `key` after the prefix; or, if the key has another prefix, its order relative to all keys
    /// with this one.
    #[inline]
    pub(crate) fn cut<'k>(&self, key: &'k [u8]) -> Result<&'k [u8], Ordering> {
        let len = self.bytes.len();
        if len == 0 {
            return Ok(key);
        }
        let same = match key.first_chunk::<8>() {
            Some(front) if len <= 8 => (u64::from_be_bytes(*front) ^ self.head) >> (64 - 8 * len as u32) == 0,
            _ => key.starts_with(&self.bytes),
        };
        match key.get(len..) {
            Some(rest) if same => Ok(rest),
            _ => Err(key.cmp(&self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cut_is_a_strip_or_an_order(prefix in proptest::collection::vec(0..2_u8, 0..11), key in proptest::collection::vec(0..2_u8, 0..14)) {
            let cut = Prefix::new(&prefix).cut(&key);
            match key.strip_prefix(prefix.as_slice()) {
                Some(rest) => prop_assert_eq!(cut, Ok(rest)),
                None => prop_assert_eq!(cut, Err(key.cmp(&prefix))),
            }
        }
    }
}
