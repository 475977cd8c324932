//! Bytes of the log: the segment header and the record. Pure; the page is `docs/format/log.md`.
//!
//! ```text
//! Segment file, little-endian            Record, 8-byte aligned
//! ┌──────┬────┬──────────┬───────────┐   ┌──────┬───┬──────────┬───────────────────────────────────────┐
//! │ 0    │ 8  │ magic    │ RWALKLOG  │   │ 0    │ 4 │ crc      │ CRC-32C of log id ++ bytes 4 .. end   │
//! │ 8    │ 4  │ version  │ 1         │   │ 4    │ 4 │ length   │ payload bytes                         │
//! │ 12   │ 4  │ reserved │ 0         │   │ 8    │ 8 │ lsn      │ own address                           │
//! │ 16   │ 16 │ log id   │           │   │ 16   │ 8 │ seq      │ commit: previous + 1; seal: previous  │
//! │ 32   │ 8  │ start    │ LSN       │   │ 24   │ 4 │ back     │ (lsn - durable) / 8; all ones: none   │
//! │ 40   │ 8  │ seq      │ last one  │   │ 28   │ 1 │ kind     │ 1 commit, 2 seal                      │
//! │ 48   │ 8  │ bytes    │ file size │   │ 29   │ 3 │ reserved │ 0                                     │
//! │ 56   │ 4  │ reserved │ 0         │   │ 32   │ n │ payload  │                                       │
//! │ 60   │ 4  │ crc      │ of 0..60  │   │ 32+n │   │ padding  │ zeros up to a multiple of 8           │
//! │ 64   │    │ records  │           │   └──────┴───┴──────────┴───────────────────────────────────────┘
//! └──────┴────┴──────────┴───────────┘
//! ```
//!
//! Three fields support recovery. `lsn`: bytes that a recycled segment held before never pass for a record.
//! `back`: the writer states up to where the log was durable, so an invalid record before that address is bit
//! corruption, not a torn write. The log id in the checksum: a payload chosen by a client cannot forge a
//! record that recovery would accept.

use ropewalk_base::{Decoder, Lsn, Seq, crc32c, crc32c_append};

use crate::LogId;

/// First bytes of every segment.
pub const MAGIC: [u8; 8] = *b"RWALKLOG";
/// The format this build writes, and the newest it reads.
pub const VERSION: u32 = 1;
/// Offset of the version in a segment.
pub const VERSION_OFFSET: u64 = 8;
/// Offset of the first record in a segment.
pub const SEGMENT_HEADER_BYTES: u64 = 64;
/// Bytes in front of a payload.
pub const RECORD_HEADER_BYTES: u64 = 32;
/// Records start at multiples of this.
pub const ALIGNMENT: u64 = 8;
/// Largest payload. A commit group is far smaller; the bound prevents huge allocations for a damaged length.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;

/// Addresses stay below this, so that arithmetic on addresses from a file cannot overflow. At 10 GB/s: after
/// 14 years.
pub const LSN_END: Lsn = Lsn(1 << 62);

/// `back` of a record that states no durable address, because the distance does not fit.
const NO_CLAIM: u32 = u32::MAX;

/// First 64 bytes of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub id: LogId,
    /// Address of its first record; equal to the end of the previous segment.
    pub start: Lsn,
    /// Sequence number at `start`: the last one of the previous segment.
    pub seq: Seq,
    /// Length of the file.
    pub bytes: u64,
}

/// Why 64 bytes are not a segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// Another magic.
    Foreign,
    /// A newer version, given here.
    Future(u32),
    /// Right magic and version, wrong bytes.
    Damaged,
}

impl SegmentHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; 64] {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.start.0.to_le_bytes());
        out.extend_from_slice(&self.seq.0.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.try_into().expect("the fields add up to 64 bytes")
    }

    /// Reads and checks a header.
    ///
    /// # Errors
    /// The bytes are not a header of this version.
    pub fn decode(bytes: &[u8; 64]) -> Result<Self, HeaderError> {
        let mut fields = Decoder::new(bytes);
        if fields.array("magic") != Ok(MAGIC) {
            return Err(HeaderError::Foreign);
        }
        let version = fields.u32("version").map_err(|_| HeaderError::Damaged)?;
        if version > VERSION {
            return Err(HeaderError::Future(version));
        }
        let header = Self::decode_fields(fields).map_err(|_| HeaderError::Damaged)?;
        // Encoding is the exact inverse, so one comparison covers version, reserved bytes and checksum.
        let plausible = header.start.0.is_multiple_of(ALIGNMENT)
            && header.start < LSN_END
            && header.bytes >= SEGMENT_HEADER_BYTES;
        if plausible && header.encode() == *bytes { Ok(header) } else { Err(HeaderError::Damaged) }
    }

    fn decode_fields(mut fields: Decoder<'_>) -> Result<Self, ropewalk_base::DecodeError> {
        fields.u32("reserved")?;
        Ok(Self {
            id: LogId(fields.array("log id")?),
            start: Lsn(fields.u64("start")?),
            seq: Seq(fields.u64("seq")?),
            bytes: fields.u64("bytes")?,
        })
    }
}

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A commit.
    Commit = 1,
    /// The end of the log: nothing follows.
    Seal = 2,
    /// Only marks that everything before it was durable: corruption before it is never mistaken for a torn
    /// tail.
    Mark = 3,
}

/// First 32 bytes of a record, without the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Own address.
    pub lsn: Lsn,
    /// Commit number.
    pub seq: Seq,
    /// Everything below was durable when the record was appended.
    pub durable: Lsn,
    /// Kind of the record.
    pub kind: Kind,
    /// Bytes of the payload.
    pub len: u32,
}

/// Checksum state that every record of the log `id` starts from.
pub fn checksum_seed(id: LogId) -> u32 {
    crc32c(&id.0)
}

/// Bytes that a payload of `len` takes in the log.
pub fn record_bytes(len: u64) -> u64 {
    (RECORD_HEADER_BYTES + len).next_multiple_of(ALIGNMENT)
}

impl RecordHeader {
    /// Bytes the record takes in the log.
    pub fn bytes(&self) -> u64 {
        record_bytes(u64::from(self.len))
    }

    /// Address of the record after this one.
    pub fn next(&self) -> Lsn {
        Lsn(self.lsn.0 + self.bytes())
    }

    /// True when the record may follow the one numbered `last`: only a commit takes a new number.
    pub fn continues(&self, last: Seq) -> bool {
        match self.kind {
            Kind::Commit => last.0.checked_add(1) == Some(self.seq.0),
            Kind::Seal | Kind::Mark => self.seq == last,
        }
    }

    /// Reads a header found at address `lsn`; does not check the checksum.
    ///
    /// # Errors
    /// No record can start with these bytes there.
    pub fn decode(bytes: &[u8; 32], lsn: Lsn) -> Result<Self, &'static str> {
        Self::decode_fields(Decoder::new(bytes), lsn).map_err(|error| error.what)
    }

    fn decode_fields(mut fields: Decoder<'_>, lsn: Lsn) -> Result<Self, ropewalk_base::DecodeError> {
        let wrong = |what| ropewalk_base::DecodeError { what, offset: 0 };
        fields.u32("record checksum")?;
        let len = fields.u32("record length")?;
        if fields.u64("record address")? != lsn.0 {
            return Err(wrong("the record's address is not its own"));
        }
        let seq = Seq(fields.u64("record seq")?);
        let back = u64::from(fields.u32("durable distance")?);
        let kind = match fields.array::<4>("record kind")? {
            [1, 0, 0, 0] => Kind::Commit,
            [2, 0, 0, 0] => Kind::Seal,
            [3, 0, 0, 0] => Kind::Mark,
            _ => return Err(wrong("unknown record kind")),
        };
        if u64::from(len) > RECORD_BYTES_MAX {
            return Err(wrong("the record's length exceeds the limit"));
        }
        let durable = match back {
            b if b == u64::from(NO_CLAIM) => Lsn::ZERO,
            b => Lsn(lsn
                .0
                .checked_sub(b * ALIGNMENT)
                .ok_or(wrong("the record's durable address is below zero"))?),
        };
        Ok(Self { lsn, seq, durable, kind, len })
    }
}

/// True when the whole record `bytes`, padding included, carries its own checksum.
pub fn checksum_matches(seed: u32, bytes: &[u8]) -> bool {
    bytes
        .split_first_chunk::<4>()
        .is_some_and(|(crc, rest)| u32::from_le_bytes(*crc) == crc32c_append(seed, rest))
}

/// Appends a record. Cost: one copy and one checksum of the payload; no allocation while `out` has room.
pub fn encode_record(
    out: &mut Vec<u8>,
    seed: u32,
    kind: Kind,
    lsn: Lsn,
    seq: Seq,
    durable: Lsn,
    payload: &[u8],
) {
    let start = out.len();
    let back = u32::try_from((lsn.0 - durable.0) / ALIGNMENT).unwrap_or(NO_CLAIM);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&lsn.0.to_le_bytes());
    out.extend_from_slice(&seq.0.to_le_bytes());
    out.extend_from_slice(&back.to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    out.extend_from_slice(payload);
    out.resize(start + record_bytes(payload.len() as u64) as usize, 0);
    let record = out.get_mut(start..).and_then(|record| record.split_first_chunk_mut::<4>());
    let (crc, rest) = record.expect("a record was just appended at start");
    *crc = crc32c_append(seed, rest).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(bytes: &[u8]) -> String {
        bytes.chunks(16).map(ropewalk_base::hex).collect::<Vec<_>>().join("\n")
    }

    fn id() -> LogId {
        LogId(*b"0123456789abcdef")
    }

    fn record(lsn: u64, seq: u64, durable: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_record(&mut out, checksum_seed(id()), Kind::Commit, Lsn(lsn), Seq(seq), Lsn(durable), payload);
        out
    }

    #[test]
    fn golden_segment_header() {
        let header = SegmentHeader { id: id(), start: Lsn(0x1_0000), seq: Seq(7), bytes: 1 << 20 };
        assert_eq!(
            rows(&header.encode()),
            "5257414c4b4c4f470100000000000000\n\
             30313233343536373839616263646566\n\
             00000100000000000700000000000000\n\
             000010000000000000000000f5615c3a"
        );
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn golden_records() {
        assert_eq!(
            rows(&record(0x1_0000, 8, 0xff00, b"hello")),
            "8b4d4600050000000000010000000000\n\
             08000000000000002000000001000000\n\
             68656c6c6f000000"
        );
        let mut seal = Vec::new();
        encode_record(&mut seal, checksum_seed(id()), Kind::Seal, Lsn(0x1_0028), Seq(8), Lsn(0x1_0028), b"");
        assert_eq!(
            rows(&seal),
            "e70edc9e000000002800010000000000\n\
             08000000000000000000000002000000"
        );
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let good = SegmentHeader { id: id(), start: Lsn(64), seq: Seq(1), bytes: 4096 }.encode();
        for bit in 0..512 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_found() {
        let good = record(64, 1, 0, b"thirteen byte");
        assert_eq!(good.len(), 48);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!checksum_matches(checksum_seed(id()), &bad), "bit {bit}");
        }
        assert!(checksum_matches(checksum_seed(id()), &good));
        assert!(!checksum_matches(checksum_seed(LogId([9; 16])), &good), "a record of another log");
    }

    #[test]
    fn headers_say_why_they_are_refused() {
        let good = record(64, 1, 0, b"");
        let decode = |at: usize, bytes: &[u8], lsn| {
            let mut header: [u8; 32] = good[..32].try_into().unwrap();
            header[at..at + bytes.len()].copy_from_slice(bytes);
            RecordHeader::decode(&header, Lsn(lsn)).map(|h| h.durable)
        };
        assert_eq!(decode(0, &[], 64), Ok(Lsn(0)));
        assert_eq!(decode(0, &[], 72), Err("the record's address is not its own"));
        assert_eq!(decode(4, &[0xff; 4], 64), Err("the record's length exceeds the limit"));
        assert_eq!(decode(24, &[9, 0, 0, 0], 64), Err("the record's durable address is below zero"));
        assert_eq!(decode(24, &[0xff; 4], 64), Ok(Lsn(0)), "too far to say is no claim");
        assert_eq!(decode(28, &[4], 64), Err("unknown record kind"));
        assert_eq!(decode(31, &[1], 64), Err("unknown record kind"));
    }

    #[test]
    fn a_distance_that_does_not_fit_claims_nothing() {
        let far = 8 * u64::from(u32::MAX);
        let durable = |lsn, durable| {
            let bytes = record(lsn, 1, durable, b"");
            RecordHeader::decode(bytes.first_chunk().unwrap(), Lsn(lsn)).unwrap().durable
        };
        assert_eq!(durable(far + 8, 16), Lsn(16), "the farthest claim");
        assert_eq!(durable(far + 8, 8), Lsn(0), "one step too far");
    }
}
