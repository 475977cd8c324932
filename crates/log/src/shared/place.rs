//! Where a node is in the shared log, and the file in which it notes that. Drawn in `docs/format/shared-log.md`.

use ropewalk_base::{DecodeError, Decoder, Seq, crc32c, put_bytes, put_u32, put_u64};

use crate::LogId;
use crate::shared::{ChainHash, EntryIndex};

const MAGIC: [u8; 8] = *b"ROPEPLAC";
const VERSION: u32 = 1;
/// Bytes of the file before those that its checksum covers.
const HEADER_BYTES: usize = 16;

/// The newest entry that a node has applied, and what it proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The entry; zero before the first one.
    pub index: EntryIndex,
    /// Its chain hash.
    pub chain: ChainHash,
    /// The newest term.
    pub term: u64,
    /// The newest commit that the entries up to here hold.
    pub seq: Seq,
}

/// A place from which a node can continue after it was opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedPlace {
    /// Incarnation of the shared log.
    pub log: LogId,
    /// Not in the middle of a group.
    pub place: Place,
    /// Address of the leader then, if it was known.
    pub leader: Option<String>,
}

impl SavedPlace {
    /// The contents of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend_from_slice(&self.log.0);
        put_u64(&mut fields, self.place.index.0);
        fields.extend_from_slice(&self.place.chain.0);
        put_u64(&mut fields, self.place.term);
        put_u64(&mut fields, self.place.seq.0);
        put_bytes(&mut fields, self.leader.as_deref().unwrap_or_default().as_bytes());
        let mut file = MAGIC.to_vec();
        put_u32(&mut file, VERSION);
        put_u32(&mut file, crc32c(&fields));
        file.extend_from_slice(&fields);
        file
    }

    /// Decodes a file.
    ///
    /// # Errors
    /// It is damaged, or of another version. The node then begins with the oldest entry.
    pub fn decode(file: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(file);
        if decoder.array("magic of a place")? != MAGIC {
            return Err(DecodeError { what: "magic of a place", offset: 0 });
        }
        if decoder.u32("version of a place")? != VERSION {
            return Err(DecodeError { what: "version 1 of a place", offset: MAGIC.len() });
        }
        if decoder.u32("checksum of a place")? != crc32c(decoder.rest()) {
            return Err(DecodeError { what: "checksum of a place", offset: HEADER_BYTES });
        }
        let log = LogId(decoder.array("shared log of a place")?);
        let index = EntryIndex(u64::from_le_bytes(decoder.array("entry of a place")?));
        let chain = ChainHash(decoder.array("chain hash of a place")?);
        let term = u64::from_le_bytes(decoder.array("term of a place")?);
        let seq = Seq(u64::from_le_bytes(decoder.array("commit of a place")?));
        let leader = decoder.str("leader of a place")?;
        if !decoder.is_empty() {
            return Err(DecodeError { what: "end of a place", offset: decoder.offset() });
        }
        let leader = (!leader.is_empty()).then(|| leader.to_owned());
        Ok(Self { log, place: Place { index, chain, term, seq }, leader })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_base::hex;

    fn saved() -> SavedPlace {
        let place = Place { index: EntryIndex(2), chain: ChainHash([3; 16]), term: 4, seq: Seq(5) };
        SavedPlace { log: LogId([1; 16]), place, leader: Some("a:1".into()) }
    }

    #[test]
    fn golden_bytes() {
        let file = saved().encode();
        let expected = concat!(
            "524f5045504c414301000000",         // magic, version
            "01010101010101010101010101010101", // log
            "0200000000000000",                 // index
            "03030303030303030303030303030303", // chain
            "04000000000000000500000000000000", // term, seq
            "03613a31",                         // leader
        );
        let without_sum = [file[..12].to_vec(), file[16..].to_vec()].concat();
        assert_eq!(hex(&without_sum), expected);
        assert_eq!(file[12..16], crc32c(&file[16..]).to_le_bytes());
        assert_eq!(SavedPlace::decode(&file).unwrap(), saved());
        let unknown = SavedPlace { leader: None, ..saved() };
        assert_eq!(SavedPlace::decode(&unknown.encode()).unwrap(), unknown);
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let file = saved().encode();
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(SavedPlace::decode(&changed).is_err(), "byte {at}");
            assert!(SavedPlace::decode(&file[..at]).is_err(), "{at} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            let mut file = MAGIC.to_vec();
            put_u32(&mut file, VERSION);
            put_u32(&mut file, crc32c(&bytes));
            file.extend_from_slice(&bytes);
            if let Ok(found) = SavedPlace::decode(&file) {
                prop_assert_eq!(SavedPlace::decode(&found.encode()).unwrap(), found);
            }
            let _ = SavedPlace::decode(&bytes);
        }
    }
}
