//! The block: some forty entries in 4 KiB, searched without decoding.
//!
//! ```text
//! Block, little-endian                              valid when: crc matches (checked on first touch)
//! ┌────────────┬─────┬─────────┬───────────────────────────────────────────────────────────────────┐
//! │ 0          │ 4   │ crc     │ CRC-32C of bytes 4 .. end of the block, padding included           │
//! │ 4          │ 4   │ count   │ entries n, ≥ 1                                                     │
//! │ 8          │ 4   │ shared  │ p: leading bytes that all keys of the block have in common         │
//! │ 12         │ 1   │ flags   │ 1 wide offsets, 2 some key has several versions here,              │
//! │            │     │         │ 4 the last key continues in the next block, 8 the first began      │
//! │            │     │         │ in the previous block                                              │
//! │ 13         │ 1   │ rest    │ bytes every key has after the shared ones; 255: they differ        │
//! │ 14         │ 1   │ width   │ w: bytes per version, 0 1 2 4 8; 255: no base, all versions zero   │
//! │ 15         │ 1   │ -       │ 0                                                                  │
//! │ 16         │ 0 8 │ base    │ smallest version (left out when width = 255)                       │
//! │            │ p   │ prefix  │ the shared bytes                                                   │
//! │            │ 8n  │ heads   │ next 8 bytes of each key, zero-padded, as a number (so: reversed)   │
//! │            │ wn  │ seqs    │ version - base                                                     │
//! │            │ 2n  │ ends    │ end of the entry's data from byte 0 of the block; top bit:         │
//! │            │ 4n  │         │ tombstone. The first entry's data starts where this list ends      │
//! │            │     │ data    │ per entry: [varint rest, when 255] [key bytes after head] [value]  │
//! │            │     │ zeros   │ up to the block size                                               │
//! └─offset─────┴─size┴─field───┴─meaning───────────────────────────────────────────────────────────┘
//! ```
//!
//! Order: key ascending, version descending. The heads decide nearly every comparison: they are counted, not bisected,
//! so that their cache lines load at the same time. Equal heads are settled by the rest of the key.

use std::cmp::{Ordering, Reverse};

use ropewalk_base::{Decoder, Seq, crc32c};

use crate::run::fences::Spot;
use crate::run::search::{count_before, count_near};

pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes that a key and its value may have together: 1 GiB, which keeps every offset of a block below 2^31.
pub const ENTRY_BYTES_MAX: u64 = 1 << 30;

pub(crate) const WIDE: u8 = 1;
pub(crate) const VERSIONS: u8 = 2;
pub(crate) const CONTINUES: u8 = 4;
pub(crate) const CONTINUED: u8 = 8;
pub(crate) const REST_DIFFERS: u8 = 255;
pub(crate) const NO_SEQS: u8 = 255;
pub(crate) const NARROW_MAX: usize = 0x7fff;

/// The first 8 bytes of `bytes`, zero-padded, as a number that compares like the bytes.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    bytes.iter().enumerate().fold(0, |sum, (i, &b)| sum | u64::from(b) << (56 - 8 * i))
}

/// Number of leading bytes that `a` and `b` have in common.
pub(crate) fn shared(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Offsets of the parts of a block. Computed once per visit from the header; every access is checked against
/// the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) count: usize,
    flags: u8,
    rest: u8,
    width: u8,
    base: u64,
    prefix_at: usize,
    heads_at: usize,
    seqs_at: usize,
    ends_at: usize,
    data_at: usize,
}

/// The bytes of a block and the offsets of its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'b> {
    bytes: &'b [u8],
    layout: Layout,
}

/// Description of the damage in a block.
pub(crate) type Damage = &'static str;

impl Layout {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or("block header")?;
        let [_, _, _, _, c0, c1, c2, c3, p0, p1, p2, p3, flags, rest, width, _] = *header;
        let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        let prefix_len = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        let (base, prefix_at, seq_bytes) = if width == NO_SEQS {
            (0, HEADER_BYTES, 0)
        } else {
            let base = bytes.get(HEADER_BYTES..).and_then(|b| b.first_chunk::<8>()).ok_or("base version")?;
            (u64::from_le_bytes(*base), HEADER_BYTES + 8, usize::from(width))
        };
        let end_bytes = if flags & WIDE == 0 { 2 } else { 4 };
        // 32-bit counts times at most 20 bytes cannot overflow 64 bits.
        let heads_at = prefix_at + prefix_len;
        let seqs_at = heads_at + 8 * count;
        let ends_at = seqs_at + seq_bytes * count;
        let data_at = ends_at + end_bytes * count;
        if count == 0 || data_at > bytes.len() || !matches!(width, 0 | 1 | 2 | 4 | 8 | NO_SEQS) {
            return Err("plausible block header");
        }
        Ok(Self { count, flags, rest, width, base, prefix_at, heads_at, seqs_at, ends_at, data_at })
    }

    /// True when every entry of the block is the only version of its key in the run.
    #[inline]
    pub(crate) fn single_versions(&self) -> bool {
        self.flags & (VERSIONS | CONTINUES | CONTINUED) == 0
    }

    /// True when the next block starts with the last key of this one.
    #[inline]
    pub(crate) fn continues(&self) -> bool {
        self.flags & CONTINUES != 0
    }
}

impl<'b> Block<'b> {
    #[inline]
    pub(crate) fn parse(bytes: &'b [u8]) -> Result<Self, Damage> {
        Ok(Self { bytes, layout: Layout::parse(bytes)? })
    }

    /// For bytes whose layout is known already.
    #[inline]
    pub(crate) fn with_layout(bytes: &'b [u8], layout: Layout) -> Self {
        Self { bytes, layout }
    }

    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline]
    fn prefix(&self) -> &'b [u8] {
        self.bytes.get(self.layout.prefix_at..self.layout.heads_at).unwrap_or_default()
    }

    #[inline]
    fn heads(&self) -> &'b [[u8; 8]] {
        self.bytes.get(self.layout.heads_at..self.layout.seqs_at).unwrap_or_default().as_chunks().0
    }

    #[inline]
    pub(crate) fn head_at(&self, index: usize) -> u64 {
        self.heads().get(index).map_or(0, |h| u64::from_le_bytes(*h))
    }

    #[inline]
    pub(crate) fn seq(&self, index: usize) -> Seq {
        let layout = &self.layout;
        let width = usize::from(layout.width);
        if matches!(layout.width, 0 | NO_SEQS) {
            return Seq(layout.base);
        }
        let at = layout.seqs_at + width * index;
        let bytes = self.bytes.get(at..at + width).unwrap_or_default();
        let delta = bytes.iter().rev().fold(0_u64, |sum, &b| sum << 8 | u64::from(b));
        Seq(layout.base.wrapping_add(delta))
    }

    /// End of the data of `index`, and whether it is a tombstone.
    #[inline]
    fn end(&self, index: usize) -> Option<(usize, bool)> {
        if self.layout.flags & WIDE == 0 {
            let at = self.layout.ends_at + 2 * index;
            let raw = u16::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
            Some((usize::from(raw & 0x7fff), raw >> 15 == 1))
        } else {
            let at = self.layout.ends_at + 4 * index;
            let raw = u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
            Some(((raw & 0x7fff_ffff) as usize, raw >> 31 == 1))
        }
    }

    /// The bytes of the key after the head, how many bytes the key has after the prefix, where the value lies, and
    /// whether it is a tombstone.
    #[inline]
    fn entry(&self, index: usize) -> Result<EntryParts<'b>, Damage> {
        const WRONG: Damage = "entry inside its block";
        let start = match index.checked_sub(1) {
            None => self.layout.data_at,
            Some(before) => self.end(before).ok_or(WRONG)?.0,
        };
        let (end, tombstone) = self.end(index).ok_or(WRONG)?;
        let data = self.bytes.get(start..end).ok_or(WRONG)?;
        let (rest, after) = if self.layout.rest == REST_DIFFERS {
            let mut decoder = Decoder::new(data);
            let rest = decoder.varint("key length").map_err(|_| WRONG)?;
            (usize::try_from(rest).map_err(|_| WRONG)?, decoder.rest())
        } else {
            (usize::from(self.layout.rest), data)
        };
        let (tail, value) = after.split_at_checked(rest.saturating_sub(8)).ok_or(WRONG)?;
        Ok(EntryParts { tail, rest, value_at: end - value.len(), value_len: value.len(), tombstone })
    }

    /// Where the value of `index` lies in the block; `None` for a tombstone.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Result<Option<(usize, usize)>, Damage> {
        let parts = self.entry(index)?;
        Ok((!parts.tombstone).then_some((parts.value_at, parts.value_len)))
    }

    /// Replaces `out` by the key of `index`. Returns where the value lies, as [`Block::value`].
    #[inline]
    pub(crate) fn read(&self, index: usize, out: &mut Vec<u8>) -> Result<Option<(usize, usize)>, Damage> {
        let parts = self.entry(index)?;
        out.clear();
        out.extend_from_slice(self.prefix());
        let head = self.head_at(index).to_be_bytes();
        out.extend_from_slice(head.get(..parts.rest.min(8)).unwrap_or_default());
        out.extend_from_slice(parts.tail);
        Ok((!parts.tombstone).then_some((parts.value_at, parts.value_len)))
    }

    /// As [`Block::read`], when `out` holds the key of another entry of this block.
    #[inline]
    pub(crate) fn read_next(
        &self,
        index: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, usize)>, Damage> {
        let parts = self.entry(index)?;
        out.truncate(self.layout.heads_at - self.layout.prefix_at);
        let head = self.head_at(index).to_be_bytes();
        out.extend_from_slice(head.get(..parts.rest.min(8)).unwrap_or_default());
        out.extend_from_slice(parts.tail);
        Ok((!parts.tombstone).then_some((parts.value_at, parts.value_len)))
    }

    /// Index of the first entry at or after (`key`, `at`) in the order key ascending, version descending; and whether
    /// it has that key.
    #[inline]
    pub(crate) fn search(&self, key: &[u8], at: Seq) -> Result<(usize, bool), Damage> {
        self.search_by(key, at, |heads, target| count_before(heads, |h| u64::from_le_bytes(*h) < target))
    }

    /// As [`Block::search`], when the result is likely to be near `spot`.
    #[inline]
    pub(crate) fn search_near(&self, key: &[u8], at: Seq, spot: Spot) -> Result<(usize, bool), Damage> {
        let guess = spot.of(self.layout.count);
        self.search_by(key, at, |heads, target| count_near(heads, guess, |h| u64::from_le_bytes(*h) < target))
    }

    #[inline]
    fn search_by(
        &self,
        key: &[u8],
        at: Seq,
        count: impl FnOnce(&[[u8; 8]], u64) -> usize,
    ) -> Result<(usize, bool), Damage> {
        let (order, rest) = self.order_by_prefix(key);
        match order {
            Ordering::Equal => {}
            Ordering::Less => return Ok((0, false)),
            Ordering::Greater => return Ok((self.layout.count, false)),
        }
        let target = head(rest);
        let heads = self.heads();
        let low = count(heads, target);
        match heads.get(low) {
            Some(head) if u64::from_le_bytes(*head) == target => self.settle(rest, target, at, low),
            _ => Ok((low, false)),
        }
    }

    /// Order of `key` relative to keys with the prefix of the block (Equal: it has it), and the rest of `key`
    /// after the prefix.
    #[inline]
    fn order_by_prefix<'k>(&self, key: &'k [u8]) -> (Ordering, &'k [u8]) {
        let len = self.layout.heads_at - self.layout.prefix_at;
        let bytes = self.bytes.get(self.layout.prefix_at..).unwrap_or_default();
        if let (1..=8, Some(front), Some(prefix)) = (len, key.first_chunk::<8>(), bytes.first_chunk::<8>()) {
            // Most prefixes are short: compare them as numbers.
            let shift = 64 - 8 * len as u32;
            let order = (u64::from_be_bytes(*front) >> shift).cmp(&(u64::from_be_bytes(*prefix) >> shift));
            return (order, key.get(len..).unwrap_or_default());
        }
        let prefix = self.prefix();
        match key.split_at_checked(prefix.len()) {
            Some((front, rest)) => (front.cmp(prefix), rest),
            None if key < prefix => (Ordering::Less, &[]),
            None => (Ordering::Greater, &[]),
        }
    }

    /// Orders `rest` among the entries from `low` on whose head is `target`.
    #[inline]
    fn settle(&self, rest: &[u8], target: u64, at: Seq, low: usize) -> Result<(usize, bool), Damage> {
        let heads = self.heads();
        let tail = rest.get(8..).unwrap_or_default();
        let order = |index: usize| -> Result<(Ordering, Ordering), Damage> {
            let parts = self.entry(index)?;
            let by_tail =
                if tail.is_empty() && parts.tail.is_empty() { Ordering::Equal } else { parts.tail.cmp(tail) };
            let by_key = by_tail.then(parts.rest.cmp(&rest.len()));
            Ok((by_key, by_key.then_with(|| Reverse(self.seq(index)).cmp(&Reverse(at)))))
        };
        // Usually the first candidate decides.
        let (by_key, by_all) = order(low)?;
        if by_all != Ordering::Less {
            return Ok((low, by_key == Ordering::Equal));
        }
        let mut low = low + 1;
        let equal = heads.get(low..).unwrap_or_default();
        let mut high = low + equal.partition_point(|h| u64::from_le_bytes(*h) <= target);
        let mut found = false;
        while low < high {
            let middle = low + (high - low) / 2;
            let (by_key, by_all) = order(middle)?;
            if by_all == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
                found = by_key == Ordering::Equal;
            }
        }
        Ok((low, found))
    }

    /// Checks everything that a reader relies on: bounds of every entry, order, flags. For `verify`.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        let (mut before, mut key) = (Vec::new(), Vec::new());
        let mut versions = false;
        for index in 0..self.layout.count {
            self.read(index, &mut key)?;
            if index > 0 {
                match before.cmp(&key) {
                    Ordering::Less => {}
                    Ordering::Equal if self.seq(index - 1) > self.seq(index) => versions = true,
                    _ => return Err("entries in order"),
                }
            }
            std::mem::swap(&mut before, &mut key);
        }
        if versions && self.layout.flags & VERSIONS == 0 {
            return Err("flag for several versions of a key");
        }
        Ok(())
    }
}

struct EntryParts<'b> {
    tail: &'b [u8],
    rest: usize,
    value_at: usize,
    value_len: usize,
    tombstone: bool,
}

/// Checks the checksum of a stored block.
pub(crate) fn crc_matches(bytes: &[u8]) -> bool {
    bytes.split_first_chunk::<4>().is_some_and(|(crc, rest)| crc32c(rest) == u32::from_le_bytes(*crc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::block_builder::BlockBuilder;
    use proptest::prelude::*;
    use ropewalk_base::hex;

    type Entries = [(Vec<u8>, u64, Option<Vec<u8>>)];

    fn build(entries: &Entries) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        let mut out = Vec::new();
        for (key, seq, value) in entries {
            assert!(builder.try_push(key, Seq(*seq), value.as_deref(), usize::MAX));
        }
        builder.finish(false, 64, &mut out);
        out
    }

    #[test]
    fn golden_bytes_without_versions() {
        let mut builder = BlockBuilder::default();
        builder.try_push(b"key-a", Seq(0), Some(b"one"), 4096);
        builder.try_push(b"key-b", Seq(0), None, 4096);
        let mut out = Vec::new();
        builder.finish(true, 64, &mut out);
        assert!(crc_matches(&out));
        let expected = [
            "02000000",         // count
            "04000000",         // shared
            "04",               // the last key continues
            "01",               // every key has one more byte
            "ff00",             // no versions
            "6b65792d",         // "key-"
            "0000000000000061", // head "a"
            "0000000000000062", // head "b"
            "2b00",
            "2b80",   // ends: 43, 43 with the tombstone bit
            "6f6e65", // "one"
        ];
        assert_eq!(hex(&out[4..43]), expected.concat());
        assert_eq!(&out[43..], [0; 21]);
    }

    #[test]
    fn golden_bytes_with_versions_and_tails() {
        let out = build(&[
            (b"0123456789".to_vec(), 300, Some(b"x".to_vec())),
            (b"0123456789".to_vec(), 7, Some(b"y".to_vec())),
            (b"01234567890".to_vec(), 8, Some(vec![])),
            (b"a".to_vec(), 9, Some(b"z".to_vec())),
        ]);
        let expected = [
            "04000000",
            "00000000",
            "02",
            "ff",
            "0200",
            "0700000000000000",
            "3736353433323130",
            "3736353433323130",
            "3736353433323130",
            "0000000000000061",
            "2501",
            "0000",
            "0100",
            "0200",
            "4c00",
            "5000",
            "5400",
            "5600",
            "0a3839",
            "78",
            "0a3839",
            "79",
            "0b383930",
            "01",
            "7a",
        ];
        assert_eq!(hex(&out[4..86]), expected.concat());
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(0..3_u8, 0..14),
            any::<u64>().prop_map(|k| k.to_be_bytes().to_vec()),
            (0..50_u64)
                .prop_map(|k| [b"a long prefix, shared by all ".as_slice(), &k.to_be_bytes()].concat()),
        ]
    }

    proptest! {
        #[test]
        fn block_equals_a_sorted_list(
            raw in proptest::collection::btree_map(
                (keys(), any::<u16>().prop_map(|s| Reverse(u64::from(s % 7) * 1000))),
                proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)), 1..60),
            probes in proptest::collection::vec((keys(), 0..7000_u64), 0..40),
            huge: bool,
        ) {
            let mut entries: Vec<_> = raw.into_iter().map(|((k, s), v)| (k, s.0, v)).collect();
            if huge {
                entries[0].2 = Some(vec![7; 40_000]);
            }
            let bytes = build(&entries);
            prop_assert!(crc_matches(&bytes));
            let block = Block::parse(&bytes).unwrap();
            block.check().unwrap();
            prop_assert_eq!(block.layout().count, entries.len());
            let mut key = Vec::new();
            for (i, (k, s, v)) in entries.iter().enumerate() {
                let value = block.read(i, &mut key).unwrap();
                prop_assert_eq!(&key, k);
                prop_assert_eq!(block.seq(i), Seq(*s));
                prop_assert_eq!(value.map(|(at, len)| bytes[at..at + len].to_vec()), v.clone());
                prop_assert_eq!(block.search(k, Seq(*s)).unwrap(), (i, true));
            }
            for (k, s) in &probes {
                let at = entries.partition_point(|e| (&e.0, Reverse(e.1)) < (k, Reverse(*s)));
                let found = entries.get(at).is_some_and(|e| e.0 == *k);
                prop_assert_eq!(block.search(k, Seq(*s)).unwrap(), (at, found));
            }
        }

        #[test]
        fn damaged_bytes_read_or_fail_but_never_panic(
            mut bytes in Just(build(&[
                (b"aa".to_vec(), 5, Some(b"one".to_vec())),
                (b"aa".to_vec(), 3, None),
                (b"ab and a tail that is long".to_vec(), 300, Some(b"two".to_vec())),
            ])),
            damage in proptest::collection::vec((0..128_usize, any::<u8>()), 1..4),
        ) {
            for (at, byte) in damage {
                let len = bytes.len();
                bytes[at % len] = byte;
            }
            if let Ok(block) = Block::parse(&bytes) {
                let mut key = Vec::new();
                for i in 0..block.layout().count.min(200) {
                    let _ = (block.read(i, &mut key), block.seq(i));
                }
                let _ = block.search(b"ab and a tail", Seq(9));
                let _ = block.check();
            }
        }
    }
}
