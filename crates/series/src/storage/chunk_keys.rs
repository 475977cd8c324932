//! Chunks in runs: their keys, and the scan over one series.
//!
//! ```text
//! keyspace `series`, key of 28 bytes, big-endian:
//! store u32 │ partition i64, sign flipped │ series u32 │ kind and start u32 │ commit u64
//! partition        day of the first sample: ⌊time / 86 400 000⌋; a chunk never leaves its partition
//! kind and start   0x8000_0000 for samples with payloads │ milliseconds from the beginning of the partition to the first sample
//! commit           the last one whose samples are in the chunk: tells chunks apart, and which of two samples is the later
//!
//! value            a chunk (see `chunk`), or one with payloads (see `payload_chunk`)
//!
//! store │ partition │ zeros → bounds of the partition's chunks (see `partition_bounds`); no series is 0
//! ```
//! Old partitions are dropped by one range of keys; reading a series within a partition is one short scan.

use ropewalk_base::{DecodeError, Decoder, Seq, hex};
use ropewalk_engine::Cursor;

use crate::error::{Result, SeriesError};

/// Milliseconds of a partition: a day.
pub const PARTITION_MS: i64 = 86_400_000;

const KEY_BYTES: usize = 28;
const RICH: u32 = 1 << 31;

/// The partition of a time.
#[inline]
pub(crate) fn partition_of(time: i64) -> i64 {
    time.div_euclid(PARTITION_MS)
}

/// Base of the times of a partition's chunks. Wraps at the ends of time, as adding to it does.
pub(crate) fn base_of(partition: i64) -> i64 {
    partition.wrapping_mul(PARTITION_MS)
}

/// A key of the keyspace `series`, without the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkKey {
    pub(crate) partition: i64,
    pub(crate) id: u32,
    pub(crate) rich: bool,
    pub(crate) start: u32,
    pub(crate) seq: Seq,
}

pub(crate) type KeyBytes = [u8; KEY_BYTES];

fn put_key(store: u32, partition: i64, id: u32, start: u32, seq: u64) -> KeyBytes {
    let mut key = [0; KEY_BYTES];
    let partition = (partition as u64) ^ (1 << 63);
    let high = |word: u64| (word >> 32) as u32;
    let words = [store, high(partition), partition as u32, id, start, high(seq), seq as u32];
    for (to, word) in key.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_be_bytes();
    }
    key
}

/// The first key of a series within a partition.
pub(crate) fn series_start(store: u32, partition: i64, id: u32) -> KeyBytes {
    put_key(store, partition, id, 0, 0)
}

/// The key of the bounds of a partition's chunks: the first of the partition.
pub(crate) fn bounds_key(store: u32, partition: i64) -> KeyBytes {
    series_start(store, partition, 0)
}

impl ChunkKey {
    /// True for the key of a partition's bounds, which is not a chunk's.
    pub(crate) fn is_of_bounds(&self) -> bool {
        self.id == 0
    }

    /// The key of a chunk that begins at `first`.
    pub(crate) fn at(first: i64, id: u32, rich: bool, seq: Seq) -> Self {
        let start = first.rem_euclid(PARTITION_MS) as u32;
        Self { partition: partition_of(first), id, rich, start, seq }
    }

    /// Time of the first sample.
    pub(crate) fn first(&self) -> i64 {
        base_of(self.partition).wrapping_add(i64::from(self.start))
    }

    /// Base of the times in the value.
    pub(crate) fn base(&self) -> i64 {
        if self.rich { base_of(self.partition) } else { self.first() }
    }

    pub(crate) fn encode(&self, store: u32) -> KeyBytes {
        debug_assert!(i64::from(self.start) < PARTITION_MS, "a chunk begins in its partition");
        let start = self.start | if self.rich { RICH } else { 0 };
        put_key(store, self.partition, self.id, start, self.seq.0)
    }

    /// Store and key.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(u32, Self), DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut word = || decoder.array("chunk key").map(u32::from_be_bytes);
        let (store, high, low, id, start, seq_high, seq_low) =
            (word()?, word()?, word()?, word()?, word()?, word()?, word()?);
        let partition = ((u64::from(high) << 32 | u64::from(low)) ^ (1 << 63)) as i64;
        let seq = Seq(u64::from(seq_high) << 32 | u64::from(seq_low));
        let (rich, start) = (start & RICH != 0, start & !RICH);
        if !decoder.is_empty() || i64::from(start) >= PARTITION_MS {
            return Err(DecodeError { what: "a chunk key", offset: 0 });
        }
        Ok((store, Self { partition, id, rich, start, seq }))
    }
}

/// An error for a damaged stored chunk.
pub(crate) fn damaged(key: &[u8], error: &DecodeError) -> SeriesError {
    SeriesError::Damaged { place: format!("chunk {}", hex(key)), what: error.to_string() }
}

/// The partitions between two others, inclusive, in which a store has chunks. Cost: one search each.
pub(crate) fn partitions(cursor: &mut Cursor<'_>, store: u32, first: i64, last: i64) -> Result<Vec<i64>> {
    let mut found = Vec::new();
    let mut next = first;
    while next <= last {
        cursor.seek(&series_start(store, next, 0))?;
        if !cursor.valid() {
            break;
        }
        let (of, key) = ChunkKey::decode(cursor.key()).map_err(|e| damaged(cursor.key(), &e))?;
        if of != store || key.partition > last {
            break;
        }
        found.push(key.partition);
        let Some(after) = key.partition.checked_add(1) else { break };
        next = after;
    }
    Ok(found)
}

/// Passes the chunks of one series within one partition to the callback, in the order of their keys.
pub(crate) fn each_chunk(
    cursor: &mut Cursor<'_>,
    store: u32,
    partition: i64,
    id: u32,
    each: impl FnMut(ChunkKey, Seq, &[u8]) -> Result<()>,
) -> Result<()> {
    each_chunk_between(cursor, store, partition, id, (i64::MIN, i64::MAX), each)
}

/// As [`each_chunk`], but only floats that begin between two times, inclusive.
pub(crate) fn each_chunk_between(
    cursor: &mut Cursor<'_>,
    store: u32,
    partition: i64,
    id: u32,
    (since, until): (i64, i64),
    mut each: impl FnMut(ChunkKey, Seq, &[u8]) -> Result<()>,
) -> Result<()> {
    // Without a bound `since` is the least time.
    let since = since.saturating_sub(base_of(partition)).clamp(0, PARTITION_MS) as u32;
    let start = put_key(store, partition, id, since, 0);
    let (prefix, _) = start.split_at(16);
    if cursor.valid() && cursor.key().starts_with(prefix) && cursor.key() < start.as_slice() {
        // A step is less work than a search.
        cursor.next()?;
    }
    if !cursor.valid() || cursor.key() < start.as_slice() || !cursor.key().starts_with(prefix) {
        cursor.seek(&start)?;
    }
    while cursor.valid() && cursor.key().starts_with(prefix) {
        let (_, key) = ChunkKey::decode(cursor.key()).map_err(|e| damaged(cursor.key(), &e))?;
        if !key.rich && key.first() > until {
            cursor.seek(&put_key(store, partition, id, RICH, 0))?;
            continue;
        }
        each(key, cursor.seq(), cursor.value())?;
        cursor.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_keys() {
        let key = ChunkKey::at(-1, 5, true, Seq(9));
        assert_eq!(hex(&key.encode(1)), "000000017fffffffffffffff0000000585265bff0000000000000009");
        let key = ChunkKey::at(PARTITION_MS + 3, 5, false, Seq(9));
        assert_eq!(hex(&key.encode(1)), "00000001800000000000000100000005000000030000000000000009");
    }

    proptest! {
        #[test]
        fn keys_round_trip_and_keep_their_order(
            a in (any::<i64>(), any::<u32>(), any::<bool>(), any::<u64>()),
            b in (any::<i64>(), any::<u32>(), any::<bool>(), any::<u64>()),
        ) {
            let key = |(first, id, rich, seq)| ChunkKey::at(first, id, rich, Seq(seq));
            prop_assert_eq!(key(a).first(), a.0);
            prop_assert_eq!(ChunkKey::decode(&key(a).encode(7)).unwrap(), (7, key(a)));
            prop_assert_eq!(key(a).cmp(&key(b)), key(a).encode(7).cmp(&key(b).encode(7)));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let _ = ChunkKey::decode(&bytes);
        }
    }
}
