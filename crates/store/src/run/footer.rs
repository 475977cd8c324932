//! The end of a run: the data that a reader holds from the opening on, found from the last bytes of the file.
//!
//! ```text
//! Run                                                                     Trailer, 36 bytes, little-endian
//! ┌─────────┬─────────┬───┬───────┬────────┬────────┬─────────┐           ┌────┬───┬────────────┬──────────────────────────┐
//! │ block 0 │ block 1 │ … │ index │ filter │ footer │ trailer │           │ 0  │ 8 │ footer_at  │ offset of the footer     │
//! └─────────┴─────────┴───┴───────┴────────┴────────┴─────────┘           │ 8  │ 8 │ footer_len │ bytes                    │
//!                                                                         │ 16 │ 4 │ footer_crc │ CRC-32C of the footer    │
//! Footer: see `Footer::encode` and docs/format/run.md. In version 1       │ 20 │ 4 │ crc        │ CRC-32C of bytes 0 .. 20 │
//! index and filter were a part of the footer.                             │ 24 │ 4 │ version    │ 2                        │
//!                                                                         │ 28 │ 8 │ magic      │ "ROPE-RUN"               │
//!                                                                         └────┴───┴────────────┴──────────────────────────┘
//! ```

use ropewalk_base::{DecodeError, Decoder, Seq, crc32c, put_bytes, put_u32, put_u64, put_varint};

use crate::options::{Keyspace, KeyspaceOptions};
use crate::run::filter::{Filter, LINE_BYTES};
use crate::run::index::Index;
use crate::run::range_tombstones::RangeSet;
use crate::run::section::Section;

pub(crate) const TRAILER_BYTES: usize = 36;
pub(crate) const MAGIC: [u8; 8] = *b"ROPE-RUN";
pub(crate) const VERSION: u32 = 2;

/// Everything about a run but its blocks, its index and its filter.
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
    pub(crate) blocks: usize,
    /// Straight lines of the model; zero without a model.
    pub(crate) model_pieces: u64,
    /// Empty in version 1.
    pub(crate) index: Section,
    /// Empty in version 1, and without a filter.
    pub(crate) filter: Section,
}

/// A footer, with the index and the filter if they are in memory already.
#[derive(Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) footer: Footer,
    pub(crate) index: Option<Index>,
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
        put_varint(out, self.blocks as u64);
        put_varint(out, self.model_pieces);
        self.index.encode(out);
        self.filter.encode(out);
    }

    /// Reads a footer of format `version` whose checksum matched; everything else lies before `footer_at`.
    pub(crate) fn decode(version: u32, bytes: &[u8], footer_at: u64) -> Result<Parts, DecodeError> {
        let decoder = &mut Decoder::new(bytes);
        let mut footer = Self::decode_summary(decoder)?;
        let (index, filter);
        if version == 1 {
            let decoded = Index::decode(&footer, footer_at, decoder)?;
            footer.model_pieces = decoded.fences.pieces().unwrap_or(0) as u64;
            let lines = decoder.varint("filter size")? as usize;
            let lines = decoder.take(lines.saturating_mul(LINE_BYTES), "filter")?;
            (index, filter) = (Some(decoded), Some(Filter::decode(lines)));
        } else {
            footer.model_pieces = decoder.varint("pieces of the model")?;
            let offset = decoder.offset();
            [footer.index, footer.filter] = Section::decode_pair(footer_at, decoder)?;
            if !footer.filter.bytes.is_multiple_of(LINE_BYTES as u64) {
                return Err(DecodeError { what: "filter of whole lines", offset });
            }
            (index, filter) = (None, (footer.filter.bytes == 0).then(Filter::default));
        }
        if !decoder.is_empty() {
            return Err(DecodeError { what: "end of the footer", offset: decoder.offset() });
        }
        Ok(Parts { footer, index, filter })
    }

    /// Reads the fields up to the number of blocks, which are the same in all versions.
    fn decode_summary(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
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
        let offset = decoder.offset();
        let blocks = decoder.varint("block count")? as usize;
        if (entries == 0) != (blocks == 0) {
            return Err(DecodeError { what: "blocks exactly if there are entries", offset });
        }
        Ok(Self {
            keyspace: Keyspace(keyspace),
            options,
            entries,
            tombstones,
            superseded,
            raw_bytes,
            min_seq: Seq(min_seq),
            max_seq: Seq(max_seq),
            min_key,
            max_key,
            ranges,
            blocks,
            model_pieces: 0,
            index: Section::default(),
            filter: Section::default(),
        })
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
    pub(crate) version: u32,
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
        if !(1..=VERSION).contains(&version) {
            return Err(TrailerError::Version(version));
        }
        if crc != body {
            return Err(TrailerError::Damaged);
        }
        Ok(Self { version, footer_at, footer_len, footer_crc })
    }
}
