//! The index of a block: symbols, and series with their labels and chunks.
//!
//! ```text
//! magic 0xBAAAD700 │ u8 2 │ … sections … │ table of contents: 6 × u64 │ crc
//! symbols    u32 length │ u32 symbols │ each: uvarint length, bytes │ crc
//! series     each at a multiple of 16: uvarint length │ content │ crc
//! content    uvarint labels, each: name, value as uvarint symbols
//!            │ uvarint chunks, each: times relative to the chunk before │ reference relative to the one before
//! ```
//! All fixed numbers are big-endian; a crc is a CRC-32C of the content.

use ropewalk_base::{crc32c, split_varint, unzigzag};

use super::Bytes;
use super::Fault;

const MAGIC: u32 = 0xbaaa_d700;
const VERSION: u8 = 2;
/// Six offsets and a checksum.
const CONTENTS_BYTES: usize = 52;
const SERIES_ALIGNMENT: usize = 16;

/// A chunk: number of the file, from 0, in the upper half, place in it in the lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRef(pub(super) u64);

/// One series of the index.
pub(super) struct Series<'a> {
    /// Reference of the series in tombstones: its offset, in units of 16 bytes.
    pub(super) reference: u64,
    pub(super) labels: Vec<(&'a str, &'a str)>,
    pub(super) chunks: Vec<ChunkRef>,
}

pub(super) enum Refusal {
    Fault(Fault),
    Version(u8),
}

pub(super) struct Index {
    bytes: Bytes,
    /// Place and length of each symbol.
    symbols: Vec<(usize, u32)>,
    series: (usize, usize),
}

fn fault(offset: usize, what: &'static str) -> Fault {
    Fault { offset: offset as u64, what }
}

/// Reads numbers and bytes from the front of a part of the index.
struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(len).ok_or(fault(self.at, what))?;
        let taken = self.all.get(self.at..end).ok_or(fault(self.at, what))?;
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, Fault> {
        let bytes = self.take(4, what)?.first_chunk::<4>().ok_or(fault(self.at, what))?;
        Ok(u32::from_be_bytes(*bytes))
    }

    fn uvarint(&mut self, what: &'static str) -> Result<u64, Fault> {
        let rest = self.all.get(self.at..).unwrap_or_default();
        let (number, rest) = split_varint(rest).ok_or(fault(self.at, what))?;
        self.at = self.all.len() - rest.len();
        Ok(number)
    }

    fn len(&mut self, what: &'static str) -> Result<usize, Fault> {
        let at = self.at;
        usize::try_from(self.uvarint(what)?).map_err(|_| fault(at, what))
    }

    /// `len` bytes and their checksum.
    fn checked(&mut self, len: usize, what: &'static str) -> Result<Reader<'a>, Fault> {
        let at = self.at;
        let content = self.take(len, what)?;
        if self.u32(what)? != crc32c(content) {
            return Err(fault(at, what));
        }
        Ok(Reader { all: self.all.get(..at + len).unwrap_or_default(), at })
    }

    fn is_empty(&self) -> bool {
        self.at >= self.all.len()
    }
}

impl Index {
    pub(super) fn new(bytes: Bytes) -> Result<Self, Refusal> {
        let all = bytes.get();
        let mut head = Reader { all, at: 0 };
        if head.u32("an index").map_err(Refusal::Fault)? != MAGIC {
            return Err(Refusal::Fault(fault(0, "an index")));
        }
        match head.take(1, "a version").map_err(Refusal::Fault)? {
            [VERSION] => {}
            other => return Err(Refusal::Version(other.first().copied().unwrap_or(0))),
        }
        let (symbols, series) = Self::sections(all).map_err(Refusal::Fault)?;
        Ok(Self { symbols, series, bytes })
    }

    fn sections(all: &[u8]) -> Result<(Vec<(usize, u32)>, (usize, usize)), Fault> {
        let what = "the table of contents";
        let start = all.len().checked_sub(CONTENTS_BYTES).ok_or(fault(0, what))?;
        let mut contents = Reader { all, at: start }.checked(CONTENTS_BYTES - 4, what)?;
        let mut places = Vec::new();
        while !contents.is_empty() {
            let at = contents.at;
            let place =
                contents.take(8, what)?.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            places.push(usize::try_from(place).ok().filter(|place| *place <= start).ok_or(fault(at, what))?);
        }
        let &[symbols, series, ..] = places.as_slice() else { return Err(fault(start, what)) };
        // The sections follow each other; absent ones have the offset zero.
        let end = places.iter().copied().filter(|place| *place > series).min().unwrap_or(start);
        Ok((Self::symbols(all, symbols)?, (series, end)))
    }

    fn symbols(all: &[u8], at: usize) -> Result<Vec<(usize, u32)>, Fault> {
        let what = "the table of symbols";
        let mut reader = Reader { all, at };
        let len = reader.u32(what)? as usize;
        let mut table = reader.checked(len, what)?;
        let count = table.u32(what)?;
        let mut symbols = Vec::new();
        for _ in 0..count {
            let len = table.len(what)?;
            let place = table.at;
            std::str::from_utf8(table.take(len, what)?).map_err(|_| fault(place, "UTF-8"))?;
            symbols.push((place, len as u32));
        }
        Ok(symbols)
    }

    fn symbol(&self, number: u64, at: usize) -> Result<&str, Fault> {
        let what = "a symbol of the table";
        let found = usize::try_from(number).ok().and_then(|number| self.symbols.get(number));
        let (place, len) = *found.ok_or(fault(at, what))?;
        let bytes = self.bytes.get().get(place..place + len as usize).ok_or(fault(at, what))?;
        std::str::from_utf8(bytes).map_err(|_| fault(place, "UTF-8"))
    }

    /// From the first series on.
    pub(super) fn series(&self) -> SeriesCursor<'_> {
        SeriesCursor { index: self, at: self.series.0 }
    }
}

/// Iterates over the series in the order of their offsets, which is that of their labels.
pub(super) struct SeriesCursor<'a> {
    index: &'a Index,
    at: usize,
}

impl<'a> SeriesCursor<'a> {
    /// The next series, `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Series<'a>>, Fault> {
        let at = self.at.next_multiple_of(SERIES_ALIGNMENT);
        if at >= self.index.series.1 {
            return Ok(None);
        }
        let what = "a series";
        let mut reader = Reader { all: self.index.bytes.get(), at };
        let len = reader.len(what)?;
        let mut content = reader.checked(len, what)?;
        self.at = reader.at;
        let mut labels = Vec::new();
        for _ in 0..content.uvarint(what)? {
            let at = content.at;
            let (name, value) = (content.uvarint(what)?, content.uvarint(what)?);
            labels.push((self.index.symbol(name, at)?, self.index.symbol(value, at)?));
        }
        let (mut chunks, mut reference) = (Vec::new(), 0_u64);
        for _ in 0..content.uvarint(what)? {
            // First and last time, which the chunk contains, too.
            content.uvarint(what)?;
            content.uvarint(what)?;
            let number = content.uvarint(what)?;
            reference = match chunks.is_empty() {
                true => number,
                false => reference.wrapping_add(unzigzag(number).cast_unsigned()),
            };
            chunks.push(ChunkRef(reference));
        }
        if !content.is_empty() {
            return Err(fault(content.at, "the end of a series"));
        }
        Ok(Some(Series { reference: (at / SERIES_ALIGNMENT) as u64, labels, chunks }))
    }
}
