//! The index of a run: the fences, which say what block holds a key, and where each block lies.

use ropewalk_base::{DecodeError, Decoder, put_u64};

use crate::run::fences::Fences;
use crate::run::footer::Footer;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Index {
    pub(crate) fences: Fences,
    /// Start of every block and the end of the last; `None` when block `i` starts at `i * block_bytes`.
    offsets: Option<Vec<u64>>,
    block_bytes: u32,
}

impl Index {
    pub(crate) fn new(fences: Fences, offsets: Option<Vec<u64>>, block_bytes: u32) -> Self {
        Self { fences, offsets, block_bytes }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.fences.encode(out);
        out.push(u8::from(self.offsets.is_some()));
        for &offset in self.offsets.iter().flatten() {
            put_u64(out, offset);
        }
    }

    /// Reads the index of a run with this footer, whose blocks end at `end`.
    pub(crate) fn decode(footer: &Footer, end: u64, decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (blocks, block_bytes) = (footer.blocks, footer.options.block_bytes);
        let fences = Fences::decode(blocks, (&footer.min_key, &footer.max_key), decoder)?;
        let offset = decoder.offset();
        let offsets = match decoder.u8("block offsets")? {
            0 => None,
            _ => {
                let bytes = decoder.take(blocks.saturating_add(1).saturating_mul(8), "block offsets")?;
                Some(bytes.as_chunks::<8>().0.iter().map(|o| u64::from_le_bytes(*o)).collect::<Vec<u64>>())
            }
        };
        let last = match &offsets {
            Some(offsets) if !offsets.is_sorted_by(|a, b| a < b) => None,
            Some(offsets) => offsets.last().copied(),
            None => (blocks as u64).checked_mul(u64::from(block_bytes)),
        };
        if last != Some(end) {
            return Err(DecodeError { what: "block offsets that end with the blocks", offset });
        }
        Ok(Self { fences, offsets, block_bytes })
    }

    /// Offset and length of a block in the file.
    #[inline]
    pub(crate) fn block_at(&self, block: usize) -> Option<(u64, usize)> {
        match &self.offsets {
            None if block < self.fences.len() => {
                Some((block as u64 * u64::from(self.block_bytes), self.block_bytes as usize))
            }
            None => None,
            Some(offsets) => {
                let (start, end) = (*offsets.get(block)?, *offsets.get(block + 1)?);
                Some((start, usize::try_from(end - start).ok()?))
            }
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.fences.bytes() + self.offsets.as_ref().map_or(0, |offsets| 8 * offsets.len())
    }
}
