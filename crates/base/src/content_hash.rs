//! Hash of a set of items: the sum of the hashes of the items, whatever their order.
//!
//! ```text
//! item: its parts, each after its length u32 ─▶ XXH3-128 ─▶ added modulo 2^128
//! ```
//! Finds accidental differences. It is no defence against chosen items.

use core::fmt;

use crate::{from_hex, put_u32};

/// Larger buffers are not retained between two items.
const ITEM_BYTES_RETAINED: usize = 1 << 20;

/// Hash of a set of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// The hash of the items of both sets.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// The hash of the items of this set without those of a subset.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        Self(self.0.wrapping_sub(part.0))
    }

    /// Reads the 32 hexadecimal digits that [`fmt::Display`] writes; `None` for any other text.
    pub fn parse(digits: &str) -> Option<Self> {
        Some(Self(u128::from_be_bytes(from_hex(digits)?.try_into().ok()?)))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Computes a [`ContentHash`], item by item.
#[derive(Debug, Clone, Default)]
pub struct SetHasher {
    sum: ContentHash,
    bytes: u64,
    item: Vec<u8>,
}

impl SetHasher {
    /// Continues a set that has this hash.
    pub fn new(sum: ContentHash) -> Self {
        Self { sum, ..Self::default() }
    }

    /// Adds the item with these parts.
    pub fn add<'p>(&mut self, parts: impl IntoIterator<Item = &'p [u8]>) {
        self.item.clear();
        for part in parts {
            // Longer parts than 4 GiB do not exist; their lengths only keep the parts of an item apart.
            put_u32(&mut self.item, part.len() as u32);
            self.item.extend_from_slice(part);
        }
        self.bytes += self.item.len() as u64;
        self.sum = self.sum.plus(ContentHash(xxhash_rust::xxh3::xxh3_128(&self.item)));
        if self.item.capacity() > ITEM_BYTES_RETAINED {
            self.item = Vec::new();
        }
    }

    /// The hash of the items so far.
    pub fn hash(&self) -> ContentHash {
        self.sum
    }

    /// Replaces the hash of the items so far.
    pub fn set_hash(&mut self, sum: ContentHash) {
        self.sum = sum;
    }

    /// Bytes that were hashed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(items: &[&[&[u8]]]) -> ContentHash {
        let mut hasher = SetHasher::default();
        items.iter().for_each(|item| hasher.add(item.iter().copied()));
        hasher.hash()
    }

    #[test]
    fn order_of_items_does_not_matter_and_everything_else_does() {
        let set = hash(&[&[b"a", b"1"], &[b"b", b"2"]]);
        assert_eq!(set, hash(&[&[b"b", b"2"], &[b"a", b"1"]]));
        let others: [&[&[&[u8]]]; 5] = [
            &[&[b"a", b"1"]],
            &[&[b"a", b"1"], &[b"b", b"3"]],
            &[&[b"a1", b""], &[b"b", b"2"]],
            &[&[b"a", b"2"], &[b"b", b"1"]],
            &[&[b"a", b"1"], &[b"b", b"2"], &[]],
        ];
        for other in others {
            assert_ne!(set, hash(other), "{other:?}");
        }
    }

    #[test]
    fn sets_are_added_and_subtracted() {
        let (a, b) = (hash(&[&[b"a"]]), hash(&[&[b"b"]]));
        assert_eq!(a.plus(b), hash(&[&[b"a"], &[b"b"]]));
        assert_eq!(a.plus(b).minus(a), b);
        let mut continued = SetHasher::new(a);
        continued.add([&b"b"[..]]);
        assert_eq!((continued.hash(), continued.bytes()), (a.plus(b), 5));
    }

    #[test]
    fn hash_of_an_item_never_changes() {
        let text = hash(&[&[b"a", b"bc"]]).to_string();
        assert_eq!(ContentHash::parse(&text), Some(hash(&[&[b"a", b"bc"]])));
        assert_eq!(text, "6e496efc8f77eebc83650241d6affe03");
        assert_eq!((ContentHash::parse("0"), ContentHash::parse(&"x".repeat(32))), (None, None));
    }
}
