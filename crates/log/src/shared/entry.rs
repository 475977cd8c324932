//! Bytes of an entry of the shared log. Drawn in `docs/format/shared-log.md`.
//!
//! ```text
//!  0   1  magic        0x9D
//!  1   1  format       1
//!  2   2  level        feature level that a reader needs
//!  4   1  kind         1 lead, 2 renew, 3 commits, 4 part, 5 hash, 6 close
//!  5   1  flags        of a part: 1 the first, 2 the last; otherwise 0
//!  6   8  term         term of the leader that wrote it
//! 14  16  node         that leader
//! 30   8  first        the commit that it begins with; without commits, the one that is next
//! 38   4  count        commits, of a part: of the whole group
//! 42   8  time         the leader's clock, microseconds since 1970
//! 50  16  previous     chain hash of the entry before it; zeros before the first one
//! 66   …  body
//!  …   4  crc32c       of everything before it
//! ```
//! Little-endian.

use core::fmt;

use ropewalk_base::{DecodeError, Decoder, Seq, crc32c, hash128, hex, put_u32, put_u64};

const MAGIC: u8 = 0x9D;
const FORMAT: u8 = 1;
/// The features that this version writes, and the newest that it reads. A leader that writes something that an older
/// version would apply differently writes a higher level, at which that version stops.
pub const FEATURE_LEVEL: u16 = 1;
/// Bytes of an entry in addition to its body.
pub const ENTRY_OVERHEAD: usize = HEADER_BYTES + CHECKSUM_BYTES;
const HEADER_BYTES: usize = 66;
const CHECKSUM_BYTES: usize = 4;
/// Bytes of a body of commits in addition to the payload of each.
pub(crate) const COMMIT_OVERHEAD: usize = 4;

/// Hash of an entry and, through it, of all entries before it: XXH3-128 of its bytes, which contain the previous hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainHash(pub [u8; 16]);

impl ChainHash {
    /// Before the first entry.
    pub const NONE: Self = Self([0; 16]);

    /// The hash of the entry with these bytes.
    pub fn of_entry(bytes: &[u8]) -> Self {
        Self(hash128(bytes))
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The node leads from here on, with a term that is higher than all before. Body: the address that it advertises.
    Lead,
    /// The leader still leads. Without a body; in the last entry of a leader that steps down: the node that is to lead next.
    Renew,
    /// Commits of one group.
    Commits,
    /// A piece of the commits of a group that is larger than an entry. The last piece makes the group whole.
    Part {
        /// The group begins.
        first: bool,
        /// The group is whole.
        last: bool,
    },
    /// Hash of contents at a commit, or a request for it. Body: [`HashBody`](crate::shared::HashBody).
    Hash,
    /// The log ends here for good.
    Close,
}

impl EntryKind {
    fn encode(self) -> (u8, u8) {
        match self {
            Self::Lead => (1, 0),
            Self::Renew => (2, 0),
            Self::Commits => (3, 0),
            Self::Part { first, last } => (4, u8::from(first) | u8::from(last) << 1),
            Self::Hash => (5, 0),
            Self::Close => (6, 0),
        }
    }

    fn decode(kind: u8, flags: u8) -> Option<Self> {
        let found = match kind {
            1 => Self::Lead,
            2 => Self::Renew,
            3 => Self::Commits,
            4 => Self::Part { first: flags & 1 != 0, last: flags & 2 != 0 },
            5 => Self::Hash,
            6 => Self::Close,
            _ => return None,
        };
        (found.encode() == (kind, flags)).then_some(found)
    }
}

/// An entry, decoded or to be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Feature level that a reader needs.
    pub level: u16,
    /// Kind.
    pub kind: EntryKind,
    /// Term of the leader that wrote it.
    pub term: u64,
    /// That leader.
    pub node: [u8; 16],
    /// The commit that it begins with; without commits, the one that is next.
    pub first: Seq,
    /// Number of commits; of a part, in the whole group.
    pub count: u32,
    /// The leader's clock, microseconds since 1970.
    pub time_micros: i64,
    /// Chain hash of the entry before it.
    pub previous: ChainHash,
    /// Contents, by kind.
    pub body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Appends its bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(ENTRY_OVERHEAD + self.body.len());
        out.extend_from_slice(&[MAGIC, FORMAT]);
        out.extend_from_slice(&self.level.to_le_bytes());
        let (kind, flags) = self.kind.encode();
        out.extend_from_slice(&[kind, flags]);
        put_u64(out, self.term);
        out.extend_from_slice(&self.node);
        put_u64(out, self.first.0);
        put_u32(out, self.count);
        out.extend_from_slice(&self.time_micros.to_le_bytes());
        out.extend_from_slice(&self.previous.0);
        out.extend_from_slice(self.body);
        let sum = out.get(start..).map_or(0, crc32c);
        put_u32(out, sum);
    }

    /// Decodes all of `bytes`. The body is checked by [`Entry::address`] and [`commits`].
    ///
    /// # Errors
    /// They are not an entry, damaged, or of a newer format. A higher feature level is not an error here.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let wrong = |what, offset| DecodeError { what, offset };
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| wrong("header of an entry", 0))?;
        let (checked, sum) = bytes.split_at_checked(end).ok_or_else(|| wrong("header of an entry", 0))?;
        let mut decoder = Decoder::new(checked);
        if decoder.u8("magic of an entry")? != MAGIC {
            return Err(wrong("magic 0x9d of an entry", 0));
        }
        if decoder.u8("format of an entry")? != FORMAT {
            return Err(wrong("format 1 of an entry", 1));
        }
        if sum != crc32c(checked).to_le_bytes() {
            return Err(wrong("checksum of an entry", end));
        }
        let level = u16::from_le_bytes(decoder.array("feature level of an entry")?);
        let (kind, flags) = (decoder.u8("kind of an entry")?, decoder.u8("flags of an entry")?);
        let kind =
            EntryKind::decode(kind, flags).ok_or_else(|| wrong("kind of an entry with its flags", 4))?;
        let term = u64::from_le_bytes(decoder.array("term of an entry")?);
        let node = decoder.array("node of an entry")?;
        let first = Seq(u64::from_le_bytes(decoder.array("first commit of an entry")?));
        let count = u32::from_le_bytes(decoder.array("number of commits of an entry")?);
        let time_micros = i64::from_le_bytes(decoder.array("time of an entry")?);
        let previous = ChainHash(decoder.array("previous hash of an entry")?);
        let body = decoder.rest();
        let has_commits = matches!(kind, EntryKind::Commits | EntryKind::Part { .. });
        if has_commits != (count > 0) {
            return Err(wrong("number of commits of its kind of entry", 38));
        }
        Ok(Self { level, kind, term, node, first, count, time_micros, previous, body })
    }

    /// The address that the leader advertises, of an entry of kind [`EntryKind::Lead`].
    ///
    /// # Errors
    /// The body is not UTF-8.
    pub fn address(&self) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.body)
            .map_err(|_| DecodeError { what: "address of a leader, in UTF-8", offset: HEADER_BYTES })
    }
}

/// Appends one commit to a body of commits: its payload, and 4 bytes for the length of that.
///
/// # Panics
/// The payload has four gigabytes; a record is smaller.
pub fn put_commit(body: &mut Vec<u8>, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a record is smaller than four gigabytes");
    put_u32(body, length);
    body.extend_from_slice(payload);
}

/// The payloads in a body of `count` commits: that of an [`EntryKind::Commits`], or of all parts of a group.
///
/// # Errors
/// The body ends early or late.
pub fn commits(body: &[u8], count: u32) -> Result<Vec<&[u8]>, DecodeError> {
    let mut decoder = Decoder::new(body);
    // Each commit takes some bytes, so that a wrong number reserves little.
    let mut found = Vec::with_capacity((count as usize).min(body.len() / COMMIT_OVERHEAD));
    for _ in 0..count {
        let length = decoder.u32("length of a commit")?;
        found.push(decoder.take(length as usize, "payload of a commit")?);
    }
    if !decoder.is_empty() {
        return Err(DecodeError { what: "end of the commits", offset: decoder.offset() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(body: &[u8]) -> Entry<'_> {
        Entry {
            level: 1,
            kind: EntryKind::Commits,
            term: 2,
            node: [3; 16],
            first: Seq(4),
            count: 2,
            time_micros: 5,
            previous: ChainHash([6; 16]),
            body,
        }
    }

    #[test]
    fn golden_bytes() {
        let mut body = Vec::new();
        put_commit(&mut body, b"ab");
        put_commit(&mut body, b"");
        let mut bytes = Vec::new();
        entry(&body).encode(&mut bytes);
        let expected = concat!(
            "9d01010003000200000000000000",     // magic, format, level, kind, flags, term
            "03030303030303030303030303030303", // node
            "0400000000000000020000000500000000000000", // first, count, time
            "06060606060606060606060606060606", // previous
            "02000000616200000000",             // commits
        );
        let (checked, sum) = bytes.split_at(bytes.len() - 4);
        assert_eq!(hex(checked), expected);
        assert_eq!(sum, crc32c(checked).to_le_bytes());
        assert_eq!(bytes.len(), ENTRY_OVERHEAD + body.len());
        let decoded = Entry::decode(&bytes).unwrap();
        assert_eq!(decoded, entry(&body));
        assert_eq!(commits(decoded.body, decoded.count).unwrap(), [b"ab".as_slice(), b""]);
        assert!(commits(decoded.body, 1).is_err(), "a commit too many");
        assert!(commits(decoded.body, 3).is_err(), "a commit too few");
    }

    #[test]
    fn hash_of_an_entry_never_changes() {
        let none = ChainHash::of_entry(b"");
        assert_eq!(none.to_string(), "99aa06d3014798d86001c324468d497f");
    }

    #[test]
    fn kinds_are_decoded_with_their_flags_only() {
        let kinds = [
            EntryKind::Lead,
            EntryKind::Renew,
            EntryKind::Commits,
            EntryKind::Part { first: true, last: false },
            EntryKind::Part { first: false, last: false },
            EntryKind::Part { first: false, last: true },
            EntryKind::Part { first: true, last: true },
            EntryKind::Hash,
            EntryKind::Close,
        ];
        for kind in kinds {
            let (number, flags) = kind.encode();
            assert_eq!(EntryKind::decode(number, flags), Some(kind));
            assert_eq!(EntryKind::decode(number, flags | 0x80), None);
        }
        assert_eq!(EntryKind::decode(0, 0), None);
        assert_eq!(EntryKind::decode(7, 0), None);
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let mut bytes = Vec::new();
        entry(&[0; 8]).encode(&mut bytes);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Entry::decode(&changed).is_err(), "byte {at}");
            assert!(Entry::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(mut bytes: Vec<u8>, whole: bool, count: u32) {
            if whole {
                let rest = bytes.split_off(bytes.len().min(2));
                bytes = [[MAGIC, FORMAT].as_slice(), &rest].concat();
                let sum = crc32c(&bytes);
                put_u32(&mut bytes, sum);
            }
            if let Ok(entry) = Entry::decode(&bytes) {
                let mut again = Vec::new();
                entry.encode(&mut again);
                prop_assert_eq!(&again, &bytes);
                let _ = (entry.address(), commits(entry.body, entry.count));
            }
            let _ = commits(&bytes, count);
        }
    }
}
