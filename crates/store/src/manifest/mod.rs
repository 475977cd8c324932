//! The manifest: the runs in force, the keyspaces, and where recovery starts. Small, rewritten completely
//! each time.
//!
//! ```text
//! MANIFEST, little-endian
//! ┌────┬───┬─────────┬─────────────────────────────────────────────────────────────────────────┐
//! │ 0  │ 8 │ magic   │ "ROPEMANI"                                                              │
//! │ 8  │ 4 │ version │ 1                                                                       │
//! │ 12 │ 4 │ crc     │ CRC-32C of the payload                                                  │
//! │ 16 │ 8 │ length  │ bytes of the payload; the file ends with it                             │
//! │ 24 │ n │ payload │ lsn, seq, meta; next file; keyspaces: name, options, runs by level      │
//! └────┴───┴─────────┴─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The switch: write `MANIFEST.new`, sync it, sync the directory (which makes the names of new runs durable, too),
//! rename it over `MANIFEST`, sync the directory. A crash at any byte leaves the old or the new one in force.

pub(crate) mod pin;

use std::path::Path;

use ropewalk_base::{DecodeError, Decoder, Lsn, Seq, crc32c, put_bytes, put_u32, put_u64, put_varint};
use ropewalk_vfs::{OpenMode, Vfs};

use crate::error::StoreError;
use crate::options::KeyspaceOptions;

pub(crate) const NAME: &str = "MANIFEST";
pub(crate) const NEW_NAME: &str = "MANIFEST.new";
const MAGIC: [u8; 8] = *b"ROPEMANI";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
/// No store counts so far; numbers above it are damage, and counting on from here cannot overflow.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// The start of recovery, with metadata that the engine stores there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything in the log before this address is in the runs.
    pub lsn: Lsn,
    /// The last commit that is in the runs.
    pub seq: Seq,
    /// Opaque bytes of the engine.
    pub meta: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) next_file: u64,
    pub(crate) keyspaces: Vec<ManifestKeyspace>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestKeyspace {
    pub(crate) name: String,
    pub(crate) options: KeyspaceOptions,
    pub(crate) runs: Vec<ManifestRun>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestRun {
    pub(crate) level: u64,
    /// Number of the flush, in level 0.
    pub(crate) group: u64,
    pub(crate) file: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        put_varint(&mut payload, self.checkpoint.lsn.0);
        put_varint(&mut payload, self.checkpoint.seq.0);
        put_bytes(&mut payload, &self.checkpoint.meta);
        put_varint(&mut payload, self.next_file);
        put_varint(&mut payload, self.keyspaces.len() as u64);
        for keyspace in &self.keyspaces {
            put_bytes(&mut payload, keyspace.name.as_bytes());
            keyspace.options.encode(&mut payload);
            put_varint(&mut payload, keyspace.runs.len() as u64);
            for run in &keyspace.runs {
                assert!(run.file < self.next_file, "the numbers of files are given out once");
                for number in [run.level, run.group, run.file, run.bytes] {
                    put_varint(&mut payload, number);
                }
            }
        }
        debug_assert_eq!(
            Self::decode_payload(&payload).as_ref(),
            Ok(self),
            "the next opening accepts the manifest"
        );
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, VERSION);
        put_u32(&mut out, crc32c(&payload));
        put_u64(&mut out, payload.len() as u64);
        out.extend_from_slice(&payload);
        out
    }

    fn decode_payload(payload: &[u8]) -> Result<Self, DecodeError> {
        let decoder = &mut Decoder::new(payload);
        let checkpoint = Checkpoint {
            lsn: Lsn(decoder.varint("lsn of the checkpoint")?),
            seq: Seq(decoder.varint("seq of the checkpoint")?),
            meta: decoder.bytes("meta of the checkpoint")?.to_vec(),
        };
        let next_file = decoder.varint("next file number")?;
        if next_file > NUMBER_MAX {
            return Err(DecodeError {
                what: "next file number that can be counted up",
                offset: decoder.offset(),
            });
        }
        let mut keyspaces = Vec::new();
        for _ in 0..decoder.varint("keyspace count")? {
            let name = decoder.str("name of a keyspace")?.to_owned();
            let options = KeyspaceOptions::decode(decoder)?;
            let mut runs = Vec::new();
            for _ in 0..decoder.varint("run count")? {
                let mut numbers = [0; 4];
                for number in &mut numbers {
                    *number = decoder.varint("run of a keyspace")?;
                }
                let [level, group, file, bytes] = numbers;
                if level > 64 {
                    return Err(DecodeError { what: "level up to 64", offset: decoder.offset() });
                }
                if file >= next_file || group > NUMBER_MAX {
                    return Err(DecodeError {
                        what: "run numbers that were given out",
                        offset: decoder.offset(),
                    });
                }
                runs.push(ManifestRun { level, group, file, bytes });
            }
            keyspaces.push(ManifestKeyspace { name, options, runs });
        }
        if !decoder.is_empty() {
            return Err(DecodeError { what: "end of the manifest", offset: decoder.offset() });
        }
        Ok(Self { checkpoint, next_file, keyspaces })
    }

    /// Reads the manifest in force; `None` when the directory has none.
    pub(crate) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join(NAME);
        if !vfs.exists(&path).map_err(StoreError::io("look for", &path))? {
            return Ok(None);
        }
        let file = vfs.open(&path, OpenMode::Read).map_err(StoreError::io("open", &path))?;
        let len = file.len().map_err(StoreError::io("length of", &path))?;
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(StoreError::io("read", &path))?;
        let corrupt = |offset, what| StoreError::corrupt(&path, offset, what);
        let decoder = &mut Decoder::new(&bytes);
        let header = |e: DecodeError| corrupt(e.offset as u64, "manifest header");
        let magic: [u8; 8] = decoder.array("magic").map_err(header)?;
        let version = decoder.u32("version").map_err(header)?;
        let crc = decoder.u32("crc").map_err(header)?;
        let length = decoder.u64("length").map_err(header)?;
        if magic != MAGIC {
            return Err(StoreError::Foreign { path: path.clone(), kind: "manifest", found: magic });
        }
        if version != VERSION {
            return Err(StoreError::Version { path: path.clone(), found: version, supported: VERSION });
        }
        let payload = decoder.rest();
        if payload.len() as u64 != length {
            return Err(corrupt(16, "manifest of the length it says"));
        }
        if crc32c(payload) != crc {
            return Err(corrupt(12, "checksum of the manifest"));
        }
        let manifest = Self::decode_payload(payload);
        manifest.map(Some).map_err(|e| corrupt((HEADER_BYTES + e.offset) as u64, e.what))
    }

    /// Puts the manifest in force. On `Err((error, true))` the new one may already be: its runs must stay.
    pub(crate) fn write(&self, vfs: &dyn Vfs, dir: &Path) -> Result<(), (StoreError, bool)> {
        let (path, new) = (dir.join(NAME), dir.join(NEW_NAME));
        let before = |op| move |source| (StoreError::Io { op, path: dir.join(NEW_NAME), source }, false);
        if vfs.exists(&new).map_err(before("look for"))? {
            vfs.remove(&new).map_err(before("remove"))?;
        }
        let file = vfs.open(&new, OpenMode::CreateNew).map_err(before("create"))?;
        file.write_all_at(&self.encode(), 0).map_err(before("write"))?;
        file.sync_data().map_err(before("sync"))?;
        vfs.sync_dir(dir).map_err(before("sync the directory of"))?;
        vfs.rename(&new, &path).map_err(before("rename"))?;
        vfs.sync_dir(dir)
            .map_err(|source| (StoreError::Io { op: "sync the directory of", path, source }, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let manifest = Manifest {
            checkpoint: Checkpoint { lsn: Lsn(300), seq: Seq(7), meta: b"m".to_vec() },
            next_file: 5,
            keyspaces: vec![ManifestKeyspace {
                name: "docs".into(),
                options: KeyspaceOptions::default(),
                runs: vec![ManifestRun { level: 1, group: 0, file: 4, bytes: 4096 }],
            }],
        };
        assert_eq!(
            ropewalk_base::hex(&manifest.encode()),
            "524f50454d414e4901000000f34577b81900000000000000ac0207016d050104646f637300010000100000010100048020"
        );
    }

    proptest! {
        #[test]
        fn any_payload_decodes_or_fails_but_never_panics(bytes: Vec<u8>) {
            let _ = Manifest::decode_payload(&bytes);
        }
    }
}
