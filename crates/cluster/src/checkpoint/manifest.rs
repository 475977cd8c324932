//! The list of what a checkpoint consists of. Drawn in `docs/format/checkpoints.md`.
//!
//! ```text
//! checkpoints/NUMBER ─▶ file ─▶ block ─▶ blocks/NUMBER-HASH        of this checkpoint, or of an earlier one
//! ```

use core::ops::Range;

use ropewalk_base::{
    DecodeError, Decoder, Seq, crc32c, from_hex, hash128, hex, put_bytes, put_u32, put_u64, put_varint,
};
use ropewalk_log::shared::SavedPlace;

const MAGIC: [u8; 8] = *b"ROPECHKP";
const VERSION: u32 = 1;
/// Bytes of a manifest before those that its checksum covers.
const HEADER_BYTES: usize = 16;

/// Kinds of objects.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const BLOCKS: &str = "blocks";

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// The checkpoint for which it was stored, or a later one.
    pub number: u64,
    /// XXH3-128 of its contents.
    pub hash: [u8; 16],
}

impl Block {
    /// A block with these contents.
    pub(crate) fn of(number: u64, bytes: &[u8]) -> Self {
        Self { number, hash: hash128(bytes) }
    }

    /// Name of its object.
    pub(crate) fn name(&self) -> String {
        format!("{BLOCKS}/{:016x}-{}", self.number, hex(&self.hash))
    }

    /// The block with this name, and the number in it. A leftover has only a number.
    pub(crate) fn parse(name: &str) -> Option<(u64, Option<Self>)> {
        let (number, hash) = name.strip_prefix(BLOCKS)?.strip_prefix('/')?.split_once('-')?;
        let number = parse_number(number)?;
        let hash = from_hex(hash).and_then(|hash| hash.try_into().ok());
        Some((number, hash.map(|hash| Self { number, hash })))
    }
}

/// A file of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Path in the directory of the database: `place`, `log/NAME` or `store/NAME`.
    pub name: String,
    /// Length.
    pub bytes: u64,
    /// Its contents, in order.
    pub blocks: Vec<Block>,
}

impl StoredFile {
    /// Places of its blocks in it, in order.
    pub(crate) fn ranges(&self, block_bytes: u32) -> impl Iterator<Item = Range<u64>> + use<> {
        let (end, block) = (self.bytes, u64::from(block_bytes));
        (0..self.bytes.div_ceil(block)).map(move |number| number * block..end.min((number + 1) * block))
    }
}

/// Contents of a checkpoint and its place in the shared log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Number of the checkpoint, from 1.
    pub number: u64,
    /// The node that made it and has read back what it stored.
    pub node: [u8; 16],
    /// Address that this node advertises.
    pub address: String,
    /// That node's clock, microseconds since 1970.
    pub time_micros: i64,
    /// The newest commit in it.
    pub seq: Seq,
    /// The shared log, and the entry after which a node continues that begins with this checkpoint.
    pub place: SavedPlace,
    /// Length of each block but the last one of a file.
    pub block_bytes: u32,
    /// Its files.
    pub files: Vec<StoredFile>,
}

impl Manifest {
    /// Sum of the lengths of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// All blocks of all files.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.files.iter().flat_map(|file| &file.blocks)
    }

    pub(crate) fn name(number: u64) -> String {
        format!("{CHECKPOINTS}/{number:016x}")
    }

    /// The number in a name, and whether that is a leftover.
    pub(crate) fn parse(name: &str) -> Option<(u64, bool)> {
        let rest = name.strip_prefix(CHECKPOINTS)?.strip_prefix('/')?;
        match rest.split_once('.') {
            Some((number, _)) => Some((parse_number(number)?, true)),
            None => Some((parse_number(rest)?, false)),
        }
    }

    /// Contents of its object.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        put_u64(&mut fields, self.number);
        fields.extend_from_slice(&self.node);
        put_bytes(&mut fields, self.address.as_bytes());
        fields.extend_from_slice(&self.time_micros.to_le_bytes());
        put_u64(&mut fields, self.seq.0);
        put_bytes(&mut fields, &self.place.encode());
        put_u32(&mut fields, self.block_bytes);
        put_varint(&mut fields, self.files.len() as u64);
        for file in &self.files {
            put_bytes(&mut fields, file.name.as_bytes());
            put_varint(&mut fields, file.bytes);
            for block in &file.blocks {
                put_varint(&mut fields, block.number);
                fields.extend_from_slice(&block.hash);
            }
        }
        let mut object = MAGIC.to_vec();
        put_u32(&mut object, VERSION);
        put_u32(&mut object, crc32c(&fields));
        object.extend_from_slice(&fields);
        object
    }

    /// Decodes an object.
    ///
    /// # Errors
    /// It is damaged, or of another version; a file has a name that no database has.
    pub(crate) fn decode(object: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(object);
        let wrong = |what, offset| Err(DecodeError { what, offset });
        if decoder.array("magic of a checkpoint")? != MAGIC {
            return wrong("magic of a checkpoint", 0);
        }
        if decoder.u32("version of a checkpoint")? != VERSION {
            return wrong("version 1 of a checkpoint", MAGIC.len());
        }
        if decoder.u32("checksum of a checkpoint")? != crc32c(decoder.rest()) {
            return wrong("checksum of a checkpoint", HEADER_BYTES);
        }
        let number = u64::from_le_bytes(decoder.array("number of a checkpoint")?);
        let node = decoder.array("node of a checkpoint")?;
        let address = decoder.str("address of a checkpoint")?.to_owned();
        let time_micros = i64::from_le_bytes(decoder.array("time of a checkpoint")?);
        let seq = Seq(u64::from_le_bytes(decoder.array("commit of a checkpoint")?));
        let place = SavedPlace::decode(decoder.bytes("place of a checkpoint")?)?;
        let block_bytes = decoder.u32("block length of a checkpoint")?;
        if block_bytes == 0 {
            return wrong("block length of a checkpoint", decoder.offset());
        }
        let count = decoder.varint("number of files")?;
        let mut files = Vec::new();
        for _ in 0..count {
            files.push(decode_file(&mut decoder, block_bytes)?);
        }
        if !decoder.is_empty() {
            return wrong("end of a checkpoint", decoder.offset());
        }
        Ok(Self { number, node, address, time_micros, seq, place, block_bytes, files })
    }
}

fn decode_file(decoder: &mut Decoder<'_>, block_bytes: u32) -> Result<StoredFile, DecodeError> {
    let offset = decoder.offset();
    let name = decoder.str("name of a file")?.to_owned();
    if !is_file_name(&name) {
        return Err(DecodeError { what: "name of a file of a database", offset });
    }
    let bytes = decoder.varint("length of a file")?;
    let mut blocks = Vec::new();
    // Ends with the object, whatever the length says.
    for _ in 0..bytes.div_ceil(u64::from(block_bytes)) {
        let number = decoder.varint("checkpoint of a block")?;
        blocks.push(Block { number, hash: decoder.array("hash of a block")? });
    }
    Ok(StoredFile { name, bytes, blocks })
}

/// True for the paths that files of a database have, so that a checkpoint cannot write anywhere else.
fn is_file_name(name: &str) -> bool {
    let is_plain = |rest: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        !rest.is_empty() && !rest.starts_with('.') && rest.bytes().all(is_letter)
    };
    match name.split_once('/') {
        None => name == "place",
        Some(("log" | "store", rest)) => is_plain(rest),
        Some(_) => false,
    }
}

fn parse_number(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_log::LogId;
    use ropewalk_log::shared::{ChainHash, EntryIndex, Place};

    fn manifest() -> Manifest {
        let place = Place { index: EntryIndex(2), chain: ChainHash([3; 16]), term: 4, seq: Seq(5) };
        let block = Block { number: 7, hash: [8; 16] };
        Manifest {
            number: 9,
            node: [2; 16],
            address: "a:1".to_owned(),
            time_micros: 1,
            seq: Seq(6),
            place: SavedPlace { log: LogId([1; 16]), place, leader: None },
            block_bytes: 10,
            files: vec![
                StoredFile { name: "store/1.run".to_owned(), bytes: 11, blocks: vec![block; 2] },
                StoredFile { name: "place".to_owned(), bytes: 0, blocks: Vec::new() },
            ],
        }
    }

    #[test]
    fn golden_bytes() {
        let object = manifest().encode();
        let place = hex(&manifest().place.encode());
        let expected = [
            "524f504543484b5001000000",         // magic, version
            "0900000000000000",                 // number
            "02020202020202020202020202020202", // node
            "03613a31",                         // address
            "01000000000000000600000000000000", // time, commit
            &format!("{:02x}{place}", place.len() / 2),
            "0a00000002",                         // block length, files
            "0b73746f72652f312e72756e0b",         // name and length of the first
            "0708080808080808080808080808080808", // its blocks
            "0708080808080808080808080808080808",
            "05706c61636500", // the second, which is empty
        ]
        .concat();
        let without_sum = [&object[..12], &object[16..]].concat();
        assert_eq!(hex(&without_sum), expected);
        assert_eq!(object[12..16], crc32c(&object[16..]).to_le_bytes());
        assert_eq!(Manifest::decode(&object).unwrap(), manifest());
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let object = manifest().encode();
        for at in 0..object.len() {
            let mut changed = object.clone();
            changed[at] ^= 1;
            assert!(Manifest::decode(&changed).is_err(), "byte {at}");
            assert!(Manifest::decode(&object[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn files_that_no_database_has_are_refused() {
        for name in
            ["", "LOCK", "log", "log/", "log/../x", "log/.x", "store/a/b", "/store/a", "other/a", "log/a\0"]
        {
            let mut manifest = manifest();
            manifest.files[0].name = name.to_owned();
            let error = Manifest::decode(&manifest.encode()).unwrap_err();
            assert_eq!(error.what, "name of a file of a database", "{name}");
        }
    }

    #[test]
    fn names_of_objects_are_parsed() {
        let block = Block { number: 7, hash: [8; 16] };
        assert_eq!(Block::parse(&block.name()), Some((7, Some(block))));
        assert_eq!(Block::parse(&format!("{}.0123.new", block.name())), Some((7, None)));
        assert_eq!(Block::parse("blocks/7-08"), None);
        assert_eq!(Manifest::parse(&Manifest::name(7)), Some((7, false)));
        assert_eq!(Manifest::parse(&format!("{}.0123.new", Manifest::name(7))), Some((7, true)));
        assert_eq!(Manifest::parse("checkpoints/7"), None);
    }
}
