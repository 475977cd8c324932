//! The end of a run: the data that a reader holds in memory, found from the last bytes of the file.
//!
//! ```text
//! Run                                                        Trailer, 36 bytes, little-endian
//! ┌─────────┬─────────┬───┬────────┬─────────┐               ┌────┬───┬────────────┬──────────────────────────┐
//! │ block 0 │ block 1 │ … │ footer │ trailer │               │ 0  │ 8 │ footer_at  │ offset of the footer     │
//! └─────────┴─────────┴───┴────────┴─────────┘               │ 8  │ 8 │ footer_len │ bytes                    │
//!                                                            │ 16 │ 4 │ footer_crc │ CRC-32C of the footer    │
//! Footer: see `Footer::encode` and docs/format/run.md        │ 20 │ 4 │ crc        │ CRC-32C of bytes 0 .. 20 │
//!                                                            │ 24 │ 4 │ version    │ 1                        │
//!                                                            │ 28 │ 8 │ magic      │ "ROPE-RUN"               │
//!                                                            └────┴───┴────────────┴──────────────────────────┘
//! ```

use ropewalk_base::{DecodeError, Decoder, Seq, crc32c, put_bytes, put_u32, put_u64, put_varint};

use crate::options::{Keyspace, KeyspaceOptions};
use crate::run::fences::Fences;
use crate::run::filter::Filter;
use crate::run::range_tombstones::RangeSet;

pub(crate) const TRAILER_BYTES: usize = 36;
pub(crate) const MAGIC: [u8; 8] = *b"ROPE-RUN";
pub(crate) const VERSION: u32 = 1;

/// Everything about a run but its blocks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Footer {
    pub(crate) keyspace: Keyspace,
    pub(crate) options: KeyspaceOptions,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// Entries that a newer version in the same run hides.
    pub(crate) superseded: u64,
    /// Bytes of keys and values.
    pub(crate) raw_bytes: u64,
    pub(crate) min_seq: Seq,
    pub(crate) max_seq: Seq,
    pub(crate) min_key: Vec<u8>,
    pub(crate) max_key: Vec<u8>,
    pub(crate) ranges: RangeSet,
    pub(crate) fences: Fences,
    /// Start of every block and the end of the last; `None` when block `i` starts at `i * block_bytes`.
    pub(crate) offsets: Option<Vec<u64>>,
    pub(crate) filter: Option<Filter>,
}

impl Footer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.keyspace.0));
        self.options.encode(out);
        let numbers =
            [self.entries, self.tombstones, self.superseded, self.raw_bytes, self.min_seq.0, self.max_seq.0];
        for number in numbers {
            put_varint(out, number);
        }
        put_bytes(out, &self.min_key);
        put_bytes(out, &self.max_key);
        self.ranges.encode(out);
        put_varint(out, self.fences.len() as u64);
        self.fences.encode(out);
        out.push(u8::from(self.offsets.is_some()));
        for &offset in self.offsets.iter().flatten() {
            put_u64(out, offset);
        }
        put_varint(out, self.filter.as_ref().map_or(0, |f| f.lines() as u64));
        if let Some(filter) = &self.filter {
            filter.encode(out);
        }
    }

    /// Reads a footer whose checksum matched; `footer_at` bounds the blocks.
    pub(crate) fn decode(bytes: &[u8], footer_at: u64) -> Result<Self, DecodeError> {
        let decoder = &mut Decoder::new(bytes);
        let keyspace = decoder.varint("keyspace")?;
        let keyspace =
            u16::try_from(keyspace).map_err(|_| DecodeError { what: "16-bit keyspace", offset: 0 })?;
        let options = KeyspaceOptions::decode(decoder)?;
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = decoder.varint("count of a run")?;
        }
        let [entries, tombstones, superseded, raw_bytes, min_seq, max_seq] = numbers;
        let min_key = decoder.bytes("first key")?.to_vec();
        let max_key = decoder.bytes("last key")?.to_vec();
        let ranges = RangeSet::decode(decoder)?;
        let blocks = decoder.varint("block count")? as usize;
        let fences = Fences::decode(blocks, (&min_key, &max_key), decoder)?;
        let offset = decoder.offset();
        let offsets = match decoder.u8("block offsets")? {
            0 => None,
            _ => {
                let bytes = decoder.take(blocks.saturating_add(1).saturating_mul(8), "block offsets")?;
                Some(bytes.as_chunks::<8>().0.iter().map(|o| u64::from_le_bytes(*o)).collect::<Vec<u64>>())
            }
        };
        let end = match &offsets {
            Some(offsets) if !offsets.is_sorted_by(|a, b| a < b) => None,
            Some(offsets) => offsets.last().copied(),
            None => (blocks as u64).checked_mul(u64::from(options.block_bytes)),
        };
        if end != Some(footer_at) || (entries == 0) != (blocks == 0) {
            return Err(DecodeError { what: "block offsets that end at the footer", offset });
        }
        let lines = decoder.varint("filter size")? as usize;
        let filter = if lines == 0 { None } else { Some(Filter::decode(lines, decoder)?) };
        if !decoder.is_empty() {
            return Err(DecodeError { what: "end of the footer", offset: decoder.offset() });
        }
        let (min_seq, max_seq) = (Seq(min_seq), Seq(max_seq));
        Ok(Self {
            keyspace: Keyspace(keyspace),
            options,
            entries,
            tombstones,
            superseded,
            raw_bytes,
            min_seq,
            max_seq,
            min_key,
            max_key,
            ranges,
            fences,
            offsets,
            filter,
        })
    }

    /// Offset and length of a block in the file.
    #[inline]
    pub(crate) fn block_at(&self, index: usize) -> Option<(u64, usize)> {
        match &self.offsets {
            None if index < self.fences.len() => {
                let bytes = self.options.block_bytes;
                Some((index as u64 * u64::from(bytes), bytes as usize))
            }
            None => None,
            Some(offsets) => {
                let (start, end) = (*offsets.get(index)?, *offsets.get(index + 1)?);
                Some((start, usize::try_from(end - start).ok()?))
            }
        }
    }
}

pub(crate) fn put_trailer(out: &mut Vec<u8>, footer_at: u64, footer: &[u8]) {
    let mut trailer = Vec::with_capacity(TRAILER_BYTES);
    put_u64(&mut trailer, footer_at);
    put_u64(&mut trailer, footer.len() as u64);
    put_u32(&mut trailer, crc32c(footer));
    let crc = crc32c(&trailer);
    put_u32(&mut trailer, crc);
    put_u32(&mut trailer, VERSION);
    trailer.extend_from_slice(&MAGIC);
    out.extend_from_slice(&trailer);
}

/// Error in a trailer.
pub(crate) enum TrailerError {
    Foreign([u8; 8]),
    Version(u32),
    Damaged,
}

pub(crate) struct Trailer {
    pub(crate) footer_at: u64,
    pub(crate) footer_len: u64,
    pub(crate) footer_crc: u32,
}

impl Trailer {
    pub(crate) fn decode(bytes: &[u8; TRAILER_BYTES]) -> Result<Self, TrailerError> {
        let decoder = &mut Decoder::new(bytes);
        let damaged = |_| TrailerError::Damaged;
        let footer_at = decoder.u64("footer_at").map_err(damaged)?;
        let footer_len = decoder.u64("footer_len").map_err(damaged)?;
        let footer_crc = decoder.u32("footer_crc").map_err(damaged)?;
        let body = bytes.first_chunk::<20>().map_or(0, |b| crc32c(b));
        let crc = decoder.u32("crc").map_err(damaged)?;
        let version = decoder.u32("version").map_err(damaged)?;
        let magic = decoder.array("magic").map_err(damaged)?;
        if magic != MAGIC {
            return Err(TrailerError::Foreign(magic));
        }
        if version != VERSION {
            return Err(TrailerError::Version(version));
        }
        if crc != body {
            return Err(TrailerError::Damaged);
        }
        Ok(Self { footer_at, footer_len, footer_crc })
    }
}
