//! A part of a run between its blocks and its footer that is read at first use and has a checksum for that.

use std::path::Path;

use ropewalk_base::{DecodeError, Decoder, crc32c, put_u32, put_u64};
use ropewalk_vfs::File;

use crate::error::StoreError;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// Offset in the file. Not stored: sections are adjacent, and the last one ends at the footer.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    crc: u32,
}

impl Section {
    /// The section that consists of these bytes.
    pub(crate) fn new(at: u64, bytes: &[u8]) -> Self {
        Self { at, bytes: bytes.len() as u64, crc: crc32c(bytes) }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.bytes);
        put_u32(out, self.crc);
    }

    /// Reads two adjacent sections, the second of which ends at `end`.
    pub(crate) fn decode_pair(end: u64, decoder: &mut Decoder<'_>) -> Result<[Self; 2], DecodeError> {
        let offset = decoder.offset();
        let mut pair = [Self::default(); 2];
        for section in &mut pair {
            section.bytes = decoder.u64("length of a section")?;
            section.crc = decoder.u32("checksum of a section")?;
        }
        let mut at = end;
        for section in pair.iter_mut().rev() {
            let wrong = DecodeError { what: "sections that end at the footer", offset };
            at = at.checked_sub(section.bytes).ok_or(wrong)?;
            section.at = at;
        }
        Ok(pair)
    }

    /// Reads the bytes and checks them. `what`: the check, for the error.
    pub(crate) fn read(
        &self,
        file: &dyn File,
        path: &Path,
        what: &'static str,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; self.bytes as usize];
        file.read_exact_at(&mut bytes, self.at).map_err(StoreError::io("read", path))?;
        if crc32c(&bytes) != self.crc {
            return Err(StoreError::corrupt(path, self.at, what));
        }
        Ok(bytes)
    }
}
