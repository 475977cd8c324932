//! Bodies of entries of kind [`EntryKind::Hash`](crate::shared::EntryKind::Hash). Drawn in `docs/format/shared-log.md`.
//!
//! ```text
//! form 1  effects        origin u64 | commit u64 | hash 16
//! form 2  slice          bytes u64 | start: the rest
//! form 3  hash of slice  entry u64 | commit u64 | hash 16 | parts to the end, each: number u32 | hash 16
//! ```
//! Little-endian. The form is the first byte. A reader ignores forms that it does not know.

use ropewalk_base::{ContentHash, DecodeError, Decoder, Seq, put_u32, put_u64};

use crate::shared::EntryIndex;

/// Most parts of a slice that an entry names.
pub const SLICE_PARTS_MAX: usize = 256;

const EFFECTS: u8 = 1;
const SLICE: u8 = 2;
const SLICE_HASH: u8 = 3;

/// Statement of a leader about contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashBody {
    /// The hash of the effects of all commits up to one, as most nodes have it.
    Effects {
        /// Identifies the commit from which on these hashes are summed up.
        origin: u64,
        /// The last commit.
        seq: Seq,
        /// The hash.
        hash: ContentHash,
    },
    /// A request: each node hashes a slice of its contents, as of the commit before this entry.
    Slice {
        /// Where the slice begins, in the order of contents.
        start: Vec<u8>,
        /// It ends with the item that makes it so long.
        bytes: u64,
    },
    /// The hash of a slice, as most nodes have it.
    SliceHash {
        /// The entry with the request.
        request: EntryIndex,
        /// The commit as of which it was hashed.
        seq: Seq,
        /// The hash.
        hash: ContentHash,
        /// The hash of each part, if the leader has the hash of most nodes.
        parts: Vec<SlicePart>,
    },
}

/// A part of a slice: the entries of a keyspace, or the contents of a model that are not in keyspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlicePart {
    /// Number of the keyspace; that of a model plus 65 536.
    pub number: u32,
    /// Hash of the part.
    pub hash: ContentHash,
}

impl HashBody {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Effects { origin, seq, hash } => {
                out.push(EFFECTS);
                put_u64(&mut out, *origin);
                put_u64(&mut out, seq.0);
                put_hash(&mut out, *hash);
            }
            Self::Slice { start, bytes } => {
                out.push(SLICE);
                put_u64(&mut out, *bytes);
                out.extend_from_slice(start);
            }
            Self::SliceHash { request, seq, hash, parts } => {
                out.push(SLICE_HASH);
                put_u64(&mut out, request.0);
                put_u64(&mut out, seq.0);
                put_hash(&mut out, *hash);
                for part in parts.iter().take(SLICE_PARTS_MAX) {
                    put_u32(&mut out, part.number);
                    put_hash(&mut out, part.hash);
                }
            }
        }
        out
    }

    /// Decodes a body; `None` for a form that this version does not know.
    ///
    /// # Errors
    /// The bytes end early or late.
    pub fn decode(body: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut decoder = Decoder::new(body);
        let found = match decoder.u8("form of a hash")? {
            EFFECTS => Self::Effects {
                origin: decoder.u64("origin of a hash")?,
                seq: Seq(decoder.u64("commit of a hash")?),
                hash: take_hash(&mut decoder)?,
            },
            SLICE => {
                let bytes = decoder.u64("bytes of a slice")?;
                Self::Slice { bytes, start: decoder.rest().to_vec() }
            }
            SLICE_HASH => {
                let request = EntryIndex(decoder.u64("request of a slice")?);
                let seq = Seq(decoder.u64("commit of a slice")?);
                let hash = take_hash(&mut decoder)?;
                let mut parts = Vec::new();
                while !decoder.is_empty() && parts.len() < SLICE_PARTS_MAX {
                    let number = decoder.u32("number of a part")?;
                    parts.push(SlicePart { number, hash: take_hash(&mut decoder)? });
                }
                Self::SliceHash { request, seq, hash, parts }
            }
            _ => return Ok(None),
        };
        let is_whole = matches!(found, Self::Slice { .. }) || decoder.is_empty();
        if is_whole {
            Ok(Some(found))
        } else {
            Err(DecodeError { what: "end of a hash", offset: decoder.offset() })
        }
    }
}

fn put_hash(out: &mut Vec<u8>, hash: ContentHash) {
    out.extend_from_slice(&hash.0.to_le_bytes());
}

fn take_hash(decoder: &mut Decoder<'_>) -> Result<ContentHash, DecodeError> {
    Ok(ContentHash(u128::from_le_bytes(decoder.array("hash")?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_base::hex;

    fn bodies() -> [HashBody; 3] {
        let (seq, hash) = (Seq(2), ContentHash(3));
        let parts = vec![SlicePart { number: 0x1_0001, hash: ContentHash(4) }];
        [
            HashBody::Effects { origin: 1, seq, hash },
            HashBody::Slice { start: b"ab".to_vec(), bytes: 5 },
            HashBody::SliceHash { request: EntryIndex(1), seq, hash, parts },
        ]
    }

    #[test]
    fn golden_bytes() {
        let hash = "03000000000000000000000000000000";
        let expected = [
            format!("0101000000000000000200000000000000{hash}"),
            "0205000000000000006162".to_owned(),
            format!("0301000000000000000200000000000000{hash}0100010004{}", "00".repeat(15)),
        ];
        for (body, expected) in bodies().iter().zip(expected) {
            let bytes = body.encode();
            assert_eq!(hex(&bytes), expected);
            assert_eq!(HashBody::decode(&bytes).unwrap().as_ref(), Some(body));
        }
        assert_eq!(HashBody::decode(&[9, 1, 2]), Ok(None), "a form of a later version");
        assert!(HashBody::decode(&[]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(mut bytes: Vec<u8>, form in 1..4_u8) {
            bytes.insert(0, form);
            if let Ok(Some(body)) = HashBody::decode(&bytes) {
                prop_assert_eq!(body.encode(), bytes);
            }
        }
    }
}
