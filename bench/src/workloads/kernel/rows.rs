//! The key-value workload: rows of 8 + 100 bytes, sequential or random, and the lookups on them.
//!
//! All keys are even as numbers, so an odd key is a miss between existing keys. A key is a `u64` whose
//! big-endian bytes sort like the number; [`signed`] returns the `i64` of the same order for systems with
//! typed keys. Random keys are a bijection of 0, 1, 2, …: full range, no duplicates, no state.

use clap::ValueEnum;

use crate::harness::random::SplitMix;

/// Bytes of a value.
pub const VALUE_BYTES: usize = 100;
/// Bytes of a row: the raw size that disk figures are divided by.
pub const ROW_BYTES: u64 = 8 + VALUE_BYTES as u64;

const SIGN: u64 = 1 << 63;

/// Order of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Ascending.
    Seq,
    /// Random, over the full range.
    Rand,
}

impl Order {
    /// The name in row ids and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Order::Seq => "seq",
            Order::Rand => "rand",
        }
    }
}

/// A set of rows in insertion order.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Number of rows.
    pub count: u64,
    /// Order of insertion.
    pub order: Order,
}

impl Rows {
    /// Key of the `i`-th row.
    #[inline]
    pub fn key(self, i: u64) -> u64 {
        match self.order {
            Order::Seq => (2 * i) ^ SIGN,
            Order::Rand => scramble(i) << 1,
        }
    }

    /// All rows in insertion order.
    pub fn iter(self) -> impl Iterator<Item = (u64, [u8; VALUE_BYTES])> {
        (0..self.count).map(move |i| {
            let key = self.key(i);
            (key, value(key))
        })
    }

    /// `n` keys that exist, uniformly drawn.
    pub fn hits(self, n: usize, seed: u64) -> Vec<u64> {
        let mut random = SplitMix::new(seed);
        (0..n).map(|_| self.key(random.below(self.count))).collect()
    }

    /// `n` keys inside the range that do not exist.
    pub fn misses(self, n: usize, seed: u64) -> Vec<u64> {
        let mut random = SplitMix::new(seed);
        let mut one = || match self.order {
            Order::Seq => self.key(random.below(self.count)) | 1,
            Order::Rand => random.next_u64() | 1,
        };
        (0..n).map(|_| one()).collect()
    }
}

/// The value that belongs to a key: 100 incompressible bytes.
#[inline]
pub fn value(key: u64) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    SplitMix::new(key).fill(&mut bytes);
    bytes
}

/// The signed number that sorts as the key's bytes do.
#[inline]
pub fn signed(key: u64) -> i64 {
    (key ^ SIGN).cast_signed()
}

/// The key of a signed number; undoes [`signed`].
#[inline]
pub fn unsigned(number: i64) -> u64 {
    number.cast_unsigned() ^ SIGN
}

/// A bijection of the 63-bit numbers that looks random: odd multiplications and xor-shifts, each of which can be undone.
#[inline]
pub fn scramble(i: u64) -> u64 {
    const MASK: u64 = SIGN - 1;
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & MASK;
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & MASK;
    x ^= x >> 29;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb) & MASK;
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_even_and_misses_are_not_among_them() {
        for order in [Order::Seq, Order::Rand] {
            let rows = Rows { count: 50_000, order };
            let keys: HashSet<u64> = (0..rows.count).map(|i| rows.key(i)).collect();
            assert_eq!(keys.len(), 50_000);
            assert!(rows.hits(1000, 1).iter().all(|k| keys.contains(k)));
            assert!(rows.misses(1000, 2).iter().all(|k| !keys.contains(k)));
        }
    }

    #[test]
    fn signed_numbers_sort_as_the_bytes_do() {
        let rows = Rows { count: 1000, order: Order::Rand };
        let mut keys: Vec<u64> = (0..rows.count).map(|i| rows.key(i)).collect();
        keys.sort_unstable();
        assert!(keys.is_sorted_by_key(|&k| signed(k)));
        assert!(keys.iter().all(|&k| unsigned(signed(k)) == k));
        assert_eq!(signed(Rows { count: 9, order: Order::Seq }.key(3)), 6);
    }

    /// The inputs are part of every published figure: they never change silently.
    #[test]
    fn inputs_are_pinned() {
        let rows = Rows { count: 3, order: Order::Rand };
        let keys: Vec<String> = (0..3).map(|i| format!("{:016x}", rows.key(i))).collect();
        assert_eq!(keys, ["0000000000000000", "111bbc4b25aa1b6e", "88487ddb73c7fce8"]);
    }
}
